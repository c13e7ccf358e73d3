// Zeroed private memory in which only touched pages take space. For tables over the whole address
// space of a pool.
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

class ZeroPages {
 public:
  explicit ZeroPages(std::size_t bytes) : bytes_(bytes) {
    void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    at_ = p == MAP_FAILED ? nullptr : p;
  }
  ~ZeroPages() {
    if (at_ != nullptr) ::munmap(at_, bytes_);
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
  const std::size_t bytes_;
  void* at_;
};

}  // namespace TENUTO_NS::pm
