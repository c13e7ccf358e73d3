#include "crash/explore_image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "pm/assert.h"

namespace TENUTO_NS::pm {

namespace {

bool same_bytes(const std::byte* a, const std::byte* b, std::uint64_t n) {
  return std::memcmp(a, b, n) == 0;
}

}  // namespace

ExploreImage::ExploreImage(const std::string& source, std::string path) : path_(std::move(path)) {
  const int from = ::open(source.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st {};
  TENUTO_ASSERT(from >= 0 && ::fstat(from, &st) == 0);  // the setup must have made the pool file
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  durable_fd_ = ::memfd_create("tenuto-crash", MFD_CLOEXEC);
  TENUTO_ASSERT(fd_ >= 0 && durable_fd_ >= 0);
  bytes_ = static_cast<std::uint64_t>(st.st_size);
  TENUTO_ASSERT(::fstat(fd_, &st) == 0);
  device_ = st.st_dev;
  inode_ = st.st_ino;
  map();
  // Pages of zeros stay holes, in memory too.
  const std::vector<std::byte> zeros(kFrameBytes);
  std::vector<std::byte> page(kFrameBytes);
  for (std::uint64_t at = 0; at < bytes_; at += kFrameBytes) {
    const ssize_t n = ::pread(from, page.data(), kFrameBytes, static_cast<off_t>(at));
    TENUTO_ASSERT(n > 0);
    const auto got = static_cast<std::size_t>(n);
    if (same_bytes(page.data(), zeros.data(), got)) continue;
    std::memcpy(file_ + at, page.data(), got);
    std::memcpy(durable_ + at, page.data(), got);
  }
  ::close(from);
}

ExploreImage::~ExploreImage() {
  ::munmap(file_, bytes_);
  ::munmap(durable_, bytes_);
  ::close(fd_);
  ::close(durable_fd_);
  ::unlink(path_.c_str());
}

void ExploreImage::map() {
  const auto length = static_cast<off_t>(bytes_);
  TENUTO_ASSERT(::ftruncate(fd_, length) == 0 && ::ftruncate(durable_fd_, length) == 0);
  const auto mapped = [&](int fd) {
    void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    TENUTO_ASSERT(p != MAP_FAILED);
    return static_cast<std::byte*>(p);
  };
  file_ = mapped(fd_);
  durable_ = mapped(durable_fd_);
}

void ExploreImage::resize(std::uint64_t bytes) {
  if (bytes <= bytes_) return;
  ::munmap(file_, bytes_);
  ::munmap(durable_, bytes_);
  bytes_ = bytes;
  map();
}

LineWords ExploreImage::durable_line(std::uint64_t line) const {
  LineWords words{};
  if ((line + 1) * kLineBytes <= bytes_) {
    std::memcpy(words.data(), durable_ + line * kLineBytes, kLineBytes);
  }
  return words;
}

void ExploreImage::set_durable(std::uint64_t line, const LineWords& words) {
  std::memcpy(durable_ + line * kLineBytes, words.data(), kLineBytes);
  std::memcpy(file_ + line * kLineBytes, words.data(), kLineBytes);
}

void ExploreImage::patch(std::uint64_t line, const LineWords& words) {
  const std::uint64_t at = line * kLineBytes;
  if (at + kLineBytes <= bytes_) {
    std::memcpy(file_ + at, words.data(), kLineBytes);
  } else {
    TENUTO_ASSERT(::pwrite(fd_, words.data(), kLineBytes, static_cast<off_t>(at)) ==
                  static_cast<ssize_t>(kLineBytes));
  }
}

void ExploreImage::restore(std::uint64_t line) {
  const std::uint64_t at = line * kLineBytes;
  if (at + kLineBytes <= bytes_) std::memcpy(file_ + at, durable_ + at, kLineBytes);
}

void ExploreImage::set_length(std::uint64_t bytes) {
  if (bytes > bytes_) TENUTO_ASSERT(::ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
}

void ExploreImage::restore_length() {
  struct stat st {};
  TENUTO_ASSERT(::fstat(fd_, &st) == 0);
  if (static_cast<std::uint64_t>(st.st_size) != bytes_) {
    TENUTO_ASSERT(::ftruncate(fd_, static_cast<off_t>(bytes_)) == 0);
  }
}

void ExploreImage::restore_all() {
  restore_length();
  for_each_frame(fd_, [&](std::uint64_t at) {
    const std::uint64_t n = std::min<std::uint64_t>(kFrameBytes, bytes_ - at);
    if (!same_bytes(file_ + at, durable_ + at, n)) std::memcpy(file_ + at, durable_ + at, n);
  });
}

// Asks the file system for holes, because reading them through the mapping would allocate pages.
void ExploreImage::for_each_frame(int file, const std::function<void(std::uint64_t)>& body) const {
  const auto next_data = [this](int fd, std::uint64_t from) {
    const off_t at = ::lseek(fd, static_cast<off_t>(from), SEEK_DATA);
    return at < 0 ? bytes_ : round_down(static_cast<std::uint64_t>(at), kFrameBytes);
  };
  std::uint64_t at = 0;
  while (at < bytes_) {
    at = std::min(next_data(file, at), next_data(durable_fd_, at));
    if (at < bytes_) body(at);
    at += kFrameBytes;
  }
}

std::optional<std::uint64_t> ExploreImage::difference() const {
  std::optional<std::uint64_t> found;
  for_each_frame(fd_, [&](std::uint64_t at) {
    const std::uint64_t n = std::min<std::uint64_t>(kFrameBytes, bytes_ - at);
    if (found || same_bytes(file_ + at, durable_ + at, n)) return;
    for (std::uint64_t l = at; l < at + n && !found; l += kLineBytes) {
      if (!same_bytes(file_ + l, durable_ + l, kLineBytes)) found = l / kLineBytes;
    }
  });
  return found;
}

bool ExploreImage::save(const std::string& path,
                        const std::vector<std::pair<std::uint64_t, LineWords>>& lines) const {
  const int to = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (to < 0) return false;
  bool good = ::ftruncate(to, static_cast<off_t>(bytes_)) == 0;
  const auto put = [&](const void* from, std::uint64_t n, std::uint64_t at) {
    good = good && ::pwrite(to, from, n, static_cast<off_t>(at)) == static_cast<ssize_t>(n);
  };
  for_each_frame(durable_fd_, [&](std::uint64_t at) {
    put(durable_ + at, std::min<std::uint64_t>(kFrameBytes, bytes_ - at), at);
  });
  for (const auto& [line, words] : lines) put(words.data(), kLineBytes, line * kLineBytes);
  return ::close(to) == 0 && good;
}

}  // namespace TENUTO_NS::pm
