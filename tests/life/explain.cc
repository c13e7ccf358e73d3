// Searches for an order (Wing and Gong's method, with memory). From a state, the next call of any
// thread may come next, unless a call that is not placed yet had returned before it began. If the
// look follows a crash, the state at some point behind all that is durable must be what the look
// shows.
#include <algorithm>
#include <array>
#include <unordered_set>

#include "judge.h"

namespace tenuto::life {
namespace {

// Limits of a search: states it takes up, and calls it tries.
constexpr std::size_t kNodesMax = 300'000;
constexpr std::size_t kStepsMax = 30'000;

// A read changes nothing: if its result is right now, it may come now.
bool reads_only(const Op& op) {
  return (op.verb >= Verb::get && op.verb <= Verb::scan) || op.verb == Verb::snap_get ||
         op.verb == Verb::snap_contains || op.verb == Verb::snap_scan;
}

// Whether the call certainly wrote something. Only then does it make itself, and what came before,
// durable.
bool wrote(const Op& op) {
  const auto& a = op.a;
  switch (op.verb) {
    case Verb::erase_range:
      return op.r.at(0) != 0;
    case Verb::cas:
      return a.at(2) != a.at(3);
    case Verb::merge:
      return a.at(2) != kNone;
    case Verb::batch:
      for (std::size_t i = 2; i + 5 <= a.size(); i += 5) {
        if (a[i + 2] == 0) return true;  // a put
      }
      return false;
    case Verb::bulk:
      return a.at(2) != 0;
    case Verb::create:
      return a.at(2) != 0;  // otherwise the collection may have existed
    case Verb::rename:
      return a.at(0) != a.at(1);
    case Verb::object_publish:
      return a.at(3) == 0;
    case Verb::object_fill:
      return a.at(0) >= 8;
    case Verb::object_resize:
    case Verb::object_swap:
      return false;  // it may have had nothing to do
    default:
      return op.verb <= Verb::drain || op.verb == Verb::sync || op.verb == Verb::run ||
             op.verb == Verb::drop || (op.verb >= Verb::object_new && op.verb <= Verb::object_tx);
  }
}

// As `wrote`: an erase in a transaction may have had nothing to erase.
bool writes_in_transaction(const Op& op) {
  const bool erases = op.verb == Verb::tx_erase || op.verb == Verb::tx_erase_pair;
  return op.ok() && op.verb >= Verb::tx_put && op.verb <= Verb::tx_drop && !erases;
}

struct Node {
  State state;
  std::array<std::size_t, kThreadsMax> at{};
  bool cut = false;
  State found;
};

class Search {
 public:
  Search(const std::vector<Op>& ops, const Op& look, const Rules& rules, Durable durable, Of of)
      : look_(look), rules_(rules), durable_(durable), of_(of) {
    std::unordered_set<std::uint64_t> writers;  // transactions that wrote
    for (const Op& op : ops) {
      thread_[op.thread % kThreadsMax].push_back(&op);
      // After a return to a savepoint it is unknown whether the transaction wrote.
      if (writes_in_transaction(op)) writers.insert(op.a.at(0));
      if (op.verb == Verb::rollback_to) writers.erase(op.a.at(0));
    }
    const auto decides = [&](const Op& op) {
      if (op.pending() || !op.ok() || buffered(op)) return false;
      return op.verb == Verb::commit ? writers.contains(op.a.at(0)) : wrote(op);
    };
    std::uint64_t decided = 0;  // what returned before this must be there
    for (const Op& op : ops) {
      if (decides(op)) decided = std::max(decided, op.invoke);
    }
    for (unsigned t = 0; t < kThreadsMax; ++t) {
      for (std::size_t i = 0; i < thread_[t].size(); ++i) {
        const Op& op = *thread_[t][i];
        if (op.pending()) continue;
        const bool must = durable != Durable::synced || op.returned < decided || decides(op);
        if (must) must_[t] = i + 1;
      }
    }
  }

  std::string run(const State& base, State& found, std::uint64_t* undecided) {
    std::vector<Node> stack;
    stack.push_back({base, {}, false, {}});
    std::size_t nodes = 0;
    while (!stack.empty()) {
      Node node = std::move(stack.back());
      stack.pop_back();
      if (++nodes > kNodesMax || steps_ > kStepsMax) {
        ++*undecided;
        found = state_shown(look_);  // there are too many orders to try
        return {};
      }
      if (follow(std::move(node), stack)) {
        found = std::move(result_);
        return {};
      }
    }
    return complaint();
  }

