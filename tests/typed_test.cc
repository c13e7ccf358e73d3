// Blocks with a type: what a walk shows, and what it does not.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

constexpr std::uint64_t kMiB = 1u << 20;

struct Words {
  static constexpr std::size_t kSlots = 512;
  Ptr<std::uint64_t> slot[kSlots];
  VPtr<std::uint64_t> versioned[64];
};

class Typed : public testing::Test {
 protected:
  void SetUp() override {
    PoolOptions o = test::PoolParts::small_options();
    o.size = 64 * kMiB;
    pool_ = Pool::create(path_.str(), o, &report_);
    ASSERT_TRUE(pool_) << report_.text();
    words_ = *pool_->root<Words>("words");
  }
  void TearDown() override {
    if (!pool_) return;
    EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
  }
  void reopen() {
    ASSERT_EQ(pool_->close(), Status::ok);
    pool_ = Pool::open(path_.str(), test::PoolParts::small_options(), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    words_ = *pool_->root<Words>("words");
  }
  std::uint64_t* get(std::size_t i) { return words_->slot[i].get(); }
  PtrWord& word(std::size_t i) { return words_->slot[i].word(); }
  void make(std::size_t i, std::uint64_t bytes, std::uint64_t type) {
    ASSERT_EQ(pool_->malloc_to(bytes, word(i), {.type = type}), Status::ok);
  }
  // The blocks that a walk shows. They must come in the order of addresses.
  std::vector<void*> walk(std::uint64_t type) {
    std::vector<void*> all;
    void* p = *pool_->first(type);
    for (; p != nullptr; p = *pool_->next(p, type)) {
      EXPECT_TRUE(all.empty() || all.back() < p);
      EXPECT_EQ(pool_->type_of(p), type);
      all.push_back(p);
    }
    return all;
  }
  std::set<void*> shown(std::uint64_t type) {
    const std::vector<void*> all = walk(type);
    return {all.begin(), all.end()};
  }

  TempPath path_{"typed"};
  Report report_;
  Result<Pool> pool_ = Status::closed;
  Words* words_ = nullptr;
};

TEST_F(Typed, blocks_of_all_sizes_are_found_by_their_type_alone) {
  const std::uint64_t sizes[] = {1,    16,           24,       64,       100,     1000,   4096,
                                 7232, 10'000,       16'256,   16'257,   16'377,  40'000, 500'000,
                                 kMiB, 2 * kMiB - 8, 2 * kMiB, 5 * kMiB, 4096 - 8};
  std::map<std::uint64_t, std::set<void*>> made;
  std::size_t i = 0;
  for (const std::uint64_t bytes : sizes) {
    for (const std::uint64_t type : {std::uint64_t{0}, std::uint64_t{3}, ~std::uint64_t{0}}) {
      make(i, bytes, type);
      EXPECT_GE(pool_->usable_size(get(i)), bytes);
      EXPECT_EQ(pool_->type_of(get(i)), type);
      std::memset(get(i), 0xff, pool_->usable_size(get(i)));
      made[type].insert(get(i++));
    }
  }
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(shown(3), made[3]);
    EXPECT_EQ(shown(~std::uint64_t{0}), made[~std::uint64_t{0}]);
    EXPECT_TRUE(walk(4).empty());
    for (void* p : made[0]) EXPECT_EQ(pool_->type_of(p), 0u);
    if (round == 0) {
      std::map<std::uint64_t, std::set<void*>> moved;
      const auto* before = static_cast<std::byte*>(pool_->at({64})) - 64;
      std::map<std::uint64_t, std::set<std::uint64_t>> offsets;
      for (const auto& [type, all] : made) {
        for (void* p : all) {
          offsets[type].insert(static_cast<std::uint64_t>(static_cast<std::byte*>(p) - before));
        }
      }
      reopen();
      for (const auto& [type, all] : offsets) {
        for (const std::uint64_t o : all) moved[type].insert(pool_->at({o}));
      }
      made = moved;
    }
  }
  for (std::size_t k = 0; k < i; ++k) ASSERT_EQ(pool_->free_from(word(k)), Status::ok);
  EXPECT_TRUE(walk(3).empty());
  EXPECT_TRUE(walk(~std::uint64_t{0}).empty());
}

