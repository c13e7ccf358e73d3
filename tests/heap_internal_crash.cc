// The scripts of heap_crash.cc on pools with Consistency::internal (heap/internal.cc). After a
// crash the judge first does what an application does: it clears the words that name no block, and
// frees the blocks that no word names. Then each operation is whole or undone. Without the fences,
// and with planted mistakes, that is not so.
#include "support/explored_variant.h"

namespace tenuto::test {
namespace {

[[maybe_unused]] const bool variant_is_chosen = [] {
  explored_consistency = Consistency::internal;
  return true;
}();

class WithInternal : public testing::TestWithParam<VariantCase> {};

TEST_P(WithInternal, a_crash_leaves_what_the_application_can_reconcile) {
  explore_variant(GetParam());
}

// The judge would take the data of a container for words, and clear it.
const std::set<std::string> kOthers = {"containers", "versioned_containers"};
INSTANTIATE_TEST_SUITE_P(HeapInternalCrash, WithInternal,
                         testing::ValuesIn(variant_cases(kOthers,
                                                         {"small_blocks", "two_lanes", "versioned",
                                                          "batches", "move"})),
                         variant_case_name);

TEST(HeapInternalCrash, fences_are_needed) {
  constexpr const char* kFences[][2] = {
      {"destinations and bits, without a log", "malloc_to returns"},
      {"destinations and bits cleared, without a log", "the blocks are reused"},
  };
  for (const auto& [first, then] : kFences) {
    EXPECT_TRUE(finds_with("batches", {Mutation::Kind::drop_fence, first, then, 0}))
        << first << " | " << then;
  }
}

TEST(HeapInternalCrash, planted_mistakes_are_found) {
  constexpr const char* kMistakes[][2] = {
      {"heap_internal_malloc_unfenced", "move"},
      {"heap_internal_block_reused_before_fence", "batches"},
      {"heap_internal_type_unfenced", "typed_batches"},
      {"heap_internal_retires_before_durable", "versioned"},
  };
  for (const auto& [mistake, script] : kMistakes) {
    EXPECT_TRUE(finds_with(script, {}, mistake)) << mistake;
  }
}

}  // namespace
}  // namespace tenuto::test
