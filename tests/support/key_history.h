// Threads that read and write a few keys of something that maps keys to numbers, in the explorer.
// What they saw and what recovery shows must be one linearizable history for each key.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tenuto/crash.h"
#include "tenuto/crash_history.h"
#include "tenuto/status.h"

namespace tenuto::test {

// What is tested. Keys are numbers; kAbsent: the key is not there.
struct KeyedNumbers {
  std::function<Status(std::uint64_t key, std::uint64_t value)> put;
  std::function<Status(std::uint64_t key)> erase;  // ok | not_found
  std::function<std::uint64_t(std::uint64_t key)> get;
};

class KeyHistory {
 public:
  static constexpr std::uint32_t kThreads = 2;
  static constexpr std::uint64_t kOperations = 5;  // of each thread
  static constexpr std::uint64_t kKeys = 2;

  // acknowledges_early: a put counts as returned before it is done.
  KeyHistory(std::uint64_t seed, bool acknowledges_early)
      : seed_(seed), acknowledges_early_(acknowledges_early) {}

  // Runs the threads; of(t) is what thread t uses.
  void run(CrashContext& c, const std::function<KeyedNumbers(std::uint32_t)>& of) {
    history_ = {};
    std::vector<std::function<void()>> bodies;
    for (std::uint32_t t = 0; t < kThreads; ++t) {
      bodies.emplace_back([this, &c, numbers = of(t), t] { work(c, numbers, t); });
    }
    c.interleave(bodies);
  }

  // After a crash: adds what recovery shows. Empty, or what is wrong.
  std::string check(const std::function<std::uint64_t(std::uint64_t)>& get) const {
    CrashHistory all = history_;
    all.crash();
    for (std::uint64_t key = 0; key < kKeys; ++key) {
      const CrashHistory::Id id = all.get(kThreads, std::to_string(key));
      all.got(id, get(key));
    }
    return all.check();
  }

 private:
  void work(CrashContext& c, const KeyedNumbers& numbers, std::uint32_t t) {
    std::mt19937_64 rng(seed_ * 131 + t);
    for (std::uint64_t i = 1; i <= kOperations; ++i) {
      const std::uint64_t key = rng() % kKeys;
      const std::string name = std::to_string(key);
      CrashHistory::Id id = 0;
      switch (rng() % 4) {
        case 0: {
          c.update([&] { id = history_.erase(t, name); });
          const Status s = numbers.erase(key);
          ASSERT_TRUE(s == Status::ok || s == Status::not_found);
          c.update([&] { history_.erased(id, s == Status::ok); });
          break;
        }
        case 1: {
          c.update([&] { id = history_.get(t, name); });
          const std::uint64_t seen = numbers.get(key);
          c.update([&] { history_.got(id, seen); });
          break;
        }
        default: {
          const std::uint64_t value = (t + 1) * 100 + i;
          c.update([&] { id = history_.put(t, name, value); });
          if (acknowledges_early_) c.update([&] { history_.returned(id); });
          ASSERT_EQ(numbers.put(key, value), Status::ok);
          if (!acknowledges_early_) c.update([&] { history_.returned(id); });
        }
      }
    }
  }

  std::uint64_t seed_;
  bool acknowledges_early_;
  CrashHistory history_;
};

// For workloads of threads: few states of each interleaving, as there are many interleavings.
inline CrashOptions few_states(std::uint64_t seed) {
  CrashOptions o;
  o.seed = seed;
  o.findings_max = 1;
  o.minimise = false;
  o.product_max = 40;
  o.samples_max = 20;
  o.recovery_states_max = 2;
  return o;
}

// Runs seeds 1 to `seeds`, all of which must be clean. Returns how many states were checked.
inline std::uint64_t checks_of_seeds(std::uint64_t seeds,
                                     const std::function<CrashResult(std::uint64_t)>& run) {
  std::uint64_t checks = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const CrashResult r = run(seed);
    EXPECT_TRUE(r.ok()) << "seed " << seed << "\n" << r.text();
    checks += r.checks;
  }
  return checks;
}

// What the first seed with a finding says; empty: none of them finds anything.
inline std::string first_finding(std::uint64_t seeds,
                                 const std::function<CrashResult(std::uint64_t)>& run) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const CrashResult r = run(seed);
    if (!r.ok()) return r.text();
  }
  return {};
}

// What a history says of a put that is lost, or acknowledged before it is done.
inline constexpr const char* kWrongHistory = "a get saw|an erase (found|missed)";

}  // namespace tenuto::test
