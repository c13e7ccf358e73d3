// The public Snapshot: an active snapshot of the version store (versions.h), and reads through it.
#include <utility>

#include "pm/plant.h"
#include "store/kv/stored_key.h"

namespace TENUTO_NS {

Snapshot::Snapshot(std::shared_ptr<store::SnapshotCore> core, const Collection& main)
    : core_(std::move(core)), main_(main) {}
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot& Snapshot::operator=(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;

// As long as the version store is not closed the trees are there.
Status Snapshot::usable() const {
  if (core_ == nullptr) return Status::closed;
  TENUTO_TRY(core_->versions->usable());
  core_->versions->expire_if_old(*core_);
  return core_->expired.load(std::memory_order_acquire) ? Status::expired : Status::ok;
}

Status Snapshot::usable(const Collection& collection) const {
  TENUTO_TRY(usable());
  const CollectionState* state = collection.state_.get();
  if (state == nullptr) return Status::closed;
  // Another store keeps no old versions for this snapshot.
  return state->is_of(*core_->versions) ? Status::ok : Status::invalid_argument;
}

namespace {
// Calls `found` with the value of a key at the snapshot. not_found also when it had expired then.
template <class Found>
Status find(const CollectionState* state, const store::SnapshotCore& at, std::string_view key,
            bool for_value, const Found& found) {
  const store::ReadGuard guard(state->collections);
  const CollectionUse use(state);
  TENUTO_TRY(use.status());
  const store::Encoding& encoding = state->encoding;
  const StoredKey stored(encoding, key);
  TENUTO_TRY(stored.status());
  store::Record record;
  TENUTO_TRY(use->lookup_at(stored.get(), at, record, for_value || encoding.expires()));
  const store::TimeMs time = TENUTO_PLANT("store_snapshot_without_time") ? encoding.now() : at.time;
  if (!encoding.live(record.value, time)) return Status::not_found;
  found(encoding.value_in(record.value));
  return for_value ? use->bad_pages() : Status::ok;
}
}  // namespace

// The calls last until the value is copied, also where a cursor rests meanwhile.
Status Snapshot::get(const RecordKey& key, std::string& value) const {
  const Collection& collection = collection_of(key);
  const store::PoolCall call(pool_of(collection.state_));
  TENUTO_TRY(usable(collection));
  if (collection.duplicates()) return first_value(pairs_of(key), value);
  return find(collection.state_.get(), *core_, key.key, true,
              [&](std::string_view v) { value.assign(v); });
}

Result<std::string> Snapshot::get(const RecordKey& key) const {
  std::string value;
  const Status s = get(key, value);
  if (s != Status::ok) return s;
  return value;
}

Status Snapshot::contains(const RecordKey& key) const {
  const Collection& collection = collection_of(key);
  const store::PoolCall call(pool_of(collection.state_));
  TENUTO_TRY(usable(collection));
  if (collection.duplicates()) {
    std::string value;
    return first_value(pairs_of(key), value);
  }
  return find(collection.state_.get(), *core_, key.key, false, [](std::string_view) {});
}

void Snapshot::release() { core_.reset(); }

Result<Snapshot> Store::snapshot() const {
  if (impl_ == nullptr) return Status::closed;
  TENUTO_TRY(usable(impl_->collections()));
  auto core = impl_->parts()->versions->take();
  if (!core) return core.error();
  return Snapshot(std::move(*core), *this);
}

}  // namespace TENUTO_NS
