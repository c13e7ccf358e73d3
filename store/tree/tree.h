// The store's tree: persistent leaves, the index above them in DRAM, and the reads and writes of
// keys. Maintenance is above it, in files of its own: see the classes at the head of Tree.
//
// Files: tree.cc get, put, erase · multi_get.cc many keys at once · snapshot_read.cc reads at a
// snapshot's timestamp, validation of transactions · conditional.cc writes that depend on the old
// record · batch.cc, batch_commit.cc · split.cc leaves split and unlinked.
//
// Thread safety: from any thread, unless said otherwise.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file/pool_file.h"
#include "heap/heap.h"
#include "store/tree/garbage.h"
#include "store/tree/hash.h"
#include "store/tree/index.h"
#include "store/tree/leaf.h"
#include "store/tree/leaf_reader.h"
#include "store/tree/lookup_cache.h"
#include "store/tree/read_set.h"
#include "store/tree/record.h"
#include "store/tree/shadow_leaves.h"
#include "store/tree/versions.h"
#include "tenuto/kv.h"
#include "tenuto/status.h"
#include "tx/engine.h"

namespace TENUTO_NS::store {

// What all trees of a pool share.
struct Ground {
  pm::PoolFile& file;
  heap::Heap& heap;
  tx::Engine& engine;
  VersionStore& versions;
  ShadowLeaves shadows;
  LookupBudget lookups;
};

// The answer to one key of many.
struct Looked {
  Status status = Status::not_found;
  Record record;
};

class SortedEntries;
class Tree;

// A block that nothing durable names yet. The destructor gives it back unless linked() was called.
class UnlinkedBlock {
 public:
  UnlinkedBlock(heap::Heap& heap, PoolOffset at) : heap_(heap), at_(at) {}
  ~UnlinkedBlock() {
    if (at_) heap_.release(at_);
  }
  UnlinkedBlock(const UnlinkedBlock&) = delete;
  UnlinkedBlock& operator=(const UnlinkedBlock&) = delete;
  void linked() { at_ = {}; }

 private:
  heap::Heap& heap_;
  PoolOffset at_;
};

// A change of an atomic batch; `tree` is one of the pool's.
struct BatchOp {
  Tree* tree = nullptr;
  std::string_view key;
  std::string_view value;
  bool erase = false;
};

// What a conditional write does after it has seen the key's record.
struct Decision {
  enum class What : std::uint8_t { leave, put, erase };
  What what = What::leave;
  std::string_view value = {};  // of a put; unchanged until put_when asks again or returns
  Status status = Status::ok;   // what put_when returns when it changes nothing
};
// Gets the key's record; null: there is none. Called again when another thread has changed the key
// meanwhile. No lock is held, but it must not write to the store.
using Decide = std::function<Decision(const Record* old)>;

// Whether the bytes of the records are known: `about`, if writes came while they were added up.
enum class Counted : std::uint8_t { no, about, exactly };

class Tree {
 public:
  ~Tree();

  // Maintenance, above reads and writes; each has a header.
  class Rebuild;     // rebuild.h: made empty, opened, closed
  class Bulk;        // bulk.h
  class Compact;     // compact.h
  class Check;       // check.h: validation
  class Statistics;  // statistics.h: counts and estimates
  class End;         // tree_end.h: given back after a drop

  // Frees what no reader can look at any more, from all threads' lists.
  void collect() { garbage_.collect_all(); }
  Garbage::Waiting waiting() const { return garbage_.waiting(); }
  // Of something in the pool.
  PoolOffset offset_of(const void* p) const { return file_.offset_of(p); }

  // Call it before any other thread knows the tree.
  void set_verify_reads(bool on) { leaves_.set_verify(on); }
  // The life of the collection that this tree belongs to; it outlives the tree. Without a call the
  // tree cannot be dropped.
  void set_life(const CollectionLife& life) { life_ = &life; }

