// The version store: old versions of records in DRAM, for snapshots (MVCC). This file says what a
// version is, who keeps it and when it is freed. A crash loses all old versions. That is safe:
// nothing durable names their records.
//
// **One word a pool** holds a clock and the number of active snapshots (TimestampWord).
//   snapshot   one addition of 1 to both. Its timestamp S is the clock before the addition.
//   write      one load, under the locks of all its leaves and before its first change. Its commit
//              timestamp t is the clock.
// A snapshot sees a change if and only if t <= S.
//
// **Why a snapshot is one point in time.** Four operations are sequentially consistent: a writer's
// lock of a leaf, its load of the word, a snapshot's addition to it, and a reader's load of the
// leaf's version. There are two cases:
//   load before addition   t <= S. The leaf was locked before the snapshot was taken. A read at S
//                          finds the leaf locked and waits, or it finds the change.
//   addition before load   t > S. The writer knows that a snapshot is active, and keeps what it
//                          replaces.
//
// **Keeping a version.** A record block never changes. To keep a record means not to retire its
// block. The writer adds an OldVersion {key, birth, death = t, record or none} to the leaf's list:
// what the key had in [birth, death). Birth is the death of the key's version before, or 0 when
// none is kept. A birth of 0 may be too early, which is harmless: a snapshot older than the true
// birth, if one were active, would have kept the version before.
//   a read at S takes    of the key's versions with death > S, the one with the least death; if
//                        there is none, the leaf's current entry
//   a version is needed  by the active snapshots with birth <= S < death; if there is none, nothing
//                        is kept
// So a key has one version for a snapshot, however often it is changed. Without snapshots a write
// costs one load of a line that no thread writes.
//
// **Freeing versions** (ZFS's dead lists). A version is owned by the newest active snapshot that
// needs it. When that snapshot is released, the version is given to the next older snapshot if
// birth <= its timestamp. Otherwise the version is condemned, and the releasing thread takes it out
// of its leaf (sweep). A release touches only the versions that the snapshot owns. Apart from
// condemned ones, exactly the versions that an active snapshot needs are kept.
//
// **One list a leaf.** A version is in the list of the leaf whose range holds its key. So code that
// changes ranges moves versions: a split (divide), a merge and a move of a leaf (join). A bulk load
// empties the list (clear). It runs only when no snapshot needs a version. An empty leaf that has
// versions is not unlinked until they are swept. So no list grows far beyond 48 versions a
// snapshot. The leaf's `version` word names the list's head (shadow_leaf.h). So readers of current
// records pay nothing, and shadow leaves do not grow.
//
// A reader with an old version word may walk the list of another leaf. It finds whole versions
// there. It does not use them, because its own leaf's version has changed. Two rules make this
// safe:
//   a head is given to another leaf only when its list is empty        (take_head asserts it)
//   a version is retired, through an epoch, only when it is in no list (retire_version asserts it)
// They are asserted because a stale pointer here leads to a loop or a wrong answer much later.
//
// **Transactions** (transaction.h) are optimistic, as in Silo (SOSP'13). They read at a snapshot S.
// A commit is a batch (batch.cc) with these steps:
// 1. It locks the leaves of all its writes.
// 2. It loads the word, which gives t.
// 3. It validates the read set: no key or range that was read has a version with death > S, and no
//    leaf of them is locked by another thread.
// 4. It changes the leaves.
//
// Let c be the point in time of a writer's load of the word, or of a snapshot's addition to it. All
// transactions, single puts and snapshots are serialisable in the order of c:
// - T read x before W changed it. T's validation looked at x's leaf after T's load. It found the
//   leaf neither locked by W nor changed by W. So W locked the leaf later, and loaded later still:
//   c(T) < c(W). This is why the load comes after the locks and before the validation.
// - T read what W wrote. Then t(W) <= S(T), so W loaded before T took its snapshot: c(W) < c(T).
// - T and W wrote the same key. Both loaded under the lock of the key's leaf.
// - A snapshot sees exactly the writers whose load came before its addition.
//
// c is between the begin and the end of its call, so the order is also that of real time. A
// read-only transaction needs no validation: its c is the addition. Validation misses no change
// after S: the transaction's own snapshot is active until it ends, so each such change has left a
// version. The exception is a key that is inserted and erased again (keep): it is absent as before.
// What the transaction's own commit replaces is kept for other snapshots only.
//
// **A snapshot includes a time** (clock.h). Reads through the snapshot use this time, so records do
// not expire under it. A record's expiry is also a change, but no writer gives it a timestamp. So a
// commit that read records with lifetimes asks the clock after its load. If one of them has expired
// by then, the commit is a conflict. A reader that saw the record expired had a time at or after
// its end. The clock does not go back, so every later commit finds it expired, too.
//
// **No memory.** This code runs after a change is durable, so it may not fail. When there is no
// memory for a version, all snapshots expire. Snapshots promise no more than that: they also expire
// when they hold too much. What cannot be swept now is swept later.
//
// Lock order: leaves, then mu_. No thread sweeps while it holds a leaf's lock.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pm/process.h"
#include "store/tree/clock.h"
#include "store/tree/format.h"
#include "store/tree/hash.h"
#include "store/tree/key_locks.h"
#include "store/tree/shadow_leaf.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS::store {

