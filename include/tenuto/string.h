// Text of any length in a pool. Up to 15 bytes are in the object itself; longer text is in a block.
//
//   struct Root {
//     String name;
//   };
//   pool.run([&](Transaction& tx) { return root.name.assign(tx, "a longer name than that"); });
//   std::cout << root.name.view();
//
// Every change takes the transaction to which it belongs, and is durable with it. It is stored in
// place, so that view() shows it at once. A call that fails, or throws std::bad_alloc, leaves the
// string as it was. Changes return: ok | full | too_large | invalid_argument (the string is not in
// the transaction's pool) | what Transaction::status() says.
//
// Cost of a change: an entry, and a fence as of Transaction::add; so a transaction that changes one
// string costs three fences, and N strings 2 + N. To change many under one fence, add_later each of
// them, then ready(), then change them. A longer text adds two entries and the block's lines.
// A string in an object that the transaction made needs no fence, and so do elements of a container
// that are made with their text (Vector::emplace_back).
//
// The text may contain zero bytes. A string of 24 zero bytes is empty. For short text of a fixed
// maximum that is copied as a value, and for keys, there is InlineString (tenuto/inline_string.h).
//
// Thread safety: as std::string. Hold a lock until the transaction ends (Transaction::lock).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "tenuto/element.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

class TENUTO_API String {
 public:
  static constexpr std::size_t kInlineMax = 15;

  String() noexcept : size_(0), text_() {}
  String(const String&) = delete;
  String& operator=(const String&) = delete;
  String(Relocation, String& from) noexcept { take(from); }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Bytes for which there is room.
  std::size_t capacity() const { return small() ? kInlineMax : block_.room; }
  // Valid until the string changes. A zero byte ends c_str().
  const char* c_str() const { return small() ? text_ : block(); }
  const char* data() const { return c_str(); }
  std::string_view view() const { return {c_str(), size()}; }
  operator std::string_view() const { return view(); }

  // The text may be a part of this string.
  Status assign(Transaction& tx, std::string_view text);
  // Text that fits the capacity is stored behind the old one, which is not logged.
  Status append(Transaction& tx, std::string_view text);
  Status clear(Transaction& tx) { return assign(tx, {}); }
  Status swap(Transaction& tx, String& o);

  friend bool operator==(const String& a, const String& b) { return a.view() == b.view(); }
  friend bool operator==(const String& a, std::string_view b) { return a.view() == b; }
  friend auto operator<=>(const String& a, const String& b) { return a.view() <=> b.view(); }
  friend auto operator<=>(const String& a, std::string_view b) { return a.view() <=> b; }

  // Whether longer text is in a block with room for it; of any bytes (BlocksOf in
  // tenuto/element.h). ok | corrupt, with a report. REQUIRES: no transaction is open on the pool.
  template <PoolOfBlocks AnyPool>
  Status validate(const AnyPool& pool, Report* report = nullptr) const {
    if (small() || (size_ <= block_.room && block_.room < ~std::uint64_t{0} &&
                    BlocksOf(pool).has(block(), block_.room + 1, 1))) {
      return c_str()[size_] == 0 ? Status::ok
                                 : fail(Status::corrupt, report, "a text has another length");
    }
    return fail(Status::corrupt, report, "the text of a string is no block");
  }

  // As an element (tenuto/element.h). Frees the block. The string has no value afterwards; clear()
  // leaves an empty one.
  Status release(Transaction& tx) { return small() ? Status::ok : tx.free(block()); }
  // For collections (tenuto/references.h).
  void references(const References& visit) const {
    if (small()) return;
    if (!visit.has(block(), size_ + 1, 1)) return visit.words(this, sizeof *this);
    static_cast<void>(visit.owns(block(), size_ + 1));
  }
  // REQUIRES: this has no value yet.
  Status construct(Transaction& tx, std::string_view text);

 private:
  // On media. Text of up to kInlineMax bytes is in text_, and a zero byte behind it.
  struct Block {
    PtrWord word;  // room + 1 bytes
    std::uint64_t room;
  };

  bool small() const { return size_ <= kInlineMax; }
  char* block() const { return static_cast<char*>(PtrWord::decode(&block_.word, block_.word.raw)); }
  void set_text(std::string_view text) noexcept;
  void set_block(char* block, std::uint64_t size, std::uint64_t room) noexcept;
  void take(const String& from) noexcept;
  Status grow(Transaction& tx, std::string_view first, std::string_view second);

  std::uint64_t size_;
  union {
    char text_[kInlineMax + 1];
    Block block_;
  };
};
static_assert(sizeof(String) == 24 && alignof(String) == 8);

}  // namespace TENUTO_NS

namespace std {
template <>
struct hash<tenuto::String> {
  std::size_t operator()(const tenuto::String& s) const {
    return std::hash<std::string_view>()(s.view());
  }
};
}  // namespace std
