// Which crash states the explorer tries, on structures where they can be counted by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "support/explorer_parts.h"

namespace tenuto::test {
namespace {

// Explores the fences of `stores` and the end, on a fresh pool.
CrashResult count(const CrashOptions& options, const std::function<void(RawPool&)>& stores) {
  return CrashRunner(options).run(
      make_pool,
      [&](CrashContext& c) {
        RawPool pool(c.path());
        stores(pool);
      },
      all_is_well);
}

TEST(explorer_counts, release_stores_of_a_line_survive_as_a_prefix) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    for (std::uint64_t i = 0; i < 5; ++i) store_ordered(p.at<std::uint64_t>(8 * i), i + 1);
  });
  EXPECT_EQ(r.points, 1u);
  EXPECT_EQ(r.unique, 6u);
}

TEST(explorer_counts, plain_stores_of_a_line_survive_in_any_order) {
  const auto stores = [](RawPool& p) {
    for (std::uint64_t i = 0; i < 3; ++i) p.at<volatile std::uint64_t>(8 * i) = i + 1;
  };
  EXPECT_EQ(count(counting(), stores).unique, 8u);
  CrashOptions in_order = counting();
  in_order.reorder_stores = false;
  EXPECT_EQ(count(in_order, stores).unique, 4u);
}

TEST(explorer_counts, halves_of_a_word_are_stored_apart) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    p.at<volatile std::uint32_t>(0) = 1;
    p.at<volatile std::uint32_t>(4) = 1;
  });
  EXPECT_EQ(r.unique, 4u);
}

TEST(explorer_counts, a_release_store_orders_the_plain_stores_before_it) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    p.at<volatile std::uint64_t>(8) = 1;
    p.at<volatile std::uint64_t>(16) = 2;
    store_ordered(p.at<std::uint64_t>(0), 3u);
  });
  EXPECT_EQ(r.unique, 5u);  // 4 subsets, then everything
}

TEST(explorer_counts, lines_are_independent) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    p.at<volatile std::uint64_t>(0) = 1;
    store_ordered(p.at<std::uint64_t>(64), 1u);
    store_ordered(p.at<std::uint64_t>(72), 1u);
    store_ordered(p.at<std::uint64_t>(640), 1u);
    store_ordered(p.at<std::uint64_t>(640), 2u);
    store_ordered(p.at<std::uint64_t>(640), 3u);
  });
  EXPECT_EQ(r.unique, 2u * 3u * 4u);
}

TEST(explorer_counts, a_fenced_flush_is_durable_and_an_unfenced_one_is_not) {
  const auto stores = [](bool with_fence) {
    return [with_fence](RawPool& p) {
      publish(p.at<std::uint64_t>(0), 1u);
      publish(p.at<std::uint64_t>(64), 1u);
      if (with_fence) fence("two words", "the end");
    };
  };
  const CrashResult unfenced = count(counting(), stores(false));
  EXPECT_EQ(unfenced.points, 1u);
  EXPECT_EQ(unfenced.unique, 4u);
  const CrashResult fenced = count(counting(), stores(true));
  EXPECT_EQ(fenced.points, 2u);
  EXPECT_EQ(fenced.states, 4u + 1u);
}

TEST(explorer_counts, a_store_after_the_flush_is_not_covered_by_it) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    publish(p.at<std::uint64_t>(0), 1u);
    store_ordered(p.at<std::uint64_t>(0), 2u);
    fence("first value", "the end");
  });
  EXPECT_EQ(r.states, 3u + 2u);  // before the fence 0, 1, 2; at the end 1, 2
}

TEST(explorer_counts, a_fence_orders_only_its_own_threads_flushes) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    publish(p.at<std::uint64_t>(0), 1u);
    std::thread([] { fence("nothing of mine", "the end"); }).join();
  });
  EXPECT_EQ(r.states, 2u + 2u);
}

TEST(explorer_counts, a_locked_instruction_completes_flushes_when_the_contract_says_so) {
  const auto stores = [](RawPool& p) {
    publish(p.at<std::uint64_t>(0), 1u);
    std::mutex m;
    const std::lock_guard lock(m);
  };
  EXPECT_EQ(count(counting(), stores).states, 2u);
  CrashOptions o = counting();
  o.locked_instructions_fence = true;
  EXPECT_EQ(count(o, stores).states, 2u + 1u);
}

TEST(explorer_counts, a_large_product_is_sampled_with_every_line_alone) {
  CrashOptions o = counting();
  o.product_max = 100;
  o.samples_max = 50;
  const CrashResult r = count(o, [](RawPool& p) {
    for (std::uint64_t i = 0; i < 20; ++i) store_ordered(p.at<std::uint64_t>(64 * i), 1u);
  });
  // None, all, 20 points in time, 20 with one new line, 20 with one old line, and some samples.
  EXPECT_GE(r.unique, 2u + 18u + 20u + 20u);
  EXPECT_LE(r.states, 2u + 20u + 40u + 50u);
}

TEST(explorer_counts, equal_images_with_equal_models_are_judged_once) {
  const auto work = [](bool tell) {
    return [tell](CrashContext& c) {
      RawPool pool(c.path());
      if (tell) c.invoke();
      publish(pool.at<std::uint64_t>(0), 1u);
      fence("a word", "nothing");
      fence("nothing", "nothing");
    };
  };
  EXPECT_EQ(CrashRunner(counting()).run(make_pool, work(true), all_is_well).unique, 2u);
  EXPECT_EQ(CrashRunner(counting()).run(make_pool, work(false), all_is_well).unique, 4u);
}

TEST(explorer_counts, growth_of_the_file_is_followed) {
  const CrashResult r =
      CrashRunner(counting())
          .run(
              make_pool,
              [](CrashContext& c) {
                RawPool pool(c.path());
                pool.grow(kPoolBytes * 2);
                publish(pool.at<std::uint64_t>(kPoolBytes + 64), 7u);
                fence("new part", "the end");
              },
              [](const CrashImage& image) -> std::string {
                RawPool pool(image.path());
                if (pool.bytes() != kPoolBytes * 2) return "the image did not grow";
                pool.grow(kPoolBytes * 4);  // the explorer takes back what recovery adds
                pool.at<std::uint64_t>(kPoolBytes * 3) = 1;
                return pool.at<std::uint64_t>(kPoolBytes + 64) % 7 == 0 ? "" : "torn";
              });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_EQ(r.states, 3u);
}

}  // namespace
}  // namespace tenuto::test
