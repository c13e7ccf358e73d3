// Store::backup: copies all collections, as of one timestamp, to a new pool. The snapshot is taken
// while no collection can be made, dropped or renamed. Everything is read through it and written in
// batches to a pool without a name. That pool is closed, and so durable, before it gets its name.
// So a backup that is killed leaves nothing. Of two backups to one path the first to finish gets
// the name. An existing file is never replaced.
#include <unistd.h>

#include "pm/plant.h"
#include "store/kv/cursor.h"
#include "store/kv/store_impl.h"

namespace TENUTO_NS {

namespace {

constexpr std::size_t kBatchOps = 1000;
constexpr std::uint64_t kBatchBytes = 4u << 20;

// Copies records as they are stored: no codec is needed, and lifetimes stay.
Status copy(store::Cursor& from, Store& to, const Collection& into, std::uint64_t& copied) {
  WriteBatch batch;
  std::uint64_t bytes = 0;
  for (from.seek({}); from.valid(); from.next()) {
    if (copied++ == 7 && TENUTO_PLANT("store_backup_loses_a_record")) continue;
    batch.put({into, from.key()}, from.value());
    bytes += from.key().size() + from.value().size();
    if (batch.count() < kBatchOps && bytes < kBatchBytes) continue;
    TENUTO_TRY(to.write(batch, {Durability::buffered}));
    batch.clear();
    bytes = 0;
  }
  TENUTO_TRY(from.status());
  return to.write(batch, {Durability::buffered});
}

// Compares the numbers of records read and written with the source's count, if that is known: it is
// not when a write was under way as the snapshot was taken.
Status compare(const store::Collections::Held& source, const Collection& copy, std::uint64_t copied,
               const std::string& path, Report* report) {
  const std::uint64_t wanted = source.records.value_or(copied);
  const std::uint64_t written = copy.stats().records;
  if (copied == wanted && written == wanted) return Status::ok;
  const std::string what = source.name.empty() ? "the store" : "collection " + source.name;
  return fail(Status::corrupt, report, "the backup of " + what + " has another number of records",
              path, std::to_string(wanted), std::to_string(copied == wanted ? written : copied));
}

}  // namespace

Result<Store> StoreImpl::create_copy(const std::string& path, const StoreOptions& options,
                                     Report* report) {
  StoreOptions how = options;
  how.pool.log = {};  // its lines about power cuts would be wrong for a copy
  how.reclaim_every_ms = 0;
  auto made = PoolImpl::create_copy(path, how.pool, kStoreKind, report);
  if (!made) return made.error();
  auto impl = std::make_unique<StoreImpl>(Pool(std::move(*made)));
  TENUTO_TRY(impl->attach(how, true, report));
  return Store(std::move(impl));
}

Status StoreImpl::finish_copy(Store& copy, store::Times times, Report* report) {
  PoolImpl& p = *of(copy).pool.impl_;
  const bool known = times.floor != 0 || times.seen != 0;
  if (known && !TENUTO_PLANT("store_copy_forgets_the_time")) store::store_times(*p.file, times);
  const Status s = p.finish_copy(report);
  of(copy).pool.impl_.reset();  // closed; or it failed, and the file without a name goes
  return s;
}

Status Store::backup(const std::string& path, Report* report) {
  return backup(path, PoolOptions{}, report);
}

Status Store::backup(const std::string& path, const PoolOptions& options, Report* told) {
  Report local;
  Report* const report = told != nullptr ? told : &local;
  *report = {};
  store::Collections* const own = impl_ == nullptr ? nullptr : impl_->collections();
  const store::PoolCall call(own);
  TENUTO_TRY(usable(own));
  if (::access(path.c_str(), F_OK) == 0) {
    return fail(Status::exists, report, "there is a file already where the backup should be", path);
  }
  std::vector<store::Collections::Held> all;
  std::shared_ptr<store::SnapshotCore> snapshot;
  TENUTO_TRY(own->hold_all(all, snapshot, report));
  const auto write = [&]() -> Status {
    StoreOptions to;
    to.pool = options;
    if (to.pool.mode == 0) to.pool.mode = impl_->pool.impl_->file->mode();
    to.order = order();
    Result<Store> store = StoreImpl::create_copy(path, to, report);
    if (!store) return store.error();
    store->impl_->collections()->set_encodings(store::Encodings::of_stored_keys());
    for (const store::Collections::Held& held : all) {
      Collection into = *store;
      if (!held.name.empty()) {
        Result<Collection> made =
            store->collection(held.name, options_of(held.state->encoding.spec()), report);
        if (!made) return made.error();
        into = *made;
      }
      store::Cursor from(held.state, {}, snapshot, nullptr, nullptr);
      from.verify_always();
      std::uint64_t copied = 0;
      const Status read = copy(from, *store, into, copied);
      if (read == Status::corrupt) {
        return impl_->pool.impl_->file->failed(read, report, "the store is damaged",
                                               impl_->pool.info().path);
      }
      TENUTO_TRY(read);
      TENUTO_TRY(compare(held, into, copied, path, report));
    }
    const store::Times times =
        store::times_of(*impl_->pool.impl_->file, impl_->collections()->clock());
    return StoreImpl::finish_copy(*store, times, report);
  };
  const Status s = write();
  if (s == Status::ok) return s;
  if (!report->what.empty()) return s;
  return fail(s, report, "the backup cannot be written", path);
}

}  // namespace TENUTO_NS
