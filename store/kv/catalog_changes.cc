// Collections that transactions make and drop, as changes of the catalog in the commit's batch.
// Also: how any dropped collection is freed, and how all are closed.
#include <algorithm>
#include <deque>
#include <utility>

#include "pm/plant.h"
#include "store/kv/collections.h"
#include "store/tree/rebuild.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

Status Collections::check_name_free(std::string_view name, std::span<const State> dropped,
                                    Report* report) const {
  CatalogEntry taken;
  const Status s = catalog_->find(name, taken, report);
  if (s == Status::not_found) return Status::ok;
  TENUTO_TRY(s);
  const bool freed = std::any_of(dropped.begin(), dropped.end(),
                                 [&](const State& state) { return state->id == taken.id; });
  if (freed) return Status::ok;
  return fail(Status::exists, report, "there is such a collection already", where_of(name));
}

Result<Collections::State> Collections::make_unnamed(std::string_view name,
                                                     const CollectionOptions& options,
                                                     std::span<const State> created,
                                                     std::span<const State> dropped,
                                                     Report* report) {
  TENUTO_TRY(check_name(name, report));
  const bool twice = std::any_of(created.begin(), created.end(),
                                 [&](const State& state) { return state->name == name; });
  if (twice && !TENUTO_PLANT("store_name_created_twice")) {
    return fail(Status::exists, report, "the transaction has made a collection of this name",
                where_of(name));
  }
  const std::string where = where_of(name);
  const CollectionSpec spec{options.order, options.duplicates, options.expires, options.codec};
  const std::lock_guard lock(mu_);
  TENUTO_TRY(main_->life.alive());
  TENUTO_TRY(check_new(spec, where, report));
  TENUTO_TRY(need_catalog(where, report));
  TENUTO_TRY(check_name_free(name, dropped, report));
  free_dropped();
  auto tree = catalog_->make_unnamed(spec);
  if (!tree) return not_made(tree.error(), where, report);
  (*tree)->set_verify_reads(verify_reads_);
  UnlinkedBlock leaf(ground_.heap, (*tree)->first_leaf());
  State state = state_of({std::string(name), {}, {}, spec}, std::move(*tree));
  state->life.unborn();
  unnamed_.push_back(state);
  leaf.linked();
  return state;
}

// The collection is complete in memory before the catalog names it. If it gets no name it is undone
// on every way out, also after a failed allocation.
Result<Collections::State> Collections::make(std::string_view name, const CollectionSpec& spec,
                                             const std::string& where, Report* report) {
  auto tree = catalog_->make_unnamed(spec);
  if (!tree) return not_made(tree.error(), where, report);
  (*tree)->set_verify_reads(verify_reads_);
  UnlinkedBlock leaf(ground_.heap, (*tree)->first_leaf());
  const State state = state_of({std::string(name), {}, {}, spec}, std::move(*tree));
  struct NamedOrGone {
    Collections& all;
    const std::map<std::string, State, std::less<>>::iterator at;
    ~NamedOrGone() {
      if (!all.catalog_->lacks(at->first)) return;
      at->second->ending().end_now();
      all.open_.erase(at);
    }
  } const made{*this, open_.emplace(name, state).first};
  leaf.linked();
  const Status s = catalog_->add(name, spec, *state->tree);
  if (s != Status::ok) return not_made(s, where, report);
  if (spec.expires) reclaimer_.start();
  return state;
}

void Collections::forget_unnamed(const State& state) {
  const std::lock_guard lock(mu_);
  if (std::erase(unnamed_, state) != 0) retire(state);
}

// Allocates nothing. REQUIRES: nothing durable names the collection; mu_.
void Collections::retire(const State& state) {
  state->life.dropped(ground_.versions.now().clock());
  state->ending();
  *dropped_end_ = state;
  dropped_end_ = &state->next_dropped;
  free_dropped();
}

template <class F>
void Collections::each_tree(const F& f) {
  f(*main_->tree);
  if (catalog_ != nullptr) f(catalog_->tree());
  for (const auto& [name, state] : open_) f(*state->tree);
}

void Collections::make_room() {
  const std::lock_guard lock(mu_);
  free_dropped();
  each_tree([](Tree& tree) { tree.collect(); });
}

Garbage::Waiting Collections::waiting() {
  const std::lock_guard lock(mu_);
  Garbage::Waiting sum;
  each_tree([&](Tree& tree) { sum += tree.waiting(); });
  return sum;
}

