// pmemobj_create, open, close and check.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tenuto/persist.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/pools.h"
#include "tools/pmemobj/step.h"

namespace TENUTO_NS::pmemobj {

namespace {

// A pool of the drop-in has no key-value store. One that has is not opened, so that no recovery
// misses the store's blocks.
Status refuse_stores(const pm::PoolFile& file, Report* report) {
  if (file.head().store[0] == 0) return Status::ok;
  return fail(Status::invalid_argument, report, "the pool holds a key-value store, no objects",
              file.path());
}
Result<std::unique_ptr<PoolStore>> open_no_store(PoolImpl&, Report*) {
  return std::unique_ptr<PoolStore>();
}
constexpr PoolStoreKind kNoStore = {.check = refuse_stores, .open = open_no_store};

bool options_from_environment(PoolOptions& options) {
  if (const char* medium = std::getenv("TENUTO_PMEMOBJ_MEDIUM")) {
    constexpr Medium kAll[] = {Medium::automatic, Medium::line, Medium::cache, Medium::model,
                               Medium::journal};
    const auto* const end = std::end(kAll);
    const auto* const found = std::find_if(
        std::begin(kAll), end, [&](Medium m) { return std::strcmp(medium_name(m), medium) == 0; });
    if (found == end) {
      refuse(EINVAL, "TENUTO_PMEMOBJ_MEDIUM=%s: want auto, line, cache, model or journal", medium);
      return false;
    }
    options.medium = *found;
  }
  if (const char* durability = std::getenv("TENUTO_PMEMOBJ_DURABILITY")) {
    if (std::strcmp(durability, "buffered") == 0) {
      options.durability = Durability::buffered;
    } else if (std::strcmp(durability, "sync") != 0) {
      refuse(EINVAL, "TENUTO_PMEMOBJ_DURABILITY=%s: want sync or buffered", durability);
      return false;
    }
  }
  if (std::getenv("TENUTO_PMEMOBJ_LOG") != nullptr) {
    options.log = [](std::string_view text) {
      std::fprintf(stderr, "libtenuto_pmemobj: %.*s\n", static_cast<int>(text.size()), text.data());
    };
  }
  return true;
}

bool layout_fits(const char* layout) {
  if (layout == nullptr || std::strlen(layout) < kLayoutMax) return true;
  refuse(EINVAL, "the layout has more than %zu characters", kLayoutMax - 1);
  return false;
}

std::uint64_t random_word() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

// 0, or the errno that a read met, or EEXIST for a byte that is not zero. Holes are not read.
int only_zeros(int fd, off_t bytes) {
  std::vector<char> buffer(std::size_t{1} << 20);
  for (off_t at = 0; at < bytes;) {
    const off_t data = lseek(fd, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return 0;  // a hole up to the end
    if (data > at) at = data;                  // where it is not known, everything is read
    const ssize_t n = pread(fd, buffer.data(), buffer.size(), at);
    if (n <= 0) return n < 0 ? errno : 0;
    if (std::any_of(buffer.data(), buffer.data() + n, [](char c) { return c != 0; })) return EEXIST;
    at += n;
  }
  return 0;
}

// The file of zeros that programs make beforehand, which a pool replaces. If no pool is made, it
// comes back, without the space that it may have reserved.
class Placeholder {
 public:
  ~Placeholder() {
    if (!taken_) return;
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return;  // somebody else's file has the name
    if (ftruncate(fd, size_) != 0 || fchmod(fd, mode_) != 0) unlink(path_.c_str());
    close(fd);
  }
  // 0, or errno with a message.
  int take(const char* path) {
    // A link stays, and the file that it leads to is replaced.
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path, nullptr), std::free);
    if (real == nullptr) return refuse(errno, "%s: %s", path, std::strerror(errno));
    path_ = real.get();
    struct stat st;
    const int fd = open(real.get(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
      const int error = errno;
      if (fd >= 0) close(fd);
      return refuse(error, "%s: %s", path, std::strerror(error));
    }
    const int error = check(fd, st, path);
    close(fd);
    if (error != 0) return error;
    if (unlink(real.get()) != 0) return refuse(errno, "%s: %s", path, std::strerror(errno));
    size_ = st.st_size;
    mode_ = st.st_mode & 07777;
    taken_ = true;
    return 0;
  }
  void replaced() { taken_ = false; }
  const char* path() const { return path_.c_str(); }
  std::size_t size() const { return static_cast<std::size_t>(size_); }
  mode_t mode() const { return mode_; }

 private:
  static int check(int fd, const struct stat& st, const char* path) {
    if (!S_ISREG(st.st_mode)) return refuse(ENOTSUP, "%s: pools are regular files here", path);
    char head[11] = {};
    if (pread(fd, head, sizeof head, 0) == sizeof head &&
        std::memcmp(head, "PMEMPOOLSET", sizeof head) == 0) {
      return refuse(ENOTSUP, "%s: sets of pool files are not offered; make one file", path);
    }
    const int error = only_zeros(fd, st.st_size);
    if (error == EEXIST) return refuse(EEXIST, "%s: the file holds more than zeros", path);
    if (error != 0) return refuse(error, "%s: %s", path, std::strerror(error));
    const auto bytes = static_cast<std::uint64_t>(st.st_size);
    if (bytes < PMEMOBJ_MIN_POOL) {
      return refuse(EINVAL, "%s: smaller than PMEMOBJ_MIN_POOL", path);
    }
    struct rlimit limit;  // beyond it, not even this file could be made again
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return 0;
    return refuse(EFBIG, "%s: larger than RLIMIT_FSIZE", path);
  }

  std::string path_;
  off_t size_ = 0;
  mode_t mode_ = 0;
  bool taken_ = false;
};

// For files of libpmemobj, which nobody should take for damaged pools.
bool is_of_libpmemobj(const char* path, const char** what) {
  char head[16] = {};
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = pread(fd, head, sizeof head, 0);
  close(fd);
  if (n < 11) return false;
  *what = std::memcmp(head, "PMEMOBJ", 8) == 0        ? "a pool of libpmemobj"
          : std::memcmp(head, "PMEMPOOLSET", 11) == 0 ? "a set of pool files"
                                                      : nullptr;
  return *what != nullptr;
}

PMEMobjpool* enter(std::unique_ptr<OpenPool> pool, const char* path) {
  pool->base = pool->file().base();
  pool->run_id = (random_word() & ~std::uint64_t{1}) | 2;
  PMEMobjpool* const handle = pool->handle();
  if (add_open_pool(std::move(pool))) return handle;
  refuse(EEXIST, "%s: another pool with the same uuid is open: one is a copy", path);
  return nullptr;
}

PMEMobjpool* create_pool(const char* path, const char* layout, std::size_t bytes, mode_t mode) {
  if (path == nullptr) {
    refuse(EINVAL, "the path is null");
    return nullptr;
  }
  if (!layout_fits(layout)) return nullptr;
  PoolOptions options;
  if (!options_from_environment(options)) return nullptr;
  Placeholder zeros;
  if (bytes == 0) {
    if (zeros.take(path) != 0) return nullptr;
    path = zeros.path();
    bytes = zeros.size();
    if (mode == 0) mode = zeros.mode();
  }
  if (bytes < PMEMOBJ_MIN_POOL) {
    refuse(EINVAL, "a pool of %zu bytes: the smallest one is PMEMOBJ_MIN_POOL, %zu", bytes,
           PMEMOBJ_MIN_POOL);
    return nullptr;
  }
  options.size = round_up(bytes, kHugeBytes);
  options.size_max = options.size;
  options.mode = mode;
  Report report;
  auto made = PoolImpl::create(path, options, kNoStore, &report);
  if (!made) {
    const int error = refuse(made.error(), "cannot create the pool", report);
    if (error == ENOMEM) errno = ENOSPC;
    return nullptr;
  }
  zeros.replaced();
  auto pool = std::make_unique<OpenPool>();
  pool->impl = std::move(*made);
  const Result<void*> root = pool->impl->root(kRootLayout, sizeof(Directory), &report);
  if (!root) {
    refuse(root.error(), "cannot create the pool", report);
    return nullptr;
  }
  pool->directory = static_cast<Directory*>(*root);
  std::strcpy(pool->directory->layout, layout == nullptr ? "" : layout);
  flush(pool->directory->layout);
  fence("layout of the drop-in", "its directory");
  pool->uuid_lo = pool->file().superblock().pool_id;
  publish(pool->directory->uuid_lo, pool->uuid_lo);
  fence("directory", "pmemobj_create returns");
  if (acknowledge(*pool) != Status::ok) {
    refuse(Status::io, "cannot create the pool");
    return nullptr;
  }
  return enter(std::move(pool), path);
}

// What is wrong with the directory, which is an object and has no checksum; null: nothing is found.
const char* damage_of_directory(const OpenPool& pool) {
  const Directory& d = *pool.directory;
  if (d.uuid_lo != pool.file().superblock().pool_id) return "its uuid is not the pool's";
  if (std::memchr(d.layout, 0, kLayoutMax) == nullptr) return "its layout has no end";
  if (d.root == 0) return d.root_bytes == 0 ? nullptr : "its root object has a size and no place";
  const auto block = pool.heap().find_taken({d.root}, heap::Kind::logged);
  if (!block || pool.heap().type_of_taken({d.root}) != block_type(POBJ_ROOT_TYPE_NUM)) {
    return "its root word leads to no root object";
  }
  const bool fits = d.root_bytes != 0 && d.root_bytes <= pool.heap().usable(*block);
  return fits ? nullptr : "the size of its root object cannot be";
}

std::unique_ptr<OpenPool> open_parts(const char* path, const char* layout, PoolOptions options) {
  if (path == nullptr) {
    refuse(EINVAL, "the path is null");
    return nullptr;
  }
  struct stat st;
  if (stat(path, &st) != 0) {
    refuse(errno, "%s: %s", path, std::strerror(errno));
    return nullptr;
  }
  // Only a file is read: the open of a pipe would wait for its other end.
  if (const char* what = nullptr; S_ISREG(st.st_mode) && is_of_libpmemobj(path, &what)) {
    refuse(
        EINVAL,
        "%s: this is %s, which Tenuto cannot open; tenuto import-pmemobj copies its objects into a "
        "new pool",
        path, what);
    return nullptr;
  }
  options.size_max = static_cast<std::uint64_t>(st.st_size);  // it never grows
  Report report;
  auto opened = PoolImpl::open(path, options, kNoStore, &report);
  if (!opened) {
    refuse(opened.error(), "cannot open the pool", report);
    // libpmemobj says so of all files that are not sound pools.
    if (opened.error() == Status::corrupt) errno = EINVAL;
    return nullptr;
  }
  auto pool = std::make_unique<OpenPool>();
  pool->impl = std::move(*opened);
  const pm::PoolFile& file = pool->file();
  const bool ours = file.head().roots[pm::kRootUser] != 0 &&
                    std::strncmp(file.head().layout, kRootLayout, sizeof kRootLayout) == 0;
  const Result<void*> root = ours ? pool->impl->root(kRootLayout, sizeof(Directory), &report)
                                  : Result<void*>(Status::invalid_argument);
  pool->directory = root ? static_cast<Directory*>(*root) : nullptr;
  if (pool->directory == nullptr || pool->directory->uuid_lo == 0) {
    refuse(EINVAL, "%s: no pool of the drop-in, or its pmemobj_create did not end", path);
    return nullptr;
  }
  if (const char* const damage = damage_of_directory(*pool)) {
    refuse(EINVAL, "%s: the directory of the drop-in is damaged: %s; restore a backup", path,
           damage);
    return nullptr;
  }
  const char* const stored = pool->directory->layout;
  if (layout != nullptr && std::strncmp(layout, stored, kLayoutMax) != 0) {
    refuse(EINVAL, "wrong layout (\"%s\"), the pool was created with layout \"%.*s\"", layout,
           static_cast<int>(kLayoutMax), stored);
    return nullptr;
  }
  pool->uuid_lo = pool->directory->uuid_lo;
  return pool;
}

PMEMobjpool* open_pool(const char* path, const char* layout) {
  PoolOptions options;
  if (!layout_fits(layout) || !options_from_environment(options)) return nullptr;
  std::unique_ptr<OpenPool> pool = open_parts(path, layout, options);
  return pool == nullptr ? nullptr : enter(std::move(pool), path);
}

// A pool that was not closed is recovered first, which needs an open to write.
int check_pool(const char* path, const char* layout) {
  PoolOptions options;
  if (!layout_fits(layout) || !options_from_environment(options)) return -1;
  options.read_only = true;
  std::unique_ptr<OpenPool> pool = open_parts(path, layout, options);
  if (pool == nullptr && errno == EROFS) {
    options.read_only = false;
    pool = open_parts(path, layout, options);
  }
  if (pool == nullptr) return errno == EIO ? 0 : -1;
  Report report;
  Status s = pool->impl->validate(&report);
  if (s == Status::ok && !options.read_only) s = pool->impl->close();
  if (s == Status::ok) return 1;
  refuse(s, "the pool is not consistent", report);
  return 0;
}

void close_pool(PMEMobjpool* handle) {
  OpenPool* const open = pool_of(handle);
  if (open == nullptr) stop("pmemobj_close: %p is no open pool", static_cast<void*>(handle));
  if (open->impl->engine->any_active() && open->impl->usable() == Status::ok) {
    stop("pmemobj_close: a transaction is open in the pool");
  }
  std::unique_ptr<OpenPool> pool = remove_open_pool(open);
  if (pool->file().forked()) {
    pm::abandon(pool->impl.release());
    return;
  }
  if (!flush_unflushed(*pool))
    refuse(errno, "pmemobj_close: what was not flushed is lost: %s", std::strerror(errno));
  if (const Status s = pool->impl->close(); s != Status::ok) refuse(s, "pmemobj_close");
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

PMEMobjpool* pmemobj_create(const char* path, const char* layout, size_t poolsize, mode_t mode) {
  return without_throwing(static_cast<PMEMobjpool*>(nullptr),
                          [&] { return create_pool(path, layout, poolsize, mode); });
}

PMEMobjpool* pmemobj_open(const char* path, const char* layout) {
  return without_throwing(static_cast<PMEMobjpool*>(nullptr),
                          [&] { return open_pool(path, layout); });
}

void pmemobj_close(PMEMobjpool* pop) {
  without_throwing(0, [&] {
    close_pool(pop);
    return 0;
  });
}

int pmemobj_check(const char* path, const char* layout) {
  return without_throwing(-1, [&] { return check_pool(path, layout); });
}
