// A map in a pool and scripts of transactions on it, for crash tests. Each step is a transaction of
// some inserts, assignments and erases, or one that is rolled back. After a crash the map shows the
// first n steps, with acknowledged <= n <= invoked, it validates, and exactly its blocks are
// allocated.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/tx_parts.h"
#include "tenuto/crash.h"

namespace tenuto::test {

struct MapEdit {
  enum Kind { insert, assign, erase, clear };
  Kind kind;
  std::uint64_t key = 0;
  std::uint64_t last = 0;  // 0: this key alone; else in steps of `by` up to this one
  std::uint64_t by = 1;
};

struct MapStep {
  std::vector<MapEdit> edits;
  bool aborted = false;
};

struct MapScript {
  enum Kind { ordered, hashed };
  Kind kind;
  std::vector<MapEdit> before;  // the setup
  std::vector<MapStep> steps;
};

using MapState = std::map<std::uint64_t, std::uint64_t>;

class MapsCrash {
 public:
  explicit MapsCrash(const MapScript& script) : script_(script) {}
  CrashResult run(const CrashOptions& options) const;

 private:
  const MapScript& script_;
  mutable std::vector<MapState> states_;  // after each step
};

CrashOptions maps_crash_options();

// A leaf fills, splits at its end and in its middle, and so on up to three levels.
extern const MapScript kMapGrows;
extern const MapScript kMapThirdLevel;
// Leaves and inner nodes merge, down to nothing.
extern const MapScript kMapShrinks;
// Slots are emptied and filled in one transaction, which commits or is rolled back.
extern const MapScript kMapReuses;
// Buckets are split, and get others behind them.
extern const MapScript kTableGrows;
extern const MapScript kTableShrinks;
extern const MapScript kTableReuses;
// Buckets are merged: with a segment and without, and split again in the same transaction; with
// others behind them.
extern const MapScript kTableMerges;
extern const MapScript kTableMergesChains;

}  // namespace tenuto::test
