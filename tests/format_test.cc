// Golden bytes: the contents of a pool file must not change without a new layout version. The
// expected bytes were computed by hand from the field lists, not by this code.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "heap/format.h"
#include "heap/morph.h"
#include "heap/size_class.h"
#include "journal/format.h"
#include "pm/crc32c.h"
#include "pm/format.h"
#include "pm/log.h"
#include "tenuto/ptr.h"

namespace tenuto {
namespace {

std::string hex(const void* p, std::size_t n) {
  std::string s;
  char two[3];
  for (std::size_t i = 0; i < n; ++i) {
    std::snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(p)[i]);
    s += two;
  }
  return s;
}
template <class T>
std::string hex(const T& t) {
  return hex(&t, sizeof t);
}

constexpr std::uint64_t kPoolId = 0x1122334455667789;

TEST(Format, superblock) {
  pm::Superblock s{};
  s.magic = pm::kPoolMagic;
  s.version = pm::kLayoutVersion;
  s.byte_order = pm::kByteOrderMark;
  s.line_bytes = kLineBytes;
  s.state = static_cast<std::uint32_t>(pm::PoolState::running);
  s.sequence = 7;
  s.pool_id = kPoolId;
  s.created_unix_s = 1'700'000'000;
  s.stripes = 6;
  s.variant = 1;
  s.born_version = 4;
  s.life = 0x0102030405060709;
  s.journal_id = 0x1112131415161719;
  s.journal_life = 0x2122232425262729;
  s.journal_life_before = 0x3132333435363739;
  s.crc = pm::crc32c(&s, offsetof(pm::Superblock, crc));
  EXPECT_EQ(hex(s),
            "54454e55544f3100050000000403020140000000020000000700000000000000"
            "897766554433221100f153650000000006000000010000000400000000000000"
            "0907060504030201191716151413121129272625242322213937363534333231"
            "00000000000000000000000000000000000000000000000000000000b0f8cbbe");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(&s.magic)), "TENUTO1");
}

TEST(Format, journal_header_and_block) {
  pm::JournalHeader h{};
  h.magic = pm::kJournalMagic;
  h.version = pm::kJournalVersion;
  h.byte_order = pm::kByteOrderMark;
  h.pool_id = kPoolId;
  h.ring_bytes = 1 << 20;
  h.sequence = 5;
  h.journal_id = 0x1112131415161719;
  h.life = 0x2122232425262729;
  h.start = 4096;
  h.start_block = 3;
  h.state = static_cast<std::uint32_t>(pm::JournalState::closed);
  h.temporary = 1;
  std::strcpy(h.pool_path, "/p");
  h.crc = pm::crc_of(h);
  EXPECT_EQ(hex(&h, 88),
            "4a4f55524e4c3100020000000403020189776655443322110000100000000000"
            "0500000000000000191716151413121129272625242322210010000000000000"
            "030000000000000003000000010000002f70000000000000");
  EXPECT_EQ(hex(h.crc), "dc504178");
  pm::JournalBlock b{};
  b.magic = pm::kJournalBlockMagic;
  b.life = h.life;
  b.number = 3;
  b.position = 4096;
  b.kind = static_cast<std::uint32_t>(pm::JournalBlockKind::lines);
  b.lines = 2;
  b.raw_bytes = 130;
  b.packed_bytes = 100;
  b.payload_crc = 0x01020304;
  b.crc = pm::crc_of(b, pm::salt_of(h.pool_id, h.journal_id, h.life));
  EXPECT_EQ(hex(b),
            "4a4e424c4f434b00292726252423222103000000000000000010000000000000"
            "01000000020000008200000064000000040302010000000000000000664b7fe6");
}

TEST(Format, head_of_the_file) {
  EXPECT_EQ(pm::kHeadPageOffset, 8192u);
  EXPECT_EQ(pm::kZoneTableOffset, 12288u);
  EXPECT_EQ(pm::kJournalPageOffset, 61440u);
  EXPECT_EQ(pm::kLanesOffset, 65536u);
  EXPECT_EQ(pm::kHeadBytes, 589824u);
  EXPECT_EQ(pm::kZonesMax, 3072u);
  EXPECT_EQ(offsetof(pm::HeadPage, roots), 0u);
  EXPECT_EQ(offsetof(pm::HeadPage, zone_count), 64u);
  EXPECT_EQ(offsetof(pm::HeadPage, heap), 128u);
  EXPECT_EQ(offsetof(pm::HeadPage, store), 192u);
  EXPECT_EQ(offsetof(pm::HeadPage, layout), 256u);
  EXPECT_EQ(offsetof(pm::HeadPage, lane_segments), 320u);
  EXPECT_EQ(offsetof(pm::HeadPage, times), 832u);
  EXPECT_EQ(sizeof(pm::HeadPage), 896u);
  const pm::ZoneEntry zone{0x800000, 0x2000000};
  EXPECT_EQ(hex(zone), "00008000000000000000000200000000");
}

