// From the recorder's lines to the crash states at one moment: which contents each line may have
// after a crash, and which combinations of them to try. Pure functions of their arguments; called
// by explore_worker.cc (states inside recovery) and explore_run.cc (states of the workload).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "pm/trace_recorder.h"
#include "tenuto/abi.h"

namespace tenuto::inline TENUTO_ABI::pm {

// What random choices come from; the same seed gives the same run on every machine.
class ExploreRng {
 public:
  explicit ExploreRng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t n) { return next() % n; }  // REQUIRES: n > 0

 private:
  std::uint64_t state_;
};

std::uint64_t hash_mix(std::uint64_t x);
// Of one line's content at its place; an image's hash is the exclusive or over its lines.
std::uint64_t line_hash(std::uint64_t line, const LineWords& words);

// One content that a line may have: the first `prefix` stores, and of the group behind them those
// in `mask`.
struct LineVariant {
  LineWords words;
  std::uint64_t hash;  // line_hash
  std::uint32_t prefix;
  std::uint64_t mask;
};

// variants[0] is the floor, variants[newest] the present content; no two have equal words.
struct LineChoices {
  std::uint64_t line;
  std::vector<LineVariant> variants;
  std::uint32_t newest = 0;
  std::vector<std::uint32_t> of_prefix;  // variant that holds the first i stores
  std::vector<std::uint64_t> orders;     // of the stores
  bool recent = false;                   // stored to since the crash point before
};

// reorder: stores without a release store, flush or fence between them survive in any order.
LineChoices choices_of(const LineLog& log, bool reorder, std::uint64_t order_before);

// All lines old, or all new, but for the picks (index of line, index of variant).
struct CrashState {
  bool base_new = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> picks;
};

struct StateLimits {
  std::size_t product_max = 2000;  // everything, when it is not more than this
  std::size_t samples_max = 200;   // random ones, when it is more
};

std::vector<CrashState> crash_states(const std::vector<LineChoices>& lines,
                                     const StateLimits& limits, std::uint64_t order_before,
                                     ExploreRng& rng);

// Exclusive or of the changes against all lines old.
std::uint64_t state_hash(const std::vector<LineChoices>& lines, const CrashState& state);
std::uint32_t variant_in(const std::vector<LineChoices>& lines, const CrashState& state,
                         std::uint32_t line);

}  // namespace tenuto::inline TENUTO_ABI::pm
