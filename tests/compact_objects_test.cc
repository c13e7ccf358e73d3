// Pool::compact (tenuto/compact.h): objects leave sparse slabs, every pointer follows them, and
// what leads to an object in a way that is not known keeps it in its place.
// compact_objects_crash.cc crashes it.
#include "tenuto/compact.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "pm/plant.h"
#include "support/each_allocation.h"
#include "support/object_graph.h"
#include "support/pool_parts.h"
#include "tenuto/actions.h"
#include "tenuto/kv.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kNodes = 4000;

class CompactObjects : public testing::Test {
 protected:
  void SetUp() override { make(PoolParts::small_options()); }
  void TearDown() override { unplant_all(); }

  void make(const PoolOptions& options) {
    options_ = options;
    pool_ = Status::closed;
    static_cast<void>(std::remove(path_.str().c_str()));
    pool_ = Pool::create(path_.str(), options_, &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<GraphRoot>("graph");
  }
  void reopen() {
    ASSERT_EQ(pool_->close(), Status::ok);
    pool_ = Pool::open(path_.str(), options_, &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<GraphRoot>("graph");
  }
  // So many nodes, of which one in `share` stays.
  void make_sparse(std::uint64_t share = 8, std::uint64_t nodes = kNodes) {
    for (std::uint64_t n = 1; n <= nodes; n += 100) {
      ASSERT_EQ(pool_->run([&](Transaction& tx) {
        for (std::uint64_t i = n; i < n + 100; ++i) TENUTO_TRY(add_node(tx, *root_, i));
        return Status::ok;
      }),
                Status::ok);
    }
    for (std::uint64_t n = 1; n <= nodes; ++n) {
      if (n % share == 0) {
        numbers_.insert(n);
        continue;
      }
      ASSERT_EQ(pool_->run([&](Transaction& tx) { return remove_node(tx, *root_, &node(n)); }),
                Status::ok);
    }
    expect_whole();
  }
  GraphNode& node(std::uint64_t number) { return *root_->by_number.find(number)->value; }
  void expect_whole() {
    ASSERT_EQ(graph_fault(*pool_, *root_, numbers_), "");
    std::uint64_t walked = 0;
    for (const GraphNode& n : pool_->objects<GraphNode>(kNodeType))
      walked += numbers_.count(n.number);
    EXPECT_EQ(walked, numbers_.size());
    EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
    GarbageOptions exact;
    exact.root_filter = reference_filter<GraphRoot>();
    exact.filters[kNodeType] = reference_filter<GraphNode>();
    const Result<Garbage> g = pool_->find_garbage(exact);
    ASSERT_TRUE(g);
    std::uint64_t lost = 0;
    for (const GarbageRow& row : g->lost) lost += row.blocks;
    EXPECT_EQ(lost, lost_);
  }
  CompactObjectsStats compact(const CompactObjectsOptions& options = graph_options()) {
    const Result<CompactObjectsStats> done = pool_->compact(options, &report_);
    EXPECT_TRUE(done) << report_.text();
    return done ? *done : CompactObjectsStats{};
  }
  // Which nodes are elsewhere now.
  std::set<std::uint64_t> moved(const std::map<std::uint64_t, PoolOffset>& before) {
    std::set<std::uint64_t> all;
    for (const auto& [number, at] : before) {
      if (pool_->offset_of(&node(number)) != at) all.insert(number);
    }
    return all;
  }
  std::map<std::uint64_t, PoolOffset> places() {
    std::map<std::uint64_t, PoolOffset> all;
    for (const std::uint64_t n : numbers_) all[n] = pool_->offset_of(&node(n));
    return all;
  }
  // That node stays, with its slab, and others move.
  void expect_fixed(GraphNode& fixed, const CompactObjectsOptions& options = graph_options()) {
    const auto before = places();
    const CompactObjectsStats done = compact(options);
    const std::set<std::uint64_t> all = moved(before);
    EXPECT_FALSE(all.contains(fixed.number));
    EXPECT_GT(all.size(), numbers_.size() / 4);
    EXPECT_EQ(done.objects_moved, all.size());
    EXPECT_GE(done.objects_fixed, 1u);
    expect_whole();
  }

  TempPath path_{"compact-objects"};
  PoolOptions options_;
  Report report_;
  Result<Pool> pool_ = Status::closed;
  GraphRoot* root_ = nullptr;
  std::set<std::uint64_t> numbers_;
  std::uint64_t lost_ = 0;
};

TEST_F(CompactObjects, objects_leave_sparse_slabs_and_every_pointer_follows) {
  make_sparse();
  const auto before = places();
  const CompactObjectsStats done = compact();
  EXPECT_TRUE(done.complete);
  EXPECT_GT(done.objects_moved, numbers_.size() / 2);
  EXPECT_EQ(moved(before).size(), done.objects_moved);
  // next, inside, self, back, two others, and the map's.
  EXPECT_GE(done.words_changed, 7 * done.objects_moved);
  EXPECT_GT(done.slabs_emptied, 3u);
  EXPECT_LT(done.bytes_after, done.bytes_before);
  EXPECT_EQ(done.objects_fixed, 0u);
  expect_whole();
  EXPECT_EQ(compact().objects_moved, 0u) << "nothing is left to gain";
  reopen();
  expect_whole();
}

TEST_F(CompactObjects, each_variant_and_medium) {
  for (const Medium medium : {Medium::cache, Medium::line, Medium::journal}) {
    for (const Consistency c : {Consistency::log, Consistency::gc, Consistency::internal}) {
      for (const bool canaries : {false, true}) {
        SCOPED_TRACE(std::to_string(static_cast<int>(medium)) + ", " +
                     std::to_string(static_cast<int>(c)) + (canaries ? ", canaries" : ""));
        PoolOptions o = PoolParts::small_options();
        o.medium = medium;
        o.consistency = c;
        o.canaries = canaries;
        o.durability = Durability::buffered;
        numbers_.clear();
        make(o);
        make_sparse(10, 1000);
        EXPECT_GT(compact().objects_moved, 20u);
        expect_whole();
        reopen();
        expect_whole();
      }
    }
  }
}

TEST_F(CompactObjects, lives_of_random_graphs) {
  std::mt19937_64 random(1);
  make_sparse(4, 2000);
  std::uint64_t next = 10'000;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(pool_->run([&](Transaction& tx) {
        const bool add = random() % 2 == 0 || numbers_.size() < 10;
        auto some = numbers_.lower_bound(random() % next);
        if (some == numbers_.end()) some = numbers_.begin();
        if (add) {
          TENUTO_TRY(add_node(tx, *root_, ++next));
          numbers_.insert(next);
          return Status::ok;
        }
        TENUTO_TRY(remove_node(tx, *root_, &node(*some)));
        numbers_.erase(some);
        return Status::ok;
      }),
                Status::ok);
    }
    CompactObjectsOptions o = graph_options();
    o.moves_max = random() % 3 * 100;
    o.occupancy = 0.5 + static_cast<double>(random() % 6) / 10;
    o.threads = 1 + static_cast<unsigned>(random() % 3);
    compact(o);
    expect_whole();
    if (round % 4 == 3) reopen();
  }
}

