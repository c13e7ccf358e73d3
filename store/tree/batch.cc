// Atomic batches, over any trees of one pool. The steps are:
// 1. Write and flush the records.
// 2. Lock the leaves in the order of trees and keys. Split a leaf where room is lacking. Before its
//    locks, each group of changes is brought into the cache together (multi_get.cc).
// 3. Load the timestamp word. Validate what a transaction has read (versions.h).
// 4. Save the words that will change in the lane's undo log.
// 5. Change all leaves in place, and commit.
// 6. Update the shadow leaves and unlock the leaves.
//
//   records, undo entries |"undo entries"| slots, headers |"..."| T |"..."|       3 fences
//
// The transaction's line T is authoritative. Until it says committed, recovery puts the old slot
// words and headers back before the index is rebuilt. So no record of the batch is reachable. The
// splits that made room are complete by themselves, and stay. The leaves are locked to the end, so
// no reader sees a part.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "pm/assert.h"
#include "pm/plant.h"
#include "store/tree/key_sort.h"
#include "store/tree/tree.h"
#include "tenuto/persist.h"
#include "tx/txn.h"

namespace TENUTO_NS::store {

namespace {

// How full a leaf is left when a batch splits it: room for the inserts that follow.
constexpr std::size_t kSplitFill = kSlots * 7 / 8;

}  // namespace

struct Tree::LockedLeaf {
  Tree* tree;
  ShadowLeaf* shadow;
  std::size_t first, end;  // changes
  bool header_changes;
};

class Tree::Batch {
  struct Change {
    const BatchOp* op = nullptr;
    PoolOffset record;  // of a put
    KeyHash hash{};
    bool found = false;
    bool kept = false;  // a snapshot keeps the old record
    Place place;        // a hint, from warm()
    unsigned slot = 0;
    SlotWord old_word{};
    std::int64_t old_bytes = 0;

    Tree& tree() const { return *op->tree; }
  };

 public:
  Batch(std::span<const BatchOp> ops, const ReadSet* reads) : ops_(ops), reads_(reads) {}

  ~Batch() {
    for (const LockedLeaf& l : locked_) l.shadow->unlock();  // it may have been split
    for (const Change& c : changes_) {
      if (c.record) c.tree().heap_.release(c.record);
    }
  }

  // Whether it retired more than one thread's list may hold back.
  bool retired_much() const { return retired_bytes_ > Garbage::kBatchBytes; }

  Status run() {
    TENUTO_TRY(prepare());
    const EpochGuard guard;
    if (TENUTO_PLANT("store_timestamp_before_the_locks")) now_ = versions().now();
    for (std::size_t next = 0; next < changes_.size();) TENUTO_TRY(lock_next(next));
    // Before the timestamp is loaded: see store/tree/lookup_cache.h.
    const bool late = TENUTO_PLANT("store_lookup_forgets_one_by_one");
    for (std::size_t i = 0; !late && i < locked_.size(); ++i) forget(locked_[i]);
    if (!TENUTO_PLANT("store_timestamp_before_the_locks")) now_ = versions().now();
    TENUTO_TRY(validate());
    emptied_.reserve(locked_.size());  // after the commit nothing may fail
    tx::Txn& txn = ops_.front().tree->engine_.mine();
    TENUTO_TRY(txn.begin());
    if (TENUTO_PLANT("store_batch_stored_before_saved")) store();
    tx::Saving saving(txn);
    TENUTO_TRY(save(txn));
    saving.done();
    store();
    TENUTO_TRY(txn.commit());
    finish();
    return Status::ok;
  }

 private:
  VersionStore& versions() const { return ops_.front().tree->versions_; }

  // The ops by tree and key. Those of one key keep their order.
  std::vector<KeyRank> sorted() const {
    std::vector<KeyRank> order(ops_.size());
    sort_by_key(order, [&](std::uint32_t i) { return ops_[i].key; });
    const auto tree_before = [&](const KeyRank& a, const KeyRank& b) {
      return ops_[a.at].tree->id() < ops_[b.at].tree->id();
    };
    if (!std::is_sorted(order.begin(), order.end(), tree_before)) {
      std::stable_sort(order.begin(), order.end(), tree_before);
    }
    return order;
  }

