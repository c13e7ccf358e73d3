// Fixed capacities, filled to N and N + 1: element N + 1 works as well as the others, or is refused
// with an error. A kill afterwards leaves nothing behind. capacity_crash does the same under the
// explorer, which also loses lines. The table in README.md says where each capacity is tried.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "heap/lane_heap.h"
#include "pm/media.h"
#include "store/tree/versions.h"
#include "support/tx_parts.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tx/format.h"
#include "tx/undo.h"

namespace tenuto::test {
namespace {

constexpr std::size_t kWords = 1100;

struct Table {
  PtrWord word[kWords];
};

class Capacity : public testing::Test {
 protected:
  Capacity() : path_("capacity") {
    PoolOptions o = PoolParts::small_options();
    o.size = 64u << 20;
    EXPECT_EQ(p_.create(path_.str(), o), Status::ok);
    p_.make_root<Table>(0);
  }
  Table& table() { return p_.get_root<Table>(0); }
  void make_blocks(std::size_t n, std::uint64_t bytes = 64) {
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(p_.heap->malloc_to(bytes, table().word[i]), Status::ok);
    }
  }
  // Runs `work` in a thread that stays alive until the pool is killed or closed, then opens and
  // validates the pool.
  void by_another_thread(const std::function<void()>& work, bool kill) {
    std::mutex done;
    done.lock();
    std::atomic<bool> worked = false;
    std::thread t([&] {
      work();
      worked = true;
      const std::lock_guard lock(done);
    });
    while (!worked) std::this_thread::yield();
    if (kill) {
      p_.crash();
    } else {
      EXPECT_EQ(p_.close(), Status::ok);
    }
    done.unlock();
    t.join();
    ASSERT_EQ(p_.open(path_.str()), Status::ok) << p_.report.text();
    EXPECT_EQ(p_.heap->validate(&p_.report), Status::ok) << p_.report.text();
    EXPECT_EQ(p_.engine->validate(&p_.report), Status::ok) << p_.report.text();
  }
  void expect_blocks(std::size_t n, const std::string& what) {
    EXPECT_EQ(p_.allocated_blocks().size(), n + 1) << what;  // the table is a block, too
    std::size_t named = 0;
    for (const PtrWord& w : table().word) named += w.raw != 0 ? 1 : 0;
    EXPECT_EQ(named, n) << what;
  }
  Status free_in_transaction(std::size_t from, std::size_t to) {
    return p_.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add_later(&table().word[from], (to - from) * sizeof(PtrWord)));
      TENUTO_TRY(tx.ready());
      for (std::size_t i = from; i < to; ++i) {
        PtrWord& w = table().word[i];
        TENUTO_TRY(tx.free(PtrWord::decode(&w, w.raw)));
        w.raw = 0;
      }
      return Status::ok;
    });
  }

  TempPath path_;
  TxParts p_;
};

// Intents: a ring of 28 lines in groups of 8, with up to 2, 4 or 16 elements in a line.
TEST_F(Capacity, intents_of_single_frees) {
  for (const bool kill : {true, false}) {
    for (const std::size_t n :
         {heap::kIntentLines - 1, heap::kIntentLines, heap::kIntentLines + 1}) {
      make_blocks(n);
      by_another_thread(
          [&] {
            for (std::size_t i = 0; i < n; ++i) {
              EXPECT_EQ(p_.heap->free_from(table().word[i]), Status::ok);
            }
          },
          kill);
      expect_blocks(0, std::to_string(n));
    }
  }
}

TEST_F(Capacity, elements_of_a_line_and_of_a_group) {
  using heap::kGroupLines;
  using heap::kIntentPacked;
  using heap::kIntentPairs;
  using heap::kIntentRun;
  for (const bool kill : {true, false}) {
    for (const std::size_t base : {kIntentPairs, kIntentRun, kIntentPacked,
                                   kGroupLines * kIntentPacked, 3 * kGroupLines * kIntentPacked}) {
      for (const std::size_t n : {base, base + 1}) {
        by_another_thread(
            [&] {
              const std::span<PtrWord> words(table().word, n);
              EXPECT_EQ(p_.heap->malloc_to(Sizes(64), Words<PtrWord>(words)), Status::ok);
            },
            kill);
        expect_blocks(n, std::to_string(n));
        by_another_thread(
            [&] {
              const std::span<PtrWord> words(table().word, n);
              EXPECT_EQ(p_.heap->free_from(Words<PtrWord>(words)), Status::ok);
            },
            kill);
        expect_blocks(0, std::to_string(n));
      }
    }
  }
}

