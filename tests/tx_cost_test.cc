// What transactions cost in fences and flushed lines, counted exactly on medium `model`.
// TENUTO_PRINT_COSTS=1 prints the table of tx/README.md.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "pm/media.h"
#include "support/tx_parts.h"
#include "tenuto/p.h"
#include "tenuto/queue.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

struct alignas(64) Line {
  std::uint64_t word[8];
};

struct Cost {
  std::uint64_t fences = 0;
  std::uint64_t lines = 0;
};

struct Bench {
  TempPath path{"txcost"};
  TxParts parts;
  Line* lines = nullptr;

  Bench() {
    PoolOptions o = TxParts::small_options();
    o.medium = Medium::model;
    EXPECT_EQ(parts.create(path.str(), o), Status::ok) << parts.report.text();
    lines = &parts.make_root<Line>(0, 64);
  }

  // The cost of the last of three runs. Earlier runs fill caches and take slabs.
  Cost measure(const char* name, const std::function<Status(Transaction&)>& body) {
    pm::ModelCounts used;
    for (int i = 0; i < 3; ++i) {
      const pm::ModelCounts before = pm::thread_model_counts();
      EXPECT_EQ(parts.run(body), Status::ok) << name;
      used = pm::thread_model_counts() - before;
    }
    if (std::getenv("TENUTO_PRINT_COSTS") != nullptr) {
      std::printf("| %-34s | %2llu | %3llu |\n", name, static_cast<unsigned long long>(used.fences),
                  static_cast<unsigned long long>(used.lines));
    }
    return {used.fences, used.lines};
  }
};

#define EXPECT_COST(cost, fences_expected, lines_expected) \
  do {                                                     \
    const Cost c = (cost);                                 \
    EXPECT_EQ(c.fences, std::uint64_t{fences_expected});   \
    EXPECT_EQ(c.lines, std::uint64_t{lines_expected});     \
  } while (false)

TEST(TxCostTest, empty_transaction_flushes_and_fences_nothing) {
  Bench b;
  EXPECT_COST(b.measure("empty", [](Transaction&) { return Status::ok; }), 0, 0);
}

TEST(TxCostTest, one_range_is_three_fences) {
  Bench b;
  EXPECT_COST(b.measure("add 8 B",
                        [&](Transaction& tx) {
                          TENUTO_TRY(tx.add(b.lines[0].word[0]));
                          b.lines[0].word[0] += 1;
                          return Status::ok;
                        }),
              3, 3);  // entry, data, transaction line
  EXPECT_COST(b.measure("add 64 B",
                        [&](Transaction& tx) {
                          TENUTO_TRY(tx.add(b.lines[0]));
                          b.lines[0].word[0] += 1;
                          return Status::ok;
                        }),
              3, 4);
}

TEST(TxCostTest, ranges_together_are_three_fences_and_one_by_one_two_and_n) {
  Bench b;
  EXPECT_COST(b.measure("10 x 8 B at once",
                        [&](Transaction& tx) {
                          for (int i = 0; i < 10; ++i) {
                            TENUTO_TRY(tx.add_later(b.lines[i].word[0]));
                          }
                          TENUTO_TRY(tx.ready());
                          for (int i = 0; i < 10; ++i) b.lines[i].word[0] += 1;
                          return Status::ok;
                        }),
              3, 21);
  EXPECT_COST(b.measure("10 x 64 B at once",
                        [&](Transaction& tx) {
                          for (int i = 0; i < 10; ++i) TENUTO_TRY(tx.add_later(b.lines[2 * i]));
                          TENUTO_TRY(tx.ready());
                          for (int i = 0; i < 10; ++i) b.lines[2 * i].word[0] += 1;
                          return Status::ok;
                        }),
              3, 31);
  EXPECT_COST(b.measure("10 x 8 B one by one",
                        [&](Transaction& tx) {
                          for (int i = 0; i < 10; ++i) {
                            TENUTO_TRY(tx.add(b.lines[i].word[0]));
                            b.lines[i].word[0] += 1;
                          }
                          return Status::ok;
                        }),
              12, 21);
}

