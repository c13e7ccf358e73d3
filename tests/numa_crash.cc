// Crash tests of two-phase deallocation (heap/remote_free.cc), on two simulated nodes: the first
// thread that uses the heap is on node 0, the next one on node 1. Some scripts of heap_crash.cc run
// on two nodes, too. Each fence of the protocol, and mistakes planted in it, are found missing.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <tuple>

#include "support/explored_variant.h"
#include "support/heap_script_parts.h"

namespace tenuto::test {
namespace {

using Cells = HeapCells;
constexpr std::uint64_t kLarge = 16'000;  // four fit a slab, so the owner often needs new ones

void fill(HeapSession& s, std::size_t cells, std::uint64_t bytes = kLarge) {
  for (std::size_t i = 0; i < cells; ++i) s.put(i, bytes);
}

// A batch is filled, handed over, and taken by a thread of the blocks' node, which uses them again.
void handed_over(HeapSession& s, CrashContext&) {
  Worker far;
  for (unsigned round = 0; round < 2; ++round) {
    fill(s, 14);
    far.run([&] {
      for (std::size_t i = 0; i < 14; ++i) s.take(i, 1);
    });
  }
  fill(s, 5);
  far.run([&] { s.take(0, 1); });  // hands the full batch over
  for (std::size_t i = 5; i < 12; ++i) s.put(i, kLarge);
}

// The same as `collected`, and another thread gets the blocks. No fence of the thread that took
// them is between.
void used_by_others(HeapSession& s, CrashContext&) {
  Worker other;
  fill(s, 4);
  scavenge(s);
  std::thread([&] {
    for (std::size_t i = 0; i < 3; ++i) s.take(i, 1);
  }).join();
  scavenge(s);
  other.run([&] {
    for (std::size_t i = 4; i < 7; ++i) s.put(i, kLarge, 2);
  });
}

// The thread that recorded the frees has ended, and the pool is full.
void collected(HeapSession& s, CrashContext&) {
  fill(s, 4);
  std::thread([&] {
    for (std::size_t i = 0; i < 3; ++i) s.take(i, 1);
  }).join();
  scavenge(s);
  s.put(4, kLarge);
  s.put(5, kLarge);
  s.put(6, 64);
}

// They are taken by a close while the thread lives.
void closed(HeapSession& s, CrashContext&) {
  Worker far;
  fill(s, 3);
  far.run([&] {
    for (std::size_t i = 0; i < 3; ++i) s.take(i, 1);
  });
  s.close();
  s.reopen();
  s.put(0, kLarge);
  s.close();
}

// A recorded free names a word in a container, which is freed and used again meanwhile. The new
// contents look like the old pointer.
void containers(HeapSession& s, CrashContext&) {
  Worker far;
  s.put(0, 20'000);
  s.put(Cells::inner(0), 64);
  const std::uint64_t raw = s.word(Cells::inner(0)).raw;
  far.run([&] { s.take(Cells::inner(0), 1); });
  s.take(0);
  scavenge(s);
  for (std::size_t i = 1; i < 4; ++i) s.put(i, 20'000, 0, raw);
}

// The word of a recorded free is used again at once, by the thread and by others.
void words_again(HeapSession& s, CrashContext&) {
  Worker far;
  fill(s, 2, 64);
  far.run([&] {
    s.take(0, 1);
    s.put(0, 64, 1);
    s.take(0, 1);
    s.put_unfilled(0, 64, 1);
    s.take(1, 1);
  });
  s.put(1, 64);
  s.take(0);
  s.take(1);
  scavenge(s);
  s.put(2, 64);
}

// Both free one word. One of them is refused.
void raced(HeapSession& s, CrashContext&) {
  for (unsigned round = 0; round < 2; ++round) {
    s.put(0, 64);
    Worker far;
    bool won[2] = {};
    far.run([&] { won[1] = s.take_raced(0, 1); });
    won[0] = s.take_raced(0, 0);
    EXPECT_NE(won[0], won[1]);
  }
  scavenge(s);
  s.put(1, 64);
}

const std::vector<HeapScript>& numa_scripts() {
  static const std::vector<HeapScript> all = [] {
    std::vector<HeapScript> list = {
        {.name = "handed_over", .body = handed_over, .slow = true, .points_percent = 30},
        {"collected", collected},
        {"used_by_others", used_by_others},
        {"closed", closed},
        {.name = "recorded_containers",
         .body = containers,
         .locked_instructions_fence = true,
         .heap = {.morph_occupancy = .02}},
        {.name = "words_again",
         .body = words_again,
         .locked_instructions_fence = true,
         .points_percent = 50},
        {"raced", raced},
    };
    for (const char* name : {"two_lanes", "handed_on", "living_thread", "interleaved"}) {
      list.push_back(heap_script(name));
    }
    for (HeapScript& s : list) {
      s.heap.numa.nodes = 2;
      const std::string name = s.name;
      if (name == "handed_on" || name == "two_lanes" || name == "interleaved") {
        s.points_percent = 25;
      }
    }
    return list;
  }();
  return all;
}

const HeapScript& numa_script(const std::string& name) {
  for (const HeapScript& s : numa_scripts()) {
    if (s.name == name) return s;
  }
  ADD_FAILURE() << "no script is called " << name;
  return numa_scripts().front();
}

class OnTwoNodes : public testing::TestWithParam<VariantCase> {};

TEST_P(OnTwoNodes, a_crash_leaves_whole_operations) {
  const auto& [mode, name] = GetParam();
  const HeapScript& s = numa_script(name);
  const CrashResult r = run(s, variant_options(s, mode));
  EXPECT_TRUE(r.ok()) << r.text();
  std::printf("%s: %llu points, %llu states, %llu in recovery, %.1f s\n", s.name,
              static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.unique),
              static_cast<unsigned long long>(r.recovery_states), r.seconds);
}

std::vector<VariantCase> cases() {
  std::vector<VariantCase> all;
  for (const HeapScript& s : numa_scripts()) {
    all.emplace_back(CrashMode::adr, s.name);
    all.emplace_back(CrashMode::kill, s.name);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(NumaCrash, OnTwoNodes, testing::ValuesIn(cases()), variant_case_name);

bool found(const char* script, const Mutation& mutation, const char* plant = nullptr,
           CrashMode mode = CrashMode::adr) {
  const HeapScript& s = numa_script(script);
  CrashOptions o = variant_options(s, mode);
  o.mutation = mutation;
  o.points_percent = 100;
  o.findings_max = 1;
  o.minimise = false;
  if (plant != nullptr) o.plants = {plant};
  const CrashResult r = run(s, o);
  if (!r.ok()) std::printf("%s: %s\n", script, r.findings.front().what.c_str());
  return !r.ok();
}

TEST(NumaCrash, fences_are_needed) {
  constexpr const char* kFences[][3] = {
      {"recorded free intent", "destination cleared", "collected"},
      {"bits of recorded frees", "their intents are retired", "collected"},
      {"recorded frees are retired", "their blocks are reused", "used_by_others"},
  };
  for (const auto& [first, then, script] : kFences) {
    EXPECT_TRUE(found(script, {Mutation::Kind::drop_fence, first, then, 0}))
        << first << " | " << then;
  }
}

TEST(NumaCrash, planted_mistakes_are_found) {
  constexpr const char* kMistakes[][2] = {
      {"heap_numa_destination_before_intent", "words_again"},
      {"heap_numa_retired_before_bits", "collected"},
      {"heap_numa_bits_not_flushed", "collected"},
      {"heap_numa_ring_never_retired", "collected"},
      {"heap_numa_idle_lane_not_flushed", "collected"},
      {"heap_numa_batch_before_its_destinations", "handed_over"},
      {"heap_numa_destination_not_pending", "recorded_containers"},
      {"heap_numa_close_leaves_batches", "closed"},
  };
  for (const auto& [mistake, script] : kMistakes) {
    EXPECT_TRUE(found(script, {}, mistake)) << mistake;
  }
}

TEST(NumaCrash, planted_mistakes_are_found_on_medium_cache) {
  EXPECT_TRUE(found("collected", {}, "heap_numa_retired_before_bits", CrashMode::kill));
  EXPECT_TRUE(found("collected", {}, "heap_numa_ring_never_retired", CrashMode::kill));
  EXPECT_TRUE(
      found("recorded_containers", {}, "heap_numa_destination_not_pending", CrashMode::kill));
}

}  // namespace
}  // namespace tenuto::test
