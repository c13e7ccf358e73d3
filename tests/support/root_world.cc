#include "support/root_world.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/explored_medium.h"
#include "support/pool_parts.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace tenuto::test {

namespace {

struct Node {
  std::uint64_t number;
  Ptr<Node> next;
};

// Generation 0 and 1, which differ by their size only; generation 2, in which numbers are wider and
// a list has its own end; generation 3, which has more room and is an extent.
struct Root0 {
  std::uint64_t number[4];
};
struct Root1 {
  std::uint64_t number[12];
};
struct Root2 {
  std::uint64_t number[12];
  std::uint64_t sum;
  Ptr<Node> list;
  std::uint64_t room[20];
};
struct Root3 {
  std::uint64_t number[12];
  std::uint64_t sum;
  Ptr<Node> list;
  std::uint64_t room[3000];
};
constexpr std::uint64_t kNodes = 3;

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  return on_explored_medium(o);
}

Status to_2(const OldRoot& old, Root2& fresh, Transaction& tx) {
  const auto& was = *static_cast<const Root1*>(old.data);
  if (old.layout != "numbers" || old.bytes != sizeof was) return Status::corrupt;
  for (std::size_t i = 0; i < std::size(was.number); ++i) {
    fresh.number[i] = was.number[i];
    fresh.sum += was.number[i];
  }
  for (std::uint64_t n = 1; n <= kNodes; ++n) {
    Result<Node*> node = tx.make<Node>();
    if (!node) return node.error();
    (*node)->number = n;
    (*node)->next = fresh.list;
    fresh.list = *node;
  }
  return Status::ok;
}

// Frees the first node, too, and changes the second one in place.
Status to_3(const OldRoot& old, Root3& fresh, Transaction& tx) {
  const auto& was = *static_cast<const Root2*>(old.data);
  if (old.layout != "list" || old.bytes != sizeof was) return Status::corrupt;
  for (std::size_t i = 0; i < std::size(was.number); ++i) fresh.number[i] = was.number[i];
  fresh.sum = was.sum;
  Node* const first = was.list.get();
  fresh.list = first->next;
  TENUTO_TRY(tx.add(fresh.list->number));
  fresh.list->number += 100;
  return tx.free(first);
}

// Does step n, from generation n - 1 to n.
Status grow(Pool& pool, std::uint64_t n) {
  Report report;
  switch (n) {
    case 1:
      return pool.grow_root<Root1>("numbers", &report).error();
    case 2:
      return pool.grow_root<Root2>("list", to_2, &report).error();
    default:
      return pool.grow_root<Root3>("list of 3", to_3, &report).error();
  }
}

template <class Root>
std::string check_numbers(Pool& pool, const char* layout, const Root*& out) {
  Report report;
  const Result<Root*> root = pool.root<Root>(layout, &report);
  if (!root) return "root: " + report.text();
  out = *root;
  if (pool.usable_size(out) < sizeof(Root)) return "the root is not allocated";
  for (std::size_t i = 0; i < std::size(out->number); ++i) {
    if (out->number[i] != (i < 4 ? i + 1 : 0)) return "number " + std::to_string(i) + " is lost";
  }
  return {};
}

template <class Root>
std::string check_list(Pool& pool, const char* layout, std::uint64_t nodes) {
  const Root* root = nullptr;
  const std::string why = check_numbers(pool, layout, root);
  if (!why.empty()) return why;
  if (root->sum != 10) return "the sum is " + std::to_string(root->sum);
  for (const std::uint64_t word : root->room) {
    if (word != 0) return "the new room is not zero";
  }
  std::uint64_t n = nodes;
  for (const Node* at = root->list.get(); at != nullptr; at = at->next.get(), --n) {
    if (!pool.contains(at) || pool.usable_size(at) == 0) return "a node is not allocated";
    const std::uint64_t more = nodes < kNodes && n == nodes ? 100 : 0;
    if (n == 0 || at->number != n + more) return "a node has the wrong number";
  }
  return n == 0 ? "" : "the list is too short";
}

std::string check(const CrashImage& image) {
  Report report;
  Result<Pool> pool = Pool::open(image.path(), tiny(), &report);
  if (!pool) return "open: " + report.text();
  const std::string layout = pool->info().layout;
  std::uint64_t shown = layout == "list" ? 2 : layout == "list of 3" ? 3 : 0;
  if (shown == 0 && pool->root<Root0>("numbers", &report)) {
    shown = 0;
  } else if (shown == 0) {
    shown = 1;
  }
  if (shown < image.acknowledged() || shown > image.invoked()) {
    return "generation " + std::to_string(shown);
  }
  std::string why;
  if (shown == 1) {
    const Root1* root = nullptr;
    why = check_numbers(*pool, "numbers", root);
  } else if (shown > 1) {
    why = shown == 2 ? check_list<Root2>(*pool, "list", kNodes)
                     : check_list<Root3>(*pool, "list of 3", kNodes - 1);
  }
  if (!why.empty()) return why;
  const std::uint64_t objects = shown < 2 ? 1 : shown == 2 ? 1 + kNodes : kNodes;
  if (pool->stats().objects != objects) {
    return std::to_string(pool->stats().objects) + " objects, not " + std::to_string(objects);
  }
  if (pool->validate(&report) != Status::ok) return "validate: " + report.text();
  image.recovered();
  for (std::uint64_t n = shown + 1; n <= 3; ++n) {
    if (grow(*pool, n) != Status::ok) return "it does not grow any more";
  }
  why = check_list<Root3>(*pool, "list of 3", kNodes - 1);
  if (why.empty() && pool->stats().objects != kNodes) why = "a later growth leaks";
  return why;
}

}  // namespace

CrashOptions root_growth_options() {
  CrashOptions o;
  o.product_max = 100;
  o.samples_max = 40;
  o.recovery_states_max = 5;
  o.points_percent = 30;
  return o;
}

CrashResult explore_root_growth(const CrashOptions& options) {
  return CrashRunner(options).run(
      [](const std::string& path) {
        Result<Pool> pool = Pool::create(path, tiny());
        ASSERT_TRUE(pool);
        Root0& root = **pool->root<Root0>("numbers");
        ASSERT_EQ(pool->run([&](Transaction& tx) {
          TENUTO_TRY(tx.add(root));
          for (std::size_t i = 0; i < 4; ++i) root.number[i] = i + 1;
          return Status::ok;
        }),
                  Status::ok);
        ASSERT_EQ(pool->close(), Status::ok);
      },
      [](CrashContext& c) {
        Result<Pool> pool = Pool::open(c.path(), tiny());
        ASSERT_TRUE(pool);
        for (std::uint64_t n = 1; n <= 3; ++n) {
          c.invoke();
          ASSERT_EQ(grow(*pool, n), Status::ok);
          c.ack();
        }
      },
      check);
}

}  // namespace tenuto::test
