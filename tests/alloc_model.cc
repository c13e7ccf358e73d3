// Explores the protocols of malloc_to, free_from, batches and versioned pointers
// (model/alloc_protocol.h): every order of whole operations of two lanes, orders of single steps
// with few switches, and random runs with crashes and clean closes between sessions. Then it plants
// mistakes, each of which must be found.
#include "model/alloc_protocol.h"
#include "model/cases.h"

namespace tenuto_model {
namespace {

std::vector<Case<AllocProtocol>> cases() {
  AllocConfig two;
  AllocConfig packed = two;
  packed.roots_share_line = true;
  AllocConfig hand_over = two;
  hand_over.hand_overs = true;
  hand_over.moves = false;
  AllocConfig containers = two;
  containers.roots = 1;
  containers.blocks = 3;
  containers.moves = false;
  AllocConfig three = two;
  three.threads = 3;
  three.roots = three.blocks = 4;
  three.hand_overs = true;
  AllocConfig long_ring = two;
  long_ring.ring = 6;
  long_ring.blocks = 4;
  AllocConfig short_ring = two;
  short_ring.ring = 1;
  short_ring.blocks = 3;
  short_ring.hand_overs = true;
  const ExploreMode random_operations{
      .operations = 12, .sessions = 2, .runs_max = scaled(600), .images_max = 300};
  AllocConfig few = short_ring;
  few.blocks = 2;
  few.roots = 2;
  few.hand_overs = few.moves = false;
  AllocConfig tags = two;
  tags.tagged_roots = 2;
  AllocConfig tag_containers = tags;
  tag_containers.roots = tag_containers.tagged_roots = 1;
  tag_containers.blocks = 3;
  AllocConfig mixed = tags;  // one root of each kind
  mixed.tagged_roots = 1;
  mixed.blocks = 3;
  AllocConfig wraps = tags;
  wraps.roots = wraps.tagged_roots = 1;
  wraps.version_bits = 3;
  wraps.ring = 6;
  AllocConfig batches = two;
  batches.batches = true;
  batches.blocks = 3;
  AllocConfig tag_batches = batches;
  tag_batches.tagged_roots = 2;
  tag_batches.batch_shares_line = false;
  AllocConfig all = tag_batches;
  all.roots = 3;
  all.blocks = 4;
  all.hand_overs = true;
  all.version_bits = 4;
  return {
      {"operations, two lanes",
       two,
       {.exhaustive = true, .operations = 5, .runs_max = scaled(10'000)}},
      {"operations, containers",
       containers,
       {.exhaustive = true, .operations = 6, .runs_max = scaled(10'000)}},
      {"operations, roots in one line", packed, {.exhaustive = true, .operations = 3}},
      {"operations, hand-overs",
       hand_over,
       {.exhaustive = true, .operations = 4, .runs_max = scaled(10'000)}},
      {"steps, two switches",
       two,
       {.exhaustive = true, .steps = true, .operations = 3, .runs_max = scaled(5'000)}},
      {"steps, one switch, short ring",
       few,
       {.exhaustive = true,
        .steps = true,
        .operations = 4,
        .preemptions = 1,
        .runs_max = scaled(30'000)}},
      {"operations, versioned",
       tags,
       {.exhaustive = true, .operations = 5, .runs_max = scaled(10'000)}},
      {"operations, versioned containers",
       tag_containers,
       {.exhaustive = true, .operations = 5, .runs_max = scaled(10'000)}},
      {"operations, batches", batches, {.exhaustive = true, .operations = 3}},
      {"operations, versioned batches", tag_batches, {.exhaustive = true, .operations = 3}},
      {"steps, versioned, two switches",
       tags,
       {.exhaustive = true, .steps = true, .operations = 3, .runs_max = scaled(5'000)}},
      {"random operations, wraps",
       wraps,
       {.operations = 16, .sessions = 2, .runs_max = scaled(300), .images_max = 300}},
      {"random operations, versioned containers",
       tag_containers,
       {.operations = 14, .sessions = 2, .runs_max = scaled(750), .images_max = 200}},
      {"random steps, versioned", tags, random_steps(12, 150, 300)},
      {"random steps, versioned containers", tag_containers, random_steps(10, 300, 400)},
      {"random steps, both kinds", mixed, random_steps(12, 150, 300)},
      {"random steps, versioned batches", tag_batches, random_steps(12, 100, 300)},
      {"random steps, all", all, random_steps(14, 100, 300)},
      {"random operations, short ring", short_ring, random_operations},
      {"random steps, short ring", short_ring, random_steps(12, 100, 300)},
      {"random steps, containers", containers, random_steps(10, 300, 400)},
      {"random steps, hand-overs", hand_over, random_steps(10, 200, 400)},
      {"random steps, long ring", long_ring, random_steps(16, 75, 300)},
      {"random steps, three threads", three, random_steps(14, 75, 300)},
  };
}

TEST(AllocModel, every_crash_leaves_whole_operations_and_no_leak) {
  expect_no_failure(cases(), 500);
  EXPECT_EQ(AllocProtocol::mistakes().size(), 35u);
}

class AllocModelMistakes : public testing::TestWithParam<const char*> {};
TEST_P(AllocModelMistakes, is_found) { expect_found(GetParam(), cases(), 150); }
INSTANTIATE_TEST_SUITE_P(every, AllocModelMistakes, every_mistake<AllocProtocol>(),
                         name_of_mistake);

}  // namespace
}  // namespace tenuto_model
