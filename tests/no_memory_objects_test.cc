// Each allocation of a call fails once, one after the other: objects alone and in transactions. A
// call throws std::bad_alloc or is done, never both. Commits, aborts and frees need no memory, so
// they never throw. Nothing is lost or stays locked.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/each_allocation.h"
#include "support/tx_parts.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kExtent = 16u << 10;
constexpr int kBlocks = 160;
constexpr int kWords = 700;

struct Objects {
  std::uint64_t word[2 * kWords];
  PtrWord block[kBlocks];
  PtrWord more[kBlocks];
};

void* target_of(const PtrWord& word) { return PtrWord::decode(&word, word.raw); }

// Makes the call again, with memory, if it throws.
template <class F>
auto tried_again(const F& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return call();
  }
}

// Makes one allocation, so that a call which needs no memory has one that can fail.
void allocate_once() {
  int* volatile p = new int;
  delete p;
}

class NoMemoryObjects : public testing::Test {
 protected:
  // A pool without lanes, transactions or a log of extents yet.
  void fresh() {
    p_.crash();
    ::unlink(path_.str().c_str());
    ASSERT_EQ(p_.create(path_.str(), options_), Status::ok) << p_.report.text();
    p_.make_root<Objects>(0);
  }
  Objects& o() { return p_.get_root<Objects>(0); }

  // Fails every allocation of the call in turn, each time in a new pool.
  void every_allocation_fails_once(
      const std::function<void()>& before, const std::function<void()>& call,
      const std::function<void()>& after = [] {}) {
    const auto prepare = [&] {
      fresh();
      before();
    };
    fail_each_allocation(prepare, call, [&] {
      after();
      works();
    });
  }

  // Exactly what the words name is in use, also after a kill.
  void works() {
    ASSERT_EQ(p_.engine->drain(), Status::ok);
    p_.heap->trim();
    expect_what_is_named();
    PoolParts& below = p_;
    p_.engine.reset();
    below.crash();
    ASSERT_EQ(p_.open(path_.str(), options_), Status::ok) << p_.report.text();
    EXPECT_EQ(p_.leaked, 0u);
    expect_what_is_named();
  }
  void expect_what_is_named() {
    EXPECT_EQ(p_.heap->validate(&p_.report), Status::ok) << p_.report.text();
    EXPECT_EQ(p_.engine->validate(&p_.report), Status::ok) << p_.report.text();
    std::vector<PoolOffset> named{p_.file->offset_of(&o())};
    for (const PtrWord* words : {o().block, o().more}) {
      for (int i = 0; i < kBlocks; ++i) {
        if (void* const p = target_of(words[i])) named.push_back(p_.file->offset_of(p));
      }
    }
    std::uint64_t bytes = 0;
    for (const PoolOffset b : named) bytes += p_.heap->usable_size(b);
    std::vector<PoolOffset> found = p_.allocated_blocks();
    std::sort(named.begin(), named.end());
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, named);
    EXPECT_EQ(p_.heap->stats().allocated_bytes, bytes);
  }

  std::size_t idle_lanes() {
    std::size_t n = 0;
    p_.lanes->for_each_idle([&](pm::Lane&) { n += 1; });
    return n;
  }
  // Makes the call in a new thread, where its allocation fails.
  static std::function<void()> in_a_thread(std::function<void()> call) {
    return [call = std::move(call)] {
      const long n = allocations_left();
      fail_allocation(0);
      bool met = false;
      std::thread([&] {
        fail_allocation(n);
        try {
          call();
        } catch (const std::bad_alloc&) {
        }
        met = failed_allocation();
      }).join();
      if (met) fail_allocation(1);
      allocate_once();
    };
  }

  void allocate(PtrWord* words, int n, std::uint64_t bytes) {
    for (int i = 0; i < n; ++i) ASSERT_EQ(p_.heap->malloc_to(bytes, words[i]), Status::ok);
  }
  // In the open transaction: a new block for this word.
  Status put(Transaction& tx, PtrWord& word, std::uint64_t bytes, std::uint64_t type = 0) {
    const Result<void*> block = tx.alloc(bytes, {.type = type});
    if (!block) return block.error();
    TENUTO_TRY(tx.add(word));
    word.raw = PtrWord::encode(&word, *block);
    return Status::ok;
  }
  Status remove(Transaction& tx, PtrWord& word) {
    TENUTO_TRY(tx.add(word));
    TENUTO_TRY(tx.free(target_of(word)));
    word.raw = 0;
    return Status::ok;
  }
  static void commit(Transaction& tx) {
    try {
      EXPECT_EQ(tx.commit(), Status::ok);
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << "a commit needs memory";
    }
  }
  static void abort(Transaction& tx) {
    try {
      tx.abort();
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << "an abort needs memory";
    }
  }

  TempPath path_{"no-memory-objects"};
  PoolOptions options_ = TxParts::small_options();
  TxParts p_;
};

