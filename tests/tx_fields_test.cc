// p<T>: fields that add themselves to the transaction that is open. tx_crash.cc crashes them,
// tx_cost_test.cc counts their fences.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "support/failing_memory.h"
#include "support/tx_parts.h"
#include "tenuto/p.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

struct Node {
  p<std::uint64_t> value;
  p<Node*> next;
  p<char> letter;
};
static_assert(sizeof(p<char>) == 1 && sizeof(p<Node*>) == 8 && sizeof(Node) == 24);

struct Wide {
  char text[200];
};

class TxFieldsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(parts_.create(path_.str()), Status::ok) << parts_.report.text();
    node_ = &parts_.make_root<Node>(0, kNodes);
  }
  Transaction begin() { return Transaction(parts_.engine->mine()); }
  // What is stored, past the fields that wait.
  std::uint64_t stored(const p<std::uint64_t>& field) {
    return *reinterpret_cast<const std::uint64_t*>(&field);
  }

  static constexpr std::size_t kNodes = 1000;
  TempPath path_{"txfields"};
  TxParts parts_;
  Node* node_ = nullptr;
};

TEST_F(TxFieldsTest, wait_for_the_commit_and_are_read_meanwhile) {
  Transaction tx = begin();
  node_[0].value = 5;
  node_[0].value += 2;
  node_[0].next = &node_[1];
  node_[0].next->letter = 'x';
  EXPECT_EQ(node_[0].value, 7u);
  EXPECT_EQ(stored(node_[0].value), 0u);
  EXPECT_EQ(node_[1].letter, 'x');
  const Node copy = node_[0];
  EXPECT_EQ(copy.value, 7u) << "a copy in DRAM has what was assigned";
  EXPECT_EQ(copy.next, &node_[1]);
  std::thread([&] {
    EXPECT_EQ(node_[0].value, 0u);
    EXPECT_EQ(node_[0].next, nullptr);
  }).join();
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(stored(node_[0].value), 7u);
  EXPECT_EQ(node_[0].next, &node_[1]);
  EXPECT_EQ(node_[1].letter, 'x');
}

TEST_F(TxFieldsTest, have_the_operators_of_a_number) {
  p<int> n = 10;  // in DRAM: a variable
  n += 5;
  n -= 1;
  n *= 6;
  n /= 4;
  n %= 16;
  EXPECT_EQ(n, 5);
  EXPECT_EQ(n++, 5);
  EXPECT_EQ(++n, 7);
  EXPECT_EQ(n--, 7);
  EXPECT_EQ(--n, 5);
  n <<= 3;
  n |= 3;
  n ^= 1;
  n &= 0xfe;
  n >>= 1;
  EXPECT_EQ(n, 21);
  p<short> s = 3;
  s += 1;
  EXPECT_EQ(s, 4);
}

TEST_F(TxFieldsTest, outside_a_transaction_are_variables) {
  node_[0].value = 3;
  EXPECT_EQ(stored(node_[0].value), 3u);
  Transaction tx = begin();
  node_[0].value = 4;
  p<std::uint64_t> mine = 1;  // not in the pool
  mine += node_[0].value;
  EXPECT_EQ(mine, 5u);
  ASSERT_EQ(tx.commit(), Status::ok);
  node_[0].value = 6;
  EXPECT_EQ(stored(node_[0].value), 6u);
}

TEST_F(TxFieldsTest, an_abort_forgets_them) {
  for (const bool ready : {false, true}) {
    Transaction tx = begin();
    node_[0].value = 5;
    if (ready) {
      ASSERT_EQ(tx.ready(), Status::ok);
    }
    node_[1].value = 6;
    tx.abort();
    EXPECT_EQ(node_[0].value, 0u);
    EXPECT_EQ(node_[1].value, 0u);
    node_[1].value = 0;  // no transaction any more
  }
  {
    Transaction tx = begin();
    node_[0].value = 5;
  }
  EXPECT_EQ(node_[0].value, 0u);
}

TEST_F(TxFieldsTest, what_is_added_is_stored_in_place) {
  Transaction tx = begin();
  node_[0].value = 5;
  node_[1].value = 6;
  ASSERT_EQ(tx.add(node_[2].value), Status::ok);
  EXPECT_EQ(stored(node_[0].value), 5u) << "add stores what waits";
  EXPECT_EQ(stored(node_[1].value), 6u);
  node_[2].value = 7;
  node_[0].value = 8;
  EXPECT_EQ(stored(node_[2].value), 7u);
  EXPECT_EQ(stored(node_[0].value), 8u);
  ASSERT_EQ(tx.add_later(node_[3].value), Status::ok);
  node_[3].value = 9;
  EXPECT_EQ(stored(node_[3].value), 0u) << "not before the fence";
  ASSERT_EQ(tx.ready(), Status::ok);
  EXPECT_EQ(stored(node_[3].value), 9u);
  tx.abort();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(stored(node_[i].value), 0u) << i;
}

