// A field that adds itself to the transaction that is open.
//
//   struct Account {
//     p<std::uint64_t> balance;
//     p<Account*> next;
//   };
//   pool.run([&](Transaction&) {
//     a.balance -= 10;
//     b.balance += 10;
//     return Status::ok;
//   });
//
// An assignment inside a transaction on the field's pool logs the old bytes (one line), and the new
// value waits in DRAM. The commit makes all old bytes durable with one fence and then stores the
// waiting values. So a transaction costs three fences however many fields it assigns. Reads by this
// thread through the field see the waiting value; other threads see the old one. Raw pointers to
// the bytes, and copies by memcpy, see the old one, too, until Transaction::add or ready: both
// store what waits. get_rw() gives a reference for in-place changes.
//
// In a block that the transaction allocated, and after the field was added and ready, an assignment
// stores in place. Outside a transaction, in DRAM or in a constructor, a field is an ordinary
// variable: an assignment is neither logged nor flushed.
//
// Transaction::set does the same for an object that is no field, and for a part of one.
//
// Errors: an assignment that cannot be logged, or of a pointer out of the field's pool, changes
// nothing. The transaction then cannot commit: Transaction::status() tells why (full,
// invalid_argument), and commit() rolls back and returns it.
// Thread safety: as for a variable; hold a lock until the transaction ends (Transaction::lock).
#pragma once

#include <type_traits>

#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

// T: trivially copyable, without fields inside; or a pointer into the field's pool, which is stored
// as a distance (as Ptr does). A p<T> has the size of what it stores, and zero bytes are T{}.
template <class T>
class p {
  using Stored = std::conditional_t<std::is_pointer_v<T>, PtrWord, T>;
  static_assert(std::is_trivially_copyable_v<T>,
                "p<T> copies bytes: T has to be trivially copyable, and may not contain fields");

 public:
  p() = default;
  p(const T& value) : stored_(encode(value)) {}
  p(const p& o) noexcept : p(o.get()) {}
  p& operator=(const T& value) {
    const Stored stored = encode(value);
    const void* target = nullptr;
    if constexpr (std::is_pointer_v<T>) target = value;
    Transaction::store_field(&stored_, &stored, sizeof stored, target);
    return *this;
  }
  p& operator=(const p& o) { return *this = o.get(); }

  // Outside a transaction two tests and a load: a call would cost more.
  [[gnu::always_inline]] T get() const {
    return decode(__builtin_expect(Transaction::any_open(), false) ? waiting() : stored_);
  }
  [[gnu::always_inline]] operator T() const { return get(); }
  [[gnu::always_inline]] T operator->() const requires(std::is_pointer_v<T>) { return get(); }

  // Adds the field to `tx` at once (a fence), and gives its bytes for changes in place. For large
  // values of which little changes. Statuses as Transaction::add.
  Result<T*> get_rw(Transaction& tx) requires(!std::is_pointer_v<T>) {
    TENUTO_TRY(tx.add(&stored_, sizeof stored_));
    return &stored_;
  }

  p& operator+=(const T& v) { return *this = static_cast<T>(get() + v); }
  p& operator-=(const T& v) { return *this = static_cast<T>(get() - v); }
  p& operator*=(const T& v) { return *this = static_cast<T>(get() * v); }
  p& operator/=(const T& v) { return *this = static_cast<T>(get() / v); }
  p& operator%=(const T& v) { return *this = static_cast<T>(get() % v); }
  p& operator&=(const T& v) { return *this = static_cast<T>(get() & v); }
  p& operator|=(const T& v) { return *this = static_cast<T>(get() | v); }
  p& operator^=(const T& v) { return *this = static_cast<T>(get() ^ v); }
  p& operator<<=(int n) { return *this = static_cast<T>(get() << n); }
  p& operator>>=(int n) { return *this = static_cast<T>(get() >> n); }
  p& operator++() { return *this = static_cast<T>(get() + 1); }
  p& operator--() { return *this = static_cast<T>(get() - 1); }
  T operator++(int) {
    const T before = get();
    ++*this;
    return before;
  }
  T operator--(int) {
    const T before = get();
    --*this;
    return before;
  }

 private:
  // A call of its own, so that get() has no stack frame and is inlined: it reads a value on the
  // stack whose address leaves. Pure, as it changes nothing: a loop that reads fields asks once
  // whether a transaction is open.
  [[gnu::noinline, gnu::pure]] Stored waiting() const {
    Stored stored;
    if (!Transaction::load_field(&stored_, &stored, sizeof stored)) stored = stored_;
    return stored;
  }
  Stored encode(T value) const {
    if constexpr (std::is_pointer_v<T>)
      return {PtrWord::encode(&stored_, value)};
    else
      return value;
  }
  T decode(const Stored& stored) const {
    if constexpr (std::is_pointer_v<T>)
      return static_cast<T>(PtrWord::follow(&stored_, stored.raw));
    else
      return stored;
  }

  Stored stored_{};
};

}  // namespace TENUTO_NS
