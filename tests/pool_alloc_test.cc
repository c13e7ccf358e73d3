// What a user may ask for a block: alignment, zeros, another size.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

PoolOptions small() { return test::PoolParts::small_options(); }

struct Words {
  Ptr<char> slot[256];
};

bool all_are(const char* p, std::size_t n, char c) {
  return std::all_of(p, p + n, [c](char b) { return b == c; });
}

class PoolAlloc : public testing::Test {
 protected:
  void SetUp() override {
    pool_ = Pool::create(path_.str(), small(), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    words_ = *pool_->root<Words>("words");
  }
  char* get(int i) { return words_->slot[i].get(); }
  PtrWord& word(int i) { return words_->slot[i].word(); }
  // Fills the block of slot i with its own byte, to find changes by others.
  void fill(int i) { std::memset(get(i), i + 1, pool_->usable_size(get(i))); }

  TempPath path_{"pool-alloc"};
  Report report_;
  Result<Pool> pool_ = Status::closed;
  Words* words_ = nullptr;
};

TEST_F(PoolAlloc, blocks_start_where_was_asked) {
  int i = 0;
  for (std::uint64_t align = 1; align <= kHugeBytes; align *= 2) {
    for (const std::uint64_t bytes : {1u, 24u, 64u, 100u, 1000u, 4096u, 5000u, 16000u, 40000u}) {
      ASSERT_EQ(pool_->malloc_to(bytes, word(i), {.align = align}), Status::ok);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(get(i)) % align, 0u) << bytes << " at " << align;
      EXPECT_EQ(pool_->offset_of(get(i)).value % align, 0u);
      EXPECT_GE(pool_->usable_size(get(i)), bytes);
      fill(i++);
    }
  }
  for (int k = 0; k < i; ++k) {
    EXPECT_TRUE(all_are(get(k), pool_->usable_size(get(k)), static_cast<char>(k + 1))) << k;
    EXPECT_EQ(pool_->free_from(word(k)), Status::ok);
  }
  EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
}

TEST_F(PoolAlloc, used_bytes_are_those_of_the_stats) {
  const std::uint64_t before = pool_->used_bytes();
  EXPECT_EQ(before, pool_->stats().used_bytes);
  ASSERT_EQ(pool_->malloc_to(1u << 20, word(0)), Status::ok);
  EXPECT_GE(pool_->used_bytes(), before + (1u << 20));
  EXPECT_EQ(pool_->used_bytes(), pool_->stats().used_bytes);
  ASSERT_EQ(pool_->close(), Status::ok);
  EXPECT_EQ(pool_->used_bytes(), 0u);
}

TEST_F(PoolAlloc, stats_tell_how_full_slabs_are) {
  const auto full = [this] {
    const PoolStats s = pool_->stats();
    std::uint64_t sum = 0;
    for (const std::uint64_t n : s.slabs_by_tenth) sum += n;
    EXPECT_EQ(sum, s.slabs);
    return s.slabs_by_tenth[9];
  };
  const std::uint64_t before = full();
  for (int i = 0; i < 200; ++i) ASSERT_EQ(pool_->malloc_to(4096, word(i)), Status::ok);
  EXPECT_GE(full(), before + 10) << "of 15 blocks each";
  for (int i = 0; i < 200; ++i) {
    if (i % 10 != 0) {
      ASSERT_EQ(pool_->free_from(word(i)), Status::ok);
    }
  }
  EXPECT_LE(full(), before + 5) << "those whose blocks are in the cache";
}

TEST_F(PoolAlloc, an_alignment_that_cannot_be_is_refused) {
  for (const std::uint64_t align : {0ull, 3ull, 48ull, 4ull << 20, 1ull << 63}) {
    EXPECT_EQ(pool_->malloc_to(64, word(0), {.align = align}), Status::invalid_argument) << align;
    EXPECT_EQ(pool_->reserve(64, {.align = align}).error(), Status::invalid_argument) << align;
  }
  EXPECT_EQ(get(0), nullptr);
}

