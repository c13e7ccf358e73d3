// Calls that need threads when the system refuses them: they return an error with the reason, and
// lose nothing. (reclaim_thread_test tests the thread that reclaims.)
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "tenuto/collection.h"

namespace {
std::atomic<bool> refuses_threads = false;
std::atomic<int> refused = 0;
}  // namespace

// Replaces libc's, which std::thread and oneTBB call.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*),
                              void* argument) noexcept {
  if (refuses_threads) {
    refused += 1;
    return EAGAIN;
  }
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, how, run, argument);
}

namespace tenuto::test {
namespace {

constexpr int kKeys = 20'000;

std::string key_of(int i) { return "key" + std::to_string(100'000 + i); }

class NoThread : public testing::Test {
 protected:
  void TearDown() override { refuses_threads = false; }

  void fill_and_kill(const StoreOptions& options) {
    run_and_kill([&] {
      Store& s = *new Store(*Store::open(paths_.pool.str(), options));
      for (int i = 0; i < kKeys; ++i) {
        if (s.put(key_of(i), "v") != Status::ok) return false;
      }
      return s.sync() == Status::ok;
    });
  }
  void expect_all(const StoreOptions& options) {
    Result<Store> s = Store::open(paths_.pool.str(), options, &report_);
    ASSERT_TRUE(s) << report_.text();
    EXPECT_EQ(records_of(*s).size(), std::size_t{kKeys});
    EXPECT_EQ(s->close(), Status::ok);
  }

  JournalPaths paths_{"no-thread"};
  Report report_;
};

TEST_F(NoThread,
       a_journal_that_cannot_be_written_beside_the_callers_is_refused_and_nothing_is_lost) {
  const StoreOptions options = [&] {
    StoreOptions o = journalled(paths_, 2);
    o.pool.recovery_threads = 1;
    o.pool.size_max = 64u << 20;
    return o;
  }();
  fill_and_kill(options);
  for (const bool clean : {false, true}) {
    refuses_threads = true;
    refused = 0;
    EXPECT_EQ(Store::open(paths_.pool.str(), options, &report_).error(), Status::io) << clean;
    EXPECT_NE(report_.what.find("thread"), std::string::npos) << report_.text();
    EXPECT_GT(refused, 0);
    refuses_threads = false;
    expect_all(options);
  }
}

TEST_F(NoThread, a_store_is_opened_and_loaded_by_its_caller_alone_or_not_at_all) {
  StoreOptions options;
  options.pool = PoolParts::small_options();
  options.pool.size_max = 64u << 20;
  options.pool.recovery_threads = 4;
  fill_and_kill(options);
  StoreOptions alone = options;
  alone.pool.recovery_threads = 1;

  refuses_threads = true;
  EXPECT_EQ(Store::open(paths_.pool.str(), options, &report_).error(), Status::io);
  EXPECT_NE(report_.what.find("recovery_threads"), std::string::npos) << report_.text();
  expect_all(alone);
  refuses_threads = false;
  expect_all(options);
  Result<Store> s = Store::open(paths_.pool.str(), options, &report_);
  ASSERT_TRUE(s) << report_.text();
  Result<Collection> c = s->collection("loaded");
  ASSERT_TRUE(c);
  std::vector<std::string> keys;
  for (int i = 0; i < kKeys; ++i) keys.push_back(key_of(i));
  std::vector<BulkRecord> records;
  for (const std::string& key : keys) records.push_back({key, "loaded"});
  // The load may also use threads that oneTBB has from the opens.
  refuses_threads = true;
  const Status loaded = c->bulk_load(records);
  refuses_threads = false;
  EXPECT_TRUE(loaded == Status::ok || loaded == Status::io);
  EXPECT_EQ(c->stats().records, loaded == Status::ok ? std::uint64_t{kKeys} : 0u);
  EXPECT_EQ(s->validate(&report_), Status::ok) << report_.text();
  if (loaded != Status::ok) {
    EXPECT_EQ(c->bulk_load(records), Status::ok);
  }
  EXPECT_EQ(s->close(), Status::ok);
}

}  // namespace
}  // namespace tenuto::test
