// The benchmark's own checks: distributions against theory, streams against YCSB's mixes,
// percentiles against sorting, and values that show every change. A generator with a small error
// would silently make every published figure wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/support/histogram.h"
#include "bench/support/json_line.h"
#include "bench/support/records.h"
#include "bench/support/workload.h"
#include "bench/support/zipf.h"

namespace bench {
namespace {

constexpr std::uint64_t kSeed = 20261101;
constexpr double kSigmas = 5;  // a false alarm has a chance below one in a million

// Expects |count - n p| within kSigmas standard deviations, plus 1 for rounding.
void expect_share(std::uint64_t count, std::uint64_t draws, double p, const std::string& what) {
  const double n = static_cast<double>(draws);
  const double slack = kSigmas * std::sqrt(n * p * (1 - p)) + 1;
  EXPECT_NEAR(static_cast<double>(count), n * p, slack) << what << ", seed " << kSeed;
}

// The probability that Gray's method draws a rank below k, in closed form.
double gray_below(const Zipfian& z, std::uint64_t k) {
  const double n = static_cast<double>(z.items());
  return 1 + (std::pow(static_cast<double>(k) / n, 1 - kZipfTheta) - 1) / z.eta();
}

TEST(Zipf, first_two_ranks_have_exactly_their_share) {
  constexpr std::uint64_t kItems = 1000;
  constexpr std::uint64_t kDraws = 500'000;
  const Zipfian zipf(kItems);
  Rng rng(kSeed);
  std::uint64_t count[2] = {};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t rank = zipf.next(rng);
    ASSERT_LT(rank, kItems);
    if (rank < 2) ++count[rank];
  }
  expect_share(count[0], kDraws, 1 / zipf.zeta(), "rank 0");
  expect_share(count[1], kDraws, std::pow(0.5, kZipfTheta) / zipf.zeta(), "rank 1");
}

TEST(Zipf, cumulative_shares_follow_grays_law_and_stay_near_the_true_zipfian) {
  constexpr std::uint64_t kItems = 100'000;
  constexpr std::uint64_t kDraws = 1'000'000;
  const Zipfian zipf(kItems);
  Rng rng(kSeed);
  std::vector<std::uint64_t> below(kItems + 1);
  for (std::uint64_t i = 0; i < kDraws; ++i) ++below[zipf.next(rng) + 1];
  for (std::uint64_t k = 1; k <= kItems; ++k) below[k] += below[k - 1];
  for (const std::uint64_t k : {10u, 100u, 1000u, 10'000u, 50'000u}) {
    expect_share(below[k], kDraws, gray_below(zipf, k), "ranks below " + std::to_string(k));
    const double truth = zeta_sum(0, k, kZipfTheta) / zipf.zeta();
    EXPECT_NEAR(static_cast<double>(below[k]) / kDraws, truth, 0.03) << k;
  }
}

TEST(Zipf, growing_equals_starting_with_more_items) {
  Zipfian grown(1000);
  grown.grow(2500);
  grown.grow(2000);  // never shrinks
  const Zipfian fresh(2500);
  EXPECT_NEAR(grown.zeta(), fresh.zeta(), 1e-9);
  EXPECT_NEAR(grown.eta(), fresh.eta(), 1e-9);
}

TEST(Zipf, scrambled_constant_is_the_sum_it_stands_for) {
  // Sum of i^-theta for i = 1 to n by Euler and Maclaurin: exact part, integral, half of the last
  // term.
  constexpr std::uint64_t kExact = 1'000'000;
  const double n = static_cast<double>(ScrambledZipfian::kItemSpace);
  const double m = static_cast<double>(kExact);
  const double integral =
      (std::pow(n, 1 - kZipfTheta) - std::pow(m, 1 - kZipfTheta)) / (1 - kZipfTheta);
  const double ends = (std::pow(n, -kZipfTheta) - std::pow(m, -kZipfTheta)) / 2;
  EXPECT_NEAR(ScrambledZipfian::kZetaOfItemSpace, zeta_sum(0, kExact, kZipfTheta) + integral + ends,
              1e-6);
}

TEST(Zipf, scrambled_hot_record_is_the_hash_of_rank_zero) {
  constexpr std::uint64_t kRecords = 10'000;
  constexpr std::uint64_t kDraws = 400'000;
  const ScrambledZipfian zipf(kRecords);
  Rng rng(kSeed);
  std::vector<std::uint64_t> count(kRecords);
  for (std::uint64_t i = 0; i < kDraws; ++i) ++count[zipf.next(rng)];
  const std::uint64_t hot = fnv_hash(0) % kRecords;
  EXPECT_EQ(
      static_cast<std::uint64_t>(std::max_element(count.begin(), count.end()) - count.begin()),
      hot);
  // Rank 0, plus an even share of the far tail that is hashed to the same record.
  const double p = 1 / ScrambledZipfian::kZetaOfItemSpace;
  EXPECT_NEAR(static_cast<double>(count[hot]) / kDraws, p, 0.002);
  const auto touched = std::count_if(count.begin(), count.end(), [](auto c) { return c > 0; });
  EXPECT_GT(touched, static_cast<long>(kRecords * 9 / 10)) << "popularity is spread over all";
}

TEST(Zipf, hash_is_fnv_1a) {
  // The published 64-bit FNV-1a of eight zero bytes, with YCSB's absolute value.
  EXPECT_EQ(fnv_hash(0), 0 - 0xa8c7f832281a39c5ull);
}

TEST(Zipf, latest_prefers_the_newest_as_the_store_grows) {
  constexpr std::uint64_t kDraws = 200'000;
  Latest latest(1000);
  Rng rng(kSeed);
  std::uint64_t newest = 0;
  double expected = 0;
  double variance = 0;
  Zipfian law(1000);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t count = 1000 + i / 100;
    const std::uint64_t at = latest.next(rng, count);
    ASSERT_LT(at, count);
    if (at == count - 1) ++newest;
    law.grow(count);
    const double p = 1 / law.zeta();
    expected += p;
    variance += p * (1 - p);
  }
  EXPECT_NEAR(static_cast<double>(newest), expected, kSigmas * std::sqrt(variance));
}

