// Two-phase deallocation (heap/remote.h) on simulated nodes: what frees touch on other nodes, and
// that no block is lost in a batch.
#include <atomic>
#include <cstdio>
#include <thread>

#include "pm/plant.h"
#include "support/numa_parts.h"
#include "tenuto/persist.h"

namespace tenuto::test {
namespace {

constexpr heap::Kind kDerived = heap::Kind::derived;

// --- two-phase deallocation ----------------------------------------------------------------------

struct ProdconResult {
  double remote_per_free = 0;
  NumaStats stats;
};

// Blocks are allocated on node 0 and freed on node 1.
class NumaProdcon : public Numa {
 protected:
  ProdconResult prodcon(bool two_phase, std::size_t rounds = 200, std::size_t each = 100) {
    make(numa_options(2, two_phase));
    ProdconResult r;
    {
      const std::span<PtrWord> words = make_words(p_, each);
      NodeThread producer(0);
      NodeThread consumer(1);
      const auto round = [&] {
        producer.run([&] { take(words); });
        consumer.run([&] { free(words); });
      };
      for (std::size_t i = 0; i < 20; ++i) round();
      const NumaStats before = stats();
      for (std::size_t i = 0; i < rounds; ++i) round();
      r.stats = stats();
      r.remote_per_free = static_cast<double>(r.stats.remote_all() - before.remote_all()) /
                          static_cast<double>(rounds * each);
    }
    expect_sound();
    EXPECT_EQ(p_.heap->stats().objects, 1u);  // the words
    EXPECT_EQ(p_.close(), Status::ok);
    return r;
  }
};

TEST_F(NumaProdcon, remote_accesses_are_a_tenth_of_those_of_direct_frees) {
  const ProdconResult direct = prodcon(false);
  const ProdconResult batched = prodcon(true);
  std::printf("remote accesses a free: %.3f direct, %.3f in two phases, %.3f of it\n",
              direct.remote_per_free, batched.remote_per_free,
              batched.remote_per_free / direct.remote_per_free);
  for (std::size_t a = 0; a < kNumaAccesses; ++a) {
    std::printf("  %-6s direct %8llu, in two phases %8llu\n",
                numa_access_name(static_cast<NumaAccess>(a)),
                static_cast<unsigned long long>(direct.stats.remote[a]),
                static_cast<unsigned long long>(batched.stats.remote[a]));
  }
  EXPECT_GE(direct.remote_per_free, 4.5);
  EXPECT_LE(batched.remote_per_free, direct.remote_per_free / 10);
  EXPECT_EQ(direct.stats.frees_recorded, 0u);
  EXPECT_GT(batched.stats.batches_taken, 100u);
  EXPECT_EQ(batched.stats.frees_late, 0u);
}

TEST_F(NumaProdcon, the_owner_uses_what_was_freed_elsewhere) {
  const ProdconResult r = prodcon(true, 400, 100);
  EXPECT_LE(r.stats.frees_waiting, 200u);
  EXPECT_EQ(r.stats.zones[0] + r.stats.zones[1], 2u);
}

class NumaBatch : public Numa {
 protected:
  // `words` have blocks of node 0, and a thread of node 1 frees them.
  void free_far(std::span<PtrWord> words, bool thread_ends) {
    NodeThread producer(0);
    producer.run([&] { take(words); });
    far_ = std::make_unique<NodeThread>(1);
    far_->run([&] { free(words); });
    if (thread_ends) far_.reset();
  }
  std::unique_ptr<NodeThread> far_;
};

TEST_F(NumaBatch, a_recorded_free_is_a_free) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 50);
  free_far(words, false);
  EXPECT_EQ(stats().frees_recorded, 50u);
  EXPECT_GT(stats().frees_waiting, 0u);
  EXPECT_EQ(p_.heap->stats().objects, 1u);
  EXPECT_EQ(p_.heap->stats().allocated_bytes, p_.heap->usable_size(block_of(p_.root(0))));
  expect_sound();  // it takes the batches
  EXPECT_EQ(stats().frees_waiting, 0u);
}

