// Memory of replaced and erased records is reused, whatever threads, iterators, views, scans and
// backups rest meanwhile. They hold back what store/README.md states, and no more.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;

constexpr std::size_t kLarge = 1 << 20;
constexpr std::uint64_t kLeafRecords = 48;

std::string large(int n) { return std::string(kLarge, static_cast<char>('a' + n % 26)); }

class KvHeldTest : public test::KvFixture {
 protected:
  KvHeldTest() { options_.pool.size = options_.pool.size_max = 32u << 20; }

  // Replaces the values (1000 bytes) of these keys so many times. Returns false if the pool is
  // full.
  static bool update(Store& s, int keys, int times) {
    for (int n = 0; n < keys * times; ++n) {
      const std::string value(1000, static_cast<char>('a' + n % 26));
      if (s.put(key_of(n % keys), value) != Status::ok) return false;
    }
    return true;
  }
};

// A thread that does `work`, and then idles until this object is destroyed.
class Resting {
 public:
  template <class F>
  explicit Resting(F&& work)
      : thread_([this, work] {
          work();
          done_ = true;
          done_.notify_one();
          end_.wait(false);
        }) {
    done_.wait(false);
  }
  ~Resting() {
    end_ = true;
    end_.notify_one();
    thread_.join();
  }

 private:
  std::atomic<bool> done_{false};
  std::atomic<bool> end_{false};
  std::thread thread_;
};

TEST_F(KvHeldTest, threads_that_rest_hold_nothing_when_the_pool_is_full) {
  Store s = opened();
  std::vector<std::unique_ptr<Resting>> resting;
  Result<Collection> other = s.collection("other");
  ASSERT_TRUE(other);
  for (int t = 0; t < 4; ++t) {
    resting.push_back(std::make_unique<Resting>([&, t] {
      for (int n = 0; n < 12; ++n) {
        ASSERT_EQ(s.put("t" + std::to_string(t), large(n)), Status::ok) << n;
        ASSERT_EQ(other->put("t" + std::to_string(t), large(n)), Status::ok) << n;
      }
      // Less than a thread seals by itself.
      for (int n = 0; n < 60; ++n) ASSERT_EQ(s.put("small", std::string(900, 's')), Status::ok);
    }));
  }
  for (int n = 0; n < 60; ++n) {
    ASSERT_EQ(s.put("mine", large(n)), Status::ok) << n;
    ASSERT_EQ(other->put("mine", large(n)), Status::ok) << n;
  }
  ASSERT_TRUE(s.compact());
  EXPECT_LE(s.stats().retired_bytes, 4 * kLarge);
  expect_valid(s);
}

// A call that replaces or erases much is pinned all the time. What it retired must not wait for
// other calls.
TEST_F(KvHeldTest, what_a_large_batch_replaced_does_not_wait_for_the_next_call) {
  Store s = opened();
  constexpr std::size_t kBytes = 3000;
  constexpr std::uint64_t kMost = (64u << 10) + kBytes * 2;
  const auto much = [&](auto&& put) {
    for (int i = 0; i < 300; ++i) put(key_of(i), std::string(kBytes, 'v'));
  };
  const auto batch = [&] {
    WriteBatch all;
    much([&](const std::string& key, const std::string& value) { all.put(key, value); });
    EXPECT_EQ(s.write(all), Status::ok);
  };
  batch();
  batch();
  EXPECT_LE(s.stats().retired_bytes, kMost);
  StoreTransaction tx = s.begin();
  much([&](const std::string& key, const std::string& value) {
    EXPECT_EQ(tx.put(key, value), Status::ok);
  });
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_LE(s.stats().retired_bytes, kMost);
  ASSERT_EQ(s.erase_range(std::nullopt, std::nullopt).value_or(0), 300u);
  EXPECT_LE(s.stats().retired_bytes, kMost);
}

// What threads retired under a reader, and what ended threads left, also in slots that iterators
// then use.
TEST_F(KvHeldTest, what_threads_left_under_a_reader_is_freed_after_it) {
  Store s = opened();
  ASSERT_EQ(s.put("held", large(0)), Status::ok);
  Result<View> view = s.view("held");
  ASSERT_TRUE(view);
  ASSERT_EQ(s.put("held", large(1)), Status::ok);
  std::thread([&] {
    for (int n = 0; n < 10; ++n) ASSERT_EQ(s.put("ended", large(n)), Status::ok);
  }).join();
  const Resting resting([&] {
    for (int n = 0; n < 10; ++n) ASSERT_EQ(s.put("rests", large(n)), Status::ok);
  });
  std::vector<Iterator> iterators;
  for (int i = 0; i < 20; ++i) {
    iterators.push_back(s.iterator());
    iterators.back().seek_first();
  }
  for (int n = 0; n < 100; ++n) ASSERT_EQ(s.put("mine", large(n)), Status::ok) << n;
  EXPECT_EQ(view->value(), large(0));
}

