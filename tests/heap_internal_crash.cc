// The scripts of heap_crash.cc on pools with Consistency::internal (heap/internal.cc). After a
// crash the judge first does what an application does: it clears the words that name no block, and
// frees the blocks that no word names. Then each operation is whole or undone. Without the fences,
// and with planted mistakes, that is not so.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <tuple>

#include "support/explored_medium.h"
#include "support/heap_scripts.h"

namespace tenuto::test {
namespace {

[[maybe_unused]] const bool variant_is_chosen = [] {
  explored_consistency = Consistency::internal;
  return true;
}();

CrashOptions options_for(const HeapScript& s, CrashMode mode) {
  explored_medium = mode == CrashMode::kill ? Medium::cache : Medium::line;
  CrashOptions o = crash_options(s);
  o.mode = mode;
  return o;
}

class WithInternal : public testing::TestWithParam<std::tuple<CrashMode, std::string>> {};

TEST_P(WithInternal, a_crash_leaves_what_the_application_can_reconcile) {
  const auto& [mode, name] = GetParam();
  const HeapScript& s = heap_script(name);
  const CrashResult r = run(s, options_for(s, mode));
  EXPECT_TRUE(r.ok()) << r.text();
  std::printf("%s: %llu points, %llu states, %llu in recovery, %.1f s\n", s.name,
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states), r.seconds);
}

// The judge would take the data of a container for words, and clear it.
const std::set<std::string> kOthers = {"containers", "versioned_containers"};

std::vector<std::tuple<CrashMode, std::string>> cases() {
  const std::set<std::string> kKilled = {"small_blocks", "two_lanes", "versioned", "batches",
                                         "move"};
  std::vector<std::tuple<CrashMode, std::string>> all;
  for (const HeapScript& s : heap_scripts()) {
    if (kOthers.contains(s.name)) continue;
    all.emplace_back(CrashMode::adr, s.name);
    if (kKilled.contains(s.name)) all.emplace_back(CrashMode::kill, s.name);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(HeapInternalCrash, WithInternal, testing::ValuesIn(cases()),
                         [](const auto& script) {
                           return std::string(crash_mode_name(std::get<0>(script.param))) + "_" +
                                  std::get<1>(script.param);
                         });

bool finds(const CrashOptions& o, const char* script) { return !run(heap_script(script), o).ok(); }

TEST(HeapInternalCrash, fences_are_needed) {
  constexpr const char* kFences[][2] = {
      {"destinations and bits, without a log", "malloc_to returns"},
      {"destinations and bits cleared, without a log", "the blocks are reused"},
  };
  for (const auto& [first, then] : kFences) {
    CrashOptions o = options_for(heap_script("batches"), CrashMode::adr);
    o.mutation = {Mutation::Kind::drop_fence, first, then, 0};
    EXPECT_TRUE(finds(o, "batches")) << first << " | " << then;
  }
}

TEST(HeapInternalCrash, planted_mistakes_are_found) {
  constexpr const char* kMistakes[][2] = {
      {"heap_internal_malloc_unfenced", "move"},
      {"heap_internal_block_reused_before_fence", "batches"},
      {"heap_internal_type_unfenced", "typed_batches"},
  };
  for (const auto& [mistake, script] : kMistakes) {
    CrashOptions o = options_for(heap_script(script), CrashMode::adr);
    o.plants = {mistake};
    EXPECT_TRUE(finds(o, script)) << mistake;
  }
}

}  // namespace
}  // namespace tenuto::test
