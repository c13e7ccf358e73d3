// Each allocation of a call fails once, one after the other: reads and writes of records. The call
// may throw std::bad_alloc or return an error. Afterwards nothing is locked, the store still works,
// and validate() finds it sound.
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/no_memory_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;

using NoMemoryTest = test::NoMemoryFixture;

TEST_F(NoMemoryTest, puts_that_split) {
  every_allocation_fails_once([&] { fill(120); });
}

TEST_F(NoMemoryTest, puts_that_split_in_the_middle) {
  for (int i = 0; i < 4000; i += 2) ASSERT_EQ(s_->put(key_of(i), "v"), Status::ok);
  next_ = 4000;
  int at = 1;
  every_allocation_fails_once([&] {
    for (int i = 0; i < 60; ++i, at += 2) (void)s_->put(key_of(at), "v");
  });
}

TEST_F(NoMemoryTest, a_usual_split_allocates_a_node_alone) {
  for (int i = 0; i < 4000; i += 2) ASSERT_EQ(s_->put(key_of(i), "v"), Status::ok);
  constexpr long kMany = 1000;
  int splits = 0;
  int usual = 0;  // the others fill a node, or a list of retired items
  for (int i = 1; i < 4000; i += 2) {
    const std::uint64_t leaves = s_->stats().leaves;
    const std::string key = key_of(i);
    test::fail_allocation(kMany);
    const Status s = s_->put(key, "v");
    const long allocated = kMany - test::allocations_left();
    ASSERT_FALSE(test::failed_allocation());
    ASSERT_EQ(s, Status::ok);
    if (s_->stats().leaves == leaves) continue;
    splits += 1;
    usual += allocated == 1 ? 1 : 0;
  }
  EXPECT_GE(splits, 20);
  EXPECT_GE(usual, splits * 3 / 4);
}

TEST_F(NoMemoryTest, erases_that_empty_leaves) {
  fill(4000);
  int at = 0;
  every_allocation_fails_once([&] {
    for (int i = 0; i < 60; ++i) (void)s_->erase(key_of(at++));
  });
}

// The replaced records get into a list of retired ones, whatever memory there is.
TEST_F(NoMemoryTest, puts_in_place_of_others) {
  fill(300);
  every_allocation_fails_once([&] {
    for (int i = 0; i < 300; ++i) (void)s_->put(key_of(i), std::string(300, 'n'));
  });
}

TEST_F(NoMemoryTest, a_collection_is_made) {
  fill(10);
  int n = 0;
  every_allocation_fails_once([&] {
    for (int i = 0; i < 3; ++i) (void)s_->collection("c" + std::to_string(n++));
  });
}

// Also fails in the release of a snapshot, which takes old versions out of their leaves.
TEST_F(NoMemoryTest, puts_and_erases_under_a_snapshot) {
  fill(500);
  int at = 0;
  std::optional<Snapshot> snapshot = *s_->snapshot();
  every_allocation_fails_once(
      [&] {
        for (int i = 0; i < 30; ++i) (void)s_->put(key_of(at++), "new");
        for (int i = 0; i < 30; ++i) (void)s_->erase(key_of(at++));
        fill(60);
      },
      [&] { snapshot = *s_->snapshot(); });
}

// An old version that gets no memory is not kept, and its snapshot expires.
TEST_F(NoMemoryTest, a_snapshot_sees_its_moment_or_has_expired) {
  fill(200);
  for (long n = 1; n < 40; ++n) {
    for (int i = 0; i < 200; ++i) ASSERT_EQ(s_->put(key_of(i), "old"), Status::ok);
    const Snapshot snapshot = *s_->snapshot();
    test::fail_allocation(n);
    try {
      for (int i = 0; i < 100; ++i) (void)s_->put(key_of(i * 2), "new");
    } catch (const std::bad_alloc&) {
    }
    test::failed_allocation();
    std::string value;
    for (int i = 0; i < 200; ++i) {
      const Status s = snapshot.get(key_of(i), value);
      if (s == Status::expired) break;
      ASSERT_EQ(s, Status::ok);
      ASSERT_EQ(value, "old") << "allocation " << n << ", key " << i;
    }
    works();
  }
}

TEST_F(NoMemoryTest, a_batch) {
  fill(500);
  int at = 0;
  every_allocation_fails_once([&] {
    WriteBatch batch;
    for (int i = 0; i < 80; ++i) batch.put(key_of(next_ + i), "batch");
    for (int i = 0; i < 80; ++i) batch.erase(key_of(at++));
    const bool done = s_->write(batch) == Status::ok;
    if (done) next_ += 80;
  });
}

// All of it or nothing.
TEST_F(NoMemoryTest, a_transaction) {
  fill(500);
  every_allocation_fails_once(
      [&] {
        (void)s_->run([&](StoreTransaction& tx) -> Status {
          std::string value;
          (void)tx.get(key_of(3), value);
          {
            Iterator it = tx.iterator();
            it.seek(key_of(10));
            for (int i = 0; i < 60 && it.valid(); ++i) it.next();
          }
          for (int i = 0; i < 60; ++i) TENUTO_TRY(tx.put("t" + key_of(i), value + "."));
          return Status::ok;
        });
      },
      [&] {
        int there = 0;
        for (int i = 0; i < 60; ++i) there += s_->contains("t" + key_of(i)) == Status::ok ? 1 : 0;
        EXPECT_TRUE(there == 0 || there == 60) << there;
      });
}

TEST_F(NoMemoryTest, reads_and_writes_that_look_first) {
  fill(300);
  int at = 0;
  every_allocation_fails_once([&] {
    std::string value;
    (void)s_->get(key_of(1), value);
    (void)s_->view(key_of(2));
    (void)s_->lower_bound(key_of(3));
    (void)s_->multi_get(std::vector<std::string_view>{"a", "b"});
    {
      Iterator it = s_->iterator();
      for (it.seek_last(); it.valid(); it.prev()) continue;
    }
    (void)s_->put_if_absent(key_of(next_ + at++), "v");
    (void)s_->compare_and_swap(key_of(4), std::nullopt, "v");
    (void)s_->merge(key_of(5), [](auto) { return std::string(60, 'm'); });
    (void)s_->erase_range(key_of(20), key_of(40));
    (void)s_->stats();
  });
}

}  // namespace
}  // namespace tenuto
