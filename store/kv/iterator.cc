// The public Iterator: a cursor over the tree, whose records are decoded by the collection's
// encoding. In a reverse order the cursor walks the other way. Expired records are skipped.
#include <utility>

#include "pm/plant.h"
#include "store/kv/cursor.h"
#include "store/kv/store_impl.h"

namespace TENUTO_NS {

namespace {

using store::Where;

Where within(const CollectionState* state, const IteratorOptions& options) {
  Where w;
  if (state != nullptr) w.status = state->encoding.span(options, w.span);
  return w;
}

Where where_pairs_are(const CollectionState* state, std::string_view key) {
  Where w;
  if (state == nullptr) return w;
  w.status = state->encoding.begin_of(key, w.span.lower);
  if (w.status == Status::ok) w.status = state->encoding.end_of(key, w.span.upper.emplace());
  return w;
}

}  // namespace

struct Iterator::Impl {
  Impl(const std::shared_ptr<CollectionState>& s, Where where,
       std::shared_ptr<store::SnapshotCore> snapshot,
       std::shared_ptr<store::TransactionState> txn = nullptr, store::WriteSet* write_set = nullptr)
      : state(s.get()),
        at(snapshot),
        reads(txn == nullptr ? nullptr : &txn->reads),
        cursor(s, std::move(where.span), std::move(snapshot), std::move(txn), write_set),
        plain(s == nullptr || s->encoding.plain()) {
    if (where.status != Status::ok) cursor.fail(where.status);
  }

  const store::Encoding& encoding() const { return state->encoding; }

  // The snapshot's time, or now.
  store::TimeMs time() const {
    return at == nullptr || TENUTO_PLANT("store_snapshot_without_time") ? encoding().now()
                                                                        : at->time;
  }

  // After a move: skips expired records in the same direction, then decodes the stored key.
  void arrive(bool forward) {
    if (cursor.valid() && encoding().expires()) skip_expired(forward);
    if (!cursor.valid() || encoding().take_apart(cursor.key(), apart)) return;
    cursor.fail(Status::corrupt);
  }
  void skip_expired(bool forward) {
    const store::TimeMs now = time();
    while (cursor.valid() && !encoding().live(cursor.value(), now)) step(forward);
    if (cursor.valid() && reads != nullptr) reads->hold_until(encoding().gone_at(cursor.value()));
  }
  // forward: in the order of the tree.
  void step(bool forward) {
    if (forward) {
      if (!cursor.step()) cursor.next();
    } else {
      if (!cursor.step_back()) cursor.prev();
    }
  }
  void move(bool forward) {
    const bool way = forward != encoding().reversed();
    step(way);
    arrive(way);
  }
  void seek_end(bool first) {
    if (first != encoding().reversed()) {
      cursor.seek({});
      arrive(true);
    } else {
      cursor.seek_last();
      arrive(false);
    }
  }
  // forward: goes to the first record at or behind the key; else to the last one at or before it.
  // Without `with`: behind, or before, all records of the key. A pair with an empty value may be at
  // the place where its key begins; no record is where a key ends.
  void seek(std::string_view key, bool forward, bool with) {
    const bool way = forward != encoding().reversed();
    const bool at_begin = way ? with : !with || !encoding().duplicates();
    std::string place;
    const Status s = at_begin ? encoding().begin_of(key, place) : encoding().end_of(key, place);
    if (s != Status::ok) return cursor.refuse(s);
    seek_place(place, way);
    if (!with && cursor.valid() && cursor.key() == place) step(way);
    arrive(way);
  }
  void seek_pair(std::string_view key, std::string_view value) {
    if (state == nullptr || !encoding().duplicates())
      return cursor.refuse(Status::invalid_argument);
    std::string place;
    const Status s = encoding().pair(key, value, place);
    if (s != Status::ok) return cursor.refuse(s);
    const bool way = !encoding().reversed();
    seek_place(place, way);
    arrive(way);
  }
  void seek_place(const std::string& place, bool way) {
    if (way) {
      cursor.seek(place);
    } else {
      cursor.seek_for_prev(place);
    }
  }