// A transaction: 1024 blocks in limbo, 4 MiB in limbo, 32 new blocks that are searched one by one.
TEST_F(Capacity, blocks_in_limbo) {
  for (const bool kill : {true, false}) {
    for (const std::size_t n : {1024u, 1025u}) {
      make_blocks(n);
      by_another_thread([&] { EXPECT_EQ(free_in_transaction(0, n), Status::ok); }, kill);
      expect_blocks(0, std::to_string(n));
    }
    constexpr std::uint64_t kBytes = 64u << 10;
    for (const std::size_t n : {64u, 65u}) {
      make_blocks(n, kBytes);
      by_another_thread([&] { EXPECT_EQ(free_in_transaction(0, n), Status::ok); }, kill);
      expect_blocks(0, std::to_string(n) + " of 64 KiB");
    }
  }
}

TEST_F(Capacity, new_blocks_of_a_transaction) {
  for (const bool kill : {true, false}) {
    for (const std::size_t n : {32u, 33u}) {
      by_another_thread(
          [&] {
            const Status s = p_.run([&](Transaction& tx) {
              TENUTO_TRY(tx.add_later(table()));
              TENUTO_TRY(tx.ready());
              std::vector<void*> made;
              for (std::size_t i = 0; i < n; ++i) made.push_back(*tx.alloc(64));
              for (std::size_t i = 0; i < n; i += 2) TENUTO_TRY(tx.free(made[i]));
              for (std::size_t i = 1; i < n; i += 2) {
                table().word[i].raw = PtrWord::encode(&table().word[i], made[i]);
              }
              return Status::ok;
            });
            EXPECT_EQ(s, Status::ok);
          },
          kill);
      expect_blocks(n / 2, std::to_string(n));
      EXPECT_EQ(p_.heap->usable_size({1}), 0u);
      const Status s = p_.run([&](Transaction& tx) {
        TENUTO_TRY(tx.add(table()));
        for (PtrWord& w : table().word) {
          if (w.raw == 0) continue;
          TENUTO_TRY(tx.free(PtrWord::decode(&w, w.raw)));
          w.raw = 0;
        }
        return Status::ok;
      });
      EXPECT_EQ(s, Status::ok);
    }
  }
}

// Entries of an undo area: 48 lines of the lane, then log frames. An area keeps 16 of them.
TEST_F(Capacity, undo_lines_and_log_frames) {
  constexpr std::size_t kFramesKept = 16;
  const std::size_t lane_entries = pm::kLaneUndoLines;
  const std::size_t frame_entries = tx::kLogFrameLines;
  const std::size_t all = lane_entries + (kFramesKept + 1) * frame_entries;
  const std::size_t bytes = (all + 2) * tx::kEntryBytes;
  ASSERT_EQ(p_.heap->malloc_to(bytes, p_.root(1)), Status::ok);
  for (const bool aborts : {true, false}) {
    for (const std::size_t base :
         {lane_entries, lane_entries + frame_entries, lane_entries + kFramesKept * frame_entries}) {
      for (const std::size_t n : {base, base + 1}) {
        auto* const at = static_cast<std::byte*>(PtrWord::decode(&p_.root(1), p_.root(1).raw));
        std::memset(at, 1, bytes);
        by_another_thread(
            [&] {
              Transaction tx(p_.engine->mine());
              EXPECT_EQ(tx.add(at, n * tx::kEntryBytes), Status::ok) << n;
              std::memset(at, 2, n * tx::kEntryBytes);
              if (!aborts) {
                EXPECT_EQ(tx.commit(), Status::ok);
              }
            },
            true);
        const auto* const now =
            static_cast<const char*>(PtrWord::decode(&p_.root(1), p_.root(1).raw));
        EXPECT_EQ(now[0], aborts ? 1 : 2) << n;
        EXPECT_EQ(now[n * tx::kEntryBytes - 1], aborts ? 1 : 2) << n;
      }
    }
  }
}

