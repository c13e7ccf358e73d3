// Damage of the medium that the library once did not report, one test each. damage_fuzz flips every
// bit. These tests choose a bit, and name what it must not lead to.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "pm/plant.h"
#include "store/tree/hash.h"
#include "store/tree/leaf.h"
#include "store/tree/record.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/rescue.h"
#include "tenuto/snapshot.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 300;

std::string old_value(int i) { return "old " + key_of(i) + std::string(80, 'o'); }
std::string new_value(int i) { return "new " + key_of(i) + std::string(80, 'n'); }

class DamageTest : public KvFixture {
 protected:
  DamageTest() { options_.pool.size = 8u << 20; }

  // Each key is replaced once, so that a whole older record of it exists somewhere.
  Bytes image(bool killed = false) {
    ::unlink(path_.str().c_str());
    Store s = opened();
    for (int i = 0; i < kKeys; ++i) EXPECT_EQ(s.put(key_of(i), old_value(i)), Status::ok);
    for (int i = 0; i < kKeys; ++i) EXPECT_EQ(s.put(key_of(i), new_value(i)), Status::ok);
    if (killed) return read_image(path_.str());
    EXPECT_EQ(s.close(), Status::ok);
    return read_image(path_.str());
  }

  // The offset of the record of this key and value.
  static std::size_t record_at(const Bytes& b, int i, const std::string& value) {
    const std::string text = key_of(i) + value;
    const auto at = std::search(b.begin(), b.end(), text.begin(), text.end());
    EXPECT_NE(at, b.end()) << i;
    return static_cast<std::size_t>(at - b.begin()) - sizeof(store::RecordHead);
  }
  // The slot that names a record, with its leaf.
  struct Slot {
    std::size_t leaf = 0;
    unsigned number = 0;
    std::size_t at() const { return leaf + offsetof(store::Leaf, slot) + number * 8; }
    std::size_t fingerprint() const {
      return leaf + offsetof(store::LeafHeader, fingerprint) + number;
    }
  };
  static Slot slot_of(const Bytes& b, std::size_t record) {
    for (const std::size_t leaf : leaves_of(b)) {
      const std::uint64_t used = store::HeaderWord{word_at(b, leaf)}.value();
      for (unsigned i = 0; i < store::kSlots; ++i) {
        const Slot slot{leaf, i};
        const bool in_use = (used >> i & 1) != 0;
        if (in_use && store::SlotWord{word_at(b, slot.at())}.record().value == record) return slot;
      }
    }
    ADD_FAILURE() << "no slot names " << record;
    return {};
  }

  // Gives leaves and records the checksums that version 0.1.0 wrote.
  static void make_older(Bytes& b) {
    for (const std::size_t at : leaves_of(b)) {
      auto& leaf = reinterpret_cast<store::Leaf&>(b[at]);
      const std::uint64_t used = leaf.head.bitmap.value();
      leaf.head.bitmap = store::HeaderWord::make(used, at % pm::kMapAlignBytes);
      for (unsigned i = 0; i < store::kSlots; ++i) {
        store::SlotWord& word = leaf.slot[i];
        if ((used >> i & 1) == 0) continue;
        word.raw &= ~store::SlotWord::kCheckMask;
        auto& head = reinterpret_cast<store::RecordHead&>(b[word.record().value]);
        const auto* p = reinterpret_cast<const char*>(&head + 1);
        const std::string_view key(p, head.key_bytes());
        const std::string_view value(p + key.size(), head.value_field());
        head =
            store::RecordHead::make(key.size(), value.size(), store::record_check({}, key, value));
      }
    }
  }

