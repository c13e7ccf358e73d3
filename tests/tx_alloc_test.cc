// Blocks in transactions: allocated at commit, gone with an abort, freed into limbo.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "pm/media.h"
#include "pm/plant.h"
#include "support/tx_parts.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

struct alignas(64) Node {
  std::uint64_t word[8];
};

class TxAllocTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PoolOptions o = TxParts::small_options();
    o.medium = Medium::model;
    ASSERT_EQ(parts_.create(path_.str(), o), Status::ok) << parts_.report.text();
    dest_ = &parts_.make_root<Ptr<Node>>(0, 1024);
  }
  Status link(std::size_t i) {
    return parts_.run([&](Transaction& tx) {
      const Result<Node*> node = tx.make<Node>();
      if (!node) return node.error();
      TENUTO_TRY(tx.add(dest_[i]));
      dest_[i] = *node;
      return Status::ok;
    });
  }
  Status unlink(std::size_t i) {
    return parts_.run([&](Transaction& tx) {
      TENUTO_TRY(tx.destroy(dest_[i].get()));
      TENUTO_TRY(tx.add(dest_[i]));
      dest_[i] = nullptr;
      return Status::ok;
    });
  }
  std::size_t allocated() { return parts_.allocated_blocks().size(); }
  // Moves freed blocks on to the free lists.
  void churn() {
    Transaction tx(parts_.engine->mine());
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(tx.make<Node>());
    tx.abort();
  }
  std::uint64_t usable(const void* p) {
    return parts_.heap->usable_size(parts_.file->offset_of(p));
  }

  TempPath path_{"txalloc"};
  TxParts parts_;
  Ptr<Node>* dest_ = nullptr;
};

TEST_F(TxAllocTest, a_block_is_allocated_by_the_commit) {
  Transaction tx(parts_.engine->mine());
  const Result<Node*> node = tx.make<Node>(Node{{1, 2, 3}});
  ASSERT_TRUE(node);
  EXPECT_EQ(usable(*node), 0u) << "not yet";
  ASSERT_EQ(tx.add(dest_[0]), Status::ok);
  dest_[0] = *node;
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(usable(dest_[0].get()), 64u);
  EXPECT_EQ(dest_[0]->word[2], 3u);
}

TEST_F(TxAllocTest, an_abort_leaks_no_block) {
  ASSERT_EQ(link(0), Status::ok);
  const std::size_t before = allocated();
  for (int round = 0; round < 10; ++round) {
    Transaction tx(parts_.engine->mine());
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(tx.make<Node>());
      ASSERT_TRUE(tx.alloc(20'000));
    }
    tx.abort();
  }
  EXPECT_EQ(parts_.engine->stats().aborted, 10u);
  ASSERT_EQ(parts_.close(), Status::ok);
  ASSERT_EQ(parts_.open(path_.str()), Status::ok) << parts_.report.text();
  EXPECT_EQ(allocated(), before);
}

TEST_F(TxAllocTest, an_abort_brings_a_freed_block_back_with_its_contents) {
  ASSERT_EQ(link(0), Status::ok);
  dest_[0]->word[5] = 55;
  Transaction tx(parts_.engine->mine());
  ASSERT_EQ(tx.add(*dest_[0]), Status::ok);
  dest_[0]->word[5] = 66;
  ASSERT_EQ(tx.destroy(dest_[0].get()), Status::ok);
  EXPECT_EQ(tx.destroy(dest_[0].get()), Status::invalid_argument) << "twice";
  tx.abort();
  EXPECT_EQ(usable(dest_[0].get()), 64u);
  EXPECT_EQ(dest_[0]->word[5], 55u);
  EXPECT_EQ(unlink(0), Status::ok) << "it can be freed again";
}

TEST_F(TxAllocTest, only_starts_of_allocated_blocks_can_be_freed) {
  ASSERT_EQ(link(0), Status::ok);
  Transaction tx(parts_.engine->mine());
  const std::uint64_t on_stack = 0;
  EXPECT_EQ(tx.free(nullptr), Status::invalid_argument);
  EXPECT_EQ(tx.free(&on_stack), Status::invalid_argument);
  EXPECT_EQ(tx.free(&dest_[0]->word[1]), Status::invalid_argument);
  EXPECT_EQ(tx.free(&dest_[1]), Status::invalid_argument) << "inside the table";
  EXPECT_EQ(tx.free(parts_.file->base()), Status::invalid_argument);
  EXPECT_EQ(tx.free(dest_[0].get()), Status::ok);
  tx.abort();
}

TEST_F(TxAllocTest, a_freed_block_waits_for_the_next_transaction) {
  std::set<const void*> freed;
  for (std::size_t i = 0; i < 200; ++i) ASSERT_EQ(link(i), Status::ok);
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    for (std::size_t i = 0; i < 200; ++i) {
      freed.insert(dest_[i].get());
      TENUTO_TRY(tx.destroy(dest_[i].get()));
      TENUTO_TRY(tx.add(dest_[i]));
      dest_[i] = nullptr;
    }
    return Status::ok;
  }),
            Status::ok);
  Transaction tx(parts_.engine->mine());
  for (int i = 0; i < 300; ++i) {
    const Result<Node*> node = tx.make<Node>();
    ASSERT_TRUE(node);
    EXPECT_FALSE(freed.contains(*node)) << "its bit may still be set after a crash";
  }
  tx.abort();  // publishes frees_done
  std::size_t again = 0;
  Transaction next(parts_.engine->mine());
  for (int i = 0; i < 600; ++i) {
    const Result<Node*> node = next.make<Node>();
    ASSERT_TRUE(node);
    again += freed.contains(*node);
  }
  EXPECT_GT(again, 150u);
}

