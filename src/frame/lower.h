// The lower layer of one zone: takes and gives frames in the persistent state. The upper layer
// chooses the tree. The lower layer works on any memory with a formatted state, so tests need no
// pool.
//
// While the pool is open:
//   a base frame is taken  <=>  its bit is set
//   a huge frame is taken  <=>  its child is `whole` (then its bitfield is zero)
// A get lowers the child's counter before it sets bits. A put raises the counter after it cleared
// them. So a counter never promises a frame that is not free. After a clean close both lines are
// durable and must agree.
//
// After a crash a child line and its bitfield line may come from different points in time. Each
// holds a prefix of the stores to it, at least up to its last fenced flush. So `whole` beside set
// bits has two readings: "freed as a whole, then handed out in pieces", or the reverse. The owners
// decide. An owner follows this protocol; it flushes no line of ours itself:
//   get (flushes the line that decides) | fence | store the record that names the frame
//   erase the record durably | put
// Claim: (record durable) => (frame looks taken), whatever the other line holds.
//   - Base frame: the bitfield line decides. get flushes it after setting the bits, and the owner's
//     fence makes them durable before the record exists. Only put clears them, and put comes after
//     the record was erased durably.
//   - Huge frame: the same with `whole` in the child line.
// So a flush without a fence is enough: the owner's fence, which its record needs anyway, covers
// it. A crash before that fence leaves frames that no owner names, and recovery gives them back.
// Recovery computes the counters from the bits, so a get of base frames does not flush the child
// line.
//
// A put and a get of one frame by two threads, without a fence between. put clears a bit and
// flushes. Another thread sets the bit, flushes, fences and records its ownership. The clear cannot
// reach the medium after the set, because
//   - the clear precedes the set in the line's store order: the getter's CAS read the cleared word;
//   - a line becomes durable as a prefix of that order;
//   - the getter's flush follows its own store, so it covers both stores;
//   - a write-back started by put's flush carries the line as it is then, never an older word.
// The getter does not flush the other line (child for base frames, bitfield for huge ones). That is
// the case above, and the owners decide it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "frame/format.h"
#include "frame/word.h"
#include "tenuto/status.h"

namespace TENUTO_NS::frame {

// Frame numbers here count from the zone's base (ZoneGeometry).
class Lower {
 public:
  // Writes the state of an empty zone. Flushed, not fenced. REQUIRES: `g` is this zone's geometry.
  static void format(std::byte* pool, const ZoneGeometry& g, std::uint32_t index,
                     ZoneUse use = ZoneUse::any);

  Lower(std::byte* pool, const ZoneGeometry& g);

  // Checks what can be checked without owners: the header, the padding, the range of the counters,
  // the zone's own and missing frames. With `clean` also counters against bitfields. Changes
  // nothing.
  Status check(std::uint32_t index, bool clean, Report* report) const;
  // Sets the counters from the bitfields, after a crash. A `whole` child stays as it is. Not
  // flushed: the counters become durable at a clean close.
  void recount();
  // Flushes every line of children and bitfields. The caller's fence makes them durable.
  void flush_all() const;

  // Takes a frame of the order in the tree of `start`, searched in a ring from `start`. Flushed.
  // None when the tree has no such frame. REQUIRES: the caller has lowered the tree's counter by
  // 1 << order.
  Found get(std::uint32_t start, unsigned order);
  // Takes this frame if it is free. Flushed. REQUIRES: as get; the frame is in the zone and
  // aligned; order <= kOrderWord.
  bool get_at(std::uint32_t frame, unsigned order);
  // Gives the frame back. Flushed. False when it is not taken as a frame of this order, and then
  // nothing changes. REQUIRES: in the zone, aligned.
  bool put(std::uint32_t frame, unsigned order);
  // Whether a frame of this order may have been taken here. Up to kOrderBaseMax: all its bits are
  // set. Above: all its children are whole.
  bool taken(std::uint32_t frame, unsigned order) const;

  // Whether no part of the frame is taken now. REQUIRES: order <= kOrderWord.
  bool untaken(std::uint32_t frame, unsigned order) const;

  // The highest child that starts `count` free huge frames in a row, all below child `below`.
  Found find_run(std::uint32_t below, std::uint32_t count) const;
  // Takes or gives `count` huge frames from child `first`: all, flushed, or none (false).
  bool get_run(std::uint32_t first, std::uint32_t count);
  bool put_run(std::uint32_t first, std::uint32_t count);
  bool run_taken(std::uint32_t first, std::uint32_t count) const;

  // For recovery, which ends with flush_all. recover_whole makes child `c` whole and its bitfield
  // zero. recover_bits sets the bitfield to `kept` and the counter to its zeros. Both return
  // held(c) as it was before.
  unsigned recover_whole(std::uint32_t c);
  unsigned recover_bits(std::uint32_t c, const std::uint64_t (&kept)[Bitfield::kWords]);

  // The number of taken base frames of child `c`; all of them when it is whole.
  unsigned held(std::uint32_t c) const;

  // Sets the bits of frames that belong to the zone itself or do not exist.
  void fixed_bits(std::uint32_t c, std::uint64_t (&bits)[Bitfield::kWords]) const;

  Child child(std::uint32_t c) const { return load(pairs_[c / 2]).get(c % 2); }
  unsigned zeros(std::uint32_t c) const;
  const ZoneGeometry& geometry() const { return g_; }
  ZoneUse use() const { return header_->use; }  // constant after formatting

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
