// The slabs that a clean open leaves unread until a call needs them (Heap::Access), and the close
// of a pool in which nothing did.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "heap/format.h"
#include "pm/plant.h"
#include "support/each_allocation.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/collection.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 4000;

class HeapUnreadTest : public KvFixture {
 protected:
  template <class S>
  static void fill(S&& s, const std::string& value) {
    for (int i = 0; i < kKeys; ++i) ASSERT_EQ(s.put(key_of(i), value), Status::ok);
  }
  // With the collection `a`, which is as large.
  void closed_store() {
    Store s = opened();
    fill(s, "value");
    fill(*s.collection("a"), "value of a");
    ASSERT_EQ(s.close(), Status::ok);
  }
  static void expect_whole(Store& s, const std::string& value) {
    const Records all = records_of(s);
    EXPECT_EQ(all.size(), std::size_t{kKeys});
    for (const auto& [key, there] : all) ASSERT_EQ(there, value) << key;
  }
  static void expect_get(Store& s, const std::string& value) {
    std::string got;
    ASSERT_EQ(s.get(key_of(7), got), Status::ok);
    EXPECT_EQ(got, value);
  }
  std::uint64_t allocated() { return opened().stats().pool.allocated_bytes; }
  // Bytes of the file that differ, outside the superblocks and the head page.
  static std::size_t changed(const Bytes& a, const Bytes& b) {
    std::size_t n = a.size() == b.size() ? 0 : 1;
    for (std::size_t i = pm::kHeadBytes; i < std::min(a.size(), b.size()); ++i) n += a[i] != b[i];
    return n;
  }
};

TEST_F(HeapUnreadTest, a_store_that_is_only_read_is_closed_as_it_was_found) {
  closed_store();
  const Bytes before = read_image(path_.str());
  for (int i = 0; i < 3; ++i) {
    Store s = opened();
    expect_get(s, "value");
    std::string got;
    EXPECT_EQ(s.collection("a")->get(key_of(9), got), Status::ok);
    expect_whole(s, "value");
    ASSERT_EQ(s.close(), Status::ok);
    // The image is named again, so the next open reads no leaf.
    EXPECT_EQ(changed(before, read_image(path_.str())), 0u);
  }
  Store s = opened();
  EXPECT_EQ(s.stats().shadow_leaves, 0u);
  expect_valid(s);
}

// What the open took from the image is freed, once and by whoever needs the heap first.
TEST_F(HeapUnreadTest, a_write_between_two_reads_keeps_nothing) {
  closed_store();
  const std::uint64_t with = allocated();
  for (int i = 0; i < 10; ++i) {
    const std::string value(1 + i, 'v');
    {
      Store s = opened();
      fill(s, value);
      ASSERT_EQ(s.close(), Status::ok);
    }
    Store s = opened();
    expect_get(s, value);
    ASSERT_EQ(s.close(), Status::ok);
    Store again = opened();
    expect_whole(again, value);
    expect_valid(again);
    EXPECT_LE(again.stats().pool.allocated_bytes, with + kKeys * 64) << i;
    ASSERT_EQ(again.close(), Status::ok);
  }
  Store s = opened();
  fill(s, "value");
  ASSERT_EQ(s.close(), Status::ok);
  EXPECT_EQ(allocated(), with);
}

