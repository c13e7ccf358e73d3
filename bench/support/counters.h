// The counters of an engine, and their increase during a piece of work.
#pragma once

namespace bench {

// Negative: the engine does not count.
struct EngineCounters {
  double lines_flushed = -1;
  double fences = -1;
  double reflushes = -1;
};

// What the commits of tenuto's medium `journal` wrote. Negative: there is no journal.
struct JournalCounters {
  double commits = -1;
  double lines = -1;
  double payload_bytes = -1;  // compressed, with block headers
  double written_bytes = -1;  // padded to whole pages
  double checkpoint_bytes = -1;
};

inline EngineCounters difference(const EngineCounters& after, const EngineCounters& before) {
  if (after.lines_flushed < 0) return {};
  return {after.lines_flushed - before.lines_flushed, after.fences - before.fences,
          after.reflushes - before.reflushes};
}

inline JournalCounters difference(const JournalCounters& after, const JournalCounters& before) {
  if (after.commits < 0) return {};
  return {after.commits - before.commits, after.lines - before.lines,
          after.payload_bytes - before.payload_bytes, after.written_bytes - before.written_bytes,
          after.checkpoint_bytes - before.checkpoint_bytes};
}

}  // namespace bench