TEST_F(NoMemoryObjects, a_transaction_frees_and_the_memory_to_note_it_is_refused) {
  for (const std::uint64_t bytes : {std::uint64_t{100}, kExtent, std::uint64_t{5} << 20}) {
    every_allocation_fails_once([&] { allocate(o().block, 1, bytes); },
                                [&] {
                                  Transaction tx(p_.engine->mine());
                                  EXPECT_EQ(tx.free(target_of(o().block[0])), Status::ok);
                                  EXPECT_EQ(tx.add(o().block[0]), Status::ok);
                                  o().block[0].raw = 0;
                                  commit(tx);
                                });
  }
}

// The caller catches the exception and makes the call again: it was not done, and is done then.
TEST_F(NoMemoryObjects, a_transaction_goes_on_after_a_call_that_threw) {
  for (const bool keeps : {true, false}) {
    std::mutex mutexes[5];
    int called = 0;
    const auto begin = [&] { return std::make_unique<Transaction>(p_.engine->mine()); };
    every_allocation_fails_once(
        [&] {
          called = 0;
          allocate(o().block, 60, 100);
          allocate(o().block + 60, 10, kExtent);
          for (std::uint64_t& w : o().word) w = 7;
        },
        [&] {
          const auto all = tried_again(begin);
          Transaction& tx = *all;
          for (std::mutex& m : mutexes) {
            EXPECT_EQ(tried_again([&] { return tx.lock(m); }), Status::ok);
          }
          const auto call = [&called] { called += 1; };
          EXPECT_EQ(tried_again([&] { return keeps ? tx.on_commit(call) : tx.on_abort(call); }),
                    Status::ok);
          for (int i = kWords; i-- > 0;) {  // not adjacent, so that the ranges do not merge
            std::uint64_t& word = o().word[2 * (i * 37 % kWords)];
            EXPECT_EQ(tried_again([&] { return tx.add(word); }), Status::ok);
            word = 8;
          }
          for (int i = 0; i < 70; ++i) {
            PtrWord& word = o().block[i];
            EXPECT_EQ(tried_again([&] { return tx.free(target_of(word)); }), Status::ok);
            EXPECT_EQ(tried_again([&] { return tx.add(word); }), Status::ok);
            word.raw = 0;
          }
          for (int i = 0; i < 70; ++i) {
            PtrWord& word = o().more[i];
            const std::uint64_t bytes = i < 60 ? 200 : kExtent;
            const auto block = tried_again([&] { return tx.alloc(bytes); });
            ASSERT_TRUE(block);
            if (i % 9 == 0) {
              EXPECT_EQ(tried_again([&] { return tx.free(*block); }), Status::ok);
              continue;
            }
            EXPECT_EQ(tried_again([&] { return tx.add(word); }), Status::ok);
            word.raw = PtrWord::encode(&word, *block);
          }
          keeps ? commit(tx) : abort(tx);
        },
        [&] {
          EXPECT_EQ(called, 1);
          for (std::mutex& m : mutexes) {
            ASSERT_TRUE(m.try_lock());
            m.unlock();
          }
          for (int i = 0; i < kWords; ++i) ASSERT_EQ(o().word[2 * i], keeps ? 8u : 7u) << i;
          for (int i = 0; i < 70; ++i) {
            ASSERT_EQ(target_of(o().block[i]) == nullptr, keeps) << i;
            ASSERT_EQ(target_of(o().more[i]) != nullptr, keeps && i % 9 != 0) << i;
          }
        });
  }
}

// The exception leaves the transaction's scope: all of it is undone.
TEST_F(NoMemoryObjects, an_exception_rolls_a_transaction_back) {
  std::mutex m;
  every_allocation_fails_once(
      [&] {
        allocate(o().block, 140, kExtent);
        o().word[0] = 7;
      },
      [&] {
        Transaction tx(p_.engine->mine());
        EXPECT_EQ(tx.lock(m), Status::ok);
        EXPECT_EQ(tx.add(o().word[0]), Status::ok);
        o().word[0] = 8;
        for (int i = 0; i < 70; ++i) ASSERT_EQ(remove(tx, o().block[i]), Status::ok);
        for (int i = 0; i < 140; ++i) {
          ASSERT_EQ(put(tx, o().more[i], i % 2 == 0 ? 100 : 40, i % 4 == 0 ? 5 : 0), Status::ok);
        }
        commit(tx);
      },
      [&] {
        ASSERT_TRUE(m.try_lock());
        m.unlock();
        const bool done = o().word[0] == 8;
        for (int i = 0; i < 70; ++i) ASSERT_EQ(target_of(o().block[i]) == nullptr, done);
        for (int i = 0; i < 140; ++i) ASSERT_EQ(target_of(o().more[i]) != nullptr, done);
      });
}

