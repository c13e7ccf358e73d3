// The public Pool: each call goes to its layer.
#include "tenuto/pool.h"
#include "pm/metadata_key.h"

#include <algorithm>
#include <cstring>

#include "heap/place.h"
#include "journal/journal.h"
#include "pm/media.h"
#include "pm/no_memory.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "store/pool/pool_impl.h"
#include "store/pool/watched.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

Pool::Pool(std::unique_ptr<PoolImpl> impl) : impl_(std::move(impl)) {}
Pool::Pool(Pool&&) noexcept = default;
Pool& Pool::operator=(Pool&& o) noexcept {
  if (this != &o) {
    end();
    impl_ = std::move(o.impl_);
  }
  return *this;
}
Pool::~Pool() { end(); }

namespace {
// busy: see PoolImpl::close. Else no pool is left.
Status close_now(std::unique_ptr<PoolImpl>& impl, bool if_no_transaction) {
  if (impl == nullptr) return Status::closed;
  if (impl->file->forked()) {
    pm::abandon(impl.release());
    return Status::forked;
  }
  const Status s = impl->close(if_no_transaction);
  if (s == Status::busy) return s;
  impl.reset();
  return s;
}
}  // namespace

// A close that cannot report. If memory ends the pool is left to the next open's recovery. So it is
// while another thread is in a call, and then that keeps what it works on.
void Pool::end() noexcept {
  if (!pm::had_memory([this] { static_cast<void>(close_now(impl_, false)); })) impl_.reset();
  if (impl_ != nullptr && impl_->in_call) pm::abandon(impl_.release());
}

namespace {
Status usable(const PoolImpl* impl) { return impl == nullptr ? Status::closed : impl->usable(); }
}  // namespace

// A guard of an open transaction would end what is not there any more. So a pool that failed stays
// until then, too.
Status Pool::close() { return close_now(impl_, true); }

namespace {
[[gnu::always_inline]] inline Status ended(PoolImpl& impl) {
  TENUTO_TRY(impl.acknowledge(impl.durability));
  return impl.file->bad_pages();
}

// When the pool is full it frees what ended transactions still hold, and tries once more.
template <class Bytes, class Dest, class... Options>
[[gnu::noinline, gnu::cold]] Status malloc_again(PoolImpl* impl, const Bytes& bytes, Dest& dest,
                                                 const Options&... options) {
  impl->engine->reclaim(impl->engine->mine());
  return impl->heap->malloc_to(bytes, dest, options...);
}
// Inline: half of the instructions of a malloc above the heap's own were calls.
[[gnu::always_inline]] inline Status malloc_to_dest(PoolImpl* impl, const auto& bytes, auto& dest,
                                                    const auto&... options) {
  TENUTO_TRY(usable(impl));
  Status s = impl->heap->malloc_to(bytes, dest, options...);
  if (s == Status::full) [[unlikely]]
    s = malloc_again(impl, bytes, dest, options...);
  settle(*impl, dest, true);
  return s == Status::ok ? ended(*impl) : s;
}
[[gnu::always_inline]] inline Status free_from_dest(PoolImpl* impl, auto& dest, Report* report) {
  TENUTO_TRY(usable(impl));
  const bool watched = impl->engine->watch() != nullptr;
  const Status s = watched ? free_watched(*impl, dest) : impl->heap->free_from(dest);
  if (s != Status::ok) [[unlikely]]
    return impl->explain_free(s, dest, report);
  return ended(*impl);
}
template <class Publish>
Status run_publish(PoolImpl* impl, const Reserved& block, Report* report, const Publish& publish) {
  TENUTO_TRY(usable(impl));
  const bool of_tx = impl->engine->allocated(block.offset);
  const Status s = of_tx ? Status::invalid_argument
                         : publish(*impl->heap, heap::Block{block.offset, block.bytes});
  if (s != Status::ok) return impl->explain_reserved(s, block.offset, report);
  return ended(*impl);
}
}  // namespace

template <PointerWord W>
Status Pool::malloc_word(std::uint64_t bytes, W& dest) {
  return malloc_to_dest(impl_.get(), bytes, dest);
}

