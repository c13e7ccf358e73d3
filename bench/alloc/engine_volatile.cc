// Volatile allocators behind the adapter: upper bounds for any persistent allocator. Their
// destinations are pointers in DRAM. mimalloc and jemalloc are called through their own entry
// points. Their libraries are loaded in the child only, because a linked one replaces malloc for
// the whole program.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/alloc/allocator.h"
#include "bench/alloc/library.h"

namespace bench {
namespace {

struct EntryPoints {
  const char* library;  // null: already linked
  const char* malloc;
  const char* free;
};

class VolatileAllocator final : public Allocator {
 public:
  explicit VolatileAllocator(const EntryPoints& names) : names_(names) {}
  ~VolatileAllocator() override {
    if (statm_ >= 0) ::close(statm_);
  }

  bool open(const AllocatorOptions& options) override {
    root_.assign(options.root_bytes, std::byte{0});
    if (names_.library != nullptr &&
        !(library_.load(names_.library) && library_.find(names_.malloc, malloc_) &&
          library_.find(names_.free, free_))) {
      return refuse(library_.error());
    }
    statm_ = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    return statm_ >= 0 || refuse("cannot read /proc/self/statm");
  }
  bool close() override { return true; }

  std::byte* root() override { return root_.data(); }
  std::size_t word_bytes() const override { return sizeof(void*); }
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    void* block = malloc_(bytes);
    *static_cast<void**>(dest) = block;
    return block;
  }
  bool free_from(void* dest) override {
    void*& word = *static_cast<void**>(dest);
    free_(word);
    word = nullptr;
    return true;
  }
  void* follow(const void* dest) override { return *static_cast<void* const*>(dest); }

  // Resident private memory: resident pages minus shared pages.
  std::uint64_t heap_bytes() override {
    char text[160];
    const ssize_t n = ::pread(statm_, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = '\0';
    unsigned long long resident = 0;
    unsigned long long shared = 0;
    if (std::sscanf(text, "%*u %llu %llu", &resident, &shared) != 2) return 0;
    return (resident - shared) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }

 private:
  const EntryPoints names_;
  Library library_;
  void* (*malloc_)(std::size_t) = &std::malloc;
  void (*free_)(void*) = &std::free;
  std::vector<std::byte> root_;
  int statm_ = -1;
};

constexpr EntryPoints kMimalloc = {"libmimalloc.so.2", "mi_malloc", "mi_free"};
constexpr EntryPoints kJemalloc = {"libjemalloc.so.2", "malloc", "free"};
constexpr EntryPoints kGlibc = {nullptr, nullptr, nullptr};

}  // namespace

std::unique_ptr<Allocator> make_mimalloc() {
  return std::make_unique<VolatileAllocator>(kMimalloc);
}
std::unique_ptr<Allocator> make_jemalloc() {
  return std::make_unique<VolatileAllocator>(kJemalloc);
}
std::unique_ptr<Allocator> make_glibc() { return std::make_unique<VolatileAllocator>(kGlibc); }

std::string mimalloc_settings(const std::string&) {
  return "volatile: mi_malloc and mi_free of libmimalloc.so.2, loaded at run time, defaults";
}
std::string jemalloc_settings(const std::string&) {
  return "volatile: malloc and free of libjemalloc.so.2, loaded at run time, defaults";
}
std::string glibc_settings(const std::string&) {
  return std::string("volatile: malloc and free of glibc, defaults");
}

}  // namespace bench