// The thread's first use of the heap is a free, at a commit.
TEST_F(NoMemoryObjects, a_threads_first_transactions_free) {
  for (const std::uint64_t bytes : {std::uint64_t{100}, kExtent}) {
    const auto free_all = [&] {
      for (int i = 0; i < 4; ++i) {
        try {
          Transaction tx(p_.engine->mine());
          for (int k = i * 10; k < i * 10 + 10; ++k) {
            ASSERT_EQ(remove(tx, o().block[k]), Status::ok);
          }
          commit(tx);
        } catch (const std::bad_alloc&) {
        }
      }
    };
    every_allocation_fails_once([&] { allocate(o().block, 40, bytes); }, in_a_thread(free_all));
  }
}

TEST_F(NoMemoryObjects, a_transaction_with_savepoints_ends) {
  for (const bool commits : {true, false}) {
    every_allocation_fails_once([&] { allocate(o().block, 10, 100); },
                                [&] {
                                  Transaction tx(p_.engine->mine());
                                  const auto change = [&]() -> Status {
                                    TENUTO_TRY(remove(tx, o().block[1]));
                                    TENUTO_TRY(put(tx, o().more[1], 200));
                                    return Status::conflict;
                                  };
                                  ASSERT_EQ(tx.attempt(change), Status::conflict);
                                  ASSERT_EQ(put(tx, o().more[2], 200), Status::ok);
                                  allocate_once();
                                  commits ? commit(tx) : abort(tx);
                                });
  }
}

TEST_F(NoMemoryObjects, a_threads_first_frees) {
  for (const Consistency c : {Consistency::log, Consistency::gc, Consistency::internal}) {
    options_.consistency = c;
    for (const std::uint64_t bytes : {std::uint64_t{100}, kExtent}) {
      const auto free_one = [&] { ASSERT_EQ(p_.heap->free_from(o().block[3]), Status::ok); };
      const auto before = [&] {
        fresh();
        allocate(o().block, 10, bytes);
      };
      fail_each_allocation(before, in_a_thread(free_one), [&] { expect_what_is_named(); });
    }
  }
}

// Many more entries than a chunk of the extents' log holds: chunks are begun, dropped whole, and
// compacted.
TEST_F(NoMemoryObjects, extents_come_and_go) {
  every_allocation_fails_once(
      [&] {},
      [&] {
        for (int round = 0; round < 5; ++round) {
          for (int i = 0; i < kBlocks; ++i) {
            const bool apart = i % 4 != 0 || round == 0;  // every fourth one stays
            if (apart && !target_of(o().block[i])) {
              const auto malloc = [&] { return p_.heap->malloc_to(kExtent, o().block[i]); };
              ASSERT_EQ(tried_again(malloc), Status::ok);
            }
          }
          for (int i = 0; i < kBlocks; ++i) {
            if (i % 4 == 0) continue;
            const auto free = [&] { return p_.heap->free_from(o().block[i]); };
            ASSERT_EQ(tried_again(free), Status::ok);
          }
          p_.heap->trim();
        }
      });
}

TEST_F(NoMemoryObjects, extents_come_and_go_in_transactions) {
  every_allocation_fails_once([&] { allocate(o().block, 100, kExtent); },
                              [&] {
                                for (int round = 0; round < 3; ++round) {
                                  Transaction tx(p_.engine->mine());
                                  PtrWord* const from = round % 2 ? o().more : o().block;
                                  PtrWord* const to = round % 2 ? o().block : o().more;
                                  for (int i = 0; i < 100; ++i) {
                                    ASSERT_EQ(remove(tx, from[i]), Status::ok);
                                    ASSERT_EQ(put(tx, to[i], kExtent), Status::ok);
                                  }
                                  commit(tx);
                                }
                              });
}

TEST_F(NoMemoryObjects, batches) {
  for (const std::uint64_t bytes : {std::uint64_t{100}, kExtent}) {
    every_allocation_fails_once(
        [&] { allocate(o().more, kBlocks, bytes); },
        [&] {
          const Words<PtrWord> made{std::span(o().block)};
          const Words<PtrWord> gone{std::span(o().more)};
          const Sizes sizes{bytes};
          ASSERT_EQ(tried_again([&] { return p_.heap->malloc_to(sizes, made, {}); }), Status::ok);
          ASSERT_EQ(tried_again([&] { return p_.heap->free_from(gone); }), Status::ok);
          ASSERT_EQ(tried_again([&] { return p_.heap->malloc_to(sizes, gone, {}); }), Status::ok);
        });
  }
}

