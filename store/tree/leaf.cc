#include "store/tree/leaf.h"

#include <unistd.h>

#include <bit>
#include <cstring>
#include <optional>

#include "pm/assert.h"
#include "pm/plant.h"
#include "store/tree/leaf_reader.h"
#include "store/tree/record.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

namespace {

constexpr unsigned kSlotLines = kSlots / kSlotsPerLine;

std::uint32_t low_check(PoolOffset leaf, TreeId tree, std::string_view low) {
  std::uint32_t crc = pm::crc32c_u64(~0u, leaf.value);
  if (tree != kDefaultTree) crc = pm::crc32c_u64(crc, tree.value);
  return pm::crc32c(low.data(), low.size(), crc);
}

}  // namespace

void insert_entry(const LeafReader& leaves, ShadowLeaf& shadow, unsigned slot, SlotWord word,
                  std::string_view key, std::uint8_t fingerprint) {
  Leaf& leaf = *shadow.leaf;
  UsedFingerprints fingerprints = fingerprints_of(shadow);
  fingerprints.of[slot] = fingerprint;
  const HeaderWord bitmap =
      bitmap_word(leaf.head.bitmap, bitmap_of(leaf) | 1ull << slot, fingerprints);
  if (TENUTO_PLANT("store_header_before_slot")) publish(leaf.head.bitmap, bitmap);
  publish(leaf.slot[slot], word);
  const std::optional<OrderPlace> at = leaves.place_in_order(shadow, key);  // beside the flush
  fence("record and slot", "leaf header");  // a set bit promises a whole record and slot word
  if (TENUTO_PLANT("store_bitmap_before_fingerprint")) store_ordered(leaf.head.bitmap, bitmap);
  store_ordered(leaf.head.fingerprint[slot], fingerprint);
  publish(leaf.head.bitmap, bitmap);
  fence("leaf header", "insert returns");
  shadow.set_entry(slot, word, fingerprint, at);
}

void swap_entry(ShadowLeaf& shadow, unsigned slot, SlotWord word) {
  publish(shadow.leaf->slot[slot], word);
  fence("slot", "update returns, old record is retired");
  shadow.set_word(slot, word);
}

void erase_entry(ShadowLeaf& shadow, unsigned slot) {
  Leaf& leaf = *shadow.leaf;
  UsedFingerprints fingerprints = fingerprints_of(shadow);
  fingerprints.of[slot] = 0;
  publish(leaf.head.bitmap,
          bitmap_word(leaf.head.bitmap, bitmap_of(leaf) & ~(1ull << slot), fingerprints));
  fence("leaf bitmap", "erase returns, record is retired");
  shadow.remove_entry(slot);
}

namespace {
// Byte i is 0xff if bit i is set, else 0.
std::uint64_t whole_bytes(std::uint8_t bits) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  const std::uint64_t own = bits * kOnes & 0x8040201008040201;  // byte i has bit i alone
  const std::uint64_t high = (own + 0x7f * kOnes) & 0x80 * kOnes;
  return (high >> 7) * 0xff;
}
}  // namespace

UsedFingerprints fingerprints_of(const Leaf& leaf, std::uint64_t used) {
  UsedFingerprints p;
  using Word [[gnu::may_alias]] = std::uint64_t;
  const auto* const words = reinterpret_cast<const Word*>(leaf.head.fingerprint);
  for (unsigned i = 0; i < kSlots; i += sizeof(Word)) {
    const Word w = __atomic_load_n(words + i / sizeof(Word), __ATOMIC_RELAXED);
    const Word kept = w & whole_bytes(static_cast<std::uint8_t>(used >> i));
    std::memcpy(p.of + i, &kept, sizeof kept);
  }
  return p;
}

bool bitmap_sound(const Leaf& leaf) {
  const HeaderWord bitmap = read_word(leaf.head.bitmap);
  if (TENUTO_PLANT("store_leaf_judged_without_the_lock")) ::usleep(20);
  const std::uint64_t salt = salt_of(leaf.head.bitmap);
  if (bitmap.sound(salt)) return true;
  return bitmap.raw ==
         HeaderWord::make(bitmap.value(), salt, fingerprints_of(leaf, bitmap.value())).raw;
}

unsigned choose_slot(std::uint64_t used) {
  const auto count = static_cast<unsigned>(std::popcount(used));
  TENUTO_ASSERT(count < kSlots);
  const unsigned start = count % kSlotLines * kSlotsPerLine;
  const std::uint64_t empty = ~used & kBitmapMask;
  const std::uint64_t behind = empty >> start << start;
  return static_cast<unsigned>(std::countr_zero(behind != 0 ? behind : empty));
}

void set_low(Leaf& leaf, PoolOffset at, TreeId tree, std::string_view low, PoolOffset block) {
  leaf.low = {};
  leaf.low.head = LowSeparator::make_head(low.size(), tree);
  leaf.low.check = low_check(at, tree, low);
  if (low_needs_block(low.size())) {
    std::memcpy(leaf.low.data, &block.value, sizeof block.value);
  } else if (!low.empty()) {
    std::memcpy(leaf.low.data, low.data(), low.size());
  }
}

