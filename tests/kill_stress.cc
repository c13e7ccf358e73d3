// SIGKILL at random moments, hundreds of times: a child process opens the store (which recovers
// it), checks every acknowledged write, the heap and the objects against what it had promised
// before, closes and opens once more, and goes on writing from several threads until it is killed,
// which may also happen during recovery.
//
// TENUTO_KILLS sets the number of kills, TENUTO_SEED the seed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "support/kill_state.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto {
namespace {

using test::kill_key;
using test::kill_value;
using test::KillOp;
using test::KillState;
using test::KillThread;
using test::kKillBatch;
using test::kKillKeys;
using test::kKillThreads;
using test::kKillWords;
using test::TempPath;

constexpr int kExitVerifyFailed = 3;

struct Object {
  std::uint32_t version;
  std::uint32_t filler[30];
};

struct Objects {
  Ptr<Object> word[kKillWords];
  std::uint64_t balance[32];
};
constexpr std::uint64_t kBalance = 1000;

// The life of one child.
class Child {
 public:
  Child(KillState& state, std::string path, std::uint64_t seed)
      : state_(state), path_(std::move(path)), seed_(seed) {}

  [[noreturn]] void run() {
    open();
    verify();
    store_.reset();  // a clean close, and the open after one
    open();
    verify();
    state_.verified += 1;
    std::vector<std::thread> threads;
    for (int t = 0; t < kKillThreads; ++t) threads.emplace_back([this, t] { write(t); });
    threads.emplace_back([this] { change_objects(); });
    for (auto& th : threads) th.join();
    std::_Exit(0);
  }

 private:
  [[noreturn]] void fail(const std::string& what) {
    std::snprintf(state_.failure, sizeof state_.failure, "%s", what.c_str());
    std::_Exit(kExitVerifyFailed);
  }

  void open() {
    StoreOptions o;
    o.pool.size = 16u << 20;
    o.pool.size_max = 1u << 30;
    Report report;
    auto opened = Store::open(path_, o, &report);
    if (!opened) fail("open: " + std::string(status_name(opened.error())) + " " + report.text());
    store_ = std::make_unique<Store>(std::move(*opened));
    const PoolInfo info = store_->pool().info();
    state_.unclean += info.was_clean ? 0 : 1;
    state_.rolled_back += info.rolled_back;
    state_.leaked_frames += info.leaked_frames;
    state_.recovery_ms_sum += info.recovery_ms;
    state_.recovery_ms_max = std::max(state_.recovery_ms_max, info.recovery_ms);
    auto root = store_->pool().root<Objects>("kill objects");
    if (!root) fail("root");
    objects_ = *root;
  }

  std::uint32_t found(int t, int key) {
    std::string value;
    const Status s = store_->get(kill_key(t, key), value);
    if (s == Status::not_found) return 0;
    if (s != Status::ok) fail("get: " + std::string(status_name(s)));
    const auto version = static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    if (value != kill_value(t, key, version)) {
      fail("torn value of " + kill_key(t, key) + " version " + std::to_string(version));
    }
    return version;
  }

  void verify() {
    std::size_t records = 0;
    for (int t = 0; t < kKillThreads; ++t) verify_thread(t, records);
    std::size_t seen = 0;
    Iterator it = store_->iterator();
    std::string last;
    for (it.seek_first(); it.valid(); it.next()) {
      if (seen++ > 0 && !(last < it.key())) fail("keys out of order at " + std::string(it.key()));
      last = it.key();
    }
    if (it.status() != Status::ok) fail("iterator: " + std::string(status_name(it.status())));
    if (seen != records) {
      fail(std::to_string(records) + " records by get, " + std::to_string(seen) + " by scan");
    }
    verify_objects();
    Report report;
    if (store_->validate(&report) != Status::ok) fail("validate: " + report.text());
  }

