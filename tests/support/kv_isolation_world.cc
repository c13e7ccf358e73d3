#include "support/kv_isolation_world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/isolation_work.h"
#include "support/kv_world.h"
#include "tenuto/kv.h"

namespace tenuto::test {

namespace {

using Records = std::map<std::string, std::string>;
using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;

std::string key(int n) {
  char text[16];
  std::snprintf(text, sizeof text, "key%04d", n);
  return text;
}

void apply(Records& records, const Changes& changes) {
  for (const auto& [k, v] : changes) {
    if (v) {
      records[k] = *v;
    } else {
      records.erase(k);
    }
  }
}

// How a reader's records differ from the model, forwards and key by key. Empty if they are equal.
template <class Reader>
std::string difference(Reader& reader, const Records& model) {
  Iterator it = reader.iterator();
  auto at = model.begin();
  for (it.seek_first(); it.valid(); it.next(), ++at) {
    const std::string k(it.key());
    if (at == model.end() || k < at->first) return "shows " + k + ", which was not there";
    if (k != at->first) return "misses " + at->first;
    if (it.value() != at->second) return "shows another value of " + k;
  }
  if (it.status() != Status::ok) return status_name(it.status());
  if (at != model.end()) return "misses " + at->first;
  std::string value;
  for (const auto& [k, v] : model) {
    if (reader.get(k, value) != Status::ok || value != v) return "get disagrees: " + k;
  }
  return {};
}

// --- one thread ----------------------------------------------------------------------------------

struct SnapshotScript {
  Records before = [] {
    Records r;
    for (int i = 0; i < 110; ++i) r[key(i * 10)] = "value " + std::to_string(i);
    return r;
  }();
  Records model;
  const Changes* step = nullptr;
  std::string wrong;  // what a snapshot showed wrongly

  struct Held {
    std::string name;
    Snapshot snapshot;
    Records model;
  };

  void setup(const std::string& path) const {
    auto store = Store::open(path, kv_world_options());
    ASSERT_TRUE(store);
    WriteBatch all;
    for (const auto& [k, v] : before) all.put(k, v);
    ASSERT_EQ(store->write(all), Status::ok);
    ASSERT_EQ(store->close(), Status::ok);
  }

  // Makes one step by one of the ways in, and then reads every snapshot.
  struct Run {
    SnapshotScript& s;
    CrashContext& c;
    Store& store;
    std::deque<Held> held = {};

    void take(const char* name) {
      auto snap = store.snapshot();
      ASSERT_TRUE(snap);
      held.push_back({name, std::move(*snap), s.model});
    }
    void release(std::size_t i) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      look();
    }
    void look() {
      for (Held& h : held) {
        const std::string d = difference(h.snapshot, h.model);
        if (d.empty() || !s.wrong.empty()) continue;
        c.update([&] { s.wrong = "snapshot " + h.name + " " + d; });
      }
      Report report;
      if (!s.wrong.empty() || store.validate(&report) == Status::ok) return;
      c.update([&] { s.wrong = "validate: " + report.text(); });
    }
    void step(const Changes& changes, const std::function<Status()>& work) {
      c.update([&] { s.step = &changes; });
      ASSERT_EQ(work(), Status::ok);
      c.update([&] {
        apply(s.model, changes);
        s.step = nullptr;
      });
      look();
    }
    void single(const std::string& k, std::optional<std::string> v) {
      const Changes changes = {{k, v}};
      step(changes, [&] { return v ? store.put(k, *v) : store.erase(k); });
    }
    void batch(const Changes& changes) {
      WriteBatch b;
      for (const auto& [k, v] : changes) v ? b.put(k, *v) : b.erase(k);
      step(changes, [&] { return store.write(b); });
    }
    // Changes nothing that a reader or a snapshot sees.
    void compact() {
      step({}, [&] { return store.compact().error(); });
    }
    // Reads the keys that it writes, and keys around them.
    void commit(const Changes& changes) {
      StoreTransaction tx = store.begin();
      std::string value;
      for (const auto& [k, v] : changes) {
        static_cast<void>(tx.get(k, value));
        ASSERT_EQ(v ? tx.put(k, *v) : tx.erase(k), Status::ok);
      }
      step(changes, [&] { return tx.commit(); });
    }
    // Another write to what was read, or next to it, comes first: the commit must refuse.
    void refused(const std::string& read, bool range, const std::string& changed) {
      StoreTransaction tx = store.begin();
      std::string value;
      if (range) {
        Iterator it = tx.iterator();
        for (it.seek(read); it.valid() && it.key() < key(900); it.next()) {
        }
      } else {
        static_cast<void>(tx.get(read, value));
      }
      ASSERT_EQ(tx.put("mine", "of a transaction"), Status::ok);
      single(changed, "changed first");
      const Status status = tx.commit();
      if (status == Status::conflict || !s.wrong.empty()) return;
      c.update([&] { s.wrong = "commit after a change: " + std::string(status_name(status)); });
    }
  };

