// Epochs: nothing is freed under a reader, everything is freed after it, slots outlive threads.
#include "store/epoch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace tenuto::store {
namespace {

struct Freed {
  std::set<std::uint64_t> words;
  Limbos limbos{[this](const Retired& item) { EXPECT_TRUE(words.insert(item.word).second); }};

  void retire(std::uint64_t word) { limbos.retire(limbos.mine(), {word, Retired::What::block}); }
};

TEST(EpochTest, nothing_is_freed_while_a_reader_may_see_it) {
  Freed f;
  EpochSlot& reader = take_loose_slot();
  reader.enter();
  for (std::uint64_t i = 1; i <= 1000; ++i) f.retire(i);
  f.limbos.collect_all();
  EXPECT_TRUE(f.words.empty());
  reader.leave();
  f.limbos.collect_all();
  EXPECT_EQ(f.words.size(), 1000u);
  put_loose_slot(reader);
}

TEST(EpochTest, a_later_reader_keeps_only_what_came_later) {
  Freed f;
  for (std::uint64_t i = 1; i <= 10; ++i) f.retire(i);
  EpochSlot& first = take_loose_slot();
  first.enter();
  f.limbos.collect_all();  // seals the ten under the reader's epoch
  EXPECT_TRUE(f.words.empty());
  EpochSlot& second = take_loose_slot();
  second.enter();
  for (std::uint64_t i = 11; i <= 20; ++i) f.retire(i);
  first.leave();
  f.limbos.collect_all();
  EXPECT_EQ(f.words.size(), 10u);
  EXPECT_EQ(*f.words.rbegin(), 10u);
  second.leave();
  f.limbos.collect_all();
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
    f.limbos.collect_all();
    EXPECT_TRUE(f.words.empty());
  }
  f.limbos.collect_all();
  EXPECT_EQ(f.words.size(), 1u);
}

TEST(EpochTest, lists_are_freed_now_and_then_without_being_asked) {
  Freed f;
  for (std::uint64_t i = 1; i <= 10'000; ++i) f.retire(i);
  EXPECT_GT(f.words.size(), 9'000u);
  f.limbos.drain();
  EXPECT_EQ(f.words.size(), 10'000u);
}

TEST(EpochTest, what_an_ended_thread_left_is_freed_by_others) {
  Freed f;
  std::thread([&] {
    for (std::uint64_t i = 1; i <= 20; ++i) f.retire(i);
    f.limbos.mine().count(3, 30);
  }).join();
  f.limbos.mine().count(1, 10);
  f.limbos.collect_all();
  EXPECT_EQ(f.words.size(), 20u);
  EXPECT_EQ(f.limbos.records(), 4);
  EXPECT_EQ(f.limbos.record_bytes(), 40);
}

TEST(EpochTest, more_threads_than_slots_wait_and_go_on) {
  // All slots but a few are held; the threads below share what is left.
  std::vector<EpochSlot*> held;
  static_cast<void>(my_epoch_slot());
  for (std::size_t i = 0; i + 64 < kEpochSlots; ++i) held.push_back(&take_loose_slot());
  std::atomic<int> done{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) {
    threads.emplace_back([&] {
      const EpochGuard guard;
      done += 1;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(done.load(), 100);
  for (EpochSlot* s : held) put_loose_slot(*s);
}

// A word is replaced and the old one retired; whoever reads one under a guard must find it alive.
TEST(EpochTest, readers_never_see_what_was_freed) {
  struct Cell {
    std::atomic<int> alive{1};
  };
  std::vector<std::unique_ptr<Cell>> graveyard;
  std::atomic<Cell*> current{new Cell};
  Limbos limbos([&](const Retired& item) {
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
    limbos.retire(limbos.mine(), {reinterpret_cast<std::uintptr_t>(old), Retired::What::block});
  }
  stop.store(true, std::memory_order_release);
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(dead_seen.load(), 0);
  limbos.drain();
  EXPECT_EQ(graveyard.size(), 200'000u);
  delete current.load(std::memory_order_relaxed);
}

}  // namespace
}  // namespace tenuto::store
