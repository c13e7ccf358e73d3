// The public Snapshot: an active moment (history.h) and the tree it is about.
#include <utility>

#include "store/store_impl.h"

namespace tenuto::inline TENUTO_ABI {

Snapshot::Snapshot(std::shared_ptr<store::SnapshotCore> core, const Collection& main)
    : core_(std::move(core)), main_(main.state_) {}
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot& Snapshot::operator=(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;

// The tree is there as long as the history is not closed.
Status Snapshot::usable() const {
  if (core_ == nullptr || core_->history->closed()) return Status::closed;
  core_->history->expire_if_old(*core_);
  return core_->expired.load(std::memory_order_acquire) ? Status::expired : Status::ok;
}

Status Snapshot::get(const Collection& collection, std::string_view key, std::string& value) const {
  TENUTO_TRY(usable());
  const store::EpochGuard guard;
  const CollectionUse use(collection.state_.get());
  TENUTO_TRY(use.status());
  store::Record record;
  TENUTO_TRY(use->lookup_at(key, *core_, record));
  value.assign(record.value);
  return use->bad_pages();
}

Result<std::string> Snapshot::get(const Collection& collection, std::string_view key) const {
  std::string value;
  const Status s = get(collection, key, value);
  if (s != Status::ok) return s;
  return value;
}

Status Snapshot::contains(const Collection& collection, std::string_view key) const {
  TENUTO_TRY(usable());
  const store::EpochGuard guard;
  const CollectionUse use(collection.state_.get());
  TENUTO_TRY(use.status());
  store::Record record;
  return use->lookup_at(key, *core_, record, false);
}

Status Snapshot::get(std::string_view key, std::string& value) const {
  return get(Collection(main_), key, value);
}
Result<std::string> Snapshot::get(std::string_view key) const {
  return get(Collection(main_), key);
}
Status Snapshot::contains(std::string_view key) const { return contains(Collection(main_), key); }
Iterator Snapshot::iterator(IteratorOptions options) const {
  return iterator(Collection(main_), std::move(options));
}

void Snapshot::release() { core_.reset(); }

Result<Snapshot> Store::snapshot() const {
  if (impl_ == nullptr || impl_->collections() == nullptr) return Status::closed;
  auto core = impl_->pool.impl_->history->take();
  if (!core) return core.error();
  return Snapshot(std::move(*core), impl_->main);
}

}  // namespace tenuto::inline TENUTO_ABI