TEST(Records, keys_are_distinct_have_their_size_and_lead_back_to_their_record) {
  for (const std::size_t bytes : {8u, 16u, 24u}) {
    for (const bool ordered : {false, true}) {
      const YcsbRecords records(bytes, 100, ordered);
      std::set<std::string> keys;
      std::string previous;
      bool rising = true;
      for (std::uint64_t r = 0; r < 20'000; ++r) {
        std::string key(bytes, '\0');
        ASSERT_EQ(records.make_key(r, key.data()), bytes);
        EXPECT_EQ(records.record_of(key), r);
        rising = rising && previous < key;
        previous = key;
        keys.insert(std::move(key));
      }
      EXPECT_EQ(keys.size(), 20'000u);
      EXPECT_EQ(rising, ordered) << bytes;
    }
  }
}

TEST(Records, value_is_known_by_its_key_and_version_and_no_byte_may_change) {
  const std::string key = "user0123456789ab";
  for (const std::size_t bytes : {8u, 9u, 15u, 100u, 1000u}) {
    const YcsbRecords records(16, bytes, false);
    std::string value(bytes, '\0');
    ASSERT_EQ(records.make_value(1, key, 77, value.data()), bytes);
    std::uint32_t version = 0;
    EXPECT_TRUE(records.check_value(key, value, version));
    EXPECT_EQ(version, 77u);
    EXPECT_FALSE(records.check_value("user0123456789ac", value, version)) << "another key's";
    EXPECT_FALSE(records.check_value(key, value.substr(1), version)) << "too short";
    for (std::size_t i = 0; i < bytes; ++i) {
      std::string changed = value;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      EXPECT_FALSE(records.check_value(key, changed, version)) << "byte " << i << " of " << bytes;
    }
  }
}

TEST(Records, hash_sees_every_byte_and_the_length) {
  std::string bytes(75, 'a');
  const std::uint64_t whole = hash_bytes(bytes, 1);
  EXPECT_NE(whole, hash_bytes(bytes, 2));
  EXPECT_NE(whole, hash_bytes(std::string_view(bytes).substr(1), 1));
  for (char& c : bytes) {
    c ^= 1;
    EXPECT_NE(whole, hash_bytes(bytes, 1));
    c ^= 1;
  }
}

class Streams : public ::testing::TestWithParam<unsigned> {};

std::map<OpKind, std::uint64_t> kinds_of(const Phase& phase) {
  std::map<OpKind, std::uint64_t> count;
  for (const Stream& s : phase.streams) {
    for (const Op& op : s.ops) ++count[op.kind];
  }
  return count;
}

TEST_P(Streams, mixes_have_ycsbs_proportions) {
  const YcsbRecords records(16, 100, false);
  Planner planner(records, GetParam(), kSeed);
  EXPECT_EQ(planner.load(5000).ops(), 5000u);
  constexpr std::uint64_t kOps = 100'000;
  const std::map<Workload, std::map<OpKind, double>> mixes = {
      {Workload::a, {{OpKind::read, .5}, {OpKind::update, .5}}},
      {Workload::b, {{OpKind::read, .95}, {OpKind::update, .05}}},
      {Workload::c, {{OpKind::read, 1}}},
      {Workload::d, {{OpKind::read, .95}, {OpKind::insert, .05}}},
      {Workload::e, {{OpKind::scan, .95}, {OpKind::insert, .05}}},
      {Workload::e_cold, {{OpKind::scan, .95}, {OpKind::insert, .05}}},
      {Workload::e_warm, {{OpKind::scan, .95}, {OpKind::insert, .05}}},
      {Workload::f, {{OpKind::read, .5}, {OpKind::rmw, .5}}},
  };
  for (const auto& [workload, shares] : mixes) {
    const Phase phase = planner.next(workload, kOps, Distribution::zipfian);
    EXPECT_EQ(phase.ops(), kOps);
    const auto count = kinds_of(phase);
    EXPECT_EQ(count.size(), shares.size()) << workload_name(workload);
    for (const auto& [kind, share] : shares) {
      expect_share(count.at(kind), kOps, share,
                   std::string(workload_name(workload)) + " " + op_name(kind));
    }
  }
}

TEST_P(Streams, scan_lengths_are_uniform_from_one_to_a_hundred) {
  const YcsbRecords records(16, 100, false);
  Planner planner(records, GetParam(), kSeed);
  planner.load(1000);
  std::vector<std::uint64_t> count(256);
  std::uint64_t scans = 0;
  for (const Stream& s : planner.next(Workload::e, 100'000, Distribution::zipfian).streams) {
    for (const Op& op : s.ops) {
      if (op.kind != OpKind::scan) continue;
      ++scans;
      ++count[op.scan_count];
    }
  }
  for (unsigned length = 0; length < count.size(); ++length) {
    const bool allowed = length >= 1 && length <= kScanRecordsMax;
    if (allowed)
      expect_share(count[length], scans, 0.01, "length " + std::to_string(length));
    else
      EXPECT_EQ(count[length], 0u);
  }
}

// Plays the threads' streams in turn, and checks each operation against the plan's promises.
TEST_P(Streams, every_operation_meets_a_record_that_its_thread_may_count_on) {
  const unsigned threads = GetParam();
  const YcsbRecords records(16, 100, false);
  Planner planner(records, threads, kSeed);
  std::vector<Phase> phases;
  phases.push_back(planner.load(2000));
  for (const Workload w : {Workload::a, Workload::d, Workload::e, Workload::f, Workload::d,
                           Workload::insert_delete, Workload::b}) {
    phases.push_back(planner.next(w, 5000, Distribution::zipfian));
  }
  std::map<std::uint32_t, std::uint32_t> store;  // from record to version
  Expected expected(threads);
  for (const Phase& phase : phases) {
    std::set<std::uint32_t> before;
    for (const auto& [record, version] : store) before.insert(record);
    std::vector<std::set<std::uint32_t>> own(threads);
    for (std::size_t i = 0; i < phase.ops(); ++i) {
      const unsigned t = static_cast<unsigned>(i % threads);
      if (i / threads >= phase.streams[t].ops.size()) continue;
      const Op& op = phase.streams[t].ops[i / threads];
      if (op.kind == OpKind::insert) {
        EXPECT_EQ(store.count(op.record), 0u) << "inserts are new";
        own[t].insert(op.record);
      } else {
        ASSERT_EQ(store.count(op.record), 1u);
        EXPECT_TRUE(before.count(op.record) == 1 || own[t].count(op.record) == 1);
      }
      if (op.kind == OpKind::read || op.kind == OpKind::rmw) {
        EXPECT_TRUE(phase.acceptable(store[op.record], op.expect, t));
      }
      if (op.kind == OpKind::erase)
        store.erase(op.record);
      else if (op.version != 0)
        store[op.record] = op.version;
    }
    expected.apply(phase);
    ASSERT_EQ(expected.live(), store.size()) << workload_name(phase.workload);
    for (const auto& [record, version] : store) EXPECT_TRUE(expected.allows(record, version));
  }
  EXPECT_EQ(planner.live(), store.size());
}

INSTANTIATE_TEST_SUITE_P(Threads, Streams, ::testing::Values(1u, 2u, 3u));

TEST(Plan, one_threads_reads_accept_only_the_last_version) {
  const YcsbRecords records(16, 100, false);
  Planner planner(records, 1, kSeed);
  planner.load(100);
  const Phase phase = planner.next(Workload::a, 1000, Distribution::zipfian);
  for (const Op& op : phase.streams[0].ops) {
    EXPECT_TRUE(phase.acceptable(op.expect, op.expect, 0));
    EXPECT_FALSE(phase.acceptable(op.expect - (1u << kThreadBits), op.expect, 0));
  }
}

TEST(Plan, several_threads_see_through_stale_reads_of_their_own_writes) {
  Phase phase;
  phase.first_sequence = 100;
  phase.streams.resize(2);
  const std::uint32_t own = make_version(150, 0);
  EXPECT_TRUE(phase.acceptable(own, own, 0));
  EXPECT_FALSE(phase.acceptable(make_version(149, 0), own, 0)) << "an older write of its own";
  EXPECT_FALSE(phase.acceptable(make_version(50, 1), own, 0)) << "older than this phase";
  EXPECT_TRUE(phase.acceptable(make_version(120, 1), own, 0)) << "another thread's, any order";
  EXPECT_FALSE(phase.acceptable(make_version(120, 0), make_version(7, 0), 0)) << "from the future";
  EXPECT_TRUE(phase.acceptable(make_version(8, 1), make_version(7, 0), 0));
}

TEST(Plan, a_cut_off_phase_allows_the_one_operation_in_flight) {
  const YcsbRecords records(16, 100, false);
  Planner planner(records, 1, kSeed);
  Expected expected(1);
  expected.apply(planner.load(50));
  const Phase phase = planner.next(Workload::open, 100, Distribution::uniform);
  expected.apply_prefix(phase, 60);
  const Op& last = phase.streams[0].ops[59];
  const Op& in_flight = phase.streams[0].ops[60];
  const Op& never = phase.streams[0].ops[61];
  EXPECT_TRUE(expected.allows(last.record, last.version));
  EXPECT_TRUE(expected.allows(in_flight.record, in_flight.version));
  EXPECT_FALSE(expected.allows(never.record, never.version));
}

TEST(Plan, a_prefix_of_all_phases_is_all_up_to_a_version_and_nothing_after_it) {
  const YcsbRecords records(16, 100, false);
  Planner planner(records, 1, kSeed);
  const Phase load = planner.load(50);
  const Phase updates = planner.next(Workload::open, 100, Distribution::uniform);
  for (const std::uint32_t latest :
       {0u, load.streams[0].ops[20].version, updates.streams[0].ops[70].version}) {
    Expected expected(1);
    expected.apply_until(load, latest);
    expected.apply_until(updates, latest);
    std::map<std::uint32_t, std::uint32_t> last;
    for (const Phase* phase : {&load, &updates}) {
      for (const Op& op : phase->streams[0].ops) {
        if (op.version <= latest) last[op.record] = op.version;
      }
    }
    EXPECT_EQ(expected.live(), last.size());
    for (const Phase* phase : {&load, &updates}) {
      for (const Op& op : phase->streams[0].ops) {
        EXPECT_EQ(expected.allows(op.record, op.version),
                  last.contains(op.record) && last[op.record] == op.version);
      }
    }
  }
}

TEST(Plan, same_seed_same_stream) {
  const YcsbRecords records(16, 100, false);
  std::string keys[3];
  for (const unsigned i : {0u, 1u, 2u}) {
    Planner planner(records, 1, i == 2 ? 8 : 7);
    planner.load(100);
    keys[i] = planner.next(Workload::a, 1000, Distribution::zipfian).streams[0].keys;
  }
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_NE(keys[0], keys[2]);
}

TEST(Histogram, percentiles_agree_with_sorting_within_a_bucket) {
  Rng rng(kSeed);
  for (const unsigned bits : {6u, 12u, 30u, 44u}) {
    Histogram h;
    std::vector<std::uint64_t> values;
    for (int i = 0; i < 30'000; ++i) {
      values.push_back(rng.next() >> (64 - 1 - rng.below(bits)));
      h.record(values.back());
    }
    std::sort(values.begin(), values.end());
    for (const double share : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const auto rank = static_cast<std::size_t>(
          std::max(1.0, std::ceil(share * static_cast<double>(values.size()))));
      const std::uint64_t exact = values[rank - 1];
      EXPECT_GE(h.percentile(share), exact);
      EXPECT_LE(static_cast<double>(h.percentile(share)), static_cast<double>(exact) * 65 / 64 + 1);
    }
    EXPECT_EQ(h.percentile(1), values.back());
    EXPECT_EQ(h.total(), values.size());
  }
}

TEST(Histogram, buckets_tile_the_numbers) {
  for (std::size_t b = 0; b + 1 < Histogram::kBuckets; ++b) {
    const std::uint64_t last = Histogram::last_value_of(b);
    ASSERT_EQ(Histogram::bucket_of(last), b);
    ASSERT_EQ(Histogram::bucket_of(last + 1), b + 1);
  }
}

TEST(Histogram, merged_halves_equal_the_whole) {
  Rng rng(kSeed);
  Histogram whole;
  Histogram half[2];
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t v = rng.below(1u << 20);
    whole.record(v);
    half[i % 2].record(v);
  }
  half[0].merge(half[1]);
  for (const double share : {0.1, 0.5, 0.99}) {
    EXPECT_EQ(half[0].percentile(share), whole.percentile(share));
  }
  EXPECT_EQ(half[0].max(), whole.max());
  EXPECT_EQ(Histogram().percentile(0.5), 0u);
}

TEST(Json, quotes_what_needs_it_and_stays_on_one_line) {
  const std::string line = JsonLine()
                               .text("a\"b", "x\\\n\ty")
                               .integer("n", -3)
                               .number("f", 0.25)
                               .flag("t", true)
                               .raw("o", "{}")
                               .str();
  EXPECT_EQ(line, R"({"a\"b":"x\\\u000a\u0009y","n":-3,"f":0.25,"t":true,"o":{}})");
}

}  // namespace
}  // namespace bench