TEST_F(NumaBatch, trim_takes_what_ended_threads_recorded) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 50);
  free_far(words, true);
  EXPECT_GT(stats().frees_waiting, 0u);
  p_.heap->trim();
  EXPECT_EQ(stats().frees_waiting, 0u);
  EXPECT_EQ(p_.heap->stats().slabs, 1u);  // of the words
  expect_sound();
}

TEST_F(NumaBatch, a_full_pool_takes_them) {
  PoolOptions o = numa_options(2);
  o.size_max = o.size;
  make(o);
  const std::span<PtrWord> words = make_words(p_, 10'000);
  std::size_t taken = 0;
  while (taken < words.size() && p_.heap->malloc_to(2048, words[taken]) == Status::ok) ++taken;
  ASSERT_LT(taken, words.size());
  NodeThread(1).run([&] { free(words.subspan(0, taken)); });
  EXPECT_GT(stats().frees_waiting, 0u);
  std::size_t again = 0;
  while (again < words.size() && p_.heap->malloc_to(2048, words[again]) == Status::ok) ++again;
  EXPECT_GE(again, taken);
  expect_sound();
}

TEST_F(NumaBatch, close_takes_them_also_of_living_threads) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 50);
  free_far(words, false);
  ASSERT_EQ(p_.close(), Status::ok);
  far_.reset();
  reopen();
  EXPECT_EQ(p_.heap->stats().objects, 1u);
  expect_sound();
}

TEST_F(NumaBatch, a_killed_process_loses_none) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 50);
  free_far(words, false);
  p_.crash();
  far_.reset();
  reopen();
  EXPECT_EQ(p_.heap->stats().objects, 1u);
  expect_sound();
}

// The pool was used with two nodes, was killed, and is opened with one.
TEST_F(NumaBatch, another_number_of_nodes_recovers_them) {
  make(numa_options(2));
  free_far(make_words(p_, 50), false);
  p_.crash();
  far_.reset();
  options_ = numa_options(1);
  reopen();
  EXPECT_EQ(p_.heap->stats().objects, 1u);
  expect_sound();
}

TEST_F(NumaBatch, too_many_batches_are_pushed_through) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 3000);
  free_far(words, false);
  const NumaStats s = stats();
  EXPECT_GT(s.batches_pushed, 10u);
  EXPECT_LE(s.frees_waiting, 1000u);
  expect_sound();
  EXPECT_EQ(p_.heap->stats().objects, 1u);
}

TEST_F(NumaBatch, the_next_holder_of_a_lane_may_be_on_another_node) {
  PoolOptions o = numa_options(2);
  o.size_max = o.size;  // no lanes but those of node 0
  make(o);
  const std::span<PtrWord> words = make_words(p_, 100);
  free_far(words.subspan(0, 50), true);
  for (unsigned node = 0; node < 2; ++node) {
    NodeThread next(node);
    next.run([&] {
      take(words);
      free(words);
    });
  }
  expect_sound();
  EXPECT_EQ(p_.heap->stats().objects, 1u);
}

TEST_F(NumaBatch, a_block_is_freed_once) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 3);
  NodeThread producer(0);
  producer.run([&] { take(words.subspan(0, 1)); });
  const void* const at = PtrWord::decode(&words[0], words[0].raw);
  words[1].raw = PtrWord::encode(&words[1], at);
  words[2].raw = PtrWord::encode(&words[2], at);
  NodeThread consumer(1);
  consumer.run([&] {
    EXPECT_EQ(p_.heap->free_from(words[0]), Status::ok);
    EXPECT_EQ(p_.heap->free_from(words[0]), Status::invalid_argument);
    EXPECT_EQ(p_.heap->free_from(words[1]), Status::invalid_argument);
  });
  // Another thread cannot know; the batch finds out.
  producer.run([&] { EXPECT_EQ(p_.heap->free_from(words[2]), Status::ok); });
  expect_sound();
  EXPECT_EQ(stats().frees_late, 1u);
  EXPECT_EQ(p_.heap->stats().objects, 1u);
}

