// Space for the next growth is prepared before it is needed, in pools in memory (file/ahead.cc),
// and whoever needs that space for something else gets it.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "frame_pool.h"
#include "heap/frame_source.h"
#include "pm/os.h"
#include "pm/plant.h"

namespace {

using namespace tenuto;
using namespace std::chrono_literals;
using tests::FramePool;

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kPoolBytes = 64 * kMiB;
constexpr auto kPatience = 60s;

bool in_time(const std::function<bool()>& done) {
  for (const auto end = std::chrono::steady_clock::now() + kPatience; !done();) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

std::uint64_t length_of(const std::string& path) {
  struct stat st {};
  EXPECT_EQ(::stat(path.c_str(), &st), 0);
  return static_cast<std::uint64_t>(st.st_size);
}

class GrowthAhead : public testing::Test {
 protected:
  explicit GrowthAhead(std::uint64_t bytes = kPoolBytes) : pool_(bytes) { open_source(); }
  ~GrowthAhead() override { unplant_all(); }

  void open_source() { source_.emplace(*pool_.file, *pool_.frames); }
  pm::PoolFile& file() { return *pool_.file; }
  std::uint64_t prepared() { return file().prepared_bytes(); }
  // Takes frames of 64 KiB until less than `bytes` are free.
  void take_until_free(std::uint64_t bytes) {
    while (pool_.free() * kFrameBytes >= bytes) take();
  }
  PoolOffset take() {
    const Result<PoolOffset> o = source_->get(frame::kOrderSlab, 0);
    EXPECT_TRUE(o);
    std::memset(file().at<void>(*o), 1, kSlab);  // it has pages
    return *o;
  }
  // The next growth is prepared.
  void prepare_all() {
    source_->large().start();
    take_until_free(file().growth_bytes() / 4);
    EXPECT_TRUE(in_time([&] { return prepared() == file().growth_bytes(); }));
  }

  static constexpr std::uint64_t kSlab = kFrameBytes << frame::kOrderSlab;
  FramePool pool_;
  std::optional<heap::FrameSource> source_;
};

class SmallGrowthAhead : public GrowthAhead {
 protected:
  SmallGrowthAhead() : GrowthAhead(8 * kMiB) {}
};

TEST_F(GrowthAhead, a_growth_finds_its_space_reserved) {
  prepare_all();
  const std::uint64_t step = file().growth_bytes();
  const std::uint64_t disk = file().bytes_on_disk();
  EXPECT_EQ(disk, kPoolBytes + step);
  EXPECT_EQ(file().bytes(), kPoolBytes);
  while (file().bytes() == kPoolBytes) take();
  EXPECT_EQ(file().bytes(), kPoolBytes + step);
  EXPECT_EQ(file().bytes_on_disk(), disk);
  EXPECT_EQ(prepared(), 0u);
  // The next one begins when about half of it is left.
  take_until_free(file().growth_bytes() / 4);
  EXPECT_TRUE(in_time([&] { return prepared() == file().growth_bytes(); }));
  EXPECT_EQ(pool_.disagreement(), "");
}

TEST_F(GrowthAhead, a_pool_that_is_not_written_prepares_nothing) {
  take_until_free(file().growth_bytes() / 4);
  source_.reset();
  open_source();
  source_->large().start();
  std::this_thread::sleep_for(50ms);
  source_->large().look();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(prepared(), 0u);
}

// Nothing before it has grown: many programs have many small pools.
TEST_F(SmallGrowthAhead, it_is_prepared_after_the_first_growth) {
  const std::uint64_t made = file().bytes();
  source_->large().start();
  take_until_free(kSlab);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(prepared(), 0u);
  EXPECT_EQ(file().bytes(), made);
  take();
  EXPECT_GT(file().bytes(), made);
  take_until_free(file().growth_bytes() / 4);
  EXPECT_TRUE(in_time([&] { return prepared() == file().growth_bytes(); }));
  EXPECT_LT(file().bytes(), heap::LargePages::kPoolBytesLeast);
  const std::uint64_t grown = file().bytes();
  source_->large().stop();
  EXPECT_EQ(prepared(), 0u);
  EXPECT_EQ(length_of(pool_.path), grown);
}

TEST_F(GrowthAhead, trim_and_the_end_give_it_back) {
  prepare_all();
  EXPECT_GT(length_of(pool_.path), kPoolBytes);
  source_->punch_free();
  EXPECT_EQ(prepared(), 0u);
  EXPECT_EQ(length_of(pool_.path), kPoolBytes);
  take_until_free(kSlab);
  take();
  const std::uint64_t bytes = file().bytes();
  take_until_free(file().growth_bytes() / 4);
  EXPECT_TRUE(in_time([&] { return prepared() > 0; }));
  source_->large().stop();
  EXPECT_EQ(prepared(), 0u);
  EXPECT_EQ(length_of(pool_.path), bytes);
}

// A part is enough if it holds what is needed. Growth by more than what is prepared takes all of
// it.
TEST_F(GrowthAhead, a_part_is_used_if_it_is_enough) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(file().prepare(), Status::ok);
  EXPECT_EQ(prepared(), 8 * kMiB);
  ASSERT_EQ(pool_.grow(4 * kMiB), Status::ok);
  EXPECT_EQ(file().bytes(), kPoolBytes + 8 * kMiB) << "half of 16 MiB";
  EXPECT_EQ(file().prepare(), Status::ok);
  ASSERT_EQ(pool_.grow(4 * kMiB), Status::ok);
  EXPECT_EQ(file().bytes(), kPoolBytes + 24 * kMiB) << "2 MiB were not enough";
  EXPECT_EQ(prepared(), 0u);
  EXPECT_EQ(file().bytes_on_disk(), file().bytes());
}

// --- another program cuts the file short ---------------------------------------------------------

// Grows into prepared space that is no longer there.
Status grow_into_cut_space(FramePool& pool) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pool.file->prepare(), Status::ok);
  EXPECT_EQ(::truncate(pool.path.c_str(), static_cast<off_t>(kPoolBytes)), 0);
  return pool.grow(4 * kMiB);
}