TEST_F(TxFieldsTest, of_a_new_block_are_stored_in_place) {
  Transaction tx = begin();
  node_[0].value = 1;  // entries wait for their fence
  const Result<Node*> fresh = tx.make<Node>();
  ASSERT_TRUE(fresh);
  (*fresh)->value = 5;
  (*fresh)->next = node_;
  EXPECT_EQ(stored((*fresh)->value), 5u);
  node_[0].next = *fresh;
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(node_[0].next->next, node_);
}

TEST_F(TxFieldsTest, large_values_and_parts_of_them) {
  auto& wide = parts_.make_root<p<Wide>>(1);
  Wide text{};
  text.text[150] = 'a';
  ASSERT_EQ(parts_.run([&](Transaction&) {
    wide = text;
    EXPECT_EQ(wide.get().text[150], 'a');
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(wide.get().text[150], 'a');
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    const Result<Wide*> in_place = wide.get_rw(tx);
    if (!in_place) return in_place.error();
    (*in_place)->text[3] = 'b';
    return Status::aborted;
  }),
            Status::aborted);
  EXPECT_EQ(wide.get().text[3], 0);
  EXPECT_EQ(wide.get().text[150], 'a');
}

struct Record {
  std::uint64_t count;
  std::uint32_t part[4];
  char letter;
};

TEST_F(TxFieldsTest, parts_of_a_plain_object_wait_as_fields_do) {
  auto& r = parts_.make_root<Record>(1);
  Transaction tx = begin();
  ASSERT_EQ(tx.set(r.count, 7), Status::ok);
  ASSERT_EQ(tx.set(r.part[2], 8), Status::ok);
  ASSERT_EQ(tx.set(r.letter, 'a'), Status::ok);
  ASSERT_EQ(tx.set(r.count, 9), Status::ok);
  EXPECT_EQ(r.count + r.part[2] + r.letter, 0u);
  EXPECT_EQ(tx.get(r.count), 9u);
  const Record whole = tx.get(r);
  EXPECT_EQ(whole.count, 9u);
  EXPECT_EQ(whole.part[1], 0u);
  EXPECT_EQ(whole.part[2], 8u);
  EXPECT_EQ(whole.letter, 'a');
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(r.count, 9u);
  EXPECT_EQ(r.part[2], 8u);
  EXPECT_EQ(r.letter, 'a');
  EXPECT_EQ(tx.get(r.count), 9u);
  EXPECT_EQ(tx.set(r.count, 1), Status::closed);
}

// The last assignment of each byte counts, whatever the pieces were.
TEST_F(TxFieldsTest, overlapping_parts_have_what_was_assigned_last) {
  constexpr std::size_t kBytes = 200;
  using Bytes = std::array<char, kBytes>;
  auto& stored = parts_.make_root<Bytes>(1);
  std::mt19937_64 rng(20261129);
  for (int round = 0; round < 300; ++round) {
    const Bytes before = stored;
    Bytes expected = before;
    Transaction tx = begin();
    std::optional<std::pair<Transaction::Savepoint, Bytes>> back;
    for (int i = 0; i < 12; ++i) {
      const std::size_t at = rng() % kBytes;
      const std::size_t n =
          std::min<std::size_t>(rng() % 4 == 0 ? rng() % kBytes : rng() % 9, kBytes - at);
      if (rng() % 8 == 0) {
        ASSERT_EQ(tx.add_later(&stored[at], n), Status::ok);
      } else if (rng() % 16 == 0) {
        ASSERT_EQ(tx.ready(), Status::ok);
        ASSERT_EQ(stored, expected);
      } else if (!back && round % 3 == 0) {
        back.emplace(*tx.savepoint(), expected);
      } else {
        for (std::size_t k = 0; k < n; ++k) expected[at + k] = static_cast<char>(rng());
        ASSERT_EQ(tx.set(&stored[at], &expected[at], n), Status::ok);
      }
      ASSERT_EQ(tx.get(stored), expected) << round << ", " << i;
      const std::size_t from = rng() % kBytes;
      Bytes part{};
      tx.get(&stored[from], part.data(), kBytes - from);
      ASSERT_TRUE(std::equal(expected.begin() + from, expected.end(), part.begin()));
    }
    if (back && rng() % 2 == 0) {
      ASSERT_EQ(tx.rollback_to(back->first), Status::ok);
      expected = back->second;
      ASSERT_EQ(tx.get(stored), expected);
    }
    if (rng() % 4 == 0) {
      tx.abort();
      expected = before;
    } else {
      ASSERT_EQ(tx.commit(), Status::ok);
    }
    ASSERT_EQ(stored, expected) << round;
  }
}

