// What a tree counts: an estimate of how many records a range holds, from the inner nodes alone,
// and statistics.
//
// The estimate makes two descents, one for each end of the range. It counts the children between
// them in the nodes that they pass. A child that was not entered counts as many leaves as those
// that were entered.
#include "store/tree/statistics.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace TENUTO_NS::store {

namespace {

// The path to a key: the nodes and the child taken in each, from the root down.
struct Way {
  const Node* node[kLevelsMax];
  unsigned child[kLevelsMax];
  unsigned levels = 0;

  Way(const Node* root, const std::string_view* key, bool to_the_end) {
    for (const Node* n = root;; n = n->node(child[levels - 1])) {
      node[levels] = n;
      child[levels] = key != nullptr ? n->find(*key) : to_the_end ? n->count() - 1u : 0;
      if (levels++, n->level() == 1) return;
    }
  }
  // Leaves under a child of the node at this depth, judged by the nodes below it on the path.
  double leaves_of_child(unsigned depth) const {
    double leaves = 1;
    for (unsigned d = depth + 1; d < levels; ++d) leaves *= node[d]->count();
    return leaves;
  }
  // Leaves to the left of the path, from the node at `depth` down, and half of the last leaf.
  double leaves_left_of(unsigned depth) const {
    double leaves = 0.5;
    for (unsigned d = depth; d < levels; ++d) leaves += child[d] * leaves_of_child(d);
    return leaves;
  }
  double leaves_right_of(unsigned depth) const {
    double leaves = 0.5;
    for (unsigned d = depth; d < levels; ++d) {
      leaves += (node[d]->count() - 1u - child[d]) * leaves_of_child(d);
    }
    return leaves;
  }
};

}  // namespace

double Index::estimate_leaves(const std::string_view* from, const std::string_view* to) const {
  const Node* root = root_.load(std::memory_order_acquire);
  const Way left(root, from, false);
  const Way right(root, to, true);
  unsigned d = 0;
  while (d < left.levels && left.node[d] == right.node[d] && left.child[d] == right.child[d]) ++d;
  // An open end takes the whole of its last leaf.
  double leaves = (from == nullptr ? 0.5 : 0.0) + (to == nullptr ? 0.5 : 0.0);
  if (d == left.levels) return leaves;  // both in one leaf
  const double one = std::sqrt(left.leaves_of_child(d) * right.leaves_of_child(d));
  // A node may have been replaced between the two descents.
  const double between = static_cast<double>(right.child[d]) - left.child[d] - 1;
  leaves += std::max(between, 0.0) * one;
  return leaves + left.leaves_right_of(d + 1) + right.leaves_left_of(d + 1);
}

class Tree::Statistics {
 public:
  explicit Statistics(const Tree& tree) : tree_(tree) {}

  std::uint64_t estimate(std::string_view from, const std::string_view* to) const;
  StoreStats stats() const;

 private:
  void count_record_bytes() const;

  const Tree& tree_;
};

std::uint64_t Tree::Statistics::estimate(std::string_view from, const std::string_view* to) const {
  if (to != nullptr && *to <= from) return 0;
  const EpochGuard guard;
  const double all = tree_.index_.estimate_leaves(nullptr, nullptr);
  const double part = tree_.index_.estimate_leaves(from.empty() ? nullptr : &from, to);
  const auto records = static_cast<double>(tree_.records_at_open_ + tree_.garbage_.records());
  return static_cast<std::uint64_t>(
      std::llround(std::max(0.0, records * std::min(part / all, 1.0))));
}

// Other threads may write meanwhile, and a leaf may have no shadow leaf yet. So it goes from leaf
// to leaf by key, like a cursor. A record that is written after its leaf was read is missing; then
// the sum is not exact. A writer counts what it wrote after others can see it. So the sum is exact
// if the calls that were pinned at its end have returned, and the counts have not changed.
void Tree::Statistics::count_record_bytes() const {
  const std::uint64_t changes = tree_.garbage_.changes();
  std::int64_t bytes = 0;
  std::string from;
  std::vector<Entry> found;
  UpperBound upper;
  do {
    const EpochGuard guard;
    const Place place = tree_.index_.locate(from, Aim::at, &upper);
    const Status s = tree_.leaves_.entries(place, found);
    if (s == Status::conflict) {
      upper = {true, from, nullptr};
      continue;
    }
    if (s != Status::ok) break;  // damage: the pool is read-only from now on
    for (const Entry& e : found) {
      if (e.record.key < from) continue;  // counted before its leaf was merged
      bytes += static_cast<std::int64_t>(e.record.key.size() + e.record.value.size());
    }
    from = upper.key;
  } while (upper.bounded);
  const bool careless = TENUTO_PLANT("store_bytes_counted_beside_writes_are_exact");
  if (careless) ::usleep(1000);
  const bool counted_by_all =
      pinned_calls_are_over() || TENUTO_PLANT("store_bytes_counted_before_their_writers_did");
  tree_.record_bytes_at_open_ = bytes - tree_.garbage_.record_bytes();
  const bool exact = careless || (counted_by_all && tree_.garbage_.changes() == changes);
  tree_.bytes_counted_.store(exact ? Counted::exactly : Counted::about, std::memory_order_release);
}

StoreStats Tree::Statistics::stats() const {
  StoreStats out;
  {
    const std::lock_guard lock(tree_.count_mu_);
    if (tree_.bytes_counted_.load(std::memory_order_acquire) == Counted::no) count_record_bytes();
  }
  const EpochGuard guard;
  const Index::Shape shape = tree_.index_.shape();
  out.records = static_cast<std::uint64_t>(tree_.records_at_open_ + tree_.garbage_.records());
  out.record_bytes =
      static_cast<std::uint64_t>(tree_.record_bytes_at_open_ + tree_.garbage_.record_bytes());
  std::uint64_t shadow_bytes = 0;
  out.leaves = tree_.index_.each_made([&](const ShadowLeaf* shadow) {
    out.shadow_leaves += 1;
    shadow_bytes += tree_.shadows_.bytes_of(*shadow);
  });
  out.inner_nodes = shape.nodes;
  out.height = shape.levels;
  out.index_dram_bytes = shape.bytes + shadow_bytes;
  out.lookup_cache_bytes = tree_.lookups_.bytes();
  out.rebuild_ms = tree_.rebuild_ms_;
  return out;
}

std::uint64_t estimate(const Tree& tree, std::string_view from, const std::string_view* to) {
  return Tree::Statistics(tree).estimate(from, to);
}

StoreStats stats_of(const Tree& tree) { return Tree::Statistics(tree).stats(); }

}  // namespace TENUTO_NS::store
