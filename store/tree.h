// The store's tree: persistent leaves, the index above them in DRAM, and the operations on keys.
// Called by store.cc (the public Store); made by store/open.cc, which recovers what stands below.
//
// Files: tree.cc get, put, erase · past.cc reads at a snapshot's moment · conditional.cc writes
// that look first · split.cc leaves that come and go · batch.cc atomic batches · iterator.cc
// cursors · rebuild.cc creation and opening · check.cc validation.
//
// Thread safety: everything but create, rebuild, close and validate from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heap/heap.h"
#include "pm/pool_file.h"
#include "store/epoch.h"
#include "store/hash.h"
#include "store/history.h"
#include "store/index.h"
#include "store/leaf.h"
#include "store/record.h"
#include "tenuto/kv.h"
#include "tenuto/status.h"
#include "tx/engine.h"

namespace tenuto::inline TENUTO_ABI::store {

// Leaf twins come from rows that are freed with the tree, so that neighbours stand together; in
// huge pages where the system has them.
class Twins {
 public:
  Twins() = default;
  ~Twins();
  Twins(const Twins&) = delete;
  Twins& operator=(const Twins&) = delete;

  // `count` of them in a row, for rebuild.
  VLeaf* take_row(std::size_t count);
  VLeaf* take();
  void put(VLeaf* twin);
  std::uint64_t bytes() const;

 private:
  struct Row {
    void* memory;
    std::size_t bytes;
  };
  VLeaf* make_row(std::size_t count);

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::vector<Row> rows_;
  std::vector<VLeaf*> idle_;
  std::uint64_t total_ = 0;
};

// An entry of a leaf with its key, for those who need the order.
struct Entry {
  Record record;
  SlotWord word;
  std::uint8_t slot;
};

class Tree;

// What a transaction read, to be still so when it commits: ranges of keys, from and to inclusive.
struct ReadSet {
  struct Range {
    const Tree* tree = nullptr;
    std::string from;
    std::string to;
    bool bounded = true;  // false: to the end of the tree
  };
  std::vector<Range> ranges;
  std::shared_ptr<SnapshotCore> snapshot;  // null: nothing was read
};

// A change of an atomic batch; `tree` is one of the pool's.
struct BatchOp {
  Tree* tree = nullptr;
  std::string_view key;
  std::string_view value;
  bool erase = false;
};

// What a conditional write does, having seen the key's record.
struct Decision {
  enum class What : std::uint8_t { leave, put, erase };
  What what = What::leave;
  std::string_view value = {};  // of a put; untouched until put_when asks again or returns
  Status status = Status::ok;   // what put_when returns when it leaves the key alone
};
// Gets the record, null where there is none. Called again when another thread changed this key
// meanwhile; no lock is held, but it must not write to the store.
using Decide = std::function<Decision(const Record* old)>;

class Tree {
 public:
  // Makes the first leaf of a new store. Crash-safe: until the last fence the pool has no store.
  static Result<std::unique_ptr<Tree>> create(pm::PoolFile& file, heap::Heap& heap,
                                              tx::Engine& engine, History& history, KeyKind kind,
                                              Report* report);
  // Whether the pool's head names a store.
  static bool exists(const pm::PoolFile& file);
  // Builds the tree of an existing store. After a crash (clean == false) it finishes half-done
  // splits and marks every block of the store in the heap: call it after the recovery of tx and
  // before Heap::finish_recovery. A clean open reads no record. corrupt names the leaf.
  static Result<std::unique_ptr<Tree>> rebuild(pm::PoolFile& file, heap::Heap& heap,
                                               tx::Engine& engine, History& history, bool clean,
                                               unsigned threads, Report* report);
  // Gives all retired blocks back and writes the counts, so that the heap may be closed.
  // REQUIRES: no reader, no writer.
  Status close();
  ~Tree();

  // Before any other thread knows the tree.
  void set_verify_reads(bool on) { verify_reads_ = on; }

  // See Store for these. lookup: REQUIRES an epoch guard, and the record stays under it.
  Status lookup(std::string_view key, Record& out, bool for_value = true) const;
  Status get(std::string_view key, std::string& value) const;
  Status put(std::string_view key, std::string_view value);
  Status erase(std::string_view key);
  // Sees the key's record and writes as `decide` says, in one step: nobody writes the key between.
  Status put_when(std::string_view key, const Decide& decide);
  // exists: the key is there, and stays as it is.
  Status put_if_absent(std::string_view key, std::string_view value);
  // conflict: the value is another than expected (no value: no record), and stays. No desired value
  // erases.
  Status compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                          std::optional<std::string_view> desired);
  // f makes the new value of the old one (none: no record); no new value erases.
  using Merge = std::function<std::optional<std::string>(std::optional<std::string_view> old)>;
  Status merge(std::string_view key, const Merge& f);

