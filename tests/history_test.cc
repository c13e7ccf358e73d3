// The checker of durable linearizability (tenuto/crash_history.h): histories written by hand, and
// random ones beside a checker that tries every order. TENUTO_SEED sets the seed of the random
// ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/seed.h"
#include "tenuto/crash_history.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct History : CrashHistory {
  void did_put(std::uint32_t thread, std::uint64_t value) { returned(put(thread, "k", value)); }
  void did_erase(std::uint32_t thread, bool existed) { erased(erase(thread, "k"), existed); }
  void did_get(std::uint32_t thread, std::uint64_t value) { got(get(thread, "k"), value); }
};

TEST(history, a_sequence_that_follows_the_rules) {
  History h;
  h.did_get(0, kAbsent);
  h.did_erase(0, false);
  h.did_put(0, 1);
  h.did_get(1, 1);
  h.did_put(1, 2);
  h.did_erase(0, true);
  h.did_get(0, kAbsent);
  EXPECT_THAT(h.check(), IsEmpty());
}

TEST(history, stale_read_after_an_acknowledged_put) {
  History h;
  h.did_put(0, 1);
  h.did_put(0, 2);
  h.did_get(1, 1);
  const std::string text = h.check();
  EXPECT_THAT(text, HasSubstr("key k: a get saw 1, which the key cannot have held then"));
  EXPECT_THAT(text, HasSubstr("3 .. 4  thread 0  put 2"));
  EXPECT_THAT(text, HasSubstr("5 .. 6  thread 1  get: 1   <--"));
}

TEST(history, a_get_beside_a_put_may_see_either_but_not_go_back) {
  for (const bool back : {false, true}) {
    History h;
    h.did_put(0, 1);
    const auto put = h.put(0, "k", 2);
    h.did_get(1, back ? 2 : 1);
    h.did_get(1, back ? 1 : 2);
    h.returned(put);
    EXPECT_EQ(h.check().empty(), !back);
  }
}

TEST(history, lost_update) {
  History h;
  const auto a = h.put(0, "k", 1);
  const auto b = h.put(1, "k", 2);
  h.returned(a);
  h.returned(b);
  h.did_get(0, kAbsent);
  EXPECT_THAT(h.check(), HasSubstr("a get saw nothing"));
}

TEST(history, two_readers_must_agree_on_the_order_of_two_puts) {
  for (const bool agree : {false, true}) {
    History h;
    const auto a = h.put(0, "k", 1);
    const auto b = h.put(1, "k", 2);
    h.did_get(2, 1);
    h.did_get(2, 2);
    h.did_get(3, agree ? 2 : 1);
    h.returned(a);
    h.returned(b);
    EXPECT_EQ(h.check().empty(), agree);
  }
}

TEST(history, resurrection_after_erase) {
  for (const bool crash : {false, true}) {
    History h;
    h.did_put(0, 1);
    h.did_erase(0, true);
    if (crash) h.crash();
    h.did_get(1, 1);
    EXPECT_THAT(h.check(), HasSubstr("a get saw 1"));
  }
}

TEST(history, an_erase_tells_the_truth_about_what_was_there) {
  History missed;
  missed.did_put(0, 1);
  missed.did_erase(1, false);
  EXPECT_THAT(missed.check(), HasSubstr("an erase missed a key that must have been there"));
  History twice;
  twice.did_put(0, 1);
  const auto a = twice.erase(0, "k");
  const auto b = twice.erase(1, "k");
  twice.erased(a, true);
  twice.erased(b, true);
  EXPECT_THAT(twice.check(), HasSubstr("an erase found a key that cannot have been there"));
}

TEST(history, an_acknowledged_put_must_survive_the_crash) {
  History h;
  h.did_put(0, 1);
  h.did_put(0, 2);
  h.crash();
  h.did_get(0, 1);
  EXPECT_THAT(h.check(), HasSubstr("put 2"));
}

TEST(history, an_operation_cut_off_by_a_crash_may_have_happened_or_not) {
  for (const std::uint64_t seen : {1u, 2u, 3u}) {
    History h;
    h.did_put(0, 1);
    h.put(0, "k", 2);
    h.crash();
    h.did_get(0, seen);
    EXPECT_EQ(h.check().empty(), seen != 3);
  }
}

