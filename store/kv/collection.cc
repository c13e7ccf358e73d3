// The public View, and the reads of Collection. Each call finds the tree, unless the collection was
// dropped, and decodes what it reads by the collection's encoding. Writes: collection_write.cc.
#include <algorithm>
#include <utility>

#include "pm/plant.h"
#include "store/kv/stored_key.h"
#include "store/tree/statistics.h"

namespace TENUTO_NS {

// --- View ----------------------------------------------------------------------------------------

View::View(View&& o) noexcept
    : hold_(std::exchange(o.hold_, nullptr)), value_(std::exchange(o.value_, {})) {}

View& View::operator=(View&& o) noexcept {
  std::swap(hold_, o.hold_);
  std::swap(value_, o.value_);
  return *this;
}

View::~View() {
  if (hold_ == nullptr) return;
  auto* slot = static_cast<store::EpochSlot*>(hold_);
  slot->let_go();
  store::put_loose_slot(*slot);
}

// --- Collection ----------------------------------------------------------------------------------

namespace {

// Calls `found` with the stored value of a key. not_found also when it has expired. REQUIRES: an
// epoch guard.
template <class Found>
Status find(const CollectionUse& use, const store::Encoding& encoding, std::string_view key,
            bool for_value, const Found& found) {
  const StoredKey stored(encoding, key);
  TENUTO_TRY(stored.status());
  const store::TimeMs now = encoding.now();
  store::Record record;
  TENUTO_TRY(use->lookup(stored.get(), record, for_value || encoding.expires()));
  if (!encoding.live(record.value, now)) return Status::not_found;
  found(record.value);
  return Status::ok;
}

}  // namespace

// The reads are pinned before they ask whether the collection is there: so a close waits for them.
Status Collection::get(std::string_view key, std::string& value) const {
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  const store::Encoding& encoding = state_->encoding;
  if (encoding.plain()) return use->get(key, value);
  if (encoding.duplicates()) return first_value(pairs_of(key), value);
  TENUTO_TRY(find(use, encoding, key, true,
                  [&](std::string_view stored) { value.assign(encoding.value_in(stored)); }));
  return use->bad_pages();
}

Result<std::string> Collection::get(std::string_view key) const {
  std::string value;
  const Status s = get(key, value);
  if (s != Status::ok) return s;
  return value;
}

Result<std::size_t> Collection::get(std::string_view key, std::span<char> to) const {
  std::size_t bytes = 0;
  const auto copy = [&](std::string_view value) {
    bytes = value.size();
    std::copy_n(value.begin(), std::min(bytes, to.size()), to.begin());
  };
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  const store::Encoding& encoding = state_->encoding;
  if (encoding.duplicates()) {
    std::string value;
    TENUTO_TRY(first_value(pairs_of(key), value));
    copy(value);
    return bytes;
  }
  TENUTO_TRY(find(use, encoding, key, true,
                  [&](std::string_view stored) { copy(encoding.value_in(stored)); }));
  TENUTO_TRY(use->bad_pages());
  return bytes;
}

Result<View> Collection::view(std::string_view key) const {
  View v;
  store::EpochSlot* const slot = store::take_loose_slot();
  if (slot == nullptr) return Status::busy;
  v.hold_ = slot;
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  // Holds this one record. To be called before this thread is unpinned.
  const auto hold = [&] {
    if (TENUTO_PLANT("store_view_holds_nothing")) return;
    slot->rest_with(guard.slot(), use->offset_of(v.value_.data()).value);
  };
  const store::Encoding& encoding = state_->encoding;
  if (encoding.duplicates()) {
    Iterator it = pairs_of(key);
    it.seek_first();
    TENUTO_TRY(it.status());
    if (!it.valid()) return Status::not_found;
    v.value_ = it.value();  // the end of the stored key, which does not move either
    hold();
    return v;
  }
  TENUTO_TRY(find(use, encoding, key, true,
                  [&](std::string_view stored) { v.value_ = encoding.value_in(stored); }));
  hold();
  return v;
}

Status Collection::contains(std::string_view key) const {
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  if (state_->encoding.duplicates()) {
    std::string value;
    return first_value(pairs_of(key), value);
  }
  return find(use, state_->encoding, key, false, [](std::string_view) {});
}

Result<std::uint64_t> Collection::ttl_ms(std::string_view key) const {
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  const store::Encoding& encoding = state_->encoding;
  std::uint64_t left = 0;
  if (encoding.duplicates()) {
    Iterator it = pairs_of(key);
    it.seek_first();
    TENUTO_TRY(it.status());
    if (!it.valid()) return Status::not_found;
    return it.ttl_ms();
  }
  TENUTO_TRY(find(use, encoding, key, true, [&](std::string_view stored) {
    left = encoding.ttl_ms(stored, encoding.now());
  }));
  return left;
}

// --- duplicates ----------------------------------------------------------------------------------

Status Collection::contains_pair(std::string_view key, std::string_view value) const {
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  TENUTO_TRY(use.status());
  const store::Encoding& encoding = state_->encoding;
  if (!encoding.duplicates()) return Status::invalid_argument;
  std::string stored;
  TENUTO_TRY(encoding.pair(key, value, stored));
  const store::TimeMs now = encoding.now();
  store::Record record;
  TENUTO_TRY(use->lookup(stored, record, encoding.expires()));
  return encoding.live(record.value, now) ? Status::ok : Status::not_found;
}

Result<std::uint64_t> Collection::count(std::string_view key) const {
  if (state_ == nullptr) return Status::closed;
  if (!state_->encoding.duplicates()) return Status::invalid_argument;
  const store::ReadGuard guard(pool_of(state_));
  Iterator it = pairs_of(key);
  std::uint64_t n = 0;
  for (it.seek_first(); it.valid(); it.next()) ++n;
  TENUTO_TRY(it.status());
  return n;
}

// --- several keys --------------------------------------------------------------------------------

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
  if (state_ == nullptr) return Status::closed;
  const store::Encoding& encoding = state_->encoding;
  if (encoding.duplicates()) {
    TENUTO_TRY(state_->alive());
    std::string value;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Status s = get(keys[i], value);
      each(i, s, s == Status::ok ? std::string_view(value) : std::string_view());
    }
    return Status::ok;
  }
  std::vector<std::string> rooms(encoding.plain() ? 0 : std::min(kAtOnce, keys.size()));
  for (std::size_t from = 0; from < keys.size(); from += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, keys.size() - from);
    std::string_view stored[kAtOnce];
    Status refused[kAtOnce] = {};
    for (std::size_t i = 0; i < n; ++i) {
      stored[i] = keys[from + i];
      if (!encoding.plain()) refused[i] = encoding.key(keys[from + i], rooms[i], stored[i]);
    }
    store::Looked found[kAtOnce];
    const store::ReadGuard guard(pool_of(state_));
    const CollectionUse use(state_.get());
    TENUTO_TRY(use.status());
    const store::TimeMs now = encoding.now();
    use->multi_lookup({stored, n}, {found, n});
    for (std::size_t i = 0; i < n; ++i) {
      Status s = refused[i] != Status::ok ? refused[i] : found[i].status;
      if (s == Status::ok && !encoding.live(found[i].record.value, now)) s = Status::not_found;
      each(from + i, s,
           s == Status::ok ? encoding.value_in(found[i].record.value) : std::string_view());
    }
  }
  return Status::ok;
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
  const store::ReadGuard guard(pool_of(state_));
  Iterator it = iterator();
  it.seek(key);
  return here(it);
}

