#include "tx/fields.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tx/engine.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

namespace {
constexpr std::size_t kValuesFirst = 256;  // bytes
constexpr std::size_t kKept = 256;         // fields: above it, clear() gives the memory back
}  // namespace

void WaitingFields::make_more_room(std::size_t bytes) {
  const std::size_t n = fields_.size();
  if (n == fields_.capacity()) fields_.reserve(std::max(kSearchMax, 2 * n));
  const std::size_t end = values_.size() + bytes;
  if (bytes > sizeof(std::uint64_t) && end > values_.capacity()) {
    values_.reserve(std::max(2 * end, kValuesFirst));
  }
  if (n < kSearchMax || 2 * (n + 1) <= table_.size()) return;
  table_ = std::vector<std::uint32_t>(std::bit_ceil(4 * (n + 1)));
  for (std::size_t i = 0; i < n; ++i) index(i);
}

void WaitingFields::index(std::size_t i) {
  std::size_t at = hash(fields_[i].offset) & (table_.size() - 1);
  while (table_[at] != 0) at = (at + 1) & (table_.size() - 1);
  table_[at] = static_cast<std::uint32_t>(i + 1);
}

const WaitingFields::Field* WaitingFields::search_all(std::uint64_t offset) const {
  if (fields_.size() <= kSearchMax) {
    const auto at = std::find_if(fields_.begin(), fields_.end(),
                                 [&](const Field& f) { return f.offset == offset; });
    return at == fields_.end() ? nullptr : &*at;
  }
  for (std::size_t at = hash(offset);; ++at) {
    const std::uint32_t i = table_[at & (table_.size() - 1)];
    if (i == 0) return nullptr;
    if (fields_[i - 1].offset == offset) return &fields_[i - 1];
  }
}

bool WaitingFields::replace(const Field& field, const void* value, std::size_t bytes) {
  if (field.bytes != bytes) return false;
  std::memcpy(const_cast<std::byte*>(value_of(field)), value, bytes);
  return true;
}

void WaitingFields::append(std::uint64_t offset, const void* value, std::size_t bytes) {
  Field& field = fields_.emplace_back(Field{offset, values_.size(), bytes});
  if (bytes <= sizeof field.word) {
    std::memcpy(&field.word, value, bytes);
  } else {
    const auto* const begin = static_cast<const std::byte*>(value);
    values_.insert(values_.end(), begin, begin + bytes);
  }
  if (!table_.empty()) index(fields_.size() - 1);
}

void WaitingFields::clear() {
  if (fields_.empty()) return;
  if (fields_.size() > kKept) {
    *this = {};
    return;
  }
  mask_ = 0;
  parts_ = false;
  fields_.clear();
  values_.clear();
  std::fill(table_.begin(), table_.end(), 0);
}

// --- in a transaction ----------------------------------------------------------------------------

void Txn::store_waiting() {
  if (fields_.empty()) return;
  fields_.for_each([&](std::uint64_t offset, const std::byte* value, std::size_t bytes) {
    void* const at = file_.at<void>({offset});
    if (bytes == sizeof(std::uint64_t)) [[likely]] {
      std::memcpy(at, value, sizeof(std::uint64_t));
    } else {
      std::memcpy(at, value, bytes);
    }
  });
  fields_.clear();
}

// The value waits unless the old bytes are durable, or the field is in a new block.
void Txn::store_field(void* at, const void* value, std::size_t bytes, const void* target) {
  const pm::MetadataOpen rights;
  if (status() != Status::ok) return;
  if (target != nullptr && !file_.contains(target)) {
    if (Watch* const watch = engine_.watch()) [[unlikely]]
      watch->foreign(*this, Watch::Foreign::target, target);
    field_error_ = Status::invalid_argument;
    return;
  }
  if (fields_.parts()) [[unlikely]] {
    field_error_ = set(at, value, bytes);
    return;
  }
  store_one(at, value, bytes);
}

void Txn::store_one(void* at, const void* value, std::size_t bytes) {
  const std::uint64_t offset = file_.offset_of(at).value;
  if (!savepoints_.any() && fields_.find(offset, bytes) != nullptr) {
    fields_.put(offset, value, bytes);
    return;
  }
  const bool fresh = new_blocks_.size() != 0 && new_blocks_.at(offset).inside;
  fields_.make_room(bytes);
  field_error_ = add_bytes(at, bytes);
  if (field_error_ != Status::ok) return;
  if (!undo_pending_ || fresh || TENUTO_PLANT("tx_field_stored_before_its_entry")) {
    std::memcpy(at, value, bytes);
  } else if (!fields_.put(offset, value, bytes)) {
    field_error_ = Status::invalid_argument;
  }
}

bool Txn::load_field(const void* at, void* value, std::size_t bytes) const {
  if (fields_.empty()) return false;
  const std::byte* const waiting = fields_.find(file_.offset_of(at).value, bytes);
  if (waiting == nullptr) {
    if (fields_.parts()) get(at, value, bytes);
    return fields_.parts();
  }
  if (bytes == sizeof(std::uint64_t)) [[likely]] {
    std::memcpy(value, waiting, sizeof(std::uint64_t));
  } else {
    std::memcpy(value, waiting, bytes);
  }
  return true;
}

// Waiting values never overlap. What would is stored first, in place.
Status Txn::set(void* at, const void* value, std::size_t bytes) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(status());
  if (!file_.contains(at)) return refuse_foreign(at);
  if (bytes == 0) return Status::ok;
  const std::uint64_t begin = file_.offset_of(at).value;
  if (!in_log_reach(file_, begin, bytes)) return Status::invalid_argument;
  if (fields_.find(begin, bytes) == nullptr) {
    const RangeSet::Answer first = added_.at(begin);
    const bool added = first.inside || first.until < begin + bytes;
    if (undo_pending_ && added && !TENUTO_PLANT("tx_parts_wait_twice")) TENUTO_TRY(ready());
  }
  store_one(at, value, bytes);
  if (!fields_.empty()) fields_.have_parts();
  return std::exchange(field_error_, Status::ok);
}

void Txn::get(const void* at, void* value, std::size_t bytes) const {
  std::memcpy(value, at, bytes);
  if (fields_.empty() || !file_.contains(at)) return;
  const std::uint64_t begin = file_.offset_of(at).value;
  fields_.for_each([&](std::uint64_t offset, const std::byte* waiting, std::size_t n) {
    const std::uint64_t from = std::max(begin, offset);
    const std::uint64_t to = std::min(begin + bytes, offset + n);
    if (from < to) {
      std::memcpy(static_cast<std::byte*>(value) + (from - begin), waiting + (from - offset),
                  to - from);
    }
  });
}

}  // namespace TENUTO_NS::tx
