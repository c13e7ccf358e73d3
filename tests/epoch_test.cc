// Epochs: nothing is freed under a reader, all of it is freed afterwards, and slots outlive
// threads.
#include "store/tree/garbage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace tenuto::store {
namespace {

struct Freed {
  std::set<std::uint64_t> words;
  Garbage garbage{[this](const Retired& item) { EXPECT_TRUE(words.insert(item.word).second); }};

  void retire(std::uint64_t word, std::uint64_t bytes = 0) {
    const EpochGuard guard;
    garbage.retire(garbage.mine(), {word, Retired::What::block, bytes});
  }
};

TEST(EpochTest, nothing_is_freed_while_a_reader_may_see_it) {
  Freed f;
  EpochSlot& reader = *take_loose_slot();
  reader.enter();
  for (std::uint64_t i = 1; i <= 1000; ++i) f.retire(i);
  f.garbage.collect_all();
  EXPECT_TRUE(f.words.empty());
  reader.leave();
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 1000u);
  put_loose_slot(reader);
}

TEST(EpochTest, a_later_reader_keeps_only_what_came_later) {
  Freed f;
  for (std::uint64_t i = 1; i <= 10; ++i) f.retire(i);
  EpochSlot& first = *take_loose_slot();
  first.enter();
  f.garbage.collect_all();  // seals the ten items under the reader's epoch
  EXPECT_TRUE(f.words.empty());
  EpochSlot& second = *take_loose_slot();
  second.enter();
  for (std::uint64_t i = 11; i <= 20; ++i) f.retire(i);
  first.leave();
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 10u);
  EXPECT_EQ(*f.words.rbegin(), 10u);
  second.leave();
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 20u);
  put_loose_slot(first);
  put_loose_slot(second);
}

TEST(EpochTest, guards_nest) {
  Freed f;
  {
    const EpochGuard outer;
    { const EpochGuard inner; }
    f.retire(1);
    f.garbage.collect_all();
    EXPECT_TRUE(f.words.empty());
  }
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 1u);
}

TEST(EpochTest, lists_are_freed_now_and_then_without_being_asked) {
  Freed f;
  for (std::uint64_t i = 1; i <= 10'000; ++i) f.retire(i);
  EXPECT_GT(f.words.size(), 9'000u);
  f.garbage.drain();
  EXPECT_EQ(f.words.size(), 10'000u);
}

TEST(EpochTest, what_an_ended_thread_left_is_freed_by_others) {
  Freed f;
  std::thread([&] {
    for (std::uint64_t i = 1; i <= 20; ++i) f.retire(i);
    f.garbage.mine().count(3, 30);
  }).join();
  f.garbage.mine().count(1, 10);
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 20u);
  EXPECT_EQ(f.garbage.records(), 4);
  EXPECT_EQ(f.garbage.record_bytes(), 40);
}

// A thread that is alive but in no call: others collect what it retired under a reader's pin.
TEST(EpochTest, what_a_resting_thread_left_is_freed_by_others) {
  Freed f;
  EpochSlot& reader = *take_loose_slot();
  reader.enter();
  std::atomic<int> step{0};
  std::thread resting([&] {
    for (std::uint64_t i = 1; i <= 200; ++i) f.retire(i);
    step = 1;
    while (step.load() != 2) std::this_thread::yield();
    for (std::uint64_t i = 201; i <= 210; ++i) f.retire(i);
  });
  while (step.load() != 1) std::this_thread::yield();
  f.garbage.collect_all();
  EXPECT_TRUE(f.words.empty());
  EXPECT_EQ(f.garbage.waiting().items, 200u);
  reader.leave();
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 200u);
  step = 2;
  resting.join();
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 210u);
  EXPECT_EQ(f.garbage.waiting().items, 0u);
  put_loose_slot(reader);
}

TEST(EpochTest, an_iterator_does_not_take_the_lists_of_an_ended_thread) {
  Freed f;
  std::thread([&] { f.retire(1); }).join();
  std::vector<EpochSlot*> iterators;
  for (int i = 0; i < 16; ++i) iterators.push_back(take_loose_slot());
  for (EpochSlot* s : iterators) s->enter();
  f.retire(2);
  f.garbage.collect_all();  // seals both items under their epoch
  for (EpochSlot* s : iterators) {
    s->leave();
    s->enter();
  }
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 2u);
  for (EpochSlot* s : iterators) {
    s->leave();
    put_loose_slot(*s);
  }
}

