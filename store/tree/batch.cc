// Atomic batches, over any trees of one pool. The steps are:
// 1. Write and flush the records.
// 2. Lock the leaves in the order of trees and keys. Split a leaf where room is lacking. Before its
//    locks, each group of changes is brought into the cache together (multi_get.cc).
// 3. Remove the keys from the lookup cache. Load the timestamp word. Validate what a transaction
// has read (versions.h).
// 4. Save the words that will change in the lane's undo log.
// 5. Change all leaves in place, and commit.
// 6. Update the shadow leaves, enter new records into the lookup cache, and unlock the leaves.
//
//   records, undo entries |"undo entries"| slots, headers |"..."| T |"..."|       3 fences
//
// The transaction's line T is authoritative. Until it says committed, recovery puts the old slot
// words and headers back before the index is rebuilt. So no record of the batch is reachable. The
// splits that made room are complete by themselves, and stay. The leaves are locked to the end, so
// no reader sees a part.
#include "store/tree/batch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "pm/assert.h"
#include "pm/plant.h"
#include "store/tree/sorted_entries.h"
#include "tx/txn.h"

namespace TENUTO_NS::store {

namespace {

// How full a leaf is left when a batch splits it: room for the inserts that follow.
constexpr std::size_t kSplitFill = kSlots * 7 / 8;

}  // namespace

Status Tree::write(std::span<const BatchOp> ops, const ReadSet* reads, std::uint64_t* erased) {
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
    if (erased != nullptr) *erased = batch.erased();
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

Tree::Batch::~Batch() {
  for (const LockedLeaf& l : locked_) l.shadow->unlock();  // it may have been split
  for (const Change& c : changes_) {
    if (c.record) c.tree().heap_.release(c.record);
  }
}

Status Tree::Batch::run() {
  TENUTO_TRY(prepare());
  const EpochGuard guard;
  if (TENUTO_PLANT("store_timestamp_before_the_locks")) now_ = versions().now();
  for (std::size_t next = 0; next < changes_.size();) TENUTO_TRY(lock_next(next));
  // Before the timestamp is loaded: see lookup_cache.h.
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

// One change for each key, in order. Its record is written and flushed.
Status Tree::Batch::prepare() {
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

// The ops by tree and key. Those of one key keep their order.
std::vector<KeyRank> Tree::Batch::sorted() const {
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

// Brings what the next changes read and write into the cache, and notes their places.
void Tree::Batch::warm(std::size_t from) {
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
void Tree::Batch::prefetch_to_write(const ShadowLeaf& shadow, const Change& c) {
  Leaf& leaf = *shadow.leaf;
  const std::uint64_t hits = shadow.match(c.hash.fingerprint);
  if (hits == 0 || c.op->erase) __builtin_prefetch(&leaf.head, 1);
  if (hits != 0) __builtin_prefetch(&leaf.slot[std::countr_zero(hits)], 1);
}

// Locks the leaf of changes_[next] and takes the changes that belong there; if it must be split,
// those that stay in it. Trees, keys and so leaves ascend. So two batches cannot wait for each
// other in a circle.
Status Tree::Batch::lock_next(std::size_t& next) {
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
  locked_.push_back({&tree, shadow, next, next, false});
  LockedLeaf& l = locked_.back();
  std::size_t inserts = 0;
  TENUTO_TRY(find_all(l, inserts));
  TENUTO_TRY(make_room(l, inserts));
  choose_slots(l);
  next = l.end;
  return Status::ok;
}

// Looks the changes up that belong to the leaf. It stops after more inserts than a leaf can take:
// the others belong to the right of the cut. A batch may have any number of inserts for one leaf,
// and would look all of them up again after each split.
Status Tree::Batch::find_all(LockedLeaf& l, std::size_t& inserts) {
  const Place place{l.shadow, l.shadow->version.load(std::memory_order_relaxed)};
  for (; l.end < changes_.size() && inserts <= kSlots; ++l.end) {
    Change& c = changes_[l.end];
    if (&c.tree() != l.tree) break;
    if (l.end != l.first && !belongs(c, l)) break;
    Found found;
    TENUTO_TRY(l.tree->leaves_.search(place, c.op->key, c.hash, found));
    c.found = found.found;
    inserts += !c.op->erase && !c.found ? 1 : 0;
    if (!found.found) continue;
    c.slot = found.slot;
    c.old_word = found.word;
    c.old_bytes = bytes_of(found.record);
  }
  return Status::ok;
}

// Whether the change's key is in the range of the leaf, which does not change while it is locked. A
// hint that still holds for another leaf answers without a descent.
bool Tree::Batch::belongs(const Change& c, const LockedLeaf& l) {
  const Place& hint = c.place;
  if (hint.leaf != nullptr && hint.leaf != l.shadow &&
      hint.leaf->version.load(std::memory_order_acquire) == hint.version) {
    return false;
  }
  return l.tree->index_.leads_to(c.op->key, l.shadow);
}

// Splits the leaf so that its own entries and this batch's inserts fit. The changes after the cut
// then belong to the new right leaf.
Status Tree::Batch::make_room(LockedLeaf& l, std::size_t inserts) {
  const auto used = static_cast<std::size_t>(std::popcount(l.shadow->used_slots()));
  if (used + inserts <= kSlots) return Status::ok;

  SortedEntries sorted;
  TENUTO_TRY(sorted.read(l.tree->leaves_, *l.shadow));
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

void Tree::Batch::choose_slots(LockedLeaf& l) {
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

}  // namespace TENUTO_NS::store