class Tree;
class VersionStore;

using Timestamp = std::uint64_t;

struct TimestampWord {
  std::uint64_t raw;

  static constexpr unsigned kCountBits = 16;
  static constexpr std::uint64_t kCountMask = (1ull << kCountBits) - 1;
  static constexpr std::uint64_t kSnapshotsMax = kCountMask;
  // Added when a snapshot is taken. `kRelease` is subtracted when it is released.
  static constexpr std::uint64_t kTake = (1ull << kCountBits) + 1;
  static constexpr std::uint64_t kRelease = 1;

  constexpr Timestamp clock() const { return raw >> kCountBits; }
  constexpr std::uint64_t snapshots() const { return raw & kCountMask; }
};
static_assert(TimestampWord{TimestampWord::kTake * 3 - TimestampWord::kRelease}.clock() == 3);
static_assert(TimestampWord{TimestampWord::kTake * 3 - TimestampWord::kRelease}.snapshots() == 2);

// A snapshot: active, then released or expired. The destructor releases it.
struct SnapshotCore {
  SnapshotCore() = default;
  ~SnapshotCore();
  SnapshotCore(const SnapshotCore&) = delete;
  SnapshotCore& operator=(const SnapshotCore&) = delete;

  // Constant.
  std::shared_ptr<VersionStore> versions;
  Timestamp timestamp = 0;
  std::chrono::steady_clock::time_point taken{};
  TimeMs time = 0;  // for lifetimes; not less than any older snapshot's
  // True: its versions may be freed. Stored before they are condemned (release). Readers load it
  // after they have looked (acquire).
  std::atomic<bool> expired{false};
  // Guarded by VersionStore::mu_.
  bool active = false;
  SnapshotCore* older = nullptr;
  SnapshotCore* newer = nullptr;
  struct OldVersion* owned = nullptr;
};

struct OldVersion {
  // Constant.
  Tree* tree;
  Timestamp birth, death;  // the key had it at timestamps in [birth, death)
  PoolOffset record;       // 0: the key was not there
  std::uint32_t hash;      // of fingerprint and slot bits
  std::uint32_t key_bytes;
  std::uint64_t held_bytes;  // of this and the record
  // Written under the leaf's lock, read by any thread in an epoch.
  std::atomic<OldVersion*> next;
  // Guarded by VersionStore::mu_. No owner: it is condemned.
  SnapshotCore* owner;
  OldVersion *after, *before;
  // Guarded by the lock of the leaf in whose list it is. A version in a list is never freed.
  bool listed;
  // Set, under the leaf's lock, when it is to be taken out of the list.
  bool going;

