// The store under the crash explorer: small scripts that meet every branch of its protocols, each
// judged against the exact model. Then mistakes are planted, each of which must be found.
//
// TENUTO_CRASH_SCALE multiplies the sampled crash states (default 1).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/crash.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

using Records = std::map<std::string, std::string>;

std::size_t scaled(std::size_t n) {
  static const char* const text = std::getenv("TENUTO_CRASH_SCALE");
  return static_cast<std::size_t>(static_cast<double>(n) * (text == nullptr ? 1 : std::atof(text)));
}

StoreOptions small_store() {
  StoreOptions o;
  o.pool.size = kPoolBytesMin;
  o.pool.size_max = 4 * kPoolBytesMin;
  o.pool.medium = Medium::cache;  // the twin records whatever the medium
  o.pool.recovery_threads = 1;
  return o;
}

// One step: all its entries become durable together. No value: erase.
using Step = std::vector<std::pair<std::string, std::optional<std::string>>>;
using Script = std::vector<Step>;

void apply(Records& records, const Step& step) {
  for (const auto& [key, value] : step) {
    if (value) {
      records[key] = *value;
    } else {
      records.erase(key);
    }
  }
}

Status apply(Store& store, const Step& step) {
  if (step.size() == 1) {
    const auto& [key, value] = step[0];
    if (value) return store.put(key, *value);
    const Status s = store.erase(key);
    return s == Status::not_found ? Status::ok : s;
  }
  WriteBatch batch;
  for (const auto& [key, value] : step) {
    if (value) {
      batch.put(key, *value);
    } else {
      batch.erase(key);
    }
  }
  return store.write(batch);
}

std::string read_all(Store& store, Records& out) {
  Iterator it = store.iterator();
  for (it.seek_first(); it.valid(); it.next()) {
    if (!out.empty() && !(out.rbegin()->first < it.key())) return "keys out of order";
    out.emplace(it.key(), it.value());
  }
  if (it.status() != Status::ok) return std::string("scan: ") + status_name(it.status());
  std::string value;
  for (const auto& [key, expected] : out) {
    if (store.get(key, value) != Status::ok || value != expected) return "get disagrees: " + key;
  }
  return {};
}

class KvCrash {
 public:
  KvCrash(Records before, Script script) : before_(std::move(before)), script_(std::move(script)) {}

  CrashResult run(const CrashOptions& options) {
    return CrashRunner(options).run([this](const std::string& path) { setup(path); },
                                    [this](CrashContext& c) { workload(c); },
                                    [this](const CrashImage& image) { return check(image); });
  }

  // The workload begins with a pool that holds no store.
  void create_in_workload() { create_ = true; }

 private:
  void setup(const std::string& path) {
    if (create_) {
      ASSERT_TRUE(Pool::create(path, small_store().pool));
      return;
    }
    auto store = Store::open(path, small_store());
    ASSERT_TRUE(store);
    for (const auto& [key, value] : before_) ASSERT_EQ(store->put(key, value), Status::ok);
    ASSERT_EQ(store->close(), Status::ok);
  }

  void workload(CrashContext& c) {
    model_ = before_;
    step_ = nullptr;
    auto store = Store::open(c.path(), small_store());
    ASSERT_TRUE(store);
    for (const Step& step : script_) {
      c.update([&] { step_ = &step; });
      ASSERT_EQ(apply(*store, step), Status::ok);
      c.update([&] {
        apply(model_, step);
        step_ = nullptr;
      });
    }
    ASSERT_EQ(store->close(), Status::ok);
  }

  std::string check(const CrashImage& image) const {
    Report report;
    auto store = Store::open(image.path(), small_store(), &report);
    if (!store) return std::string(status_name(store.error())) + ": " + report.text();
    Records found;
    if (std::string wrong = read_all(*store, found); !wrong.empty()) return wrong;
    Records after = model_;
    if (step_ != nullptr) apply(after, *step_);
    if (found != model_ && found != after) return difference(found, after);
    if (store->validate(&report) != Status::ok) return report.text();
    return {};
  }

