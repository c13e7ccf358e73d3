// Transactions over keys. Why they are serialisable: versions.h. The steps of a commit: batch.cc.
#include "store/kv/transaction_state.h"

#include <algorithm>
#include <utility>

#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/kv/attempts.h"
#include "store/kv/stored_key.h"

namespace TENUTO_NS {

StoreTransaction::StoreTransaction(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
StoreTransaction::StoreTransaction(StoreTransaction&&) noexcept = default;
StoreTransaction& StoreTransaction::operator=(StoreTransaction&& o) noexcept {
  std::swap(impl_, o.impl_);
  return *this;
}
// Without memory for this thread's first call it is none that a close would wait for.
StoreTransaction::~StoreTransaction() {
  if (impl_ == nullptr) return;
  if (!pm::had_memory([this] { rollback(); })) impl_->end();
}

namespace {
// For the PoolCall of each call. Null: there is no store to be closed. The store itself may be
// gone.
const void* pool_of(const std::shared_ptr<store::TransactionState>& txn) {
  return txn == nullptr || txn->main == nullptr ? nullptr : txn->main->collections;
}

// Calls `found` with the value of a stored key, or returns not_found. Notes the key as read, unless
// the transaction itself has written it.
template <class Found>
Status read(store::TransactionState& txn, store::WriteSet& write_set, std::string_view stored,
            bool for_value, const Found& found) {
  const store::Encoding& encoding = write_set.state->encoding;
  if (const store::Write* own = write_set.written(stored)) {
    if (!own->value) return Status::not_found;
    // It has not expired: its lifetime began after the snapshot.
    found(encoding.value_in(*own->value));
    return Status::ok;
  }
  TENUTO_TRY(txn.look());
  const store::ReadGuard guard(write_set.state->collections);
  const CollectionUse use(write_set.state.get(), write_set.own);
  TENUTO_TRY(txn.met(*write_set.state, use.status()));
  store::Record record;
  const Status s =
      use->lookup_at(stored, *txn.reads.snapshot, record, for_value || encoding.expires());
  const bool answer = s == Status::ok || s == Status::not_found;
  if (answer && !write_set.keys_read.contains(stored)) write_set.keys_read.emplace(stored);
  TENUTO_TRY(s);
  const store::TimeMs time =
      TENUTO_PLANT("store_snapshot_without_time") ? encoding.now() : txn.reads.snapshot->time;
  if (!encoding.live(record.value, time)) return Status::not_found;
  txn.reads.hold_until(encoding.gone_at(record.value));
  found(encoding.value_in(record.value));
  return use->bad_pages();
}
}  // namespace

Status StoreTransaction::write_set_of(const Collection* collection, store::WriteSet*& out) {
  if (impl_ == nullptr) return Status::closed;
  return impl_->write_set_of(collection == nullptr ? impl_->main : collection->state_, out);
}

Status StoreTransaction::get(const RecordKey& key, std::string& value) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(key.collection, write_set));
  if (write_set->state->encoding.duplicates()) return first_value(pairs_of(key), value);
  const StoredKey stored(write_set->state->encoding, key.key);
  TENUTO_TRY(stored.status());
  return read(*impl_, *write_set, stored.get(), true, [&](std::string_view v) { value.assign(v); });
}

Result<std::string> StoreTransaction::get(const RecordKey& key) {
  std::string value;
  const Status s = get(key, value);
  if (s != Status::ok) return s;
  return value;
}

Status StoreTransaction::contains(const RecordKey& key) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(key.collection, write_set));
  std::string value;
  if (write_set->state->encoding.duplicates()) return first_value(pairs_of(key), value);
  const StoredKey stored(write_set->state->encoding, key.key);
  TENUTO_TRY(stored.status());
  return read(*impl_, *write_set, stored.get(), false, [](std::string_view) {});
}

Status StoreTransaction::get_for_update(const RecordKey& key, std::string& value) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(key.collection, write_set));
  const CollectionState& state = *write_set->state;
  if (state.encoding.duplicates()) return Status::invalid_argument;
  const StoredKey stored(state.encoding, key.key);
  TENUTO_TRY(stored.status());
  {
    const CollectionUse use(&state, write_set->own);
    TENUTO_TRY(use.status());
    TENUTO_TRY(use->check_key(stored.get()));
  }
  impl_->locked.push_back(store::KeyLocks::name(state.id, stored.get()));
  if (!impl_->versions->key_locks().take(impl_->locked.back(), impl_.get())) {
    impl_->locked.pop_back();
    return Status::conflict;
  }
  const Status s =
      read(*impl_, *write_set, stored.get(), true, [&](std::string_view v) { value.assign(v); });
  if ((s != Status::ok && s != Status::not_found) || write_set->written(stored.get()) != nullptr)
    return s;
  // If the key has changed since the snapshot the commit would fail: fail now.
  const CollectionUse use(&state, write_set->own);
  TENUTO_TRY(use.status());
  if (use->changed_since(stored.get(), *impl_->reads.snapshot)) {
    impl_->doomed = true;
    return Status::conflict;
  }
  return s;
}

Status StoreTransaction::put(const RecordKey& key, std::string_view value, std::uint64_t ttl_ms) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(key.collection, write_set));
  const StoredRecord stored(write_set->state->encoding, key.key, value, ttl_ms);
  TENUTO_TRY(stored.status());
  return impl_->write(*write_set, stored.key(), stored.value());
}

