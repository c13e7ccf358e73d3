// What an engine itself counts, and how much of it a piece of work took.
#pragma once

namespace bench {

// Negative: it does not count.
struct EngineCounters {
  double lines_flushed = -1;
  double fences = -1;
  double reflushes = -1;
};

inline EngineCounters difference(const EngineCounters& after, const EngineCounters& before) {
  if (after.lines_flushed < 0) return {};
  return {after.lines_flushed - before.lines_flushed, after.fences - before.fences,
          after.reflushes - before.reflushes};
}

}  // namespace bench