// Lanes: 64 in the head, then segments of 64. Each of the threads alive at one time has one.
TEST_F(Capacity, lanes_of_the_head_and_one_more) {
  p_.lanes->mine();  // this thread has one
  for (const std::size_t n : {pm::kLanesPerSegment - 1, pm::kLanesPerSegment}) {
    const bool fit = n < pm::kLanesPerSegment;
    std::atomic<std::size_t> ready = 0;
    std::mutex all_go;
    all_go.lock();
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < n; ++t) {
      threads.emplace_back([&, t] {
        EXPECT_EQ(p_.heap->malloc_to(64, table().word[t]), Status::ok);
        ready += 1;
        const std::lock_guard lock(all_go);
      });
    }
    while (ready != n) std::this_thread::yield();
    EXPECT_EQ(p_.lanes->count(), (fit ? 1 : 2) * pm::kLanesPerSegment);
    if (!fit) p_.crash();
    all_go.unlock();
    for (std::thread& t : threads) t.join();
    if (!fit) break;
    for (std::size_t t = 0; t < n; ++t) ASSERT_EQ(p_.heap->free_from(table().word[t]), Status::ok);
  }
  ASSERT_EQ(p_.open(path_.str()), Status::ok) << p_.report.text();
  EXPECT_EQ(p_.lanes->count(), 2 * pm::kLanesPerSegment);
  expect_blocks(pm::kLanesPerSegment, "after a kill");
}

// A dead thread's lane passes to the next thread: 300 threads in a row need no second segment.
TEST_F(Capacity, lanes_are_handed_on) {
  for (std::size_t t = 0; t < 300; ++t) {
    std::thread([&] { EXPECT_EQ(p_.heap->malloc_to(64, table().word[t]), Status::ok); }).join();
  }
  EXPECT_EQ(p_.lanes->count(), pm::kLanesPerSegment);
}

// Snapshots of a store: their count is a word of 16 bits.
TEST(CapacityStore, snapshots) {
  const TempPath path("capacity-snapshots");
  StoreOptions o;
  o.pool.size = 8u << 20;
  o.pool.medium = Medium::cache;
  Result<Store> s = Store::open(path.str(), o);
  ASSERT_TRUE(s);
  ASSERT_EQ(s->put("key", "value"), Status::ok);
  std::vector<Snapshot> all;
  for (std::uint64_t i = 0; i < store::TimestampWord::kSnapshotsMax; ++i) {
    Result<Snapshot> one = s->snapshot();
    ASSERT_TRUE(one) << i;
    all.push_back(std::move(*one));
  }
  EXPECT_EQ(s->snapshot().error(), Status::busy);
  EXPECT_EQ(s->put("key", "other"), Status::ok);
  std::string value;
  EXPECT_EQ(all.front().get("key", value), Status::ok);
  EXPECT_EQ(value, "value");
  all.pop_back();
  {
    Result<Snapshot> again = s->snapshot();
    ASSERT_TRUE(again);
    EXPECT_EQ(again->get("key", value), Status::ok);
    EXPECT_EQ(value, "other");
  }
  all.clear();
  EXPECT_EQ(s->validate(), Status::ok);
  EXPECT_EQ(s->close(), Status::ok);
}

// Pools open in one process.
TEST(CapacityStore, pools_of_a_process) {
  PoolOptions o;
  o.size = kPoolBytesMin;
  o.size_max = kPoolBytesMin;
  o.medium = Medium::cache;
  const TempPath path("capacity-pool");
  // Other regions stand in for pools, which would need 2 GiB.
  std::vector<std::byte> others(pm::kRegionsMax);
  for (std::size_t i = 1; i < pm::kRegionsMax; ++i) {
    ASSERT_TRUE(pm::register_region(&others[i], 1, Medium::cache, false));
  }
  Result<Pool> last = Pool::create(path.str(), o);
  ASSERT_TRUE(last);
  const TempPath one_more("capacity-pool-more");
  Report report;
  EXPECT_EQ(Pool::create(one_more.str(), o, &report).error(), Status::full);
  EXPECT_NE(report.text().find("pools open"), std::string::npos) << report.text();
  EXPECT_NE(::access(one_more.str().c_str(), F_OK), 0);
  EXPECT_EQ(last->close(), Status::ok);
  EXPECT_TRUE(Pool::create(one_more.str(), o, &report)) << report.text();
  for (std::size_t i = 1; i < pm::kRegionsMax; ++i) pm::unregister_region(&others[i]);
}

}  // namespace
}  // namespace tenuto::test
