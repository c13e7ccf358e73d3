// The bytes of every format, as literals. A change of one of them is a change of the format: it
// needs another layout version and a pool of the version before (pools/README.md).
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "frame/format.h"
#include "heap/format.h"
#include "journal/format.h"
#include "pm/format.h"
#include "pm/log.h"
#include "store/kv/catalog.h"
#include "store/tree/format.h"
#include "store/tree/hash.h"
#include "store/tree/record.h"
#include "tenuto/concurrent_hash_map.h"
#include "tenuto/hash_map.h"
#include "tenuto/inline_string.h"
#include "tenuto/ordered_map.h"
#include "tx/format.h"

namespace tenuto::test {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto b = static_cast<unsigned char>(c);
    text += {kDigits[b >> 4], kDigits[b & 15]};
  }
  return text;
}
template <class T>
std::string bytes_of(const T& t) {
  static_assert(pm::OnMedia<T>);
  return hex({reinterpret_cast<const char*>(&t), sizeof t});
}

constexpr PoolOffset kPlace{0x123456789ab8};

TEST(GoldenBytes, superblock_and_log_line) {
  pm::Superblock s{};
  s.magic = pm::kPoolMagic;
  s.version = pm::kLayoutVersion;
  s.byte_order = pm::kByteOrderMark;
  s.line_bytes = 64;
  s.pool_id = 0x1122334455667788;
  EXPECT_EQ(bytes_of(s).substr(0, 96),
            "54454e55544f31000500000004030201400000000000000000000000000000008877665544332211000000"
            "0000000000");
  const std::uint64_t words[7] = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(pm::log_seal(words, 9), 0x9842bu);
  EXPECT_EQ(pm::crc32c("123456789", 9), 0xe3069283u) << "the check value of CRC-32C";
}

TEST(GoldenBytes, journal) {
  pm::JournalHeader h{};
  h.magic = pm::kJournalMagic;
  h.version = pm::kJournalVersion;
  h.byte_order = pm::kByteOrderMark;
  h.ring_bytes = 1 << 20;
  h.state = static_cast<std::uint32_t>(pm::JournalState::running);
  EXPECT_EQ(bytes_of(h).substr(0, 64),
            "4a4f55524e4c3100020000000403020100000000000000000000100000000000");
  EXPECT_EQ(pm::crc_of(h), 0x34ea65ecu);
  pm::JournalBlock b{};
  b.magic = pm::kJournalBlockMagic;
  b.number = 3;
  b.lines = 2;
  EXPECT_EQ(bytes_of(b).substr(0, 32), "4a4e424c4f434b000000000000000000");
  EXPECT_EQ(pm::crc_of(b, pm::salt_of(1, 2, 3)), 0xd3b1162au);
}

TEST(GoldenBytes, frames) {
  const auto pair = frame::ChildPair::make(frame::Child::make(300), frame::Child::make_whole());
  EXPECT_EQ(bytes_of(pair), "2c010080");
}

TEST(GoldenBytes, heap) {
  const heap::SlabShape shape{{5, 1, 9}, {7, 9, 12}};
  EXPECT_EQ(heap::ShapeWord::make(shape, {1 << 20}).raw, 0x424001824712045u);
  const auto head = heap::IntentHead::make(heap::IntentOp::swap, heap::IntentForm::run, 3, 77);
  EXPECT_EQ(head.raw, 0x4d0315u);
  EXPECT_EQ(heap::BookEntry::make_extent(heap::BookType::logged, {12288}, 7, true).raw,
            0x800000003000001du);
}

TEST(GoldenBytes, transaction_line_and_undo_entry) {
  const std::uint64_t salt = tx::salt_of(LaneId{3}, tx::WordPlace::log_frame, 1);
  EXPECT_EQ(tx::SealedWord::make(1234567, salt), 0x12d687c194u);
  EXPECT_EQ(tx::EntryHead::make(tx::EntryKind::undo, kPlace, 48).raw, 0x123456789ab83001u);
  EXPECT_EQ(tx::EntryHead::make(tx::EntryKind::prepared, {0}, sizeof(tx::TxnName)).raw, 0x1804u);
  EXPECT_EQ(offsetof(tx::TxLine, decisions), 32u);
  EXPECT_EQ(pm::kVariantJoint, 0x200u);
  EXPECT_EQ(pm::kVariantDamaged, 0x400u);
  EXPECT_EQ(pm::kVariantLeafLost, 0x800u);
}