Result<KeyValue> Collection::upper_bound(std::string_view key) const {
  if (key.size() > kKeyBytesMax) return Status::too_large;
  const store::ReadGuard guard(pool_of(state_));
  Iterator it = iterator();
  it.seek(key);
  if (it.valid() && it.key() == key) it.next_key();
  return here(it);
}

std::uint64_t Collection::approximate_count(std::optional<std::string_view> from,
                                            std::optional<std::string_view> to) const {
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  if (use.status() != Status::ok) return 0;
  store::Span span;
  if (state_->encoding.range(from, to, span) != Status::ok) return 0;
  const std::string_view upper = span.upper ? std::string_view(*span.upper) : std::string_view();
  return store::estimate(*use.tree(), span.lower, span.upper ? &upper : nullptr);
}

// --- properties ----------------------------------------------------------------------------------

std::string Collection::name() const {
  if (state_ == nullptr) return {};
  const std::lock_guard lock(state_->name_mu);
  return state_->name;
}

std::uint64_t Collection::id() const { return state_ == nullptr ? 0 : state_->id.value; }

KeyOrder Collection::order() const {
  return state_ == nullptr ? KeyOrder::bytes : state_->encoding.spec().order;
}
std::string Collection::codec() const {
  return state_ == nullptr ? std::string() : state_->encoding.spec().codec;
}
bool Collection::duplicates() const {
  return state_ != nullptr && state_->encoding.spec().duplicates;
}
bool Collection::expires() const { return state_ != nullptr && state_->encoding.spec().expires; }

CollectionStats Collection::stats() const {
  const store::ReadGuard guard(pool_of(state_));
  const CollectionUse use(state_.get());
  if (use.status() != Status::ok) return {};
  const StoreStats s = store::stats_of(*use.tree());
  return {s.records,          s.record_bytes,       s.leaves,       s.inner_nodes, s.height,
          s.index_dram_bytes, s.lookup_cache_bytes, s.shadow_leaves};
}

Status Collection::status() const { return CollectionUse(state_.get()).status(); }

}  // namespace TENUTO_NS
