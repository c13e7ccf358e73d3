// Turns the recorder's lines into the crash states of one crash point: which contents each line may
// have after a crash, and which combinations of them to try. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "crash/trace_recorder.h"
#include "tenuto/abi.h"
#include "tenuto/crash.h"

namespace TENUTO_NS::pm {

// The source of random choices. The same seed gives the same run on every machine.
class ExploreRng {
 public:
  explicit ExploreRng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t n) { return next() % n; }  // REQUIRES: n > 0

 private:
  std::uint64_t state_;
};

std::uint64_t hash_mix(std::uint64_t x);
// The hash of one line's content at its place. An image's hash is the exclusive or over its lines.
std::uint64_t line_hash(std::uint64_t line, const LineWords& words);

// One content that a line may have: the floor, the first `prefix` stores, and those stores behind
// them whose bit is in `mask` (bit 0: the store number `prefix`).
struct LineVariant {
  LineWords words;
  std::uint64_t hash;  // line_hash
  std::uint32_t prefix;
  std::uint64_t mask;
};

// variants[0] is the floor, variants[newest] the present content. No two have equal words.
struct LineChoices {
  std::uint64_t line;
  std::vector<LineVariant> variants;
  std::uint32_t newest = 0;
  std::vector<std::uint32_t> of_prefix;  // [i]: the variant with the first i stores
  std::vector<std::uint64_t> orders;     // of the stores
  bool recent = false;                   // stored to since the previous crash point
};

// All stores so far survive a crash point that was passed.
inline bool keeps_all(CrashMode m) { return m == CrashMode::eadr || m == CrashMode::kill; }
inline bool reorders(const CrashOptions& o) { return o.reorder_stores && o.mode == CrashMode::adr; }
// With `reorder`, any part of a group (StoreRecord) may survive. `order_before` is the order of the
// last store before the previous crash point.
LineChoices choices_of(const LineLog& log, bool reorder, std::uint64_t order_before);

// All lines old (variant 0) or all new (newest), but for the picks (index of line, of variant).
struct CrashState {
  bool base_new = false;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> picks;
};

// A unit survives or is lost as one: in mode adr a line, in mode page a sector, else
// everything. Variant 0 of a unit is all old, variant newest() all new.
class CrashUnits {
 public:
  CrashUnits(const std::vector<LineChoices>& lines, CrashMode mode);

  std::size_t size() const { return by_line_ ? lines_.size() : groups_.size(); }
  std::size_t variants(std::size_t unit) const {
    return by_line_ ? lines_[unit].variants.size() : groups_[unit].orders.size() + 1;
  }
  std::uint32_t newest(std::size_t unit) const {
    return by_line_ ? lines_[unit].newest : static_cast<std::uint32_t>(groups_[unit].orders.size());
  }
  // Stored to since the previous crash point.
  bool recent(std::size_t unit) const {
    return by_line_ ? lines_[unit].recent : groups_[unit].recent;
  }
  // Gives the unit this variant. REQUIRES: the state has no pick for it yet.
  void pick(CrashState& state, std::size_t unit, std::uint32_t variant) const;
  // Makes the unit all new.
  void persist(CrashState& state, std::size_t unit) const;
  bool all_new(const CrashState& state, std::size_t unit) const;

 private:
  struct Group {
    std::vector<std::uint32_t> lines;
    std::vector<std::uint64_t> orders;  // of stores; a crash is tried after each of them
    bool recent = false;
  };
  const std::vector<LineChoices>& lines_;
  bool by_line_;
  std::vector<Group> groups_;
};

struct StateLimits {
  std::size_t product_max = 2000;  // all combinations, up to this many
  std::size_t samples_max = 200;   // random ones, when there are more
  CrashMode mode = CrashMode::adr;
};

std::vector<CrashState> crash_states(const std::vector<LineChoices>& lines,
                                     const StateLimits& limits, std::uint64_t order_before,
                                     ExploreRng& rng);

// The hash of a state: the exclusive or of the hash changes against all lines old. Takes as long as
// the state has picks.
class StateHashes {
 public:
  explicit StateHashes(const std::vector<LineChoices>& lines);
  std::uint64_t operator()(const CrashState& state) const;

 private:
  std::uint64_t change(std::uint32_t line, std::uint32_t variant) const {
    return lines_[line].variants[0].hash ^ lines_[line].variants[variant].hash;
  }
  const std::vector<LineChoices>& lines_;
  std::uint64_t all_new_ = 0;
};
void set_variant(CrashState& state, std::uint32_t line, std::uint32_t variant);
std::uint32_t variant_in(const std::vector<LineChoices>& lines, const CrashState& state,
                         std::uint32_t line);

}  // namespace TENUTO_NS::pm
