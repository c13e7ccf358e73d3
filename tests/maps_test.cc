// The maps of a pool: what their calls promise, and random transactions beside std::map.
#include <gtest/gtest.h>

#include <ranges>

#include "support/maps_random.h"
#include "support/seed.h"
#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"

namespace tenuto {
namespace {

using test::MapsRandom;
using Tree = OrderedMap<std::uint64_t, std::uint64_t>;
using Table = HashMap<std::uint64_t, std::uint64_t>;

template <class Map>
void random_transactions(std::uint64_t seeds, int transactions) {
  const std::uint64_t first = test::test_seed();
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    MapsRandom<Map> r(seed);
    r.run(transactions);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_GT(r.commits, 100);
    EXPECT_GT(r.aborts, 20);
    EXPECT_GT(r.kills, 3);
    std::printf("largest %zu, %d clears\n", r.largest, r.clears);
  }
}

TEST(MapsTest, an_ordered_map_is_as_that_of_the_standard_library) {
  random_transactions<Tree>(3, 3000);
}

TEST(MapsTest, a_hash_map_is_as_that_of_the_standard_library) {
  random_transactions<Table>(3, 3000);
}

}  // namespace
}  // namespace tenuto
