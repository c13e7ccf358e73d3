#include "store/kv/store_parts.h"

#include <optional>

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
  collections.prepare_close();
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

// Each round opens at least one pool, or the next one may end what is in doubt as the options say.
Result<std::vector<Pool>> Pool::open_all(const std::vector<std::string>& paths,
                                         const PoolOptions& options, Report* report) {
  std::vector<std::optional<Pool>> opened(paths.size());  // a failure closes them
  PoolOptions asking = options;
  asking.in_doubt = InDoubt::ask;
  for (std::size_t left = paths.size(); left > 0;) {
    const std::size_t before = left;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (opened[i]) continue;
      Result<Pool> pool = open(paths[i], asking, report);
      if (!pool && pool.error() == Status::in_doubt) continue;
      if (!pool) return pool.error();
      opened[i] = std::move(*pool);
      left -= 1;
    }
    if (left != before) continue;
    if (asking.in_doubt == options.in_doubt) return Status::in_doubt;
    asking.in_doubt = options.in_doubt;
  }
  std::vector<Pool> all;
  all.reserve(opened.size());
  for (std::optional<Pool>& pool : opened) all.push_back(std::move(*pool));
  return all;
}

}  // namespace TENUTO_NS
