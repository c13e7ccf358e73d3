// Pool::grow_root: a larger root object takes the place of the stored one.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"
#include "tenuto/pool.h"

namespace tenuto {
namespace {

using test::TempPath;

PoolOptions small() {
  PoolOptions o = test::PoolParts::small_options();
  o.size_max = 16u << 20;
  return o;
}

struct Numbers {
  std::array<std::uint64_t, 4> n;
};
struct MoreNumbers {
  std::array<std::uint64_t, 5000> n;
};
struct Node {
  std::uint64_t number;
};
struct Listed {
  std::array<std::uint64_t, 8> n;
  Ptr<Node> first;
};

Status to_listed(const OldRoot& old, Listed& fresh, Transaction& tx) {
  std::memcpy(fresh.n.data(), old.data, old.bytes);
  Result<Node*> node = tx.make<Node>(old.bytes);
  if (!node) return node.error();
  fresh.first = *node;
  return Status::ok;
}

class RootTest : public testing::Test {
 protected:
  void SetUp() override {
    pool_ = std::make_unique<Pool>(*Pool::create(path_.str(), small()));
    old_ = *pool_->root<Numbers>("app");
    ASSERT_EQ(pool_->run([&](Transaction& tx) {
      TENUTO_TRY(tx.add(*old_));
      old_->n = {1, 2, 3, 4};
      return Status::ok;
    }),
              Status::ok);
  }
  void TearDown() override {
    unplant_all();
    if (pool_ != nullptr && pool_->health() == Status::ok) {
      EXPECT_EQ(pool_->validate(&report_), Status::ok) << report_.text();
    }
  }
  void reopen(PoolOptions options = small()) {
    pool_.reset();
    Result<Pool> opened = Pool::open(path_.str(), options, &report_);
    ASSERT_TRUE(opened) << report_.text();
    pool_ = std::make_unique<Pool>(std::move(*opened));
  }
  bool says(const char* words) const { return report_.text().find(words) != std::string::npos; }
  // The root is as SetUp made it, and nothing else is allocated.
  void expect_old() {
    EXPECT_EQ(pool_->info().layout, "app");
    const Result<Numbers*> root = pool_->root<Numbers>("app", &report_);
    ASSERT_TRUE(root) << report_.text();
    EXPECT_EQ(*root, old_);
    EXPECT_EQ((*root)->n, (std::array<std::uint64_t, 4>{1, 2, 3, 4}));
    EXPECT_EQ(pool_->stats().objects, 1u);
  }

