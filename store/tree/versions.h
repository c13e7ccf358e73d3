// Old versions of records, for snapshots: what they are, who keeps them, who lets them go. All of
// it is in DRAM. After a crash no old version is left, for nothing durable names its record.
//
// **One word a pool** holds a clock and the number of active snapshots. Taking a snapshot is one
// addition of (1, 1); its moment S is the clock before it. A writer loads the word once, when it
// holds the locks of all its leaves and before it changes anything: its time t is the clock.
// Snapshots with S >= t see the change, others do not.
//
// Why a snapshot is one moment. The load and the addition are ordered, and so are the leaf's lock
// and a reader's look at the leaf's version (all four sequentially consistent). If the load came
// first (t <= S), the leaf was locked before the snapshot was taken, so whoever reads there through
// the snapshot finds it locked and waits, or finds the change. If the addition came first (t > S),
// the writer knows that a snapshot is active and keeps what it replaces.
//
// **Keeping.** A record block never changes; keeping one means not to retire it. The leaf gets an
// OldVersion {key, birth, death = t, record or none}: what the key had from birth until death. A
// reader at S takes, among those of its key with death > S, the one with the least death; if there
// is none, the leaf's present entry. Birth is the death of the key's version before, or 0 when none
// is kept, which errs to the early side. A version is needed by the active snapshots in [birth,
// death): when there is none, nothing is kept. So however often a key is changed under one
// snapshot, one version is kept; and without snapshots a write costs one load of a line that
// nobody writes.
//
// **Letting go** (ZFS's dead lists): a version belongs to the newest active snapshot that needs it.
// When that one is released, the version goes to the next older one, or, if its birth is later than
// that, to the condemned, whom the releasing thread takes out of their leaves. A release touches
// nothing but the versions it owns. Whatever snapshots come and go, exactly the versions that an
// active one needs are kept.
//
// A version hangs on the leaf that holds its key: a split divides them by key, and an empty leaf
// with history is not unlinked until the history is gone, so no leaf's list grows far beyond 48
// versions a snapshot. The leaf's `version` word names the list's head (shadow_leaf.h), so readers
// of the present pay nothing for any of this and shadow leaves stay as small as they are.
//
// **Transactions** (transaction.h) are optimistic, as Silo's (SOSP'13): reads at a snapshot S; at
// commit the leaves of all writes are locked, t is loaded, then every key and range that was read
// must have no version with death > S and stand in leaves that nobody else has locked. Let c be the
// moment of a writer's load of the word, or of a snapshot's addition to it. All transactions,
// single puts and snapshots are serialisable in the order of c:
//   - T read x before W changed it. T's look at x's leaf found it neither locked by W nor changed,
//     so W locked it, and loaded, later than T loaded: c(T) < c(W). This is why the load stands
//     before the validation and after the locks.
//   - T read what W wrote: t(W) <= S(T), so W loaded before T took its snapshot: c(W) < c(T).
//   - T and W wrote the same key: both loaded under the lock of its leaf.
//   - A snapshot sees exactly those whose load came before its addition.
// c lies between a call's begin and its end, so the order is also that of real time. A read-only
// transaction needs no validation: its c is the addition. A transaction's own snapshot is active
// until it ends, so each change after S has left a version; what its commit replaces is kept for
// other snapshots alone.
//
// **Lists and their heads.** A version hangs on the leaf whose range holds its key, so whoever
// changes ranges moves versions: a split (divide), a merge and a move (join); a bulk load, which
// comes when no snapshot needs any, empties the list (clear). A head is given to another leaf only
// when its list is empty, and a version is retired, through an epoch, only when it is in no list: a
// reader with an old version word may walk the list of another leaf, and finds whole versions
// there, which it does not believe. Both are asserted, for a stale pointer here is a loop or a
// wrong answer long after.
//
// **A moment includes its time** (clock.h): reads through it go by that, so records do not expire
// under a snapshot. To expire is a change of its own, at a moment that nobody writes down: a commit
// that relies on records with lifetimes asks the clock after its load, and is a conflict when one
// of them is gone by then; whoever saw it gone had a time later than its end, and so has every
// commit after.
//
// **No memory.** What happens here happens after a change is durable, so nothing may fail: where
// there is no memory for a version all snapshots expire, which is what they promise when they are
// too large; and what cannot be swept now is swept later.
//
// Locks, in the order in which they are taken: leaves, then mu_. Nobody sweeps under a leaf's lock.
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
  // Added when a snapshot is taken; `kRelease` is subtracted when it goes.
  static constexpr std::uint64_t kTake = (1ull << kCountBits) + 1;
  static constexpr std::uint64_t kRelease = 1;

  constexpr Timestamp clock() const { return raw >> kCountBits; }
  constexpr std::uint64_t snapshots() const { return raw & kCountMask; }
};
static_assert(TimestampWord{TimestampWord::kTake * 3 - TimestampWord::kRelease}.clock() == 3);
static_assert(TimestampWord{TimestampWord::kTake * 3 - TimestampWord::kRelease}.snapshots() == 2);

// An active snapshot, and what is left of one. Its end releases it.
struct SnapshotCore {
  SnapshotCore() = default;
  ~SnapshotCore();
  SnapshotCore(const SnapshotCore&) = delete;
  SnapshotCore& operator=(const SnapshotCore&) = delete;

