// The shadow leaf: a leaf's copy in DRAM. Where it is: shadow_leaves.h.
//
//   line 0      version (with the lock), address of the leaf, 48 fingerprints
//   line 1      order of the slots, a part of the leaf's checksum (unmade.h)
//   lines 2-7   only in a pool on a disk: slot words
//
// A lookup reads inner nodes, line 0, one line of slot words and the record. In a pool that is in
// memory the slot words are those of the leaf itself, so a shadow leaf takes two lines. On a disk
// the leaf's page may not be in memory, so the shadow leaf keeps a copy. Shadow leaves are in huge
// pages. Three more lines have the heads of the keys, which only inserts read (slot_order.h).
//
//   version     bit 0      locked
//               bit 1      dead: unlinked, never changes again
//               bit 2      damaged: full, and its slots lead nowhere (unmade.h)
//               bit 3      has slot words; constant
//               bits 4-27  number of the list of old versions; 0: none (versions.h)
//               above      counts the changes
//
// A reader takes an unlocked version and looks. It uses what it saw only if the version is still
// the same. A writer holds the lock through its last fence, so readers see nothing that a crash
// could lose. A fingerprint is stored after its slot word. So any slot word that a reader finds
// behind a matching fingerprint names a record that its epoch guard keeps. That holds for the words
// of the leaf itself, too: a writer changes them under the lock, and whoever had taken the version
// before finds it changed. A word that the medium has changed since the leaf was checked is not
// handed out (word()).
#pragma once

#include <emmintrin.h>
#include <sched.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "pm/assert.h"
#include "pm/plant.h"
#include "pm/sanitizer.h"
#include "store/tree/format.h"
#include "store/tree/slot_order.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

// Waits for another thread: a bounded spin, then yields of the processor.
class Backoff {
 public:
  explicit Backoff(unsigned spins = 128) : spins_(spins) {}
  void pause() {
    if (++rounds_ < spins_) {
      _mm_pause();
    } else {
      sched_yield();
    }
  }

 private:
  const unsigned spins_;
  unsigned rounds_ = 0;
};

using FingerprintBytes = std::atomic<std::uint8_t>[kSlots];

#if TENUTO_TSAN
// For the thread sanitizer, which does not know that a torn vector load is harmless here.
inline std::uint64_t match_fingerprints(const FingerprintBytes& fingerprints,
                                        std::uint8_t fingerprint) {
  std::uint64_t mask = 0;
  for (unsigned i = 0; i < kSlots; ++i) {
    if (fingerprints[i].load(std::memory_order_acquire) == fingerprint) mask |= 1ull << i;
  }
  return mask;
}
#else
// Three compares of sixteen bytes. volatile: exactly one load each, because the bytes may change.
inline std::uint64_t match_fingerprints(const FingerprintBytes& fingerprints,
                                        std::uint8_t fingerprint) {
  const auto* vec = reinterpret_cast<const volatile __m128i*>(&fingerprints[0]);
  const __m128i wanted = _mm_set1_epi8(static_cast<char>(fingerprint));
  std::uint64_t mask = 0;
  for (unsigned i = 0; i < kSlots / 16; ++i) {
    const __m128i bytes = vec[i];
    const auto hits = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted)));
    mask |= static_cast<std::uint64_t>(hits) << (16 * i);
  }
  pm::compiler_barrier();  // the version is validated after these loads
  return mask;
}
#endif

struct alignas(kLineBytes) ShadowLeaf {
  static constexpr std::uint64_t kLocked = 1;
  static constexpr std::uint64_t kDead = 2;
  static constexpr std::uint64_t kDamaged = 4;
  static constexpr std::uint64_t kHasWords = 8;
  static constexpr unsigned kListShift = 4;
  static constexpr unsigned kListBits = 24;
  static constexpr std::uint64_t kListMask = ((1ull << kListBits) - 1) << kListShift;
  static constexpr std::uint64_t kStep = 1ull << (kListShift + kListBits);