TEST(history, an_erase_cut_off_by_a_crash_may_have_happened_or_not) {
  for (const std::uint64_t seen : {1u, 0u, 3u}) {
    History h;
    h.did_put(0, 1);
    h.erase(0, "k");
    h.get(1, "k");
    h.crash();
    h.did_get(0, seen);
    EXPECT_EQ(h.check().empty(), seen != 3);
  }
}

TEST(history, a_pending_operation_that_was_seen_stays) {
  for (const std::uint64_t after : {1u, 2u}) {
    History h;
    h.did_put(0, 1);
    h.put(0, "k", 2);
    h.did_get(1, 2);
    h.crash();
    h.did_get(0, after);
    EXPECT_EQ(h.check().empty(), after == 2);
  }
}

TEST(history, seen_after_one_crash_and_gone_after_the_next) {
  for (const std::uint64_t after : {1u, 2u}) {
    History h;
    h.did_put(0, 1);
    h.put(0, "k", 2);
    h.crash();
    h.did_get(0, 2);
    h.crash();
    h.did_get(0, after);
    EXPECT_EQ(h.check().empty(), after == 2);
  }
}

TEST(history, what_a_dead_epoch_left_open_cannot_happen_late) {
  History h;
  h.did_put(0, 1);
  h.put(0, "k", 2);
  h.crash();
  h.did_get(0, 1);
  h.did_get(0, 2);
  const std::string text = h.check();
  EXPECT_THAT(text, HasSubstr("no return before"));
  EXPECT_THAT(text, HasSubstr("get: 2   <--"));
}

TEST(history, a_pending_put_may_have_been_overwritten_before_the_crash) {
  for (const std::uint64_t after : {3u, 2u, 1u}) {
    History h;
    h.did_put(0, 1);
    h.put(0, "k", 2);
    h.did_put(1, 3);
    h.crash();
    h.did_get(0, after);
    EXPECT_EQ(h.check().empty(), after != 1);
  }
}

TEST(history, two_pending_operations_in_any_order) {
  for (const std::uint64_t after : {0u, 1u, 2u, 3u}) {
    History h;
    h.did_put(0, 1);
    h.put(0, "k", 2);
    h.erase(1, "k");
    h.crash();
    h.did_get(0, after);
    EXPECT_EQ(h.check().empty(), after != 3) << after;
  }
}

TEST(history, what_nobody_wrote) {
  History h;
  h.did_get(0, 7);
  EXPECT_THAT(h.check(), HasSubstr("a get saw 7, which nobody had begun to write"));
}

TEST(history, a_failed_operation_had_no_effect) {
  for (const std::uint64_t after : {1u, 2u}) {
    History h;
    h.did_put(0, 1);
    h.failed(h.put(0, "k", 2));
    h.did_get(0, after);
    EXPECT_EQ(h.check().empty(), after == 1);
  }
}

TEST(history, keys_are_judged_each_for_itself_and_the_wrong_one_is_named) {
  History h;
  for (const char* key : {"a", "b", "c"}) h.returned(h.put(0, key, 1));
  for (const char* key : {"a", "b", "c"}) h.got(h.get(0, key), *key == 'b' ? 0 : 1);
  EXPECT_THAT(h.check(), HasSubstr("key b: "));
}

TEST(history, the_explanation_leaves_out_what_does_not_matter) {
  History h;
  for (std::uint64_t v = 1; v <= 200; ++v) {
    h.did_put(static_cast<std::uint32_t>(v % 3), v);
    h.did_get(3, v);
  }
  h.did_get(0, 150);
  for (std::uint64_t v = 201; v <= 300; ++v) h.did_put(0, v);
  const std::string text = h.check();
  EXPECT_THAT(text, HasSubstr("get: 150   <--"));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 5) << text;
}

