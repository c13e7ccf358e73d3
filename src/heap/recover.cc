// Opening, recovering, closing and validating a heap, in the order given in heap.h. replay.cc
// replays the intents. The functions here do not fence their results: what recovery writes becomes
// durable with the frames that it gives back, and what a close writes with the frames' counters.
// After a crash before that, the same recovery runs again.
#include <algorithm>
#include <bit>

#include "heap/heap_paths.h"
#include "heap/morph.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/parallel.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kLaneSegmentOrder = 7;
static_assert(pm::kLaneSegmentBytes == kFrameBytes << kLaneSegmentOrder);
constexpr unsigned kSlabFrames = kSlabBytes / kFrameBytes;
}  // namespace

Result<std::unique_ptr<Heap>> Heap::open(pm::PoolFile& file, frame::Frames& frames,
                                         pm::Lanes& lanes, bool clean, unsigned threads,
                                         const HeapOptions& options, Report* report) {
  const pm::MetadataOpen rights;
  if (file.bytes_max() > kPoolBytesMax) {
    return fail(Status::invalid_argument, report, "the pool may grow larger than intents can name",
                file.path(), std::to_string(kPoolBytesMax), std::to_string(file.bytes_max()));
  }
  std::unique_ptr<Heap> heap(new Heap);
  heap->state_.state_ = std::make_unique<State>(file, frames, lanes, options);
  State& s = heap->state_.as_opened();
  const bool wear_there = s.wear == nullptr || s.wear->there();
  if (!s.pages.there() || !s.frames.holes().there() || !s.extents.tables_are_there() ||
      !wear_there) {
    return fail(Status::full, report, "the system refuses memory for the tables of the heap",
                file.path());
  }
  s.clean = clean;
  s.use_nodes();
  TENUTO_TRY(s.extents.open(clean, report));
  s.read_threads = threads;
  // The counts of wear levelling come from the slabs.
  const bool later = clean && s.wear == nullptr;
  if (!later) TENUTO_TRY(s.find_slabs(threads, report));
  // Before recovery changes a bit. It goes on, so that what the pool holds can be read.
  Report damage;
  const bool sound = clean || s.begin_use(&damage) == Status::ok;
  if (!sound && !TENUTO_PLANT("heap_recovery_compares_no_seal"))
    file.mark_damaged(damage, pm::kVariantDamaged);
  heap->state_.read_.store(!later, std::memory_order_release);
  lanes.set_take_segment([h = heap.get()](unsigned node, bool there) {
    State& all = *h->state_;
    const unsigned core = node % all.numa.nodes();
    return there ? all.frames.get_there(kLaneSegmentOrder, core)
                 : all.frames.get(kLaneSegmentOrder, core);
  });
  return heap;
}

std::array<SlabBlock, 2> Heap::State::parts_at(PoolOffset o) const {
  const PageTable::Entry e = pages.find(o);
  if (e.owner == PageOwner::none) return {};
  const OldPart* old = e.slab()->old.load(std::memory_order_acquire);
  return {SlabBlock{e.slab(), e.slab()->index_of(o)},
          old == nullptr ? SlabBlock{} : SlabBlock{old->slab, old->grid.index_of(o)}};
}

SlabBlock Heap::State::slab_block(PoolOffset o, std::uint64_t bytes) const {
  const auto [now, old] = parts_at(o);
  const bool in_old = old && old.slab->block_bytes == bytes;
  return in_old && !TENUTO_PLANT("heap_intent_replayed_in_new_part") ? old : now;
}

// A log has the block's offset, not its size. So in a morphed slab both parts clear their bit. Only
// one part at a time uses a place, and the other part's bits there were durably clear before.
Status Heap::recover_free(PoolOffset block, Report* report) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  const auto parts = s.parts_at(block);
  if (!parts[0]) return s.extents.recover({block, 0, Kind::logged}, false, report);
  bool any = false;
  for (const SlabBlock& b : parts) {
    if (!b || b.index == kNoBlock || !is_logged(b.slab->kind)) continue;
    any = true;
    b.slab->recover(b.index, false);
  }
  if (any) return Status::ok;
  return fail(Status::corrupt, report, "a log names a block that cannot be",
              s.file.where(block, "block"));
}