TEST(Format, lanes) {
  EXPECT_EQ(pm::kLanesPerSegment, 64u);
  EXPECT_EQ(pm::kLaneBytes, 8192u);
  EXPECT_EQ(pm::kLaneTxLine, 0u);
  EXPECT_EQ(pm::kLaneRetiredLine, 1u);
  EXPECT_EQ(pm::kLaneRetiredLines, 3u);
  EXPECT_EQ(pm::kLaneIntentLine, 4u);
  EXPECT_EQ(pm::kLaneIntentLines, 28u);
  EXPECT_EQ(pm::kLaneUndoLine, 32u);
  EXPECT_EQ(pm::kLaneUndoLines, 48u);
}

TEST(Format, log_line) {
  pm::LogLine line{};
  const std::uint64_t words[7] = {1, 0x100000, 0x2000, 64, 0, 0, ~0ull};
  pm::write_log_line(line, words, 0x0102030405);
  EXPECT_EQ(hex(line),
            "0100000000000000000010000000000000200000000000004000000000000000"
            "00000000000000000000000000000000ffffffffffffffff8e75050403020100");
}

TEST(Format, slab_header) {
  heap::SlabHeader h{};
  h.magic = heap::kSlabMagic;
  h.self = 0x120000;
  h.pool_id = kPoolId;
  h.kind = 1;
  h.stripes = 6;
  h.crc = heap::slab_crc(h);
  h.shape = heap::ShapeWord::make({{3, 1, 7}, {}}, {0x120000});
  EXPECT_EQ(hex(h),
            "544e54534c4142000000120000000000897766554433221101060000772f9e87"
            "43e0f003000076a1000000000000000000000000000000000000000000000000");
}

TEST(Format, slabs_are_cut_as_ever) {
  struct Cut {
    std::uint32_t bytes, stripes, want, data, blocks;
  };
  constexpr Cut kCuts[] = {
      {16, 6, 8, 576, 4060}, {32, 6, 6, 448, 2034},    {48, 6, 6, 448, 1356}, {64, 6, 6, 448, 1017},
      {128, 6, 6, 512, 508}, {4096, 6, 6, 4096, 15},   {16256, 6, 6, 512, 4}, {16, 1, 8, 576, 4060},
      {64, 1, 2, 192, 1021}, {16256, 32, 32, 2176, 3}, {16256, 1, 1, 128, 4},
  };
  for (const Cut& c : kCuts) {
    // Blocks are aligned to the largest power of two in their size, up to a frame.
    EXPECT_EQ(c.data % std::min(c.bytes & -c.bytes, 4096u), 0u);
    const heap::SlabGeometry g = heap::slab_geometry(c.bytes, c.stripes);
    EXPECT_EQ(g.stripes, c.want) << c.bytes << " in " << c.stripes;
    EXPECT_EQ(g.data_offset, c.data) << c.bytes << " in " << c.stripes;
    EXPECT_EQ(g.blocks, c.blocks) << c.bytes << " in " << c.stripes;
  }
  EXPECT_EQ(heap::kClasses, 37u);
  const std::array<std::uint32_t, 37> classes = {
      16,   32,   48,   64,   80,   96,   112,  128,  160,   192,   224,  256,  320,
      384,  448,  512,  640,  768,  896,  1024, 1280, 1536,  1792,  2048, 2560, 3072,
      3584, 4096, 4992, 5888, 6464, 7232, 8128, 9280, 10816, 12992, 16256};
  EXPECT_EQ(heap::kClassBytes, classes);
}