  // One change for each key, in order. Its record is written and flushed.
  Status prepare() {
    const Tree* ready = nullptr;
    for (const BatchOp& op : ops_) {
      TENUTO_TRY(op.tree->check_key(op.key));
      if (op.tree != ready) static_cast<void>(op.tree->garbage_.mine());
      ready = op.tree;
    }
    const std::vector<KeyRank> order = sorted();
    changes_.reserve(ops_.size());
    locked_.reserve(ops_.size());  // so that every locked leaf can be noted
    for (std::size_t i = 0; i < order.size(); ++i) {
      const BatchOp& op = ops_[order[i].at];
      if (i + 1 < order.size()) {
        const BatchOp& next = ops_[order[i + 1].at];
        if (next.tree == op.tree && next.key == op.key) continue;  // the last one wins
      }
      Change& c = changes_.emplace_back();
      c.op = &op;
      c.hash = hash_key(op.key);
      if (op.erase) continue;
      Tree& tree = *op.tree;
      const Result<heap::Block> record = tree.reserve_record(op.key, op.value);
      if (!record) return record.error();
      write_record(tree.file_, record->offset, op.key, op.value);
      c.record = record->offset;
    }
    return Status::ok;
  }

  // Brings what the next changes read and write into the cache, and notes their places.
  void warm(std::size_t from) {
    std::array<std::string_view, kLocatedAtOnce> keys;
    std::array<KeyHash, kLocatedAtOnce> hashes{};
    std::array<Place, kLocatedAtOnce> places;
    Tree& tree = changes_[from].tree();
    std::size_t n = 0;
    for (; n < keys.size() && from + n < changes_.size(); ++n) {
      const Change& c = changes_[from + n];
      if (&c.tree() != &tree) break;
      keys[n] = c.op->key;
      hashes[n] = c.hash;
    }
    tree.warm({keys.data(), n}, hashes.data(), places.data());
    for (std::size_t i = 0; i < n; ++i) {
      Change& c = changes_[from + i];
      c.place = places[i];
      if (c.place.leaf != nullptr) prefetch_to_write(*c.place.leaf, c);
    }
    warmed_ = from + n;
  }

  // The line of the slot that will change, or else the header.
  static void prefetch_to_write(const ShadowLeaf& shadow, const Change& c) {
    Leaf& leaf = *shadow.leaf;
    const std::uint64_t hits = shadow.match(c.hash.fingerprint);
    if (hits == 0 || c.op->erase) __builtin_prefetch(&leaf.head, 1);
    if (hits != 0) __builtin_prefetch(&leaf.slot[std::countr_zero(hits)], 1);
  }

  // Locks the leaf of changes_[next] and takes all changes that belong there. Trees, keys and so
  // leaves ascend. So two batches cannot wait for each other in a circle.
  Status lock_next(std::size_t& next) {
    Tree& tree = changes_[next].tree();
    const std::string_view key = changes_[next].op->key;
    if (next >= warmed_) warm(next);
    Place place = changes_[next].place;
    if (place.leaf != nullptr && TENUTO_PLANT("store_batch_believes_its_hint")) {
      place.version = place.leaf->version.load(std::memory_order_relaxed);
    }
    while (place.leaf == nullptr || !place.leaf->lock_if(place.version)) {
      place = tree.index_.locate(key);
    }
    ShadowLeaf* const shadow = place.leaf;
    locked_.push_back({&tree, shadow, next, next + 1, false});
    LockedLeaf& l = locked_.back();
    // The range of a locked leaf does not change, so route() tells which changes belong to it.
    while (l.end < changes_.size() && &changes_[l.end].tree() == &tree &&
           tree.index_.route(changes_[l.end].op->key) == shadow) {
      ++l.end;
    }
    TENUTO_TRY(find_all(l));
    TENUTO_TRY(make_room(l));
    choose_slots(l);
    next = l.end;
    return Status::ok;
  }

  void forget(const LockedLeaf& l) {
    for (std::size_t i = l.first; i < l.end; ++i) {
      if (changes_[i].found) l.tree->lookups_.forget(changes_[i].hash);
    }
  }

  Status find_all(LockedLeaf& l) {
    const Place place{l.shadow, l.shadow->version.load(std::memory_order_relaxed)};
    for (std::size_t i = l.first; i < l.end; ++i) {
      Change& c = changes_[i];
      Found found;
      TENUTO_TRY(l.tree->leaves_.search(place, c.op->key, c.hash, found));
      c.found = found.found;
      if (!found.found) continue;
      c.slot = found.slot;
      c.old_word = found.word;
      c.old_bytes = bytes_of(found.record);
    }
    return Status::ok;
  }

