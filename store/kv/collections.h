// All collections of a store: which are open, and how they are made, found, dropped, renamed and
// recovered.
//
// After a crash every collection is opened, because only its tree knows which blocks it uses. After
// a clean close the default collection is opened; each other one is opened at its first use.
//
// A drop has three steps. The catalog's erase becomes durable; the handles report the drop; the end
// of the tree begins (tree_end.h). A drop waits for no reader. Usually it frees the tree's blocks
// at once. Otherwise a later call frees them: the next one that changes the catalog, finds the pool
// full, compacts or closes.
//
// Lock order: the reclaimer's, the compaction's two, mu_, those of trees. Calls on records take mu_
// only when the pool is full (make_room).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/kv/catalog.h"
#include "store/kv/encoding.h"
#include "store/kv/reclaim.h"
#include "store/pool/pool_store.h"
#include "store/tree/compact.h"
#include "store/tree/life.h"
#include "store/tree/rebuild.h"
#include "store/tree/tree_end.h"

namespace TENUTO_NS {

namespace store {
class Collections;
}  // namespace store

// What all handles of a collection share.
struct CollectionState {
  CollectionState(store::Collections* c, const store::VersionStore* h, std::string n,
                  store::Encoding f, std::unique_ptr<store::Tree> t)
      : collections(c),
        versions(h),
        encoding(std::move(f)),
        tree(std::move(t)),
        id(tree->id()),
        name(std::move(n)) {
    tree->set_life(life);
  }

  // ok | not_found | closed | forked.
  Status alive() const {
    if (!pm::is_this_process(process)) [[unlikely]]
      return Status::forked;
    return life.alive();
  }
  // Whether the collection belongs to the store with this version store. Compares pointers only, so
  // it also works after the store was closed.
  bool is_of(const store::VersionStore& h) const { return &h == versions; }

  // The end of its tree, which begins with the first call. REQUIRES: Collections::mu_.
  store::Tree::End& ending() {
    if (!end) end.emplace(*tree);
    return *end;
  }

  // Constant while the collection is open. `versions` is only compared.
  store::Collections* const collections;
  const store::VersionStore* const versions;
  store::Encoding encoding;
  std::unique_ptr<store::Tree> tree;
  const store::TreeId id;
  const std::uint64_t process = pm::this_process();
  std::atomic<std::uint32_t> held{0};  // by backups; above 0 a drop is busy
  store::CollectionLife life;          // atomic
  // Guarded by Collections::mu_. An intrusive list: the drop is durable by then and must not
  // allocate.
  std::shared_ptr<CollectionState> next_dropped;
  std::optional<store::Tree::End> end;
  // Guarded by name_mu.
  std::mutex name_mu;
  std::string name;
};

// For a ReadGuard or PoolCall (epoch.h). Null: there is no pool.
inline const void* pool_of(const std::shared_ptr<CollectionState>& state) {
  return state == nullptr ? nullptr : state->collections;
}

// A call on a collection. The tree stays while this object lives. Cost: nothing for the default
// collection, which is never dropped; for others the epoch that every call pins anyway.
class CollectionUse {
 public:
  // maker: the caller is the transaction that makes the collection.
  explicit CollectionUse(const CollectionState* state, bool maker = false) : state_(state) {
    if (state_ == nullptr) return;
    if (state_->id != store::kDefaultTree) guard_.emplace();
    status_ = maker ? state_->life.alive_to_maker() : state_->alive();
  }
  Status status() const { return status_; }
  store::Tree* operator->() const { return state_->tree.get(); }  // REQUIRES: status() is ok
  store::Tree* tree() const { return state_->tree.get(); }

 private:
  const CollectionState* const state_;
  std::optional<store::EpochGuard> guard_;
  Status status_ = Status::closed;
};

namespace store {

class Collections {
 public:
  using State = std::shared_ptr<CollectionState>;

  Collections(pm::PoolFile& file, heap::Heap& heap, tx::Engine& engine, VersionStore& versions,
              unsigned threads)
      : ground_{file, heap, engine, versions, ShadowLeaves(file), {}}, threads_(threads) {}
  ~Collections();  // closes the handles that are left

  // Makes the default collection. REQUIRES: the pool has no store.
  Status create(KeyOrder order, Report* report);
  // Opens the store of a pool that has one. Which collections it opens: see above.
  Status open(bool clean, Report* report);
  // See PoolStore.
  bool shut();
  void reopen();
  // Before a close changes anything: memory that its frees need. If the heap is unread after
  // it, the close frees nothing. Throws bad_alloc.
  void prepare_close();
  // A clean close: frees the blocks that waited and writes the counts. What it flushed is fenced.
  // REQUIRES: no other call is under way.
  Status close();

  const State& main() const { return main_; }
  void set_verify_reads(bool on);
  // Of all collections together.
  void set_lookup_cache_bytes(std::uint64_t bytes) { ground_.lookups.set_limit(bytes); }
  // Both before the first use of a named collection, and the clock first.
  void set_clock(std::shared_ptr<ExpiryClock> clock) { clock_ = std::move(clock); }
  void set_encodings(Encodings encodings);
  ExpiryClock& clock() const { return *clock_; }
  // Makes the confirmed time of the clock durable, if any call has asked for the time. REQUIRES:
  // the reclaimer's lock, or a close.
  void keep_time();

  // See Store for these.
  Result<State> get(std::string_view name, const CollectionOptions& options, Report* report);
  Status list(std::vector<CatalogEntry>& out, Report* report);
  Status drop(std::string_view name, Report* report);
  Status rename(std::string_view from, std::string_view to, const RenameOptions& options,
                Report* report);
  Status validate(Report* report);
  [[nodiscard]] PoolStore::Standstill stand_still();