  static std::size_t walk(Iterator it) {
    std::size_t n = 0;
    for (it.seek_first(); it.valid(); it.next()) ++n;
    return it.status() == Status::ok ? n : 0;
  }
  // Each use has its own store, because a store refuses further calls once it has found damage.
  void expect_all_report(const Bytes& b, int damaged) {
    const auto with = [&](const std::function<void(Store&)>& use) {
      write_image(path_.str(), b);
      Result<Store> s = open();
      if (s) return use(*s);
      EXPECT_EQ(s.error(), Status::corrupt) << report_.text();
    };
    std::string value;
    with([&](Store& s) { EXPECT_EQ(s.get(key_of(damaged), value), Status::corrupt); });
    with([&](Store& s) { EXPECT_EQ(walk(s.iterator()), 0u); });
    with([&](Store& s) { EXPECT_EQ(walk(s.snapshot()->iterator()), 0u); });
    with([&](Store& s) {
      Iterator it = s.iterator();
      for (it.seek_last(); it.valid();) it.prev();
      EXPECT_EQ(it.status(), Status::corrupt);
    });
    with([&](Store& s) {
      Report r;
      EXPECT_EQ(s.validate(&r), Status::corrupt);
      EXPECT_NE(r.where, "");
    });
    with([&](Store& s) {
      const TempPath copy("damage-copy");
      Report r;
      EXPECT_EQ(s.backup(copy.str(), options_.pool, &r), Status::corrupt);
      EXPECT_NE(r.what, "");
      EXPECT_NE(::access(copy.str().c_str(), F_OK), 0);
    });
    with([&](Store& s) { EXPECT_EQ(s.compact().error(), Status::corrupt); });
  }
};

TEST_F(DamageTest, a_key_that_was_changed_sorts_nowhere) {
  const Bytes sound = image();
  // The first byte changes: the key then belongs to an edge of its leaf, or to another leaf.
  for (const int i : {0, 17, kKeys / 2, kKeys - 1}) {
    for (const unsigned bit : {0u, 4u, 6u, 7u}) {
      Bytes b = sound;
      b[record_at(b, i, new_value(i)) + sizeof(store::RecordHead)] ^=
          static_cast<unsigned char>(1u << bit);
      SCOPED_TRACE(std::to_string(i) + " bit " + std::to_string(bit));
      expect_all_report(b, i);
    }
  }
}

TEST_F(DamageTest, a_split_refuses_a_leaf_with_a_damaged_key) {
  const Bytes sound = image();
  struct Flip {
    int key;
    std::size_t byte;
    unsigned char bit;
  };
  // The last key stays in its leaf's range, but a split would move it to the wrong half.
  for (const auto& [i, byte, bit] : {Flip{3, 5, 4}, Flip{150, 5, 4}, Flip{40, 7, 0x10}}) {
    Bytes b = sound;
    b[record_at(b, i, new_value(i)) + sizeof(store::RecordHead) + byte] ^= bit;
    write_image(path_.str(), b);
    Store s = opened();
    Status put = Status::ok;
    for (int n = 0; n < 100 && put == Status::ok; ++n) {
      put = s.put(key_of(i) + std::to_string(n), "beside it");
    }
    EXPECT_EQ(put, Status::corrupt);
    std::string value;
    EXPECT_EQ(s.get(key_of(i), value), Status::corrupt) << i;
    WriteBatch batch;
    for (int n = 0; n < 100; ++n) batch.put(key_of(i) + "b" + std::to_string(n), "beside it");
    EXPECT_EQ(s.write(batch), Status::corrupt);
  }
}

TEST_F(DamageTest, a_damaged_fingerprint_is_no_absent_key) {
  const Bytes sound = image();
#ifdef TENUTO_DEBUG_CHECKS
  plant("store_leaf_not_compared_with_the_kept");  // as after a crash
#endif
  for (const int i : {1, 99}) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      Bytes b = sound;
      b[slot_of(b, record_at(b, i, new_value(i))).fingerprint()] ^=
          static_cast<unsigned char>(1u << bit);
      expect_all_report(b, i);
    }
  }
#ifdef TENUTO_DEBUG_CHECKS
  unplant_all();
#endif
}

