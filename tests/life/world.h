// What the process of a life holds: stores, and handles in slots. Actors (actor.h) use the slots as
// the steps of a story say.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "objects.h"
#include "record.h"
#include "story.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"
#include "texts.h"

namespace tenuto::life {

inline constexpr int kExitBroken = 70;   // the process found an error: see Shared::failure
inline constexpr int kExitRefused = 71;  // a store did not open: the record tells which

struct StoreSlot {
  std::shared_ptr<Store> store;
  unsigned path = 0;
  bool read_only = false;
  bool opened = false;                  // this process has opened it at some time
  std::optional<Pool> side;             // the second pool (Story::side)
  Collection collection[kCollections];  // guarded by World::mu
};

struct CursorSlot {
  std::optional<Iterator> cursor;
  std::uint64_t uid = 0;
  unsigned store = 0;
  bool numbers = false;
};
struct SnapshotSlot {
  std::shared_ptr<Snapshot> snapshot;
  std::uint64_t uid = 0;
  unsigned store = 0;
};
struct TransactionSlot {
  std::optional<StoreTransaction> transaction;
  std::uint64_t uid = 0;
  unsigned store = 0;
  std::vector<StoreTransaction::Savepoint> points;
  // Collections that it makes are its own until it commits.
  std::array<Collection, kCollections> made;
};
struct ViewSlot {
  std::optional<View> view;
  std::uint64_t tag = 0;
  unsigned store = 0;
};

struct World {
  World(Shared& s, const Story& t, std::string d) : shared(s), story(t), folder(std::move(d)) {}

  Shared& shared;
  const Story& story;
  const std::string folder;
  std::mutex mu;  // for slots that threads share: collections and snapshots
  StoreSlot store[kStores];
  SnapshotSlot snapshot[kSnapshotsMax];
  // One row a thread if threads run at once. Otherwise all use the first row.
  TransactionSlot transaction[kThreadsMax][kTransactionsMax];
  CursorSlot cursor[kThreadsMax][kCursorsMax];
  ViewSlot view[kThreadsMax][kViewsMax];  // always of the thread that made it
  bool alone = true;                      // only one thread has steps before main's next one
  std::atomic<bool> calls_fail = false;   // a step has asked for a system call to fail

  std::string path_of(unsigned s, unsigned path) const;
  std::string journal_elsewhere(unsigned s) const;
  std::string side_of(unsigned s) const;
  std::string backup_of(unsigned to) const;
  StoreOptions options_of(unsigned s, unsigned path) const;
  std::uint64_t fresh() { return shared.fresh.fetch_add(1) + 1; }

  // The pool has containers, and its consistency is one whose marks may keep blocks of nobody
  // (Shelf::may_keep_others).
  bool may_keep_others(Pool& pool) const;
  void ask_for_time(unsigned s);
  // Ends the failures of system calls, before the tester's own work.
  void let_calls_be();

  // Ends the process, because it found an error.
  [[noreturn]] void broken(const std::string& what);
};

}  // namespace tenuto::life
