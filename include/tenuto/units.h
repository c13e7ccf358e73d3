// The units of places in a pool. Conversions between them have names.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS {

inline constexpr std::size_t kLineBytes = 64;     // unit of flushing
inline constexpr std::size_t kFrameBytes = 4096;  // base frame, order 0
inline constexpr std::size_t kHugeBytes = 2u << 20;

// The distance of a byte from the start of its pool. It is the same in every process that maps the
// pool. 0 is the place of the superblock, never of an object, so it is the null value.
struct PoolOffset {
  std::uint64_t value = 0;

  constexpr explicit operator bool() const { return value != 0; }
  constexpr auto operator<=>(const PoolOffset&) const = default;
};

constexpr PoolOffset operator+(PoolOffset o, std::uint64_t bytes) { return {o.value + bytes}; }

// A 4-KiB frame, numbered from the start of the pool.
struct FrameId {
  std::uint64_t value = 0;

  constexpr auto operator<=>(const FrameId&) const = default;
};

constexpr PoolOffset offset_of_frame(FrameId f) { return {f.value * kFrameBytes}; }
constexpr FrameId frame_of_offset(PoolOffset o) { return {o.value / kFrameBytes}; }

// A size class of the small-object heap.
struct ClassId {
  std::uint8_t value = 0;

  constexpr auto operator<=>(const ClassId&) const = default;
};

// A lane: a thread's persistent logs. One thread at a time holds it.
struct LaneId {
  std::uint32_t value = 0;

  constexpr auto operator<=>(const LaneId&) const = default;
};

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}
constexpr std::uint64_t round_down(std::uint64_t n, std::uint64_t unit) { return n / unit * unit; }

}  // namespace TENUTO_NS
