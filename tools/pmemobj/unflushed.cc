// What a program stored and did not flush, at a clean close. libpmemobj's pools are shared
// mappings, so it is in the file. On medium `journal` a pool is a private mapping, and only lines
// that were flushed get to the file. So the close compares each page that is a private copy with
// the file, and flushes the lines that differ. A processor may write any line of its cache to
// memory at any time, so the protocols allow it for every line. Cost: a read of the file for each
// page that was written since the open.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tenuto/persist.h"
#include "tools/pmemobj/pools.h"

namespace TENUTO_NS::pmemobj {

namespace {

constexpr std::size_t kPage = kFrameBytes;  // of the processor, too
constexpr std::size_t kPiecePages = 512;

// Bytes behind the end of the file are zeros.
bool read_at(int fd, void* to, std::size_t bytes, std::uint64_t at) {
  std::memset(to, 0, bytes);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd, static_cast<std::byte*>(to) + done, bytes - done,
                              static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) return true;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

// Which pages of the process are private copies. The kernel may not tell: then each may be one.
class PageMap {
 public:
  PageMap() : fd_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  ~PageMap() {
    if (fd_ >= 0) ::close(fd_);
  }
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  void look_at(const std::byte* first, std::size_t pages) {
    const std::uint64_t number = reinterpret_cast<std::uintptr_t>(first) / kPage;
    known_ = fd_ >= 0 && read_at(fd_, entries_.data(), 8 * pages, 8 * number);
  }
  // Documentation of the kernel, admin-guide/mm/pagemap: bit 63 in memory, 62 swapped, 61 of a
  // file.
  bool may_be_copy(std::size_t i) const {
    if (!known_) return true;
    const bool in_memory = (entries_[i] >> 63 & 1) != 0;
    const bool swapped = (entries_[i] >> 62 & 1) != 0;
    const bool of_a_file = (entries_[i] >> 61 & 1) != 0;
    return swapped || (in_memory && !of_a_file);
  }

 private:
  const int fd_;
  bool known_ = false;
  std::array<std::uint64_t, kPiecePages> entries_{};
};

void flush_differences(const std::byte* page, const std::byte* in_file) {
  if (std::memcmp(page, in_file, kPage) == 0) return;
  for (std::size_t at = 0; at < kPage; at += kLineBytes) {
    if (std::memcmp(page + at, in_file + at, kLineBytes) != 0) flush_bytes(page + at, kLineBytes);
  }
}

}  // namespace

bool flush_unflushed(OpenPool& pool) {
  const pm::PoolFile& file = pool.file();
  if (file.medium() != Medium::journal || file.writable() != Status::ok) return true;
  PageMap map;
  std::vector<std::byte> in_file(kPage);
  const std::uint64_t pages = file.bytes() / kPage;
  for (std::uint64_t first = 0; first < pages; first += kPiecePages) {
    const std::size_t n = std::min<std::uint64_t>(kPiecePages, pages - first);
    map.look_at(pool.base + first * kPage, n);
    for (std::size_t i = 0; i < n; ++i) {
      if (!map.may_be_copy(i)) continue;
      const std::uint64_t at = (first + i) * kPage;
      if (!read_at(file.fd(), in_file.data(), kPage, at)) return false;
      flush_differences(pool.base + at, in_file.data());
    }
  }
  fence("what the program did not flush", "the close");
  return true;
}

}  // namespace TENUTO_NS::pmemobj
