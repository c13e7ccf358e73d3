// PoolOptions::on_mistake: stores that nothing knows of are found, and what is right is not.
// Lives (life/) run with it, too.
#include "tenuto/mistakes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/actions.h"
#include "tenuto/concurrent_hash_map.h"
#include "tenuto/kv.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Node {
  std::uint64_t plain;
  std::uint64_t other;
  p<std::uint64_t> field;
  p<Node*> next;
};
struct Root {
  Ptr<Node> node[8];
  p<Node*> first;
};
constexpr std::uint64_t kNodeType = 7;

// On each medium: the first two are flushed in ways that differ.
class MistakesTest : public ::testing::TestWithParam<Medium> {
 protected:
  void SetUp() override {
    pool_ = std::make_unique<Pool>(Pool::create(path_.str(), options()).value());
    root_ = pool_->root<Root>("mistakes").value();
    ASSERT_EQ(pool_->run([&](Transaction& tx) -> Status {
      TENUTO_TRY(tx.add(root_->node));
      for (auto& node : root_->node) {
        const Result<void*> block = tx.alloc(sizeof(Node), {.zero = true, .type = kNodeType});
        if (!block) return block.error();
        node = static_cast<Node*>(*block);
      }
      return Status::ok;
    }),
              Status::ok);
    ASSERT_EQ(said_, std::vector<std::string>{});
  }
  PoolOptions options() {
    PoolOptions o = test::PoolParts::small_options();
    o.medium = GetParam();
    o.on_mistake = [this](const Report& r) { said_.push_back(r.text()); };
    return o;
  }
  Node& node(std::size_t i) { return *root_->node[i]; }
  // Commits something else, and returns what was said meanwhile.
  std::string told() {
    const Status s = pool_->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(node(7).other));
      ++node(7).other;
      return Status::ok;
    });
    EXPECT_EQ(s, Status::ok);
    std::string all;
    for (const std::string& text : std::exchange(said_, {})) all += text + "\n";
    return all;
  }

  TempPath path_{"mistakes"};
  std::unique_ptr<Pool> pool_;
  Root* root_ = nullptr;
  std::vector<std::string> said_;
};

TEST_P(MistakesTest, a_store_to_an_object_that_was_freed_is_found) {
  const auto expect_found = [&](Node* gone, const char* how) {
    EXPECT_EQ(told(), "") << how;
    gone->other = 0x1234;
    const std::string said = told();
    EXPECT_NE(said.find("was changed after it was freed"), std::string::npos) << how << said;
    EXPECT_NE(said.find("2 bytes from 8 on in the block of 32 bytes"), std::string::npos) << said;
    EXPECT_EQ(told(), "") << "it is told once";
  };
  // Two neighbours, so that another block of the slab is allocated.
  Node* gone = &node(1);
  gone->plain = 99;  // not flushed, and right: nobody reads it any more
  ASSERT_EQ(pool_->free_from(root_->node[1]), Status::ok);
  expect_found(gone, "free_from");
  gone = &node(2);
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(tx.add(root_->node[2]));
    TENUTO_TRY(tx.add(*gone));
    gone->plain = 98;
    root_->node[2] = nullptr;
    return tx.free(gone);
  }),
            Status::ok);
  expect_found(gone, "a transaction");
  const Reserved reserved = *pool_->reserve(sizeof(Node), {.type = kNodeType});
  *static_cast<Node*>(reserved.data) = {};
  ASSERT_EQ(pool_->cancel(reserved), Status::ok);
  expect_found(static_cast<Node*>(reserved.data), "cancel");
}

TEST_P(MistakesTest, a_freed_object_that_is_taken_again_is_another_one) {
  for (int i = 0; i < 300; ++i) {
    for (std::size_t n = 1; n < 4; ++n) ASSERT_EQ(pool_->free_from(root_->node[n]), Status::ok);
    ASSERT_EQ(pool_->malloc_to(sizeof(Node), root_->node[1], {.type = kNodeType}), Status::ok);
    node(1).plain = static_cast<std::uint64_t>(i) + 1;
    flush_bytes(&node(1), sizeof(Node));
    ASSERT_EQ(pool_->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(root_->node));
      for (std::size_t n = 2; n < 4; ++n) {
        const Result<Node*> made = tx.make<Node>();
        if (!made) return made.error();
        (*made)->other = static_cast<std::uint64_t>(i) + n;
        root_->node[n] = *made;
      }
      return Status::ok;
    }),
              Status::ok);
    const Reserved block = *pool_->reserve(sizeof(Node), {.type = kNodeType});
    static_cast<Node*>(block.data)->plain = ~static_cast<std::uint64_t>(i);
    ASSERT_EQ(pool_->cancel(block), Status::ok);
    ASSERT_EQ(said_, std::vector<std::string>{});
  }
}

