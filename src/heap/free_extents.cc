#include "heap/free_extents.h"

#include "pm/assert.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kProbes = 4;  // extents of one size that are tried for an alignment
}

// --- by size -------------------------------------------------------------------------------------

void SizeLists::push(std::uint64_t frame, std::uint64_t frames) {
  Slot& s = slots_[frame];
  const std::uint64_t head = heads_[frames];
  s.set_link(Link::size_prev, 0);
  s.set_link(Link::size_next, head);
  if (head != 0) {
    slots_[head].set_link(Link::size_prev, frame);
  } else {
    bits_[frames / 64] |= std::uint64_t{1} << (frames % 64);
    words_ |= 1u << (frames / 64);
  }
  heads_[frames] = frame;
}

void SizeLists::remove(std::uint64_t frame, std::uint64_t frames) {
  const Slot& s = slots_[frame];
  const std::uint64_t prev = s.link(Link::size_prev);
  const std::uint64_t next = s.link(Link::size_next);
  if (next != 0) slots_[next].set_link(Link::size_prev, prev);
  if (prev != 0) {
    slots_[prev].set_link(Link::size_next, next);
    return;
  }
  heads_[frames] = next;
  if (next != 0) return;
  bits_[frames / 64] &= ~(std::uint64_t{1} << (frames % 64));
  if (bits_[frames / 64] == 0) words_ &= ~(1u << (frames / 64));
}

unsigned SizeLists::size_from(std::uint64_t frames) const {
  if (frames > kChunkFrames) return kChunkFrames + 1;
  std::size_t w = frames / 64;
  std::uint64_t bits = bits_[w] & (~std::uint64_t{0} << (frames % 64));
  if (bits == 0) {
    const unsigned behind = words_ & (~0u << w << 1);
    if (behind == 0) return kChunkFrames + 1;
    w = static_cast<std::size_t>(std::countr_zero(behind));
    bits = bits_[w];
  }
  return static_cast<unsigned>(w * 64) + static_cast<unsigned>(std::countr_zero(bits));
}

// --- all -----------------------------------------------------------------------------------------

void FreeExtents::add(std::uint64_t frame, std::uint64_t frames, std::uint64_t resident,
                      AgeOrder age) {
  Slot& s = slots_[frame];
  s.set(ExtentWord::make_free(frames, resident));
  if (frames > 1) slots_[frame + frames - 1].set(ExtentWord::make_tail(frames));
  frames_free_ += frames;
  frames_resident_ += resident;
  if (resident == 0) return retained_.push(frame, frames);
  reclaimed_.push(frame, frames);
  const std::uint64_t younger = age.younger;
  const std::uint64_t older = younger == 0 ? youngest_ : slots_[younger].link(Link::older);
  s.set_link(Link::younger, younger);
  s.set_link(Link::older, older);
  if (younger != 0) {
    slots_[younger].set_link(Link::older, frame);
  } else {
    youngest_ = frame;
  }
  if (older != 0) {
    slots_[older].set_link(Link::younger, frame);
  } else {
    oldest_ = frame;
  }
}

AgeOrder FreeExtents::remove(std::uint64_t frame) {
  Slot& s = slots_[frame];
  const ExtentWord w = s.get();
  TENUTO_ASSERT(w.state() == ExtentState::free);
  frames_free_ -= w.frames();
  frames_resident_ -= w.resident();
  s.set({});
  if (w.frames() > 1) slots_[frame + w.frames() - 1].set({});
  if (w.resident() == 0) {
    retained_.remove(frame, w.frames());
    return {};
  }
  reclaimed_.remove(frame, w.frames());
  const std::uint64_t younger = s.link(Link::younger);
  const std::uint64_t older = s.link(Link::older);
  if (younger != 0) {
    slots_[younger].set_link(Link::older, older);
  } else {
    youngest_ = older;
  }
  if (older != 0) {
    slots_[older].set_link(Link::younger, younger);
  } else {
    oldest_ = younger;
  }
  return {younger};
}

std::uint64_t FreeExtents::best_of(const SizeLists& lists, std::uint64_t frames,
                                   std::uint64_t align) const {
  for (unsigned size = lists.size_from(frames); size <= kChunkFrames;
       size = lists.size_from(size + 1)) {
    std::uint64_t f = lists.first(size);
    for (unsigned n = 0; n < kProbes && f != 0; ++n, f = lists.next(f)) {
      if (round_up(f, align) + frames <= f + size) return f;
    }
  }
  return 0;
}

std::uint64_t FreeExtents::best(std::uint64_t frames, std::uint64_t align) const {
  const std::uint64_t f = best_of(reclaimed_, frames, align);
  return f != 0 ? f : best_of(retained_, frames, align);
}

std::uint64_t FreeExtents::ending_at(std::uint64_t frame) const {
  const ExtentWord w = slots_[frame].get();
  if (w.state() == ExtentState::tail) return frame + 1 - w.frames();
  return w.state() == ExtentState::free && w.frames() == 1 ? frame : 0;
}

}  // namespace TENUTO_NS::heap
