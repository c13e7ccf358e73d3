// Threads write, read, run transactions and read snapshots while another thread compacts. All
// transfers keep the sum of the accounts, every key keeps its writer's last version, and every
// snapshot stays the same. TENUTO_STRESS_SCALE multiplies the work.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;

constexpr int kWriters = 2;
constexpr int kKeys = 1500;  // of each writer
constexpr int kAccounts = 40;
constexpr int kSum = 100 * kAccounts;
constexpr std::uint64_t kSeed = 20'261'121;

int scaled(int n) {
  static const char* const text = std::getenv("TENUTO_STRESS_SCALE");
  return static_cast<int>(n * (text == nullptr ? 1 : std::atof(text)));
}

std::string account(int n) {
  return "account" + std::to_string(n * 37 % kAccounts) + "/" + key_of(n);
}

// "version:" and padding, whose length changes the size class of the record.
std::string value_of(int key, int version) {
  const auto bytes = static_cast<std::size_t>((version * 131 + key) % 700);
  return std::to_string(version) + ":" + std::string(bytes, static_cast<char>('a' + version % 26));
}

class KvCompactStress : public test::KvFixture {
 protected:
  void bad(const std::string& what) {
    if (failures_.fetch_add(1, std::memory_order_relaxed) < 10) ADD_FAILURE() << what;
  }

  // Puts all its keys and erases most of them, again and again, so that there is work for
  // compactions.
  void write(int w, std::map<std::string, std::string>& mine) {
    std::mt19937_64 rng(kSeed + static_cast<unsigned>(w));
    // Goes on while the other threads have not run yet.
    const auto others_rest = [&] { return moved_ == 0 || merged_ == 0 || transfers_ == 0; };
    for (int round = 1; round <= scaled(6) || (others_rest() && round < 1000); ++round) {
      for (int i = 0; i < kKeys; ++i) {
        const std::string key = key_of(i * kWriters + w);
        const std::string value = value_of(i, round);
        if (store_->put(key, value) != Status::ok) bad("put");
        mine[key] = value;
      }
      for (int i = 0; i < kKeys; ++i) {
        if (rng() % 6 == 0) continue;
        const std::string key = key_of(i * kWriters + w);
        if (store_->erase(key) != Status::ok) bad("erase " + key);
        mine.erase(key);
      }
      for (const auto& [key, value] : mine) {
        std::string found;
        if (store_->get(key, found) != Status::ok || found != value) bad("get " + key);
      }
    }
    writing_.fetch_sub(1, std::memory_order_release);
  }

  void transfer(unsigned t) {
    std::mt19937_64 rng(kSeed * 3 + t);
    while (writing_.load(std::memory_order_acquire) > 0) {
      const std::string from = account(static_cast<int>(rng() % kAccounts));
      const std::string to = account(static_cast<int>(rng() % kAccounts));
      if (from == to) continue;
      const Status s = store_->run([&](StoreTransaction& tx) -> Status {
        std::string a;
        std::string b;
        TENUTO_TRY(tx.get(from, a));
        TENUTO_TRY(tx.get(to, b));
        TENUTO_TRY(tx.put(from, std::to_string(std::stoi(a) - 1)));
        return tx.put(to, std::to_string(std::stoi(b) + 1));
      });
      if (s != Status::ok && s != Status::conflict) bad(std::string("transfer: ") + status_name(s));
      transfers_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  static int sum(Iterator it, std::string& all) {
    int sum = 0;
    for (it.seek("account"); it.valid() && it.key() < "b"; it.next()) {
      sum += std::stoi(std::string(it.value()));
      all.append(it.key()).append(it.value());
    }
    return it.status() == Status::ok ? sum : -1;
  }

  void look() {
    while (writing_.load(std::memory_order_acquire) > 0) {
      auto snap = store_->snapshot();
      if (!snap) return bad("snapshot");
      std::string first;
      std::string again;
      if (sum(snap->iterator(), first) != kSum) bad("a snapshot shows another sum");
      scan();
      if (sum(snap->iterator(), again) != kSum || first != again) bad("a snapshot changed");
    }
  }

  void scan() {
    Iterator it = store_->iterator();
    std::string last;
    int accounts = 0;
    for (it.seek_first(); it.valid(); it.next()) {
      if (it.key() <= last) bad("order");
      last = it.key();
      accounts += last.starts_with("account") ? 1 : 0;
    }
    if (it.status() != Status::ok || accounts != kAccounts) bad("scan");
    last = "~";  // sorts after all keys
    for (it.seek_last(); it.valid(); it.prev()) {
      if (it.key() >= last) bad("order backwards");
      last = it.key();
    }
  }

  void compact() {
    for (unsigned n = 0; writing_.load(std::memory_order_acquire) > 0; ++n) {
      const auto s = store_->compact(
          {.moves_max = n % 3 == 0 ? 0u : 300u, .occupancy = 0.9, .in_key_order = n % 6 == 0});
      if (!s) return bad(std::string("compact: ") + status_name(s.error()));
      moved_ += s->records_moved;
      leaves_ += s->leaves_moved;
      merged_ += s->leaves_merged;
      emptied_ += s->slabs_emptied;
    }
  }

  std::unique_ptr<Store> store_;
  std::atomic<int> writing_{kWriters};
  std::atomic<int> failures_{0};
  std::atomic<int> transfers_{0};
  std::atomic<std::uint64_t> moved_{0}, leaves_{0}, merged_{0}, emptied_{0};
};

TEST_F(KvCompactStress, nobody_notices) {
  options_.pool.size_max = 256u << 20;
  store_ = std::make_unique<Store>(opened());
  for (int i = 0; i < kAccounts; ++i) ASSERT_EQ(store_->put(account(i), "100"), Status::ok);
  std::vector<std::map<std::string, std::string>> mine(kWriters);
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] { write(w, mine[static_cast<std::size_t>(w)]); });
  }
  for (unsigned t = 0; t < 2; ++t) threads.emplace_back([&, t] { transfer(t); });
  threads.emplace_back([&] { look(); });
  threads.emplace_back([&] { compact(); });
  for (std::thread& t : threads) t.join();
  std::printf("%llu records and %llu leaves moved, %llu leaves merged, %llu slabs emptied\n",
              static_cast<unsigned long long>(moved_.load()),
              static_cast<unsigned long long>(leaves_.load()),
              static_cast<unsigned long long>(merged_.load()),
              static_cast<unsigned long long>(emptied_.load()));
  EXPECT_GT(moved_, 0u);
  EXPECT_GT(merged_, 0u);
  EXPECT_GT(transfers_.load(), 0);

  std::map<std::string, std::string> expected;
  for (const auto& m : mine) expected.insert(m.begin(), m.end());
  const auto check = [&](Store& s) {
    std::size_t n = 0;
    Iterator it = s.iterator();
    for (it.seek("k"); it.valid(); it.next(), ++n) {
      const auto at = expected.find(std::string(it.key()));
      ASSERT_TRUE(at != expected.end() && at->second == it.value()) << it.key();
    }
    EXPECT_EQ(n, expected.size());
    std::string all;
    EXPECT_EQ(sum(s.iterator(), all), kSum);
    expect_valid(s);
  };
  check(*store_);
  EXPECT_EQ(store_->stats().snapshot_versions, 0u);
  EXPECT_TRUE(store_->compact());
  check(*store_);
  ASSERT_EQ(store_->close(), Status::ok);
  Store again = opened();
  check(again);
}

}  // namespace
}  // namespace tenuto
