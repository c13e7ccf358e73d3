// The layout of a zone's lower layer in the pool file.
//
//   zone start (+ head bytes in zone 0)   ZoneHeader, one line, constant after formatting
//   + 64                                  ChildPair[round_up(children, 32) / 2], one line a tree
//   then                                  Bitfield[children], one line a huge frame
//
// Children are the 2-MiB huge frames that the zone touches. They are counted from its `base`: the
// zone's start rounded down to 4 MiB, so that a frame of every order is aligned in the pool.
//
// A zone may start and end in the middle of a huge frame. The missing frames count as taken for
// good; so do the head and these structs themselves. Zero children behind the last huge frame pad
// the last tree's line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pm/format.h"
#include "tenuto/units.h"

namespace TENUTO_NS::frame {

inline constexpr unsigned kOrderMax = 10;                          // 4 MiB
inline constexpr unsigned kOrderHuge = 9;                          // 2 MiB
inline constexpr unsigned kOrderBaseMax = 8;                       // the last order taken as bits
inline constexpr unsigned kHugeFrames = kHugeBytes / kFrameBytes;  // base frames of a huge one
inline constexpr unsigned kTreeChildren = 32;
inline constexpr unsigned kTreeFrames = kTreeChildren * kHugeFrames;
inline constexpr unsigned kAlignFrames = 1u << kOrderMax;

inline constexpr std::uint64_t kZoneMagic = 0x314e5a4f544e54;  // "TNTOZN1" in the file
// Frame numbers inside a zone are 32 bits wide.
inline constexpr std::uint64_t kZoneFramesMax = (std::uint64_t{1} << 32) - 2 * kAlignFrames;

// What a zone's frames are for.
enum class ZoneUse : std::uint64_t {
  any = 0,
  // Slabs of the store's records, and nothing else. On medium journal these frames are mapped
  // shared (PoolFile::share).
  records = 1,
};

struct ZoneHeader {
  std::uint64_t magic;
  std::uint64_t first_frame;  // as a frame number of the pool
  std::uint64_t frames;
  std::uint64_t own_frames;  // head and lower state, at the zone's start
  ZoneUse use;
  std::uint64_t reserved[2];
  std::uint32_t index;  // in the pool file's zone table
  std::uint32_t crc;    // crc32c of the fields above
};
static_assert(pm::OnMedia<ZoneHeader>);
static_assert(sizeof(ZoneHeader) == kLineBytes && offsetof(ZoneHeader, crc) == 60);

// One huge frame: {number of free base frames, whether it is taken as a whole}.
//   whole => free == 0;    !whole and quiescent => free == zeros of the bitfield
struct Child {
  std::uint16_t raw;

  static constexpr std::uint16_t kWholeBit = 0x8000;

  static constexpr Child make(unsigned free) { return {static_cast<std::uint16_t>(free)}; }
  static constexpr Child make_whole() { return {kWholeBit}; }
  constexpr unsigned free() const { return raw & 0x7fffu; }
  constexpr bool whole() const { return (raw & kWholeBit) != 0; }
  constexpr bool valid() const { return whole() ? free() == 0 : free() <= kHugeFrames; }

  constexpr std::optional<Child> take(unsigned frames) const {
    if (whole() || free() < frames) return std::nullopt;
    return make(free() - frames);
  }
  constexpr std::optional<Child> give(unsigned frames) const {
    if (whole() || free() + frames > kHugeFrames) return std::nullopt;
    return make(free() + frames);
  }
  constexpr std::optional<Child> take_whole() const {
    if (raw != kHugeFrames) return std::nullopt;
    return make_whole();
  }
  constexpr std::optional<Child> give_whole() const {
    if (raw != kWholeBit) return std::nullopt;
    return make(kHugeFrames);
  }
};
static_assert(pm::OnMedia<Child> && sizeof(Child) == 2);
static_assert(Child::make(512).free() == 512 && !Child::make(512).whole());
static_assert(Child::make_whole().whole() && Child::make_whole().valid());

// Two neighbouring children, the lower one even. They form one word, so that order 10 is one CAS.
struct ChildPair {
  std::uint32_t raw;

