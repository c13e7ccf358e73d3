// The derived blocks that an open after a crash leaves unmarked until a call needs the heap
// (Heap::Access, Marks).
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "store/tree/leaf.h"
#include "support/each_allocation.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/collection.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 3000;
constexpr std::size_t kHuge = 5u << 20;  // of whole huge frames

class HeapUnmarkedTest : public KvFixture {
 protected:
  static std::string value_of(int i) { return "value " + std::to_string(i); }
  // Its first keys have long separators, so these have blocks of their own.
  static std::string long_key(int i) { return key_of(i) + std::string(80, 'k'); }

  // A store that was killed after writes: records, long separators, a collection, and a record
  // that is an extent, and one of huge frames.
  void killed_store() {
    run_and_kill([&] {
      Store& s = *new Store(*open());
      Collection a = *s.collection("a");
      bool done = true;
      for (int i = 0; i < kKeys; ++i) {
        done = done && s.put(key_of(i), value_of(i)) == Status::ok;
        done = done && a.put(long_key(i), value_of(i)) == Status::ok;
      }
      return done && s.put("large", std::string(300'000, 'l')) == Status::ok &&
             s.put("huge", std::string(kHuge, 'h')) == Status::ok;
    });
  }
  static void expect_whole(Store& s) {
    std::string got;
    Collection a = *s.collection("a");
    for (int i = 0; i < kKeys; ++i) {
      ASSERT_EQ(s.get(key_of(i), got), Status::ok) << i;
      ASSERT_EQ(got, value_of(i));
      ASSERT_EQ(a.get(long_key(i), got), Status::ok) << i;
      ASSERT_EQ(got, value_of(i));
    }
    ASSERT_EQ(s.get("large", got), Status::ok);
    ASSERT_EQ(got, std::string(300'000, 'l'));
    ASSERT_EQ(s.get("huge", got), Status::ok);
    ASSERT_EQ(got, std::string(kHuge, 'h'));
  }
  static std::size_t first_slot_in_use(const Bytes& b, std::size_t leaf) {
    const auto slot = static_cast<std::size_t>(std::countr_zero(word_at(b, leaf)));
    return leaf + kLineBytes + slot * sizeof(store::SlotWord);
  }
  // Closed and opened once more, so that the bits on media are what is compared.
  void expect_as_large_as(std::uint64_t bytes) {
    Store s = opened();
    EXPECT_TRUE(s.pool().info().was_clean);
    EXPECT_EQ(s.stats().pool.allocated_bytes, bytes);
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  std::uint64_t allocated_when_recovered() {
    {
      Store s = opened();
      expect_valid(s);
      EXPECT_EQ(s.close(), Status::ok);
    }
    return opened().stats().pool.allocated_bytes;
  }
};

TEST_F(HeapUnmarkedTest, a_store_that_is_only_read_is_closed_with_all_its_blocks) {
  killed_store();
  const Bytes killed = read_image(path_.str());
  const std::uint64_t bytes = allocated_when_recovered();
  write_image(path_.str(), killed);
  {
    Store s = opened();
    EXPECT_FALSE(s.pool().info().was_clean);
    expect_whole(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  expect_as_large_as(bytes);
}

TEST_F(HeapUnmarkedTest, every_call_may_be_the_first_to_need_it) {
  killed_store();
  const Bytes killed = read_image(path_.str());
  const std::vector<std::function<void(Store&)>> calls = {
      [](Store& s) { EXPECT_EQ(s.erase(key_of(0)), Status::ok); },
      [](Store& s) { EXPECT_EQ(s.put(key_of(0), "again"), Status::ok); },
      [](Store& s) { EXPECT_EQ(s.erase("large"), Status::ok); },
      [](Store& s) { EXPECT_GT(s.stats().pool.allocated_bytes, kKeys * 10u); },
      [](Store& s) { EXPECT_GE(s.pool().info().leaked_frames, 0u); },
      [](Store& s) { EXPECT_EQ(s.drop("a"), Status::ok); },
      [](Store& s) { EXPECT_EQ(s.rename("a", "b"), Status::ok); },
      [](Store& s) { EXPECT_TRUE(s.pool().root("layout", 64)); },
      [](Store& s) {
        Collection c = *s.collection("new");
        EXPECT_EQ(c.put("k", "v"), Status::ok);
      },
      [](Store& s) { EXPECT_EQ(s.pool().trim(), Status::ok); },
      [](Store& s) { EXPECT_TRUE(s.compact()); },
      [](Store& s) {
        auto t = s.begin();
        EXPECT_EQ(t.erase(key_of(1)), Status::ok);
        EXPECT_EQ(t.commit(), Status::ok);
      },
      [](Store& s) { expect_valid(s); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    for (const bool kill : {false, true}) {
      write_image(path_.str(), killed);
      if (kill) {
        run_and_kill([&] {
          Store& s = *new Store(*open());
          calls[i](s);
          return !testing::Test::HasFailure();
        });
      } else {
        Store s = opened();
        calls[i](s);
        expect_valid(s);
        ASSERT_EQ(s.close(), Status::ok);
      }
      Store s = opened();
      expect_valid(s);
      std::string got;
      EXPECT_EQ(s.get(key_of(9), got), Status::ok);
      EXPECT_EQ(got, value_of(9));
      ASSERT_EQ(s.close(), Status::ok);
    }
  }
}

// The slots keep their words while bits are cleared, so each erased record has its mark before it
// is released.
TEST_F(HeapUnmarkedTest, what_is_erased_first_is_freed_once) {
  killed_store();
  for (int round = 0; round < 2; ++round) {
    Store s = opened();
    Collection a = *s.collection("a");
    for (int i = 0; i < kKeys; ++i) {
      ASSERT_EQ(s.erase(key_of(i)), round == 0 ? Status::ok : Status::not_found);
      ASSERT_EQ(a.erase(long_key(i)), round == 0 ? Status::ok : Status::not_found);
    }
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

TEST_F(HeapUnmarkedTest, a_second_kill_loses_nothing) {
  killed_store();
  const Bytes killed = read_image(path_.str());
  const std::uint64_t bytes = allocated_when_recovered();
  write_image(path_.str(), killed);
  for (int i = 0; i < 3; ++i) {
    run_and_kill([&] {
      Store& s = *new Store(*open());
      expect_whole(s);
      return !testing::Test::HasFailure();
    });
  }
  {
    Store s = opened();
    expect_whole(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  expect_as_large_as(bytes);
}

TEST_F(HeapUnmarkedTest, threads_that_need_it_at_once_wait_for_one) {
  killed_store();
  const Bytes killed = read_image(path_.str());
  for (int round = 0; round < 10; ++round) {
    write_image(path_.str(), killed);
    Store s = opened();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&s, t] {
        for (int i = t; i < kKeys; i += 40) {
          EXPECT_EQ(t == 0 ? s.erase(key_of(i)) : s.put(key_of(i), value_of(i)), Status::ok);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    for (int i = 0; i < kKeys; i += 40) ASSERT_EQ(s.put(key_of(i), value_of(i)), Status::ok);
    expect_whole(s);
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
}

TEST_F(HeapUnmarkedTest, memory_that_fails_leaves_it_to_the_next_call) {
  options_.pool.recovery_threads = 1;
  killed_store();
  const Bytes killed = read_image(path_.str());
  const std::uint64_t bytes = allocated_when_recovered();
  std::optional<Store> s;
  fail_each_allocation(
      [&] {
        write_image(path_.str(), killed);
        s.emplace(opened());
      },
      [&] {
        const Status put = s->put(key_of(7), value_of(7));
        EXPECT_TRUE(put == Status::ok || put == Status::full);
      },
      [&] {
        EXPECT_EQ(s->put(key_of(8), value_of(8)), Status::ok);
        expect_whole(*s);
        expect_valid(*s);
        ASSERT_EQ(s->close(), Status::ok);
        s.reset();
        expect_as_large_as(bytes);
      });
}

// A slot that leads nowhere: an open reads no slots, and reads of other leaves go on.
TEST_F(HeapUnmarkedTest, damage_of_a_slot_is_told_by_the_first_call_that_needs_it) {
  killed_store();
  Bytes b = read_image(path_.str());
  b[first_slot_in_use(b, leaves_of(b)[3]) + 2] ^= 1;
  write_image(path_.str(), b);
  Store s = opened();
  std::string got;
  EXPECT_EQ(s.get("large", got), Status::ok);
  Report r;
  EXPECT_EQ(s.pool().health(&r), Status::ok) << r.text();
  EXPECT_EQ(s.put("new", "value"), Status::corrupt);
  EXPECT_EQ(s.pool().health(&r), Status::corrupt);
  EXPECT_NE(r.text().find("slot of a leaf"), std::string::npos) << r.text();
  EXPECT_EQ(s.get("large", got), Status::ok);
  EXPECT_EQ(s.close(), Status::corrupt);
}

TEST_F(HeapUnmarkedTest, damage_is_still_told_when_memory_fails_behind_it) {
  options_.pool.recovery_threads = 1;
  killed_store();
  Bytes b = read_image(path_.str());
  const std::size_t slot = first_slot_in_use(b, leaves_of(b)[3]);
  b[slot + 2] ^= 1;
  std::optional<Store> s;
  fail_each_allocation(
      [&] {
        s.reset();
        write_image(path_.str(), b);
        s.emplace(opened());
      },
      [&] { EXPECT_NE(s->put("new", "value"), Status::ok); },
      [&] {
        EXPECT_EQ(s->put("new", "value"), Status::corrupt);
        Report r;
        EXPECT_EQ(s->pool().health(&r), Status::corrupt);
        EXPECT_EQ(s->close(), Status::corrupt);
      });
}

// Whichever call meets the damage, its report names what was found and where.
TEST_F(HeapUnmarkedTest, calls_with_a_report_say_which_slot_is_damaged) {
  killed_store();
  Bytes b = read_image(path_.str());
  b[first_slot_in_use(b, leaves_of(b)[3]) + 2] ^= 1;
  const std::vector<std::function<Status(Store&, Report*)>> calls = {
      [](Store& s, Report* r) { return s.collection("new", r).error(); },
      [](Store& s, Report* r) { return s.rename("a", "b", r); },
      [](Store& s, Report* r) { return s.compact({}, r).error(); },
      [](Store& s, Report* r) { return s.backup("/dev/shm/never-made", r); },
      [](Store& s, Report* r) { return s.validate(r); },
      [](Store& s, Report* r) { return s.pool().validate(r); },
      [](Store& s, Report* r) { return s.pool().find_garbage({}, r).error(); },
      [](Store& s, Report* r) { return s.pool().compact({}, r).error(); },
      [](Store& s, Report* r) { return s.pool().root("layout", 64, r).error(); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    write_image(path_.str(), b);
    Store s = opened();
    Report r;
    EXPECT_EQ(calls[i](s, &r), Status::corrupt);
    EXPECT_NE(r.text().find("slot"), std::string::npos) << r.text();
    EXPECT_NE(r.text().find(path_.str() + ", offset "), std::string::npos) << r.text();
    EXPECT_EQ(s.close(), Status::corrupt);
  }
}

TEST_F(HeapUnmarkedTest, a_child_of_a_fork_leaves_it) {
  killed_store();
  Store s = opened();
  expect_refused_in_a_child(s);
  expect_whole(s);
  EXPECT_EQ(s.put(key_of(7), value_of(7)), Status::ok);
  expect_valid(s);
  ASSERT_EQ(s.close(), Status::ok);
}

}  // namespace
}  // namespace tenuto::test
