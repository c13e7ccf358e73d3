// Consistency::internal: malloc_to and free_from with one fence and without a log ("internal
// collection" of NVAlloc, ASPLOS'22). The application finds its objects by walks, not by words.
//
//   malloc_to   D = b; B = 1 |
//   free_from   D = 0; B = 0 | b is free again
//   many blocks with a type, or zeros    contents | D = b; B = 1 |    (one block: publish)
// D is the destination word, B the block's bit or its entry in the bookkeeping log. Many blocks
// take the same fence. Authoritative: B. A walk meets a block if, and only if, its bit is durable.
// D is what the application makes of it: a crash in a call leaves any part of its stores. Then a
// word may name a free block, or a block have no word. Other calls are as they were: the fence ends
// each.
//
// publish and swap keep their intents: contents are durable before a word names them, so a publish
// would need two fences without an intent, too; and the root object is published. A swap without an
// intent could lose both its blocks. The next call retires what is durable of them with its own
// fence (retire_intents): their destinations would else stay pending.
//
// An intent of publish may be replayed beside a later free of the same word. A plain one cannot:
// its lane fences before another thread may use the word (Pool::malloc_to), and a free of its own
// lane fences its end. A versioned one finds a later version in D, and leaves D and B alone.
//
// Medium cache: nothing waits.
#include "heap/heap_paths.h"
#include "heap/word_kind.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
// Those of publish and swap whose effects are durable, with the next fence.
void retire_intents(LaneHeap& h) {
  const bool early = TENUTO_PLANT("heap_internal_retires_before_durable");
  const std::uint64_t upto = early ? h.cleared.load() : h.durable;
  if (h.retiring < upto) [[unlikely]]
    h.publish_retired(upto);
}
}  // namespace

// REQUIRES: the words are null, the blocks reserved.
template <class Word>
void Heap::State::attach_internal(LaneHeap& h, const IntentElement* e, std::size_t n) {
  guard_versions<Word>(h, e, n);
  store_bits(h, e, n, true);
  store_words<Word>(h, e, n, true);
  retire_intents(h);
  if (TENUTO_PLANT("heap_internal_malloc_unfenced")) return;
  fence_lane(h, "destinations and bits, without a log", "malloc_to returns");
}

// REQUIRES: the words point to the blocks, which are claimed.
template <class Word>
void Heap::State::detach_internal(LaneHeap& h, const IntentElement* e, std::size_t n) {
  guard_versions<Word>(h, e, n);
  const auto give = [&] {
    for (std::size_t i = 0; i < n; ++i) retire(h, e[i].block);
  };
  const bool early = TENUTO_PLANT("heap_internal_block_reused_before_fence");
  store_bits(h, e, n, false);
  store_words<Word>(h, e, n, false);
  retire_intents(h);
  if (early) return give();
  fence_lane(h, "destinations and bits cleared, without a log", "the blocks are reused");
  give();
}

template void Heap::State::attach_internal<PtrWord>(LaneHeap&, const IntentElement*, std::size_t);
template void Heap::State::attach_internal<VPtrWord>(LaneHeap&, const IntentElement*, std::size_t);
template void Heap::State::detach_internal<PtrWord>(LaneHeap&, const IntentElement*, std::size_t);
template void Heap::State::detach_internal<VPtrWord>(LaneHeap&, const IntentElement*, std::size_t);

}  // namespace TENUTO_NS::heap