template <PointerWord W>
Status Pool::malloc_word(std::uint64_t bytes, W& dest, const AllocOptions& options) {
  Result<Reserved> block = reserve(bytes, options);
  if (!block) return block.error();
  const Status s =
      run_publish(impl_.get(), *block, nullptr, [&](heap::Heap& heap, const heap::Block& b) {
        if constexpr (std::is_same_v<W, VPtrWord>) {
          if (options.type != 0 && !options.zero) return heap.publish_typed(b, dest);
        }
        return heap.publish(b, dest);
      });
  settle(*impl_, dest);
  if (s != Status::ok) static_cast<void>(cancel(*block));
  return s;
}

template <PointerWord W>
Status Pool::malloc_words(const Sizes& bytes, const Words<W>& dests, const AllocOptions& options) {
  return malloc_to_dest(impl_.get(), bytes, dests, options);
}

template <PointerWord W>
Status Pool::free_word(W& dest, Report* report) {
  return free_from_dest(impl_.get(), dest, report);
}

template <PointerWord W>
Status Pool::free_words(const Words<W>& dests, Report* report) {
  return free_from_dest(impl_.get(), dests, report);
}

template <PointerWord W>
Status Pool::publish_word(const Reserved& block, W& dest, Report* report) {
  return run_publish(impl_.get(), block, report, [&](heap::Heap& heap, const heap::Block& b) {
    const Status s = heap.publish(b, dest);
    settle(*impl_, dest);
    return s;
  });
}

template TENUTO_API Status Pool::malloc_word(std::uint64_t, PtrWord&);
template TENUTO_API Status Pool::malloc_word(std::uint64_t, VPtrWord&);
template TENUTO_API Status Pool::malloc_word(std::uint64_t, PtrWord&, const AllocOptions&);
template TENUTO_API Status Pool::malloc_word(std::uint64_t, VPtrWord&, const AllocOptions&);
template TENUTO_API Status Pool::malloc_words(const Sizes&, const Words<PtrWord>&,
                                              const AllocOptions&);
template TENUTO_API Status Pool::malloc_words(const Sizes&, const Words<VPtrWord>&,
                                              const AllocOptions&);
template TENUTO_API Status Pool::free_word(PtrWord&, Report*);
template TENUTO_API Status Pool::free_word(VPtrWord&, Report*);
template TENUTO_API Status Pool::free_words(const Words<PtrWord>&, Report*);
template TENUTO_API Status Pool::free_words(const Words<VPtrWord>&, Report*);
template TENUTO_API Status Pool::publish_word(const Reserved&, PtrWord&, Report*);
template TENUTO_API Status Pool::publish_word(const Reserved&, VPtrWord&, Report*);

Status Pool::swap(VPtrWord& a, VPtrWord& b) {
  TENUTO_TRY(usable(impl_.get()));
  TENUTO_TRY(impl_->heap->swap(a, b));
  settle(*impl_, a);
  settle(*impl_, b);
  TENUTO_TRY(impl_->acknowledge(impl_->durability));
  return impl_->file->bad_pages();
}

Status Pool::realloc_to(std::uint64_t bytes, PtrWord& dest, const AllocOptions& options) {
  TENUTO_TRY(usable(impl_.get()));
  if (!contains(&dest)) return Status::invalid_argument;
  auto* const old =
      static_cast<std::byte*>(PtrWord::decode(&dest, __atomic_load_n(&dest.raw, __ATOMIC_ACQUIRE)));
  if (old == nullptr) return malloc_to(bytes, dest, options);
  if (bytes == 0) return free_from(dest);
  const std::uint64_t had = usable_size(old);
  const auto at = reinterpret_cast<std::byte*>(&dest);
  if (had == 0 || (at >= old && at < old + had)) return Status::invalid_argument;
  const std::uint64_t had_type = type_of(old);
  const std::uint64_t type = options.type != 0 ? options.type : had_type;
  const Result<std::uint64_t> size = impl_->heap->usable_bytes(bytes, options.align, type != 0);
  if (!size) return size.error();
  const bool fits = *size == had && offset_of(old).value % options.align == 0;
  if (fits && type == had_type) return Status::ok;
  return run([&](Transaction& tx) {
    const std::uint64_t wanted = options.zero ? *size : bytes;
    Result<void*> fresh = tx.alloc(wanted, {.align = options.align, .type = type});
    if (!fresh) return fresh.error();
    TENUTO_TRY(tx.add_later(dest));
    TENUTO_TRY(tx.ready());  // fields of the old block that wait are in it before it is copied
    const std::uint64_t kept = std::min(had, bytes);
    std::memcpy(*fresh, old, kept);
    if (options.zero) std::memset(static_cast<std::byte*>(*fresh) + kept, 0, wanted - kept);
    __atomic_store_n(&dest.raw, PtrWord::encode(&dest, *fresh), __ATOMIC_RELEASE);
    return tx.free(old);
  });
}

