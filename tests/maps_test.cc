// The maps of a pool: what their calls promise, what they cost, and random transactions beside
// std::map (support/maps_random.h). TENUTO_PRINT_COSTS=1 prints the costs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include "pm/media.h"
#include "support/failing_memory.h"
#include "support/maps_boxed.h"
#include "support/maps_random.h"
#include "support/seed.h"
#include "tenuto/hash_map.h"
#include "tenuto/inline_string.h"
#include "tenuto/ordered_map.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace tenuto {
namespace {

using test::MapsRandom;
using test::TempPath;
using test::TxParts;

using Number = std::uint64_t;
using Tree = OrderedMap<Number, Number>;
using Table = HashMap<Number, Number>;
static_assert(std::ranges::bidirectional_range<Tree> && std::ranges::forward_range<Table>);
static_assert(Element<Tree> && Owner<Tree> && Element<Table> && Owner<Table>);
static_assert(sizeof(slots::Leaf<Number, Number>) == 4 * kLineBytes);
static_assert(sizeof(slots::Bucket<Number, Number>) == 2 * kLineBytes);

using test::Boxed;
using test::BoxedEqual;
using test::BoxedHash;
using test::BoxedLess;

// Kinds of maps: Of<K, V>, and Boxes, whose keys and values own blocks.
struct Ordered {
  template <class K, class V>
  using Of = OrderedMap<K, V>;
  using Boxes = OrderedMap<Boxed, Boxed, BoxedLess>;
};
struct Hashed {
  template <class K, class V>
  using Of = HashMap<K, V>;
  using Boxes = HashMap<Boxed, Boxed, BoxedHash, BoxedEqual>;
};

template <class Kind>
class MapsTest : public ::testing::Test {
 protected:
  using Map = typename Kind::template Of<Number, Number>;

  MapsTest() { EXPECT_EQ(parts_.create(path_.str()), Status::ok) << parts_.report.text(); }
  template <class T = Map>
  T& root() {
    return parts_.make_root<T>(0);
  }
  template <class T>
  Status fill(T& map, Number first, Number last) {
    return parts_.run([&](Transaction& tx) {
      for (Number n = first; n <= last; ++n) TENUTO_TRY(map.insert(tx, n, n * 2));
      return Status::ok;
    });
  }
  template <class T>
  void expect_numbers(const T& map, Number first, Number last) {
    Report r;
    ASSERT_EQ(map.validate(&r), Status::ok) << r.text();
    ASSERT_EQ(map.size(), last + 1 - first);
    for (Number n = first; n <= last; ++n) {
      ASSERT_NE(map.get(n), nullptr) << n;
      ASSERT_EQ(*map.get(n), n * 2);
    }
  }