TEST_F(PoolAlloc, types_bring_their_alignment) {
  struct alignas(256) Wide {
    char c[300];
  };
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    auto wide = tx.make<Wide>();
    if (!wide) return wide.error();
    TENUTO_TRY(tx.add(words_->slot[0]));
    words_->slot[0] = (*wide)->c;
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(get(0)) % 256, 0u);
  auto& wide = reinterpret_cast<Ptr<Wide>&>(words_->slot[1]);
  ASSERT_EQ(pool_->malloc_to(wide), Status::ok);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(wide.get()) % 256, 0u);
  auto& untyped = reinterpret_cast<Ptr<void>&>(words_->slot[2]);
  ASSERT_EQ(pool_->malloc_to(40, untyped), Status::ok);
  EXPECT_NE(untyped.get(), nullptr);
}

TEST_F(PoolAlloc, zeros_where_others_wrote_before) {
  for (const std::uint64_t bytes : {1u, 63u, 100u, 5000u, 100000u}) {
    ASSERT_EQ(pool_->malloc_to(bytes, word(0)), Status::ok);
    std::memset(get(0), 0x5a, pool_->usable_size(get(0)));
    ASSERT_EQ(pool_->free_from(word(0)), Status::ok);
    for (int i = 1; i < 100; ++i) {  // one of them gets the freed block again
      ASSERT_EQ(pool_->malloc_to(bytes, word(i), {.zero = true}), Status::ok);
      EXPECT_TRUE(all_are(get(i), bytes, 0)) << bytes;
      std::memset(get(i), 0x5a, pool_->usable_size(get(i)));
    }
    for (int i = 1; i < 100; ++i) ASSERT_EQ(pool_->free_from(word(i)), Status::ok);
  }
  EXPECT_EQ(pool_->run([&](Transaction& tx) {
    auto block = tx.alloc(100, {.zero = true});
    if (!block) return block.error();
    return all_are(static_cast<char*>(*block), 100, 0) ? Status::ok : Status::corrupt;
  }),
            Status::ok);
}

TEST_F(PoolAlloc, a_block_moves_with_its_bytes_when_it_grows_and_when_it_shrinks) {
  const std::uint64_t sizes[] = {10, 16, 17, 100, 5000, 20000, 70000, 3u << 20, 6000, 90, 1};
  ASSERT_EQ(pool_->realloc_to(sizes[0], word(0)), Status::ok);  // null: works as malloc_to
  std::uint64_t had = sizes[0];
  std::memset(get(0), 7, had);
  const std::uint64_t objects = pool_->stats().objects;
  for (const std::uint64_t bytes : sizes) {
    ASSERT_EQ(pool_->realloc_to(bytes, word(0)), Status::ok) << bytes;
    EXPECT_GE(pool_->usable_size(get(0)), bytes);
    EXPECT_TRUE(all_are(get(0), std::min(had, bytes), 7)) << bytes;
    std::memset(get(0), 7, bytes);
    had = bytes;
    EXPECT_EQ(pool_->stats().objects, objects);
  }
  ASSERT_EQ(pool_->realloc_to(0, word(0)), Status::ok);  // no bytes: works as free_from
  EXPECT_EQ(get(0), nullptr);
  EXPECT_EQ(pool_->stats().objects, objects - 1);
  EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
}

TEST_F(PoolAlloc, a_size_that_the_block_has_moves_nothing) {
  ASSERT_EQ(pool_->malloc_to(100, word(0)), Status::ok);
  const char* before = get(0);
  for (const std::uint64_t bytes : {100ull, 97ull, 112ull}) {
    ASSERT_EQ(pool_->realloc_to(bytes, word(0)), Status::ok);
    EXPECT_EQ(get(0), before);
  }
  ASSERT_EQ(pool_->realloc_to(113, word(0)), Status::ok);
  EXPECT_NE(get(0), before);
}

TEST_F(PoolAlloc, what_it_grew_by_is_zero_when_asked) {
  ASSERT_EQ(pool_->malloc_to(64, word(0)), Status::ok);
  std::memset(get(0), 9, 64);
  ASSERT_EQ(pool_->realloc_to(3000, word(0), {.zero = true}), Status::ok);
  EXPECT_TRUE(all_are(get(0), 64, 9));
  EXPECT_TRUE(all_are(get(0) + 64, 3000 - 64, 0));
}