  void verify_thread(int t, std::size_t& records) {
    KillThread& me = state_.thread[t];
    const int pending = me.pending.load();
    std::set<int> open_keys;
    int in = 0;
    int out = 0;
    for (int i = 0; i < pending; ++i) {
      const KillOp& op = me.op[i];
      open_keys.insert(op.key);
      const std::uint32_t v = found(t, op.key);
      if (v != op.before && v != op.after) {
        fail("pending " + kill_key(t, op.key) + " is " + std::to_string(v) + ", must be " +
             std::to_string(op.before) + " or " + std::to_string(op.after));
      }
      if (op.before != op.after) (v == op.after ? in : out) += 1;
      me.version[op.key] = v;
    }
    if (in > 0 && out > 0) fail("a batch is half there");
    for (int key = 0; key < kKillKeys; ++key) {
      const std::uint32_t v = found(t, key);
      records += v != 0 ? 1 : 0;
      if (open_keys.contains(key) || v == me.version[key]) continue;
      fail("acknowledged " + kill_key(t, key) + " is " + std::to_string(v) + ", must be " +
           std::to_string(me.version[key]));
    }
    me.pending = 0;
  }

  void verify_objects() {
    std::uint64_t objects = 1;  // the root
    const int pending = state_.word_pending.load() - 1;
    for (int i = 0; i < kKillWords; ++i) {
      const Object* o = objects_->word[i].get();
      const std::uint32_t v = o == nullptr ? 0 : o->version;
      objects += o != nullptr ? 1 : 0;
      if (i == pending) {
        // The stamp is stored after the attachment and is not part of it.
        const bool there = o != nullptr;
        if (there) objects_->word[i]->version = state_.word_version[i] = 1;
        if (!there) state_.word_version[i] = 0;
        continue;
      }
      if (v != state_.word_version[i]) {
        fail("object " + std::to_string(i) + " is " + std::to_string(v) + ", must be " +
             std::to_string(state_.word_version[i]));
      }
    }
    state_.word_pending = 0;
    if (store_->pool().stats().objects != objects) {
      fail(std::to_string(store_->pool().stats().objects) + " objects allocated, " +
           std::to_string(objects) + " reachable");
    }
    std::uint64_t sum = 0;
    for (const std::uint64_t b : objects_->balance) sum += b;
    if (sum != 0 && sum != std::size(objects_->balance) * kBalance) fail("balances are torn");
    if (sum == 0) {
      const Status s = store_->pool().run([&](Transaction& tx) {
        TENUTO_TRY(tx.add(objects_->balance));
        for (std::uint64_t& b : objects_->balance) b = kBalance;
        return Status::ok;
      });
      if (s != Status::ok) fail("first balances");
    }
  }

  void write(int t) {
    std::mt19937_64 rng(seed_ * 977 + static_cast<unsigned>(t));
    KillThread& me = state_.thread[t];
    for (;;) {
      const int entries = rng() % 8 == 0 ? 1 + static_cast<int>(rng() % kKillBatch) : 1;
      std::set<int> keys;
      while (static_cast<int>(keys.size()) < entries) {
        // Some keys are hot; now and then a whole neighbourhood is erased.
        keys.insert(static_cast<int>(rng() % 3 == 0 ? rng() % 20 : rng() % kKillKeys));
      }
      int n = 0;
      for (const int key : keys) {
        const std::uint32_t before = me.version[key];
        const bool erase = before != 0 && rng() % 3 == 0;
        me.op[n++] = {key, before, erase ? 0 : static_cast<std::uint32_t>(1 + rng() % 1000000)};
      }
      me.pending.store(n);
      apply(t, me, n);
      for (int i = 0; i < n; ++i) me.version[me.op[i].key] = me.op[i].after;
      me.pending.store(0);
      me.done += 1;
    }
  }

  void apply(int t, KillThread& me, int n) {
    Status s = Status::ok;
    if (n == 1) {
      const KillOp& op = me.op[0];
      s = op.after == 0 ? store_->erase(kill_key(t, op.key))
                        : store_->put(kill_key(t, op.key), kill_value(t, op.key, op.after));
    } else {
      WriteBatch batch;
      for (int i = 0; i < n; ++i) {
        const KillOp& op = me.op[i];
        if (op.after == 0) {
          batch.erase(kill_key(t, op.key));
        } else {
          batch.put(kill_key(t, op.key), kill_value(t, op.key, op.after));
        }
      }
      s = store_->write(batch);
    }
    if (s != Status::ok) fail("write: " + std::string(status_name(s)));
  }

