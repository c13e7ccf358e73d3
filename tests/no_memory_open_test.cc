// Each allocation of a call fails once, one after the other: calls that make, open, close and copy
// whole pools, after a clean close or a kill.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <new>
#include <thread>
#include <vector>

#include "journal/line_map.h"
#include "pm/parallel.h"
#include "pm/sanitizer.h"
#include "support/journal_parts.h"
#include "support/no_memory_fixture.h"
#include "support/pool_image.h"
#include "tenuto/rescue.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"
#include "tenuto/tx.h"

namespace tenuto {
namespace {

using test::key_of;
using test::run_and_kill;
namespace fs = std::filesystem;

class NoMemoryOpenTest : public testing::Test {
 protected:
  static constexpr int kKeys = 150;

  NoMemoryOpenTest() {
    options_ = test::journalled(paths_);
    options_.pool.size = kPoolBytesMin;
    options_.pool.size_max = 64u << 20;
    options_.pool.journal.bytes = 256u << 10;
    options_.pool.recovery_threads = 1;
    options_.pool.medium = Medium::cache;
    options_.reclaim_every_ms = 0;
  }

  using Call = std::function<void()>;
  static void each_fails(const Call& before, const Call& call, const Call& after) {
    test::fail_each_allocation(before, call, after, true);
  }
  static void fill(Store& s, const std::string& value) {
    Collection c = *s.collection("c");
    for (int i = 0; i < kKeys; ++i) {
      EXPECT_EQ(s.put(key_of(i), value), Status::ok);
      EXPECT_EQ(c.put(key_of(i), value), Status::ok);
    }
  }
  void expect_whole(Store& s, const std::string& value) {
    Collection c = *s.collection("c", {.create_if_missing = false});
    for (int i = 0; i < kKeys; ++i) {
      ASSERT_EQ(s.get(key_of(i)).value_or("?"), value) << i;
      ASSERT_EQ(c.get(key_of(i)).value_or("?"), value) << i;
    }
    Report r;
    EXPECT_EQ(s.validate(&r), Status::ok) << r.text();
  }
  // Makes a pool, and closes it or is killed.
  void make(bool clean) {
    run_and_kill([&] {
      Store* s = new Store(*Store::open(paths_.pool.str(), options_));
      fill(*s, "first");
      if (s->sync() != Status::ok) return false;
      fill(*s, "value");
      if (clean) return s->close() == Status::ok;
      return s->sync() == Status::ok;
    });
    keep();
  }
  void keep() {
    fs::copy_file(paths_.pool.str(), kept_.pool.str());
    if (fs::exists(paths_.journal.str())) fs::copy_file(paths_.journal.str(), kept_.journal.str());
  }
  // Restores the files that make() left.
  void put_back() {
    const auto over = fs::copy_options::overwrite_existing;
    fs::copy_file(kept_.pool.str(), paths_.pool.str(), over);
    fs::remove(paths_.journal.str());
    if (fs::exists(kept_.journal.str())) fs::copy_file(kept_.journal.str(), paths_.journal.str());
  }

  Result<Store> open() { return Store::open(paths_.pool.str(), options_, &report_); }

  void opens_whatever_fails() {
    each_fails([&] { put_back(); },
               [&] {
                 Result<Store> s = open();
                 if (s) (void)s->get(key_of(1));
               },
               [&] {
                 Result<Store> s = open();
                 ASSERT_TRUE(s) << report_.text();
                 expect_whole(*s, "value");
                 EXPECT_EQ(s->close(), Status::ok);
               });
  }

  void opens_by_threads();

