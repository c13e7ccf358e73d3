#include "store/kv/store_parts.h"

#include <sys/stat.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

namespace {

// Before anything is opened or recovered. Also two paths to one file. A path to nothing is left to
// its open.
Status check_named_once(const std::vector<std::string>& paths, Report* report) {
  std::map<std::pair<dev_t, ino_t>, const std::string*> named;
  for (const std::string& path : paths) {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) continue;
    const auto [first, fresh] = named.try_emplace({st.st_dev, st.st_ino}, &path);
    if (fresh) continue;
    const bool same = *first->second == path;
    return fail(Status::invalid_argument, report, "the same pool is named twice; name it once",
                same ? path : path + ", " + *first->second);
  }
  return Status::ok;
}

}  // namespace

// Each round opens at least one pool, or the next one may end what is in doubt as the options say.
Result<std::vector<Pool>> Pool::open_all(const std::vector<std::string>& paths,
                                         const PoolOptions& options, Report* report) {
  TENUTO_TRY(check_named_once(paths, report));
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