 private:
  // Follows a node while there is only one way, and pushes the others. Returns true if all is
  // explained.
  bool follow(Node node, std::vector<Node>& stack) {
    for (;;) {
      const bool done = at_end(node);
      if (!node.cut && behind_what_must(node)) {
        State named;
        std::string why = compare(node.state, look_, of_, &named);
        if (why.empty()) {
          node.cut = true;
          node.found = std::move(named);
        } else if (done) {
          complain(node, why);
        }
      }
      if (done && node.cut) {
        result_ = std::move(node.found);
        return true;
      }
      std::vector<Node> next;
      step(node, next);
      if (next.empty()) return false;
      for (std::size_t i = 1; i < next.size(); ++i) {
        if (fresh(next[i])) stack.push_back(std::move(next[i]));
      }
      if (next.size() > 1 && !fresh(next[0])) return false;
      node = std::move(next[0]);
    }
  }

  void step(Node& node, std::vector<Node>& next) {
    std::vector<unsigned> allowed;
    for (unsigned t = 0; t < kThreadsMax; ++t) {
      if (node.at[t] == thread_[t].size()) continue;
      const Op& op = *thread_[t][node.at[t]];
      bool first = true;
      for (unsigned u = 0; u < kThreadsMax && first; ++u) {
        if (u == t || node.at[u] == thread_[u].size()) continue;
        const Op& other = *thread_[u][node.at[u]];
        first = other.pending() || other.returned > op.invoke;
      }
      if (first) allowed.push_back(t);
    }
    for (const unsigned t : allowed) {
      const Op& op = *thread_[t][node.at[t]];
      const bool unsure = uncertain(op);
      for (const Outcome outcome : {Outcome::done, Outcome::not_done, Outcome::as_said}) {
        if (unsure == (outcome == Outcome::as_said)) continue;
        // A call that never returned can only matter before the cut.
        if (op.pending() && outcome == Outcome::done && node.cut) continue;
        ++steps_;
        const bool only = allowed.size() == 1 && !unsure;
        Node n = only ? std::move(node) : node;
        const std::string why =
            op.verb == Verb::look ? seen(n.state, op) : apply(n.state, op, outcome, rules_);
        if (!why.empty()) {
          complain(n, why);
          continue;
        }
        ++n.at[t];
        if (!unsure && reads_only(op)) {
          next.clear();
          next.push_back(std::move(n));
          return;
        }
        next.push_back(std::move(n));
      }
    }
  }

  // A look in the middle of the calls, while no other thread is in a call.
  static std::string seen(State& state, const Op& look) {
    State named;
    std::string why = compare(state, look, Of::same_life, &named);
    if (why.empty()) state = std::move(named);
    return why;
  }

  bool at_end(const Node& n) const {
    for (unsigned t = 0; t < kThreadsMax; ++t) {
      if (n.at[t] < thread_[t].size()) return false;
    }
    return true;
  }
  bool behind_what_must(const Node& n) const {
    if (durable_ == Durable::all) return at_end(n);
    for (unsigned t = 0; t < kThreadsMax; ++t) {
      if (n.at[t] < must_[t]) return false;
    }
    return true;
  }
  bool fresh(const Node& n) {
    std::uint64_t h = n.state.hash() + n.cut;
    for (const std::size_t at : n.at) h = h * 0x9e3779b97f4a7c15ull + at;
    return seen_.insert(h).second;
  }

  void complain(const Node& node, const std::string& why) {
    std::size_t depth = 0;
    for (const std::size_t at : node.at) depth += at;
    if (depth < deepest_) return;
    if (depth > deepest_) whys_.clear();
    deepest_ = depth;
    if (whys_.size() < 4 && std::ranges::find(whys_, why) == whys_.end()) whys_.push_back(why);
  }
  std::string complaint() const {
    std::string text = whys_.empty() ? "nothing explains what the look shows" : whys_[0];
    for (std::size_t i = 1; i < whys_.size(); ++i) text += "\n  or: " + whys_[i];
    return text;
  }

