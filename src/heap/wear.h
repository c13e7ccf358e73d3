// Wear levelling (PMMS): how often each frame of the pool was written, and the rest of freed
// blocks. It exists only in a pool that is open to write with HeapOptions::wear_levelling.
//
// What is counted, in lines of 64 bytes. `data`, for each 4-KiB frame: every block that is handed
// out counts with all its lines, once, when it leaves its slab or the free extents. So a block that
// its owner changes in place counts once, too. `bits`, for each 64 KiB: what the heap itself
// flushes in a slab, its header and the bits of its blocks. All of this is in the slab's first
// frame. Not counted: the lanes, the bookkeeping log, the frames' bits, the head. They do not move.
//
// Policy. A place is *worn* when it has more lines than an eighth more than the mean of the whole
// file, and one overwrite. Of a slab two places count: its 64 KiB with the bits, and the least
// written frame in which it has a free block, because blocks that stay leave it only some frames.
// Slabs and extents that are worn are passed over for frames that are free and are not
// (fresh_frames.h). In a slab the least written frame comes first.
//
//   freed block  -- end of its protocol -->  rest (rest.h)  -- wear_rest_ms -->  its slab, extents
//
// Caches of lanes have only blocks that were never used since they left their slab: a freed block
// goes the way above. A cache that is emptied uncounts its blocks.
//
// Nothing here is durable by itself. wear_table.cc keeps the counts over a close and a crash.
// Thread safety: any thread, no locks. Figures of several threads may be a moment old.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "file/pool_file.h"
#include "heap/rest.h"
#include "heap/slab.h"
#include "pm/zero_pages.h"
#include "tenuto/pool_options.h"

namespace TENUTO_NS::heap {

struct WearFigures {
  std::uint64_t lines = 0;  // of all data frames
  std::uint64_t frames = 0;
  std::uint64_t max = 0;       // of one frame
  std::uint64_t bits = 0;      // of all first frames of slabs
  std::uint64_t bits_max = 0;  // of one
};

// The counts of a pool, as many as its file has frames.
struct WearCounts {
  std::vector<std::uint32_t> data;  // by frame
  std::vector<std::uint32_t> bits;  // by 64 KiB

  WearFigures figures() const;
};

class Wear {
 public:
  static constexpr std::uint64_t kUnitFrames = kSlabBytes / kFrameBytes;

  Wear(const pm::PoolFile& file, const HeapOptions& options, std::size_t queues);
  bool there() const { return static_cast<bool>(data_pages_) && static_cast<bool>(bits_pages_); }

  // --- counting
  // Blocks of the slab that a cache got, or that it gives back unused.
  void took(const Slab& slab, const TakenBlock* blocks, unsigned n);
  void gave_unused(const Slab& slab, PoolOffset block);
  void took(PoolOffset o, std::uint64_t bytes) { add(o, bytes, 1); }
  void wrote_header(PoolOffset slab, std::uint64_t lines) { add_bits(slab, lines); }

  // --- choosing
  // The lines of the 64 KiB at o.
  std::uint64_t of_unit(PoolOffset o) const;
  // How worn the slab is for its next block, in thousandths: above kWorn there may be better ones.
  static constexpr std::uint64_t kWorn = 1000;
  std::uint64_t of_slab(const Slab& slab) const;
  std::uint64_t of_free_blocks(const Slab& slab, unsigned frame) const;
  std::uint64_t of_block(const Slab& slab, unsigned i) const;
  // Those of these frames, without bits.
  std::uint64_t of_frames(std::uint64_t frame, std::uint64_t frames) const;
  std::uint64_t of_frame(std::uint64_t frame) const {
    return data_[frame].load(std::memory_order_relaxed);
  }
  // What a place may have, to be as good as any: of 64 KiB with bits, and of one frame without.
  std::uint64_t limit() const {
    return limit_of(data_lines() + bits_lines_.load(std::memory_order_relaxed), kSlabBytes);
  }
  std::uint64_t frame_limit() const { return limit_of(data_lines(), kFrameBytes); }

  // --- rest
  RestQueue& rest(unsigned core) { return *queues_[core % queues_.size()]; }
  std::vector<std::unique_ptr<RestQueue>>& queues() { return queues_; }
  std::atomic<unsigned> turn = 0;  // whose rests end next, besides one's own
  std::int64_t now_ms() const;
  std::int64_t rest_ms() const { return options_.wear_rest_ms; }
  std::uint64_t resting_bytes() const;
  std::atomic<std::uint64_t> rested = 0;  // blocks whose rest ended in time, since open
  std::atomic<std::uint64_t> forced = 0;  // ... and early, because the pool was full

  // --- the table (wear_table.cc)
  // Whether so much was handed out since the last time that the counts should be written.
  bool table_due() const {
    const std::uint64_t now = handed_out_.load(std::memory_order_relaxed);
    return now - noted_at_.load(std::memory_order_relaxed) >= lines_between_tables();
  }
  bool table_is_new() const {
    return handed_out_.load(std::memory_order_relaxed) == noted_at_.load(std::memory_order_relaxed);
  }
  void table_noted() {
    noted_at_.store(handed_out_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  std::uint64_t lines_between_tables() const;
  WearCounts counts() const;
  void set_counts(const WearCounts& counts);
  std::mutex table_mu;
  // Guarded by table_mu.
  PoolOffset table;  // the durable one; 0: none
  std::uint64_t table_sequence = 0;
  std::uint64_t tables_written = 0;  // since open

 private:
  void add(PoolOffset o, std::uint64_t bytes, int sign);
  std::uint64_t data_lines() const { return data_lines_.load(std::memory_order_relaxed); }
  std::uint64_t limit_of(std::uint64_t lines, std::uint64_t bytes) const {
    const std::uint64_t mean = lines / std::max<std::uint64_t>(file_.bytes() / bytes, 1);
    return mean + mean / 8 + bytes / kLineBytes;
  }
  void add_bits(PoolOffset slab, std::uint64_t lines, int sign = 1);
  void count(std::atomic<std::uint32_t>& at, std::uint64_t lines, int sign);

  const pm::PoolFile& file_;
  const HeapOptions& options_;
  const pm::ZeroPages data_pages_;
  std::atomic<std::uint32_t>* const data_;  // by frame
  const pm::ZeroPages bits_pages_;
  std::atomic<std::uint32_t>* const bits_;     // by 64 KiB
  std::atomic<std::uint64_t> data_lines_ = 0;  // sums
  std::atomic<std::uint64_t> bits_lines_ = 0;
  std::atomic<std::uint64_t> handed_out_ = 0;  // lines since open
  std::atomic<std::uint64_t> noted_at_ = 0;
  std::vector<std::unique_ptr<RestQueue>> queues_;
};

}  // namespace TENUTO_NS::heap
