// A core's reservation, in DRAM, on a cache line of its own: the tree that it takes frames from,
// the counter that it moved out of that tree, and where it looked last.
//
// All of it is one word. So three kinds of other threads need no lock: one that frees into the
// tree, one that shares the core number, and one that steals the reservation.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "frame/format.h"
#include "frame/word.h"
#include "pm/format.h"

namespace TENUTO_NS::frame {

struct TreeId {
  std::uint32_t zone = 0;
  std::uint32_t tree = 0;

  constexpr bool operator==(const TreeId&) const = default;
};

// bit 63: has a tree | 48..62: free | 32..47: zone | 0..31: start, a frame of the zone
// Without a tree, zone and start are still the place to look first.
struct Reservation {
  std::uint64_t raw;

  static constexpr std::uint64_t kPresentBit = 1ull << 63;

  static constexpr Reservation make(std::uint32_t zone, std::uint32_t start, unsigned free) {
    return {kPresentBit | std::uint64_t{free} << 48 | std::uint64_t{zone} << 32 | start};
  }
  constexpr bool present() const { return (raw & kPresentBit) != 0; }
  constexpr unsigned free() const { return static_cast<unsigned>(raw >> 48) & 0x7fffu; }
  constexpr std::uint32_t zone() const { return static_cast<std::uint32_t>(raw >> 32) & 0xffffu; }
  constexpr std::uint32_t start() const { return static_cast<std::uint32_t>(raw); }
  constexpr TreeId tree() const { return {zone(), start() / kTreeFrames}; }
  constexpr bool holds(TreeId t) const { return present() && tree() == t; }

  constexpr std::optional<Reservation> take(unsigned frames) const {
    if (!present() || free() < frames) return std::nullopt;
    return make(zone(), start(), free() - frames);
  }
  // Takes min(free, frames).
  constexpr std::optional<Reservation> take_up_to(TreeId t, unsigned frames) const {
    if (!holds(t) || free() == 0) return std::nullopt;
    return make(zone(), start(), free() - (free() < frames ? free() : frames));
  }
  constexpr std::optional<Reservation> give(TreeId t, unsigned frames) const {
    if (!holds(t) || free() + frames > kTreeFrames) return std::nullopt;
    return make(zone(), start(), free() + frames);
  }
  constexpr std::optional<Reservation> move_start(std::uint32_t in_zone, std::uint32_t to) const {
    if (!holds({in_zone, to / kTreeFrames})) return std::nullopt;
    return make(zone(), to, free());
  }
  constexpr std::optional<Reservation> drop(TreeId t) const {
    if (!holds(t)) return std::nullopt;
    return Reservation{std::uint64_t{zone()} << 32 | start()};
  }
};
static_assert(pm::kZonesMax <= 0x10000 && kZoneFramesMax <= 0x100000000);
static_assert(Reservation::make(7, 9, kTreeFrames).free() == kTreeFrames);

// The last tree that this core freed into without having reserved it, and how often in a row.
// bits 8..63: zone and tree, plus 1 | 0..7: count
struct FreeHistory {
  std::uint64_t raw;

  constexpr FreeHistory next(TreeId t) const {
    const std::uint64_t key = (std::uint64_t{t.zone} << 32 | t.tree) + 1;
    return {raw >> 8 == key ? raw + (count() < kCountMax) : key << 8 | 1};
  }
  constexpr unsigned count() const { return static_cast<unsigned>(raw & kCountMax); }

  static constexpr unsigned kCountMax = 0xff;
};
inline constexpr unsigned kReserveOnFree = 4;  // frees in a row

struct alignas(kLineBytes) Slot {
  Reservation reservation{0};
  FreeHistory history{0};  // a hint: two threads of one core may overwrite each other's updates
};

}  // namespace TENUTO_NS::frame