// --- what stays ----------------------------------------------------------------------------------

TEST_F(CompactObjects, what_a_versioned_word_leads_to_stays) {
  make_sparse();
  ASSERT_EQ(pool_->malloc_to(sizeof(GraphNode), root_->versioned, {.type = kNodeType}), Status::ok);
  // Only such words lead there; the node is empty.
  new (root_->versioned.get()) GraphNode;
  const GraphNode* const at = root_->versioned.get();
  EXPECT_GT(compact().objects_moved, 0u);
  EXPECT_EQ(root_->versioned.get(), at);
  EXPECT_NE(pool_->type_of(at), 0u);
  expect_whole();
}

TEST_F(CompactObjects, what_a_word_that_looks_like_a_pointer_leads_to_stays) {
  make_sparse();
  ASSERT_EQ(pool_->malloc_to(64, root_->hidden.word(), {.zero = true}), Status::ok);
  GraphNode& fixed = node(*numbers_.begin());
  auto* const words = static_cast<std::uint64_t*>(root_->hidden.get());
  words[3] = PtrWord::encode(&words[3], &fixed.text);  // into it
  expect_fixed(fixed);
  EXPECT_EQ(PtrWord::decode(&words[3], words[3]), &fixed.text);
  words[3] = 0;
  EXPECT_EQ(compact().objects_fixed, 0u);
}

