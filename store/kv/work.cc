// What a transaction has read and written so far, and its commit (transaction.h).
#include <algorithm>
#include <utility>

#include "store/kv/transaction.h"

namespace TENUTO_NS::store {

Status Work::usable() const {
  return ended || store == nullptr ? Status::closed : history->usable();
}

Status Work::look() {
  TENUTO_TRY(usable());
  if (reads.snapshot != nullptr) return Status::ok;
  auto taken = history->take();
  if (!taken) return taken.error();
  reads.snapshot = std::move(*taken);
  return Status::ok;
}

Status Work::part_of(const std::shared_ptr<CollectionState>& state, Part*& out) {
  TENUTO_TRY(usable());
  if (state == nullptr) return Status::closed;
  const bool own = std::find(created.begin(), created.end(), state) != created.end();
  TENUTO_TRY(met(*state, own ? state->life.alive_to_maker() : state->alive()));
  if (state->collections != &store->collections) return Status::invalid_argument;
  for (Part& part : parts) {
    if (part.state != state) continue;
    out = &part;
    return Status::ok;
  }
  out = &parts.emplace_back(state, own, writes);
  return Status::ok;
}

Status Work::met(const CollectionState& state, Status s) {
  const bool gone = s == Status::not_found && reads.snapshot != nullptr;
  if (gone && state.life.dropped_after(reads.snapshot->moment)) torn = true;
  return s;
}

const Write* Part::written(std::string_view key) const {
  const auto at = latest.find(key);
  return at == latest.end() ? nullptr : &writes[at->second];
}

Status Work::write(Part& part, std::string_view key, std::optional<std::string_view> value) {
  if (options.read_only) return Status::read_only;
  {
    const CollectionUse use(part.state.get(), part.own);
    TENUTO_TRY(use.status());
    TENUTO_TRY(use->check_key(key));
  }
  if (history->key_locks().held_by_another(part.state->id, key, this)) return Status::conflict;
  const auto at = part.latest.find(key);
  const std::size_t before = at == part.latest.end() ? 0 : at->second + 1;
  std::optional<std::string> copy;
  if (value) copy.emplace(*value);
  writes.push_back({&part, std::string(key), std::move(copy), before});
  if (before == 0) {  // an entry of writes that nothing names, where memory ends here, is nobody's
    part.latest.emplace(writes.back().key, writes.size() - 1);
  } else {
    part.name_again(at, writes.size() - 1);
  }
  return Status::ok;
}

// Needs no memory: what was written before stays, or what comes is there.
void Part::name_again(std::map<std::string_view, std::size_t>::iterator at, std::size_t write) {
  auto node = latest.extract(at);
  node.key() = writes[write].key;
  node.mapped() = write;
  latest.insert(std::move(node));
}

bool Work::drops(const Part& part) const {
  return std::find(dropped.begin(), dropped.end(), part.state) != dropped.end();
}

bool Work::wrote() const {
  if (!created.empty() || !dropped.empty()) return true;
  for (const Part& part : parts) {
    if (!part.latest.empty()) return true;
  }
  return false;
}

void Work::rollback_to(std::size_t count) {
  for (std::size_t i = writes.size(); i > count; --i) {
    auto& latest = writes[i - 1].part->latest;
    const auto at = latest.find(writes[i - 1].key);
    if (at == latest.end() || at->second != i - 1) continue;  // taken back before
    const std::size_t before = writes[i - 1].before;
    if (before == 0) {
      latest.erase(at);
    } else {
      writes[i - 1].part->name_again(at, before - 1);
    }
  }
}

bool Part::writes_between(std::string_view low, const Fence& end) const {
  const auto from = latest.lower_bound(low);
  return from != latest.end() && (!end.bounded || from->first < end.key);
}

void Part::overlay(std::string_view low, const Fence& end, std::vector<Entry>& entries) const {
  const auto from = latest.lower_bound(low);
  const auto to = end.bounded ? latest.lower_bound(end.key) : latest.end();
  std::erase_if(entries, [this](const Entry& e) { return latest.contains(e.record.key); });
  for (auto at = from; at != to; ++at) {
    const Write& w = writes[at->second];
    if (w.value) {
      const SlotWord word = SlotWord::make({}, hash_key(w.key).slot);
      entries.push_back({{w.key, *w.value}, word, 0, true, true});
    }
  }
}

Status Work::commit() {
  TENUTO_TRY(usable());
  if (torn) {
    for (const Part& part : parts) TENUTO_TRY(part.alive());
    return Status::conflict;
  }
  if (!wrote()) return Status::ok;
  if (doomed) return Status::conflict;
  Status s = try_commit();
  if (s == Status::full && !store->collections.alone()) {
    store->collections.make_room();
    s = try_commit();
  }
  return s;
}

Status Work::try_commit() {
  const EpochGuard guard;  // see CollectionUse
  std::vector<BatchOp> ops;
  ReadSet all = reads;
  all.clock = &store->collections.clock();
  for (const Part& part : parts) {
    TENUTO_TRY(part.alive());
    if (part.state != main && !part.own && !drops(part)) all.lives.push_back(&part.state->life);
    Tree* const tree = part.state->tree.get();
    for (const auto& [key, at] : part.latest) {
      if (drops(part)) break;
      if (history->key_locks().held_by_another(tree->id(), key, this)) return Status::conflict;
      const std::optional<std::string>& value = writes[at].value;
      ops.push_back({tree, key, value ? std::string_view(*value) : std::string_view(), !value});
    }
    for (const std::string& key : part.keys_read) all.ranges.emplace_back(*tree, key);
  }
  TENUTO_TRY(store->collections.write(std::move(ops), &all, created, dropped));
  created.clear();
  return Status::ok;
}

void Work::end() {
  if (ended || store == nullptr) return;
  ended = true;
  if (history->forked()) return;  // a child: nothing of it is ours
  if (!history->closed()) {
    for (const auto& state : created) store->collections.forget_unnamed(state);
  }
  for (const std::string& name : locked) history->key_locks().release(name, this);
  reads.snapshot.reset();
}

}  // namespace TENUTO_NS::store