TEST_F(Typed, many_blocks_come_go_and_change_their_type) {
  std::mt19937_64 rng(20261121);
  std::map<void*, std::uint64_t> type_of;
  for (int step = 0; step < 6000; ++step) {
    const std::size_t i = rng() % Words::kSlots;
    if (get(i) == nullptr) {
      const std::uint64_t type = rng() % 4;
      make(i, rng() % 50 == 0 ? rng() % 100'000 : 1 + rng() % 300, type);
      type_of[get(i)] = type;
    } else {
      type_of.erase(get(i));
      ASSERT_EQ(pool_->free_from(word(i)), Status::ok);
    }
    if (step % 300 != 0) continue;
    if (step % 900 == 0) {
      ASSERT_EQ(pool_->trim(), Status::ok);
    }
    for (const std::uint64_t type : {1u, 2u, 3u}) {
      std::set<void*> want;
      for (const auto& [p, t] : type_of) {
        if (t == type) want.insert(p);
      }
      EXPECT_EQ(shown(type), want) << "type " << type << ", step " << step;
    }
  }
}

TEST_F(Typed, what_is_only_reserved_is_not_shown) {
  for (const std::uint64_t bytes : {64u, 20'000u, 3'000'000u}) {
    Result<Reserved> kept = pool_->reserve(bytes, {.type = 7});
    Result<Reserved> dropped = pool_->reserve(bytes, {.zero = true, .type = 7});
    ASSERT_TRUE(kept && dropped);
    EXPECT_GE(kept->bytes, bytes);
    EXPECT_TRUE(walk(7).empty());
    EXPECT_EQ(pool_->type_of(kept->data), 0u);
    ASSERT_EQ(pool_->publish(*kept, word(0)), Status::ok);
    ASSERT_EQ(pool_->cancel(*dropped), Status::ok);
    EXPECT_EQ(shown(7), std::set<void*>{kept->data});
    ASSERT_EQ(pool_->free_from(word(0)), Status::ok);
    EXPECT_TRUE(walk(7).empty());
  }
}

TEST_F(Typed, a_transaction_shows_its_blocks_and_hides_what_it_freed_when_it_commits) {
  for (const std::uint64_t bytes : {64u, 20'000u}) {
    make(0, bytes, 7);
    void* const old = get(0);
    for (const bool commits : {false, true}) {
      void* fresh = nullptr;
      const Status s = pool_->run([&](Transaction& tx) -> Status {
        const Result<void*> p = tx.alloc(bytes, {.type = 7});
        const Result<void*> cancelled = tx.alloc(bytes, {.type = 7});
        if (!p || !cancelled) return Status::full;
        fresh = *p;
        TENUTO_TRY(tx.free(*cancelled));
        TENUTO_TRY(tx.free(get(0)));
        TENUTO_TRY(tx.add(word(0)));
        words_->slot[0] = static_cast<std::uint64_t*>(fresh);
        EXPECT_EQ(shown(7), std::set<void*>{old});
        return commits ? Status::ok : Status::aborted;
      });
      EXPECT_EQ(s, commits ? Status::ok : Status::aborted);
      EXPECT_EQ(shown(7), std::set<void*>{commits ? fresh : old});
    }
    ASSERT_EQ(pool_->free_from(word(0)), Status::ok);
  }
}

TEST_F(Typed, objects_gone_by_may_be_freed_on_the_way) {
  for (std::size_t i = 0; i < 400; ++i) {
    make(i, i % 40 == 0 ? 30'000 : 100, 1 + i % 2);
    *get(i) = i;
  }
  std::size_t seen = 0;
  for (std::uint64_t& object : pool_->objects<std::uint64_t>(2)) {
    ASSERT_EQ(object % 2, 1u);
    ASSERT_EQ(pool_->free_from(word(object)), Status::ok);
    if (++seen % 50 == 0) {
      ASSERT_EQ(pool_->trim(), Status::ok);
    }
  }
  EXPECT_EQ(seen, 200u);
  EXPECT_TRUE(walk(2).empty());
  EXPECT_EQ(walk(1).size(), 200u);
}

TEST_F(Typed, batches_have_types) {
  const auto plain = std::span(words_->slot).first(100);
  std::vector<PtrWord*> words;
  for (auto& p : plain) words.push_back(&p.word());
  ASSERT_EQ(pool_->malloc_to(100, std::span<PtrWord* const>(words), {.zero = true, .type = 5}),
            Status::ok);
  std::vector<VPtrWord*> versioned;
  for (auto& p : words_->versioned) versioned.push_back(&p.word());
  const std::span<VPtrWord* const> all(versioned);
  ASSERT_EQ(pool_->malloc_to(48, all.first(40), {.type = 6}), Status::ok);
  ASSERT_EQ(pool_->malloc_to(20'000, all.subspan(40, 4), {.type = 6}), Status::ok);
  ASSERT_EQ(pool_->malloc_to(48, *versioned[44], {.align = 4096, .type = 6}), Status::ok);
  std::set<void*> fives, sixes;
  for (auto& p : plain) fives.insert(p.get());
  for (std::size_t i = 0; i < 45; ++i) sixes.insert(words_->versioned[i].get());
  EXPECT_EQ(shown(5), fives);
  EXPECT_EQ(shown(6), sixes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(words_->versioned[44].get()) % 4096, 0u);
  for (auto& p : plain) EXPECT_EQ(*p, 0u);
  EXPECT_EQ(pool_->malloc_to(8, std::span<PtrWord* const>(words), {.type = 5}),
            Status::invalid_argument)
      << "not null";
  ASSERT_EQ(pool_->swap(words_->versioned[0], words_->versioned[60]), Status::ok);
  EXPECT_EQ(shown(6), sixes);
  ASSERT_EQ(pool_->free_from(all.subspan(1, 44)), Status::ok);
  EXPECT_EQ(shown(6), std::set<void*>{words_->versioned[60].get()});
}

TEST_F(Typed, a_block_keeps_its_type_when_it_grows) {
  make(0, 100, 9);
  *get(0) = 77;
  void* const at = get(0);
  ASSERT_EQ(pool_->realloc_to(104, word(0)), Status::ok);
  EXPECT_EQ(get(0), at);
  for (const std::uint64_t bytes : {1000u, 16'256u, 20'000u, 20'472u, 20'473u, 2'500'000u, 60u}) {
    ASSERT_EQ(pool_->realloc_to(bytes, word(0)), Status::ok);
    EXPECT_GE(pool_->usable_size(get(0)), bytes);
    EXPECT_EQ(*get(0), 77u);
    EXPECT_EQ(shown(9), std::set<void*>{get(0)}) << bytes;
  }
  ASSERT_EQ(pool_->realloc_to(60, word(0), {.type = 10}), Status::ok);
  EXPECT_EQ(*get(0), 77u);
  EXPECT_TRUE(walk(9).empty());
  EXPECT_EQ(shown(10), std::set<void*>{get(0)});
  make(1, 20'472, 9);
  void* const extent = get(1);
  ASSERT_EQ(pool_->realloc_to(20'470, word(1)), Status::ok);
  EXPECT_EQ(get(1), extent) << "fits";
  ASSERT_EQ(pool_->realloc_to(100, word(2), {.type = 9}), Status::ok);
  EXPECT_EQ(walk(9).size(), 2u);
}

TEST_F(Typed, alignment_costs_no_type) {
  std::set<void*> made;
  std::size_t i = 0;
  for (std::uint64_t align = 16; align <= kHugeBytes; align *= 2) {
    for (const std::uint64_t bytes : {24u, 64u, 4096u, 16'000u, 40'000u}) {
      ASSERT_EQ(pool_->malloc_to(bytes, word(i), {.align = align, .type = 2}), Status::ok);
      EXPECT_EQ(pool_->offset_of(get(i)).value % align, 0u);
      EXPECT_TRUE(bytes % 64 != 0 || pool_->offset_of(get(i)).value % 64 == 0);
      std::memset(get(i), 0xff, pool_->usable_size(get(i)));
      made.insert(get(i++));
    }
  }
  EXPECT_EQ(shown(2), made);
}

TEST_F(Typed, slabs_of_types_are_used_by_others_when_they_are_empty) {
  for (std::size_t i = 0; i < 400; ++i) make(i, 4096, 1);
  const std::uint64_t slabs = pool_->stats().slabs;
  for (std::size_t i = 0; i < 400; ++i) ASSERT_EQ(pool_->free_from(word(i)), Status::ok);
  ASSERT_EQ(pool_->trim(), Status::ok);
  EXPECT_LE(pool_->stats().slabs + 20, slabs);
  for (std::size_t i = 0; i < 400; ++i) make(i, 100, 0);
  EXPECT_TRUE(walk(1).empty());
}

TEST_F(Typed, a_sparse_slab_of_types_is_not_morphed) {
  for (std::size_t i = 0; i < 300; ++i) make(i, 4096, 1);
  for (std::size_t i = 0; i < 300; ++i) {
    if (i % 20 != 0) {
      ASSERT_EQ(pool_->free_from(word(i)), Status::ok);
    }
  }
  for (std::size_t i = 300; i < 500; ++i) make(i, 1000, i % 2);
  EXPECT_EQ(pool_->stats().morphed_slabs, 0u);
  EXPECT_EQ(walk(1).size(), 15u + 100u);
}

TEST_F(Typed, what_cannot_be_walked_is_refused_and_named) {
  Report report;
  EXPECT_EQ(pool_->first(0, &report).error(), Status::invalid_argument);
  EXPECT_NE(report.text().find("without a type"), std::string::npos) << report.text();
  make(0, 64, 1);
  EXPECT_EQ(pool_->next(get(0), 0).error(), Status::invalid_argument);
  EXPECT_EQ(pool_->next(&report, 1, &report).error(), Status::invalid_argument);
  EXPECT_NE(report.text().find("outside the pool"), std::string::npos) << report.text();
  EXPECT_EQ(pool_->next(nullptr, 1).error(), Status::invalid_argument);
  EXPECT_EQ(pool_->type_of(nullptr), 0u);
  EXPECT_EQ(pool_->type_of(get(0) + 1), 0u) << "interior";
  EXPECT_TRUE(pool_->objects<int>(0).begin() == pool_->objects<int>(0).end());
  EXPECT_EQ(pool_->malloc_to(pool_->stats().file_bytes * 1000, word(1), {.type = 1}),
            Status::too_large);
  EXPECT_EQ(pool_->malloc_to(8, word(1), {.align = 3, .type = 1}), Status::invalid_argument);
  EXPECT_EQ(*pool_->next(static_cast<std::byte*>(pool_->at({64})), 1), get(0));
  EXPECT_EQ(*pool_->next(get(0), 1), nullptr);
  Pool other = std::move(*pool_);
  EXPECT_EQ(pool_->first(1).error(), Status::closed);
  pool_ = std::move(other);
}

}  // namespace
}  // namespace tenuto