TEST_F(CompactObjects, what_a_lost_object_leads_to_stays) {
  make_sparse();
  ASSERT_EQ(pool_->malloc_to(64, root_->hidden.word(), {.zero = true}), Status::ok);
  auto* const word = static_cast<std::uint64_t*>(root_->hidden.get());
  root_->hidden = nullptr;
  lost_ = 1;
  GraphNode& fixed = node(*numbers_.begin());
  *word = PtrWord::encode(word, &fixed);
  expect_fixed(fixed);
  EXPECT_EQ(PtrWord::decode(word, *word), &fixed);
}

TEST_F(CompactObjects, what_a_reserved_object_leads_to_stays_and_so_does_the_object) {
  make_sparse();
  const Result<Reserved> mine = pool_->reserve(sizeof(GraphNode), {.type = kNodeType});
  ASSERT_TRUE(mine);
  GraphNode& fixed = node(*numbers_.begin());
  auto* const fresh = new (mine->data) GraphNode;
  fresh->next = &fixed;
  expect_fixed(fixed);
  EXPECT_EQ(fresh->next.get(), &fixed);
  EXPECT_EQ(pool_->cancel(*mine), Status::ok);
}

TEST_F(CompactObjects, what_an_object_of_another_type_leads_to_follows_its_filter_or_stays) {
  make_sparse();
  ASSERT_EQ(pool_->malloc_to(sizeof(GraphNode), root_->hidden.word(), {.type = kOtherType}),
            Status::ok);
  auto& other = *new (root_->hidden.get()) GraphNode;
  GraphNode& some = node(*numbers_.begin());
  other.next = &some;
  other.inside = &some.number;
  expect_fixed(some);
  CompactObjectsOptions o = graph_options();
  o.filters[kOtherType] = reference_filter<GraphNode>();
  EXPECT_EQ(compact(o).objects_fixed, 0u);
  EXPECT_EQ(other.next.get(), &node(*numbers_.begin()));
  EXPECT_EQ(other.inside.get(), &other.next->number);
  expect_whole();
}

// Keys that are pointers.
struct AddressOrder {
  using is_transparent = void;
  bool operator()(const Ptr<GraphNode>& a, const Ptr<GraphNode>& b) const {
    return a.get() < b.get();
  }
};
struct AddressHash {
  std::size_t operator()(const Ptr<GraphNode>& a) const {
    return std::hash<const void*>()(a.get());
  }
};
struct AddressRoot : GraphRoot {
  OrderedMap<Ptr<GraphNode>, std::uint64_t, AddressOrder> ordered;
  HashMap<Ptr<GraphNode>, std::uint64_t, AddressHash> hashed;
  void references(const References& visit) const {
    GraphRoot::references(visit);
    visit(ordered, hashed);
  }
};

TEST_F(CompactObjects, keys_of_maps_stay) {
  ASSERT_EQ(pool_->close(), Status::ok);
  std::remove(path_.str().c_str());
  pool_ = Pool::create(path_.str(), options_);
  auto& root = **pool_->root<AddressRoot>("graph");
  root_ = &root;
  make_sparse();
  GraphNode& first = node(*numbers_.begin());
  GraphNode& last = node(*numbers_.rbegin());
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(root.ordered.insert(tx, Ptr<GraphNode>(&first), 1));
    return root.hashed.insert(tx, Ptr<GraphNode>(&last), 2);
  }),
            Status::ok);
  CompactObjectsOptions o = graph_options();
  o.root_filter = reference_filter<AddressRoot>();
  const auto before = places();
  EXPECT_GT(compact(o).objects_moved, 0u);
  EXPECT_FALSE(moved(before).contains(first.number));
  EXPECT_FALSE(moved(before).contains(last.number));
  EXPECT_EQ(root.ordered.find(Ptr<GraphNode>(&first))->value, 1u);
  EXPECT_EQ(root.hashed.find(Ptr<GraphNode>(&last))->value, 2u);
  EXPECT_EQ(graph_fault(*pool_, root, numbers_), "");
}