  TempPath path_{"root"};
  std::unique_ptr<Pool> pool_;
  Numbers* old_ = nullptr;
  Report report_;
};

TEST_F(RootTest, without_a_hook_the_old_bytes_are_copied_and_the_rest_is_zero) {
  const Result<MoreNumbers*> root = pool_->grow_root<MoreNumbers>("app", &report_);
  ASSERT_TRUE(root) << report_.text();
  EXPECT_EQ(*pool_->grow_root<MoreNumbers>("app"), *root) << "it is as wanted";
  EXPECT_EQ(*pool_->root<MoreNumbers>("app"), *root);
  EXPECT_EQ(pool_->root<Numbers>("app", &report_).error(), Status::invalid_argument);
  EXPECT_EQ(pool_->stats().objects, 1u) << "the old one is freed";
  reopen();
  const MoreNumbers& again = **pool_->root<MoreNumbers>("app");
  for (std::size_t i = 0; i < again.n.size(); ++i) EXPECT_EQ(again.n[i], i < 4 ? i + 1 : 0);
}

TEST_F(RootTest, a_hook_fills_the_new_root_and_makes_objects) {
  const Result<Listed*> root = pool_->grow_root<Listed>("app 2", to_listed, &report_);
  ASSERT_TRUE(root) << report_.text();
  EXPECT_EQ(pool_->info().layout, "app 2");
  reopen();
  Listed& again = **pool_->root<Listed>("app 2");
  EXPECT_EQ(again.n, (std::array<std::uint64_t, 8>{1, 2, 3, 4}));
  EXPECT_EQ(again.first->number, sizeof(Numbers));
  EXPECT_EQ(pool_->stats().objects, 2u);
  // Of the same size: the hook is asked, because the layout is another one. It frees an object.
  const auto without_list = [](const OldRoot& old, Listed& fresh, Transaction& tx) {
    const auto& was = *static_cast<const Listed*>(old.data);
    if (old.layout != "app 2") return Status::corrupt;
    fresh.n = was.n;
    return tx.destroy(was.first.get());
  };
  ASSERT_TRUE(pool_->grow_root<Listed>("app 3", without_list, &report_)) << report_.text();
  EXPECT_EQ(pool_->stats().objects, 1u);
}

TEST_F(RootTest, a_pool_without_a_root_gets_the_new_one) {
  TempPath path("root2");
  auto pool = Pool::create(path.str(), small());
  ASSERT_TRUE(pool);
  bool asked = false;
  const auto hook = [&](const OldRoot&, Listed&, Transaction&) {
    asked = true;
    return Status::ok;
  };
  const Result<Listed*> root = pool->grow_root<Listed>("app 2", hook, &report_);
  ASSERT_TRUE(root) << report_.text();
  EXPECT_FALSE(asked);
  EXPECT_EQ((*root)->first.get(), nullptr);
  EXPECT_EQ(*pool->root<Listed>("app 2"), *root);
}

TEST_F(RootTest, what_is_refused_changes_nothing) {
  EXPECT_EQ(pool_->grow_root("app", 8, {}, &report_).error(), Status::invalid_argument);
  EXPECT_TRUE(says("does not shrink")) << report_.text();
  EXPECT_TRUE(says("app of 8 bytes") && says("app of 32 bytes")) << report_.text();
  EXPECT_EQ(pool_->grow_root<MoreNumbers>("other", &report_).error(), Status::invalid_argument);
  EXPECT_TRUE(says("no hook")) << report_.text();
  EXPECT_EQ(pool_->grow_root<MoreNumbers>("", &report_).error(), Status::invalid_argument);
  EXPECT_EQ(pool_->root<MoreNumbers>("app", &report_).error(), Status::invalid_argument);
  EXPECT_TRUE(says("grow_root")) << report_.text();
  Status inside = Status::ok;
  EXPECT_EQ(pool_->run([&](Transaction&) {
    inside = pool_->grow_root<MoreNumbers>("app", &report_).error();
    return Status::ok;
  }),
            Status::ok);
  EXPECT_EQ(inside, Status::invalid_argument);
  EXPECT_TRUE(says("transaction")) << report_.text();
  EXPECT_EQ(pool_->grow_root("app", (16u << 20) - (64u << 10), {}, &report_).error(), Status::full);
  EXPECT_TRUE(says("room")) << report_.text();
  expect_old();
}

TEST_F(RootTest, a_hook_that_fails_or_throws_changes_nothing) {
  const auto fails = [](const OldRoot& old, Listed& fresh, Transaction& tx) {
    TENUTO_TRY(to_listed(old, fresh, tx));
    return Status::not_found;
  };
  EXPECT_EQ(pool_->grow_root<Listed>("app 2", fails, &report_).error(), Status::not_found);
  EXPECT_TRUE(says("hook")) << report_.text();
  expect_old();
  const auto throws = [](const OldRoot& old, Listed& fresh, Transaction& tx) -> Status {
    TENUTO_TRY(to_listed(old, fresh, tx));
    throw std::runtime_error("no");
  };
  EXPECT_THROW((void)pool_->grow_root<Listed>("app 2", throws), std::runtime_error);
  expect_old();
  const auto aborts = [](const OldRoot& old, Listed& fresh, Transaction& tx) {
    TENUTO_TRY(to_listed(old, fresh, tx));
    tx.abort();
    return Status::ok;
  };
  EXPECT_EQ(pool_->grow_root<Listed>("app 2", aborts, &report_).error(), Status::aborted);
  expect_old();
  const auto asks = [&](const OldRoot& old, Listed& fresh, Transaction& tx) {
    EXPECT_EQ(pool_->root<Numbers>("app").error(), Status::invalid_argument);
    EXPECT_EQ(pool_->grow_root<MoreNumbers>("app").error(), Status::invalid_argument);
    return to_listed(old, fresh, tx);
  };
  EXPECT_TRUE(pool_->grow_root<Listed>("app 2", asks, &report_)) << report_.text();
}

TEST_F(RootTest, a_hook_ends_no_more_than_its_own_level) {
  const std::uint64_t before = pool_->stats().allocated_bytes;
  const auto grow = [&](auto&& end, Status answer) {
    return pool_
        ->grow_root<Listed>("listed",
                            [&](const OldRoot& old, Listed& fresh, Transaction& tx) {
                              TENUTO_TRY(to_listed(old, fresh, tx));
                              end(tx);
                              return answer;
                            })
        .error();
  };
  const auto commits = [](Transaction& tx) { EXPECT_EQ(tx.commit(), Status::ok); };
  EXPECT_EQ(grow([](Transaction& tx) { tx.abort(); }, Status::ok), Status::aborted);
  EXPECT_EQ(grow(commits, Status::exists), Status::exists);
  EXPECT_EQ(pool_->stats().allocated_bytes, before);
  EXPECT_EQ(old_->n[3], 4u);
  EXPECT_EQ(grow(commits, Status::ok), Status::ok);
  const Result<Listed*> fresh = pool_->root<Listed>("listed");
  ASSERT_TRUE(fresh);
  EXPECT_EQ((*fresh)->n[3], 4u);
  EXPECT_EQ((*fresh)->first->number, sizeof(Numbers));
  const Result<Garbage> garbage = pool_->find_garbage();
  ASSERT_TRUE(garbage);
  EXPECT_TRUE(garbage->lost.empty());
}

TEST_F(RootTest, a_pool_that_is_only_read_or_closed_or_of_the_parent) {
  const pid_t child = fork();
  if (child == 0) {
    const bool forked = pool_->grow_root<MoreNumbers>("app").error() == Status::forked;
    _exit(forked ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  PoolOptions options = small();
  options.read_only = true;
  reopen(options);
  EXPECT_EQ(pool_->grow_root<MoreNumbers>("app", &report_).error(), Status::read_only);
  EXPECT_TRUE(says("must grow")) << report_.text();
  EXPECT_EQ((*pool_->grow_root<Numbers>("app"))->n[3], 4u) << "nothing to do";
  reopen();
  Pool moved = std::move(*pool_);
  EXPECT_EQ(pool_->grow_root<MoreNumbers>("app").error(), Status::closed);
  ASSERT_TRUE(moved.grow_root<MoreNumbers>("app"));
  ASSERT_EQ(moved.close(), Status::ok);
  EXPECT_EQ(moved.grow_root<MoreNumbers>("app").error(), Status::closed);
  pool_.reset();
}

// The records of a store beside it are untouched, also by a backup and a rescue.
TEST_F(RootTest, it_grows_beside_a_store) {
  Result<Store> store = Store::open(std::move(*pool_), {}, &report_);
  ASSERT_TRUE(store) << report_.text();
  ASSERT_EQ(store->put("k", "v"), Status::ok);
  ASSERT_TRUE(store->pool().grow_root<MoreNumbers>("app", &report_)) << report_.text();
  EXPECT_EQ(store->validate(&report_), Status::ok) << report_.text();
  TempPath copy("copy");
  ASSERT_EQ(store->backup(copy.str(), &report_), Status::ok) << report_.text();
  ASSERT_EQ(store->close(), Status::ok);
  reopen();
  EXPECT_EQ((*pool_->root<MoreNumbers>("app"))->n[1], 2u);
  store = Store::open(std::move(*pool_), {}, &report_);
  EXPECT_EQ(*store->get("k"), "v");
  pool_.reset();
}

}  // namespace
}  // namespace tenuto
