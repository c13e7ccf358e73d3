// Each call that changes records leaves a touch: the place, the earliest and the latest time, and
// what was there afterwards. A touch that returned before another one began came first.
#include "beside.h"

#include <algorithm>
#include <optional>
#include <set>

#include "apply.h"

namespace tenuto::life {
namespace {

constexpr std::uint64_t kNever = ~0ull;

struct Touch {
  std::uint64_t invoke = 0, returned = 0;  // returned: kNever if it is unknown
  bool certain = true;                     // it certainly happened
  std::uint64_t tag = kNone;               // the value afterwards; kNone: none
  std::uint64_t gone_at = 0;
};

// All touches of a collection.
struct Touched {
  Records encoding;  // the encoding only, no records
  std::map<Place, std::vector<Touch>> at;
  struct Range {
    Place from, to;  // inclusive
    Touch touch;
  };
  std::vector<Range> ranges;

  bool any(Place p, const auto& such) const {
    const auto here = at.find(p);
    if (here != at.end() && std::ranges::any_of(here->second, such)) return true;
    return std::ranges::any_of(
        ranges, [&](const Range& r) { return r.from <= p && p <= r.to && such(r.touch); });
  }
};

// The time of a read. It saw what came before `from`, and not what came after `to`.
struct Span {
  std::uint64_t from = 0, to = 0, time = 0;
  bool visible(const Touch& t) const {
    return t.tag != kNone && (t.gone_at == 0 || t.gone_at > time);
  }
};

class Beside {
 public:
  explicit Beside(const State& base) : time_(base.time) {
    for (const auto& [id, c] : base.collections) {
      Touched& touched = begin(id, c->encoding);
      for (const auto& [place, h] : c->held) {
        touched.at[place].push_back({0, 0, true, h.tag, h.gone_at});
      }
    }
  }

  void touch(const Op& op);
  std::string look(const Op& op);
  // Call it when all touches are known: a new lifetime may be that of a value put meanwhile.
  void renew();
  void set_time(std::uint64_t time) { time_ = time; }
  void pass_time(const Op& op) {
    if (op.verb == Verb::clock) time_ = std::max(time_, op.a.at(0));
  }

 private:
  struct Standing {  // a plain cursor
    std::uint64_t id = 0, lower = kNone, upper = kNone;
    bool valid = false;
    Place at = {};
    std::uint64_t key = 0, since = 0;
  };
  using Shown = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // keys, tags
  struct Renewal {  // a new lifetime for all values of a key
    std::uint64_t id = 0, key = 0;
    Touch touch;
  };

  Touched& begin(std::uint64_t id, Encoding encoding) {
    Touched& t = touched_[id];
    t.encoding.encoding = encoding;
    return t;
  }
  void put(std::uint64_t id, std::uint64_t key, std::uint64_t tag, std::uint64_t ttl,
           const Touch& when);
  void erase(std::uint64_t id, std::uint64_t key, std::uint64_t pair, const Touch& when);
  void note_renewal(std::uint64_t id, std::uint64_t key, std::uint64_t ttl, Touch when) {
    when.certain = false;  // it may have found any of the values
    when.gone_at = ttl == 0 ? 0 : time_ + ttl;
    renewals_.push_back({id, key, when});
  }
  void touch_in_transaction(const Op& op);
  void commit(const Op& op);
  std::string walk(const Op& op, const Touched& c, const Span& span, bool forward, Place from,
                   Place to, const Shown& shown) const;
  std::string step(const Op& op, Standing& cursor);
  static std::string wrong(const Op& op, const std::string& why) {
    return text_of(op) + ": " + why;
  }

