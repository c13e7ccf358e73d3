// The scripts of heap_crash.cc on pools with Consistency::gc (heap/gc.cc). After a crash a
// collection finds what the table of the script leads to. Power cuts on medium line, where each
// operation is followed by the fence of its thread, and kills on medium cache. Planted mistakes
// prove that what each fence is for would be missed.
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
  explored_consistency = Consistency::gc;
  return true;
}();

CrashOptions options_for(const HeapScript& s, CrashMode mode) {
  explored_medium = mode == CrashMode::kill ? Medium::cache : Medium::line;
  CrashOptions o = crash_options(s);
  o.mode = mode;
  return o;
}

// Contents that look like pointers keep what they seem to name; and there is no morphing.
const std::set<std::string> kOthers = {"containers", "old_part_again"};

class WithGc : public testing::TestWithParam<std::tuple<CrashMode, std::string>> {};

TEST_P(WithGc, what_the_root_leads_to_survives_and_the_rest_is_free) {
  const auto& [mode, name] = GetParam();
  const HeapScript& s = heap_script(name);
  const CrashResult r = run(s, options_for(s, mode));
  EXPECT_TRUE(r.ok()) << r.text();
  std::printf("%s: %llu points, %llu states, %llu in recovery, %.1f s\n", s.name,
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states), r.seconds);
}

// All of them with power cuts. With kills, which lose less, some of each kind.
std::vector<std::tuple<CrashMode, std::string>> cases() {
  const std::set<std::string> kKilled = {"small_blocks", "two_lanes", "extents",
                                         "slabs",        "versioned", "typed",
                                         "interleaved",  "batches",   "move"};
  std::vector<std::tuple<CrashMode, std::string>> all;
  for (const HeapScript& s : heap_scripts()) {
    if (kOthers.contains(s.name)) continue;
    all.emplace_back(CrashMode::adr, s.name);
    if (kKilled.contains(s.name)) all.emplace_back(CrashMode::kill, s.name);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(HeapGcCrash, WithGc, testing::ValuesIn(cases()), [](const auto& script) {
  return std::string(crash_mode_name(std::get<0>(script.param))) + "_" + std::get<1>(script.param);
});

// All but the one between a tombstone and the next use of its place: the quarantine of 16 blocks
// keeps a small script from using the place again in the same call.
TEST(HeapGcCrash, fences_are_needed) {
  constexpr const char* kFences[][2] = {
      {"destinations of a lane", "its freed blocks are reused"},
      {"entry of a large block", "a word names it"},
      {"word of a large block", "its tombstone"},
  };
  for (const auto& [first, then] : kFences) {
    CrashOptions o = options_for(heap_script("move"), CrashMode::adr);
    o.mutation.kind = Mutation::Kind::drop_fence;
    o.mutation.first = first;
    o.mutation.then = then;
    EXPECT_FALSE(run(heap_script("move"), o).ok()) << first << " | " << then;
  }
}

TEST(HeapGcCrash, planted_mistakes_are_found) {
  for (const char* plant : {"heap_gc_block_reused_before_fence", "heap_gc_contents_unfenced",
                            "heap_gc_forgets_what_is_reached"}) {
    CrashOptions o = options_for(heap_script("move"), CrashMode::adr);
    o.plants = {plant};
    EXPECT_FALSE(run(heap_script("move"), o).ok()) << plant;
  }
}

}  // namespace
}  // namespace tenuto::test