// A part of a field, before and after the field is assigned.
TEST_F(TxFieldsTest, parts_of_fields_and_fields_see_each_other) {
  auto& f = parts_.make_root<p<std::uint64_t>>(1);
  auto* const bytes = reinterpret_cast<std::uint16_t*>(&f);
  for (const std::size_t at : {0u, 1u, 3u}) {
    Transaction tx = begin();
    ASSERT_EQ(tx.set(bytes[at], std::uint16_t{0x1111}), Status::ok);
    EXPECT_EQ(f.get() >> 16 * at & 0xffff, 0x1111u);
    f = 0xaaaaaaaaaaaaaaaa;
    EXPECT_EQ(f, 0xaaaaaaaaaaaaaaaa);
    ASSERT_EQ(tx.set(bytes[at], std::uint16_t{0x2222}), Status::ok);
    const std::uint64_t expected = (0xaaaaaaaaaaaaaaaa & ~(0xffffull << 16 * at)) | 0x2222ull
                                                                                        << 16 * at;
    EXPECT_EQ(f, expected);
    f += 1;
    EXPECT_EQ(tx.get(bytes[at]), static_cast<std::uint16_t>((expected + 1) >> 16 * at));
    ASSERT_EQ(tx.commit(), Status::ok);
    EXPECT_EQ(f, expected + 1);
  }
}

TEST_F(TxFieldsTest, a_part_that_cannot_be_set_is_no_reason_to_abort) {
  auto& r = parts_.make_root<Record>(1);
  std::uint64_t outside = 5;
  Transaction tx = begin();
  ASSERT_EQ(tx.set(r.count, 7), Status::ok);
  EXPECT_EQ(tx.set(outside, 6), Status::invalid_argument);
  EXPECT_EQ(outside, 5u);
  EXPECT_EQ(tx.get(outside), 5u);
  EXPECT_EQ(tx.set(&r, &r, ~std::size_t{0}), Status::invalid_argument);
  EXPECT_EQ(tx.set(&r, &r, ~std::size_t{0} / 2), Status::invalid_argument);
  EXPECT_EQ(tx.status(), Status::ok);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(r.count, 7u);
}

TEST_F(TxFieldsTest, an_inner_transaction_joins) {
  Transaction outer = begin();
  node_[0].value = 1;
  {
    Transaction inner = begin();
    node_[0].value += 1;
    node_[1].value = 7;
    ASSERT_EQ(inner.commit(), Status::ok);
  }
  EXPECT_EQ(node_[0].value, 2u);
  EXPECT_EQ(stored(node_[0].value), 0u);
  {
    Transaction inner = begin();
    node_[0].value = 9;
    inner.abort();
  }
  node_[2].value = 3;  // the transaction is over: nothing is stored
  EXPECT_EQ(outer.commit(), Status::aborted);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(node_[i].value, 0u) << i;
}

TEST_F(TxFieldsTest, guards_may_end_in_any_order) {
  auto outer = std::make_unique<Transaction>(parts_.engine->mine());
  auto inner = std::make_unique<Transaction>(parts_.engine->mine());
  node_[0].value = 1;
  ASSERT_EQ(outer->commit(), Status::ok);
  outer.reset();
  node_[1].value = 2;
  ASSERT_EQ(inner->commit(), Status::ok);
  inner.reset();
  EXPECT_EQ(stored(node_[0].value), 1u);
  EXPECT_EQ(stored(node_[1].value), 2u);
  node_[1].value = 3;
  EXPECT_EQ(stored(node_[1].value), 3u);
}

TEST_F(TxFieldsTest, each_belongs_to_the_transaction_of_its_pool) {
  TempPath path("txfields2");
  TxParts other;
  ASSERT_EQ(other.create(path.str()), Status::ok);
  auto& far = other.make_root<Node>(0);
  {
    Transaction a = begin();
    Transaction b(other.engine->mine());
    node_[0].value = 1;
    far.value = 2;
    ASSERT_EQ(a.commit(), Status::ok);
    EXPECT_EQ(stored(node_[0].value), 1u);
    EXPECT_EQ(far.value, 2u);
    EXPECT_EQ(stored(far.value), 0u);
    b.abort();
  }
  EXPECT_EQ(far.value, 0u);
  ASSERT_EQ(other.close(), Status::ok);
}