TEST_P(MistakesTest, an_object_that_was_not_added_is_named_once) {
  Transaction tx(*pool_);
  ASSERT_EQ(tx.add(node(1)), Status::ok);
  node(1).plain = 1;
  node(2).other = 5;
  ASSERT_EQ(tx.commit(), Status::ok);
  ASSERT_EQ(said_.size(), 1u);
  const std::string& said = said_[0];
  EXPECT_NE(said.find("neither added to a transaction nor flushed"), std::string::npos) << said;
  EXPECT_NE(said.find("1 bytes from 8 on in the block of 32 bytes"), std::string::npos) << said;
  EXPECT_NE(said.find("type 7"), std::string::npos) << said;
  EXPECT_NE(said.find("commit of the transaction begun at "), std::string::npos) << said;
  EXPECT_NE(said.find("mistakes_test.cc:"), std::string::npos) << said;
  said_.clear();
  EXPECT_EQ(told(), "");
}

// Also where the library begins the transaction.
TEST_P(MistakesTest, every_report_names_the_line_of_the_program) {
  using Map = ConcurrentHashMap<std::uint64_t, std::uint64_t>;
  Map* map = nullptr;
  ASSERT_EQ(pool_->run([&](Transaction& tx) -> Status {
    const Result<void*> block = tx.alloc(sizeof(Map), {.zero = true});
    if (!block) return block.error();
    map = new (*block) Map;
    return Status::ok;
  }),
            Status::ok);
  Map::Handle handle(*pool_, *map);
  const auto expect_here = [&](const char* call, int line) {
    ASSERT_EQ(said_.size(), 1u) << call;
    const std::string here = "mistakes_test.cc:" + std::to_string(line) + "]";
    EXPECT_NE(said_[0].find(here), std::string::npos) << call << said_[0];
    said_.clear();
  };
  ++node(1).plain;
  Actions actions(*pool_);
  actions.set(node(2).plain, 1);
  EXPECT_EQ(actions.publish(), Status::ok);
  expect_here("Actions::publish", __LINE__ - 1);
  ++node(1).plain;
  EXPECT_EQ(handle.insert(1, 1), Status::ok);
  expect_here("insert", __LINE__ - 1);
  ++node(1).plain;
  EXPECT_EQ(handle.insert_or_assign(1, 2), Status::ok);
  expect_here("insert_or_assign", __LINE__ - 1);
  ++node(1).plain;
  EXPECT_EQ(handle.update(1, [](Transaction&, std::uint64_t&) { return Status::ok; }), Status::ok);
  expect_here("update", __LINE__ - 1);
  ++node(1).plain;
  EXPECT_EQ(handle.erase(1), Status::ok);
  expect_here("erase", __LINE__ - 1);
  ++node(1).plain;
  const auto migrate = [](const OldRoot&, void*, Transaction&) { return Status::ok; };
  ASSERT_TRUE(pool_->grow_root("mistakes", sizeof(Root) + 8, migrate));
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("the transaction of Pool::grow_root"), std::string::npos) << said_[0];
}

TEST_P(MistakesTest, a_neighbour_in_the_same_line_is_found) {
  EXPECT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(tx.add(node(1).plain));
    node(1).plain = 1;
    node(1).other = 2;
    return Status::ok;
  }),
            Status::ok);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("1 bytes from 8 on"), std::string::npos) << said_[0];
}

TEST_P(MistakesTest, an_abort_finds_them_too) {
  EXPECT_EQ(pool_->run([&](Transaction&) {
    node(1).plain = 1;
    return Status::conflict;
  }),
            Status::conflict);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("abort of the transaction begun at"), std::string::npos) << said_[0];
}

TEST_P(MistakesTest, a_new_object_that_was_not_flushed_is_found) {
  p<Node*>& first = root_->first;
  Ptr<Node>& word = reinterpret_cast<Ptr<Node>&>(first);
  ASSERT_EQ(pool_->malloc_to(sizeof(Node), word, {.zero = true}), Status::ok);
  EXPECT_EQ(told(), "");
  word->plain = 3;
  flush(word->plain);
  fence("test", "test");
  EXPECT_EQ(told(), "") << "a flushed store is right";
  word->plain = 4;
  EXPECT_NE(told().find("1 bytes from 0 on"), std::string::npos);
}

TEST_P(MistakesTest, ranges_where_no_object_is_are_told) {
  Node* const gone = &node(3);
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(tx.add(root_->node[3]));
    root_->node[3] = nullptr;
    return tx.free(gone);
  }),
            Status::ok);
  ASSERT_EQ(pool_->trim(), Status::ok);
  Transaction tx(*pool_);
  ASSERT_EQ(tx.add(gone->plain), Status::ok);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("the object there was freed"), std::string::npos) << said_[0];
  ASSERT_EQ(tx.add(&node(4), 100), Status::ok);
  ASSERT_EQ(said_.size(), 2u);
  EXPECT_NE(said_[1].find("goes on behind the end of its object"), std::string::npos) << said_[1];
  tx.abort();
}

