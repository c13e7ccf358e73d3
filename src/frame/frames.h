// The frame allocator of a pool (LLFree, ATC'23): frames of 4 KiB << order, orders 0..10, and runs
// of huge frames. It is lock-free and has no log.
//
// The pool is a row of zones. Each zone holds its own persistent lower state: one bitfield line and
// one 16-bit child entry per 2-MiB huge frame. Everything else is in DRAM and is rebuilt at open.
// Zone 0 starts at offset 0; the frames of the pool's head are taken for good.
//
// Durability: get and put flush the line they changed and do not fence. After a crash the owners
// (the layers above) name the frames they have, and all other frames are given back
// (begin_recovery, keep, end_recovery). A caller must therefore
//   - fence between get and the store that makes its record of the frame recoverable. If a record
//     may become durable earlier, recovery must believe it only when taken() returns true;
//   - erase the record durably (fenced) before put.
// lower.h argues why that is enough.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "file/pool_file.h"
#include "frame/format.h"  // kOrderMax, kOrderHuge
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS::frame {

inline constexpr unsigned kOrderSlab = 4;  // 64 KiB
inline constexpr unsigned kAnyNode = ~0u;

struct FrameStats {
  std::uint64_t frames = 0;  // all frames of the pool
  std::uint64_t frames_free = 0;
  std::uint64_t huge_free = 0;  // entirely free huge frames
  std::uint64_t zones = 0;
};

class Frames {
 public:
  // Formats the persistent state of a zone. All frames are free but the zone's own state and, in
  // zone 0, the first `head_bytes`. Flushes, does not fence: PoolFile::grow fences before it
  // publishes the zone's entry, and creation before it publishes the superblock. REQUIRES: `zone`
  // is the table's next one, of whole frames, with room for its own state.
  static void format_zone(pm::PoolFile& file, const pm::ZoneEntry& zone, std::uint64_t head_bytes,
                          ZoneUse use = ZoneUse::any);

  // The size in bytes of a new zone with room for `huge_frames` huge frames beside its own state,
  // wherever it starts: in a row, or as order-10 frames of that many huge frames in all. For
  // PoolFile::grow.
  static std::uint64_t zone_bytes_for(std::uint64_t huge_frames);

  // Attaches to all zones of the file. After a clean close it checks all lower state against itself
  // and serves it at once. After a crash (clean == false) it recomputes the counters from the
  // bitfields, and get returns full until end_recovery.
  // corrupt when the lower state contradicts itself (the report names zone and huge frame);
  // read_only for a read-only file that needs recovery.
  static Result<std::unique_ptr<Frames>> open(pm::PoolFile& file, bool clean, Report* report);
  ~Frames();

  // NUMA: from now on each zone is on a node. `of_zone` is asked when a zone comes into service,
  // first for all there are. A core c is on node c % nodes. REQUIRES: quiescent, nothing was taken.
  struct Nodes {
    unsigned nodes = 1;
    unsigned cores = 1;  // so many have reservations of their own
    std::function<unsigned(const pm::ZoneEntry&, std::size_t index)> of_zone = {};
  };
  void set_nodes(Nodes nodes);
  // The node of any place in the pool. 0 unless set_nodes was called.
  unsigned node_of(FrameId frame) const;

  // Takes a naturally aligned frame of the order, from a zone of this use and node. `core` picks
  // the reservation (any number; it is reduced modulo the number of hardware threads). Flushes one
  // line. full when no zone has such a frame (the heap then grows the file and calls add_zone);
  // read_only; invalid_argument for an order above kOrderMax. Lock-free, but before it returns full
  // it gives threads that are moving a reservation some time to finish (moves.h).
  Result<FrameId> get(unsigned order, unsigned core, ZoneUse use = ZoneUse::any,
                      unsigned node = kAnyNode);
  // Gives a frame back. Flushes one line. corrupt when it is not taken in this order (double free,
  // the pool's own frames), and then nothing changes; read_only; invalid_argument for an order
  // above kOrderMax.
  Status put(FrameId frame, unsigned order, unsigned core);

  // The use of the zone that the frame is in. REQUIRES: the frame was handed out, or is kept.
  ZoneUse use_of(FrameId frame) const;
  // Whether there is a zone of this use.
  bool has(ZoneUse use) const;

  // Takes `count` huge frames in a row within one zone of ZoneUse::any, for objects above 2 MiB,
  // on this node.
  // Lock-free; scans the children, highest run first. Flushes the children's lines. full when there
  // is no such run; read_only; invalid_argument when count == 0. put_run returns corrupt when the
  // run is not taken.
  Result<FrameId> get_run(std::uint64_t count, unsigned core, unsigned node = kAnyNode);
  Status put_run(FrameId frame, std::uint64_t count, unsigned core);
  // Takes this huge frame. full when it is not free; invalid_argument when there is no such huge
  // frame; read_only. put_run gives it back.
  Status get_huge(FrameId frame);

  // Takes this frame, of an order up to 6. full when it is not free; invalid_argument for a larger
  // order or when there is no such frame; read_only. put gives it back.
  Status get_at(FrameId frame, unsigned order);

  // Takes into service the zones that were appended to the file's table, up to this one at least.
  // Thread-safe, also beside get and put. corrupt when one was not formatted; invalid_argument when
  // the table does not have this one.
  Status add_zone(const pm::ZoneEntry& zone);

  // Whether a frame of this order may have been taken here. Up to order 8: all its bits are set.
  // Above: each of its huge frames is taken as a whole, not in pieces. False for the pool's own
  // frames.
  bool taken(FrameId frame, unsigned order) const;

  // Whether a frame of this order, up to 6, is free now: get_at may take it.
  bool untaken(FrameId frame, unsigned order) const;

  // Recovery by owners, after open(clean == false), without concurrent get and put. The layers
  // above name what they own, each piece as get or get_run returned it. end_recovery gives back all
  // frames that are taken and were not named, and makes children and bitfields agree.
  void begin_recovery();
  // `frames` is 1 << order, or 512 times a number of huge frames (a run may be named frame by
  // frame). Thread-safe. corrupt when the piece is not taken as such, or when a part of it was
  // named before.
  Status keep(FrameId first, std::uint64_t frames, Report* report);
  std::uint64_t end_recovery();  // returns the base frames given back; fenced

  // Makes all lower state durable, so that the pool may be marked clean. REQUIRES: quiescent, and
  // no get or put afterwards.
  void close();

  FrameStats stats() const;
  // Checks counters against bitfields and the upper layer against the lower. REQUIRES: quiescent.
  Status validate(Report* report) const;

 private:
  Frames();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace TENUTO_NS::frame