  void workload(CrashContext& c) {
    model = before;
    step = nullptr;
    wrong.clear();
    auto store = Store::open(c.path(), kv_world_options());
    ASSERT_TRUE(store);
    Run r{*this, c, *store};
    r.take("one");
    r.single(key(20), "updated");
    r.single(key(25), "inserted");
    r.single(key(30), std::nullopt);
    r.single(key(300), "will move");
    r.take("two");
    r.single(key(20), "updated again");
    r.single(key(25), std::nullopt);
    r.single(key(30), "back");
    r.single(key(40), "changed after both");
    r.release(1);
    // Splits leaves that have old versions.
    Changes many;
    for (int i = 0; i < 45; ++i) many.push_back({key(i * 10 + 5), "batch"});
    r.batch(many);
    r.take("three");
    // Changes all leaves, and empties some.
    Changes most;
    for (int i = 3; i < 100; ++i) most.push_back({key(i * 10), std::nullopt});
    for (int i = 3; i < 45; ++i) most.push_back({key(i * 10 + 5), std::nullopt});
    r.commit(most);
    r.compact();
    r.single("zz", "behind all");
    r.refused(key(20), false, key(20));
    r.refused(key(100), true, key(500));
    r.release(0);
    r.commit({{key(0), "last"}, {key(500), std::nullopt}, {key(1050), "last"}});
    r.release(0);
    ASSERT_EQ(store->close(), Status::ok);
  }

  std::string check(const CrashImage& image) const {
    if (!wrong.empty()) return wrong;
    Report report;
    auto store = Store::open(image.path(), kv_world_options(), &report);
    if (!store) return std::string(status_name(store.error())) + ": " + report.text();
    const std::string as_before = difference(*store, model);
    if (!as_before.empty()) {
      Records after = model;
      if (step != nullptr) apply(after, *step);
      if (!difference(*store, after).empty())
        return "neither before the step nor after: " + as_before;
    }
    if (store->stats().snapshot_versions != 0) return "old versions after a crash";
    return store->validate(&report) == Status::ok ? "" : report.text();
  }
};

// --- threads -------------------------------------------------------------------------------------

constexpr IsolationSize kSmall{.lists = 2, .registers = 2, .own = 2, .fillers = 0};

struct Threads {
  static constexpr std::uint32_t kThreads = 3;
  static constexpr int kSteps = 8;  // of each thread
  static constexpr std::size_t kWords = 1u << 15;

  std::uint64_t seed = 1;
  std::vector<std::vector<std::uint64_t>> memory = {};
  std::atomic<std::uint64_t> clock{1}, counter{1};
  std::string wrong = {};

  static void setup(const std::string& path) {
    auto store = Store::open(path, kv_world_options());
    ASSERT_TRUE(store);
    // Puts the two lists and the registers into different leaves.
    WriteBatch fillers;
    for (int i = 0; i < 60; ++i) {
      for (const char* where : {"list/000000+", "list/000001+"}) {
        fillers.put(where + std::to_string(i), "filler");
      }
    }
    ASSERT_EQ(store->write(fillers), Status::ok);
    ASSERT_EQ(store->close(), Status::ok);
  }