  // For transactions. Makes an empty collection without a name, and the catalog if there is none.
  // exists: another collection has the name, unless `dropped` holds it; or `created` has the name.
  Result<State> make_unnamed(std::string_view name, const CollectionOptions& options,
                             std::span<const State> created, std::span<const State> dropped,
                             Report* report);
  // Drops such a collection again. REQUIRES: the store is not closed.
  void forget_unnamed(const State& state);
  // Tree::write, with changes of the catalog in the same batch: each of `created` gets its name,
  // each of `dropped` is dropped. exists | not_found | busy: nothing was done.
  Status write(std::vector<BatchOp> ops, const ReadSet* reads, std::span<const State> created,
               std::span<const State> dropped);

  // All collections, the default one first, and a snapshot that sees them under their present
  // names. A collection cannot be dropped while its Held lives.
  struct Held {
    Held(State of, std::string_view called) : state(std::move(of)), name(called) {
      state->held.fetch_add(1, std::memory_order_relaxed);
    }
    ~Held() {
      if (state != nullptr) state->held.fetch_sub(1, std::memory_order_relaxed);
    }
    Held(Held&&) = default;
    Held& operator=(Held&&) = delete;

    State state;
    std::string name;
    // The tree's count at the snapshot's timestamp. None: a write may have been under way then.
    std::optional<std::uint64_t> records = {};
  };
  Status hold_all(std::vector<Held>& out, std::shared_ptr<SnapshotCore>& snapshot, Report* report);

  // Opens all collections whose records may expire, and returns them in the order of their ids.
  Status expiring(std::vector<State>& out);
  // Its thread starts with the first collection whose records may expire. Stop it before close().
  Reclaimer& reclaimer() { return reclaimer_; }
  // Starts it if a collection's records may expire. Call after Reclaimer::set_pace.
  Status start_reclaiming(Report* report);

  // See Store::compact; compact_all.cc.
  Status compact(const CompactOptions& options, CompactStats& out, Report* report);

  // Whether no named collection was ever made in this pool.
  bool alone() const { return !has_catalog_.load(std::memory_order_relaxed); }
  // Frees all garbage that no reader holds back. REQUIRES: the calling thread is not pinned.
  void make_room();
  // Gives the free blocks in the calling thread's cache to all threads.
  void give_cached_blocks() { ground_.heap.empty_cache(); }
  // The garbage of all open collections.
  Garbage::Waiting waiting();
  Status acknowledge(Durability d) { return ground_.file.acknowledge(d); }
  pm::PoolFile& file() const { return ground_.file; }
  VersionStore& versions() const { return ground_.versions; }
  unsigned threads() const { return threads_; }  // as PoolOptions::recovery_threads

 private:
  static Status check_name(std::string_view name, Report* report);
  std::string where_of(std::string_view name) const;
  Status not_made(Status s, const std::string& where, Report* report) const {
    return ground_.file.failed(s, report, "the collection cannot be made", where);
  }
  // Runs `work` with threads_ threads.
  Status run(const std::function<Status(bool parallel)>& work, Report* report) const;
  Status open_all(bool parallel, Report* report);
  Result<std::unique_ptr<Tree>> rebuild(const CatalogEntry& entry, bool clean, bool parallel,
                                        Report* report);
  Result<State> get_locked(std::string_view name, Report* report);
  Result<State> make(std::string_view name, const CollectionSpec& spec, const std::string& where,
                     Report* report);
  Status check_new(const CollectionSpec& spec, const std::string& where, Report* report) const;
  Status check_name_free(std::string_view name, std::span<const State> dropped,
                         Report* report) const;
  Status need_catalog(const std::string& where, Report* report);
  State state_of(const CatalogEntry& entry, std::unique_ptr<Tree> tree);
  void retire(const State& state);
  void free_dropped();
  template <class F>
  void each_tree(const F& f);  // REQUIRES: mu_
  template <class F>
  void each_dropped(const F& f) const {
    for (const State* at = &dropped_; *at != nullptr; at = &(*at)->next_dropped) f(**at);
  }
  // compact_all.cc
  using CompactStep = Status (*)(Tree& tree, std::optional<std::string>& from, CompactWork& work);
  Status open_those_named(std::vector<State>& out, Report* report);
  Status compact_each(const std::vector<State>& states, CompactStep step, CompactWork& work);
  std::vector<PoolOffset> first_leaves(const std::vector<State>& states);
  void wait_for_readers();

  Status tables_there(Report* report) const;

  Ground ground_;
  const unsigned threads_;
  bool verify_reads_ = true;
  Encodings encodings_;
  std::shared_ptr<ExpiryClock> clock_;  // constant after open
  Times kept_;                          // see keep_time
  State main_;
  std::atomic<bool> has_catalog_{false};

  std::mutex compact_mu_;  // held by a compaction; before still_mu_
  std::mutex still_mu_;    // held by a compaction or a validation; before mu_
  std::mutex mu_;
  // Guarded by mu_.
  std::unique_ptr<Catalog> catalog_;  // null: no named collection was ever made
  std::map<std::string, State, std::less<>> open_;
  // Not freed yet, the first one dropped first; linked by next_dropped. The end is where the next
  // one is linked.
  State dropped_;
  State* dropped_end_ = &dropped_;
  std::vector<State> unnamed_;

  Reclaimer reclaimer_{*this};
};

}  // namespace store
}  // namespace TENUTO_NS
