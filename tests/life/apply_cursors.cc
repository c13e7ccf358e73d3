// Cursors on the model. A cursor of a snapshot or transaction is exact. A plain one sees each leaf
// at one point in time: of a place that changed since its seek it may show the old or the new
// state. It must show all other records, in order, once.
#include <algorithm>

#include "apply.h"

namespace tenuto::life {
namespace {

struct View {
  const Records* now = nullptr;
  std::uint64_t time = 0, seen_time = 0;
  std::multimap<Place, Held> was;  // records at places that changed since the seek

  bool must(Place p, const Held& h) const {
    return h.visible(time) && h.visible(seen_time) && !was.contains(p);
  }
  bool may(Place p, const Held& h) const { return h.visible(seen_time) || was.contains(p); }
};

// The first record between two places, both exclusive, that the cursor must show.
const Held* missed(const View& view, Place from, Place to) {
  for (auto at = view.now->held.upper_bound(from); at != view.now->held.end() && at->first < to;
       ++at) {
    if (view.must(at->first, at->second)) return &at->second;
  }
  return nullptr;
}

}  // namespace

Place place_before(Place p) {
  return p.pair > 0 ? Place{p.rank, p.pair - 1} : p.rank > 0 ? Place{p.rank - 1, kNone} : kFront;
}

Way way_of(const Op& op, const Records& c, Place at, std::uint64_t key) {
  switch (op.verb) {
    case Verb::seek_first:
      return {true, kFront};
    case Verb::seek_last:
      return {false, kBack};
    case Verb::seek:
      return {true, place_before(c.first_of(op.a.at(1)))};
    case Verb::seek_pair:
      return {true, place_before(c.place(op.a.at(1), op.a.at(2)))};
    case Verb::seek_for_prev:
      return {false, c.last_of(op.a.at(1))};
    case Verb::next:
      return {true, at};
    case Verb::prev:
      return {false, at};
    case Verb::next_key:
      return {true, c.last_of(key)};
    default:  // prev_key
      return {false, c.first_of(key)};
  }
}

std::string Applying::cursors() {
  const std::uint64_t uid = op.a.at(0);
  if (op.verb == Verb::cursor) {
    CursorModel cursor{op.a[1], op.a[2], op.a[3]};
    if (cursor.kind == 2 && state.transactions.contains(cursor.of)) {
      TransactionModel& x = state.change_transaction(cursor.of);
      const bool never = !said() && !done();
      if (!x.ended && x.moment == nullptr && !never) x.moment = state.moment();
      x.used.push_back(cursor.id);
    }
    const Records* c = state.find(cursor.id);
    // A collection that a transaction makes: its encoding decides the bounds, for any handle of it.
    Records made;
    for (const auto& [of, x] : state.transactions) {
      for (const auto& created : x->created) {
        if (c != nullptr || created.id != cursor.id) continue;
        made.encoding = created.encoding;
        c = &made;
      }
    }
    if (c != nullptr) {
      if (op.a[4] != kNone) cursor.lower = c->first_of(op.a[4]);
      if (op.a[5] != kNone) cursor.upper = c->first_of(op.a[5]);
    }
    state.cursors[uid] = cursor;
    return {};
  }
  const auto at = state.cursors.find(uid);
  if (at == state.cursors.end()) return {};
  if (op.verb == Verb::cursor_close) {
    state.cursors.erase(at);
    return {};
  }
  CursorModel& cursor = at->second;
  if (!said()) {
    cursor.valid = false;
    return {};
  }
  return seek_or_move(cursor);
}

std::string Applying::seek_or_move(CursorModel& cursor) {
  const bool shows = op.ok() && !op.r.empty() && op.r[0] != 0;
  const CursorModel before = cursor;
  const bool moves = op.verb >= Verb::next && op.verb <= Verb::prev_key;
  const auto leave = [&](const std::string& why) {
    cursor.valid = false;
    return why;
  };
  if (op.verb == Verb::cursor_look) {
    if (!before.valid || !shows) return {};
    return op.r[1] == before.key && op.r[2] == before.tag
               ? ""
               : wrong("it stood at key " + std::to_string(before.key) + " value " +
                       std::to_string(before.tag));
  }
  // What the cursor walks over, and which of it has changed.
  View view;
  Records own;
  TransactionModel* x = nullptr;
  if (cursor.kind == 2) {
    const auto at = state.transactions.find(cursor.of);
    if (at == state.transactions.end() || at->second->ended) {
      return leave("");
    }
    x = &state.change_transaction(cursor.of);
  }
  const TransactionModel::Created* made = nullptr;
  if (x != nullptr) {
    for (const auto& c : x->created) made = c.id == cursor.id ? &c : made;
  }
  const bool made_by_it = made != nullptr;
  const Records* const now = state.find(cursor.id);
  if (now == nullptr && !made_by_it) return leave("");  // dropped: it shows what it showed
  // The collection was made after the snapshot: there is nothing to walk over.
  if (cursor.kind == 1 && !shows) {
    const auto at = state.snapshots.find(cursor.of);
    if (at != state.snapshots.end() && at->second->find(cursor.id) == nullptr) return leave("");
  }
  const bool pairs = made_by_it ? made->encoding.duplicates : now->encoding.duplicates;
  if (!op.ok()) {
    if (rules.faulted || rules.at_once) return leave("");
    if (rules.bounded_snapshots && op.is(Status::expired)) return leave("");
    if (op.verb == Verb::seek_pair && !pairs) {
      return leave(expect({Status::invalid_argument}));
    }
    return leave(expect({Status::ok}));
  }
  if (op.verb == Verb::seek_pair && !pairs) {
    return leave(expect({Status::invalid_argument}));
  }
  if (cursor.kind == 0) {
    if (rules.at_once) return leave("");
    view.now = now;
    view.time = state.time;
    if (!moves) {
      cursor.seen_from = now->changes->size();
      cursor.seen_time = state.time;
    }
    view.seen_time = cursor.seen_time;
    for (std::size_t i = cursor.seen_from; i < now->changes->size(); ++i) {
      view.was.insert((*now->changes)[i]);
    }
  } else if (cursor.kind == 1) {
    const auto at = state.snapshots.find(cursor.of);
    // The cursor keeps the snapshot's state itself, but the model no longer knows it.
    if (at == state.snapshots.end()) return leave("");
    const Records* const c = at->second->find(cursor.id);
    if (c == nullptr)
      return leave(shows ? wrong("the collection was made after the snapshot") : "");
    view.now = c;
    view.time = view.seen_time = at->second->time;
  } else {
    if (!merged(state, *x, cursor.id, own)) return leave(shows ? wrong("it was made later") : "");
    if (!moves) cursor.seen_from = x->writes.size();
    view.now = &own;
    view.time = view.seen_time = x->moment->time;
    for (std::size_t i = std::min(cursor.seen_from, x->writes.size()); i < x->writes.size(); ++i) {
      const Write& w = x->writes[i];
      if (w.id != cursor.id) continue;
      // Writes since the seek may be seen or not. The same holds for what the snapshot has at those
      // keys.
      const Records* const base = x->moment->find(cursor.id);
      const Place p = own.place(w.key, w.tag);
      view.was.insert({p, {w.key, w.tag, w.gone_at}});
      if (base == nullptr) continue;
      for (const Place q : base->all_of(w.key, view.time)) view.was.insert({q, base->held.at(q)});
      for (std::size_t j = 0; j < i; ++j) {
        const Write& u = x->writes[j];
        if (u.id == w.id && u.key == w.key && u.what == Write::What::put) {
          view.was.insert({own.place(u.key, u.tag), {u.key, u.tag, u.gone_at}});
        }
      }
    }
  }
  const Records& c = *view.now;
  if (moves && !before.valid) return leave("");
  const Way way = way_of(op, c, before.at, before.key);
  const bool forward = way.forward;
  Place from = way.from;
  if (forward && from < place_before(cursor.lower)) from = place_before(cursor.lower);
  if (!forward && cursor.upper < from) from = cursor.upper;
  Place to = forward ? cursor.upper : place_before(cursor.lower);
  cursor.valid = shows;
  if (shows) {
    cursor.key = op.r[1];
    cursor.tag = op.r[2];
    cursor.at = to = c.place(op.r[1], op.r[2]);
    const bool in_order = forward ? from < to || (from == kFront && to == kFront) : to < from;
    const bool inside = !(to < cursor.lower) && to < cursor.upper;
    if (!in_order)
      return leave(wrong("it went the wrong way from key " + std::to_string(before.key)));
    if (!inside) return leave(wrong("this is outside of its bounds"));
    const auto there = c.held.find(to);
    bool known =
        there != c.held.end() && there->second.tag == cursor.tag && view.may(to, there->second);
    const auto [first, last] = view.was.equal_range(to);
    for (auto w = first; w != last; ++w) known = known || w->second.tag == cursor.tag;
    if (!known) {
      return leave(wrong(
          "at key " + std::to_string(cursor.key) + " there is " +
          (there == c.held.end() ? "nothing" : "value " + std::to_string(there->second.tag))));
    }
  }
  const Held* const skipped = forward ? missed(view, from, to) : missed(view, to, from);
  if (x != nullptr && !made_by_it) {
    const Place a = forward ? from : to, b = forward ? to : from;
    x->ranges.push_back({cursor.id, a, b, x->writes.size()});
  }
  if (skipped != nullptr) {
    return leave(wrong("it did not stop at key " + std::to_string(skipped->key) + " value " +
                       std::to_string(skipped->tag)));
  }
  return {};
}

}  // namespace tenuto::life
