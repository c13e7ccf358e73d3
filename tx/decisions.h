// What one lane has decided for other pools: a log frame with one line for each part of a
// transaction in another pool. The line's sequence is that of the lane's own transaction.
//
// The lane's transaction line is authoritative: a line of sequence s means "committed" once
// committed >= s. An abort, or a recovery that undoes s, erases the lines of s before the
// transaction line moves on. So a part that finds committed >= s and no line was aborted.
//
// A line stays until its part has ended durably. Nobody tells the decider. It looks when it needs
// the room (OpenEngines::has_ended) and when a part has synced. Lines are used again as soon as
// they may, so a crash leaves few whose parts had ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "file/lane.h"
#include "file/pool_file.h"
#include "heap/heap.h"
#include "tenuto/status.h"
#include "tx/format.h"

namespace TENUTO_NS::tx {

class Engine;

// The lane's frame of decisions; 0: it has none. corrupt: the link or the frame is damaged.
Status find_decisions(pm::PoolFile& file, const pm::Lane& lane, PoolOffset& frame, Report* report);

class Decisions {
 public:
  Decisions(pm::PoolFile& file, heap::Heap& heap, const pm::Lane& lane)
      : file_(file), heap_(heap), lane_(lane) {}

  // Takes over the frame that the lane is linked to. Each of its lines waits for its part.
  void adopt(PoolOffset frame);

  // Makes room for so many lines. full: the pool has no frame left. in_doubt: the frame is full of
  // lines whose pools are not open. Cost: one fence for a new frame.
  Status make_room(std::size_t parts);
  // Writes and flushes one line. REQUIRES: make_room() since the last forget().
  void write(std::uint64_t sequence, const TxnName& part);
  // The lines since the last forget().
  std::size_t written() const { return last_.size(); }
  // Erases them, durably after the caller's next fence. Cost: a line each.
  void withdraw();
  // Line i of them may be used again: its part has ended durably.
  void told(std::size_t i) { waiting_[last_[i]] = false; }
  // What `part` had ended before the lines since the last forget() is durable there.
  void told_before(const Engine& part);
  void forget() { last_.clear(); }

  // The pools that lines wait for. A pool may be there several times.
  void pools(std::vector<std::uint64_t>& ids) const;
  // Erases all lines of that pool, durably after the caller's next fence. REQUIRES: no transaction.
  void forget_pool(std::uint64_t pool_id);

  // Lines that wait for their parts.
  std::size_t waiting() const;
  // Gives the frame back if no line waits any more. Cost: one fence if it does.
  void trim();

 private:
  pm::LogLine& line(std::size_t i) const { return file_.at<pm::LogLine>(frame_)[1 + i]; }
  void look_who_ended();

  // Constant after open.
  pm::PoolFile& file_;
  heap::Heap& heap_;
  const pm::Lane& lane_;
  // Owner thread only.
  PoolOffset frame_;
  std::vector<bool> waiting_;  // by line
  std::size_t next_ = 0;       // where the search for a free line goes on
  std::vector<std::size_t> last_;
};

}  // namespace TENUTO_NS::tx
