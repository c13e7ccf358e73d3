// malloc_to, free_from and publish of one block, and swap. The protocols are those of malloc.cc.
// One block takes one line of intents, one bit and one word: nothing here goes round. The functions
// on its way are inlined into one: half of their instructions were calls.
#include "heap/heap_paths.h"
#include "heap/word_kind.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

// Writes the intent of one element. `type`: of a typed block, otherwise 0.
template <IntentOp kOp>
[[gnu::always_inline]] inline void Heap::State::write_intent(LaneHeap& h, const IntentElement& e,
                                                             std::uint64_t type) {
  begin_intents(h);
  std::uint64_t words[7];
  pack_one(words, kOp, h.retiring, e, type);
  h.write_line(kOp, words, &e, 1, true);
}

// Stores the bit of one block, or its entry in the bookkeeping log. The caller flushes the word.
// `reserved`: the block may come from reserve().
template <bool kOn>
[[gnu::always_inline]] inline const std::uint64_t& Heap::State::store_bit(const LaneHeap& h,
                                                                          const IntentElement& e,
                                                                          bool reserved) {
  SlabBlock b{e.slab, e.index};
  if (!b) [[unlikely]]
    return kOn ? extents.mark_allocated(e.block, h.core) : extents.mark_free(e.block, h.core);
  if (TENUTO_PLANT("heap_old_block_clears_new_bit") && !kOn) {
    const SlabBlock now = parts_at(e.block)[0];
    if (now.index != kNoBlock) b = now;
  }
  if (kOn) {
    b.slab->set_live(b.index);
    if (reserved && b.slab->reserved(b.index)) b.slab->clear_reserved(b.index);
  }
  return b.slab->store_persistent(b.index, kOn);
}

// NUMA: what an intent, its bit and its state in DRAM were.
[[gnu::noinline, gnu::cold]] void Heap::State::count_one(LaneHeap& h, const IntentElement& e) {
  h.numa->count(NumaAccess::log, h.lane->node);
  if (e.slab == nullptr) return;
  h.numa->count(NumaAccess::state, e.slab->owner);
  h.numa->count(NumaAccess::bits, e.slab->node);
}

// REQUIRES: the word is null, the block reserved. `type`: of a typed block, otherwise 0.
// `reserved`: it is from reserve().
template <class Word>
[[gnu::always_inline]] inline void Heap::State::attach_one(LaneHeap& h, const IntentElement& e,
                                                           bool reserved, std::uint64_t type) {
  constexpr bool kVersioned = std::is_same_v<Word, VPtrWord>;
  if (h.numa != nullptr) [[unlikely]]
    count_one(h, e);
  if (stores_persist) return attach_at_once<Word>(h, e, reserved, type);
  guard_versions<Word>(h, &e, 1);
  if (!kVersioned && TENUTO_PLANT("heap_destination_before_intent"))
    h.dirty.add(store_word<Word>(e, true));
  if (type != 0) [[unlikely]] {
    write_intent<IntentOp::typed_malloc>(h, e, type);
  } else {
    write_intent<KindOf<Word>::kMalloc>(h, e, 0);
  }
  fence_lane(h, kVersioned ? "versioned malloc intent" : "malloc intent", "destination and bit");
  const std::uint64_t& bit = store_bit<true>(h, e, reserved);
  const std::uint64_t& word = store_word<Word>(e, true);
  h.cleared.store(h.sequence, std::memory_order_release);
  if (!kVersioned) {
    flush(bit);
    flush(word);
    fence_lane(h, "destination and bit", "malloc_to returns");
    h.publish_retired(h.sequence);
    return;
  }
  h.dirty.add(bit);
  h.dirty.add(word);
  if (e.slab == nullptr) {
    fence_lane(h, "entry of a versioned extent", "malloc_to returns");
  }
}

// The same on medium cache.
template <class Word>
[[gnu::always_inline]] inline void Heap::State::attach_at_once(LaneHeap& h, const IntentElement& e,
                                                               bool reserved, std::uint64_t type) {
  if (TENUTO_PLANT("heap_destination_before_intent")) store_word<Word>(e, true);
  const IntentOp op = type != 0 ? IntentOp::typed_malloc : KindOf<Word>::kMalloc;
  h.begin_one_at_once(op, e, type);
  order_stores("malloc intent on cache", "destination and bit");
  if (TENUTO_PLANT("heap_intents_on_cache_retired_first")) h.publish_retired(h.sequence);
  store_bit<true>(h, e, reserved);
  store_word<Word>(e, true);
  h.end_one_at_once();
}

// NUMA: the word still leads to the block. A thread of another node may have freed it, and such a
// free claims its block later (remote_free.cc).
inline bool Heap::State::holds(const IntentElement& e) const {
  const auto& word = *file.at<std::uint64_t>(e.dest);
  return PtrWord::decode(&word, __atomic_load_n(&word, __ATOMIC_ACQUIRE)) == file.at<void>(e.block);
}

