// Threads on one store. Each key belongs to one writer, which counts its versions up, so that a
// reader can tell a lost or torn write from a late one. TENUTO_STRESS_SCALE multiplies the work.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/kv.h"

namespace tenuto {
namespace {

using test::key_of;

constexpr int kWriters = 4;
constexpr int kKeys = 1600;
constexpr std::uint64_t kSeed = 20'260'321;

int scaled(int n) {
  static const char* const text = std::getenv("TENUTO_STRESS_SCALE");
  return static_cast<int>(n * (text == nullptr ? 1 : std::atof(text)));
}

// "version:" and padding that the version and the key determine.
std::string value_of(int key, std::uint64_t version) {
  return std::to_string(version) + ":" +
         std::string((version * 37 + static_cast<unsigned>(key)) % 200,
                     static_cast<char>('a' + version % 26));
}

// Returns 0 if it is not a value of this key.
std::uint64_t version_of(int key, std::string_view value) {
  const std::uint64_t v = std::strtoull(std::string(value).c_str(), nullptr, 10);
  return value == value_of(key, v) ? v : 0;
}

int number_of(std::string_view key) { return std::atoi(std::string(key.substr(1)).c_str()); }

// Every eighth key is put once, and from then on only replaced.
bool stays(int key) { return key % 8 == 0; }

class KvStress : public test::KvFixture {
 protected:
  void SetUp() override {
    std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
    store_ = std::make_unique<Store>(opened());
    for (int k = 0; k < kKeys; k += 8) put(k);
  }

  void put(int key) {
    const auto k = static_cast<std::size_t>(key);
    const std::uint64_t v = next_[k].load(std::memory_order_relaxed) + 1;
    next_[k].store(v, std::memory_order_release);
    if (store_->put(key_of(key), value_of(key, v)) != Status::ok) bad("put", key);
    acknowledged_[k].store(v, std::memory_order_release);
    live_[k] = 1;
  }
  void erase(int key) {
    const auto k = static_cast<std::size_t>(key);
    const Status s = store_->erase(key_of(key));
    if (s != (live_[k] != 0 ? Status::ok : Status::not_found)) bad("erase", key);
    live_[k] = 0;
  }
  void write(const std::vector<int>& puts, const std::vector<int>& erases) {
    WriteBatch batch;
    for (const int key : puts) {
      const auto k = static_cast<std::size_t>(key);
      const std::uint64_t v = next_[k].load(std::memory_order_relaxed) + 1;
      next_[k].store(v, std::memory_order_release);
      batch.put(key_of(key), value_of(key, v));
    }
    for (const int key : erases) batch.erase(key_of(key));
    if (store_->write(batch) != Status::ok) bad("write", puts.empty() ? 0 : puts[0]);
    for (const int key : puts) {
      const auto k = static_cast<std::size_t>(key);
      acknowledged_[k].store(next_[k].load(std::memory_order_relaxed), std::memory_order_release);
      live_[k] = 1;
    }
    for (const int key : erases) live_[static_cast<std::size_t>(key)] = 0;
  }

  // A reader sees at least the version that was acknowledged before it looked.
  void read(int key) {
    const auto k = static_cast<std::size_t>(key);
    const std::uint64_t least = acknowledged_[k].load(std::memory_order_acquire);
    std::string value;
    const Status s = store_->get(key_of(key), value);
    if (s == Status::not_found && !stays(key)) return;
    if (s != Status::ok) return bad("get", key);
    check_version(key, value, least);
  }
  void check_version(int key, std::string_view value, std::uint64_t least) {
    const std::uint64_t v = version_of(key, value);
    const std::uint64_t most = next_[static_cast<std::size_t>(key)].load(std::memory_order_acquire);
    if (v == 0 || v < least || v > most) bad("version", key);
  }

  void scan(bool forward) {
    std::vector<std::uint64_t> least(kKeys);
    for (std::size_t k = 0; k < kKeys; ++k) {
      least[k] = acknowledged_[k].load(std::memory_order_acquire);
    }
    Iterator it = store_->iterator();
    std::string last;
    int staying = 0;
    forward ? it.seek_first() : it.seek_last();
    for (bool first = true; it.valid(); first = false) {
      if (!first && (forward ? it.key() <= last : it.key() >= last)) bad("order", 0);
      last = it.key();
      const int key = number_of(last);
      check_version(key, it.value(), least[static_cast<std::size_t>(key)]);
      staying += stays(key) ? 1 : 0;
      forward ? it.next() : it.prev();
    }
    if (it.status() != Status::ok || staying != kKeys / 8) bad("scan misses", staying);
  }

  void bad(const char* what, int key) {
    if (failures_.fetch_add(1, std::memory_order_relaxed) < 10) {
      ADD_FAILURE() << what << ' ' << key;
    }
  }