// Tries every choice of pending operations and every order that agrees with real time.
class Exhaustive {
 public:
  explicit Exhaustive(const std::vector<KeyOp>& ops) {
    for (const KeyOp& op : ops) {
      if (!(op.pending && op.verb == KeyVerb::get)) ops_.push_back(op);
    }
  }
  // The values that the key may have at the end: none if there is no order.
  std::set<std::uint64_t> finals() {
    for (std::uint32_t out = 0; out < 1u << ops_.size(); ++out) {
      bool sound = true;
      for (std::size_t i = 0; i < ops_.size(); ++i) {
        sound = sound && ((out >> i & 1) == 0 || ops_[i].pending);
      }
      if (sound) place(out, kAbsent);
    }
    return finals_;
  }

 private:
  void place(std::uint32_t placed, std::uint64_t value) {
    if (placed == (1u << ops_.size()) - 1) {
      finals_.insert(value);
      return;
    }
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if ((placed >> i & 1) != 0) continue;
      bool first = true;
      for (std::size_t j = 0; j < ops_.size(); ++j) {
        first = first && ((placed >> j & 1) != 0 || ops_[j].ended >= ops_[i].invoked);
      }
      const KeyOp& op = ops_[i];
      const bool fits = op.verb == KeyVerb::get
                            ? op.value == value
                            : op.verb == KeyVerb::put || op.saw == EraseSaw::unknown ||
                                  (op.saw == EraseSaw::existed) == (value != kAbsent);
      const std::uint64_t after = op.verb == KeyVerb::get   ? value
                                  : op.verb == KeyVerb::put ? op.value
                                                            : kAbsent;
      if (first && fits) place(placed | 1u << i, after);
    }
  }
  std::vector<KeyOp> ops_;
  std::set<std::uint64_t> finals_;
};

// Up to seven operations of up to three threads before a crash and three after it. Values collide
// on purpose.
std::vector<KeyOp> tiny_history(std::mt19937_64& rng) {
  const std::uint64_t crash = 100;
  std::vector<KeyOp> ops;
  const std::size_t count = 1 + rng() % 7;
  std::vector<std::uint64_t> free_at(6, 0);
  // Stops early when no thread has time left.
  for (int tries = 0; ops.size() < count && tries < 50; ++tries) {
    const std::size_t thread = rng() % 6;  // 3..5 live after the crash
    std::uint64_t& now = free_at[thread];
    if (now == 0) now = thread < 3 ? 1 : crash + 1;
    if (now >= (thread < 3 ? crash : 2 * crash)) continue;
    KeyOp op;
    op.thread = static_cast<std::uint32_t>(thread);
    op.invoked = now + rng() % 20;
    op.ended = op.invoked + 1 + rng() % 30;
    op.verb = static_cast<KeyVerb>(rng() % 3);
    op.value = op.verb == KeyVerb::put ? 1 + rng() % 2 : rng() % 3;
    op.saw = static_cast<EraseSaw>(rng() % 3);
    const std::uint64_t end = thread < 3 ? crash : 2 * crash;
    if (op.invoked >= end) continue;
    if (op.ended >= end || rng() % 6 == 0) {
      op.ended = end;
      op.pending = true;
      op.saw = EraseSaw::unknown;
    }
    now = op.ended + 1;
    ops.push_back(op);
  }
  return ops;
}

std::string describe(const std::vector<KeyOp>& ops) {
  std::string text;
  for (const KeyOp& op : ops) {
    text += "thread " + std::to_string(op.thread) + " verb " +
            std::to_string(static_cast<int>(op.verb)) + " value " + std::to_string(op.value) +
            " saw " + std::to_string(static_cast<int>(op.saw)) + " " + std::to_string(op.invoked) +
            ".." + std::to_string(op.ended) + (op.pending ? " pending\n" : "\n");
  }
  return text;
}

TEST(history, random_tiny_histories_are_judged_as_by_trying_every_order) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 rng(seed);
  int sound = 0;
  constexpr int kHistories = 60'000;
  for (int i = 0; i < kHistories; ++i) {
    const std::vector<KeyOp> ops = tiny_history(rng);
    const std::set<std::uint64_t> expected = Exhaustive(ops).finals();
    const KeyJudgement j = check_key_history(ops);
    ASSERT_EQ(j.verdict == Verdict::linearizable, !expected.empty()) << describe(ops) << j.what;
    ASSERT_EQ(std::set<std::uint64_t>(j.finals.begin(), j.finals.end()), expected) << describe(ops);
    ASSERT_EQ(j.what.empty(), !expected.empty());
    sound += expected.empty() ? 0 : 1;
  }
  EXPECT_GT(sound, kHistories / 10) << "hardly any history is sound";
  EXPECT_LT(sound, kHistories - kHistories / 10) << "hardly any history is wrong";
}

