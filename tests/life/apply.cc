// Single writes, batches, reads and collections, on the model.
#include "apply.h"

#include "judge.h"

#include <algorithm>

namespace tenuto::life {
namespace {

std::string name_of_status(std::uint64_t s) {
  return s == kThrew ? "bad_alloc" : status_name(static_cast<Status>(s));
}
std::string name_of_tag(std::uint64_t tag) {
  return tag == kNone ? "nothing" : "value " + std::to_string(tag);
}
std::uint64_t live_bytes(const State& s) {
  std::uint64_t bytes = 0;
  for (const auto& [id, c] : s.collections) {
    for (const auto& [place, h] : c->held) bytes += 800 + bytes_of_tag(h.tag);
  }
  return bytes;
}

}  // namespace

std::string text_of(const Op& op) {
  std::string t = std::string(info_of(op.verb).name) + "(";
  for (std::size_t i = 0; i < op.a.size() && i < 8; ++i) {
    t += (i == 0 ? "" : ", ") + (op.a[i] == kNone ? "-" : std::to_string(op.a[i]));
  }
  t += op.a.size() > 8 ? ", ...) of step " : ") of step ";
  t += std::to_string(op.step) + ", thread " + std::to_string(op.thread);
  t += op.pending() ? ", which never returned" : ", which said " + name_of_status(op.status);
  for (std::size_t i = 0; i < op.r.size() && i < 6; ++i) {
    t += " " + (op.r[i] == kNone ? "-" : std::to_string(op.r[i]));
  }
  return t;
}

bool uncertain(const Op& op) {
  return op.pending() || op.status == kThrew || op.is(Status::io) || op.is(Status::in_doubt);
}

std::string Applying::wrong(const std::string& why) const { return text_of(op) + ": " + why; }

std::string Applying::expect(std::initializer_list<Status> allowed) const {
  std::string names;
  for (const Status s : allowed) {
    if (op.is(s)) return {};
    names += (names.empty() ? "" : " or ") + std::string(status_name(s));
  }
  return wrong("it should have said " + names);
}

std::string Applying::expect_tag(const Held* held, std::size_t at) const {
  if (held == nullptr) return expect({Status::not_found});
  std::string why = expect({Status::ok});
  if (why.empty() && op.r.size() > at && op.r[at] != held->tag) {
    why = wrong("it should have seen " + name_of_tag(held->tag));
  }
  return why;
}

bool Applying::refused(std::string& why) const {
  if (op.ok()) return false;
  if (rules.read_only && op.is(Status::read_only)) return true;
  if (rules.faulted && (op.is(Status::read_only) || op.is(Status::full) || op.is(Status::corrupt) ||
                        op.is(Status::busy) || op.is(Status::in_doubt))) {
    return true;
  }
  if (!op.is(Status::full)) return false;
  if (op.refused) return true;
  // `full` is possible only if something fills the pool: its contents, or what handles hold.
  const bool held =
      rules.at_once || state.objects != nullptr || !state.snapshots.empty() ||
      std::ranges::any_of(state.transactions, [](const auto& x) { return !x.second->ended; }) ||
      std::ranges::any_of(state.cursors, [](const auto& c) { return c.second.kind != 0; });
  const std::uint64_t wanted = [&] {
    std::uint64_t n = 0;
    if (op.verb == Verb::object_new) return op.a.at(0) * (op.a.size() - 3);
    for (const std::uint64_t word : op.a) n += word == kNone ? 0 : bytes_of_tag(word) % (1u << 22);
    return n;
  }();
  if (!held && (live_bytes(state) + wanted) * 4 < rules.room && rules.room != 0) {
    why = wrong("the pool is full, with " + std::to_string(live_bytes(state)) + " of " +
                std::to_string(rules.room) + " bytes in use");
  }
  return true;
}

std::string Applying::data() {
  std::string why;
  if (said() && refused(why)) return why;
  const std::uint64_t id = op.a.at(0);
  const Records* c = state.find(id);
  if (c == nullptr) {
    // If two things are wrong with a call, either error may be returned.
    const bool encodings = op.verb == Verb::erase_pair || op.verb == Verb::cas ||
                           op.verb == Verb::merge || op.verb == Verb::touch;
    if (said() && encodings && op.is(Status::invalid_argument)) return {};
    return said() ? expect({Status::not_found}) : "";
  }
  const std::uint64_t key = op.a.at(1);
  const Held* const held = c->get(key, state.time);
  const std::uint64_t now = held == nullptr ? kNone : held->tag;
  const auto gone_at = [&](std::uint64_t ttl) { return ttl == 0 ? 0 : state.time + ttl; };
  const auto put = [&](std::uint64_t tag, std::uint64_t ttl) {
    state.write({id, key, Write::What::put, tag, gone_at(ttl)});
  };
  const auto pair_there = [&](std::uint64_t tag) {
    const auto at = c->held.find(c->place(key, tag));
    return at != c->held.end() && at->second.visible(state.time);
  };
  switch (op.verb) {
    case Verb::put:
      if (said()) why = expect({Status::ok});
      if (done()) put(op.a[2], op.a[3]);
      return why;
    case Verb::put_if_absent: {
      const bool there = c->encoding.duplicates ? pair_there(op.a[2]) : held != nullptr;
      if (said()) why = expect({there ? Status::exists : Status::ok});
      if (done() && !there) put(op.a[2], op.a[3]);
      return why;
    }
    case Verb::touch: {
      if (!c->encoding.expires) return said() ? expect({Status::invalid_argument}) : "";
      if (said()) why = expect({held == nullptr ? Status::not_found : Status::ok});
      std::vector<std::uint64_t> tags;
      for (const Place p : c->all_of(key, state.time)) tags.push_back(c->held.at(p).tag);
      for (const std::uint64_t tag : tags) {
        if (done()) put(tag, op.a[2]);
      }
      return why;
    }
    case Verb::erase:
      if (said()) why = expect({held == nullptr ? Status::not_found : Status::ok});
      if (done()) state.write({id, key, Write::What::erase});
      return why;
    case Verb::erase_pair:
      if (!c->encoding.duplicates) return said() ? expect({Status::invalid_argument}) : "";
      if (said()) why = expect({pair_there(op.a[2]) ? Status::ok : Status::not_found});
      if (done()) state.write({id, key, Write::What::erase_pair, op.a[2]});
      return why;
    case Verb::cas:
      if (c->encoding.duplicates) return said() ? expect({Status::invalid_argument}) : "";
      if (said()) why = expect({now == op.a[2] ? Status::ok : Status::conflict});
      if (done() && now == op.a[2]) {
        if (op.a[3] == kNone) {
          state.write({id, key, Write::What::erase});
        } else {
          put(op.a[3], 0);
        }
      }
      return why;
    case Verb::merge:
      if (c->encoding.duplicates) return said() ? expect({Status::invalid_argument}) : "";
      if (said()) {
        why = op.a[2] == kNone && held == nullptr ? expect({Status::ok, Status::not_found})
                                                  : expect({Status::ok});
        if (why.empty() && op.ok() && op.r.at(0) != now) {
          why = wrong("it should have been given " + name_of_tag(now));
        }
      }
      if (done() && op.a[2] == kNone) state.write({id, key, Write::What::erase});
      if (done() && op.a[2] != kNone) put(op.a[2], 0);
      return why;
    default: {  // erase_range
      std::vector<Place> places;
      std::uint64_t visible = 0;
      const Place from = key == kNone ? kFront : c->first_of(key);
      const Place to = op.a[2] == kNone ? kBack : c->first_of(op.a[2]);
      for (const auto& [place, h] : c->held) {
        if (place < from || !(place < to)) continue;
        places.push_back(place);
        visible += h.visible(state.time);
      }
      if (said()) why = expect({Status::ok});
      // Inserts and erases of other threads may change the count: it has no single result.
      if (said() && why.empty() && op.r.at(0) != visible && !rules.at_once) {
        why = wrong("it should have erased " + std::to_string(visible));
      }
      if (done() && !places.empty()) {
        Records& changed = state.change(id);
        for (const Place p : places) changed.erase_at(p);
      }
      return why;
    }
  }
}

std::string Applying::batch() {
  std::string why;
  if (said() && refused(why)) return why;
  bool all_there = true;
  for (std::size_t i = 2; i < op.a.size(); i += 5) {
    all_there = all_there && state.find(op.a[i]) != nullptr;
  }
  if (!all_there) return said() ? expect({Status::not_found}) : "";
  if (said()) why = expect({Status::ok});
  if (!done()) return why;
  for (std::size_t i = 2; i + 5 <= op.a.size(); i += 5) {
    const std::uint64_t ttl = op.a[i + 4];
    state.write({op.a[i], op.a[i + 1], static_cast<Write::What>(op.a[i + 2]), op.a[i + 3],
                 ttl == 0 ? 0 : state.time + ttl});
  }
  return why;
}

std::string Applying::bulk() {
  std::string why;
  if (said() && refused(why)) return why;
  const Records* const c = state.find(op.a.at(0));
  if (c == nullptr) return said() ? expect({Status::not_found}) : "";
  const bool handles = !state.snapshots.empty() || !state.transactions.empty() ||
                       !state.cursors.empty() || rules.at_once;
  if (said() && handles && op.is(Status::busy)) return {};
  if (said() && op.is(Status::exists)) {
    return c->held.empty() && !rules.at_once && c->changes->empty()
               ? wrong("the collection was empty")
               : "";
  }
  if (op.a[2] == 0) return said() ? expect({Status::ok, Status::invalid_argument}) : "";
  if (said()) why = expect({Status::ok});
  if (!done()) return why;
  const bool visible =
      std::ranges::any_of(c->held, [&](const auto& h) { return h.second.visible(state.time); });
  if (said() && visible) return wrong("the collection was not empty");
  Records& changed = state.change(op.a[0]);
  for (std::size_t i = 3; i + 2 <= op.a.size(); i += 2) {
    changed.put(op.a[i], op.a[i + 1], 0);
    state.largest = std::max(state.largest, bytes_of_tag(op.a[i + 1]));
  }
  return why;
}

// Memory that waits to be freed has a reader that may look at it (store/tree/epoch.h).
std::string Applying::compact() {
  std::string why = expect({Status::ok, Status::busy, Status::full});
  const bool moment = !state.snapshots.empty() || !state.transactions.empty();
  if (!why.empty() || !op.ok() || rules.at_once || moment) return why;
  constexpr std::uint64_t kOfACursor = 64, kSome = 64;
  const std::uint64_t most = kSome + state.cursors.size() * kOfACursor;
  return op.r.at(1) <= most ? "" : wrong(std::to_string(op.r[1]) + " things wait to be freed");
}

std::string apply(State& state, const Op& op, Outcome outcome, const Rules& rules) {
  const bool stays = op.pending() || op.status == kThrew || op.is(Status::busy);
  if (op.verb == Verb::close && !stays) state.close_handles();
  if (outcome == Outcome::not_done) {
    // A commit ends its transaction, whatever it returned, unless it threw.
    const bool ends = op.verb == Verb::commit && op.is(Status::io);
    if (ends && state.transactions.contains(op.a.at(0))) {
      state.change_transaction(op.a[0]).ended = true;
    }
    return {};
  }
  Applying a{state, op, outcome, rules};
  if (op.verb == Verb::batch) return a.batch();
  if (op.verb == Verb::bulk) return a.bulk();
  if (op.verb <= Verb::drain) return a.data();
  if (op.verb <= Verb::scan) return a.reads();
  if (op.verb <= Verb::forget) return a.collections();
  if (op.verb <= Verb::snap_release) return a.moments();
  if (op.verb == Verb::run) return a.run();
  if (op.verb <= Verb::rollback) return a.transactions();
  if (op.verb <= Verb::cursor_close) return a.cursors();
  if (op.verb >= Verb::object_new && op.verb <= Verb::object_walk) return a.objects();
  if (op.verb == Verb::rest) return a.rest();
  std::string why;
  if (op.verb == Verb::clock) {
    state.time = std::max(state.time, op.a.at(0));
    ++state.changes;
  } else if (outcome == Outcome::as_said && !rules.faulted) {
    switch (op.verb) {
      case Verb::compact:
        ++state.changes;
        return rules.read_only ? "" : a.compact();
      case Verb::reclaim:
        ++state.changes;
        if (!rules.read_only && op.ok()) state.keep_time();
        return rules.read_only ? "" : a.expect({Status::ok});
      case Verb::backup:
        // A backup reads a snapshot.
        if (rules.bounded_snapshots && op.is(Status::expired)) return {};
        if (op.ok()) {
          State named;
          why = compare(state, op, Of::rescue, &named);
          return why.empty() ? why : "its contents (" + why + ")";
        }
        return a.expect({Status::exists, Status::busy});
      case Verb::sync:
      case Verb::trim:
        return rules.read_only ? "" : a.expect({Status::ok});
      case Verb::health:
        return a.expect({Status::ok});
      case Verb::close:
        if (!rules.read_only && op.ok()) state.keep_time();
        return a.expect({Status::ok});
      default:
        break;
    }
  }
  return why;
}

}  // namespace tenuto::life