  std::string_view key() const { return {reinterpret_cast<const char*>(this + 1), key_bytes}; }
  static OldVersion* make(std::string_view key);  // null: no memory
  static void destroy(OldVersion* v);
};

// What a writer replaces in a leaf it has locked.
struct Replaced {
  Tree& tree;
  ShadowLeaf& shadow;
  std::string_view key;
  KeyHash hash;
  Timestamp t;
  PoolOffset record;  // 0: the key was not there
  std::uint64_t record_bytes = 0;
  bool erased = false;                // the key is absent now
  const SnapshotCore* own = nullptr;  // of the transaction that writes
};

struct VersionStats {
  std::uint64_t snapshots = 0;
  std::uint64_t versions = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t oldest_age_ms = 0;
  std::uint64_t expired = 0;
};

class VersionStore : public std::enable_shared_from_this<VersionStore> {
 public:
  VersionStore();
  ~VersionStore();
  VersionStore(const VersionStore&) = delete;
  VersionStore& operator=(const VersionStore&) = delete;

  // 0: no limit. The oldest snapshots expire when the versions hold more bytes, or by age.
  void set_limits(std::uint64_t bytes_max, std::uint64_t age_ms_max);
  // The clock for the time of snapshots. Call it before the first take().
  void set_clock(std::shared_ptr<ExpiryClock> clock) { clock_ = std::move(clock); }

  // --- writers: all leaves of the change are locked
  // Cost: one load of a line that holds nothing else.
  TimestampWord now() const { return {word_.load(std::memory_order_seq_cst)}; }
  // True: the replaced record is kept for a snapshot. False: the writer retires it. Call it after
  // the last fence and before the unlock; call sweep() after the unlock.
  bool keep(const Replaced& r);
  // Moves the versions with keys >= `low` to the new right leaf, which no other thread sees yet.
  void divide(ShadowLeaf& left, ShadowLeaf& right, std::string_view low);
  // Moves the versions of `from` to `to`. Both are locked, or no other thread sees them yet.
  void join(ShadowLeaf& to, ShadowLeaf& from);

  // --- readers, in an epoch; the answer counts if the leaf's version is still the same after
  // The key's version at the timestamp. Null: the leaf's own entry is the answer.
  const OldVersion* find(std::uint64_t version, std::string_view key, KeyHash hash,
                         Timestamp at) const;
  // The same for all keys of the leaf: one version a key, in key order.
  void collect(std::uint64_t version, Timestamp at, std::vector<const OldVersion*>& out) const;
  // Whether a key in [from, to] was changed after the timestamp. to == null: no upper bound.
  bool changed(std::uint64_t version, std::string_view from, const std::string_view* to,
               Timestamp since) const;

  // --- snapshots. take: busy, there are too many; closed.
  Result<std::shared_ptr<SnapshotCore>> take();
  void release(SnapshotCore& s);
  // expire_old() expires all snapshots that are too old. expire_if_old() does so if this one is.
  void expire_if_old(const SnapshotCore& s);
  void expire_old();
  // Takes condemned versions out of their leaves. REQUIRES: the caller has locked no leaf.
  void sweep() {
    if (condemned_any_.load(std::memory_order_acquire)) sweep_all();
  }