// A register that `threads` threads use, with operations that overlap all the time.
std::vector<KeyOp> busy_history(std::size_t count, std::uint32_t threads, std::mt19937_64& rng) {
  std::vector<KeyOp> ops;
  std::vector<std::uint64_t> free_at(threads, 1);
  std::vector<std::pair<std::uint64_t, std::size_t>> moments;
  for (std::size_t i = 0; i < count; ++i) {
    const auto thread = static_cast<std::uint32_t>(i % threads);
    KeyOp op;
    op.thread = thread;
    op.verb = static_cast<KeyVerb>(rng() % 3);
    op.value = i + 1;
    op.invoked = free_at[thread];
    const std::uint64_t moment = op.invoked + rng() % (4 * threads);
    op.ended = moment + 1 + rng() % (4 * threads);
    free_at[thread] = op.ended + 1;
    moments.emplace_back(moment, i);
    ops.push_back(op);
  }
  std::sort(moments.begin(), moments.end());
  std::uint64_t value = kAbsent;
  for (const auto& [moment, i] : moments) {
    KeyOp& op = ops[i];
    if (op.verb == KeyVerb::get) op.value = value;
    if (op.verb == KeyVerb::erase) op.saw = value != 0 ? EraseSaw::existed : EraseSaw::absent;
    if (op.verb != KeyVerb::get) value = op.verb == KeyVerb::put ? op.value : kAbsent;
  }
  return ops;
}

TEST(history, thousands_of_overlapping_operations_of_one_key_take_little_time) {
  std::mt19937_64 rng(7);
  for (const std::uint32_t threads : {2u, 4u, 8u}) {
    std::vector<KeyOp> ops = busy_history(20'000, threads, rng);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(check_key_history(ops).verdict, Verdict::linearizable);
    const double us =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    std::printf("%u threads: %.2f us an operation\n", threads,
                us / static_cast<double>(ops.size()));
    // A get returns what the key held much earlier.
    const auto get = std::find_if(ops.begin() + 15'000, ops.end(), [](const KeyOp& op) {
      return op.verb == KeyVerb::get && op.value != kAbsent;
    });
    ASSERT_NE(get, ops.end());
    const auto put = std::find_if(ops.begin() + 14'000, ops.end(),
                                  [](const KeyOp& op) { return op.verb == KeyVerb::put; });
    get->value = put->value;
    const KeyJudgement j = check_key_history(std::span(ops).first(16'000));
    EXPECT_EQ(j.verdict, Verdict::contradiction);
    EXPECT_LE(std::count(j.what.begin(), j.what.end(), '\n'), 8) << j.what;
  }
}

TEST(history, more_at_a_time_than_the_search_can_hold_is_undecided_and_not_sound) {
  std::vector<KeyOp> ops;
  for (std::uint32_t t = 0; t < 70; ++t) {
    ops.push_back({.invoked = 1, .ended = 2, .value = t + 1, .verb = KeyVerb::put, .thread = t});
  }
  EXPECT_EQ(check_key_history(ops).verdict, Verdict::undecided);
}

TEST(history, what_the_key_held_before_counts) {
  const std::vector<KeyOp> ops = {{.invoked = 1, .ended = 2, .value = 5, .verb = KeyVerb::get}};
  const std::vector<std::uint64_t> before = {4, 5};
  const KeyJudgement j = check_key_history(ops, before);
  EXPECT_EQ(j.verdict, Verdict::linearizable);
  EXPECT_EQ(j.finals, std::vector<std::uint64_t>{5});
  EXPECT_EQ(check_key_history(ops).verdict, Verdict::contradiction);
}

}  // namespace
}  // namespace tenuto::test
