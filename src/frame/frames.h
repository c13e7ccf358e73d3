// The frame allocator of a pool (LLFree, ATC'23): frames of 4 KiB << order, orders 0..10, and runs
// of huge frames, without locks and without a log.
//
// The pool is a row of zones. A zone's persistent lower state (one bitfield line and one 16-bit
// child entry per 2-MiB huge frame) stands in the zone itself; all else is DRAM and is rebuilt at
// open. Zone 0 starts at offset 0, and the frames of the pool's head are simply taken.
//
// Durability: get and put flush the line they changed and do not fence. The layers above own what
// they can name after a crash; all other frames are given back (begin_recovery, keep,
// end_recovery). For that a caller must
//   - fence between get and the store that makes its record of the frame recoverable; a record
//     that may become durable earlier is to be believed only if taken() says so in recovery;
//   - erase the record durably (fenced) before put.
// Why that is enough is argued in lower.h.
#pragma once

#include <cstdint>
#include <memory>

#include "file/pool_file.h"
#include "frame/format.h"  // kOrderMax, kOrderHuge
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS::frame {

inline constexpr unsigned kOrderSlab = 4;  // 64 KiB

struct FrameStats {
  std::uint64_t frames = 0;  // all of the pool
  std::uint64_t frames_free = 0;
  std::uint64_t huge_free = 0;  // entirely free huge frames
  std::uint64_t zones = 0;
};

class Frames {
 public:
  // Formats the persistent state of a zone: all frames free but the zone's own state and, in zone
  // 0, the first `head_bytes`. Flushed; the fence that PoolFile::grow needs before it publishes the
  // zone's entry (on creation: the superblock's) covers it. REQUIRES: `zone` is the table's next
  // one, of whole frames, with room for its own state.
  static void format_zone(pm::PoolFile& file, const pm::ZoneEntry& zone, std::uint64_t head_bytes);

  // Bytes that a new zone must have so that `huge_frames` huge frames in a row, or order-10 frames
  // of that many in all, fit into it beside its own state, wherever it starts. For PoolFile::grow.
  static std::uint64_t zone_bytes_for(std::uint64_t huge_frames);

  // Attaches to all zones of the file. After a clean close all lower state is checked against
  // itself and served at once. After a crash (clean == false) counters are recomputed from the
  // bitfields and get answers full until end_recovery.
  // corrupt when the lower state contradicts itself (names zone and huge frame); read_only for a
  // read-only file that needs recovery.
  static Result<std::unique_ptr<Frames>> open(pm::PoolFile& file, bool clean, Report* report);
  ~Frames();

  // Takes a naturally aligned frame of the order. `core` picks the reservation (any number; it is
  // reduced modulo the number of hardware threads). full when no zone has one (the heap then grows
  // the file and calls add_zone); read_only. Flushes one line. Lock-free, but before it answers
  // full it gives threads that are moving a reservation some time to finish (moves.h).
  Result<FrameId> get(unsigned order, unsigned core);
  // Gives it back. corrupt when it was not taken as such (double free, the pool's own frames),
  // which changes nothing; invalid_argument for an order above kOrderMax.
  Status put(FrameId frame, unsigned order, unsigned core);

  // `count` huge frames in a row within one zone, for objects above 2 MiB. Lock-free; scans the
  // children, highest run first. full when there is no such run. Flushes the children's lines.
  Result<FrameId> get_run(std::uint64_t count, unsigned core);
  Status put_run(FrameId frame, std::uint64_t count, unsigned core);
  // This huge frame, if it is free: full when it is not. To be given back by put_run.
  Status get_huge(FrameId frame);

  // This frame of an order up to 6, if it is free: full when it is not. To be given back by put.
  Status get_at(FrameId frame, unsigned order);

  // Takes the zones into service that were appended to the file's table, up to this one at least.
  // Thread-safe, beside any get and put. corrupt when one was not formatted.
  Status add_zone(const pm::ZoneEntry& zone);

  // Whether a frame of this order may have been taken here: up to order 8 all its bits are set,
  // above that its huge frames are taken as wholes (pieces of a huge frame are not). False for
  // the pool's own frames.
  bool taken(FrameId frame, unsigned order) const;

  // Owned-set recovery, after open(clean == false), without concurrent get and put: the layers
  // above name what they own, each piece just as get or get_run returned it; end_recovery gives
  // back all that is taken and was not named, and makes children and bitfields agree.
  void begin_recovery();
  // `frames` is 1 << order, or 512 times a number of huge frames (which may be named one by one).
  // Thread-safe. corrupt when the piece is not taken as such, or a part of it was named before.
  Status keep(FrameId first, std::uint64_t frames, Report* report);
  std::uint64_t end_recovery();  // base frames given back; fenced

  // Makes all lower state durable, so that the pool may be marked clean. Quiescent; no get or put
  // afterwards.
  void close();

  FrameStats stats() const;
  // Counters against bitfields, upper against lower. Quiescent.
  Status validate(Report* report) const;

 private:
  Frames();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace TENUTO_NS::frame