TEST_F(TxAllocTest, a_block_made_and_freed_by_one_transaction_is_nobodys) {
  ASSERT_EQ(link(0), Status::ok);
  const std::size_t before = allocated();
  std::vector<Node*> made;
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    for (int i = 0; i < 100; ++i) {
      const Result<Node*> node = tx.make<Node>();
      if (!node) return node.error();
      EXPECT_EQ(std::count(made.begin(), made.end(), *node), 0) << "given out twice";
      made.push_back(*node);
      EXPECT_EQ(tx.destroy(*node), Status::ok);
      EXPECT_EQ(tx.destroy(*node), Status::invalid_argument);
    }
    return Status::ok;
  }),
            Status::ok);
  for (const Node* node : made) EXPECT_EQ(usable(node), 0u);
  EXPECT_EQ(allocated(), before);
}

// A range beside a new block is flushed, although that block is freed again before the commit. (An
// engine that merges both in one tree node, and drops that node with the block, loses the range.)
TEST_F(TxAllocTest, a_range_beside_a_cancelled_block_is_still_flushed) {
  std::vector<std::size_t> order(512);
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    ASSERT_EQ(link(i), Status::ok);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return dest_[a].get() < dest_[b].get(); });
  for (const bool neighbour_above : {true, false}) {
    std::size_t k = neighbour_above ? 100 : 300;
    while (dest_[order[k]].get() + 1 != dest_[order[k + 1]].get()) ++k;
    const std::size_t hole = neighbour_above ? order[k] : order[k + 1];
    Node* const wanted = dest_[hole].get();
    Node* const neighbour = dest_[neighbour_above ? order[k + 1] : order[k]].get();
    ASSERT_EQ(unlink(hole), Status::ok);
    parts_.engine->mine().drain();
    churn();
    parts_.heap->for_each(heap::Kind::logged, [](PoolOffset, std::uint64_t) {});  // empties caches

    Transaction tx(parts_.engine->mine());
    std::vector<Node*> made;
    while (made.empty() || made.back() != wanted) {
      const Result<Node*> node = tx.make<Node>();
      ASSERT_TRUE(node);
      made.push_back(*node);
      ASSERT_LT(made.size(), 5'000u) << "the hole must come up";
    }
    ASSERT_EQ(tx.add(*neighbour), Status::ok);
    neighbour->word[0] += 1;
    for (Node* node : made) ASSERT_EQ(tx.destroy(node), Status::ok);
    const std::uint64_t before = pm::thread_model_counts().lines;
    ASSERT_EQ(tx.commit(), Status::ok);
    EXPECT_EQ(pm::thread_model_counts().lines - before, 2u) << "the neighbour, the commit record";
  }
}

