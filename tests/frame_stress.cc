// Threads on one upper layer: no frame is ever held twice, nothing is lost, and the layers agree
// once all threads have stopped. A map with one byte a base frame records the owners: each get
// claims with an atomic exchange, and each put clears first. Prints its seed. TENUTO_SEED repeats
// it, though not the schedule.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "frame_memory.h"
#include "support/seed.h"

namespace {

using namespace tenuto;
using namespace tenuto::frame;
using tests::FrameMemory;

constexpr std::uint64_t kMiB = 1u << 20;

std::uint64_t seed() {
  static const std::uint64_t value = tenuto::test::test_seed();
  return value;
}

class OwnershipMap {
 public:
  explicit OwnershipMap(std::uint64_t frames) : owner_(frames) {}

  // Returns false if a frame has an owner already.
  bool claim(FrameId first, std::uint64_t n) {
    bool alone = true;
    for (std::uint64_t f = first.value; f < first.value + n; ++f) {
      alone = owner_[f].exchange(1, std::memory_order_relaxed) == 0 && alone;
    }
    return alone;
  }
  void release(FrameId first, std::uint64_t n) {
    for (std::uint64_t f = first.value; f < first.value + n; ++f) {
      owner_[f].store(0, std::memory_order_relaxed);
    }
  }

 private:
  std::vector<std::atomic<std::uint8_t>> owner_;
};

struct Piece {
  FrameId first;
  unsigned order;
  std::uint32_t run;
};

// What each thread does for `operations` steps.
struct Mix {
  unsigned order_min;
  unsigned order_max;
  unsigned runs_in;       // one get in `runs_in` is a run; 0: none
  std::size_t held_max;   // pieces that a thread holds at most
  unsigned core_divisor;  // number of threads that share a core number
  unsigned operations = 40000;
};

class Worker {
 public:
  Worker(Upper& upper, OwnershipMap& map, Mix mix, unsigned id)
      : upper_(upper), map_(map), mix_(mix), core_(id / mix.core_divisor), rng_(seed() + id) {}

  void run(unsigned operations) {
    for (unsigned i = 0; i < operations && !failed_; ++i) {
      if (pieces_.size() < mix_.held_max && rng_() % 100 < 55) {
        get();
      } else if (!pieces_.empty()) {
        put(rng_() % pieces_.size());
      }
    }
  }
  void put_all() {
    while (!pieces_.empty() && !failed_) put(pieces_.size() - 1);
  }
  bool failed() const { return failed_; }
  std::uint64_t gets() const { return gets_; }

 private:
  static std::uint64_t frames(const Piece& p) {
    return p.run != 0 ? p.run * 512ull : 1ull << p.order;
  }

  void get() {
    const unsigned orders = mix_.order_max - mix_.order_min + 1;
    Piece p{{}, mix_.order_min + static_cast<unsigned>(rng_() % orders), 0};
    if (mix_.runs_in != 0 && rng_() % mix_.runs_in == 0) {
      p.run = 1 + static_cast<std::uint32_t>(rng_() % 4);
    }
    const auto f = p.run != 0 ? upper_.get_run(p.run) : upper_.get(p.order, core_);
    if (!f) return;
    p.first = *f;
    ++gets_;
    failed_ = !map_.claim(p.first, frames(p));
    pieces_.push_back(p);
  }
  void put(std::size_t i) {
    std::swap(pieces_[i], pieces_.back());
    const Piece p = pieces_.back();
    pieces_.pop_back();
    map_.release(p.first, frames(p));
    const Status s =
        p.run != 0 ? upper_.put_run(p.first, p.run) : upper_.put(p.first, p.order, core_);
    failed_ = failed_ || s != Status::ok;
  }

