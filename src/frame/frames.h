// The frame allocator of a pool (LLFree, ATC'23): frames of 4 KiB << order, orders 0..10, and runs
// of huge frames, without locks and without a log. Called by heap/ only.
//
// The pool is a row of zones. A zone's persistent lower state (one bitfield line and one 16-bit
// child entry per 2-MiB huge frame) stands in the zone itself; all else is DRAM and is rebuilt at
// open. Zone 0 starts at offset 0, and the frames of the pool's head are simply taken.
//
// Durability: get and put flush the line they changed and do not fence. What the caller writes
// next under its own fence names the owner; frames that nobody owns after a crash are given back
// by the recovery of the layers above (owned-set protocol: begin_recovery, keep, end_recovery).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pm/pool_file.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::frame {

inline constexpr unsigned kOrderMax = 10;   // 4 MiB
inline constexpr unsigned kOrderHuge = 9;   // 2 MiB
inline constexpr unsigned kOrderSlab = 4;   // 64 KiB

struct FrameStats {
  std::uint64_t frames = 0;       // all of the pool
  std::uint64_t frames_free = 0;
  std::uint64_t huge_free = 0;    // entirely free huge frames
  std::uint64_t zones = 0;
};

class Frames {
 public:
  // Formats the persistent state of the zone `index` of the file's zone table (all frames free but
  // the zone's own metadata and, in zone 0, the first `head_bytes`), flushed and fenced. Called
  // on creation and on growth before the zone is published in the table.
  static void format_zone(pm::PoolFile& file, const pm::ZoneEntry& zone, std::uint64_t head_bytes);

  // Attaches to all zones of the file and rebuilds the upper layer. After a crash (clean == false)
  // the children's counters are recomputed from the bitfields. Read-only pools get no put/get.
  // corrupt when the lower state contradicts itself (names zone and huge frame).
  static Result<std::unique_ptr<Frames>> open(pm::PoolFile& file, bool clean, Report* report);
  ~Frames();

  // Takes a naturally aligned frame of the order. `core` picks the local reservation (any number;
  // it is reduced modulo the number of slots). full when no zone has one (the heap then grows the
  // file and calls add_zone). Lock-free; flushes one line (two for order 10 crossing lines).
  Result<FrameId> get(unsigned order, unsigned core);
  // Gives it back. corrupt when it was not taken as such (double free), which changes nothing.
  Status put(FrameId frame, unsigned order, unsigned core);

  // `count` huge frames in a row within one zone, for objects above 2 MiB. Rolled back when
  // another thread interferes; full when there is no such run.
  Result<FrameId> get_run(std::uint64_t count, unsigned core);
  Status put_run(FrameId frame, std::uint64_t count, unsigned core);

  // A zone appended to the file's table is taken into service. Thread-safe.
  Status add_zone(const pm::ZoneEntry& zone);

  // Whether every base frame of [frame, frame + 2^order) is taken. For validation and recovery.
  bool taken(FrameId frame, unsigned order) const;

  // Owned-set recovery, single call each, no concurrent get/put: the layers above name every run
  // of frames they own; end_recovery gives back all that is taken and was not named, and repairs
  // children. `keep` is thread-safe and corrupt when the named frames are not taken at the lower
  // level (the owner's record was fenced after the frames were, so this is damage).
  void begin_recovery();
  Status keep(FrameId first, std::uint64_t frames, Report* report);
  std::uint64_t end_recovery();  // frames given back; fenced

  FrameStats stats() const;
  // Counters against bitfields, upper against lower. Quiescent.
  Status validate(Report* report) const;

 private:
  Frames();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenuto::inline TENUTO_ABI::frame