  std::string difference(const Records& found, const Records& after) const {
    std::string text = "neither the state before the step nor after it:";
    for (const auto& [key, value] : model_) {
      const auto there = found.find(key);
      const auto later = after.find(key);
      if (there == found.end()) {
        text += (later == after.end() ? " (erased " : " (lost ") + key.substr(0, 20) + ")";
      } else if (there->second != value) {
        text += " (changed " + key.substr(0, 20) + ")";
      }
    }
    for (const auto& [key, value] : found) {
      if (!model_.contains(key)) text += " (new " + key.substr(0, 20) + ")";
    }
    return text;
  }

  const Records before_;
  const Script script_;
  bool create_ = false;
  Records model_;
  const Step* step_ = nullptr;
};

CrashOptions options() {
  CrashOptions o;
  o.product_max = scaled(60);
  o.samples_max = scaled(20);
  o.recovery_states_max = scaled(2);
  return o;
}

std::string key(int n, const std::string& prefix = "key") {
  char text[16];
  std::snprintf(text, sizeof text, "%04d", n);
  return prefix + text;
}

Records filled(int from, int to, int stride = 10, const std::string& prefix = "key") {
  Records r;
  for (int i = from; i < to; ++i) r[key(i * stride, prefix)] = "value " + std::to_string(i);
  return r;
}

constexpr int kLeafSlots = 48;

// Inserts, updates, erases, with records in slabs and in extents.
KvCrash single_operations() {
  return {filled(0, 5),
          {{{"a", "first"}},
           {{key(20), "updated"}},
           {{key(30), std::nullopt}},
           {{key(30), "again"}},
           {{"", "empty key"}},
           {{"large", std::string(20000, 'x')}},
           {{"large", std::string(30000, 'y')}},
           {{"large", std::nullopt}},
           {{key(20), std::string(500, 'z')}}}};
}

// A full leaf meets a key in its middle.
KvCrash half_split() {
  return {filled(0, kLeafSlots), {{{key(235), "middle"}}, {{key(5), "low"}}, {{key(465), "high"}}}};
}

// A full leaf meets keys behind its last.
KvCrash append_split() {
  return {filled(0, kLeafSlots), {{{key(900), "next"}}, {{key(910), "and next"}}}};
}

// Separators that need blocks of their own.
KvCrash long_separators() {
  const std::string prefix(90, 'p');
  return {filled(0, kLeafSlots, 10, prefix),
          {{{key(235, prefix), "middle"}}, {{key(236, prefix), std::nullopt}}}};
}

// The second of three leaves becomes empty and goes.
KvCrash unlink() {
  Records before = filled(0, 2 * kLeafSlots + 1);
  Script script;
  std::vector<std::string> keys;
  for (const auto& [k, v] : before) keys.push_back(k);
  // All but two of the second leaf's keys are erased in one step: few points to explore.
  Step most;
  for (int i = kLeafSlots; i < 2 * kLeafSlots - 2; ++i) most.push_back({keys[i], std::nullopt});
  script.push_back(most);
  script.push_back({{keys[2 * kLeafSlots - 2], std::nullopt}});
  script.push_back({{keys[2 * kLeafSlots - 1], std::nullopt}});
  script.push_back({{keys[kLeafSlots + 3], "back"}});
  return {before, script};
}

// Batches over several leaves, with splits, updates, erases and a leaf that they empty.
KvCrash batches() {
  Records before = filled(0, kLeafSlots + 5);
  Step first;
  for (int i = 0; i < 14; ++i) first.push_back({key(i * 10 + 5), "batch"});
  first.push_back({key(100), "batch update"});
  first.push_back({key(110), std::nullopt});
  first.push_back({key(500), std::nullopt});
  first.push_back({"none", std::nullopt});
  Step second;
  for (int i = 0; i < 60; ++i) second.push_back({key(i, "many"), "new"});
  Step third;
  for (int i = 0; i < 60; ++i) third.push_back({key(i, "many"), std::nullopt});
  return {before, {first, second, third}};
}

KvCrash creation() {
  KvCrash c({}, {{{"a", "first"}}, {{"b", "second"}}});
  c.create_in_workload();
  return c;
}