  std::atomic<std::uint64_t> version{0};
  Leaf* leaf = nullptr;            // constant while the shadow is linked
  FingerprintBytes fingerprint{};  // 0: the slot is empty
  alignas(kLineBytes) SlotOrder order;
  std::uint64_t low_check = 0;  // LowSeparator::check; constant as `leaf` is

  // REQUIRES: the leaf is whole; no other thread sees this shadow yet.
  void set_leaf(Leaf& of) {
    leaf = &of;
    low_check = of.low.check;
  }
  static constexpr bool damaged(std::uint64_t v) { return (v & kDamaged) != 0; }
  static constexpr bool has_words(std::uint64_t v) { return (v & kHasWords) != 0; }
  static constexpr bool dead(std::uint64_t v) { return (v & kDead) != 0; }
  static constexpr bool locked(std::uint64_t v) { return (v & kLocked) != 0; }
  static constexpr std::uint32_t version_list(std::uint64_t v) {
    return static_cast<std::uint32_t>((v & kListMask) >> kListShift);
  }
  // REQUIRES: locked, or no other thread sees it yet.
  void set_version_list(std::uint32_t which) {
    const std::uint64_t v = version.load(std::memory_order_relaxed);
    version.store((v & ~kListMask) | static_cast<std::uint64_t>(which) << kListShift,
                  std::memory_order_release);
  }

  // Waits while a writer holds the leaf. The leaf may be dead. Meets unlock(). Sequentially
  // consistent, as lock_if is: versions.h, "Why a snapshot is one point in time".
  std::uint64_t read_version() const {
    Backoff wait;
    for (;;) {
      const std::uint64_t v = version.load(std::memory_order_seq_cst);
      if ((v & kLocked) == 0) return v;
      wait.pause();
    }
  }
  bool still(std::uint64_t seen) const { return version.load(std::memory_order_acquire) == seen; }
  // Locks if nothing has changed since `seen`. Meets unlock().
  bool lock_if(std::uint64_t seen) {
    std::uint64_t expected = seen;
    return version.compare_exchange_strong(expected, seen | kLocked, std::memory_order_seq_cst,
                                           std::memory_order_relaxed);
  }
  // False when the leaf is dead.
  bool lock() {
    for (;;) {
      const std::uint64_t v = read_version();
      if (dead(v)) return false;
      if (lock_if(v)) return true;
    }
  }
  // Release: meets read_version() and lock_if().
  void unlock() {
    const std::uint64_t v = version.load(std::memory_order_relaxed);
    TENUTO_DCHECK((v & kLocked) != 0);
    version.store((v & ~kLocked) + kStep, std::memory_order_release);
  }
  // Unlocks without a change, so that readers need not look again.
  void unlock_unchanged() {
    version.store(version.load(std::memory_order_relaxed) & ~kLocked, std::memory_order_release);
  }
  void unlock_dead() {
    const std::uint64_t v = version.load(std::memory_order_relaxed);
    version.store(((v & ~kLocked) + kStep) | kDead, std::memory_order_release);
  }

  // Bit i: slot i may hold a key with this fingerprint.
  std::uint64_t match(std::uint8_t wanted) const { return match_fingerprints(fingerprint, wanted); }
  std::uint64_t empty_slots() const { return match_fingerprints(fingerprint, 0); }
  std::uint64_t used_slots() const { return ~empty_slots() & kBitmapMask; }
  unsigned count() const { return static_cast<unsigned>(std::popcount(used_slots())); }