  // For these see Store. lookup REQUIRES an epoch guard, under which the record stays.
  Status lookup(std::string_view key, Record& out, bool for_value = true) const;
  // Many keys, so that their cache misses overlap (multi_get.cc). REQUIRES: as lookup.
  void multi_lookup(std::span<const std::string_view> keys, std::span<Looked> out) const;
  Status get(std::string_view key, std::string& value) const;
  Status put(std::string_view key, std::string_view value);
  Status erase(std::string_view key);
  // Reads the key's record and writes what `decide` returns, in one step: no other thread writes
  // the key in between.
  Status put_when(std::string_view key, const Decide& decide);

  // Atomic, over trees of one pool, with the ops in this order: a later one for the same key wins.
  // `reads` is validated first. conflict: it has changed, and nothing was written. `erased` gets
  // the number of records that it erased.
  static Status write(std::span<const BatchOp> ops, const ReadSet* reads = nullptr,
                      std::uint64_t* erased = nullptr);
  // As lookup, at the snapshot's timestamp. Also expired | closed.
  Status lookup_at(std::string_view key, const SnapshotCore& at, Record& out,
                   bool for_value = true) const;
  // Whether the key was changed after the snapshot. A hint: the key may change at any time.
  bool changed_since(std::string_view key, const SnapshotCore& at) const;
  // How many records there are, and how often a write has changed that number or a record.
  struct Count {
    std::uint64_t records;
    std::uint64_t changes;
  };
  Count count() const {
    // The sum over threads may be less than 0 for a moment.
    const std::int64_t records = records_at_open_ + garbage_.records();
    return {static_cast<std::uint64_t>(std::max<std::int64_t>(records, 0)), garbage_.changes()};
  }
  Status check_key(std::string_view key) const;
  // Unique in the pool. Batches lock leaves in the order of ids.
  TreeId id() const { return id_; }
  PoolOffset first_leaf() const { return first_leaf_; }

  // io: what was read so far may have been zeros in place of a bad page (pm/bus_error.h).
  Status bad_pages(Report* report = nullptr) const { return file_.bad_pages(report); }
  Status writable() const { return file_.writable(); }

  const LeafReader& leaves() const { return leaves_; }
  const Index& index() const { return index_; }
  const ShadowLeaves& shadows() const { return shadows_; }
  // The leaf in key order, now or at a snapshot's timestamp (LeafReader::ordered).
  Status ordered(const Place& place, const SnapshotCore* at, SortedLeaf& out) const {
    return at == nullptr ? leaves_.ordered(place, out) : ordered_at(place, *at, out);
  }

  // --- for the version store
  // Takes these versions, sorted by key, out of their leaves. Returns how many: all, or 0 if there
  // is no memory. REQUIRES: no lock is held.
  std::size_t sweep(std::span<OldVersion* const> going);
  // REQUIRES: it is in no list.
  void retire_version(OldVersion* v);
  void give_back(PoolOffset record) { heap_.release(record); }
  VersionStore& versions() const { return versions_; }
  // How many of the tree's versions sweeps work on. Guarded by VersionStore::mu_.
  std::uint64_t in_sweeps = 0;

 private:
  struct LockedLeaf;  // batch.h
  class Batch;        // batch.h

  Tree(Ground& ground, TreeId id, PoolOffset first_leaf, KeyOrder order);

