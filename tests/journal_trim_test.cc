// Space that a pool on medium `journal` gives back: the file system gets it, memory too, it stays
// given back, and it can be used again.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "journal/lines.h"
#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/persist.h"
#include "tenuto/pool.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

class JournalTrim : public testing::TestWithParam<bool> {
 protected:
  JournalTrim() {
    options_.pool.medium = Medium::journal;
    options_.pool.journal.path = paths_.journal.str();
    options_.pool.journal.sync_every_ms = 0;
    if (GetParam()) options_.pool.heap.memory_max = 1;
  }
  ~JournalTrim() override { unplant_all(); }

  std::uint64_t on_disk() const { return blocks_on_disk(paths_.pool.str()); }
  static std::string key(int i) { return "key" + std::to_string(i); }
  static std::string value(int i) {
    const std::size_t bytes = i % 16 == 0 ? 40'000 : 1'000;
    return std::string(bytes, static_cast<char>('a' + i % 26));
  }

  // Some 110 MiB, of which one record in 200 stays.
  void fill_and_erase(Store& s) {
    for (int i = 0; i < kRecords; ++i) ASSERT_EQ(s.put(key(i), value(i), kBuffered), Status::ok);
    full_ = on_disk();
    for (int i = 0; i < kRecords; ++i) {
      if (i % 200 == 0) continue;
      ASSERT_EQ(s.erase(key(i), kBuffered), Status::ok);
    }
  }
  void expect_the_rest(Store& s) const {
    for (int i = 0; i < kRecords; i += 200) EXPECT_EQ(s.get(key(i)).value_or(""), value(i)) << i;
  }
  // The bytes of the pool's file after 4 MiB of records and extents have come and gone in a pool of
  // 16 MiB, and its other work went on.
  std::uint64_t after_a_trim() {
    auto s = Store::open(paths_.pool.str(), options_, &report_);
    EXPECT_TRUE(s) << report_.text();
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 1'000; ++i) EXPECT_EQ(s->put(key(i), value(i), kBuffered), Status::ok);
      for (int i = 10; i < 1'000; ++i) EXPECT_EQ(s->erase(key(i), kBuffered), Status::ok);
      EXPECT_TRUE(s->compact());
    }
    EXPECT_EQ(s->put("a", "1"), Status::ok);
    EXPECT_EQ(s->close(), Status::ok);
    return on_disk();
  }

  static constexpr int kRecords = 32'000;
  static constexpr WriteOptions kBuffered{Durability::buffered};
  JournalPaths paths_{"journal-trim"};
  StoreOptions options_;
  Report report_;
  std::uint64_t full_ = 0;
};

TEST_P(JournalTrim, gives_space_and_memory_back) {
  auto s = Store::open(paths_.pool.str(), options_, &report_);
  ASSERT_TRUE(s) << report_.text();
  fill_and_erase(*s);
  ASSERT_TRUE(s->compact()) << "compact";
  EXPECT_GT(full_, 100 * kMiB);
  EXPECT_LT(on_disk(), 24 * kMiB);
  EXPECT_LT(s->pool().stats().private_bytes, 24 * kMiB);
  expect_the_rest(*s);
  EXPECT_EQ(s->pool().validate(&report_), Status::ok) << report_.text();
  EXPECT_EQ(s->close(), Status::ok);
  EXPECT_LT(on_disk(), 24 * kMiB);
  s = Store::open(paths_.pool.str(), options_, &report_);
  ASSERT_TRUE(s) << report_.text();
  EXPECT_EQ(s->validate(&report_), Status::ok) << report_.text();
  expect_the_rest(*s);
  fill_and_erase(*s);
  EXPECT_GT(full_, 100 * kMiB);
  expect_the_rest(*s);
  EXPECT_EQ(s->close(), Status::ok);
}

// Two threads write and erase while a third trims.
TEST_P(JournalTrim, beside_threads_that_use_the_pool) {
  options_.pool.journal.sync_every_ms = 2;
  auto s = Store::open(paths_.pool.str(), options_, &report_);
  ASSERT_TRUE(s) << report_.text();
  constexpr int kThreads = 2, kRounds = 8, kKeys = 1'200;
  std::atomic<int> working = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        for (int i = t; i < kKeys; i += kThreads) {
          EXPECT_EQ(s->put(key(i), value(i + round), kBuffered), Status::ok);
        }
        for (int i = t; i < kKeys && round + 1 < kRounds; i += kThreads) {
          if (i % 50 < kThreads) continue;
          EXPECT_EQ(s->erase(key(i), kBuffered), Status::ok) << i;
        }
      }
      working -= 1;
    });
  }
  int trims = 0;
  for (; working != 0; ++trims) EXPECT_TRUE(s->compact());
  for (std::thread& t : threads) t.join();
  EXPECT_GT(trims, 2);
  for (int i = 0; i < kKeys; ++i) EXPECT_EQ(s->get(key(i)).value_or(""), value(i + kRounds - 1));
  EXPECT_EQ(s->validate(&report_), Status::ok) << report_.text();
  EXPECT_EQ(s->close(), Status::ok);
}