  // At close: frees every version, and gives its record back when `give_back`. From then on all
  // snapshots return closed. REQUIRES: no reader, no writer. Idempotent.
  void shut(bool give_back);
  // From now on snapshots and transactions return closed. reopen() takes it back, before shut().
  void announce_shut() { closed_.store(true, std::memory_order_seq_cst); }
  void reopen() { closed_.store(shut_, std::memory_order_seq_cst); }
  bool closed() const { return closed_.load(std::memory_order_seq_cst); }
  // True in a child of the process that opened the pool.
  bool forked() const { return !pm::is_this_process(process_); }
  // ok | closed | forked: whether snapshots can be used.
  Status usable() const {
    if (forked()) [[unlikely]]
      return Status::forked;
    return closed() ? Status::closed : Status::ok;
  }
  // For a tree that is given back (tree_end.h). forget() empties this leaf's list and condemns its
  // versions. take_condemned() moves the tree's condemned versions to `out`, linked by `after`. The
  // caller frees them when no reader can look at them. False: a sweep works on versions of this
  // tree, and nothing was done. REQUIRES: no thread reads or writes in the tree.
  bool forget(Tree& tree, ShadowLeaf& shadow);
  bool take_condemned(Tree& tree, OldVersion*& out);
  // Empties the leaf's list. The versions are freed when they are swept. REQUIRES: the leaf is
  // locked; every snapshot that needed the versions was released.
  void clear(ShadowLeaf& shadow);

  VersionStats stats() const;
  // Calls f for all versions that are kept. REQUIRES: no writer.
  void for_each(const std::function<void(const OldVersion&)>& f) const;

  KeyLocks& key_locks() { return key_locks_; }

  // For Tree::sweep. Takes the versions that are `going` out of the leaf's list. REQUIRES: the
  // shadow leaf is locked.
  void unlink_going(ShadowLeaf& shadow);

 private:
  static constexpr std::size_t kChunk = 4096;
  static constexpr std::size_t kChunks = (1u << ShadowLeaf::kListBits) / kChunk;
  using Head = std::atomic<OldVersion*>;
  // List heads, and room for the numbers of as many idle heads: to give one back needs no memory.
  struct Chunk {
    Head heads[kChunk] = {};
    std::uint32_t idle[kChunk] = {};  // guarded by mu_
  };

  Head& head(std::uint32_t which) const;
  OldVersion* first(std::uint64_t version) const;
  void push(ShadowLeaf& shadow, OldVersion* v);
  std::uint32_t take_head();
  void give_head(ShadowLeaf& shadow);
  void give_idle(std::uint32_t which);
  void clear_locked(ShadowLeaf& shadow);
  void unlink_going_locked(ShadowLeaf& shadow);
  void own(SnapshotCore& s, OldVersion* v);
  void disown(OldVersion* v);
  void condemn(OldVersion* v);
  void deactivate(SnapshotCore& s);
  void expire(SnapshotCore& s);
  void expire_all();
  void expire_beyond_limits();
  void expire_aged();
  void sweep_all();

  // Written when a snapshot is taken or released. It has a line to itself, because every writer
  // loads it.
  alignas(kLineBytes) std::atomic<std::uint64_t> word_{1ull << TimestampWord::kCountBits};

  alignas(kLineBytes) std::atomic<bool> condemned_any_{false};
  const std::uint64_t process_ = pm::this_process();
  std::atomic<bool> closed_{false};
  bool shut_ = false;  // of the closing thread
  // Constant after open.
  std::uint64_t bytes_max_ = 0;
  std::uint64_t age_ms_max_ = 0;
  std::shared_ptr<ExpiryClock> clock_;  // null: no store
  // Filled under mu_, read by any thread.
  std::unique_ptr<std::atomic<Chunk*>[]> chunks_;

  KeyLocks key_locks_;

  mutable std::mutex mu_;
  std::condition_variable swept_;
  // Guarded by mu_.
  SnapshotCore* oldest_ = nullptr;
  SnapshotCore* newest_ = nullptr;
  OldVersion* condemned_ = nullptr;
  unsigned sweepers_ = 0;
  TimeMs last_time_ = 0;          // of the newest snapshot
  std::uint32_t idle_heads_ = 0;  // how many numbers `idle` holds, over all chunks
  std::uint32_t heads_ = 1;       // the next head never used; 0 means "no list"
  VersionStats stats_;
};

}  // namespace TENUTO_NS::store
