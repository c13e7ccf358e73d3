// Searches all orders of a model's actions, depth first, each state once, and keeps the path to a
// violation. It is for models whose state is a few bytes. explorer.h is for those with crash
// images.
//
// A model has: State (bytes without padding), first(), actions(), act(state, action), which returns
// false if the action has to wait, stuck(state) for a state in which nothing can happen, name_of(
// state, action), and violation, which is not empty once something is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tenuto_model {

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

struct Searched {
  std::size_t states = 0;
  bool whole = true;  // false: states_max was reached
  std::string trace;  // the steps that led to the violation
};

template <class State>
std::uint64_t hash_of_bytes(const State& s) {
  static_assert(alignof(State) == 1);  // only bytes, because a state is hashed as a whole
  std::array<std::uint64_t, (sizeof(State) + 7) / 8> words{};
  std::memcpy(words.data(), &s, sizeof s);
  std::uint64_t h = 0x9e3779b97f4a7c15u;
  for (const std::uint64_t w : words) h = (h ^ w) * 0xff51afd7ed558ccdu, h ^= h >> 32;
  return h;
}

template <class Model>
Searched search(Model& model, std::size_t states_max) {
  using State = typename Model::State;
  struct Node {
    std::uint32_t parent;
    std::uint8_t action;
  };
  struct Open {
    State state;
    std::uint32_t node;
  };
  const State first = model.first();
  std::vector<Node> nodes{{0, 0}};
  std::vector<Open> open{{first, 0}};
  SeenStates seen;
  seen.insert(hash_of_bytes(first));
  Searched result;
  std::size_t last = 0;  // the node with the violation
  while (!open.empty() && model.violation.empty() && result.whole) {
    const Open from = open.back();
    open.pop_back();
    bool any = false;
    for (int action = 0; action < model.actions() && model.violation.empty(); ++action) {
      State to = from.state;
      if (!model.act(to, action)) continue;
      any = true;
      if (model.violation.empty() && !seen.insert(hash_of_bytes(to))) continue;
      last = nodes.size();
      nodes.push_back({from.node, static_cast<std::uint8_t>(action)});
      open.push_back({to, static_cast<std::uint32_t>(nodes.size() - 1)});
    }
    if (!any) {
      model.stuck(from.state);
      last = from.node;
    }
    result.whole = seen.size() < states_max;
  }
  result.states = seen.size();
  if (model.violation.empty()) return result;
  std::vector<std::uint8_t> path;
  for (std::size_t n = last; n != 0; n = nodes[n].parent) path.push_back(nodes[n].action);
  for (State s = first; !path.empty(); path.pop_back()) {
    result.trace += model.name_of(s, path.back());
    model.act(s, path.back());
  }
  return result;
}

}  // namespace tenuto_model