// The bound for each thread: kBatchItems items or kBatchBytes, and a few items.
TEST(EpochTest, what_a_thread_keeps_to_itself_is_bounded_in_items_and_bytes) {
  Freed f;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    f.retire(i, 1 << 20);
    EXPECT_LE(f.garbage.waiting().bytes, Garbage::kBatchBytes + (2u << 20));
  }
  for (std::uint64_t i = 1001; i <= 100'000; ++i) {
    f.retire(i, 16);
    EXPECT_LE(f.garbage.waiting().items, 2 * Garbage::kBatchItems + Garbage::kFreedTogether);
  }
  f.garbage.drain();
  EXPECT_EQ(f.words.size(), 100'000u);
}

// An update pays for about as much as it retires.
TEST(EpochTest, no_retire_frees_more_than_a_few_items) {
  for (const std::uint64_t bytes : {0u, 100u, 1100u, 5000u}) {
    Freed f;
    std::size_t most = 0;
    for (std::uint64_t i = 1; i <= 1000; ++i) {
      const std::size_t before = f.words.size();
      f.retire(i, bytes);
      most = std::max(most, f.words.size() - before);
    }
    EXPECT_LE(most, Garbage::kFreedTogether) << bytes;
    EXPECT_GE(f.words.size(), 1000 - 2 * Garbage::kBatchItems) << bytes;
    f.garbage.drain();
  }
}

// What a reader held back is freed soon after it, beside what is retired then.
TEST(EpochTest, a_backlog_is_freed_by_those_who_retire) {
  Freed f;
  EpochSlot& reader = *take_loose_slot();
  reader.enter();
  std::uint64_t next = 1;
  for (; next <= 2000; ++next) f.retire(next, 16);
  reader.leave();
  put_loose_slot(reader);
  for (; next <= 2400; ++next) f.retire(next, 16);
  EXPECT_LE(f.garbage.waiting().items, 3 * Garbage::kBatchItems);
  f.garbage.drain();
}

// What a thread is about to free bit by bit, others free when it is in no call.
TEST(EpochTest, what_a_resting_thread_was_freeing_is_freed_by_others) {
  Freed f;
  std::atomic<int> step{0};
  std::thread resting([&] {
    for (std::uint64_t i = 1; i <= 150; ++i) f.retire(i, 16);
    step = 1;
    while (step.load() != 2) std::this_thread::yield();
  });
  while (step.load() != 1) std::this_thread::yield();
  EXPECT_LT(f.words.size(), 64u);
  f.garbage.collect_all();
  EXPECT_EQ(f.words.size(), 150u);
  EXPECT_EQ(f.garbage.waiting().items, 0u);
  EXPECT_EQ(f.garbage.waiting().bytes, 0u);
  step = 2;
  resting.join();
}