Result<Reserved> Pool::reserve(std::uint64_t bytes, const AllocOptions& options) {
  TENUTO_TRY(usable(impl_.get()));
  const auto reserve_block = [&] {
    if (options.type == 0) return impl_->heap->reserve(bytes, heap::Kind::logged, options.align);
    return impl_->heap->reserve_typed(bytes, options.type, options.align);
  };
  Result<heap::Block> block = reserve_block();
  if (!block && block.error() == Status::full) {
    impl_->engine->reclaim(impl_->engine->mine());
    block = reserve_block();
  }
  if (!block) return block.error();
  settle(*impl_, block->offset);
  void* const data = impl_->file->at<void>(block->offset);
  const std::uint64_t usable_bytes = impl_->heap->usable(*block);
  if (options.zero) zero_flush(data, usable_bytes);
  TENUTO_TRY(impl_->file->bad_pages());
  return Reserved{block->offset, data, usable_bytes};
}

Status Pool::cancel(const Reserved& block, Report* report) {
  TENUTO_TRY(usable(impl_.get()));
  const bool of_tx = impl_->engine->allocated(block.offset);
  tx::Watch* const watch = impl_->engine->watch();
  if (watch != nullptr && !of_tx) watch->taken(block.offset);
  const Status s = of_tx ? Status::invalid_argument : impl_->heap->cancel(block.offset);
  if (watch != nullptr && s == Status::ok) watch->freed(block.offset);
  return s == Status::ok ? s : impl_->explain_reserved(s, block.offset, report);
}

std::string Pool::describe(const void* p) const {
  return usable(impl_.get()) == Status::ok && contains(p) ? impl_->describe(p) : std::string();
}

std::uint64_t Pool::usable_size(const void* p) const {
  return usable(impl_.get()) == Status::ok && contains(p)
             ? impl_->heap->usable_size(impl_->file->offset_of(p))
             : 0;
}

std::uint64_t Pool::type_of(const void* p) const {
  return usable(impl_.get()) == Status::ok && contains(p)
             ? impl_->heap->type_of(impl_->file->offset_of(p))
             : 0;
}

namespace {
Result<void*> find_typed(PoolImpl* impl, PoolOffset from, std::uint64_t type, Report* report) {
  if (type == 0) {
    return fail(Status::invalid_argument, report, "blocks without a type cannot be walked through",
                impl->file->path(), "a type above 0", "0");
  }
  const PoolOffset found = impl->heap->find_typed(from, type);
  TENUTO_TRY(impl->file->bad_pages(report));
  return found ? impl->file->at<void>(found) : nullptr;
}
}  // namespace

Result<void*> Pool::first(std::uint64_t type, Report* report) const {
  TENUTO_TRY(usable(impl_.get()));
  return find_typed(impl_.get(), {0}, type, report);
}

Result<void*> Pool::next(const void* p, std::uint64_t type, Report* report) const {
  TENUTO_TRY(usable(impl_.get()));
  if (!contains(p)) {
    return fail(Status::invalid_argument, report, "the walk cannot go on from outside the pool",
                impl_->file->path());
  }
  return find_typed(impl_.get(), offset_of(p) + 1, type, report);
}

Result<void*> Pool::root(std::string_view layout, std::uint64_t bytes, Report* report) {
  TENUTO_TRY(usable(impl_.get()));
  Result<void*> object = impl_->root(layout, bytes, report);
  if (object) TENUTO_TRY(impl_->file->bad_pages(report));
  return object;
}

