// The thread that reclaims expired records, when the system refuses a thread or has no memory for
// one. The call that wants to start it is done all the same, a line in the log tells it, and a
// later call starts it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "support/each_allocation.h"
#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/transaction.h"

namespace {
thread_local bool refuses_threads = false;
}

// Replaces libc's, which std::thread calls.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  if (refuses_threads) return EAGAIN;
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static Create* const create = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, body, argument);
}

namespace tenuto {
namespace {

const CollectionOptions kExpires{.expires = true};

class ReclaimThread : public test::KvFixture {
 protected:
  ReclaimThread() {
    options_.clock_ms = [this] {
      while (stops_.load() != std::thread::id() && stops_.load() != std::this_thread::get_id()) {
        stands_ = true;
        std::this_thread::yield();
      }
      return now_.load();
    };
    options_.clock_jump_ms_max = 0;
    options_.reclaim_every_ms = 1;
    options_.pool.recovery_threads = 1;  // so that an open starts no thread of its own
    options_.pool.log = [this](std::string_view line) {
      if (line.find("the thread that reclaims") != std::string_view::npos) told_ += 1;
    };
    s_.emplace(opened());
  }
  // Only the thread can reclaim here.
  void expect_reclaimed(Collection c) {
    ASSERT_EQ(c.put("goes", "x", {.ttl_ms = 1000}), Status::ok);
    ASSERT_EQ(c.put("stays", "x"), Status::ok);
    now_ += 2000;
    ::alarm(60);
    while (c.stats().records != 1) std::this_thread::yield();
    ::alarm(0);
    EXPECT_EQ(c.contains("stays"), Status::ok);
  }

  std::atomic<std::uint64_t> now_ = 1'000'000'000'000;
  std::atomic<int> told_ = 0;
  std::atomic<std::thread::id> stops_{};  // if set, all threads but this one wait in the clock
  std::atomic<bool> stands_ = false;
  std::optional<Store> s_;
};

TEST_F(ReclaimThread, a_collection_is_made_and_there_is_no_thread) {
  refuses_threads = true;
  const Result<Collection> c = s_->collection("c", kExpires, &report_);
  refuses_threads = false;
  ASSERT_TRUE(c) << report_.text();
  EXPECT_EQ(told_, 1);
  ASSERT_TRUE(s_->collection("d", kExpires));
  expect_reclaimed(*c);
  EXPECT_EQ(told_, 1);
}

TEST_F(ReclaimThread, a_transaction_makes_a_collection_and_there_is_no_thread) {
  refuses_threads = true;
  StoreTransaction tx = s_->begin();
  const Result<Collection> c = tx.create("c", kExpires);
  ASSERT_TRUE(c);
  EXPECT_EQ(tx.commit(), Status::ok);
  refuses_threads = false;
  EXPECT_EQ(told_, 1);
  ASSERT_TRUE(s_->reclaim());
  expect_reclaimed(*c);
}

TEST_F(ReclaimThread, a_store_is_opened_and_there_is_no_thread) {
  ASSERT_TRUE(s_->collection("c", kExpires));
  ASSERT_EQ(s_->close(), Status::ok);
  refuses_threads = true;
  s_.emplace(opened());
  refuses_threads = false;
  EXPECT_EQ(told_, 1);
  const Collection c = s_->collection("c", kExpires).value();
  ASSERT_TRUE(s_->reclaim());
  expect_reclaimed(c);
}

// Pool::validate looks into the caches of all threads, so it waits for the store's own thread.
TEST_F(ReclaimThread, a_pool_is_validated_while_the_thread_is_in_a_round) {
  ASSERT_TRUE(s_->collection("c", kExpires));
  stops_ = std::this_thread::get_id();
  ::alarm(60);
  while (!stands_) std::this_thread::yield();
  std::atomic<bool> validated = false;
  std::thread caller([&] {
    EXPECT_EQ(s_->pool().validate(), Status::ok);
    validated = true;
  });
  for (int i = 0; i < 500 && !validated; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(validated);
  stops_ = std::thread::id();
  caller.join();
  ::alarm(0);
}

// A pause whose end would overflow is no end in the past: the thread would need a processor.
TEST_F(ReclaimThread, a_pause_that_never_ends) {
  for (const std::uint64_t pause : {~0ull, ~0ull >> 1, 1ull << 44}) {
    s_.reset();
    options_.reclaim_every_ms = pause;
    s_.emplace(opened());
    Collection c = s_->collection("c", kExpires).value();
    ASSERT_EQ(c.put("goes", "x", {.ttl_ms = 1000}), Status::ok);
    now_ += 2000;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(c.stats().records, 1u) << pause;
    EXPECT_EQ(*s_->reclaim(), 1u);
  }
}

// If the call throws for want of memory, the collection was not made.
TEST_F(ReclaimThread, a_collection_is_made_and_there_is_no_memory) {
  bool threw = false;
  bool made = false;
  const auto call = [&] {
    threw = made = false;
    try {
      made = s_->collection("c", kExpires).has_value();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
  };
  const auto after = [&] {
    const auto there = s_->collection("c", {.create_if_missing = false});
    EXPECT_EQ(there.has_value(), made);
    EXPECT_FALSE(threw && there);
    ASSERT_TRUE(s_->reclaim());
    expect_reclaimed(s_->collection("c", kExpires).value());
    EXPECT_EQ(s_->close(), Status::ok);
    s_.reset();
    ::unlink(path_.str().c_str());
    s_.emplace(opened());
  };
  test::fail_each_allocation([] {}, call, after);
}

}  // namespace
}  // namespace tenuto
