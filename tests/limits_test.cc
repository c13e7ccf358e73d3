// What the process may do, or its root directory lacks: sizes of files, addresses, locked memory,
// thread keys, descriptors, /proc. A status or an exception says so; nothing is lost, and no call
// ends the process. What has limits is a child, so that they end with it.
#include <gtest/gtest.h>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <string>

#include "pm/plant.h"
#include "support/child.h"
#include "support/failing_calls.h"
#include "support/kv_fixture.h"
#include "support/seed.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr int kSkip = 77;

void limit(int which, std::uint64_t most) {
  const struct rlimit to { most, RLIM_INFINITY };
  MUST(::setrlimit(static_cast<__rlimit_resource>(which), &to) == 0);
}

std::uint64_t kilobytes(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (word != name) continue;
    std::uint64_t n = 0;
    in >> n;
    return n;
  }
  return 0;
}

class Limits : public KvFixture {
 protected:
  void TearDown() override { unplant_all(); }
  void fill(int records) {
    Store s = opened();
    for (int i = 0; i < records; ++i) ASSERT_EQ(s.put(key_of(i), "old"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  // Every key has one of both values.
  void expect_all(int records) {
    Store s = opened();
    std::string value;
    for (int i = 0; i < records; ++i) {
      ASSERT_EQ(s.get(key_of(i), value), Status::ok) << key_of(i);
      EXPECT_TRUE(value == "old" || value == "new") << value;
    }
    expect_valid(s);
    EXPECT_EQ(s.close(), Status::ok);
  }
};

// --- thread keys ---------------------------------------------------------------------------------

// The first test: a process that has used a pool has its key.
TEST_F(Limits, no_thread_key_is_no_memory) {
  EXPECT_EQ(in_child([this] {
              pthread_key_t last{};
              while (::pthread_key_create(&last, nullptr) == 0) {
              }
              bool thrown = false;
              try {
                Result<Store> s = open();
                thrown = !s && s.error() == Status::full;
              } catch (const std::bad_alloc&) {
                thrown = true;
              }
              MUST(thrown);
              ::pthread_key_delete(last - 1);
              Result<Store> s = open();
              MUST(s);
              MUST(s->put("key", "value") == Status::ok);
              MUST(s->close() == Status::ok);
            }),
            0);
}

// --- RLIMIT_FSIZE --------------------------------------------------------------------------------

// The kernel sends SIGXFSZ for a write beyond the limit also where the file is that long already.
TEST_F(Limits, a_journal_beyond_the_largest_file_is_an_error) {
  options_.pool.medium = Medium::journal;
  fill(1000);
  EXPECT_EQ(in_child([this] {
              Result<Store> s = open();
              MUST(s);
              limit(RLIMIT_FSIZE, 4096);
              Status now = Status::ok;
              for (int i = 0; i < 1000 && now == Status::ok; ++i) now = s->put(key_of(i), "new");
              MUST(now == Status::io);
              MUST(s->pool().health(&report_) == Status::io);
              MUST(s->close() != Status::ok);
            }),
            0);
  expect_all(1000);
}

// --- addresses and locked memory -----------------------------------------------------------------

TEST_F(Limits, a_growth_that_the_system_refuses_is_a_full_pool) {
  options_.pool.size = 8 * kMiB;
  options_.pool.size_max = 64 * kMiB;
  for (const char* call : {"fallocate", "mmap"}) {
    const TempPath path(call);
    Result<Store> s = Store::open(path.str(), options_, &report_);
    ASSERT_TRUE(s) << report_.text();
    const std::string value(20'000, 'v');
    Status now = Status::ok;
    int there = 0;
    fail_call_anywhere(1, call[0] == 'm' ? ENOMEM : EIO, true, call);
    while (now == Status::ok && there < 10'000) now = s->put(key_of(there++), value);
    EXPECT_TRUE(failed_call_anywhere(nullptr));
    EXPECT_EQ(now, Status::full) << call;
    EXPECT_EQ(s->pool().health(&report_), Status::ok) << report_.text();
    for (int i = 0; i < 2 * there; ++i) ASSERT_EQ(s->put(key_of(i), value), Status::ok);
    expect_valid(*s);
    EXPECT_EQ(s->close(), Status::ok);
  }
}

// The peak of the child's memory. size_max is what the addresses allow.
int open_with_all_memory_locked(const std::function<Result<Store>()>& open) {
  return in_child([&] {
    constexpr std::uint64_t kAddresses = 80ull << 30;  // tables for 32 GiB: some 400 MiB
    constexpr std::uint64_t kPeakKilobytes = 120 << 10;
    limit(RLIMIT_AS, kAddresses);
    if (::mlockall(MCL_FUTURE) != 0) std::_Exit(kSkip);
    Result<Store> s = open();
    MUST(s);
    MUST(s->put("key", "value") == Status::ok);
    MUST(s->close() == Status::ok);
    MUST(kilobytes("/proc/self/status", "VmHWM:") < kPeakKilobytes);
  });
}

TEST_F(Limits, tables_are_not_filled_where_memory_is_locked) {
  if (kSanitized) GTEST_SKIP() << "mlockall does nothing with a sanitizer";
  options_.pool.size_max = 0;
  const int end = open_with_all_memory_locked([this] { return open(); });
  if (end == kSkip) GTEST_SKIP() << "this user may not lock so much memory";
  EXPECT_EQ(end, 0);
  plant("pm_tables_locked_in_memory");
  EXPECT_EQ(open_with_all_memory_locked([this] { return open(); }), 1);
}

// --- names, /proc --------------------------------------------------------------------------------

// The directory is opened before the name is given, and a name that may not last is taken back.
// Returns the calls whose failure left a name.
std::string names_left(const std::string& path, const StoreOptions& options) {
  std::string left;
  for (int n = 1;; ++n) {
    std::filesystem::remove(path);
    fail_call(n, EIO, false);
    const bool made = static_cast<bool>(Store::open(path, options));
    std::string name;
    if (!failed_call(&name)) return left;
    if (!made && std::filesystem::exists(path)) left += name + " ";
  }
}

TEST_F(Limits, a_name_that_may_not_last_is_no_name) {
  options_.pool.medium = Medium::line;
  EXPECT_EQ(names_left(path_.str(), options_), "");
  plant("pm_name_kept_that_may_not_last");
  EXPECT_EQ(names_left(path_.str(), options_), "fsync ");
}

TEST_F(Limits, without_proc_files_are_found_by_their_paths) {
  if (::getuid() != 0) GTEST_SKIP() << "only root may change the root directory";
  const std::string root = testing::TempDir() + "/tenuto-root-" + std::to_string(::getpid());
  for (const Medium medium : {Medium::journal, Medium::cache, Medium::automatic}) {
    std::filesystem::create_directories(root);
    options_.pool.medium = medium;
    EXPECT_EQ(in_child([&] {
                MUST(::chroot(root.c_str()) == 0 && ::chdir("/") == 0);
                for (int life = 0; life < 3; ++life) {
                  Result<Store> s = Store::open("/pool", options_, &report_);
                  MUST(s);
                  MUST(s->put(key_of(life), "old") == Status::ok);
                  MUST(s->put(key_of(0), "new") == Status::ok);
                  MUST(Store::open("/pool", options_).error() == Status::busy);
                  if (life < 2) MUST(s->close() == Status::ok);
                }
                ::raise(SIGKILL);
              }),
              1000 + SIGKILL);
    EXPECT_EQ(in_child([&] {
                MUST(::chroot(root.c_str()) == 0 && ::chdir("/") == 0);
                Result<Store> s = Store::open("/pool", options_, &report_);
                MUST(s);
                std::string value;
                for (int i = 0; i < 3; ++i) MUST(s->get(key_of(i), value) == Status::ok);
                MUST(s->validate(&report_) == Status::ok);
                MUST(s->close() == Status::ok);
              }),
              0);
    std::filesystem::remove_all(root);
  }
}

// --- large pages ---------------------------------------------------------------------------------

// Whether a mapping of the file is advised to have large pages.
bool is_advised(const std::string& path) {
  std::ifstream in("/proc/self/smaps");
  bool ours = false;
  for (std::string line; std::getline(in, line);) {
    if (line.find('-') < line.find(' ')) ours = line.ends_with(path);
    if (ours && line.starts_with("VmFlags:") && line.find(" hg") != line.npos) return true;
  }
  return false;
}

// A file system on a disk would take large pages for the file, and a store to a block that is there
// would fail where such a page also has a hole and the file system is full.
TEST_F(Limits, a_shared_mapping_of_a_disk_is_not_advised_to_have_large_pages) {
  const auto advised = [&] {
    const Result<Store> s = open();
    EXPECT_TRUE(s) << report_.text();
    return is_advised(path_.str());
  };
  EXPECT_FALSE(advised());  // in this program no file is in memory (support/failing_calls.h)
  plant("pm_large_pages_on_a_disk");
  EXPECT_TRUE(advised()) << "the test does not see the advice";
}

}  // namespace
}  // namespace tenuto::test
