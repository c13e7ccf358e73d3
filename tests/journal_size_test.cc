// The size of a journal that nobody chose: small beside a small pool, and larger when the pool has
// grown.
#include <gtest/gtest.h>

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "pm/plant.h"
#include "support/failing_calls.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

class JournalSize : public testing::Test {
 protected:
  JournalSize() {
    options_.pool.medium = Medium::journal;
    options_.pool.journal.path = paths_.journal.str();
    options_.pool.log = [this](std::string_view text) { (log_ += text) += "\n"; };
  }

  Result<Store> open() { return Store::open(paths_.pool.str(), options_, &report_); }
  static std::uint64_t ring(Store& s) { return s.pool().stats().journal_bytes; }

  // Leaves a pool of at least so many bytes with the record a, closed or killed, and the journal of
  // its first open.
  void make_grown(std::uint64_t bytes, bool closed = true) {
    run_and_kill([&] {
      Result<Store> s = open();
      if (!s || ring(*s) != kSmall) return false;
      auto* block = s->pool().root<Ptr<char>>("block").value();
      const bool grown = s->pool().malloc_to(bytes, *block) == Status::ok &&
                         s->pool().free_from(*block) == Status::ok;
      if (!grown || ring(*s) != kSmall || s->put("a", "1") != Status::ok) return false;
      if (!closed) std::_Exit(0);
      return s->close() == Status::ok;
    });
  }
  // The pool opens, is sound, and has the record.
  void expect_sound(std::uint64_t ring_bytes) {
    Result<Store> s = open();
    ASSERT_TRUE(s) << report_.text();
    EXPECT_EQ(ring(*s), ring_bytes);
    EXPECT_EQ(s->get("a").value_or(""), "1");
    EXPECT_EQ(s->validate(&report_), Status::ok) << report_.text();
    EXPECT_EQ(s->put("b", "2"), Status::ok);
    EXPECT_EQ(s->close(), Status::ok);
  }

  static constexpr std::uint64_t kSmall = 6 * kMiB;
  JournalPaths paths_{"journal-size"};
  StoreOptions options_;
  Report report_;
  std::string log_;
};

TEST_F(JournalSize, one_that_cannot_be_is_refused_before_anything_is_made) {
  options_.pool.journal.bytes = ~0ull;  // rounded up it would be 0
  EXPECT_EQ(open().error(), Status::invalid_argument);
  EXPECT_NE(report_.text().find("journal's bytes"), std::string::npos) << report_.text();
  EXPECT_FALSE(std::filesystem::exists(paths_.pool.str()));
  EXPECT_FALSE(std::filesystem::exists(paths_.journal.str()));
}

TEST_F(JournalSize, a_small_store_takes_little_of_the_disk) {
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  ASSERT_EQ(s->put("a", "1"), Status::ok);
  EXPECT_LE(blocks_on_disk(paths_.pool.str()) + blocks_on_disk(paths_.journal.str()), 16 * kMiB);
  EXPECT_EQ(s->close(), Status::ok);
}

TEST_F(JournalSize, the_open_of_a_grown_pool_makes_its_journal_larger) {
  for (const bool closed : {true, false}) {
    make_grown(200 * kMiB, closed);
    ASSERT_FALSE(HasFatalFailure());
    run_and_kill([&] {  // what the larger ring holds is found again
      Result<Store> s = open();
      if (!s || ring(*s) != 64 * kMiB || s->put("killed", "1") != Status::ok) return false;
      std::_Exit(0);
    });
    ASSERT_FALSE(HasFatalFailure());
    expect_sound(64 * kMiB);
    EXPECT_EQ(open()->get("killed").value_or(""), "1");
    std::filesystem::remove(paths_.pool.str());
    std::filesystem::remove(paths_.journal.str());
  }
}

// At every call that such an open makes to the system: before it, within the zeros, between them
// and the header that names them, and after it.
TEST_F(JournalSize, a_kill_while_it_is_made_larger_loses_nothing) {
  const std::string pool = paths_.pool.str(), journal = paths_.journal.str();
  for (const bool closed : {true, false}) {
    make_grown(16 * kMiB, closed);
    ASSERT_FALSE(HasFatalFailure());
    for (const std::string& path : {pool, journal}) {
      std::filesystem::copy_file(path, path + ".kept");
    }
    int kills = 0, grown = 0;
    for (int n = 1, status = 1; status != 0; ++n) {
      for (const std::string& path : {pool, journal}) {
        std::filesystem::copy_file(path + ".kept", path,
                                   std::filesystem::copy_options::overwrite_existing);
      }
      const pid_t child = ::fork();
      if (child == 0) {
        fail_call_anywhere(n, kKillProcess, false);
        std::_Exit(open() ? 0 : 1);
      }
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(status == 0 || WIFSIGNALED(status)) << "the open failed";
      kills += status != 0 ? 1 : 0;
      grown += std::filesystem::file_size(journal) > kSmall + kMiB ? 1 : 0;
      SCOPED_TRACE("killed at call " + std::to_string(n) +
                   (closed ? ", closed" : ", killed before"));
      Result<Store> s = open();
      ASSERT_TRUE(s) << report_.text();
      const std::uint64_t ring_bytes = ring(*s);
      EXPECT_GT(ring_bytes, kSmall);
      EXPECT_EQ(s->close(), Status::ok);
      expect_sound(ring_bytes);
      if (HasFailure()) return;
    }
    EXPECT_GT(kills, 10);
    EXPECT_GT(grown, 3) << "no kill after the file became longer";
    for (const std::string& path : {pool, journal}) std::filesystem::remove(path + ".kept");
    std::filesystem::remove(pool);
    std::filesystem::remove(journal);
  }
}

