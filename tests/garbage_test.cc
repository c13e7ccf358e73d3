// What a program has lost (tenuto/garbage.h): lists, trees and random graphs against a model, words
// that look like pointers, filters, walks by type, and what is freed.
#include "tenuto/garbage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "pm/crc32c.h"
#include "pm/format.h"
#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Node {
  Ptr<Node> left, right;
  VPtr<Node> versioned;
  std::uint64_t number = 0;
};

struct Root {
  Ptr<Node> first;
  VPtr<Node> versioned;
  Ptr<char> bytes;
  Ptr<Node> fresh;  // null but inside lose()
  std::uint64_t number;
};

class GarbageTest : public testing::Test {
 protected:
  void SetUp() override {
    pool_ = Pool::create(path_.str(), test::PoolParts::small_options(), &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<Root>("garbage");
  }
  // An object that nothing leads to.
  Node* lose(std::uint64_t bytes = sizeof(Node), std::uint64_t type = 0) {
    EXPECT_EQ(pool_->malloc_to(bytes, root_->fresh.word(), {.zero = true, .type = type}),
              Status::ok);
    Node* const n = root_->fresh.get();
    root_->fresh = nullptr;
    return n;
  }
  Garbage find(const GarbageOptions& options = {}) {
    const Result<Garbage> g = pool_->find_garbage(options, &report_);
    EXPECT_TRUE(g) << report_.text();
    return g ? *g : Garbage{};
  }
  static std::uint64_t count(const std::vector<GarbageRow>& rows) {
    std::uint64_t n = 0;
    for (const GarbageRow& r : rows) n += r.blocks;
    return n;
  }
  void expect_sound() { EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text(); }

  TempPath path_{"garbage"};
  Report report_;
  Result<Pool> pool_ = Status::closed;
  Root* root_ = nullptr;
};

TEST_F(GarbageTest, a_new_pool_has_none) {
  const Garbage g = find();
  EXPECT_EQ(g.reached_blocks, 1u);
  EXPECT_EQ(g.reached_bytes, pool_->usable_size(root_));
  EXPECT_TRUE(g.lost.empty() && g.walked.empty());
}

TEST_F(GarbageTest, what_the_root_leads_to_is_none_and_the_rest_is_listed_by_size) {
  Node* const a = lose();
  Node* const b = lose();
  Node* const c = lose();
  a->left = b;
  b->left = a;  // a cycle
  ASSERT_EQ(pool_->malloc_to(sizeof(Node), c->versioned.word()), Status::ok);
  std::memset(static_cast<void*>(c->versioned.get()), 0, sizeof(Node));
  lose(1000);
  lose(1000);
  lose(300'000);
  Garbage g = find();
  EXPECT_EQ(g.reached_blocks, 1u);
  ASSERT_EQ(g.lost.size(), 3u);
  EXPECT_EQ(g.lost[0].blocks, 4u);
  EXPECT_EQ(g.lost[1].blocks, 2u);
  EXPECT_EQ(g.lost[1].block_bytes, 1024u);
  EXPECT_EQ(g.lost[2].blocks, 1u);
  EXPECT_EQ(g.lost[2].bytes(), 303'104u);
  EXPECT_EQ(g.freed_blocks, 0u);

  root_->first = b;
  g = find();
  EXPECT_EQ(g.reached_blocks, 3u);
  EXPECT_EQ(count(g.lost), 5u);
  a->right = c;
  EXPECT_EQ(find().reached_blocks, 5u);
}

TEST_F(GarbageTest, lost_objects_are_freed_only_if_asked_for) {
  std::vector<Node*> all;
  for (int i = 0; i < 1000; ++i) all.push_back(lose());
  for (int i = 1; i < 500; ++i) all[i]->left = all[i - 1];
  root_->first = all[499];
  lose(3 << 20);
  EXPECT_EQ(count(find().lost), 501u);
  EXPECT_EQ(count(find().lost), 501u) << "a look changes nothing";
  const Garbage g = find({.free = true});
  EXPECT_EQ(g.freed_blocks, 501u);
  EXPECT_GE(g.freed_bytes, (3u << 20) + 500 * sizeof(Node));
  expect_sound();
  EXPECT_EQ(find().reached_blocks, 501u);
  EXPECT_EQ(count(find().lost), 0u);
  for (const Node* n = root_->first.get(); n != nullptr; n = n->left.get()) {
    EXPECT_EQ(pool_->usable_size(n), sizeof(Node));
  }
  ASSERT_EQ(pool_->close(), Status::ok);
  pool_ = Pool::open(path_.str(), test::PoolParts::small_options(), &report_);
  ASSERT_TRUE(pool_) << report_.text();
  expect_sound();
  EXPECT_EQ(find().reached_blocks, 501u);
}

TEST_F(GarbageTest, a_pointer_into_a_block_keeps_it) {
  Node* const n = lose(4000);
  auto* const inside = reinterpret_cast<char*>(n) + 1234;
  root_->bytes = inside;
  EXPECT_EQ(find().reached_blocks, 2u);
  Node* const large = lose(500'000);
  root_->bytes = reinterpret_cast<char*>(large) + 499'999;
  EXPECT_EQ(find().reached_blocks, 2u);
  root_->bytes = reinterpret_cast<char*>(large) + pool_->usable_size(large);
  EXPECT_EQ(find().reached_blocks, 1u) << "behind the block";
}

// Marking is conservative: a number may keep a block, and no block is lost for what a number says.
TEST_F(GarbageTest, numbers_that_look_like_pointers_keep_what_they_seem_to_mean) {
  Node* const n = lose();
  root_->number = PtrWord::encode(&root_->number, n);
  EXPECT_EQ(find().reached_blocks, 2u);
  root_->number = VPtrWord::encode(&root_->number, n, 77);
  EXPECT_EQ(find().reached_blocks, 2u);
  root_->number = VPtrWord::encode(&root_->number, reinterpret_cast<char*>(n) + 16, 77);
  EXPECT_EQ(find().reached_blocks, 1u) << "a VPtr points to the begin of a block";
  for (const std::uint32_t version : {0u, VPtrWord::kVersions - 1}) {
    root_->number = VPtrWord::encode(&root_->number, n, version);
    EXPECT_EQ(find().reached_blocks, 1u) << "no VPtr has version " << version;
  }
  std::mt19937_64 rng(7);
  for (int i = 0; i < 2000; ++i) {
    root_->number = rng() >> rng() % 64;
    EXPECT_LE(find({.threads = 1}).reached_blocks, 2u);
  }
}

// Version 0.1 gave VPtrs every version. The superblock says which version made the pool.
void made_by_the_first_version(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uint64_t i = 0; i < 2; ++i) {
    pm::Superblock s{};
    file.seekg(static_cast<std::streamoff>(i * kFrameBytes));
    file.read(reinterpret_cast<char*>(&s), sizeof s);
    s.born_version = pm::kLayoutVersionOld;
    s.crc = pm::crc32c(&s, offsetof(pm::Superblock, crc));
    file.seekp(static_cast<std::streamoff>(i * kFrameBytes));
    file.write(reinterpret_cast<const char*>(&s), sizeof s);
  }
}

TEST_F(GarbageTest, versioned_pointers_of_the_first_pools_have_every_version) {
  Node* const n = lose();
  root_->number = VPtrWord::encode(&root_->number, n, 0);
  EXPECT_EQ(find().reached_blocks, 1u);
  ASSERT_EQ(pool_->close(), Status::ok);
  made_by_the_first_version(path_.str());
  pool_ = Pool::open(path_.str(), test::PoolParts::small_options(), &report_);
  ASSERT_TRUE(pool_) << report_.text();
  EXPECT_EQ(find().reached_blocks, 2u);
  plant("heap_reach_forgets_old_versions");
  const std::uint64_t reached = find().reached_blocks;
  unplant_all();
  EXPECT_EQ(reached, 1u);
}

TEST_F(GarbageTest, objects_that_a_walk_by_type_finds_are_kept_with_what_they_lead_to) {
  Node* const typed = lose(sizeof(Node), 42);
  Node* const behind = lose();
  typed->left = behind;
  lose(sizeof(Node), 43);
  lose();
  lose(100'000, 42);
  const Garbage g = find({.free = true});
  ASSERT_EQ(g.walked.size(), 4u);
  EXPECT_EQ(g.walked[0].type, 0u) << "what only they lead to";
  EXPECT_EQ(g.walked[1].type, 42u);
  EXPECT_EQ(g.walked[2].type, 42u);
  EXPECT_EQ(g.walked[3].type, 43u);
  EXPECT_EQ(g.freed_blocks, 1u);
  EXPECT_EQ(pool_->usable_size(behind), sizeof(Node));
  EXPECT_EQ(pool_->type_of(typed), 42u);
  expect_sound();
}

TEST_F(GarbageTest, a_filter_says_where_the_pointers_of_a_type_are) {
  Node* const n = lose(sizeof(Node), 5);
  root_->first = n;
  n->left = lose();
  n->right = lose();
  EXPECT_EQ(count(find().lost), 0u);
  const PointerFilter left = [](const void* object, std::uint64_t bytes, const auto& visit) {
    EXPECT_GE(bytes, sizeof(Node));
    visit(static_cast<const Node*>(object)->left.get());
    visit(nullptr);
  };
  const Garbage g = find({.filters = {{5, left}}});
  EXPECT_EQ(g.reached_blocks, 3u);
  EXPECT_EQ(count(g.lost), 1u);
}

TEST_F(GarbageTest, blocks_of_a_morphed_slab_are_found_in_both_parts) {
  std::vector<Node*> small;
  for (int i = 0; i < 1000; ++i) small.push_back(lose(112));
  root_->first = small[0];
  for (int i = 1; i < 1000; ++i) {
    if (i % 100 == 0) {
      small[i - 100]->left = small[i];
    } else {
      root_->bytes = reinterpret_cast<char*>(small[i]);
      ASSERT_EQ(pool_->free_from(root_->bytes.word()), Status::ok);
    }
  }
  ASSERT_EQ(pool_->trim(), Status::ok);
  for (int i = 0; i < 700; ++i) lose(208);
  ASSERT_GT(pool_->stats().morphed_slabs, 0u);
  const Garbage g = find({.free = true});
  EXPECT_EQ(g.reached_blocks, 11u);
  EXPECT_EQ(g.freed_blocks, 700u);
  expect_sound();
}

// Each graph has some thousand nodes of several sizes and up to three pointers each.
class RandomGraphs : public GarbageTest, public testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Garbage, RandomGraphs, testing::Range(0u, 6u));
TEST_P(RandomGraphs, are_reached_as_a_model_says) {
  std::mt19937_64 rng(GetParam());
  std::vector<Node*> nodes;
  std::map<const Node*, std::vector<const Node*>> edges;
  for (int i = 0; i < 5000; ++i) {
    constexpr std::uint64_t kSizes[] = {sizeof(Node), 200, 1000, 20'000};
    nodes.push_back(lose(kSizes[rng() % 50 == 0 ? rng() % 4 : rng() % 2]));
  }
  for (Node* n : nodes) {
    for (Ptr<Node>* p : {&n->left, &n->right}) {
      if (rng() % 4 != 0) continue;
      *p = nodes[rng() % nodes.size()];
      edges[n].push_back(p->get());
    }
  }
  root_->first = nodes[0];
  // A chain, so that much is reached, and none of it only by luck.
  for (std::size_t i = 0; i + 5 < nodes.size() / 2; i += 5) {
    nodes[i]->left = nodes[i + 5];
    edges[nodes[i]].push_back(nodes[i + 5]);
  }
  std::set<const Node*> reached{nodes[0]};
  for (std::vector<const Node*> stack{nodes[0]}; !stack.empty();) {
    const Node* const n = stack.back();
    stack.pop_back();
    for (const Node* to : edges[n]) {
      // The chain took the place of some left pointers.
      if (to != n->left.get() && to != n->right.get()) continue;
      if (reached.insert(to).second) stack.push_back(to);
    }
  }
  for (const unsigned threads : {1u, 2u}) {
    const Garbage g = find({.threads = threads});
    EXPECT_EQ(g.reached_blocks, reached.size() + 1);
    EXPECT_EQ(count(g.lost), nodes.size() - reached.size());
  }
  EXPECT_EQ(find({.free = true}).freed_blocks, nodes.size() - reached.size());
  for (const Node* n : reached) EXPECT_GE(pool_->usable_size(n), sizeof(Node));
  expect_sound();
}

// --- beside other things -------------------------------------------------------------------------

TEST_F(GarbageTest, what_is_reserved_or_in_an_open_transaction_is_not_listed) {
  const Result<Reserved> reserved = pool_->reserve(64);
  ASSERT_TRUE(reserved);
  auto& inside = *new (reserved->data) Node;
  ASSERT_EQ(pool_->malloc_to(sizeof(Node), inside.left.word(), {.zero = true}), Status::ok);
  EXPECT_EQ(count(find({.free = true}).lost), 0u) << "the reserved block may be published";
  ASSERT_EQ(pool_->free_from(inside.left.word()), Status::ok);
  EXPECT_EQ(pool_->cancel(*reserved), Status::ok);
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    EXPECT_TRUE(tx.alloc(64));
    EXPECT_EQ(pool_->find_garbage({}, &report_).error(), Status::busy);
    EXPECT_NE(report_.what.find("transaction"), std::string::npos);
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(count(find().lost), 1u) << "committed, and nothing leads to it";
}

TEST_F(GarbageTest, a_pool_open_to_read_is_looked_at_and_not_changed) {
  lose();
  ASSERT_EQ(pool_->close(), Status::ok);
  EXPECT_EQ(pool_->find_garbage().error(), Status::closed);
  PoolOptions o = test::PoolParts::small_options();
  o.read_only = true;
  pool_ = Pool::open(path_.str(), o, &report_);
  ASSERT_TRUE(pool_) << report_.text();
  EXPECT_EQ(count(find().lost), 1u);
  EXPECT_EQ(pool_->find_garbage({.free = true}, &report_).error(), Status::read_only);
}

TEST(GarbageOfAStore, its_records_are_no_objects) {
  const TempPath path("garbage-store");
  Report report;
  Result<Store> store = Store::open(path.str(), {}, &report);
  ASSERT_TRUE(store) << report.text();
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(store->put("key" + std::to_string(i), std::string(100, 'x')), Status::ok);
  }
  Ptr<char>* const root = *store->pool().root<Ptr<char>>("r");
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(store->pool().malloc_to(100, root->word()), Status::ok);
    *root = nullptr;
  }
  const Result<Garbage> g = store->pool().find_garbage({.free = true}, &report);
  ASSERT_TRUE(g) << report.text();
  EXPECT_EQ(g->freed_blocks, 10u);
  EXPECT_EQ(store->validate(&report), Status::ok) << report.text();
  EXPECT_EQ(store->get("key4999").value_or(""), std::string(100, 'x'));
}

// Prints what the README of the heap quotes.
TEST_F(GarbageTest, Speed) {
  const char* const text = std::getenv("TENUTO_GARBAGE_NODES");
  if (text == nullptr) GTEST_SKIP() << "set TENUTO_GARBAGE_NODES";
  std::vector<Node*> nodes(std::strtoull(text, nullptr, 10));
  for (Node*& n : nodes) n = lose(64);
  root_->first = nodes[0];
  for (const char* shape : {"list", "tree"}) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const bool list = shape[0] == 'l';
      const std::size_t left = list ? i + 1 : 2 * i + 1;
      nodes[i]->left = left < nodes.size() ? nodes[left] : nullptr;
      nodes[i]->right = !list && left + 1 < nodes.size() ? nodes[left + 1] : nullptr;
    }
    for (const unsigned threads : {1u, 2u}) {
      std::vector<double> ms;
      for (int round = 0; round < 5; ++round) ms.push_back(find({.threads = threads}).mark_ms);
      std::sort(ms.begin(), ms.end());
      std::printf("%s, %u threads: %.1f ms (%.1f..%.1f)\n", shape, threads, ms[2], ms[0], ms[4]);
    }
  }
}

