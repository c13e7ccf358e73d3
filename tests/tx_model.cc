// Explores the transaction protocol (model/tx_protocol.h): every order of whole transactions of two
// lanes, orders of single steps with few switches, and random runs with crashes and clean closes
// between sessions. Before each fence and after each transaction it takes every image that a crash
// could leave. Each image is recovered with the lanes in every order, recovered twice, and crashed
// inside recovery. Then it plants mistakes, each of which must be found.
#include "model/cases.h"
#include "model/tx_protocol.h"

namespace tenuto_model {
namespace {

std::vector<Case<TxProtocol>> cases() {
  TxConfig two;
  TxConfig commits = two;
  commits.aborts = commits.drains = false;
  TxConfig packed = two;
  packed.values_share_line = true;
  TxConfig overflow = two;
  overflow.area_lines = 1;
  overflow.frames = 1;
  overflow.blocks = 1;
  overflow.dests = 1;
  TxConfig three = two;
  three.threads = three.values = three.blocks = 3;
  TxConfig three_overflow = three;
  three_overflow.area_lines = 2;
  three_overflow.frames = 2;
  TxConfig frees = two;
  frees.held = 3;
  frees.blocks = 3;
  frees.values = frees.dests = 1;
  TxConfig frees_alone = frees;
  frees_alone.values = frees_alone.dests = 0;
  frees_alone.aborts = false;
  TxConfig scarce = two;
  scarce.blocks = 1;
  scarce.drains = false;
  return {
      {"steps, one switch, one block",
       scarce,
       {.exhaustive = true, .steps = true, .operations = 2, .preemptions = 1}},
      {"whole transactions, all outcomes", two, {.exhaustive = true, .operations = 3}},
      {"whole transactions, commits", commits, {.exhaustive = true, .operations = 4}},
      {"overflow into frames", overflow, {.exhaustive = true, .operations = 3}},
      {"frees alone", frees_alone, {.exhaustive = true, .operations = 7}},
      {"frees and others", frees, {.exhaustive = true, .operations = 3}},
      {"frees alone, one switch",
       frees_alone,
       {.exhaustive = true, .steps = true, .operations = 5, .preemptions = 1}},
      {"random steps, frees", frees, random_steps(9, 260, 300)},
      {"two values in a line", packed, {.exhaustive = true, .operations = 2, .images_max = 5'000}},
      {"steps, two switches",
       two,
       {.exhaustive = true, .steps = true, .operations = 2, .runs_max = scaled(6'000)}},
      {"random steps, sessions", two, random_steps(6, 520, 500)},
      {"random steps, three threads", three, random_steps(8, 260, 300)},
      {"random steps, frames", three_overflow, random_steps(8, 260, 300)},
  };
}

TEST(TxModel, every_crash_leaves_whole_transactions) {
  expect_no_failure(cases(), 1'000);
  EXPECT_EQ(TxProtocol::mistakes().size(), 24u);
}

class TxModelMistakes : public testing::TestWithParam<const char*> {};
TEST_P(TxModelMistakes, is_found) { expect_found(GetParam(), cases(), 15); }
INSTANTIATE_TEST_SUITE_P(every, TxModelMistakes, every_mistake<TxProtocol>(), name_of_mistake);

}  // namespace
}  // namespace tenuto_model
