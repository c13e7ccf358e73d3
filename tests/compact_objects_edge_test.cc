// Pool::compact (tenuto/compact.h) and collections where one block is seen in several ways, and
// where not all of an object is known.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "pm/plant.h"
#include "support/object_graph.h"
#include "support/pool_parts.h"
#include "tenuto/compact.h"
#include "tenuto/pool.h"
#include "tenuto/queue.h"
#include "tenuto/vector.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kType = 3;
constexpr std::uint64_t kCount = 4000;  // one in eight stays, fewer in the first slab

// What moves.
struct Leaf {
  std::uint64_t number = 0;
  std::uint64_t more[6] = {};
  void references(const References&) const {}
};
// What leads there.
struct Holder {
  std::uint64_t id = 0;
  Ptr<Leaf> leaf;
  void references(const References& visit) const { visit(leaf); }
};
struct Outer {
  Holder first;
  Ptr<Leaf> last;
  void references(const References& visit) const { visit(first, last); }
};
struct Root {
  Ptr<Holder> best;       // into `all`, before it is visited
  Ptr<std::uint64_t> id;  // into `outer`
  Ptr<Holder> part;       // the same
  Vector<Holder> all;
  Ptr<Outer> outer;
  Ptr<Holder> array;
  std::uint64_t count;
  Ptr<void> any;
  void references(const References& visit) const {
    visit(best, id, part, all, outer, any);
    visit.array(array, count);
  }
};

class CompactObjectsEdge : public testing::Test {
 protected:
  void SetUp() override { make(PoolParts::small_options()); }
  void TearDown() override { unplant_all(); }
  void make(const PoolOptions& options) {
    pool_ = Status::closed;
    std::remove(path_.str().c_str());
    pool_ = Pool::create(path_.str(), options, &report_);
    ASSERT_TRUE(pool_) << report_.text();
    root_ = *pool_->root<Root>("edge");
  }
  template <class T>
  T* make_one(Transaction& tx, std::uint64_t bytes = sizeof(T), std::uint64_t type = 0) {
    const Result<void*> block = tx.alloc(bytes, {.zero = true, .type = type});
    EXPECT_TRUE(block);
    return new (*block) T();
  }
  // Leaves of `bytes` each, of which one in eight stays. The first of them are led to by all.
  void make_leaves(std::uint64_t bytes = sizeof(Leaf)) {
    leaves_.clear();
    numbers_.clear();
    std::vector<Leaf*> made;
    ASSERT_EQ(pool_->run([&](Transaction& tx) {
      for (std::uint64_t i = 0; i < kCount; ++i) {
        made.push_back(make_one<Leaf>(tx, bytes, kType));
        made.back()->number = i;
      }
      return Status::ok;
    }),
              Status::ok);
    ASSERT_EQ(pool_->run([&](Transaction& tx) {
      for (std::uint64_t i = 0; i < kCount; ++i) {
        if (i % (i < kCount / 8 ? 24 : 8) == 0) {
          leaves_.push_back(made[i]);
          numbers_.push_back(i);
        } else {
          TENUTO_TRY(tx.free(made[i]));
        }
      }
      return Status::ok;
    }),
              Status::ok);
  }
  CompactObjectsOptions options() const {
    CompactObjectsOptions o;
    o.root_filter = reference_filter<Root>();
    o.types[kType] = movable<Leaf>();
    return o;
  }
  CompactObjectsStats compact(const CompactObjectsOptions& o) {
    const Result<CompactObjectsStats> done = pool_->compact(o, &report_);
    EXPECT_TRUE(done) << report_.text();
    return done ? *done : CompactObjectsStats{};
  }
  // Some of all slabs.
  Leaf* some(std::size_t i) const { return leaves_[i * 11]; }
  bool leads(const Ptr<Leaf>& to, std::size_t i) const {
    return pool_->type_of(to.get()) == kType && to->number == numbers_[i * 11];
  }

  TempPath path_{"compact-edge"};
  Report report_;
  Result<Pool> pool_ = Status::closed;
  Root* root_ = nullptr;
  std::vector<Leaf*> leaves_;
  std::vector<std::uint64_t> numbers_;  // of each
};

