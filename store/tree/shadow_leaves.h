// Where the shadow leaves of a pool are: in a table in which a shadow leaf's place follows from its
// leaf's, and the other way round.
//
//   pool     | slab: leaf, leaf, ... | records | slab: leaf, leaf, ... |        leaves of 512 bytes
//   table    | group 1: 128 shadows  | group 2: 128 shadows  |                  side by side
//
// Each 64 KiB of the pool in which there is a leaf has a group; two short lists lead from one to
// the other. Two leaves never begin in the same 512 bytes, so each has a shadow leaf of its own in
// its group. A thread that knows a shadow leaf can ask for lines of the leaf before it has read
// anything of either. And a shadow leaf needs no memory of its own: it lives exactly as long as the
// block of its leaf. A block is handed out again only when no thread can see the old leaf any more
// (epoch.h), and that holds for its shadow leaf, too.
//
// Groups are made one behind the other, so the table is dense: it is in large pages, but for its
// first 2 MiB. The table is writable as far as there are groups: a system that counts writable
// memory (vm.overcommit_memory 2) counts no more. A second table, in the same order, has the heads
// of the leaves' keys (slot_order.h), so that those who need none of them touch none.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "file/pool_file.h"
#include "pm/zero_pages.h"
#include "store/tree/shadow_leaf.h"

namespace TENUTO_NS::store {

class ShadowLeaves {
 public:
  // In a pool on a disk each has slot words of its own (shadow_leaf.h).
  explicit ShadowLeaves(const pm::PoolFile& file);
  ~ShadowLeaves();
  ShadowLeaves(const ShadowLeaves&) = delete;
  ShadowLeaves& operator=(const ShadowLeaves&) = delete;

  // False: the system refused the address space, and nothing else may be called.
  bool there() const { return shadows_.first && heads_.first && group_pages_ && unit_pages_; }
  bool with_words() const { return with_words_; }
  std::size_t bytes_each() const { return std::size_t{1} << shift_; }

  // Of the memory that a shadow leaf and its heads take.
  std::size_t bytes_of(const ShadowLeaf& shadow) const {
    return bytes_each() + (shadow.order.has_heads() ? sizeof(SlotHeads) : 0);
  }

  // REQUIRES: cover() was called for it.
  ShadowLeaf& of(PoolOffset leaf) const {
    const std::uint64_t group = groups_[leaf.value / kUnitBytes].load(std::memory_order_acquire);
    return *reinterpret_cast<ShadowLeaf*>(
        shadows_.first +
        ((group * kGroupLeaves + leaf.value % kUnitBytes / sizeof(Leaf)) << shift_));
  }
  // Of a shadow leaf in this table.
  SlotHeads& heads_of(const ShadowLeaf& shadow) const {
    return reinterpret_cast<SlotHeads*>(heads_.first)[index_of(shadow)];
  }
  // Makes its place usable. Throws bad_alloc.
  void cover(PoolOffset leaf) {
    if (groups_[leaf.value / kUnitBytes].load(std::memory_order_acquire) == 0) [[unlikely]]
      make_group(leaf);
  }
  // cover() and of(), and the shadow leaf is unlocked and has no entries. REQUIRES: no other thread
  // sees the leaf yet, or still.
  ShadowLeaf& fresh(PoolOffset leaf);
  // An empty one that is no leaf's yet, to be filled and then shown by put().
  void clear(ShadowLeafWithWords& shadow) const;
  // Puts one that was filled elsewhere into its place. REQUIRES: as fresh(), and cover().
  ShadowLeaf& put(const ShadowLeafWithWords& filled);

  // These read no line of the shadow leaf, so they do not wait for one. Its slot words: those that
  // a search or a walk will read. Its lines: all of them.
  void prefetch_words(const ShadowLeaf& shadow) const {
    const SlotWord* const words = words_hint(shadow);
    for (unsigned i = 0; i < kSlots; i += kSlotsPerLine) __builtin_prefetch(words + i);
  }
  void prefetch_word(const ShadowLeaf& shadow, unsigned slot) const {
    __builtin_prefetch(words_hint(shadow) + slot);
  }
  void prefetch(const ShadowLeaf& shadow) const {
    __builtin_prefetch(&shadow);
    __builtin_prefetch(&shadow.order);
    prefetch_words(shadow);
  }
  // What an insert needs beside that.
  void prefetch_order(const ShadowLeaf& shadow) const {
    __builtin_prefetch(&shadow.order);
    const auto* const heads = reinterpret_cast<const char*>(&heads_of(shadow));
    for (std::size_t at = 0; at < sizeof(SlotHeads); at += kLineBytes) {
      __builtin_prefetch(heads + at);
    }
  }

 private:
  static constexpr std::uint64_t kUnitBytes = 64u << 10;
  static constexpr std::uint64_t kGroupLeaves = kUnitBytes / sizeof(Leaf);

  // Address space, of which the first part is writable.
  struct Table {
    void* mapped = nullptr;
    char* first = nullptr;  // of group 0, which is nobody's
    std::size_t writable = 0;

    void map(std::size_t bytes);
    void unmap(std::size_t bytes);
    bool make_writable(std::size_t end);
  };

  std::size_t index_of(const ShadowLeaf& shadow) const {
    return static_cast<std::size_t>(reinterpret_cast<const char*>(&shadow) - shadows_.first) >>
           shift_;
  }
  // In the pool's address space, or behind the shadow leaf, whatever that is now.
  const SlotWord* words_hint(const ShadowLeaf& shadow) const {
    if (with_words_) return reinterpret_cast<const SlotWord*>(&shadow + 1);
    const std::uint64_t i = index_of(shadow);
    const std::uint64_t unit = units_[i / kGroupLeaves].load(std::memory_order_relaxed);
    return file_
        .at<Leaf>({unit * kUnitBytes + i % kGroupLeaves * sizeof(Leaf) +
                   skew_.load(std::memory_order_relaxed)})
        ->slot;
  }
  std::size_t table_bytes(std::size_t each) const;
  void make_group(PoolOffset leaf);
  ShadowLeaf& place_of(PoolOffset leaf);
  void set_empty(ShadowLeaf& shadow) const;

  const pm::PoolFile& file_;
  const bool with_words_;
  const unsigned shift_;  // log2 of bytes_each()
  const pm::ZeroPages group_pages_;
  const pm::ZeroPages unit_pages_;
  std::atomic<std::uint32_t>* const groups_;  // of each 64 KiB; 0: none
  std::atomic<std::uint32_t>* const units_;   // the other way round
  std::mutex mu_;
  // Guarded by mu_, but for the places of the tables, which are constant.
  std::uint32_t groups_made_ = 0;
  Table shadows_;
  Table heads_;
  // Where a leaf begins in its 512 bytes. All leaves of a pool are alike: it depends on the slabs.
  std::atomic<std::uint32_t> skew_{0};
};

}  // namespace TENUTO_NS::store