// In this order: a call that finds its collection open is waited for (PoolCall).
bool Collections::shut() {
  if (is_in_call_of(this)) return false;
  {
    const std::lock_guard lock(mu_);
    ground_.versions.announce_shut();
    main_->life.shut();
    for (const auto& [name, state] : open_) state->life.shut();
  }
  return TENUTO_PLANT("store_close_waits_for_no_call") ||
         wait_for_calls_of(this, std::chrono::seconds(2));
}

void Collections::reopen() {
  const std::lock_guard lock(mu_);
  main_->life.reopen();
  for (const auto& [name, state] : open_) state->life.reopen();
  ground_.versions.reopen();
}

void Collections::prepare_close() {
  if (waiting().items != 0) ground_.heap.prepare_thread();
}

Status Collections::close() {
  const std::lock_guard lock(mu_);
  const auto expires = [](const auto& named) { return named.second->encoding.expires(); };
  if (std::any_of(open_.begin(), open_.end(), expires)) keep_time();
  for (const State& state : unnamed_) state->ending().end_now();
  each_dropped([](CollectionState& state) { state.ending().end_now(); });
  free_dropped();
  ground_.heap.grow_little();
  const auto each_open = [this](const auto& f) {
    f(*main_->tree);
    if (catalog_ != nullptr) f(catalog_->tree());
    for (const auto& [name, state] : open_) f(*state->tree);
  };
  std::size_t parts = 0;
  bool whole = true;
  each_open([&](Tree& t) {
    parts += image_parts(t);
    whole = whole && image_parts(t) != 0;
  });
  const bool as_found = whole && ground_.heap.keep_released(parts);
  each_open([&](Tree& t) {
    const bool stale = image_parts(t) != 0 && TENUTO_PLANT("store_image_named_again");
    close_tree(t, as_found || stale);
  });
  fence("store's counts", "the heap is closed");
  return Status::ok;
}

// In the order of the drops. Readers that hold back one hold back all later ones, so a drop need
// not ask each of them.
void Collections::free_dropped() {
  while (dropped_ != nullptr && dropped_->end->try_end()) {
    dropped_->tree.reset();
    dropped_ = std::exchange(dropped_->next_dropped, nullptr);
  }
  if (dropped_ == nullptr) dropped_end_ = &dropped_;
}

Status Collections::write(std::vector<BatchOp> ops, const ReadSet* reads,
                          std::span<const State> created, std::span<const State> dropped) {
  if (created.empty() && dropped.empty()) return Tree::write(ops, reads);
  const std::lock_guard lock(mu_);
  TENUTO_TRY(main_->life.alive());  // what this makes would miss a shut() that has been
  Tree* const catalog = &catalog_->tree();
  std::deque<std::string> rooms;
  std::deque<Dropping> dropping;
  // Filled before the batch: nothing may allocate after it.
  std::map<std::string, State, std::less<>> born;
  // By its present name: the collection may have been renamed.
  for (const State& state : dropped) {
    const auto at = std::find_if(open_.begin(), open_.end(),
                                 [&](const auto& named) { return named.second == state; });
    if (at == open_.end()) return Status::not_found;
    if (state->held.load(std::memory_order_relaxed) != 0) return Status::busy;
    dropping.emplace_back(state->life);
    ops.push_back({catalog, rooms.emplace_back(at->first), {}, true});
  }
  for (const State& state : created) {
    const CatalogEntry entry{state->name, state->id, state->tree->first_leaf(),
                             state->encoding.spec()};
    TENUTO_TRY(check_name_free(entry.name, dropped, nullptr));
    ops.push_back(
        {catalog, rooms.emplace_back(entry.name), rooms.emplace_back(encode_entry(entry)), false});
    born.emplace(state->name, state);
  }
  if (TENUTO_PLANT("store_catalog_changed_apart")) {
    const auto records = [&](const BatchOp& op) { return op.tree != catalog; };
    const auto names = std::stable_partition(ops.begin(), ops.end(), records);
    TENUTO_TRY(Tree::write({ops.begin(), names}, reads));
    ops.erase(ops.begin(), names);
  }
  TENUTO_TRY(Tree::write(ops, reads));
  for (const State& state : dropped) {
    std::erase_if(open_, [&](const auto& named) { return named.second == state; });
    retire(state);
  }
  for (const State& state : created) {
    std::erase(unnamed_, state);
    state->life.born();
  }
  open_.merge(born);
  const bool any_expires = std::any_of(
      created.begin(), created.end(), [](const State& state) { return state->encoding.expires(); });
  if (any_expires) reclaimer_.start();
  return Status::ok;
}

}  // namespace TENUTO_NS::store