Result<void*> Pool::grow_root(std::string_view layout, std::uint64_t bytes,
                              const MigrateRoot& migrate, Report* report) {
  TENUTO_TRY(usable(impl_.get()));
  Result<void*> object = impl_->grow_root(layout, bytes, migrate, report);
  if (object) TENUTO_TRY(impl_->file->bad_pages(report));
  return object;
}

bool Pool::contains(const void* p) const { return impl_ != nullptr && impl_->file->contains(p); }

PoolOffset Pool::offset_of(const void* p) const { return impl_->file->offset_of(p); }

void* Pool::at(PoolOffset offset) const {
  if (impl_ == nullptr || !offset || offset.value >= impl_->file->bytes()) return nullptr;
  return impl_->file->at<void>(offset);
}

PoolInfo Pool::info() const {
  const pm::MetadataOpen rights;
  PoolInfo i;
  if (usable(impl_.get()) != Status::ok) return i;
  const pm::PoolFile& file = *impl_->file;
  i.path = file.path();
  if (file.head().roots[pm::kRootUser] != 0) {
    i.layout.assign(file.head().layout, ::strnlen(file.head().layout, 56));
  }
  i.pool_id = file.superblock().pool_id;
  i.version = file.superblock().version;
  i.medium = file.medium_to_write();
  i.consistency = file.consistency();
  i.canaries = file.canaries();
  i.has_protection_keys = pm::has_keys();
  i.collect_ms = impl_->collect_ms;
  i.power_cut_safe = file.power_cut_safe();
  i.was_clean = impl_->was_clean;
  i.read_only = file.read_only();
  i.has_store = file.head().store[0] != 0;
  i.recovery_ms = impl_->recovery_ms;
  i.leaked_frames = impl_->heap->leaked_frames();
  i.rolled_back = impl_->rolled_back;
  i.decisions_waiting = impl_->engine->stats().decisions;
  i.pools_waited_for = impl_->waited_for;
  i.journal_id = file.superblock().journal_id;
  i.journal_path = file.journal_place();
  i.journal_last_place = file.journal_last_place();
  i.journal_found = file.journal_found();
  return i;
}

Status Pool::trim() {
  TENUTO_TRY(usable(impl_.get()));
  TENUTO_TRY(impl_->file->writable());
  impl_->engine->reclaim(impl_->engine->mine());
  impl_->heap->trim();
  TENUTO_TRY(impl_->file->bad_pages());
  return impl_->file->poisoned();
}

Status Pool::forget_pool(std::uint64_t pool_id) {
  TENUTO_TRY(usable(impl_.get()));
  TENUTO_TRY(impl_->file->writable());
  if (tx::OpenEngines::is_open(pool_id)) return Status::invalid_argument;
  TENUTO_TRY(impl_->engine->forget_pool(pool_id));
  std::erase(impl_->waited_for, pool_id);
  return Status::ok;
}

Status Pool::sync() {
  TENUTO_TRY(usable(impl_.get()));
  if (!impl_->file->read_only()) impl_->heap->fence_thread();
  TENUTO_TRY(impl_->file->sync());
  return impl_->file->poisoned();
}

Status Pool::health(Report* report) const {
  if (impl_ == nullptr) return Status::closed;
  return impl_->file->health(report);
}

Status Pool::validate(Report* report) const {
  TENUTO_TRY(usable(impl_.get()));
  PoolStore::Standstill still;
  const bool beside = TENUTO_PLANT("store_pool_validated_beside_reclaimer");
  if (impl_->store != nullptr && !beside) still = impl_->store->stand_still();
  return impl_->validate(report);
}

Transaction::Transaction(Pool& pool, const char* file, int line) {
  begin_status_ = usable(pool.impl_.get());
  if (begin_status_ != Status::ok) return;
  begin(pool.impl_->engine->mine(), nullptr, file, line);
  durability_ = pool.impl_->durability;
}

Transaction::Transaction(Pool& pool, Transaction& first, const char* file, int line) {
  tx::Txn* const of_first = first.open();
  begin_status_ = of_first == nullptr ? first.why_not() : usable(pool.impl_.get());
  if (begin_status_ != Status::ok) return;
  durability_ = pool.impl_->durability;
  begin(pool.impl_->engine->mine(), of_first, file, line);
}

}  // namespace TENUTO_NS
