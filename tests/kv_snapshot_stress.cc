// Snapshots beside threads that write. Each writer changes all its keys together, by a batch or a
// transaction, so a snapshot with two versions of them shows a mistake. A second look at a snapshot
// must show the same. TENUTO_STRESS_SCALE multiplies the work.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;

constexpr int kTakenMin = 10;
constexpr int kWriters = 3;
constexpr int kReaders = 2;
constexpr int kKeys = 60;  // of each writer
constexpr std::uint64_t kSeed = 20'261'121;

int scaled(int n) {
  static const char* const text = std::getenv("TENUTO_STRESS_SCALE");
  return static_cast<int>(n * (text == nullptr ? 1 : std::atof(text)));
}

// What a snapshot shows of each writer: the version of all its keys. No entry: none of its keys.
using Sight = std::map<int, std::uint64_t>;

class KvSnapshotStress : public test::KvFixture {
 protected:
  void bad(const std::string& what) {
    if (failures_.fetch_add(1, std::memory_order_relaxed) < 10) ADD_FAILURE() << what;
  }

  // A writer's keys are between those of the others, so that all writers share leaves.
  static std::string key(int writer, int i) { return key_of(i * kWriters + writer); }

  void write(int w) {
    std::mt19937_64 rng(kSeed + static_cast<unsigned>(w));
    // Goes on while the readers have not run enough yet.
    const auto readers_rest = [&] {
      return taken_ <= kTakenMin || (options_.snapshot_bytes_max != 0 && expired_ == 0);
    };
    for (int round = 1; round <= scaled(600) || (readers_rest() && round < 100'000); ++round) {
      const bool erase = rng() % 4 == 0;
      const std::string value = std::to_string(round) + std::string(rng() % 80, '.');
      if (rng() % 2 == 0) {
        WriteBatch b;
        for (int i = 0; i < kKeys; ++i) {
          erase ? b.erase(key(w, i)) : b.put(key(w, i), value);
        }
        if (store_->write(b) != Status::ok) bad("write");
      } else {
        const Status s = store_->run([&](StoreTransaction& tx) -> Status {
          for (int i = 0; i < kKeys; ++i) {
            TENUTO_TRY(erase ? tx.erase(key(w, i)) : tx.put(key(w, i), value));
          }
          return Status::ok;
        });
        if (s != Status::ok) bad("transaction");
      }
      // Single changes that no check looks at: they make more leaves and more versions.
      for (int i = 0; i < 10; ++i) {
        const std::string own = key(w, static_cast<int>(rng() % kKeys)) + "x";
        const Status s = rng() % 2 == 0 ? store_->put(own, value) : store_->erase(own);
        if (s != Status::ok && s != Status::not_found) bad("single");
      }
    }
  }

  // Returns nothing if the snapshot expired.
  std::optional<Sight> look(const Snapshot& snap, std::uint64_t way) {
    std::map<int, std::map<std::uint64_t, int>> counts;
    const auto seen = [&](std::string_view k, std::string_view v) {
      if (k.back() == 'x') return;
      const int n = std::atoi(std::string(k.substr(1)).c_str());
      counts[n % kWriters][std::strtoull(std::string(v).c_str(), nullptr, 10)] += 1;
    };
    Status s = Status::ok;
    if (way % 3 == 2) {
      std::string value;
      for (int n = 0; n < kWriters * kKeys && s == Status::ok; ++n) {
        s = snap.get(key_of(n), value);
        if (s == Status::ok) seen(key_of(n), value);
        if (s == Status::not_found) s = Status::ok;
      }
    } else {
      Iterator it = snap.iterator();
      if (way % 3 == 0) {
        for (it.seek_first(); it.valid(); it.next()) seen(it.key(), it.value());
      } else {
        for (it.seek_last(); it.valid(); it.prev()) seen(it.key(), it.value());
      }
      s = it.status();
    }
    if (s == Status::expired) return std::nullopt;
    if (s != Status::ok) bad(status_name(s));
    Sight sight;
    for (const auto& [w, versions] : counts) {
      if (versions.size() != 1 || versions.begin()->second != kKeys) {
        bad("writer " + std::to_string(w) + " is seen in the middle of a change");
      }
      sight[w] = versions.begin()->first;
    }
    return sight;
  }

  // One thread takes a snapshot, any thread reads it, and another one releases it.
  void read(int r) {
    std::mt19937_64 rng(kSeed * 7 + static_cast<unsigned>(r));
    while (!stop_.load(std::memory_order_acquire)) {
      Result<Snapshot> snap = store_->snapshot();
      if (!snap) return bad("snapshot");
      const std::optional<Sight> first = look(*snap, rng());
      taken_.fetch_add(1, std::memory_order_relaxed);
      if (!first) continue;
      std::shared_ptr<Held> other;
      {
        const std::lock_guard lock(mu_);
        held_.push_back(std::make_shared<Held>(Held{std::move(*snap), *first}));
        other = held_[rng() % held_.size()];
        if (held_.size() > 6) held_.erase(held_.begin() + static_cast<long>(rng() % held_.size()));
      }
      const std::optional<Sight> again = look(other->snapshot, rng());
      if (!again) {
        expired_.fetch_add(1, std::memory_order_relaxed);
      } else if (*again != other->sight) {
        bad("a snapshot changed");
      }
    }
  }

  void run() {
    store_ = std::make_unique<Store>(opened());
    std::vector<std::thread> threads;
    for (int w = 0; w < kWriters; ++w) threads.emplace_back([this, w] { write(w); });
    for (int r = 0; r < kReaders; ++r) threads.emplace_back([this, r] { read(r); });
    for (std::size_t t = 0; t < kWriters; ++t) threads[t].join();
    stop_.store(true, std::memory_order_release);
    for (std::size_t t = kWriters; t < threads.size(); ++t) threads[t].join();
    EXPECT_GT(taken_.load(), kTakenMin);
    held_.clear();
    EXPECT_EQ(store_->stats().snapshot_versions, 0u);
    EXPECT_EQ(store_->stats().snapshots, 0u);
    expect_valid(*store_);
    ASSERT_EQ(store_->close(), Status::ok);
    expect_valid(opened());
  }

  struct Held {
    Snapshot snapshot;
    Sight sight;
  };

  std::unique_ptr<Store> store_;
  std::atomic<bool> stop_{false};
  std::atomic<int> failures_{0}, taken_{0}, expired_{0};
  std::mutex mu_;
  std::deque<std::shared_ptr<Held>> held_;  // guarded by mu_
};

TEST_F(KvSnapshotStress, every_snapshot_shows_one_moment) {
  run();
  EXPECT_EQ(expired_.load(), 0);
}

TEST_F(KvSnapshotStress, those_that_expire_say_so_and_show_nothing_wrong) {
  options_.snapshot_bytes_max = 12'000;
  run();
  EXPECT_GT(expired_.load(), 0);
}

}  // namespace
}  // namespace tenuto
