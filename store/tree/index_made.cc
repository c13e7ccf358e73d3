// How all nodes of an index are made, from the leaves upwards, before any thread can see them, and
// how they are destroyed.
#include <array>
#include <utility>

#include "pm/assert.h"
#include "store/tree/index.h"

namespace TENUTO_NS::store {

void DestroyNodes::operator()(Node* node) const {
  if (node->level() > 1) {
    for (unsigned i = 0; i < node->count(); ++i) (*this)(node->node(i));
  }
  Node::destroy(node);
}

namespace {

// Nodes made so far. The destructor frees them unless keep() was called, also after a failed
// allocation.
class NodesMade {
 public:
  explicit NodesMade(std::vector<Node*> nodes = {}) : made_(std::move(nodes)) {}
  ~NodesMade() {
    for (Node* node : made_) Node::destroy(node);
  }
  NodesMade(const NodesMade&) = delete;
  NodesMade& operator=(const NodesMade&) = delete;

  Node* make(unsigned level, const NodeShape& row, std::size_t from, std::size_t to) {
    made_.push_back(nullptr);
    return made_.back() = Node::make(level, row, from, to);
  }
  void keep() { made_.clear(); }
  const std::vector<Node*>& nodes() const { return made_; }

 private:
  std::vector<Node*> made_;
};

}  // namespace

Index::~Index() { const NodesAbove all(root_.load(std::memory_order_acquire)); }

void Index::build(const std::vector<void*>& leaves, std::vector<std::string> separators) {
  root_.store(nodes_above(leaves, std::move(separators)).release(), std::memory_order_release);
}

// The only leaf is locked, and a thread that changes a node has locked a leaf below it. So no other
// thread changes nodes here.
void Index::adopt(NodesAbove made) {
  std::array<Node*, kLevelsMax> old;
  std::size_t olds = 0;
  for (Node* n = root_.load(std::memory_order_acquire);; n = n->node(0)) {
    TENUTO_ASSERT(n->count() == 1);
    old[olds++] = n;
    if (n->level() == 1) break;
  }
  root_mu_.lock();
  for (std::size_t i = 0; i < olds; ++i) old[i]->set_obsolete();
  set_root(made.release());
  for (std::size_t i = 0; i < olds; ++i) retire_(old[i]);
}

namespace {
// Makes nodes above the row, from this level on. The row's first separator is not used.
NodesAbove made_above(NodesMade& made, NodeShape row, unsigned first_level) {
  row.seps.erase(row.seps.begin());
  // Not quite full, so that the first splits after an open do not cascade.
  constexpr std::size_t kFill = kFanout * 7 / 8;
  for (unsigned level = first_level;; ++level) {
    TENUTO_ASSERT(level < kLevelsMax);
    NodeShape above;
    const std::size_t n = row.children.size();
    const std::size_t nodes = (n + kFill - 1) / kFill;
    for (std::size_t i = 0; i < nodes; ++i) {
      const std::size_t from = n * i / nodes;
      const std::size_t to = n * (i + 1) / nodes;
      above.children.push_back(made.make(level, row, from, to));
      if (i > 0) above.seps.push_back(row.seps[from - 1]);
    }
    if (nodes == 1) {
      made.keep();
      return NodesAbove(static_cast<Node*>(above.children[0]));
    }
    row = std::move(above);
  }
}
}  // namespace

NodesAbove Index::nodes_above(const std::vector<void*>& leaves,
                              std::vector<std::string> separators) {
  NodesMade made;
  return made_above(made, {std::move(separators), leaves}, 1);
}

void Index::build_above(std::vector<Node*> nodes, std::vector<std::string> separators) {
  NodesMade made(std::move(nodes));
  NodeShape row{std::move(separators), {made.nodes().begin(), made.nodes().end()}};
  if (row.children.size() == 1) {
    root_.store(made.nodes()[0], std::memory_order_release);
    made.keep();
    return;
  }
  root_.store(made_above(made, std::move(row), 2).release(), std::memory_order_release);
}

}  // namespace TENUTO_NS::store
