// Snapshots and transactions on the model.
#include <algorithm>

#include "apply.h"

namespace tenuto::life {
namespace {

using Created = TransactionModel::Created;

const Created* created_in(const TransactionModel& x, std::uint64_t id) {
  const auto at = std::ranges::find(x.created, id, &Created::id);
  return at == x.created.end() ? nullptr : &*at;
}

bool owns(const TransactionModel& x, std::uint64_t id, std::uint64_t key) {
  return std::ranges::any_of(x.writes, [&](const Write& w) { return w.id == id && w.key == key; });
}

void take_moment(State& state, TransactionModel& x) {
  if (x.moment == nullptr) x.moment = state.moment();
}

// Whether a record in the range is not as it was. `key` gets the first one that differs.
bool changed(const State& then, const State& now, const TransactionModel& x,
             const TransactionModel::Range& range, std::uint64_t* key) {
  const Records* const a = then.find(range.id);
  const Records* const b = now.find(range.id);
  *key = kNone;
  if (a == nullptr) return false;  // made later: there was nothing to read
  if (b == nullptr) return true;
  auto p = a->held.lower_bound(range.from), q = b->held.lower_bound(range.from);
  // The transaction saw its own writes as its own.
  const auto own = [&](const Held& h) {
    for (std::size_t i = 0; i < std::min(range.writes, x.writes.size()); ++i) {
      const Write& w = x.writes[i];
      if (w.id == range.id && w.key == h.key && (!a->encoding.duplicates || w.tag == h.tag))
        return true;
    }
    return false;
  };
  const auto skip = [&](const Records& c, auto& it) {
    // A record that has expired meanwhile is gone at the commit.
    const std::uint64_t time = &c == a ? then.time : now.time;
    while (it != c.held.end() && it->first <= range.to &&
           (!it->second.visible(time) || own(it->second))) {
      ++it;
    }
    return it != c.held.end() && it->first <= range.to;
  };
  for (;;) {
    const bool more = skip(*a, p), other = skip(*b, q);
    if (!more && !other) return false;
    if (more != other || p->first != q->first || p->second.tag != q->second.tag) {
      *key = !more || (other && q->first < p->first) ? q->second.key : p->second.key;
      return true;
    }
    ++p;
    ++q;
  }
}

}  // namespace

bool merged(const State& state, const TransactionModel& x, std::uint64_t id, Records& out) {
  if (const Created* made = created_in(x, id)) {
    out = Records{};
    out.id = id;
    out.encoding = made->encoding;
  } else {
    const State& base = x.moment != nullptr ? *x.moment : state;
    const Records* const c = base.find(id);
    const Records* const now = state.find(id);
    if (c == nullptr && now == nullptr) return false;
    if (c != nullptr) {
      out = *c;
    } else {  // made after the snapshot: it has only what the transaction wrote
      out = Records{};
      out.id = id;
      out.encoding = now->encoding;
    }
  }
  out.changes = std::make_shared<std::vector<std::pair<Place, Held>>>();
  for (const Write& w : x.writes) {
    if (w.id == id) out.write(w);
  }
  return true;
}

std::string Applying::moments() {
  const std::uint64_t uid = op.a.at(0);
  if (op.verb == Verb::snapshot) {
    std::string why;
    if (said()) why = rules.faulted ? "" : expect({Status::ok});
    if (done()) state.snapshots[uid] = state.moment();
    return why;
  }
  if (op.verb == Verb::snap_release) {
    if (!rules.at_once) state.snapshots.erase(uid);
    return {};
  }
  if (!said()) return {};
  const auto at = state.snapshots.find(uid);
  if (at == state.snapshots.end()) return expect({Status::closed});
  if (rules.bounded_snapshots && op.is(Status::expired)) return {};
  if (rules.faulted && !op.ok()) return {};
  const State& moment = *at->second;
  const std::uint64_t id = op.a.at(1);
  // A collection that was dropped since has nothing left. One that was made later is empty.
  if (state.find(id) == nullptr) return expect({Status::not_found});
  const Records* const c = moment.find(id);
  if (op.verb != Verb::snap_scan) {
    return expect_tag(c == nullptr ? nullptr : c->get(op.a[2], moment.time));
  }
  return scan(c == nullptr ? Records{} : *c, moment.time, op.a[2] != 0);
}

std::string Applying::transactions() {
  const std::uint64_t uid = op.a.at(0);
  if (op.verb == Verb::begin) {
    TransactionModel& x = state.change_transaction(uid);
    x.read_only = op.a.at(1) != 0;
    x.changes_before = state.changes;
    return said() && !rules.faulted ? expect({Status::ok}) : "";
  }
  if (!state.transactions.contains(uid)) {
    // The store was closed since. These two calls return no status.
    if (op.verb == Verb::rollback || op.verb == Verb::savepoint) return {};
    return said() ? expect({Status::closed}) : "";
  }
  TransactionModel& x = state.change_transaction(uid);
  if (op.verb == Verb::rollback) {
    x.ended = true;
    return {};
  }
  if (op.verb == Verb::savepoint) {
    x.points.push_back(x.writes.size());
    return {};
  }
  if (x.ended) return said() ? expect({Status::closed}) : "";
  if (op.verb != Verb::tx_create && op.a.size() > 2) x.used.push_back(op.a[1]);
  switch (op.verb) {
    case Verb::tx_get:
    case Verb::tx_contains:
    case Verb::tx_for_update:
      return transaction_read(x);
    case Verb::rollback_to:
      if (x.points.empty()) return {};
      if (done()) x.writes.resize(std::min(x.writes.size(), x.points.back()));
      return said() ? expect({Status::ok}) : "";
    case Verb::commit:
      return commit(x);
    default:
      return transaction_write(x);
  }
}

std::string Applying::transaction_read(TransactionModel& x) {
  const std::uint64_t id = op.a.at(1), key = op.a.at(2);
  if (!said()) {
    if (done()) take_moment(state, x);  // a read that threw may have taken the snapshot
    return {};
  }
  if (rules.faulted && !op.ok() && !op.is(Status::not_found)) return {};
  if (op.verb == Verb::tx_for_update && op.is(Status::conflict)) return {};
  if (op.is(Status::expired) && rules.bounded_snapshots) return {};
  if (created_in(x, id) == nullptr && state.find(id) == nullptr) {
    return expect({Status::not_found});
  }
  const bool duplicates = [&] {
    const Created* const made = created_in(x, id);
    return made != nullptr ? made->encoding.duplicates : state.find(id)->encoding.duplicates;
  }();
  if (op.verb == Verb::tx_for_update && duplicates) return expect({Status::invalid_argument});
  if (duplicates || !owns(x, id, key)) take_moment(state, x);
  Records c;
  if (!merged(state, x, id, c)) {
    // Made after the snapshot: empty.
    return expect({Status::not_found});
  }
  const std::uint64_t time = x.moment != nullptr ? x.moment->time : state.time;
  // Its own earlier writes may have expired by the time of its snapshot, or not.
  const bool own_ok = op.ok() && owns(x, id, key);
  const Held* const held = c.get(key, own_ok ? 0 : time);
  if (created_in(x, id) == nullptr && (duplicates || !owns(x, id, key))) {
    // Of duplicates it has read the first one only.
    const Place to = duplicates && held != nullptr ? c.place(key, held->tag) : c.last_of(key);
    x.ranges.push_back({id, c.first_of(key), to, x.writes.size()});
  }
  return op.verb == Verb::tx_contains ? expect({held == nullptr ? Status::not_found : Status::ok})
                                      : expect_tag(held);
}

std::string Applying::transaction_write(TransactionModel& x) {
  const std::uint64_t id = op.a.at(1);
  if (said() && rules.faulted && !op.ok()) return {};
  if (x.read_only || rules.read_only) {
    // Another error of the call may be returned first.
    return said() ? expect({Status::read_only, Status::invalid_argument, Status::not_found}) : "";
  }
  const bool refused = said() && op.is(Status::conflict);  // another one has the key for update
  if (refused && op.verb != Verb::tx_touch) return {};
  if (said() && op.is(Status::expired) && rules.bounded_snapshots) return {};
  if (op.verb == Verb::tx_create) {
    if (!said() || op.ok()) {
      if (!op.r.empty()) x.created.push_back({op.r[0], op.a[1], Encoding::of(op.a[2])});
      return {};
    }
    // The name may be checked now, or only by the commit.
    return state.named(op.a[1]) != nullptr ||
                   std::ranges::find(x.created, op.a[1], &Created::name) != x.created.end()
               ? expect({Status::exists, Status::full})
               : expect({Status::ok, Status::full});
  }
  const Created* const made = created_in(x, id);
  const Records* const c = state.find(id);
  if (made == nullptr && c == nullptr) return said() ? expect({Status::not_found, Status::ok}) : "";
  const Encoding encoding = made != nullptr ? made->encoding : c->encoding;
  if (op.verb == Verb::tx_drop) {
    if (made != nullptr || id == 0) return said() ? expect({Status::invalid_argument}) : "";
    if (done()) x.dropped.push_back(id);
    return said() ? expect({Status::ok}) : "";
  }
  const std::uint64_t key = op.a.at(2);
  if (op.verb == Verb::tx_erase_pair && !encoding.duplicates) {
    return said() ? expect({Status::invalid_argument}) : "";
  }
  if (op.verb == Verb::tx_touch) return transaction_touch(x, encoding, made != nullptr);
  if (!done()) return said() ? expect({Status::ok}) : "";
  if (op.verb == Verb::tx_put) {
    const std::uint64_t ttl = op.a[4];
    x.writes.push_back({id, key, Write::What::put, op.a[3], ttl == 0 ? 0 : state.time + ttl});
  } else if (op.verb == Verb::tx_erase_pair) {
    x.writes.push_back({id, key, Write::What::erase_pair, op.a[3]});
  } else if (!encoding.duplicates) {
    x.writes.push_back({id, key, Write::What::erase});
  } else {
    // The call reads the pairs of the key, and erases them.
    take_moment(state, x);
    Records seen;
    if (!merged(state, x, id, seen)) return {};
    if (made == nullptr)
      x.ranges.push_back({id, seen.first_of(key), seen.last_of(key), x.writes.size()});
    for (const Place p : seen.all_of(key, x.moment->time)) {
      x.writes.push_back({id, key, Write::What::erase_pair, seen.held.at(p).tag});
    }
  }
  return {};
}

// A read of the key, and a put of each value that it has. `made`: by this transaction.
std::string Applying::transaction_touch(TransactionModel& x, const Encoding& encoding, bool made) {
  const std::uint64_t id = op.a.at(1), key = op.a.at(2), ttl = op.a.at(3);
  if (!encoding.expires) return said() ? expect({Status::invalid_argument}) : "";
  const bool own = !encoding.duplicates && owns(x, id, key);
  if (!said() && !done()) return {};
  if (!own) take_moment(state, x);
  Records seen;
  const bool there = merged(state, x, id, seen);
  if (there && !made && !own) {
    x.ranges.push_back({id, seen.first_of(key), seen.last_of(key), x.writes.size()});
  }
  if (said() && op.is(Status::conflict)) return {};
  // Its own write has not expired: its lifetime began after the snapshot.
  const std::uint64_t time = own ? 0 : x.moment->time;
  const std::vector<Place> places = there ? seen.all_of(key, time) : std::vector<Place>{};
  if (said()) {
    const std::string why = expect({places.empty() ? Status::not_found : Status::ok});
    if (!why.empty()) return why;
  }
  for (const Place p : places) {
    const std::uint64_t tag = seen.held.at(p).tag;
    x.writes.push_back({id, key, Write::What::put, tag, ttl == 0 ? 0 : state.time + ttl});
  }
  return {};
}

// A commit that returns an error must have a reason.
std::string Applying::commit_refused(const TransactionModel& x) const {
  if (op.is(Status::conflict)) {
    const bool others =
        rules.at_once || state.transactions.size() > 1 || state.changes != x.changes_before;
    return others ? "" : wrong("nothing had changed since it began");
  }
  if (op.is(Status::not_found)) {
    const auto gone = [&](std::uint64_t id) {
      return created_in(x, id) == nullptr && state.find(id) == nullptr;
    };
    const bool any = std::ranges::any_of(x.dropped, gone) ||
                     std::ranges::any_of(x.writes, [&](const Write& w) { return gone(w.id); }) ||
                     std::ranges::any_of(x.used, gone);
    return any || rules.at_once ? "" : wrong("all its collections are there");
  }
  if (op.is(Status::exists)) return x.created.empty() ? wrong("it makes no collection") : "";
  if (op.is(Status::expired)) return rules.bounded_snapshots ? "" : wrong("nothing expires here");
  if (op.is(Status::busy)) return rules.at_once && !x.dropped.empty() ? "" : expect({Status::ok});
  std::string why;
  return refused(why) ? why : expect({Status::ok});
}

std::string Applying::commit(TransactionModel& x) {
  const std::vector<Write> writes = x.writes;
  x.ended = true;
  if (!done()) return said() ? commit_refused(x) : "";
  const bool wrote = !x.writes.empty() || !x.created.empty() || !x.dropped.empty();
  if (!wrote) return {};
  std::uint64_t key = 0;
  for (const auto& range : x.ranges) {
    if (x.moment != nullptr && changed(*x.moment, state, x, range, &key)) {
      return wrong(key == kNone ? "it read collection " + std::to_string(range.id) +
                                      ", which was dropped since"
                                : "it read key " + std::to_string(key) + " of collection " +
                                      std::to_string(range.id) + ", which has changed since");
    }
  }
  const bool drops_twice =
      std::ranges::any_of(x.dropped, [&](std::uint64_t id) { return state.find(id) == nullptr; });
  if (drops_twice) return wrong("what it drops is not there any more");
  for (const std::uint64_t id : x.dropped) {
    state.drop(id);
  }
  for (const Created& c : x.created) {
    if (state.named(c.name) != nullptr) return wrong("a name that it gives is taken");
    state.create(c.id, c.name, c.encoding);
  }
  for (const Write& w : writes) {
    const bool dropped = std::ranges::find(x.dropped, w.id) != x.dropped.end();
    if (dropped) continue;  // its writes are not done
    if (state.find(w.id) == nullptr) return wrong("a collection that it writes to was dropped");
    state.write(w);
  }
  return {};
}

std::string Applying::run() {
  std::string why;
  const std::uint64_t id = op.a.at(0);
  const bool fails = op.a.at(4) != 0;
  if (said() && refused(why)) return why;
  const Records* const c = state.find(id);
  if (c == nullptr) return said() ? expect({Status::not_found}) : "";
  if (said() && rules.at_once && op.is(Status::conflict)) return {};
  if (said() && rules.bounded_snapshots && op.is(Status::expired)) return {};
  if (said() && op.is(Status::conflict)) {
    return state.transactions.empty() ? wrong("nobody else was there") : "";
  }
  const Held* const held = c->get(op.a[1], state.time);
  if (said()) {
    why = expect({fails ? Status::aborted : Status::ok});
    // A body that gave up has read a state of the store, too, but perhaps an older one.
    if (why.empty() && op.r.at(0) != (held == nullptr ? kNone : held->tag)) {
      why =
          wrong("it should have read " + (held == nullptr ? "nothing" : std::to_string(held->tag)));
    }
  }
  if (done()) state.write({id, op.a[2], Write::What::put, op.a[3], 0});
  return why;
}

}  // namespace tenuto::life
