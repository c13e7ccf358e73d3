#include "fuzz/work_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "fuzz/input.h"

namespace tenuto::fuzz {

namespace {

constexpr std::uint64_t kKeptBytesMax = 4u << 20;

std::uint64_t size_of(int fd) {
  struct stat st {};
  FUZZ_REQUIRE(::fstat(fd, &st) == 0, "fstat of a pool file");
  return static_cast<std::uint64_t>(st.st_size);
}

// Skips holes unread, because a read would give each one a page.
Image image_of(int fd, std::uint64_t bytes) {
  Image image;
  image.bytes = bytes;
  struct stat st {};
  FUZZ_REQUIRE(::fstat(fd, &st) == 0, "fstat of a pool file");
  image.pages.reserve(static_cast<std::size_t>(st.st_blocks) * 512 / kFrameBytes);
  const std::array<std::byte, kFrameBytes> zero{};
  auto end = static_cast<off_t>(bytes);
  for (off_t at = ::lseek(fd, 0, SEEK_DATA); at >= 0 && at < end;) {
    const off_t hole = ::lseek(fd, at, SEEK_HOLE);
    for (; at < hole; at += static_cast<off_t>(kFrameBytes)) {
      auto& page = image.pages.emplace_back(static_cast<std::uint64_t>(at), zero).second;
      FUZZ_REQUIRE(::pread(fd, page.data(), page.size(), at) > 0, "pread of a pool file");
      // memcmp, because sanitizers make 4096 steps of ==.
      if (std::memcmp(page.data(), zero.data(), page.size()) == 0) image.pages.pop_back();
    }
    at = ::lseek(fd, hole, SEEK_DATA);
  }
  return image;
}

}  // namespace

WorkFile::WorkFile(std::uint64_t bytes_max)
    : fd_(::memfd_create("tenuto-fuzz", MFD_CLOEXEC)), bytes_max_(bytes_max) {
  FUZZ_REQUIRE(fd_ >= 0, "memfd_create");
  path_ = "/proc/self/fd/" + std::to_string(fd_);
  void* p = ::mmap(nullptr, bytes_max, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  FUZZ_REQUIRE(p != MAP_FAILED, "mmap");
  data_ = static_cast<std::byte*>(p);
}

WorkFile::~WorkFile() {
  ::munmap(data_, bytes_max_);
  ::close(fd_);
}

// Overwrites pages that exist, which costs a tenth of freeing them and getting new ones. If there
// are many, it frees them first.
void WorkFile::load(const Image& image) {
  struct stat st {};
  FUZZ_REQUIRE(::fstat(fd_, &st) == 0, "fstat of a pool file");
  if (st.st_blocks * 512 > static_cast<off_t>(kKeptBytesMax)) cut(0);
  cut(image.bytes);
  auto next = image.pages.begin();
  const auto fill_until = [&](std::uint64_t end) {
    for (; next != image.pages.end() && next->first < end; ++next) {
      std::memcpy(data_ + next->first, next->second.data(), kFrameBytes);
    }
  };
  const auto end = static_cast<off_t>(image.bytes);
  for (off_t at = ::lseek(fd_, 0, SEEK_DATA); at >= 0 && at < end;) {
    const off_t hole = std::min(::lseek(fd_, at, SEEK_HOLE), end);
    for (; at < hole; at += static_cast<off_t>(kFrameBytes)) {
      fill_until(static_cast<std::uint64_t>(at));
      const bool kept = next != image.pages.end() && next->first == static_cast<std::uint64_t>(at);
      if (!kept) std::memset(data_ + at, 0, kFrameBytes);
    }
    at = ::lseek(fd_, hole, SEEK_DATA);
  }
  fill_until(image.bytes);
}

void WorkFile::cut(std::uint64_t bytes) {
  FUZZ_REQUIRE(bytes <= bytes_max_ && ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0,
               "ftruncate");
}

Image WorkFile::image() const { return image_of(fd_, bytes()); }

std::uint64_t WorkFile::bytes() const { return size_of(fd_); }

Image read_image(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  FUZZ_REQUIRE(fd >= 0, "open " + path);
  Image image = image_of(fd, size_of(fd));
  ::close(fd);
  return image;
}

}  // namespace tenuto::fuzz