  const Op& look_;
  const Rules& rules_;
  const Durable durable_;
  const Of of_;
  std::array<std::vector<const Op*>, kThreadsMax> thread_;
  std::array<std::size_t, kThreadsMax> must_{};
  std::unordered_set<std::uint64_t> seen_;
  std::size_t steps_ = 0;
  std::size_t deepest_ = 0;
  std::vector<std::string> whys_;
  State result_;
};

}  // namespace

bool buffered(const Op& op) {
  const auto flag = [&](std::size_t at) { return op.a.size() > at && op.a[at] != 0; };
  switch (op.verb) {
    case Verb::put:
    case Verb::put_if_absent:
    case Verb::cas:
      return flag(4);
    case Verb::erase:
      return flag(2);
    case Verb::touch:
    case Verb::erase_pair:
    case Verb::merge:
    case Verb::erase_range:
      return flag(3);
    case Verb::batch:
      return flag(0);
    case Verb::commit:
      return flag(1);
    default:
      return false;
  }
}

State state_shown(const Op& look) {
  State found;
  found.time = look.r[0];
  std::size_t i = 3;
  for (std::uint64_t c = 0; c < look.r[1]; ++c) {
    found.create(look.r[i + 1], look.r[i], Encoding::of(look.r[i + 2]));
    Records& records = found.change(look.r[i + 1]);
    const std::uint64_t n = look.r[i + 3];
    i += 4;
    for (std::uint64_t k = 0; k < n; ++k, i += 3) {
      const std::uint64_t ttl = look.r[i + 2];
      records.put(look.r[i], look.r[i + 1], ttl == 0 ? 0 : look.r[0] + ttl);
    }
    // The look does not show expired records, which may still be there. Counts as a change.
    if (records.encoding.expires) records.changes->push_back({});
  }
  found.change_objects() = objects_shown(look, i);
  return found;
}

std::string explain(const State& base, const std::vector<Op>& ops, const Op& look,
                    const Rules& rules, Durable durable, Of of, State& found,
                    std::uint64_t* undecided) {
  return Search(ops, look, rules, durable, of).run(base, found, undecided);
}

std::string compare(const State& state, const Op& look, Of kind, State* named) {
  *named = state;
  const auto wrong = [&](const std::string& why) {
    return "the look of step " + std::to_string(look.step) + ": " + why;
  };
  // Time goes on from the last known time, and is not behind the clock.
  const std::uint64_t clock = look.r.at(2);
  const std::uint64_t least = std::max(kind == Of::same_life ? state.time : state.floor, clock);
  named->time = look.r[0];
  if (look.r[0] < least || look.r[0] > std::max(state.time, clock)) {
    return wrong("it is " + std::to_string(look.r[0]) + ", the clock says " +
                 std::to_string(clock) + ", and it was " + std::to_string(state.time) +
                 " before, which should be known up to " + std::to_string(state.floor));
  }
  std::size_t i = 3, collections = 0;
  for (; collections < look.r[1]; ++collections) {
    const std::uint64_t name = look.r[i], id = look.r[i + 1], encoding = look.r[i + 2];
    const std::uint64_t count = look.r[i + 3];
    i += 4;
    const std::string of =
        name == kNone ? "the default collection" : "collection " + name_text(name);
    const Records* c = named->named(name);
    if (c == nullptr) return wrong(of + " is there, and should not be");
    if (kind != Of::rescue) {
      if (c->id >> 63 != 0 && named->find(id) != nullptr)
        return wrong(of + " has the id of another one");
      c = named->told_id(*c, id);
    }
    if (c->id != id && kind != Of::rescue)
      return wrong(of + " is another one: id " + std::to_string(id) + " instead of " +
                   std::to_string(c->id));
    if (c->encoding.word() != encoding) return wrong(of + " has another encoding");
    auto at = c->held.begin();
    const auto skip = [&] {
      while (at != c->held.end() && !at->second.visible(named->time)) ++at;
    };
    for (std::uint64_t n = 0; n < count; ++n, i += 3) {
      skip();
      const std::string saw = "key " + std::to_string(look.r[i]) + " value " +
                              std::to_string(look.r[i + 1]) + " in " + of;
      if (at == c->held.end()) return wrong(saw + ", and nothing should be there");
      const Held& h = at->second;
      if (h.key != look.r[i] || h.tag != look.r[i + 1]) {
        return wrong(saw + ", and the next should be key " + std::to_string(h.key) + " value " +
                     std::to_string(h.tag));
      }
      const std::uint64_t left = h.gone_at == 0 ? 0 : h.gone_at - named->time;
      if (left != look.r[i + 2]) {
        return wrong(saw + " has " + std::to_string(look.r[i + 2]) + " ms left instead of " +
                     std::to_string(left));
      }
      ++at;
    }
    skip();
    if (at != c->held.end()) {
      return wrong("key " + std::to_string(at->second.key) + " value " +
                   std::to_string(at->second.tag) + " is lost from " + of + ", which has " +
                   std::to_string(count) + " records");
    }
  }
  const std::size_t end = i;
  for (const auto& [id, c] : named->collections) {
    bool seen = false;
    for (std::size_t j = 3; j < end; j += 4 + 3 * look.r[j + 3]) {
      seen = seen || look.r[j] == c->name;
    }
    if (!seen) return wrong("collection " + name_text(c->name) + " is lost");
  }
  if (kind == Of::rescue) return {};
  const std::string why = compare_objects(*named, look, end);
  return why.empty() ? "" : wrong(why);
}

}  // namespace tenuto::life