// A pointer to the first element of a vector, or to the first member of an object, sees less of the
// block than its owner.
class CompactObjectsSeen : public CompactObjectsEdge, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    CompactObjectsEdge::SetUp();
    make_leaves();
    ASSERT_EQ(pool_->run([&](Transaction& tx) {
      auto* const outer = make_one<Outer>(tx);
      auto* const array = static_cast<Holder*>(*tx.alloc(20 * sizeof(Holder), {.zero = true}));
      TENUTO_TRY(tx.add(root_, sizeof *root_));
      root_->count = 20;
      for (std::size_t i = 0; i < 20; ++i) array[i].leaf = some(20 + i);
      for (std::size_t i = 0; i < 20; ++i) {
        Holder holder;
        holder.leaf = some(i);
        TENUTO_TRY(root_->all.push_back(tx, holder));
      }
      outer->first.leaf = some(40);
      outer->last = some(41);
      root_->best = root_->all.data();
      root_->id = &outer->first.id;
      root_->part = &outer->first;
      root_->outer = outer;
      root_->array = array;
      return Status::ok;
    }),
              Status::ok);
  }
  // How many of the 42 pointers lead where they should.
  unsigned right() const {
    unsigned n = leads(root_->outer->first.leaf, 40) + leads(root_->outer->last, 41);
    for (std::size_t i = 0; i < 20; ++i) {
      n += leads(root_->all[i].leaf, i) + leads(root_->array.get()[i].leaf, 20 + i);
    }
    return n;
  }
};
INSTANTIATE_TEST_SUITE_P(both, CompactObjectsSeen, testing::Bool());

TEST_P(CompactObjectsSeen, by_all_who_lead_to_a_block) {
  if (GetParam()) plant("heap_reach_reads_as_the_first_says");
  EXPECT_GT(compact(options()).objects_moved, 40u);
  if (GetParam()) {
    EXPECT_GT(plant_visits("heap_reach_reads_as_the_first_says"), 0u);
    EXPECT_LT(right(), 42u);
  } else {
    EXPECT_EQ(right(), 42u);
  }
}

// Without types, so that only pointers keep them.
TEST_F(CompactObjectsEdge, a_collection_sees_them_too) {
  ASSERT_EQ(pool_->run([&](Transaction& tx) {
    for (int i = 0; i < 20; ++i) {
      Holder holder;
      holder.leaf = make_one<Leaf>(tx);
      TENUTO_TRY(root_->all.push_back(tx, holder));
    }
    TENUTO_TRY(tx.add(root_->best));
    root_->best = root_->all.data();
    TENUTO_TRY(tx.add(root_->outer));
    root_->outer = make_one<Outer>(tx);
    root_->outer->last = make_one<Leaf>(tx);
    TENUTO_TRY(tx.add(root_->id));
    root_->id = &root_->outer->first.id;
    return Status::ok;
  }),
            Status::ok);
  GarbageOptions o;
  o.root_filter = reference_filter<Root>();
  o.filters[kType] = {};  // empty: word by word
  EXPECT_TRUE(pool_->find_garbage(o)->lost.empty());
  plant("heap_reach_reads_as_the_first_says");
  EXPECT_FALSE(pool_->find_garbage(o)->lost.empty());
}

// --- what is not known of an object
// ---------------------------------------------------------------

TEST_F(CompactObjectsEdge, a_block_that_is_smaller_than_its_type_stays) {
  make_leaves(32);
  const CompactObjectsStats done = compact(options());
  EXPECT_EQ(done.objects_moved, 0u);
  EXPECT_EQ(done.objects_fixed, leaves_.size());
  EXPECT_EQ(pool_->type_of(done.one_fixed), kType);
}

TEST_F(CompactObjectsEdge, what_is_behind_an_object_and_looks_like_a_pointer_keeps_it) {
  for (const bool planted : {false, true}) {
    make(PoolParts::small_options());
    make_leaves(112);
    auto* const behind = reinterpret_cast<Ptr<Leaf>*>(leaves_[0] + 1);
    *behind = leaves_[1];
    auto* const number = reinterpret_cast<std::uint64_t*>(leaves_[2] + 1);
    *number = 12;  // leads nowhere
    root_->any = leaves_[0];
    if (planted) plant("store_compact_objects_in_doubt");
    const CompactObjectsStats done = compact(options());
    unplant_all();
    EXPECT_GT(done.objects_moved, 0u);
    EXPECT_EQ(done.objects_fixed, planted ? 0u : 1u);
    EXPECT_EQ(root_->any.get() == leaves_[0], !planted);
  }
}

TEST_F(CompactObjectsEdge, a_move_that_loses_a_pointer_to_what_stays_is_refused) {
  make_leaves();
  struct Link {
    Ptr<void> to;
    void references(const References& visit) const { visit(to); }
  };
  CompactObjectsOptions o = options();
  o.types[kType].references = reference_filter<Link>();
  o.types[kType].object_bytes = 0;
  o.types[kType].move = [](void* to, void* from, std::uint64_t n) { std::memcpy(to, from, n); };
  for (Leaf* leaf : leaves_) reinterpret_cast<Link*>(leaf)->to = root_;
  EXPECT_EQ(pool_->compact(o, &report_).error(), Status::invalid_argument);
  EXPECT_NE(report_.text().find("type 3"), std::string::npos) << report_.text();
  for (Leaf* leaf : leaves_) EXPECT_EQ(pool_->type_of(leaf), kType);
  // One that is wrong is enough, and is not passed over.
  const Movable right = movable<Link>();
  o.types[kType].move = [&](void* to, void* from, std::uint64_t n) {
    from == leaves_[3] ? static_cast<void>(std::memcpy(to, from, n)) : right.move(to, from, n);
  };
  EXPECT_EQ(pool_->compact(o, &report_).error(), Status::invalid_argument);
  EXPECT_EQ(pool_->type_of(leaves_[3]), kType);
  o.types[kType] = movable<Link>();
  o.types[kType].object_bytes = 0;
  EXPECT_GT(compact(o).objects_moved, 0u);
}

