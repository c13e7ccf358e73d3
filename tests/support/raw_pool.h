// A file mapped as persistent memory, without any pool format, for crash tests of small structures
// and of the explorer itself.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "pm/assert.h"
#include "pm/trace.h"

namespace tenuto::test {

class RawPool {
 public:
  // Maps the whole file.
  explicit RawPool(const std::string& path) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat st {};
    TENUTO_ASSERT(fd_ >= 0 && ::fstat(fd_, &st) == 0);
    bytes_ = static_cast<std::uint64_t>(st.st_size);
    void* p = ::mmap(nullptr, kBytesMax, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    TENUTO_ASSERT(p != MAP_FAILED);
    base_ = static_cast<std::byte*>(p);
    pm::trace_map(base_, bytes_, fd_);
  }
  ~RawPool() {
    pm::trace_unmap(base_);
    ::munmap(base_, kBytesMax);
    ::close(fd_);
  }
  RawPool(const RawPool&) = delete;
  RawPool& operator=(const RawPool&) = delete;

  // A new file of zeros.
  static void create(const std::string& path, std::uint64_t bytes) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    TENUTO_ASSERT(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    ::close(fd);
  }

  void grow(std::uint64_t bytes) {
    TENUTO_ASSERT(bytes <= kBytesMax && ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
    bytes_ = bytes;
    pm::trace_map(base_, bytes_, fd_);
  }

  template <class T>
  T& at(std::uint64_t offset) const {
    return *reinterpret_cast<T*>(base_ + offset);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static constexpr std::uint64_t kBytesMax = 16u << 20;

  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace tenuto::test
