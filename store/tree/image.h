// The image of a tree's leaves that a clean close leaves for the next open: the leaf's place and
// low separator for each, in the order of keys. With it an open reads no leaf.
//
//   first leaf's separator line   [counts 24][name 8: sealed offset of the image; 0: none]
//   image                         head, a word for each leaf (UnmadeLeaf), separators
//   separator                     bytes shared with the one before, bytes that follow, these
//
// **Authoritative are the leaves.** The image counts only after a clean close, with a sound name,
// and if its own checksum is right. The close writes and flushes image and name before its fence
// "store's counts", which comes before the pool is marked as closed. No thread changes a tree that
// is not open. So while a name stands after a clean close, its image is right. The open takes the
// name away ("image's name"), and only then gives the block back, because the block may be used
// again at once. After a crash no image is read: recovery takes the names away, and frees the
// blocks, which nothing marks.
//
// An image is a convenience: without memory or free space in the pool (a close does not grow it)
// there is none, and the next open walks the chain. So does an open after a crash.
#pragma once

#include <string>
#include <vector>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// The children of the lowest nodes and their separators.
struct LeafList {
  std::vector<void*> children;
  std::vector<std::string> lows;
};

// Makes the image of these leaves. The block is flushed, not fenced. none: there is no room.
// Throws bad_alloc.
Result<PoolOffset> write_image(const pm::PoolFile& file, heap::Heap& heap, TreeId tree,
                               const LeafList& leaves);
// False: the block is no sound image of this tree.
bool read_image(const pm::PoolFile& file, TreeId tree, PoolOffset at, LeafList& out);

// The name in a tree's first leaf. The caller flushes the line.
void set_image(Leaf& first, PoolOffset image);
// not_found: there is none. corrupt: it is damaged.
Result<PoolOffset> image_of(const Leaf& first);

}  // namespace TENUTO_NS::store