// Its bit is durable with the second free. But only the third one's commit record says so.
TEST_F(TxAllocTest, the_block_of_a_free_alone_waits_for_the_second_commit_after_it) {
  for (const char* const planted : {"", "tx_one_free_releases_the_one_before"}) {
    void* block[3];
    ASSERT_EQ(parts_.run([&](Transaction& tx) {
      for (void*& b : block) {
        const Result<void*> made = tx.alloc(4096);
        if (!made) return made.error();
        b = *made;
      }
      return Status::ok;
    }),
              Status::ok);
    const auto is_handed_out = [&] {
      const PoolOffset first = parts_.file->offset_of(block[0]);
      std::vector<PoolOffset> taken;  // the whole pool, if it is not handed out
      while (taken.empty() || taken.back() != first) {
        const Result<heap::Block> more = parts_.heap->reserve(4096, heap::Kind::logged);
        if (!more) break;
        taken.push_back(more->offset);
      }
      const bool found = !taken.empty() && taken.back() == first;
      for (const PoolOffset b : taken) parts_.heap->release(b);
      return found;
    };
    if (*planted != 0) plant(planted);
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(parts_.run([&](Transaction& tx) { return tx.free(block[i]); }), Status::ok);
    }
    unplant_all();
    const tx::TxLine& line = tx::tx_line(*parts_.lanes->all()[0]);
    EXPECT_EQ(line.frees_done.number() + 2, line.committed.number());
    EXPECT_EQ(is_handed_out(), *planted != 0);
    ASSERT_EQ(parts_.run([&](Transaction& tx) { return tx.free(block[2]); }), Status::ok);
    EXPECT_TRUE(is_handed_out());
    parts_.engine->mine().drain();
  }
}

TEST_F(TxAllocTest, limbo_that_holds_much_is_drained_at_once) {
  auto& big = *reinterpret_cast<PtrWord*>(&dest_[1000]);
  const auto fences_of_free = [&](std::uint64_t bytes) {
    EXPECT_EQ(parts_.heap->malloc_to(bytes, big), Status::ok);
    const std::uint64_t before = pm::thread_model_counts().fences;
    EXPECT_EQ(parts_.run([&](Transaction& tx) {
      TENUTO_TRY(tx.free(PtrWord::decode(&big, big.raw)));
      TENUTO_TRY(tx.add(big));
      big.raw = 0;
      return Status::ok;
    }),
              Status::ok);
    return pm::thread_model_counts().fences - before;
  };
  EXPECT_EQ(fences_of_free(1u << 20), 3u);
  EXPECT_EQ(fences_of_free(6u << 20), 5u);
  EXPECT_EQ(fences_of_free(1u << 20), 3u);
}

TEST_F(TxAllocTest, a_full_pool_takes_back_what_waits_in_limbo) {
  PoolOptions o = TxParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  TempPath path("txlimbofull");
  TxParts parts;
  ASSERT_EQ(parts.create(path.str(), o), Status::ok);
  auto* word = &parts.make_root<PtrWord>(0, 64);
  std::size_t n = 0;
  while (n < 64 && parts.heap->malloc_to(1u << 20, word[n]) == Status::ok) ++n;
  ASSERT_GE(n, 4u);
  const auto free_one = [&](std::size_t i) {
    return parts.run([&](Transaction& tx) {
      TENUTO_TRY(tx.free(PtrWord::decode(&word[i], word[i].raw)));
      TENUTO_TRY(tx.add(word[i]));
      word[i].raw = 0;
      return Status::ok;
    });
  };
  ASSERT_EQ(free_one(0), Status::ok);
  EXPECT_EQ(parts.run([&](Transaction& tx) { return tx.alloc(1u << 20).error(); }), Status::ok)
      << "its own limbo";
  std::thread([&] { EXPECT_EQ(free_one(1), Status::ok); }).join();
  Transaction tx(parts.engine->mine());
  EXPECT_TRUE(tx.alloc(1u << 20)) << "the limbo of a thread that ended";
}

TEST_F(TxAllocTest, sizes_beyond_the_pool_are_too_large_and_leave_the_transaction_usable) {
  Transaction tx(parts_.engine->mine());
  const Result<void*> huge = tx.alloc(std::uint64_t{1} << 50);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error(), Status::too_large);
  EXPECT_TRUE(tx.alloc(0));
  EXPECT_EQ(tx.commit(), Status::ok);
}

}  // namespace
}  // namespace tenuto
