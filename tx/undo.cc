// Log frames. The chain that starts in the lane's transaction line is authoritative.
//
// A new frame is zeroed: its old contents could be another lane's entries with the sequence that
// this lane uses next. The zeros are fenced before the link names the frame. The link needs no
// fence of its own, because it is flushed before the fence of the entries. An unlink is fenced
// before the frame goes back.
#include "tx/undo.h"

#include <algorithm>
#include <string>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::tx {

namespace {

std::uint64_t link_salt_of(LaneId lane, std::size_t area, std::size_t index) {
  return index == 0 ? salt_of(lane, WordPlace::log_frame, area)
                    : salt_of(lane, WordPlace::next, index * kAreas + area);
}

}  // namespace

std::string log_frame_name(const pm::Lane& lane, std::size_t area, std::size_t index) {
  const std::string of_lane = "of lane " + std::to_string(lane.id.value);
  if (area == kDecisionsArea) return "decisions " + of_lane;
  return "log frame " + std::to_string(index) + " " + of_lane + ", area " + std::to_string(area);
}

Status read_chain(pm::PoolFile& file, const pm::Lane& lane, std::size_t area, FrameChain& chain,
                  Report* report) {
  chain.clear();
  const SealedWord* link = &tx_line(lane).log_frame[area];
  const std::uint64_t frames_max = file.bytes() / kLogFrameBytes;
  for (;;) {
    const std::size_t index = chain.size();
    const auto where = [&](PoolOffset o) {
      return file.where(o, log_frame_name(lane, area, index));
    };
    const PoolOffset frame{link->number()};
    if (!link->sound(link_salt_of(lane.id, area, index))) {
      return fail(Status::corrupt, report, "the link to a transaction's log frame is damaged",
                  where(file.offset_of(link)));
    }
    if (!frame) return Status::ok;
    if (index >= frames_max) {
      return fail(Status::corrupt, report, "the chain of a transaction's log frames has no end",
                  where(file.offset_of(link)));
    }
    TENUTO_TRY(check_log_frame(file, lane, area, index, frame, report));
    chain.push_back(frame);
    link = &file.at<LogFrameHeader>(frame)->next;
  }
}

Status check_log_frame(pm::PoolFile& file, const pm::Lane& lane, std::size_t area,
                       std::size_t index, PoolOffset frame, Report* report) {
  const auto where = [&] { return file.where(frame, log_frame_name(lane, area, index)); };
  if (frame.value % kLogFrameBytes != 0 || !file.in_range(frame, kLogFrameBytes)) {
    return fail(Status::corrupt, report, "a transaction's log frame lies where none can be",
                where());
  }
  const auto& header = *file.at<LogFrameHeader>(frame);
  if (header.magic == kLogFrameMagic && header.lane == lane.id.value && header.area == area &&
      header.index == index && header.crc == header_crc(header)) {
    return Status::ok;
  }
  return fail(Status::corrupt, report, "the header of a transaction's log frame is damaged",
              where());
}

bool in_log_reach(const pm::PoolFile& file, std::uint64_t offset, std::uint64_t bytes) {
  if (file.in_range({offset}, bytes)) return true;
  const auto inside = [&](std::uint64_t member, std::uint64_t size) {
    const std::uint64_t first = pm::kHeadPageOffset + member;
    return offset >= first && bytes <= size && offset + bytes <= first + size;
  };
  return inside(offsetof(pm::HeadPage, roots), sizeof(pm::HeadPage::roots)) ||
         inside(offsetof(pm::HeadPage, layout), sizeof(pm::HeadPage::layout));
}

void restore_entry(pm::PoolFile& file, const pm::LogLine& entry) {
  const EntryHead head{entry.word[0]};
  restore_bytes(file, head.offset(), reinterpret_cast<const std::byte*>(&entry.word[1]),
                head.length());
}

void restore_bytes(pm::PoolFile& file, PoolOffset at, const std::byte* from, std::size_t bytes) {
  using AnyWord [[gnu::may_alias]] = std::uint64_t;
  auto* to = file.at<std::byte>(at);
  // Other threads may read these words without our locks, so whole words must not tear.
  for (std::size_t left = bytes; left > 0;) {
    if (left >= 8 && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
      std::uint64_t word;
      std::memcpy(&word, from, 8);
      __atomic_store_n(reinterpret_cast<AnyWord*>(to), word, __ATOMIC_RELEASE);
      to += 8, from += 8, left -= 8;
    } else {
      store_ordered(*to, *from);
      to += 1, from += 1, left -= 1;
    }
  }
}