PoolOffset low_block(const Leaf& leaf) {
  if (!low_needs_block(leaf.low.bytes())) return {};
  PoolOffset block;
  std::memcpy(&block.value, leaf.low.data, sizeof block.value);
  return block;
}

bool record_sound_anywhere(const pm::PoolFile& file, PoolOffset at, const Record& r) {
  RecordHead head;
  std::memcpy(&head, file.at<const char>(at), sizeof head);
  return head.check() == record_check({}, r);
}

Result<std::string_view> low_of(const pm::PoolFile& file, const Leaf& leaf) {
  const std::size_t bytes = leaf.low.bytes();
  const char* data = leaf.low.data;
  if (low_needs_block(bytes)) {
    const PoolOffset block = low_block(leaf);
    if (bytes > kKeyBytesMax || !file.in_range(block, bytes)) return Status::corrupt;
    data = file.at<const char>(block);
  }
  return std::string_view{data, bytes};
}

bool low_sound(const pm::PoolFile& file, const Leaf& leaf, TreeId tree, std::string_view low) {
  return leaf.low.may_be_of(tree) && leaf.low.check == low_check(file.offset_of(&leaf), tree, low);
}

void fill_leaf(Leaf& leaf, PoolOffset at, TreeId tree, PoolOffset next, const NewEntry* entries,
               unsigned count, std::string_view low, PoolOffset block) {
  TENUTO_ASSERT(count <= kSlots);
  std::memset(static_cast<void*>(&leaf), 0, sizeof leaf);
  for (unsigned i = 0; i < count; ++i) {
    leaf.slot[i] = entries[i].word;
    leaf.head.fingerprint[i] = entries[i].fingerprint;
  }
  const std::uint64_t used = (1ull << count) - 1;
  leaf.head.bitmap = bitmap_word(leaf.head.bitmap, used, fingerprints_of(leaf, used));
  leaf.head.next = header_word(leaf.head.next, next.value);
  set_low(leaf, at, tree, low, block);
  flush(leaf);
}

void set_counts(Leaf& first, const TreeCounts& counts) {
  std::memcpy(first.low.data, &counts, sizeof counts);
}

TreeCounts counts_of(const Leaf& first) {
  TreeCounts counts;
  std::memcpy(&counts, first.low.data, sizeof counts);
  return counts;
}

void link_split(const ShadowLeaf& shadow, PoolOffset right, std::uint64_t keep) {
  Leaf& left = *shadow.leaf;
  UsedFingerprints fingerprints = fingerprints_of(shadow);
  for (unsigned i = 0; i < kSlots; ++i) {
    if ((keep >> i & 1) == 0) fingerprints.of[i] = 0;
  }
  const HeaderWord bitmap = bitmap_word(left.head.bitmap, keep, fingerprints);
  if (TENUTO_PLANT("store_split_drops_before_link")) store_ordered(left.head.bitmap, bitmap);
  store_ordered(left.head.next, header_word(left.head.next, right.value));
  if (!TENUTO_PLANT("store_split_keeps_moved_entries")) store_ordered(left.head.bitmap, bitmap);
  flush(left.head);
  fence("chain link", "leaf lock is released");
}

void unlink_next(Leaf& left, PoolOffset next) {
  publish(left.head.next, header_word(left.head.next, next.value));
  fence("leaf unlinked", "leaf is retired");
}

bool resolve_split(Leaf& left, const Leaf& right) {
  if (TENUTO_PLANT("store_recovery_keeps_moved_entries")) return false;
  const std::uint64_t in_left = bitmap_of(left);
  const std::uint64_t in_right = bitmap_of(right);  // another task may be changing it
  // The left slots with the same entry. Fingerprints decide first: they are in lines read before.
  const auto same_as = [&](int i) {
    std::uint64_t found = 0;
    for (std::uint64_t rest = in_left; rest != 0; rest &= rest - 1) {
      const int j = std::countr_zero(rest);
      const bool may_be = left.head.fingerprint[j] == right.head.fingerprint[i];
      if (may_be && left.slot[j].raw == right.slot[i].raw) found |= 1ull << j;
    }
    return found;
  };
  if (in_left == 0 || in_right == 0) return false;
  // The right leaf of an unfinished split has only entries of the left one. So one of them decides.
  if (same_as(std::countr_zero(in_right)) == 0) return false;
  std::uint64_t drop = 0;
  for (std::uint64_t rest = in_right; rest != 0; rest &= rest - 1) {
    drop |= same_as(std::countr_zero(rest));
    if (TENUTO_PLANT("store_recovery_drops_one_moved_entry")) break;
  }
  const std::uint64_t kept = in_left & ~drop;
  publish(left.head.bitmap, bitmap_word(left.head.bitmap, kept, fingerprints_of(left, kept)));
  return true;
}

}  // namespace TENUTO_NS::store
