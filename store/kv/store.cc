// The public Store: opening and closing, batches, and collections by name. Its calls on records are
// those of Collection (collection.cc).
#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "pm/plant.h"
#include "store/kv/attempts.h"
#include "store/kv/cursor.h"
#include "store/kv/stored_key.h"
#include "store/tree/statistics.h"

namespace TENUTO_NS {

Status StoreImpl::check_order(KeyOrder order, const std::string& path, Report* report) {
  if (order == KeyOrder::bytes || order == KeyOrder::u64) return Status::ok;
  return fail(Status::invalid_argument, report,
              "the keys of a default collection are in order bytes or u64", path);
}

Status StoreImpl::check_options(const StoreOptions& options, const std::string& path,
                                Report* report) {
  std::set<std::string_view> names;
  for (const KeyCodec& codec : options.codecs) {
    const bool named = !codec.name.empty() && codec.name.size() <= store::kCodecNameMax;
    if (named && names.insert(codec.name).second) continue;
    return fail(Status::invalid_argument, report,
                "each codec in StoreOptions::codecs has a name of its own, of 1 to 63 bytes", path,
                {}, "codec '" + codec.name + "'");
  }
  return check_order(options.order, path, report);
}

Status StoreImpl::attach(const StoreOptions& options, bool fresh, Report* report) {
  PoolImpl& p = *pool.impl_;
  TENUTO_TRY(p.open_store(report));
  if (p.store == nullptr) {
    if (!fresh && !options.create_if_missing) {
      return fail(Status::not_found, report, "the pool holds no store", p.file->path());
    }
    TENUTO_TRY(p.file->writable(report));
    TENUTO_TRY(StoreParts::create(p, options.order, report));
    TENUTO_TRY(p.acknowledge(p.durability));
  }
  store::Collections& all = *collections();
  store::VersionStore& versions = *parts()->versions;
  all.set_verify_reads(options.verify_reads);
  all.set_lookup_cache_bytes(options.lookup_cache_bytes);
  const auto clock = std::make_shared<store::ExpiryClock>(
      options.clock_ms,
      store::ExpiryClock::Limits{options.clock_jump_ms_max, options.clock_confirm_ms},
      store::load_times(*p.file), [file = p.file.get()](std::string_view s) { file->log(s); });
  versions.set_clock(clock);
  all.set_clock(clock);
  all.set_encodings(store::Encodings(options.codecs));
  versions.set_limits(options.snapshot_bytes_max, options.snapshot_age_ms_max);
  all.reclaimer().set_pace(options.reclaim_every_ms, options.reclaim_at_once);
  TENUTO_TRY(all.start_reclaiming(report));
  if (options.check_order && all.main()->encoding.spec().order != options.order) {
    return fail(Status::invalid_argument, report, "the store has another order of keys",
                p.file->path());
  }
  return Status::ok;
}

Result<Store> Store::open(std::string_view path, const StoreOptions& options, Report* report) {
  Report local;
  Report* r = report != nullptr ? report : &local;
  TENUTO_TRY(StoreImpl::check_options(options, std::string(path), r));
  Result<Pool> pool = Pool::open(path, options.pool, r);
  if (pool && options.error_if_exists) {
    return fail(Status::exists, r, "there is a pool already", std::string(path));
  }
  if (!pool && pool.error() == Status::not_found && options.create_if_missing &&
      !options.pool.read_only) {
    // A kill leaves no pool without its store.
    auto made = PoolImpl::create(path, options.pool, kStoreKind, r, [&](PoolImpl& p) {
      return StoreParts::create(p, options.order, r);
    });
    pool = made ? Result<Pool>(Pool(std::move(*made))) : Result<Pool>(made.error());
    // Another thread or process has made it meanwhile: open that one.
    if (!pool && pool.error() == Status::exists && !options.error_if_exists) {
      pool = Pool::open(path, options.pool, r);
    }
  }
  if (!pool) return pool.error();
  auto impl = std::make_unique<StoreImpl>(std::move(*pool));
  TENUTO_TRY(impl->attach(options, false, r));
  return Store(std::move(impl));
}

Result<Store> Store::open(Pool&& pool, const StoreOptions& options, Report* report) {
  if (pool.impl_ == nullptr) return Status::closed;
  TENUTO_TRY(StoreImpl::check_options(options, pool.impl_->file->path(), report));
  auto impl = std::make_unique<StoreImpl>(std::move(pool));
  const Status s = impl->attach(options, false, report);
  if (s == Status::ok) return Store(std::move(impl));
  pool = std::move(impl->pool);
  return s;
}

Store::Store(std::unique_ptr<StoreImpl> impl)
    : Collection(impl->collections()->main()), impl_(std::move(impl)) {}
Store::Store(Store&& o) noexcept
    : Collection(std::exchange(o.state_, nullptr)), impl_(std::move(o.impl_)) {}
Store& Store::operator=(Store&& o) noexcept {
  state_ = std::exchange(o.state_, nullptr);
  impl_ = std::move(o.impl_);
  return *this;
}
Store::~Store() = default;  // the pool's destructor closes

Status Store::close() {
  if (impl_ == nullptr) return Status::closed;
  const Status s = impl_->pool.close();
  if (s == Status::busy) return s;
  state_.reset();
  impl_.reset();
  return s;
}

namespace {
store::Collections* collections_of(const std::unique_ptr<StoreImpl>& impl) {
  return impl == nullptr ? nullptr : impl->collections();
}
}  // namespace

// --- batches -------------------------------------------------------------------------------------

Status Store::write(const WriteBatch& batch, WriteOptions options) {
  store::Collections* all = collections_of(impl_);
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  if (options.ttl_ms != 0) return Status::invalid_argument;
  store::Attempts attempts;
  for (bool again = true;;) {
    Status s = Status::ok;
    {
      std::optional<store::EpochGuard> guard;
      if (!batch.collections_.empty()) guard.emplace();  // see CollectionUse
      StoredOps stored;
      store::ReadSet there;
      TENUTO_TRY(StoreImpl::append(*all, batch, stored, there));
      s = store::Tree::write(stored.ops, &there);
    }
    // A collection is being dropped, and the next `append` learns the result; or pairs were added
    // to a key whose values the batch erases.
    if (attempts.again_after(s)) continue;
    if (s == Status::full && again && !all->alone()) {
      all->make_room();
      again = false;
      continue;
    }
    TENUTO_TRY(s);
    break;
  }
  return all->acknowledge(options.durability);
}

// --- collections ---------------------------------------------------------------------------------

Result<Collection> Store::collection(std::string_view name, Report* report) {
  return collection(name, CollectionOptions{}, report);
}

Result<Collection> Store::collection(std::string_view name, const CollectionOptions& options,
                                     Report* report) {
  store::Collections* all = collections_of(impl_);
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  auto state = all->get(name, options, report);
  if (!state) return state.error();
  TENUTO_TRY(all->acknowledge(impl_->pool.impl_->durability));
  return Collection(std::move(*state));
}

Result<std::vector<CollectionInfo>> Store::collections(Report* report) const {
  store::Collections* all = collections_of(impl_);
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  std::vector<store::CatalogEntry> entries;
  TENUTO_TRY(all->list(entries, report));
  std::vector<CollectionInfo> out;
  for (store::CatalogEntry& e : entries) {
    out.push_back({std::move(e.name), e.id.value, e.spec.order, std::move(e.spec.codec),
                   e.spec.duplicates, e.spec.expires});
  }
  return out;
}

Status Store::drop(std::string_view name, Report* report) {
  store::Collections* all = collections_of(impl_);
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  TENUTO_TRY(all->drop(name, report));
  return all->acknowledge(impl_->pool.impl_->durability);
}

Status Store::rename(std::string_view from, std::string_view to, Report* report) {
  return rename(from, to, RenameOptions{}, report);
}

Status Store::rename(std::string_view from, std::string_view to, const RenameOptions& options,
                     Report* report) {
  store::Collections* all = collections_of(impl_);
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  TENUTO_TRY(all->rename(from, to, options, report));
  return all->acknowledge(impl_->pool.impl_->durability);
}

// --- all of it -----------------------------------------------------------------------------------

Result<std::uint64_t> Store::reclaim(std::uint64_t records_max) {
  store::Collections* all = collections_of(impl_);
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  auto erased = all->reclaimer().run(records_max);
  if (erased) TENUTO_TRY(all->acknowledge(impl_->pool.impl_->durability));
  return erased;
}

Status Store::sync() {
  return collections_of(impl_) == nullptr ? Status::closed : impl_->pool.sync();
}

Status Store::validate(Report* report) const {
  store::Collections* all = collections_of(impl_);
  const store::PoolCall call(all);
  TENUTO_TRY(usable(all));
  PoolStore::Standstill still = all->stand_still();
  TENUTO_TRY(all->validate(report));
  if (TENUTO_PLANT("store_validate_beside_drops")) still.catalog.unlock();
  return impl_->pool.impl_->validate(report);
}

std::uint64_t Store::time_ms() const {
  const store::Collections* all = collections_of(impl_);
  return all == nullptr ? 0 : all->clock().now();
}

StoreStats Store::stats() const {
  const store::Collections* all = collections_of(impl_);
  if (usable(all) != Status::ok) return {};
  StoreStats s = store::stats_of(*all->main()->tree);
  store::VersionStore& versions = *impl_->parts()->versions;
  versions.expire_old();
  const store::VersionStats h = versions.stats();
  s.snapshots = h.snapshots;
  s.snapshot_oldest_age_ms = h.oldest_age_ms;
  s.snapshot_versions = h.versions;
  s.snapshot_bytes = h.held_bytes;
  s.snapshots_expired = h.expired;
  const store::Garbage::Waiting retired = impl_->collections()->waiting();
  s.retired_items = retired.items;
  s.retired_bytes = retired.bytes;
  s.pool = impl_->pool.stats();
  return s;
}

Pool& Store::pool() { return impl_->pool; }
const Pool& Store::pool() const { return impl_->pool; }

}  // namespace TENUTO_NS
