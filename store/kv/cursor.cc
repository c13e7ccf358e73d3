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
  if (slot_ != nullptr && state_ != nullptr) {
    slot_->leave_pool(0);  // of the iterator that had the slot before
    slot_->enter_pool(state_->collections, false);
  }
  if (state_ == nullptr) status_ = Status::closed;
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
  leaf_.clear();  // after let_go: until then other threads read the held places here
  at_ = 0;
  positioned_ = false;
  pinned_ = false;
}

// Forgets a not_found of pin(): a collection that a transaction makes is there after the commit.
void Cursor::ask_again() {
  if (status_ == Status::not_found && state_ != nullptr) status_ = Status::ok;
}

// Begins a new position. False: status_ says why not, and the caller leaves. The last leaf stays
// held until pin(), which costs one locked instruction less.
bool Cursor::begin() {
  positioned_ = false;
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
  loaded_in_ = slot_->pinned_epoch();
  leaf_.clear();
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
  const auto count = static_cast<std::uint32_t>(leaf_.size());
  slot_->rest({leaf_.words.data(), count, sizeof(SlotWord)});
}

// False: damage, a drop or a close ended the walk.
bool Cursor::good(Status s) {
  if (s == Status::ok) s = tree_->bad_pages();
  if (s == Status::ok) [[likely]]
    return true;
  leave();
  status_ = s;
  return false;
}

// Loads the leaf that `aim` finds. False: see good().
bool Cursor::load(std::string_view key, Aim aim, bool backward) {
  if (state_->alive() == Status::forked) {
    fail(Status::forked);
    return false;
  }
  if (!pin()) return false;
  for (;;) {
    const Place place = tree_->index().locate(key, aim, &right_);
    tree_->leaves().prefetch_leaf(*place.leaf);
    const Status s = tree_->ordered(place, snapshot_.get(), leaf_);
    if (s == Status::conflict) continue;
    if (!good(s)) return false;
    if (verify_always_ && !verify_bounds(*place.leaf)) return false;
    if (!backward && write_set_ == nullptr) {
      left_known_ = TENUTO_PLANT("store_cursor_believes_an_old_bound");
      return true;
    }
    const Result<std::string_view> low = tree_->leaves().low_of(*place.leaf);
    if (!good(low ? Status::ok : low.error())) return false;
    left_ = *low;
    left_known_ = true;
    if (write_set_ == nullptr) return true;
    return lay_over(aim == Aim::last ? std::nullopt : std::optional(key), backward);
  }
}

// Separator and link of a leaf, which a walk does not need.
bool Cursor::verify_bounds(const ShadowLeaf& leaf) {
  const Result<std::string_view> low = tree_->leaves().low_of(leaf);
  if (!good(low ? Status::ok : low.error())) return false;
  const Result<std::optional<std::string_view>> end = tree_->leaves().end_of(leaf);
  return good(end ? Status::ok : end.error());
}

// Lays the transaction's writes over the part of the leaf that a walk from `key` comes to first.
bool Cursor::lay_over(std::optional<std::string_view> key, bool backward) {
  if (!write_set_->writes_between(left_, right_)) return true;
  write_set_->narrow(key, backward, left_, right_);
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < leaf_.size(); ++i) {
    entries.push_back({{}, leaf_.words[i], 0});
    if (!read(i, false, entries.back().record)) return false;
  }
  write_set_->overlay(left_, right_, entries);
  LeafReader::sort(entries);
  leaf_.take(entries);
  return true;
}

bool Cursor::read(std::size_t i, bool verified, Record& out) {
  return good(tree_->leaves().read(leaf_, i, verified, out));
}
bool Cursor::count_below(std::string_view key, bool inclusive, std::size_t& count) {
  return good(tree_->leaves().count_below(leaf_, key, inclusive, count));
}

// Finds the entry with exactly this key, by its hash. place == leaf_.size(): there is none.
bool Cursor::find_exact(std::string_view key, std::size_t& place) {
  const std::uint16_t hash = hash_key(key).slot;
  const SlotWord* const words = leaf_.words.data();
  const std::size_t count = leaf_.size();
  for (place = 0; place < count; ++place) {
    if (words[place].hash() != hash) continue;
    if (!read(place, false, record_)) return false;
    if (record_.key == key) return true;
  }
  return true;
}

// Stops at entry i, or ends the walk if that is outside the span. Forwards only the upper bound is
// checked: the walk began at the lower bound or behind it.
void Cursor::stand_forward(std::size_t i) {
  if (!read(i, verified(), record_)) return;
  at_ = i;
  positioned_ = !span_.upper || key() < *span_.upper;
  if (!positioned_) return leave();
}
void Cursor::stand_backward(std::size_t i) {
  if (!read(i, verified(), record_)) return;
  at_ = i;
  positioned_ = (!span_.upper || key() < *span_.upper) && key() >= span_.lower;
  if (!positioned_) return leave();
}

