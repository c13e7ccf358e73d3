// A process at rest: the memory and file that it holds while no thread is in a call.
#include <algorithm>
#include <chrono>
#include <thread>

#include "process.h"
#include "tenuto/pool.h"

namespace tenuto::life {

// keep: handles stay open, and the bound on what they hold is checked. Otherwise all handles are
// closed, expired records are reclaimed, and a compaction runs. Then hardly more may be in use than
// the contents need.
void Process::rest(const Step& step, std::size_t number) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  if (world_.store[s].store == nullptr || world_.store[s].read_only) return;
  const bool keep = step.a[1] != 0;
  if (!keep) {
    for (unsigned t = 0; t < kThreadsMax; ++t) {
      crew_.run(t, [&] {
        actors_[t]->drop_views();
        const auto each = [&](Verb verb, unsigned slots) {
          for (std::int64_t i = 0; i < slots; ++i) actors_[t]->act({t, verb, {i}}, number);
        };
        each(Verb::cursor_close, kCursorsMax);
        each(Verb::rollback, kTransactionsMax);
        if (t == 0) each(Verb::snap_release, kSnapshotsMax);
      });
      for (TransactionSlot& x : world_.transaction[t]) x = {};
      crew_.end(t);  // because its cache of free blocks counts as in use
    }
  }
  std::uint64_t iterators = 0, views = 0;
  for (unsigned t = 0; t < kThreadsMax; ++t) {
    const auto standing = [&](const auto& slot) { return slot.store == s; };
    iterators += static_cast<std::uint64_t>(std::ranges::count_if(
        world_.cursor[t], [&](const CursorSlot& c) { return c.cursor && standing(c); }));
    views += static_cast<std::uint64_t>(std::ranges::count_if(
        world_.view[t], [&](const ViewSlot& v) { return v.view && standing(v); }));
  }
  Store& store = *world_.store[s].store;
  // Frees what waited for calls that have ended. The reclaimer itself may be in a call, which takes
  // a few ms.
  const auto much = [&] { return store.stats().retired_bytes > 64u << 10; };
  for (int i = 0; keep && i < (world_.story.reclaim_ms == 0 ? 1 : 100) && much(); ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    actors_[0]->act({0, Verb::reclaim, {s, 1}}, number);
  }
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::rest, number, s, {keep, iterators, views, world_.story.threads});
  Status status = Status::ok;
  bool complete = false;
  if (!keep) {
    status = store.reclaim().error();
    if (status == Status::ok) {
      const auto compacted = store.compact();
      status = compacted.error();
      complete = compacted && compacted->complete;
    }
  }
  StoreStats stats = store.stats();
  if (world_.may_keep_others(store.pool())) stats.pool.allocated_bytes = 0;
  record.end(status, {stats.retired_bytes, stats.snapshots, stats.snapshot_versions,
                      stats.pool.allocated_bytes, stats.pool.used_bytes, complete});
}

}  // namespace tenuto::life