  // Atomic, over trees of one pool. Ops in the order given; a later one for the same key wins.
  // What was read is validated first; conflict: it changed, and nothing is done.
  static Status write(std::vector<BatchOp> ops, const ReadSet* reads = nullptr);
  // As lookup, at the snapshot's moment. expired | closed, too.
  Status lookup_at(std::string_view key, const SnapshotCore& at, Record& out,
                   bool for_value = true) const;
  // Whether the key was changed after the moment. A hint: it may be changed at any time.
  bool changed_since(std::string_view key, const SnapshotCore& at) const;
  Status validate(Report* report) const;
  void stats(StoreStats& out) const;
  KeyKind kind() const { return kind_; }
  Status check_key(std::string_view key) const;
  // The trees of a pool differ in it; batches lock leaves in its order.
  std::uint64_t id() const { return id_; }

  // io when what was seen so far may have been zeros in place of a bad page (pm/bus_error.h).
  Status bad_pages() const { return file_.bad_pages(); }

  // --- for the iterator
  // ---------------------------------------------------------------------------
  const Index& index() const { return index_; }
  // The leaf's entries at one moment, unsorted. conflict: the leaf changed, look again.
  // REQUIRES: an epoch guard.
  Status entries(const Place& place, std::vector<Entry>& out, bool for_values = false) const;
  // The same at a snapshot's moment, or now when there is none.
  Status entries_at(const Place& place, const SnapshotCore* at, std::vector<Entry>& out) const;
  // Sorts by key.
  static void sort(std::vector<Entry>& entries);
  Result<std::string_view> low_of(const VLeaf& twin) const;
  Status damaged(PoolOffset at, const char* what) const;

  // --- for the history
  // Takes these, sorted by key, out of their leaves. REQUIRES: no lock is held.
  void sweep(std::span<OldVersion* const> going);
  // REQUIRES: unlinked.
  void retire_version(OldVersion* v);
  void give_back(PoolOffset record) { heap_.release(record); }
  History& history() const { return history_; }

 private:
  struct Found {
    bool found = false;
    unsigned slot = 0;
    SlotWord word{};
    Record record;
  };
  struct LockedLeaf;  // batch.cc
  class Batch;        // batch.cc
  class Rebuild;      // rebuild.cc
  class Check;        // check.cc

  Tree(pm::PoolFile& file, heap::Heap& heap, tx::Engine& engine, History& history, KeyKind kind);

  Status search(const Place& place, std::string_view key, KeyHash hash, Found& out) const;
  Result<heap::Block> reserve(std::uint64_t bytes);
  Result<heap::Block> reserve_record(std::string_view key, std::string_view value);
  Status put_at(std::string_view key, std::string_view value, PoolOffset record);
  // A record that is written, on its way into its leaf.
  struct Pending {
    std::string_view key;
    KeyHash hash;
    PoolOffset record;
    std::int64_t bytes;
    bool fenced;  // the record
  };
  // The steps under the leaf's lock; conflict: the leaf is not as it was at `place`, look again.
  Status link_record(const Place& place, Pending& p, const Found& old);
  Status unlink_record(const Place& place, std::string_view key, const Found& old);
  struct Conditional;  // conditional.cc
  void free(const Retired& item);
  void count_record_bytes() const;
  void retire_block(PoolOffset block) {
    if (block) limbos_.retire(limbos_.mine(), {block.value, Retired::What::block});
  }

  // past.cc. Whether nobody changed a key of the range after the moment, or is about to; `mine` are
  // the leaves this thread has locked. conflict: somebody did, or may have.
  Status unchanged(const ReadSet::Range& range, Moment since, std::span<VLeaf* const> mine) const;
  Result<std::optional<std::string_view>> end_of(const VLeaf& twin) const;

  // split.cc. Both REQUIRE: the leaf is locked, an epoch guard.
  Status split_full(VLeaf& twin, std::string_view key);
  // Entries [keep, end) of the sorted ones go to a new right neighbour with this low separator.
  Result<VLeaf*> split_off(VLeaf& twin, const std::vector<Entry>& sorted, std::size_t keep,
                           std::string_view low);
  // Unlinks the leaf that this key belongs to, if it is empty and not the first.
  void unlink_empty(std::string_view key);
  bool unlink_locked(VLeaf& left, VLeaf& twin, std::string_view low);

  // Constant after open.
  pm::PoolFile& file_;
  heap::Heap& heap_;
  tx::Engine& engine_;
  History& history_;
  KeyKind kind_;
  std::uint64_t id_ = 0;
  bool verify_reads_ = true;
  double rebuild_ms_ = 0;
  std::int64_t records_at_open_ = 0;
  // Written once, under count_mu_, before record_bytes_known_ says so.
  mutable std::int64_t record_bytes_at_open_ = 0;
  mutable std::atomic<bool> record_bytes_known_{true};
  mutable std::mutex count_mu_;

  Twins twins_;
  mutable Limbos limbos_;
  Index index_;
};

}  // namespace tenuto::inline TENUTO_ABI::store
