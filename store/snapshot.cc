// The public Snapshot: an active moment (history.h) and the tree it is about.
#include <utility>

#include "store/store_impl.h"

namespace tenuto::inline TENUTO_ABI {

Snapshot::Snapshot(std::shared_ptr<store::SnapshotCore> core, const store::Tree* tree)
    : core_(std::move(core)), tree_(tree) {}
Snapshot::Snapshot(Snapshot&&) noexcept = default;
Snapshot& Snapshot::operator=(Snapshot&&) noexcept = default;
Snapshot::~Snapshot() = default;

// The tree is there as long as the history is not closed.
Status Snapshot::usable() const {
  if (core_ == nullptr || core_->history->closed()) return Status::closed;
  core_->history->expire_if_old(*core_);
  return core_->expired.load(std::memory_order_acquire) ? Status::expired : Status::ok;
}

Status Snapshot::get(std::string_view key, std::string& value) const {
  TENUTO_TRY(usable());
  const store::EpochGuard guard;
  store::Record record;
  TENUTO_TRY(tree_->lookup_at(key, *core_, record));
  value.assign(record.value);
  return tree_->bad_pages();
}

Result<std::string> Snapshot::get(std::string_view key) const {
  std::string value;
  const Status s = get(key, value);
  if (s != Status::ok) return s;
  return value;
}

Status Snapshot::contains(std::string_view key) const {
  TENUTO_TRY(usable());
  const store::EpochGuard guard;
  store::Record record;
  return tree_->lookup_at(key, *core_, record, false);
}

void Snapshot::release() { core_.reset(); }

Result<Snapshot> Store::snapshot() const {
  const store::Tree* tree = impl_ == nullptr ? nullptr : impl_->tree();
  if (tree == nullptr) return Status::closed;
  auto core = tree->history().take();
  if (!core) return core.error();
  return Snapshot(std::move(*core), tree);
}

}  // namespace tenuto::inline TENUTO_ABI