  Status ordered_at(const Place& place, const SnapshotCore& at, SortedLeaf& out) const;
  void lookup_group(std::span<const std::string_view> keys, std::span<Looked> out) const;
  struct Missed;  // multi_get.cc
  void lookup_missed(const Missed& missed) const;
  // The steps of a lookup. False: the lookup cache does not know the key.
  bool lookup_cached(std::string_view key, LookupCache::Look look, Record& out, bool for_value,
                     Status& status) const {
    while (const PoolOffset at = look.next()) {
      if (!leaves_.has_key(at, key, out) && !TENUTO_PLANT("store_lookup_key_not_compared"))
        continue;
      status = leaves_.judge(at, out, for_value);
      return true;
    }
    return false;
  }
  Status lookup_in_leaf(std::string_view key, const LookupCache::Look& look, Record& out,
                        bool for_value) const;
  // conflict: the leaf has changed, look again.
  Status lookup_at_place(const Place& place, std::string_view key, const LookupCache::Look& look,
                         Record& out, bool for_value) const;
  // Finds the places of at most kLocatedAtOnce keys, as locate_many(), and prefetches what a search
  // reads there. Waits for no leaf, so the calling thread may have locked some.
  void warm(std::span<const std::string_view> keys, const KeyHash* hashes, Place* places) const;
  Result<heap::Block> reserve(std::uint64_t bytes, heap::Kind kind);
  Result<heap::Block> reserve_record(std::string_view key, std::string_view value);
  // A record that is written and is to be linked into its leaf.
  struct Pending {
    std::string_view key;
    KeyHash hash;
    PoolOffset record;  // none: it is linked
    std::int64_t bytes;
    bool fenced;  // the record is durable
  };
  Status put_at(Pending& p, std::string_view value);
  // For a write under its lock: whether the collection is neither dropped nor about to be.
  bool still_there() const {
    return life_->is_open() || TENUTO_PLANT("store_write_life_not_validated");
  }
  // If it is not: unlocks the leaf and waits for the outcome. conflict: the collection stays after
  // all, look again. not_found | closed: it does not. REQUIRES: the thread holds no bucket of the
  // lookup cache, which the dropping thread may wait for.
  Status gone(LeafLock& lock) const;
  // The steps under the leaf's lock. conflict: the leaf has changed since `place`, look again.
  Status link_record(const Place& place, Pending& p, const Found& old);
  Status replace_record(const Place& place, Pending& p, const Found& old);
  Status unlink_record(const Place& place, std::string_view key, const Found& old);
  struct Conditional;  // conditional.cc
  void free(const Retired& item);
  // A key's record that no slot and no entry of the lookup cache names any more.
  void retire_record(PoolOffset record, [[maybe_unused]] KeyHash hash, std::uint64_t bytes) {
    TENUTO_DCHECK(!lookups_.names(hash, record));
    retire_block(record, bytes);
  }
  void retire_block(PoolOffset block, std::uint64_t bytes) {
    if (block) garbage_.retire(garbage_.mine(), {block.value, Retired::What::block, bytes});
  }

  // snapshot_read.cc. ok: no key of the range was changed after the timestamp, or is about to be.
  // `mine`: the leaves that this thread has locked. conflict: one was, or may have been.
  Status unchanged(const ReadRange& range, Timestamp since,
                   std::span<ShadowLeaf* const> mine) const;

  // split.cc. Both REQUIRE: the leaf is locked, an epoch guard.
  Status split_full(ShadowLeaf& shadow, std::string_view key);
  // Moves sorted entries [keep, end) to a new right neighbour with this low separator.
  Result<ShadowLeaf*> split_off(ShadowLeaf& shadow, const SortedEntries& sorted, std::size_t keep,
                                std::string_view low);
  // Unlinks the leaf of this key, if it is empty and not the first.
  void unlink_empty(std::string_view key);
  void try_unlink_empty(std::string_view key);
  bool unlink_locked(ShadowLeaf& left, ShadowLeaf& shadow, std::string_view low);

  // Constant after open.
  pm::PoolFile& file_;
  heap::Heap& heap_;
  tx::Engine& engine_;
  VersionStore& versions_;
  const TreeId id_;
  const PoolOffset first_leaf_;
  const KeyOrder order_;
  ShadowLeaves& shadows_;
  LeafReader leaves_;
  static const CollectionLife kStays;
  const CollectionLife* life_ = &kStays;
  double rebuild_ms_ = 0;
  std::int64_t records_at_open_ = 0;
  PoolOffset image_at_open_;  // its first part, if the open built the index from one
  std::size_t image_parts_ = 0;
  // Written by the open, or under count_mu_ before bytes_counted_ says so.
  mutable std::int64_t record_bytes_at_open_ = 0;
  mutable std::atomic<Counted> bytes_counted_{Counted::exactly};
  mutable std::mutex count_mu_;

  const LeafMaker maker_;
  LookupCache lookups_;
  mutable Garbage garbage_;
  Index index_;
};

}  // namespace TENUTO_NS::store