TEST_F(DamageTest, no_bit_of_a_slots_word_hides_its_key_or_shows_an_older_record) {
  const Bytes sound = image();
  const int i = 77;
  const Slot slot = slot_of(sound, record_at(sound, i, new_value(i)));
  for (unsigned bit = 0; bit < 64; ++bit) {
    Bytes b = sound;
    b[slot.at() + bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    write_image(path_.str(), b);
    Result<Store> s = open();
    std::string value;
    ASSERT_TRUE(s) << bit;  // its leaf is judged when a thread comes there
    const Status status = s->get(key_of(i), value);
    if (status == Status::ok) {
      // The flip turned the slot's check into the one of a slot word without a check.
      EXPECT_LT(bit, store::SlotWord::kCheckBits);
      EXPECT_EQ(value, new_value(i));
    } else {
      EXPECT_EQ(status, Status::corrupt);
      EXPECT_EQ(s->get(key_of(i) + "beside", value), Status::corrupt);
      EXPECT_EQ(s->put(key_of(i) + "beside", "value"), Status::corrupt);
      EXPECT_EQ(s->erase(key_of(i)), Status::corrupt);
      EXPECT_EQ(s->validate(&report_), Status::corrupt);
    }
  }
}

// In memory the shadow leaf has no copy of the slot words. So each reader judges the word it reads.
TEST_F(DamageTest, no_bit_of_a_slots_word_that_flips_in_an_open_store_hides_its_key) {
  const Bytes sound = image();
  const int i = 77;
  const Slot slot = slot_of(sound, record_at(sound, i, new_value(i)));
  options_.lookup_cache_bytes = 0;
  unsigned found = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    write_image(path_.str(), sound);
    Result<Store> s = open();
    ASSERT_TRUE(s);
    std::string value;
    ASSERT_EQ(s->get(key_of(i), value), Status::ok);  // from here on the leaf has a shadow leaf
    const std::size_t at = slot.at() + bit / 8;
    const auto flipped = static_cast<char>(sound[at] ^ 1u << bit % 8);
    std::fstream(path_.str(), std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(at))
        .put(flipped);
    const Status status = s->get(key_of(i), value);
    if (status == Status::ok) {
      EXPECT_LT(bit, store::SlotWord::kCheckBits);
      EXPECT_EQ(value, new_value(i));
      continue;
    }
    found += 1;
    EXPECT_EQ(status, Status::corrupt) << bit;
    const std::string key = key_of(i);
    const std::string_view keys[] = {key};
    EXPECT_EQ(s->multi_get(keys)[0].error(), Status::corrupt) << bit;
    Iterator it = s->iterator();
    for (it.seek_first(); it.valid(); it.next()) continue;
    EXPECT_EQ(it.status(), Status::corrupt) << bit;
    EXPECT_EQ(s->put(key_of(i), "value"), Status::corrupt) << bit;
    EXPECT_EQ(s->erase(key_of(i)), Status::corrupt) << bit;
    EXPECT_EQ(s->compact().error(), Status::corrupt) << bit;
    EXPECT_EQ(s->validate(&report_), Status::corrupt) << bit;
  }
  EXPECT_GT(found, 64 - store::SlotWord::kCheckBits - 1);
}

// A page may have been written to the wrong place.
TEST_F(DamageTest, an_older_record_at_the_place_of_the_newer_one_is_not_handed_out) {
  const Bytes sound = image();
  for (const int i : {270, kKeys - 1}) {  // the memory of their older records was not used again
    Bytes b = sound;
    const std::size_t bytes = sizeof(store::RecordHead) + key_of(i).size() + new_value(i).size();
    std::copy_n(&sound[record_at(sound, i, old_value(i))], bytes,
                &b[record_at(sound, i, new_value(i))]);
    expect_all_report(b, i);
    write_image(path_.str(), b);
    const TempPath fresh("damage-rescued");
    RescueOptions options;
    options.pool = options_.pool;
    RescueResult result;
    EXPECT_EQ(rescue(path_.str(), fresh.str(), options, result, &report_), Status::corrupt);
    Result<Store> rescued = Store::open(fresh.str(), options_);
    ASSERT_TRUE(rescued);
    EXPECT_EQ(rescued->contains(key_of(i)), Status::not_found);
    EXPECT_EQ(rescued->stats().records, std::uint64_t{kKeys - 1});
  }
}

TEST_F(DamageTest, a_value_that_was_changed_ends_backup_and_compaction_without_verified_reads) {
  Bytes b = image();
  b[record_at(b, 8, new_value(8)) + 60] ^= 1;
  options_.verify_reads = false;
  write_image(path_.str(), b);
  Store s = opened();
  const TempPath copy("damage-copy");
  EXPECT_EQ(s.backup(copy.str(), options_.pool, &report_), Status::corrupt);
  EXPECT_EQ(s.close(), Status::corrupt);
  write_image(path_.str(), b);
  Store again = opened();
  EXPECT_EQ(again.compact().error(), Status::corrupt);
}