  // Splits the leaf so that its own entries and this batch's inserts fit. The changes after the cut
  // then belong to the new right leaf.
  Status make_room(LockedLeaf& l) {
    std::size_t inserts = 0;
    for (std::size_t i = l.first; i < l.end; ++i) {
      inserts += !changes_[i].op->erase && !changes_[i].found ? 1 : 0;
    }
    const auto used = static_cast<std::size_t>(std::popcount(l.shadow->used_slots()));
    if (used + inserts <= kSlots) return Status::ok;

    std::vector<Entry> sorted;
    TENUTO_TRY(l.tree->leaves_.entries(
        {l.shadow, l.shadow->version.load(std::memory_order_relaxed)}, sorted));
    LeafReader::sort(sorted);
    // Merges old and new keys. The first kSplitFill of them stay.
    std::size_t old = 0;
    std::size_t at = l.first;
    std::string_view last;
    std::string_view key;
    for (std::size_t n = 0;; ++n) {
      while (at < l.end && (changes_[at].op->erase || changes_[at].found)) ++at;
      const bool take_old =
          old < sorted.size() && (at == l.end || sorted[old].record.key < changes_[at].op->key);
      key = take_old ? sorted[old].record.key : changes_[at].op->key;
      if (n == kSplitFill) break;
      last = key;
      (take_old ? old : at) += 1;
    }
    if (!(last < key))
      return l.tree->leaves_.damaged(l.tree->file_.offset_of(l.shadow->leaf), "leaf");
    const std::string_view low = shortest_separator(last, key);
    const Result<ShadowLeaf*> right = l.tree->split_off(*l.shadow, sorted, old, low);
    if (!right) return right.error();
    while (l.end > l.first && !(changes_[l.end - 1].op->key < low)) --l.end;
    return Status::ok;
  }

  void choose_slots(LockedLeaf& l) {
    std::uint64_t used = l.shadow->used_slots();
    for (std::size_t i = l.first; i < l.end; ++i) {
      Change& c = changes_[i];
      if (c.found && c.op->erase) l.header_changes = true;
      if (c.found || c.op->erase) continue;
      c.slot = choose_slot(used);
      used |= 1ull << c.slot;
      l.header_changes = true;
    }
  }

  // Checks that nothing the transaction read has changed since. The argument: versions.h, and for
  // collections life.h.
  Status validate() {
    if (reads_ == nullptr) return Status::ok;
    for (const CollectionLife* life : reads_->lives) {
      if (!life->is_open() && !TENUTO_PLANT("store_commit_lives_not_validated")) {
        return Status::conflict;
      }
    }
    if (reads_->snapshot == nullptr) return Status::ok;
    if (reads_->expired() && !TENUTO_PLANT("store_commit_time_not_validated")) {
      return Status::conflict;
    }
    std::vector<ShadowLeaf*> mine;
    for (const LockedLeaf& l : locked_) mine.push_back(l.shadow);
    std::sort(mine.begin(), mine.end());
    const SnapshotCore& snapshot = *reads_->snapshot;
    for (const ReadRange& r : reads_->ranges) {
      TENUTO_TRY(r.tree().unchanged(r, snapshot.timestamp, mine));
    }
    // An expired snapshot has kept no versions that could show a change.
    return snapshot.expired.load(std::memory_order_acquire) ? Status::expired : Status::ok;
  }

  Status save(tx::Txn& txn) {
    for (const LockedLeaf& l : locked_) {
      if (l.header_changes && !TENUTO_PLANT("store_batch_header_not_saved"))
        TENUTO_TRY(txn.log_later(&l.shadow->leaf->head, sizeof(LeafHeader)));
      for (std::size_t i = l.first; i < l.end; ++i) {
        const Change& c = changes_[i];
        if (!c.found || c.op->erase) continue;
        TENUTO_TRY(txn.log_later(&l.shadow->leaf->slot[c.slot], sizeof(SlotWord)));
      }
    }
    return txn.ready();
  }

  // Changes the leaves in place, and flushes each line once. The commit fences.
  void store() {
    for (const LockedLeaf& l : locked_) {
      Leaf& leaf = *l.shadow->leaf;
      std::uint64_t slot_lines = 0;
      for (std::size_t i = l.first; i < l.end; ++i) {
        const Change& c = changes_[i];
        if (c.op->erase) continue;
        store_ordered(leaf.slot[c.slot], SlotWord::make(c.record, c.hash.slot));
        if (TENUTO_PLANT("store_batch_slot_unflushed")) continue;
        slot_lines |= 1ull << c.slot / kSlotsPerLine;
      }
      for (; slot_lines != 0; slot_lines &= slot_lines - 1) {
        const auto line = static_cast<unsigned>(std::countr_zero(slot_lines));
        flush_bytes(&leaf.slot[line * kSlotsPerLine], kLineBytes);
      }
      if (l.header_changes) store_header(l);
    }
  }