TEST_F(NumaBatch, an_interior_pointer_is_refused) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 2);
  NodeThread producer(0);
  producer.run([&] { take(words.subspan(0, 1)); });
  const auto* const at = static_cast<const char*>(PtrWord::decode(&words[0], words[0].raw));
  words[1].raw = PtrWord::encode(&words[1], at + 8);
  NodeThread(1).run([&] { EXPECT_EQ(p_.heap->free_from(words[1]), Status::invalid_argument); });
}

TEST_F(NumaBatch, derived_blocks_are_recorded_too) {
  make(numa_options(2));
  std::vector<PoolOffset> blocks;
  NodeThread producer(0);
  producer.run([&] {
    for (unsigned i = 0; i < 50; ++i) {
      const auto block = p_.heap->reserve(128, heap::Kind::derived);
      ASSERT_TRUE(block);
      blocks.push_back(block->offset);
    }
  });
  NodeThread consumer(1);
  consumer.run([&] {
    for (const PoolOffset b : blocks) p_.heap->release(b);
  });
  EXPECT_EQ(stats().frees_recorded, 50u);
  EXPECT_EQ(p_.heap->stats().allocated_bytes, 0u);
  expect_sound();
  EXPECT_EQ(p_.heap->stats().allocated_bytes, 0u);
}

TEST_F(NumaBatch, versioned_words_and_batches_of_frees_go_back_to_their_node) {
  make(numa_options(2));
  ASSERT_EQ(p_.heap->malloc_to(4096, p_.root(0)), Status::ok);
  void* const at = const_cast<void*>(PtrWord::decode(&p_.root(0), p_.root(0).raw));
  auto* const v = static_cast<VPtrWord*>(at);
  auto* const w = reinterpret_cast<PtrWord*>(static_cast<char*>(at) + 2048);
  for (unsigned i = 0; i < 40; ++i) v[i].raw = w[i].raw = 0;
  NodeThread producer(0);
  NodeThread consumer(1);
  for (unsigned round = 0; round < 20; ++round) {
    producer.run([&] {
      for (unsigned i = 0; i < 40; ++i) ASSERT_EQ(p_.heap->malloc_to(64, v[i]), Status::ok);
      ASSERT_EQ(p_.heap->malloc_to(Sizes(64), std::span(w, 40)), Status::ok);
    });
    consumer.run([&] {
      for (unsigned i = 0; i < 40; ++i) ASSERT_EQ(p_.heap->free_from(v[i]), Status::ok);
      ASSERT_EQ(p_.heap->free_from(std::span(w, 40)), Status::ok);
    });
  }
  EXPECT_GT(stats().frees_recorded, 1000u);
  EXPECT_LE(p_.heap->stats().slabs, 3u);
  expect_sound();
  EXPECT_EQ(p_.heap->stats().objects, 1u);
}

// --- threads -------------------------------------------------------------------------------------

// Each thread frees what the thread before it allocated.
void stress(PoolParts& p, unsigned nodes, unsigned threads, unsigned rounds) {
  constexpr std::size_t kEach = 64;
  const std::span<PtrWord> words = make_words(p, threads * kEach);
  std::vector<std::atomic<unsigned>> full(threads);
  std::vector<std::thread> all;
  std::atomic<unsigned> wrong = 0;
  for (unsigned t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      be_on_node(t % nodes);
      const unsigned next = (t + 1) % threads;
      for (unsigned r = 0; r < rounds; ++r) {
        while (full[t].load() != 0) std::this_thread::yield();
        for (std::size_t i = 0; i < kEach; ++i) {
          const std::uint64_t bytes = 32 + (i * 48 + r) % 800;
          wrong += p.heap->malloc_to(bytes, words[t * kEach + i]) != Status::ok ? 1 : 0;
        }
        p.heap->fence_thread();
        tenuto::fence("test: blocks", "another thread frees them");
        full[t].store(1);
        while (full[next].load() != 1) std::this_thread::yield();
        for (std::size_t i = 0; i < kEach; ++i) {
          wrong += p.heap->free_from(words[next * kEach + i]) != Status::ok ? 1 : 0;
        }
        full[next].store(0);
      }
    });
  }
  for (std::thread& t : all) t.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Numa, threads_free_what_other_nodes_allocated) {
  for (const Medium medium : {Medium::model, Medium::cache}) {
    PoolOptions o = numa_options(2);
    o.medium = medium;
    make(o);
    stress(p_, 2, 4, 60);
    EXPECT_GT(stats().frees_recorded, 1000u);
    expect_sound();
    EXPECT_EQ(p_.heap->stats().objects, 1u);
    ASSERT_EQ(p_.close(), Status::ok);
  }
}

