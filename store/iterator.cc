// Cursors. A leaf's entries are seen at one moment, in order, and walked; the next leaf is found by
// descending with the bound between the two, so nothing is held but the epoch, under which the
// records seen stay as they are. A record is read when the cursor comes to it (walk.cc), and asked
// for some steps before; so is the next leaf.
//
// A snapshot's cursor sees each leaf as it was at the snapshot's moment; a transaction's, moreover,
// with its own writes laid over, and notes the range it walked over for the commit's validation.
//
// No key is seen twice or skipped although leaves split and vanish meanwhile: whatever leaf comes
// next, the walk goes on behind (or before) the last key it gave.
#include <algorithm>
#include <utility>

#include "store/store_impl.h"
#include "store/transaction.h"

namespace tenuto::inline TENUTO_ABI {

namespace {

// The least string above all that start with the prefix; none when there is no such string.
std::optional<std::string> behind_prefix(std::string prefix) {
  while (!prefix.empty() && static_cast<unsigned char>(prefix.back()) == 0xff) prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

}  // namespace

struct Iterator::Impl {
  Impl(std::shared_ptr<CollectionState> s, IteratorOptions o,
       std::shared_ptr<store::SnapshotCore> moment, std::shared_ptr<store::Work> transaction)
      : state(std::move(s)),
        slot(store::take_loose_slot()),
        at_moment(std::move(moment)),
        work(std::move(transaction)) {
    if (state == nullptr) status = Status::closed;
    entries.reserve(store::kSlots);
    lower = std::max(o.lower.value_or(std::string()), o.prefix);
    upper = std::move(o.upper);
    if (!o.prefix.empty()) {
      std::optional<std::string> end = behind_prefix(o.prefix);
      if (end && (!upper || *end < *upper)) upper = std::move(end);
    }
  }
  ~Impl() {
    leave();
    store::put_loose_slot(slot);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Forgets the position and lets the reuse of what was seen go on.
  void leave() {
    entries.clear();
    at = 0;
    positioned = false;
    if (pinned) slot.leave();
    pinned = false;
  }
  // A new position: under a new epoch, for a long walk should not pin an old one.
  bool begin() {
    leave();
    if (work != nullptr && work->ended) status = Status::closed;
    if (at_moment != nullptr && at_moment->history->closed()) status = Status::closed;
    if (status != Status::ok) return false;
    slot.enter();
    pinned = true;
    status = state->alive();
    if (status == Status::ok) {
      tree = state->tree.get();
      return true;
    }
    leave();
    return false;
  }
  std::string_view key() const { return entries[at].record.key; }

  // Reads the leaf that aim finds. False when damage ended the walk.
  bool load(std::string_view key, store::Aim aim) {
    for (;;) {
      const store::Place place = tree->index().locate(key, aim, &right);
      store::Tree::prefetch_twin(*place.leaf);
      const Status s = tree->ordered(place, at_moment.get(), entries);
      if (s == Status::conflict) continue;
      Result<std::string_view> low = tree->low_of(*place.leaf);
      if (s != Status::ok || !low) {
        leave();
        status = s != Status::ok ? s : low.error();
        return false;
      }
      if (tree->bad_pages() != Status::ok) {
        leave();
        status = Status::io;
        return false;
      }
      left = *low;
      if (work != nullptr && work->writes_between(left, right)) {
        for (std::size_t i = 0; i < entries.size(); ++i) {
          if (!read(i, false)) return false;
        }
        work->overlay(left, right, entries);
        store::Tree::sort(entries);
      }
      return true;
    }
  }

  // False: damage, which ends the walk.
  bool read(std::size_t i, bool for_value) {
    Status s = tree->read(entries[i], for_value);
    if (s == Status::ok) s = tree->bad_pages();
    if (s == Status::ok) return true;
    leave();
    status = s;
    return false;
  }

  // False: damage. The keys of three halvings are asked for at once.
  bool count_below(std::string_view key, bool inclusive, std::size_t& count) {
    std::size_t from = 0;
    std::size_t to = entries.size();
    for (unsigned step = 0; from < to; ++step) {
      const std::size_t mid = from + (to - from) / 2;
      if (step % 3 == 0) {
        for (std::size_t eighth = 1; eighth < 8; ++eighth) {
          tree->prefetch(entries[from + (to - from) * eighth / 8].word);
        }
      }
      if (!read(mid, false)) return false;
      const std::string_view at_mid = entries[mid].record.key;
      if (inclusive ? at_mid <= key : at_mid < key) {
        from = mid + 1;
      } else {
        to = mid;
      }
    }
    count = from;
    return true;
  }

  // The place of this very key, found by its hash. entries.size(): it is not here. False: damage.
  bool find_exact(std::string_view key, std::size_t& place) {
    const std::uint16_t hash = store::hash_key(key).slot;
    for (place = 0; place < entries.size(); ++place) {
      if (entries[place].word.hash() != hash) continue;
      if (!read(place, false)) return false;
      if (entries[place].record.key == key) return true;
    }
    return true;
  }

  // Stands at an entry, or ends the walk there. The lines of the next ones, and of the next leaf,
  // are on their way meanwhile.
  void stand(std::size_t i) {
    if (!read(i, true)) return;
    at = i;
    positioned = (!upper || key() < *upper) && key() >= lower;
    if (!positioned) return leave();
  }
  void stand_forward(std::size_t i) {
    if (i + kAhead < entries.size()) {
      tree->prefetch(entries[i + kAhead].word);
    } else if (right.next != nullptr && i + kAhead == entries.size()) {
      store::Tree::prefetch_twin(*right.next);
    } else if (right.next != nullptr && i + kAhead / 2 == entries.size()) {
      tree->prefetch_first_records(*right.next);
    }
    stand(i);
  }
  void prefetch_from(std::size_t i) const {
    for (std::size_t n = std::min(i + kAhead, entries.size()); i < n; ++i) {
      tree->prefetch(entries[i].word);
    }
  }

  // From the leaf just loaded to the first key behind `from` (or at it).
  void settle_forward(const std::string& from, bool inclusive) {
    std::size_t i = entries.size();
    if (inclusive && !find_exact(from, i)) return;
    if (i == entries.size() && !count_below(from, !inclusive, i)) return;
    go_forward(from, inclusive, i);
  }
  // To entry i, or, where the leaf ends before it, to the first of the leaves behind.
  void go_forward(const std::string& from, bool inclusive, std::size_t i) {
    while (i == entries.size()) {
      if (!right.bounded) return leave();
      const std::string bound = right.key;
      if (!load(bound, store::Aim::at)) return;
      prefetch_from(0);
      // All of it is behind `from`, unless the leaf was merged into its left neighbour meanwhile.
      i = 0;
      if (entries.empty()) continue;
      if (!read(0, false)) return;
      const bool behind = from < entries[0].record.key;
      if (!behind && !count_below(from, !inclusive, i)) return;
    }
    prefetch_from(i);
    stand_forward(i);
  }

  // From the leaf just loaded to the last key before `from` (or at it).
  void settle_backward(const std::string* from, bool inclusive) {
    for (;;) {
      std::size_t n = entries.size();
      if (from != nullptr && !count_below(*from, inclusive, n)) return;
      if (n > 0) return stand(n - 1);
      if (left.empty()) return leave();
      const std::string bound = left;
      if (!load(bound, store::Aim::before)) return;
    }
  }

  void seek(std::string_view key) {
    const std::string from = std::max(std::string(key), lower);
    if (!begin()) return;
    if (load(from, store::Aim::at)) settle_forward(from, true);
    note(&from, nullptr);
  }
  void seek_last() {
    if (!begin()) return;
    if (upper) {
      if (upper->empty()) return leave();
      const std::string from = *upper;
      if (load(from, store::Aim::before)) settle_backward(&from, false);
      note(nullptr, &from);
    } else {
      if (load({}, store::Aim::last)) settle_backward(nullptr, false);
      note(nullptr, nullptr);
    }
  }
  void seek_for_prev(std::string_view key) {
    if (upper && key >= *upper) return seek_last();
    const std::string from(key);
    if (!begin()) return;
    if (load(from, store::Aim::at)) settle_backward(&from, true);
    note(nullptr, &from);
  }
  void next() {
    if (at + 1 < entries.size()) {
      stand_forward(at + 1);
    } else {
      const std::string from(key());
      go_forward(from, false, entries.size());
    }
    if (work != nullptr) saw_up_to_here();
  }
  void prev() {
    if (at > 0) {
      stand(at - 1);
    } else {
      const std::string from(key());
      settle_backward(&from, false);
    }
    if (work != nullptr) saw_down_to_here();
  }

  // A transaction has read what its cursors walked over: a new range, from where the cursor was
  // sent to where it stands. Null: from where it stands, or to it or the end.
  void note(const std::string* from, const std::string* to) {
    if (work == nullptr) return;
    range = work->reads.ranges.size();
    work->reads.ranges.push_back({tree, lower, {}, false});
    store::ReadSet::Range& r = work->reads.ranges.back();
    if (from != nullptr) {
      r.from = *from;
      saw_up_to_here();
      return;
    }
    if (to != nullptr) {
      r.to = *to;
      r.bounded = true;
    }
    saw_down_to_here();
  }
  void saw_up_to_here() {
    store::ReadSet::Range& r = work->reads.ranges[range];
    r.bounded = positioned || upper.has_value();
    if (r.bounded) r.to = positioned ? key() : *upper;
  }
  void saw_down_to_here() { work->reads.ranges[range].from = positioned ? key() : lower; }

  static constexpr std::size_t kAhead = 8;  // records

  // Constant.
  const std::shared_ptr<CollectionState> state;
  store::EpochSlot& slot;
  std::string lower;                                     // inclusive
  std::optional<std::string> upper;                      // exclusive
  const std::shared_ptr<store::SnapshotCore> at_moment;  // null: each leaf as it is
  const std::shared_ptr<store::Work> work;               // null: no transaction's
  std::size_t range = 0;                                 // of work->reads
  const store::Tree* tree = nullptr;                     // while positioned
  // The leaf at hand.
  std::vector<store::Entry> entries;
  store::Fence right;  // upper bound of its keys
  std::string left;    // lower bound, inclusive
  std::size_t at = 0;
  bool positioned = false;
  bool pinned = false;
  Status status = Status::ok;
};

Iterator::Iterator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Iterator::Iterator(Iterator&&) noexcept = default;
Iterator& Iterator::operator=(Iterator&&) noexcept = default;
Iterator::~Iterator() = default;

void Iterator::seek_first() { impl_->seek({}); }
void Iterator::seek_last() { impl_->seek_last(); }
void Iterator::seek(std::string_view key) { impl_->seek(key); }
void Iterator::seek_for_prev(std::string_view key) { impl_->seek_for_prev(key); }
void Iterator::next() { impl_->next(); }
void Iterator::prev() { impl_->prev(); }
bool Iterator::valid() const { return impl_->positioned; }
std::string_view Iterator::key() const { return impl_->key(); }
std::string_view Iterator::value() const { return impl_->entries[impl_->at].record.value; }
Status Iterator::status() const {
  if (impl_->status != Status::ok) return impl_->status;
  if (impl_->at_moment != nullptr && impl_->at_moment->history->closed()) return Status::closed;
  const CollectionUse use(impl_->state.get());
  if (use.status() == Status::closed) return Status::closed;
  // Of the value, which the iterator did not look at.
  return use.status() == Status::ok ? use->bad_pages() : Status::ok;
}

Iterator Collection::iterator(IteratorOptions options) const {
  return Iterator(std::make_unique<Iterator::Impl>(state_, std::move(options), nullptr, nullptr));
}

Iterator Snapshot::iterator(const Collection& collection, IteratorOptions options) const {
  const bool there = usable() != Status::closed;
  return Iterator(std::make_unique<Iterator::Impl>(there ? collection.state_ : nullptr,
                                                   std::move(options), core_, nullptr));
}

Iterator StoreTransaction::iterator(IteratorOptions options) {
  const bool there = impl_ != nullptr && impl_->look() == Status::ok;
  return Iterator(std::make_unique<Iterator::Impl>(
      there ? impl_->main : nullptr, std::move(options), there ? impl_->reads.snapshot : nullptr,
      there ? impl_ : nullptr));
}

}  // namespace tenuto::inline TENUTO_ABI