  test::JournalPaths paths_{"no-memory"};
  test::JournalPaths kept_{"no-memory-kept"};
  test::TempPath other_{"no-memory-other"};
  StoreOptions options_;
  Report report_;
};

// A checkpoint writes what the map holds. A line image without a place must not get into it.
TEST(NoMemoryLineMapTest, a_map_without_room_is_as_it_was) {
  std::vector<std::vector<std::byte>> bytes(400, std::vector<std::byte>(kLineBytes));
  std::vector<pm::LineImage> images;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i][0] = static_cast<std::byte>(i);
    images.push_back({i * 3, bytes[i].data()});
  }
  for (const std::size_t before : {0u, 20u, 200u}) {
    test::fail_each_allocation([] {},
                               [&] {
                                 pm::LineMap map;
                                 map.make_room(before);
                                 map.put_all(std::span(images).first(before));
                                 const auto same = [&](std::size_t count) {
                                   const long left = test::allocations_left();
                                   test::fail_allocation(0);
                                   const std::vector<pm::LineImage> all = map.in_order();
                                   ASSERT_EQ(all.size(), count);
                                   for (std::size_t i = 0; i < count; ++i) {
                                     ASSERT_EQ(all[i].line, images[i].line);
                                     ASSERT_EQ(all[i].bytes[0], images[i].bytes[0]);
                                   }
                                   test::fail_allocation(left);
                                 };
                                 try {
                                   map.make_room(images.size() - before);
                                 } catch (const std::bad_alloc&) {
                                   same(before);
                                   throw;
                                 }
                                 map.put_all(std::span(images).subspan(before));  // needs no memory
                                 same(images.size());
                               },
                               [] {});
  }
}

TEST_F(NoMemoryOpenTest, a_pool_is_made) {
  each_fails([&] { fs::remove(paths_.pool.str()); }, [&] { (void)open(); },
             [&] {
               Result<Store> s = open();
               ASSERT_TRUE(s) << report_.text();
               fill(*s, "x");
               expect_whole(*s, "x");
             });
}
TEST_F(NoMemoryOpenTest, a_pool_with_a_journal_is_made) {
  options_.pool.medium = Medium::journal;
  each_fails(
      [&] {
        fs::remove(paths_.pool.str());
        fs::remove(paths_.journal.str());
      },
      [&] { (void)open(); },
      [&] {
        Result<Store> s = open();
        ASSERT_TRUE(s) << report_.text();
        fill(*s, "x");
        expect_whole(*s, "x");
      });
}

TEST_F(NoMemoryOpenTest, a_clean_pool_is_opened) {
  make(true);
  opens_whatever_fails();
}
TEST_F(NoMemoryOpenTest, a_pool_is_opened_after_a_kill) {
  make(false);
  opens_whatever_fails();
}
TEST_F(NoMemoryOpenTest, a_clean_pool_with_a_journal_is_opened) {
  options_.pool.medium = Medium::journal;
  make(true);
  opens_whatever_fails();
}
TEST_F(NoMemoryOpenTest, a_pool_and_its_journal_are_opened_after_a_kill) {
  options_.pool.medium = Medium::journal;
  make(false);
  opens_whatever_fails();
}

// An allocation fails in any thread, also in the journal's and in those of oneTBB.
TEST_F(NoMemoryOpenTest, a_pool_and_its_journal_are_opened_by_threads_after_a_kill) {
  options_.pool.medium = Medium::journal;
  opens_by_threads();
}
TEST_F(NoMemoryOpenTest, a_pool_is_opened_by_threads_after_a_kill) { opens_by_threads(); }

void NoMemoryOpenTest::opens_by_threads() {
  make(false);
  options_.pool.recovery_threads = 2;
  for (long n = 1; !HasFailure(); n += 1 + n / 16) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    put_back();
    ::alarm(60);
    test::fail_allocation_anywhere(n);
    try {
      (void)open();
    } catch (const std::bad_alloc&) {
    }
    const bool met = test::failed_allocation_anywhere();
    Result<Store> s = open();
    ::alarm(0);
    ASSERT_TRUE(s) << report_.text();
    expect_whole(*s, "value");
    if (!met) break;
  }
}

// Either all parts run, or the call throws once its threads have ended.
TEST(NoMemoryParts, parts_that_wait_for_a_device) {
  constexpr std::size_t kParts = 40;
  int threw = 0;
  for (long n = 1;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    std::atomic<std::size_t> done = 0;
    bool all = true;
    test::fail_allocation_anywhere(n);
    try {
      pm::waiting_each(kParts, 4, [&](std::size_t) {
        const std::vector<int> room(100);
        done.fetch_add(room.size() / 100);
      });
    } catch (const std::bad_alloc&) {
      all = false;
    }
    const bool met = test::failed_allocation_anywhere();
    EXPECT_TRUE(all ? done == kParts : done < kParts);
    threw += all ? 0 : 1;
    if (!met) break;
  }
  EXPECT_GT(threw, 30);
}

