// Pages of 2 MiB for pools in memory: which pools get them, that nothing else changes, and that
// memory that was given back stays away. Where the kernel cannot do it the tests are skipped.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "frame_pool.h"
#include "heap/frame_source.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/sanitizer.h"
#include "support/kv_fixture.h"
#include "tenuto/rescue.h"

namespace tenuto::test {
namespace {

using namespace std::chrono_literals;
using tests::FramePool;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kPoolBytes = 64 * kMiB;
constexpr std::uint64_t kHugeFrames = kHugeBytes / kFrameBytes;
constexpr auto kPatience = 60s;

// Empty, or why this machine has no large pages to give.
std::string refused() {
  const TempPath path("large-probe");
  std::string hidden;
  const int fd = pm::make_nameless(path.str(), 0600, hidden);
  Report why;
  int error = 0;
  if (pm::reserve_space(fd, 0, kHugeBytes, path.str(), &why) == Status::ok) {
    void* const at = ::mmap(nullptr, 2 * kHugeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* const aligned =
        reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(at), kHugeBytes));
    ::mmap(aligned, kHugeBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    error = pm::make_large(aligned, kHugeBytes);
    ::munmap(at, 2 * kHugeBytes);
  } else {
    error = ENOSPC;
  }
  ::close(fd);
  return error == 0 ? "" : std::string("no large pages here: ") + ::strerrordesc_np(error);
}

bool in_time(const std::function<bool()>& done) {
  for (const auto end = std::chrono::steady_clock::now() + kPatience; !done();) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

std::size_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

class LargePages : public KvFixture {
 protected:
  LargePages() { options_.pool.size = kPoolBytes; }
  void SetUp() override {
    if (const std::string why = refused(); !why.empty()) GTEST_SKIP() << why;
  }
  void TearDown() override { unplant_all(); }

  static void put(Store& s, int from, int to) {
    const std::string value(1000, 'v');
    for (int i = from; i < to; ++i) ASSERT_EQ(s.put(key_of(i), value + key_of(i)), Status::ok);
  }
  static void expect_records(const Store& s, int from, int to) {
    std::string value;
    for (int i = from; i < to; ++i) {
      ASSERT_EQ(s.get(key_of(i), value), Status::ok) << i;
      ASSERT_EQ(value, std::string(1000, 'v') + key_of(i));
    }
    expect_valid(s);
  }
  static bool all_large(const Store& s) {
    return in_time([&] {
      const PoolStats stats = s.pool().stats();
      return stats.large_bytes == stats.file_bytes;
    });
  }
};

TEST_F(LargePages, a_pool_gets_them_while_it_is_used_and_keeps_its_records) {
  Store s = opened();
  put(s, 0, 20'000);
  EXPECT_TRUE(all_large(s)) << s.pool().stats().large_bytes;
  expect_records(s, 0, 20'000);
  EXPECT_EQ(s.pool().stats().disk_bytes, s.pool().stats().file_bytes);
  EXPECT_EQ(s.close(), Status::ok);
  // Another open finds the records, and maps the same pages, also one that only reads.
  options_.pool.read_only = true;
  Store reader = opened();
  EXPECT_EQ(reader.pool().stats().large_bytes, kPoolBytes);
  expect_records(reader, 0, 20'000);
}

TEST_F(LargePages, an_old_pool_gets_them_after_its_open) {
  options_.pool.large_pages = false;
  {
    Store s = opened();
    put(s, 0, 20'000);
    EXPECT_EQ(s.pool().stats().large_bytes, 0u);
  }
  options_.pool.large_pages = true;
  Store s = opened();
  EXPECT_TRUE(all_large(s)) << s.pool().stats().large_bytes;
  expect_records(s, 0, 20'000);
}

TEST_F(LargePages, growth_steps_get_them) {
  Store s = opened();
  put(s, 0, 100'000);
  EXPECT_GT(s.pool().stats().file_bytes, kPoolBytes);
  EXPECT_TRUE(all_large(s)) << s.pool().stats().large_bytes;
  expect_records(s, 0, 100'000);
}

// Each with the number of threads that it starts.
TEST_F(LargePages, only_large_pools_in_memory_that_want_them_have_a_thread) {
  struct Case {
    const char* what;
    std::function<void(PoolOptions&)> set;
    std::size_t threads;
  };
  const Case cases[] = {
      {"as it comes", [](PoolOptions&) {}, 1},
      {"small", [](PoolOptions& o) { o.size = 16 * kMiB; }, 0},
      {"not wanted", [](PoolOptions& o) { o.large_pages = false; }, 0},
      {"its own commits and checkpoints", [](PoolOptions& o) { o.medium = Medium::journal; }, 2},
  };
  for (const Case& c : cases) {
    const TempPath path("large-case");
    const TempPath journal("large-case.journal");
    PoolOptions o = options_.pool;
    o.recovery_threads = 1;
    c.set(o);
    const std::size_t before = threads();
    Result<Pool> pool = Pool::create(path.str(), o);
    ASSERT_TRUE(pool) << c.what;
    EXPECT_EQ(threads() - before, c.threads) << c.what;
    EXPECT_EQ(pool->close(), Status::ok);
    EXPECT_EQ(threads(), before) << c.what;
  }
}

TEST_F(LargePages, a_pool_is_closed_while_they_are_made) {
  for (int i = 0; i < 20; ++i) {
    const TempPath path("large-close");
    Result<Pool> pool = Pool::create(path.str(), options_.pool);
    ASSERT_TRUE(pool);
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    EXPECT_EQ(pool->close(), Status::ok);
  }
}

// A flipped bit of the zone count hides the last zone. Nothing is cut off, so a rescue still has
// it.
TEST_F(LargePages, a_zone_that_is_not_counted_is_left_for_a_rescue) {
  std::uint64_t zones = 0;
  const auto at = static_cast<off_t>(pm::kHeadPageOffset + offsetof(pm::HeadPage, zone_count));
  int n = 0;
  {
    Store s = opened();
    for (; s.pool().stats().file_bytes < kPoolBytes + 64 * kMiB; n += 1000) put(s, n, n + 1000);
    put(s, n, n + 10'000);
    n += 10'000;
    EXPECT_EQ(s.close(), Status::ok);
  }
  const int fd = ::open(path_.str().c_str(), O_RDWR);
  ASSERT_EQ(::pread(fd, &zones, sizeof zones, at), 8);
  ASSERT_GE(zones, 3u);
  zones -= 1;
  ASSERT_EQ(::pwrite(fd, &zones, sizeof zones, at), 8);
  ::close(fd);
  {
    Result<Store> s = open();  // whatever it finds
    if (s) static_cast<void>(s->close());
  }
  const TempPath fresh("large-rescued");
  RescueResult result;
  ASSERT_EQ(rescue(path_.str(), fresh.str(), {}, result, &report_), Status::ok) << report_.text();
  Result<Store> s = Store::open(fresh.str(), options_, &report_);
  ASSERT_TRUE(s) << report_.text();
  expect_records(*s, 0, n);
}

// --- holes ---------------------------------------------------------------------------------------

// Erases nearly all but the first records, and gives the memory back: the rest has holes.
std::uint64_t trimmed(Store& s) {
  for (int i = 15'000; i < 50'000; ++i) {
    if (i % 1000 == 0) continue;
    EXPECT_EQ(s.erase(key_of(i)), Status::ok);
  }
  EXPECT_EQ(s.pool().trim(), Status::ok);
  return s.pool().stats().disk_bytes;
}

// How much a pool whose memory was given back grows on the file system from its close until `until`
// holds. The close itself writes an image of the leaves.
std::uint64_t growth_of_trimmed(const std::string& path, const std::function<Store()>& open,
                                const std::function<bool(const Store&, std::uint64_t)>& until) {
  {
    Store s = open();
    const std::string value(1000, 'v');
    for (int i = 0; i < 50'000; ++i) EXPECT_EQ(s.put(key_of(i), value), Status::ok);
    EXPECT_LT(trimmed(s), s.pool().stats().file_bytes - 24 * kMiB);
    EXPECT_EQ(s.close(), Status::ok);
  }
  struct ::stat closed {};
  EXPECT_EQ(::stat(path.c_str(), &closed), 0);
  const std::uint64_t disk = static_cast<std::uint64_t>(closed.st_blocks) * 512;
  Store s = open();
  EXPECT_TRUE(in_time([&] { return until(s, disk); }));
  return s.pool().stats().disk_bytes - disk;
}

TEST_F(LargePages, memory_that_was_given_back_stays_away) {
  std::uint64_t large = 0;
  int same = 0;
  // Until the thread has joined what it will.
  const auto settled = [&](const Store& s, std::uint64_t) {
    std::this_thread::sleep_for(20ms);
    const std::uint64_t now = s.pool().stats().large_bytes;
    same = now == large && now > 0 ? same + 1 : 0;
    large = now;
    return same == 10;
  };
  EXPECT_EQ(growth_of_trimmed(
                path_.str(), [&] { return opened(); }, settled),
            0u);
}

TEST_F(LargePages, a_thread_that_joins_holes_is_found) {
  const auto grown = [](const Store& s, std::uint64_t disk) {
    return s.pool().stats().disk_bytes > disk;
  };
  plant("heap_holes_joined");
  EXPECT_GT(growth_of_trimmed(
                path_.str(), [&] { return opened(); }, grown),
            0u);
}

// --- the parts -----------------------------------------------------------------------------------

struct Parts {
  FramePool pool{kPoolBytes};
  heap::FrameSource source{*pool.file, *pool.frames};
  std::uint64_t huge_frames = kPoolBytes / kHugeBytes;

  bool large(std::uint64_t huge) { return source.holes().is_large(huge); }
  bool whole(std::uint64_t huge) {
    return source.holes().count(huge * kHugeFrames, kHugeFrames) == 0;
  }
  bool all_large(bool with_holes = true) {
    for (std::uint64_t h = 0; h < huge_frames; ++h) {
      if (!large(h) && (with_holes || whole(h))) return false;
    }
    return true;
  }
};

TEST_F(LargePages, a_huge_frame_that_lost_a_page_is_large_again_when_it_was_filled) {
  Parts p;
  p.source.large().start();
  ASSERT_TRUE(in_time([&] { return p.all_large(); }));
  EXPECT_EQ(p.pool.file->mapped().large, kPoolBytes);
  const Result<PoolOffset> o = p.source.get(frame::kOrderSlab, 0);
  ASSERT_TRUE(o);
  const std::uint64_t frame = frame_of_offset(*o).value;
  const std::uint64_t disk = p.pool.file->bytes_on_disk();
  ASSERT_EQ(p.source.holes().punch(frame, 16, true), Status::ok);
  EXPECT_FALSE(p.large(frame / kHugeFrames));
  EXPECT_EQ(p.pool.file->mapped().large, kPoolBytes - kHugeBytes);
  EXPECT_EQ(disk - p.pool.file->bytes_on_disk(), 64u << 10);
  p.source.large().look();  // in vain
  ASSERT_EQ(p.source.fill(frame, 8), Status::ok);
  EXPECT_FALSE(p.large(frame / kHugeFrames)) << "half is missing";
  ASSERT_EQ(p.source.fill(frame, 16), Status::ok);
  EXPECT_TRUE(in_time([&] { return p.all_large(); }));
  EXPECT_EQ(p.pool.file->mapped().large, kPoolBytes);
}

// A huge frame that loses a page and gets it back all the time.
class BusyFrame {
 public:
  explicit BusyFrame(Parts& p) : p_(p) {
    p.source.large().start();
    EXPECT_TRUE(in_time([&] { return p.all_large(); }));
    frame_ = frame_of_offset(*p.source.get(frame::kOrderSlab, 0)).value;
  }
  // Whether it is joined meanwhile.
  bool is_joined() {
    EXPECT_EQ(p_.source.holes().punch(frame_, 16, true), Status::ok);
    EXPECT_EQ(p_.source.fill(frame_, 16), Status::ok);
    std::this_thread::sleep_for(10ms);
    return p_.large(frame_ / kHugeFrames);
  }

 private:
  Parts& p_;
  std::uint64_t frame_ = 0;
};

TEST_F(LargePages, where_memory_comes_and_goes_it_is_not_joined_each_time) {
  Parts p;
  p.source.large().set_rest_ms(3'600'000);
  BusyFrame busy(p);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(busy.is_joined());
}

// Sooner or later: where other programs run, the thread that joins waits for them.
TEST_F(LargePages, joins_without_a_rest_are_found) {
  plant("heap_joins_without_a_rest");
  Parts p;
  BusyFrame busy(p);
  EXPECT_TRUE(in_time([&] { return busy.is_joined(); }));
}

// While a huge frame is joined nothing is punched: a call of a user goes on, and trim waits.
TEST_F(LargePages, nothing_is_punched_while_pages_are_joined) {
  Parts p;
  heap::Holes& holes = p.source.holes();
  std::atomic<bool> trimmed = false;
  std::thread trim;
  EXPECT_EQ(holes.join(5,
                       [&] {
                         std::thread([&] {
                           EXPECT_EQ(holes.punch(6 * kHugeFrames, 1, false), Status::busy);
                           EXPECT_EQ(holes.join(7, [] { return true; }), Status::busy);
                         }).join();
                         trim = std::thread([&] {
                           EXPECT_EQ(holes.punch(5 * kHugeFrames, 1, true), Status::ok);
                           trimmed = true;
                         });
                         std::this_thread::sleep_for(20ms);
                         EXPECT_FALSE(trimmed);
                         return true;
                       }),
            Status::ok);
  trim.join();
  EXPECT_FALSE(holes.is_large(5)) << "it was punched behind the join";
  EXPECT_EQ(holes.join(5, [] { return true; }), Status::not_found);
}

// Frames lose their pages and get them back in several threads, while the thread joins. In the end
// the file has the pages that it should have.
TEST_F(LargePages, joins_and_punches_in_many_threads_agree) {
  Parts p;
  p.source.large().set_rest_ms(0);
  p.source.large().start();
  std::atomic<std::uint64_t> missing = 0;
  const auto work = [&](unsigned core) {
    std::vector<PoolOffset> mine;
    for (int i = 0; i < 300; ++i) {
      const Result<PoolOffset> o = p.source.get(frame::kOrderSlab, core);
      ASSERT_TRUE(o);
      const std::uint64_t frame = frame_of_offset(*o).value;
      if (p.source.holes().punch(frame, 16, i % 2 == 0) != Status::ok) {
        p.source.put(*o, frame::kOrderSlab, core);
      } else if (i % 3 != 0) {
        ASSERT_EQ(p.source.fill(frame, 16), Status::ok);
        p.source.put(*o, frame::kOrderSlab, core);
      } else {
        missing += 16 * kFrameBytes;  // and the frame stays taken
      }
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  p.source.large().look();
  ASSERT_TRUE(in_time([&] { return p.all_large(false); }));
  p.source.large().stop();
  EXPECT_EQ(p.pool.file->bytes_on_disk(), kPoolBytes - missing);
}

// --- a full file system --------------------------------------------------------------------------

// How many records fit, on a tmpfs that is as large as this.
int records_until_full(const std::string& path, StoreOptions options, bool large_pages) {
  options.pool.large_pages = large_pages;
  Result<Store> s = Store::open(path, options);
  EXPECT_TRUE(s);
  const std::string value(10'000, 'v');
  int n = 0;
  Status status = Status::ok;
  while ((status = s->put(key_of(n), value)) == Status::ok) ++n;
  EXPECT_EQ(status, Status::full);
  Report r;
  EXPECT_EQ(s->validate(&r), Status::ok) << r.text();
  for (int i = 0; i < n; ++i) EXPECT_EQ(s->contains(key_of(i)), Status::ok);
  EXPECT_EQ(s->close(), Status::ok);
  ::unlink(path.c_str());
  return n;
}

TEST_F(LargePages, a_full_file_system_holds_as_much_as_without_them) {
  const TempPath directory("large-full");
  ASSERT_EQ(::mkdir(directory.str().c_str(), 0755), 0);
  if (::mount("tenuto", directory.str().c_str(), "tmpfs", 0, "size=200m") != 0) {
    ::rmdir(directory.str().c_str());
    GTEST_SKIP() << "may not mount";
  }
  const int without = records_until_full(directory.str() + "/pool", options_, false);
  const int with = records_until_full(directory.str() + "/pool", options_, true);
  EXPECT_EQ(::umount(directory.str().c_str()), 0);
  ::rmdir(directory.str().c_str());
  EXPECT_GT(without, 10'000);
  EXPECT_GE(with, without - without / 50);
}

// --- fork ----------------------------------------------------------------------------------------

// Whether a child finds a join under way, at any of many forks while the thread is busy.
bool child_in_a_join(Parts& p, int forks) {
  p.source.large().set_rest_ms(0);
  p.source.large().start();
  heap::Holes& holes = p.source.holes();
  for (int i = 0; i < forks; ++i) {
    if (p.all_large()) {
      for (std::uint64_t h = 1; h < p.huge_frames; ++h) {
        EXPECT_EQ(holes.punch(h * kHugeFrames + 16, 1, true), Status::ok);
        EXPECT_EQ(p.source.fill(h * kHugeFrames + 16, 1), Status::ok);
      }
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(holes.join(0, [] { return false; }) == Status::busy ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return true;
  }
  return false;
}

TEST_F(LargePages, no_child_is_forked_in_the_middle_of_a_join) {
  Parts p;
  EXPECT_FALSE(child_in_a_join(p, 200));
}

TEST_F(LargePages, a_thread_that_does_not_stop_for_fork_is_found) {
  plant("heap_pages_joined_beside_fork");
  Parts p;
  EXPECT_TRUE(child_in_a_join(p, 20000)) << "looked for until it is found";
}

// A child leaves its parent's pool alone and has a pool of its own, with large pages. With TSan a
// child may have no threads, so the pool is a small one there.
TEST_F(LargePages, parent_and_child_have_pools_of_their_own) {
  Store s = opened();
  put(s, 0, 1000);
  const pid_t child = ::fork();
  if (child == 0) {
    const TempPath path("large-child");
#if TENUTO_TSAN
    options_.pool.size = 16 * kMiB;
#endif
    const bool small = options_.pool.size < kPoolBytes;
    Result<Pool> pool = Pool::create(path.str(), options_.pool);
    const auto large = [&] { return small || pool->stats().large_bytes == kPoolBytes; };
    const bool grew = pool && in_time(large);
    ::_exit(grew && s.put("a", "b") == Status::forked && pool->close() == Status::ok ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(all_large(s));
  expect_records(s, 0, 1000);
}

}  // namespace
}  // namespace tenuto::test
