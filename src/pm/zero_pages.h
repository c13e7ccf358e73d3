// Zeroed private memory in which only touched pages take space. For tables over the whole address
// space of a pool. Those of a small pool are no larger than a few pages; they come from malloc(3),
// which spares each open and close of such a pool a pair of system calls and a page a table.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "pm/os.h"
#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

class ZeroPages {
 public:
  explicit ZeroPages(std::size_t bytes) : bytes_(bytes), at_(is_small() ? small() : mapped()) {}
  ~ZeroPages() {
    if (at_ == nullptr) return;
    if (is_small()) {
      std::free(at_);
    } else {
      ::munmap(at_, bytes_);
    }
  }
  ZeroPages(const ZeroPages&) = delete;
  ZeroPages& operator=(const ZeroPages&) = delete;

  // False: the system refused the memory, and nothing may be accessed.
  explicit operator bool() const { return at_ != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(at_);
  }

 private:
  static constexpr std::size_t kSmallMax = 16 * 1024;

  bool is_small() const { return bytes_ <= kSmallMax; }
  void* small() const {
    const std::size_t whole = (bytes_ + kLineBytes - 1) / kLineBytes * kLineBytes;
    void* const p = std::aligned_alloc(kLineBytes, whole);
    return p == nullptr ? nullptr : std::memset(p, 0, whole);
  }
  void* mapped() const { return map_zeros(bytes_); }

  const std::size_t bytes_;
  void* const at_;
};

}  // namespace TENUTO_NS::pm
