// The scripts of heap_crash.cc on medium cache, where a killed process leaves a prefix of its
// stores, flushed or not (mode kill), and the heap waits for no fence (malloc.cc). Planted mistakes
// prove that a wrong order is seen, and that the same heap fails where stores do not persist.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "support/explored_medium.h"
#include "support/heap_scripts.h"

namespace tenuto::test {
namespace {

[[maybe_unused]] const bool medium_is_chosen = [] {
  explored_medium = Medium::cache;
  return true;
}();

CrashOptions kill_options(const HeapScript& s) {
  CrashOptions o = crash_options(s);
  o.mode = CrashMode::kill;
  return o;
}

class OnCache : public testing::TestWithParam<std::string> {};

TEST_P(OnCache, a_killed_process_leaves_whole_operations) {
  const HeapScript& s = heap_script(GetParam());
  const CrashResult r = run(s, kill_options(s));
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GE(r.points, 2u);
  std::printf("%s: %llu points, %llu states, %llu in recovery, %.1f s\n", s.name,
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states), r.seconds);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const HeapScript& s : heap_scripts()) all.emplace_back(s.name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(HeapCacheCrash, OnCache, testing::ValuesIn(names()),
                         [](const auto& script) { return script.param; });

bool finds(const char* plant, const char* script, CrashMode mode) {
  const HeapScript& s = heap_script(script);
  CrashOptions o = kill_options(s);
  o.mode = mode;
  o.plants = {plant};
  return !run(s, o).ok();
}

TEST(HeapCacheCrash, an_intent_retired_before_its_effects_is_found) {
  EXPECT_TRUE(finds("heap_intents_on_cache_retired_first", "small_blocks", CrashMode::kill));
}

TEST(HeapCacheCrash, an_intent_that_is_never_retired_is_found) {
  EXPECT_TRUE(finds("heap_intents_on_cache_never_retired", "two_lanes", CrashMode::kill));
}

TEST(HeapCacheCrash, a_destination_before_its_intent_is_found) {
  EXPECT_TRUE(finds("heap_destination_before_intent", "small_blocks", CrashMode::kill));
}

TEST(HeapCacheCrash, lines_that_a_crash_loses_are_missed) {
  explored_medium = Medium::line;
  EXPECT_TRUE(finds("heap_stores_persist_anywhere", "small_blocks", CrashMode::adr));
  explored_medium = Medium::cache;
}

}  // namespace
}  // namespace tenuto::test