TEST_F(HeapUnreadTest, splits_after_an_open_are_in_the_next_image) {
  closed_store();
  for (int round = 1; round <= 3; ++round) {
    {
      Store s = opened();
      for (int i = 0; i < kKeys; ++i) {
        ASSERT_EQ(s.put(key_of(round * kKeys + i), "value"), Status::ok);
      }
      ASSERT_EQ(s.close(), Status::ok);
    }
    Store s = opened();
    EXPECT_EQ(records_of(s).size(), std::size_t{kKeys} * (round + 1));
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

// An erase only retires its record; the close frees it.
TEST_F(HeapUnreadTest, a_close_frees_what_only_an_erase_left) {
  closed_store();
  for (int i = 0; i < 30; ++i) {
    Store s = opened();
    ASSERT_EQ(s.erase(key_of(i)), Status::ok);
    ASSERT_EQ(s.close(), Status::ok) << i;
    Store again = opened();
    expect_valid(again);
    ASSERT_EQ(again.close(), Status::ok);
  }
}

TEST_F(HeapUnreadTest, every_call_may_be_the_first_to_need_it) {
  closed_store();
  const std::vector<std::function<void(Store&)>> calls = {
      [](Store& s) { EXPECT_EQ(s.erase(key_of(0)), Status::ok); },
      [](Store& s) { EXPECT_EQ(s.put(key_of(0), "again"), Status::ok); },
      [](Store& s) { EXPECT_GT(s.stats().pool.allocated_bytes, kKeys * 10u); },
      [](Store& s) { EXPECT_EQ(s.drop("a"), Status::ok); },
      [](Store& s) { EXPECT_TRUE(s.pool().root("layout", 64)); },
      [](Store& s) {
        PtrWord& word = *static_cast<PtrWord*>(*s.pool().root("layout", 64));
        EXPECT_EQ(s.pool().malloc_to(100, word), Status::ok);
      },
      [](Store& s) {
        PtrWord& word = *static_cast<PtrWord*>(*s.pool().root("layout", 64));
        EXPECT_EQ(s.pool().free_from(word), Status::ok);
      },
      [](Store& s) { EXPECT_EQ(s.pool().trim(), Status::ok); },
      [](Store& s) { EXPECT_TRUE(s.compact()); },
      [](Store& s) { expect_valid(s); },
  };
  for (const auto& call : calls) {
    Store s = opened();
    call(s);
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

TEST_F(HeapUnreadTest, threads_that_need_it_at_once_wait_for_one_reading) {
  closed_store();
  const std::uint64_t with = allocated();
  for (int round = 0; round < 20; ++round) {
    Store s = opened();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&s, t] {
        for (int i = t; i < kKeys; i += 400) EXPECT_EQ(s.put(key_of(i), "value"), Status::ok);
      });
    }
    for (std::thread& t : threads) t.join();
    expect_whole(s, "value");
    ASSERT_EQ(s.close(), Status::ok);
  }
  EXPECT_EQ(allocated(), with);
}

TEST_F(HeapUnreadTest, a_kill_before_and_after_it_loses_nothing) {
  closed_store();
  const std::uint64_t with = allocated();
  for (const bool writes : {false, true}) {
    run_and_kill([&] {
      Store& s = *new Store(*open());
      std::string got;
      return s.get(key_of(7), got) == Status::ok &&
             (!writes || s.put(key_of(7), "value") == Status::ok);
    });
    Store s = opened();
    expect_whole(s, "value");
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
    EXPECT_EQ(allocated(), with);
  }
}

TEST_F(HeapUnreadTest, a_child_of_a_fork_leaves_it_unread) {
  closed_store();
  Store s = opened();
  expect_refused_in_a_child(s);
  EXPECT_EQ(s.put(key_of(7), "parent"), Status::ok);
  expect_get(s, "parent");
}

TEST_F(HeapUnreadTest, memory_that_fails_leaves_it_to_the_next_call) {
  options_.pool.recovery_threads = 1;
  closed_store();
  const std::uint64_t with = allocated();
  std::optional<Store> s;
  fail_each_allocation([&] { s.emplace(opened()); },
                       [&] {
                         const Status put = s->put(key_of(7), "value");
                         EXPECT_TRUE(put == Status::ok || put == Status::full);
                       },
                       [&] {
                         EXPECT_EQ(s->put(key_of(8), "value"), Status::ok);
                         expect_whole(*s, "value");
                         expect_valid(*s);
                         ASSERT_EQ(s->close(), Status::ok);
                       });
  EXPECT_EQ(allocated(), with);
}

// The bits of a slab with leaves: an open cannot know, and reads go on. Here no table of slabs
// stands for them.
TEST_F(HeapUnreadTest, damage_is_told_by_the_first_call_that_needs_it) {
  plant("heap_closed_without_slab_table");
  closed_store();
  unplant_all();
  Bytes b = read_image(path_.str());
  const std::size_t slab = leaves_of(b)[3] / heap::kSlabBytes * heap::kSlabBytes;
  b[slab + kLineBytes + 9] ^= 4;
  write_image(path_.str(), b);
  {
    Store s = opened();
    expect_whole(s, "value");
    EXPECT_EQ(s.put(key_of(7), "new"), Status::corrupt);
    Report r;
    EXPECT_EQ(s.pool().health(&r), Status::corrupt);
    EXPECT_NE(r.what.find("slab"), std::string::npos) << r.text();
    EXPECT_EQ(s.validate(&r), Status::corrupt);
    expect_whole(s, "value");
    EXPECT_EQ(s.close(), Status::corrupt);
  }
  // Nothing was written over it: the bytes are as they were damaged.
  const Bytes after = read_image(path_.str());
  EXPECT_EQ(after[slab + kLineBytes + 9], b[slab + kLineBytes + 9]);
}

TEST_F(HeapUnreadTest, a_pool_opened_to_read_reads_it_for_its_figures) {
  closed_store();
  const std::uint64_t with = allocated();
  options_.pool.read_only = true;
  Store s = opened();
  expect_get(s, "value");
  EXPECT_EQ(s.put(key_of(7), "new"), Status::read_only);
  EXPECT_GE(s.stats().pool.allocated_bytes, with);  // and the image, which stays
  EXPECT_LE(s.stats().pool.allocated_bytes, with + (64u << 10));
  expect_valid(s);
}

struct Objects {
  Ptr<char> each[3000];
};

// Objects have no second structure that names them, so nothing but the heap can tell.
class HeapUnreadObjects : public KvFixture {
 protected:
  std::size_t slab_ = 0;
  // Returns the place of a slab that is full of them.
  std::size_t closed_objects() {
    Result<Pool> pool = Pool::create(path_.str(), options_.pool);
    auto* const all = *pool->root<Objects>("objects");
    for (Ptr<char>& one : all->each) EXPECT_EQ(pool->malloc_to(48, one), Status::ok);
    const PoolOffset middle = pool->offset_of(all->each[1500].get());
    EXPECT_EQ(pool->close(), Status::ok);
    return middle.value / heap::kSlabBytes * heap::kSlabBytes;
  }
  // The next opens all tell it, and none takes a block for free.
  void expect_told(Bytes b, std::size_t at, unsigned bit) {
    SCOPED_TRACE("byte " + std::to_string(at) + ", bit " + std::to_string(bit));
    b[at] ^= static_cast<unsigned char>(1u << bit);
    write_image(path_.str(), b);
    for (int life = 0; life < 3; ++life) {
      Report r;
      Result<Pool> pool = Pool::open(path_.str(), options_.pool, &r);
      ASSERT_TRUE(pool) << r.text();
      EXPECT_EQ(pool->reserve(48).error(), Status::corrupt);
      EXPECT_EQ(pool->validate(&r), Status::corrupt);
      EXPECT_NE(r.text().find("slab"), std::string::npos) << r.text();
      EXPECT_EQ(pool->find_garbage({.free = true}).error(), Status::corrupt);
      EXPECT_EQ(pool->compact({}).error(), Status::corrupt);
      EXPECT_EQ(pool->close(), Status::corrupt);
    }
  }
};

TEST_F(HeapUnreadObjects, behind_a_damaged_header_are_not_lost_in_silence) {
  const std::size_t slab = closed_objects();
  const Bytes b = read_image(path_.str());
  constexpr std::size_t kSaid = offsetof(heap::SlabHeader, shape) + sizeof(heap::ShapeWord);
  for (std::size_t i = 0; i < kSaid; i += 3) expect_told(b, slab + i, i % 8);
  Bytes zeroed = b;
  std::fill_n(&zeroed[slab], kLineBytes, static_cast<unsigned char>(0));
  expect_told(zeroed, slab + kLineBytes - 1, 0);
}

TEST_F(HeapUnreadObjects, with_damaged_bits_are_told_by_every_open) {
  const std::size_t slab = closed_objects();
  const Bytes b = read_image(path_.str());
  for (std::size_t i = 0; i < 24; i += 5) expect_told(b, slab + kLineBytes + i, i % 8);
}

// The open that could compare them is killed before a call needs the heap. So the next one
// recovers, and no bit has changed since the close.
class HeapUnreadMedia : public HeapUnreadObjects, public testing::WithParamInterface<Medium> {
 protected:
  // The first recovery names the place. Later ones name damaged bits again; the frame of a damaged
  // header may be gone by then.
  void expect_told_after_a_kill(const Bytes& damaged, std::size_t slab, int kills) {
    write_image(path_.str(), damaged);
    const std::string journal = path_.str() + ".journal";
    if (!journal_.empty()) write_image(journal, journal_);
    for (int kill = 0; kill < kills; ++kill) {
      const pid_t child = ::fork();
      if (child == 0) std::_Exit(Pool::open(path_.str(), options_.pool) ? ::raise(SIGKILL) : 1);
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status));
    }
    for (int life = 0; life < 2; ++life) {
      Report r;
      Result<Pool> pool = Pool::open(path_.str(), options_.pool, &r);
      ASSERT_TRUE(pool) << r.text();
      EXPECT_EQ(pool->health(&r), Status::corrupt);
      const std::string place = "offset " + std::to_string(slab) + " (slab)";
      const bool named =
          kills + life == 1 || damaged[slab + kLineBytes] != sound_[slab + kLineBytes];
      if (named) {
        EXPECT_NE(r.text().find(place), std::string::npos) << r.text();
      }
      EXPECT_EQ(pool->reserve(48).error(), Status::corrupt);
      EXPECT_EQ(pool->validate(&r), Status::corrupt);
      EXPECT_EQ(pool->close(), Status::corrupt);
    }
  }

  Bytes sound_, journal_;  // as the close left them
};

