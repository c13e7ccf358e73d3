// malloc_to and free_from: the protocols, and batches. Single blocks are in one.cc, the intents in
// intent.cc.
//
//   plain word       malloc_to  W{b, d} | D = b; B = 1 | retired = W (*)
//                    free_from  W{b, d} | D = 0; B = 0 (*)
//   versioned word   malloc_to  W{b, d, v} | D = {v, b}; B = 1 (*)
//                    free_from  W{b, d, v} | D = {v, 0}; B = 0 (*)
//                    swap       W{b, d, v; c, e, w} | D = {v, b}; E = {w, c}; B and C again (*)
//   (*) This step is durable with the lane's next fence. The retired word is flushed at once, all
//       else just before that fence (LaneHeap::dirty).
// W is the intent, D the destination word, B the block's bit or its entry in the bookkeeping log,
// v the version after that of D. Authoritative: W while it is sealed and not retired, then D and B.
//
// Recovery replays the intents of all lanes, first all words, then all bits:
//   plain malloc   B = (D == b): finishes or undoes
//   plain free     D = 0 if D == b; B = 0
//   versioned      D = {v, ..} if D's version is older; a free: B = 0; others: B = 1 if D == {v, b}
// First fence: W is durable before D or B changes. Second fence, of a plain malloc_to: the caller
// may rely on D. Other threads may do so only after the lane's next fence (Pool::malloc_to).
// A versioned intent needs no second fence: it is replayed forward, also after later operations on
// D. D's version is then later, and the later operation took care of D and B: a free clears B under
// its own intent and keeps b in limbo, a swap flushes B before its own intent is over. So intents
// of different lanes that name the same block agree, in any order of replay.
//
// Medium cache. A crash of the process keeps of each thread a prefix of its stores, and no store
// without those that its thread had seen: x86-64 keeps them in order, and the stores of the
// protocol are releases, so the compiler does. So nothing is flushed and nothing waits
// (stores_persist):
//   any operation    W | D, B | retired = W | freed blocks are free
// `|` is the order of stores here. A crash before `retired` finds W whole, because its seal is its
// last store, and replays it as above; behind it D and B are whole. No replay meets the next owner
// of a freed block. When a call returns, none of its words is pending. So neither limbo nor
// quarantine is needed, nor a guard of versions. A killed process loses what it was about to do,
// and no more. A power cut loses anything, unless it spares the processor's caches: then it is a
// crash as this one.
//
// A versioned intent may become durable early, and is replayed then, too. So what publish makes
// reachable is fenced before the intent. A swap by another thread could not flush the log entry of
// an extent again. So this entry is fenced before malloc_to returns.
#include <algorithm>

#include "heap/heap_paths.h"
#include "heap/word_kind.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {

bool has_extents(const IntentElement* e, std::size_t n) {
  return std::any_of(e, e + n, [](const IntentElement& x) { return x.slab == nullptr; });
}

}  // namespace

// Makes the words of e[0 .. n) point to their blocks, or to nothing.
template <class Word>
void Heap::State::store_words(LaneHeap& h, const IntentElement* e, std::size_t n, bool attach) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t& word = store_word<Word>(e[i], attach);
    if (i + 1 < n && TENUTO_PLANT("heap_batch_flushes_its_last_line")) continue;
    h.dirty.add(word);
  }
}