// Blocks of neighbouring leaves are in slabs all over the pool. A locked instruction for each would
// wait for a line of another thread every time. So the slabs are divided into parts, the blocks are
// sorted by part, and a part's lock is taken once for all of them.
Status Heap::mark(std::span<const PoolOffset> blocks, Report* report) {
  const pm::MetadataOpen rights;
  return state_->mark_now(blocks, report);
}

Status Heap::State::mark_now(std::span<const PoolOffset> blocks, Report* report) {
  constexpr std::size_t kParts = kMarkParts;
  const auto part_of = [](PoolOffset o) { return o.value / kSlabBytes % kParts; };
  std::array<std::uint32_t, kParts + 1> begin{};
  for (const PoolOffset o : blocks) begin[part_of(o) + 1] += 1;
  for (std::size_t p = 0; p < kParts; ++p) begin[p + 1] += begin[p];
  std::vector<PoolOffset> sorted(blocks.size());
  std::array<std::uint32_t, kParts + 1> at = begin;
  for (const PoolOffset o : blocks) sorted[at[part_of(o)]++] = o;
  // Threads begin at different parts.
  const std::size_t first = blocks.empty() ? 0 : part_of(blocks[0]);
  for (std::size_t n = 0; n < kParts; ++n) {
    const std::size_t p = (first + n) % kParts;
    if (begin[p] == begin[p + 1]) continue;
    const std::lock_guard lock(mark_mu[p]);
    for (std::uint32_t i = begin[p]; i < begin[p + 1]; ++i) {
      TENUTO_TRY(mark(sorted[i], report));
    }
  }
  return Status::ok;
}

// REQUIRES: the lock of the slab's part.
Status Heap::State::mark(PoolOffset block, Report* report) {
  const auto [slab, i] = slab_block(block);
  if (slab == nullptr) return extents.mark(block, report);
  if (i == kNoBlock || is_logged(slab->kind)) {
    return fail(Status::corrupt, report, "a reference leads to no block",
                file.where(block, "reference"));
  }
  if (!slab->set_live_alone(i)) {
    return fail(Status::corrupt, report, "a block is referred to twice",
                file.where(block, "reference"));
  }
  return Status::ok;
}

void Heap::mark_later(std::unique_ptr<const Marks> marks) {
  State& s = state_.as_opened();
  const std::lock_guard lock(s.read_mu);
  s.to_mark.reserve(s.to_mark.size() + marks->parts());
  s.marks_later.push_back(std::move(marks));
  const Marks& m = *s.marks_later.back();
  for (std::size_t i = 0; i < m.parts(); ++i) s.to_mark.push_back({&m, i});
}

Status Heap::finish_recovery(Report* report) {
  const pm::MetadataOpen rights;
  State& s = state_.as_opened();
  if (!state_.has_read()) return s.extents.build(false, report);
  // The counts of wear levelling come from the slabs.
  if (s.marks_later.empty() || s.wear != nullptr) return s.end_recovery(report);
  // The replays before have fenced what they wrote.
  state_.read_.store(false, std::memory_order_release);
  return Status::ok;
}

// If an allocation fails, this begins again: a part is marked once, the extents are built once and
// the slabs finished once, as both need memory at their beginning alone, and own_frames names all
// frames anew.
Status Heap::State::end_recovery(Report* report) {
  Status marked = mark_parts(read_threads, report);
  if (marked == Status::io) marked = mark_parts(1, report);  // the system had no thread
  TENUTO_TRY(marked);
  if (!extents_built) TENUTO_TRY(extents.build(!clean, report));
  extents_built = true;
  if (!slabs_finished) TENUTO_TRY(finish_slabs(report));
  slabs_finished = true;
  if (!clean) TENUTO_TRY(own_frames(report));
  if (wear != nullptr) read_wear_tables();
  return Status::ok;
}

