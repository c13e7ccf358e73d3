// What the store puts on media: leaves, their low separators, records, and one line of the pool's
// head page. All integers are little-endian.
//
//   HeadPage.store[0]             offset of the first leaf; 0: the pool has no store. Commits the
//                                 creation.
//   HeadPage.roots[kRootStore]    the same, written after it
//   HeadPage.store[1]             StoreWord: version, key order, whether there is a catalog, check.
//                                 Commits the creation of the catalog.
//   HeadPage.store[2]             records                        written by a clean close
//   HeadPage.store[3]             bytes of keys and values       written by a clean close
//   HeadPage.store[4]             HeaderWord: offset of the catalog's first leaf
//   HeadPage.roots[kRootCatalog]  the same, plain, written after it
//   HeadPage.store[5]             HeaderWord: the next collection's id
//   HeadPage.store[6]             HeaderWord: the life that left the default collection's image
//                                 (image.h)                      written by a clean close
//
// A store has several trees. The head page names the default collection and, once there are other
// collections, the catalog. The catalog names the trees of these (catalog.h).
//
// The leaves of a tree form a chain in key order. A leaf holds the keys from its low separator
// (inclusive) to the next leaf's (exclusive), in no order. The first leaf is never unlinked. Its
// separator is empty, and the separator's line holds the tree's counts.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pm/crc32c.h"
#include "pm/format.h"
#include "tenuto/abi.h"
#include "tenuto/kv.h"
#include "tenuto/units.h"

namespace TENUTO_NS::store {

inline constexpr std::uint64_t kOffsetMask = (1ull << 48) - 1;

// One word names a record and has 16 bits of its key's hash. So a fingerprint that matches by
// chance costs no record line. Records are aligned to eight bytes. The three bits below are a check
// that any single flipped bit of the rest fails. Without the check a flipped bit of the offset may
// lead to an older record of the same key, and one of the hash hides the record. Check 0: written
// by 0.1.0, without a check.
struct SlotWord {
  std::uint64_t raw;

  static constexpr unsigned kCheckBits = 3;
  static constexpr std::uint64_t kCheckMask = (1ull << kCheckBits) - 1;

  // A flipped bit changes the remainder, because no power of two is a multiple of 7.
  static constexpr std::uint64_t check_of(std::uint64_t raw) { return 1 + (raw >> kCheckBits) % 7; }
  static constexpr SlotWord make(PoolOffset record, std::uint16_t hash) {
    const std::uint64_t word = record.value | static_cast<std::uint64_t>(hash) << 48;
    return {word | check_of(word)};
  }
  constexpr PoolOffset record() const { return {raw & kOffsetMask & ~kCheckMask}; }
  constexpr std::uint16_t hash() const { return static_cast<std::uint16_t>(raw >> 48); }
  constexpr bool sound() const {
    const std::uint64_t check = raw & kCheckMask;
    return check == 0 || check == check_of(raw);
  }
};
static_assert(pm::OnMedia<SlotWord> && sizeof(SlotWord) == 8);
static_assert(SlotWord::make({0x123456789ab8}, 0xfedc).record().value == 0x123456789ab8);
static_assert(SlotWord::make({0x123456789ab8}, 0xfedc).hash() == 0xfedc);
static_assert(SlotWord::make({0x123456789ab8}, 0xfedc).sound());

inline constexpr unsigned kSlots = 48;
inline constexpr unsigned kSlotsPerLine = 8;
inline constexpr std::uint64_t kBitmapMask = (1ull << kSlots) - 1;
inline constexpr std::size_t kLowInlineMax = 56;

// The fingerprints of a leaf; 0 where the slot is not in use.
struct UsedFingerprints {
  std::uint8_t of[kSlots];

  std::uint32_t crc(std::uint32_t from) const {
    for (unsigned i = 0; i < kSlots; i += sizeof(std::uint64_t)) {
      std::uint64_t w;
      std::memcpy(&w, of + i, sizeof w);
      from = pm::crc32c_u64(from, w);
    }
    return from;
  }
};

// A word of a leaf's header: 48 bits, and above them a checksum. The checksum is salted with the
// word's place and is never 0. So a zeroed, flipped or misplaced word is not taken for an empty
// leaf or for the end of the chain. Otherwise a damaged link would silently lose all leaves behind
// it.
struct HeaderWord {
  std::uint64_t raw;