TEST_F(GrowthAhead, prepared_space_that_was_cut_off_is_reserved_again) {
  EXPECT_EQ(grow_into_cut_space(pool_), Status::ok);
  EXPECT_EQ(file().bytes(), kPoolBytes + 8 * kMiB);
  EXPECT_EQ(file().bytes_on_disk(), file().bytes());
  EXPECT_EQ(file().bad_pages(), Status::ok);
}

TEST_F(GrowthAhead, prepared_space_that_is_believed_to_be_there_is_found) {
  plant("pm_prepared_space_believed");
  EXPECT_EQ(grow_into_cut_space(pool_), Status::io);
}

// The file is cut short just before the new zone is written.
std::size_t zones_after_a_cut_growth(FramePool& pool) {
  const auto grown = pool.file->grow(4 * kMiB, [&](const pm::ZoneEntry& z, std::uint64_t head) {
    EXPECT_EQ(::truncate(pool.path.c_str(), static_cast<off_t>(kPoolBytes)), 0);
    frame::Frames::format_zone(*pool.file, z, head);
  });
  EXPECT_EQ(pool.file->bad_pages(), Status::io);
  return pool.file->zone_count();
}

TEST_F(GrowthAhead, a_zone_that_could_not_be_written_does_not_count) {
  EXPECT_EQ(zones_after_a_cut_growth(pool_), 1u);
}

TEST_F(GrowthAhead, a_zone_that_counts_although_it_could_not_be_written_is_found) {
  plant("pm_zone_with_bad_pages_counted");
  EXPECT_EQ(zones_after_a_cut_growth(pool_), 2u);
}

// --- what a kill leaves --------------------------------------------------------------------------

