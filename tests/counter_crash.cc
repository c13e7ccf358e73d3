// The smallest crash test, as a start for others: see tests/support/README.md.
#include <gtest/gtest.h>

#include <string>

#include "support/raw_pool.h"
#include "tenuto/crash.h"
#include "tenuto/persist.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kOperations = 5;

void setup(const std::string& path) { RawPool::create(path, 64 << 10); }

void workload(CrashContext& c) {
  RawPool pool(c.path());
  for (std::uint64_t n = 1; n <= kOperations; ++n) {
    c.invoke();
    pool.at<std::uint64_t>(64) = n;
    flush(pool.at<std::uint64_t>(64));
    fence("word", "counter");
    publish(pool.at<std::uint64_t>(0), n);
    fence("counter", "operation returns");
    c.ack();
  }
}

std::string check(const CrashImage& image) {
  const RawPool pool(image.path());
  const std::uint64_t n = pool.at<std::uint64_t>(0);
  if (n < image.acknowledged() || n > image.invoked()) return "counter is " + std::to_string(n);
  const std::uint64_t word = pool.at<std::uint64_t>(64);
  if (word != n && word != n + 1) return "word is " + std::to_string(word);
  return {};
}

TEST(counter_crash, counter_never_runs_ahead_of_its_word) {
  const CrashResult r = CrashRunner({.seed = 1}).run(setup, workload, check);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_TRUE(r.unexplored().empty());
}

TEST(counter_crash, every_flush_and_fence_is_needed) {
  const MutantReport r = CrashRunner({.seed = 1}).mutants(setup, workload, check);
  EXPECT_TRUE(r.survivors().empty()) << r.text();
}

}  // namespace
}  // namespace tenuto::test