TEST(Format, slabs_of_typed_blocks_are_cut_as_ever) {
  struct Cut {
    std::uint32_t bytes, stripes, data, blocks;
  };
  constexpr Cut kCuts[] = {{16, 6, 22272, 2704}, {64, 6, 7680, 904},  {128, 6, 4352, 478},
                           {4096, 6, 4096, 15},  {7232, 6, 512, 8},   {16256, 6, 512, 4},
                           {16, 1, 22272, 2704}, {64, 32, 9216, 880}, {16256, 32, 2176, 3}};
  for (const Cut& c : kCuts) {
    const heap::SlabGeometry g = heap::typed_geometry(c.bytes, c.stripes);
    EXPECT_EQ(g.data_offset, c.data) << c.bytes << " in " << c.stripes;
    EXPECT_EQ(g.blocks, c.blocks) << c.bytes << " in " << c.stripes;
  }
  for (const std::uint32_t bytes : heap::kClassBytes) {
    for (std::uint32_t stripes = 1; stripes <= heap::kStripesMax; ++stripes) {
      const heap::SlabGeometry g = heap::typed_geometry(bytes, stripes);
      EXPECT_EQ(g.stripes, heap::slab_geometry(bytes, stripes).stripes);
      EXPECT_LE((1 + g.stripes) * kLineBytes + g.blocks * 8, g.data_offset);
      EXPECT_LE(g.data_offset + std::uint64_t{g.blocks} * bytes, heap::kSlabBytes);
      // Each block has its own type word, and no other words are between them.
      heap::Slab slab(heap::kBlocksMax / 64);
      std::vector<std::uint64_t> frame(heap::kSlabBytes / 8);
      slab.header = reinterpret_cast<heap::SlabHeader*>(frame.data());
      slab.shape.now.end_line = static_cast<std::uint8_t>(1 + g.stripes);
      slab.stripes = g.stripes;
      slab.stripe_divider = ((1u << 20) + g.stripes - 1) / g.stripes;
      slab.blocks = g.blocks;
      std::set<const std::uint64_t*> words;
      for (unsigned i = 0; i < g.blocks; ++i) words.insert(&slab.type_word(i));
      ASSERT_EQ(words.size(), g.blocks);
      EXPECT_EQ(*words.begin(), frame.data() + 8 * (1 + g.stripes));
      EXPECT_EQ(*words.rbegin(), *words.begin() + g.blocks - 1);
    }
  }
}

TEST(Format, bookkeeping_log) {
  using heap::BookEntry;
  using heap::BookPosition;
  using heap::BookType;
  EXPECT_EQ(BookEntry::make_extent(BookType::logged, {0x400000}, 5).raw, 0x0000004000000015u);
  EXPECT_EQ(BookEntry::make_extent(BookType::derived, {0x400000}, 1024).raw, 0x0000004000001002u);
  EXPECT_EQ(BookEntry::make_extent(BookType::logged, {0x400000}, 5, true).raw, 0x8000004000000015u);
  EXPECT_EQ(BookPosition::make(0x2c1, 119).value, 0x160f7u);
  EXPECT_EQ(BookEntry::make_tombstone({0x1234}).raw, 0x48d3u);
  EXPECT_EQ(sizeof(heap::BookChunk), 1024u);
  EXPECT_EQ(heap::kBookChunkEntries, 120u);
  // Entries next to each other are in different lines.
  heap::BookChunk c{};
  const auto at = [&](unsigned i) {
    return reinterpret_cast<const char*>(&c.entry(i)) - reinterpret_cast<const char*>(&c);
  };
  EXPECT_EQ(at(0), 64);
  EXPECT_EQ(at(1), 128);
  EXPECT_EQ(at(14), 960);
  EXPECT_EQ(at(15), 72);
  EXPECT_EQ(at(119), 1016);
  const heap::BookHead head{{1, 2}, 1, 3, {}, {}, 0};
  EXPECT_EQ(hex(&head, 32), "0100000000000000020000000000000001000000000000000300000000000000");
}

// A pointer's word encodes the distance to its target, so golden values need no pool.
TEST(Format, pointer_words) {
  PtrWord w[4];
  EXPECT_EQ(PtrWord::encode(&w[0], nullptr), 0u);
  EXPECT_EQ(PtrWord::encode(&w[0], &w[0]), 1u);
  EXPECT_EQ(PtrWord::encode(&w[0], &w[2]), 33u);
  EXPECT_EQ(PtrWord::encode(&w[2], &w[0]), ~0ull - 30u);
}

}  // namespace
}  // namespace tenuto