TEST_F(NoMemoryObjects, objects_of_many_megabytes) {
  every_allocation_fails_once([] {},
                              [&] {
                                for (int i = 0; i < 3; ++i) {
                                  (void)p_.heap->malloc_to((5u + i) << 20, o().block[i]);
                                  const Result<heap::Block> block =
                                      p_.heap->reserve(3u << 20, heap::Kind::logged);
                                  if (block) p_.heap->release(block->offset);
                                }
                                (void)p_.heap->free_from(o().block[1]);
                              });
}

// Whatever failed, the pool grows to the same size, and all its space is used.
TEST_F(NoMemoryObjects, a_pool_grows) {
  options_.size_max = options_.size + (8u << 20);
  int most = 0;
  int now = 0;
  every_allocation_fails_once(
      [&] { now = 0; },
      [&] {
        Status s = Status::ok;
        while (s == Status::ok && now < kBlocks) {
          PtrWord& word = o().block[now];
          s = tried_again([&] { return p_.heap->malloc_to(1u << 20, word); });
          now += s == Status::ok ? 1 : 0;
        }
        EXPECT_EQ(s, Status::full);
        most = std::max(most, now);
      },
      [&] { EXPECT_EQ(now, most); });
  EXPECT_GT(most, 18);
}

// A lane belongs to the thread or is idle, also for a thread that has lanes of other pools.
TEST_F(NoMemoryObjects, a_thread_gets_its_lane) {
  std::deque<TempPath> paths;
  std::deque<PoolParts> others;
  for (int i = 0; i < 4; ++i) {
    const TempPath& path = paths.emplace_back("no-memory-other" + std::to_string(i));
    ASSERT_EQ(others.emplace_back().create(path.str()), Status::ok);
  }
  const auto call = [&] {
    const long n = allocations_left();
    fail_allocation(0);
    for (PoolParts& other : others) other.lanes->mine();
    fail_allocation(n);
    p_.lanes->mine();
  };
  every_allocation_fails_once([] {}, in_a_thread(call),
                              [&] { EXPECT_EQ(idle_lanes() + 1, p_.lanes->count()); });
}

// If the thread that adds lanes fails, the next one adds them.
TEST_F(NoMemoryObjects, lanes_are_added) {
  const auto call = [&] { (void)tried_again([&] { return p_.lanes->mine().id.value; }); };
  std::vector<std::thread> holding;
  std::unique_ptr<std::latch> held, over;
  every_allocation_fails_once(
      [&] {
        held = std::make_unique<std::latch>(pm::kLanesPerSegment - 1);
        over = std::make_unique<std::latch>(1);
        for (std::size_t i = 1; i < pm::kLanesPerSegment; ++i) {
          holding.emplace_back([&] {
            p_.lanes->mine();
            held->count_down();
            over->wait();
          });
        }
        held->wait();
      },
      in_a_thread(call),
      [&] {
        over->count_down();
        for (std::thread& t : holding) t.join();
        holding.clear();
        EXPECT_EQ(p_.lanes->count(), 2 * pm::kLanesPerSegment);
        EXPECT_EQ(idle_lanes() + 1, p_.lanes->count());
      });
}

// A lane has cached blocks in a slab that is evacuated. It gives them up without memory.
TEST_F(NoMemoryObjects, cached_blocks_make_way_for_an_evacuation) {
  std::vector<PoolOffset> blocks;
  every_allocation_fails_once(
      [&] {
        blocks.clear();
        for (int i = 0; i < 4000; ++i) {
          blocks.push_back(p_.heap->reserve(100, heap::Kind::derived)->offset);
        }
        for (int i = 4000; i-- > 0;) {
          if (i % 8 == 0) continue;
          p_.heap->release(blocks[static_cast<std::size_t>(i)]);
          std::swap(blocks[static_cast<std::size_t>(i)], blocks.back());
          blocks.pop_back();
        }
        std::thread([&] { p_.heap->begin_evacuation(1, 0, {}); }).join();
      },
      [&] {
        p_.heap->release(blocks.back());
        blocks.pop_back();
        allocate_once();
      },
      [&] {
        p_.heap->end_evacuation();
        EXPECT_EQ(p_.heap->validate(&p_.report), Status::ok) << p_.report.text();
        EXPECT_EQ(p_.heap->stats().allocated_bytes,
                  blocks.size() * 112 + p_.heap->usable_size(p_.file->offset_of(&o())));
        for (const PoolOffset b : blocks) p_.heap->release(b);
      });
}

}  // namespace
}  // namespace tenuto::test