// --- planted mistakes ----------------------------------------------------------------------------

TEST_F(GarbageTest, planted_mistakes_are_seen) {
  Node* const a = lose();
  Node* const last = lose(1000);
  root_->first = a;
  ASSERT_EQ(pool_->malloc_to(sizeof(Node), a->versioned.word()), Status::ok);
  a->left = last;
  auto* const late = reinterpret_cast<Ptr<Node>*>(reinterpret_cast<char*>(last) + 904);
  Node* const behind = lose();
  *late = behind;
  Node* const typed = lose(sizeof(Node), 9);
  typed->left = lose();
  ASSERT_EQ(count(find().lost), 0u);
  for (const char* mistake :
       {"heap_reach_passes_versioned_words_over", "heap_reach_reads_half_a_block",
        "store_garbage_beside_walks_by_type"}) {
    plant(mistake);
    EXPECT_GT(count(find().lost), 0u) << mistake;
    unplant_all();
  }
}

TEST_F(GarbageTest, a_share_that_is_lost_is_seen) {
  constexpr std::uint64_t kTable = 7;
  std::vector<Node*> nodes;
  for (int i = 0; i < 4000; ++i) nodes.push_back(lose());
  Node* const table = lose(40'000, kTable);
  auto* const slots = reinterpret_cast<Ptr<Node>*>(table);
  for (std::size_t i = 0; i < nodes.size(); ++i) slots[i] = nodes[i];
  for (Node* n : nodes) n->left = lose();
  root_->first = table;
  // The other thread waits for a share when the table has been read.
  GarbageOptions two{.threads = 2};
  two.filters[kTable] = [&](const void* object, std::uint64_t, const auto& visit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto* const at = static_cast<const Ptr<Node>*>(object);
    for (std::size_t i = 0; i < nodes.size(); ++i) visit(at[i].get());
  };
  const Garbage all = find(two);
  EXPECT_EQ(count(all.lost), 0u);
  EXPECT_EQ(all.reached_blocks, 2 * nodes.size() + 2);
  plant("heap_reach_loses_what_it_shares");
  bool seen = false;
  for (int i = 0; i < 100 && !seen; ++i) seen = count(find(two).lost) > 0;
  EXPECT_TRUE(seen);
  unplant_all();
}

}  // namespace
}  // namespace tenuto