  void change_objects() {
    std::mt19937_64 rng(seed_ * 31 + 5);
    Pool& pool = store_->pool();
    for (;;) {
      const auto i = static_cast<int>(rng() % kKillWords);
      Status s = Status::ok;
      state_.word_before = state_.word_version[i];
      state_.word_after = state_.word_before == 0 ? 1 : 0;
      state_.word_pending = i + 1;
      const bool in_tx = rng() % 2 == 0;
      if (state_.word_before == 0) {
        s = in_tx ? make_in_tx(pool, i) : pool.malloc_to(objects_->word[i]);
        if (s == Status::ok && !in_tx) objects_->word[i]->version = 1;
      } else {
        s = in_tx ? free_in_tx(pool, i) : pool.free_from(objects_->word[i]);
      }
      if (s != Status::ok) fail("object: " + std::string(status_name(s)));
      state_.word_version[i] = state_.word_after;
      state_.word_pending = 0;
      state_.objects_done += 1;
    }
  }

  // Each also moves an amount between two balances.
  Status make_in_tx(Pool& pool, int i) {
    return pool.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add_later(objects_->word[i]));
      TENUTO_TRY(transfer(tx, i));
      auto made = tx.make<Object>();
      if (!made) return made.error();
      (*made)->version = 1;
      objects_->word[i] = *made;
      return Status::ok;
    });
  }
  Status free_in_tx(Pool& pool, int i) {
    return pool.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add_later(objects_->word[i]));
      TENUTO_TRY(transfer(tx, i));
      TENUTO_TRY(tx.destroy(objects_->word[i].get()));
      objects_->word[i] = nullptr;
      return Status::ok;
    });
  }
  Status transfer(Transaction& tx, int i) {
    std::uint64_t& from = objects_->balance[i % 32];
    std::uint64_t& to = objects_->balance[(i * 7 + 3) % 32];
    TENUTO_TRY(tx.add_later(from));
    TENUTO_TRY(tx.add_later(to));
    TENUTO_TRY(tx.ready());
    if (from == 0) return Status::ok;
    from -= 1;
    to += 1;
    return Status::ok;
  }

  KillState& state_;
  const std::string path_;
  const std::uint64_t seed_;
  std::unique_ptr<Store> store_;
  Objects* objects_ = nullptr;
};

std::uint64_t from_env(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(KillStress, nothing_acknowledged_is_lost_and_nothing_leaks) {
  const std::uint64_t kills = from_env("TENUTO_KILLS", 400);
  const std::uint64_t seed = from_env("TENUTO_SEED", std::random_device{}());
  SCOPED_TRACE("TENUTO_SEED=" + std::to_string(seed));
  std::mt19937_64 rng(seed);
  TempPath path("kill");
  KillState* state = KillState::map();
  ASSERT_NE(state, nullptr);
  std::uint64_t killed_in_recovery = 0;
  for (std::uint64_t n = 0; n < kills; ++n) {
    const std::uint64_t verified = state->verified;
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) Child(*state, path.str(), rng()).run();
    // Mostly some milliseconds of work, sometimes a moment within recovery.
    int wait_status = 0;
    bool ended = false;
    if (rng() % 6 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(rng() % 12000));
    } else {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (!ended && state->verified == verified && std::chrono::steady_clock::now() < limit) {
        ended = ::waitpid(pid, &wait_status, WNOHANG) == pid;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(rng() % 15000));
    }
    if (!ended) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &wait_status, 0);
    }
    ASSERT_EQ(state->failure[0], '\0') << "kill " << n << ": " << state->failure;
    ASSERT_TRUE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL)
        << "kill " << n << ": the child ended by itself, status " << wait_status;
    killed_in_recovery += state->verified == verified ? 1 : 0;
  }
  std::uint64_t done = 0;
  for (const KillThread& t : state->thread) done += t.done;
  std::printf(
      "%lu kills (%lu in recovery), %lu store operations, %lu object operations, "
      "%lu unclean opens, %lu transactions rolled back, %lu frames given back, "
      "recovery mean %.2f ms, max %.2f ms\n",
      kills, killed_in_recovery, done, state->objects_done.load(), state->unclean,
      state->rolled_back, state->leaked_frames,
      state->recovery_ms_sum / static_cast<double>(std::max<std::uint64_t>(1, state->unclean)),
      state->recovery_ms_max);
  EXPECT_GT(done, kills) << "the children hardly wrote anything: this proves nothing";
  EXPECT_GT(state->verified, kills / 3);
}

}  // namespace
}  // namespace tenuto
