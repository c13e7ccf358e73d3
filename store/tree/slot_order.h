// The order of a leaf's slots by key, in its shadow leaf. With it a walk reads only the records
// that it hands out.
//
//   slots    those in use, by key
//   heads    of each slot in use: the four bytes of its key behind the prefix, as a number
//   prefix   how many bytes the leaf's keys share with its low separator
//   open     whether a key may come that does not
//
// **The order is whole or unknown.** Who sorts the leaf stores it: a split, a bulk load, a walk
// that finds none. An insert puts its slot in, an erase takes its slot out, an update keeps the
// key. A clean close keeps the orders (image.h), so that of an unmade leaf is known after it.
//
// **Only inserts need heads.** The place of a new key is the number of lower heads. Records are
// read only to order keys with equal heads (LeafReader::place_in_order). A split and a bulk load
// make heads. A walk does not: it would write three lines that may never be needed. An order
// without heads is lost at the next insert.
//
// **The prefix** is what the low separators of the leaf and of the next one share, so all keys of
// the leaf do. If there is no next one it is a guess, and the order is open. So is that of a bulk
// load, whose prefix is what the loaded keys share. It becomes open also when the leaf gets the
// range of the next one, which is unlinked or merged into it. A new key that does not share the
// prefix is above all others: it is not below the low separator, which does. It goes to the end,
// and the heads are lost.
//
// Thread safety: one writer, who has locked the leaf. Readers take only the slots, and use them
// only if the leaf's version is still the same after.
#pragma once

#include <smmintrin.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>

#include "pm/assert.h"
#include "pm/plant.h"
#include "pm/sanitizer.h"
#include "store/tree/format.h"

namespace TENUTO_NS::store {

// Four bytes of a key as a number, with the top bit flipped, because vector instructions compare
// signed numbers.
using SlotHead = std::int32_t;
struct alignas(kLineBytes) SlotHeads {
  SlotHead of[kSlots];
};
static_assert(sizeof(SlotHeads) == 3 * kLineBytes);

// Which slots have a lower head, and which the same. Slots that are not in use count, too. Cost:
// some 100 instructions.
struct ComparedHeads {
  std::uint64_t lower = 0;
  std::uint64_t equal = 0;
};
inline ComparedHeads compare_heads(const SlotHeads& heads, SlotHead head) {
  ComparedHeads out;
  const __m128i wanted = _mm_set1_epi32(head);
  for (unsigned i = 0; i < kSlots; i += 4) {
    const __m128i four = _mm_load_si128(reinterpret_cast<const __m128i*>(&heads.of[i]));
    const auto mask = [i](__m128i of) {
      return static_cast<std::uint64_t>(_mm_movemask_ps(_mm_castsi128_ps(of))) << i;
    };
    out.lower |= mask(_mm_cmplt_epi32(four, wanted));
    out.equal |= mask(_mm_cmpeq_epi32(four, wanted));
  }
  return out;
}

// Where a key that is not in the leaf goes.
struct OrderPlace {
  unsigned rank;  // how many keys of the leaf are lower
  SlotHead head;
  SlotHeads* heads;  // of the leaf; null: they are lost
};

// A whole order, to be stored at once.
struct WholeOrder {
  SlotHeads* heads = nullptr;  // of the leaf; null: the order has none
  std::size_t prefix = 0;
  bool open = false;
  unsigned count = 0;
  std::array<std::uint8_t, kSlots> slot;  // by key, as head
  std::array<SlotHead, kSlots> head;

  WholeOrder() = default;
  WholeOrder(SlotHeads& its_heads, std::size_t prefix_bytes, bool is_open)
      : heads(&its_heads), prefix(prefix_bytes), open(is_open) {}
  void add(unsigned its_slot, SlotHead its_head) {
    slot[count] = static_cast<std::uint8_t>(its_slot);
    head[count++] = its_head;
  }
};

class SlotOrder {
 public:
  bool known() const { return state_.load(std::memory_order_acquire) != kUnknown; }
  // The slot at place i. It counts if the order is known and i is below the number of slots in use.
  unsigned slot(unsigned i) const { return slot_[i].load(std::memory_order_acquire); }

