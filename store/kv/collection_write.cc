// The writes of Collection. Each call finds the tree, unless the collection was dropped, and writes
// what the collection's encoding makes of key and value.
#include <algorithm>
#include <deque>
#include <utility>

#include "pm/plant.h"
#include "store/kv/attempts.h"
#include "store/kv/cursor.h"
#include "store/kv/stored_key.h"
#include "store/tree/bulk.h"

namespace TENUTO_NS {

namespace {

// Runs a write. When the pool is full it frees the garbage of all collections and tries once more.
// Without named collections that is useless: the tree has freed its own garbage already.
template <class Write>
Status change(CollectionState* state, WriteOptions options, const Write& write) {
  if (state == nullptr) return Status::closed;
  const store::PoolCall call(state->collections);
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
  return state->collections->acknowledge(options.durability);
}

// The value that users see. None: there is no record, or it has expired.
std::optional<std::string_view> visible(const store::Encoding& encoding, const store::Record* old) {
  if (old == nullptr || !encoding.live(old->value, encoding.now())) return std::nullopt;
  return encoding.value_in(old->value);
}

// The stored keys of records that are to be erased. Expired ones are left to the reclaimer: it
// knows whether the clock by which they expired is doubted.
Status gather(const std::shared_ptr<CollectionState>& state, store::Span span,
              std::shared_ptr<store::SnapshotCore> snapshot, std::vector<std::string>& out) {
  const store::TimeMs time = snapshot != nullptr ? snapshot->time : state->encoding.now();
  store::Cursor cursor(state, std::move(span), std::move(snapshot), nullptr, nullptr);
  for (cursor.seek({}); cursor.valid(); cursor.next()) {
    if (state->encoding.live(cursor.value(), time)) out.emplace_back(cursor.key());
  }
  return cursor.status();
}

// Gives all these stored keys this stored value, as one batch; none: erases them. With a snapshot
// in `reads`, through which they were gathered, the commit validates that the span has not changed
// since. conflict: it has, or the collection is being dropped.
Status write_all(CollectionState* state, std::span<const std::string> keys,
                 std::optional<std::string_view> value, WriteOptions options,
                 store::ReadSet reads = {}, const store::Span& span = {},
                 std::uint64_t* erased = nullptr) {
  reads.lives.push_back(&state->life);
  return change(state, options, [&](store::Tree& tree) {
    reads.ranges.clear();
    if (reads.snapshot != nullptr) reads.ranges.emplace_back(tree, span.lower, *span.upper);
    std::vector<store::BatchOp> ops;
    ops.reserve(keys.size());
    for (const std::string& key : keys) ops.push_back({&tree, key, value.value_or(""), !value});
    return store::Tree::write(ops, &reads, erased);
  });
}

// Erases all values that a key has at one timestamp. conflict: other writers changed them
// meanwhile. expired: the snapshot did. REQUIRES: the span is bounded.
Status erase_pairs(const std::shared_ptr<CollectionState>& state, const store::Span& span,
                   WriteOptions options) {
  const store::PoolCall call(state->collections);
  TENUTO_TRY(CollectionUse(state.get()).status());
  auto snapshot = state->collections->versions().take();
  if (!snapshot) return snapshot.error();
  std::vector<std::string> keys;
  TENUTO_TRY(gather(state, span, *snapshot, keys));
  if (keys.empty()) return Status::not_found;
  if (TENUTO_PLANT("store_pairs_erased_unread")) snapshot->reset();
  store::ReadSet reads;
  reads.snapshot = *snapshot;
  return write_all(state.get(), keys, {}, options, std::move(reads), span);
}

// Gives all values that a key has at one timestamp a new lifetime. As above; conflict also: one of
// them has expired meanwhile.
Status touch_pairs(const std::shared_ptr<CollectionState>& state, const store::Span& span,
                   WriteOptions options) {
  const store::PoolCall call(state->collections);
  TENUTO_TRY(CollectionUse(state.get()).status());
  const store::Encoding& encoding = state->encoding;
  auto snapshot = state->collections->versions().take();
  if (!snapshot) return snapshot.error();
  store::ReadSet reads;
  reads.snapshot = *snapshot;
  reads.clock = &state->collections->clock();
  std::vector<std::string> keys;
  {
    store::Cursor cursor(state, span, *snapshot, nullptr, nullptr);
    cursor.verify_always();  // a damaged pair must not get a checksum that is right
    for (cursor.seek({}); cursor.valid(); cursor.next()) {
      if (!encoding.live(cursor.value(), (*snapshot)->time)) continue;
      reads.hold_until(encoding.gone_at(cursor.value()));
      keys.emplace_back(cursor.key());
    }
    TENUTO_TRY(cursor.status());
  }
  if (keys.empty()) return Status::not_found;
  std::string room;
  std::string_view stamp;
  TENUTO_TRY(encoding.value({}, options.ttl_ms, room, stamp));
  return write_all(state.get(), keys, stamp, options, std::move(reads), span);
}

// Calls `write` with the span of a key's pairs until other writers do not come in between.
template <class Write>
Status with_pairs(const store::Encoding& encoding, std::string_view key, const Write& write) {
  store::Span span;
  TENUTO_TRY(encoding.begin_of(key, span.lower));
  TENUTO_TRY(encoding.end_of(key, span.upper.emplace()));
  Status s;
  store::Attempts attempts;
  do {
    s = write(span);
  } while (attempts.again_after(s));
  return s;
}

// What a conditional write makes of a key. No value: the key is erased, or stays absent.
struct Choice {
  std::optional<std::string_view> value = {};
  Status status = Status::ok;  // else the key stays as it is
};

template <class Choose>
Status decide(CollectionState* state, std::string_view key, WriteOptions options,
              const Choose& choose) {
  using What = store::Decision::What;
  if (state == nullptr) return Status::closed;
  const store::Encoding& encoding = state->encoding;
  if (encoding.duplicates()) return Status::invalid_argument;
  const StoredKey stored(encoding, key);
  TENUTO_TRY(stored.status());
  std::string room;
  return change(state, options, [&](store::Tree& tree) {
    return tree.put_when(stored.get(), [&](const store::Record* record) -> store::Decision {
      const std::optional<std::string_view> old = visible(encoding, record);
      const Choice choice = choose(old);
      if (choice.status != Status::ok) return {.status = choice.status};
      if (!choice.value) return {old ? What::erase : What::leave};
      std::string_view value;
      const Status s = encoding.value(*choice.value, options.ttl_ms, room, value);
      return s == Status::ok ? store::Decision{What::put, value} : store::Decision{.status = s};
    });
  });
}

}  // namespace

Status Collection::put(std::string_view key, std::string_view value, WriteOptions options) {
  if (state_ == nullptr) return Status::closed;
  const StoredRecord stored(state_->encoding, key, value, options.ttl_ms);
  TENUTO_TRY(stored.status());
  return change(state_.get(), options,
                [&](store::Tree& tree) { return tree.put(stored.key(), stored.value()); });
}

Status Collection::erase(std::string_view key, WriteOptions options) {
  if (state_ == nullptr) return Status::closed;
  const store::Encoding& encoding = state_->encoding;
  if (encoding.duplicates()) {
    return with_pairs(encoding, key,
                      [&](const store::Span& span) { return erase_pairs(state_, span, options); });
  }
  const StoredKey stored(encoding, key);
  TENUTO_TRY(stored.status());
  return erase_stored(stored.get(), options);
}

Status Collection::erase_pair(std::string_view key, std::string_view value, WriteOptions options) {
  if (state_ == nullptr) return Status::closed;
  if (!state_->encoding.duplicates()) return Status::invalid_argument;
  std::string stored;
  TENUTO_TRY(state_->encoding.pair(key, value, stored));
  return erase_stored(stored, options);
}

// An expired record counts as absent.
Status Collection::erase_stored(std::string_view stored, WriteOptions options) {
  return change(state_.get(), options, [&](store::Tree& tree) {
    if (!state_->encoding.expires()) return tree.erase(stored);
    return tree.put_when(stored, [&](const store::Record* old) -> store::Decision {
      if (!visible(state_->encoding, old)) return {.status = Status::not_found};
      return {store::Decision::What::erase};
    });
  });
}

// The old record stays until the copy with the new lifetime is durable, as in a put.
Status Collection::touch(std::string_view key, WriteOptions options) {
  if (state_ == nullptr) return Status::closed;
  const store::Encoding& encoding = state_->encoding;
  if (!encoding.expires()) return Status::invalid_argument;
  if (encoding.duplicates()) {
    return with_pairs(encoding, key,
                      [&](const store::Span& span) { return touch_pairs(state_, span, options); });
  }
  const StoredKey stored(encoding, key);
  TENUTO_TRY(stored.status());
  std::string room;
  return change(state_.get(), options, [&](store::Tree& tree) {
    return tree.put_when(stored.get(), [&](const store::Record* old) -> store::Decision {
      const std::optional<std::string_view> value = visible(encoding, old);
      if (!value) return {.status = Status::not_found};
      store::Decision copy{store::Decision::What::put};
      // Even if reads do not verify: the copy of a damaged value would have a right checksum.
      Status s = tree.leaves().verify(*old);
      if (s == Status::ok) s = encoding.value(*value, options.ttl_ms, room, copy.value);
      return s == Status::ok ? copy : store::Decision{.status = s};
    });
  });
}

// --- conditional writes --------------------------------------------------------------------------

Status Collection::put_if_absent(std::string_view key, std::string_view value,
                                 WriteOptions options) {
  if (state_ == nullptr) return Status::closed;
  const StoredRecord stored(state_->encoding, key, value, options.ttl_ms);
  TENUTO_TRY(stored.status());
  return change(state_.get(), options, [&](store::Tree& tree) {
    return tree.put_when(stored.key(), [&](const store::Record* old) -> store::Decision {
      if (visible(state_->encoding, old)) return {.status = Status::exists};
      return {store::Decision::What::put, stored.value()};
    });
  });
}

Status Collection::compare_and_swap(std::string_view key, std::optional<std::string_view> expected,
                                    std::optional<std::string_view> desired, WriteOptions options) {
  return decide(state_.get(), key, options, [&](std::optional<std::string_view> old) -> Choice {
    if (old != expected) return {.status = Status::conflict};
    return {desired};
  });
}

namespace {
template <class Merge>
Status merge_by(CollectionState* state, std::string_view key, const Merge& f,
                WriteOptions options) {
  std::optional<std::string> made;
  return decide(state, key, options, [&](std::optional<std::string_view> old) -> Choice {
    Result<std::optional<std::string>> fresh = f(old);
    if (!fresh) return {.status = fresh.error()};
    made = std::move(*fresh);
    return {made};
  });
}
}  // namespace

Status Collection::merge(std::string_view key, const MergeFunction& f, WriteOptions options) {
  return merge_by(state_.get(), key, f, options);
}
Status Collection::merge_or_refuse(std::string_view key, const RefusingMerge& f,
                                   WriteOptions options) {
  return merge_by(state_.get(), key, f, options);
}

// --- several keys --------------------------------------------------------------------------------

Result<std::uint64_t> Collection::erase_range(std::optional<std::string_view> from,
                                              std::optional<std::string_view> to,
                                              WriteOptions options) {
  if (state_ == nullptr) return Status::closed;
  const store::PoolCall call(state_->collections);
  std::vector<std::string> keys;
  std::uint64_t erased = 0;  // other threads may have erased some of the keys
  Status s;
  store::Attempts attempts;
  do {
    keys.clear();
    store::Span span;
    TENUTO_TRY(state_->encoding.range(from, to, span));
    TENUTO_TRY(gather(state_, std::move(span), nullptr, keys));
    s = write_all(state_.get(), keys, {}, options, {}, {}, &erased);
  } while (attempts.again_after(s));
  TENUTO_TRY(s);
  return erased;
}

// The tree's first leaf is locked only while the finished leaves are linked.
Status Collection::bulk_load(std::span<const BulkRecord> sorted, WriteOptions options) {
  if (state_ == nullptr) return Status::closed;
  const store::Encoding& encoding = state_->encoding;
  std::vector<BulkRecord> stored;
  std::deque<StoredRecord> rooms;
  if (!encoding.plain()) {
    stored.reserve(sorted.size());
    for (const BulkRecord& r : sorted) {
      const StoredRecord& s = rooms.emplace_back(encoding, r.key, r.value, options.ttl_ms);
      TENUTO_TRY(s.status());
      stored.push_back({s.key(), s.value()});
    }
    if (encoding.reversed()) std::reverse(stored.begin(), stored.end());
  } else if (options.ttl_ms != 0) {
    return Status::invalid_argument;
  }
  return change(state_.get(), options, [&](store::Tree& tree) {
    return store::bulk_load(tree, encoding.plain() ? sorted : std::span<const BulkRecord>(stored),
                            state_->collections->threads());
  });
}

}  // namespace TENUTO_NS
