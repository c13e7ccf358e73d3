// What a full pool still finds (heap/scavenge.cc), with the heap's options that change where free
// blocks wait: wear levelling, nodes, types, canaries. heap_edge_test has simpler cases.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/numa_parts.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kBytes = 2048;  // with a canary 2560
constexpr std::uint64_t kType = 7;

struct With {
  const char* name;
  std::uint64_t type;
  void (*set)(PoolOptions&);
};

// By the options, and how long a freed block rests, in ms (-1: without wear levelling).
class HeapFull : public Numa, public testing::WithParamInterface<std::tuple<With, int>> {
 protected:
  static With with() { return std::get<0>(GetParam()); }
  static int rest_ms() { return std::get<1>(GetParam()); }
  PoolOptions options() {
    PoolOptions o = numa_options(1);
    o.medium = Medium::cache;
    o.size_max = o.size;
    o.heap.wear_levelling = rest_ms() >= 0;
    o.heap.wear_rest_ms = rest_ms();
    o.heap.numa.node_of_thread = [] { return node_of_this_thread; };
    with().set(o);
    return o;
  }
  Status put(PtrWord& w) {
    return p_.heap->malloc_to(kBytes, std::span(&w, 1), {.type = with().type});
  }
};

// Each core has slabs of its own. What is free in those of another one serves a full pool.
TEST_P(HeapFull, finds_free_blocks_of_other_cores) {
  make(options());
  const std::span<PtrWord> words = make_words(p_, 12'000);
  std::size_t made = 0;
  while (made < words.size() && put(words[made]) == Status::ok) ++made;
  ASSERT_LT(made, words.size()) << "it is full";
  // Every slab keeps half of its blocks.
  const std::size_t freed = made / 2;
  for (std::size_t i = 0; i < freed; ++i) {
    ASSERT_EQ(p_.heap->free_from(words[2 * i]), Status::ok);
  }
  p_.heap->trim();  // this thread lives on: what it holds back comes to the slabs, or rests
  const auto before = p_.heap->stats();
  NodeThread other(p_.heap->numa_stats().nodes - 1);
  std::size_t again = 0;
  other.run([&] {
    while (again < freed && put(words[2 * again]) == Status::ok) ++again;
  });
  EXPECT_EQ(again, freed);
  const auto after = p_.heap->stats();
  if (rest_ms() >= 0) {
    // All lines of each block count once, and some tables of the counts.
    const std::uint64_t lines = freed * ((kBytes + (options_.canaries ? 512 : 0)) / kLineBytes);
    EXPECT_GE(after.wear_lines - before.wear_lines, lines);
    EXPECT_LE(after.wear_lines - before.wear_lines, lines + lines / 64);
  }
  if (rest_ms() > 0) {
    EXPECT_GT(after.wear_forced, before.wear_forced) << "a rest of an hour ends early";
  }
  expect_sound();
  p_.crash();
  reopen();
  EXPECT_EQ(p_.heap->stats().objects, made + 1);
  expect_sound();
}

// The same for blocks that are only reserved, which a crash frees; without a type derived ones,
// which are not found while they rest.
TEST_P(HeapFull, finds_released_blocks_of_other_cores) {
  make(options());
  std::vector<PoolOffset> made;
  const auto put = [&] {
    const auto b = with().type == 0 ? p_.heap->reserve(kBytes, heap::Kind::derived)
                                    : p_.heap->reserve_typed(kBytes, with().type);
    if (b) made.push_back(b->offset);
    return b.error();
  };
  while (put() == Status::ok) {
  }
  const std::vector<PoolOffset> all = std::exchange(made, {});
  for (std::size_t i = 0; i < all.size(); ++i)
    i % 2 == 0 ? p_.heap->release(all[i]) : made.push_back(all[i]);
  p_.heap->trim();
  const auto kind = with().type == 0 ? heap::Kind::derived : heap::Kind::typed;
  EXPECT_EQ(p_.heap->find_taken(all[0], kind).error(), Status::not_found);
  NodeThread other(p_.heap->numa_stats().nodes - 1);
  other.run([&] {
    while (put() == Status::ok) {
    }
  });
  EXPECT_EQ(made.size(), all.size());
  std::sort(made.begin(), made.end());
  EXPECT_EQ(std::unique(made.begin(), made.end()), made.end()) << "a block is given twice";
  expect_sound();
}

INSTANTIATE_TEST_SUITE_P(
    Options, HeapFull,
    testing::Combine(
        testing::Values(With{"plain", 0, [](PoolOptions&) {}},
                        With{"line", 0, [](PoolOptions& o) { o.medium = Medium::line; }},
                        With{"typed", kType, [](PoolOptions&) {}},
                        With{"nodes", 0, [](PoolOptions& o) { o.heap.numa.nodes = 2; }},
                        With{"canaries", 0, [](PoolOptions& o) { o.canaries = true; }}),
        testing::Values(-1, 0, 3'600'000)),
    [](const auto& i) {
      const int rest_ms = std::get<1>(i.param);
      const char* const wear = rest_ms < 0 ? "" : rest_ms == 0 ? "_worn" : "_resting";
      return std::string(std::get<0>(i.param).name) + wear;
    });

}  // namespace
}  // namespace tenuto::test