TEST_P(MistakesTest, a_thread_that_ends_in_a_transaction_is_told) {
  std::unique_ptr<Transaction> left;
  std::thread([&] { left.reset(new Transaction(*pool_)); }).join();
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("a thread ended with an open transaction"), std::string::npos);
  EXPECT_NE(said_[0].find("mistakes_test.cc:"), std::string::npos) << said_[0];
}

TEST_P(MistakesTest, a_field_gets_no_pointer_out_of_its_pool) {
  TempPath second_path("mistakes2");
  Pool second = Pool::create(second_path.str(), options()).value();
  Node* const foreign = static_cast<Node*>(second.root("one", sizeof(Node)).value());
  Node in_dram{};
  for (Node* const wrong : {foreign, &in_dram}) {
    EXPECT_EQ(pool_->run([&](Transaction&) {
      root_->first = wrong;
      return Status::ok;
    }),
              Status::invalid_argument);
    EXPECT_EQ(root_->first, nullptr);
  }
  EXPECT_EQ(pool_->run([&](Transaction&) {
    root_->first = &node(1);
    return Status::ok;
  }),
            Status::ok);
}

TEST_P(MistakesTest, what_is_right_is_not_told) {
  Reserved cancelled = pool_->reserve(sizeof(Node)).value();
  std::memset(cancelled.data, 1, sizeof(Node));
  ASSERT_EQ(pool_->cancel(cancelled), Status::ok);
  Reserved block = pool_->reserve(sizeof(Node)).value();
  std::memset(block.data, 0, sizeof(Node));
  flush_bytes(block.data, sizeof(Node));
  Ptr<Node>& word = reinterpret_cast<Ptr<Node>&>(root_->first);
  ASSERT_EQ(pool_->publish(block, word), Status::ok);
  EXPECT_EQ(told(), "");
  ASSERT_EQ(pool_->realloc_to(4096, word.word()), Status::ok);
  ASSERT_EQ(pool_->realloc_to(8, word.word()), Status::ok);
  EXPECT_EQ(told(), "");
  for (const bool commit : {false, true}) {
    Transaction tx(*pool_);
    node(1).field = 5;
    ASSERT_EQ(tx.attempt([&] {
      node(2).field = 6;
      static_cast<void>(tx.make<Node>().value());
      TENUTO_TRY(tx.add(node(3)));
      node(3).plain = 9;
      return Status::conflict;
    }),
              Status::conflict);
    Node* const made = tx.make<Node>().value();
    made->plain = 3;
    ASSERT_EQ(tx.add(node(4)), Status::ok);
    node(4).plain = 3;
    ASSERT_EQ(tx.overwrite(&node(5).other, 8), Status::ok);
    node(5).other = 3;
    node(6).next = made;
    if (commit) {
      ASSERT_EQ(tx.commit(), Status::ok);
    }
  }
  EXPECT_EQ(told(), "");
  ASSERT_EQ(pool_->close(), Status::ok);
  StoreOptions o;
  o.pool = options();
  Store store = Store::open(path_.str(), o).value();
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(store.put("key" + std::to_string(i % 700), std::string(100, 'v')), Status::ok);
    if (i % 3 != 0) continue;
    static_cast<void>(store.erase("key" + std::to_string(i / 2)));
  }
  ASSERT_TRUE(store.compact());
  root_ = store.pool().root<Root>("mistakes").value();
  EXPECT_EQ(store.pool().run([&](Transaction&) {
    ++node(1).field;
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(said_, std::vector<std::string>{});
  ASSERT_EQ(store.close(), Status::ok);
}

// A flush may hold any lock of the heap, and a comparison asks the heap what is where.
TEST_P(MistakesTest, threads_that_allocate_and_commit_do_not_wait_for_each_other) {
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t) {
    threads.emplace_back([this, t] {
      for (std::uint64_t i = 0; i < 300; ++i) {
        EXPECT_EQ(pool_->run([&](Transaction& tx) -> Status {
          const Result<void*> block = tx.alloc(16 + i % 40 * 64, {.zero = true});
          if (!block) return block.error();
          node(t).field = i;
          return tx.free(*block);
        }),
                  Status::ok);
        Result<Reserved> block = pool_->reserve(1000 + i % 7 * 5000, {.zero = true});
        if (!block) continue;
        EXPECT_EQ(pool_->cancel(*block), Status::ok);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(said_, std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(media, MistakesTest,
                         ::testing::Values(Medium::line, Medium::cache, Medium::journal),
                         [](const auto& medium) { return std::string(medium_name(medium.param)); });

TEST(MistakesDeathTest, stop_at_mistake_says_what_and_ends_the_program) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Report report{"what happened", "where", {}, {}};
  EXPECT_DEATH(stop_at_mistake(report), "tenuto: what happened .where.");
}

}  // namespace
}  // namespace tenuto
