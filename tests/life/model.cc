#include "model.h"

#include <algorithm>

namespace tenuto::life {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  Random r{a * 0x9e3779b97f4a7c15ull + b};
  return r();
}
std::uint64_t hash_of(Place p, const Held& h) {
  return mix(mix(p.rank, p.pair), mix(h.tag, h.gone_at));
}

}  // namespace

Place Records::place(std::uint64_t key, std::uint64_t tag) const {
  const std::uint64_t pair = !encoding.duplicates ? 1
                             : encoding.reverse() ? kNone - 1 - tag
                                                  : tag + 1;
  return {rank_of(encoding.order, key), pair};
}

void Records::put(std::uint64_t key, std::uint64_t tag, std::uint64_t gone_at) {
  const Place p = place(key, tag);
  erase_at(p);
  const Held h{key, tag, gone_at};
  held[p] = h;
  hash += hash_of(p, h);
  changes->push_back({p, h});
}

void Records::erase_at(Place p) {
  const auto at = held.find(p);
  if (at == held.end()) return;
  hash -= hash_of(p, at->second);
  changes->push_back({p, at->second});
  held.erase(at);
}

std::vector<Place> Records::all_of(std::uint64_t key, std::uint64_t time) const {
  std::vector<Place> places;
  const Place last = last_of(key);
  for (auto at = held.lower_bound(first_of(key)); at != held.end() && at->first <= last; ++at) {
    if (at->second.visible(time)) places.push_back(at->first);
  }
  return places;
}

const Held* Records::get(std::uint64_t key, std::uint64_t time) const {
  const Place last = last_of(key);
  for (auto at = held.lower_bound(first_of(key)); at != held.end() && at->first <= last; ++at) {
    if (at->second.visible(time)) return &at->second;
  }
  return nullptr;
}

void Records::write(const Write& w) {
  switch (w.what) {
    case Write::What::put:
      put(w.key, w.tag, w.gone_at);
      break;
    case Write::What::erase:
      for (const Place p : all_of(w.key, 0)) erase_at(p);
      break;
    default:
      erase_at(place(w.key, w.tag));
  }
}

State State::empty(bool numbers) {
  State s;
  s.create(0, kNone, Encoding{numbers ? KeyOrder::u64 : KeyOrder::bytes});
  s.changes = 0;
  return s;
}

const Records* State::find(std::uint64_t id) const {
  const auto at = collections.find(id);
  return at == collections.end() ? nullptr : at->second.get();
}
const Records* State::named(std::uint64_t name) const {
  for (const auto& [id, c] : collections) {
    if (c->name == name) return c.get();
  }
  return nullptr;
}

const Records* State::told_id(const Records& c, std::uint64_t id) {
  if (c.id >> 63 == 0 || find(id) != nullptr) return &c;
  auto moved = std::make_shared<Records>(c);
  collections.erase(c.id);
  moved->id = id;
  return (collections[id] = std::move(moved)).get();
}

Records& State::change(std::uint64_t id) {
  std::shared_ptr<const Records>& c = collections.at(id);
  if (c.use_count() > 1) c = std::make_shared<Records>(*c);
  ++changes;
  return const_cast<Records&>(*c);
}

TransactionModel& State::change_transaction(std::uint64_t uid) {
  std::shared_ptr<TransactionModel>& x = transactions[uid];
  if (x == nullptr) {
    x = std::make_shared<TransactionModel>();
  } else if (x.use_count() > 1) {
    x = std::make_shared<TransactionModel>(*x);
  }
  return *x;
}

void State::keep_time() {
  for (const auto& [id, c] : collections) {
    if (c->encoding.expires) floor = time;
  }
}

void State::drop(std::uint64_t id) {
  collections.erase(id);
  dropped = true;
  ++changes;
}

void State::create(std::uint64_t id, std::uint64_t name, Encoding encoding) {
  auto c = std::make_shared<Records>();
  c->id = id;
  c->name = name;
  c->encoding = encoding;
  collections[id] = std::move(c);
  most = std::max<std::uint64_t>(most, collections.size());
  ++changes;
}

void State::write(const Write& w) {
  if (w.what == Write::What::put) largest = std::max(largest, bytes_of_tag(w.tag));
  change(w.id).write(w);
}

Objects& State::change_objects() {
  if (objects == nullptr) {
    objects = std::make_shared<Objects>();
  } else if (objects.use_count() > 1) {
    objects = std::make_shared<Objects>(*objects);
  }
  return const_cast<Objects&>(*objects);
}

std::shared_ptr<const State> State::moment() const {
  auto m = std::make_shared<State>();
  m->collections = collections;
  m->time = time;
  m->changes = changes;
  return m;
}

std::uint64_t State::hash() const {
  std::uint64_t h = time;
  for (const auto& [id, c] : collections) h += mix(mix(id, c->name), c->hash + c->encoding.word());
  for (const auto& [slot, may_be] : objects == nullptr ? Objects{} : *objects) {
    for (const Object& o : may_be) h += mix(mix(slot, o.tag + o.there), mix(o.bytes, o.stamp));
  }
  for (const auto& [uid, m] : snapshots) h += mix(uid, m->hash());
  for (const auto& [uid, x] : transactions) {
    if (x->moment != nullptr && !x->ended) h += mix(uid, x->moment->hash());
  }
  return h;
}

void State::close_handles() {
  snapshots.clear();
  transactions.clear();
  cursors.clear();
}

void State::forget_handles() {
  dropped = false;
  most = collections.size();
  largest = 0;
  for (const auto& [id, c] : collections) {
    for (const auto& [place, h] : c->held) largest = std::max(largest, bytes_of_tag(h.tag));
  }
  close_handles();
}

}  // namespace tenuto::life
