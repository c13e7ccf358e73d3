// Splits and unlinks. A full leaf gives its upper half to a new right neighbour. A leaf that became
// empty is unlinked from the chain. Durable order: leaf.h. Order of locks: index.h.
#include <algorithm>
#include <array>
#include <bit>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/tree/tree.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

Status Tree::entries(const Place& place, std::vector<Entry>& out, bool for_values) const {
  out.clear();
  const ShadowLeaf& shadow = *place.leaf;
  for (std::uint64_t used = shadow.used_slots(); used != 0; used &= used - 1) {
    const auto slot = static_cast<std::uint8_t>(std::countr_zero(used));
    out.push_back({{}, shadow.word(slot), slot});
  }
  if (!shadow.still(place.version)) return Status::conflict;
  for (const Entry& e : out) prefetch(e.word);
  for (Entry& e : out) TENUTO_TRY(read(e, for_values));
  return in_range(place, out);
}

// A key in the wrong leaf would be skipped by a walk, and lost by a split.
Status Tree::in_range(const Place& place, const std::vector<Entry>& found) const {
  const Result<std::string_view> low = low_of(*place.leaf);
  if (!low) return low.error();
  const Result<std::optional<std::string_view>> end = end_of(*place.leaf);
  if (!end) return end.error();
  const auto wrong = std::find_if(found.begin(), found.end(), [&](const Entry& e) {
    return e.record.key < *low || (*end && **end <= e.record.key);
  });
  if (wrong == found.end() || TENUTO_PLANT("store_range_of_keys_not_checked")) return Status::ok;
  // The leaf may have been split since its entries were read.
  if (!place.leaf->still(place.version)) return Status::conflict;
  return damaged(wrong->word.record(), "record whose key does not belong into its leaf");
}

// Compares the eight bytes after the common prefix of all keys, and whole keys only if those are
// equal.
void Tree::sort(std::vector<Entry>& entries) {
  if (entries.size() < 2) return;
  const std::string_view first = entries[0].record.key;
  std::size_t shared = first.size();
  for (const Entry& e : entries) {
    shared = std::min(shared, common_prefix(first.substr(0, shared), e.record.key));
  }
  if (entries.size() > kSlots) {  // with old versions of keys that are absent now
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.record.key < b.record.key; });
    return;
  }
  struct Ranked {
    std::uint64_t head;
    std::uint32_t at;
  };
  std::array<Ranked, kSlots> order;
  std::array<Entry, kSlots> old;
  const std::size_t n = entries.size();
  for (std::size_t i = 0; i < n; ++i) {
    old[i] = entries[i];
    order[i] = {key_head(old[i].record.key.substr(shared)), static_cast<std::uint32_t>(i)};
  }
  std::sort(order.begin(), order.begin() + n, [&](const Ranked& a, const Ranked& b) {
    if (a.head != b.head) return a.head < b.head;
    return old[a.at].record.key < old[b.at].record.key;
  });
  for (std::size_t i = 0; i < n; ++i) entries[i] = old[order[i].at];
}

Result<std::string_view> Tree::low_of(const ShadowLeaf& shadow) const {
  const Result<std::string_view> low = store::low_of(file_, *shadow.leaf);
  if (!low || !low_sound(file_, *shadow.leaf, id_, *low)) {
    return damaged(file_.offset_of(shadow.leaf), "low separator");
  }
  return *low;
}

Result<PoolOffset> Tree::next_of(const ShadowLeaf& shadow) const {
  const HeaderWord& at = shadow.leaf->head.next;
  const HeaderWord next{__atomic_load_n(&at.raw, __ATOMIC_ACQUIRE)};
  if (!next.sound(salt_of(at)) ||
      (next.value() != 0 && !file_.in_range({next.value()}, sizeof(Leaf)))) {
    return damaged(file_.offset_of(shadow.leaf), "link to the next leaf");
  }
  return PoolOffset{next.value()};
}

Status Tree::split_full(ShadowLeaf& shadow, std::string_view key) {
  std::vector<Entry> sorted;
  TENUTO_TRY(entries({&shadow, shadow.version.load(std::memory_order_relaxed)}, sorted));
  sort(sorted);
  std::size_t keep = sorted.size() / 2;
  std::string_view right = sorted[keep].record.key;
  const Result<PoolOffset> behind = next_of(shadow);
  if (!behind) return behind.error();
  if (!*behind && sorted.back().record.key < key) {
    // Ascending keys: leave this leaf full, and go on in an empty one.
    keep = sorted.size();
    right = key;
  }
  const std::string_view left = sorted[keep - 1].record.key;
  if (!(left < right)) return damaged(file_.offset_of(shadow.leaf), "leaf with a key twice");
  const Result<ShadowLeaf*> made = split_off(shadow, sorted, keep, shortest_separator(left, right));
  return made ? Status::ok : made.error();
}

Result<ShadowLeaf*> Tree::split_off(ShadowLeaf& shadow, const std::vector<Entry>& sorted,
                                    std::size_t keep, std::string_view low) {
  // The link is copied and gets a new checksum, so check the old one.
  const Result<PoolOffset> next = next_of(shadow);
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
  UnlinkedShadow right_shadow(shadows_);
  ShadowLeaf* const right = right_shadow.get();
  right->leaf = file_.at<Leaf>(block->offset);
  NewEntry moved[kSlots];
  unsigned count = 0;
  std::uint64_t kept = bitmap_of(left);
  for (std::size_t i = keep; i < sorted.size(); ++i) {
    const Entry& e = sorted[i];
    const std::uint8_t fingerprint = shadow.fingerprint[e.slot].load(std::memory_order_relaxed);
    right->set_entry(count, e.word, fingerprint);
    moved[count++] = {e.word, fingerprint};
    kept &= ~(1ull << e.slot);
  }
  if (TENUTO_PLANT("store_split_links_first")) {
    publish(left.head.next, header_word(left.head.next, block->offset.value));
  }
  fill_leaf(*right->leaf, block->offset, id_, *next, moved, count, low, low_at);
  // All that needs memory comes before the link is durable. So the index leads to the new leaf
  // already. Both leaves are locked, so no thread reads them.
  const bool locked = right->lock();
  TENUTO_ASSERT(locked);
  index_.add(&shadow, low, right);
  LeafLock right_lock(*right_shadow.linked());
  leaf_block.linked();
  low_block.linked();
  fence("new leaf", "chain link");
  link_split(shadow, block->offset, kept);
  versions_.divide(shadow, *right, low);
  for (std::size_t i = keep; i < sorted.size(); ++i) shadow.set_fingerprint(sorted[i].slot, 0);
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
    const Result<std::string_view> low = low_of(shadow);
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
    shadow_lock.unlock_dead();
    left_lock.unlock();
    retire_block(low_block(*shadow.leaf), shadow.leaf->low.bytes());
    retire_block(file_.offset_of(shadow.leaf), sizeof(Leaf));
    garbage_.retire(garbage_.mine(),
                    {reinterpret_cast<std::uintptr_t>(&shadow), Retired::What::shadow});
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
  const Result<PoolOffset> next = next_of(shadow);
  if (!next) return false;
  const auto unlink = [&] {
    unlink_next(*left.leaf, *next);
    return Status::ok;
  };
  return index_.remove(&shadow, low, unlink) == Status::ok;
}

}  // namespace TENUTO_NS::store
