// The image of a clean close, and the leaves that an open leaves to the first thread that comes
// there (store/tree/image.h, unmade.h).
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "heap/format.h"
#include "store/tree/format.h"
#include "store/tree/shadow_leaf.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/collection.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 2000;

class ImageTest : public KvFixture {
 protected:
  static std::string value_of(int i) { return "value " + std::to_string(i); }
  template <class S>
  static void fill(S&& s) {
    for (int i = 0; i < kKeys; ++i) ASSERT_EQ(s.put(key_of(i * 2), value_of(i)), Status::ok);
  }
  void closed_store() {
    Store s = opened();
    fill(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  // Whether the store has all of fill(), and nothing else.
  template <class S>
  static bool is_whole(S&& s) {
    Iterator it = s.iterator();
    int n = 0;
    for (it.seek_first(); it.valid(); it.next(), ++n) {
      if (it.key() != key_of(n * 2) || it.value() != value_of(n)) return false;
    }
    return it.status() == Status::ok && n == kKeys;
  }
  // Calls f(0) and f(1) in two threads, at the same time.
  template <class F>
  static void at_once(const F& f) {
    std::atomic<int> ready{0};
    const auto run = [&](int t) {
      ready.fetch_add(1);
      while (ready.load() < 2) continue;
      f(t);
    };
    std::thread other(run, 1);
    run(0);
    other.join();
  }
  // Where the image of the default collection is.
  static PoolOffset image_in(const Bytes& b) {
    return {store::HeaderWord{word_at(b, name_in(b))}.value()};
  }
  static std::size_t name_in(const Bytes& b) {
    return leaves_of(b)[0] + offsetof(store::Leaf, low.data) + sizeof(store::TreeCounts);
  }
};

TEST_F(ImageTest, an_open_reads_no_leaf_and_a_get_one) {
  closed_store();
  Store s = opened();
  const std::uint64_t leaves = s.stats().leaves;
  EXPECT_GT(leaves, 40u);
  EXPECT_EQ(s.stats().shadow_leaves, 0u);
  EXPECT_EQ(s.stats().records, std::uint64_t{kKeys});
  std::string value;
  EXPECT_EQ(s.get(key_of(600), value), Status::ok);
  EXPECT_EQ(value, value_of(300));
  EXPECT_EQ(s.get(key_of(600) + "x", value), Status::not_found);
  EXPECT_EQ(s.stats().shadow_leaves, 1u);
  const std::uint64_t bytes = s.stats().index_dram_bytes;
  EXPECT_TRUE(is_whole(s));
  EXPECT_EQ(s.stats().shadow_leaves, leaves);
  EXPECT_EQ(s.stats().index_dram_bytes - bytes, (leaves - 1) * sizeof(store::ShadowLeaf));
  expect_valid(s);
}

TEST_F(ImageTest, leaves_that_nobody_came_to_go_through_many_closes) {
  closed_store();
  for (int round = 0; round < 5; ++round) {
    Store s = opened();
    EXPECT_EQ(s.stats().shadow_leaves, 0u);
    ASSERT_EQ(s.put(key_of(0), value_of(0)), Status::ok);
    ASSERT_EQ(s.erase(key_of(2 * round + 2)), Status::ok);
    ASSERT_EQ(s.put(key_of(2 * round + 2), value_of(round + 1)), Status::ok);
    EXPECT_LE(s.stats().shadow_leaves, 2u);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  EXPECT_TRUE(is_whole(s));
  expect_valid(s);
}

TEST_F(ImageTest, its_block_is_given_back) {
  closed_store();
  const std::uint64_t with = opened().stats().pool.allocated_bytes;
  for (int i = 0; i < 20; ++i) {
    Store s = opened();
    expect_valid(s);
    EXPECT_EQ(s.stats().pool.allocated_bytes, with);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

TEST_F(ImageTest, one_of_another_version_is_given_back_and_is_no_damage) {
  plant("store_image_of_another_version");
  closed_store();
  unplant_all();
  std::string log;
  options_.pool.log = [&log](std::string_view line) { (log += line) += '\n'; };
  for (int round = 0; round < 3; ++round) {
    Store s = opened();
    EXPECT_TRUE(is_whole(s));
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  EXPECT_EQ(log.find("damaged"), std::string::npos) << log;
  Store s = opened();
  EXPECT_EQ(s.stats().shadow_leaves, 0u);
}

TEST_F(ImageTest, an_open_to_read_leaves_it_where_it_is) {
  closed_store();
  const Bytes before = read_image(path_.str());
  options_.pool.read_only = true;
  for (int i = 0; i < 2; ++i) {
    Store s = opened();
    EXPECT_EQ(s.stats().shadow_leaves, 0u);
    EXPECT_TRUE(is_whole(s));
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  EXPECT_TRUE(read_image(path_.str()) == before);
}

TEST_F(ImageTest, no_flipped_bit_of_it_changes_what_the_store_holds) {
  closed_store();
  const Bytes sound = read_image(path_.str());
  const PoolOffset at = image_in(sound);
  ASSERT_TRUE(at);
  std::vector<std::size_t> bits;
  for (std::size_t bit = 0; bit < 8 * 32; bit += 3) bits.push_back(8 * at.value + bit);
  for (std::size_t bit = 8 * 32; bit < 8 * 900; bit += 97) bits.push_back(8 * at.value + bit);
  const std::size_t name = name_in(sound);
  for (std::size_t bit = 0; bit < 64; ++bit) bits.push_back(8 * name + bit);
  for (const std::size_t bit : bits) {
    Bytes b = sound;
    b[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    write_image(path_.str(), b);
    for (int round = 0; round < 3; ++round) {
      Store s = opened();
      ASSERT_TRUE(is_whole(s)) << "bit " << bit << ", round " << round;
      if (round > 0) expect_valid(s);  // the lost block is free again
      ASSERT_EQ(s.close(), Status::ok);
    }
  }
}

TEST_F(ImageTest, a_close_says_why_it_leaves_the_rest_to_recovery) {
  closed_store();
  Bytes b = read_image(path_.str());
  b[image_in(b).value + 100] ^= 1;
  write_image(path_.str(), b);
  std::string log;
  options_.pool.log = [&log](std::string_view line) { (log += line) += '\n'; };
  Store s = opened();
  EXPECT_TRUE(is_whole(s));
  ASSERT_EQ(s.close(), Status::ok);
  EXPECT_NE(log.find("what named some blocks is damaged"), std::string::npos) << log;
  EXPECT_NE(log.find("the next open recovers"), std::string::npos) << log;
  EXPECT_EQ(log.find("memory had ended"), std::string::npos) << log;
}

// A damaged leaf is found when a thread first comes there, and is never taken for an empty one.
TEST_F(ImageTest, a_damaged_leaf_ends_walks_and_is_not_changed) {
  closed_store();
  Bytes b = read_image(path_.str());
  b[leaves_of(b)[1]] ^= 4;  // in its bitmap
  write_image(path_.str(), b);
  Store s = opened();
  std::string value;
  EXPECT_EQ(s.get(key_of(0), value), Status::ok);
  int seen = 0;
  for (const bool forwards : {true, false}) {
    Iterator it = s.iterator();
    forwards ? it.seek_first() : it.seek_last();
    while (it.valid()) {
      ++seen;
      forwards ? it.next() : it.prev();
    }
    EXPECT_EQ(it.status(), Status::corrupt);
  }
  EXPECT_LT(seen, kKeys);
  EXPECT_EQ(s.compact().error(), Status::corrupt);
  EXPECT_EQ(s.put("new", "value"), Status::corrupt);
  EXPECT_EQ(s.validate(&report_), Status::corrupt);
  EXPECT_EQ(s.close(), Status::corrupt);
}

// The open has read the image, and the first call that needs the heap finds that its slab is none.
// All records are there.
TEST_F(ImageTest, damage_of_its_slab_is_reported) {
  plant("heap_closed_without_slab_table");  // the next open reads the slabs
  closed_store();
  unplant_all();
  Bytes b = read_image(path_.str());
  const std::uint64_t slab = round_down(image_in(b).value, heap::kSlabBytes);
  ASSERT_GT(image_in(b).value % heap::kSlabBytes, 0u);
  b[slab + 17] ^= 4;  // its class
  write_image(path_.str(), b);
  Store s = opened();
  EXPECT_TRUE(is_whole(s));
  EXPECT_EQ(s.validate(&report_), Status::corrupt);
  EXPECT_NE(report_.where.find("slab"), std::string::npos) << report_.text();
  report_ = {};
  EXPECT_EQ(s.compact({}, &report_).error(), Status::corrupt);
  EXPECT_NE(report_.what, "");
  report_ = {};
  EXPECT_EQ(s.collection("new", {}, &report_).error(), Status::corrupt);
  EXPECT_NE(report_.what, "");
  EXPECT_EQ(s.put("new", "value"), Status::corrupt);
}

// Two threads come to the same leaf at once, and each writes to it.
TEST_F(ImageTest, threads_that_come_first_at_once_get_one_shadow_leaf) {
  closed_store();
  const Bytes closed = read_image(path_.str());
  for (int round = 0; round < 60; ++round) {
    write_image(path_.str(), closed);
    Store s = opened();
    at_once([&](int t) {
      for (int leaf = 0; leaf < 20; ++leaf) {
        const std::string key = key_of(leaf * 190 + 40) + std::to_string(t);
        ASSERT_EQ(s.put(key, "value"), Status::ok);
      }
    });
    for (int leaf = 0; leaf < 20; ++leaf) {
      for (int t = 0; t < 2; ++t) {
        std::string value;
        ASSERT_EQ(s.get(key_of(leaf * 190 + 40) + std::to_string(t), value), Status::ok);
      }
    }
    expect_valid(s);
  }
}

// Slots are emptied and filled again, so bitmap and fingerprints of one moment do not fit those of
// another. The thread that came second may have read some of both.
TEST_F(ImageTest, a_leaf_is_judged_by_the_first) {
  closed_store();
  const Bytes closed = read_image(path_.str());
  for (int round = 0; round < 40; ++round) {
    write_image(path_.str(), closed);
    Store s = opened();
    at_once([&](int t) {
      for (int leaf = 0; leaf < 20; ++leaf) {
        for (int i = 2 * t; i < 40; i += 4) {
          const std::string key = key_of(leaf * 190 + 40 + i);
          ASSERT_EQ(s.erase(key), Status::ok);
          ASSERT_EQ(s.put(key + "again", "value"), Status::ok);
        }
      }
    });
    EXPECT_EQ(s.pool().health(), Status::ok);
    expect_valid(s);
  }
}

// Neither recovery nor a close reads the records for their sizes. The first stats() does.
TEST_F(ImageTest, bytes_of_records_are_counted_when_asked) {
  for (const bool asked_before_the_close : {false, true}) {
    std::uint64_t bytes = 0;
    Bytes killed;
    {
      Store s = opened();
      fill(s);
      bytes = s.stats().record_bytes;
      killed = read_image(path_.str());
    }
    write_image(path_.str(), killed);
    {
      Store s = opened();
      const std::uint64_t counted = asked_before_the_close ? s.stats().record_bytes : bytes;
      EXPECT_EQ(counted, bytes);
      ASSERT_EQ(s.put("one more", "value"), Status::ok);
      ASSERT_EQ(s.close(), Status::ok);
    }
    bytes += std::string_view("one morevalue").size();
    for (int round = 0; round < 2; ++round) {
      Store s = opened();
      const StoreStats stats = s.stats();
      EXPECT_EQ(stats.record_bytes, bytes);
      EXPECT_EQ(stats.records, kKeys + 1u);
      const bool counts_now = round == 0 && !asked_before_the_close;
      EXPECT_EQ(stats.shadow_leaves, counts_now ? stats.leaves : 0);
      ASSERT_EQ(s.close(), Status::ok);
    }
    std::filesystem::remove(path_.str());
  }
}

// A writer splits leaves, some of which have no shadow leaf, while another thread counts.
TEST_F(ImageTest, bytes_are_counted_beside_a_writer) {
  {
    Store s = opened();
    fill(s);
    const Bytes killed = read_image(path_.str());
    ASSERT_EQ(s.close(), Status::ok);
    write_image(path_.str(), killed);
  }
  ASSERT_EQ(opened().close(), Status::ok);  // with an image, not counted
  const Bytes closed = read_image(path_.str());
  for (int round = 0; round < 30; ++round) {
    write_image(path_.str(), closed);
    {
      Store s = opened();
      std::atomic<int> written{0};
      std::thread counter([&] {
        while (written.load() < kKeys / 4) std::this_thread::yield();
        static_cast<void>(s.stats());
      });
      for (int i = 0; i < kKeys; ++i) {
        const int at = i * 7 % kKeys;  // each of them once, as 7 does not divide kKeys
        ASSERT_EQ(s.put(key_of(at * 2 + 1), value_of(at)), Status::ok);
        written.store(i);
      }
      counter.join();
      ASSERT_EQ(s.close(), Status::ok);
    }
    Store s = opened();
    std::uint64_t bytes = 0;
    for (int i = 0; i < kKeys; ++i)
      bytes += 2 * value_of(i).size() + key_of(2 * i).size() + key_of(2 * i + 1).size();
    EXPECT_EQ(s.stats().record_bytes, bytes);
    expect_valid(s);
  }
}

TEST_F(ImageTest, a_collection_that_nobody_opened_keeps_its_own) {
  {
    Store s = opened();
    for (const char* name : {"a", "b"}) fill(*s.collection(name));
    ASSERT_EQ(s.close(), Status::ok);
  }
  for (int round = 0; round < 3; ++round) {
    Store s = opened();
    Collection a = *s.collection("a");
    EXPECT_EQ(a.stats().shadow_leaves, 0u);
    ASSERT_EQ(a.put(key_of(0), value_of(0)), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  Collection b = *s.collection("b");
  EXPECT_EQ(b.stats().shadow_leaves, 0u);
  EXPECT_TRUE(is_whole(b));
  EXPECT_TRUE(is_whole(*s.collection("a")));
  expect_valid(s);
}

TEST_F(ImageTest, a_collection_is_dropped_with_leaves_that_nobody_came_to) {
  {
    Store s = opened();
    ASSERT_TRUE(s.collection("a"));
    ASSERT_EQ(s.close(), Status::ok);
  }
  std::uint64_t empty = 0;
  {
    Store s = opened();
    empty = s.stats().pool.allocated_bytes;
    fill(*s.collection("a"));
    ASSERT_EQ(s.close(), Status::ok);
  }
  {
    Store s = opened();
    ASSERT_EQ(s.rename("a", "b"), Status::ok);
    ASSERT_EQ(s.drop("b"), Status::ok);
    ASSERT_TRUE(s.reclaim());
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Store s = opened();
  EXPECT_LE(s.stats().pool.allocated_bytes, empty);
  expect_valid(s);
}

// Snapshots, transactions, batches and compaction come to leaves first, too.
TEST_F(ImageTest, every_way_in_may_come_first) {
  closed_store();
  Store s = opened();
  Result<Snapshot> before = s.snapshot();
  ASSERT_TRUE(before);
  std::string value;
  StoreTransaction tx = s.begin();
  ASSERT_EQ(tx.get(key_of(100), value), Status::ok);
  ASSERT_EQ(tx.put(key_of(3000), "transaction"), Status::ok);
  WriteBatch batch;
  for (int i = 0; i < kKeys; i += 50) batch.put(key_of(i * 2), "batch");
  batch.erase(key_of(2));
  ASSERT_EQ(s.write(batch), Status::ok);
  EXPECT_EQ(tx.commit(), Status::conflict);  // the batch changed key 100
  const std::vector<std::string> keys = {key_of(0), key_of(2), key_of(1802), key_of(3998)};
  const std::vector<std::string_view> asked(keys.begin(), keys.end());
  const auto got = s.multi_get(asked);
  ASSERT_EQ(got.size(), keys.size());
  EXPECT_EQ(got[0].value(), "batch");
  EXPECT_EQ(got[1].error(), Status::not_found);
  EXPECT_EQ(got[2].value(), value_of(901));
  EXPECT_TRUE(is_whole(*before));
  before = Status::closed;
  ASSERT_TRUE(s.compact());
  expect_valid(s);
}

// Long separators, so that few leaves make a large image. A part without its successor is no image.
TEST_F(ImageTest, a_large_one_has_parts_and_counts_as_a_whole) {
  const auto long_key = [](int i) {
    return key_of(i / 64) + std::string(1500, 'x') + std::to_string(i % 64 + 100);
  };
  constexpr int kLongKeys = 40000;
  options_.pool.size = 96u << 20;  // room for the image: a close does not grow a small pool
  options_.pool.size_max = 1u << 30;
  {
    Store s = opened();
    for (int i = 0; i < kLongKeys; ++i) ASSERT_EQ(s.put(long_key(i), value_of(i)), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  const Bytes sound = read_image(path_.str());
  const auto is_there = [&](const Store& s) {
    Iterator it = s.iterator();
    int n = 0;
    for (it.seek_first(); it.valid() && it.key() == long_key(n); it.next()) ++n;
    return n == kLongKeys;
  };
  ASSERT_NE(word_at(sound, name_in(sound)), 0u) << "there is no image";
  // The word behind the magic names the next part.
  PoolOffset second{word_at(sound, image_in(sound).value + 8)};
  ASSERT_TRUE(second);
  std::uint64_t allocated = 0;
  for (int round = 0; round < 3; ++round) {
    Store s = opened();
    EXPECT_EQ(s.stats().shadow_leaves, 0u);
    EXPECT_TRUE(is_there(s));
    expect_valid(s);
    if (round == 0) allocated = s.stats().pool.allocated_bytes;
    EXPECT_EQ(s.stats().pool.allocated_bytes, allocated) << "all parts are given back";
    ASSERT_EQ(s.close(), Status::ok);
  }
  for (const std::size_t byte : {0, 8, 16, 40, 64, 64 + 200, 64 + 5000}) {
    Bytes b = sound;
    b[second.value + byte] ^= 4;
    write_image(path_.str(), b);
    for (int round = 0; round < 2; ++round) {
      Store s = opened();
      EXPECT_TRUE(is_there(s)) << "byte " << byte;
      if (round == 1) {
        expect_valid(s);
        EXPECT_EQ(s.stats().pool.allocated_bytes, allocated) << "recovery has freed the parts";
      }
      ASSERT_EQ(s.close(), Status::ok);
    }
  }
}

}  // namespace
}  // namespace tenuto::test
