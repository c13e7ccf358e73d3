#include "store/kv/cursor.h"

#include <algorithm>
#include <utility>

#include "pm/plant.h"

namespace TENUTO_NS::store {

Cursor::Cursor(std::shared_ptr<CollectionState> state, Span span,
               std::shared_ptr<SnapshotCore> snapshot, std::shared_ptr<TransactionState> txn,
               WriteSet* write_set)
    : state_(std::move(state)),
      slot_(take_loose_slot()),
      span_(std::move(span)),
      snapshot_(std::move(snapshot)),
      txn_(std::move(txn)),
      write_set_(write_set) {
  if (slot_ == nullptr) status_ = Status::busy;
  if (state_ == nullptr) status_ = Status::closed;
  entries_.reserve(kSlots);
}

Cursor::~Cursor() {
  leave();
  if (slot_ != nullptr) put_loose_slot(*slot_);
}

void Cursor::fail(Status s) {
  leave();
  status_ = s;
}

void Cursor::refuse(Status s) {
  leave();
  ask_again();
  refusal_ = s;
}

Status Cursor::status() const {
  if (status_ != Status::ok) return status_;
  if (refusal_ != Status::ok) return refusal_;
  if (snapshot_ != nullptr) TENUTO_TRY(snapshot_->versions->usable());
  const CollectionUse use(state_.get());
  if (use.status() == Status::closed || use.status() == Status::forked) return use.status();
  // The caller may have read a value from a bad page after the cursor returned.
  return use.status() == Status::ok ? use->bad_pages() : Status::ok;
}

void Cursor::leave() {
  if (slot_ != nullptr && slot_->state.load(std::memory_order_relaxed) != 0) slot_->let_go();
  entries_.clear();  // after let_go: until then other threads read the held places here
  at_ = 0;
  positioned_ = false;
  pinned_ = false;
}

// Forgets a not_found of pin(): a collection that a transaction makes is there after the commit.
void Cursor::ask_again() {
  if (status_ == Status::not_found && state_ != nullptr) status_ = Status::ok;
}

// Begins a new position. False: status_ says why not.
bool Cursor::begin() {
  leave();
  refusal_ = Status::ok;
  ask_again();
  if (txn_ != nullptr && txn_->ended) status_ = Status::closed;
  if (status_ == Status::ok && snapshot_ != nullptr) status_ = snapshot_->versions->usable();
  return status_ == Status::ok;
}
// Pins for a new leaf and lets go of the last one. REQUIRES: its records are not used any more.
bool Cursor::pin() {
  if (pinned_ && TENUTO_PLANT("store_cursor_pins_once")) return true;
  slot_->pin();
  entries_.clear();
  tree_ = nullptr;
  pinned_ = true;
  status_ = write_set_ == nullptr ? state_->alive() : write_set_->alive();
  if (status_ == Status::ok) {
    tree_ = state_->tree.get();
    return true;
  }
  leave();
  return false;
}

// Unpins until the next call, and keeps holding the leaf's records.
void Cursor::rest() {
  if (!pinned_ || TENUTO_PLANT("store_cursor_pins_once")) return;
  pinned_ = false;
  const void* const first = entries_.empty() ? nullptr : &entries_[0].word;
  slot_->rest({first, static_cast<std::uint32_t>(entries_.size()), sizeof(Entry)});
}

// Loads the leaf that `aim` finds. False: damage, a drop or a close ended the walk.
bool Cursor::load(std::string_view key, Aim aim) {
  if (state_->alive() == Status::forked) {
    fail(Status::forked);
    return false;
  }
  if (!pin()) return false;
  for (;;) {
    const Place place = tree_->index().locate(key, aim, &right_);
    LeafReader::prefetch_shadow(*place.leaf);
    const Status s = tree_->ordered(place, snapshot_.get(), entries_);
    if (s == Status::conflict) continue;
    Result<std::string_view> low = tree_->leaves().low_of(*place.leaf);
    if (s != Status::ok || !low) {
      leave();
      status_ = s != Status::ok ? s : low.error();
      return false;
    }
    if (const Status bad = tree_->bad_pages(); bad != Status::ok) {
      fail(bad);
      return false;
    }
    left_ = *low;
    if (write_set_ != nullptr && write_set_->writes_between(left_, right_)) {
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        if (!read(i, false)) return false;
      }
      write_set_->overlay(left_, right_, entries_);
      LeafReader::sort(entries_);
    }
    return true;
  }
}

// False: damage, which ends the walk.
bool Cursor::read(std::size_t i, bool for_value) {
  Entry& e = entries_[i];
  Status s =
      for_value && verify_always_ ? tree_->leaves().verify(e) : tree_->leaves().read(e, for_value);
  if (s == Status::ok) s = tree_->bad_pages();
  if (s == Status::ok) return true;
  leave();
  status_ = s;
  return false;
}

// Counts the entries below the key. False: damage.
bool Cursor::count_below(std::string_view key, bool inclusive, std::size_t& count) {
  Status s = tree_->leaves().count_below(entries_, key, inclusive, count);
  if (s == Status::ok) s = tree_->bad_pages();
  if (s == Status::ok) return true;
  leave();
  status_ = s;
  return false;
}

// Finds the entry with exactly this key, by its hash. place == entries_.size(): there is none.
// False: damage.
bool Cursor::find_exact(std::string_view key, std::size_t& place) {
  const std::uint16_t hash = hash_key(key).slot;
  for (place = 0; place < entries_.size(); ++place) {
    if (entries_[place].word.hash() != hash) continue;
    if (!read(place, false)) return false;
    if (entries_[place].record.key == key) return true;
  }
  return true;
}

