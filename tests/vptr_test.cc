// Versioned pointers and batches as a user of Pool sees them: what is attached, refused, counted
// and found again. Also how an intent line holds them.
#include "tenuto/vptr.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "heap/intent_line.h"
#include "pm/media.h"
#include "support/pool_parts.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Item {
  std::uint64_t value[8];
};
struct Table {
  VPtr<Item> versioned[300];
  Ptr<Item> plain[300];
};

struct World {
  explicit World(const char* name, std::uint64_t bytes = 64u << 20) : path(name) {
    options.size = options.size_max = bytes;
    pool = Pool::create(path.str(), options);
    EXPECT_TRUE(pool);
    table = *pool->root<Table>("table");
  }
  void reopen() {
    EXPECT_EQ(pool->close(), Status::ok);
    pool = Pool::open(path.str(), options);
    EXPECT_TRUE(pool);
    table = *pool->root<Table>("table");
  }
  std::uint64_t objects() const { return pool->stats().objects - 1; }  // without the root

  TempPath path;
  PoolOptions options = test::PoolParts::small_options();
  Result<Pool> pool = Status::closed;
  Table* table = nullptr;
};

TEST(VPtrTest, a_word_holds_a_distance_and_a_version) {
  alignas(16) std::byte block[64];
  VPtrWord words[3];
  for (VPtrWord& w : words) {
    for (const std::uint32_t version : {0u, 1u, VPtrWord::kVersions - 1}) {
      w.raw = VPtrWord::encode(&w, block, version);
      EXPECT_EQ(VPtrWord::decode(&w, w.raw), block);
      EXPECT_EQ(VPtrWord::version(w.raw), version);
      w.raw = VPtrWord::encode(&w, nullptr, version);
      EXPECT_EQ(VPtrWord::decode(&w, w.raw), nullptr);
      EXPECT_EQ(VPtrWord::version(w.raw), version);
    }
  }
  for (const std::int64_t far : {std::int64_t{1} << 42, -(std::int64_t{1} << 42)}) {
    const std::uintptr_t there = reinterpret_cast<std::uintptr_t>(block) + std::uintptr_t(far);
    const void* target = reinterpret_cast<const void*>(there);
    EXPECT_EQ(VPtrWord::decode(&words[1], VPtrWord::encode(&words[1], target, 9)), target);
  }
}

TEST(VPtrTest, versions_go_round) {
  EXPECT_EQ(VPtrWord::next(VPtrWord::kVersions - 3), VPtrWord::kVersions - 2);
  EXPECT_EQ(VPtrWord::next(VPtrWord::kVersions - 2), 1u) << "the first and the last are left out";
  EXPECT_EQ(VPtrWord::next(VPtrWord::kVersions - 1), 1u) << "version 0.1 had it";
  for (std::uint32_t v : {0u, 5u, VPtrWord::kVersions / 2, VPtrWord::kVersions - 3}) {
    std::uint32_t later = v;
    for (std::uint32_t ahead : {1u, 2u, VPtrWord::kVersions / 2 - 1}) {
      later = (v + ahead) & (VPtrWord::kVersions - 1);
      EXPECT_TRUE(VPtrWord::older(v, later)) << v << " " << ahead;
      EXPECT_FALSE(VPtrWord::older(later, v)) << v << " " << ahead;
    }
    EXPECT_FALSE(VPtrWord::older(v, v));
  }
}

