// The free extents: by size for an exact best fit in constant time, and by age for decay. REQUIRES:
// the lock of the extents. Allocates no memory: the lists run through the slots.
//
// A reclaimed extent has pages in the file for all or some of its frames. A retained one has none.
//   sum of frames over all lists == frames_free()
//   sum of resident frames       == frames_resident()
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "heap/slots.h"

namespace TENUTO_NS::heap {

inline constexpr std::uint64_t kChunkBytes = 4u << 20;
inline constexpr unsigned kChunkFrames = kChunkBytes / kFrameBytes;

// One list for each size, latest first, and one bit for each list that is not empty.
class SizeLists {
 public:
  explicit SizeLists(Slots& slots) : slots_(slots) {}

  void push(std::uint64_t frame, std::uint64_t frames);
  void remove(std::uint64_t frame, std::uint64_t frames);
  std::uint64_t first(std::uint64_t frames) const { return heads_[frames]; }
  std::uint64_t next(std::uint64_t frame) const { return slots_[frame].link(Link::size_next); }
  // The smallest size >= frames whose list is not empty; kChunkFrames + 1: none.
  unsigned size_from(std::uint64_t frames) const;

 private:
  Slots& slots_;
  std::array<std::uint64_t, kChunkFrames + 1> heads_{};
  std::array<std::uint64_t, kChunkFrames / 64 + 1> bits_{};
  std::uint32_t words_ = 0;  // of these, which have a bit
};

// The position of a free extent in the order of age: just older than `younger`; 0: the youngest.
struct AgeOrder {
  std::uint64_t younger = 0;
};

class FreeExtents {
 public:
  explicit FreeExtents(Slots& slots) : slots_(slots), reclaimed_(slots), retained_(slots) {}

  void add(std::uint64_t frame, std::uint64_t frames, std::uint64_t resident, AgeOrder age = {});
  // Clears the extent's slots. Returns its age.
  AgeOrder remove(std::uint64_t frame);

  // The smallest reclaimed extent, else the smallest retained one, that has `frames` frames
  // starting at a multiple of `align`; 0: none. Exact when align is 1; else it tries only a few
  // extents of each size.
  std::uint64_t best(std::uint64_t frames, std::uint64_t align) const;
  std::uint64_t oldest() const { return oldest_; }
  // Calls f(frame, frames) for all free extents of at least so many frames.
  template <class F>
  void for_each_from(std::uint64_t frames, const F& f) const {
    for (const SizeLists* lists : {&reclaimed_, &retained_}) {
      for (unsigned size = lists->size_from(frames); size <= kChunkFrames;
           size = lists->size_from(size + 1)) {
        for (std::uint64_t at = lists->first(size); at != 0; at = lists->next(at)) f(at, size);
      }
    }
  }

  // The same until f returns false.
  template <class F>
  void for_some_from(std::uint64_t frames, const F& f) const {
    for (const SizeLists* lists : {&reclaimed_, &retained_}) {
      for (unsigned size = lists->size_from(frames); size <= kChunkFrames;
           size = lists->size_from(size + 1)) {
        for (std::uint64_t at = lists->first(size); at != 0; at = lists->next(at)) {
          if (!f(at, size)) return;
        }
      }
    }
  }

  // The free extent that ends with this frame, which may be its only one; 0: none.
  std::uint64_t ending_at(std::uint64_t frame) const;
  bool is_free(std::uint64_t frame) const {
    return slots_[frame].get().state() == ExtentState::free;
  }

  std::uint64_t frames_free() const { return frames_free_; }
  std::uint64_t frames_resident() const { return frames_resident_; }

 private:
  std::uint64_t best_of(const SizeLists& lists, std::uint64_t frames, std::uint64_t align) const;

  Slots& slots_;
  SizeLists reclaimed_;
  SizeLists retained_;
  std::uint64_t oldest_ = 0;  // of the extents with pages
  std::uint64_t youngest_ = 0;
  std::uint64_t frames_free_ = 0;
  std::uint64_t frames_resident_ = 0;
};

}  // namespace TENUTO_NS::heap