// Stops at entry i, or ends the walk if that is outside the span. Forwards only the upper bound is
// checked: the walk began at the lower bound or behind it.
void Cursor::stand_forward(std::size_t i) {
  prefetch_behind(i);
  if (!read(i, true)) return;
  at_ = i;
  positioned_ = !span_.upper || key() < *span_.upper;
  if (!positioned_) return leave();
}
void Cursor::stand_backward(std::size_t i) {
  if (!read(i, true)) return;
  at_ = i;
  positioned_ = (!span_.upper || key() < *span_.upper) && key() >= span_.lower;
  if (!positioned_) return leave();
}
// Prefetches an entry some steps ahead; near the end of the leaf, the next leaf.
void Cursor::prefetch_behind(std::size_t i) const {
  if (i + kAhead < entries_.size()) {
    tree_->leaves().prefetch(entries_[i + kAhead].word);
  } else if (right_.next != nullptr && i + kAhead == entries_.size()) {
    LeafReader::prefetch_shadow(*right_.next);
  } else if (right_.next != nullptr && i + kAhead / 2 == entries_.size()) {
    tree_->leaves().prefetch_first_records(*right_.next);
  }
}
void Cursor::prefetch_from(std::size_t i) const {
  for (std::size_t n = std::min(i + kAhead, entries_.size()); i < n; ++i) {
    tree_->leaves().prefetch(entries_[i].word);
  }
}

// Goes from the loaded leaf to the first key > from (inclusive: >= from).
void Cursor::stop_forward(const std::string& from, bool inclusive) {
  std::size_t i = entries_.size();
  if (inclusive && !find_exact(from, i)) return;
  if (i == entries_.size() && !count_below(from, !inclusive, i)) return;
  go_forward(from, inclusive, i);
}
// Goes to entry i. Without such an entry, to the first key > from (or >= from) in the next leaves.
void Cursor::go_forward(const std::string& from, bool inclusive, std::size_t i) {
  while (i == entries_.size()) {
    if (!right_.bounded) return leave();
    const std::string bound = right_.key;
    if (!load(bound, Aim::at)) return;
    prefetch_from(0);
    // All its keys are > from, unless the leaf was merged into its left neighbour meanwhile.
    i = 0;
    if (entries_.empty()) continue;
    if (!read(0, false)) return;
    const bool behind = from < entries_[0].record.key;
    if (!behind && !count_below(from, !inclusive, i)) return;
  }
  prefetch_from(i);
  stand_forward(i);
}

// Goes from the loaded leaf to the last key < from (inclusive: <= from; null: of all).
void Cursor::stop_backward(const std::string* from, bool inclusive) {
  for (;;) {
    std::size_t n = entries_.size();
    if (from != nullptr && !count_below(*from, inclusive, n)) return;
    if (n > 0) return stand_backward(n - 1);
    if (left_.empty()) return leave();
    const std::string bound = left_;
    if (!load(bound, Aim::before)) return;
  }
}

void Cursor::seek(std::string_view key) {
  const std::string from = std::max(std::string(key), span_.lower);
  if (!begin()) return;
  if (load(from, Aim::at)) stop_forward(from, true);
  note(from, up_to_here());
  rest();
}
void Cursor::seek_last() {
  if (!begin()) return;
  if (span_.upper) {
    if (span_.upper->empty()) return leave();
    const std::string from = *span_.upper;
    if (load(from, Aim::before)) stop_backward(&from, false);
  } else {
    if (load({}, Aim::last)) stop_backward(nullptr, false);
  }
  note(down_to_here(), span_.upper);
  rest();
}
void Cursor::seek_for_prev(std::string_view key) {
  if (span_.upper && key >= *span_.upper) return seek_last();
  const std::string from(key);
  if (!begin()) return;
  if (load(from, Aim::at)) stop_backward(&from, true);
  note(down_to_here(), from);
  rest();
}
void Cursor::next() {
  if (txn_ != nullptr && txn_->ended) return fail(Status::closed);
  if (at_ + 1 < entries_.size()) {
    stand_forward(at_ + 1);
  } else {
    const std::string from(key());
    go_forward(from, false, entries_.size());
  }
  if (txn_ != nullptr) txn_->reads.ranges[range_].widen_up(up_to_here());
  rest();
}
void Cursor::prev() {
  if (txn_ != nullptr && txn_->ended) return fail(Status::closed);
  if (at_ > 0) {
    stand_backward(at_ - 1);
  } else {
    const std::string from(key());
    stop_backward(&from, false);
  }
  if (txn_ != nullptr) txn_->reads.ranges[range_].widen_down(down_to_here());
  rest();
}

// What a transaction's cursor walks over counts as read. Each seek adds a range. Each step widens
// it to the present position, or to the end of the span.
void Cursor::note(std::string_view from, std::optional<std::string_view> to) {
  if (txn_ == nullptr || tree_ == nullptr) return;
  range_ = txn_->reads.ranges.size();
  txn_->reads.ranges.emplace_back(*tree_, from, to);
}
std::optional<std::string_view> Cursor::up_to_here() const {
  if (positioned_) return key();
  return span_.upper;
}
std::string_view Cursor::down_to_here() const { return positioned_ ? key() : span_.lower; }

}  // namespace TENUTO_NS::store
