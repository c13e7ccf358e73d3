// The steps of the epochs: threads, commits, the checkpoint. search.h tries every order of them.
#pragma once

#include "journal_epochs_state.h"

namespace tenuto_model {

class EpochModel : public EpochState {
 public:
  EpochModel(const EpochConfig& config, std::vector<Program> programs)
      : EpochState(config),
        programs_(std::move(programs)),
        threads_(static_cast<int>(programs_.size())) {
    write_scripts();
  }

  int actions() const { return 2 * threads_ + config_.pools + 1; }

  // Actions: the next step of each thread, each store buffer, each pool's commit, the checkpoint.
  bool act(State& s, int action) {
    if (action < threads_) return run(s, action);
    action -= threads_;
    if (action < threads_) return drain(s, action);
    action -= threads_;
    if (action < config_.pools) return commit(s, action);
    return config_.checkpoint && checkpoint(s);
  }

  std::string name_of(const State& s, int action) const {
    const auto number = [](int n) { return std::to_string(n); };
    if (action < threads_) {
      const Thread& t = s.threads[action];
      const Instruction& in = programs_[action][t.pc];
      const std::string who = " T" + number(action) + ".";
      switch (in.verb) {
        case Verb::end:
          break;
        case Verb::store:
          return who + "store" + number(in.at) + "." + number(in.word) + "=" + number(in.value);
        case Verb::flush: {
          if (t.slot[pool_of(in.at == 2 ? 1 : 0)] == 0) return who + "slot";
          const Act a = scripts_[in.at][t.step == 0 ? 0u : t.step - 1u];
          return who + "flush" + number(a.line) + static_cast<char>(a.step);
        }
        case Verb::fence:
          return who + "fence";
        case Verb::when:
          return who + "load" + number(in.at) + "." + number(in.word);
        case Verb::sync:
          return who + (t.step == 0 ? "sync" : "synced");
        case Verb::leave:
          return who + "leave";
      }
      return who + "end";
    }
    action -= threads_;
    if (action < threads_) return " T" + number(action) + ".drain";
    action -= threads_;
    static constexpr const char* kCommit[] = {"publish", "list",  "look",   "wait",
                                              "close",   "merge", "durable"};
    if (action < config_.pools) return " P" + number(action) + "." + kCommit[s.pools[action].step];
    return " checkpoint" + number(s.checkpoint);
  }

  // A sync may wait for a cut that this search does not make.
  void stuck(const State& s) {
    for (int t = 0; t < threads_; ++t) {
      const Verb verb = programs_[t][s.threads[t].pc].verb;
      if (verb != Verb::end && verb != Verb::sync) wrong("a thread waits for ever");
    }
  }

 private:
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

  // The steps of a flush. A mistake is another order of these steps.
  void write_scripts() {
    std::string before = "A", each = "SLCP", after = "X";
    if (planted<"sequence_after_image">()) before = "AF", each = "LCSP";
    if (planted<"tag_before_barrier">()) each = "LSCP";
    if (planted<"tag_before_announcement">()) before = "", each = "LASCPX", after = "";
    if (planted<"torn_image">()) each = "SLcdP";
    if (config_.agreed_images) each = "SLqcdefrP";
    if (planted<"image_read_twice">()) each = "SLcdefP";
    for (int lines = 1; lines < 4; ++lines) {
      std::vector<Act>& script = scripts_[static_cast<std::size_t>(lines)];
      const int first = lines & 1 ? 0 : 1;
      for (const char c : before) script.push_back({Step{c}, static_cast<Byte>(first)});
      for (int line = first; line < kLines; ++line) {
        if ((lines >> line & 1) == 0) continue;
        for (const char c : each) script.push_back({Step{c}, static_cast<Byte>(line)});
        const bool only = planted<"one_line_announced">() && line == first;
        if (only) script.push_back({Step::leave, static_cast<Byte>(line)});
      }
      if (planted<"one_line_announced">()) continue;
      for (const char c : after) script.push_back({Step{c}, static_cast<Byte>(first)});
    }
  }

