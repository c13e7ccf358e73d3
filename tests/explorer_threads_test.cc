// Workloads with threads: recorded together, and interleaved by a seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <semaphore>
#include <set>
#include <string>
#include <thread>

#include "support/explorer_parts.h"

namespace tenuto::test {
namespace {

TEST(explorer_threads, lines_of_several_threads_are_explored_together) {
  std::uint64_t done[2] = {};
  const CrashResult r = CrashRunner().run(
      make_pool,
      [&](CrashContext& c) {
        RawPool pool(c.path());
        done[0] = done[1] = 0;
        const auto work = [&](std::uint64_t t) {
          for (std::uint64_t i = 1; i <= 50; ++i) {
            publish(pool.at<std::uint64_t>(64 * (t + 1)), i);
            fence("counter", "acknowledged");
            c.update([&] { done[t] = i; });
          }
        };
        std::thread other(work, 1);
        work(0);
        other.join();
      },
      [&](const CrashImage& image) -> std::string {
        const RawPool pool(image.path());
        for (std::uint64_t t = 0; t < 2; ++t) {
          const auto v = pool.at<std::uint64_t>(64 * (t + 1));
          if (v < done[t] || v > done[t] + 1) return "a counter is wrong";
        }
        return {};
      });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GE(r.points, 100u);
}

TEST(explorer_threads, stores_in_flight_on_other_threads_are_not_taken_for_unseen_ones) {
  const CrashResult r = CrashRunner().run(
      make_pool,
      [](CrashContext& c) {
        RawPool pool(c.path());
        std::atomic<bool> stop = false;
        std::thread other([&] {
          for (std::uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
            pool.at<volatile std::uint64_t>(8) = i;
            if (i % 16 == 0) persist(pool.at<std::uint64_t>(8), "their word", "their next");
          }
        });
        for (std::uint64_t i = 0; i < 200; ++i) {
          pool.at<volatile std::uint64_t>(0) = i;
          persist(pool.at<std::uint64_t>(0), "my word", "my next");
        }
        stop.store(true, std::memory_order_relaxed);
        other.join();
      },
      all_is_well);
  EXPECT_TRUE(r.ok()) << r.text();
}

// The operations of two threads in their order under one schedule.
std::string history(std::uint64_t seed,
                    const std::function<void(RawPool&, std::string&, char)>& f) {
  std::string log;
  CrashOptions o = counting();
  o.seed = seed;
  o.switch_every = 3;
  CrashRunner(o).run(
      make_pool,
      [&](CrashContext& c) {
        RawPool pool(c.path());
        log.clear();
        c.interleave({[&] { f(pool, log, 'a'); }, [&] { f(pool, log, 'b'); }});
        log += std::to_string(pool.at<std::uint64_t>(0));
      },
      all_is_well);
  return log;
}

TEST(explorer_threads, a_seed_is_a_schedule) {
  const auto work = [](RawPool& pool, std::string& log, char name) {
    for (int i = 0; i < 10; ++i) {
      pool.at<volatile std::uint64_t>(64) = 1;
      log += name;
    }
  };
  std::set<std::string> schedules;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string once = history(seed, work);
    EXPECT_EQ(once, history(seed, work)) << "seed " << seed;
    schedules.insert(once);
  }
  EXPECT_GE(schedules.size(), 5u);
}

TEST(explorer_threads, schedules_find_the_lost_update) {
  const auto unsafe = [](RawPool& pool, std::string&, char) {
    std::atomic_ref<std::uint64_t> n(pool.at<std::uint64_t>(0));
    n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  };
  std::set<std::string> ends;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) ends.insert(history(seed, unsafe));
  EXPECT_THAT(ends, testing::ElementsAre("1", "2"));
}

TEST(explorer_threads, interleaved_threads_wait_for_mutexes_and_atomics) {
  std::mutex m;
  std::atomic<int> turns = 0;
  const auto work = [&](RawPool& pool, std::string& log, char name) {
    for (int i = 0; i < 5; ++i) {
      while (turns.load(std::memory_order_acquire) % 2 != name - 'a') continue;
      {
        const std::lock_guard lock(m);
        ++pool.at<std::uint64_t>(0);
      }
      log += name;
      turns.fetch_add(1, std::memory_order_acq_rel);
    }
  };
  EXPECT_EQ(history(3, work), "ababababab10");
}

TEST(explorer_threads, a_thread_that_blocks_elsewhere_is_passed_over) {
  std::binary_semaphore ready(0);
  const auto work = [&](RawPool& pool, std::string& log, char name) {
    if (name == 'a') ready.acquire();
    ++pool.at<std::uint64_t>(0);
    log += name;
    if (name == 'b') ready.release();
  };
  for (std::uint64_t seed = 1; seed <= 3; ++seed) EXPECT_EQ(history(seed, work), "ba2");
}

// One thread publishes an object, and hands over before it fences. The other thread stores a
// pointer to the object, and fences. A crash then may keep the pointer and lose the object.
TEST(explorer_threads, a_hand_over_without_a_fence_is_found_under_some_schedule) {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CrashOptions o;
    o.seed = seed;
    o.switch_every = 2;
    o.findings_max = 1;
    o.minimise = false;
    const CrashResult r = CrashRunner(o).run(
        make_pool,
        [](CrashContext& c) {
          RawPool pool(c.path());
          std::atomic<bool> attached = false;
          c.interleave({[&] {
                          publish(pool.at<std::uint64_t>(64), 1u);  // the object, not fenced
                          attached.store(true, std::memory_order_release);
                          fence("object", "too late");
                        },
                        [&] {
                          while (!attached.load(std::memory_order_acquire)) continue;
                          publish(pool.at<std::uint64_t>(0), 1u);  // makes it reachable
                          fence("pointer", "use");
                        }});
        },
        [](const CrashImage& image) -> std::string {
          const RawPool pool(image.path());
          const bool dangling = pool.at<std::uint64_t>(0) == 1 && pool.at<std::uint64_t>(64) == 0;
          return dangling ? "a pointer to nothing" : "";
        });
    found += r.ok() ? 0 : 1;
  }
  EXPECT_GE(found, 1u);
  EXPECT_LT(found, 10u) << "in some schedules the fence comes in time";
}

}  // namespace
}  // namespace tenuto::test
