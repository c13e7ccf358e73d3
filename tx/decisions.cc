#include "tx/decisions.h"

#include <algorithm>
#include <bitset>
#include <string>

#include "pm/plant.h"
#include "tenuto/persist.h"
#include "tx/engine.h"
#include "tx/open_engines.h"
#include "tx/undo.h"

namespace TENUTO_NS::tx {

namespace {
std::uint64_t link_salt(const pm::Lane& lane) { return salt_of(lane.id, WordPlace::decisions); }
}  // namespace

Status find_decisions(pm::PoolFile& file, const pm::Lane& lane, PoolOffset& frame, Report* report) {
  const SealedWord& link = tx_line(lane).decisions;
  frame = {link.number()};
  if (!link.sound(link_salt(lane))) {
    return fail(Status::corrupt, report, "the link to a transaction's log frame is damaged",
                file.where(file.offset_of(&link), log_frame_name(lane, kDecisionsArea, 0)));
  }
  return frame ? check_log_frame(file, lane, kDecisionsArea, 0, frame, report) : Status::ok;
}

void Decisions::adopt(PoolOffset frame) {
  frame_ = frame;
  waiting_.assign(kLogFrameLines, false);
  for (std::size_t i = 0; i < kLogFrameLines; ++i) waiting_[i] = line(i).seal != 0;
}

std::size_t Decisions::waiting() const {
  return static_cast<std::size_t>(std::count(waiting_.begin(), waiting_.end(), true));
}

void Decisions::look_who_ended() {
  std::bitset<kLogFrameLines> ended;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    ended[i] = waiting_[i] && OpenEngines::has_ended(name_in(line(i)));
  }
  for (std::size_t i = 0; i < ended.size(); ++i) {
    if (!ended[i]) continue;
    const std::uint64_t pool_id = name_in(line(i)).pool_id;
    const bool durable = OpenEngines::sync(pool_id);  // once for each pool
    for (std::size_t k = i; k < ended.size(); ++k) {
      if (!ended[k] || name_in(line(k)).pool_id != pool_id) continue;
      ended[k] = false;
      if (durable) waiting_[k] = false;
    }
  }
}

Status Decisions::make_room(std::size_t parts) {
  last_.reserve(parts);
  if (!frame_) {
    waiting_.assign(kLogFrameLines, false);
    const Result<PoolOffset> frame = take_log_frame(file_, heap_, lane_, kDecisionsArea, 0,
                                                    tx_line(lane_).decisions, link_salt(lane_));
    if (!frame) return frame.error();
    frame_ = *frame;
  }
  const auto room = [this] { return kLogFrameLines - waiting(); };
  if (room() < parts) look_who_ended();
  if (next_ > waiting() + parts) next_ = 0;  // two sets in turn: no line is flushed twice in a row
  return room() < parts ? Status::in_doubt : Status::ok;
}

void Decisions::write(std::uint64_t sequence, const TxnName& part) {
  if (!TENUTO_PLANT("tx_decision_overwritten_early"))
    while (waiting_[next_]) next_ = (next_ + 1) % kLogFrameLines;
  const EntryHead head = EntryHead::make(EntryKind::prepared, {0}, sizeof part);
  pm::write_log_line(line(next_), {head.raw, part.pool_id, part.lane, part.sequence, 0, 0, 0},
                     sequence);
  waiting_[next_] = true;
  last_.push_back(next_);
  if (!TENUTO_PLANT("tx_decision_overwritten_early")) next_ = (next_ + 1) % kLogFrameLines;
}

void Decisions::told_before(const Engine& part) {
  const std::uint64_t pool_id = part.file().superblock().pool_id;
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (!waiting_[i] || name_in(line(i)).pool_id != pool_id) continue;
    if (part.ended(name_in(line(i)))) waiting_[i] = false;
  }
}

void Decisions::pools(std::vector<std::uint64_t>& ids) const {
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i]) ids.push_back(name_in(line(i)).pool_id);
  }
}

void Decisions::forget_pool(std::uint64_t pool_id) {
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (!waiting_[i] || name_in(line(i)).pool_id != pool_id) continue;
    pm::clear_log_line(line(i));
    waiting_[i] = false;
  }
}

void Decisions::withdraw() {
  for (const std::size_t i : last_) {
    pm::clear_log_line(line(i));
    waiting_[i] = false;
  }
  last_.clear();
}

void Decisions::trim() {
  if (!frame_) return;
  look_who_ended();
  if (waiting() != 0) return;
  publish(tx_line(lane_).decisions, SealedWord{});
  fence("log frames unlinked", "log frames reused");
  heap_.put_log_frame(frame_);
  frame_ = {};
  waiting_.clear();
  next_ = 0;
}

}  // namespace TENUTO_NS::tx