TEST_F(CompactObjectsEdge, a_pointer_behind_the_end_goes_with_the_canary) {
  PoolOptions with = PoolParts::small_options();
  with.canaries = true;
  make(with);
  make_leaves();
  const std::uint64_t usable = pool_->usable_size(leaves_[0]);
  root_->any = reinterpret_cast<char*>(leaves_[0]) + usable;
  EXPECT_GT(compact(options()).objects_moved, 0u);
  const auto* const leaf = reinterpret_cast<Leaf*>(static_cast<char*>(root_->any.get()) - usable);
  EXPECT_EQ(pool_->type_of(leaf), kType);
  EXPECT_EQ(leaf->number, 0u);
}

// --- what it does not come to
// -----------------------------------------------------------------------

TEST_F(CompactObjectsEdge, an_object_with_more_pointers_than_the_log_has_room_for_stays_alone) {
  PoolOptions small = PoolParts::small_options();
  small.size = small.size_max = 48u << 20;
  make(small);
  make_leaves();
  const std::uint64_t count = 1'000'000;  // 64 MB of entries
  ASSERT_EQ(pool_->malloc_to(count * sizeof(Holder), root_->array, {.zero = true}), Status::ok);
  root_->count = count;
  for (std::uint64_t i = 0; i < count; ++i) root_->array.get()[i].leaf = leaves_[0];
  const CompactObjectsStats done = compact(options());
  EXPECT_GT(done.objects_moved, leaves_.size() / 2);
  EXPECT_EQ(done.objects_fixed, 1u);
  EXPECT_EQ(done.one_fixed, leaves_[0]);
  EXPECT_FALSE(done.complete);
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(root_->array.get()[i].leaf.get(), leaves_[0]);
  EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
}

// --- calls
// ------------------------------------------------------------------------------------------

TEST_F(CompactObjectsEdge, it_tells_at_the_end_and_then_the_pool_may_be_used) {
  make_leaves();
  root_->any = leaves_[0];
  CompactObjectsOptions o = options();
  std::set<const void*> told;
  o.moved = [&](const void* from, void* to) {
    EXPECT_TRUE(told.insert(from).second);
    EXPECT_EQ(pool_->type_of(to), kType);
    EXPECT_EQ(pool_->run([&](Transaction& tx) { return tx.add(root_->count); }), Status::ok);
    if (told.size() == 1) {
      EXPECT_TRUE(pool_->compact(options()));
    }
  };
  const CompactObjectsStats done = compact(o);
  EXPECT_EQ(told.size(), done.objects_moved);
  EXPECT_EQ(told.count(leaves_[0]), 1u);
}

TEST_F(CompactObjectsEdge, the_pool_may_be_closed_there_and_an_exception_is_passed_on) {
  make_leaves();
  CompactObjectsOptions o = options();
  int told = 0;
  o.moved = [&](const void*, void*) {
    if (++told == 3) throw std::runtime_error("enough");
  };
  EXPECT_THROW(static_cast<void>(pool_->compact(o)), std::runtime_error);
  make_leaves();
  o.moved = [&](const void*, void*) {
    EXPECT_EQ(pool_->close(), told == 4 ? Status::closed : (told = 4, Status::ok));
  };
  EXPECT_TRUE(pool_->compact(o));
  EXPECT_EQ(pool_->compact(o).error(), Status::closed);
}

TEST_F(CompactObjectsEdge, filters_of_the_pool_are_known) {
  ASSERT_EQ(pool_->close(), Status::ok);
  PoolOptions with = PoolParts::small_options();
  with.root_filter = reference_filter<Root>();
  pool_ = Pool::open(path_.str(), with);
  ASSERT_TRUE(pool_);
  root_ = *pool_->root<Root>("edge");
  make_leaves();
  root_->any = leaves_[0];
  CompactObjectsOptions o = options();
  o.root_filter = {};
  EXPECT_EQ(compact(o).objects_fixed, 0u);
  EXPECT_NE(root_->any.get(), leaves_[0]);
}

}  // namespace
}  // namespace tenuto::test
