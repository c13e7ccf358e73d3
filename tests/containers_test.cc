// Vector, String, InlineString and Queue in a pool, one case a test. support/container_lives.cc
// compares them with those of std at random; containers_crash.cc crashes them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <string>
#include <unordered_set>
#include <vector>

#include "support/container_lives.h"
#include "support/container_parts.h"
#include "support/each_allocation.h"
#include "support/seed.h"

namespace tenuto {
namespace {

using test::blocks_of;
using test::ContainerRoot;
using test::ContainersTest;
using test::Numbers;
using test::Person;
using test::TempPath;
using test::Tree;
using test::TxParts;

struct Forgetful {
  String name;  // and no release: it would leak
};

static_assert(Element<int> && Element<p<int>> && Element<p<int*>> && Element<Person>);
static_assert(Element<String> && Element<Numbers> && Element<Vector<String>> && Element<Tree>);
static_assert(!Element<int*> && !Element<std::string> && !Element<Forgetful>);
static_assert(std::ranges::contiguous_range<const Vector<int>>);
static_assert(std::ranges::contiguous_range<Vector<p<int>>>);
static_assert(std::ranges::forward_range<const Queue<int>>);
static_assert(std::is_same_v<decltype(std::declval<Vector<int>&>()[0]), const int&>);
static_assert(std::is_same_v<decltype(std::declval<Vector<p<int>>&>()[0]), p<int>&>);
static_assert(!std::is_copy_constructible_v<Numbers> && !std::is_move_constructible_v<String>);
static_assert(std::is_trivially_copyable_v<InlineString<31>> && sizeof(InlineString<31>) == 32);

std::vector<std::uint64_t> values(const Numbers& v) { return {v.begin(), v.end()}; }
using List = std::vector<std::uint64_t>;

TEST_F(ContainersTest, a_vector_grows_and_shrinks) {
  Numbers& v = root_->numbers;
  EXPECT_TRUE(v.empty());
  EXPECT_EQ(v.begin(), v.end());
  twice([&](Transaction& tx) {
    for (std::uint64_t i = 0; i < 1000; ++i) TENUTO_TRY(v.push_back(tx, i));
    return Status::ok;
  });
  EXPECT_EQ(v.size(), 1000u);
  EXPECT_GE(v.capacity(), 1000u);
  EXPECT_LE(v.capacity(), 2048u);
  EXPECT_EQ(v[999], 999u);
  EXPECT_EQ(**v.at(7), 7u);
  EXPECT_EQ(v.at(1000).error(), Status::not_found);
  EXPECT_EQ(v.front() + v.back(), 999u);
  twice([&](Transaction& tx) {
    TENUTO_TRY(v.erase(tx, 10, 1000));
    TENUTO_TRY(v.shrink_to_fit(tx));
    TENUTO_TRY(v.pop_back(tx));
    return v.push_back(tx, 77);
  });
  EXPECT_EQ(values(v), (List{0, 1, 2, 3, 4, 5, 6, 7, 8, 77}));
  EXPECT_EQ(v.capacity(), 10u);
  twice([&](Transaction& tx) { return v.clear(tx); });
  EXPECT_EQ(v.capacity(), 0u);
  twice([&](Transaction& tx) { return v.shrink_to_fit(tx); });
}

TEST_F(ContainersTest, elements_are_inserted_and_erased_anywhere) {
  Numbers& v = root_->numbers;
  twice([&](Transaction& tx) {
    TENUTO_TRY(v.resize(tx, 4, 5));
    TENUTO_TRY(v.insert(tx, 0, 1));
    TENUTO_TRY(v.insert(tx, 5, 9));
    return v.insert(tx, 2, 3);
  });
  EXPECT_EQ(values(v), (List{1, 5, 3, 5, 5, 5, 9}));
  twice([&](Transaction& tx) {
    TENUTO_TRY(v.reserve(tx, 100));
    TENUTO_TRY(v.erase(tx, 3, 5));
    TENUTO_TRY(v.insert(tx, 0, v.back()));
    TENUTO_TRY(v.resize(tx, 7));
    return v.erase(tx, 1);
  });
  EXPECT_EQ(values(v), (List{9, 5, 3, 5, 9, 0}));
  twice([&](Transaction& tx) {
    EXPECT_EQ(v.erase(tx, 6), Status::not_found);
    EXPECT_EQ(v.erase(tx, 3, 2), Status::not_found);
    EXPECT_EQ(v.insert(tx, 7, 1), Status::invalid_argument);
    EXPECT_EQ(v.set(tx, 6, 1), Status::not_found);
    EXPECT_EQ(v.reserve(tx, ~std::uint64_t{0} / 2), Status::too_large);
    EXPECT_EQ(root_->others.pop_back(tx), Status::not_found);
    return v.set(tx, 5, 8);
  });
  EXPECT_EQ(v.back(), 8u);
}

TEST_F(ContainersTest, values_may_be_of_the_container_itself) {
  Numbers& v = root_->numbers;
  twice([&](Transaction& tx) {
    TENUTO_TRY(v.assign(tx, List{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(v.size(), v.capacity());
    TENUTO_TRY(v.push_back(tx, v[1]));
    TENUTO_TRY(v.append(tx, v));
    TENUTO_TRY(v.insert(tx, 0, v[7]));
    return v.assign(tx, std::span(v).subspan(7, 4));
  });
  EXPECT_EQ(values(v), (List{7, 8, 2, 1}));
  String& s = root_->text;
  twice([&](Transaction& tx) {
    TENUTO_TRY(s.assign(tx, "0123456789"));
    TENUTO_TRY(s.append(tx, s));
    TENUTO_TRY(s.append(tx, s.view().substr(5, 10)));
    return s.append(tx, s);
  });
  EXPECT_EQ(s.view(), "012345678901234567895678901234012345678901234567895678901234");
  twice([&](Transaction& tx) { return s.assign(tx, s.view().substr(5, 17)); });
  EXPECT_EQ(s, "56789012345678956");
  twice([&](Transaction& tx) { return s.assign(tx, s.view().substr(1, 3)); });
  EXPECT_EQ(s, "678");
}

// Bytes that a later call in the same transaction overwrites have to come back.
TEST_F(ContainersTest, what_follows_in_a_transaction_is_right_and_undone) {
  Numbers& v = root_->numbers;
  ASSERT_EQ(run([&](Transaction& tx) { return v.assign(tx, {1, 2, 3, 4, 5}); }), Status::ok);
  twice([&](Transaction& tx) {
    TENUTO_TRY(v.pop_back(tx));
    TENUTO_TRY(v.push_back(tx, 50));
    TENUTO_TRY(v.pop_back(tx));
    TENUTO_TRY(v.pop_back(tx));
    TENUTO_TRY(v.push_back(tx, 40));
    TENUTO_TRY(v.push_back(tx, 60));
    TENUTO_TRY(v.erase(tx, 0));
    TENUTO_TRY(v.set(tx, 0, 20));
    TENUTO_TRY(v.resize(tx, 3));
    TENUTO_TRY(v.insert(tx, 1, 25));
    TENUTO_TRY(v.clear(tx));
    TENUTO_TRY(v.push_back(tx, 1));
    TENUTO_TRY(v.append(tx, {2, 3}));
    return v.swap(tx, root_->others);
  });
  EXPECT_TRUE(v.empty());
  EXPECT_EQ(values(root_->others), (List{1, 2, 3}));
  Vector<p<std::uint64_t>>& f = root_->fields;
  twice([&](Transaction& tx) {
    for (std::uint64_t i = 0; i < 20; ++i) TENUTO_TRY(f.push_back(tx, 100 - i));
    f[3] = 5;
    f.back() += 1;
    TENUTO_TRY(f.erase(tx, 0, 15));
    f[0] = 7;
    TENUTO_TRY(f.insert(tx, 0, 3));
    f[0] += 1;
    TENUTO_TRY(f.pop_back(tx));
    return f.push_back(tx, 9);
  });
  EXPECT_EQ(List(f.begin(), f.end()), (List{4, 7, 84, 83, 82, 9}));
  twice([&](Transaction&) {
    std::sort(f.begin(), f.end());
    return Status::ok;
  });
  EXPECT_EQ(List(f.begin(), f.end()), (List{4, 7, 9, 82, 83, 84}));
}

TEST_F(ContainersTest, a_string_is_inline_or_in_a_block) {
  String& s = root_->text;
  EXPECT_STREQ(s.c_str(), "");
  std::string expected;
  for (const std::size_t n : {3u, 15u, 16u, 40u, 5u, 100u, 15u, 0u, 300u}) {
    expected.assign(n, static_cast<char>('a' + n % 26));
    twice([&](Transaction& tx) { return s.assign(tx, expected); });
    EXPECT_EQ(s.view(), expected);
    EXPECT_EQ(std::strlen(s.c_str()), n);
    expected += "tail";
    twice([&](Transaction& tx) { return s.append(tx, "tail"); });
    EXPECT_EQ(s, expected);
    EXPECT_EQ(std::strlen(s.c_str()), n + 4);
  }
  twice([&](Transaction& tx) {
    TENUTO_TRY(s.append(tx, ""));
    TENUTO_TRY(root_->text2.assign(tx, "short"));
    return root_->text2.swap(tx, s);
  });
  EXPECT_EQ(s, "short");
  EXPECT_EQ(root_->text2, expected);
  EXPECT_TRUE("shorter" > s && root_->text2 >= expected && s != root_->text2);
  EXPECT_EQ(std::hash<String>()(s), std::hash<std::string_view>()("short"));
  twice([&](Transaction& tx) { return s.clear(tx); });
  EXPECT_TRUE(s.empty());
}

TEST_F(ContainersTest, an_inline_string_is_a_value_and_never_cut) {
  using Name = InlineString<31>;
  EXPECT_EQ(Name::make(std::string(32, 'x')).error(), Status::too_large);
  const Result<Name> made = Name::make("bob");
  ASSERT_TRUE(made);
  EXPECT_TRUE(*made == Name("bob") && *made < Name("carol") && *made == "bob" && *made != "bo");
  EXPECT_EQ(InlineString<300>::make(std::string(300, 'x'))->view(), std::string(300, 'x'));
  const std::unordered_set<Name> set = {"a", "b", "a"};
  EXPECT_EQ(set.size(), 2u);
  twice([&](Transaction&) {
    root_->label = "a label";
    EXPECT_EQ(root_->label.get().view(), "a label");
    return Status::ok;
  });
  EXPECT_EQ(root_->label.get(), "a label");
}

TEST_F(ContainersTest, a_queue_goes_through_its_segments) {
  Queue<std::uint64_t>& q = root_->queue;
  EXPECT_EQ(q.front(), nullptr);
  twice([&](Transaction& tx) {
    for (std::uint64_t i = 0; i < 1000; ++i) TENUTO_TRY(q.push(tx, i));
    for (std::uint64_t i = 0; i < 500; ++i) {
      const Result<std::uint64_t> n = q.pop(tx);
      if (!n || *n != i) return Status::corrupt;
    }
    return Status::ok;
  });
  EXPECT_EQ(q.size(), 500u);
  EXPECT_EQ(*q.front(), 500u);
  EXPECT_EQ(std::accumulate(q.begin(), q.end(), std::uint64_t{0}), 749u * 500 + 250);
  EXPECT_EQ(std::ranges::find(q, 700u) == q.end(), false);
  EXPECT_EQ(blocks_of(q), 5u);
  twice([&](Transaction& tx) {
    while (!q.empty()) TENUTO_TRY(q.pop_front(tx));
    EXPECT_EQ(q.pop_front(tx), Status::not_found);
    EXPECT_EQ(q.pop(tx).error(), Status::not_found);
    return q.push(tx, 5);
  });
  EXPECT_EQ(blocks_of(q), 1u);
  twice([&](Transaction& tx) { return q.clear(tx); });
  EXPECT_EQ(blocks_of(q), 0u);
}

TEST_F(ContainersTest, elements_may_be_large_and_aligned) {
  struct alignas(256) Wide {
    std::uint64_t n;
    std::uint64_t more[600];
  };
  struct Wides {
    Vector<Wide> vector;
    Queue<Wide> queue;
  };
  Wides& w = parts_.make_root<Wides>(1);
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(run([&](Transaction& tx) {
                TENUTO_TRY(w.vector.insert(tx, 0, {i, {}}));
                return w.queue.push(tx, {i, {}});
              }),
              Status::ok);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(w.vector.data()) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&*std::ranges::find(w.queue, i, &Wide::n)) % 256,
              0u);
  }
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(w.vector[i].n, 19 - i);
    EXPECT_EQ(run([&](Transaction& tx) {
                EXPECT_EQ(w.queue.front()->n, i);
                return w.queue.pop_front(tx);
              }),
              Status::ok);
  }
}

TEST_F(ContainersTest, containers_are_inside_each_other) {
  const std::string word = "a text that is too long to be inline";
  twice([&](Transaction& tx) {
    for (int i = 0; i < 50; ++i) {
      const std::string text = i % 2 == 0 ? word + std::to_string(i) : std::to_string(i);
      TENUTO_TRY(root_->texts.emplace_back(tx, text).error());
      TENUTO_TRY(root_->lines.emplace(tx, text).error());
      const Result<Vector<std::uint64_t>*> row = root_->rows.emplace_back(tx, List(i % 5, i));
      TENUTO_TRY(row.error());
      TENUTO_TRY((*row)->push_back(tx, 1));
      TENUTO_TRY(root_->row_queue.emplace(tx, **row).error());
      const Result<Person*> person = root_->people.emplace_back(tx, text);
      TENUTO_TRY(person.error());
      (*person)->age = i;
      TENUTO_TRY((*person)->scores.append(tx, **row));
    }
    return Status::ok;
  });
  EXPECT_EQ(root_->texts[48], word + "48");
  EXPECT_EQ(root_->people[33].name, "33");
  EXPECT_EQ(root_->people[33].age, 33u);
  EXPECT_EQ(values(root_->people[33].scores), (List{33, 33, 33, 1}));
  twice([&](Transaction& tx) {
    TENUTO_TRY(root_->texts.erase(tx, 3, 30));
    TENUTO_TRY(root_->texts.emplace(tx, 1, word).error());
    TENUTO_TRY(root_->texts[0].append(tx, "!"));
    TENUTO_TRY(root_->people.erase(tx, 4));
    TENUTO_TRY(root_->people.pop_back(tx));
    TENUTO_TRY(root_->people[4].scores.push_back(tx, 9));
    TENUTO_TRY(root_->rows.resize(tx, 20));
    TENUTO_TRY(root_->rows.resize(tx, 25));
    for (int i = 0; i < 40; ++i) TENUTO_TRY(root_->lines.pop_front(tx));
    for (int i = 0; i < 45; ++i) TENUTO_TRY(root_->row_queue.pop_front(tx));
    return Status::ok;
  });
  EXPECT_EQ(root_->texts[0], word + "0!");
  EXPECT_EQ(root_->texts[1], word);
  EXPECT_EQ(root_->texts[4], word + "30");
  EXPECT_EQ(root_->rows[22].size(), 0u);
  twice([&](Transaction& tx) {
    Tree& tree = root_->tree;
    for (int i = 0; i < 5; ++i) TENUTO_TRY(tree.children.emplace_back(tx).error());
    for (Tree& child : tree.children) TENUTO_TRY(child.children.emplace_back(tx).error());
    tree.children[4].children[0].value = 7;
    return tree.children.erase(tx, 0, 3);
  });
  EXPECT_EQ(root_->tree.children[1].children[0].value, 7u);
  twice([&](Transaction& tx) {
    TENUTO_TRY(root_->texts.clear(tx));
    TENUTO_TRY(root_->rows.clear(tx));
    TENUTO_TRY(root_->people.clear(tx));
    TENUTO_TRY(root_->lines.clear(tx));
    TENUTO_TRY(root_->row_queue.clear(tx));
    return root_->tree.children.clear(tx);
  });
  EXPECT_EQ(blocks(), 0u);
}

TEST_F(ContainersTest, are_there_after_a_close_and_in_std_algorithms) {
  ASSERT_EQ(run([&](Transaction& tx) {
              TENUTO_TRY(root_->numbers.assign(tx, List{5, 3, 4}));
              TENUTO_TRY(root_->texts.emplace_back(tx, "one").error());
              return root_->texts.emplace_back(tx, std::string(99, 'x')).error();
            }),
            Status::ok);
  const std::string before = shown();
  ASSERT_EQ(parts_.close(), Status::ok);
  ASSERT_EQ(parts_.open(path_.str()), Status::ok) << parts_.report.text();
  root_ = &parts_.get_root<ContainerRoot>(0);
  EXPECT_EQ(shown(), before);
  const Numbers& v = root_->numbers;
  EXPECT_EQ(*std::ranges::max_element(v), 5u);
  EXPECT_EQ(std::ranges::count(root_->texts, std::string_view("one")), 1);
  List doubled;
  std::ranges::transform(v, std::back_inserter(doubled), [](auto n) { return 2 * n; });
  EXPECT_EQ(doubled, (List{10, 6, 8}));
  EXPECT_TRUE(v == v && !(v == root_->others));
}

TEST_F(ContainersTest, are_refused_outside_of_their_transaction) {
  TempPath path("containers2");
  TxParts other;
  ASSERT_EQ(other.create(path.str()), Status::ok);
  Transaction tx(other.engine->mine());
  Numbers in_dram;
  const std::string before = shown();
  EXPECT_EQ(root_->numbers.push_back(tx, 1), Status::invalid_argument);
  EXPECT_EQ(root_->text.assign(tx, "abc"), Status::invalid_argument);
  EXPECT_EQ(root_->text.assign(tx, std::string(50, 'x')), Status::invalid_argument);
  EXPECT_EQ(root_->queue.push(tx, 1), Status::invalid_argument);
  EXPECT_EQ(in_dram.push_back(tx, 1), Status::invalid_argument);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(root_->numbers.push_back(tx, 1), Status::closed);
  EXPECT_EQ(root_->lines.emplace(tx, "a").error(), Status::closed);
  EXPECT_EQ(shown(), before);
  EXPECT_TRUE(other.allocated_blocks().empty());
  ASSERT_EQ(other.close(), Status::ok);
}

// The child changes nothing, not even its own copy.
TEST_F(ContainersTest, are_not_changed_by_a_child) {
  Transaction tx(parts_.engine->mine());
  ASSERT_EQ(root_->numbers.push_back(tx, 5), Status::ok);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = root_->numbers.push_back(tx, 6) == Status::forked &&
                         root_->texts.emplace_back(tx, "a").error() == Status::forked &&
                         root_->text.assign(tx, "a") == Status::forked &&
                         root_->queue.push(tx, 1) == Status::forked && root_->text.empty();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(values(root_->numbers), (List{5}));
}

// Calls of each kind that need memory, on containers that are not empty.
using Call = std::function<Status(ContainerRoot&, Transaction&)>;
const std::string kText(100, 'y');
const std::vector<Call> kCalls = {
    [](auto& r, auto& tx) { return r.numbers.append(tx, List(40, 1)); },
    [](auto& r, auto& tx) { return r.numbers.push_back(tx, 1); },
    [](auto& r, auto& tx) { return r.numbers.insert(tx, 0, 7); },
    [](auto& r, auto& tx) { return r.numbers.assign(tx, List(9, 2)); },
    [](auto& r, auto& tx) { return r.numbers.erase(tx, 0, 2); },
    [](auto& r, auto& tx) { return r.numbers.clear(tx); },
    [](auto& r, auto& tx) { return r.numbers.swap(tx, r.others); },
    [](auto& r, auto& tx) { return r.texts.emplace(tx, 0, kText).error(); },
    [](auto& r, auto& tx) { return r.texts.erase(tx, 0); },
    [](auto& r, auto& tx) { return r.text.append(tx, kText); },
    [](auto& r, auto& tx) { return r.text.assign(tx, "short"); },
    [](auto& r, auto& tx) { return r.text.swap(tx, r.text2); },
    [](auto& r, auto& tx) { return r.queue.push(tx, 1); },
    [](auto& r, auto& tx) { return r.lines.emplace(tx, kText).error(); },
    [](auto& r, auto& tx) { return r.lines.pop_front(tx); },
    [](auto& r, auto& tx) { return r.lines.clear(tx); },
    [](auto& r, auto& tx) { return r.people.emplace_back(tx, kText, List(20, 3)).error(); },
    [](auto& r, auto& tx) { return r.rows.emplace_back(tx, List(20, 3)).error(); }};

Status a_start(ContainerRoot& r, Transaction& tx) {
  TENUTO_TRY(r.numbers.append(tx, List{1, 2, 3, 4}));
  TENUTO_TRY(r.texts.emplace_back(tx, std::string(50, 'x')).error());
  TENUTO_TRY(r.lines.emplace(tx, std::string(60, 'z')).error());
  return r.text.assign(tx, "some text in a block");
}

TEST_F(ContainersTest, a_full_pool_refuses_and_changes_nothing) {
  ASSERT_EQ(run([&](Transaction& tx) { return a_start(*root_, tx); }), Status::ok);
  const std::string before = shown();
  const std::size_t blocks_before = parts_.allocated_blocks().size();
  while (parts_.heap->reserve(20'000, heap::Kind::logged)) continue;
  while (parts_.heap->reserve(1000, heap::Kind::logged)) continue;
  while (parts_.heap->reserve(16, heap::Kind::logged)) continue;
  const std::string text(10'000, 't');
  // Each alone leaves the container as it was, and the transaction usable.
  EXPECT_EQ(run([&](Transaction& tx) {
              EXPECT_EQ(root_->numbers.reserve(tx, 5000), Status::full);
              EXPECT_EQ(root_->numbers.append(tx, List(5000)), Status::full);
              EXPECT_EQ(root_->texts.emplace(tx, 0, text).error(), Status::full);
              EXPECT_EQ(root_->text.append(tx, text), Status::full);
              EXPECT_EQ(root_->people.emplace_back(tx, "a", List(5000)).error(), Status::full);
              EXPECT_EQ(root_->lines.emplace(tx, text).error(), Status::full);
              EXPECT_EQ(root_->others.assign(tx, List(5000)), Status::full);
              EXPECT_EQ(shown(), before);
              return tx.status();
            }),
            Status::ok);
  EXPECT_EQ(shown(), before);
  EXPECT_EQ(parts_.allocated_blocks().size(), blocks_before);
}

// The call had no effect, and its transaction may go on; or it is rolled back.
TEST_F(ContainersTest, a_call_without_memory_throws_and_changes_nothing) {
  ASSERT_EQ(run([&](Transaction& tx) { return a_start(*root_, tx); }), Status::ok);
  int failed = 0;
  for (const Call& call : kCalls) {
    SCOPED_TRACE("call " + std::to_string(&call - kCalls.data()));
    failed += test::fail_each_allocation(
        [&] {  // so that the transaction has no memory yet
          ASSERT_EQ(parts_.close(), Status::ok);
          ASSERT_EQ(parts_.open(path_.str()), Status::ok);
          root_ = &parts_.get_root<ContainerRoot>(0);
          parts_.engine->mine();
        },
        [&] {
          const long planned = test::allocations_left();
          test::fail_allocation(0);
          const std::string before = shown();
          Transaction tx(parts_.engine->mine());
          test::fail_allocation(planned);
          try {
            EXPECT_EQ(call(*root_, tx), Status::ok);
          } catch (const std::bad_alloc&) {
            if (tx.status() == Status::ok) {
              EXPECT_EQ(shown(), before);
              EXPECT_EQ(tx.commit(), Status::ok);
            }
            EXPECT_EQ(shown(), before);
            throw;
          }
          tx.abort();
        },
        [&] { expect_no_leak(); });
  }
  EXPECT_GT(failed, 30);
}

TEST(ContainerLivesTest, random_transactions_leave_what_std_has) {
  const std::uint64_t seed = test::test_seed();
  for (std::uint64_t i = 0; i < 4; ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    const test::ContainerLives lives =
        test::live_with_containers(seed + i, 400, test::LifeKind::plain);
    EXPECT_GT(lives.commits, 100);
    EXPECT_GT(lives.aborts, 50);
    EXPECT_GT(lives.kills, 10);
  }
  test::live_with_containers(seed, 60, test::LifeKind::watched);
  EXPECT_GT(test::live_with_containers(seed, 400, test::LifeKind::collected).kills, 10);
}

}  // namespace
}  // namespace tenuto
