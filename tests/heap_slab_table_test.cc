// The table of slabs that a clean close leaves in free frames (src/heap/slab_table.cc). Who needs
// the slabs first reads the table instead of them, and believes nothing of it that is not proven.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "heap/format.h"
#include "pm/crc32c.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 4000;
constexpr std::size_t kName =
    pm::kHeadPageOffset + offsetof(pm::HeadPage, heap) + offsetof(heap::BookHead, table);

class HeapSlabTable : public KvFixture {
 protected:
  static void fill(Store& s, int from, int to, int size) {
    for (int i = from; i < to; ++i) {
      ASSERT_EQ(s.put(key_of(i), std::string(static_cast<std::size_t>(size + i % 50), 'v')),
                Status::ok);
    }
  }
  void closed_store() {
    Store s = opened();
    fill(s, 0, kKeys, 30);
    ASSERT_EQ(s.close(), Status::ok);
  }
  static std::size_t part_in(const Bytes& b) {
    return word_at(b, kName + offsetof(heap::SlabTableName, part));
  }
  // The seals of all slabs of derived blocks, each of which would be an error to who reads it.
  void break_slabs() {
    Bytes b = read_image(path_.str());
    const std::uint64_t magic = word_at(b, leaves_of(b)[0] / heap::kSlabBytes * heap::kSlabBytes);
    for (std::size_t at = heap::kSlabBytes; at + heap::kSlabBytes <= b.size();
         at += heap::kSlabBytes) {
      const bool slab = word_at(b, at) == magic && word_at(b, at + 8) == at;
      const auto kind = b[at + offsetof(heap::SlabHeader, kind)];
      if (slab && kind == static_cast<unsigned char>(heap::Kind::derived))
        b[at + offsetof(heap::SlabHeader, closed_crc)] ^= 1;
    }
    write_image(path_.str(), b);
  }
  // Writes everything anew, which takes blocks from every slab that has free ones.
  void expect_sound(Store& s) {
    const Records before = records_of(s);
    EXPECT_EQ(before.size(), std::size_t{kKeys});
    expect_valid(s);
    fill(s, kKeys, 2 * kKeys, 30);
    Records after = records_of(s);
    for (const auto& [key, value] : before) ASSERT_EQ(after[key], value) << key;
    for (int i = kKeys; i < 2 * kKeys; ++i) ASSERT_EQ(s.erase(key_of(i)), Status::ok);
    expect_valid(s);
  }
};

TEST_F(HeapSlabTable, stands_for_the_slabs) {
  closed_store();
  for (int life = 0; life < 3; ++life) {  // the second one finds the table that the first one left
    break_slabs();
    Store s = opened();
    EXPECT_EQ(s.put(key_of(0), "new"), Status::ok);
    EXPECT_EQ(records_of(s).size(), std::size_t{kKeys});
    ASSERT_EQ(s.close(), Status::ok);
  }
}

TEST_F(HeapSlabTable, is_named_again_by_a_life_that_needs_no_slab) {
  closed_store();
  break_slabs();
  for (int life = 0; life < 3; ++life) {
    Store s = opened();
    EXPECT_EQ(records_of(s).size(), std::size_t{kKeys});
    ASSERT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  EXPECT_EQ(s.put(key_of(0), "new"), Status::ok);
}

TEST_F(HeapSlabTable, does_not_hide_damage_from_a_check) {
  closed_store();
  break_slabs();
  Store s = opened();
  Report r;
  EXPECT_EQ(s.validate(&r), Status::corrupt);
  EXPECT_NE(r.text().find("the bits of a slab"), std::string::npos) << r.text();
}

// As pools are that a build closed which knows no table: it leaves the name of an older one, of
// which some blocks that are in use now were free.
TEST_F(HeapSlabTable, of_an_older_close_is_ignored) {
  closed_store();
  Bytes b = read_image(path_.str());
  heap::SlabTableName name;
  std::memcpy(&name, &b[kName], sizeof name);
  heap::SlabTablePart part;
  std::memcpy(&part, &b[name.part], sizeof part);
  std::memset(&b[name.part + sizeof part + 8], 0, 8);  // 64 blocks of the first slab
  name.seal = heap::BookSeal::make((name.seal.raw >> 32) - 1,
                                   pm::crc32c(&b[name.part], sizeof part + part.words * 8));
  std::memcpy(&b[kName], &name, sizeof name);
  write_image(path_.str(), b);
  Store s = opened();
  expect_sound(s);
}

TEST_F(HeapSlabTable, counts_only_where_it_is_whole) {
  closed_store();
  const Bytes sound = read_image(path_.str());
  const std::size_t part = part_in(sound);
  ASSERT_NE(part, 0u);
  std::vector<std::size_t> bytes;
  for (std::size_t i = 0; i < sizeof(heap::SlabTableName); ++i) bytes.push_back(kName + i);
  for (std::size_t i = 0; i < sizeof(heap::SlabTablePart); i += 3) bytes.push_back(part + i);
  for (std::size_t i = sizeof(heap::SlabTablePart); i < 900; i += 41) bytes.push_back(part + i);
  for (const std::size_t at : bytes) {
    Bytes b = sound;
    b[at] ^= static_cast<unsigned char>(1u << at % 8);
    write_image(path_.str(), b);
    SCOPED_TRACE("byte " + std::to_string(at));
    Store s = opened();
    expect_sound(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

// Its frames are free: what a life takes from them before it needs a slab is not the table's.
TEST_F(HeapSlabTable, may_be_overwritten_by_the_next_life) {
  closed_store();
  Bytes b = read_image(path_.str());
  std::fill_n(b.begin() + static_cast<std::ptrdiff_t>(part_in(b)), heap::kSlabBytes, 0x5a);
  write_image(path_.str(), b);
  Store s = opened();
  expect_sound(s);
}

// The bits of some 250 slabs of the smallest records fill a part.
TEST_F(HeapSlabTable, of_many_slabs_has_parts) {
  options_.pool.size = 64u << 20;
  {
    Store s = opened();
    for (int i = 0; i < 600'000; ++i) ASSERT_EQ(s.put(key_of(i), ""), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  break_slabs();
  const Bytes b = read_image(path_.str());
  EXPECT_NE(word_at(b, part_in(b) + offsetof(heap::SlabTablePart, before)), 0u);
  Store s = opened();
  EXPECT_EQ(s.put(key_of(0), "new"), Status::ok);
}

TEST_F(HeapSlabTable, needs_a_free_frame) {
  options_.pool.size_max = options_.pool.size;
  Store s = opened();
  int n = 0;
  while (s.put(key_of(n), std::string(2000, 'v')) == Status::ok) n += 1;
  ASSERT_EQ(s.close(), Status::ok);
  Store again = opened();
  EXPECT_EQ(records_of(again).size(), static_cast<std::size_t>(n));
  EXPECT_EQ(again.erase(key_of(0)), Status::ok);
  expect_valid(again);
}

}  // namespace
}  // namespace tenuto::test