// The destructor closes again after a failed close, but cannot return an error. Otherwise the next
// open recovers.
TEST_F(NoMemoryOpenTest, a_close) {
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    options_.pool.medium = medium;
    std::optional<Store> s;
    each_fails(
        [&] {
          fs::remove(paths_.pool.str());
          fs::remove(paths_.journal.str());
          s.emplace(*open());
          fill(*s, "before");
          const Snapshot snapshot = *s->snapshot();
          fill(*s, "value");
        },
        [&] { (void)s->close(); },
        [&] {
          s.reset();
          Result<Store> again = open();
          ASSERT_TRUE(again) << report_.text();
          expect_whole(*again, "value");
        });
  }
}
// A new thread's first flushes and fences make its part of the journal, in the middle of calls.
// Whatever the call returned, the pool is in a valid state when it is closed and opened again.
TEST_F(NoMemoryOpenTest, a_new_threads_call_on_a_journal_and_a_close) {
  options_.pool.medium = Medium::journal;
  using OnStore = void (*)(Store&);
  constexpr OnStore kCalls[] = {
      [](Store& s) { (void)s.put("new", std::string(300, 'x')); },
      [](Store& s) { (void)s.erase(key_of(3)); },
      [](Store& s) { (void)s.drop("c"); },
      [](Store& s) { (void)s.rename("c", "d"); },
      [](Store& s) { (void)s.collection("made"); },
      [](Store& s) { (void)s.run([](StoreTransaction& tx) { return tx.put("t", "1"); }); },
      [](Store& s) { (void)s.compact(); },
      [](Store& s) { (void)s.pool().run([](Transaction&) { return Status::ok; }); },
  };
  for (std::size_t call = 0; call < std::size(kCalls); ++call) {
    bool met = true;
    for (long n = 1; met && !HasFailure(); ++n) {
      SCOPED_TRACE("call " + std::to_string(call) + ", allocation " + std::to_string(n));
      fs::remove(paths_.pool.str());
      fs::remove(paths_.journal.str());
      {
        Store made = *Store::open(paths_.pool.str(), options_);
        fill(made, "value");
      }
      {
        Result<Store> s = Store::open(paths_.pool.str(), options_);
        const Result<Collection> c = s->collection("c");
        std::thread([&] {
          test::fail_allocation(n);
          try {
            kCalls[call](*s);
          } catch (const std::bad_alloc&) {
          }
          met = test::failed_allocation();
        }).join();
        (void)s->close();
      }
      Report report;
      Result<Store> s = Store::open(paths_.pool.str(), options_, &report);
      ASSERT_TRUE(s) << report.text();
      EXPECT_EQ(s->validate(&report), Status::ok) << report.text();
      EXPECT_EQ(s->contains(key_of(7)), Status::ok);
    }
  }
}

TEST_F(NoMemoryOpenTest, a_destructor) {
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    options_.pool.medium = medium;
    std::optional<Store> s;
    int failed = 0;
    const auto fresh = [&] {
      fs::remove(paths_.pool.str());
      fs::remove(paths_.journal.str());
      s.emplace(*open());
      fill(*s, "value");
    };
    for (long n = 1; !HasFailure(); n += 1 + n / 24) {
      fresh();
      test::fail_allocation(n);
      s.reset();
      const bool met = test::failed_allocation();
      Result<Store> again = open();
      ASSERT_TRUE(again) << report_.text();
      expect_whole(*again, "value");
      failed += met ? 1 : 0;
      if (!met) break;
    }
    std::printf("%d allocations\n", failed);
  }
}

#if !TENUTO_ASAN && !TENUTO_TSAN
// Address space of the process, in bytes.
std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::FILE* const f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr || std::fscanf(f, "%" SCNu64, &pages) != 1) ::_exit(3);
  std::fclose(f);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The address space has room for the pool, and step by step for more of the tables over it.
