// Searches all orders of the steps of journal_epochs.h: depth first, each state once. Keeps the
// path to a violation.
#pragma once

#include "journal_epochs.h"

namespace tenuto_model {

// The content of a line after recovery, if the blocks up to `epoch` survive. The pool file has what
// was synced, or the line that was written since.
inline Line EpochModel::recovered(const State& s, int line, int epoch, bool of_unsynced) const {
  Line found = of_unsynced && s.pending[line] ? s.unsynced[line] : s.file[line];
  for (int e = s.pools[pool_of(line)].start; e <= epoch; ++e) {
    if (s.blocks[e][line].there) found = s.blocks[e][line].words;
  }
  return found;
}

inline void EpochModel::judge(const State& s, int p) {
  const Pool& pool = s.pools[p];
  const int last = pool.step == 6 ? pool.closed : pool.durable;  // one more block may be in flight
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

inline void EpochModel::judge_both(const State& s) {
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

// Actions: the next step of each thread, each store buffer, each pool's commit, the checkpoint.
inline bool EpochModel::act(State& s, int action) {
  if (action < threads_) return run(s, action);
  action -= threads_;
  if (action < threads_) return drain(s, action);
  action -= threads_;
  if (action < config_.pools) return commit(s, action);
  return config_.checkpoint && checkpoint(s);
}

inline std::string EpochModel::name_of(const State& s, int action) const {
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

// A set of hashes of seen states, 64 bits each: open addressing, at most half full.
class SeenStates {
 public:
  bool insert(std::uint64_t hash) {
    if (hash == 0) hash = 1;
    if (2 * (size_ + 1) > slots_.size()) grow();
    const bool fresh = place(hash);
    size_ += fresh ? 1 : 0;
    return fresh;
  }
  std::size_t size() const { return size_; }

 private:
  bool place(std::uint64_t hash) {
    std::size_t i = hash & (slots_.size() - 1);
    for (; slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i] == hash) return false;
    }
    slots_[i] = hash;
    return true;
  }
  void grow() {
    std::vector<std::uint64_t> old(slots_.size() * 2);
    old.swap(slots_);
    for (const std::uint64_t hash : old) {
      if (hash != 0) place(hash);
    }
  }
  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(1 << 14);
  std::size_t size_ = 0;
};

inline void EpochModel::explore() {
  struct Node {
    std::uint32_t parent;
    Byte action;
  };
  struct Open {
    State state;
    std::uint32_t node;
  };
  const auto hash_of = [](const State& s) {
    std::array<std::uint64_t, (sizeof(State) + 7) / 8> words{};
    std::memcpy(words.data(), &s, sizeof s);
    std::uint64_t h = 0x9e3779b97f4a7c15u;
    for (const std::uint64_t w : words) h = (h ^ w) * 0xff51afd7ed558ccdu, h ^= h >> 32;
    return h;
  };
  State first{};
  for (Pool& pool : first.pools) pool.epoch = pool.start = 1;
  std::vector<Node> nodes{{0, 0}};
  std::vector<Open> open{{first, 0}};
  SeenStates seen;
  seen.insert(hash_of(first));
  const int actions = 2 * threads_ + config_.pools + 1;
  std::size_t last = 0;  // the node with the violation
  while (!open.empty() && violation.empty()) {
    const Open from = open.back();
    open.pop_back();
    bool any = false;
    for (int action = 0; action < actions && violation.empty(); ++action) {
      State to = from.state;
      if (!act(to, action)) continue;
      any = true;
      if (violation.empty() && !seen.insert(hash_of(to))) continue;
      last = nodes.size();
      nodes.push_back({from.node, static_cast<Byte>(action)});
      open.push_back({to, static_cast<std::uint32_t>(nodes.size() - 1)});
    }
    for (int t = 0; t < threads_ && !any; ++t) {
      const Verb verb = programs_[t][from.state.threads[t].pc].verb;
      if (verb == Verb::end || verb == Verb::sync)
        continue;  // the sync waits for a cut that this search does not make
      wrong("a thread waits for ever");
      last = from.node;
    }
    whole = seen.size() < config_.states_max;
    if (!whole) break;
  }
  states = seen.size();
  if (violation.empty()) return;
  std::vector<Byte> path;
  for (std::size_t n = last; n != 0; n = nodes[n].parent) path.push_back(nodes[n].action);
  for (State s = first; !path.empty(); path.pop_back()) {
    trace += name_of(s, path.back());
    act(s, path.back());
  }
}

}  // namespace tenuto_model
