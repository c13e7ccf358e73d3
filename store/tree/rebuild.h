// How a tree begins and ends its life in a process: made empty, opened, closed.
#pragma once

#include <memory>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// An empty tree. Its first leaf is written and flushed, not fenced. Nothing durable names it, so
// recovery frees it after a crash.
Result<std::unique_ptr<Tree>> make_tree(Ground& ground, TreeId id, KeyOrder order);
// Builds the tree with this first leaf. After a crash (clean == false) it finishes half-done splits
// and names every block of the tree to the heap. Then call it after the recovery of tx and before
// Heap::finish_recovery. It reads no record and no slot. corrupt: the report names the leaf.
// `parallel`: by the threads of the calling thread's arena (oneTBB).
Result<std::unique_ptr<Tree>> rebuild_tree(Ground& ground, TreeId id, PoolOffset first_leaf,
                                           KeyOrder order, bool clean, bool parallel,
                                           Report* report);
// Gives all retired blocks back and writes the counts. The counts are flushed; the caller fences
// before the pool is marked as closed. REQUIRES: no reader, no writer.
// `as_found`: nothing took or freed a block since the open, which built the tree from an image.
// Then it names that image again, instead of making one.
void close_tree(Tree& tree, bool as_found);
// Parts of the image from which the open built the tree; 0: there was none.
std::size_t image_parts(const Tree& tree);

}  // namespace TENUTO_NS::store