  static HeaderWord make(std::uint64_t value, std::uint64_t salt) {
    return sealed(value, pm::crc32c_u64(pm::crc32c_u64(~0u, salt), value));
  }
  // For a bitmap: the checksum also covers the fingerprints by which lookups go.
  static HeaderWord make(std::uint64_t value, std::uint64_t salt,
                         const UsedFingerprints& fingerprints) {
    return sealed(value, fingerprints.crc(pm::crc32c_u64(pm::crc32c_u64(~0u, salt), value)));
  }
  std::uint64_t value() const { return raw & kOffsetMask; }
  bool sound(std::uint64_t salt) const { return raw == make(value(), salt).raw; }

 private:
  static HeaderWord sealed(std::uint64_t value, std::uint32_t crc) {
    const std::uint64_t check = (crc ^ crc >> 16) & 0xffff;
    return {value | (check == 0 ? 0xffff : check) << 48};
  }
};
static_assert(pm::OnMedia<HeaderWord> && sizeof(HeaderWord) == 8);

// One line. Its stores, durable in order, commit inserts, erases and splits.
struct LeafHeader {
  HeaderWord bitmap;  // bit i: slot i names a record; the checksum covers its fingerprint
  HeaderWord next;    // offset of the next leaf; 0: the last
  std::uint8_t fingerprint[kSlots];  // meaningless where the bit is 0, else never 0
};
static_assert(pm::OnMedia<LeafHeader> && sizeof(LeafHeader) == kLineBytes);

// The tree of a leaf: 0 the default collection, 1 the catalog, then the collections in the order in
// which they were made. Never used twice in a pool.
struct TreeId {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const TreeId&) const = default;
};
inline constexpr TreeId kDefaultTree{0};
inline constexpr TreeId kCatalogTree{1};
inline constexpr TreeId kFirstCollection{2};

// The low separator. It does not change while the leaf is in use. A long one is in a block of its
// own, whose offset is in the first eight bytes of `data`.
struct LowSeparator {
  std::uint32_t head;   // 17 bits of length, 15 bits of the tree's id
  std::uint32_t check;  // crc32c of the leaf's offset, the tree's id if it is not 0, the separator
  char data[kLowInlineMax];

  static constexpr unsigned kLengthBits = 17;
  static constexpr std::uint32_t make_head(std::size_t bytes, TreeId tree) {
    return static_cast<std::uint32_t>(bytes) | static_cast<std::uint32_t>(tree.value)
                                                   << kLengthBits;
  }
  constexpr std::size_t bytes() const { return head & ((1u << kLengthBits) - 1); }
  constexpr bool may_be_of(TreeId tree) const {
    return head >> kLengthBits == make_head(0, tree) >> kLengthBits;
  }
};
static_assert(LowSeparator{LowSeparator::make_head(65536, {0x12345}), 0, {}}.bytes() == 65536);
static_assert(LowSeparator{LowSeparator::make_head(9, {0x12345}), 0, {}}.may_be_of({0x12345}));
static_assert(pm::OnMedia<LowSeparator> && sizeof(LowSeparator) == kLineBytes);

struct Leaf {
  LeafHeader head;
  SlotWord slot[kSlots];
  LowSeparator low;
};
static_assert(pm::OnMedia<Leaf> && sizeof(Leaf) == 8 * kLineBytes);

// What the image of a clean close keeps of a leaf, beside its place (image.h).
struct KeptLeaf {
  static constexpr std::uint8_t kUnknown = 0xff;  // no slot has this number

  std::uint32_t check;        // content_check() of it; 0: nothing is kept
  std::uint8_t slot[kSlots];  // those in use, by key; kUnknown first: the order is not known

  static constexpr KeptLeaf nothing() { return {0, {kUnknown}}; }
};
static_assert(pm::OnMedia<KeptLeaf> && sizeof(KeptLeaf) == 52);
static_assert(offsetof(Leaf, slot) == kLineBytes && offsetof(Leaf, low) == 7 * kLineBytes);

// What a tree held at the last clean close. Meaningless after a crash. The counts are in `data` of
// the first leaf's separator, which is empty. Those of the default collection are in the head page.
struct TreeCounts {
  std::uint64_t records;
  std::uint64_t record_bytes;  // or kNotCounted
  std::uint64_t check;

