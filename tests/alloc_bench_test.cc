// Tests the checks of the allocator benchmark itself: a broken allocator must not get a figure.
// Each fake breaks one promise, and the case that runs on it reports failures. On a sound fake it
// reports none.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "bench/alloc/case.h"

namespace bench {
namespace {

// Bump allocation from one buffer. `place` may return another place: its arguments are the number
// of the malloc and the right place.
class FakeAllocator final : public Allocator {
 public:
  using Place = std::function<std::byte*(std::uint64_t, std::byte*)>;
  explicit FakeAllocator(Place place = {}) : place_(std::move(place)), memory_(kBytes) {}

  bool open(const AllocatorOptions& options) override {
    root_.assign(options.root_bytes, std::byte{0});
    return true;
  }
  bool close() override { return true; }
  std::byte* root() override { return root_.data(); }
  std::size_t word_bytes() const override { return sizeof(void*); }
  void* malloc_to(std::uint64_t bytes, void* dest) override {
    std::byte* right = memory_.data() + used_;
    used_ += (bytes + 15) / 16 * 16;
    void* block = place_ ? place_(mallocs, right) : right;
    ++mallocs;
    std::memcpy(dest, &block, sizeof block);
    return block;
  }
  bool free_from(void* dest) override {
    std::memset(dest, 0, sizeof(void*));
    ++frees;
    return true;
  }
  void* follow(const void* dest) override {
    void* block = nullptr;
    std::memcpy(&block, dest, sizeof block);
    return block;
  }
  std::uint64_t heap_bytes() override { return used_; }

  std::uint64_t mallocs = 0;
  std::uint64_t frees = 0;