  void workload(CrashContext& c) {
    memory.assign(kThreads + 1, std::vector<std::uint64_t>(kWords));
    clock = counter = 1;
    wrong.clear();
    std::vector<TxnLog> logs(memory.begin(), memory.end());
    auto store = Store::open(c.path(), kv_world_options());
    ASSERT_TRUE(store);
    std::vector<std::function<void()>> bodies;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      bodies.emplace_back([&, t] {
        IsolationWork w(*store, kSmall, t, logs[t], clock, counter, seed * 131 + t);
        for (int i = 0; i < kSteps; ++i) ASSERT_EQ(w.step(), Status::ok);
      });
    }
    c.interleave(bodies);
    const std::string found = judge(*store);
    if (!found.empty()) c.update([&] { wrong = found; });
    ASSERT_EQ(store->close(), Status::ok);
  }

  // Judges the logs so far together with all that the store shows now.
  std::string judge(Store& store) {
    std::vector<TxnLog> logs(memory.begin(), memory.end());
    IsolationHistory history;
    const std::uint64_t crash = clock.fetch_add(1);
    IsolationWork last(store, kSmall, kThreads, logs[kThreads], clock, counter, seed);
    if (last.read_all() != Status::ok) return "the last look failed";
    std::vector<std::vector<Txn>> by_thread;
    for (std::uint32_t t = 0; t <= kThreads; ++t) {
      by_thread.push_back(logs[t].read(t, crash));
      for (const Txn& txn : by_thread.back()) history.add(txn);
    }
    IsolationWork::set_orders(by_thread, kSmall, history);
    const IsolationFinding f = history.check();
    return f.anomaly == Anomaly::none ? "" : "isolation: " + f.name() + "\n" + f.text;
  }

  // Runs in the forked child, which may change its copy of the logs.
  std::string check(const CrashImage& image) {
    if (!wrong.empty()) return wrong;
    Report report;
    auto store = Store::open(image.path(), kv_world_options(), &report);
    if (!store) return std::string(status_name(store.error())) + ": " + report.text();
    const auto kept = memory;
    std::string found = judge(*store);
    memory = kept;  // so that a second recovery is judged by the same logs
    if (!found.empty()) return found;
    return store->validate(&report) == Status::ok ? "" : report.text();
  }
};

}  // namespace

CrashOptions isolation_crash_options() {
  CrashOptions o = kv_crash_options();
  o.product_max = 20;
  o.samples_max = 8;
  o.recovery_depth = 1;
  return o;
}

CrashResult explore_snapshots(const CrashOptions& options) {
  SnapshotScript script;
  return CrashRunner(options).run([&](const std::string& path) { script.setup(path); },
                                  [&](CrashContext& c) { script.workload(c); },
                                  [&](const CrashImage& image) { return script.check(image); });
}

CrashOptions schedule_options() {
  CrashOptions o = kv_crash_options();
  o.product_max = 1;
  o.samples_max = 1;
  o.recovery_depth = 0;
  o.recover_twice = false;
  o.points_percent = 0;  // a look at the end is enough
  o.lint = false;        // naming source lines costs more than a schedule
  return o;
}

namespace {
CrashResult explore(const CrashOptions& options, int schedules, bool images) {
  CrashResult all;
  CrashOptions o = options;
  for (int i = 0; i < schedules && all.ok(); ++i) {
    o.seed = options.seed * 1000 + static_cast<std::uint64_t>(i);
    Threads threads;
    threads.seed = o.seed;
    CrashResult r = CrashRunner(o).run(
        Threads::setup, [&](CrashContext& c) { threads.workload(c); },
        [&](const CrashImage& image) { return images ? threads.check(image) : threads.wrong; });
    r.points += all.points;
    r.states += all.states;
    r.checks += all.checks;
    r.seconds += all.seconds;
    all = std::move(r);
  }
  return all;
}
}  // namespace

CrashResult explore_isolation(const CrashOptions& options, int schedules) {
  return explore(options, schedules, true);
}

CrashResult explore_schedules(const CrashOptions& options) {
  constexpr int kSchedules = 400;
  return explore(options, kSchedules, false);
}

}  // namespace tenuto::test