TEST_F(Numa, variants_without_a_log_do_it_too) {
  for (const Consistency c : {Consistency::gc, Consistency::internal}) {
    const unsigned nodes = real_nodes() == nullptr ? 3 : 2;
    PoolOptions o = numa_options(nodes);
    o.consistency = c;
    make(o);
    stress(p_, nodes, 3, 60);
    EXPECT_GT(stats().frees_recorded, 1000u);
    expect_sound();
    EXPECT_EQ(p_.heap->stats().objects, 1u);
    ASSERT_EQ(p_.close(), Status::ok);
  }
}

// --- planted mistakes ----------------------------------------------------------------------------

// Each is one line that a simpler version would not have, and what it does not keep.
class NumaPlanted : public NumaProdcon {
 protected:
  void TearDown() override { unplant_all(); }
  // Blocks of node 0 in `words`, freed on node 1.
  void free_far(std::span<PtrWord> words) {
    NodeThread(0).run([&] { take(words); });
    NodeThread(1).run([&] { free(words); });
  }
};

TEST_F(NumaPlanted, caches_that_keep_blocks_of_other_nodes) {
  plant("heap_numa_caches_keep_blocks_of_other_nodes");
  make(numa_options(2));
  ASSERT_EQ(p_.heap->malloc_to(64, p_.root(0)), Status::ok);
  std::vector<PoolOffset> blocks;
  NodeThread(0).run([&] {
    for (unsigned i = 0; i < 40; ++i) blocks.push_back(p_.heap->reserve(96, kDerived)->offset);
  });
  unsigned far = 0;
  NodeThread(1).run([&] {
    for (const PoolOffset b : blocks) p_.heap->release(b);
    const PoolOffset again = p_.heap->reserve(96, kDerived)->offset;
    far = p_.frames->node_of(frame_of_offset(again));
  });
  EXPECT_EQ(far, 0u);  // a thread of node 1 gets a block of node 0
}

TEST_F(NumaPlanted, an_inbox_that_nobody_takes) {
  plant("heap_numa_inbox_never_taken");
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 100);
  for (unsigned i = 0; i < 20; ++i) free_far(words);
  EXPECT_EQ(stats().batches_taken, 0u);
  EXPECT_GT(stats().batches_pushed, 0u);
}

TEST_F(NumaPlanted, a_batch_that_finds_the_inbox_full) {
  plant("heap_numa_batch_dropped_when_inbox_is_full");
  make(numa_options(2));
  free_far(make_words(p_, 3000));
  unplant_all();
  Report report;
  EXPECT_EQ(p_.heap->validate(&report), Status::ok);
  EXPECT_GT(p_.heap->numa_stats().frees_waiting, 0u);  // lost
}

TEST_F(NumaPlanted, a_full_pool_that_leaves_the_batches) {
  plant("heap_numa_full_pool_leaves_batches");
  make(numa_options(2));
  free_far(make_words(p_, 50));
  p_.heap->trim();
  EXPECT_GT(stats().frees_waiting, 0u);
}

}  // namespace
}  // namespace tenuto::test