  TempPath path_{"maps"};
  TxParts parts_;
};
using Kinds = ::testing::Types<Ordered, Hashed>;
TYPED_TEST_SUITE(MapsTest, Kinds);

TYPED_TEST(MapsTest, calls_answer_as_they_promise) {
  auto& map = this->root();
  EXPECT_TRUE(map.empty() && map.begin() == map.end() && map.get(1) == nullptr);
  EXPECT_EQ(map.validate(), Status::ok);
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) {
    EXPECT_EQ(map.erase(tx, 1), Status::not_found);
    EXPECT_EQ(map.edit(tx, 1).error(), Status::not_found);
    EXPECT_EQ(map.insert(tx, 1, 10), Status::ok);
    EXPECT_EQ(map.insert(tx, 1, 11), Status::exists);
    EXPECT_EQ(*map.get(1), 10u);
    EXPECT_EQ(map.insert_or_assign(tx, 1, 12), Status::ok);
    EXPECT_EQ(map.insert_or_assign(tx, 2, 20), Status::ok);
    EXPECT_EQ(**map.edit(tx, 2) += 1, 21u);
    EXPECT_EQ(**map.get_or_insert(tx, 2), 21u);
    EXPECT_EQ(**map.get_or_insert(tx, 3), 0u);
    EXPECT_EQ(map.erase(tx, 3), Status::ok);
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(map.size(), 2u);
  EXPECT_TRUE(map.contains(1) && !map.contains(3));
  EXPECT_EQ(map.find(1)->value, 12u);
  EXPECT_EQ(map.find(3), map.end());
  Number sum = 0;
  for (const auto& [key, value] : map) sum += key * value;
  EXPECT_EQ(sum, 12u + 42);
}

TYPED_TEST(MapsTest, an_abort_restores_all) {
  auto& map = this->root();
  ASSERT_EQ(this->fill(map, 1, 300), Status::ok);
  EXPECT_EQ(this->parts_.run([&](Transaction& tx) {
    for (Number n = 1; n <= 300; n += 2) TENUTO_TRY(map.erase(tx, n));
    for (Number n = 1000; n < 1500; ++n) TENUTO_TRY(map.insert(tx, n, 1));
    for (Number n = 2; n <= 300; n += 2) TENUTO_TRY(map.insert_or_assign(tx, n, 1));
    TENUTO_TRY(map.validate());
    return Status::conflict;
  }),
            Status::conflict);
  this->expect_numbers(map, 1, 300);
  EXPECT_EQ(this->parts_.run([&](Transaction& tx) {
    TENUTO_TRY(map.clear(tx));
    TENUTO_TRY(map.insert(tx, 7, 7));
    return Status::conflict;
  }),
            Status::conflict);
  this->expect_numbers(map, 1, 300);
}

TYPED_TEST(MapsTest, are_there_when_the_pool_is_opened_again) {
  auto* map = &this->root();
  ASSERT_EQ(this->fill(*map, 1, 5000), Status::ok);
  ASSERT_EQ(this->parts_.close(), Status::ok);
  ASSERT_EQ(this->parts_.open(this->path_.str()), Status::ok);
  map = &this->parts_.template get_root<typename TestFixture::Map>(0);
  this->expect_numbers(*map, 1, 5000);
}

// Inner maps move when nodes of the outer one are split and merged.
TYPED_TEST(MapsTest, may_be_values_of_each_other) {
  using Nested = typename TypeParam::template Of<Number, typename TestFixture::Map>;
  auto& map = this->template root<Nested>();
  for (Number outer = 0; outer < 60; ++outer) {
    ASSERT_EQ(this->parts_.run([&](Transaction& tx) {
      for (Number n = outer; n < outer + 40; ++n) {
        const auto inner = map.get_or_insert(tx, n % 60);
        if (!inner) return inner.error();
        TENUTO_TRY((*inner)->insert(tx, outer, n));
      }
      return outer % 7 == 3 ? Status::conflict : Status::ok;
    }),
              outer % 7 == 3 ? Status::conflict : Status::ok);
  }
  ASSERT_EQ(map.validate(), Status::ok);
  for (const auto& [n, inner] : map) {
    ASSERT_EQ(inner.validate(), Status::ok);
    ASSERT_GT(inner.size(), 30u);
    for (const auto& [outer, value] : inner) ASSERT_EQ(value % 60, n);
  }
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) {
    for (Number n = 0; n < 50; ++n) TENUTO_TRY(map.erase(tx, n));
    return map.validate();
  }),
            Status::ok);
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) { return map.release(tx); }), Status::ok);
  EXPECT_EQ(this->parts_.allocated_blocks().size(), 1u) << "all but the root";
}

TYPED_TEST(MapsTest, keys_and_values_may_own_blocks) {
  auto& map = this->template root<typename TypeParam::Boxes>();
  ASSERT_EQ(this->fill(map, 1, 500), Status::ok);
  this->expect_numbers(map, 1, 500);
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) {
    for (Number n = 1; n <= 400; ++n) TENUTO_TRY(map.erase(tx, n));
    for (Number n = 401; n <= 500; ++n) TENUTO_TRY(map.insert_or_assign(tx, n, n * 2));
    return Status::ok;
  }),
            Status::ok);
  this->expect_numbers(map, 401, 500);
  std::size_t blocks = 1 + 2 * 100;
  map.for_each_block([&](const void*) { blocks += 1; });
  constexpr bool kOrdered = std::is_same_v<TypeParam, Ordered>;
  const std::size_t separators = this->parts_.allocated_blocks().size() - blocks;
  EXPECT_LE(separators, kOrdered ? 30u : 0u);
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) { return map.clear(tx); }), Status::ok);
  EXPECT_EQ(this->parts_.allocated_blocks().size(), 1u) << "all but the root";
}

TYPED_TEST(MapsTest, fields_as_values_share_the_fence) {
  auto& map = this->template root<typename TypeParam::template Of<Number, p<Number>>>();
  ASSERT_EQ(this->fill(map, 1, 100), Status::ok);
  EXPECT_EQ(this->parts_.run([&](Transaction& tx) {
    for (Number n = 1; n <= 100; ++n) TENUTO_TRY(map.insert_or_assign(tx, n, 5));
    for (Number n = 1; n <= 100; ++n) *map.get(n) += n;
    for (Number n = 101; n <= 400; ++n) TENUTO_TRY(map.insert(tx, n, n + 5));
    EXPECT_EQ(*map.get(30), 35u);
    return Status::ok;
  }),
            Status::ok);
  ASSERT_EQ(map.validate(), Status::ok);
  for (Number n = 1; n <= 400; ++n) ASSERT_EQ(*map.get(n), n + 5);
}