TEST(VPtrTest, what_was_attached_moved_and_freed_is_found_again) {
  World w("vptr1");
  VPtr<Item>* v = w.table->versioned;
  ASSERT_EQ(w.pool->malloc_to(v[0]), Status::ok);
  v[0]->value[3] = 33;
  auto r = w.pool->reserve(sizeof(Item));
  ASSERT_TRUE(r);
  static_cast<Item*>(r->data)->value[3] = 44;
  flush(*static_cast<Item*>(r->data));
  ASSERT_EQ(w.pool->publish(*r, v[1].word()), Status::ok);
  EXPECT_EQ(w.pool->publish(*r, v[2].word()), Status::invalid_argument) << "published twice";
  ASSERT_EQ(w.pool->swap(v[0], v[1]), Status::ok);
  EXPECT_EQ(v[0]->value[3], 44u);
  EXPECT_EQ(v[1]->value[3], 33u);
  ASSERT_EQ(w.pool->swap(v[2], v[0]), Status::ok) << "a move";
  EXPECT_FALSE(v[0]);
  EXPECT_EQ(w.objects(), 2u);
  w.reopen();
  v = w.table->versioned;
  EXPECT_EQ(v[1]->value[3], 33u);
  EXPECT_EQ(v[2]->value[3], 44u);
  ASSERT_EQ(w.pool->free_from(v[1]), Status::ok);
  ASSERT_EQ(w.pool->free_from(v[2]), Status::ok);
  EXPECT_EQ(VPtrWord::version(v[2].word().raw), 2u) << "one for each change";
  EXPECT_EQ(w.objects(), 0u);
  EXPECT_EQ(w.pool->validate(), Status::ok);
}

TEST(VPtrTest, what_cannot_be_is_refused_and_changes_nothing) {
  World w("vptr2");
  VPtr<Item>* v = w.table->versioned;
  VPtr<Item> outside;
  ASSERT_EQ(w.pool->malloc_to(v[0]), Status::ok);
  const std::uint64_t raw = v[0].word().raw;
  EXPECT_EQ(w.pool->malloc_to(v[0]), Status::invalid_argument) << "not null";
  EXPECT_EQ(w.pool->malloc_to(outside), Status::invalid_argument);
  EXPECT_EQ(w.pool->free_from(v[1]), Status::invalid_argument) << "null";
  EXPECT_EQ(w.pool->free_from(outside), Status::invalid_argument);
  EXPECT_EQ(w.pool->swap(v[0], v[0]), Status::invalid_argument);
  EXPECT_EQ(w.pool->swap(v[0], outside), Status::invalid_argument);
  EXPECT_EQ(w.pool->malloc_to(1ull << 40, v[1]), Status::too_large);
  // An interior pointer.
  v[1].word().raw = VPtrWord::encode(&v[1], v[0].get()->value + 4, 7);
  EXPECT_EQ(w.pool->free_from(v[1]), Status::invalid_argument);
  EXPECT_EQ(w.pool->swap(v[0], v[1]), Status::invalid_argument);
  v[1].word().raw = 0;
  EXPECT_EQ(v[0].word().raw, raw);
  EXPECT_EQ(w.objects(), 1u);
}