// What is damaged stays so: the blocks of its part have no marks. A later call that tries again,
// since memory or a thread was missing elsewhere, must not take them for free.
Status Heap::State::mark_parts(unsigned threads, Report* report) {
  std::mutex mu;
  const auto mark_part = [&](std::size_t i) {
    PartToMark& p = to_mark[i];
    if (p.done) return;
    if (TENUTO_PLANT("heap_part_marked_before_there_is_memory")) p.done = true;
    std::vector<PoolOffset> blocks;
    Report r;
    Status s = p.marks->blocks(p.part, blocks, &r);
    if (s == Status::ok && !TENUTO_PLANT("heap_later_marks_are_lost")) s = mark_now(blocks, &r);
    p.done = true;
    if (s == Status::ok) return;
    const std::lock_guard lock(mu);
    if (marks_failed != Status::ok) return;
    marks_failed = s;
    marks_report = std::move(r);
  };
  const Status s = pm::parallel_each(to_mark.size(), threads, mark_part);
  if (marks_failed != Status::ok) {
    if (report != nullptr) *report = marks_report;
    return marks_failed;
  }
  if (s != Status::ok) return fail(s, report, pm::kNoThreadHere, file.path());
  to_mark.clear();
  marks_later.clear();
  return Status::ok;
}

std::uint64_t Heap::leaked_frames() const {
  return state_.as_opened().clean ? 0 : state_->leaked_frames;
}

bool Heap::unread() const { return state_.as_opened().clean && !state_.has_read(); }

// Names all frames that have an owner to the frame allocator. The others were taken by operations
// that the crash interrupted before they recorded their frames.
Status Heap::State::own_frames(Report* report) {
  frame::Frames& f = frames.frames();
  f.begin_recovery();
  Status failed = Status::ok;
  const auto keep = [&](PoolOffset o, std::uint64_t n) {
    if (failed == Status::ok) failed = f.keep(frame_of_offset(o), n, report);
    return failed;
  };
  for_each_slab([&](Slab& slab) {
    if (!slab.is_old()) (void)keep(slab.offset, kSlabFrames);
  });
  TENUTO_TRY(name_frames(keep));
  TENUTO_TRY(failed);
  leaked_frames = f.end_recovery();
  return Status::ok;
}

// The frames of all owners but the slabs.
Status Heap::State::name_frames(const std::function<Status(PoolOffset, std::uint64_t)>& name) {
  TENUTO_TRY(extents.own_frames(name));
  for (const PoolOffset o : lanes.extra_segments()) {
    if (TENUTO_PLANT("heap_lane_segments_not_kept")) break;
    TENUTO_TRY(name(o, pm::kLaneSegmentBytes / kFrameBytes));
  }
  for (const PoolOffset o : log_frames) {
    if (!TENUTO_PLANT("heap_log_frames_not_kept")) TENUTO_TRY(name(o, kSlabFrames));
  }
  return Status::ok;
}

Status Heap::close() {
  const pm::MetadataOpen rights;
  State& s = state_.as_opened();
  TENUTO_TRY(s.file.writable());
  s.frames.large().stop();
  if (unread() && s.released_unread.empty()) {
    s.extents.seal();
    s.keep_slab_table();
    return Status::ok;
  }
  static_cast<void>(*state_);  // what the open left
  s.end_recording();
  if (!TENUTO_PLANT("heap_closed_with_deferred_frees")) TENUTO_TRY(s.free_all_deferred());
  s.extents.flush_log();  // for threads that still run and may never fence again
  const bool careless = TENUTO_PLANT("heap_close_forgets_living_threads");
  for (const auto& h : s.lane_heaps_owned) {
    if (!careless) s.drain_limbo(*h);
  }
  for (const auto& h : s.lane_heaps_owned) {
    if (!careless) s.drain_limbo(*h);  // blocks that waited for the other lanes
    s.empty_caches(*h);
  }
  if (s.wear != nullptr) {
    s.write_wear_table(0);
    s.end_all_rests();
  }
  bool sound = s.extents.guard_log();
  s.for_each_slab([&](Slab& slab) { sound = s.close_slab(slab) && sound; });
  // A page that cannot be written looks overwritten, too.
  TENUTO_TRY(s.file.bad_pages());
  // It may have been found before, while the caches were emptied.
  if (!sound || s.file.poisoned() != Status::ok) return Status::corrupt;
  s.write_slab_table();
  s.extents.close(0);
  s.extents.seal();
  return Status::ok;
}

