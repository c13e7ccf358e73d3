// The public Collection and View: each call finds its tree, unless the collection was dropped.
#include <utility>

#include "store/store_impl.h"

namespace tenuto::inline TENUTO_ABI {

// --- View ---------------------------------------------------------------------------------------

View::View(View&& o) noexcept
    : guard_(std::exchange(o.guard_, nullptr)), value_(std::exchange(o.value_, {})) {}

View& View::operator=(View&& o) noexcept {
  std::swap(guard_, o.guard_);
  std::swap(value_, o.value_);
  return *this;
}

View::~View() {
  if (guard_ != nullptr) static_cast<store::EpochSlot*>(guard_)->leave();
}

// --- Collection ---------------------------------------------------------------------------------

namespace {

// A write, and a second try after what waited for readers has been freed. What other collections
// keep counts only where there are any.
template <class Write>
Status change(CollectionState* state, WriteOptions options, const Write& write) {
  for (bool again : {true, false}) {
    Status s = Status::closed;
    {
      const CollectionUse use(state);
      TENUTO_TRY(use.status());
      s = write(*use.tree());
    }
    if (s == Status::full && again && !state->collections->alone()) {
      state->collections->make_room();
      continue;
    }
    TENUTO_TRY(s);
    break;
  }
  return state->collections->settle(options.durability);
}

}  // namespace

Status Collection::get(std::string_view key, std::string& value) const {
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  return use->get(key, value);
}

Result<std::string> Collection::get(std::string_view key) const {
  std::string value;
  const Status s = get(key, value);
  if (s != Status::ok) return s;
  return value;
}

Result<View> Collection::view(std::string_view key) const {
  View v;
  store::EpochSlot& slot = store::my_epoch_slot();
  slot.enter();
  v.guard_ = &slot;
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  store::Record record;
  TENUTO_TRY(use->lookup(key, record));
  v.value_ = record.value;
  return v;
}

Status Collection::contains(std::string_view key) const {
  const store::EpochGuard guard;
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  store::Record record;
  return use->lookup(key, record, false);
}

Status Collection::put(std::string_view key, std::string_view value, WriteOptions options) {
  return change(state_.get(), options, [&](store::Tree& tree) { return tree.put(key, value); });
}

Status Collection::erase(std::string_view key, WriteOptions options) {
  return change(state_.get(), options, [&](store::Tree& tree) { return tree.erase(key); });
}

std::string Collection::name() const {
  if (state_ == nullptr) return {};
  const std::lock_guard lock(state_->name_mu);
  return state_->name;
}

std::uint64_t Collection::id() const { return state_ == nullptr ? 0 : state_->id.value; }

KeyOrder Collection::order() const {
  return state_ == nullptr ? KeyOrder::bytes : state_->spec.order;
}

CollectionStats Collection::stats() const {
  const CollectionUse use(state_.get());
  if (use.status() != Status::ok) return {};
  StoreStats s;
  use->stats(s);
  return {s.records, s.record_bytes, s.leaves, s.inner_nodes, s.height, s.index_dram_bytes};
}

Status Collection::status() const { return CollectionUse(state_.get()).status(); }

}  // namespace tenuto::inline TENUTO_ABI