TYPED_TEST(MapsTest, a_full_pool_refuses_and_changes_nothing) {
  auto& map = this->template root<typename TypeParam::Boxes>();
  ASSERT_EQ(this->fill(map, 1, 20), Status::ok);
  while (this->parts_.heap->reserve(20'000, heap::Kind::logged)) continue;
  while (this->parts_.heap->reserve(256, heap::Kind::logged)) continue;
  Number last = 20;
  Status s = Status::ok;
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) {
    while (s == Status::ok) {
      s = map.insert(tx, last + 1, (last + 1) * 2);
      if (s == Status::ok) last += 1;
    }
    return map.erase(tx, last--);  // it can go on
  }),
            Status::ok);
  EXPECT_EQ(s, Status::full);
  this->expect_numbers(map, 1, last);
  EXPECT_EQ(this->parts_.run([&](Transaction& tx) { return map.erase(tx, last--); }), Status::ok);
  this->expect_numbers(map, 1, last);
}

TYPED_TEST(MapsTest, without_memory_a_mutator_throws_and_the_transaction_is_rolled_back) {
  auto& map = this->root();
  ASSERT_EQ(this->fill(map, 1, 40), Status::ok);
  int failures = 0;
  for (long n = 1;; ++n) {
    Transaction tx(this->parts_.engine->mine());
    bool thrown = false;
    test::fail_allocation(n);
    try {
      for (Number k = 100; k < 700; ++k) ASSERT_EQ(map.insert(tx, k, k), Status::ok);
      for (Number k = 1; k <= 40; ++k) ASSERT_EQ(map.erase(tx, k), Status::ok);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    ASSERT_EQ(test::failed_allocation(), thrown);
    if (!thrown) break;
    failures += 1;
    EXPECT_EQ(tx.status(), Status::aborted);
    EXPECT_EQ(tx.commit(), Status::aborted);
    this->expect_numbers(map, 1, 40);
  }
  EXPECT_GT(failures, 5);
  this->expect_numbers(map, 1, 40);
}

// --- the order -----------------------------------------------------------------------------------

using OrderedMapTest = MapsTest<Ordered>;

TEST_F(OrderedMapTest, space_is_bounded) {
  auto& map = root();
  const auto nodes = [&] {
    std::size_t n = 0;
    map.for_each_block([&](const void*) { n += 1; });
    return n;
  };
  ASSERT_EQ(fill(map, 1, 14'000), Status::ok);
  EXPECT_LE(nodes(), 1000u + 1000 / 11) << "ascending: 14 in a leaf";
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    for (Number n = 1; n <= 14'000; ++n) {
      if (n % 14 != 0) TENUTO_TRY(map.erase(tx, n));
    }
    return map.validate();
  }),
            Status::ok);
  EXPECT_EQ(map.size(), 1000u);
  EXPECT_LE(nodes(), 1000u / 4 * 4 / 3) << "a quarter of the leaves, and what is above them";
  EXPECT_EQ(map.lower_bound(29)->key, 42u);
  EXPECT_EQ(map.upper_bound(42)->key, 56u);
  EXPECT_EQ((--map.end())->key, 14'000u);
}

TYPED_TEST(MapsTest, keys_that_are_text_are_found_by_views) {
  using Texts = typename TypeParam::template Of<String, Vector<Number>>;
  using Short = typename TypeParam::template Of<InlineString<15>, String>;
  struct Both {
    Texts texts;
    Short shorts;
  };
  auto& both = this->template root<Both>();
  const auto text_of = [](Number n) {
    return std::string(n % 3 * 20, 'x') + std::to_string(1000 + n * 37 % 200);
  };
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) {
    TENUTO_TRY(both.shorts.insert(tx, InlineString<15>("7"), text_of(7)));
    for (Number n = 0; n < 200; ++n) {
      const auto at = both.texts.get_or_insert(tx, text_of(n));
      if (!at) return at.error();
      TENUTO_TRY((*at)->push_back(tx, n));
      if (n != 7)
        TENUTO_TRY(both.shorts.insert(tx, *InlineString<15>::make(std::to_string(n)), text_of(n)));
      TENUTO_TRY(both.shorts.insert_or_assign(tx, InlineString<15>("7"), text_of(n)));
    }
    return Status::ok;
  }),
            Status::ok);
  Report r;
  ASSERT_EQ(both.texts.validate(&r), Status::ok) << r.text();
  ASSERT_EQ(both.shorts.validate(&r), Status::ok) << r.text();
  for (Number n = 0; n < 200; ++n) {
    const auto* const numbers = both.texts.get(std::string_view(text_of(n)));
    ASSERT_NE(numbers, nullptr);
    ASSERT_EQ((*numbers)[0], n);
    ASSERT_EQ(both.shorts.get(std::string_view(std::to_string(n)))->view(),
              text_of(n == 7 ? 199 : n));
  }
  EXPECT_EQ(both.texts.get(std::string_view("199")), nullptr);
  ASSERT_EQ(this->parts_.run([&](Transaction& tx) {
    for (Number n = 0; n < 150; ++n) TENUTO_TRY(both.texts.erase(tx, text_of(n)));
    TENUTO_TRY(both.texts.validate());
    TENUTO_TRY(both.texts.release(tx));
    return both.shorts.release(tx);
  }),
            Status::ok);
  EXPECT_EQ(this->parts_.allocated_blocks().size(), 1u) << "all but the root";
}