TEST_F(JournalSize, an_explicit_size_is_of_a_new_journal_only) {
  make_grown(40 * kMiB);
  ASSERT_FALSE(HasFatalFailure());
  options_.pool.journal.bytes = 32 * kMiB;
  expect_sound(kSmall);
}

TEST_F(JournalSize, where_there_is_no_room_it_stays_small_and_says_so) {
  make_grown(40 * kMiB);
  ASSERT_FALSE(HasFatalFailure());
  const std::uint64_t bytes = blocks_on_disk(paths_.journal.str());
  fail_call_anywhere(1, ENOSPC, false, "fallocate");
  expect_sound(kSmall);
  std::string name;
  EXPECT_TRUE(failed_call_anywhere(&name));
  EXPECT_EQ(blocks_on_disk(paths_.journal.str()), bytes);
  EXPECT_NE(log_.find("journal stays small"), std::string::npos) << log_;
}

// --- while the pool is open ----------------------------------------------------------------------

// Puts 40 MB of records, from `first` on.
Status put_many(Store& s, int first = 0) {
  for (int i = first; i < first + 10'000; ++i) {
    TENUTO_TRY(s.put("key" + std::to_string(i), std::string(4000, static_cast<char>(i)),
                     {Durability::buffered}));
  }
  return s.sync();
}
bool has_many(Store& s, int first = 0) {
  std::string value;
  for (int i = first; i < first + 10'000; ++i) {
    if (s.get("key" + std::to_string(i), value) != Status::ok) return false;
    if (value != std::string(4000, static_cast<char>(i))) return false;
  }
  return true;
}

TEST_F(JournalSize, a_ring_grows_with_its_pool) {
  run_and_kill([&] {
    Result<Store> s = open();
    if (!s || ring(*s) != kSmall) return false;
    for (int first = 0; ring(*s) < 4 * kSmall; first += 10'000) {
      if (first == 100'000 || put_many(*s, first) != Status::ok) return false;
    }
    if (put_many(*s) != Status::ok) return false;
    std::_Exit(0);
  });
  ASSERT_FALSE(HasFatalFailure());
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  EXPECT_GE(ring(*s), 4 * kSmall);
  EXPECT_TRUE(has_many(*s));
  EXPECT_EQ(s->validate(&report_), Status::ok) << report_.text();
  EXPECT_EQ(s->close(), Status::ok);
}

TEST_F(JournalSize, a_ring_of_a_given_size_does_not_grow) {
  options_.pool.journal.bytes = kMiB;
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  EXPECT_EQ(put_many(*s), Status::ok);
  EXPECT_EQ(ring(*s), kMiB);
  EXPECT_EQ(s->close(), Status::ok);
}

TEST_F(JournalSize, without_room_for_a_larger_ring_it_stays) {
  const std::string small = "/dev/shm/tenuto-small-" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(small.c_str(), 0755), 0);
  if (::mount("tenuto", small.c_str(), "tmpfs", 0, "size=8m") != 0) {
    ::rmdir(small.c_str());
    GTEST_SKIP() << "may not mount";
  }
  options_.pool.journal.path = small + "/journal";
  for (int life = 0; life < 2; ++life) {
    Result<Store> s = open();
    EXPECT_TRUE(s) << report_.text();
    if (!s) break;
    EXPECT_EQ(put_many(*s, life * 10'000), Status::ok);
    EXPECT_EQ(ring(*s), kSmall);
    EXPECT_TRUE(has_many(*s));
    EXPECT_EQ(s->close(), Status::ok);
    EXPECT_LE(std::filesystem::file_size(options_.pool.journal.path), kSmall + kMiB);
  }
  EXPECT_EQ(::umount2(small.c_str(), MNT_DETACH), 0);
  ::rmdir(small.c_str());
}

// The plant: a header names space that is not there.
TEST_F(JournalSize, a_ring_without_its_space_is_found) {
  make_grown(40 * kMiB);
  ASSERT_FALSE(HasFatalFailure());
  plant("journal_ring_grown_without_space");
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  static_cast<void>(s->close());
  unplant_all();
  EXPECT_EQ(open().error(), Status::corrupt);
}

}  // namespace
}  // namespace tenuto::test
