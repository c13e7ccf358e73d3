// Explores the store's leaf protocol (model/kv_protocol.h): every order of whole operations, orders
// of single steps with few switches, and random runs with crashes and clean closes between
// sessions, with and without batches. Before each fence and after each operation it takes every
// image that a crash could leave. Each image is recovered, recovered twice, and crashed inside
// recovery. Then it plants mistakes, each of which must be found.
//
// TENUTO_MODEL_SCALE multiplies the number of runs (default 1).
#include <gtest/gtest.h>

#include <cstdlib>

#include "model/explorer.h"
#include "model/kv_protocol_run.h"

namespace tenuto_model {
namespace {

using Explorer = ProtocolExplorer<KvProtocol, KvConfig>;

std::size_t scaled(std::size_t n) {
  const char* scale = std::getenv("TENUTO_MODEL_SCALE");
  return scale == nullptr ? n : static_cast<std::size_t>(static_cast<double>(n) * std::atof(scale));
}

struct Case {
  const char* name;
  KvConfig config;
  ExploreMode mode;
};

std::vector<Case> cases() {
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
  const auto random = [](std::size_t operations, std::size_t runs) {
    return ExploreMode{.steps = true,
                       .operations = operations,
                       .sessions = 3,
                       .runs_max = scaled(runs),
                       .images_max = 400};
  };
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
      {"random steps, scarce blocks", scarce, random(14, 2'000)},
      {"random steps, batches", wide, random(16, 800)},
      {"random steps, three threads", three, random(18, 500)},
  };
}

TEST(KvModel, every_crash_leaves_whole_operations_and_keys_that_stand_once) {
  for (const Case& c : cases()) {
    Explorer e(c.config);
    e.explore(c.mode);
    std::printf("%-30s runs %7llu  images %9llu  unique %8llu  recoveries %9llu\n", c.name,
                static_cast<unsigned long long>(e.runs), static_cast<unsigned long long>(e.images),
                static_cast<unsigned long long>(e.unique),
                static_cast<unsigned long long>(e.recoveries));
    std::fflush(stdout);
    EXPECT_EQ(e.failures, 0u) << c.name << ": " << e.first_failure;
    EXPECT_GT(e.unique, 500u);
  }
}

TEST(KvModel, every_planted_mistake_is_found) {
  for (int p = 1; p <= kKvPlants; ++p) {
    bool found = false;
    for (Case c : cases()) {
      c.config.plant = static_cast<KvPlant>(p);
      Explorer e(c.config);
      e.explore(c.mode);
      if (e.failures == 0) continue;
      found = true;
      std::printf("plant %2d: %s\n    %s\n", p, c.name, e.first_failure.c_str());
      std::fflush(stdout);
      break;
    }
    EXPECT_TRUE(found) << "plant " << p;
  }
}

}  // namespace
}  // namespace tenuto_model