template <class P>
void expect_batches(World& w, P* p) {
  for (const std::size_t n : {0u, 1u, 2u, 3u, 5u, 16u, 17u, 64u, 129u, 300u}) {
    ASSERT_EQ(w.pool->malloc_to(sizeof(*p[0]), std::span<P>(p, n)), Status::ok) << n;
    ASSERT_EQ(w.objects(), n);
    std::set<const Item*> blocks;
    for (std::size_t i = 0; i < n; ++i) blocks.insert(p[i].get());
    ASSERT_EQ(blocks.size(), n);
    ASSERT_FALSE(blocks.contains(nullptr));
    ASSERT_EQ(w.pool->free_from(std::span<P>(p, n)), Status::ok) << n;
    ASSERT_EQ(w.objects(), 0u);
    for (std::size_t i = 0; i < n; ++i) ASSERT_FALSE(p[i]);
  }
  // Any destinations, of mixed sizes.
  using Word = std::remove_reference_t<decltype(p->word())>;
  std::vector<Word*> words;
  for (std::size_t i = 0; i < 40; ++i) {
    words.push_back(&p[(i * 7) % 300].word());
    ASSERT_EQ(w.pool->malloc_to(i % 9 == 0 ? 20'000 : 16 * i, *words.back()), Status::ok);
  }
  ASSERT_EQ(w.pool->free_from(std::span<Word* const>(words)), Status::ok);
  ASSERT_EQ(w.pool->malloc_to(100, std::span<Word* const>(words)), Status::ok);
  ASSERT_EQ(w.objects(), 40u);

  // Refused as a whole: a word twice, a word that is not null, a block twice, a null word.
  std::vector<Word*> twice = {&p[290].word(), &p[291].word(), &p[290].word()};
  EXPECT_EQ(w.pool->malloc_to(64, std::span<Word* const>(twice)), Status::invalid_argument);
  EXPECT_EQ(w.pool->malloc_to(sizeof(*p[0]), std::span<P>(p, 3)), Status::invalid_argument)
      << "p[0] is not null";
  std::vector<Word*> again = {words[0], words[1], words[2], words[1]};
  EXPECT_EQ(w.pool->free_from(std::span<Word* const>(again)), Status::invalid_argument);
  std::vector<Word*> null = {words[0], &p[290].word()};
  EXPECT_EQ(w.pool->free_from(std::span<Word* const>(null)), Status::invalid_argument);
  EXPECT_EQ(w.objects(), 40u);
  ASSERT_EQ(w.pool->free_from(std::span<Word* const>(words)), Status::ok) << "nothing was claimed";
  EXPECT_EQ(w.objects(), 0u);
  EXPECT_EQ(w.pool->validate(), Status::ok);
}

TEST(VPtrTest, batches_of_plain_words) {
  World w("vptr3");
  expect_batches(w, w.table->plain);
}
TEST(VPtrTest, batches_of_versioned_words) {
  World w("vptr4");
  expect_batches(w, w.table->versioned);
}

TEST(VPtrTest, a_batch_that_finds_the_pool_full_attaches_nothing) {
  World w("vptr5", kPoolBytesMin);
  EXPECT_EQ(w.pool->malloc_to(60'000, std::span(w.table->versioned, 300)), Status::full);
  EXPECT_EQ(w.pool->malloc_to(60'000, std::span(w.table->plain, 300)), Status::full);
  EXPECT_EQ(w.objects(), 0u);
  for (const auto& v : w.table->versioned) EXPECT_EQ(v.word().raw, 0u);
  ASSERT_EQ(w.pool->malloc_to(60'000, std::span(w.table->versioned, 20)), Status::ok);
  EXPECT_EQ(w.pool->validate(), Status::ok);
}

TEST(VPtrTest, intents_are_packed_and_unpacked_whatever_they_name) {
  std::mt19937_64 rng(4);
  std::set<unsigned> forms;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<heap::IntentElement> e(1 + rng() % 20);
    const bool row = rng() % 2 == 0, slab = rng() % 2 == 0, versions = rng() % 4 == 0;
    const std::uint64_t dest = rng() % (1ull << 43) * 8, place = rng() % (1ull << 28) << 16;
    const auto bytes = static_cast<std::uint64_t>(rng() % 1000) * 16;
    for (std::size_t i = 0; i < e.size(); ++i) {
      e[i].dest = {row ? dest + 8 * i : rng() % (1ull << 43) * 8};
      e[i].block = {slab ? place + rng() % 4096 * 16 : rng() % (1ull << 40) * 16};
      e[i].bytes = row || rng() % 2 == 0 ? bytes : bytes + 16;
      e[i].version = versions ? static_cast<std::uint32_t>(rng() % VPtrWord::kVersions) : 77;
    }
    std::uint64_t words[7];
    const std::size_t n =
        heap::pack_intent(words, heap::IntentOp::versioned_free, 1ull << 47, e.data(), e.size());
    ASSERT_GE(n, 1u);
    const auto v = heap::unpack_intent(words);
    ASSERT_TRUE(v);
    ASSERT_EQ(v->count, n);
    ASSERT_EQ(v->op, heap::IntentOp::versioned_free);
    ASSERT_EQ(v->retired, 1ull << 47);
    forms.insert(heap::IntentHead{words[0]}.form());
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(v->element[i].dest, e[i].dest);
      ASSERT_EQ(v->element[i].block, e[i].block);
      ASSERT_EQ(v->element[i].bytes, e[i].bytes);
      ASSERT_EQ(v->element[i].version, e[i].version);
    }
  }
  EXPECT_EQ(forms.size(), 3u);
}

}  // namespace
}  // namespace tenuto