// Inner nodes with 13 and 2 leaves, and the root. The last two leaves merge, so that the node above
// them has one, and merges; then the root has one.
TEST_F(OrderedMapTest, merges_go_up_to_the_root) {
  auto& map = root();
  const auto nodes = [&] {
    std::size_t n = 0;
    map.for_each_block([&](const void*) { n += 1; });
    return n;
  };
  const auto erase = [&](Number first, Number last) {
    return parts_.run([&](Transaction& tx) {
      for (Number n = first; n <= last; ++n) TENUTO_TRY(map.erase(tx, n));
      return map.validate();
    });
  };
  ASSERT_EQ(fill(map, 1, 210), Status::ok);
  ASSERT_EQ(erase(187, 196), Status::ok);
  ASSERT_EQ(erase(201, 210), Status::ok);
  EXPECT_EQ(nodes(), 15u + 2 + 1);
  ASSERT_EQ(erase(200, 200), Status::ok);
  EXPECT_EQ(nodes(), 14u + 1);
  ASSERT_EQ(erase(1, 186), Status::ok);
  EXPECT_EQ(nodes(), 1u);
  ASSERT_EQ(erase(197, 199), Status::ok);
  EXPECT_EQ(nodes(), 0u);
}

TEST(MapsSlots, words_are_as_lists_of_slots) {
  std::mt19937_64 rng(3);
  slots::Permutation order;
  std::vector<unsigned> used, free;
  for (unsigned i = 0; i < 15; ++i) free.push_back(i);
  slots::Tags tags;
  for (int i = 0; i < 5000; ++i) {
    const auto rank = static_cast<unsigned>(rng() % (used.size() + 1));
    if (rng() % 20 == 0) {
      order = order.kept(rank);
      free.insert(free.end(), used.begin() + rank, used.end());
      used.resize(rank);
    } else if (rng() % 2 == 0 && !free.empty()) {
      order = order.inserted(rank);
      used.insert(used.begin() + rank, free.front());
      free.erase(free.begin());
    } else if (rank < used.size()) {
      order = order.erased(rank);
      free.push_back(used[rank]);
      used.erase(used.begin() + rank);
    }
    ASSERT_TRUE(order.sound());
    ASSERT_EQ(order.count(), used.size());
    for (unsigned r = 0; r < 15; ++r) {
      ASSERT_EQ(order.slot(r), r < used.size() ? used[r] : free[r - used.size()]);
    }
    const auto tag = static_cast<std::uint8_t>(rng() % 3 * 127);
    tags = tags.full() ? tags.emptied(static_cast<unsigned>(rng() % 127))
                       : tags.filled(tags.next_free(), tag);
    ASSERT_TRUE(tags.sound());
    for (unsigned s = 0; s < slots::Tags::kSlots; ++s) {
      const bool same = (tags.used() >> s & 1) != 0 && tags.tag(s) == tag;
      if (same) {
        ASSERT_NE(tags.matches(tag) >> s & 1, 0u);
      }
    }
    ASSERT_EQ(tags.matches(tag) & ~tags.used(), 0u);
  }
}

// --- costs ---------------------------------------------------------------------------------------

struct Cost {
  std::uint64_t fences, lines;
  bool operator==(const Cost&) const = default;
};
void PrintTo(const Cost& c, std::ostream* to) { *to << c.fences << " fences, " << c.lines; }