using Fences = std::vector<std::pair<const char*, const char*>>;

// Each fence named must have been crashed at. One of the store is named nowhere: what a crash at
// "split finished | store is used" leaves is either the unfinished or the finished split, both of
// which are crash states of the split itself and are not judged twice.
void expect_sound(KvCrash subject, const Fences& fences) {
  const CrashResult r = subject.run(options());
  EXPECT_TRUE(r.ok()) << r.text();
  for (const auto& [first, then] : fences) {
    EXPECT_TRUE(r.explored(first, then)) << first << " | " << then;
  }
  std::printf("%llu points, %llu states, %llu in recovery, %llu checks, %.1f s\n",
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states),
              static_cast<unsigned long long>(r.checks), r.seconds);
}

TEST(kv_crash, single_operations_are_there_or_not) {
  expect_sound(single_operations(), {{"record and slot", "leaf header"},
                                     {"leaf header", "insert returns"},
                                     {"record", "slot"},
                                     {"slot", "update returns, old record is retired"},
                                     {"leaf bitmap", "erase returns, record is retired"}});
}
TEST(kv_crash, a_half_split_keeps_every_key) {
  expect_sound(half_split(), {{"new leaf", "chain link"}, {"chain link", "leaf lock is released"}});
}
TEST(kv_crash, an_append_split_keeps_every_key) {
  expect_sound(append_split(), {{"chain link", "leaf lock is released"}});
}
TEST(kv_crash, long_separators_are_whole) {
  expect_sound(long_separators(), {{"new leaf", "chain link"}});
}
TEST(kv_crash, an_empty_leaf_goes_without_a_trace) {
  expect_sound(unlink(), {{"leaf unlinked", "leaf is retired"}});
}
TEST(kv_crash, a_batch_is_there_or_not) { expect_sound(batches(), {{"new leaf", "chain link"}}); }
TEST(kv_crash, a_store_is_created_or_not) {
  expect_sound(creation(), {{"first leaf", "store is named"},
                            {"store is named", "store is named again"},
                            {"store is named again", "store is used"},
                            {"store's counts", "the heap is closed"}});
}

TEST(kv_crash, every_planted_mistake_is_found) {
  const struct {
    const char* name;
    KvCrash subject;
  } plants[] = {{"store_header_before_slot", single_operations()},
                {"store_bitmap_before_print", single_operations()},
                {"store_split_drops_before_link", half_split()},
                {"store_split_keeps_both", half_split()},
                {"store_recovery_trusts_both", half_split()},
                {"store_split_links_first", half_split()},
                {"store_batch_slot_unflushed", batches()}};
  for (const auto& plant : plants) {
    CrashOptions o = options();
    o.findings_max = 1;
    o.minimise = false;
    o.plants = {plant.name};
    KvCrash subject = plant.subject;
    const CrashResult r = subject.run(o);
    EXPECT_FALSE(r.ok()) << plant.name;
    std::printf("%-32s found after %llu checks, %.2f s\n", plant.name,
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

TEST(kv_crash, every_dropped_fence_is_found) {
  const struct {
    const char* first;
    const char* then;
    KvCrash subject;
  } drops[] = {{"record and slot", "leaf header", single_operations()},
               {"leaf header", "insert returns", single_operations()},
               {"record", "slot", single_operations()},
               {"slot", "update returns, old record is retired", single_operations()},
               {"leaf bitmap", "erase returns, record is retired", single_operations()},
               {"new leaf", "chain link", half_split()},
               {"first leaf", "store is named", creation()}};
  for (const auto& drop : drops) {
    CrashOptions o = options();
    o.findings_max = 1;
    o.minimise = false;
    o.mutation = {Mutation::Kind::drop_fence, drop.first, drop.then, 0};
    KvCrash subject = drop.subject;
    const CrashResult r = subject.run(o);
    EXPECT_FALSE(r.ok()) << drop.first << " | " << drop.then;
    std::printf("without %-16s found after %llu checks, %.2f s\n", drop.first,
                static_cast<unsigned long long>(r.checks), r.seconds);
  }
}

}  // namespace
}  // namespace tenuto::test