// Stores the bits of e[0 .. n). One locked instruction stores neighbours in one word.
void Heap::State::store_bits(LaneHeap& h, const IntentElement* e, std::size_t n, bool on) {
  std::uint64_t* word = nullptr;
  std::uint64_t bits = 0;
  const auto store = [&] {
    if (word == nullptr) return;
    if (on) {
      __atomic_fetch_or(word, bits, __ATOMIC_ACQ_REL);
    } else {
      __atomic_fetch_and(word, ~bits, __ATOMIC_ACQ_REL);
    }
    h.dirty.add(*word);
  };
  for (std::size_t i = 0; i < n; ++i) {
    SlabBlock b{e[i].slab, e[i].index};
    if (TENUTO_PLANT("heap_old_block_clears_new_bit") && !on) {
      const SlabBlock now = parts_at(e[i].block)[0];
      if (now.index != kNoBlock) b = now;
    }
    if (!b) {
      h.dirty.add(on ? extents.mark_allocated(e[i].block, h.core)
                     : extents.mark_free(e[i].block, h.core));
      continue;
    }
    if (on) {
      b.slab->set_live(b.index);
      if (b.slab->reserved(b.index)) b.slab->clear_reserved(b.index);
    }
    const BitPlace place = b.slab->place(b.index);
    if (h.numa != nullptr) {
      h.numa->count(NumaAccess::state, b.slab->owner);
      if (&place.word != word) h.numa->count(NumaAccess::bits, b.slab->node);
    }
    if (&place.word != word) {
      store();
      word = &place.word;
      bits = 0;
    }
    bits |= place.bit;
  }
  store();
}

// REQUIRES: the words are null, the blocks reserved.
template <class Word>
void Heap::State::attach(LaneHeap& h, const IntentElement* e, std::size_t n) {
  using K = KindOf<Word>;
  constexpr bool kVersioned = std::is_same_v<Word, VPtrWord>;
  guard_versions<Word>(h, e, n);
  while (n > 0) {
    if (!kVersioned && TENUTO_PLANT("heap_destination_before_intent"))
      store_words<Word>(h, e, n, true);
    const std::size_t done = write_intents(h, K::kMalloc, e, n);
    fence_lane(h, kVersioned ? "versioned malloc intent" : "malloc intent", "destination and bit");
    store_bits(h, e, done, true);
    store_words<Word>(h, e, done, true);
    end_intents(h);
    if (!kVersioned) {
      fence_lane(h, "destination and bit", "malloc_to returns");
    } else if (has_extents(e, done)) {
      fence_lane(h, "entry of a versioned extent", "malloc_to returns");
    }
    e += done;
    n -= done;
  }
  if (!kVersioned && !stores_persist) h.publish_retired(h.sequence);
}

// REQUIRES: the words point to the blocks, which are claimed.
template <class Word>
void Heap::State::detach(LaneHeap& h, const IntentElement* e, std::size_t n) {
  using K = KindOf<Word>;
  constexpr bool kVersioned = std::is_same_v<Word, VPtrWord>;
  guard_versions<Word>(h, e, n);
  while (n > 0) {
    const bool early = TENUTO_PLANT("heap_bit_cleared_before_intent");
    if (early) store_bits(h, e, n, false);
    const std::size_t done = write_intents(h, K::kFree, e, n);
    fence_lane(h, kVersioned ? "versioned free intent" : "free intent",
               "destination and bit cleared");
    if (!early) store_bits(h, e, done, false);
    store_words<Word>(h, e, done, false);
    end_intents(h);
    if (stores_persist || TENUTO_PLANT("heap_free_without_limbo")) {
      for (std::size_t i = 0; i < done; ++i) {
        give_back_at_once(h, e[i].block, {e[i].slab, e[i].index});
      }
    }
    e += done;
    n -= done;
  }
}

// --- many blocks ---------------------------------------------------------------------------------

// The first blocks of a lane's batch. Every way out puts back those that were not attached.
struct Heap::State::TakenBatch {
  State& state;
  LaneHeap& lane;
  std::size_t count = 0;
  ~TakenBatch() {
    for (std::size_t i = 0; i < count; ++i) state.put_back(lane, lane.batch[i].block);
  }
};

