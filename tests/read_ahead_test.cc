// PoolFile::read_ahead: who waits for a disk asks for many pages at once, and nobody else does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "file/pool_file.h"
#include "pm/os.h"
#include "support/pool_parts.h"

namespace tenuto {
namespace {

using test::PoolParts;

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kPages = 40;
constexpr std::uint64_t kDistance = 64;  // pages: further than the kernel reads ahead by itself
constexpr std::uint64_t kStart = 4u << 20;

// A closed pool on the disk of the working directory, with pages that hold data. Nothing of it is
// in memory.
class ReadAhead : public testing::Test {
 protected:
  ReadAhead()
      : path_(std::filesystem::current_path() /
              ("read-ahead-" + std::to_string(::getpid()) + ".pool")) {}
  void SetUp() override {
    const int directory = ::open(path_.parent_path().c_str(), O_RDONLY | O_CLOEXEC);
    const bool no_disk = pm::is_in_memory(directory);
    ::close(directory);
    if (no_disk) GTEST_SKIP() << "no disk here";
    options_.medium = Medium::cache;
    ASSERT_EQ(pool_.create(path_.string(), options_), Status::ok) << pool_.report.text();
    for (std::uint64_t i = 0; i <= kPages; ++i) {
      *pool_.file->at<std::uint64_t>(place(i)) = i + 1;
    }
    ASSERT_EQ(pool_.close(), Status::ok);
    fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(::fsync(fd_), 0);
    ASSERT_EQ(::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED), 0);
    ASSERT_EQ(::posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM), 0);
    auto opened = pm::PoolFile::open(path_.string(), options_, &pool_.report);
    ASSERT_TRUE(opened) << pool_.report.text();
    pool_.file = std::move(*opened);
    for (std::uint64_t i = 0; i < kPages; ++i) places_.push_back(place(i));
    if (in_memory() != 0) GTEST_SKIP() << "the kernel keeps the pages in memory";
  }
  void TearDown() override {
    if (fd_ >= 0) ::close(fd_);
    pool_.crash();
    std::filesystem::remove(path_);
  }

  static PoolOffset place(std::uint64_t i) { return {kStart + i * kDistance * kPageBytes}; }
  void read_ahead() const { pool_.file->read_ahead(places_.data(), places_.size()); }
  // Until the calling thread asks no more.
  void settle() const {
    for (int i = 0; i < 8; ++i) pool_.file->read_ahead(places_.data(), 0);
  }
  // How many of the pages are in memory.
  std::size_t in_memory() const {
    std::size_t n = 0;
    for (std::uint64_t i = 0; i < kPages; ++i) {
      const auto at = static_cast<off_t>(place(i).value);
      void* const p = ::mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fd_, at);
      unsigned char there = 0;
      EXPECT_EQ(::mincore(p, kPageBytes, &there), 0);
      n += there & 1;
      ::munmap(p, kPageBytes);
    }
    return n;
  }

  const std::filesystem::path path_;
  PoolOptions options_ = PoolParts::small_options();
  PoolParts pool_;
  std::vector<PoolOffset> places_;
  int fd_ = -1;
};

TEST_F(ReadAhead, a_thread_that_waits_for_no_disk_asks_for_nothing) {
  settle();
  read_ahead();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(in_memory(), 0u);
}

TEST_F(ReadAhead, after_a_wait_all_pages_are_asked_for) {
  settle();
  const std::uint64_t before = pm::disk_reads();
  std::uint64_t word = 0;
  ASSERT_EQ(::pread(fd_, &word, sizeof word, static_cast<off_t>(place(kPages).value)), 8);
  ASSERT_EQ(word, kPages + 1);
  if (pm::disk_reads() == before) GTEST_SKIP() << "the kernel does not count reads by thread";
  read_ahead();
  for (int i = 0; i < 500 && in_memory() < kPages; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(in_memory(), kPages);
}

}  // namespace
}  // namespace tenuto
