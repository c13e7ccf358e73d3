#include "store/kv/collections.h"

#include <algorithm>
#include <utility>

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "pm/parallel.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

namespace {

std::string in_words(const std::string& path, std::string_view name) {
  return path + ", collection " + std::string(name);
}

}  // namespace

Status Collections::check_name(std::string_view name, Report* report) {
  if (!name.empty() && name.size() <= kCollectionNameMax) return Status::ok;
  return fail(Status::invalid_argument, report, "a collection's name has 1 to 255 bytes", {}, {},
              std::to_string(name.size()));
}

std::string Collections::where_of(std::string_view name) const {
  return in_words(ground_.file.path(), name);
}

Collections::~Collections() {
  reclaimer_.stop();
  const auto close = [](CollectionState& state) {
    if (state.tree != nullptr) state.life.closed();
    state.tree.reset();
  };
  if (main_ != nullptr) close(*main_);
  for (const auto& [name, state] : open_) close(*state);
  for (const State& state : unnamed_) close(*state);
  while (dropped_ != nullptr) {
    dropped_->tree.reset();
    dropped_ = std::exchange(dropped_->next_dropped, nullptr);
  }
}

// --- making and opening the store ----------------------------------------------------------------

Status Collections::tables_there(Report* report) const {
  if (ground_.shadows.there()) return Status::ok;
  return fail(Status::full, report, "the system refuses memory for the tables of the store",
              ground_.file.path());
}

Status Collections::create(KeyOrder order, Report* report) {
  TENUTO_TRY(tables_there(report));
  Result<std::unique_ptr<Tree>> tree = make_tree(ground_, kDefaultTree, order);
  if (!tree) {
    return ground_.file.failed(tree.error(), report, "the store cannot be made",
                               ground_.file.path());
  }
  name_store(ground_.file, order, (*tree)->first_leaf());
  main_ = state_of({{}, kDefaultTree, {}, {order}}, std::move(*tree));
  return Status::ok;
}

Status Collections::run(const std::function<Status(bool)>& work, Report* report) const {
  bool ended = false;
  const Status s = pm::in_arena(threads_, [&](bool parallel) {
    const Status of_work = work(parallel);
    ended = true;
    return of_work;
  });
  return ended ? s : fail(s, report, pm::kNoThreadHere, ground_.file.path());
}

Status Collections::open(bool clean, Report* report) {
  TENUTO_TRY(tables_there(report));
  HeadNames names;
  TENUTO_TRY(read_head(ground_.file, clean, names, report));
  return run(
      [&](bool parallel) -> Status {
        if (names.catalog) {
          auto catalog = Catalog::open(ground_, names, clean, parallel, report);
          if (!catalog) return catalog.error();
          catalog_ = std::move(*catalog);
          has_catalog_.store(true, std::memory_order_relaxed);
        }
        auto tree = rebuild_tree(ground_, kDefaultTree, names.first_leaf, names.order, clean,
                                 parallel, report);
        if (!tree) return tree.error();
        main_ = state_of({{}, kDefaultTree, {}, {names.order}}, std::move(*tree));
        if (clean || catalog_ == nullptr || TENUTO_PLANT("store_collections_not_marked")) {
          return Status::ok;
        }
        return open_all(parallel, report);
      },
      report);
}

Result<std::unique_ptr<Tree>> Collections::rebuild(const CatalogEntry& entry, bool clean,
                                                   bool parallel, Report* report) {
  Report local;
  auto tree = rebuild_tree(ground_, entry.id, entry.first_leaf, entry.spec.tree_order(), clean,
                           parallel, &local);
  if (!tree && report != nullptr) {
    local.where = in_words(local.where, entry.name);
    *report = std::move(local);
  }
  if (tree) (*tree)->set_verify_reads(verify_reads_);
  return tree;
}

// Small collections are rebuilt side by side, a large one by many threads.
Status Collections::open_all(bool parallel, Report* report) {
  std::vector<CatalogEntry> entries;
  TENUTO_TRY(catalog_->list(entries, report));
  std::vector<std::unique_ptr<Tree>> trees(entries.size());
  std::vector<Status> statuses(entries.size(), Status::ok);
  std::vector<Report> reports(entries.size());
  const auto each = [&](const tbb::blocked_range<std::size_t>& r) {
    for (std::size_t i = r.begin(); i != r.end(); ++i) {
      auto tree = rebuild(entries[i], false, parallel, &reports[i]);
      if (tree) trees[i] = std::move(*tree);
      if (!tree) statuses[i] = tree.error();
    }
  };
  const tbb::blocked_range<std::size_t> all(0, entries.size(), 1);
  if (parallel) {
    tbb::parallel_for(all, each);
  } else {
    each(all);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (statuses[i] != Status::ok) {
      if (report != nullptr) *report = reports[i];
      return statuses[i];
    }
    open_.emplace(entries[i].name, state_of(entries[i], std::move(trees[i])));
  }
  return Status::ok;
}