// Near the end of the leaf: prefetches the next leaf, and kAhead steps later its records. To find
// those it reads the leaf, so it must be pinned, and the leaf's block must not be free: a load
// would fill a page that was given back (src/heap/holes.h). A thread that has done nothing but walk
// has no slot to pin, and a prefetch should not wait for one.
void Cursor::prefetch_beyond(std::size_t ahead) const {
  if (ahead < leaf_.size()) {
    tree_->leaves().prefetch(leaf_.words[ahead], lines_ahead());
    if (ahead + kAhead == leaf_.size()) tree_->leaves().prefetch_leaf(right_.next);
  } else if (ahead == leaf_.size() && thread_epoch_slot != nullptr) {
    const EpochGuard guard;
    if (is_epoch_still(loaded_in_) || TENUTO_PLANT("store_freed_leaf_prefetched"))
      tree_->leaves().prefetch_records(right_.next, kAhead);
  }
}
// For an arrival at entry i of a leaf: all that prefetch_ahead() would have prefetched before.
void Cursor::prefetch_from(std::size_t i) const {
  if (i + 2 * kAhead > leaf_.size()) tree_->leaves().prefetch_leaf(right_.next);
  tree_->leaves().read_ahead(leaf_.words.data() + i, leaf_.size() - i);
  for (std::size_t n = std::min(i + kAhead, leaf_.size()); i < n; ++i) {
    tree_->leaves().prefetch(leaf_.words[i]);
  }
}
void Cursor::prefetch_up_to(std::size_t i) const {
  tree_->leaves().read_ahead(leaf_.words.data(), i);
  for (std::size_t n = std::min(kAhead, i); n > 0; --n) {
    tree_->leaves().prefetch(leaf_.words[i - n]);
  }
}

// Goes from the loaded leaf to the first key > from_ (inclusive: >= from_).
void Cursor::stop_forward(bool inclusive) {
  std::size_t i = leaf_.size();
  if (inclusive && !find_exact(from_, i)) return;
  if (i == leaf_.size() && !count_below(from_, !inclusive, i)) return;
  go_forward(inclusive, i);
}
// Goes to entry i. Without such an entry, to the first key > from_ (or >= from_) in the next
// leaves.
void Cursor::go_forward(bool inclusive, std::size_t i) {
  while (i == leaf_.size()) {
    if (!right_.bounded) return leave();
    bound_.swap(right_.key);  // load() sets right_
    if (!load(bound_, Aim::at, false)) return;
    prefetch_from(0);
    // All its keys are > from_, unless the leaf was merged into its left neighbour meanwhile.
    i = 0;
    if (leaf_.size() == 0) continue;
    if (!read(0, false, record_)) return;
    if (!(from_ < record_.key) && !count_below(from_, !inclusive, i)) return;
  }
  prefetch_from(i);
  stand_forward(i);
}

// Goes from the loaded leaf to the last key < from_ (inclusive: <= from_; not bounded: of all).
void Cursor::stop_backward(bool bounded, bool inclusive) {
  std::size_t count = leaf_.size();
  if (bounded && !count_below(from_, inclusive, count)) return;
  go_backward(bounded, inclusive, count);
}
// Goes to the last of the leaf's first `count` entries, or to the last key < from_ in the leaves
// before. After a step forwards the leaf's lower bound is not known. Then it looks for the keys
// below from_, which finds the bound, too.
void Cursor::go_backward(bool bounded, bool inclusive, std::size_t count) {
  while (count == 0) {
    if (left_known_ && left_.empty()) return leave();
    bound_ = left_known_ ? left_ : from_;
    if (!load(bound_, Aim::before, true)) return;
    count = leaf_.size();
    prefetch_up_to(count);
    if (bounded && !count_below(from_, inclusive, count)) return;
  }
  stand_backward(count - 1);
}

void Cursor::seek(std::string_view key) {
  from_.assign(key);  // first: the key may be the cursor's own
  if (from_ < span_.lower) from_ = span_.lower;
  if (!begin()) return leave();
  if (load(from_, Aim::at, false)) stop_forward(true);
  note(from_, up_to_here());
  rest();
}
void Cursor::seek_last() {
  if (!begin()) return leave();
  if (span_.upper) {
    if (span_.upper->empty()) return leave();
    from_ = *span_.upper;
    if (load(from_, Aim::before, true)) stop_backward(true, false);
  } else {
    if (load({}, Aim::last, true)) stop_backward(false, false);
  }
  note(down_to_here(), span_.upper);
  rest();
}
void Cursor::seek_for_prev(std::string_view key) {
  if (span_.upper && key >= *span_.upper) return seek_last();
  from_.assign(key);
  if (!begin()) return leave();
  if (load(from_, Aim::at, true)) stop_backward(true, true);
  note(down_to_here(), from_);
  rest();
}
void Cursor::next() {
  if (txn_ != nullptr && txn_->ended) return fail(Status::closed);
  if (at_ + 1 < leaf_.size()) {
    prefetch_ahead(at_ + 1);
    stand_forward(at_ + 1);
  } else {
    from_.assign(key());
    go_forward(false, leaf_.size());
  }
  if (txn_ != nullptr) txn_->reads.ranges[range_].widen_up(up_to_here());
  rest();
}
void Cursor::prev() {
  if (txn_ != nullptr && txn_->ended) return fail(Status::closed);
  if (at_ > 0) {
    prefetch_before(at_ - 1);
    stand_backward(at_ - 1);
  } else {
    from_.assign(key());
    go_backward(true, false, 0);
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
