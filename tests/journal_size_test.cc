// The size of a journal that nobody chose: small beside a small pool, and larger when an open finds
// that the pool has grown.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <string>

#include "pm/plant.h"
#include "support/failing_calls.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

std::uint64_t blocks_on_disk(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

class JournalSize : public testing::Test {
 protected:
  StoreOptions options() const {
    StoreOptions o;
    o.pool.medium = Medium::journal;
    o.pool.journal.path = paths_.journal.str();
    return o;
  }
  Result<Store> open() { return Store::open(paths_.pool.str(), options(), &report_); }
  std::uint64_t ring(Store& s) { return s.pool().stats().journal_bytes; }
  // Until the pool is so large, by blocks that are freed again.
  void grow(Store& s, std::uint64_t bytes) {
    Pool& pool = s.pool();
    auto* block = pool.root<Ptr<char>>("block").value();
    ASSERT_EQ(pool.malloc_to(*block, bytes), Status::ok);
    ASSERT_EQ(pool.free_from(*block), Status::ok);
    ASSERT_GE(pool.stats().file_bytes, bytes);
  }

  JournalPaths paths_{"journal-size"};
  Report report_;
};

TEST_F(JournalSize, a_small_store_takes_little_of_the_disk) {
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  ASSERT_EQ(s->put("a", "1"), Status::ok);
  EXPECT_LE(blocks_on_disk(paths_.pool.str()) + blocks_on_disk(paths_.journal.str()), 16 * kMiB);
  EXPECT_EQ(s->close(), Status::ok);
}

TEST_F(JournalSize, the_open_of_a_grown_pool_makes_its_journal_larger) {
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  const std::uint64_t first = ring(*s);
  grow(*s, 40 * kMiB);
  ASSERT_EQ(s->put("a", "1"), Status::ok);
  EXPECT_EQ(ring(*s), first) << "as long as it is open";
  ASSERT_EQ(s->close(), Status::ok);
  for (int life = 0; life < 2; ++life) {
    // Killed: what the ring holds is found again with its new size.
    run_and_kill([&] {
      Result<Store> t = open();
      const bool ok = t && ring(*t) >= 20 * kMiB && t->put(std::to_string(life), "2") == Status::ok;
      if (!ok) return false;
      std::_Exit(0);
    });
    ASSERT_FALSE(HasFatalFailure());
    Result<Store> again = open();
    ASSERT_TRUE(again) << report_.text();
    EXPECT_EQ(*again->get(std::to_string(life)), "2");
    EXPECT_EQ(again->validate(), Status::ok);
    ASSERT_EQ(again->close(), Status::ok);
  }
}

TEST_F(JournalSize, an_explicit_size_is_of_a_new_journal_only) {
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  const std::uint64_t first = ring(*s);
  grow(*s, 40 * kMiB);
  ASSERT_EQ(s->close(), Status::ok);
  StoreOptions o = options();
  o.pool.journal.bytes = 32 * kMiB;
  Result<Store> again = Store::open(paths_.pool.str(), o, &report_);
  ASSERT_TRUE(again) << report_.text();
  EXPECT_EQ(ring(*again), first);
  EXPECT_EQ(again->close(), Status::ok);
}

TEST_F(JournalSize, where_there_is_no_room_it_stays_small) {
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  const std::uint64_t first = ring(*s);
  grow(*s, 40 * kMiB);
  ASSERT_EQ(s->put("a", "1"), Status::ok);
  ASSERT_EQ(s->close(), Status::ok);
  const std::uint64_t bytes = blocks_on_disk(paths_.journal.str());
  fail_call_anywhere(1, ENOSPC, false, "fallocate");
  Result<Store> again = open();
  std::string name;
  EXPECT_TRUE(failed_call_anywhere(&name));
  ASSERT_TRUE(again) << report_.text();
  EXPECT_EQ(ring(*again), first);
  EXPECT_EQ(blocks_on_disk(paths_.journal.str()), bytes);
  EXPECT_EQ(*again->get("a"), "1");
  EXPECT_EQ(again->close(), Status::ok);
}

// The plant: a header names space that is not there.
TEST_F(JournalSize, a_ring_without_its_space_is_found) {
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  grow(*s, 40 * kMiB);
  ASSERT_EQ(s->close(), Status::ok);
  plant("journal_ring_grown_without_space");
  Result<Store> again = open();
  ASSERT_TRUE(again) << report_.text();
  static_cast<void>(again->close());
  unplant_all();
  EXPECT_EQ(open().error(), Status::corrupt);
}

}  // namespace
}  // namespace tenuto::test
