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

// --- writes that look first ---------------------------------------------------------------------

Status Collection::put_if_absent(std::string_view key, std::string_view value,
                                 WriteOptions options) {
  return change(state_.get(), options,
                [&](store::Tree& tree) { return tree.put_if_absent(key, value); });
}

Status Collection::compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                                    std::optional<std::string_view> desired, WriteOptions options) {
  return change(state_.get(), options,
                [&](store::Tree& tree) { return tree.compare_and_swap(key, expected, desired); });
}

Status Collection::merge(std::string_view key, const MergeFunction& f, WriteOptions options) {
  return change(state_.get(), options, [&](store::Tree& tree) { return tree.merge(key, f); });
}

// --- several keys -------------------------------------------------------------------------------

Result<std::uint64_t> Collection::erase_range(std::string_view from,
                                              std::optional<std::string_view> to,
                                              WriteOptions options) {
  std::vector<std::string> keys;
  {
    IteratorOptions range;
    range.lower = from;
    if (to) range.upper = *to;
    Iterator it = iterator(std::move(range));
    for (it.seek_first(); it.valid(); it.next()) keys.emplace_back(it.key());
    TENUTO_TRY(it.status());
  }
  TENUTO_TRY(change(state_.get(), options, [&](store::Tree& tree) {
    std::vector<store::BatchOp> ops;
    for (const std::string& key : keys) ops.push_back({&tree, key, {}, true});
    return store::Tree::write(std::move(ops));
  }));
  return keys.size();
}

std::vector<Result<std::string>> Collection::multi_get(
    std::span<const std::string_view> keys) const {
  std::vector<Result<std::string>> out;
  out.reserve(keys.size());
  const Status s = multi_get(keys, [&](std::size_t, Status each, std::string_view value) {
    out.push_back(each == Status::ok ? Result<std::string>(std::string(value)) : each);
  });
  while (out.size() < keys.size()) out.emplace_back(s);
  return out;
}

Status Collection::multi_get(std::span<const std::string_view> keys, const EachValue& each) const {
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t from = 0; from < keys.size(); from += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, keys.size() - from);
    store::Looked found[kAtOnce];
    const store::EpochGuard guard;
    const CollectionUse use(state_.get());
    TENUTO_TRY(use.status());
    use->multi_lookup(keys.subspan(from, n), {found, n});
    for (std::size_t i = 0; i < n; ++i) each(from + i, found[i].status, found[i].record.value);
  }
  return Status::ok;
}

// Its tree is locked only while the finished leaves are hung into it.
Status Collection::bulk_load(std::span<const BulkRecord> sorted, WriteOptions options) {
  return change(state_.get(), options, [&](store::Tree& tree) {
    return tree.bulk_load(sorted, state_->collections->threads());
  });
}

namespace {
Result<KeyValue> here(const Iterator& it) {
  if (it.valid()) {
    KeyValue found{std::string(it.key()), std::string(it.value())};
    TENUTO_TRY(it.status());
    return found;
  }
  return it.status() == Status::ok ? Status::not_found : it.status();
}
}  // namespace

Result<KeyValue> Collection::lower_bound(std::string_view key) const {
  if (key.size() > kKeyBytesMax) return Status::too_large;
  Iterator it = iterator();
  it.seek(key);
  return here(it);
}

Result<KeyValue> Collection::upper_bound(std::string_view key) const {
  if (key.size() > kKeyBytesMax) return Status::too_large;
  Iterator it = iterator();
  it.seek(key);
  if (it.valid() && it.key() == key) it.next();
  return here(it);
}

std::uint64_t Collection::approximate_count(std::string_view from,
                                            std::optional<std::string_view> to) const {
  const CollectionUse use(state_.get());
  return use.status() == Status::ok ? use->estimate(from, to ? &*to : nullptr) : 0;
}

// --- about it -----------------------------------------------------------------------------------

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
