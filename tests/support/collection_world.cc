#include "support/collection_world.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "support/kv_world.h"
#include "tenuto/collection.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

using What = CollectionStep::What;
using World = CollectionCrash::World;

constexpr CollectionOptions kMustExist{.create_if_missing = false};

void apply(World& world, const CollectionStep& step) {
  switch (step.what) {
    case What::transaction:
      if (!step.to.empty()) world.erase(step.to);
      world[step.name];  // the default collection always exists
      [[fallthrough]];
    case What::put:
    case What::batch:
      for (const auto& [name, records] : step.records) {
        for (const auto& [key, value] : records) {
          if (value == "-") {
            world[name].erase(key);
          } else {
            world[name][key] = value;
          }
        }
      }
      break;
    case What::create:
      world[step.name];
      break;
    case What::drop:
      world.erase(step.name);
      break;
    case What::rename:
    case What::replace:
      world[step.to] = world[step.name];
      world.erase(step.name);
      break;
  }
}

Result<Collection> find(Store& store, const std::string& name) {
  if (name.empty()) return store;
  return store.collection(name, kMustExist);
}

// The new collection has lifetimes, so that the catalog gets a record of the second version.
Status run_transaction(Store& store, const CollectionStep& step) {
  return store.run([&](StoreTransaction& tx) -> Status {
    std::map<std::string, Collection> made;
    if (!step.to.empty()) {
      Result<Collection> c = find(store, step.to);
      if (!c) return c.error();
      TENUTO_TRY(tx.drop(*c));
    }
    if (!step.name.empty()) {
      Result<Collection> c = tx.create(step.name, {.expires = true});
      if (!c) return c.error();
      made.emplace(step.name, *c);
    }
    for (const auto& [name, records] : step.records) {
      Result<Collection> c = made.contains(name) ? made[name] : find(store, name);
      if (!c) return c.error();
      for (const auto& [key, value] : records) {
        TENUTO_TRY(value == "-" ? tx.erase({*c, key}) : tx.put({*c, key}, value));
      }
    }
    return Status::ok;
  });
}

Status apply(Store& store, const CollectionStep& step) {
  switch (step.what) {
    case What::put: {
      const auto& [name, records] = *step.records.begin();
      Result<Collection> c = find(store, name);
      if (!c) return c.error();
      const auto& [key, value] = *records.begin();
      return value == "-" ? c->erase(key) : c->put(key, value);
    }
    case What::batch: {
      WriteBatch batch;
      for (const auto& [name, records] : step.records) {
        Result<Collection> c = find(store, name);
        if (!c) return c.error();
        for (const auto& [key, value] : records) {
          if (value == "-") {
            batch.erase({*c, key});
          } else {
            batch.put({*c, key}, value);
          }
        }
      }
      return store.write(batch);
    }
    case What::transaction:
      return run_transaction(store, step);
    case What::create: {
      const auto made = store.collection(step.name, {.error_if_exists = true});
      return made ? Status::ok : made.error();
    }
    case What::drop:
      return store.drop(step.name);
    case What::rename:
      return store.rename(step.name, step.to);
    case What::replace:
      return store.rename(step.name, step.to, {.replace = true});
  }
  return Status::ok;
}

std::string read_all(const Collection& c, CollectionCrash::Records& out) {
  Iterator it = c.iterator();
  for (it.seek_first(); it.valid(); it.next()) {
    if (!out.empty() && !(out.rbegin()->first < it.key())) return "keys out of order";
    out.emplace(it.key(), it.value());
  }
  if (it.status() != Status::ok) return std::string("scan: ") + status_name(it.status());
  if (c.stats().records != out.size()) return "the collection counts other records than it has";
  return {};
}

// Names what only one of the two has.
std::string difference(const World& found, const World& expected) {
  std::string text;
  for (const auto& [name, records] : expected) {
    const auto there = found.find(name);
    if (there == found.end()) {
      text += " (lost '" + name.substr(0, 20) + "')";
    } else if (there->second != records) {
      text += " (changed '" + name.substr(0, 20) + "')";
    }
  }
  for (const auto& [name, records] : found) {
    if (!expected.contains(name)) text += " (new '" + name.substr(0, 20) + "')";
  }
  return text;
}

constexpr const char* kMadeAfter = "made after the crash";

}  // namespace

CrashResult CollectionCrash::run(const CrashOptions& options) {
  return CrashRunner(options).run([this](const std::string& path) { setup(path); },
                                  [this](CrashContext& c) { workload(c); },
                                  [this](const CrashImage& image) { return check(image); });
}

void CollectionCrash::setup(const std::string& path) const {
  auto store = Store::open(path, kv_world_options());
  ASSERT_TRUE(store);
  for (const auto& [name, records] : before_) {
    Result<Collection> c = name.empty() ? Collection(*store) : store->collection(name);
    ASSERT_TRUE(c);
    for (const auto& [key, value] : records) ASSERT_EQ(c->put(key, value), Status::ok);
  }
  ASSERT_EQ(store->close(), Status::ok);
}

