// libpmemobj behind the adapter, in three variants. Atomic: pmemobj_alloc and pmemobj_free also set
// the destination, a PMEMoid, in the same step. Transactional: the transaction snapshots the
// destination, allocates or frees the block, and commits. Published: all blocks of a group are
// reserved, or marked to be freed, and published together with their destinations. The pool is a
// sparse file, so its block count shows how much of it was ever touched.
//
// The library is loaded in the child, after setting the environment that selects how it flushes.
#include <fcntl.h>
#include <libpmemobj.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/alloc/allocator.h"
#include "bench/alloc/library.h"

namespace bench {
namespace {

constexpr const char* kLayout = "alloc_bench";
// Address space costs nothing, and no case may fail because of fragmentation.
constexpr std::uint64_t kSpaceFactor = 8;
constexpr std::uint64_t kSpaceBytesMin = 512u << 20;

// The functions used, under their own names.
struct Functions {
  decltype(::pmemobj_create)* create;
  decltype(::pmemobj_open)* open;
  decltype(::pmemobj_close)* close;
  decltype(::pmemobj_errormsg)* errormsg;
  decltype(::pmemobj_root)* root;
  decltype(::pmemobj_alloc)* alloc;
  decltype(::pmemobj_free)* free;
  decltype(::pmemobj_tx_begin)* tx_begin;
  decltype(::pmemobj_tx_commit)* tx_commit;
  decltype(::pmemobj_tx_end)* tx_end;
  decltype(::pmemobj_tx_add_range_direct)* tx_add_range_direct;
  decltype(::pmemobj_tx_alloc)* tx_alloc;
  decltype(::pmemobj_tx_free)* tx_free;
  decltype(::pmemobj_reserve)* reserve;
  decltype(::pmemobj_defer_free)* defer_free;
  decltype(::pmemobj_set_value)* set_value;
  decltype(::pmemobj_publish)* publish;
  decltype(::pmemobj_cancel)* cancel;

  bool load(Library& library) {
    return library.load("libpmemobj.so.1") && library.find("pmemobj_create", create) &&
           library.find("pmemobj_open", open) && library.find("pmemobj_close", close) &&
           library.find("pmemobj_errormsg", errormsg) && library.find("pmemobj_root", root) &&
           library.find("pmemobj_alloc", alloc) && library.find("pmemobj_free", free) &&
           library.find("pmemobj_tx_begin", tx_begin) &&
           library.find("pmemobj_tx_commit", tx_commit) && library.find("pmemobj_tx_end", tx_end) &&
           library.find("pmemobj_tx_add_range_direct", tx_add_range_direct) &&
           library.find("pmemobj_tx_alloc", tx_alloc) && library.find("pmemobj_tx_free", tx_free) &&
           library.find("pmemobj_reserve", reserve) &&
           library.find("pmemobj_defer_free", defer_free) &&
           library.find("pmemobj_set_value", set_value) &&
           library.find("pmemobj_publish", publish) && library.find("pmemobj_cancel", cancel);
  }
};

class PmdkAtomic : public Allocator {
 public:
  ~PmdkAtomic() override {
    if (fd_ >= 0) ::close(fd_);
  }

  bool open(const AllocatorOptions& options) override {
    options_ = options;
    ::setenv("PMEM_IS_PMEM_FORCE", "1", 1);  // treat a tmpfs as persistent memory: no msync
    ::setenv("PMEMOBJ_CONF", "fallocate.at_create=0;", 1);  // the file stays sparse
    if (options.medium == "cache") ::setenv("PMEM_NO_FLUSH", "1", 1);
    if (!f_.load(library_)) return refuse(library_.error());
    const std::string path = options.dir + "/heap.pmdk";
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat st {};
    if (fd_ < 0 || ::fstat(fd_, &st) != 0) return refuse(path + ": " + std::strerror(errno));
    if (st.st_size > 0) {
      pool_ = f_.open(path.c_str(), kLayout);
    } else {
      const std::uint64_t bytes =
          kSpaceBytesMin + kSpaceFactor * (options.live_bytes + options.root_bytes);
      if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
        return refuse(path + ": " + std::strerror(errno));
      }
      pool_ = f_.create(path.c_str(), kLayout, 0, 0600);
    }
    return pool_ != nullptr || refuse(f_.errormsg());
  }
  bool close() override {
    f_.close(pool_);
    pool_ = nullptr;
    return true;
  }

  std::byte* root() override {
    const PMEMoid oid = f_.root(pool_, options_.root_bytes);
    if (oid.off == 0) refuse(f_.errormsg());
    return static_cast<std::byte*>(at(oid));
  }
  std::size_t word_bytes() const override { return sizeof(PMEMoid); }
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    auto* oid = static_cast<PMEMoid*>(dest);
    return f_.alloc(pool_, oid, bytes, 0, nullptr, nullptr) == 0 ? at(*oid) : nullptr;
  }
  bool free_from(void* dest) override {
    auto* oid = static_cast<PMEMoid*>(dest);
    f_.free(oid);
    return oid->off == 0;
  }
  void* follow(const void* dest) override { return at(*static_cast<const PMEMoid*>(dest)); }

