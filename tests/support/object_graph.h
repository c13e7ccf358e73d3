// Objects with a type that lead to each other in every way that a compaction must change
// (tenuto/compact.h), and to which a root leads.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tenuto/compact.h"
#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"
#include "tenuto/p.h"
#include "tenuto/pool.h"
#include "tenuto/ptr.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace tenuto::test {

inline constexpr std::uint64_t kNodeType = 7;
inline constexpr std::uint64_t kOtherType = 8;

struct GraphNode {
  std::uint64_t number = 0;
  String text;
  Ptr<GraphNode> next;            // a ring over all nodes
  p<GraphNode*> back;             // the reverse
  Ptr<GraphNode> self;            // itself
  Ptr<std::uint64_t> inside;      // into the next one: its number
  Vector<Ptr<GraphNode>> others;  // the next one, twice

  GraphNode() = default;
  GraphNode(Relocation r, GraphNode& from) noexcept
      : number(from.number),
        text(r, from.text),
        next(from.next),
        back(from.back),
        self(from.self),
        inside(from.inside),
        others(r, from.others) {}
  Status release(Transaction& tx) {
    TENUTO_TRY(text.release(tx));
    return others.release(tx);
  }
  void references(const References& visit) const { visit(text, next, back, self, inside, others); }
};

struct GraphRoot {
  OrderedMap<std::uint64_t, Ptr<GraphNode>> by_number;
  Ptr<GraphNode> any;
  VPtr<GraphNode> versioned;
  Ptr<void> hidden;     // read word by word
  std::uint64_t plain;  // is not passed
  void references(const References& visit) const { visit(by_number, any, versioned, hidden); }
};

inline std::string text_of(std::uint64_t number) {
  return "the text of node " + std::to_string(number) + ", in a block of its own";
}

template <class T>
Status assign(Transaction& tx, Ptr<T>& word, T* to) {
  TENUTO_TRY(tx.add(&word, sizeof word));
  word = to;
  return Status::ok;
}
// `next` follows `node` in the ring.
inline Status join(Transaction& tx, GraphNode& node, GraphNode& next) {
  TENUTO_TRY(assign(tx, node.next, &next));
  TENUTO_TRY(assign(tx, node.inside, &next.number));
  for (Ptr<GraphNode>& other : node.others) TENUTO_TRY(assign(tx, other, &next));
  next.back = &node;
  return Status::ok;
}

// Adds a node behind root.any in the ring.
inline Status add_node(Transaction& tx, GraphRoot& root, std::uint64_t number,
                       std::uint64_t type = kNodeType) {
  const Result<void*> block = tx.alloc(sizeof(GraphNode), {.type = type});
  if (!block) return block.error();
  auto* const node = new (*block) GraphNode;
  node->number = number;
  node->self = node;
  TENUTO_TRY(node->text.construct(tx, text_of(number)));
  for (int i = 0; i < 2; ++i) TENUTO_TRY(node->others.push_back(tx, Ptr<GraphNode>(node)));
  GraphNode* const before = root.any.get() != nullptr ? root.any.get() : node;
  GraphNode* const next = before != node ? before->next.get() : node;
  TENUTO_TRY(join(tx, *node, *next));
  TENUTO_TRY(join(tx, *before, *node));
  TENUTO_TRY(root.by_number.insert(tx, number, Ptr<GraphNode>(node)));
  return assign(tx, root.any, node);
}

// Takes it out of everything, and frees it. REQUIRES: it is not the last one.
inline Status remove_node(Transaction& tx, GraphRoot& root, GraphNode* node) {
  GraphNode* const before = node->back.get();
  TENUTO_TRY(join(tx, *before, *node->next));
  TENUTO_TRY(assign(tx, root.any, before));
  TENUTO_TRY(root.by_number.erase(tx, node->number));
  TENUTO_TRY(node->release(tx));
  return tx.free(node);
}

// What is wrong with the graph; empty: it has exactly these numbers, and every pointer leads where
// it should.
inline std::string graph_fault(Pool& pool, const GraphRoot& root,
                               const std::set<std::uint64_t>& numbers) {
  if (root.by_number.size() != numbers.size()) return "the map has another size";
  for (const auto& entry : root.by_number) {
    const GraphNode* const node = entry.value.get();
    const std::string name = "node " + std::to_string(entry.key);
    if (!numbers.contains(entry.key)) return name + " is too many";
    if (!pool.contains(node) || pool.usable_size(node) < sizeof *node) return name + " is no block";
    if (pool.type_of(node) == 0) return name + " has no type";
    if (node->number != entry.key) return name + " has another number";
    if (node->text != text_of(entry.key)) return name + " has another text";
    if (node->self.get() != node) return name + " does not lead to itself";
    const GraphNode* const next = node->next.get();
    if (!pool.contains(next) || pool.usable_size(next) == 0) return name + " has no next one";
    if (next->back.get() != node) return name + " is not the one before its next";
    if (node->inside.get() != &next->number) return name + " does not lead into the next one";
    if (node->others.size() != 2) return name + " has not two others";
    for (const Ptr<GraphNode>& other : node->others) {
      if (other.get() != next) return name + " has another one that is not its next";
    }
  }
  std::size_t ring = 0;
  const GraphNode* at = root.any.get();
  do {
    if (++ring > numbers.size()) return "the ring does not end";
    at = at->next.get();
  } while (at != root.any.get());
  return ring == numbers.size() ? "" : "the ring is shorter than the map";
}

// Zero-filled objects in slabs of which a compaction has something to gain. Nothing leads to them.
inline Status make_sparse_objects(Pool& pool, std::uint64_t bytes, std::uint64_t type) {
  std::vector<void*> made(4000);
  TENUTO_TRY(pool.run([&](Transaction& tx) {
    for (void*& object : made) {
      const Result<void*> block = tx.alloc(bytes, {.zero = true, .type = type});
      if (!block) return block.error();
      object = *block;
    }
    return Status::ok;
  }));
  return pool.run([&](Transaction& tx) {
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (i % 8 != 0) TENUTO_TRY(tx.free(made[i]));
    }
    return Status::ok;
  });
}

inline CompactObjectsOptions graph_options() {
  CompactObjectsOptions o;
  o.root_filter = reference_filter<GraphRoot>();
  o.types[kNodeType] = movable<GraphNode>();
  return o;
}

}  // namespace tenuto::test
