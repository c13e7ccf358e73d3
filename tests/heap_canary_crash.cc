// The scripts of heap_crash.cc on pools with canaries (heap/guard.h), with power cuts and kills.
// Every recovery is validated, and so compares the canaries of all blocks in use and of the free
// ones. A fence that is left out, or a mistake that is planted, breaks one.
#include "support/explored_variant.h"

namespace tenuto::test {
namespace {

[[maybe_unused]] const bool canaries_are_chosen = [] {
  explored_canaries = true;
  return true;
}();

// The lines of a new slab's canaries are hundreds of crash points that are all alike.
CrashOptions options(const HeapScript& s, CrashMode mode, unsigned percent = 2) {
  CrashOptions o = variant_options(s, mode);
  o.points_percent = percent;
  o.findings_max = 1;
  o.minimise = false;
  return o;
}

class WithCanaries : public testing::TestWithParam<VariantCase> {};

TEST_P(WithCanaries, a_crash_leaves_every_canary_whole) {
  const auto& [mode, name] = GetParam();
  const CrashResult r = run(heap_script(name), options(heap_script(name), mode));
  EXPECT_TRUE(r.ok()) << r.text();
  std::printf("%llu points, %llu states, %.1f s\n", static_cast<unsigned long long>(r.points),
              static_cast<unsigned long long>(r.unique), r.seconds);
}

std::vector<VariantCase> cases() {
  std::vector<VariantCase> all;
  // Where slabs are made, morphed and cut anew, and every way to get a block.
  for (const char* name : {"small_blocks", "slabs", "extents", "three_classes", "old_part_again",
                           "typed", "typed_extents", "versioned", "batches", "wear"}) {
    all.emplace_back(CrashMode::adr, name);
  }
  for (const char* name : {"small_blocks", "extents", "three_classes"}) {
    all.emplace_back(CrashMode::kill, name);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(HeapCanaryCrash, WithCanaries, testing::ValuesIn(cases()),
                         variant_case_name);

// A block of a morphed slab whose canary was never written: no canary of the old blocks is at its
// place. The intent of a versioned malloc_to may be durable before the call's only fence.
const HeapScript& morphed_for_a_versioned_word() {
  static const HeapScript script = {"morphed_for_a_versioned_word",
                                    [](HeapSession& s, CrashContext&) {
                                      s.put(20, 120);  // takes the table's slab
                                      for (std::size_t i = 0; i < 12; ++i) s.put(i, 88);
                                      for (std::size_t i = 0; i < 8; ++i) s.take(i);
                                      scavenge(s);
                                      s.put_unfilled(HeapCells::versioned(0), 1000);
                                      s.put_unfilled(HeapCells::versioned(1), 1000);
                                    }};
  return script;
}

// New stripes take the place of the canaries of free blocks. A crash may leave them without the
// shape. In a pool of one stripe a slab has room for one, and blocks of 48 bytes need three.
const HeapScript& morphed_over_canaries() {
  static const HeapScript script = {.name = "morphed_over_canaries",
                                    .body =
                                        [](HeapSession& s, CrashContext&) {
                                          s.put(20, 120);
                                          for (std::size_t i = 0; i < 12; ++i) s.put(i, 56);
                                          for (std::size_t i = 0; i < 8; ++i) s.take(i);
                                          scavenge(s);
                                          s.put(0, 40);
                                        },
                                    .stripes = 1};
  return script;
}

CrashResult without_fence(const HeapScript& s, const char* first, const char* then) {
  CrashOptions o = options(s, CrashMode::adr, 100);
  o.mutation = {Mutation::Kind::drop_fence, first, then, 0};
  return run(s, o);
}

TEST(HeapCanaryCrash, fences_are_needed) {
  EXPECT_FALSE(
      without_fence(heap_script("versioned"), "canary of an extent", "it is handed out").ok());
  const HeapScript& morphed = morphed_for_a_versioned_word();
  EXPECT_TRUE(run(morphed, options(morphed, CrashMode::adr)).ok());
  EXPECT_FALSE(
      without_fence(morphed, "canaries of a morphed slab", "its blocks are handed out").ok());
}

TEST(HeapCanaryCrash, planted_mistakes_are_found) {
  const std::pair<const char*, const HeapScript&> kMistakes[] = {
      {"heap_extent_canary_unfenced", heap_script("versioned")},
      {"heap_canary_under_a_new_header_expected", morphed_over_canaries()},
  };
  const HeapScript& own = morphed_over_canaries();
  EXPECT_TRUE(run(own, options(own, CrashMode::adr)).ok());
  for (const auto& [mistake, script] : kMistakes) {
    CrashOptions o = options(script, CrashMode::adr, 100);
    o.plants = {mistake};
    EXPECT_FALSE(run(script, o).ok()) << mistake;
  }
}

}  // namespace
}  // namespace tenuto::test
