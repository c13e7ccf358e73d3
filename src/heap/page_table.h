// Which slab owns an offset of the pool: one word for each 64 KiB of address space. Every free
// looks it up, without a lock. Extents have their own table (slots.h). It is in DRAM; only touched
// pages exist.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

#include "heap/format.h"
#include "pm/assert.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

struct Slab;

// typed: a slab of blocks with types.
enum class PageOwner : std::uintptr_t { none = 0, slab = 1, typed = 2 };

class PageTable {
 public:
  explicit PageTable(std::uint64_t bytes_max)
      : units_(bytes_max / kSlabBytes + 1),
        pages_(units_ * sizeof(std::uintptr_t)),
        words_(pages_.as<std::atomic<std::uintptr_t>>()) {}

  bool there() const { return static_cast<bool>(pages_); }

  struct Entry {
    PageOwner owner;
    void* object;
    Slab* slab() const { return static_cast<Slab*>(object); }
  };
  Entry find(PoolOffset o) const {
    const std::uint64_t unit = o.value / kSlabBytes;
    if (unit >= units_) return {PageOwner::none, nullptr};
    const std::uintptr_t w = words_[unit].load(std::memory_order_acquire);  // pairs with set()
    return {static_cast<PageOwner>(w & 3), reinterpret_cast<void*>(w & ~std::uintptr_t{3})};
  }
  void set(PoolOffset o, PageOwner owner, void* object) {
    const auto w = reinterpret_cast<std::uintptr_t>(object) | static_cast<std::uintptr_t>(owner);
    words_[o.value / kSlabBytes].store(w, std::memory_order_release);
  }
  void clear(PoolOffset o) { set(o, PageOwner::none, nullptr); }

 private:
  const std::uint64_t units_;
  const pm::ZeroPages pages_;
  std::atomic<std::uintptr_t>* const words_;
};

}  // namespace TENUTO_NS::heap
