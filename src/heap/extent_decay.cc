// How free extents lose their pages, and chunks their frames: decay, trim, and returns to the frame
// allocator.
//
//   tombstone durable | extent is free | its pages are given back
// release() takes care of the first step. The second happens only in this file. So no hole is
// punched where the log could still have a live extent. An extent whose pages are being given back
// is in no list and is not joined, so the system calls need no lock. On medium `journal` only trim
// does it: each turn makes a checkpoint (PoolFile::settle_frees), for up to kHeldMax extents.
#include <algorithm>
#include <array>

#include "heap/extent.h"
#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
constexpr std::uint64_t kPunchFramesLeast = 16;   // at once, if there are so many
constexpr unsigned kOperationsBetweenLooks = 64;  // between reads of the clock
}  // namespace

std::int64_t Extents::now_ms() const { return heap_clock_ms(options_); }

// A lost update of the count only shifts the next look at the clock.
void Extents::tick(unsigned core) {
  Shard& own = *shards_[core % shards_.size()];
  if (own.decay.never()) return;
  const unsigned n = own.looks.load(std::memory_order_relaxed) + 1;
  own.looks.store(n, std::memory_order_relaxed);
  if (n % kOperationsBetweenLooks == 0 || own.decay.at_once()) decay(core);
}

// One's own shard, and another one in turn: its threads may have stopped.
void Extents::decay(unsigned core) {
  if (!file_.may_punch() || file_.frees_wait()) return;
  const std::int64_t now = now_ms();
  const auto decay_one = [&](unsigned i) {
    Shard& shard = *shards_[i % shards_.size()];
    Lock lock(shard.mu);
    // At once means at once: nothing may call again.
    const Patient patient = shard.decay.at_once() ? Patient::yes : Patient::no;
    purge(shard, lock, shard.decay.excess(now, shard.free.frames_resident()), patient);
  };
  if (shards_.front()->decay.at_once()) {
    for (unsigned i = 0; i < shards_.size(); ++i) decay_one(i);
    return;
  }
  decay_one(core);
  if (shards_.size() > 1) decay_one(decayed_.fetch_add(1, std::memory_order_relaxed));
}

void Extents::purge(Shard& shard, Lock& lock, std::uint64_t want, Patient patient) {
  std::array<Leaving, kHeldMax> held;
  const std::size_t held_max = file_.frees_wait() ? kHeldMax : 1;
  while (want > 0 && shard.free.oldest() != 0) {
    std::size_t n = 0;
    for (std::uint64_t left = want; left > 0 && n < held_max && shard.free.oldest() != 0; ++n) {
      held[n] = hold_oldest(shard, left);
      left -= std::min(left, held[n].pages);
    }
    lock.unlock();
    const bool settled = file_.settle_frees() == Status::ok;
    bool all = settled;
    for (std::size_t i = 0; i < n && settled; ++i) {
      const Leaving& e = held[i];
      const Status s =
          frames_.holes().punch(e.from, e.frame + e.frames - e.from, patient == Patient::yes);
      all = all && s == Status::ok && e.pages > 0;
      want -= std::min(want, e.pages);
    }
    lock.lock();
    // The youngest first: each becomes the oldest, if it has pages still.
    for (; n > 0; --n) {
      slots_[held[n - 1].frame].set({});
      give_back_whole(shard, put_free(shard, held[n - 1].frame, held[n - 1].frames, Age::old));
    }
    if (!all) return;  // else the next round would find the same extents
  }
}

// Takes the oldest free extent. As many pages from its end are to leave as are wanted, or all that
// it has.
Extents::Leaving Extents::hold_oldest(Shard& shard, std::uint64_t want) {
  const std::uint64_t frame = shard.free.oldest();
  const ExtentWord w = slots_[frame].get();
  shard.free.remove(frame);
  slots_[frame].set(ExtentWord::make(ExtentState::busy, Kind::logged, w.frames()));
  Leaving e{frame, w.frames(), frame + w.frames(), 0};
  const std::uint64_t wanted = std::min(std::max(want, kPunchFramesLeast), w.resident());
  while (e.from > frame && (e.pages < wanted || e.from % kPunchFramesLeast != 0)) {
    e.from -= 1;
    e.pages += frames_.holes().is_hole(e.from) ? 0 : 1;
  }
  return e;
}

