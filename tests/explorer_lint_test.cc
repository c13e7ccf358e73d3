// What the traced build finds without any crash: missing flushes, and needless ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/explorer_parts.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Runs a workload without crashes.
CrashResult watch(const CrashRunner::Workload& workload) {
  CrashOptions o = counting();
  o.points_percent = 1;
  return CrashRunner(o).run(make_pool, workload, all_is_well);
}

void publish_promise(const RawPool& pool, std::uint64_t n) {
  publish(pool.at<std::uint64_t>(0), n);
  fence("promise", "promise kept");
}

TEST(explorer_lint, a_line_not_flushed_before_the_fence_behind_a_publish_is_named) {
  const CrashResult r = watch([](CrashContext& c) {
    const RawPool pool(c.path());
    for (std::uint64_t n = 1; n <= 3; ++n) {
      pool.at<std::uint64_t>(640) = n;
      publish_promise(pool, n);
    }
  });
  ASSERT_THAT(r.forgotten, SizeIs(1));
  EXPECT_EQ(r.forgotten[0].line, 640u);
  EXPECT_EQ(r.forgotten[0].count, 3u);
  EXPECT_THAT(r.forgotten[0].place, HasSubstr("explorer_lint_test.cc:"));
  EXPECT_THAT(r.forgotten[0].when,
              HasSubstr("fence(\"promise\", \"promise kept\") behind publish"));
  EXPECT_THAT(r.forgotten[0].when, HasSubstr("publish_promise explorer_lint_test.cc:"));
  EXPECT_FALSE(r.ok());
}

TEST(explorer_lint, flushed_late_or_declared_transient_or_stored_later_is_fine) {
  const CrashResult r = watch([](CrashContext& c) {
    const RawPool pool(c.path());
    pool.at<std::uint64_t>(640) = 1;
    publish(pool.at<std::uint64_t>(0), 1);
    flush(pool.at<std::uint64_t>(640));  // late, but under the same fence
    fence("promise", "promise kept");
    pool.at<std::uint64_t>(704) = 1;
    transient(&pool.at<std::uint64_t>(704), 8);
    publish(pool.at<std::uint64_t>(0), 2);
    pool.at<std::uint64_t>(768) = 1;  // no later store publishes it yet
    fence("promise", "promise kept");
    flush(pool.at<std::uint64_t>(768));
    publish_promise(pool, 3);
  });
  EXPECT_THAT(r.forgotten, IsEmpty()) << r.text();
}

TEST(explorer_lint, what_an_acknowledged_operation_left_unflushed_is_named) {
  const CrashResult r = watch([](CrashContext& c) {
    const RawPool pool(c.path());
    c.invoke();
    pool.at<std::uint64_t>(640) = 1;
    c.ack();
  });
  ASSERT_THAT(r.forgotten, SizeIs(1));
  EXPECT_THAT(r.forgotten[0].when, HasSubstr("acknowledged"));
}

TEST(explorer_lint, flushes_and_fences_that_do_nothing_are_counted_by_place) {
  const CrashResult r = watch([](CrashContext& c) {
    const RawPool pool(c.path());
    pool.at<std::uint64_t>(640) = 1;
    flush(pool.at<std::uint64_t>(640));
    flush(pool.at<std::uint64_t>(640));  // clean
    pool.at<std::uint64_t>(640) = 2;
    flush(pool.at<std::uint64_t>(640));  // again
    fence("needed", "use");
    fence("needless", "use");
  });
  ASSERT_THAT(r.wasted, SizeIs(2)) << r.cost_text();
  EXPECT_EQ(r.wasted[0].clean, 1u);
  EXPECT_EQ(r.wasted[0].reflush, 0u);
  EXPECT_EQ(r.wasted[1].clean, 0u);
  EXPECT_EQ(r.wasted[1].reflush, 1u);
  EXPECT_THAT(r.wasted[0].place, HasSubstr("explorer_lint_test.cc:"));
  EXPECT_THAT(r.cost_text(),
              HasSubstr("fence(\"needless\", \"use\") had nothing to wait for 1 of 1"));
}

struct Root {
  std::uint64_t added, forgotten;
  std::uint64_t filler[30];
  std::uint64_t far;
};

TEST(explorer_lint, what_a_transaction_changed_and_never_added_is_named) {
  CrashOptions o = counting();
  o.points_percent = 1;
  const CrashResult r = CrashRunner(o).run(
      [](const std::string& path) {
        Pool pool = Pool::create(path, {.size = kPoolBytesMin}).value();
        (void)pool.root<Root>("lint").value();
      },
      [](CrashContext& c) {
        Pool pool = Pool::open(c.path()).value();
        Root& root = *pool.root<Root>("lint").value();
        {
          Transaction tx(pool);
          (void)tx.add(root.added);
          root.added = 1;
          root.far = 1;  // another line, which the transaction did not add
          (void)tx.make<Root>(Root{1, 2, {}, 3}).value();
          ASSERT_EQ(tx.commit(), Status::ok);
        }
        Transaction tx(pool);
        (void)tx.add(root.added);
        root.added = 2;
        tx.abort();
      },
      all_is_well);
  ASSERT_THAT(r.forgotten, SizeIs(1)) << r.text();
  EXPECT_THAT(r.forgotten[0].when, HasSubstr("commit"));
  EXPECT_THAT(r.forgotten[0].place, HasSubstr("explorer_lint_test.cc:"));
}

// What is forgotten by a thread that has a transaction in each of two pools at once.
std::vector<ForgottenStore> in_two_pools(bool adds) {
  CrashOptions o = counting();
  o.points_percent = 1;
  o.files = 2;
  return CrashRunner(o)
      .run(
          [](const std::string& path) {
            for (const std::size_t f : {0, 1}) {
              Pool pool = Pool::create(crash_path(path, f), {.size = kPoolBytesMin}).value();
              (void)pool.root<Root>("lint").value();
            }
          },
          [=](CrashContext& c) {
            Pool zero = Pool::open(c.path()).value();
            Pool one = Pool::open(c.path(1)).value();
            Root& in_zero = *zero.root<Root>("lint").value();
            Root& in_one = *one.root<Root>("lint").value();
            Transaction first(zero);
            Transaction second(one);
            (void)first.add(in_zero.added);
            in_zero.added = 1;
            if (adds) (void)second.add(in_one.far);
            in_one.far = 1;
            ASSERT_EQ(first.commit(), Status::ok);
            ASSERT_EQ(second.commit(), Status::ok);
          },
          all_is_well)
      .forgotten;
}

TEST(explorer_lint, transactions_of_two_pools_are_judged_when_both_have_ended) {
  EXPECT_THAT(in_two_pools(true), IsEmpty());
  const auto forgotten = in_two_pools(false);
  ASSERT_THAT(forgotten, SizeIs(1));
  EXPECT_EQ(forgotten[0].file, 1u);
  EXPECT_THAT(forgotten[0].when, HasSubstr("commit"));
}

}  // namespace
}  // namespace tenuto::test
