// Where the shadow leaves of a pool are: one table over the pool's whole address space, in which a
// shadow leaf's place follows from its leaf's.
//
//   pool      | .. | leaf o        | leaf o + 512  | ..      blocks of 512 bytes, side by side in
//   slabs table     | .. | shadow of o   | its neighbour | ..      shadow i  <->  bytes 512 i ..
//   512 i + 511
//
// Two leaves never begin in the same 512 bytes, so each has a place of its own. Only touched pages
// of the table exist, and only the part for the pool's present size may be touched: a system that
// counts writable memory (vm.overcommit_memory 2) counts no more. A thread that knows a shadow leaf
// can ask for lines of the leaf before it has read anything of either. And a shadow leaf needs no
// memory of its own: it lives exactly as long as the block of its leaf. A block is handed out again
// only when no thread can see the old leaf any more (epoch.h), and that holds for its shadow leaf,
// too.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

#include "file/pool_file.h"
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
  bool there() const { return first_ != nullptr; }
  bool with_words() const { return with_words_; }
  std::size_t bytes_each() const { return std::size_t{1} << shift_; }

  ShadowLeaf& of(PoolOffset leaf) const {
    return *reinterpret_cast<ShadowLeaf*>(first_ + (leaf.value / sizeof(Leaf) << shift_));
  }
  // Makes its place usable. Throws bad_alloc.
  void cover(PoolOffset leaf) {
    if (leaf.value >= covered_.load(std::memory_order_acquire)) [[unlikely]]
      cover_more(leaf);
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
    __builtin_prefetch(shadow.order);
    prefetch_words(shadow);
  }
  // A slot word for a prefetch of its record. The leaf may have ended, and the word be none.
  SlotWord word_hint(const ShadowLeaf& shadow, unsigned slot) const {
#ifdef TENUTO_STORE_BYTEWISE
    // The thread sanitizer does not know that a word of a leaf that is being written is harmless.
    static_cast<void>(shadow), static_cast<void>(slot);
    return {};
#else
    return {__atomic_load_n(&words_hint(shadow)[slot].raw, __ATOMIC_RELAXED)};
#endif
  }

 private:
  // In the pool's address space, or behind the shadow leaf, whatever that is now.
  const SlotWord* words_hint(const ShadowLeaf& shadow) const {
    if (with_words_) return reinterpret_cast<const SlotWord*>(&shadow + 1);
    const auto bytes = static_cast<std::uint64_t>(reinterpret_cast<const char*>(&shadow) - first_);
    return file_
        .at<Leaf>({(bytes >> shift_) * sizeof(Leaf) + skew_.load(std::memory_order_relaxed)})
        ->slot;
  }
  std::size_t table_bytes() const;
  void cover_more(PoolOffset leaf);
  void set_empty(ShadowLeaf& shadow) const;

  const pm::PoolFile& file_;
  const bool with_words_;
  const unsigned shift_;  // log2 of bytes_each()
  char* first_ = nullptr;
  std::mutex mu_;                          // held while covered_ grows
  std::atomic<std::uint64_t> covered_{0};  // leaves below this offset have usable places
  // Where a leaf begins in its 512 bytes. All leaves of a pool are alike: it depends on the slabs.
  std::atomic<std::uint32_t> skew_{0};
};

}  // namespace TENUTO_NS::store
