#include "support/compact_objects_world.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "support/explored_medium.h"
#include "support/object_graph.h"
#include "support/pool_parts.h"

namespace tenuto::test {

namespace {

constexpr std::uint64_t kMade = 1600;  // some slabs full
constexpr std::uint64_t kShare = 150;  // one of so many stays

PoolOptions sparse_pool(Consistency consistency) {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = 8u << 20;
  o.consistency = consistency;
  o.root_filter = reference_filter<GraphRoot>();
  return on_explored_medium(o);
}

// The last step adds a node; the others move some.
constexpr std::uint64_t kSteps = 3;
std::set<std::uint64_t> numbers_after(std::uint64_t steps) {
  std::set<std::uint64_t> all;
  for (std::uint64_t n = kShare; n <= kMade; n += kShare) all.insert(n);
  if (steps == kSteps) all.insert(1);
  return all;
}

GraphRoot& graph(Pool& pool) { return **pool.root<GraphRoot>("graph"); }

// One slab first, then all.
Status compact(Pool& pool, std::uint64_t moves_max) {
  CompactObjectsOptions o = graph_options();
  o.moves_max = moves_max;
  o.threads = 1;
  return pool.compact(o).error();
}
Status do_step(Pool& pool, std::uint64_t step) {
  if (step < kSteps) return compact(pool, step == 1 ? 1 : 0);
  return pool.run([&](Transaction& tx) { return add_node(tx, graph(pool), 1); });
}

std::string fault(Pool& pool, const std::set<std::uint64_t>& numbers) {
  std::string wrong = graph_fault(pool, graph(pool), numbers);
  if (!wrong.empty()) return wrong;
  Report report;
  if (pool.validate(&report) != Status::ok) return "validate: " + report.text();
  GarbageOptions exact;
  exact.root_filter = reference_filter<GraphRoot>();
  exact.threads = 1;
  const Result<Garbage> g = pool.find_garbage(exact, &report);
  if (!g) return "find_garbage: " + report.text();
  return g->lost.empty() && g->walked.empty() ? "" : "an object leaked";
}

std::string check(const CrashImage& image, const PoolOptions& options) {
  Report report;
  Result<Pool> pool = Pool::open(image.path(), options, &report);
  if (!pool) return "open: " + report.text();
  const std::uint64_t size = graph(*pool).by_number.size();
  const bool last = size == numbers_after(kSteps).size();
  if (last ? image.invoked() < kSteps : image.acknowledged() >= kSteps) return "a node is lost";
  const std::set<std::uint64_t> numbers = numbers_after(last ? kSteps : 0);
  std::string wrong = fault(*pool, numbers);
  if (!wrong.empty()) return wrong;
  image.recovered();
  if (compact(*pool, 0) != Status::ok) return "it is not compacted any more";
  wrong = fault(*pool, numbers);
  return wrong.empty() ? wrong : "after another compaction: " + wrong;
}

}  // namespace

CrashOptions compacted_objects_options() {
  CrashOptions o;
  o.product_max = 60;
  o.samples_max = 30;
  o.recovery_states_max = 3;
  o.points_percent = 20;
  return o;
}

CrashResult explore_compacted_objects(const CrashOptions& options, Consistency consistency) {
  const PoolOptions pool_options = sparse_pool(consistency);
  return CrashRunner(options).run(
      [&](const std::string& path) {
        Result<Pool> pool = Pool::create(path, pool_options);
        ASSERT_TRUE(pool);
        GraphRoot& root = graph(*pool);
        for (std::uint64_t n = 1; n <= kMade; ++n) {
          ASSERT_EQ(pool->run([&](Transaction& tx) { return add_node(tx, root, n); }), Status::ok);
        }
        for (std::uint64_t n = 1; n <= kMade; ++n) {
          if (n % kShare == 0) continue;
          ASSERT_EQ(pool->run([&](Transaction& tx) {
            return remove_node(tx, root, root.by_number.find(n)->value.get());
          }),
                    Status::ok);
        }
        ASSERT_EQ(pool->close(), Status::ok);
      },
      [&](CrashContext& c) {
        Result<Pool> pool = Pool::open(c.path(), pool_options);
        ASSERT_TRUE(pool);
        for (std::uint64_t step = 1; step <= kSteps; ++step) {
          c.invoke();
          ASSERT_EQ(do_step(*pool, step), Status::ok);
          c.ack();
        }
      },
      [&](const CrashImage& image) { return check(image, pool_options); });
}

}  // namespace tenuto::test