  CollectionState* const state;                   // the cursor keeps it alive
  const std::shared_ptr<store::SnapshotCore> at;  // null: now
  store::ReadSet* const reads;                    // the transaction's; the cursor keeps it alive
  store::Cursor cursor;
  const bool plain;
  store::Apart apart;  // the stored key at the cursor, decoded; unused when plain
};

Iterator Iterator::refused(Status why) {
  return Iterator(std::make_unique<Impl>(nullptr, Where{{}, why}, nullptr));
}

Iterator::Iterator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

// Every call that moves the iterator runs in here. After an exception the cursor has no position:
// half moved, it would show a record that was not noted as read, or not decoded.
template <class How>
void Iterator::go(const How& how) {
  if (impl_ == nullptr) return;
  struct Guard {
    store::Cursor& cursor;
    bool moved = false;
    ~Guard() {
      if (!moved && !TENUTO_PLANT("store_cursor_stays_half_moved")) cursor.leave();
    }
  } guard{impl_->cursor};
  how(*impl_);
  guard.moved = true;
}

void Iterator::seek_first() {
  go([](Impl& i) { i.plain ? i.cursor.seek({}) : i.seek_end(true); });
}
void Iterator::seek_last() {
  go([](Impl& i) { i.plain ? i.cursor.seek_last() : i.seek_end(false); });
}
void Iterator::seek(std::string_view key) {
  go([&](Impl& i) { i.plain ? i.cursor.seek(key) : i.seek(key, true, true); });
}
void Iterator::seek_for_prev(std::string_view key) {
  go([&](Impl& i) { i.plain ? i.cursor.seek_for_prev(key) : i.seek(key, false, true); });
}
void Iterator::next() {
  if (impl_ != nullptr && impl_->plain && impl_->cursor.step()) return;
  go([](Impl& i) { i.plain ? i.cursor.next() : i.move(true); });
}
void Iterator::prev() {
  if (impl_ != nullptr && impl_->plain && impl_->cursor.step_back()) return;
  go([](Impl& i) { i.plain ? i.cursor.prev() : i.move(false); });
}
void Iterator::seek_pair(std::string_view key, std::string_view value) {
  go([&](Impl& i) { i.seek_pair(key, value); });
}
void Iterator::next_key() {
  if (impl_ == nullptr || impl_->plain || !impl_->encoding().duplicates()) return next();
  go([](Impl& i) { i.seek(std::string(i.apart.key), true, false); });
}
void Iterator::prev_key() {
  if (impl_ == nullptr || impl_->plain || !impl_->encoding().duplicates()) return prev();
  go([](Impl& i) { i.seek(std::string(i.apart.key), false, false); });
}
bool Iterator::valid() const { return impl_ != nullptr && impl_->cursor.valid(); }
std::string_view Iterator::key() const {
  if (impl_ == nullptr) return {};
  return impl_->plain ? impl_->cursor.key() : impl_->apart.key;
}
std::string_view Iterator::value() const {
  if (impl_ == nullptr) return {};
  if (impl_->plain) return impl_->cursor.value();
  if (impl_->encoding().duplicates()) return impl_->apart.value;
  return impl_->encoding().value_in(impl_->cursor.value());
}
std::uint64_t Iterator::ttl_ms() const {
  return impl_ == nullptr || impl_->plain
             ? 0
             : impl_->encoding().ttl_ms(impl_->cursor.value(), impl_->time());
}
Status Iterator::status() const {
  return impl_ == nullptr ? Status::closed : impl_->cursor.status();
}

Iterator Collection::iterator(IteratorOptions options) const {
  return Iterator(std::make_unique<Iterator::Impl>(state_, within(state_.get(), options), nullptr));
}

Iterator Collection::pairs_of(std::string_view key) const {
  return Iterator(
      std::make_unique<Iterator::Impl>(state_, where_pairs_are(state_.get(), key), nullptr));
}

Iterator Snapshot::iterator(IteratorOptions options) const {
  return iterator(main_, std::move(options));
}

Iterator Snapshot::iterator(const Collection& collection, IteratorOptions options) const {
  const Status s = usable(collection);
  if (s == Status::closed || s == Status::forked || s == Status::invalid_argument)
    return Iterator::refused(s);
  const auto& state = collection.state_;
  return Iterator(std::make_unique<Iterator::Impl>(state, within(state.get(), options), core_));
}

Iterator Snapshot::pairs_of(const RecordKey& key) const {
  const auto& state = collection_of(key).state_;
  return Iterator(
      std::make_unique<Iterator::Impl>(state, where_pairs_are(state.get(), key.key), core_));
}

Iterator StoreTransaction::iterator(IteratorOptions options) {
  return iterator_in(nullptr, [&](const CollectionState* of) { return within(of, options); });
}

Iterator StoreTransaction::iterator(const Collection& collection, IteratorOptions options) {
  return iterator_in(&collection, [&](const CollectionState* of) { return within(of, options); });
}

Iterator StoreTransaction::pairs_of(const RecordKey& key) {
  return iterator_in(key.collection,
                     [&](const CollectionState* of) { return where_pairs_are(of, key.key); });
}

template <class Where>
Iterator StoreTransaction::iterator_in(const Collection* collection, const Where& where) {
  store::WriteSet* write_set = nullptr;
  Status s = impl_ == nullptr ? Status::closed : impl_->look();
  if (s == Status::ok) s = write_set_of(collection, write_set);
  if (s != Status::ok) return Iterator::refused(s);
  const auto& state = write_set->state;
  return Iterator(std::make_unique<Iterator::Impl>(state, where(state.get()), impl_->reads.snapshot,
                                                   impl_, write_set));
}

}  // namespace TENUTO_NS