Status StoreTransaction::erase(const RecordKey& key) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(key.collection, write_set));
  const store::Encoding& encoding = write_set->state->encoding;
  if (!encoding.duplicates()) {
    const StoredKey stored(encoding, key.key);
    TENUTO_TRY(stored.status());
    return impl_->write(*write_set, stored.get(), std::nullopt);
  }
  std::size_t count = 0;
  return each_pair(key, count, [&](const std::string& value) { return erase_pair(key, value); });
}

Status StoreTransaction::touch(const RecordKey& key, std::uint64_t ttl_ms) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(key.collection, write_set));
  if (!write_set->state->encoding.expires()) return Status::invalid_argument;
  if (impl_->options.read_only) return Status::read_only;
  const auto put_again = [&](const std::string& value) { return put(key, value, ttl_ms); };
  if (write_set->state->encoding.duplicates()) {
    std::size_t count = 0;
    TENUTO_TRY(each_pair(key, count, put_again));
    return count == 0 ? Status::not_found : Status::ok;
  }
  std::string value;
  TENUTO_TRY(get(key, value));
  return put_again(value);
}

Status StoreTransaction::each_pair(const RecordKey& key, std::size_t& count,
                                   const std::function<Status(const std::string&)>& write) {
  // Before the read below, which would take a snapshot.
  if (impl_->options.read_only) return Status::read_only;
  std::vector<std::string> values;
  {
    Iterator it = pairs_of(key);
    for (it.seek_first(); it.valid(); it.next()) values.emplace_back(it.value());
    TENUTO_TRY(it.status());
  }
  count = values.size();
  // All of them or none, also when one is refused or memory ends.
  struct Undo {
    store::TransactionState& txn;
    std::size_t count;
    ~Undo() { txn.rollback_to(count); }
  } undo{*impl_, impl_->writes.size()};
  for (const std::string& value : values) TENUTO_TRY(write(value));
  undo.count = impl_->writes.size();
  return Status::ok;
}

Status StoreTransaction::erase_pair(const RecordKey& key, std::string_view value) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(key.collection, write_set));
  if (!write_set->state->encoding.duplicates()) return Status::invalid_argument;
  std::string stored;
  TENUTO_TRY(write_set->state->encoding.pair(key.key, value, stored));
  return impl_->write(*write_set, stored, std::nullopt);
}

// --- collections ---------------------------------------------------------------------------------

Result<Collection> StoreTransaction::create(std::string_view name, const CollectionOptions& options,
                                            Report* report) {
  const store::PoolCall call(pool_of(impl_));
  if (impl_ == nullptr) return Status::closed;
  TENUTO_TRY(impl_->usable());
  if (impl_->options.read_only) return Status::read_only;
  impl_->created.reserve(impl_->created.size() + 1);  // so that push_back below cannot fail
  auto made =
      impl_->store->collections.make_unnamed(name, options, impl_->created, impl_->dropped, report);
  if (!made) return made.error();
  impl_->created.push_back(*made);
  return Collection(std::move(*made));
}

Status StoreTransaction::drop(const Collection& collection) {
  const store::PoolCall call(pool_of(impl_));
  store::WriteSet* write_set = nullptr;
  TENUTO_TRY(write_set_of(&collection, write_set));
  if (impl_->options.read_only) return Status::read_only;
  const auto& own = impl_->created;
  const bool is_own = std::find(own.begin(), own.end(), write_set->state) != own.end();
  if (is_own || write_set->state == impl_->main) return Status::invalid_argument;
  if (!impl_->drops(*write_set)) impl_->dropped.push_back(write_set->state);
  return Status::ok;
}

// --- the end -------------------------------------------------------------------------------------

StoreTransaction::Savepoint StoreTransaction::savepoint() const {
  return {impl_ == nullptr ? 0 : impl_->writes.size()};
}

Status StoreTransaction::rollback_to(Savepoint point) {
  const store::PoolCall call(pool_of(impl_));
  if (impl_ == nullptr) return Status::closed;
  TENUTO_TRY(impl_->usable());
  impl_->rollback_to(point.writes);
  return Status::ok;
}

Status StoreTransaction::commit(WriteOptions options) {
  if (impl_ == nullptr) return Status::closed;
  if (impl_->store == nullptr) return Status::closed;
  const store::PoolCall call(pool_of(impl_));
  const bool wrote = impl_->wrote();  // asked before: the commit clears `created`
  Status s = options.ttl_ms == 0 ? impl_->commit() : Status::invalid_argument;
  impl_->end();
  if (wrote && s == Status::ok) s = impl_->store->collections.acknowledge(options.durability);
  return s;
}

void StoreTransaction::rollback() {
  if (impl_ == nullptr) return;
  const store::PoolCall call(pool_of(impl_));
  impl_->end();
}

// --- Store ---------------------------------------------------------------------------------------

StoreTransaction Store::begin(const TransactionOptions& options) const {
  const bool there = impl_ != nullptr && impl_->collections() != nullptr;
  StoreParts* const parts = there ? impl_->parts() : nullptr;
  return StoreTransaction(std::make_shared<StoreTransaction::Impl>(parts, options));
}

StoreTransaction Store::begin() const { return begin(TransactionOptions{}); }

Status Store::run(const std::function<Status(StoreTransaction&)>& f,
                  const TransactionOptions& options) const {
  Status s = Status::conflict;
  if (options.attempts_max == 0) return s;
  store::Attempts attempts(options.attempts_max);
  do {
    StoreTransaction tx = begin(options);
    s = f(tx);
    if (s == Status::ok) s = tx.commit(options.write);
  } while (attempts.again_after(s));
  return s;
}

Status Store::run(const std::function<Status(StoreTransaction&)>& f) const {
  return run(f, TransactionOptions{});
}

}  // namespace TENUTO_NS
