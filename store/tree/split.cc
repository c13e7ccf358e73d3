// Splits and unlinks. A full leaf gives its upper half to a new right neighbour. A leaf that became
// empty is unlinked from the chain. Durable order: leaf.h. Order of locks: index.h.
#include <algorithm>
#include <array>
#include <bit>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/tree/sorted_entries.h"
#include "store/tree/tree.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

Status Tree::split_full(ShadowLeaf& shadow, std::string_view key) {
  SortedEntries sorted;
  TENUTO_TRY(sorted.read(leaves_, shadow));
  std::size_t keep = sorted.size() / 2;
  std::string_view right = sorted[keep].record.key;
  const Result<PoolOffset> behind = leaves_.next_of(shadow);
  if (!behind) return behind.error();
  if (!*behind && sorted[sorted.size() - 1].record.key < key) {
    // Ascending keys: leave this leaf full, and go on in an empty one.
    keep = sorted.size();
    right = key;
  }
  const std::string_view left = sorted[keep - 1].record.key;
  if (!(left < right))
    return leaves_.damaged(file_.offset_of(shadow.leaf), "leaf with a key twice");
  const Result<ShadowLeaf*> made = split_off(shadow, sorted, keep, shortest_separator(left, right));
  return made ? Status::ok : made.error();
}

namespace {

// A guess: two bytes less than its left neighbour has, so that four of them tell some 10000 keys
// of decimal digits apart, in whatever order they come.
std::size_t prefix_of_last(const SortedEntries& sorted, std::size_t from, std::string_view low) {
  const std::size_t left = common_prefix(sorted.range().low, low);
  const std::size_t guess = left - std::min<std::size_t>(left, 2);
  if (from == sorted.size()) return guess;
  return std::min(guess, common_prefix(low, sorted[sorted.size() - 1].record.key));
}

}  // namespace

Result<ShadowLeaf*> Tree::split_off(ShadowLeaf& shadow, const SortedEntries& sorted,
                                    std::size_t keep, std::string_view low) {
  // The link is copied and gets a new checksum, so check the old one.
  const Result<PoolOffset> next = leaves_.next_of(shadow);
  if (!next) return next.error();
  // No second try here: this thread's own guard keeps what it would free.
  const Result<heap::Block> block = heap_.reserve(sizeof(Leaf), heap::Kind::derived);
  if (!block) return block.error();
  UnlinkedBlock leaf_block(heap_, block->offset);
  PoolOffset low_at{};
  if (low_needs_block(low.size())) {
    const Result<heap::Block> b = heap_.reserve(low.size(), heap::Kind::derived);
    if (!b) return b.error();
    low_at = b->offset;
    copy_flush(file_.at<char>(low_at), low.data(), low.size());
  }
  UnlinkedBlock low_block(heap_, low_at);
  Leaf& left = *shadow.leaf;
  ShadowLeaf* const right = &shadows_.fresh(block->offset);
  const KeyRange& range = sorted.range();
  WholeOrder stay(shadows_.heads_of(shadow), common_prefix(range.low, low), false);
  WholeOrder go(shadows_.heads_of(*right),
                range.end ? common_prefix(low, *range.end) : prefix_of_last(sorted, keep, low),
                !range.end);
  NewEntry moved[kSlots];
  std::uint64_t kept = bitmap_of(left);
  for (std::size_t i = 0; i < keep; ++i) {
    stay.add(sorted[i].slot, slot_head(sorted[i].record.key, stay.prefix));
  }
  for (std::size_t i = keep; i < sorted.size(); ++i) {
    const Entry& e = sorted[i];
    const std::uint8_t fingerprint = shadow.fingerprint[e.slot].load(std::memory_order_relaxed);
    right->set_entry(go.count, e.word, fingerprint, {});
    moved[go.count] = {e.word, fingerprint};
    go.add(go.count, slot_head(e.record.key, go.prefix));
    kept &= ~(1ull << e.slot);
  }
  right->order.set(go);
  if (TENUTO_PLANT("store_split_links_first")) {
    publish(left.head.next, header_word(left.head.next, block->offset.value));
  }
  fill_leaf(*right->leaf, block->offset, id_, *next, moved, go.count, low, low_at);
  right->set_leaf(*right->leaf);
  // All that needs memory comes before the link is durable. So the index leads to the new leaf
  // already. Both leaves are locked, so no thread reads them.
  const bool locked = right->lock();
  TENUTO_ASSERT(locked);
  index_.add(&shadow, low, right);
  LeafLock right_lock(*right);
  leaf_block.linked();
  low_block.linked();
  fence("new leaf", "chain link");
  link_split(shadow, block->offset, kept);
  versions_.divide(shadow, *right, low);
  shadow.keep_only(stay);
  return right;
}

// Best effort. It gives up when other threads are busy here or there is no memory. An empty leaf
// that stays is harmless.
void Tree::unlink_empty(std::string_view key) {
  static_cast<void>(pm::had_memory([&] { try_unlink_empty(key); }));
}

void Tree::try_unlink_empty(std::string_view key) {
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    ShadowLeaf& shadow = *index_.locate(key).leaf;
    if (shadow.used_slots() != 0) return;
    const Result<std::string_view> low = leaves_.low_of(shadow);
    if (!low || low->empty()) return;
    ShadowLeaf& left = *index_.locate(*low, Aim::before).leaf;
    if (&left == &shadow || !left.lock()) continue;
    LeafLock left_lock(left);
    if (!shadow.lock()) {
      left_lock.unlock_unchanged();
      continue;
    }
    LeafLock shadow_lock(shadow);
    if (!unlink_locked(left, shadow, *low)) {
      shadow_lock.unlock_unchanged();
      left_lock.unlock_unchanged();
      continue;
    }
    if (!TENUTO_PLANT("store_order_stays_closed_when_its_range_grows")) left.order.open_up();
    shadow_lock.unlock_dead();
    left_lock.unlock();
    retire_block(low_block(*shadow.leaf), shadow.leaf->low.bytes());
    retire_block(file_.offset_of(shadow.leaf), sizeof(Leaf));
    return;
  }
}

// REQUIRES: both locked.
bool Tree::unlink_locked(ShadowLeaf& left, ShadowLeaf& shadow, std::string_view low) {
  if (shadow.used_slots() != 0) return false;
  // Snapshots would lose the versions in its list. The sweep of the last version tries again.
  const std::uint64_t version = shadow.version.load(std::memory_order_relaxed);
  if (ShadowLeaf::version_list(version) != 0 && !TENUTO_PLANT("store_versions_lost_at_unlink"))
    return false;
  if (store::next_of(*left.leaf) != file_.offset_of(shadow.leaf)) return false;
  const Result<PoolOffset> next = leaves_.next_of(shadow);
  if (!next) return false;
  const auto unlink = [&] {
    unlink_next(*left.leaf, *next);
    return Status::ok;
  };
  return index_.remove(&shadow, low, unlink) == Status::ok;
}

}  // namespace TENUTO_NS::store
