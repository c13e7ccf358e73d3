// The undo log of one lane: writes the entries of a transaction, and stores the old bytes back.
// tx/recover.cc reads the same lines after a crash.
//
// An entry is one line. It is durable after the caller's next fence. A new log frame is durable
// before it is linked. The two areas are used in turn, so that the entries of the previous
// transaction stay readable: the bits of the blocks that it freed may not be durable yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "file/lane.h"
#include "file/pool_file.h"
#include "heap/heap.h"
#include "pm/log.h"
#include "pm/plant.h"
#include "tenuto/status.h"
#include "tx/format.h"
#include "tx/ranges.h"

namespace TENUTO_NS::tx {

using FrameChain = std::vector<PoolOffset>;

// Reads an area's chain of log frames. corrupt: the chain is damaged; `report` has the place.
// Changes nothing.
Status read_chain(pm::PoolFile& file, const pm::Lane& lane, std::size_t area, FrameChain& chain,
                  Report* report);

// Whether `frame` has the header that it was made with. corrupt: not so.
Status check_log_frame(pm::PoolFile& file, const pm::Lane& lane, std::size_t area,
                       std::size_t index, PoolOffset frame, Report* report);
// For reports.
std::string log_frame_name(const pm::Lane& lane, std::size_t area, std::size_t index);
// Takes a frame from the heap, zeroes it, and links it. full: the pool has none. Cost: one fence;
// the link is durable after the caller's next one.
Result<PoolOffset> take_log_frame(pm::PoolFile& file, heap::Heap& heap, const pm::Lane& lane,
                                  std::size_t area, std::size_t index, SealedWord& link,
                                  std::uint64_t salt);

// Whether [offset, offset + bytes) may be logged: everything behind the pool's head; in the head
// page the roots, and the name of the root object. No transaction changes the rest of that page
// (zones, lanes, lists of the heap, the store's line). An undo log that names it is damaged.
bool in_log_reach(const pm::PoolFile& file, std::uint64_t offset, std::uint64_t bytes);

// Stores old bytes back: those of an undo entry, or any. Aligned words are stored whole. Not
// flushed.
void restore_entry(pm::PoolFile& file, const pm::LogLine& entry);
void restore_bytes(pm::PoolFile& file, PoolOffset at, const std::byte* from, std::size_t bytes);

// Line i of an undo log: first the lane's own lines, then those of the frames.
inline pm::LogLine& log_line(pm::PoolFile& file, const pm::Lane& lane, std::size_t area,
                             const FrameChain& frames, std::size_t i) {
  if (i < pm::kLaneUndoLines) {
    return lane.lines[pm::kLaneUndoLine + area * pm::kLaneUndoLines + i];
  }
  i -= pm::kLaneUndoLines;
  return file.at<pm::LogLine>(frames[i / kLogFrameLines])[1 + i % kLogFrameLines];
}

inline TxLine& tx_line(const pm::Lane& lane) {
  return reinterpret_cast<TxLine&>(lane.lines[pm::kLaneTxLine]);
}

class UndoLog {
 public:
  UndoLog(pm::PoolFile& file, heap::Heap& heap, const pm::Lane& lane)
      : file_(file), heap_(heap), lane_(lane) {}

  // Takes over the frames that the area is already linked to.
  void adopt_frames(std::size_t area, FrameChain chain) { frames_[area] = std::move(chain); }
  std::size_t frames() const { return frames_[0].size() + frames_[1].size(); }

  // Begins an empty log in the area of this sequence. Stores nothing in the pool.
  void start(std::uint64_t sequence) {
    sequence_ = sequence;
    area_ = TENUTO_PLANT("tx_areas_not_used_in_turn") ? 0 : sequence % kAreas;
    size_ = 0;
    stays_ = false;
    next_ = &lane_.lines[pm::kLaneUndoLine + area_ * pm::kLaneUndoLines];
    end_ = next_ + pm::kLaneUndoLines;
  }
  std::uint64_t sequence() const { return sequence_; }
  std::size_t size() const { return size_; }

  bool has_room() const { return next_ != end_; }  // for one entry
  // Makes room for one entry. full: another log frame is needed and the pool has none; the log is
  // unchanged. Cost: one fence when a frame is taken for the first time.
  Status make_room() { return has_room() ? Status::ok : next_frame(); }
  // Writes and flushes one entry. REQUIRES: make_room() since the last entry. Cost: one line.
  void append(EntryHead head, const void* old) {
    std::uint64_t word[7] = {head.raw};
    if (head.length() == sizeof word[1]) [[likely]] {  // no call for the copy
      std::memcpy(&word[1], old, sizeof word[1]);
    } else if (old != nullptr) {
      std::memcpy(&word[1], old, head.length());
    }
    pm::write_log_line(*next_, word, sequence_);
    next_ += 1;
    size_ += 1;
    stays_ = stays_ || head.kind() != EntryKind::free;
  }
  // Whether the log has an entry that forget_free cannot erase.
  bool stays() const { return stays_; }

  // Stores all old bytes back, the latest entry first, except those in `kept`. Not flushed.
  void restore(std::span<const Range> kept);

  // Erases entry i if it is that of a free. Durable after the caller's next fence. Cost: one line.
  void forget_free(std::size_t i);

  // Gives back the frames behind the first `keep` of each area. REQUIRES: it is durable that
  // nothing needs an entry in them. Cost: one fence if there are any.
  void trim(std::size_t keep);

 private:
  Status next_frame();
  Status take_frame();
  SealedWord& link_of(std::size_t area, std::size_t index) const;

  // Constant after open.
  pm::PoolFile& file_;
  heap::Heap& heap_;
  const pm::Lane& lane_;
  // Owner thread only.
  std::array<FrameChain, kAreas> frames_;
  std::uint64_t sequence_ = 0;
  std::size_t area_ = 0;
  std::size_t size_ = 0;  // entries
  bool stays_ = false;
  pm::LogLine* next_ = nullptr;
  pm::LogLine* end_ = nullptr;
};

}  // namespace TENUTO_NS::tx
