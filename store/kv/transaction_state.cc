// The read set and write sets of a transaction, and its commit (transaction.h).
#include <algorithm>
#include <utility>

#include "store/kv/transaction_state.h"

namespace TENUTO_NS::store {

Status TransactionState::usable() const {
  return ended || store == nullptr ? Status::closed : versions->usable();
}

Status TransactionState::look() {
  TENUTO_TRY(usable());
  if (reads.snapshot != nullptr) return Status::ok;
  auto taken = versions->take();
  if (!taken) return taken.error();
  reads.snapshot = std::move(*taken);
  return Status::ok;
}

Status TransactionState::write_set_of(const std::shared_ptr<CollectionState>& state,
                                      WriteSet*& out) {
  TENUTO_TRY(usable());
  if (state == nullptr) return Status::closed;
  const bool own = std::find(created.begin(), created.end(), state) != created.end();
  TENUTO_TRY(met(*state, own ? state->life.alive_to_maker() : state->alive()));
  if (state->collections != &store->collections) return Status::invalid_argument;
  for (WriteSet& write_set : write_sets) {
    if (write_set.state != state) continue;
    out = &write_set;
    return Status::ok;
  }
  out = &write_sets.emplace_back(state, own, writes);
  return Status::ok;
}

Status TransactionState::met(const CollectionState& state, Status s) {
  const bool gone = s == Status::not_found && reads.snapshot != nullptr;
  if (gone && state.life.dropped_after(reads.snapshot->timestamp)) torn = true;
  return s;
}

const Write* WriteSet::written(std::string_view key) const {
  const auto at = latest.find(key);
  return at == latest.end() ? nullptr : &writes[at->second];
}

Status TransactionState::write(WriteSet& write_set, std::string_view key,
                               std::optional<std::string_view> value) {
  if (options.read_only) return Status::read_only;
  {
    const CollectionUse use(write_set.state.get(), write_set.own);
    TENUTO_TRY(use.status());
    TENUTO_TRY(use->check_key(key));
  }
  if (versions->key_locks().held_by_another(write_set.state->id, key, this))
    return Status::conflict;
  const auto at = write_set.latest.find(key);
  const std::size_t before = at == write_set.latest.end() ? 0 : at->second + 1;
  std::optional<std::string> copy;
  if (value) copy.emplace(*value);
  writes.push_back({&write_set, std::string(key), std::move(copy), before});
  if (before == 0) {  // may fail: then nothing names the new entry of `writes`, which is harmless
    write_set.latest.emplace(writes.back().key, writes.size() - 1);
  } else {
    write_set.name_again(at, writes.size() - 1);
  }
  return Status::ok;
}

// Allocates nothing, so the key always has the old write or the new one.
void WriteSet::name_again(std::map<std::string_view, std::size_t>::iterator at, std::size_t write) {
  auto node = latest.extract(at);
  node.key() = writes[write].key;
  node.mapped() = write;
  latest.insert(std::move(node));
}

bool TransactionState::drops(const WriteSet& write_set) const {
  return std::find(dropped.begin(), dropped.end(), write_set.state) != dropped.end();
}

bool TransactionState::wrote() const {
  if (!created.empty() || !dropped.empty()) return true;
  for (const WriteSet& write_set : write_sets) {
    if (!write_set.latest.empty()) return true;
  }
  return false;
}

// A write that was rolled back is the latest of its key never again. Runs of them are skipped, or
// each call with the same point would look at all writes since then.
void TransactionState::rollback_to(std::size_t count) {
  const std::size_t end = writes.size();
  if (count >= end) return;
  std::size_t i = end;
  while (i > count) {
    const Write& write = writes[i - 1];
    if (write.undone != 0) {
      i -= write.undone;
      continue;
    }
    i -= 1;
    auto& latest = write.write_set->latest;
    const auto at = latest.find(write.key);
    if (at == latest.end() || at->second != i) continue;
    if (write.before == 0) {
      latest.erase(at);
    } else {
      write.write_set->name_again(at, write.before - 1);
    }
  }
  writes[end - 1].undone = end - i;
}

bool WriteSet::writes_between(std::string_view low, const UpperBound& end) const {
  const auto from = latest.lower_bound(low);
  return from != latest.end() && (!end.bounded || from->first < end.key);
}

void WriteSet::narrow(std::optional<std::string_view> key, bool backward, std::string& low,
                      UpperBound& end) const {
  const auto first = latest.lower_bound(low);
  const auto last = end.bounded ? latest.lower_bound(end.key) : latest.end();
  const bool inside = key && *key >= low && (!end.bounded || *key < end.key);
  auto from = first;
  auto to = last;
  if (backward) {
    if (inside) to = latest.upper_bound(*key);
    from = to;
    for (int n = 0; n < kLaidOver && from != first; ++n) --from;
    if (from != first) low = from->first;
  } else {
    if (inside) from = latest.lower_bound(*key);
    to = from;
    for (int n = 0; n < kLaidOver && to != last; ++n) ++to;
    if (from != first) low = *key;
  }
  if (to != last) end = {true, std::string(to->first), nullptr};
}

void WriteSet::overlay(std::string_view low, const UpperBound& end,
                       std::vector<Entry>& entries) const {
  const auto from = latest.lower_bound(low);
  const auto to = end.bounded ? latest.lower_bound(end.key) : latest.end();
  std::erase_if(entries, [&](const Entry& e) {
    const std::string_view key = e.record.key;
    return key < low || (end.bounded && key >= end.key) || latest.contains(key);
  });
  for (auto at = from; at != to; ++at) {
    const Write& w = writes[at->second];
    if (w.value) {
      const SlotWord word = SlotWord::make({}, hash_key(w.key).slot);
      entries.push_back({{w.key, *w.value}, word, 0});
    }
  }
}

Status TransactionState::commit() {
  TENUTO_TRY(usable());
  if (torn) {
    for (const WriteSet& write_set : write_sets) TENUTO_TRY(write_set.alive());
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

Status TransactionState::try_commit() {
  const EpochGuard guard;  // see CollectionUse
  std::vector<BatchOp> ops;
  ReadSet all = reads;
  all.clock = &store->collections.clock();
  for (const WriteSet& write_set : write_sets) {
    TENUTO_TRY(write_set.alive());
    if (write_set.state != main && !write_set.own && !drops(write_set))
      all.lives.push_back(&write_set.state->life);
    Tree* const tree = write_set.state->tree.get();
    for (const auto& [key, at] : write_set.latest) {
      if (drops(write_set)) break;
      if (versions->key_locks().held_by_another(tree->id(), key, this)) return Status::conflict;
      const std::optional<std::string>& value = writes[at].value;
      ops.push_back({tree, key, value ? std::string_view(*value) : std::string_view(), !value});
    }
    for (const std::string& key : write_set.keys_read) all.ranges.emplace_back(*tree, key);
  }
  TENUTO_TRY(store->collections.write(std::move(ops), &all, created, dropped));
  created.clear();
  return Status::ok;
}

void TransactionState::end() {
  if (ended || store == nullptr) return;
  ended = true;
  if (versions->forked()) return;  // a child process touches nothing
  if (!versions->closed()) {
    for (const auto& state : created) store->collections.forget_unnamed(state);
  }
  for (const std::string& name : locked) versions->key_locks().release(name, this);
  reads.snapshot.reset();
}

}  // namespace TENUTO_NS::store