 private:
  static constexpr std::size_t kBytes = 64 << 20;
  Place place_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> root_;
  std::size_t used_ = 0;
};

struct Played {
  std::uint64_t failures = 0;
  std::string first;
  std::uint64_t ops = 0;
  std::int64_t live_most = 0;
};

Played play(FakeAllocator& allocator, Case& work, bool verify, unsigned batch = 1) {
  Ledger ledger(work.slots(), verify);
  allocator.open({.dir = {}, .medium = {}, .root_bytes = work.slots() * sizeof(void*)});
  Hands hands(allocator, {allocator.root(), sizeof(void*)}, ledger, 0, batch, false);
  Played p;
  hands.sample_each(1, [&] { p.live_most = std::max(p.live_most, hands.live_bytes()); });
  work.prepare(hands);
  work.run(hands);
  for (std::uint32_t slot = 0; slot < ledger.slots(); ++slot) {
    if (ledger.live(slot)) hands.drop(slot);
  }
  hands.settle();
  p.failures = hands.failures();
  p.first = hands.first_failure();
  p.ops = hands.ops();
  return p;
}

CaseOptions small() {
  CaseOptions o;
  o.scale = 0.01;
  o.seed = 7;
  return o;
}

TEST(AllocBench, a_sound_allocator_passes_every_small_case) {
  for (const auto make : {make_threadtest, make_prodcon, make_shbench, make_shbench_400,
                          make_larson_small, make_fragbench_w1, make_fragbench_w4}) {
    for (const unsigned batch : {1u, 7u}) {
      CaseOptions o = small();
      o.batch = batch;
      const std::unique_ptr<Case> work = make(o);
      FakeAllocator allocator;
      const Played p = play(allocator, *work, true, batch);
      EXPECT_EQ(p.failures, 0u) << p.first;
      EXPECT_EQ(allocator.mallocs, allocator.frees);
      EXPECT_EQ(p.ops, allocator.mallocs + allocator.frees);
      EXPECT_GT(p.ops, 100u);
    }
  }
}

TEST(AllocBench, fragbench_keeps_to_its_live_limit_and_reaches_it) {
  for (const auto make :
       {make_fragbench_w1, make_fragbench_w2, make_fragbench_w3, make_fragbench_w4}) {
    const std::unique_ptr<Case> work = make(small());
    FakeAllocator allocator;
    const Played p = play(allocator, *work, false);
    const auto limit = static_cast<std::int64_t>(work->live_bytes());
    EXPECT_LE(p.live_most, limit);
    EXPECT_GT(p.live_most, limit * 9 / 10);
  }
}

TEST(AllocBench, a_block_handed_out_twice_is_found_by_its_tag) {
  std::byte* twice = nullptr;
  FakeAllocator allocator([&](std::uint64_t n, std::byte* right) {
    if (n == 10) twice = right;
    return n == 20 ? twice : right;
  });
  const Played p = play(allocator, *make_threadtest(small()), false);
  EXPECT_EQ(p.failures, 1u);
  EXPECT_NE(p.first.find("tag"), std::string::npos) << p.first;
}

TEST(AllocBench, an_overlap_with_a_tag_is_found_by_it_and_any_other_by_verify) {
  constexpr std::ptrdiff_t kOverTag = 8;
  constexpr std::ptrdiff_t kBetweenTags = 40;
  for (const std::ptrdiff_t overlap : {kOverTag, kBetweenTags}) {
    for (const bool verify : {false, true}) {
      FakeAllocator allocator(
          [&](std::uint64_t n, std::byte* right) { return n == 20 ? right - overlap : right; });
      const Played p = play(allocator, *make_threadtest(small()), verify);
      EXPECT_EQ(p.failures > 0, verify || overlap == kOverTag);
      EXPECT_EQ(p.first.find("overlaps") != std::string::npos, verify) << p.first;
    }
  }
}

TEST(AllocBench, verify_finds_one_foreign_byte_within_a_block) {
  std::byte* victim = nullptr;
  FakeAllocator allocator([&](std::uint64_t n, std::byte* right) {
    if (n == 20) victim = right;
    if (n == 30) victim[33] ^= std::byte{1};
    return right;
  });
  const Played seen = play(allocator, *make_threadtest(small()), true);
  EXPECT_EQ(seen.failures, 1u);
  EXPECT_NE(seen.first.find("foreign bytes"), std::string::npos) << seen.first;
}

TEST(AllocBench, a_refused_malloc_is_a_failure) {
  FakeAllocator allocator(
      [](std::uint64_t n, std::byte* right) { return n == 20 ? nullptr : right; });
  const Played p = play(allocator, *make_threadtest(small()), false);
  EXPECT_NE(p.first.find("refused"), std::string::npos) << p.first;
}

// `pointers`: of a node.
void expect_damage_is_found(Case& structure, std::size_t pointers) {
  std::byte* node = nullptr;
  FakeAllocator allocator([&](std::uint64_t n, std::byte* right) {
    if (n == 400) node = right;
    return right;
  });
  EXPECT_EQ(play(allocator, structure, false).failures, 0u);
  const Slots slots = {allocator.root(), sizeof(void*)};
  EXPECT_STREQ(structure.inspect(allocator, slots), nullptr);
  const std::size_t number = pointers * sizeof(void*);
  node[number] ^= std::byte{1};
  EXPECT_STREQ(structure.inspect(allocator, slots), "a node is not what it was");
  node[number] ^= std::byte{1};
  std::memset(node, 0, number);
  EXPECT_STREQ(structure.inspect(allocator, slots), "the structure ends early");
}

TEST(AllocBench, a_damaged_structure_is_not_taken_for_recovered) {
  CaseOptions o = small();
  o.objects = 1000;
  expect_damage_is_found(*make_recovery_list(o), 1);
  expect_damage_is_found(*make_recovery_tree(o), 2);
}

TEST(AllocBench, a_structure_that_goes_on_is_not_taken_for_recovered) {
  CaseOptions o = small();
  o.objects = 1000;
  for (const auto& make : {make_recovery_list, make_recovery_tree}) {
    FakeAllocator allocator;
    EXPECT_EQ(play(allocator, *make(o), false).failures, 0u);
    const Slots slots = {allocator.root(), sizeof(void*)};
    o.objects = 999;
    EXPECT_STREQ(make(o)->inspect(allocator, slots), "the structure does not end");
    o.objects = 1000;
  }
}

TEST(AllocBench, a_cold_dbmstest_writes_each_page_and_keeps_the_tags) {
  CaseOptions o = small();
  std::vector<std::byte*> blocks;
  FakeAllocator allocator([&](std::uint64_t, std::byte* right) {
    blocks.push_back(right);
    return right;
  });
  EXPECT_EQ(play(allocator, *make_dbmstest_cold(o), false).failures, 0u);
  ASSERT_FALSE(blocks.empty());
  for (const std::byte* block : blocks) {
    std::uint64_t second_page = 0;
    std::memcpy(&second_page, block + 4096 + 8, sizeof second_page);
    EXPECT_NE(second_page, 0u);
  }
}

std::vector<std::vector<double>> ablations(std::vector<double> stripes, std::vector<double> ppm) {
  std::vector<std::vector<double>> values(ablation_switches().size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string_view name = ablation_switches()[i].name;
    if (name == "stripes") values[i] = stripes;
    if (name == "book_heap_ppm") values[i] = ppm;
  }
  return values;
}

TEST(AllocBench, each_combination_of_settings_is_a_contestant) {
  EXPECT_EQ(combinations(ablations({}, {})).size(), 1u);
  const std::vector<Ablation> all = combinations(ablations({1, 32}, {0, 500, 2000}));
  ASSERT_EQ(all.size(), 6u);
  tenuto::PoolOptions o;
  all[4].apply(o);
  EXPECT_EQ(o.stripes, 32u);
  EXPECT_EQ(o.heap.book_heap_ppm, 500u);
  EXPECT_FALSE(o.model_delays);
  Ablation{{}, true}.apply(o);
  EXPECT_TRUE(o.model_delays);
  EXPECT_EQ(all[4].text(), " stripes=32 book_heap_ppm=500");
}

TEST(AllocBench, settings_that_no_pool_has_are_refused) {
  EXPECT_EQ(wrong_values(ablations({1, 6, 32}, {0})), "");
  EXPECT_EQ(wrong_values(ablations({33}, {})), "--stripes must be whole numbers 1..32");
  EXPECT_NE(wrong_values(ablations({0}, {})), "");
  EXPECT_NE(wrong_values(ablations({1.5}, {})), "");
  EXPECT_NE(wrong_values(ablations({}, {-1})), "");
}

}  // namespace
}  // namespace bench
