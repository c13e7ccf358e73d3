// Fixed capacities, filled to N and N + 1, under the crash explorer: element N + 1 must be as
// durable as the others. One thread works and stays alive, and another one closes the pool. A fence
// of the closing thread covers nothing that the first thread flushed. The table in tests/README.md
// says where each capacity is tried.
#include <gtest/gtest.h>

#include "pm/dirty_lines.h"
#include "support/capacity_world.h"

namespace tenuto::test {
namespace {

constexpr std::size_t kLines = pm::DirtyLines::kLinesMax;

TEST(capacity_crash, a_transaction_frees_as_many_lines_as_are_kept_and_one_more) {
  for (const std::size_t n : {kLines, kLines + 1, kLines + 40}) {
    const CrashResult r = explore_frees(Frees::transaction, n, capacity_options());
    EXPECT_TRUE(r.ok()) << n << " blocks\n" << r.text();
    const bool fenced = r.explored("more dirty lines than fit", "they are forgotten");
    EXPECT_EQ(fenced, n > kLines) << n;
  }
}

// The lines of the words count too: 112 blocks have 126 lines, a group of 128 has 144.
TEST(capacity_crash, a_batch_frees_as_many_lines_as_are_kept_and_more) {
  bool below = false, above = false;
  for (const std::size_t n : {112u, 113u, 114u, 115u, 128u, 129u}) {
    const CrashResult r = explore_frees(Frees::batch, n, capacity_options());
    EXPECT_TRUE(r.ok()) << n << " blocks\n" << r.text();
    const bool fenced = r.explored("more dirty lines than fit", "they are forgotten");
    below = below || !fenced;
    above = above || fenced;
  }
  EXPECT_TRUE(below && above);
}

}  // namespace
}  // namespace tenuto::test