  Upper& upper_;
  OwnershipMap& map_;
  Mix mix_;
  unsigned core_;
  std::mt19937_64 rng_;
  std::vector<Piece> pieces_;
  std::uint64_t gets_ = 0;
  bool failed_ = false;
};

constexpr unsigned kThreads = 4;

void stress(const FrameMemory& memory, Upper& upper, Mix mix) {
  OwnershipMap map(memory.frames());
  for (int round = 0; round < 3; ++round) {
    std::vector<Worker> workers;
    for (unsigned t = 0; t < kThreads; ++t) workers.emplace_back(upper, map, mix, t);
    std::vector<std::thread> threads;
    for (Worker& w : workers) threads.emplace_back([&w, &mix] { w.run(mix.operations); });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(FrameMemory::disagreement(upper), "") << "while frames are held";
    threads.clear();
    // All threads give back at the same time.
    for (Worker& w : workers) threads.emplace_back([&w] { w.put_all(); });
    for (std::thread& t : threads) t.join();
    for (const Worker& w : workers) {
      EXPECT_FALSE(w.failed()) << "a frame was held twice, or a put refused";
      EXPECT_GT(w.gets(), 0u);
    }
    ASSERT_EQ(FrameMemory::disagreement(upper), "");
  }
  std::uint64_t free = 0;
  for (std::uint32_t z = 0; z < upper.zone_count(); ++z) {
    for (std::uint32_t c = 0; c < upper.zone(z).geometry().children; ++c) {
      free += upper.zone(z).lower.child(c).free();
    }
  }
  EXPECT_EQ(free, memory.usable());
}

TEST(FrameStress, mixed_orders_with_a_tree_for_everybody) {
  const FrameMemory memory({700 * kMiB});
  const auto upper = memory.attach(kThreads);
  stress(memory, *upper, {0, kOrderMax, 0, 60, 1});
}

TEST(FrameStress, mixed_orders_and_runs_where_trees_are_scarce) {
  const FrameMemory memory({70 * kMiB, 66 * kMiB + 3 * kFrameBytes});
  const auto upper = memory.attach(kThreads);
  stress(memory, *upper, {0, kOrderMax, 20, 40, 1});
}

TEST(FrameStress, runs_and_huge_frames_race_for_the_same_children) {
  const FrameMemory memory({100 * kMiB});
  const auto upper = memory.attach(kThreads);
  stress(memory, *upper, {9, 9, 2, 8, 1, 5000});
}

TEST(FrameStress, one_tree_that_all_threads_steal_from_each_other) {
  const FrameMemory memory({40 * kMiB});
  const auto upper = memory.attach(kThreads);
  stress(memory, *upper, {0, 6, 0, 400, 1});
}

TEST(FrameStress, multi_word_orders_collide_with_single_frames) {
  const FrameMemory memory({12 * kMiB});
  const auto upper = memory.attach(1);
  stress(memory, *upper, {0, 8, 0, 30, 1});
}

TEST(FrameStress, threads_share_core_numbers) {
  const FrameMemory memory({200 * kMiB});
  const auto upper = memory.attach(2);
  stress(memory, *upper, {0, 9, 0, 80, 2});
}

// There are as many free frames as threads, and each thread holds at most one. So one frame is
// always free when a thread asks, however reservations move meanwhile.
void never_full(unsigned cores, unsigned core_divisor) {
  const FrameMemory memory({8 * kMiB});
  const auto upper = memory.attach(cores);
  std::vector<FrameId> rest;
  while (const auto f = upper->get(0, 0)) rest.push_back(*f);
  for (unsigned t = 0; t < kThreads; ++t) {
    ASSERT_EQ(upper->put(rest.back(), 0, 0), Status::ok);
    rest.pop_back();
  }
  std::atomic<unsigned> refused = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, core = t / core_divisor] {
      for (unsigned i = 0; i < 40000; ++i) {
        const auto f = upper->get(0, core);
        if (!f) {
          ++refused;
        } else if (upper->put(*f, 0, core) != Status::ok) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(refused.load(), 0u);
  EXPECT_EQ(FrameMemory::disagreement(*upper), "");
}

TEST(FrameStress, full_is_never_answered_while_a_frame_is_free) { never_full(kThreads, 1); }

TEST(FrameStress, full_is_never_answered_to_threads_that_share_a_core_number) { never_full(2, 2); }

TEST(FrameStress, zones_are_added_while_threads_starve) {
  const FrameMemory memory({9 * kMiB, 10 * kMiB, 12 * kMiB, 16 * kMiB, 8 * kMiB});
  const auto upper = memory.attach(kThreads, 1);
  OwnershipMap map(memory.frames());
  std::atomic<std::uint64_t> got = 0;
  std::atomic<bool> all_added = false;
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (;;) {
        const bool last = all_added.load(std::memory_order_acquire);
        const auto f = upper->get(0, t);
        if (f) {
          if (!map.claim(*f, 1)) failed = true;
          ++got;
        } else if (last) {
          return;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::uint32_t z = 1; z < memory.zones(); ++z) {
    while (got.load() < memory.geometry(z - 1).frames / 2) std::this_thread::yield();
    memory.add_zone(*upper, z);
  }
  all_added.store(true, std::memory_order_release);
  for (std::thread& t : threads) t.join();
  EXPECT_FALSE(failed.load());
  EXPECT_EQ(got.load(), memory.usable());
  EXPECT_EQ(FrameMemory::disagreement(*upper), "");
}

TEST(FrameStress, of_two_racing_puts_one_is_refused) {
  const FrameMemory memory({16 * kMiB});
  const auto upper = memory.attach(2);
  for (unsigned order = 0; order <= kOrderMax; ++order) {
    for (int i = 0; i < 100; ++i) {
      const auto f = upper->get(order, 0);
      ASSERT_TRUE(f);
      std::atomic<unsigned> ready = 0;
      std::atomic<unsigned> accepted = 0;
      const auto put = [&](unsigned core) {
        ++ready;
        while (ready.load() < 2) std::this_thread::yield();
        if (upper->put(*f, order, core) == Status::ok) ++accepted;
      };
      std::thread other(put, 1u);
      put(0);
      other.join();
      ASSERT_EQ(accepted.load(), 1u) << "order " << order;
    }
  }
  EXPECT_EQ(FrameMemory::disagreement(*upper), "");
}

}  // namespace
