// The lower layer of one zone: takes and gives frames in the persistent state. The upper layer
// chooses the tree. It works on any memory that holds a formatted state, so tests need no pool.
//
// Which line is authoritative. While the pool is open both are: a base frame is taken when its
// bit is set, a huge frame when its child is `whole` (then its bitfield is zero); the counter of
// a child is lowered before bits are set and raised after they were cleared, so a counter never
// promises a frame that is not free. After a clean close all of it is durable and must agree.
//
// After a crash a child line and its bitfield line may come from different moments: each holds a
// prefix of what was stored to it, at least what its last fenced flush covered. So `whole` beside
// bits can mean both "freed as a whole, then handed out in pieces" and the reverse. The owners
// decide (owned-set protocol). Who calls get, then flushes nothing of ours, then fences, and only
// then stores a record that names the frame, knows:
//   - a base frame: get flushed the bitfield line after it set the bits, and the caller's fence
//     made that durable before the record existed. A later state of the line has the bits clear
//     only after put, and put comes after the record was durably erased. Hence
//     (record durable) => (bits durable), whatever the child line says;
//   - a huge frame: the same with `whole` in the child line, whatever the bitfield says.
// So a flush without a fence is enough: the caller's fence, which its record needs anyway, is
// the one that counts, and a crash before it leaves frames that nobody names, which recovery
// gives back. Counters are never read after a crash, so base frames do not flush the child line.
//
// put and get of one frame by two threads, nothing fenced between. put clears a bit and flushes
// without a fence; another thread takes the bit, flushes, fences and records its ownership. Can
// the clear reach the medium after the set? No: the clear precedes the set in the line's store
// order (the getter's CAS read the cleared word), a line becomes durable as a prefix of that
// order, and the getter's flush after its own store covers both. A write-back started by put's
// flush carries the line as it is then, so it cannot bring back an older word. The only line the
// getter does not flush is the other one (child for base frames, bitfield for huge ones), which
// is the case above that the owners decide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "frame/format.h"
#include "frame/word.h"
#include "tenuto/status.h"

namespace TENUTO_NS::frame {

// Frames are numbered from the zone's base here (ZoneGeometry).
class Lower {
 public:
  // Writes the state of an empty zone; flushed, not fenced. REQUIRES: geometry of this zone.
  static void format(std::byte* pool, const ZoneGeometry& g, std::uint32_t index);

  Lower(std::byte* pool, const ZoneGeometry& g);

  // What can be said about the state without owners: the header, the padding, the zone's own and
  // missing frames; after a clean close also counters against bitfields. Changes nothing.
  Status check(std::uint32_t index, bool clean, Report* report) const;
  // Counters from the bitfields, after a crash. `whole` is left as it is. Not flushed: the
  // counters become durable at a clean close.
  void recount();
  // Flushes every line, so that the caller's fence makes a clean close of it.
  void flush_all() const;

  // A frame of the order in the tree of `start`, searched in a ring from `start`; flushed. None
  // when the tree has none of that order. REQUIRES: the caller has lowered the tree's counter by as
  // much.
  Found get(std::uint32_t start, unsigned order);
  // This frame, if it is free; flushed. REQUIRES: as get; in the zone, aligned, order <=
  // kOrderWord.
  bool get_at(std::uint32_t frame, unsigned order);
  // false: not taken as a frame of this order; nothing was changed. REQUIRES: in the zone, aligned.
  bool put(std::uint32_t frame, unsigned order);
  // Whether a frame of this order may have been taken here: all bits are set, or all children are
  // whole.
  bool taken(std::uint32_t frame, unsigned order) const;

  // The highest child with which `count` free huge frames start, all below child `below`.
  Found find_run(std::uint32_t below, std::uint32_t count) const;
  // `count` huge frames from child `first`; all or none, flushed.
  bool get_run(std::uint32_t first, std::uint32_t count);
  bool put_run(std::uint32_t first, std::uint32_t count);
  bool run_taken(std::uint32_t first, std::uint32_t count) const;

  // Makes child `c` whole and its bitfield zero; or sets the bitfield and counts. For recovery,
  // which ends with flush_all. Returns held(c) from before.
  unsigned recover_whole(std::uint32_t c);
  unsigned recover_bits(std::uint32_t c, const std::uint64_t (&kept)[Bitfield::kWords]);

  // Base frames of child `c` that are taken; all of them when it is whole.
  unsigned held(std::uint32_t c) const;

  // Bits of the child that belong to the zone itself or do not exist.
  void fixed_bits(std::uint32_t c, std::uint64_t (&bits)[Bitfield::kWords]) const;

  Child child(std::uint32_t c) const { return load(pairs_[c / 2]).get(c % 2); }
  unsigned zeros(std::uint32_t c) const;
  const ZoneGeometry& geometry() const { return g_; }

 private:
  Found get_base(std::uint32_t start, unsigned order);
  Found get_whole(std::uint32_t start, unsigned order);
  bool put_base(std::uint32_t frame, unsigned order);
  bool put_whole(std::uint32_t frame, unsigned order);
  template <class Next>
  bool update_child(std::uint32_t c, Next&& next);
  template <class Next>
  bool count_child(std::uint32_t c, Next&& next);
  void set_child(std::uint32_t c, Child child);
  void flush_children(std::uint32_t first, std::uint32_t count) const;
  Status check_header(std::uint32_t index, Report* report) const;
  Status check_child(std::uint32_t c, bool clean, Report* report) const;

  ZoneGeometry g_;
  const ZoneHeader* header_;
  std::span<ChildPair> pairs_;  // the children, with the padding
  std::span<Bitfield> bitfields_;
};

}  // namespace TENUTO_NS::frame