// A file with a hole, and with blocks behind the last zone. Returns the frames without pages that
// the next open sees.
std::uint64_t holes_beside_a_tail(FramePool& pool) {
  constexpr std::uint64_t kFrame = 4096;  // in the middle of the pool
  EXPECT_EQ(pool.file->punch(offset_of_frame({kFrame}), 64u << 10), Status::ok);
  pool.frames.reset();
  pool.file.reset();
  const int fd = ::open(pool.path.c_str(), O_RDWR);
  EXPECT_EQ(::fallocate(fd, 0, static_cast<off_t>(kPoolBytes), 2 * kMiB), 0);
  ::close(fd);
  EXPECT_EQ(pool.open(), Status::ok);
  heap::FrameSource source(*pool.file, *pool.frames);
  const std::uint64_t holes = source.holes().count(kFrame, 16);
  source.large().start();
  EXPECT_EQ(length_of(pool.path), kPoolBytes);
  return holes;
}

TEST_F(GrowthAhead, what_a_killed_process_left_is_given_back_and_hides_no_hole) {
  source_.reset();
  EXPECT_EQ(holes_beside_a_tail(pool_), 16u);
}

TEST_F(GrowthAhead, a_tail_that_hides_holes_is_found) {
  source_.reset();
  plant("pm_tail_hides_holes");
  EXPECT_EQ(holes_beside_a_tail(pool_), 0u);
}

// A file of three zones, of which the damaged zone count names two. Returns whether its length is
// the same after an open for writing that trims and ends.
bool keeps_an_unknown_zone(FramePool& pool, bool clean) {
  while (pool.file->zone_count() < 3) EXPECT_EQ(pool.grow(4 * kMiB), Status::ok);
  const std::uint64_t length = length_of(pool.path);
  if (clean) {
    EXPECT_EQ(pool.close(), Status::ok);
  } else {
    pool.frames.reset();
    pool.file.reset();
  }
  const int fd = ::open(pool.path.c_str(), O_RDWR);
  const std::uint64_t two = 2;
  const auto at = static_cast<off_t>(pm::kHeadPageOffset + offsetof(pm::HeadPage, zone_count));
  EXPECT_EQ(::pwrite(fd, &two, sizeof two, at), 8);
  ::close(fd);
  EXPECT_EQ(pool.open(), Status::ok);
  EXPECT_LT(pool.file->bytes(), length);
  {
    heap::FrameSource source(*pool.file, *pool.frames);
    source.large().start();
    static_cast<void>(pool.file->prepare());  // which would be dropped again
    source.punch_free();
  }
  return length_of(pool.path) == length;
}

TEST_F(GrowthAhead, a_zone_that_is_not_counted_is_not_cut_off) {
  source_.reset();
  EXPECT_TRUE(keeps_an_unknown_zone(pool_, true));
}

TEST_F(GrowthAhead, after_a_kill_it_is_not_cut_off_either) {
  source_.reset();
  EXPECT_TRUE(keeps_an_unknown_zone(pool_, false));
}

TEST_F(GrowthAhead, a_zone_that_is_cut_off_is_found) {
  source_.reset();
  plant("pm_tail_that_may_be_a_zone_cut");
  EXPECT_FALSE(keeps_an_unknown_zone(pool_, true));
}

// --- threads -------------------------------------------------------------------------------------

// Whether space counts as prepared that was cut off while it was being prepared.
bool counts_cut_space(pm::PoolFile& file) {
  for (int i = 0; i < 300; ++i) {
    std::atomic<bool> done = false;
    std::thread other([&] {
      static_cast<void>(file.prepare());
      done = true;
    });
    // With pauses: prepare does nothing if it finds the lock taken.
    for (; !done; std::this_thread::sleep_for(20us)) file.drop_prepared();
    other.join();
    if (file.bytes_on_disk() < file.bytes() + file.prepared_bytes()) return true;
    file.drop_prepared();
  }
  return false;
}

TEST_F(GrowthAhead, space_that_was_cut_meanwhile_does_not_count) {
  EXPECT_FALSE(counts_cut_space(file()));
}

