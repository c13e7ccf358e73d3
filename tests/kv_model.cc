// Explores the store's leaf protocol (model/kv_protocol.h): every order of whole operations, orders
// of single steps with few switches, and random runs with crashes and clean closes between
// sessions, with and without batches. Before each fence and after each operation it takes every
// image that a crash could leave. Each image is recovered, recovered twice, and crashed inside
// recovery. Then it plants mistakes, each of which must be found.
#include "model/cases.h"
#include "model/kv_protocol.h"

namespace tenuto_model {
namespace {

std::vector<Case<KvProtocol>> cases() {
  KvConfig one{.threads = 1, .keys = 3, .blocks = 4, .leaves = 3, .slots = 2};
  KvConfig two = one;
  two.threads = 2;
  KvConfig scarce = two;  // released blocks and leaves are reused at once
  scarce.keys = 4;
  scarce.leaves = 2;
  KvConfig batches = two;
  batches.batches = true;
  KvConfig wide{.threads = 2, .keys = 7, .blocks = 8, .leaves = 4, .slots = 3, .batches = true};
  KvConfig three = wide;
  three.threads = 3;
  return {
      {"operations, one thread",
       one,
       {.exhaustive = true, .operations = 7, .runs_max = scaled(60'000)}},
      {"operations, two threads",
       two,
       {.exhaustive = true, .operations = 5, .runs_max = scaled(60'000)}},
      {"operations, batches", batches, {.exhaustive = true, .operations = 3}},
      {"steps, two switches",
       two,
       {.exhaustive = true, .steps = true, .operations = 5, .runs_max = scaled(30'000)}},
      {"random operations, batches",
       wide,
       {.operations = 16, .sessions = 3, .runs_max = scaled(1'500), .images_max = 400}},
      {"random steps, scarce blocks", scarce, random_steps(14, 2'000, 400)},
      {"random steps, batches", wide, random_steps(16, 800, 400)},
      {"random steps, three threads", three, random_steps(18, 500, 400)},
  };
}

TEST(KvModel, every_crash_leaves_whole_operations_and_keys_that_stand_once) {
  expect_no_failure(cases(), 500);
  EXPECT_EQ(KvProtocol::mistakes().size(), 23u);
}

class KvModelMistakes : public testing::TestWithParam<const char*> {};
TEST_P(KvModelMistakes, is_found) { expect_found(GetParam(), cases(), 150); }
INSTANTIATE_TEST_SUITE_P(every, KvModelMistakes, every_mistake<KvProtocol>(), name_of_mistake);

}  // namespace
}  // namespace tenuto_model
