// The search of tenuto/crash_history.h. It takes calls and returns in the order of their tickets
// and keeps the set of all configurations: what the key holds, and which open operations took
// effect.
//
// A write takes effect no earlier than some return needs it. An operation that changes nothing (a
// get, an erase that found nothing) takes effect as soon as the key holds what it saw, because that
// excludes no order.
#include "tenuto/crash_history.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "crash/search.h"
#include "pm/assert.h"

namespace TENUTO_NS::pm {
namespace {

constexpr std::size_t kOpenMax = 64;                       // bits of Config::done
constexpr std::size_t kConfigsMax = std::size_t{1} << 20;  // at one return

struct Config {
  std::uint64_t value;
  std::uint64_t done;  // of the open operations, by slot
  bool operator==(const Config&) const = default;
};

struct ConfigHash {
  std::size_t operator()(const Config& c) const {
    std::uint64_t h = (c.value ^ std::rotl(c.done, 32)) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
    return h * 0xbf58476d1ce4e5b9ull;
  }
};

// Whether the operation changes nothing. It is allowed only where the key holds what it saw.
bool reads(const KeyOp& op) {
  return op.verb == KeyVerb::get || (op.verb == KeyVerb::erase && op.saw == EraseSaw::absent);
}
std::uint64_t seen(const KeyOp& op) { return op.verb == KeyVerb::get ? op.value : kAbsent; }

bool may_write(const KeyOp& op, std::uint64_t value) {
  return !(op.verb == KeyVerb::erase && op.saw == EraseSaw::existed && value == kAbsent);
}
std::uint64_t written(const KeyOp& op) { return op.verb == KeyVerb::put ? op.value : kAbsent; }

class Search {
 public:
  Search(std::span<const KeyOp> ops, std::span<const std::uint64_t> before) : ops_(ops) {
    for (const std::uint64_t value : before) configs_.push_back({value, 0});
    if (before.empty()) configs_.push_back({kAbsent, 0});
  }

  SearchResult run() {
    for (const Event& e : events()) {
      const bool held = e.call ? begin(e.op) : finish(e.op);
      if (!held) return {Verdict::undecided, {}, e.op};
      if (configs_.empty()) return {Verdict::contradiction, {}, e.op};
    }
    std::vector<std::uint64_t> finals;
    for (const Config& c : configs_) finals.push_back(c.value);
    std::sort(finals.begin(), finals.end());
    finals.erase(std::unique(finals.begin(), finals.end()), finals.end());
    return {Verdict::linearizable, std::move(finals), 0};
  }

 private:
  struct Event {
    std::uint64_t ticket;
    bool call;
    std::size_t op;
  };

  // Calls come before returns of the same ticket, so such operations may overlap.
  std::vector<Event> events() const {
    std::vector<Event> all;
    all.reserve(ops_.size() * 2);
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      // A get that a crash cut off has no result, so it constrains nothing.
      if (ops_[i].pending && ops_[i].verb == KeyVerb::get) continue;
      all.push_back({ops_[i].invoked, true, i});
      all.push_back({std::max(ops_[i].ended, ops_[i].invoked), false, i});
    }
    std::sort(all.begin(), all.end(), [](const Event& a, const Event& b) {
      if (a.ticket != b.ticket) return a.ticket < b.ticket;
      return a.call != b.call ? a.call : a.op < b.op;
    });
    return all;
  }

  bool begin(std::size_t op) {
    const int slot = std::countr_one(used_);
    if (slot == kOpenMax) return false;
    used_ |= bit(slot);
    open_[slot] = op;
    if (!reads(ops_[op])) return true;
    for (Config& c : configs_) c.done |= c.value == seen(ops_[op]) ? bit(slot) : 0;
    return true;
  }

  bool finish(std::size_t op) {
    int slot = 0;
    while ((used_ & bit(slot)) == 0 || open_[slot] != op) ++slot;
    const std::uint64_t own = bit(slot);
    std::vector<Config> next;
    std::vector<Config> todo;
    Memo next_known;
    Memo visited;
    const auto keep = [&](Config c) {
      c.done &= ~own;
      if (next_known.insert(c).second) next.push_back(c);
    };
    for (const Config& c : configs_) {
      if ((c.done & own) != 0 || ops_[op].pending) keep(c);
      if ((c.done & own) == 0 && visited.insert(c).second) todo.push_back(c);
    }
    while (!todo.empty()) {
      const Config c = todo.back();
      todo.pop_back();
      for (std::uint64_t rest = used_ & ~c.done; rest != 0; rest &= rest - 1) {
        const int s = std::countr_zero(rest);
        const KeyOp& write = ops_[open_[s]];
        if (reads(write) || !may_write(write, c.value)) continue;
        const Config after = apply(c, s, write);
        if ((after.done & own) != 0) {
          keep(after);
        } else if (visited.insert(after).second) {
          todo.push_back(after);
        }
      }
      if (next.size() + visited.size() > kConfigsMax) return false;
    }
    used_ &= ~own;
    configs_ = std::move(next);
    return true;
  }