TEST_P(HeapUnreadMedia, damage_is_told_after_a_kill_before_its_use) {
  options_.pool.medium = GetParam();
  const std::size_t slab = closed_objects();
  sound_ = read_image(path_.str());
  if (GetParam() == Medium::journal) journal_ = read_image(path_.str() + ".journal");
  // A bit of a block, and bits of the header: magic, place, pool, kind, checksum, shape.
  for (const std::size_t byte : {kLineBytes, std::size_t{0}, std::size_t{9}, std::size_t{23},
                                 std::size_t{24}, std::size_t{30}, std::size_t{33}}) {
    SCOPED_TRACE("byte " + std::to_string(byte));
    Bytes b = sound_;
    b[slab + byte] ^= 1;
    for (const int kills : {1, 2}) expect_told_after_a_kill(b, slab, kills);
  }
}

INSTANTIATE_TEST_SUITE_P(, HeapUnreadMedia, testing::Values(Medium::cache, Medium::journal),
                         [](const auto& i) { return std::string(medium_name(i.param)); });

// A life that used the heap has broken the seal: what it changed is no damage. Lives that did not
// use it, killed or closed, may come before and after it.
TEST_F(HeapUnreadObjects, that_a_killed_process_changed_are_no_damage) {
  closed_objects();
  for (int life = 0; life < 12; ++life) {
    const pid_t child = ::fork();
    if (child == 0) {
      Result<Pool> pool = Pool::open(path_.str(), options_.pool);
      if (!pool || pool->health() != Status::ok) std::_Exit(1);
      auto* const all = *pool->root<Objects>("objects");
      Ptr<char>& one = all->each[static_cast<std::size_t>(life) * 100];
      const bool uses = life % 3 == 1;
      if (uses && (pool->free_from(one) != Status::ok || pool->malloc_to(96, one) != Status::ok)) {
        std::_Exit(2);
      }
      if (life % 4 != 3) ::raise(SIGKILL);
      std::_Exit(pool->close() == Status::ok ? 0 : 3);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << life;
  }
  Result<Pool> pool = Pool::open(path_.str(), options_.pool);
  ASSERT_TRUE(pool);
  EXPECT_EQ(pool->validate(), Status::ok);
  EXPECT_EQ(pool->close(), Status::ok);
}

// Beside a store, whose leaves change without the heap; and the process that meets it is killed.
TEST_F(HeapUnreadObjects, beside_a_store_with_damaged_bits_are_told_after_a_kill) {
  {
    Store s = opened();
    auto* const all = *s.pool().root<Objects>("objects");
    for (Ptr<char>& one : all->each) ASSERT_EQ(s.pool().malloc_to(48, one), Status::ok);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(s.put(key_of(i), "value"), Status::ok);
    slab_ = s.pool().offset_of(all->each[1500].get()).value / heap::kSlabBytes * heap::kSlabBytes;
    ASSERT_EQ(s.close(), Status::ok);
  }
  Bytes b = read_image(path_.str());
  b[slab_ + kLineBytes] ^= 1;
  write_image(path_.str(), b);
  const pid_t child = ::fork();
  if (child == 0) {
    Store s = opened();
    const bool erased = s.erase(key_of(7)) == Status::ok;
    if (erased && s.pool().reserve(48).error() == Status::corrupt) ::raise(SIGKILL);
    std::_Exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  for (int life = 0; life < 2; ++life) {
    Report r;
    Result<Store> s = Store::open(path_.str(), options_, &r);
    ASSERT_TRUE(s) << r.text();
    EXPECT_EQ(s->validate(&r), Status::corrupt);
    EXPECT_NE(r.text().find("earlier open"), std::string::npos) << r.text();
    EXPECT_EQ(s->put("key", "value"), Status::corrupt);
    EXPECT_EQ(s->pool().reserve(48).error(), Status::corrupt);
    EXPECT_EQ(s->get(key_of(7)).error(), Status::not_found);
    EXPECT_TRUE(s->get(key_of(8)));
    EXPECT_EQ(s->close(), Status::corrupt);
  }
}

// What has no damage stays as it was: a store in the pool, frames of logs and of lanes.
TEST_F(HeapUnreadObjects, need_no_owner_but_their_own) {
  for (int life = 0; life < 3; ++life) {
    Store s = opened();
    std::vector<std::thread> threads;
    for (int t = 0; t < 80; ++t) {
      threads.emplace_back([&s, t] { EXPECT_EQ(s.put(key_of(t), "value"), Status::ok); });
    }
    for (std::thread& t : threads) t.join();
    auto* const all = *s.pool().root<Objects>("objects");
    EXPECT_EQ(s.pool().run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(*all));
      for (Ptr<char>& one : all->each) {
        Result<void*> block = tx.alloc(100);
        if (!block) return block.error();
        if (one) TENUTO_TRY(tx.free(one.get()));
        one = static_cast<char*>(*block);
      }
      return Status::ok;
    }),
              Status::ok);
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

}  // namespace
}  // namespace tenuto::test