// So what a later realloc_to adds is zero, too, from where the requested bytes ended.
TEST_F(PoolAlloc, a_block_that_was_zero_grows_by_zeros) {
  const auto grow_all = [&](const char* how) {
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(all_are(get(i), pool_->usable_size(get(i)), 0)) << how;
      ASSERT_EQ(pool_->realloc_to(1000, word(i), {.zero = true}), Status::ok);
      EXPECT_TRUE(all_are(get(i), pool_->usable_size(get(i)), 0)) << how;
      std::memset(get(i), 0xee, pool_->usable_size(get(i)));
      ASSERT_EQ(pool_->realloc_to(100, word(i)), Status::ok);
      std::memset(get(i), 0xee, pool_->usable_size(get(i)));
      ASSERT_EQ(pool_->free_from(word(i)), Status::ok);
    }
  };
  const AllocOptions zero{.zero = true};
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(pool_->malloc_to(100, word(i)), Status::ok);
    std::memset(get(i), 0xee, pool_->usable_size(get(i)));
  }
  for (int i = 0; i < 8; ++i) ASSERT_EQ(pool_->free_from(word(i)), Status::ok);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(pool_->malloc_to(100, word(i), zero), Status::ok);
  grow_all("malloc_to");
  ASSERT_EQ(pool_->malloc_to(Sizes(100), std::span(words_->slot, 8), zero), Status::ok);
  grow_all("a batch");
  for (int i = 0; i < 8; ++i) {
    const Result<Reserved> block = pool_->reserve(100, zero);
    ASSERT_EQ(pool_->publish(*block, word(i)), Status::ok);
  }
  grow_all("reserve");
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(pool_->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(word(i)));
      const Result<void*> block = tx.alloc(100, zero);
      word(i).raw = PtrWord::encode(&word(i), *block);
      return Status::ok;
    }),
              Status::ok);
  }
  grow_all("a transaction");
}

TEST_F(PoolAlloc, a_failed_realloc_leaves_the_block) {
  ASSERT_EQ(pool_->malloc_to(64, word(0)), Status::ok);
  fill(0);
  const char* before = get(0);
  EXPECT_EQ(pool_->realloc_to(1ull << 60, word(0)), Status::too_large);
  EXPECT_EQ(pool_->realloc_to(200, word(0), {.align = 3}), Status::invalid_argument);
  PtrWord outside;
  EXPECT_EQ(pool_->realloc_to(200, outside), Status::invalid_argument);
  Ptr<char>* inside = reinterpret_cast<Ptr<char>*>(get(0));
  *inside = get(0);  // the destination is inside the block, and would move with it
  EXPECT_EQ(pool_->realloc_to(200, inside->word()), Status::invalid_argument);
  words_->slot[1] = get(0) + 16;  // an interior pointer
  EXPECT_EQ(pool_->realloc_to(200, word(1)), Status::invalid_argument);
  EXPECT_EQ(get(0), before);
  EXPECT_EQ(pool_->usable_size(get(0)), 64u);
}

TEST_F(PoolAlloc, a_realloc_in_a_transaction_that_aborts_did_not_happen) {
  ASSERT_EQ(pool_->malloc_to(64, word(0)), Status::ok);
  fill(0);
  const char* before = get(0);
  EXPECT_EQ(pool_->run([&](Transaction&) {
    TENUTO_TRY(pool_->realloc_to(5000, word(0)));
    EXPECT_NE(get(0), before);
    return Status::aborted;
  }),
            Status::aborted);
  EXPECT_EQ(get(0), before);
  EXPECT_TRUE(all_are(get(0), 64, 1));
}

// The values of fields wait in DRAM for the next fence, and the block is copied before the commit.
TEST_F(PoolAlloc, a_realloc_in_a_transaction_takes_fields_that_wait_along) {
  struct Fields {
    p<std::uint64_t> first;
    p<std::uint64_t> second;
  };
  ASSERT_EQ(pool_->malloc_to(sizeof(Fields), word(0), {.zero = true}), Status::ok);
  const auto fields = [this]() -> Fields& { return *reinterpret_cast<Fields*>(get(0)); };
  for (const bool commits : {false, true}) {
    EXPECT_EQ(pool_->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(words_->slot[0]));
      fields().first = 7;
      TENUTO_TRY(pool_->realloc_to(5000, word(0)));
      EXPECT_EQ(fields().first, 7u);
      fields().second = 8;
      EXPECT_EQ(pool_->realloc_to(9000, word(0)), Status::invalid_argument);
      return commits ? Status::ok : Status::aborted;
    }),
              commits ? Status::ok : Status::aborted);
    EXPECT_EQ(fields().first, commits ? 7u : 0u);
    EXPECT_EQ(fields().second, commits ? 8u : 0u);
  }
}

}  // namespace
}  // namespace tenuto
