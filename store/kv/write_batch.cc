// The public WriteBatch: how it is filled, and how its entries are encoded for the trees.
#include <algorithm>

#include "store/kv/cursor.h"
#include "store/kv/stored_key.h"

namespace TENUTO_NS {

void WriteBatch::add(const RecordKey& key, std::string_view value, Op::What what,
                     std::uint64_t ttl_ms) {
  Op op;
  op.collection = index_of(key.collection);
  op.key_at = bytes_.size();
  op.key_bytes = key.key.size();
  bytes_.append(key.key);
  op.value_at = bytes_.size();
  op.value_bytes = value.size();
  bytes_.append(value);
  op.ttl_ms = ttl_ms;
  op.what = what;
  ops_.push_back(op);
}

// A batch names few collections, and mostly that of the entry before.
std::uint32_t WriteBatch::index_of(const Collection* collection) {
  if (collection == nullptr) return 0;
  const auto at = std::find(collections_.rbegin(), collections_.rend(), collection->state_);
  if (at != collections_.rend()) return static_cast<std::uint32_t>(collections_.rend() - at);
  collections_.push_back(collection->state_);
  return static_cast<std::uint32_t>(collections_.size());
}

void WriteBatch::put(const RecordKey& key, std::string_view value, std::uint64_t ttl_ms) {
  add(key, value, Op::What::put, ttl_ms);
}
void WriteBatch::erase(const RecordKey& key) { add(key, {}, Op::What::erase); }
void WriteBatch::erase_pair(const RecordKey& key, std::string_view value) {
  add(key, value, Op::What::erase_pair);
}

void WriteBatch::clear() {
  ops_.clear();
  bytes_.clear();
  collections_.clear();
}

// One entry of a collection whose encoding is not plain.
Status StoreImpl::append_stored(const std::shared_ptr<CollectionState>& state,
                                const WriteBatch::Op& op, std::string_view key,
                                std::string_view value, StoredOps& out, store::ReadSet& there) {
  using What = WriteBatch::Op::What;
  const store::Encoding& encoding = state->encoding;
  store::Tree* const tree = state->tree.get();
  if (op.what == What::put) {
    const StoredRecord stored(encoding, key, value, op.ttl_ms);
    TENUTO_TRY(stored.status());
    out.push({tree, stored.key(), stored.value(), false});
    return Status::ok;
  }
  if (op.what == What::erase_pair) {
    std::string stored;
    TENUTO_TRY(encoding.pair(key, value, stored));
    out.push({tree, stored, {}, true});
    return Status::ok;
  }
  if (!encoding.duplicates()) {
    const StoredKey stored(encoding, key);
    TENUTO_TRY(stored.status());
    out.push({tree, stored.get(), {}, true});
    return Status::ok;
  }
  // Erases all pairs of one timestamp, and those that the batch itself put before. The commit
  // validates that no other pair was added since.
  if (there.snapshot == nullptr) {
    auto snapshot = state->collections->versions().take();
    if (!snapshot) return snapshot.error();
    there.snapshot = std::move(*snapshot);
  }
  store::Span span;
  TENUTO_TRY(encoding.begin_of(key, span.lower));
  TENUTO_TRY(encoding.end_of(key, span.upper.emplace()));
  out.erase_puts(tree, span.lower, *span.upper);
  if (!TENUTO_PLANT("store_pairs_erased_unread")) {
    there.ranges.emplace_back(*tree, span.lower, *span.upper);
  }
  store::Cursor cursor(state, std::move(span), there.snapshot, nullptr, nullptr);
  for (cursor.seek({}); cursor.valid(); cursor.next()) out.push({tree, cursor.key(), {}, true});
  return cursor.status();
}

Status StoreImpl::append(const store::Collections& all, const WriteBatch& batch, StoredOps& out,
                         store::ReadSet& there) {
  for (const auto& state : batch.collections_) {
    if (state == nullptr) return Status::closed;
    TENUTO_TRY(state->alive());
    if (state != all.main()) there.lives.push_back(&state->life);
    if (state->collections != &all) return Status::invalid_argument;
  }
  const std::string_view bytes = batch.bytes_;
  out.ops.reserve(batch.ops_.size());
  for (const WriteBatch::Op& op : batch.ops_) {
    const auto& state = op.collection == 0 ? all.main() : batch.collections_[op.collection - 1];
    const std::string_view key = bytes.substr(op.key_at, op.key_bytes);
    const std::string_view value = bytes.substr(op.value_at, op.value_bytes);
    const bool pair = op.what == WriteBatch::Op::What::erase_pair;
    if (pair && !state->encoding.duplicates()) return Status::invalid_argument;
    if (!state->encoding.plain()) {
      TENUTO_TRY(append_stored(state, op, key, value, out, there));
    } else if (op.ttl_ms != 0) {
      return Status::invalid_argument;
    } else {
      const bool erase = op.what == WriteBatch::Op::What::erase;
      out.ops.push_back({state->tree.get(), key, value, erase});
    }
  }
  return Status::ok;
}

}  // namespace TENUTO_NS
