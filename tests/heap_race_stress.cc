// Threads that free the same words at the same time, which is a mistake of the program. Each block
// is freed once, every later free returns an error, and nothing is lost.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "support/pool_parts.h"

namespace tenuto {
namespace {

using test::PoolParts;
using test::TempPath;

constexpr std::size_t kThreads = 4, kRaced = 200, kRounds = 40;
// The odd words keep their blocks, so that no slab is freed while a thread looks for a block in it.
// The gaps have room for all raced blocks and for all that caches of lanes hold.
constexpr std::size_t kWords = 12 * kRaced;

template <class Word>
Word* words(PoolParts& p) {
  return static_cast<Word*>(PtrWord::decode(&p.root(0), p.root(0).raw));
}

template <class Word>
void expect_left(PoolParts& p, std::uint64_t objects) {
  ASSERT_EQ(p.heap->validate(&p.report), Status::ok) << p.report.text();
  EXPECT_EQ(p.heap->stats().objects, objects);
  for (std::size_t i = 0; i < kWords; ++i) {
    const Word& w = words<Word>(p)[i];
    ASSERT_EQ(Word::decode(&w, w.raw) != nullptr, i % 2 == 1) << i;
  }
}

template <class Word>
void race(const char* name) {
  TempPath path(name);
  PoolParts p;
  ASSERT_EQ(p.create(path.str(), PoolParts::small_options()), Status::ok);
  ASSERT_EQ(p.heap->malloc_to(kWords * sizeof(Word), p.root(0)), Status::ok);
  Word* const word = words<Word>(p);
  zero_flush(word, kWords * sizeof(Word));
  fence("words", "test");
  for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(p.heap->malloc_to(64, word[i]), Status::ok);
  for (std::size_t i = 0; i < kWords; i += 2) ASSERT_EQ(p.heap->free_from(word[i]), Status::ok);
  const std::uint64_t objects = p.heap->stats().objects;

  std::array<std::atomic<unsigned>, kRaced> freed{}, refused{};
  std::barrier together(kThreads + 1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (std::size_t round = 0; round < kRounds; ++round) {
        together.arrive_and_wait();
        for (std::size_t i = 0; i < kRaced; ++i) {
          const Status s = p.heap->free_from(word[2 * i]);
          if (s == Status::ok) freed[i] += 1;
          if (s == Status::invalid_argument) refused[i] += 1;
        }
        together.arrive_and_wait();
      }
    });
  }
  for (std::size_t round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kRaced; ++i) {
      EXPECT_EQ(p.heap->malloc_to(i % 40 == 7 ? 20'000 : 64, word[2 * i]), Status::ok);
    }
    together.arrive_and_wait();
    together.arrive_and_wait();
    for (std::size_t i = 0; i < kRaced; ++i) {
      EXPECT_EQ(freed[i].exchange(0), 1u) << "word " << i << ", round " << round;
      EXPECT_EQ(refused[i].exchange(0), kThreads - 1) << "word " << i << ", round " << round;
    }
  }
  for (auto& t : threads) t.join();
  ASSERT_NO_FATAL_FAILURE(expect_left<Word>(p, objects));
  p.crash();
  ASSERT_EQ(p.open(path.str()), Status::ok) << p.report.text();
  ASSERT_NO_FATAL_FAILURE(expect_left<Word>(p, objects));
}

TEST(HeapRace, a_plain_word_is_freed_once) { race<PtrWord>("race1"); }
TEST(HeapRace, a_versioned_word_is_freed_once) { race<VPtrWord>("race2"); }

}  // namespace
}  // namespace tenuto
