// The store's tree: persistent leaves, the index above them in DRAM, and the operations on keys.
// Called by store.cc (the public Store); made by store/open.cc, which recovers what stands below.
//
// Files: tree.cc get, put, erase · split.cc leaves that come and go · batch.cc atomic batches ·
// iterator.cc cursors · rebuild.cc creation and opening · check.cc validation.
//
// Thread safety: everything but create, rebuild, close and validate from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heap/heap.h"
#include "pm/pool_file.h"
#include "store/epoch.h"
#include "store/hash.h"
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
  bool read = false;      // the record's place and lengths are known
  bool verified = false;  // and its checksum was compared
};

// The answer to one key of many.
struct Looked {
  Status status = Status::not_found;
  Record record;
};

struct BatchOp {
  std::string_view key;
  std::string_view value;
  bool erase = false;
};

class Tree {
 public:
  // Makes the first leaf of a new store. Crash-safe: until the last fence the pool has no store.
  static Result<std::unique_ptr<Tree>> create(pm::PoolFile& file, heap::Heap& heap,
                                              tx::Engine& engine, KeyKind kind, Report* report);
  // Whether the pool's head names a store.
  static bool exists(const pm::PoolFile& file);
  // Builds the tree of an existing store. After a crash (clean == false) it finishes half-done
  // splits and marks every block of the store in the heap: call it after the recovery of tx and
  // before Heap::finish_recovery. A clean open reads no record. corrupt names the leaf.
  static Result<std::unique_ptr<Tree>> rebuild(pm::PoolFile& file, heap::Heap& heap,
                                               tx::Engine& engine, bool clean, unsigned threads,
                                               Report* report);
  // Gives all retired blocks back and writes the counts, so that the heap may be closed.
  // REQUIRES: no reader, no writer.
  Status close();
  ~Tree();

  // Before any other thread knows the tree.
  void set_verify_reads(bool on) { verify_reads_ = on; }

  // See Store for these. lookup: REQUIRES an epoch guard, and the record stays under it.
  Status lookup(std::string_view key, Record& out, bool for_value = true) const;
  // Many keys, whose cache misses overlap (multi_get.cc). REQUIRES: as lookup.
  void multi_lookup(std::span<const std::string_view> keys, std::span<Looked> out) const;
  Status get(std::string_view key, std::string& value) const;
  Status put(std::string_view key, std::string_view value);
  Status erase(std::string_view key);
  // Ops in the order given; a later one for the same key wins.
  Status write(std::vector<BatchOp> ops);
  // All of ascending keys into an empty tree, or nothing of them, with a fence or two for thousands
  // (bulk.cc). invalid_argument: they do not ascend, or begin with the empty key. exists: the tree
  // is not empty, or somebody wrote to it meanwhile.
  Status bulk_load(std::span<const KeyValue> sorted, unsigned threads);
  Status validate(Report* report) const;
  void stats(StoreStats& out) const;
  KeyKind kind() const { return kind_; }

  // io when what was seen so far may have been zeros in place of a bad page (pm/bus_error.h).
  Status bad_pages() const { return file_.bad_pages(); }

  // --- for the iterator
  // ---------------------------------------------------------------------------
  const Index& index() const { return index_; }
  // The leaf's entries at one moment, unsorted. conflict: the leaf changed, look again.
  // REQUIRES: an epoch guard.
  Status entries(const Place& place, std::vector<Entry>& out, bool for_values = false) const;
  // The leaf's entries by key, records read only where they had to be: see read(). Leaves the order
  // in the twin for the next one. REQUIRES: an epoch guard. conflict: as above.
  Status ordered(const Place& place, std::vector<Entry>& out) const;
  // Reads what an entry of ordered() names, and verifies it if it is to be handed out.
  Status read(Entry& entry, bool for_value) const;
  void prefetch(SlotWord word) const { prefetch_record(file_, word.record()); }
  // Asks for a leaf that may be walked over soon: its twin, or, when that has come, what its
  // records begin with. Whatever it finds is a hint.
  static void prefetch_twin(const VLeaf& twin);
  void prefetch_first_records(const VLeaf& twin) const;
  // Sorts by key.
  static void sort(std::vector<Entry>& entries);
  Result<std::string_view> low_of(const VLeaf& twin) const;
  Status damaged(PoolOffset at, const char* what) const;

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
  class Bulk;         // bulk.cc

  Tree(pm::PoolFile& file, heap::Heap& heap, tx::Engine& engine, KeyKind kind);

  Status check_key(std::string_view key) const;
  Status search(const Place& place, std::string_view key, KeyHash hash, Found& out) const;
  // What a search means to the caller.
  Status judge(const Found& found, bool for_value, Record& out) const;
  void lookup_group(std::span<const std::string_view> keys, std::span<Looked> out) const;
  Result<heap::Block> reserve(std::uint64_t bytes);
  Result<heap::Block> reserve_record(std::string_view key, std::string_view value);
  Status put_at(std::string_view key, std::string_view value, PoolOffset record);
  void free(const Retired& item);
  void count_record_bytes() const;
  void retire_block(PoolOffset block) {
    if (block) limbos_.retire(limbos_.mine(), {block.value, Retired::What::block});
  }

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
  KeyKind kind_;
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