TEST_F(TxFieldsTest, many_are_found_again) {
  for (int round = 0; round < 3; ++round) {
    const std::size_t count = round == 1 ? 10 : kNodes;
    Transaction tx = begin();
    for (std::size_t i = 0; i < count; ++i) {
      node_[i].value += i + 1;
      node_[i].next = &node_[count - 1 - i];
      node_[i].letter = static_cast<char>(i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(node_[i].next->next, &node_[i]);
      ASSERT_EQ(node_[i].letter, static_cast<char>(i));
      node_[i].value += 1;
    }
    ASSERT_EQ(tx.commit(), Status::ok);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(node_[i].next->next, &node_[i]);
  }
  EXPECT_EQ(node_[5].value, 3u * 7);
  EXPECT_EQ(node_[500].value, 2u * 502);
}

// The head of the pool cannot be logged.
TEST_F(TxFieldsTest, one_that_cannot_be_logged_keeps_the_transaction_from_committing) {
  auto* const head = reinterpret_cast<p<std::uint64_t>*>(parts_.file->at<std::byte>({0}));
  const std::uint64_t before = *head;
  Transaction tx = begin();
  node_[0].value = 1;
  *head = before + 1;
  EXPECT_EQ(*head, before);
  EXPECT_EQ(tx.status(), Status::invalid_argument);
  node_[1].value = 1;
  EXPECT_EQ(tx.add(node_[2].value), Status::invalid_argument);
  EXPECT_EQ(tx.commit(), Status::invalid_argument);
  EXPECT_EQ(node_[0].value, 0u);
  EXPECT_EQ(node_[1].value, 0u);
  Transaction next = begin();
  node_[0].value = 1;
  EXPECT_EQ(next.commit(), Status::ok);
}

TEST_F(TxFieldsTest, a_full_log_keeps_the_transaction_from_committing) {
  while (parts_.heap->reserve(20'000, heap::Kind::logged)) continue;
  while (parts_.heap->reserve(16, heap::Kind::logged)) continue;
  Transaction tx = begin();
  for (std::size_t i = 0; i < kNodes; ++i) node_[i].value = 1;
  EXPECT_EQ(tx.status(), Status::full) << "more fields than the lane's lines, and no log frame";
  EXPECT_EQ(node_[kNodes - 1].value, 0u);
  EXPECT_EQ(tx.commit(), Status::full);
  for (std::size_t i = 0; i < kNodes; ++i) ASSERT_EQ(node_[i].value, 0u) << i;
  EXPECT_EQ(parts_.run([&](Transaction&) {
    node_[0].value = 2;
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(stored(node_[0].value), 2u);
}

TEST_F(TxFieldsTest, of_a_thread_that_ends_are_forgotten) {
  std::unique_ptr<Transaction> left;
  std::thread([&] {
    left = std::make_unique<Transaction>(parts_.engine->mine());
    node_[0].value = 5;
  }).join();
  EXPECT_EQ(stored(node_[0].value), 0u);
  EXPECT_EQ(left->commit(), Status::aborted);
  node_[0].value = 6;
  EXPECT_EQ(stored(node_[0].value), 6u);
}

// The child changes nothing, not even its own copy of what waits.
TEST_F(TxFieldsTest, of_the_parent_are_not_assigned_by_a_child) {
  Transaction tx = begin();
  node_[0].value = 5;
  const pid_t child = ::fork();
  if (child == 0) {
    node_[0].value = 6;
    node_[1].value = 7;
    const bool refused = tx.status() == Status::forked && tx.commit() == Status::forked;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(stored(node_[0].value), 5u);
  EXPECT_EQ(stored(node_[1].value), 0u);
}

TEST_F(TxFieldsTest, are_there_after_a_kill) {
  ASSERT_EQ(parts_.run([&](Transaction&) {
    node_[3].value = 33;
    node_[3].next = &node_[4];
    return Status::ok;
  }),
            Status::ok);
  parts_.crash();
  ASSERT_EQ(parts_.open(path_.str()), Status::ok) << parts_.report.text();
  node_ = &parts_.get_root<Node>(0);
  EXPECT_EQ(node_[3].value, 33u);
  EXPECT_EQ(node_[3].next, &node_[4]);
}

TEST_F(TxFieldsTest, an_assignment_without_memory_throws_and_changes_nothing) {
  bool failed = true;
  for (long n = 1; failed; ++n) {
    Transaction tx = begin();
    std::size_t done = 0;
    test::fail_allocation(n);
    try {
      for (; done < kNodes; ++done) node_[done].value = done + 1;
    } catch (const std::bad_alloc&) {
    }
    failed = test::failed_allocation();
    ASSERT_EQ(failed, done < kNodes);
    for (std::size_t i = 0; i < kNodes; ++i) ASSERT_EQ(node_[i].value, i < done ? i + 1 : 0) << n;
    if (failed) {
      tx.abort();
      for (std::size_t i = 0; i < kNodes; ++i) ASSERT_EQ(node_[i].value, 0u) << n;
    } else {
      ASSERT_EQ(tx.commit(), Status::ok);
    }
  }
  EXPECT_EQ(node_[kNodes - 1].value, kNodes);
}

}  // namespace
}  // namespace tenuto