  // Moves the oldest store of the buffer to memory.
  bool drain(State& s, int t) {
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

  Byte load(const State& s, int t, int line, int word) const {
    const Thread& thread = s.threads[t];
    for (int i = thread.buffered - 1; i >= 0; --i) {
      const Stored& e = thread.buffer[i];
      if (e.is_count == 0 && e.at == line && e.word == word) return e.value;
    }
    return s.memory[line][word];
  }

  bool run(State& s, int t) {
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

  bool flush(State& s, int t, int lines) {
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
      if (planted<"slot_cleared_when_handed_on">()) pool.slots[slot - 1].images = {};
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

  bool capture(State& s, int t, Act act, const std::vector<Act>& script) {
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
        if (thread.buffered != 0 && !planted<"no_barrier">()) return false;
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
  void back_to(Thread& thread, const std::vector<Act>& script, Step step) {
    while (script[thread.step - 1u].step != step) thread.step -= 1;
    thread.step -= 1;
  }

  void put(State& s, int t, int line) {
    Thread& thread = s.threads[t];
    Slot& slot = slot_of(s, t, pool_of(line));
    LineImage& to = slot.images[thread.tag & 1][line];
    const bool keeps = planted<"keeps_old_sequence">() && to.there != 0;
    to = {1, keeps ? to.sequence : thread.sequence, thread.image};
    slot.last_tag = thread.last_tag = thread.tag;
    thread.image = thread.again = {};
    thread.seen = 0;
    thread.sequence = 0;
  }

  bool fence(State& s, int t) {
    Thread& thread = s.threads[t];
    for (int p = 0; p < config_.pools; ++p) {
      if (thread.slot[p] == 0) continue;
      Slot& slot = slot_of(s, t, p);
      const bool waits = s.pools[p].closed + 1 < slot.last_tag;
      if (waits && !planted<"fence_does_not_wait">()) return false;
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

  bool sync(State& s, int t, int p) {
    Thread& thread = s.threads[t];
    if (thread.step == 0) {
      thread.needed = s.fenced;
      thread.wanted = planted<"sync_waits_for_own_tag">() ? thread.last_tag : s.pools[p].epoch;
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

  // The steps: publish, wait, close, merge, write. One commit at a time, as under commit_mu_.
  bool commit(State& s, int p) {
    Pool& pool = s.pools[p];
    const auto e = static_cast<Byte>(pool.closed + (pool.step < 5 ? 1 : 0));
    const auto publish = [&] { pool.epoch = static_cast<Byte>(e + 1); };
    const auto list = [&] { pool.listed = pool.made; };
    const bool listed_first = planted<"slots_listed_first">();
    switch (pool.step) {
      case 0:
        if (pool.closed == config_.cuts) return false;
        if (listed_first) {
          list();
        } else if (!planted<"epoch_published_late">()) {
          publish();
        }
        break;
      case 1:
        listed_first ? publish() : list();
        if (planted<"cut_does_not_wait">()) pool.step = 3;
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
        if (planted<"epoch_published_late">()) publish();
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

  bool checkpoint(State& s) {
    Pool& pool = s.pools[0];
    const auto move_start = [&] {
      const bool at_end = planted<"checkpoint_starts_at_its_end">();
      pool.start = static_cast<Byte>((at_end ? pool.durable : s.through) + 1);
    };
    const auto sync_pool = [&] {
      for (int line = 0; line < kLines; ++line) {
        if (s.pending[line]) s.file[line] = s.unsynced[line];
      }
      s.pending = {};
      s.unsynced = {};
    };
    const bool early = planted<"checkpoint_start_before_pool_synced">();
    switch (s.checkpoint) {
      case 0:
        s.through = pool.durable;
        if (planted<"checkpoint_of_block_in_flight">() && pool.step == 6) s.through = pool.closed;
        if (s.through == 0) return false;
        for (int line = 0; line < kLines; ++line) {
          for (int e = pool.start; e <= s.through; ++e) {
            const bool keeps = planted<"checkpoint_keeps_older_images">() && s.pending[line];
            if (!s.blocks[e][line].there || keeps) continue;
            s.unsynced[line] = s.blocks[e][line].words;
            s.pending[line] = 1;
          }
          const bool copies = planted<"checkpoint_copies_memory">() && s.pending[line];
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

  const std::vector<Program> programs_;
  const int threads_;
  std::array<std::vector<Act>, 4> scripts_;  // by set of lines
};

}  // namespace tenuto_model