  std::uint64_t heap_bytes() override {
    struct stat st {};
    return ::fstat(fd_, &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
  }
  double file_bytes() override { return static_cast<double>(heap_bytes()); }
  std::string medium() override { return options_.medium; }

 protected:
  const Functions& f() const { return f_; }
  PMEMobjpool* pool() { return pool_; }
  // Computes the same as pmemobj_direct, for the only open pool.
  void* at(PMEMoid oid) {
    return oid.off == 0 ? nullptr : reinterpret_cast<std::byte*>(pool_) + oid.off;
  }

 private:
  AllocatorOptions options_;
  Library library_;
  Functions f_{};
  PMEMobjpool* pool_ = nullptr;
  int fd_ = -1;
};

class PmdkTransactional final : public PmdkAtomic {
 public:
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    return transact([&] { return take(bytes, dest); }) ? follow(dest) : nullptr;
  }
  bool free_from(void* dest) override {
    return transact([&] { return drop(dest); });
  }
  bool malloc_group(std::span<void* const> dests, std::span<const std::uint64_t> bytes) override {
    return transact([&] {
      for (std::size_t i = 0; i < dests.size(); ++i) {
        if (!take(bytes[i], dests[i])) return false;
      }
      return true;
    });
  }
  bool free_group(std::span<void* const> dests) override {
    return transact([&] {
      for (void* dest : dests) {
        if (!drop(dest)) return false;
      }
      return true;
    });
  }

 private:
  bool take(std::uint64_t bytes, void* dest) {
    if (f().tx_add_range_direct(dest, sizeof(PMEMoid)) != 0) return false;
    auto* oid = static_cast<PMEMoid*>(dest);
    *oid = f().tx_alloc(bytes, 0);
    return oid->off != 0;
  }
  bool drop(void* dest) {
    if (f().tx_add_range_direct(dest, sizeof(PMEMoid)) != 0) return false;
    auto* oid = static_cast<PMEMoid*>(dest);
    if (f().tx_free(*oid) != 0) return false;
    *oid = OID_NULL;
    return true;
  }
  // A failed call has already aborted the transaction; then tx_end returns an error.
  template <class Body>
  bool transact(Body&& body) {
    if (f().tx_begin(pool(), nullptr, TX_PARAM_NONE) == 0 && body()) f().tx_commit();
    return f().tx_end() == 0;
  }
};

// An offset of 0 makes an oid null, so a free leaves the pool's id where it is, and the next block
// of the destination needs only its offset.
class PmdkPublished final : public PmdkAtomic {
 public:
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    return malloc_group({&dest, 1}, {&bytes, 1}) ? follow(dest) : nullptr;
  }
  bool free_from(void* dest) override { return free_group({&dest, 1}); }
  bool malloc_group(std::span<void* const> dests, std::span<const std::uint64_t> bytes) override {
    actions_.clear();
    for (std::size_t i = 0; i < dests.size(); ++i) {
      const PMEMoid oid = f().reserve(pool(), add(), bytes[i], 0);
      if (oid.off == 0) {
        actions_.pop_back();
        f().cancel(pool(), actions_.data(), actions_.size());
        return false;
      }
      auto* const to = static_cast<PMEMoid*>(dests[i]);
      if (to->pool_uuid_lo != oid.pool_uuid_lo) set(to->pool_uuid_lo, oid.pool_uuid_lo);
      set(to->off, oid.off);
    }
    return publish();
  }
  bool free_group(std::span<void* const> dests) override {
    actions_.clear();
    for (void* dest : dests) {
      auto* const oid = static_cast<PMEMoid*>(dest);
      f().defer_free(pool(), *oid, add());
      set(oid->off, 0);
    }
    return publish();
  }

 private:
  pobj_action* add() { return &actions_.emplace_back(); }
  void set(std::uint64_t& word, std::uint64_t value) { f().set_value(pool(), add(), &word, value); }
  bool publish() { return f().publish(pool(), actions_.data(), actions_.size()) == 0; }

  static thread_local std::vector<pobj_action> actions_;
};
thread_local std::vector<pobj_action> PmdkPublished::actions_;

std::string words_of(const std::string& medium) {
  return medium == "cache" ? "PMEM_IS_PMEM_FORCE=1 PMEM_NO_FLUSH=1 (fences, no flush)"
                           : "PMEM_IS_PMEM_FORCE=1 (CLWB on a tmpfs, no msync)";
}

}  // namespace

std::unique_ptr<Allocator> make_pmdk_atomic() { return std::make_unique<PmdkAtomic>(); }
std::unique_ptr<Allocator> make_pmdk_transactional() {
  return std::make_unique<PmdkTransactional>();
}

std::unique_ptr<Allocator> make_pmdk_published() { return std::make_unique<PmdkPublished>(); }

std::string pmdk_atomic_settings(const std::string& medium) {
  return "libpmemobj, pmemobj_alloc and pmemobj_free, fallocate.at_create=0, " + words_of(medium);
}
std::string pmdk_transactional_settings(const std::string& medium) {
  return "libpmemobj, a transaction an operation or group, fallocate.at_create=0, " +
         words_of(medium);
}
std::string pmdk_published_settings(const std::string& medium) {
  return "libpmemobj, pmemobj_reserve or pmemobj_defer_free, and one pmemobj_publish a group, "
         "fallocate.at_create=0, " +
         words_of(medium);
}

}  // namespace bench
