// What the maps (tenuto/ordered_map.h, tenuto/hash_map.h) have below their keys and values: the
// words that say which slots of a node are used, and the steps by which a slot is filled, emptied
// or freed inside a transaction. Programs use the maps.
//
// A node has slots, and one field that says which of them count. A free slot has no value: it is
// filled in place and flushed, and nothing saves what was there. The assignment of the field makes
// it count. So an insertion logs one field, wherever in the node its key belongs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tenuto/element.h"
#include "tenuto/p.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS::slots {

// The order of a node's keys in one word: the count, and behind it 15 numbers of slots, four bits
// each: first the used slots in the order of their keys, then the free ones. (The permutation of
// Masstree: Mao, Kohler, Morris, EuroSys 2012.)
//   the 15 numbers are 0..14, each once                                                       (S1)
class TENUTO_API Permutation {
 public:
  static constexpr unsigned kSlots = 15;
  static constexpr std::uint64_t kEmpty = 0xEDCBA98765432100;  // all are free

  explicit constexpr Permutation(std::uint64_t word = kEmpty) : word_(word) {}
  constexpr std::uint64_t word() const { return word_; }
  constexpr unsigned count() const { return static_cast<unsigned>(word_ & 15); }
  // The slot of a rank. Ranks from count() on are free slots, in the order in which they are used.
  constexpr unsigned slot(unsigned rank) const {
    return static_cast<unsigned>(word_ >> (4 + 4 * rank) & 15);
  }
  constexpr unsigned next_free() const { return slot(count()); }

  // The next free slot gets this rank. REQUIRES: rank <= count() < kSlots.
  Permutation inserted(unsigned rank) const;
  // The slot of this rank becomes the last free one. REQUIRES: rank < count().
  Permutation erased(unsigned rank) const;
  // The slots of the ranks from `count` on become the last free ones. REQUIRES: count <= count().
  Permutation kept(unsigned count) const;
  bool sound() const;  // (S1)

 private:
  std::uint64_t word_;
};

// The used slots of a bucket, and one byte of the hash of each: seven bytes of tags, and in the
// top byte a bit for each used slot. Zero: all are free.
//   the tag of a free slot is zero                                                            (S2)
class TENUTO_API Tags {
 public:
  static constexpr unsigned kSlots = 7;

  explicit constexpr Tags(std::uint64_t word = 0) : word_(word) {}
  constexpr std::uint64_t word() const { return word_; }
  constexpr unsigned used() const { return static_cast<unsigned>(word_ >> 56); }
  constexpr bool full() const { return used() == kAll; }
  constexpr unsigned next_free() const { return static_cast<unsigned>(std::countr_one(used())); }
  constexpr std::uint8_t tag(unsigned slot) const {
    return static_cast<std::uint8_t>(word_ >> (8 * slot));
  }
  // Bit s: slot s is used, and its tag is perhaps this one (a slot above one that matches may be
  // there wrongly, so the caller compares the keys).
  constexpr unsigned matches(std::uint8_t tag) const {
    const std::uint64_t differs = (word_ ^ kLow * tag) & kTags;
    const std::uint64_t zeros = ((differs - kLow) & ~differs & kHigh) >> 7;
    return static_cast<unsigned>(zeros * kGather >> 56) & used();
  }

  // REQUIRES: the slot is free.
  Tags filled(unsigned slot, std::uint8_t tag) const;
  Tags emptied(unsigned slots) const;  // a bit for each slot
  bool sound() const;                  // (S2)

 private:
  static constexpr unsigned kAll = (1u << kSlots) - 1;
  static constexpr std::uint64_t kTags = (std::uint64_t{1} << 56) - 1;
  static constexpr std::uint64_t kLow = 0x0001010101010101;
  static constexpr std::uint64_t kHigh = kLow << 7;
  // Moves bit 8 * s to bit 56 + s.
  static constexpr std::uint64_t kGather = 0x0102040810204000;
  std::uint64_t word_;
};

