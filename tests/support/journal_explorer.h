// What journal_explorer.cc has tried, and how much it tries.
#pragma once

#include <cstdint>

namespace tenuto::test {

struct JournalCuts {
  std::uint64_t states = 0;      // of files that were opened and judged
  std::uint64_t in_replay = 0;   // of these, cut again during the open and judged once more
  std::uint64_t at_blocks = 0;   // cuts while a block of the journal is written,
  std::uint64_t at_headers = 0;  // its header is written,
  std::uint64_t at_pool = 0;     // the pool file is written, by a checkpoint or a superblock,
  std::uint64_t at_syncs = 0;    // or something is synced

  JournalCuts& operator+=(const JournalCuts& o) {
    states += o.states;
    in_replay += o.in_replay;
    at_blocks += o.at_blocks;
    at_headers += o.at_headers;
    at_pool += o.at_pool;
    at_syncs += o.at_syncs;
    return *this;
  }
};
inline JournalCuts journal_cuts;  // of all runs

inline std::uint64_t journal_events_per_cut = 4;  // on average

}  // namespace tenuto::test