TEST(EpochTest, a_rest_holds_its_places_and_nothing_else) {
  Freed f;
  const std::uint64_t words[] = {7ull << 48 | 4096, 0, 8192 + 24};
  EpochSlot& iterator = *take_loose_slot();
  EpochSlot& view = *take_loose_slot();
  iterator.pin();
  iterator.rest({words, 3, sizeof words[0]});
  {
    const EpochGuard guard;
    view.rest_with(guard.slot(), 20'000);
  }
  const std::uint64_t rested = advance_epoch();
  for (std::uint64_t at = 4096; at < 40'960; at += 64) f.retire(at, 64);
  f.garbage.collect_all();
  EXPECT_EQ(f.garbage.waiting().items, 3u);
  EXPECT_EQ(f.garbage.waiting().bytes, 3u * 64);
  for (const std::uint64_t at : {4096, 8192, 20'000 / 64 * 64}) EXPECT_FALSE(f.words.contains(at));
  EXPECT_FALSE(epoch_is_over(rested)) << "a dropped tree stays under both";
  iterator.pin();  // the iterator moves to another leaf
  f.garbage.collect_all();
  EXPECT_EQ(f.garbage.waiting().items, 1u);
  iterator.let_go();
  view.let_go();
  EXPECT_TRUE(epoch_is_over(rested));
  f.garbage.collect_all();
  EXPECT_EQ(f.garbage.waiting().items, 0u);
  put_loose_slot(iterator);
  put_loose_slot(view);
}

TEST(EpochTest, a_pin_that_holds_a_tree_only_keeps_no_items) {
  Freed f;
  const EpochGuard guard;
  const std::uint64_t dropped = advance_epoch();
  for (std::uint64_t i = 1; i <= 10; ++i) f.garbage.retire(f.garbage.mine(), {i});
  f.garbage.collect_all();
  EXPECT_TRUE(f.words.empty());
  f.garbage.collect_all_at_rest();
  EXPECT_EQ(f.words.size(), 10u);
  EXPECT_FALSE(epoch_is_over(dropped));
}

TEST(EpochTest, more_iterators_than_slots_are_told_and_threads_go_on) {
  std::vector<EpochSlot*> held;
  while (EpochSlot* slot = take_loose_slot()) held.push_back(slot);
  EXPECT_GE(held.size(), kLooseSlots - 16);
  EXPECT_EQ(take_loose_slot(), nullptr);
  std::thread([] { const EpochGuard guard; }).join();
  put_loose_slot(*held.back());
  EXPECT_EQ(take_loose_slot(), held.back());
  for (EpochSlot* s : held) put_loose_slot(*s);
}

// A writer replaces a word and retires the old one. A reader under a guard must find its word
// alive.
TEST(EpochTest, readers_never_see_what_was_freed) {
  struct Cell {
    std::atomic<int> alive{1};
  };
  std::vector<std::unique_ptr<Cell>> graveyard;
  std::atomic<Cell*> current{new Cell};
  Garbage garbage([&](const Retired& item) {
    auto* cell = reinterpret_cast<Cell*>(item.word);
    cell->alive.store(0, std::memory_order_relaxed);
    graveyard.emplace_back(cell);
  });
  std::atomic<bool> stop{false};
  std::atomic<int> dead_seen{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_acquire)) {
        const EpochGuard guard;
        const Cell* cell = current.load(std::memory_order_acquire);
        for (int look = 0; look < 8; ++look) {
          if (cell->alive.load(std::memory_order_relaxed) == 0) dead_seen += 1;
        }
      }
    });
  }
  for (int i = 0; i < 200'000; ++i) {
    Cell* old = current.exchange(new Cell, std::memory_order_acq_rel);
    const EpochGuard guard;
    garbage.retire(garbage.mine(), {reinterpret_cast<std::uintptr_t>(old), Retired::What::node});
  }
  stop.store(true, std::memory_order_release);
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(dead_seen.load(), 0);
  garbage.drain();
  EXPECT_EQ(graveyard.size(), 200'000u);
  delete current.load(std::memory_order_relaxed);
}

// As above, with three differences. Readers are iterators, which between calls look at what their
// slots hold. Writers rest now and then. Other threads collect what resting writers left. Blocks
// are numbers.
TEST(EpochTest, what_rests_hold_is_never_seen_freed) {
  constexpr std::uint64_t kBlocks = 1 << 16;
  std::vector<std::atomic<bool>> alive(kBlocks);
  std::atomic<std::uint64_t> next{1};
  std::mutex idle_mu;
  std::vector<std::uint64_t> idle;
  Garbage garbage([&](const Retired& item) {
    alive[item.word].store(false, std::memory_order_relaxed);
    const std::lock_guard lock(idle_mu);
    idle.push_back(item.word);
  });
  const auto make = [&] {
    std::uint64_t block = 0;
    {
      const std::lock_guard lock(idle_mu);
      if (!idle.empty()) {
        block = idle.back();
        idle.pop_back();
      }
    }
    if (block == 0) block = next.fetch_add(1);
    EXPECT_LT(block, kBlocks) << "too much is held back";
    alive[block % kBlocks].store(true, std::memory_order_relaxed);
    return block % kBlocks;
  };
  constexpr std::size_t kCells = 8;
  std::atomic<std::uint64_t> cells[kCells];
  for (auto& cell : cells) cell = make();
  std::atomic<bool> stop{false};
  std::atomic<int> dead_seen{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      EpochSlot& slot = *take_loose_slot();
      while (!stop.load(std::memory_order_acquire)) {
        std::uint64_t seen[kCells];
        slot.pin();
        for (std::size_t c = 0; c < kCells; ++c) {
          seen[c] = cells[c].load(std::memory_order_acquire) | 0xabcull << 48;
        }
        slot.rest({seen, kCells, sizeof seen[0]});
        for (int look = 0; look < 16; ++look) {
          const std::uint64_t block = seen[look % kCells] & (kBlocks - 1);
          if (!alive[block].load(std::memory_order_relaxed)) dead_seen += 1;
        }
        slot.let_go();
      }
      put_loose_slot(slot);
    });
  }
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&, i] {
      for (int n = 0; n < 10'000; ++n) {
        {
          const EpochGuard guard;
          const auto c = static_cast<std::size_t>((n * 7 + i) % kCells);
          const std::uint64_t old = cells[c].exchange(make(), std::memory_order_acq_rel);
          garbage.retire(garbage.mine(), {old, Retired::What::block, 1});
        }
        if (n % 100 == i) garbage.collect_all();
      }
    });
  }
  for (std::thread& t : writers) t.join();
  stop.store(true, std::memory_order_release);
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(dead_seen.load(), 0);
  garbage.drain();
}

}  // namespace
}  // namespace tenuto::store
