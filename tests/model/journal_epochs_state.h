// The epochs of medium `journal` in every order (src/journal/capture.h; the commits and checkpoints
// of journal.cc). The model has two lines of two words, up to three threads with the store buffers
// of x86, and one or two pools. Threads run short programs. Each pool has a thread that commits,
// and pool 0 one that makes a checkpoint. Steps are as fine as other threads can see them.
//
// A slot has only one line image, the last one. capture.h may keep older images of the same thread,
// too, but they have lower sequences and never count.
//
// The judge looks at every block and at every step of a checkpoint. Recovery from the pool file and
// the blocks must give a state that real memory could have had at that cut: of each line a version
// that was in memory, and not older than what was fenced by then. Also, sync returns only when all
// that was fenced before it is durable.
//
// This file has the state and the judge. journal_epochs.h has the steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "mistakes.h"
#include "search.h"

namespace tenuto_model {

using Byte = std::uint8_t;
inline constexpr int kLines = 2, kPoolsMax = 2, kThreadsMax = 3, kEpochs = 4;
inline constexpr int kVersionsMax = 12, kBufferMax = 3;
using Line = std::array<Byte, 2>;

enum class Verb : Byte { end, store, flush, fence, when, sync, leave };
struct Instruction {
  Verb verb = Verb::end;
  Byte at = 0;  // line; of flush: a set of lines; of sync: a pool
  Byte word = 0;
  Byte value = 0;
};
using Program = std::vector<Instruction>;  // the last instruction is end

struct EpochConfig {
  const char* plant = nullptr;
  int pools = 1;  // two: line 1 is the second one's
  int cuts = 2;   // of each pool, at most; and at most kEpochs - 2
  bool checkpoint = false;
  bool agreed_images = false;         // copied word by word, as on processors without AVX-512
  bool second_implies_first = false;  // also check that line 0 changed if line 1 did
  std::size_t states_max = 300'000;
};

class EpochState : public Mistakes<class EpochModel> {
 public:
  struct LineImage {
    Byte there, sequence;
    Line words;
  };
  struct Stored {  // in a store buffer: a word, or a slot's count
    Byte is_count, at, word, value;
    Byte covered;  // flushed: 1; flushed and fenced: 2 (only where a barrier is missing)
  };
  struct Thread {
    Byte pc, step, buffered, tag, sequence, flushed, wanted, last_tag, seen;
    Line image, again;
    std::array<Byte, kPoolsMax> slot;  // number + 1; 0: none yet
    std::array<Byte, kLines> required, needed;
    std::array<Stored, kBufferMax> buffer;
  };
  struct Slot {
    Byte count, last_tag;
    std::array<std::array<LineImage, kLines>, 2> images;  // by parity of the epoch
  };
  struct Pool {
    Byte epoch, closed, durable, start, step, at, seen, listed, made, idle;
    std::array<Slot, kThreadsMax> slots;
  };
  struct State {
    std::array<Line, kLines> memory, file, unsynced;
    std::array<Thread, kThreadsMax> threads;
    std::array<Pool, kPoolsMax> pools;
    std::array<std::array<LineImage, kLines>, kEpochs> blocks;
    std::array<std::array<Byte, kLines>, kEpochs> oldest, latest;  // versions legal at the cut
    std::array<std::array<Line, kVersionsMax>, kLines> versions;
    std::array<Byte, kLines> version, fenced, sequence, pending;  // pending: written, not synced
    Byte checkpoint, through;
  };

  State first() const {
    State s{};
    for (Pool& pool : s.pools) pool.epoch = pool.start = 1;
    return s;
  }

  std::string violation;  // empty: none

 protected:
  explicit EpochState(const EpochConfig& config) : Mistakes(config.plant), config_(config) {}

  int pool_of(int line) const { return config_.pools == 1 ? 0 : line; }
  Slot& slot_of(State& s, int t, int p) { return s.pools[p].slots[s.threads[t].slot[p] - 1]; }
  bool push(Thread& t, Stored e) {
    if (t.buffered == kBufferMax) return false;
    t.buffer[t.buffered++] = e;
    return true;
  }
  void next(Thread& t) { t.pc += 1, t.step = 0; }
  void wrong(const std::string& what) {
    if (violation.empty()) violation = what;
  }

  // The content of a line after recovery, if the blocks up to `epoch` survive. The pool file has
  // what was synced, or the line that was written since.
  Line recovered(const State& s, int line, int epoch, bool of_unsynced) const {
    Line found = of_unsynced && s.pending[line] ? s.unsynced[line] : s.file[line];
    for (int e = s.pools[pool_of(line)].start; e <= epoch; ++e) {
      if (s.blocks[e][line].there) found = s.blocks[e][line].words;
    }
    return found;
  }

  void judge(const State& s, int p) {
    const Pool& pool = s.pools[p];
    const int last =
        pool.step == 6 ? pool.closed : pool.durable;  // one more block may be in flight
    for (int e = pool.durable; e <= last; ++e) {
      for (int line = 0; line < kLines; ++line) {
        if (pool_of(line) != p) continue;
        for (const bool unsynced : {false, true}) {
          const Line found = recovered(s, line, e, unsynced);
          bool legal = false;
          for (int v = s.oldest[e][line]; v <= s.latest[e][line]; ++v) {
            legal |= s.versions[line][v] == found;
          }
          if (legal) continue;
          wrong("line " + std::to_string(line) + " is recovered as " + std::to_string(found[0]) +
                "," + std::to_string(found[1]) + " from the blocks up to " + std::to_string(e) +
                ": none of its versions " + std::to_string(s.oldest[e][line]) + ".." +
                std::to_string(s.latest[e][line]));
        }
      }
    }
    if (config_.second_implies_first) judge_both(s);
  }

  void judge_both(const State& s) {
    const auto last = [&](int line) {
      const Pool& pool = s.pools[pool_of(line)];
      return pool.step == 6 ? pool.closed : pool.durable;
    };
    for (int e1 = s.pools[pool_of(1)].durable; e1 <= last(1); ++e1) {
      for (int e0 = s.pools[0].durable; e0 <= last(0); ++e0) {
        if (config_.pools == 1 && e0 != e1) continue;
        const bool first = recovered(s, 0, e0, false) != Line{};
        const bool second = recovered(s, 1, e1, false) != Line{};
        if (second && !first) wrong("line 1 is there, line 0 that it followed is not");
      }
    }
  }

  const EpochConfig config_;
};

}  // namespace tenuto_model
