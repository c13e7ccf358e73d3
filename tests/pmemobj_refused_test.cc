// The drop-in for libpmemobj: what a program, a disk or a lack of memory makes impossible is
// refused with a message, and harms neither the pool nor files of others.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "support/each_allocation.h"
#include "support/pmemobj_parts.h"
#include "tenuto/pool.h"
#include "tools/pmemobj/format.h"

namespace tenuto::test {
namespace {

using pmemobj::Directory;

struct Root {
  std::uint64_t word[8];
};
using PmemobjRefused = PmemobjTest;

// The same offset of another pool is another object, or none: a log that named it could not be
// replayed, and the pool would not open any more.
TEST_F(PmemobjRefused, actions_of_another_pool) {
  const TempPath path("pmemobj-second");
  PMEMobjpool* const other = pmemobj_create(path.str().c_str(), nullptr, PMEMOBJ_MIN_POOL, 0600);
  ASSERT_NE(other, nullptr) << pmemobj_errormsg();
  root<Root>();
  PMEMoid in_both[2];
  ASSERT_EQ(pmemobj_alloc(pop_, &in_both[0], 100, 1, nullptr, nullptr), 0);
  const PMEMoid root_of_other = pmemobj_root(other, sizeof(Root));
  ASSERT_EQ(pmemobj_alloc(other, &in_both[1], 100, 1, nullptr, nullptr), 0);
  PMEMoid many = OID_NULL;
  for (std::size_t bytes = 1000; bytes < 9000; bytes += 200) {
    ASSERT_EQ(pmemobj_alloc(other, &many, bytes, 1, nullptr, nullptr), 0);
  }
  struct pobj_action act;
  const auto refused = [&] {
    EXPECT_EQ(pmemobj_publish(pop_, &act, 1), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(std::strstr(pmemobj_errormsg(), "another pool"), nullptr) << pmemobj_errormsg();
    EXPECT_EQ(in_tx(pop_, [&] { return pmemobj_tx_publish(&act, 1) == 0; }), EINVAL);
  };
  for (const std::size_t bytes : {64u, 3000u, 7000u, 100000u}) {
    ASSERT_FALSE(OID_IS_NULL(pmemobj_reserve(other, &act, bytes, 1)));
    refused();
    pmemobj_cancel(pop_, &act, 1);
    EXPECT_NE(std::strstr(pmemobj_errormsg(), "another pool"), nullptr) << pmemobj_errormsg();
    EXPECT_EQ(pmemobj_publish(other, &act, 1), 0) << pmemobj_errormsg();
  }
  pmemobj_defer_free(pop_, in_both[1], &act);
  refused();
  pmemobj_defer_free(pop_, root_of_other, &act);
  refused();
  EXPECT_EQ(walk().size(), 1u);
  pmemobj_close(other);
  EXPECT_EQ(pmemobj_check(path.str().c_str(), nullptr), 1) << pmemobj_errormsg();
  reopen();
  EXPECT_EQ(walk().size(), 1u);
}

TEST_F(PmemobjRefused, an_action_that_was_cancelled) {
  struct pobj_action act;
  ASSERT_FALSE(OID_IS_NULL(pmemobj_reserve(pop_, &act, 100, 1)));
  pmemobj_cancel(pop_, &act, 1);
  EXPECT_EQ(pmemobj_publish(pop_, &act, 1), -1);
  EXPECT_NE(std::strstr(pmemobj_errormsg(), "cancelled before"), nullptr) << pmemobj_errormsg();
  PMEMoid made = OID_NULL;
  ASSERT_EQ(pmemobj_alloc(pop_, &made, 100, 1, nullptr, nullptr), 0);
  pmemobj_cancel(pop_, &act, 1);  // its block may have another owner now
  EXPECT_EQ(walk().size(), 1u);
}

// A program that publishes to the offset word of an OID alone never sets the other one.
TEST_F(PmemobjRefused, but_not_an_oid_of_an_offset_alone) {
  PMEMoid made = OID_NULL;
  ASSERT_EQ(pmemobj_alloc(pop_, &made, 100, 1, nullptr, nullptr), 0);
  struct pobj_action act;
  pmemobj_defer_free(pop_, {0, made.off}, &act);
  EXPECT_EQ(pmemobj_publish(pop_, &act, 1), 0) << pmemobj_errormsg();
  EXPECT_TRUE(walk().empty());
}

// Also the first one of a thread, which has no room for its levels yet.
TEST_F(PmemobjRefused, a_begin_without_memory_is_an_abort) {
  Root& r = root<Root>();
  std::uint64_t done = 0;
  const auto store = [&](std::uint64_t value) {
    return in_tx(pop_, [&] {
      // Without memory for another level, the outer one is aborted.
      if (pmemobj_tx_begin(pop_, nullptr, TX_PARAM_NONE) != 0) return false;
      if (pmemobj_tx_add_range_direct(&r, sizeof r) == 0) r.word[0] = value;
      if (pmemobj_tx_stage() == TX_STAGE_WORK) pmemobj_tx_commit();
      return pmemobj_tx_end() == 0;
    });
  };
  for (long n = 1; n < 100; ++n) {
    bool met = false;
    std::thread([&] {
      fail_allocation(n);
      const int error = store(done + 1);
      met = failed_allocation();
      EXPECT_EQ(pmemobj_tx_stage(), TX_STAGE_NONE);
      EXPECT_TRUE(error == 0 || error == ENOMEM) << error;
      if (error == 0) done += 1;
      EXPECT_EQ(r.word[0], done);
      EXPECT_EQ(store(done + 1), 0) << pmemobj_errormsg();
      done += 1;
      EXPECT_EQ(r.word[0], done);
    }).join();
    if (!met) return;
  }
  ADD_FAILURE() << "an allocation fails each time";
}

void write_at(const std::string& path, off_t at, const std::string& text, off_t bytes) {
  std::ofstream(path, std::ios::binary);
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(bytes));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(at);
  file << text;
}

TEST_F(PmemobjRefused, a_file_that_is_zeros_only_at_its_start) {
  const TempPath other("pmemobj-zeros");
  for (const off_t at : {off_t{4096}, off_t{1} << 20, (off_t{12} << 20) - 8}) {
    write_at(other.str(), at, "precious", 12 << 20);
    EXPECT_EQ(pmemobj_create(other.str().c_str(), nullptr, 0, 0), nullptr);
    EXPECT_EQ(errno, EEXIST);
    std::ifstream file(other.str(), std::ios::binary);
    file.seekg(at);
    std::string text(8, ' ');
    file.read(text.data(), 8);
    EXPECT_EQ(text, "precious");
  }
}

TEST_F(PmemobjRefused, a_file_of_zeros_stays_if_no_pool_is_made) {
  const TempPath other("pmemobj-zeros");
  const std::string journal = other.str() + ".journal";
  write_at(other.str(), 0, "", 12 << 20);
  ::chmod(other.str().c_str(), 0640);
  write_at(journal, 0, "of somebody else", 1 << 20);
  ::setenv("TENUTO_PMEMOBJ_MEDIUM", "journal", 1);
  EXPECT_EQ(pmemobj_create(other.str().c_str(), nullptr, 0, 0), nullptr);
  ::unlink(journal.c_str());
  struct stat st;
  ASSERT_EQ(::stat(other.str().c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 12 << 20);
  EXPECT_EQ(st.st_mode & 0777, 0640u);
  PMEMobjpool* const pop = pmemobj_create(other.str().c_str(), nullptr, 0, 0);
  ::unsetenv("TENUTO_PMEMOBJ_MEDIUM");
  ASSERT_NE(pop, nullptr) << pmemobj_errormsg();
  pmemobj_close(pop);
  ::unlink(journal.c_str());
}

TEST_F(PmemobjRefused, a_link_to_a_file_of_zeros_stays_a_link) {
  const TempPath other("pmemobj-zeros");
  const TempPath link("pmemobj-link");
  write_at(other.str(), 0, "", 12 << 20);
  ASSERT_EQ(::symlink(other.str().c_str(), link.str().c_str()), 0);
  PMEMobjpool* const pop = pmemobj_create(link.str().c_str(), nullptr, 0, 0);
  ASSERT_NE(pop, nullptr) << pmemobj_errormsg();
  pmemobj_close(pop);
  EXPECT_TRUE(std::filesystem::is_symlink(link.str()));
  EXPECT_EQ(pmemobj_check(other.str().c_str(), nullptr), 1) << pmemobj_errormsg();
}

TEST_F(PmemobjRefused, a_pipe_is_not_waited_for) {
  const TempPath pipe("pmemobj-pipe");
  ASSERT_EQ(::mkfifo(pipe.str().c_str(), 0600), 0);
  ::alarm(30);
  EXPECT_EQ(pmemobj_open(pipe.str().c_str(), nullptr), nullptr);
  EXPECT_EQ(pmemobj_check(pipe.str().c_str(), nullptr), -1);
  EXPECT_EQ(pmemobj_create(pipe.str().c_str(), nullptr, 0, 0), nullptr);
  ::alarm(0);
}

TEST_F(PmemobjRefused, a_directory_that_is_damaged) {
  root<Root>();
  PMEMoid made = OID_NULL;
  ASSERT_EQ(pmemobj_alloc(pop_, &made, 100, 0, nullptr, nullptr), 0);
  const auto change = [&](const std::function<void(Directory&)>& f) {
    const Result<Pool> pool = Pool::open(path_);
    ASSERT_TRUE(pool);
    const auto d = const_cast<Pool&>(*pool).root(pmemobj::kRootLayout, sizeof(Directory));
    ASSERT_TRUE(d);
    f(*static_cast<Directory*>(*d));
  };
  const auto refused = [&](const char* why, const std::function<void(Directory&)>& damage) {
    Directory sound;
    change([&](Directory& d) {
      sound = d;
      damage(d);
    });
    EXPECT_EQ(pmemobj_open(path(), kLayout), nullptr) << why;
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(std::strstr(pmemobj_errormsg(), why), nullptr) << pmemobj_errormsg();
    EXPECT_EQ(pmemobj_check(path(), kLayout), -1);
    change([&](Directory& d) { d = sound; });
  };
  pmemobj_close(std::exchange(pop_, nullptr));
  refused("uuid", [](Directory& d) { d.uuid_lo ^= 1u << 9; });
  for (unsigned bit = 0; bit < 64; ++bit) {
    refused("root word", [&](Directory& d) { d.root ^= std::uint64_t{1} << bit; });
  }
  refused("root object", [](Directory& d) { d.root = 0; });
  refused("size", [](Directory& d) { d.root_bytes = 0; });
  refused("size", [](Directory& d) { d.root_bytes ^= 1u << 20; });
  refused("layout", [](Directory& d) { std::memset(d.layout, 'x', sizeof d.layout); });
  pop_ = pmemobj_open(path(), kLayout);
  ASSERT_NE(pop_, nullptr) << pmemobj_errormsg();
}

}  // namespace
}  // namespace tenuto::test