// --- calls ---------------------------------------------------------------------------------------

TEST_F(CompactObjects, it_tells_of_each_move) {
  make_sparse();
  auto before = places();
  CompactObjectsOptions o = graph_options();
  std::map<const void*, const void*> index;
  o.moved = [&](const void* from, void* to) { EXPECT_TRUE(index.emplace(from, to).second); };
  const CompactObjectsStats done = compact(o);
  EXPECT_EQ(index.size(), done.objects_moved);
  for (const std::uint64_t n : moved(before)) {
    EXPECT_EQ(index.at(pool_->at(before[n])), &node(n));
  }
}

TEST_F(CompactObjects, so_many_at_most) {
  make_sparse();
  CompactObjectsOptions o = graph_options();
  o.moves_max = 50;
  const CompactObjectsStats done = compact(o);
  EXPECT_FALSE(done.complete);
  EXPECT_GT(done.objects_moved, 0u);
  EXPECT_LT(done.objects_moved, 150u);
  expect_whole();
}

TEST_F(CompactObjects, beside_a_store) {
  make_sparse();
  ASSERT_EQ(pool_->close(), Status::ok);
  Result<Store> store = Store::open(path_.str(), {.pool = options_}, &report_);
  ASSERT_TRUE(store) << report_.text();
  Result<Collection> c = store->collection("records");
  ASSERT_TRUE(c);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(c->put(std::to_string(i), "value"), Status::ok);
  Pool& pool = store->pool();
  auto& root = **pool.root<GraphRoot>("graph");
  EXPECT_EQ(graph_fault(pool, root, numbers_), "");
  const Result<CompactObjectsStats> done = pool.compact(graph_options(), &report_);
  ASSERT_TRUE(done) << report_.text();
  EXPECT_GT(done->objects_moved, 0u);
  EXPECT_EQ(graph_fault(pool, root, numbers_), "");
  EXPECT_EQ(*c->get("1999"), "value");
  EXPECT_EQ(store->validate(&report_), Status::ok) << report_.text();
  EXPECT_EQ(store->close(), Status::ok);
}

TEST_F(CompactObjects, a_full_pool_moves_what_it_can) {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = 16u << 20;
  make(o);
  make_sparse();
  std::uint64_t taken = 0;
  for (std::uint64_t bytes = 1 << 20; bytes >= 64; bytes /= 2) {
    while (pool_->run([&](Transaction& tx) { return tx.alloc(bytes).error(); }) == Status::ok) {
      taken += 1;
    }
  }
  ASSERT_GT(taken, 100u);
  lost_ = taken;
  compact();
  expect_whole();
}

TEST_F(CompactObjects, without_memory_it_stops_and_harms_nothing) {
  make_sparse(8, 800);
  fail_each_allocation(
      [] {},
      [&] {
        const Result<CompactObjectsStats> done = pool_->compact(graph_options());
        EXPECT_TRUE(done || done.error() == Status::full || done.error() == Status::io);
      },
      [&] { expect_whole(); }, true);
}