  // Constant.
  std::shared_ptr<VersionStore> versions;
  Timestamp timestamp = 0;
  std::chrono::steady_clock::time_point taken{};
  TimeMs time = 0;  // by which what it sees expires; later moments have later times, or the same
  // Its versions may be gone. Set before they go (release); read after what was looked up
  // (acquire).
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
  Timestamp birth, death;  // the key had it at moments in [birth, death)
  PoolOffset record;       // 0: the key was not there
  std::uint32_t hash;      // of fingerprint and slot bits
  std::uint32_t key_bytes;
  std::uint64_t held_bytes;  // this and the record
  // Changed under the leaf's lock; read by anybody in an epoch.
  std::atomic<OldVersion*> next;
  // Guarded by VersionStore::mu_. No owner: condemned.
  SnapshotCore* owner;
  OldVersion *after, *before;
  // Guarded by the lock of the leaf in whose list it is. What is listed is never freed.
  bool listed;
  // The sweeper's.
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
  bool erased = false;                // the key is not there now
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

  // 0: unbounded. The oldest snapshots expire when the versions held grow beyond, or with age.
  void set_limits(std::uint64_t bytes_max, std::uint64_t age_ms_max);
  // Of the moments. Before anybody takes one.
  void set_clock(std::shared_ptr<ExpiryClock> clock) { clock_ = std::move(clock); }

  // --- writers: all leaves of the change are locked
  // Cost: one load of a line of its own.
  TimestampWord now() const { return {word_.load(std::memory_order_seq_cst)}; }
  // Whether the replaced record is kept for a snapshot; if not, the writer retires it. Call after
  // the last fence and before the unlock, then sweep() after the unlock.
  bool keep(const Replaced& r);
  // Entries from `low` on go to the new right leaf, which nobody sees yet.
  void divide(ShadowLeaf& left, ShadowLeaf& right, std::string_view low);
  // What `from` has goes to `to`, both locked or nobody's yet.
  void join(ShadowLeaf& to, ShadowLeaf& from);

  // --- readers, in an epoch; believe the answer if the leaf's version is still the same after
  // The key's version at the moment, if it is not the leaf's own entry.
  const OldVersion* find(std::uint64_t version, std::string_view key, KeyHash hash,
                         Timestamp at) const;
  // The same for all keys of the leaf: one version a key, in order.
  void collect(std::uint64_t version, Timestamp at, std::vector<const OldVersion*>& out) const;
  // Whether a key in [from, to] (to: null, no bound) was changed after the moment.
  bool changed(std::uint64_t version, std::string_view from, const std::string_view* to,
               Timestamp since) const;

  // --- snapshots. busy: too many; closed.
  Result<std::shared_ptr<SnapshotCore>> take();
  void release(SnapshotCore& s);
  // Lets those that are too old expire, this one or all.
  void expire_if_old(const SnapshotCore& s);
  void expire_old();
  // Takes the condemned out of their leaves. REQUIRES: no leaf is locked by the caller.
  void sweep() {
    if (condemned_any_.load(std::memory_order_acquire)) sweep_all();
  }

  // The end: every version goes, its record given back when `give_back`; all snapshots answer
  // closed from then on. REQUIRES: no reader, no writer. Idempotent.
  void shut(bool give_back);
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // In a child of the process that opened the pool.
  bool forked() const { return !pm::is_this_process(process_); }
  // ok | closed | forked: whether snapshots may be asked.
  Status usable() const {
    if (forked()) [[unlikely]]
      return Status::forked;
    return closed() ? Status::closed : Status::ok;
  }
  // As shut, for a tree that comes to its end (tree_end.cc). forget: empties this leaf's list and
  // condemns what was in it. take_condemned: `out` gets those of the tree, linked by `after`, to be
  // freed by the caller when nobody looks any more. False: sweeps have some of the tree's in their
  // hands, nothing was done. REQUIRES: nobody reads or writes in the tree.
  bool forget(Tree& tree, ShadowLeaf& shadow);
  bool take_condemned(Tree& tree, OldVersion*& out);
  // Empties the leaf's list; the versions go when they are swept. REQUIRES: locked; every snapshot
  // that needed them was released.
  void clear(ShadowLeaf& shadow);

  VersionStats stats() const;
  // Calls f for all versions that are held. REQUIRES: no writer.
  void for_each(const std::function<void(const OldVersion&)>& f) const;

  KeyLocks& key_locks() { return key_locks_; }

  // For Tree::sweep. REQUIRES: the shadow leaf is locked. Unlinks the versions that are `going`.
  void unlink_going(ShadowLeaf& shadow);

 private:
  static constexpr std::size_t kChunk = 4096;
  static constexpr std::size_t kChunks = (1u << ShadowLeaf::kListBits) / kChunk;
  using Head = std::atomic<OldVersion*>;
  // List heads, and room for as many that are idle: giving one back needs no memory.
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

  // Written when a snapshot comes or goes; on a line of its own, because every writer loads it.
  alignas(kLineBytes) std::atomic<std::uint64_t> word_{1ull << TimestampWord::kCountBits};

  alignas(kLineBytes) std::atomic<bool> condemned_any_{false};
  const std::uint64_t process_ = pm::this_process();
  std::atomic<bool> closed_{false};
  // Constant after open.
  std::uint64_t bytes_max_ = 0;
  std::uint64_t age_ms_max_ = 0;
  std::shared_ptr<ExpiryClock> clock_;  // null: no store
  // Filled under mu_, read by anybody.
  std::unique_ptr<std::atomic<Chunk*>[]> chunks_;

  KeyLocks key_locks_;

  mutable std::mutex mu_;
  std::condition_variable swept_;
  // Guarded by mu_.
  SnapshotCore* oldest_ = nullptr;
  SnapshotCore* newest_ = nullptr;
  OldVersion* condemned_ = nullptr;
  unsigned sweepers_ = 0;
  TimeMs last_time_ = 0;          // of a moment
  std::uint32_t idle_heads_ = 0;  // so many, in the chunks
  std::uint32_t heads_ = 1;       // 0 is no head
  VersionStats stats_;
};

}  // namespace TENUTO_NS::store