void Collections::keep_time() {
  if (clock_ == nullptr || ground_.file.writable() != Status::ok) return;
  const Times t = clock_->times();
  if (t.floor <= kept_.floor && t.seen == kept_.seen) return;
  store_times(ground_.file, t);
  kept_ = t;
}

void Collections::set_verify_reads(bool on) {
  const std::lock_guard lock(mu_);
  verify_reads_ = on;
  main_->tree->set_verify_reads(on);
  for (const auto& [name, state] : open_) state->tree->set_verify_reads(on);
}

void Collections::set_encodings(Encodings encodings) {
  const std::lock_guard lock(mu_);
  encodings_ = std::move(encodings);
  for (const auto& [name, state] : open_)
    state->encoding = encodings_.make(state->encoding.spec(), clock_);
}

// --- finding and making collections --------------------------------------------------------------

// An existing collection, opened if need be. not_found: the report is untouched. REQUIRES: mu_.
Result<Collections::State> Collections::get_locked(std::string_view name, Report* report) {
  if (const auto at = open_.find(name); at != open_.end()) return at->second;
  TENUTO_TRY(main_->life.alive());  // what is opened now would miss a shut() that has been
  if (catalog_ == nullptr) return Status::not_found;
  CatalogEntry entry;
  TENUTO_TRY(catalog_->find(name, entry, report));
  std::unique_ptr<Tree> tree;
  TENUTO_TRY(run(
      [&](bool parallel) -> Status {
        auto built = rebuild(entry, true, parallel, report);
        if (built) tree = std::move(*built);
        return built ? Status::ok : built.error();
      },
      report));
  State state = state_of(entry, std::move(tree));
  open_.emplace(name, state);
  return state;
}

Collections::State Collections::state_of(const CatalogEntry& entry, std::unique_ptr<Tree> tree) {
  return std::make_shared<CollectionState>(this, &ground_.versions, entry.name,
                                           encodings_.make(entry.spec, clock_), std::move(tree));
}

Result<Collections::State> Collections::get(std::string_view name, const CollectionOptions& options,
                                            Report* report) {
  TENUTO_TRY(check_name(name, report));
  const std::string where = where_of(name);
  const CollectionSpec asked{options.order, options.duplicates, options.expires, options.codec};
  const std::lock_guard lock(mu_);
  Result<State> there = get_locked(name, report);
  if (there) {
    if (options.error_if_exists) {
      return fail(Status::exists, report, "there is such a collection already", where);
    }
    const CollectionSpec& spec = (*there)->encoding.spec();
    if (options.check_order && spec != asked) {
      return fail(Status::invalid_argument, report,
                  spec.order != asked.order ? "the collection has another order of keys"
                                            : "the collection has other records: its codec, "
                                              "duplicates or expires are not those asked for",
                  where);
    }
    TENUTO_TRY(encodings_.usable(spec, where, report));
    return there;
  }
  if (there.error() != Status::not_found) return there.error();
  if (!options.create_if_missing) {
    return fail(Status::not_found, report, "there is no such collection", where);
  }
  TENUTO_TRY(check_new(asked, where, report));
  TENUTO_TRY(need_catalog(where, report));
  free_dropped();
  return make(name, asked, where, report);
}

Status Collections::check_new(const CollectionSpec& spec, const std::string& where,
                              Report* report) const {
  if (spec.order < KeyOrder::bytes || spec.order > KeyOrder::registered) {
    return fail(Status::invalid_argument, report, "there is no such order of keys", where);
  }
  TENUTO_TRY(encodings_.usable(spec, where, report));
  return ground_.file.writable(report);
}

Status Collections::need_catalog(const std::string& where, Report* report) {
  if (catalog_ != nullptr) return Status::ok;
  auto catalog = Catalog::create(ground_);
  if (!catalog)
    return ground_.file.failed(catalog.error(), report, "the catalog cannot be made", where);
  catalog_ = std::move(*catalog);
  has_catalog_.store(true, std::memory_order_relaxed);
  return Status::ok;
}

Status Collections::list(std::vector<CatalogEntry>& out, Report* report) {
  const std::lock_guard lock(mu_);
  out.clear();
  return catalog_ == nullptr ? Status::ok : catalog_->list(out, report);
}

// --- dropping and renaming -----------------------------------------------------------------------

Status Collections::drop(std::string_view name, Report* report) {
  TENUTO_TRY(check_name(name, report));
  const std::lock_guard lock(mu_);
  TENUTO_TRY(ground_.file.writable(report));
  const Result<State> state = get_locked(name, report);
  if (!state) {
    return state.error() != Status::not_found
               ? state.error()
               : fail(Status::not_found, report, "there is no such collection", where_of(name));
  }
  if ((*state)->held.load(std::memory_order_relaxed) != 0) {
    return fail(Status::busy, report, "a backup reads the collection", where_of(name));
  }
  const Dropping dropping((*state)->life);
  const Status s = catalog_->remove(name);
  if (s != Status::ok) {
    return ground_.file.failed(s, report, "the collection cannot be dropped", where_of(name));
  }
  open_.erase(open_.find(name));
  retire(*state);
  return Status::ok;
}