TEST(TxCostTest, fields_are_three_fences_however_many) {
  Bench b;
  const auto field = [&](int i) -> p<std::uint64_t>& {
    return reinterpret_cast<p<std::uint64_t>&>(b.lines[i].word[0]);
  };
  EXPECT_COST(b.measure("10 x 8 B by fields",
                        [&](Transaction&) {
                          for (int i = 0; i < 10; ++i) field(i) += 1;
                          return Status::ok;
                        }),
              3, 21);
  EXPECT_COST(b.measure("10 x 8 B by set",
                        [&](Transaction& tx) {
                          for (int i = 0; i < 10; ++i) {
                            TENUTO_TRY(tx.set(b.lines[i].word[0], std::uint64_t{1}));
                          }
                          return Status::ok;
                        }),
              3, 21);
  EXPECT_COST(b.measure("a field, ten times",
                        [&](Transaction&) {
                          for (int i = 0; i < 10; ++i) field(0) += 1;
                          return Status::ok;
                        }),
              3, 3);
  EXPECT_COST(b.measure("replace, linked by a field",
                        [&](Transaction& tx) {
                          const Result<void*> block = tx.alloc(64);
                          if (!block) return block.error();
                          auto& dest = reinterpret_cast<p<void*>&>(b.lines[0].word[1]);
                          if (dest.get() != nullptr) TENUTO_TRY(tx.free(dest.get()));
                          dest = *block;
                          return Status::ok;
                        }),
              3, 8);
}

TEST(TxCostTest, overwritten_bytes_cost_no_entry) {
  Bench b;
  p<std::uint64_t>& count = reinterpret_cast<p<std::uint64_t>&>(b.lines[0].word[0]);
  const auto fill = [&](Transaction& tx) {
    TENUTO_TRY(tx.overwrite(&b.lines[1], sizeof(Line)));
    b.lines[1].word[7] += 1;
    return Status::ok;
  };
  EXPECT_COST(b.measure("overwrite 64 B", fill), 1, 1);
  EXPECT_COST(b.measure("overwrite 64 B + count it by a field",
                        [&](Transaction& tx) {
                          TENUTO_TRY(fill(tx));
                          count += 1;
                          return Status::ok;
                        }),
              3, 4);
}

TEST(TxCostTest, repeated_adds_and_shared_lines_are_free) {
  Bench b;
  EXPECT_COST(b.measure("add 64 B, five times more",
                        [&](Transaction& tx) {
                          TENUTO_TRY(tx.add(b.lines[0]));
                          for (int i = 0; i < 5; ++i) TENUTO_TRY(tx.add(b.lines[0].word[i]));
                          b.lines[0].word[0] += 1;
                          return Status::ok;
                        }),
              3, 4);
  EXPECT_COST(b.measure("4 words of one line at once",
                        [&](Transaction& tx) {
                          for (int i = 0; i < 8; i += 2) {
                            TENUTO_TRY(tx.add_later(b.lines[0].word[i]));
                          }
                          TENUTO_TRY(tx.ready());
                          for (int i = 0; i < 8; i += 2) b.lines[0].word[i] += 1;
                          return Status::ok;
                        }),
              3, 6);  // four entries, but one data line
}