// REQUIRES: the word points to the block. The block is claimed after the fence, to wait less. If
// that fails, another thread has won the race.
template <class Word>
[[gnu::always_inline]] inline Status Heap::State::detach_one(LaneHeap& h, const IntentElement& e) {
  constexpr bool kVersioned = std::is_same_v<Word, VPtrWord>;
  if (h.numa != nullptr) [[unlikely]]
    count_one(h, e);
  if (stores_persist) return detach_at_once<Word>(h, e);
  const SlabBlock b{e.slab, e.index};
  guard_versions<Word>(h, &e, 1);
  if (TENUTO_PLANT("heap_hole_before_free_is_durable") && !b)
    static_cast<void>(file.punch(e.block, kFrameBytes));
  const bool early = TENUTO_PLANT("heap_bit_cleared_before_intent");
  const bool claimed = early && claim(e.block, b);
  if (early) h.dirty.add(store_bit<false>(h, e));
  write_intent<KindOf<Word>::kFree>(h, e, 0);
  fence_lane(h, kVersioned ? "versioned free intent" : "free intent",
             "destination and bit cleared");
  if (!claimed && !claim(e.block, b)) return forget_intent(h);
  if (h.numa != nullptr && !kVersioned && !holds(e)) [[unlikely]] {
    unclaim(e.block);
    return forget_intent(h);
  }
  if (!early) h.dirty.add(store_bit<false>(h, e));
  h.dirty.add(store_word<Word>(e, false));
  h.cleared.store(h.sequence, std::memory_order_release);
  if (TENUTO_PLANT("heap_free_without_limbo")) give_back_at_once(h, e.block, b);
  return Status::ok;
}

// The same on medium cache. A lost race is found before anything is written.
template <class Word>
[[gnu::always_inline]] inline Status Heap::State::detach_at_once(LaneHeap& h,
                                                                 const IntentElement& e) {
  const SlabBlock b{e.slab, e.index};
  if (!claim(e.block, b)) return Status::invalid_argument;
  if (h.numa != nullptr && std::is_same_v<Word, PtrWord> && !holds(e)) [[unlikely]] {
    unclaim(e.block);
    return Status::invalid_argument;
  }
  h.begin_one_at_once(KindOf<Word>::kFree, e, 0);
  order_stores("free intent on cache", "destination and bit cleared");
  store_bit<false>(h, e);
  store_word<Word>(e, false);
  h.end_one_at_once();
  give_back_at_once(h, e.block, b);
  return Status::ok;
}

// The last intent is fenced, but its operation does not follow. Retires it before another thread
// can get the block.
Status Heap::State::forget_intent(LaneHeap& h) {
  const std::size_t last = (h.next_line + kIntentLines - 1) % kIntentLines;
  h.limbo[last].count = 0;
  if (TENUTO_PLANT("heap_lost_claim_not_retired")) return Status::invalid_argument;
  h.cleared.store(h.sequence, std::memory_order_release);
  h.publish_retired(h.sequence);
  fence_lane(h, "intent of a lost race retired", "free_from returns");
  return Status::invalid_argument;
}

template <class Word>
[[gnu::always_inline]] inline Status Heap::State::malloc_one(std::uint64_t bytes, Word& dest) {
  TENUTO_TRY(file.writable());
  if (!is_word(dest)) return Status::invalid_argument;
  const std::uint64_t raw = __atomic_load_n(&dest.raw, __ATOMIC_RELAXED);
  if (Word::decode(&dest, raw) != nullptr) return Status::invalid_argument;
  LaneHeap& h = mine();
  Block block = take_cached(h, bytes, false);
  if (!block.offset) [[unlikely]] {
    const Result<Block> got = reserve(h, bytes, Kind::logged);
    if (!got) return got.error();
    block = *got;
  }
  const IntentElement e = element(&dest, block, KindOf<Word>::next(raw));
  if (gc) {
    attach_gc<Word>(h, e);
  } else if (internal) {
    attach_internal<Word>(h, &e, 1);
  } else {
    attach_one<Word>(h, e, false, 0);
  }
  return Status::ok;
}

Result<Block> Heap::State::find_allocated(PoolOffset block, const SlabBlock& b) const {
  if (!b) return extents.find(block, Kind::logged, Wanted::allocated);
  if (!is_allocated(b)) return Status::not_found;
  return Block{block, b.slab->block_bytes};
}

template <class Word>
[[gnu::always_inline]] inline Status Heap::State::free_one(Word& dest) {
  TENUTO_TRY(file.writable());
  if constexpr (std::is_same_v<Word, PtrWord>) {
    if (numa.on()) [[unlikely]] {
      if (const std::optional<Status> s = free_remote(dest)) return *s;
    }
  }
  const IntentElement e = find_from(dest);
  if (!e.block) return Status::invalid_argument;
  if (frees_with_intent_only) [[likely]]
    return detach_one<Word>(mine(), e);
  TENUTO_TRY(check_canary(e.block, e.bytes));
  if (!gc && !internal) return detach_one<Word>(mine(), e);
  LaneHeap& h = mine();  // before the claim, as a thread's first call may find no memory
  if (!claim(e.block, {e.slab, e.index})) return Status::invalid_argument;
  if (gc) {
    detach_gc<Word>(h, e);
  } else {
    detach_internal<Word>(h, &e, 1);
  }
  return Status::ok;
}

