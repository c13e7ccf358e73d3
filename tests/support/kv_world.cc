#include "support/kv_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "support/crash_scale.h"
#include "support/explored_medium.h"
#include "support/pool_image.h"
#include "tenuto/transaction.h"

namespace tenuto::test {

namespace {

using Records = KvCrash::Records;

void apply(Records& records, const KvStep& step) {
  for (const auto& [key, value] : step) {
    if (value) {
      records[key] = *value;
    } else {
      records.erase(key);
    }
  }
}

Status apply(Store& store, const KvStep& step, bool in_key_order) {
  if (step.empty()) return store.compact({.in_key_order = in_key_order}).error();
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

Status bulk_load(Store& store, const KvStep& step) {
  std::vector<BulkRecord> sorted;
  for (const auto& [key, value] : step) sorted.push_back({key, *value});
  return store.bulk_load(sorted);
}

// The key that it reads is changed meanwhile.
void fail_a_commit(Store& store, const Records& records) {
  Result<Collection> other = store.collection("other");
  ASSERT_TRUE(other);
  auto tx = store.begin();
  std::string value;
  static_cast<void>(tx.get({*other, "read"}, value));
  for (const auto& [key, v] : records) ASSERT_EQ(tx.put(key, v), Status::ok);
  ASSERT_EQ(other->put("read", ""), Status::ok);
  ASSERT_EQ(tx.commit(), Status::conflict);
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

}  // namespace

StoreOptions kv_world_options() {
  StoreOptions o;
  o.pool.size = kPoolBytesMin;
  o.pool.size_max = 4 * kPoolBytesMin;
  o.pool.recovery_threads = 1;
  o.pool = on_explored_medium(o.pool);
  return o;
}

CrashResult KvCrash::run(const CrashOptions& options) {
  return CrashRunner(options).run([this](const std::string& path) { setup(path); },
                                  [this](CrashContext& c) { workload(c); },
                                  [this](const CrashImage& image) { return check(image); });
}

void KvCrash::start_model() {
  model_ = before_;
  step_ = nullptr;
}

void KvCrash::setup(const std::string& path) const {
  if (create_) {
    ASSERT_TRUE(Pool::create(path, kv_world_options().pool));
    return;
  }
  auto store = Store::open(path, kv_world_options());
  ASSERT_TRUE(store);
  Records all = before_;
  all.insert(erased_.begin(), erased_.end());
  for (const auto& [key, value] : all) ASSERT_EQ(store->put(key, value), Status::ok);
  for (const auto& [key, value] : erased_) ASSERT_EQ(store->erase(key), Status::ok);
  if (!failed_.empty()) fail_a_commit(*store, failed_);
  const Bytes open = killed_ ? read_image(path) : Bytes();
  ASSERT_EQ(store->close(), Status::ok);
  if (killed_) write_image(path, open);
}

void KvCrash::workload(CrashContext& c) {
  start_model();
  auto store = Store::open(c.path(), kv_world_options());
  ASSERT_TRUE(store);
  for (const KvStep& step : script_) {
    c.update([&] { step_ = &step; });
    const bool bulk = bulk_ && &step == script_.data();
    ASSERT_EQ(bulk ? bulk_load(*store, step) : apply(*store, step, in_key_order_), Status::ok);
    c.update([&] {
      apply(model_, step);
      step_ = nullptr;
    });
    if (!closes_) continue;
    ASSERT_EQ(store->close(), Status::ok);
    store = Store::open(c.path(), kv_world_options());
    ASSERT_TRUE(store);
  }
  ASSERT_EQ(store->close(), Status::ok);
}

std::string KvCrash::check(const CrashImage& image) const {
  Report report;
  auto store = Store::open(image.path(), kv_world_options(), &report);
  if (!store) return std::string(status_name(store.error())) + ": " + report.text();
  Records found;
  if (std::string wrong = read_all(*store, found); !wrong.empty()) return wrong;
  Records after = model_;
  if (step_ != nullptr) apply(after, *step_);
  if (found != model_ && found != after) return difference(found, after);
  if (store->validate(&report) != Status::ok) return report.text();
  return {};
}

std::string KvCrash::difference(const Records& found, const Records& after) const {
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

CrashOptions kv_crash_options() {
  CrashOptions o;
  o.product_max = crash_scaled(60);
  o.samples_max = crash_scaled(20);
  o.recovery_states_max = crash_scaled(2);
  return o;
}

CrashOptions kv_bulk_options() {
  CrashOptions o = kv_crash_options();
  o.product_max = crash_scaled(12);
  o.samples_max = crash_scaled(8);
  o.recovery_depth = 1;
  return o;
}

CrashOptions kv_moved_options() {
  CrashOptions o = kv_crash_options();
  o.recovery_depth = 0;
  o.recover_twice = false;
  return o;
}

CrashOptions kv_compaction_options() {
  CrashOptions o = kv_bulk_options();
  o.recovery_depth = 0;  // kv_batches crashes the same recovery
  o.points_percent = std::min<std::uint32_t>(100, static_cast<std::uint32_t>(crash_scaled(40)));
  return o;
}

namespace {

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

}  // namespace

KvCrash kv_single_operations() {
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

KvCrash kv_large_records() {
  // The values are zeros, as in fresh memory, so that a crash can lose only what matters here.
  return {{{"large", std::string(20000, '\0')}},
          {{{"large", std::string(30000, '\0')}}, {{"large", std::nullopt}}}};
}

KvCrash kv_half_split() {
  return {filled(0, kLeafSlots), {{{key(235), "middle"}}, {{key(5), "low"}}, {{key(465), "high"}}}};
}

KvCrash kv_append_split() {
  return {filled(0, kLeafSlots), {{{key(900), "next"}}, {{key(910), "and next"}}}};
}

KvCrash kv_long_separators() {
  const std::string prefix(90, 'p');
  return {filled(0, kLeafSlots, 10, prefix),
          {{{key(235, prefix), "middle"}}, {{key(236, prefix), std::nullopt}}}};
}

KvCrash kv_unlink() {
  Records before = filled(0, 2 * kLeafSlots + 1);
  KvScript script;
  std::vector<std::string> keys;
  for (const auto& [k, v] : before) keys.push_back(k);
  // Erases all but two of the second leaf's keys in one step, so that there are few points to
  // explore.
  KvStep most;
  for (int i = kLeafSlots; i < 2 * kLeafSlots - 2; ++i) most.push_back({keys[i], std::nullopt});
  script.push_back(most);
  script.push_back({{keys[2 * kLeafSlots - 2], std::nullopt}});
  script.push_back({{keys[2 * kLeafSlots - 1], std::nullopt}});
  script.push_back({{keys[kLeafSlots + 3], "back"}});
  return {before, script};
}

KvCrash kv_unlink_after_a_kill() {
  KvCrash c = kv_unlink();
  c.begin_after_a_kill();
  return c;
}

KvCrash kv_batches() {
  Records before = filled(0, kLeafSlots + 5);
  KvStep first;
  for (int i = 0; i < 14; ++i) first.push_back({key(i * 10 + 5), "batch"});
  first.push_back({key(100), "batch update"});
  first.push_back({key(110), std::nullopt});
  first.push_back({key(500), std::nullopt});
  first.push_back({"none", std::nullopt});
  KvStep second;
  for (int i = 0; i < 60; ++i) second.push_back({key(i, "many"), "new"});
  KvStep third;
  for (int i = 0; i < 60; ++i) third.push_back({key(i, "many"), std::nullopt});
  return {before, {first, second, third}};
}

KvCrash kv_images() {
  const int last = 5 * kLeafSlots - 1;
  KvCrash c(filled(0, last + 1), {{{key(600), "updated"}, {key(last * 10), std::nullopt}},
                                  {{key(1005), "split"}, {key(1015), "a leaf"}}});
  c.close_after_each_step();
  return c;
}

KvCrash kv_many_leaves() { return {filled(0, 2 * kLeafSlots + 1), {}}; }

KvCrash kv_bulk() {
  const std::string prefix(60, 'p');  // of the keys on both sides of the border between leaves
  KvStep all;
  for (const auto& [k, v] : filled(0, kLeafSlots - 5)) all.push_back({k, v});
  for (int i = 0; i < 3; ++i) all.push_back({key(i, prefix), ""});
  KvCrash c({}, {all, {{key(435), "between"}}});
  c.begin_with_bulk_load();
  return c;
}

// Two empty leaves are unlinked before.
KvCrash kv_bulk_over_empty_leaves() {
  KvStep all;
  for (const auto& [k, v] : filled(0, 8)) all.push_back({k, v});
  KvCrash c({}, {all});
  c.begin_with_bulk_load();
  c.fail_in_setup(filled(0, 2 * kLeafSlots));
  return c;
}

namespace {
// Eleven records fill a slab. One or two are left in each.
void add_large(Records& before, Records& erased) {
  for (int i = 0; i < 24; ++i) {
    (i % 8 == 0 ? before : erased)[key(i, "q")] = std::string(5000, static_cast<char>('a' + i));
  }
}
}  // namespace

KvCrash kv_moved_records() {
  Records before;
  Records erased;
  add_large(before, erased);
  KvCrash c(before, {{}, {{key(8, "q"), "updated"}}});
  c.erase_in_setup(erased);
  return c;
}

KvCrash kv_compaction() {
  Records before;
  Records erased;
  const std::string prefix(60, 'p');  // of the keys on both sides of a border between leaves
  // Records as large as leaves share slabs with them, so that some leaves are in sparse slabs, too.
  for (int i = 0; i < 124; ++i) {
    (i % 12 == 0 ? before : erased)[key(i, "a")] =
        std::string(490, static_cast<char>('a' + i % 26));
  }
  for (int i = 0; i < 100; ++i) before[key(i, "b")] = std::to_string(i);
  for (int i = 0; i < 50; ++i) (i % 9 == 0 ? before : erased)[key(i, prefix)] = std::to_string(i);
  add_large(before, erased);
  KvCrash c(before, {{}, {{key(12, "a"), "updated"}}, {{key(45, "b") + "5", "inserted"}}});
  c.erase_in_setup(erased);
  return c;
}

KvCrash kv_key_order() {
  Records before = filled(0, 110);
  before[key(55, "large")] = std::string(3000, 'l');
  KvCrash c(before, {{}, {{key(120), "updated"}}, {{key(125), "inserted"}}});
  c.compact_in_key_order();
  return c;
}

KvCrash kv_creation() {
  KvCrash c({}, {{{"a", "first"}}, {{"b", "second"}}});
  c.create_in_workload();
  return c;
}

}  // namespace tenuto::test