void Extents::trim() {
  book_.tend(true);
  give_back_free();
  if (!file_.may_punch()) return;
  for (const auto& shard : shards_) {
    Lock lock(shard->mu);
    purge(*shard, lock, shard->free.frames_resident(), Patient::yes);
  }
}

// --- frames --------------------------------------------------------------------------------------

// Gives back a chunk that is wholly free and has no pages left: others can use its frames.
void Extents::give_back_whole(Shard& shard, std::uint64_t frame) {
  const ExtentWord w = slots_[frame].get();
  const std::uint64_t whole = halves_of(frame) == 3 ? kChunkFrames : kHugeFrames;
  if (w.resident() == 0 && w.frames() == whole && frame % kHugeFrames == 0) give_back(shard, frame);
}

// Cuts the whole huge frames out of a free extent and gives them back.
void Extents::give_back(Shard& shard, std::uint64_t frame) {
  const std::uint64_t end = frame + slots_[frame].get().frames();
  const std::uint64_t first = round_up(frame, kHugeFrames);
  const std::uint64_t last = round_down(end, kHugeFrames);
  TENUTO_ASSERT(first < last);
  const AgeOrder age = shard.free.remove(frame);
  if (first > frame) add_free(shard, frame, first - frame, age);
  if (end > last) add_free(shard, last, end - last, age);
  for (std::uint64_t f = first; f < last; f += kHugeFrames) {
    {
      const std::lock_guard regions(regions_mu_);
      halves_[f / kChunkFrames].fetch_and(
          static_cast<std::uint8_t>(~(1u << (f / kHugeFrames % 2))));
    }
    frames_.put(offset_of_frame({f}), frame::kOrderHuge, 0);
  }
}

bool Extents::give_back_free() {
  bool any = false;
  for (const auto& shard : shards_) {
    const std::lock_guard lock(shard->mu);
    std::vector<std::uint64_t> whole;
    shard->free.for_each_from(kHugeFrames, [&](std::uint64_t f, std::uint64_t frames) {
      if (round_up(f, kHugeFrames) + kHugeFrames <= f + frames) whole.push_back(f);
    });
    for (const std::uint64_t f : whole) give_back(*shard, f);
    any = any || !whole.empty();
  }
  return any;
}

// After the next open a half of a chunk without live extents has no owner. So its frame is given
// back now.
void Extents::close(unsigned core) {
  const auto locks = lock_all();
  const auto live = [](const ExtentWord& w) {
    return w.state() == ExtentState::live || w.state() == ExtentState::claimed;
  };
  std::vector<std::uint8_t> used(regions());
  for_each_extent([&](std::uint64_t frame, const ExtentWord& w) {
    if (!live(w)) return;
    const std::uint64_t last = (frame + w.frames() - 1) / kHugeFrames;
    for (std::uint64_t h = frame / kHugeFrames; h <= last; ++h) {
      used[h / 2] |= static_cast<std::uint8_t>(1u << (h % 2));
    }
  });
  for (std::uint64_t h = 0; h < 2 * regions(); ++h) {
    const unsigned bit = 1u << (h % 2);
    if ((halves_[h / 2].load() & bit) == 0 || (used[h / 2] & bit) != 0) continue;
    frames_.put(offset_of_frame({h * kHugeFrames}), frame::kOrderHuge, core);
  }
  const std::lock_guard huge(huge_mu_);
  for (const auto& [frame, frames] : huge_) {
    if (live(slots_[frame].get())) continue;
    frames_.put_run(offset_of_frame({frame}), frames / kHugeFrames, core);
  }
}

}  // namespace TENUTO_NS::heap