TEST(TxCostTest, allocation_and_free_ride_on_the_same_three_fences) {
  Bench b;
  auto& head = *reinterpret_cast<Ptr<Line>*>(&b.lines[1]);
  const auto link = [&](Transaction& tx) {
    const Result<Line*> fresh = tx.make<Line>();
    if (!fresh) return fresh.error();
    TENUTO_TRY(tx.add(head));
    head = *fresh;
    return Status::ok;
  };
  // Two entries, new block, its bit, link, transaction line.
  EXPECT_COST(b.measure("alloc 64 B + add 8 B + link", link), 3, 6);
  EXPECT_COST(b.measure("alloc 64 B with a type + the same",
                        [&](Transaction& tx) {
                          const Result<void*> fresh = tx.alloc(64, {.type = 7});
                          if (!fresh) return fresh.error();
                          TENUTO_TRY(tx.add(head));
                          head = static_cast<Line*>(*fresh);
                          return Status::ok;
                        }),
              3, 7);
  EXPECT_COST(b.measure("alloc 64 B + add inside it + link",
                        [&](Transaction& tx) {
                          const Result<Line*> fresh = tx.make<Line>();
                          if (!fresh) return fresh.error();
                          TENUTO_TRY(tx.add((*fresh)->word[1]));
                          TENUTO_TRY(tx.add(head));
                          head = *fresh;
                          return Status::ok;
                        }),
              3, 6);
  Ptr<Line>* at = reinterpret_cast<Ptr<Line>*>(&b.lines[2]);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(b.parts.run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(at[i]));
      const Result<Line*> fresh = tx.make<Line>();
      if (!fresh) return fresh.error();
      at[i] = *fresh;
      return Status::ok;
    }),
              Status::ok);
  }
  int n = 0;
  void* alone[32];
  ASSERT_EQ(b.parts.run([&](Transaction& tx) {
    for (void*& block : alone) {
      const Result<void*> fresh = tx.alloc(64);
      if (!fresh) return fresh.error();
      block = *fresh;
    }
    return Status::ok;
  }),
            Status::ok);
  // Entry, transaction line, and the bit of the free before.
  EXPECT_COST(b.measure("free 64 B alone", [&](Transaction& tx) { return tx.free(alone[n++]); }), 1,
              3);
  n = 0;
  // Two entries, link, transaction line, and the freed bit, which is flushed under a later fence.
  EXPECT_COST(b.measure("free + add 8 B + unlink",
                        [&](Transaction& tx) {
                          Ptr<Line>& word = at[n++];
                          TENUTO_TRY(tx.destroy(word.get()));
                          TENUTO_TRY(tx.add(word));
                          word = nullptr;
                          return Status::ok;
                        }),
              3, 5);
  EXPECT_COST(b.measure("replace: free + alloc + relink",
                        [&](Transaction& tx) {
                          const Result<Line*> fresh = tx.make<Line>();
                          if (!fresh) return fresh.error();
                          TENUTO_TRY(tx.destroy(head.get()));
                          TENUTO_TRY(tx.add(head));
                          head = *fresh;
                          return Status::ok;
                        }),
              3, 8);
  EXPECT_COST(b.measure("alloc after the add: one more",
                        [&](Transaction& tx) {
                          TENUTO_TRY(tx.add(head));
                          const Result<Line*> fresh = tx.make<Line>();
                          if (!fresh) return fresh.error();
                          head = *fresh;
                          return Status::ok;
                        }),
              4, 6);
}

// Entry, word, transaction line of each pool; a decision and a prepared entry for each but one.
TEST(TxCostTest, several_pools_cost_one_fence_more) {
  Bench b;
  TempPath path2("txcost2"), path3("txcost3");
  TxParts more[2];
  PoolOptions o = TxParts::small_options();
  o.medium = Medium::model;
  ASSERT_EQ(more[0].create(path2.str(), o), Status::ok);
  ASSERT_EQ(more[1].create(path3.str(), o), Status::ok);
  Line* const lines[] = {&more[0].make_root<Line>(0), &more[1].make_root<Line>(0)};
  const auto change = [&](std::size_t pools, bool first) {
    return [&, pools, first](Transaction&) {
      for (std::size_t i = 0; i < pools; ++i) {
        TENUTO_TRY(more[i].engine->mine().begin_with(b.parts.engine->mine()));
        TENUTO_TRY(more[i].engine->mine().add_later(lines[i], 8));
      }
      if (first) TENUTO_TRY(b.parts.engine->mine().add_later(b.lines, 8));
      TENUTO_TRY(b.parts.engine->mine().ready());
      if (first) b.lines->word[0] += 1;
      for (std::size_t i = 0; i < pools; ++i) {
        lines[i]->word[0] += 1;
        TENUTO_TRY(more[i].engine->mine().commit());
      }
      return Status::ok;
    };
  };
  EXPECT_COST(b.measure("two pools, add 8 B in each", change(1, true)), 4, 8);
  EXPECT_COST(b.measure("three pools, add 8 B in each", change(2, true)), 4, 13);
  EXPECT_COST(b.measure("two pools, one of them changed", change(1, false)), 3, 3);
}

TEST(TxCostTest, abort_is_two_fences_and_none_when_nothing_was_logged) {
  Bench b;
  const pm::ModelCounts start = pm::thread_model_counts();
  {
    Transaction tx(b.parts.engine->mine());
    ASSERT_EQ(tx.add(b.lines[0].word[0]), Status::ok);
    b.lines[0].word[0] = 99;
    tx.abort();
  }
  pm::ModelCounts used = pm::thread_model_counts() - start;
  EXPECT_EQ(used.fences, 3u);
  EXPECT_EQ(used.lines, 3u);
  const pm::ModelCounts again = pm::thread_model_counts();
  {
    Transaction tx(b.parts.engine->mine());
    tx.abort();
  }
  used = pm::thread_model_counts() - again;
  EXPECT_EQ(used.fences + used.lines, 0u);
}

