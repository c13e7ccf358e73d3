// The image of a tree's index that a clean close leaves for the next open: the lowest inner nodes
// as they were in DRAM, with the leaves' places instead of addresses. With it an open reads no
// leaf, and looks at no separator of a leaf.
//
//   first leaf's separator line   [counts 24][name 8: sealed offset of the image; 0: none]
//   image                         parts of half a MiB, each names the next
//   part                          head, nodes in key order (Node::write), each with its kept leaves
//                                 (KeptLeaf: a checksum, the order of the slots); separators
//   separator                     of each node's first leaf: bytes [4], these
//
// **Authoritative are the leaves.** The image counts only after a clean close, with a sound name,
// and if the checksums of its parts are right. The close writes and flushes image and name before
// its fence "store's counts", which comes before the pool is marked as closed. No thread changes a
// tree that is not open. So while a name stands after a clean close, its image is right. The open
// takes the name away ("image's name"), and only then gives the blocks back, because they may be
// used again at once. They are free when the heap has read its slabs (Heap::Access). If nothing has
// needed the heap until the close, no block was taken or freed since, so leaves and separators are
// as they were: the close names the same image again. After a crash no image is read: recovery
// takes the names away, and frees the blocks, which nothing marks.
//
// **A leaf is compared with what is kept of it** when a thread first comes there (unmade.h). So its
// order is that of the keys of these slots; and a leaf whose last write the medium lost is damage,
// though its older state is whole. Only this open can tell, so it marks the pool
// (kVariantLeafLost), and later ones refuse it. A kill before a thread comes to the leaf leaves it
// unseen.
//
// **The image of the default collection is also compared with the head page**: both say in which
// life, named by the superblock's sequence at its close, the image was left. If they differ, the
// medium has lost the last write of the first leaf or of the head page, and the older image, which
// may be whole, would vouch for older leaves. Other collections have no such second witness,
// because a close leaves the images of those that nobody opened.
//
// An image of another version counts for nothing, but its parts are found, and given back.
//
// An image is a convenience: without memory or space in the pool there is none, and the next open
// walks the chain. So does an open after a crash. A close grows the pool for it, once, by a 32nd,
// which is about what it needs; but a pool of up to 128 MiB not: its smallest growth would be more,
// and its chain is short.
#pragma once

#include <functional>
#include <vector>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// Makes the image of this index, and returns the place of its first part. It is flushed, not
// fenced. An error: there is no room, and nothing is left behind. Throws bad_alloc.
Result<PoolOffset> write_image(const pm::PoolFile& file, heap::Heap& heap, TreeId tree,
                               const Index& index);
// Builds the index, which is empty, from it. `blocks` gets the places of all parts. Else the index
// is still empty: wrong_version, with `blocks`; corrupt: that is no sound image of the tree with
// this first leaf; conflict: it is one of another close. Throws bad_alloc.
Status read_image(pm::PoolFile& file, TreeId tree, PoolOffset first_leaf, PoolOffset at,
                  Index& index, std::vector<PoolOffset>& blocks);
// The clean close that is about to come leaves an image of the default collection. The caller
// flushes the head page's line.
void name_life_of_image(pm::PoolFile& file);
// After a conflict: marks the pool, so that later opens refuse it too. Returns corrupt.
Status image_is_of_another_close(pm::PoolFile& file, PoolOffset first_leaf, Report* report);
// Calls f(place, kept) for each leaf of the image, with null where nothing is kept. An error, and f
// was not called: as for read_image(). For a rescue. Throws bad_alloc.
Status each_kept_leaf(pm::PoolFile& file, TreeId tree, PoolOffset at,
                      const std::function<void(PoolOffset, const KeptLeaf*)>& f);
// The places of all parts, if the image is sound; else none. Throws bad_alloc.
std::vector<PoolOffset> blocks_of_image(const pm::PoolFile& file, TreeId tree, PoolOffset at);

// The name in a tree's first leaf. The caller flushes the line.
void set_image(Leaf& first, PoolOffset image);
// not_found: there is none. corrupt: it is damaged.
Result<PoolOffset> image_of(const Leaf& first);

}  // namespace TENUTO_NS::store