TEST_F(NoMemoryOpenTest, address_space_that_is_refused) {
  make(true);
  options_.pool.size_max = 1u << 30;
  int refused = 0;
  bool opened = false;
  for (std::uint64_t more = 0; !opened && more < (1u << 30); more += 4u << 20) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit limit{address_space() + options_.pool.size_max + more, RLIM_INFINITY};
      if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(3);
      try {
        const Result<Store> s = open();
        ::_exit(s ? 0 : report_.what.empty() ? 2 : 1);
      } catch (const std::bad_alloc&) {
        ::_exit(1);
      }
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "with " << more << " bytes more";
    ASSERT_LE(WEXITSTATUS(status), 1) << "with " << more << " bytes more";
    opened = WEXITSTATUS(status) == 0;
    refused += opened ? 0 : 1;
  }
  EXPECT_TRUE(opened);
  EXPECT_GT(refused, 4);
}
#endif

TEST_F(NoMemoryOpenTest, a_backup) {
  make(true);
  Store s = *open();
  PoolOptions to = options_.pool;
  to.medium = Medium::cache;
  each_fails([&] { fs::remove(other_.str()); }, [&] { (void)s.backup(other_.str(), to); },
             [&] {
               if (!fs::exists(other_.str())) {
                 ASSERT_EQ(s.backup(other_.str(), to, &report_), Status::ok) << report_.text();
               }
               StoreOptions there = options_;
               there.pool.journal = {};
               Result<Store> copy = Store::open(other_.str(), there, &report_);
               ASSERT_TRUE(copy) << report_.text();
               expect_whole(*copy, "value");
               // The backup holds nothing any more.
               EXPECT_EQ(s.rename("c", "d"), Status::ok);
               EXPECT_EQ(s.collection("e").value().put("x", "y"), Status::ok);
               EXPECT_EQ(s.drop("e"), Status::ok);
               EXPECT_EQ(s.rename("d", "c"), Status::ok);
               EXPECT_EQ(s.stats().snapshots, 0u);
             });
  expect_whole(s, "value");
}

// The handlers of fork allocate nothing. A thread that a child does not have may have held a lock
// of the program's allocator.
TEST_F(NoMemoryOpenTest, a_fork) {
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    options_.pool.medium = medium;
    Store s = *Store::open(paths_.pool.str(), options_);
    fill(s, "value");
    test::fail_allocations_from(1);
    const pid_t child = ::fork();
    if (child == 0) ::_Exit(test::failed_allocation() ? 1 : 0);
    EXPECT_FALSE(test::failed_allocation());
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << medium_name(medium);
    expect_whole(s, "value");
    EXPECT_EQ(s.close(), Status::ok);
    fs::remove(paths_.pool.str());
    fs::remove(paths_.journal.str());
  }
}

TEST_F(NoMemoryOpenTest, a_rescue) {
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    options_.pool.medium = medium;
    fs::remove(kept_.pool.str());
    fs::remove(kept_.journal.str());
    make(false);
    RescueOptions how;
    how.pool.medium = Medium::cache;
    how.pool.recovery_threads = 1;
    how.pool.size = kPoolBytesMin;
    how.pool.size_max = 64u << 20;
    if (medium == Medium::journal) how.journal = paths_.journal.str();
    each_fails(
        [&] {
          fs::remove(other_.str());
          put_back();
        },
        [&] {
          RescueResult result;
          (void)rescue(paths_.pool.str(), other_.str(), how, result);
        },
        [&] {
          if (!fs::exists(other_.str())) {
            RescueResult result;
            ASSERT_EQ(rescue(paths_.pool.str(), other_.str(), how, result, &report_), Status::ok)
                << report_.text();
          }
          Result<Store> copy = Store::open(other_.str(), {.pool = how.pool}, &report_);
          ASSERT_TRUE(copy) << report_.text();
          expect_whole(*copy, "value");
        });
    fs::remove(paths_.pool.str());
    fs::remove(paths_.journal.str());
  }
}

}  // namespace
}  // namespace tenuto
