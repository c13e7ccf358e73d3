// Transactions over keys. What makes them serialisable: history.h; the commit's steps: batch.cc.
#include "store/transaction.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "store/store_impl.h"

namespace tenuto::inline TENUTO_ABI {

namespace store {

Status Work::usable() const {
  return ended || pool == nullptr || history->closed() ? Status::closed : Status::ok;
}

Status Work::look() {
  TENUTO_TRY(usable());
  if (reads.snapshot != nullptr) return Status::ok;
  auto taken = history->take();
  if (!taken) return taken.error();
  reads.snapshot = std::move(*taken);
  return Status::ok;
}

const Work::Write* Work::own(std::string_view key) const {
  const auto at = latest.find(key);
  return at == latest.end() ? nullptr : &writes[at->second];
}

Status Work::write(std::string_view key, std::optional<std::string_view> value) {
  TENUTO_TRY(usable());
  if (options.read_only) return Status::read_only;
  TENUTO_TRY(tree->check_key(key));
  if (history->key_locks().held_by_another(tree_id, key, this)) return Status::conflict;
  const auto at = latest.find(key);
  const std::size_t before = at == latest.end() ? 0 : at->second + 1;
  std::optional<std::string> copy;
  if (value) copy.emplace(*value);
  writes.push_back({std::string(key), std::move(copy), before});
  if (at != latest.end()) latest.erase(at);
  latest.emplace(writes.back().key, writes.size() - 1);
  return Status::ok;
}

void Work::rollback_to(std::size_t count) {
  for (std::size_t i = writes.size(); i > count; --i) {
    const auto at = latest.find(writes[i - 1].key);
    if (at == latest.end() || at->second != i - 1) continue;  // taken back before
    std::size_t before = writes[i - 1].before;
    latest.erase(at);
    if (before != 0) latest.emplace(writes[before - 1].key, before - 1);
  }
}

void Work::overlay(std::string_view low, const Fence& end, std::vector<Entry>& entries) const {
  const auto from = latest.lower_bound(low);
  const auto to = end.bounded ? latest.lower_bound(end.key) : latest.end();
  if (from == to) return;
  std::erase_if(entries, [this](const Entry& e) { return latest.contains(e.record.key); });
  for (auto at = from; at != to; ++at) {
    const Write& w = writes[at->second];
    if (w.value) entries.push_back({{w.key, *w.value}, {}, 0});
  }
}

Status Work::commit() {
  TENUTO_TRY(usable());
  if (latest.empty()) return Status::ok;
  if (doomed) return Status::conflict;
  std::vector<BatchOp> ops;
  for (const auto& [key, at] : latest) {
    if (history->key_locks().held_by_another(tree_id, key, this)) return Status::conflict;
    const std::optional<std::string>& value = writes[at].value;
    ops.push_back({tree, key, value ? std::string_view(*value) : std::string_view(), !value});
  }
  for (const std::string& key : keys_read) reads.ranges.push_back({tree, key, key, true});
  return Tree::write(std::move(ops), &reads);
}

void Work::end() {
  if (ended) return;
  ended = true;
  for (const std::string& key : locked) history->key_locks().release(tree_id, key, this);
  reads.snapshot.reset();
}

}  // namespace store

StoreTransaction::StoreTransaction(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreTransaction::StoreTransaction(StoreTransaction&&) noexcept = default;
StoreTransaction& StoreTransaction::operator=(StoreTransaction&& o) noexcept {
  std::swap(impl_, o.impl_);
  return *this;
}
StoreTransaction::~StoreTransaction() { rollback(); }

namespace {
// The record of a key, or not_found; noted as read unless it is the transaction's own write.
template <class Found>
Status read(store::Work* work, std::string_view key, bool for_value, const Found& found) {
  if (work == nullptr) return Status::closed;
  TENUTO_TRY(work->usable());
  if (const store::Work::Write* own = work->own(key)) {
    if (!own->value) return Status::not_found;
    found(std::string_view(*own->value));
    return Status::ok;
  }
  TENUTO_TRY(work->look());
  const store::EpochGuard guard;
  store::Record record;
  const Status s = work->tree->lookup_at(key, *work->reads.snapshot, record, for_value);
  const bool answer = s == Status::ok || s == Status::not_found;
  if (answer && !work->keys_read.contains(key)) work->keys_read.emplace(key);
  TENUTO_TRY(s);
  found(record.value);
  return work->tree->bad_pages();
}
}  // namespace

Status StoreTransaction::get(std::string_view key, std::string& value) {
  return read(impl_.get(), key, true, [&](std::string_view v) { value.assign(v); });
}

Result<std::string> StoreTransaction::get(std::string_view key) {
  std::string value;
  const Status s = get(key, value);
  if (s != Status::ok) return s;
  return value;
}

Status StoreTransaction::contains(std::string_view key) {
  return read(impl_.get(), key, false, [](std::string_view) {});
}

Status StoreTransaction::get_for_update(std::string_view key, std::string& value) {
  if (impl_ == nullptr) return Status::closed;
  TENUTO_TRY(impl_->usable());
  TENUTO_TRY(impl_->tree->check_key(key));
  if (!impl_->history->key_locks().take(impl_->tree_id, key, impl_.get())) {
    return Status::conflict;
  }
  impl_->locked.emplace_back(key);
  const Status s = get(key, value);
  if (s != Status::ok && s != Status::not_found) return s;
  // A key that changed since the first read would be found at the commit: say so now.
  if (impl_->own(key) == nullptr && impl_->tree->changed_since(key, *impl_->reads.snapshot)) {
    impl_->doomed = true;
    return Status::conflict;
  }
  return s;
}

Status StoreTransaction::put(std::string_view key, std::string_view value) {
  return impl_ == nullptr ? Status::closed : impl_->write(key, value);
}

Status StoreTransaction::erase(std::string_view key) {
  return impl_ == nullptr ? Status::closed : impl_->write(key, std::nullopt);
}

StoreTransaction::Savepoint StoreTransaction::savepoint() const {
  return {impl_ == nullptr ? 0 : impl_->writes.size()};
}

Status StoreTransaction::rollback_to(Savepoint point) {
  if (impl_ == nullptr) return Status::closed;
  TENUTO_TRY(impl_->usable());
  impl_->rollback_to(point.writes);
  return Status::ok;
}

Status StoreTransaction::commit(WriteOptions options) {
  if (impl_ == nullptr) return Status::closed;
  Status s = impl_->commit();
  const bool wrote = s == Status::ok && !impl_->latest.empty();
  impl_->end();
  if (wrote) s = impl_->pool->settle(options.durability);
  return s;
}

void StoreTransaction::rollback() {
  if (impl_ != nullptr) impl_->end();
}

// --- Store --------------------------------------------------------------------------------------

StoreTransaction Store::begin(const TransactionOptions& options) const {
  const bool there = impl_ != nullptr && impl_->collections() != nullptr;
  PoolImpl* pool = there ? impl_->pool.impl_.get() : nullptr;
  return StoreTransaction(std::make_shared<StoreTransaction::Impl>(pool, options));
}

StoreTransaction Store::begin() const { return begin(TransactionOptions{}); }

namespace {
// Twice as long each time up to a millisecond, and of random length, so that those who met once
// part.
void wait_after(unsigned attempt) {
  constexpr unsigned kDoublings = 10;
  thread_local std::minstd_rand rng(
      static_cast<unsigned>(std::hash<std::thread::id>{}(std::this_thread::get_id())));
  const unsigned us = static_cast<unsigned>(rng()) % (1u << std::min(attempt, kDoublings));
  if (us == 0) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }
}
}  // namespace

Status Store::run(const std::function<Status(StoreTransaction&)>& f,
                  const TransactionOptions& options) const {
  Status s = Status::conflict;
  for (unsigned attempt = 0; attempt < options.attempts_max; ++attempt) {
    if (attempt > 0) wait_after(attempt);
    StoreTransaction tx = begin(options);
    s = f(tx);
    if (s == Status::ok) s = tx.commit(options.write);
    if (s != Status::conflict && s != Status::expired) return s;
  }
  return s;
}

Status Store::run(const std::function<Status(StoreTransaction&)>& f) const {
  return run(f, TransactionOptions{});
}

}  // namespace tenuto::inline TENUTO_ABI