template <class Word>
Status Heap::State::publish_one(const Heap& heap, const Block& block, Word& dest, bool unfilled) {
  TENUTO_TRY(file.writable());
  if (!is_word(dest)) return Status::invalid_argument;
  const std::uint64_t raw = __atomic_load_n(&dest.raw, __ATOMIC_RELAXED);
  if (Word::decode(&dest, raw) != nullptr) return Status::invalid_argument;
  const Result<Block> taken = heap.find_taken(block.offset, Kind::logged);
  if (!taken || heap.find_allocated(block.offset)) return Status::invalid_argument;
  LaneHeap& h = mine();
  if (pages.find(block.offset).owner != PageOwner::slab) [[unlikely]]
    flush_type(block.offset);
  const bool early = TENUTO_PLANT("heap_versioned_contents_unfenced");
  // What the block's own pointers name is durable before a word names the block.
  if (gc && h.unfenced_count != 0) fence_words(h);
  if (gc ? !TENUTO_PLANT("heap_gc_contents_unfenced")
         : std::is_same_v<Word, VPtrWord> && !unfilled && !early) {
    fence_lane(h, "contents of a block", "versioned malloc intent");
  }
  const IntentElement e = element(&dest, *taken, KindOf<Word>::next(raw));
  if (gc) {
    attach_gc<Word>(h, e);
  } else {
    attach_one<Word>(h, e, true, unfilled ? *type_word(block.offset) : 0);
  }
  return Status::ok;
}

template <PointerWord W>
Status Heap::malloc_to(std::uint64_t bytes, W& dest) {
  const pm::MetadataOpen rights;
  return state_->malloc_one(bytes, dest);
}
template <PointerWord W>
Status Heap::free_from(W& dest) {
  const pm::MetadataOpen rights;
  return state_->free_one(dest);
}
template <PointerWord W>
Status Heap::publish(const Block& block, W& dest) {
  const pm::MetadataOpen rights;
  return state_->publish_one(*this, block, dest, false);
}
Status Heap::publish_typed(const Block& b, VPtrWord& d) {
  const pm::MetadataOpen rights;
  return state_->publish_one(*this, b, d, true);
}

Status Heap::swap(VPtrWord& a, VPtrWord& b) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  TENUTO_TRY(s.file.writable());
  VPtrWord* const word[2] = {&a, &b};
  std::uint32_t next[2];
  IntentElement held[2];  // each word, and the block that it holds now
  for (std::size_t i = 0; i < 2; ++i) {
    if (&a == &b || !s.is_word(*word[i])) return Status::invalid_argument;
    const std::uint64_t raw = __atomic_load_n(&word[i]->raw, __ATOMIC_ACQUIRE);
    next[i] = Versioned::next(raw);
    held[i].dest = s.file.offset_of(word[i]);
    const void* target = VPtrWord::decode(word[i], raw);
    if (target == nullptr) continue;
    if (!s.file.contains(target)) return Status::invalid_argument;
    const Result<Block> found = find_allocated(s.file.offset_of(target));
    if (!found) return Status::invalid_argument;
    held[i] = s.element(word[i], *found, 0);
  }
  const IntentElement e[2] = {
      {held[0].dest, held[1].block, held[1].bytes, next[0], held[1].index, held[1].slab},
      {held[1].dest, held[0].block, held[0].bytes, next[1], held[0].index, held[0].slab},
  };
  LaneHeap& h = s.mine();
  s.guard_versions<VPtrWord>(h, e, 2);
  const std::size_t done = s.write_intents(h, IntentOp::swap, e, 2);
  TENUTO_ASSERT(done == 2);
  s.fence_lane(h, "swap intent", "versioned words");
  for (const IntentElement& x : e) h.dirty.add(s.store_word<VPtrWord>(x, true));
  for (const IntentElement& x : e) {
    // The thread that attached it may not have fenced the bit, and its intent no longer counts.
    if (x.slab != nullptr && !TENUTO_PLANT("heap_swap_leaves_bits")) {
      h.dirty.add(x.slab->place(x.index).word);
    }
  }
  s.end_intents(h);
  if (s.gc) s.drain_limbo(h);
  return Status::ok;
}

template Status Heap::malloc_to(std::uint64_t, PtrWord&);
template Status Heap::malloc_to(std::uint64_t, VPtrWord&);
template Status Heap::free_from(PtrWord&);
template Status Heap::free_from(VPtrWord&);
template Status Heap::publish(const Block&, PtrWord&);
template Status Heap::publish(const Block&, VPtrWord&);

}  // namespace TENUTO_NS::heap
