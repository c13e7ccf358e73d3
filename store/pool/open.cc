// How a pool is created, opened, recovered and closed. The layers are built in order: file, lanes,
// frames, heap, transactions, store. Recovery then has these steps. Each relies only on those
// before it.
//
//   frames        builds counters from bitfields; hands nothing out yet
//   heap          reads the bookkeeping log and slabs; finishes or undoes intents of mallocs, frees
//   transactions  are rolled back, or their frees are completed
//   store         after a crash: names every block that it reaches (derived blocks have no log)
//   objects       after a crash, if the pool has Consistency::gc: what the root object leads to
//   heap, frames  free what was not named; after a crash, when a call first needs the heap
//   superblock    gets the state `running`. Nothing new was handed out before, so a crash in any
//                 step is followed by the same recovery
#include <algorithm>
#include <chrono>

#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "store/pool/pool_impl.h"

namespace TENUTO_NS {

namespace {

// `build` builds the layers above the file.
template <class Build>
Result<std::unique_ptr<PoolImpl>> make(std::string_view path, const PoolOptions& options,
                                       const PoolStoreKind& kind, bool of_a_copy,
                                       const Build& build, Report* report) {
  auto made = pm::PoolFile::create(path, options, report, of_a_copy);
  if (!made) return made.error();
  auto impl = std::make_unique<PoolImpl>(kind);
  impl->file = std::move(*made);
  impl->recovery_threads = options.recovery_threads;
  impl->durability = options.durability;
  frame::Frames::format_zone(*impl->file, impl->file->zone(0), pm::kHeadBytes);
  TENUTO_TRY(build(*impl));
  TENUTO_TRY(impl->file->set_state(pm::PoolState::running, report));
  return impl;
}

const char* words_of(pm::Unknown why) {
  switch (why) {
    case pm::Unknown::nothing:
      break;
    case pm::Unknown::no_memory:
      return "memory had ended, and some of what was replaced could not be noted";
    case pm::Unknown::key_kept:
      return "the system refused to protect a page of metadata, or to end its protection";
    case pm::Unknown::damage:
      return "what named some blocks is damaged";
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<PoolImpl>> PoolImpl::create_copy(std::string_view path,
                                                        const PoolOptions& options,
                                                        const PoolStoreKind& kind, Report* report) {
  TENUTO_TRY(pm::PoolFile::take_key(path, options, report));
  const pm::MetadataOpen rights;
  const auto build = [&](PoolImpl& p) {
    TENUTO_TRY(p.attach(true, options, report));
    return p.recover(report);
  };
  return make(path, options, kind, true, build, report);
}

Status PoolImpl::finish_copy(Report* report) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(close());
  return file->link_into_place(report);
}

Result<std::unique_ptr<PoolImpl>> PoolImpl::create(std::string_view path,
                                                   const PoolOptions& options,
                                                   const PoolStoreKind& kind, Report* report,
                                                   const Fill& fill) {
  TENUTO_TRY(pm::PoolFile::take_key(path, options, report));
  const pm::MetadataOpen rights;
  const auto build = [&](PoolImpl& p) {
    TENUTO_TRY(p.attach(true, options, report));
    return p.recover(report);
  };
  auto made = make(path, options, kind, false, build, report);
  if (!made) return made.error();
  std::unique_ptr<PoolImpl> impl = std::move(*made);
  if (fill && !TENUTO_PLANT("store_pool_named_before_its_store")) TENUTO_TRY(fill(*impl));
  TENUTO_TRY(impl->file->link_into_place(report));
  if (!impl->file->wants_journal()) {
    impl->heap->start_large_pages();
    impl->file->used();
    impl->engine->watch(options.on_mistake);
    return impl;
  }
  TENUTO_TRY(impl->close());
  impl.reset();
  return open(path, options, kind, report);
}

static Status no_leaf_is_lost(const pm::PoolFile& file, Report* report) {
  if ((file.superblock().variant & pm::kVariantLeafLost) == 0) return Status::ok;
  return fail(
      Status::corrupt, report,
      "an earlier open found a leaf that is not the one of its last close, as if the medium "
      "had lost a write, and said where. A recovery cannot tell which records of it are "
      "old: rescue the pool (tenuto check --repair)",
      file.path());
}

Result<std::unique_ptr<PoolImpl>> PoolImpl::open(std::string_view path, const PoolOptions& options,
                                                 const PoolStoreKind& kind, Report* report) {
  TENUTO_TRY(pm::PoolFile::take_key(path, options, report));
  const pm::MetadataOpen rights;
  const auto begin = std::chrono::steady_clock::now();
  auto opened = pm::PoolFile::open(path, options, report);
  if (!opened) return opened.error();
  TENUTO_TRY(no_leaf_is_lost(**opened, report));
  TENUTO_TRY(kind.check(**opened, report));
  TENUTO_TRY((*opened)->begin_life(report));
  auto impl = std::make_unique<PoolImpl>(kind);
  impl->file = std::move(*opened);
  impl->recovery_threads = options.recovery_threads;
  impl->durability = options.durability;
  impl->in_doubt = options.in_doubt;
  impl->was_clean = impl->file->was_clean();
  impl->root_filter = options.root_filter;
  impl->filters = options.filters;
  TENUTO_TRY(impl->attach(impl->was_clean, options, report));
  const bool becomes_gc =
      impl->file->consistency_changes() && impl->file->consistency() == Consistency::gc;
  if (becomes_gc && impl->heap->stats().morphed_slabs != 0) {
    return fail(
        Status::invalid_argument, report,
        "the pool has slabs that got a second size of blocks, and marks could not tell "
        "these apart: its consistency cannot become gc until these slabs are empty; open it "
        "as it is",
        impl->file->path());
  }
  TENUTO_TRY(impl->recover(report));
  TENUTO_TRY(impl->file->bad_pages(report));
  impl->file->stay_damaged();
  if (!impl->file->read_only() && !TENUTO_PLANT("store_pool_not_marked_running")) {
    TENUTO_TRY(impl->file->set_state(pm::PoolState::running, report));
  }
  impl->heap->start_large_pages();
  impl->file->used();
  if (!impl->file->read_only()) impl->engine->watch(options.on_mistake);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  impl->recovery_ms = took.count();
  return impl;
}

Status PoolImpl::attach(bool clean, const PoolOptions& options, Report* report) {
  auto l = pm::Lanes::open(*file, report);
  if (!l) return l.error();
  lanes = std::move(*l);
  auto f = frame::Frames::open(*file, clean, report);
  if (!f) return f.error();
  frames = std::move(*f);
  auto h = heap::Heap::open(*file, *frames, *lanes, clean, recovery_threads, options.heap, report);
  if (!h) return h.error();
  heap = std::move(*h);
  engine = std::make_unique<tx::Engine>(*file, *lanes, *heap);
  return Status::ok;
}

Status PoolImpl::recover(Report* report) {
  if (!was_clean) TENUTO_TRY(heap->replay_intents(report));
  TENUTO_TRY(engine->recover(report, &rolled_back, in_doubt));
  waited_for = engine->pools_waited_for();
  // After a crash only the store knows which blocks are its own. After a clean close the bits of
  // these blocks are durable, and the trees are not needed until the store is opened.
  if (!was_clean) TENUTO_TRY(open_store(report));
  if (!was_clean && file->consistency() == Consistency::gc) TENUTO_TRY(collect(report));
  return heap->finish_recovery(report);
}

// After a crash only the root object knows which objects there are.
Status PoolImpl::collect(Report* report) {
  const auto begin = std::chrono::steady_clock::now();
  const auto& word = reinterpret_cast<const PtrWord&>(file->head().roots[pm::kRootUser]);
  const void* const root = PtrWord::decode(&word, word.raw);
  if (root != nullptr && !file->contains(root)) {
    return fail(Status::corrupt, report, "the root word leads out of the pool",
                file->where({pm::kHeadPageOffset}, "roots"));
  }
  heap::Heap::Reached reached;
  const PoolOffset o = root == nullptr ? PoolOffset{} : file->offset_of(root);
  const GarbageOptions how{
      .root_filter = root_filter, .filters = filters, .threads = recovery_threads};
  TENUTO_TRY(heap->collect(o, how, reached, report));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  collect_ms = took.count();
  return Status::ok;
}

Status PoolImpl::open_store(Report* report) {
  if (store != nullptr) return Status::ok;
  auto opened = store_kind.open(*this, report);
  if (!opened) return opened.error();
  store = std::move(*opened);
  return Status::ok;
}

// The store's calls end first, because a batch that is under way is a transaction, too.
Status PoolImpl::close(bool if_no_transaction) {
  const pm::MetadataOpen rights;
  // Until the store is closed the pool may stay open: a transaction is open, or memory ends.
  struct Shut {
    PoolStore* store;
    ~Shut() {
      if (store != nullptr) store->reopen();
    }
  } shut{store.get()};
  in_call = store != nullptr && !store->shut();
  if (in_call) {
    file->log("not closed: a call of the store does not return");
    static_cast<void>(file->acknowledge(Durability::sync));
    return Status::busy;
  }
  if (if_no_transaction && engine->any_active()) return Status::busy;
  TENUTO_TRY(file->bad_pages());
  if (file->read_only()) return close_damaged();
  if (!heap->unread()) heap->prepare_thread();  // so that no free below needs memory
  TENUTO_TRY(engine->drain());
  if (store != nullptr) {
    const Status s = store->close();
    shut.store = nullptr;
    TENUTO_TRY(s);
  }
  if (TENUTO_PLANT("store_clean_mark_before_close")) {
    TENUTO_TRY(file->set_state(pm::PoolState::clean));
  }
  if (const Status s = heap->close(); s != Status::ok) {
    static_cast<void>(file->acknowledge(Durability::sync));  // what was restored
    return s;
  }
  frames->close();
  if (const pm::Unknown why = file->left_to_recovery(); why != pm::Unknown::nothing) {
    file->log(std::string(words_of(why)) + "; the next open recovers");
    return file->acknowledge(Durability::sync);
  }
  TENUTO_TRY(file->set_state(pm::PoolState::clean));
  tx::OpenEngines::closed(*engine);
  return Status::ok;
}

// What the next open will read is restored where DRAM has it (heap/guard.h). The bits of an open
// transaction's frees are its recovery's.
Status PoolImpl::close_damaged() {
  const Status why = file->poisoned();
  if (why != Status::corrupt || file->opened_to_read()) return why;
  static_cast<void>(heap->guard(!engine->any_active()));
  static_cast<void>(file->acknowledge(Durability::sync));  // also what was restored before
  return why;
}

Status PoolImpl::validate(Report* report) {
  const pm::MetadataOpen rights;
  Status s = engine->validate(report);
  if (s == Status::ok) s = heap->validate(report);
  if (file->bad_pages() != Status::ok) return file->bad_pages(report);
  // Damage may have been met that no longer shows.
  return s == Status::ok ? file->health(report) : s;
}

}  // namespace TENUTO_NS
