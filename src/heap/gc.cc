// Consistency::gc: malloc_to and free_from without a log (NVAlloc-GC, ASPLOS'22; Makalu, Ralloc).
//
//   malloc_to   D = b (*)
//   free_from   D = 0 (*) | b is free again
//   large       entry | D = b (*)       D = 0 | tombstone | b is free again
//   with a type, published              type, contents | D = b (*)
//   (*) The lane keeps the word (LaneHeap::unfenced), and flushes and fences all of them together:
//       after kUnfencedMost, in Heap::fence_thread, when the pool is full, and in a close. A word
//       that changes often, or stands beside others, is flushed once. On medium journal, where a
//       fence waits for nothing, each call does it.
// D is the destination word, b the block. Authoritative: the words that the root leads to. The bits
// of slabs are in DRAM; a clean close writes them. After a crash all blocks that pointers lead to
// are allocated, and no others (reach.cc), large ones only if they have an entry, too.
//
// A freed block waits for a fence: if it were used again before D = 0 is durable, a crash could
// leave D naming the block of its next owner. It waits for no other lane: no intent of one names
// words of freed blocks, for that of a swap is retired before the swap returns. A malloc waits for
// nothing: until D is durable a crash frees b. An entry is durable before D, or the block that D
// names would not be found. So is a type, by which a filter reads the block.
//
// A swap keeps its intent: between two words without one, a block could be named by neither. It is
// retired before the swap returns, for no later call of this variant would do it.
//
// Medium cache: nothing waits.
#include <algorithm>

#include "heap/heap_paths.h"
#include "heap/readings.h"
#include "heap/word_kind.h"
#include "pm/metadata_key.h"
#include "pm/parallel.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

void Heap::State::note_unfenced(LaneHeap& h, const std::uint64_t& word, PoolOffset freed,
                                const SlabBlock& at) {
  transient(&word, sizeof word);  // for now
  h.unfenced[h.unfenced_count++] = {&word, freed, at};
  if (h.unfenced_count == h.unfenced.size() || file.journal() != nullptr) fence_words(h);
}

void Heap::State::fence_words(LaneHeap& h) {
  if (h.unfenced_count == 0) return;
  const char* before = nullptr;
  for (unsigned i = 0; i < h.unfenced_count; ++i) {
    const char* const line = pm::line_of(h.unfenced[i].word);
    if (line != std::exchange(before, line)) flush_bytes(line, kLineBytes);
  }
  fence("destinations of a lane", "its freed blocks are reused");
  const unsigned count = std::exchange(h.unfenced_count, 0);
  for (unsigned i = 0; i < count; ++i) {
    const LaneHeap::Unfenced& u = h.unfenced[i];
    if (u.freed) give_back(h, u.freed, u.at);
  }
}

template <class Word>
void Heap::State::attach_gc(LaneHeap& h, const IntentElement& e) {
  if (e.slab != nullptr) [[likely]] {
    if (h.numa != nullptr) h.numa->count(NumaAccess::state, e.slab->owner);
    e.slab->set_live(e.index);
    if (e.slab->reserved(e.index)) e.slab->clear_reserved(e.index);
  } else {
    flush(extents.mark_allocated(e.block, h.core));
    fence("entry of a large block", "a word names it");
  }
  const std::uint64_t& word = store_word<Word>(e, true);
  if (!stores_persist) note_unfenced(h, word, {}, {});
}

// REQUIRES: the block is claimed.
template <class Word>
void Heap::State::detach_gc(LaneHeap& h, const IntentElement& e) {
  const std::uint64_t& word = store_word<Word>(e, false);
  if (e.slab == nullptr) {
    flush(word);
    fence("word of a large block", "its tombstone");
    flush(extents.mark_free(e.block, h.core));
    fence("tombstone of a large block", "the block is reused");
    retire(h, e.block);
  } else if (stores_persist || TENUTO_PLANT("heap_gc_block_reused_before_fence")) {
    give_back_at_once(h, e.block, {e.slab, e.index});
  } else {
    if (h.numa != nullptr) h.numa->count(NumaAccess::state, e.slab->owner);
    note_unfenced(h, word, e.block, {e.slab, e.index});
  }
}

template void Heap::State::attach_gc<PtrWord>(LaneHeap&, const IntentElement&);
template void Heap::State::attach_gc<VPtrWord>(LaneHeap&, const IntentElement&);
template void Heap::State::detach_gc<PtrWord>(LaneHeap&, const IntentElement&);
template void Heap::State::detach_gc<VPtrWord>(LaneHeap&, const IntentElement&);

void Heap::fence_thread() {
  const pm::MetadataOpen rights;
  // Before the slabs are read no thread has allocated or freed.
  if (state_.has_read() && state_->gc) state_->fence_words(state_->mine());
}

// Allocated are the blocks that have a mark.
static void set_live(Slab& slab, const ReachedMarks& marks) {
  BlockBits live{};
  marks.for_each(slab.offset, kSlabBytes, [&](PoolOffset o) {
    const unsigned i = slab.index_of(o);
    if (i != kNoBlock) live[i / 64] |= std::uint64_t{1} << i % 64;
  });
  for (std::size_t w = 0; w < slab.words(); ++w) slab.set_live_word(w, slab.live_word(w) | live[w]);
}

// --- collection ----------------------------------------------------------------------------------

// Volatile but for the tombstones of large blocks, which Extents::build appends. After a crash on
// the way the same collection runs again.
Status Heap::collect(PoolOffset root, const GarbageOptions& options, Reached& reached,
                     Report* report) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  Readings readings(s.file.bytes());
  ReachedMarks& marks = readings.reached;
  if (!readings.there()) {
    return fail(Status::full, report, "the system refuses memory for the marks of the blocks",
                s.file.path());
  }
  if (root) {
    reach_after_crash({&root, 1}, options, readings, reached);
    if (!marks.has(root)) {
      return fail(Status::corrupt, report, "the root word leads to no object",
                  s.file.where({pm::kHeadPageOffset}, "roots"));
    }
  }
  // Nothing leads to the counts of wear levelling.
  s.extents.for_each_recovered([&](const BookRecord& r) {
    const std::uint64_t bytes = r.frames * kFrameBytes - kTypeBytes;
    const bool ours = r.kind == Kind::typed && s.is_wear_table(r.offset, bytes);
    if (ours && !TENUTO_PLANT("heap_wear_table_is_garbage")) marks.set(r.offset);
  });
  TENUTO_TRY(s.file.bad_pages(report));
  if (TENUTO_PLANT("heap_gc_forgets_what_is_reached")) return Status::ok;
  std::vector<Slab*> slabs;
  s.for_each_slab([&](Slab& slab) {
    if (is_logged(slab.kind)) slabs.push_back(&slab);
  });
  constexpr std::size_t kTogether = 32;
  const std::size_t parts = (slabs.size() + kTogether - 1) / kTogether;
  pm::waiting_each(parts, threads_of(options), [&](std::size_t part) {
    const std::size_t end = std::min(slabs.size(), (part + 1) * kTogether);
    for (std::size_t i = part * kTogether; i < end; ++i) set_live(*slabs[i], marks);
  });
  s.extents.mark_reached(marks);
  return Status::ok;
}

}  // namespace TENUTO_NS::heap
