// Store::compact: all collections of a pool, and the heap below them, in three passes. The first
// merges leaves, which frees blocks. In the second the heap chooses slabs to empty, and every tree
// moves its blocks out of them. The third gives what became free back to the file system.
//
// A collection may be dropped meanwhile. Each step holds its tree as any call does (CollectionUse).
// Steps are short, so they delay the drop little. Collections made meanwhile have nothing to move.
#include <chrono>
#include <thread>
#include <utility>

#include "pm/not_cancelled.h"
#include "store/kv/store_impl.h"

namespace TENUTO_NS {

namespace store {

namespace {
// The wait for readers that were inside a call when the last block was moved.
constexpr unsigned kWaitsMax = 50;
constexpr std::chrono::microseconds kWait{200};
}  // namespace

// The default collection and all named ones. After a clean open some are not open yet.
Status Collections::open_those_named(std::vector<State>& out, Report* report) {
  const std::lock_guard lock(mu_);
  out.assign(1, main_);
  std::vector<CatalogEntry> entries;
  if (catalog_ != nullptr) TENUTO_TRY(catalog_->list(entries, report));
  for (const CatalogEntry& entry : entries) {
    const Result<State> state = get_locked(entry.name, report);
    if (!state) return state.error();
    out.push_back(*state);
  }
  return Status::ok;
}

Status Collections::compact_each(const std::vector<State>& states, CompactStep step,
                                 CompactWork& work) {
  for (const State& state : states) {
    for (std::optional<std::string> from(std::in_place); from && !work.over();) {
      const CollectionUse use(state.get());
      if (use.status() == Status::not_found) break;  // dropped
      TENUTO_TRY(use.status());
      TENUTO_TRY(step(*use.tree(), from, work));
    }
  }
  Tree* catalog = nullptr;
  {
    const std::lock_guard lock(mu_);
    if (catalog_ != nullptr) catalog = &catalog_->tree();  // is never dropped
  }
  for (std::optional<std::string> from(std::in_place);
       catalog != nullptr && from && !work.over();) {
    TENUTO_TRY(step(*catalog, from, work));
  }
  return Status::ok;
}

// They cannot be moved: their names are in the head page or the catalog, not in a leaf.
std::vector<PoolOffset> Collections::first_leaves(const std::vector<State>& states) {
  std::vector<PoolOffset> out;
  for (const State& state : states) {
    const CollectionUse use(state.get());
    if (use.status() == Status::ok) out.push_back(use->first_leaf());
  }
  const std::lock_guard lock(mu_);
  if (catalog_ != nullptr) out.push_back(catalog_->tree().first_leaf());
  return out;
}

void Collections::wait_for_readers() {
  make_room();
  for (unsigned i = 0; i < kWaitsMax && ground_.heap.slabs_leaving() != 0; ++i) {
    const pm::NotCancelled whole;
    std::this_thread::sleep_for(kWait);
    make_room();
  }
}

Status Collections::compact(const CompactOptions& options, CompactStats& out, Report* report) {
  const std::string& path = ground_.file.path();
  if (!(options.occupancy > 0 && options.occupancy <= 1)) {
    return fail(Status::invalid_argument, report, "slabs cannot be that full", path,
                "above 0, at most 1", std::to_string(options.occupancy));
  }
  if (options.in_key_order && options.moves_max != 0) {
    return fail(Status::invalid_argument, report, "in_key_order moves all, so moves_max is 0", path,
                "0", std::to_string(options.moves_max));
  }
  TENUTO_TRY(ground_.file.writable(report));
  if (ground_.engine.mine().active()) {
    return fail(Status::invalid_argument, report, "a transaction of this thread is open", path);
  }
  const std::unique_lock turn(compact_mu_, std::try_to_lock);
  if (!turn) return fail(Status::busy, report, "another compaction is under way", path);
  const std::lock_guard no_validation(still_mu_);
  CompactWork work{options.moves_max, options.in_key_order, {}, &options.stop};
  work.done.bytes_before = ground_.file.bytes_on_disk();
  std::vector<State> states;
  TENUTO_TRY(open_those_named(states, report));

  Status s = compact_each(states, merge_leaves, work);
  make_room();
  heap::Evacuation chosen;
  std::uint64_t left = 0;
  if (s == Status::ok && !work.over()) {
    const std::uint64_t moves = work.done.leaves_merged;
    chosen = ground_.heap.begin_evacuation(
        options.in_key_order ? heap::kEvacuateAll : options.occupancy,
        options.moves_max == 0 ? 0 : options.moves_max - moves, first_leaves(states));
    // Ends the evacuation on every way out.
    struct Evacuating {
      heap::Heap& heap;
      bool begun = true;
      std::uint64_t end() { return std::exchange(begun, false) ? heap.end_evacuation() : 0; }
      ~Evacuating() { end(); }
    } evacuating{ground_.heap};
    s = compact_each(states, move_blocks, work);
    wait_for_readers();
    left = evacuating.end();
    work.done.slabs_emptied = chosen.slabs - left;
  }
  ground_.engine.reclaim(ground_.engine.mine());
  ground_.heap.trim();
  work.done.bytes_after = ground_.file.bytes_on_disk();
  work.done.complete = s == Status::ok && chosen.all && left == 0 && !work.over();
  out = work.done;
  if (s == Status::full) s = Status::ok;  // the compaction is incomplete, but sound
  if (s == Status::corrupt) {
    return ground_.file.failed(s, report, "a record or leaf is damaged", path);
  }
  TENUTO_TRY(s);
  return ground_.file.bad_pages(report);
}

}  // namespace store

Result<CompactStats> Store::compact(const CompactOptions& options, Report* report) {
  store::Collections* all = impl_ == nullptr ? nullptr : impl_->collections();
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  CompactStats stats;
  TENUTO_TRY(all->compact(options, stats, report));
  TENUTO_TRY(all->acknowledge(impl_->pool.impl_->durability));
  return stats;
}

}  // namespace TENUTO_NS