Status Collections::rename(std::string_view from, std::string_view to, const RenameOptions& options,
                           Report* report) {
  TENUTO_TRY(check_name(from, report));
  TENUTO_TRY(check_name(to, report));
  const std::lock_guard lock(mu_);
  TENUTO_TRY(ground_.file.writable(report));
  const std::string where = where_of(from);
  CatalogEntry entry;
  Status s = catalog_ == nullptr ? Status::not_found : catalog_->find(from, entry, report);
  if (s == Status::not_found) return fail(s, report, "there is no such collection", where);
  TENUTO_TRY(s);
  if (from == to) return Status::ok;
  Result<State> replaced = get_locked(to, report);
  if (!replaced && replaced.error() != Status::not_found) return replaced.error();
  if (replaced && !options.replace) {
    return fail(Status::exists, report, "there is a collection with the new name", where, {},
                std::string(to));
  }
  if (replaced && (*replaced)->held.load(std::memory_order_relaxed) != 0) {
    return fail(Status::busy, report, "a backup reads the collection that would be replaced",
                where_of(to));
  }
  const bool too_early = replaced && TENUTO_PLANT("store_dropped_before_durable");
  if (too_early) (*replaced)->ending().end_now();
  std::optional<Dropping> dropping;
  if (replaced) dropping.emplace((*replaced)->life);
  std::string name(to);  // made here: nothing may allocate after the catalog's change
  std::string key(to);
  s = catalog_->rename(entry, to);
  if (s != Status::ok) {
    return ground_.file.failed(s, report, "the collection cannot be renamed", where);
  }
  if (replaced) {
    open_.erase(open_.find(to));
    if (!too_early) retire(*replaced);
  }
  if (const auto at = open_.find(from); at != open_.end()) {
    auto node = open_.extract(at);
    {
      const std::lock_guard name_lock(node.mapped()->name_mu);
      node.mapped()->name = std::move(name);
    }
    node.key() = std::move(key);
    open_.insert(std::move(node));
  }
  return Status::ok;
}

Status Collections::hold_all(std::vector<Held>& out, std::shared_ptr<SnapshotCore>& snapshot,
                             Report* report) {
  const std::lock_guard lock(mu_);
  out.clear();
  out.emplace_back(main_, "");
  std::vector<CatalogEntry> entries;
  if (catalog_ != nullptr) TENUTO_TRY(catalog_->list(entries, report));
  for (const CatalogEntry& entry : entries) {
    const Result<State> state = get_locked(entry.name, report);
    if (!state) return state.error();
    out.emplace_back(*state, entry.name);
  }
  std::vector<Tree::Count> before;
  for (const Held& h : out) before.push_back(h.state->tree->count());
  auto taken = ground_.versions.take();
  if (!taken) return taken.error();
  snapshot = std::move(*taken);
  // A write before the snapshot is counted by now, or its thread is still pinned.
  if (pinned_calls_are_over()) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const Tree::Count now = out[i].state->tree->count();
      if (now.changes == before[i].changes) out[i].records = now.records;
    }
  }
  return Status::ok;
}

// --- validation ----------------------------------------------------------------------------------

PoolStore::Standstill Collections::stand_still() {
  auto reclaimer = reclaimer_.pause();
  std::unique_lock compaction(still_mu_);
  return {std::move(reclaimer), std::move(compaction), std::unique_lock(mu_)};
}

// REQUIRES: stand_still().
Status Collections::validate(Report* report) {
  TENUTO_TRY(ground_.heap.was_read(report));  // before its size is taken: reading it may need room
  Reached reached(ground_.file.bytes());
  TENUTO_TRY(store::validate(*main_->tree, reached, report));
  if (catalog_ != nullptr) {
    TENUTO_TRY(store::validate(catalog_->tree(), reached, report));
    std::vector<CatalogEntry> entries;
    TENUTO_TRY(catalog_->list(entries, report));
    for (const CatalogEntry& entry : entries) {
      const Result<State> state = get_locked(entry.name, report);
      if (!state) return state.error();
      if ((*state)->id != entry.id || (*state)->tree->first_leaf() != entry.first_leaf) {
        return fail(Status::corrupt, report, "an open collection is not what the catalog names",
                    where_of(entry.name));
      }
      TENUTO_TRY(store::validate(*(*state)->tree, reached, report));
    }
    if (entries.size() != open_.size()) {
      return fail(Status::corrupt, report, "a collection is open that the catalog does not name",
                  ground_.file.path());
    }
  }
  for (const State& state : unnamed_) note_dropped(*state->tree, reached);
  each_dropped([&](const CollectionState& state) { state.end->note(reached); });
  return check_heap(ground_, reached, report);
}

}  // namespace TENUTO_NS::store
