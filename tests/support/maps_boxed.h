// A key or value that owns a block, for tests of maps.
#pragma once

#include <cstdint>

#include "tenuto/element.h"
#include "tenuto/maps/slots.h"
#include "tenuto/p.h"
#include "tenuto/tx.h"

namespace tenuto::test {

// A number in a block of its own.
struct Boxed {
  p<std::uint64_t*> box;

  Boxed() = default;
  Boxed(const Boxed&) = delete;
  Boxed(Relocation, Boxed& from) noexcept : box(from.box) {}
  Status construct(Transaction& tx, std::uint64_t n) {
    const Result<std::uint64_t*> made = tx.make<std::uint64_t>(n);
    if (made) box = *made;
    return made.error();
  }
  Status release(Transaction& tx) { return tx.free(box.get()); }
  void references(const References& visit) const { visit(box); }
  operator std::uint64_t() const { return *box.get(); }
};

struct BoxedHash {
  std::uint64_t operator()(std::uint64_t n) const { return slots::hash_number(n); }
};
struct BoxedLess {
  bool operator()(std::uint64_t a, std::uint64_t b) const { return a < b; }
};
struct BoxedEqual {
  bool operator()(std::uint64_t a, std::uint64_t b) const { return a == b; }
};

}  // namespace tenuto::test