// A figure: TENUTO_TRIM_DIR=/a/disk TENUTO_TRIM_GB=10. In CI it is a tenth of a gigabyte in memory.
TEST_P(JournalTrim, ten_gigabytes_that_become_a_hundred_megabytes) {
  const char* const dir = std::getenv("TENUTO_TRIM_DIR");
  const char* const gb = std::getenv("TENUTO_TRIM_GB");
  if (dir != nullptr) options_.pool.journal.path.clear();
  options_.pool.journal.sync_every_ms = 100;
  const std::string path =
      dir == nullptr ? paths_.pool.str() : std::string(dir) + "/tenuto-trim-test";
  const double bytes = (gb == nullptr ? 0.1 : std::atof(gb)) * 1e9;
  const auto records = static_cast<int>(bytes / 1100);
  auto s = Store::open(path, options_, &report_);
  ASSERT_TRUE(s) << report_.text();
  const std::string text(1'000, 'x');
  for (int i = 0; i < records; ++i) ASSERT_EQ(s->put(key(i), text, kBuffered), Status::ok);
  const std::uint64_t full = s->pool().stats().disk_bytes;
  for (int i = 0; i < records; ++i) {
    if (i % 100 == 0) continue;
    ASSERT_EQ(s->erase(key(i), kBuffered), Status::ok);
  }
  ASSERT_TRUE(s->compact());
  const PoolStats after = s->pool().stats();
  std::printf("on disk %.0f MB, then %.0f MB for %.0f MB of values; private memory %.0f MB\n",
              static_cast<double>(full) / 1e6, static_cast<double>(after.disk_bytes) / 1e6,
              static_cast<double>(records / 100) * 1e-3,
              static_cast<double>(after.private_bytes) / 1e6);
  EXPECT_LT(after.disk_bytes, full / 50 + 16 * kMiB);
  EXPECT_EQ(s->close(), Status::ok);
  if (dir == nullptr) return;
  ::unlink(path.c_str());
  ::unlink((path + ".journal").c_str());
}

INSTANTIATE_TEST_SUITE_P(Records, JournalTrim, testing::Bool());

// A checkpoint writes a page between two others if that is cheaper than two writes. Not into a
// hole.
TEST(JournalHoles, stay_between_pages_that_a_checkpoint_writes) {
  const TempPath path("journal-holes");
  const auto blocks_after = [&] {
    const int fd = ::open(path.str().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const std::string page(kFrameBytes, 'x');
    for (const off_t at : {0, 3, 4, 8}) {
      EXPECT_EQ(::pwrite(fd, page.data(), page.size(), at * 4096), 4096);
    }
    const std::array<std::byte, kLineBytes> image{std::byte{1}};
    const std::array<pm::LineImage, 3> images = {
        {{5, image.data()}, {4 * 64 + 63, image.data()}, {8 * 64, image.data()}}};
    std::uint64_t written = 0;
    EXPECT_EQ(pm::write_to_pool(fd, images, 1, &written), Status::ok);
    std::string there(9 * kFrameBytes, 0);
    EXPECT_EQ(::pread(fd, there.data(), there.size(), 0), static_cast<ssize_t>(there.size()));
    std::string wanted(9 * kFrameBytes, '\0');
    for (const std::size_t p : {0u, 3u, 4u, 8u}) wanted.replace(p * 4096, 4096, page);
    for (const pm::LineImage& i : images) {
      wanted.replace(i.line * kLineBytes, kLineBytes, "\1" + std::string(kLineBytes - 1, '\0'));
    }
    EXPECT_TRUE(there == wanted);
    ::close(fd);
    return blocks_on_disk(path.str());
  };
  EXPECT_EQ(blocks_after(), 4 * kFrameBytes);
#ifdef TENUTO_DEBUG_CHECKS
  plant("journal_gaps_fill_holes");
  EXPECT_GT(blocks_after(), 4 * kFrameBytes);
  unplant_all();
#endif
}

// An object is freed, and its pages are given back. Then the process is killed. Returns how many of
// the objects that the pool still has are damaged.
class JournalKilledTrim : public testing::Test {
 protected:
  static constexpr std::array<std::size_t, 3> kBytes = {1'000, 40'000, 3u << 20};
  static constexpr std::size_t kObjects = 66;  // small ones fill a slab, and it is given back

  JournalKilledTrim() {
    options_.medium = Medium::journal;
    options_.journal.path = paths_.journal.str();
    options_.journal.sync_every_ms = 0;
    options_.durability = Durability::buffered;
  }
  ~JournalKilledTrim() override { unplant_all(); }

  using Root = std::array<std::array<Ptr<char>, kObjects>, kBytes.size()>;
  static std::size_t count(std::size_t size) { return size == 0 ? kObjects : 3; }
  static char byte_of(std::size_t size, std::size_t i) {
    return static_cast<char>('a' + size * 7 + i % 7);
  }

  bool make() {
    auto p = Pool::create(paths_.pool.str(), options_, &report_);
    if (!p) return false;
    Root& root = *p->root<Root>("trim").value();
    for (std::size_t size = 0; size < kBytes.size(); ++size) {
      for (std::size_t i = 0; i < count(size); ++i) {
        if (p->malloc_to(kBytes[size], root[size][i]) != Status::ok) return false;
        std::memset(root[size][i].get(), byte_of(size, i), kBytes[size]);
        flush_bytes(root[size][i].get(), kBytes[size]);
        fence("object", "its pool is closed");
      }
    }
    return p->close() == Status::ok;
  }
  void free_trim_and_die() {
    run_and_kill([&] {
      auto p = Pool::open(paths_.pool.str(), options_);
      if (!p) return false;
      Root& root = *p->root<Root>("trim").value();
      for (std::size_t size = 0; size < kBytes.size(); ++size) {
        for (std::size_t i = 0; i < count(size); ++i) {
          if (p->free_from(root[size][i]) != Status::ok) return false;
        }
      }
      if (p->trim() != Status::ok) return false;
      std::_Exit(0);
    });
  }
  std::size_t damaged() {
    auto p = Pool::open(paths_.pool.str(), options_, &report_);
    EXPECT_TRUE(p) << report_.text();
    if (!p) return 0;
    EXPECT_EQ(p->validate(&report_), Status::ok) << report_.text();
    const Root& root = *p->root<Root>("trim").value();
    std::size_t n = 0;
    for (std::size_t size = 0; size < kBytes.size(); ++size) {
      for (std::size_t i = 0; i < count(size); ++i) {
        const char* at = root[size][i].get();
        if (at == nullptr) continue;
        n += std::any_of(at, at + kBytes[size], [&](char c) { return c != byte_of(size, i); });
      }
    }
    return n;
  }

  JournalPaths paths_{"journal-killed-trim"};
  PoolOptions options_;
  Report report_;
};

TEST_F(JournalKilledTrim, takes_no_object_that_comes_back) {
  ASSERT_TRUE(make()) << report_.text();
  free_trim_and_die();
  EXPECT_EQ(damaged(), 0u);
}

#ifdef TENUTO_DEBUG_CHECKS
TEST_F(JournalKilledTrim, a_hole_before_its_free_is_durable_is_found) {
  ASSERT_TRUE(make()) << report_.text();
  plant("journal_hole_before_its_free_is_durable");
  free_trim_and_die();
  EXPECT_GT(damaged(), 0u);
}

TEST_P(JournalTrim, memory_that_a_hole_keeps_is_found) {
  const auto private_bytes = [&] {
    auto s = Store::open(paths_.pool.str(), options_, &report_);
    EXPECT_TRUE(s) << report_.text();
    for (int i = 0; i < 1'000; ++i) EXPECT_EQ(s->put(key(i), value(i), kBuffered), Status::ok);
    for (int i = 10; i < 1'000; ++i) EXPECT_EQ(s->erase(key(i), kBuffered), Status::ok);
    EXPECT_TRUE(s->compact());
    return s->pool().stats().private_bytes;
  };
  const std::uint64_t right = private_bytes();
  ::unlink(paths_.pool.str().c_str());
  ::unlink(paths_.journal.str().c_str());
  plant("journal_hole_keeps_its_memory");
  EXPECT_GT(private_bytes(), right + kMiB / 2);
}

TEST_P(JournalTrim, images_that_fill_holes_again_are_found) {
  options_.pool.size = 16 * kMiB;
  const std::uint64_t right = after_a_trim();
  ::unlink(paths_.pool.str().c_str());
  ::unlink(paths_.journal.str().c_str());
  plant("journal_images_of_holes_kept");
  EXPECT_GT(after_a_trim(), right + kMiB / 2);
}
#endif

}  // namespace
}  // namespace tenuto::test