  // Recovery does not read the records, and a close does not read them for their sizes.
  static constexpr std::uint64_t kNotCounted = ~std::uint64_t{0};

  static TreeCounts make(PoolOffset first_leaf, std::uint64_t records, std::uint64_t bytes) {
    std::uint32_t crc = pm::crc32c_u64(~0u, first_leaf.value);
    crc = pm::crc32c_u64(pm::crc32c_u64(crc, records), bytes);
    return {records, bytes, std::uint64_t{crc} << 32 | 1};
  }
  bool sound(PoolOffset first_leaf) const {
    return check == make(first_leaf, records, record_bytes).check;
  }
};
static_assert(pm::OnMedia<TreeCounts> && sizeof(TreeCounts) <= kLowInlineMax);

// The head of a record block. Key and value follow it. If value_field is all ones, an 8-byte length
// comes before them. A 16-byte key with a 100-byte value makes 124 bytes: two lines.
struct RecordHead {
  std::uint64_t raw;

  static constexpr std::uint64_t kKeyBits = 17;
  static constexpr std::uint64_t kValueBits = 31;
  static constexpr std::uint64_t kLongValue = (1ull << kValueBits) - 1;

  static constexpr RecordHead make(std::uint64_t key_bytes, std::uint64_t value_field,
                                   std::uint16_t check) {
    return {key_bytes | value_field << kKeyBits |
            static_cast<std::uint64_t>(check) << (kKeyBits + kValueBits)};
  }
  constexpr std::uint64_t key_bytes() const { return raw & ((1ull << kKeyBits) - 1); }
  constexpr std::uint64_t value_field() const { return raw >> kKeyBits & kLongValue; }
  constexpr std::uint16_t check() const {
    return static_cast<std::uint16_t>(raw >> (kKeyBits + kValueBits));
  }
};
static_assert(pm::OnMedia<RecordHead> && sizeof(RecordHead) == 8);
static_assert(RecordHead::make(65536, RecordHead::kLongValue, 0xabcd).key_bytes() == kKeyBytesMax);
static_assert(RecordHead::make(65536, 77, 0xabcd).value_field() == 77);
static_assert(RecordHead::make(65536, 77, 0xabcd).check() == 0xabcd);

// HeadPage.store[1]. A library without collections expects another word when there is a catalog,
// and refuses the pool. Without a catalog the word is the same as before.
struct StoreWord {
  std::uint64_t raw;

  static constexpr std::uint64_t kVersion = 1;
  static constexpr std::uint64_t kHasCatalog = 1ull << 16;
  static constexpr std::uint64_t kOneFence = 1ull << 17;  // of version 0.1.0: refused (refused.h)
  static StoreWord make(KeyOrder order, bool catalog, PoolOffset first_leaf,
                        std::uint64_t also = 0) {
    const std::uint64_t fields =
        kVersion << 8 | static_cast<std::uint64_t>(order) | (catalog ? kHasCatalog : 0) | also;
    const std::uint32_t check = pm::crc32c_u64(pm::crc32c_u64(~0u, fields), first_leaf.value);
    return {fields | static_cast<std::uint64_t>(check) << 32};
  }
  KeyOrder order() const { return static_cast<KeyOrder>(raw & 0xff); }
  std::uint64_t version() const { return raw >> 8 & 0xff; }
  bool has_catalog() const { return (raw & kHasCatalog) != 0; }
  bool sound(PoolOffset first_leaf) const {
    const bool order_known = order() == KeyOrder::bytes || order() == KeyOrder::u64;
    return order_known && raw == make(order(), has_catalog(), first_leaf).raw;
  }
  bool of_one_fence(PoolOffset first_leaf) const {
    return raw == make(order(), has_catalog(), first_leaf, kOneFence).raw;
  }
};
static_assert(pm::OnMedia<StoreWord> && sizeof(StoreWord) == 8);

inline constexpr std::size_t kHeadFirstLeaf = 0;
inline constexpr std::size_t kHeadWord = 1;
inline constexpr std::size_t kHeadRecords = 2;
inline constexpr std::size_t kHeadRecordBytes = 3;
inline constexpr std::size_t kHeadCatalog = 4;
inline constexpr std::size_t kHeadNextId = 5;
inline constexpr std::size_t kHeadImageLife = 6;

}  // namespace TENUTO_NS::store