template <class Map>
class Costs {
 public:
  Costs() {
    PoolOptions o = TxParts::small_options();
    o.medium = Medium::model;
    EXPECT_EQ(parts_.create(path_.str(), o), Status::ok) << parts_.report.text();
    map = &parts_.make_root<Map>(0);
  }
  template <class Body>
  Cost of(Body&& body) {
    const pm::ModelCounts before = pm::thread_model_counts();
    EXPECT_EQ(parts_.run([&](Transaction& tx) { return body(tx, *map); }), Status::ok);
    const pm::ModelCounts used = pm::thread_model_counts() - before;
    return {used.fences, used.lines};
  }
  void average(const char* name, std::uint64_t n, std::uint64_t bound, bool random) {
    std::mt19937_64 rng(1);
    Cost sum{};
    for (Number i = 0; i < n; ++i) {
      const Number key = random ? rng() : 100'000 + i;
      const Cost c = of([&](auto& tx, auto& m) { return m.insert(tx, key, key); });
      sum.fences += c.fences;
      sum.lines += c.lines;
    }
    if (std::getenv("TENUTO_PRINT_COSTS") != nullptr) {
      std::printf("%s: %.3f fences, %.2f lines\n", name,
                  static_cast<double>(sum.fences) / static_cast<double>(n),
                  static_cast<double>(sum.lines) / static_cast<double>(n));
    }
    EXPECT_LE(sum.lines, n * bound);
    EXPECT_LE(sum.fences, n * 3 + n / 50 + 8) << "rarely some of the heap";
  }
  Map* map;

 private:
  TempPath path_{"mapscost"};
  TxParts parts_;
};

constexpr auto kInsert = [](Number first, Number last) {
  return [=](Transaction& tx, auto& m) {
    for (Number n = first; n <= last; ++n) TENUTO_TRY(m.insert(tx, n * 10, n));
    return Status::ok;
  };
};

TEST(MapsCost, of_an_ordered_map) {
  Costs<Tree> c;
  c.of(kInsert(1, 8));
  // Entries of the order and the size, the slot, the order, the size, the transaction line.
  EXPECT_EQ(c.of(kInsert(20, 20)), (Cost{3, 6}));
  EXPECT_EQ(c.of([](auto& tx, auto& m) { return m.insert(tx, 15, 1); }), (Cost{3, 6})) << "middle";
  // Instead of the slot: its entry.
  EXPECT_EQ(c.of([](auto& tx, auto& m) { return m.erase(tx, 20); }), (Cost{3, 6}));
  EXPECT_EQ(c.of([](auto& tx, auto& m) { return m.insert_or_assign(tx, 10, 1); }), (Cost{3, 3}));
  EXPECT_EQ(c.of([](auto& tx, auto& m) {
    return m.insert(tx, 10, 1) == Status::exists ? Status::ok : Status::corrupt;
  }),
            (Cost{0, 0}));
  EXPECT_EQ(c.of(kInsert(21, 23)).fences, 3u) << "three in one leaf";
  c.average("ordered, ascending", 2000, 8, false);
  c.average("ordered, random", 2000, 9, true);
}

TEST(MapsCost, of_a_hash_map) {
  Costs<Table> c;
  c.of(kInsert(1, 9));
  EXPECT_EQ(c.of(kInsert(20, 20)).fences, 3u);
  EXPECT_EQ(c.of([](auto& tx, auto& m) { return m.erase(tx, 200); }), (Cost{3, 6}));
  EXPECT_EQ(c.of([](auto& tx, auto& m) { return m.insert_or_assign(tx, 10, 1); }), (Cost{3, 3}));
  c.average("hashed", 4000, 12, true);
}

template <class Map>
void random_transactions(std::uint64_t seeds, int transactions, bool collected = false) {
  const std::uint64_t first = test::test_seed();
  for (std::uint64_t seed = first; seed < first + test::fewer_if_sanitized(seeds, 2); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    MapsRandom<Map> r(seed, collected);
    r.run(transactions);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_GT(r.commits, 100);
    EXPECT_GT(r.aborts, 20);
    EXPECT_GT(r.kills, 3);
  }
}

TEST(MapsRandomly, an_ordered_map_is_as_std_map) { random_transactions<Tree>(2, 2000); }
TEST(MapsRandomly, a_hash_map_is_as_std_map) { random_transactions<Table>(2, 2000); }
TEST(MapsRandomly, an_ordered_map_is_collected) { random_transactions<Tree>(1, 800, true); }
TEST(MapsRandomly, a_hash_map_is_collected) { random_transactions<Table>(1, 800, true); }

}  // namespace
}  // namespace tenuto
