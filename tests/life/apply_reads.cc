// Reads of a collection in its current state, and calls on collections, on the model.
#include <algorithm>

#include "apply.h"

namespace tenuto::life {

std::string Applying::reads() {
  if (!said()) return {};
  if (rules.faulted && !op.ok() && !op.is(Status::not_found)) return {};
  if (op.verb == Verb::list) return list();
  if (op.verb == Verb::time) {
    return op.r.at(0) == state.time ? ""
                                    : wrong("it should have said " + std::to_string(state.time));
  }
  const Records* const c = state.find(op.a.at(0));
  if (op.verb == Verb::approximate || op.verb == Verb::stats) return {};
  const bool of_pairs = op.verb == Verb::count || op.verb == Verb::contains_pair;
  if (c == nullptr && op.verb == Verb::multi_get) return {};  // each key has a status
  if (c == nullptr) {
    return of_pairs ? expect({Status::not_found, Status::invalid_argument})
                    : expect({Status::not_found});
  }
  const std::uint64_t key = op.a.at(1);
  switch (op.verb) {
    case Verb::get:
    case Verb::view:
    case Verb::contains:
      return expect_tag(c->get(key, state.time));
    case Verb::contains_pair: {
      if (!c->encoding.duplicates) return expect({Status::invalid_argument});
      const auto at = c->held.find(c->place(key, op.a[2]));
      const bool there = at != c->held.end() && at->second.visible(state.time);
      return expect({there ? Status::ok : Status::not_found});
    }
    case Verb::multi_get:
      return rules.at_once ? expect({Status::ok, Status::not_found}) : multi_get();
    case Verb::count: {
      if (!c->encoding.duplicates) return expect({Status::invalid_argument});
      const std::uint64_t n = c->all_of(key, state.time).size();
      if (rules.at_once) return expect({Status::ok, Status::not_found});
      // A missing key has no values.
      std::string why = n == 0 ? expect({Status::ok, Status::not_found}) : expect({Status::ok});
      if (why.empty() && op.ok() && op.r.at(0) != n) {
        why = wrong("it should have counted " + std::to_string(n));
      }
      return why;
    }
    case Verb::ttl: {
      const Held* const held = c->get(key, state.time);
      if (held == nullptr) return expect({Status::not_found});
      std::string why = expect({Status::ok});
      const std::uint64_t left = held->gone_at == 0 ? 0 : held->gone_at - state.time;
      if (why.empty() && op.r.at(0) != left) {
        why = wrong("it should have said " + std::to_string(left) + " ms");
      }
      return why;
    }
    case Verb::lower:
    case Verb::upper: {
      const Place from = op.verb == Verb::lower ? c->first_of(key) : c->last_of(key);
      auto at = c->held.lower_bound(from);
      while (at != c->held.end() && !at->second.visible(state.time)) ++at;
      if (rules.at_once) return expect({Status::ok, Status::not_found});
      if (at == c->held.end()) return expect({Status::not_found});
      std::string why = expect_tag(&at->second, 1);
      if (why.empty() && op.r.at(0) != at->second.key) {
        why = wrong("it should have found key " + std::to_string(at->second.key));
      }
      return why;
    }
    default:  // scan
      return rules.at_once ? expect({Status::ok, Status::not_found})
                           : scan(*c, state.time, op.a[1] != 0);
  }
}

std::string Applying::multi_get() {
  if (!op.ok()) return expect({Status::ok});
  const Records* const c = state.find(op.a.at(0));
  const std::size_t n = op.a.size() - 1;
  if (op.r.size() != 2 * n) return wrong("it should have told of " + std::to_string(n) + " keys");
  for (std::size_t i = 0; i < n; ++i) {
    const Held* const held = c->get(op.a[1 + i], state.time);
    const std::uint64_t tag = held == nullptr ? kNone : held->tag;
    if (op.r[2 * i + 1] != tag) {
      return wrong("of key " + std::to_string(op.a[1 + i]) + " it said " +
                   std::to_string(op.r[2 * i + 1]) + ", and it should be " + std::to_string(tag));
    }
  }
  return {};
}

std::string Applying::scan(const Records& c, std::uint64_t time, bool backward) const {
  if (!op.ok()) return expect({Status::ok});
  std::vector<const Held*> seen;
  for (const auto& [place, h] : c.held) {
    if (h.visible(time)) seen.push_back(&h);
  }
  if (backward) std::ranges::reverse(seen);
  const std::size_t n = (op.r.size() - 1) / 2;
  for (std::size_t i = 0; i < std::max(n, seen.size()); ++i) {
    if (i >= n) return wrong("it did not see key " + std::to_string(seen[i]->key));
    const std::string at = "at place " + std::to_string(i) + " it saw key " +
                           std::to_string(op.r[1 + 2 * i]) + " value " +
                           std::to_string(op.r[2 + 2 * i]);
    if (i >= seen.size()) return wrong(at + ", where the end should be");
    if (op.r[1 + 2 * i] != seen[i]->key || op.r[2 + 2 * i] != seen[i]->tag) {
      return wrong(at + ", where key " + std::to_string(seen[i]->key) + " value " +
                   std::to_string(seen[i]->tag) + " should be");
    }
  }
  return {};
}

std::string Applying::list() {
  std::string why = expect({Status::ok});
  if (!why.empty() || rules.at_once) return why;
  std::size_t named = 0;
  for (const auto& [id, c] : state.collections) named += c->name != kNone;
  if (op.r.size() != 3 * named) why = wrong("there are " + std::to_string(named));
  for (std::size_t i = 0; i + 3 <= op.r.size() && why.empty(); i += 3) {
    const Records* c = state.named(op.r[i]);
    if (c != nullptr) c = state.told_id(*c, op.r[i + 1]);
    if (c == nullptr) {
      why = wrong("there is no collection " + std::to_string(op.r[i]));
    } else if (c->id != op.r[i + 1] || c->encoding.word() != op.r[i + 2]) {
      why = wrong("collection " + std::to_string(op.r[i]) + " is another one");
    }
  }
  return why;
}

std::string Applying::collections() {
  std::string why;
  if (said() && refused(why)) return why;
  const std::uint64_t name = op.a.at(0);
  const Records* const there = state.named(name);
  const auto new_id = [&] {  // until a call has returned the id: made from name and call
    return op.r.empty() ? (1ull << 63 | op.invoke) : op.r[0];
  };
  switch (op.verb) {
    case Verb::create:
    case Verb::reopen: {
      const bool creates = op.verb == Verb::create;
      if (there == nullptr && !creates) return said() ? expect({Status::not_found}) : "";
      if (there != nullptr && creates && op.a[2] != 0)
        return said() ? expect({Status::exists}) : "";
      if (said()) why = expect({Status::ok});
      if (!done() || !why.empty()) return why;
      if (there == nullptr) {
        if (state.find(new_id()) != nullptr) return wrong("its id is another collection's");
        state.create(new_id(), name, Encoding::of(op.a[1]));
      } else if (said() && (op.r[0] != there->id || op.r[1] != there->encoding.word())) {
        return wrong("it should be the collection " + std::to_string(there->id));
      }
      return {};
    }
    case Verb::drop:
      // If threads run at once, a backup may be running.
      if (rules.at_once && op.is(Status::busy)) return {};
      if (there == nullptr) return said() ? expect({Status::not_found}) : "";
      if (said()) why = expect({Status::ok});
      if (done()) {
        state.drop(there->id);
      }
      return why;
    default: {  // rename
      const std::uint64_t to = op.a[1];
      const Records* const taken = state.named(to);
      if (rules.at_once && op.is(Status::busy)) return {};
      if (there == nullptr) return said() ? expect({Status::not_found}) : "";
      // A rename of a name to itself may return either.
      if (name == to) return said() ? expect({Status::ok, Status::exists}) : "";
      if (taken != nullptr && op.a[2] == 0) return said() ? expect({Status::exists}) : "";
      if (said()) why = expect({Status::ok});
      if (!done()) return why;
      const std::uint64_t id = there->id;
      if (taken != nullptr) state.drop(taken->id);
      state.change(id).name = to;
      return why;
    }
  }
}

}  // namespace tenuto::life
