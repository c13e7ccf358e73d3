// What DRAM holds for each 4-KiB frame of the extents: one slot a frame, in one table over the
// pool's whole address space. Only touched pages of the table exist. A lookup is one load without a
// lock, at any offset.
//
//   slot word != 0  =>  the frame is the first of an extent or huge object,
//                       or the last of a free extent
#pragma once

#include <atomic>
#include <cstdint>

#include "heap/heap.h"
#include "pm/zero_pages.h"
#include "tenuto/units.h"

namespace TENUTO_NS::heap {

enum class ExtentState : std::uint8_t {
  none,
  free,
  tail,      // the last frame of a free extent of several frames
  busy,      // free, but its pages are being given back now
  reserved,  // taken, has no entry yet
  live,      // entry appended
  claimed,   // live, but a thread is freeing it
  killed,    // tombstone appended, not reusable yet
};

// One word: state, kind and number of frames. Of a free extent also how many of its frames have
// pages in the file.
struct ExtentWord {
  std::uint32_t raw = 0;

  static constexpr unsigned kFreeBits = 11;  // frames of a free extent: at most a chunk's
  static constexpr std::uint64_t kFramesMax = (1u << 26) - 1;

  static constexpr ExtentWord make(ExtentState s, Kind k, std::uint64_t frames) {
    return {static_cast<std::uint32_t>(frames) | static_cast<std::uint32_t>(k) << 26 |
            static_cast<std::uint32_t>(s) << 28};
  }
  static constexpr ExtentWord make_free(std::uint64_t frames, std::uint64_t resident) {
    return make(ExtentState::free, Kind::logged, frames | resident << kFreeBits);
  }
  static constexpr ExtentWord make_tail(std::uint64_t frames) {
    return make(ExtentState::tail, Kind::logged, frames);
  }
  constexpr ExtentState state() const { return static_cast<ExtentState>(raw >> 28); }
  constexpr Kind kind() const { return static_cast<Kind>(raw >> 26 & 3); }
  constexpr std::uint64_t frames() const {
    const bool is_free = state() == ExtentState::free;
    return is_free ? raw & ((1u << kFreeBits) - 1) : raw & kFramesMax;
  }
  // The bytes that the user may use. The type of a typed extent is its last word and does not
  // count.
  constexpr std::uint64_t bytes() const {
    return frames() * kFrameBytes - (kind() == Kind::typed ? sizeof(std::uint64_t) : 0);
  }
  constexpr std::uint64_t resident() const { return (raw & kFramesMax) >> kFreeBits; }
  constexpr ExtentWord with(ExtentState s) const { return make(s, kind(), raw & kFramesMax); }
  constexpr bool used() const { return state() >= ExtentState::reserved; }
};
static_assert(ExtentWord::make_free(1024, 1024).frames() == 1024);
static_assert(ExtentWord::make_free(1024, 1000).resident() == 1000);
static_assert(ExtentWord::make(ExtentState::live, Kind::derived, 1u << 20).frames() == 1u << 20);
static_assert(ExtentWord::make(ExtentState::live, Kind::derived, 7).kind() == Kind::derived);
static_assert(ExtentWord::make(ExtentState::killed, Kind::typed, 7).state() == ExtentState::killed);
static_assert(ExtentWord::make(ExtentState::killed, Kind::typed, 1).bytes() == 4088);

struct BookShadow;

// The place of an extent's entry in the bookkeeping log: the chunk's shadow and the index in one
// word.
struct EntryRef {
  std::uintptr_t raw = 0;

  static EntryRef make(BookShadow* shadow, unsigned index) {
    return {reinterpret_cast<std::uintptr_t>(shadow) | index};
  }
  BookShadow* shadow() const { return reinterpret_cast<BookShadow*>(raw & ~std::uintptr_t{127}); }
  unsigned index() const { return static_cast<unsigned>(raw & 127); }
  explicit operator bool() const { return raw != 0; }
};

// The lists that a free extent can be in: one by size, and one by age for extents that have pages.
enum class Link : unsigned { size_next, size_prev, younger, older };

struct Slot {
  std::atomic<std::uint32_t> word;

  ExtentWord get() const { return {word.load(std::memory_order_acquire)}; }
  void set(ExtentWord w) { word.store(w.raw, std::memory_order_release); }

  // A link is a frame number of 40 bits; 0: none. An extent in use has its EntryRef in the place of
  // the first two links.
  std::uint64_t link(Link l) const {
    const auto i = static_cast<unsigned>(l);
    return low[i] | std::uint64_t{high[i]} << 32;
  }
  void set_link(Link l, std::uint64_t frame) {
    const auto i = static_cast<unsigned>(l);
    low[i] = static_cast<std::uint32_t>(frame);
    high[i] = static_cast<std::uint8_t>(frame >> 32);
  }
  EntryRef entry() const { return {low[0] | std::uintptr_t{low[1]} << 32}; }
  void set_entry(EntryRef e) {
    low[0] = static_cast<std::uint32_t>(e.raw);
    low[1] = static_cast<std::uint32_t>(e.raw >> 32);
  }

  std::uint8_t high[4];
  std::uint32_t low[4];
};
static_assert(sizeof(Slot) == 24);

class Slots {
 public:
  explicit Slots(std::uint64_t bytes_max)
      : count_(bytes_max / kFrameBytes + 1),
        pages_(count_ * sizeof(Slot)),
        slots_(pages_.as<Slot>()) {}

  bool there() const { return static_cast<bool>(pages_); }
  Slot& operator[](std::uint64_t frame) const { return slots_[frame]; }
  // What starts at o. State none for an offset outside the pool or inside a frame.
  ExtentWord find(PoolOffset o) const {
    const std::uint64_t frame = o.value / kFrameBytes;
    if (o.value % kFrameBytes != 0 || frame >= count_) return {};
    return slots_[frame].get();
  }
  Slot& at(PoolOffset o) const { return slots_[o.value / kFrameBytes]; }

 private:
  const std::uint64_t count_;
  const pm::ZeroPages pages_;
  Slot* const slots_;
};

}  // namespace TENUTO_NS::heap