  // These are the writer's.
  bool has_heads() const { return (state() & kNoHeads) == 0; }
  bool open() const { return (state() & kOpen) != 0; }
  std::size_t prefix() const { return state() & ~(kNoHeads | kOpen); }  // REQUIRES: has_heads()
  void lose() { set_state(kUnknown); }
  void open_up() { set_state(state() | kOpen); }
  void set(const WholeOrder& whole) {
    alignas(16) std::uint8_t slots[kSlots] = {};
    std::memcpy(slots, whole.slot.data(), whole.count);
    put(take(slots));
    if (whole.heads == nullptr) return set_state(kNoHeads);
    for (unsigned i = 0; i < whole.count; ++i) whole.heads->of[whole.slot[i]] = whole.head[i];
    set_state(static_cast<std::uint32_t>(whole.prefix) | (whole.open ? kOpen : 0));
  }
  // These two REQUIRE: no other thread sees it. The order without heads, for an image.
  void keep(KeptLeaf& in) const {
    for (unsigned i = 0; i < kSlots; ++i) in.slot[i] = static_cast<std::uint8_t>(slot(i));
    if (!known()) in.slot[0] = KeptLeaf::kUnknown;
  }
  void take_kept(const KeptLeaf& kept) {
    if (kept.slot[0] == KeptLeaf::kUnknown && !TENUTO_PLANT("store_unknown_order_kept"))
      return lose();
    put(take(kept.slot));
    set_state(kNoHeads);
  }
  // REQUIRES for these two: the order is known, and has `count` slots. The slot is not in the order
  // yet, or is.
  void insert(unsigned slot, OrderPlace at, unsigned count) {
    TENUTO_DCHECK(at.rank <= count && count < kSlots);
    if (TENUTO_PLANT("store_insert_at_the_end_of_the_order")) at.rank = count;
    put(with(take(slot_), at.rank, slot));
    if (at.heads == nullptr) return set_state(kNoHeads);
    at.heads->of[slot] = at.head;
  }
  void erase(unsigned slot, unsigned count) {
    if (TENUTO_PLANT("store_erase_stays_in_the_order")) return;
    const Slots slots = take(slot_);
    const std::uint64_t at = places_of(slots, slot) & ((1ull << count) - 1);
    TENUTO_ASSERT(at != 0);
    put(without(slots, static_cast<unsigned>(std::countr_zero(at))));
  }

 private:
  static constexpr std::uint32_t kNoHeads = 1u << 31;
  static constexpr std::uint32_t kOpen = 1u << 30;
  static constexpr std::uint32_t kUnknown = ~0u;
  static_assert(kKeyBytesMax < kOpen);

  std::uint32_t state() const { return state_.load(std::memory_order_relaxed); }
  void set_state(std::uint32_t state) { state_.store(state, std::memory_order_release); }
  // All slots, in three registers. An insert shifts them there: a fence comes shortly before, and
  // bytes that are read back from memory in other pieces than they were written would wait for it.
  static constexpr unsigned kParts = kSlots / 16;
  struct Slots {
    __m128i part[kParts];
  };

  static Slots take(const void* from) {
    Slots slots;
    for (unsigned i = 0; i < kParts; ++i) {
      slots.part[i] = _mm_loadu_si128(static_cast<const __m128i*>(from) + i);
    }
    return slots;
  }
  // The places of 16 slots.
  static __m128i places(unsigned part) {
    const __m128i first = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm_add_epi8(first, _mm_set1_epi8(static_cast<char>(16 * part)));
  }
  // With `slot` at place `at`, and what was there and behind one further.
  static Slots with(const Slots& slots, unsigned at, unsigned slot) {
    const __m128i place = _mm_set1_epi8(static_cast<char>(at));
    const __m128i added = _mm_set1_epi8(static_cast<char>(slot));
    Slots out;
    __m128i before = _mm_setzero_si128();
    for (unsigned i = 0; i < kParts; ++i) {
      const __m128i moved = _mm_alignr_epi8(slots.part[i], before, 15);
      before = slots.part[i];
      out.part[i] = _mm_blendv_epi8(slots.part[i], moved, _mm_cmpgt_epi8(places(i), place));
      out.part[i] = _mm_blendv_epi8(out.part[i], added, _mm_cmpeq_epi8(places(i), place));
    }
    return out;
  }
  // Without place `at`, and what was behind it one nearer.
  static Slots without(const Slots& slots, unsigned at) {
    const __m128i place = _mm_set1_epi8(static_cast<char>(at));
    Slots out;
    for (unsigned i = 0; i < kParts; ++i) {
      const __m128i behind = i + 1 < kParts ? slots.part[i + 1] : _mm_setzero_si128();
      const __m128i moved = _mm_alignr_epi8(behind, slots.part[i], 1);
      out.part[i] = _mm_blendv_epi8(moved, slots.part[i], _mm_cmplt_epi8(places(i), place));
    }
    return out;
  }
  // Bit i: the slot is at place i.
  static std::uint64_t places_of(const Slots& slots, unsigned slot) {
    const __m128i wanted = _mm_set1_epi8(static_cast<char>(slot));
    std::uint64_t mask = 0;
    for (unsigned i = 0; i < kParts; ++i) {
      const auto hits =
          static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(slots.part[i], wanted)));
      mask |= static_cast<std::uint64_t>(hits) << (16 * i);
    }
    return mask;
  }
  // volatile: readers look meanwhile. Bytes for the thread sanitizer.
  void put(const Slots& slots) {
#if TENUTO_TSAN
    const auto* const from = reinterpret_cast<const std::uint8_t*>(slots.part);
    for (unsigned i = 0; i < kSlots; ++i) slot_[i].store(from[i], std::memory_order_release);
#else
    auto* const to = reinterpret_cast<volatile __m128i*>(slot_);
    for (unsigned i = 0; i < kParts; ++i) to[i] = slots.part[i];
    pm::compiler_barrier();  // the version is stored after these
#endif
  }

  // It begins a line.
  std::atomic<std::uint8_t> slot_[kSlots] = {};
  std::atomic<std::uint32_t> state_{0};  // prefix and flags
};

}  // namespace TENUTO_NS::store