// The key was sound when the store was opened and first walked over.
TEST_F(DamageTest, a_key_that_changes_under_an_open_store_is_reported) {
  const Bytes sound = image();
  const std::size_t at = record_at(sound, 120, new_value(120)) + sizeof(store::RecordHead);
  Store s = opened();
  EXPECT_EQ(walk(s.iterator()), std::size_t{kKeys});
  const int fd = ::open(path_.str().c_str(), O_RDWR | O_CLOEXEC);
  const char changed = static_cast<char>(sound[at] ^ 0x80);
  ASSERT_EQ(::pwrite(fd, &changed, 1, static_cast<off_t>(at)), 1);
  ::close(fd);
  EXPECT_EQ(walk(s.iterator()), 0u);
  std::string value;
  EXPECT_EQ(s.get(key_of(120), value), Status::corrupt);
  EXPECT_EQ(s.get(key_of(121), value), Status::ok);
}

// A whole record of another key, with a checksum for this place: an older state of the slot would
// name it. And a record whose value has changed. The cursor is inside their leaf already.
TEST_F(DamageTest, a_step_of_a_cursor_tells_what_is_not_the_record_of_its_slot) {
  const Bytes sound = image();
  constexpr int kHere = 120;
  const std::size_t at = record_at(sound, kHere, new_value(kHere));
  const std::size_t bytes =
      sizeof(store::RecordHead) + key_of(kHere).size() + new_value(kHere).size();
  for (const bool whole : {true, false}) {
    std::string changed(sound.begin() + static_cast<std::ptrdiff_t>(at),
                        sound.begin() + static_cast<std::ptrdiff_t>(at + bytes));
    changed[bytes - 9] ^= 1;
    if (whole) {
      const std::string key = key_of(kHere).substr(1) + "x";
      const store::RecordHead head = store::RecordHead::make(
          key.size(), new_value(kHere).size(), store::record_check({at}, key, new_value(kHere)));
      changed.assign(reinterpret_cast<const char*>(&head), sizeof head);
      changed += key + new_value(kHere);
    }
    for (const int way : {1, -1}) {
      write_image(path_.str(), sound);
      Store s = opened();
      EXPECT_EQ(walk(s.iterator()), std::size_t{kKeys});
      Iterator it = s.iterator();
      it.seek(key_of(kHere - way));
      const int fd = ::open(path_.str().c_str(), O_RDWR | O_CLOEXEC);
      ASSERT_EQ(::pwrite(fd, changed.data(), bytes, static_cast<off_t>(at)),
                static_cast<ssize_t>(bytes));
      ::close(fd);
      way > 0 ? it.next() : it.prev();
      EXPECT_FALSE(it.valid()) << "whole " << whole << ", way " << way;
      EXPECT_EQ(it.status(), Status::corrupt) << "whole " << whole << ", way " << way;
    }
  }
}