  // Of the copy, if there is one. Release: meets word(). What the word names is whole.
  void set_word(unsigned i, SlotWord w) {
    if (has_words(version.load(std::memory_order_relaxed))) {
      own_words()[i].store(w.raw, std::memory_order_release);
    }
  }
  // The word of a slot in use, if the version is still the same after. 0: it is damaged.
  SlotWord word(unsigned i) const { return words()[i]; }
  // The same for several slots.
  class Words {
   public:
    explicit Words(const ShadowLeaf& of) {
      const std::uint64_t v = of.version.load(std::memory_order_relaxed);
      own_ = has_words(v);
      at_ = own_ ? reinterpret_cast<const SlotWord*>(&of + 1) : damaged(v) ? kNone : of.leaf->slot;
    }
    SlotWord operator[](unsigned i) const {
      const SlotWord w{__atomic_load_n(&at_[i].raw, __ATOMIC_ACQUIRE)};
      const bool good = own_ || w.sound() || TENUTO_PLANT("store_word_of_the_leaf_not_checked");
      return good ? w : SlotWord{};
    }

    void prefetch() const {
      for (unsigned i = 0; i < kSlots; i += kLineBytes / sizeof *at_) __builtin_prefetch(&at_[i]);
    }

   private:
    static constexpr SlotWord kNone[kSlots] = {};  // of a damaged leaf
    const SlotWord* at_;
    bool own_;
  };
  Words words() const { return Words(*this); }
  // These REQUIRE: locked, or no other thread sees it yet.
  // An entry with a new key, whose place in the order is this; none: it is not known, and the order
  // is lost. The word first: see above.
  void set_entry(unsigned i, SlotWord w, std::uint8_t p, const std::optional<OrderPlace>& at) {
    if (at) {
      order.insert(i, *at, count());
    } else {
      order.lose();
    }
    set_word(i, w);
    fingerprint[i].store(p, std::memory_order_release);
  }
  void remove_entry(unsigned i) {
    if (order.known()) order.erase(i, count());
    fingerprint[i].store(0, std::memory_order_release);
  }
  // Removes all entries but those of the order.
  void keep_only(const WholeOrder& whole) {
    std::uint64_t gone = used_slots();
    for (unsigned i = 0; i < whole.count; ++i) gone &= ~(1ull << whole.slot[i]);
    for (; gone != 0; gone &= gone - 1) {
      fingerprint[std::countr_zero(gone)].store(0, std::memory_order_release);
    }
    order.set(whole);
  }
  // REQUIRES: no other thread sees it yet.
  void set_damaged() {
    version.store(version.load(std::memory_order_relaxed) | kDamaged, std::memory_order_relaxed);
  }
  // Stores the order, if nothing has changed since `seen`. Cost: a short lock.
  void keep_order(std::uint64_t seen, const WholeOrder& whole) {
    if (!lock_if(seen)) return;
    order.set(whole);
    unlock();
  }

 private:
  std::atomic<std::uint64_t>* own_words() {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(this + 1);
  }
};

// A locked leaf. The destructor unlocks it on every way out, a failed allocation among them.
class LeafLock {
 public:
  explicit LeafLock(ShadowLeaf& locked) : shadow_(&locked) {}
  ~LeafLock() {
    if (shadow_ == nullptr) return;
    if (TENUTO_PLANT("store_lock_kept_when_memory_ends") && std::uncaught_exceptions() != 0) return;
    shadow_->unlock();
  }
  LeafLock(const LeafLock&) = delete;
  LeafLock& operator=(const LeafLock&) = delete;
  void unlock() { std::exchange(shadow_, nullptr)->unlock(); }
  void unlock_unchanged() { std::exchange(shadow_, nullptr)->unlock_unchanged(); }
  void unlock_dead() { std::exchange(shadow_, nullptr)->unlock_dead(); }

 private:
  ShadowLeaf* shadow_;
};
static_assert(sizeof(ShadowLeaf) == 2 * kLineBytes && offsetof(ShadowLeaf, order) == kLineBytes);

// One with slot words of its own.
struct ShadowLeafWithWords : ShadowLeaf {
  ShadowLeafWithWords() { version.store(kHasWords, std::memory_order_relaxed); }

  std::atomic<std::uint64_t> words[kSlots] = {};  // copies of the leaf's slot words
};
static_assert(sizeof(ShadowLeafWithWords) == 8 * kLineBytes);

}  // namespace TENUTO_NS::store
