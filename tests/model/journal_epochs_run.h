// The steps of journal_epochs.h: threads, commits, the checkpoint.
#pragma once

#include "journal_epochs.h"

namespace tenuto_model {

inline EpochModel::EpochModel(const EpochConfig& config, std::vector<Program> programs)
    : config_(config),
      programs_(std::move(programs)),
      threads_(static_cast<int>(programs_.size())) {
  write_scripts();
}

// The steps of a flush. A mistake is another order of these steps.
inline void EpochModel::write_scripts() {
  std::string before = "A", each = "SLCP", after = "X";
  if (is(EpochPlant::sequence_after_image)) before = "AF", each = "LCSP";
  if (is(EpochPlant::tag_before_barrier)) each = "LSCP";
  if (is(EpochPlant::tag_before_announcement)) before = "", each = "LASCPX", after = "";
  if (is(EpochPlant::torn_image)) each = "SLcdP";
  if (config_.agreed_images) each = "SLqcdefrP";
  if (is(EpochPlant::image_read_twice)) each = "SLcdefP";
  for (int lines = 1; lines < 4; ++lines) {
    std::vector<Act>& script = scripts_[static_cast<std::size_t>(lines)];
    const int first = lines & 1 ? 0 : 1;
    for (const char c : before) script.push_back({Step{c}, static_cast<Byte>(first)});
    for (int line = first; line < kLines; ++line) {
      if ((lines >> line & 1) == 0) continue;
      for (const char c : each) script.push_back({Step{c}, static_cast<Byte>(line)});
      const bool only = is(EpochPlant::one_line_announced) && line == first;
      if (only) script.push_back({Step::leave, static_cast<Byte>(line)});
    }
    if (is(EpochPlant::one_line_announced)) continue;
    for (const char c : after) script.push_back({Step{c}, static_cast<Byte>(first)});
  }
}

// --- threads -------------------------------------------------------------------------------------

// Moves the oldest store of the buffer to memory.
inline bool EpochModel::drain(State& s, int t) {
  Thread& thread = s.threads[t];
  if (thread.buffered == 0) return false;
  const Stored e = thread.buffer[0];
  std::rotate(thread.buffer.begin(), thread.buffer.begin() + 1, thread.buffer.end());
  thread.buffer[--thread.buffered] = {};
  thread.buffer.back() = {};
  if (e.is_count != 0) {
    s.pools[e.at].slots[e.word].count = e.value;
    return true;
  }
  s.memory[e.at][e.word] = e.value;
  const Byte version = ++s.version[e.at];
  s.versions[e.at].at(version) = s.memory[e.at];
  if (e.covered == 1) thread.required[e.at] = std::max(thread.required[e.at], version);
  if (e.covered == 2) s.fenced[e.at] = std::max(s.fenced[e.at], version);
  return true;
}

inline Byte EpochModel::load(const State& s, int t, int line, int word) const {
  const Thread& thread = s.threads[t];
  for (int i = thread.buffered - 1; i >= 0; --i) {
    const Stored& e = thread.buffer[i];
    if (e.is_count == 0 && e.at == line && e.word == word) return e.value;
  }
  return s.memory[line][word];
}

inline bool EpochModel::run(State& s, int t) {
  Thread& thread = s.threads[t];
  const Instruction& in = programs_[t][thread.pc];
  switch (in.verb) {
    case Verb::end:
      return false;
    case Verb::store:
      if (!push(thread, {0, in.at, in.word, in.value, 0})) return false;
      next(thread);
      return true;
    case Verb::when:
      if (load(s, t, in.at, in.word) == in.value) {
        next(thread);
      } else {
        thread.pc = static_cast<Byte>(programs_[t].size() - 1);
      }
      return true;
    case Verb::flush:
      return flush(s, t, in.at);
    case Verb::fence:
      return fence(s, t);
    case Verb::sync:
      return sync(s, t, in.at);
    case Verb::leave:
      if (thread.buffered != 0) return false;  // the list of idle slots has a lock
      for (int p = 0; p < config_.pools; ++p) {
        if (thread.slot[p] != 0) s.pools[p].idle |= static_cast<Byte>(1 << (thread.slot[p] - 1));
        thread.slot[p] = 0;
      }
      next(thread);
      return true;
  }
  return false;
}

inline bool EpochModel::flush(State& s, int t, int lines) {
  Thread& thread = s.threads[t];
  Pool& pool = s.pools[pool_of(lines == 2 ? 1 : 0)];
  Byte& slot = thread.slot[&pool - s.pools.data()];
  if (slot == 0) {
    if (thread.buffered != 0) return false;  // under a lock
    if (pool.idle == 0) {
      slot = ++pool.made;
      return true;
    }
    while ((pool.idle >> slot++ & 1) == 0) {
    }
    pool.idle &= static_cast<Byte>(~(1 << (slot - 1)));
    pool.slots[slot - 1].last_tag = 0;
    if (is(EpochPlant::slot_cleared_when_handed_on)) pool.slots[slot - 1].images = {};
    return true;
  }
  const std::vector<Act>& script = scripts_[static_cast<std::size_t>(lines)];
  if (thread.step == 0) {  // note what this flush must cover
    for (int line = 0; line < kLines; ++line) {
      if ((lines >> line & 1) == 0) continue;
      thread.required[line] = std::max(thread.required[line], s.version[line]);
      for (int i = 0; i < thread.buffered; ++i) {
        Stored& e = thread.buffer[i];
        if (e.is_count == 0 && e.at == line) e.covered = std::max<Byte>(e.covered, 1);
      }
    }
    thread.flushed |= static_cast<Byte>(lines);
    thread.step = 1;
  }
  if (!capture(s, t, script[thread.step - 1u], script)) return false;
  if (++thread.step <= script.size()) return true;
  thread.tag = 0;
  next(thread);
  return true;
}

inline bool EpochModel::capture(State& s, int t, Act act, const std::vector<Act>& script) {
  Thread& thread = s.threads[t];
  const int p = pool_of(act.line);
  switch (act.step) {
    case Step::announce:
    case Step::leave: {  // adds one; only its own thread stores a slot's count
      Byte count = slot_of(s, t, p).count;
      for (const Stored& e : thread.buffer) {
        if (e.is_count != 0 && e.at == p) count = e.value;
      }
      return push(thread, {1, static_cast<Byte>(p), static_cast<Byte>(thread.slot[p] - 1),
                           static_cast<Byte>(count + 1), 0});
    }
    case Step::barrier:
      return thread.buffered == 0;
    case Step::sequence:  // a locked add: all earlier stores are in memory
      if (thread.buffered != 0 && !is(EpochPlant::no_barrier)) return false;
      thread.sequence = ++s.sequence[act.line];
      return true;
    case Step::tag:
      thread.tag = s.pools[p].epoch;
      return true;
    case Step::image:
      for (int w = 0; w < 2; ++w) thread.image[w] = load(s, t, act.line, w);
      return true;
    case Step::first:
      thread.image[0] = load(s, t, act.line, 0);
      return true;
    case Step::second:
      thread.image[1] = load(s, t, act.line, 1);
      return true;
    case Step::first_again:
      thread.again[0] = load(s, t, act.line, 0);
      return true;
    case Step::second_again:
      thread.again[1] = load(s, t, act.line, 1);
      if (thread.again != thread.image) back_to(thread, script, Step::first);
      return true;
    case Step::look_at_flushes:
      thread.seen = s.sequence[act.line];
      return true;
    case Step::nobody_flushed:
      if (thread.seen != s.sequence[act.line]) back_to(thread, script, Step::look_at_flushes);
      return true;
    case Step::put:
      put(s, t, act.line);
      return true;
  }
  return false;
}

// Makes `step` the next step again.
inline void EpochModel::back_to(Thread& thread, const std::vector<Act>& script, Step step) {
  while (script[thread.step - 1u].step != step) thread.step -= 1;
  thread.step -= 1;
}

inline void EpochModel::put(State& s, int t, int line) {
  Thread& thread = s.threads[t];
  Slot& slot = slot_of(s, t, pool_of(line));
  LineImage& to = slot.images[thread.tag & 1][line];
  const bool keeps = is(EpochPlant::keeps_old_sequence) && to.there != 0;
  to = {1, keeps ? to.sequence : thread.sequence, thread.image};
  slot.last_tag = thread.last_tag = thread.tag;
  thread.image = thread.again = {};
  thread.seen = 0;
  thread.sequence = 0;
}

inline bool EpochModel::fence(State& s, int t) {
  Thread& thread = s.threads[t];
  for (int p = 0; p < config_.pools; ++p) {
    if (thread.slot[p] == 0) continue;
    Slot& slot = slot_of(s, t, p);
    const bool waits = s.pools[p].closed + 1 < slot.last_tag;
    if (waits && !is(EpochPlant::fence_does_not_wait)) return false;
  }
  for (int p = 0; p < config_.pools; ++p) {
    if (thread.slot[p] != 0) slot_of(s, t, p).last_tag = 0;
  }
  for (int line = 0; line < kLines; ++line) {
    if (thread.flushed >> line & 1)
      s.fenced[line] = std::max(s.fenced[line], thread.required[line]);
  }
  for (Stored& e : thread.buffer) {
    if (e.covered == 1) e.covered = 2;
  }
  thread.required = {};
  thread.flushed = 0;
  next(thread);
  return true;
}

inline bool EpochModel::sync(State& s, int t, int p) {
  Thread& thread = s.threads[t];
  if (thread.step == 0) {
    thread.needed = s.fenced;
    thread.wanted = is(EpochPlant::sync_waits_for_own_tag) ? thread.last_tag : s.pools[p].epoch;
    thread.step = 1;
    return true;
  }
  if (s.pools[p].durable < thread.wanted) return false;
  for (int line = 0; line < kLines; ++line) {
    if (pool_of(line) != p) continue;
    for (const bool unsynced : {false, true}) {
      const Line found = recovered(s, line, s.pools[p].durable, unsynced);
      int version = s.version[line];
      while (version >= 0 && s.versions[line][version] != found) --version;
      if (version < thread.needed[line])
        wrong("sync returned, line " + std::to_string(line) + " is lost");
    }
  }
  thread.needed = {};
  thread.wanted = 0;
  next(thread);
  return true;
}

// --- pools ---------------------------------------------------------------------------------------

// The steps: publish, wait, close, merge, write. One commit at a time, as under commit_mu_.
inline bool EpochModel::commit(State& s, int p) {
  Pool& pool = s.pools[p];
  const auto e = static_cast<Byte>(pool.closed + (pool.step < 5 ? 1 : 0));
  const auto publish = [&] { pool.epoch = static_cast<Byte>(e + 1); };
  const auto list = [&] { pool.listed = pool.made; };
  const bool listed_first = is(EpochPlant::slots_listed_first);
  switch (pool.step) {
    case 0:
      if (pool.closed == config_.cuts) return false;
      if (listed_first) {
        list();
      } else if (!is(EpochPlant::epoch_published_late)) {
        publish();
      }
      break;
    case 1:
      listed_first ? publish() : list();
      if (is(EpochPlant::cut_does_not_wait)) pool.step = 3;
      break;
    case 2:
      if (pool.at == pool.listed) {
        pool.step = 3;
        break;
      }
      pool.seen = pool.slots[pool.at].count;
      if (pool.seen & 1) break;
      pool.at += 1;
      return true;
    case 3:
      if (pool.slots[pool.at].count == pool.seen) return false;
      pool.at += 1;
      pool.step = 2;
      return true;
    case 4:
      if (is(EpochPlant::epoch_published_late)) publish();
      pool.closed = e;
      for (int line = 0; line < kLines; ++line) {
        if (pool_of(line) != p) continue;
        s.oldest[e][line] = s.fenced[line];
        s.latest[e][line] = s.version[line];
      }
      break;
    case 5:
      for (Slot& slot : pool.slots) {
        if (&slot - pool.slots.data() >= pool.listed) break;
        for (int line = 0; line < kLines; ++line) {
          LineImage& from = slot.images[e & 1][line];
          LineImage& to = s.blocks[e][line];
          if (from.there && (!to.there || from.sequence > to.sequence)) to = from;
          from = {};
        }
      }
      break;
    case 6:
      pool.durable = e;
      pool.step = pool.at = pool.seen = pool.listed = 0;
      judge(s, p);
      return true;
  }
  pool.step += 1;
  if (pool.step == 6) judge(s, p);
  return true;
}

inline bool EpochModel::checkpoint(State& s) {
  Pool& pool = s.pools[0];
  const auto move_start = [&] {
    const bool at_end = is(EpochPlant::checkpoint_starts_at_its_end);
    pool.start = static_cast<Byte>((at_end ? pool.durable : s.through) + 1);
  };
  const auto sync_pool = [&] {
    for (int line = 0; line < kLines; ++line) {
      if (s.pending[line]) s.file[line] = s.unsynced[line];
    }
    s.pending = {};
    s.unsynced = {};
  };
  const bool early = is(EpochPlant::checkpoint_start_before_pool_synced);
  switch (s.checkpoint) {
    case 0:
      s.through = pool.durable;
      if (is(EpochPlant::checkpoint_of_block_in_flight) && pool.step == 6) s.through = pool.closed;
      if (s.through == 0) return false;
      for (int line = 0; line < kLines; ++line) {
        for (int e = pool.start; e <= s.through; ++e) {
          const bool keeps = is(EpochPlant::checkpoint_keeps_older_images) && s.pending[line];
          if (!s.blocks[e][line].there || keeps) continue;
          s.unsynced[line] = s.blocks[e][line].words;
          s.pending[line] = 1;
        }
        const bool copies = is(EpochPlant::checkpoint_copies_memory) && s.pending[line];
        if (copies) s.unsynced[line] = s.memory[line];
      }
      break;
    case 1:
      early ? move_start() : sync_pool();
      break;
    case 2:
      early ? sync_pool() : move_start();
      break;
    case 3:
      return false;
  }
  s.checkpoint += 1;
  judge(s, 0);
  return true;
}

}  // namespace tenuto_model
