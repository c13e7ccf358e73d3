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
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tenuto_model {

enum class EpochPlant {
  none,
  sequence_after_image,
  tag_before_barrier,       // the locked add comes after the epoch is read
  no_barrier,               // a plain add takes the sequence
  tag_before_announcement,  // the epoch is read before the slot is announced
  one_line_announced,       // the slot is left after the first of several lines
  torn_image,               // copied word by word
  image_read_twice,         // until two readings agree, without a look at flushes
  keeps_old_sequence,       // a replaced line image keeps its old sequence
  fence_does_not_wait,
  cut_does_not_wait,
  epoch_published_late,  // without a barrier: the slots are read first
  slots_listed_first,    // before the epoch is published
  slot_cleared_when_handed_on,
  sync_waits_for_own_tag,
  checkpoint_copies_memory,  // copies memory instead of the line images of durable blocks
  checkpoint_of_block_in_flight,
  checkpoint_starts_at_its_end,  // the start moves to the end that the journal has then
  checkpoint_start_before_pool_synced,
  checkpoint_keeps_older_images,
};
inline constexpr int kEpochPlants = 19;

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
  EpochPlant plant = EpochPlant::none;
  int pools = 1;  // two: line 1 is the second one's
  int cuts = 2;   // of each pool, at most; and at most kEpochs - 2
  bool checkpoint = false;
  bool agreed_images = false;         // copied word by word, as on processors without AVX-512
  bool second_implies_first = false;  // also check that line 0 changed if line 1 did
  std::size_t states_max = 300'000;
};

class EpochModel {
 public:
  EpochModel(const EpochConfig& config, std::vector<Program> programs);

  // Tries every order of all steps, until something is wrong.
  void explore();

  std::size_t states = 0;
  bool whole = true;      // false: states_max was reached
  std::string violation;  // empty: none
  std::string trace;      // the steps that led to it

 private:
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
  static_assert(alignof(State) == 1);  // only bytes, because a state is hashed as a whole

  enum class Step : char {
    announce = 'A',
    sequence = 'S',
    tag = 'L',
    image = 'C',
    first = 'c',
    second = 'd',
    first_again = 'e',
    second_again = 'f',
    look_at_flushes = 'q',
    nobody_flushed = 'r',
    put = 'P',
    leave = 'X',
    barrier = 'F',
  };
  struct Act {
    Step step;
    Byte line;
  };

  bool is(EpochPlant p) const { return config_.plant == p; }
  int pool_of(int line) const { return config_.pools == 1 ? 0 : line; }
  void write_scripts();
  bool act(State& s, int action);
  std::string name_of(const State& s, int action) const;
  // Each function makes one step. It returns false if it has to wait.
  bool run(State& s, int t);
  bool drain(State& s, int t);
  bool flush(State& s, int t, int lines);
  bool capture(State& s, int t, Act act, const std::vector<Act>& script);
  bool fence(State& s, int t);
  bool sync(State& s, int t, int pool);
  bool commit(State& s, int p);
  bool checkpoint(State& s);

  Slot& slot_of(State& s, int t, int p) { return s.pools[p].slots[s.threads[t].slot[p] - 1]; }
  bool push(Thread& t, Stored e) {
    if (t.buffered == kBufferMax) return false;
    t.buffer[t.buffered++] = e;
    return true;
  }
  Byte load(const State& s, int t, int line, int word) const;
  void next(Thread& t) { t.pc += 1, t.step = 0; }
  static void back_to(Thread& thread, const std::vector<Act>& script, Step step);
  void put(State& s, int t, int line);
  Line recovered(const State& s, int line, int epoch, bool of_unsynced) const;
  void judge(const State& s, int p);
  void judge_both(const State& s);
  void wrong(const std::string& what) {
    if (violation.empty()) violation = what;
  }

  const EpochConfig config_;
  const std::vector<Program> programs_;
  const int threads_;
  std::array<std::vector<Act>, 4> scripts_;  // by set of lines
};

}  // namespace tenuto_model

#include "journal_epochs_run.h"
#include "journal_epochs_search.h"