// A later write to the leaf must not give the damage a sound checksum.
TEST_F(DamageTest, a_fingerprint_that_changes_under_an_open_store_is_found_after_the_next_open) {
  const Bytes sound = image();
  const Slot slot = slot_of(sound, record_at(sound, 120, new_value(120)));
  {
    Store s = opened();
    EXPECT_EQ(s.contains(key_of(120)), Status::ok);
    const int fd = ::open(path_.str().c_str(), O_RDWR | O_CLOEXEC);
    const char changed = static_cast<char>(sound[slot.fingerprint()] ^ 8);
    ASSERT_EQ(::pwrite(fd, &changed, 1, static_cast<off_t>(slot.fingerprint())), 1);
    ::close(fd);
    EXPECT_EQ(s.put(key_of(120) + "beside", "value"), Status::ok);
    EXPECT_EQ(s.erase(key_of(120) + "beside"), Status::ok);
    EXPECT_EQ(s.contains(key_of(120)), Status::ok);
    EXPECT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  const Status status = s.contains(key_of(120));
  // Or a split wrote the leaf anew from its shadow leaf, which is sound.
  if (status == Status::ok) {
    expect_valid(s);
  } else {
    EXPECT_EQ(status, Status::corrupt);
  }
}

// Leaves and records as version 0.1.0 wrote them are read, and later writes replace them one by
// one.
TEST_F(DamageTest, checksums_of_the_version_before_are_believed) {
  Bytes b = image();
  make_older(b);
  write_image(path_.str(), b);
  {
    Store s = opened();
    EXPECT_EQ(walk(s.iterator()), std::size_t{kKeys});
    expect_valid(s);
    for (int i = 0; i < kKeys; i += 3) EXPECT_EQ(s.put(key_of(i), "newest"), Status::ok);
    for (int i = 1; i < kKeys; i += 9) EXPECT_EQ(s.erase(key_of(i)), Status::ok);
    for (int i = 0; i < 30; ++i) EXPECT_EQ(s.put(key_of(50) + key_of(i), "beside"), Status::ok);
    EXPECT_TRUE(s.compact());
    expect_valid(s);
    EXPECT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  EXPECT_EQ(walk(s.iterator()), std::size_t{kKeys - 34 + 30});
  expect_valid(s);
}

// The record of an erased key is in the place of another record: the number of records is right.
TEST_F(DamageTest, a_rescue_does_not_take_a_right_count_for_a_proof) {
  for (const bool older : {false, true}) {
    image();
    {
      Store s = opened();
      EXPECT_EQ(s.erase(key_of(9)), Status::ok);
      EXPECT_EQ(s.close(), Status::ok);
    }
    Bytes b = read_image(path_.str());
    if (older) make_older(b);
    const std::size_t bytes = sizeof(store::RecordHead) + key_of(9).size() + new_value(9).size();
    const std::size_t erased = record_at(b, 9, new_value(9));
    auto& head = reinterpret_cast<store::RecordHead&>(b[erased]);
    if (older) {
      head = store::RecordHead::make(head.key_bytes(), head.value_field(),
                                     store::record_check({}, key_of(9), new_value(9)));
    }
    std::copy_n(&b[erased], bytes, &b[record_at(b, 30, new_value(30))]);
    write_image(path_.str(), b);
    const TempPath fresh("damage-rescued");
    RescueOptions options;
    options.pool = options_.pool;
    RescueResult result;
    EXPECT_EQ(rescue(path_.str(), fresh.str(), options, result, &report_), Status::corrupt)
        << older;
    EXPECT_GT(result.losses_count, 0u);
  }
}

// The record is whole, but no lookup finds it.
// After a clean close the leaf would not be the one of the close.
TEST_F(DamageTest, a_record_in_the_wrong_leaf_ends_a_walk_and_a_compaction) {
  Bytes b = image(true);
  const Slot one = slot_of(b, record_at(b, 10, new_value(10)));
  const Slot other = slot_of(b, record_at(b, 250, new_value(250)));
  ASSERT_NE(one.leaf, other.leaf);
  std::swap_ranges(&b[one.at()], &b[one.at()] + 8, &b[other.at()]);
  std::swap(b[one.fingerprint()], b[other.fingerprint()]);
  for (const Slot& slot : {one, other}) {
    auto& leaf = reinterpret_cast<store::Leaf&>(b[slot.leaf]);
    const std::uint64_t used = leaf.head.bitmap.value();
    leaf.head.bitmap = store::HeaderWord::make(used, slot.leaf % pm::kMapAlignBytes,
                                               store::fingerprints_of(leaf, used));
  }
  write_image(path_.str(), b);
  {
    Store s = opened();
    EXPECT_EQ(walk(s.iterator()), 0u);
    EXPECT_EQ(s.validate(), Status::corrupt);
  }
  write_image(path_.str(), b);
  Store s = opened();
  EXPECT_EQ(s.compact().error(), Status::corrupt);
}

TEST_F(DamageTest, a_backup_that_lost_a_record_on_the_way_says_so) {
  image();
  Store s = opened();
  const TempPath copy("damage-copy");
#ifdef TENUTO_DEBUG_CHECKS
  {
    tenuto::plant("store_backup_loses_a_record");
    EXPECT_EQ(s.backup(copy.str(), options_.pool, &report_), Status::corrupt);
    EXPECT_EQ(report_.expected, std::to_string(kKeys));
    EXPECT_EQ(report_.found, std::to_string(kKeys - 1));
    unplant_all();
  }
#endif
  EXPECT_EQ(s.backup(copy.str(), options_.pool, &report_), Status::ok) << report_.text();
}

}  // namespace
}  // namespace tenuto::test
