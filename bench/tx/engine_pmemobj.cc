// libpmemobj, with the settings of alloc_bench: it takes a tmpfs for persistent memory, so it
// flushes lines as tenuto does and makes no system call, and the pool is a sparse file. And the
// drop-in for it (tools/pmemobj), under the same code.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fcntl.h>

#include "bench/tx/parts_pmemobj.h"

namespace bench {

bool PmemobjFunctions::load(Library& library, const char* path) {
  return library.load(path) && library.find("pmemobj_create", create) &&
         library.find("pmemobj_close", close) && library.find("pmemobj_errormsg", errormsg) &&
         library.find("pmemobj_root", root) && library.find("pmemobj_flush", flush) &&
         library.find("pmemobj_tx_begin", tx_begin) &&
         library.find("pmemobj_tx_commit", tx_commit) && library.find("pmemobj_tx_end", tx_end) &&
         library.find("pmemobj_tx_abort", tx_abort) &&
         library.find("pmemobj_tx_add_range_direct", tx_add_range_direct) &&
         library.find("pmemobj_tx_xadd_range_direct", tx_xadd_range_direct) &&
         library.find("pmemobj_tx_alloc", tx_alloc) && library.find("pmemobj_tx_free", tx_free) &&
         library.find("pmemobj_reserve", reserve) &&
         library.find("pmemobj_defer_free", defer_free) &&
         library.find("pmemobj_set_value", set_value) && library.find("pmemobj_publish", publish);
}

namespace {

// Address space costs nothing, and no case may fail because of fragmentation.
constexpr std::uint64_t kSpaceFactor = 8;
constexpr std::uint64_t kSpaceBytesMin = 256u << 20;
constexpr std::uint64_t kLineBytes = 64;

class PmemobjTx final : public TxEngine {
 public:
  explicit PmemobjTx(const char* library) : path_(library) {}
  bool open(const TxPlace& place) override {
    ::setenv("PMEM_IS_PMEM_FORCE", "1", 1);
    ::setenv("PMEMOBJ_CONF", "fallocate.at_create=0;", 1);
    if (place.medium == "cache") ::setenv("PMEM_NO_FLUSH", "1", 1);
    ::setenv("TENUTO_PMEMOBJ_MEDIUM", place.medium.c_str(), 1);  // the drop-in reads this one
    if (!f_.load(library_, path_)) return refuse(library_.error());
    const std::string path = place.dir + "/tx.pmemobj";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const auto bytes = static_cast<off_t>(kSpaceBytesMin + kSpaceFactor * place.live_bytes);
    const bool sized = fd >= 0 && ::ftruncate(fd, bytes) == 0;
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (!sized) return refuse(path + ": " + std::strerror(error));
    PMEMobjpool* const pool = f_.create(path.c_str(), "tx_bench", 0, 0600);
    if (pool == nullptr) return refuse(f_.errormsg());
    pool_.emplace(f_, pool);
    // A root object starts 16 bytes into a line: a careful user starts its first line at the next.
    const PMEMoid root = f_.root(pool, place.threads * kThreadAreaBytes + kLineBytes);
    if (OID_IS_NULL(root)) return refuse(f_.errormsg());
    const std::uint64_t skipped = (kLineBytes - root.off % kLineBytes) % kLineBytes;
    root_ = pool_->at<std::byte>(root) + skipped;
    return true;
  }
  bool close() override {
    f_.close(pool_->pool());
    return true;
  }
  std::unique_ptr<Work> work(const TxCase& what, const WorkSize& size, unsigned thread) override {
    void* const area = root_ + thread * kThreadAreaBytes;
    if (what.part == Part::row) return make_pmemobj_row(what.name, *pool_, area, size);
    if (what.part == Part::tree) return make_pmemobj_tree(what, *pool_, area, size);
    return make_pmemobj_chain(what, *pool_, area, size);
  }

 private:
  const char* path_;
  Library library_;
  PmemobjFunctions f_{};
  std::optional<PmemobjPool> pool_;
  std::byte* root_ = nullptr;
};

}  // namespace

std::unique_ptr<TxEngine> make_pmemobj_tx() {
  return std::make_unique<PmemobjTx>("libpmemobj.so.1");
}

#ifdef TENUTO_PMEMOBJ_DROP_IN
std::unique_ptr<TxEngine> make_drop_in_tx() {
  return std::make_unique<PmemobjTx>(TENUTO_PMEMOBJ_DROP_IN);
}
std::string drop_in_tx_settings(const std::string&) {
  return "the drop-in for libpmemobj, under the code of pmemobj; a pool of its full size";
}
#endif

std::string pmemobj_tx_settings(const std::string& medium) {
  const std::string what = "libpmemobj, fallocate.at_create=0, PMEM_IS_PMEM_FORCE=1";
  return what + (medium == "cache" ? " PMEM_NO_FLUSH=1 (fences, no flush)"
                                   : " (CLWB on a tmpfs, no msync)");
}

}  // namespace bench
