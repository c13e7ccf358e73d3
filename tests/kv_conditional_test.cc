// Conditional writes, one by one and by many threads. They use the tree directly, since the public
// calls only choose it.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "store/kv/store_impl.h"
#include "support/kv_fixture.h"

namespace tenuto {
namespace {

using store::Decision;
using store::Record;
using store::Tree;
using test::key_of;

class KvConditionalTest : public test::KvFixture {
 protected:
  void SetUp() override {
    { ASSERT_TRUE(open()); }  // makes the store
    auto impl = PoolImpl::open(path_.str(), options_.pool, kStoreKind, &report_);
    ASSERT_TRUE(impl) << report_.text();
    impl_ = std::move(*impl);
    ASSERT_EQ(impl_->open_store(&report_), Status::ok) << report_.text();
  }
  void TearDown() override {
    if (impl_ == nullptr) return;
    EXPECT_EQ(parts().collections.validate(&report_), Status::ok) << report_.text();
    EXPECT_EQ(impl_->close(), Status::ok);
  }

  StoreParts& parts() { return *StoreParts::of(impl_.get()); }
  Tree& tree() { return *parts().collections.main()->tree; }
  Collection all() { return StoreImpl::handle_of(parts().collections.main()); }
  std::optional<std::string> get(std::string_view key) {
    std::string value;
    const Status s = tree().get(key, value);
    return s == Status::ok ? std::optional(value) : std::nullopt;
  }
  std::uint64_t records() { return tree().count().records; }

  std::unique_ptr<PoolImpl> impl_;
};

TEST_F(KvConditionalTest, put_if_absent_puts_once) {
  EXPECT_EQ(all().put_if_absent("a", "1"), Status::ok);
  EXPECT_EQ(all().put_if_absent("a", "2"), Status::exists);
  EXPECT_EQ(get("a"), "1");
  EXPECT_EQ(records(), 1u);
}

TEST_F(KvConditionalTest, compare_and_swap_changes_only_what_was_expected) {
  EXPECT_EQ(all().compare_and_swap("a", "1", "2"), Status::conflict);
  EXPECT_EQ(all().compare_and_swap("a", std::nullopt, "1"), Status::ok);
  EXPECT_EQ(all().compare_and_swap("a", std::nullopt, "3"), Status::conflict);
  EXPECT_EQ(all().compare_and_swap("a", "1", "2"), Status::ok);
  EXPECT_EQ(get("a"), "2");
  EXPECT_EQ(all().compare_and_swap("a", "1", std::nullopt), Status::conflict);
  EXPECT_EQ(all().compare_and_swap("a", "2", std::nullopt), Status::ok);
  EXPECT_EQ(get("a"), std::nullopt);
  EXPECT_EQ(all().compare_and_swap("a", std::nullopt, std::nullopt), Status::ok);
}

TEST_F(KvConditionalTest, merge_makes_the_new_value_of_the_old_one) {
  const auto append = [](std::optional<std::string_view> old) -> std::optional<std::string> {
    return std::string(old.value_or("")) + "x";
  };
  EXPECT_EQ(all().merge("a", append), Status::ok);
  EXPECT_EQ(all().merge("a", append), Status::ok);
  EXPECT_EQ(get("a"), "xx");
  EXPECT_EQ(all().merge("a", [](auto) { return std::nullopt; }), Status::ok);
  EXPECT_EQ(get("a"), std::nullopt);
  EXPECT_EQ(all().merge("a", [](auto) { return std::nullopt; }), Status::ok);
}

TEST_F(KvConditionalTest, a_decision_may_leave_the_key_with_a_status_of_its_own) {
  ASSERT_EQ(tree().put("a", "1"), Status::ok);
  EXPECT_EQ(tree().put_when("a", [](const Record*) { return Decision{.status = Status::aborted}; }),
            Status::aborted);
  // The caller's own decision, not a conflict with another thread.
  EXPECT_EQ(
      tree().put_when("a", [](const Record*) { return Decision{.status = Status::conflict}; }),
      Status::conflict);
  EXPECT_EQ(tree().put_when("none", [](const Record*) { return Decision{Decision::What::erase}; }),
            Status::not_found);
  EXPECT_EQ(get("a"), "1");
}

TEST_F(KvConditionalTest, conditional_inserts_split_leaves) {
  for (int i = 0; i < 500; ++i)
    ASSERT_EQ(all().put_if_absent(key_of(i * 7919 % 500), "v"), Status::ok);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(all().put_if_absent(key_of(i), "w"), Status::exists);
  EXPECT_EQ(records(), 500u);
}

// A change of another key in the leaf needs no second decision. A change of this key does.
TEST_F(KvConditionalTest, a_change_of_this_key_asks_again_and_of_another_one_does_not) {
  ASSERT_EQ(tree().put("a", "1"), Status::ok);
  int asked = 0;
  const Status s = tree().put_when("a", [&](const Record* old) -> Decision {
    const Status between = ++asked == 1 ? tree().put("b", "2") : Status::ok;
    EXPECT_EQ(between, Status::ok);
    return {Decision::What::put, old == nullptr ? "none" : "some"};
  });
  EXPECT_EQ(s, Status::ok);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(get("a"), "some");
  asked = 0;
  EXPECT_EQ(tree().put_when("a",
                            [&](const Record* old) -> Decision {
                              const Status between = ++asked == 1 ? tree().erase("a") : Status::ok;
                              EXPECT_EQ(between, Status::ok);
                              return {Decision::What::put, old == nullptr ? "none" : "some"};
                            }),
            Status::ok);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(get("a"), "none");
}

TEST_F(KvConditionalTest, threads_that_count_up_lose_nothing) {
  constexpr int kThreads = 4, kRounds = 3000, kCounters = 3;
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::string key = "counter" + std::to_string((i + t) % kCounters);
        const Status s = all().merge(key, [](std::optional<std::string_view> old) {
          return std::to_string(old ? std::stoi(std::string(*old)) + 1 : 1);
        });
        EXPECT_EQ(s, Status::ok);
        won += all().put_if_absent("first" + std::to_string(i), "t") == Status::ok ? 1 : 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  int sum = 0;
  for (int c = 0; c < kCounters; ++c) sum += std::stoi(*get("counter" + std::to_string(c)));
  EXPECT_EQ(sum, kThreads * kRounds);
  EXPECT_EQ(won.load(), kRounds);
}

}  // namespace
}  // namespace tenuto
