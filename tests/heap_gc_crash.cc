// The scripts of heap_crash.cc on pools with Consistency::gc (heap/gc.cc). After a crash a
// collection finds what the table of the script leads to. Power cuts on medium line, where each
// operation is followed by the fence of its thread, and kills on medium cache. Planted mistakes
// prove that what each fence is for would be missed.
#include "support/explored_variant.h"

namespace tenuto::test {
namespace {

[[maybe_unused]] const bool variant_is_chosen = [] {
  explored_consistency = Consistency::gc;
  return true;
}();

class WithGc : public testing::TestWithParam<VariantCase> {};

TEST_P(WithGc, what_the_root_leads_to_survives_and_the_rest_is_free) {
  explore_variant(GetParam());
}

// Contents that look like pointers keep what they seem to name; and there is no morphing.
const std::set<std::string> kOthers = {"containers", "old_part_again"};
INSTANTIATE_TEST_SUITE_P(HeapGcCrash, WithGc,
                         testing::ValuesIn(variant_cases(
                             kOthers, {"small_blocks", "two_lanes", "extents", "slabs", "versioned",
                                       "typed", "interleaved", "batches", "move"})),
                         variant_case_name);

// All but the one between a tombstone and the next use of its place: the quarantine of 16 blocks
// keeps a small script from using the place again in the same call.
TEST(HeapGcCrash, fences_are_needed) {
  constexpr const char* kFences[][2] = {
      {"destinations of a lane", "its freed blocks are reused"},
      {"entry of a large block", "a word names it"},
      {"word of a large block", "its tombstone"},
  };
  for (const auto& [first, then] : kFences) {
    EXPECT_TRUE(finds_with("move", {Mutation::Kind::drop_fence, first, then, 0}))
        << first << " | " << then;
  }
}

TEST(HeapGcCrash, planted_mistakes_are_found) {
  constexpr const char* kMistakes[][2] = {
      {"heap_gc_block_reused_before_fence", "move"},
      {"heap_gc_contents_unfenced", "move"},
      {"heap_gc_forgets_what_is_reached", "move"},
  };
  for (const auto& [mistake, script] : kMistakes) {
    EXPECT_TRUE(finds_with(script, {}, mistake)) << mistake;
  }
}

}  // namespace
}  // namespace tenuto::test
