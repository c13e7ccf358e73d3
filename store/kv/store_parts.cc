#include "store/kv/store_parts.h"

#include "store/kv/head.h"
#include "store/kv/refused.h"

namespace TENUTO_NS {

namespace {
Result<std::unique_ptr<PoolStore>> open_parts(PoolImpl& pool, Report* report) {
  if (!store::store_is_named(*pool.file)) return std::unique_ptr<PoolStore>();
  auto parts = std::make_unique<StoreParts>(pool);
  TENUTO_TRY(parts->collections.open(pool.was_clean, report));
  return std::unique_ptr<PoolStore>(std::move(parts));
}
}  // namespace

const PoolStoreKind kStoreKind = {.check = store::check_protocols, .open = open_parts};

Status StoreParts::create(PoolImpl& pool, KeyOrder order, Report* report) {
  auto parts = std::make_unique<StoreParts>(pool);
  TENUTO_TRY(parts->collections.create(order, report));
  pool.store = std::move(parts);
  return Status::ok;
}

Status StoreParts::close() {
  collections.reclaimer().stop();
  versions->shut(true);
  return collections.close();
}

// --- a pool with its store -----------------------------------------------------------------------

Result<Pool> Pool::create(std::string_view path, const PoolOptions& options, Report* report) {
  auto impl = PoolImpl::create(path, options, kStoreKind, report);
  if (!impl) return impl.error();
  return Pool(std::move(*impl));
}

Result<Pool> Pool::open(std::string_view path, const PoolOptions& options, Report* report) {
  auto impl = PoolImpl::open(path, options, kStoreKind, report);
  if (!impl) return impl.error();
  return Pool(std::move(*impl));
}

}  // namespace TENUTO_NS