  std::uint64_t time_;
  std::map<std::uint64_t, Touched> touched_;         // by id of the collection
  std::map<std::uint64_t, std::vector<Op>> writes_;  // by transaction
  std::map<std::uint64_t, std::uint64_t> times_;     // of `writes_`, by ticket of the call
  std::map<std::uint64_t, Standing> cursors_;
  std::vector<Renewal> renewals_;
};

void Beside::put(std::uint64_t id, std::uint64_t key, std::uint64_t tag, std::uint64_t ttl,
                 const Touch& when) {
  const auto c = touched_.find(id);
  if (c == touched_.end()) return;
  Touch t = when;
  t.tag = tag;
  t.gone_at = ttl == 0 ? 0 : time_ + ttl;
  c->second.at[c->second.encoding.place(key, tag)].push_back(t);
}

void Beside::erase(std::uint64_t id, std::uint64_t key, std::uint64_t pair, const Touch& when) {
  const auto c = touched_.find(id);
  if (c == touched_.end()) return;
  const Records& encoding = c->second.encoding;
  if (pair != kNone) {
    c->second.at[encoding.place(key, pair)].push_back(when);
  } else if (!encoding.encoding.duplicates) {
    c->second.at[encoding.place(key, 0)].push_back(when);
  } else {
    c->second.ranges.push_back({encoding.first_of(key), encoding.last_of(key), when});
  }
}

void Beside::renew() {
  for (const Renewal& r : renewals_) {
    const auto c = touched_.find(r.id);
    if (c == touched_.end()) continue;
    const Records& encoding = c->second.encoding;
    const Place last = encoding.last_of(r.key);
    auto at = c->second.at.lower_bound(encoding.first_of(r.key));
    for (; at != c->second.at.end() && at->first <= last; ++at) {
      std::set<std::uint64_t> tags;
      for (const Touch& t : at->second) {
        if (t.tag != kNone && t.invoke <= r.touch.returned) tags.insert(t.tag);
      }
      for (const std::uint64_t tag : tags) {
        at->second.push_back(r.touch);
        at->second.back().tag = tag;
      }
    }
  }
}

void Beside::touch(const Op& op) {
  const bool unsure = uncertain(op);
  const auto& a = op.a;
  if ((op.verb == Verb::create || op.verb == Verb::reopen) && op.ok() && !op.r.empty()) {
    begin(op.r.at(0), Encoding::of(op.r.at(1)));
  }
  if (op.verb == Verb::tx_create && op.ok() && !op.r.empty()) begin(op.r[0], Encoding::of(a.at(2)));
  if (op.verb >= Verb::tx_put && op.verb <= Verb::tx_erase_pair) return touch_in_transaction(op);
  if (op.verb == Verb::commit) return commit(op);
  if (!op.ok() && !unsure) return;
  const Touch when{op.invoke, unsure ? kNever : op.returned, !unsure, kNone, 0};
  switch (op.verb) {
    case Verb::put:
    case Verb::put_if_absent:
      return put(a.at(0), a.at(1), a.at(2), a.at(3), when);
    case Verb::touch:
      return note_renewal(a.at(0), a.at(1), a.at(2), when);
    case Verb::erase:
      return erase(a.at(0), a.at(1), kNone, when);
    case Verb::erase_pair:
      return erase(a.at(0), a.at(1), a.at(2), when);
    case Verb::erase_range: {
      const auto c = touched_.find(a.at(0));
      if (c == touched_.end()) return;
      const Records& encoding = c->second.encoding;
      const Place from = a.at(1) == kNone ? kFront : encoding.first_of(a[1]);
      const Place to = a.at(2) == kNone ? kBack : place_before(encoding.first_of(a[2]));
      c->second.ranges.push_back({from, to, when});
      return;
    }
    case Verb::cas:
    case Verb::merge: {
      const std::uint64_t tag = op.verb == Verb::cas ? a.at(3) : a.at(2);
      return tag == kNone ? erase(a.at(0), a.at(1), kNone, when)
                          : put(a.at(0), a.at(1), tag, 0, when);
    }
    case Verb::run:
      return put(a.at(0), a.at(2), a.at(3), 0, when);
    case Verb::batch:
      for (std::size_t i = 2; i + 5 <= a.size(); i += 5) {
        if (a[i + 2] == 0) {
          put(a[i], a[i + 1], a[i + 3], a[i + 4], when);
        } else {
          erase(a[i], a[i + 1], a[i + 2] == 2 ? a[i + 3] : kNone, when);
        }
      }
      return;
    case Verb::bulk:
      for (std::size_t i = 3; i + 2 <= a.size(); i += 2) {
        put(a[0], a[i], a[i + 1], 0, when);
      }
      return;
    default:
      return;
  }
}

void Beside::touch_in_transaction(const Op& op) {
  if (!op.ok() && !uncertain(op)) return;
  writes_[op.a.at(0)].push_back(op);
  times_[op.invoke] = time_;
}

// The last of several writes to a place counts, or after a savepoint an earlier one. So none of
// them is certain.
void Beside::commit(const Op& op) {
  const auto writes = writes_.find(op.a.at(0));
  if (writes == writes_.end()) return;
  const bool unsure = uncertain(op);
  const std::uint64_t now = time_;
  for (const Op& w : writes->second) {
    if (!op.ok() && !unsure) break;
    const Touch when{op.invoke, unsure ? kNever : op.returned, false, kNone, 0};
    time_ = times_.at(w.invoke);
    if (w.verb == Verb::tx_put) {
      put(w.a.at(1), w.a.at(2), w.a.at(3), w.a.at(4), when);
    } else if (w.verb == Verb::tx_touch) {
      note_renewal(w.a.at(1), w.a.at(2), w.a.at(3), when);
    } else {
      erase(w.a.at(1), w.a.at(2), w.verb == Verb::tx_erase_pair ? w.a.at(3) : kNone, when);
    }
    time_ = now;
  }
  writes_.erase(writes);
}

// Judges what a walk between two places, both exclusive, has shown.
std::string Beside::walk(const Op& op, const Touched& c, const Span& span, bool forward, Place from,
                         Place to, const Shown& shown) const {
  std::map<Place, std::uint64_t> seen;
  std::optional<Place> last;
  for (const auto& record : shown) {
    const auto key = record.first;
    const auto tag = record.second;
    const std::string what = "key " + std::to_string(key) + " value " + std::to_string(tag);
    const Place p = c.encoding.place(key, tag);
    if (last && !(forward ? *last < p : p < *last)) return wrong(op, what + " is out of order");
    last = p;
    seen[p] = tag;
    const auto here = c.at.find(p);
    const bool may = here != c.at.end() && std::ranges::any_of(here->second, [&](const Touch& w) {
                       if (w.tag != tag || w.invoke > span.to || !span.visible(w)) return false;
                       return !c.any(p, [&](const Touch& t) {
                         return t.certain && t.invoke > w.returned && t.returned < span.from;
                       });
                     });
    if (!may) return wrong(op, what + " was not there at any moment of it");
  }
  const Place low = forward ? from : to, high = forward ? to : from;  // empty if bounds cross
  for (auto here = c.at.lower_bound(low); here != c.at.end() && here->first <= high; ++here) {
    if (here->first == from || here->first == to || seen.contains(here->first)) continue;
    for (const Touch& w : here->second) {
      if (!w.certain || w.returned >= span.from || !span.visible(w)) continue;
      const bool changed = c.any(here->first, [&](const Touch& t) {
        return &t != &w && t.returned >= w.invoke && t.invoke <= span.to;
      });
      if (!changed) {
        return wrong(
            op, "value " + std::to_string(w.tag) + " was there all the time, and was not returned");
      }
    }
  }
  return {};
}

std::string Beside::step(const Op& op, Standing& cursor) {
  const auto c = touched_.find(cursor.id);
  const bool known = cursor.valid;
  cursor.valid = false;
  if (c == touched_.end() || op.verb == Verb::cursor_look || !op.ok()) return {};
  const Records& encoding = c->second.encoding;
  const bool moves = op.verb >= Verb::next && op.verb <= Verb::prev_key;
  if (moves && !known) return {};
  if (!moves) cursor.since = op.invoke;
  const Way way = way_of(op, encoding, cursor.at, cursor.key);
  const auto end = [&](std::uint64_t key, Place otherwise) {
    return key == kNone ? otherwise : encoding.first_of(key);
  };
  Place from = way.from,
        to = way.forward ? end(cursor.upper, kBack) : place_before(end(cursor.lower, kFront));
  if (way.forward) from = std::max(from, place_before(end(cursor.lower, kFront)));
  if (!way.forward) from = std::min(from, end(cursor.upper, kBack));
  Shown shown;
  if (!op.r.empty() && op.r[0] != 0) {
    shown.push_back({op.r[1], op.r[2]});
    to = encoding.place(op.r[1], op.r[2]);
    const bool right = way.forward ? from < to || from == kFront : to < from;
    if (!right) return wrong(op, "it went the wrong way");
    cursor.valid = true;
    cursor.at = to;
    cursor.key = op.r[1];
  }
  return walk(op, c->second, {cursor.since, op.returned, time_}, way.forward, from, to, shown);
}

std::string Beside::look(const Op& op) {
  if (op.pending()) return {};
  if (op.verb == Verb::cursor) {
    if (op.ok() && op.a.at(1) == 0) cursors_[op.a[0]] = {op.a.at(3), op.a.at(4), op.a.at(5)};
    return {};
  }
  if (op.verb >= Verb::seek_first && op.verb <= Verb::cursor_look) {
    const auto cursor = cursors_.find(op.a.at(0));
    return cursor == cursors_.end() ? "" : step(op, cursor->second);
  }
  const bool looks = op.verb == Verb::scan || op.verb == Verb::lower || op.verb == Verb::upper;
  if (!looks || (!op.ok() && !(op.is(Status::not_found) && op.verb != Verb::scan))) return {};
  const auto c = touched_.find(op.a.at(0));
  // not_found from a bound may mean the key or the collection, so it is not judged.
  if (c == touched_.end() || !op.ok()) return {};
  const Span span{op.invoke, op.returned, time_};
  const Records& encoding = c->second.encoding;
  Shown shown;
  if (op.verb != Verb::scan) {
    shown.push_back({op.r.at(0), op.r.at(1)});
    const Place from = op.verb == Verb::lower ? place_before(encoding.first_of(op.a[1]))
                                              : encoding.last_of(op.a[1]);
    const Place to = encoding.place(op.r[0], op.r[1]);
    if (to < from) return wrong(op, "it went the wrong way");
    return walk(op, c->second, span, true, from, to, shown);
  }
  for (std::size_t i = 1; i + 2 <= op.r.size(); i += 2) shown.push_back({op.r[i], op.r[i + 1]});
  const bool backward = op.a.at(1) != 0;
  return walk(op, c->second, span, !backward, backward ? kBack : kFront, backward ? kFront : kBack,
              shown);
}

}  // namespace

std::string judge_beside(const State& base, const std::vector<Op>& ops) {
  std::vector<const Op*> in_order;
  for (const Op& op : ops) in_order.push_back(&op);
  std::ranges::sort(in_order, {}, &Op::invoke);
  // Collects all touches first, because a call may see what began later.
  Beside beside(base);
  for (const Op* op : in_order) {
    beside.pass_time(*op);
    beside.touch(*op);
  }
  beside.renew();
  beside.set_time(base.time);
  for (const Op* op : in_order) {
    beside.pass_time(*op);
    std::string why = beside.look(*op);
    if (!why.empty()) return why;
  }
  return {};
}

}  // namespace tenuto::life