TEST(TxCostTest, overflow_frames_are_reused_without_a_fence) {
  Bench b;
  auto* many = &b.parts.make_root<Line>(1, 200);
  const auto big = [&](Transaction& tx) {
    for (int i = 0; i < 200; ++i) TENUTO_TRY(tx.add_later(many[i].word[1]));
    TENUTO_TRY(tx.ready());
    for (int i = 0; i < 200; ++i) many[i].word[1] += 1;
    return Status::ok;
  };
  EXPECT_COST(b.measure("200 x 8 B at once, log overflows", big), 3, 401);
}

TEST(TxCostTest, changes_of_containers_are_three_fences) {
  Bench b;
  struct Containers {
    alignas(64) Vector<std::uint64_t> numbers;
    alignas(64) String text;
    alignas(64) Queue<std::uint64_t> queue;
  };
  auto& all = b.parts.make_root<Containers>(1);
  ASSERT_EQ(b.parts.run([&](Transaction& tx) {
    TENUTO_TRY(all.numbers.reserve(tx, 1000));
    TENUTO_TRY(all.text.assign(tx, std::string(100, 'x')));
    return all.queue.push(tx, 1);
  }),
            Status::ok);
  const auto times = [&](int n, const auto& change) {
    return [&, n](Transaction& tx) {
      for (int i = 0; i < n; ++i) TENUTO_TRY(change(tx));
      return Status::ok;
    };
  };
  const auto push = [&](Transaction& tx) { return all.numbers.push_back(tx, 7); };
  EXPECT_COST(b.measure("Vector: push_back", times(1, push)), 3, 4);
  EXPECT_COST(b.measure("Vector: push_back, 100 times", times(100, push)), 3, 16);
  EXPECT_COST(
      b.measure("Vector: pop_back", [&](Transaction& tx) { return all.numbers.pop_back(tx); }), 3,
      5);
  EXPECT_COST(b.measure("Vector: set", [&](Transaction& tx) { return all.numbers.set(tx, 3, 9); }),
              3, 3);
  EXPECT_COST(
      b.measure("Vector: insert before 8 elements",
                [&](Transaction& tx) { return all.numbers.insert(tx, all.numbers.size() - 8, 1); }),
      3, 7);
  EXPECT_COST(b.measure("Vector: assign 100",
                        [&](Transaction& tx) {
                          return all.numbers.assign(tx, std::vector<std::uint64_t>(100, 1));
                        }),
              3, 21);
  EXPECT_COST(b.measure("String: assign 8 B, inline",
                        [&](Transaction& tx) { return all.text.assign(tx, "12345678"); }),
              3, 3);
  EXPECT_COST(
      b.measure("String: assign 100 B",
                [&](Transaction& tx) { return all.text.assign(tx, std::string(100, 'y')); }),
      3, 9);
  EXPECT_COST(
      b.measure("String: append 4 B", [&](Transaction& tx) { return all.text.append(tx, "1"); }), 3,
      5);
  EXPECT_COST(b.measure("a field, then a String of a new object",
                        [&](Transaction& tx) {
                          reinterpret_cast<p<std::uint64_t>&>(b.lines[0].word[0]) += 1;
                          const Result<String*> text = tx.make<String>();
                          if (!text) return text.error();
                          TENUTO_TRY((*text)->assign(tx, "12345678"));
                          return (*text)->append(tx, "9");
                        }),
              3, 6);
  EXPECT_COST(b.measure("Queue: push", [&](Transaction& tx) { return all.queue.push(tx, 7); }), 3,
              4);
  EXPECT_COST(b.measure("Queue: pop", [&](Transaction& tx) { return all.queue.pop_front(tx); }), 3,
              3);
  EXPECT_COST(b.measure("Queue: push and pop",
                        [&](Transaction& tx) {
                          TENUTO_TRY(all.queue.push(tx, 7));
                          return all.queue.pop_front(tx);
                        }),
              3, 4);
}

}  // namespace
}  // namespace tenuto