template <class Word>
Status Heap::State::malloc_many(const Sizes& bytes, const Words<Word>& dests,
                                const AllocOptions& wanted) {
  TENUTO_TRY(file.writable());
  if (!bytes.fit(dests.count())) return Status::invalid_argument;
  LaneHeap& h = mine();
  std::vector<IntentElement>& all = h.batch;
  all.resize(dests.count());
  TakenBatch taken{*this, h};
  bool ascending = true;
  PoolOffset last;
  const Kind kind = wanted.type == 0 ? Kind::logged : Kind::typed;
  const bool plain = kind == Kind::logged && wanted.align == AllocOptions{}.align;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Word& dest = dests[i];
    if (!is_word(dest)) return Status::invalid_argument;
    const std::uint64_t raw = __atomic_load_n(&dest.raw, __ATOMIC_RELAXED);
    if (Word::decode(&dest, raw) != nullptr) return Status::invalid_argument;
    // Blocks of one stripe follow one another: their bits share a line.
    const bool near = i % kIntentPacked != 0;
    Block block;
    if (plain) block = take_cached(h, bytes[i], near);
    if (!block.offset) [[unlikely]] {
      const Result<Block> got = reserve(h, bytes[i], kind, wanted.align, near);
      if (!got) return got.error();
      block = *got;
    }
    const IntentElement& e = all[i] = element(&dest, block, KindOf<Word>::next(raw));
    taken.count += 1;
    ascending = ascending && last < e.dest;
    last = e.dest;
    if (wanted.zero) zero_flush(file.at<void>(block.offset), block.bytes - canary_bytes);
  }
  if (!ascending && repeats(h)) return Status::invalid_argument;
  if (wanted.type != 0 || wanted.zero) {
    const bool unlogged = gc || (internal && !TENUTO_PLANT("heap_internal_type_unfenced"));
    prepare_batch(h, wanted.type, unlogged || std::is_same_v<Word, VPtrWord>);
  }
  taken.count = 0;
  if (gc) {
    for (const IntentElement& e : all) attach_gc<Word>(h, e);
  } else if (internal) {
    attach_internal<Word>(h, all.data(), all.size());
  } else {
    attach<Word>(h, all.data(), all.size());
  }
  return Status::ok;
}

// Whether a destination is in the batch twice.
bool Heap::State::repeats(LaneHeap& h) const {
  std::vector<PoolOffset>& sorted = h.places;
  sorted.clear();
  for (const IntentElement& e : h.batch) sorted.push_back(e.dest);
  std::sort(sorted.begin(), sorted.end());
  const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  sorted.clear();
  return twice;
}

template <class Word>
Status Heap::State::free_many(const Words<Word>& dests) {
  TENUTO_TRY(file.writable());
  LaneHeap& h = mine();
  std::vector<IntentElement>& all = h.batch;
  all.resize(dests.count());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = find_from(dests[i]);
    Status s = all[i].block ? Status::ok : Status::invalid_argument;
    if (s == Status::ok) s = check_canary(all[i].block, all[i].bytes);
    if (s == Status::ok && !claim(all[i].block, {all[i].slab, all[i].index}))
      s = Status::invalid_argument;  // in the batch twice
    if (s == Status::ok) continue;
    for (std::size_t k = 0; k < i; ++k) unclaim(all[k].block);
    return s;
  }
  if (gc) {
    for (const IntentElement& e : all) detach_gc<Word>(h, e);
  } else if (internal) {
    detach_internal<Word>(h, all.data(), all.size());
  } else {
    detach<Word>(h, all.data(), all.size());
  }
  return Status::ok;
}

template <PointerWord W>
Status Heap::malloc_many(const Sizes& bytes, const Words<W>& dests, const AllocOptions& options) {
  const pm::MetadataOpen rights;
  return state_->malloc_many(bytes, dests, options);
}
template <PointerWord W>
Status Heap::free_many(const Words<W>& dests) {
  const pm::MetadataOpen rights;
  return state_->free_many(dests);
}

template void Heap::State::store_words<PtrWord>(LaneHeap&, const IntentElement*, std::size_t, bool);
template void Heap::State::store_words<VPtrWord>(LaneHeap&, const IntentElement*, std::size_t,
                                                 bool);
template Status Heap::malloc_many(const Sizes&, const Words<PtrWord>&, const AllocOptions&);
template Status Heap::malloc_many(const Sizes&, const Words<VPtrWord>&, const AllocOptions&);
template Status Heap::free_many(const Words<PtrWord>&);
template Status Heap::free_many(const Words<VPtrWord>&);

}  // namespace TENUTO_NS::heap