void CollectionCrash::workload(CrashContext& c) {
  model_ = before_;
  model_[""];
  ids_.clear();
  step_ = nullptr;
  auto store = Store::open(c.path(), kv_world_options());
  ASSERT_TRUE(store);
  for (const CollectionStep& step : script_) {
    c.update([&] { step_ = &step; });
    ASSERT_EQ(apply(*store, step), Status::ok);
    std::uint64_t id = 0;
    const bool made = step.what == What::create || step.what == What::transaction;
    if (made && !step.name.empty()) id = store->collection(step.name)->id();
    c.update([&] {
      if (id != 0) ids_.insert(id);
      apply(model_, step);
      step_ = nullptr;
    });
  }
  ASSERT_EQ(store->close(), Status::ok);
}

std::string CollectionCrash::check(const CrashImage& image) const {
  Report report;
  auto store = Store::open(image.path(), kv_world_options(), &report);
  if (!store) return std::string(status_name(store.error())) + ": " + report.text();
  World found;
  auto wrong = read_all(*store, found[""]);
  if (!wrong.empty()) return wrong;
  const auto names = store->collections(&report);
  if (!names) return std::string(status_name(names.error())) + ": " + report.text();
  for (const CollectionInfo& info : *names) {
    if (info.name == kMadeAfter) continue;  // made by an earlier recovery of this state
    Result<Collection> c = store->collection(info.name, kMustExist, &report);
    if (!c) return info.name + ": " + status_name(c.error()) + ": " + report.text();
    wrong = read_all(*c, found[info.name]);
    if (!wrong.empty()) return info.name + ": " + wrong;
  }
  World after = model_;
  if (step_ != nullptr) apply(after, *step_);
  if (found != model_ && found != after) {
    return "neither the state before the step nor after it:" + difference(found, model_);
  }
  if (store->validate(&report) != Status::ok) return report.text();
  // The store works on: a new collection is empty and has a new id.
  const auto fresh = store->collection(kMadeAfter, {}, &report);
  if (!fresh) return report.text();
  if (fresh->stats().records != 0) return "a new collection is not empty";
  bool twice = ids_.contains(fresh->id());
  for (const CollectionInfo& info : *names) {
    twice = twice || (info.id == fresh->id() && info.name != kMadeAfter);
  }
  return twice ? "a collection's id was given twice" : "";
}

namespace {

CollectionCrash::Records filled(int count, const std::string& prefix = "key",
                                std::size_t value_bytes = 8) {
  CollectionCrash::Records r;
  for (int i = 0; i < count; ++i) {
    char text[16];
    std::snprintf(text, sizeof text, "%04d", i * 10);
    r[prefix + text] = std::string(value_bytes, static_cast<char>('a' + i % 26));
  }
  return r;
}

CollectionStep put(const std::string& name, const std::string& key, const std::string& value) {
  return {What::put, {}, {}, {{name, {{key, value}}}}};
}
CollectionStep create(const std::string& name) { return {What::create, name, {}, {}}; }
CollectionStep drop(const std::string& name) { return {What::drop, name, {}, {}}; }

}  // namespace

CollectionCrash collections_made() {
  return {{{"", filled(3)}},
          {create("first"), put("first", "k", "v"), create("second"), put("", "k", "main"),
           put("second", "k", "w"), put("first", "k", "-"), create("third")}};
}

CollectionCrash collections_dropped() {
  return {{{"", filled(3)}, {"a", filled(60)}, {"b", filled(5)}},
          {drop("a"), create("c"), put("c", "key0000", "again"), put("", "more", "v"), drop("b"),
           drop("c"), create("a"), put("a", "key0010", "a new one")}};
}

CollectionCrash collections_renamed() {
  // The records are as large as the catalog's own, so that a rename may reuse their blocks.
  const std::string long_name(20, 'n');
  return {{{"", filled(1)}, {"a", filled(4, "key", 30)}, {"b", filled(12, "key", 30)}},
          {{What::rename, "a", "renamed", {}},
           {What::replace, "renamed", "b", {}},
           put("b", "k", "v"),
           {What::rename, "b", long_name, {}},
           create("b"),
           {What::replace, "b", long_name, {}}}};
}

CollectionCrash collections_in_batches() {
  World records;
  records[""] = filled(20, "more");
  records["a"] = {{"key0000", "-"}, {"key0010", "updated"}, {"key0015", "new"}};
  records["b"] = filled(60, "other");
  World second;
  second["a"] = {{"key0015", "-"}};
  second["b"] = filled(60, "other");
  for (auto& [key, value] : second["b"]) value = "-";
  return {{{"", filled(40)}, {"a", filled(10)}, {"b", {}}},
          {{What::batch, {}, {}, records}, {What::batch, {}, {}, second}}};
}

CollectionCrash collections_in_transactions() {
  return {{{"", filled(3)}, {"a", filled(6)}},
          {{What::transaction, "b", {}, {{"b", filled(3)}, {"a", {{"key0000", "-"}}}}},
           {What::transaction, {}, "a", {{"b", {{"k", "v"}}}, {"", {{"k", "v"}}}}},
           {What::transaction, "b", "b", {{"b", {{"again", "new"}}}}},
           put("b", "more", "v"),
           drop("b")}};
}

CollectionCrash collections_in_two_leaves() {
  World before;
  before[""] = filled(1);
  for (int i = 0; i < 48; ++i) before["c" + std::to_string(100 + i)] = {};
  return {before, {create("c120 and a half"), drop("c147"), {What::rename, "c100", "c200", {}}}};
}

}  // namespace tenuto::test
