// Each allocation of an insert into a set of ranges fails once. Afterwards the set is as it was.
#include "tx/ranges.h"

#include <gtest/gtest.h>

#include <new>
#include <string>

#include "support/failing_memory.h"

namespace tenuto::test {
namespace {

TEST(NoMemoryRanges, an_insert_is_done_or_not) {
  for (const bool forward : {true, false}) {
    for (long n = 1;; ++n) {
      SCOPED_TRACE("allocation " + std::to_string(n));
      tx::RangeSet set;
      fail_allocation(n);
      std::size_t there = 0;
      for (std::uint64_t i = 0; i < 1500; ++i) {
        const std::uint64_t at = 32 * (forward ? i * 7 % 1500 : 1500 - i);
        try {
          set.make_room();
        } catch (const std::bad_alloc&) {
          EXPECT_EQ(set.size(), there);
          set.make_room();
        }
        ASSERT_FALSE(set.at(at).inside);
        const long left = allocations_left();
        set.insert({at, at + 8});
        ASSERT_EQ(allocations_left(), left);
        ASSERT_EQ(set.size(), ++there);
      }
      if (!failed_allocation()) break;
    }
  }
}

}  // namespace
}  // namespace tenuto::test