namespace {
// Stores back the bytes of the entry that are in none of the ranges kept[0..n).
void restore_beside(pm::PoolFile& file, const std::byte* old, Range r,
                    std::span<const Range> kept) {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].begin >= r.end || kept[i].end <= r.begin) continue;
    const std::span<const Range> others = kept.subspan(i + 1);
    if (r.begin < kept[i].begin) restore_beside(file, old, {r.begin, kept[i].begin}, others);
    if (kept[i].end >= r.end) return;
    old += kept[i].end - r.begin;
    r.begin = kept[i].end;
  }
  restore_bytes(file, {r.begin}, old, r.end - r.begin);
}
}  // namespace

void UndoLog::restore(std::span<const Range> kept) {
  for (std::size_t i = size_; i-- > 0;) {
    const pm::LogLine& line = log_line(file_, lane_, area_, frames_[area_], i);
    if (pm::log_sequence(line) != sequence_) {
      // Forgotten, or zeros replaced the page of the entry.
      TENUTO_ASSERT(line.seal == 0 || file_.bad_pages() != Status::ok);
      continue;
    }
    const EntryHead head{line.word[0]};
    if (head.kind() != EntryKind::undo) continue;
    const std::uint64_t begin = head.offset().value;
    restore_beside(file_, reinterpret_cast<const std::byte*>(&line.word[1]),
                   {begin, begin + head.length()}, kept);
  }
}

void UndoLog::forget_free(std::size_t i) {
  pm::LogLine& line = log_line(file_, lane_, area_, frames_[area_], i);
  if (pm::log_sequence(line) != sequence_) return;  // forgotten
  if (EntryHead{line.word[0]}.kind() == EntryKind::free) pm::clear_log_line(line);
}

SealedWord& UndoLog::link_of(std::size_t area, std::size_t index) const {
  if (index == 0) return tx_line(lane_).log_frame[area];
  return file_.at<LogFrameHeader>(frames_[area][index - 1])->next;
}

Status UndoLog::next_frame() {
  const std::size_t index = (size_ - pm::kLaneUndoLines) / kLogFrameLines;
  if (index == frames_[area_].size()) TENUTO_TRY(take_frame());
  next_ = file_.at<pm::LogLine>(frames_[area_][index]) + 1;
  end_ = next_ + kLogFrameLines;
  return Status::ok;
}

Result<PoolOffset> take_log_frame(pm::PoolFile& file, heap::Heap& heap, const pm::Lane& lane,
                                  std::size_t area, std::size_t index, SealedWord& link_word,
                                  std::uint64_t salt) {
  Result<PoolOffset> frame = heap.take_log_frame();
  if (!frame) return frame;
  auto* header = file.at<LogFrameHeader>(*frame);
  const SealedWord link{SealedWord::make(frame->value, salt)};
  if (TENUTO_PLANT("tx_log_frame_linked_early")) publish(link_word, link);
  std::memset(static_cast<void*>(header), 0, kLogFrameBytes);
  header->magic = kLogFrameMagic;
  header->lane = lane.id.value;
  header->area = static_cast<std::uint32_t>(area);
  header->index = index;
  header->crc = header_crc(*header);
  flush_bytes(header, kLogFrameBytes);
  fence("log frame zeroed", "log frame linked");
  publish(link_word, link);
  return frame;
}

Status UndoLog::take_frame() {
  FrameChain& chain = frames_[area_];
  if (chain.size() == chain.capacity()) chain.reserve(2 * chain.size() + 1);
  const std::size_t index = chain.size();
  const Result<PoolOffset> frame =
      take_log_frame(file_, heap_, lane_, area_, index, link_of(area_, index),
                     link_salt_of(lane_.id, area_, index));
  if (!frame) return frame.error();
  chain.push_back(*frame);  // has room, so no linked frame is forgotten
  return Status::ok;
}

void UndoLog::trim(std::size_t keep) {
  std::size_t cut = 0;
  for (std::size_t area = 0; area < kAreas; ++area) {
    if (frames_[area].size() <= keep) continue;
    publish(link_of(area, keep), SealedWord{});
    cut += frames_[area].size() - keep;
  }
  if (cut == 0) return;
  fence("log frames unlinked", "log frames reused");
  for (FrameChain& chain : frames_) {
    for (std::size_t i = chain.size(); i-- > keep;) heap_.put_log_frame(chain[i]);
    chain.resize(std::min(chain.size(), keep));
  }
}

}  // namespace TENUTO_NS::tx