// Derived blocks have no bits on media while the pool is open; the close writes them. It leaves a
// slab alone whose blocks are those of the last close: its page need not be read or written. After
// a crash the stripes are those of some close before, which say nothing.
// False: the slab was overwritten.
bool Heap::State::close_slab(Slab& slab) {
  if (slab.is_old()) return true;
  const bool same = slab.in_dram && slab.stripes_known && slab.live_are_used();
  if (same && !behind_objects(slab)) return true;
  const bool sound = guard_slab(slab);
  if (same) return sound;
  if (slab.in_dram) {
    BlockBits free_now{};
    for (std::size_t w = 0; w < slab.words(); ++w) {
      // A logged block that is only reserved is free from now on.
      free_now[w] = is_derived(slab.kind) ? slab.free_bits[w] : ~slab.live_word(w);
    }
    if (!TENUTO_PLANT("heap_close_forgets_derived_bits")) write_stripes(slab, free_now);
  }
  seal_stripes(slab);
  return sound;
}

Status Heap::validate(Report* report) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  TENUTO_TRY(was_read(report));
  s.collect_all_recorded();
  for (const auto& h : s.lane_heaps_owned) s.empty_caches(*h);
  Status status = Status::ok;
  s.for_each_slab([&](Slab& slab) {
    if (status == Status::ok) status = s.validate_slab(slab, report);
  });
  TENUTO_TRY(status);
  TENUTO_TRY(s.validate_canaries(report));
  TENUTO_TRY(s.extents.validate(report));
  return s.frames.frames().validate(report);
}

namespace {
bool stripes_are_live(const Slab& slab) {
  BlockBits used;
  read_stripes(slab, used);
  bool same = stripes_sealed(slab);
  for (std::size_t w = 0; w < slab.words(); ++w) same = same && used[w] == slab.live_word(w);
  return same;
}
}  // namespace

// REQUIRES: arena->mu is held.
Status Heap::State::validate_slab(const Slab& slab, Report* report) {
  const auto damaged = [&](PoolOffset o, const char* what) {
    return fail(Status::corrupt, report, what, file.where(o, "slab"));
  };
  const auto first_of = [&](std::size_t w, std::uint64_t bits) {
    return slab.block_offset(first_block(w, bits));
  };
  const OldPart* old = slab.old.load(std::memory_order_relaxed);
  if (slab.is_old()) {
    const OldPart* part = slab.successor.load(std::memory_order_relaxed)->old.load();
    for (unsigned i = 0; i < slab.blocks; ++i) {
      const bool held = Slab::is_set(part->held, i);
      if (held == slab.is_free(i)) return damaged(slab.block_offset(i), "held and free disagree");
    }
  } else {
    if (!header_sound(file, slab)) {
      return say_header(file, slab, "slab header changed", report);
    }
    if (!frames.frames().taken(frame_of_offset(slab.offset), frame::kOrderSlab)) {
      return damaged(slab.offset, "slab in a free frame");
    }
    if (old == nullptr && !old_stripes_clear(slab)) {
      return damaged(slab.offset, "a bit of an old part without blocks");
    }
    // Nobody has read them, if the slab is in the table of the last close.
    if (slab.stripes_known && !stripes_are_live(slab)) {
      return damaged(slab.offset, "the bits of a slab are not those of its last close");
    }
  }
  unsigned free_blocks = slab.blocks;
  BlockBits used{};
  if (!is_derived(slab.kind) && !slab.in_dram) read_stripes(slab, used);
  for (std::size_t w = 0; w < slab.words(); ++w) {
    free_blocks -= static_cast<unsigned>(std::popcount(slab.used_word(w)));
    if (is_derived(slab.kind)) continue;
    const std::uint64_t live = slab.live_word(w);
    const std::uint64_t apart = slab.in_dram ? 0 : used[w] ^ live;
    if (apart != 0) return damaged(first_of(w, apart), "block's bit and its use disagree");
    const std::uint64_t both = slab.free_bits[w] & live;
    if (both != 0) return damaged(first_of(w, both), "free block in use");
    if (slab.kind != Kind::typed) continue;
    for (std::uint64_t left = live; left != 0; left &= left - 1) {
      if (slab.type_word(first_block(w, left)) != 0) continue;
      return damaged(first_of(w, left), "typed block without a type");
    }
  }
  TENUTO_TRY(validate_canaries(slab, report));
  if (free_blocks != slab.free_count) return damaged(slab.offset, "free blocks are miscounted");
  if (old != nullptr && !blocked_soundly(slab)) {
    return damaged(slab.offset, "blocks of both parts of a slab overlap");
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::heap