// A block for nodes of this alignment, at least a line's. Statuses and cost as Transaction::alloc.
TENUTO_API Result<void*> make_node(Transaction& tx, std::size_t bytes, std::size_t align);
// Frees a node, whose elements were moved away or released. Statuses as Transaction::free.
TENUTO_API Status free_node(Transaction& tx, const void* node);
// Before a free slot gets a value. Statuses as Transaction::overwrite.
TENUTO_API Status fill(Transaction& tx, const void* slot, std::size_t bytes);
// When a slot becomes free: saves it, as this transaction may fill it again. Statuses as
// Transaction::add_later. Cost: one line for each 48 bytes.
TENUTO_API Status vacate(Transaction& tx, const void* slot, std::size_t bytes);
// When a bucket becomes free with all its slots, in memory that stays: as vacate.
TENUTO_API Status save_merged(Transaction& tx, const void* bucket, std::size_t bytes);
// Before an insertion changes anything: logs the count, which it will assign. A map outside of the
// transaction's pool is refused so: its fields would be stored at once, with no entry. Statuses as
// Transaction::add_later.
TENUTO_API Status begin_insert(Transaction& tx, const p<std::uint64_t>& size);
// Says which slots of a node count.
TENUTO_API void assign(p<std::uint64_t>& field, std::uint64_t word);

// For what failed halfway: the transaction cannot commit it.
inline Status all_or_abort(Transaction& tx, Status s) {
  if (s != Status::ok) tx.abort();
  return s;
}

// Runs a mutator. If it throws, the transaction is rolled back: it may have stopped halfway.
template <class F>
auto abort_if_thrown(Transaction& tx, F&& f) {
  struct Guard {
    Transaction* tx;
    ~Guard() {
      if (tx != nullptr) tx->abort();
    }
  } guard{&tx};
  auto result = f();
  guard.tx = nullptr;
  return result;
}

template <class T>
inline constexpr bool kIsField = false;
template <class T>
inline constexpr bool kIsField<p<T>> = true;

// Gives a value that counts another one: a field waits like any other, all else is added first.
template <class V, class Value>
Status assign_value(Transaction& tx, V& at, const Value& value) {
  if constexpr (kIsField<V>) {
    TENUTO_TRY(tx.add_later(&at, sizeof at));  // refused outside of the transaction's pool
    at = value;
    return tx.status();
  } else if constexpr (requires { at.assign(tx, value); }) {
    return at.assign(tx, value);
  } else {
    TENUTO_TRY(tx.add(&at, sizeof at));
    if constexpr (std::is_assignable_v<V&, const Value&>) {
      at = value;
      return Status::ok;
    } else {
      TENUTO_TRY(all_or_abort(tx, release(at, tx)));
      return all_or_abort(tx, construct(&at, tx, value));
    }
  }
}

// The memory of a node's slots. Only those that the node's word names have a value.
template <class S, unsigned kCount>
struct Slots {
  alignas(S) std::byte bytes[kCount * sizeof(S)];
  S& operator[](unsigned i) { return reinterpret_cast<S*>(bytes)[i]; }
  const S& operator[](unsigned i) const { return reinterpret_cast<const S*>(bytes)[i]; }
};

// Saves slots that become free, a bit for each. Those side by side share lines.
template <class S, unsigned kCount>
Status vacate_slots(Transaction& tx, const Slots<S, kCount>& slot, unsigned leaving) {
  while (leaving != 0) {
    const auto first = static_cast<unsigned>(std::countr_zero(leaving));
    const auto run = static_cast<unsigned>(std::countr_one(leaving >> first));
    TENUTO_TRY(vacate(tx, &slot[first], run * sizeof(S)));
    leaving &= ~(((1u << run) - 1) << first);
  }
  return Status::ok;
}

// Makes key and value in a slot without a value.
template <class Slot, class Key, class... Value>
Status make_entry(Transaction& tx, Slot& slot, const Key& key, const Value&... value) {
  TENUTO_TRY(construct(&slot.key, tx, key));
  const Status made = construct(&slot.value, tx, value...);
  if (made != Status::ok) TENUTO_TRY(all_or_abort(tx, release(slot.key, tx)));
  return made;
}

template <class Slot>
void move_entry(Slot& to, Slot& from) {
  relocate(&to.key, from.key);
  relocate(&to.value, from.value);
}

// A hash of bytes that never changes, because it is on media: eight bytes at a time by two
// multiplications of 64 to 128 bits, after wyhash (Wang Yi).
TENUTO_API std::uint64_t hash_bytes(std::string_view bytes);
// Of a number: all bits of the result depend on all bits of n (the finalizer of splitmix64; Steele,
// Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t hash_number(std::uint64_t n) {
  n = (n ^ n >> 30) * 0xBF58476D1CE4E5B9;
  n = (n ^ n >> 27) * 0x94D049BB133111EB;
  return n ^ n >> 31;
}

}  // namespace TENUTO_NS::slots