  void finish() {
    EXPECT_EQ(failures_.load(std::memory_order_relaxed), 0);
    check_all();
    ASSERT_EQ(store_->close(), Status::ok);
    store_ = std::make_unique<Store>(opened());
    check_all();
  }
  void check_all() {
    std::uint64_t live = 0;
    for (int key = 0; key < kKeys; ++key) {
      const auto k = static_cast<std::size_t>(key);
      const Result<std::string> value = store_->get(key_of(key));
      ASSERT_EQ(value.has_value(), live_[k] != 0) << key;
      if (!value) continue;
      ++live;
      ASSERT_EQ(version_of(key, *value), next_[k].load(std::memory_order_relaxed)) << key;
    }
    EXPECT_EQ(store_->stats().records, live);
    expect_valid(*store_);
  }

  std::unique_ptr<Store> store_;
  // Written by the key's writer. next_: the newest version, maybe not written yet. acknowledged_:
  // the newest version that is surely written.
  std::atomic<std::uint64_t> next_[kKeys] = {};
  std::atomic<std::uint64_t> acknowledged_[kKeys] = {};
  char live_[kKeys] = {};  // used by the writer only
  std::atomic<int> failures_{0};
};

TEST_F(KvStress, writers_readers_batches_and_cursors_agree) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([this, w] {
      std::mt19937_64 rng(kSeed + static_cast<unsigned>(w));
      const auto mine = [&] { return static_cast<int>(rng() % (kKeys / kWriters)) * kWriters + w; };
      for (int i = 0; i < scaled(30000); ++i) {
        const int key = mine();
        switch (rng() % 8) {
          case 0:
          case 1:
          case 2:
            put(key);
            break;
          case 3:
          case 4:
            if (!stays(key)) erase(key);
            break;
          case 5: {
            std::map<int, bool> ops;
            for (int n = 0; n < 12; ++n) ops[mine()] = rng() % 2 == 0;
            std::vector<int> puts, erases;
            for (const auto& [k, e] : ops) (e && !stays(k) ? erases : puts).push_back(k);
            write(puts, erases);
            break;
          }
          default:
            read(static_cast<int>(rng() % kKeys));
        }
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; !stop.load(std::memory_order_acquire); ++i) scan(i % 2 == 0);
  });
  for (std::size_t t = 0; t < kWriters; ++t) threads[t].join();
  stop.store(true, std::memory_order_release);
  threads.back().join();
  finish();
}

TEST_F(KvStress, leaves_come_and_go_under_cursors) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  // Neighbouring keys belong to different writers, so all writers split and unlink the same leaves.
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([this, w] {
      for (int round = 0; round < scaled(60); ++round) {
        const int from = round * 200 % kKeys;
        for (int k = from + w; k < from + 800; k += kWriters) put(k % kKeys);
        for (int k = from + w; k < from + 800; k += kWriters) {
          if (!stays(k % kKeys)) erase(k % kKeys);
        }
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; !stop.load(std::memory_order_acquire); ++i) scan(i % 2 == 0);
  });
  for (std::size_t t = 0; t < kWriters; ++t) threads[t].join();
  stop.store(true, std::memory_order_release);
  threads.back().join();
  finish();
}

TEST_F(KvStress, short_threads_hand_on_what_they_leave) {
  for (int round = 0; round < scaled(100); ++round) {
    std::vector<std::thread> threads;
    for (int w = 0; w < kWriters; ++w) {
      threads.emplace_back([this, w, round] {
        for (int i = 0; i < 20; ++i) {
          const int key = (round * 80 + i * kWriters) % kKeys + w;
          put(key);
          read((key + 1) % kKeys);
          if (!stays(key) && i % 2 == 0) erase(key);
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
  finish();
}

// Every leaf is emptied and unlinked, and comes back: no key stays that would keep it.
TEST_F(KvStress, all_keys_vanish_and_return) {
  WriteBatch all;
  for (int k = 0; k < kKeys; ++k) all.erase(key_of(k));
  ASSERT_EQ(store_->write(all), Status::ok);
  std::fill(std::begin(live_), std::end(live_), 0);
  for (int round = 0; round < scaled(40); ++round) {
    std::vector<std::thread> threads;
    for (int w = 0; w < kWriters; ++w) {
      threads.emplace_back([this, w] {
        for (int k = w; k < kKeys; k += kWriters) put(k);
        for (int k = kKeys - kWriters + w; k >= 0; k -= kWriters) erase(k);
      });
    }
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(store_->stats().records, 0u);
    expect_valid(*store_);
  }
  finish();
}

}  // namespace
}  // namespace tenuto