TEST_F(GrowthAhead, space_that_counts_although_it_was_cut_is_found) {
  plant("pm_prepared_space_counts_when_cut");
  EXPECT_TRUE(counts_cut_space(file()));
}

TEST_F(GrowthAhead, threads_grow_and_trim_the_pool_while_it_is_prepared) {
  source_->large().start();
  const auto work = [&](unsigned core) {
    std::vector<PoolOffset> mine;
    for (int i = 0; i < 120; ++i) {
      const Result<PoolOffset> o = source_->get(frame::kOrderHuge, core);
      ASSERT_TRUE(o) << status_name(o.error());
      std::memset(file().at<void>(*o), 1, kHugeBytes);  // SIGBUS or a bad page, if it has no space
      mine.push_back(*o);
      if (i % 10 != 9) continue;
      source_->put(mine.back(), frame::kOrderHuge, core);
      mine.pop_back();
      source_->punch_free();
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  source_->large().stop();
  EXPECT_EQ(length_of(pool_.path), file().bytes());
  EXPECT_EQ(file().bad_pages(), Status::ok);
  EXPECT_EQ(pool_.disagreement(), "");
}

// --- memory --------------------------------------------------------------------------------------

// What pm::memory_left and memory_limit find where the system's files have these texts. Empty:
// there is no file.
struct Memory {
  std::uint64_t left;
  std::uint64_t limit;
};
Memory memory_with(const std::string& meminfo, const std::string& groups, const std::string& most,
                   const std::string& used) {
  const std::string root = "/dev/shm/tenuto-system-" + std::to_string(::getpid());
  const auto write = [&](const std::string& place, const std::string& text) {
    const std::filesystem::path path = root + place;
    std::filesystem::create_directories(path.parent_path());
    if (!text.empty()) std::ofstream(path) << text;
  };
  write("/proc/meminfo", meminfo);
  write("/proc/self/cgroup", groups);
  write("/sys/fs/cgroup/a/b/memory.max", most);
  write("/sys/fs/cgroup/a/b/memory.current", used);
  write("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", most);
  write("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", used);
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n");
  const Memory memory = {pm::memory_left(root), pm::memory_limit(root)};
  std::filesystem::remove_all(root);
  return memory;
}

TEST(Memory, is_what_the_system_and_the_control_group_give) {
  const std::string meminfo = "MemTotal: 9216 kB\nMemAvailable:    4096 kB\nBuffers: 1 kB\n";
  const std::string groups = "3:cpu:/x\n0::/a/b\n";
  const auto expect = [](const Memory& found, std::uint64_t left, std::uint64_t limit) {
    EXPECT_EQ(found.left, left);
    EXPECT_EQ(found.limit, limit);
  };
  expect(memory_with(meminfo, groups, "1000000\n", "400000\n"), 600'000, 1'000'000);
  expect(memory_with(meminfo, groups, "1000\n", "4000\n"), 0, 1000);  // the limit was lowered
  expect(memory_with(meminfo, groups, "900000000\n", "4000\n"), 4 * kMiB, 9 * kMiB);
  expect(memory_with(meminfo, groups, "max\n", "4000\n"), 4 * kMiB, 9 * kMiB);
  expect(memory_with(meminfo, groups, "", ""), 4 * kMiB, 9 * kMiB);
  expect(memory_with(meminfo, "3:cpu:/a/b\n", "1000\n", "0\n"), 4 * kMiB, 9 * kMiB);
  // Version 1; a group that is not mounted by its name.
  expect(memory_with(meminfo, "4:memory:/c\n0::/\n", "1000\n", "400\n"), 600, 1000);
  expect(memory_with(meminfo, "4:memory:/elsewhere\n", "1000\n", "400\n"), 1000, 5000);
  expect(memory_with("", groups, "1000\n", "0\n"), 1000, 1000);
  expect(memory_with("", "", "", ""), ~std::uint64_t{0}, ~std::uint64_t{0});  // nothing is known
  EXPECT_GT(pm::memory_left(), 0u);
  EXPECT_GE(pm::memory_limit(), pm::memory_left());
}

// --- a full file system --------------------------------------------------------------------------

// A pool on a small tmpfs of its own.
class FullDisk : public testing::Test {
 protected:
  FullDisk() : directory_("/dev/shm/tenuto-ahead-" + std::to_string(::getpid())) {}
  void SetUp() override {
    ASSERT_EQ(::mkdir(directory_.c_str(), 0755), 0);
    if (::mount("tenuto", directory_.c_str(), "tmpfs", 0, "size=240m") != 0) {
      ::rmdir(directory_.c_str());
      directory_.clear();
      GTEST_SKIP() << "may not mount";
    }
    PoolOptions o;
    o.size = kPoolBytes;
    o.size_max = 1u << 30;
    o.log = [this](std::string_view line) {
      if (line.find("cannot grow") == std::string_view::npos) return;
      std::thread([&] { beside_the_log_ = file_->prepare(); }).join();
    };
    auto made = pm::PoolFile::create(directory_ + "/pool", o, &report_);
    ASSERT_TRUE(made) << report_.text();
    file_ = std::move(*made);
    ASSERT_EQ(file_->set_state(pm::PoolState::running), Status::ok);
  }
  void TearDown() override {
    unplant_all();
    file_.reset();
    if (directory_.empty()) return;
    EXPECT_EQ(::umount2(directory_.c_str(), MNT_DETACH), 0);
    ::rmdir(directory_.c_str());
  }
  // Another file takes all that is left.
  void fill_disk() {
    const int fd = ::open((directory_ + "/other").c_str(), O_RDWR | O_CREAT, 0600);
    off_t at = 0;
    for (off_t piece = 1u << 20; piece >= 4096; piece /= 2) {
      while (::fallocate(fd, 0, at, piece) == 0) at += piece;
    }
    ::close(fd);
  }
  // A frame loses its pages, the disk is full, and the frame is wanted back.
  Status fill_on_a_full_disk() {
    EXPECT_EQ(file_->prepare(), Status::ok);
    EXPECT_EQ(file_->punch({32 * kMiB}, 64u << 10), Status::ok);
    fill_disk();
    return file_->fill({32 * kMiB}, 64u << 10);
  }

  // What another thread is told while a growth that failed is being logged.
  Status beside_the_log() {
    fill_disk();
    EXPECT_EQ(file_->grow(kMiB, [](const pm::ZoneEntry&, std::uint64_t) {}).error(), Status::full);
    return beside_the_log_;
  }

  Status beside_the_log_ = Status::ok;
  std::string directory_;
  Report report_;
  std::unique_ptr<pm::PoolFile> file_;
};

TEST_F(FullDisk, nothing_is_prepared_unless_there_is_plenty) {
  EXPECT_EQ(file_->prepare(), Status::ok);
  EXPECT_EQ(file_->prepared_bytes(), 2 * kMiB);
  fill_disk();
  EXPECT_EQ(file_->prepare(), Status::full);
  EXPECT_EQ(file_->prepared_bytes(), 2 * kMiB);
}

TEST_F(FullDisk, who_needs_the_space_gets_what_is_prepared) {
  EXPECT_EQ(fill_on_a_full_disk(), Status::ok);
  EXPECT_EQ(file_->prepared_bytes(), 0u);
}

// So a fork from the log does not wait for itself.
TEST_F(FullDisk, the_log_is_called_without_the_lock_of_growth) {
  EXPECT_EQ(beside_the_log(), Status::full);
}

TEST_F(FullDisk, a_log_that_is_called_with_the_lock_is_found) {
  plant("pm_growth_logged_under_its_lock");
  EXPECT_EQ(beside_the_log(), Status::busy);
}

TEST_F(FullDisk, a_pool_that_is_full_beside_prepared_space_is_found) {
  plant("pm_full_beside_prepared_space");
  EXPECT_EQ(fill_on_a_full_disk(), Status::full);
}

}  // namespace