  static constexpr ChildPair make(Child low, Child high) {
    return {static_cast<std::uint32_t>(low.raw) | static_cast<std::uint32_t>(high.raw) << 16};
  }
  constexpr Child get(unsigned half) const {
    return {static_cast<std::uint16_t>(raw >> (16 * half))};
  }
  constexpr ChildPair with(unsigned half, Child child) const {
    return half == 0 ? make(child, get(1)) : make(get(0), child);
  }

  constexpr std::optional<ChildPair> take_whole() const {
    const auto low = get(0).take_whole();
    const auto high = get(1).take_whole();
    if (!low || !high) return std::nullopt;
    return make(*low, *high);
  }
  constexpr std::optional<ChildPair> give_whole() const {
    const auto low = get(0).give_whole();
    const auto high = get(1).give_whole();
    if (!low || !high) return std::nullopt;
    return make(*low, *high);
  }
};
static_assert(pm::OnMedia<ChildPair> && sizeof(ChildPair) == 2 * sizeof(Child));
static_assert(ChildPair::make(Child::make(7), Child::make_whole()).get(0).free() == 7);
static_assert(ChildPair::make(Child::make(7), Child::make_whole()).get(1).whole());

// 64 base frames, one bit each; 1 is taken.
struct Bits {
  std::uint64_t raw;
};

struct Bitfield {
  static constexpr unsigned kWords = kHugeFrames / 64;
  Bits words[kWords];
};
static_assert(pm::OnMedia<Bitfield> && sizeof(Bitfield) == kLineBytes);

// Where a zone's lower state is, and which frames belong to the zone. Frame numbers inside a zone
// are 32 bits wide and relative to `base`:
//   missing    [0, lead)              lead == first_frame - base
//   own        [lead, usable_begin)   usable_begin == lead + own
//   usable     [usable_begin, end)    end == lead + frames
struct ZoneGeometry {
  std::uint64_t first_frame = 0;
  std::uint64_t frames = 0;
  std::uint64_t base = 0;          // frame number, multiple of kAlignFrames
  std::uint64_t state_offset = 0;  // of the header, bytes in the pool
  std::uint32_t own = 0;           // frames that hold the head and the lower state
  std::uint32_t children = 0;
  std::uint32_t trees = 0;

  constexpr std::uint32_t lead() const { return static_cast<std::uint32_t>(first_frame - base); }
  constexpr std::uint32_t usable_begin() const { return lead() + own; }
  constexpr std::uint32_t end() const { return lead() + static_cast<std::uint32_t>(frames); }
  constexpr std::uint64_t children_offset() const { return state_offset + sizeof(ZoneHeader); }
  constexpr std::uint64_t bitfields_offset() const {
    return children_offset() + std::uint64_t{trees} * kTreeChildren * sizeof(Child);
  }
  constexpr std::uint64_t state_end() const {
    return bitfields_offset() + std::uint64_t{children} * sizeof(Bitfield);
  }

  // The geometry of a zone of the table. Nothing when the zone is not made of whole frames, is too
  // large, or has no room for its own state.
  static constexpr std::optional<ZoneGeometry> of(const pm::ZoneEntry& zone,
                                                  std::uint64_t head_bytes) {
    if (zone.offset % kFrameBytes != 0 || zone.bytes % kFrameBytes != 0) return std::nullopt;
    ZoneGeometry g;
    g.first_frame = zone.offset / kFrameBytes;
    g.frames = zone.bytes / kFrameBytes;
    if (g.frames > kZoneFramesMax) return std::nullopt;
    g.base = round_down(g.first_frame, kAlignFrames);
    g.state_offset = zone.offset + head_bytes;
    g.children = static_cast<std::uint32_t>(round_up(g.end(), kHugeFrames) / kHugeFrames);
    g.trees = static_cast<std::uint32_t>(round_up(g.children, kTreeChildren) / kTreeChildren);
    const std::uint64_t own_bytes = g.state_end() - zone.offset;
    if (own_bytes > zone.bytes) return std::nullopt;
    g.own = static_cast<std::uint32_t>(round_up(own_bytes, kFrameBytes) / kFrameBytes);
    return g;
  }
};

}  // namespace TENUTO_NS::frame