  Config apply(const Config& c, int slot, const KeyOp& write) const {
    Config after{written(write), c.done | bit(slot)};
    for (std::uint64_t rest = used_ & ~after.done; rest != 0; rest &= rest - 1) {
      const int s = std::countr_zero(rest);
      const KeyOp& op = ops_[open_[s]];
      if (reads(op) && seen(op) == after.value) after.done |= bit(s);
    }
    return after;
  }

  static std::uint64_t bit(int slot) { return std::uint64_t{1} << slot; }

  using Memo = std::unordered_set<Config, ConfigHash>;
  std::span<const KeyOp> ops_;
  std::vector<Config> configs_;
  std::uint64_t used_ = 0;  // slots of open operations
  std::size_t open_[kOpenMax] = {};
};

}  // namespace

SearchResult search_key_history(std::span<const KeyOp> ops, std::span<const std::uint64_t> before) {
  return Search(ops, before).run();
}

}  // namespace TENUTO_NS::pm

namespace TENUTO_NS {

KeyJudgement check_key_history(std::span<const KeyOp> ops, std::span<const std::uint64_t> before) {
  pm::SearchResult r = pm::search_key_history(ops, before);
  KeyJudgement judgement{r.verdict, std::move(r.finals), {}};
  if (r.verdict == Verdict::contradiction) {
    judgement.what = pm::explain_contradiction(ops, before, r.op);
  }
  return judgement;
}

CrashHistory::Id CrashHistory::begin(std::string_view key, KeyOp op) {
  auto at = index_.find(key);
  if (at == index_.end()) {
    at = index_.emplace(std::string(key), keys_.size()).first;
    keys_.push_back({std::string(key), {}});
  }
  op.invoked = ++ticket_;
  op.pending = true;
  std::vector<KeyOp>& ops = keys_[at->second].ops;
  places_.push_back({at->second, ops.size(), true});
  ops.push_back(op);
  return places_.size() - 1;
}

CrashHistory::Id CrashHistory::put(std::uint32_t thread, std::string_view key,
                                   std::uint64_t value) {
  return begin(key, {.value = value, .verb = KeyVerb::put, .thread = thread});
}
CrashHistory::Id CrashHistory::erase(std::uint32_t thread, std::string_view key) {
  return begin(key, {.verb = KeyVerb::erase, .thread = thread});
}
CrashHistory::Id CrashHistory::get(std::uint32_t thread, std::string_view key) {
  return begin(key, {.verb = KeyVerb::get, .thread = thread});
}

KeyOp& CrashHistory::end(Id op) {
  TENUTO_ASSERT(op < places_.size());
  TENUTO_ASSERT(places_[op].open);
  places_[op].open = false;
  KeyOp& ended = keys_[places_[op].key].ops[places_[op].op];
  ended.pending = false;
  ended.ended = ++ticket_;
  return ended;
}

void CrashHistory::returned(Id op) { end(op); }
void CrashHistory::erased(Id op, bool existed) {
  end(op).saw = existed ? EraseSaw::existed : EraseSaw::absent;
}
void CrashHistory::got(Id op, std::uint64_t value) { end(op).value = value; }
void CrashHistory::failed(Id op) {
  // Turns the operation into a get that was cut off, which constrains nothing.
  KeyOp& ended = end(op);
  ended.verb = KeyVerb::get;
  ended.pending = true;
}

void CrashHistory::crash() {
  const std::uint64_t now = ++ticket_;
  for (; open_from_ < places_.size(); ++open_from_) {
    Place& place = places_[open_from_];
    if (place.open) keys_[place.key].ops[place.op].ended = now;
    place.open = false;
  }
}

std::string CrashHistory::check() const {
  for (const Key& key : keys_) {
    std::vector<KeyOp> ops = key.ops;
    for (KeyOp& op : ops) {
      if (op.ended == 0) op.ended = ticket_ + 1;  // still open
    }
    const KeyJudgement j = check_key_history(ops);
    if (j.verdict == Verdict::contradiction) return "key " + key.name + ": " + j.what;
    if (j.verdict == Verdict::undecided) {
      return "key " + key.name + ": too many operations at the same time to judge";
    }
  }
  return {};
}

}  // namespace TENUTO_NS
