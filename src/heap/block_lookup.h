// Which logged block contains a place: for a trace (reach.cc), while nobody allocates or frees.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "heap/heap_state.h"
#include "heap/morph.h"

namespace TENUTO_NS::heap {

struct Heap::State::BlockLookup {
  const State& s;
  // Any block may be allocated: after a crash of a pool with Consistency::gc.
  const bool after_crash;
  struct Large {
    Block block;
    bool typed = false;
  };
  std::vector<Large> extents = {};  // that are allocated, by offset

  BlockLookup(const State& state, bool crash) : s(state), after_crash(crash) { find_extents(); }

  void find_extents() {
    if (after_crash) {
      s.extents.for_each_recovered([this](const BookRecord& r) {
        if (!is_logged(r.kind)) return;
        const bool typed = r.kind == Kind::typed;
        const std::uint64_t usable = r.frames * kFrameBytes - (typed ? kTypeBytes : 0);
        if (typed && *s.file.at<std::uint64_t>(r.offset + usable) == 0) return;
        extents.push_back({{r.offset, usable}, typed});
      });
      return;
    }
    s.extents.for_each(Kind::logged, [this](PoolOffset o, std::uint64_t n) {
      if (!s.extents.find(o, Kind::logged, Wanted::in_use)) return;
      extents.push_back({{o, n}, s.extents.is_typed(o)});
    });
    std::sort(extents.begin(), extents.end(),
              [](const Large& a, const Large& b) { return a.block.offset < b.block.offset; });
  }

  // The allocated or reserved logged block that contains o. No offset: there is none.
  [[gnu::always_inline]] Block containing(PoolOffset o) const {
    const PageTable::Entry e = s.pages.find(o);
    if (e.owner == PageOwner::none) [[unlikely]]
      return extent_containing(o);
    const Slab& slab = *e.slab();
    const Block b = block_of(slab, o);
    if (b.offset) [[likely]]
      return b;
    const OldPart* old = slab.old.load(std::memory_order_relaxed);
    return old == nullptr ? Block{} : block_of_old(*old, o);
  }
  [[gnu::always_inline]] Block block_of(const Slab& part, PoolOffset o) const {
    if (!is_logged(part.kind)) return {};
    const unsigned i = part.index_around(o);
    if (i == kNoBlock) return {};
    // The type of an allocated block is durable, and not 0.
    if (after_crash ? part.kind == Kind::typed && part.type_word(i) == 0
                    : !part.live(i) && !part.reserved(i)) {
      return {};
    }
    return {part.block_offset(i), part.block_bytes};
  }
  [[gnu::noinline]] Block block_of_old(const OldPart& old, PoolOffset o) const {
    return block_of(*old.slab, o);
  }
  // Null: none contains it.
  const Large* large_containing(PoolOffset o) const {
    const auto after =
        std::upper_bound(extents.begin(), extents.end(), o,
                         [](PoolOffset at, const Large& l) { return at < l.block.offset; });
    if (after == extents.begin()) return nullptr;
    const Large& l = *std::prev(after);
    return o < l.block.offset + l.block.bytes ? &l : nullptr;
  }
  [[gnu::noinline]] Block extent_containing(PoolOffset o) const {
    const Large* const l = large_containing(o);
    return l == nullptr ? Block{} : l->block;
  }
  // 0: none.
  std::uint64_t type_of(const Block& b) const {
    const PageTable::Entry e = s.pages.find(b.offset);
    if (e.owner == PageOwner::typed) return e.slab()->type_word(e.slab()->index_of(b.offset));
    const Large* const l = e.owner == PageOwner::none ? large_containing(b.offset) : nullptr;
    return l != nullptr && l->typed ? *s.file.at<std::uint64_t>(b.offset + b.bytes) : 0;
  }
};

}  // namespace TENUTO_NS::heap