// A call in another collection runs while everything is replaced, and no thread writes after it
// ends.
TEST_F(KvHeldTest, what_a_call_held_that_has_ended_is_freed_by_reclaim) {
  Store s = opened();
  Result<Collection> other = s.collection("other");
  ASSERT_TRUE(other);
  std::atomic<bool> under_way = false;
  std::atomic<bool> end = false;
  std::thread caller([&] {
    const Status done = other->merge("key", [&](std::optional<std::string_view>) {
      under_way = true;
      under_way.notify_one();
      end.wait(false);
      return std::optional<std::string>("value");
    });
    EXPECT_EQ(done, Status::ok);
  });
  under_way.wait(false);
  EXPECT_TRUE(update(s, 500, 3));
  end = true;
  end.notify_one();
  caller.join();
  ASSERT_TRUE(s.reclaim());
  EXPECT_LE(s.stats().retired_bytes, 2 * ((64u << 10) + 1100));
}

TEST_F(KvHeldTest, iterators_and_views_hold_the_records_they_show) {
  Store s = opened();
  ASSERT_TRUE(update(s, 500, 1));
  Iterator it = s.iterator();
  it.seek(key_of(250));
  ASSERT_TRUE(it.valid());
  Result<View> view = s.view(key_of(400));
  ASSERT_TRUE(view);
  const std::string key(it.key());
  const std::string value(it.value());
  const std::string viewed(view->value());
  ASSERT_TRUE(update(s, 500, 200)) << "100 MB in a pool of 32";
  EXPECT_EQ(it.key(), key);
  EXPECT_EQ(it.value(), value);
  EXPECT_EQ(view->value(), viewed);
  // The bound: the records of the leaf, the record of the view, and what this thread has not sealed
  // yet.
  EXPECT_LE(s.stats().retired_bytes, (kLeafRecords + 1) * 1100 + (128u << 10));
  // In the leaf the iterator goes on with the old records. Behind it, it shows the current ones.
  std::size_t old_ones = 0;
  std::string last = key;
  for (it.next(); it.valid(); it.next()) {
    ASSERT_LT(last, it.key());
    last = it.key();
    old_ones += it.value() == value ? 1 : 0;
  }
  EXPECT_EQ(it.status(), Status::ok);
  EXPECT_EQ(last, key_of(499));
  EXPECT_LE(old_ones, 60u);
}

// A hundred updates for each step: the walk is long, and holds one leaf at a time.
TEST_F(KvHeldTest, a_slow_scan_holds_a_leaf_and_not_its_begin) {
  Store s = opened();
  ASSERT_TRUE(update(s, 1000, 1));
  for (const bool forward : {true, false}) {
    Iterator it = s.iterator();
    std::size_t seen = 0;
    for (forward ? it.seek_first() : it.seek_last(); it.valid();
         forward ? it.next() : it.prev(), ++seen) {
      ASSERT_TRUE(update(s, 100, 1)) << seen;
    }
    EXPECT_EQ(it.status(), Status::ok);
    EXPECT_EQ(seen, 1000u);
  }
}

TEST_F(KvHeldTest, the_walk_of_a_dropped_collection_ends_after_its_leaf) {
  Store s = opened();
  Result<Collection> c = s.collection("dropped");
  ASSERT_TRUE(c);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(c->put(key_of(i), "value"), Status::ok);
  Iterator it = c->iterator();
  it.seek_first();
  const Result<View> view = c->view(key_of(77));
  ASSERT_EQ(s.drop("dropped"), Status::ok);
  for (int n = 0; n < 100; ++n) ASSERT_EQ(s.put("mine", large(n)), Status::ok) << n;
  std::size_t seen = 0;
  for (; it.valid(); it.next(), ++seen) ASSERT_EQ(it.value(), "value");
  EXPECT_GT(seen, 0u);
  EXPECT_LE(seen, kLeafRecords);
  EXPECT_EQ(it.status(), Status::not_found);
  EXPECT_EQ(view->value(), "value");
}

TEST_F(KvHeldTest, more_iterators_than_can_be_are_busy) {
  Store s = opened();
  ASSERT_EQ(s.put("key", "value"), Status::ok);
  std::vector<Iterator> all;
  for (int i = 0; i < 5000; ++i) {
    all.push_back(s.iterator());
    all.back().seek_first();
    if (!all.back().valid()) break;
  }
  EXPECT_GE(all.size(), 4000u);
  EXPECT_LE(all.size(), 4097u);
  EXPECT_EQ(all.back().status(), Status::busy);
  EXPECT_EQ(s.view("key").error(), Status::busy);
  EXPECT_EQ(*s.get("key"), "value");
  std::thread([&] { EXPECT_EQ(s.put("key", "of a thread"), Status::ok); }).join();
  all.erase(all.begin(), all.begin() + 10);
  EXPECT_EQ(s.view("key")->value(), "of a thread");
}

}  // namespace
}  // namespace tenuto