TEST(GoldenBytes, leaf) {
  EXPECT_EQ(store::SlotWord::make(kPlace, 0xfedc).raw, 0xfedc123456789abbu);
  EXPECT_EQ(store::HeaderWord::make(0xabcdef, 64).raw, 0x2e87000000abcdefu);
  store::UsedFingerprints used{};
  used.of[1] = 0x77;
  EXPECT_EQ(store::HeaderWord::make(2, 64, used).raw, 0x5abb000000000002u);
  const store::KeyHash hash = store::hash_key("a key of some bytes");
  EXPECT_EQ(hash.fingerprint, 187);
  EXPECT_EQ(hash.slot, 0x4cccu);
}

TEST(GoldenBytes, separator_and_counts) {
  EXPECT_EQ(store::LowSeparator::make_head(9, {0x1234}), 0x24680009u);
  EXPECT_EQ(bytes_of(store::TreeCounts::make(kPlace, 10, 1000)),
            "0a00000000000000e803000000000000010000009e0bb167");
}

TEST(GoldenBytes, record) {
  EXPECT_EQ(store::record_check(kPlace, "key", "value"), 0x3072u);
  EXPECT_EQ(store::RecordHead::make(3, 5, 0xabcd).raw, 0xabcd0000000a0003u);
}

TEST(GoldenBytes, catalog_and_store_word) {
  store::CatalogEntry entry;
  entry.name = "authors";
  entry.id = {7};
  entry.first_leaf = kPlace;
  entry.spec.order = KeyOrder::reverse_u64;
  entry.spec.duplicates = true;
  EXPECT_EQ(hex(store::encode_entry(entry)), "b89a7856341200000700000000000000020401009f2381a5");
  EXPECT_EQ(store::StoreWord::make(KeyOrder::u64, true, kPlace).raw, 0x1ee0ba4d00010102u);
}

// The first bytes of an object that zeroes were before.
template <class T, class Fill>
std::string first_bytes(std::size_t bytes, Fill&& fill) {
  alignas(64) std::byte place[sizeof(T)] = {};
  fill(*new (place) T);
  return hex({reinterpret_cast<const char*>(place), bytes});
}

// Nodes and heads of containers. pools/0.2/containers has whole ones.
TEST(GoldenBytes, containers) {
  using Number = std::uint64_t;
  using Bucket = slots::Bucket<Number, Number>;
  using Leaf = slots::Leaf<Number, Number>;
  using Inner = slots::Inner<Number>;
  EXPECT_EQ(slots::hash_number(7), 1346066267577507604u);
  EXPECT_EQ(slots::hash_bytes("a key of some bytes"), 3732671410319807637u);
  EXPECT_EQ(slots::hash_bytes(""), 11912144113143032851u);
  EXPECT_EQ(first_bytes<Bucket>(32,
                                [](Bucket& b) {
                                  b.tags = slots::Tags().filled(0, 0xab).filled(1, 0xcd).word();
                                  b.more = &b;
                                  b.slot[0] = {5, 6};
                                }),
            "abcd000000000003f1ffffffffffffff05000000000000000600000000000000");
  EXPECT_EQ(first_bytes<Leaf>(32,
                              [](Leaf& l) {
                                l.order = slots::Permutation().inserted(0).inserted(0).word();
                                l.next = &l;
                                l.slot[0] = {5, 6};
                              }),
            "1220436587a9cbedf1ffffffffffffff05000000000000000600000000000000");
  EXPECT_EQ(first_bytes<Inner>(24,
                               [](Inner& i) {
                                 i.order = slots::Permutation().inserted(0).word();
                                 i.slot[0].key = 5;
                                 i.slot[0].child = &i;
                               }),
            "0121436587a9cbed0500000000000000e1ffffffffffffff");
  EXPECT_EQ(sizeof(Bucket), 128u);
  EXPECT_EQ(sizeof(Leaf), 256u);
  EXPECT_EQ(sizeof(Inner), 248u);
  EXPECT_EQ(sizeof(OrderedMap<Number, Number>), 24u);
  EXPECT_EQ(sizeof(HashMap<Number, Number>), 24u);
  EXPECT_EQ(sizeof(ConcurrentHashMap<Number, Number>), 32 * 64u);
  EXPECT_EQ(first_bytes<InlineString<7>>(8, [](auto& s) { s = InlineString<7>("abc"); }),
            "0361626300000000");
}

}  // namespace
}  // namespace tenuto::test