TEST_F(CompactObjects, what_it_cannot_do_it_refuses) {
  make_sparse(8, 800);
  const auto refused = [&](const CompactObjectsOptions& o, Status s, const char* says) {
    report_ = {};
    EXPECT_EQ(pool_->compact(o, &report_).error(), s);
    EXPECT_NE(report_.text().find(says), std::string::npos) << report_.text();
  };
  CompactObjectsOptions o = graph_options();
  o.occupancy = 0;
  refused(o, Status::invalid_argument, "occupancy");
  o.occupancy = 1.5;
  refused(o, Status::invalid_argument, "occupancy");
  o = graph_options();
  o.types[0] = movable<GraphNode>();
  refused(o, Status::invalid_argument, "0 is no type");
  o = graph_options();
  o.filters[kNodeType] = reference_filter<GraphNode>();
  refused(o, Status::invalid_argument, "named twice");
  o = graph_options();
  o.types[kNodeType].move = nullptr;
  refused(o, Status::invalid_argument, "without its functions");
  o = graph_options();
  o.types[kNodeType].move = [](void* to, void* from, std::uint64_t n) { std::memcpy(to, from, n); };
  refused(o, Status::invalid_argument, "leads elsewhere");
  expect_whole();
  {
    Transaction tx(*pool_);
    refused(graph_options(), Status::busy, "transaction is open");
  }
  EXPECT_EQ(compact({}).objects_moved, 0u) << "no type is named";
  ASSERT_EQ(pool_->close(), Status::ok);
  EXPECT_EQ(pool_->compact(graph_options()).error(), Status::closed);
  options_.read_only = true;
  pool_ = Pool::open(path_.str(), options_);
  ASSERT_TRUE(pool_);
  EXPECT_EQ(pool_->compact(graph_options()).error(), Status::read_only);
}

// --- mistakes ------------------------------------------------------------------------------------

using CompactObjectsPlanted = CompactObjects;

TEST_F(CompactObjectsPlanted, words_that_are_changed_where_they_were_and_objects_that_are_copied) {
  for (const char* plant :
       {"store_compact_objects_words_stay", "store_compact_objects_copies_bytes"}) {
    numbers_.clear();
    make(options_);
    make_sparse();
    tenuto::plant(plant);
    const bool ok = static_cast<bool>(pool_->compact(graph_options(), &report_));
    EXPECT_GT(plant_visits(plant), 0u) << plant;
    unplant_all();
    EXPECT_TRUE(!ok || !graph_fault(*pool_, *root_, numbers_).empty()) << plant;
  }
}
TEST_F(CompactObjectsPlanted, pointers_into_objects_that_lead_to_the_begin) {
  make_sparse();
  // `inside` would lead to `number`, which is the begin.
  ASSERT_EQ(pool_->malloc_to(64, root_->hidden.word(), {.zero = true}), Status::ok);
  GraphNode& some = node(*numbers_.begin());
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    TENUTO_TRY(tx.add(&some.self, 8));
    some.self = reinterpret_cast<GraphNode*>(&some.text);
    return Status::ok;
  }),
            Status::ok);
  tenuto::plant("store_compact_objects_begins_only");
  compact();
  EXPECT_EQ(static_cast<void*>(node(*numbers_.begin()).self.get()), &node(*numbers_.begin()));
  unplant_all();
}
TEST_F(CompactObjectsPlanted, objects_that_only_walks_find_and_what_they_lead_to) {
  make_sparse();
  ASSERT_EQ(pool_->run([&](Transaction& tx) {  // nothing leads to it
    const Result<void*> block = tx.alloc(sizeof(GraphNode), {.type = kNodeType});
    if (!block) return block.error();
    new (*block) GraphNode;
    static_cast<GraphNode*>(*block)->next = &node(*numbers_.begin());
    return Status::ok;
  }),
            Status::ok);
  const auto walked = [&] {
    for (const GraphNode& n : pool_->objects<GraphNode>(kNodeType)) {
      if (n.number == 0) return n.next.get() == &node(*numbers_.begin());
    }
    return false;
  };
  ASSERT_TRUE(walked());
  tenuto::plant("store_compact_objects_beside_walks_by_type");
  tenuto::plant("heap_reach_fixes_nothing");
  compact();
  unplant_all();
  EXPECT_FALSE(walked());
}
TEST_F(CompactObjectsPlanted, objects_that_nothing_leads_to) {
  make_sparse();
  ASSERT_EQ(pool_->malloc_to(64, root_->hidden.word(), {.zero = true}), Status::ok);
  auto* const word = static_cast<std::uint64_t*>(root_->hidden.get());
  root_->hidden = nullptr;
  GraphNode& some = node(*numbers_.begin());
  *word = PtrWord::encode(word, &some);
  tenuto::plant("store_compact_objects_beside_lost_ones");
  compact();
  unplant_all();
  EXPECT_NE(&node(*numbers_.begin()), &some) << "it has moved away";
}

}  // namespace
}  // namespace tenuto::test