  void store_header(const LockedLeaf& l) {
    LeafHeader& head = l.shadow->leaf->head;
    std::uint64_t bitmap = bitmap_of(*l.shadow->leaf);
    UsedFingerprints fingerprints = fingerprints_of(*l.shadow);
    for (std::size_t i = l.first; i < l.end; ++i) {
      const Change& c = changes_[i];
      if (c.op->erase == !c.found) continue;  // an update, or an erase of nothing
      fingerprints.of[c.slot] = c.op->erase ? std::uint8_t{0} : c.hash.fingerprint;
      if (!c.op->erase) store_ordered(head.fingerprint[c.slot], c.hash.fingerprint);
      bitmap ^= 1ull << c.slot;
    }
    store_ordered(head.bitmap, bitmap_word(head.bitmap, bitmap, fingerprints));
    if (!TENUTO_PLANT("store_batch_header_unflushed")) flush(head);
  }

  void finish() {
    for (const LockedLeaf& l : locked_) {
      for (std::size_t i = l.first; i < l.end; ++i) {
        Change& c = changes_[i];
        keep(l, c);
        if (!c.op->erase) {
          l.shadow->set_entry(c.slot, SlotWord::make(c.record, c.hash.slot), c.hash.fingerprint);
        } else if (c.found) {
          l.shadow->set_fingerprint(c.slot, 0);
        }
      }
    }
    // Look for empty leaves before the unlock: after that a shadow leaf may die.
    for (const LockedLeaf& l : locked_) {
      if (l.header_changes && l.shadow->used_slots() == 0) emptied_.push_back(&changes_[l.first]);
    }
    for (const LockedLeaf& l : locked_) {
      const bool late = TENUTO_PLANT("store_lookup_forgets_one_by_one");
      if (late) forget(l);
      l.shadow->unlock();
      if (late) ::usleep(20);
    }
    locked_.clear();
    for (Change& c : changes_) c.record = {};  // it belongs to its leaf now
    for (Change& c : changes_) {
      std::int64_t bytes = -c.old_bytes;
      std::int64_t records = c.found ? -1 : 0;
      if (!c.op->erase) {
        bytes += bytes_of({c.op->key, c.op->value});
        records += 1;
      }
      if (c.found && !c.kept) {
        const auto old_bytes = static_cast<std::uint64_t>(c.old_bytes) + sizeof(RecordHead);
        c.tree().retire_record(c.old_word.record(), c.hash, old_bytes);
        retired_bytes_ += old_bytes;
      }
      c.tree().garbage_.mine().count(records, bytes);
    }
    if (now_.snapshots() != 0) versions().sweep();
    for (const Change* c : emptied_) c->tree().unlink_empty(c->op->key);
  }

  void keep(const LockedLeaf& l, Change& c) {
    if (now_.snapshots() == 0 || (c.op->erase && !c.found)) return;
    const SnapshotCore* own = reads_ == nullptr ? nullptr : reads_->snapshot.get();
    c.kept =
        versions().keep({*l.tree, *l.shadow, c.op->key, c.hash, now_.clock(), c.old_word.record(),
                         static_cast<std::uint64_t>(c.old_bytes), c.op->erase, own});
  }

  const std::span<const BatchOp> ops_;
  std::vector<Change> changes_;
  std::vector<LockedLeaf> locked_;
  std::size_t warmed_ = 0;              // changes before this one were in a group of warm()
  std::vector<const Change*> emptied_;  // one change for each leaf that became empty
  const ReadSet* const reads_;          // null: a plain batch in the default collection
  TimestampWord now_{};
  std::uint64_t retired_bytes_ = 0;
};

Status Tree::write(std::span<const BatchOp> ops, const ReadSet* reads) {
  if (ops.empty()) return Status::ok;
  Tree& first = *ops.front().tree;
  TENUTO_TRY(first.file_.writable());
  // A batch unlocks its leaves when it returns. So a transaction around it could not undo it.
  if (first.engine_.mine().active()) return Status::invalid_argument;
  const auto collect = [ops] {
    for (const BatchOp& op : ops) {
      if (&op == &ops.front() || op.tree != (&op - 1)->tree)
        op.tree->garbage_.collect_all_at_rest();
    }
  };
  bool much = false;
  const auto run = [&] {
    Batch batch(ops, reads);
    const Status s = batch.run();
    much = batch.retired_much() && !TENUTO_PLANT("store_batch_leaves_all_to_the_next");
    return s;
  };
  Status s = run();
  if (s == Status::full) {
    collect();
    s = run();
  }
  // This call's own pin held it all back, and the next call may come late (README.md, Limits).
  if (much) collect();
  return s == Status::ok ? first.file_.bad_pages() : s;
}

}  // namespace TENUTO_NS::store
