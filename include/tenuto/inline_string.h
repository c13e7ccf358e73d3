// Text of at most N bytes as a value: no block, no pointer, trivially copyable. For fields, as
// p<InlineString<31>>, for elements and for keys. Zero bytes are the empty text, and equal texts
// have equal bytes. Text that does not fit is an error, and never cut.
//
//   p<InlineString<31>> name;
//   name = "a literal";                                    // the compiler checks its length
//   const auto made = InlineString<31>::make(user_input);  // too_large
//
// Thread safety: as for a variable. Durability: that of the field or element that it is in.
#pragma once

#include <algorithm>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <type_traits>

#include "tenuto/abi.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

template <std::size_t N>
class InlineString {
  static_assert(N > 0 && N <= 0xffff, "longer text belongs into a String");
  using Size = std::conditional_t<(N < 256), std::uint8_t, std::uint16_t>;

 public:
  static constexpr std::size_t kBytesMax = N;

  constexpr InlineString() = default;
  // From a literal.
  template <std::size_t M>
  requires(M <= N + 1) consteval InlineString(const char (&text)[M]) { set({text, M - 1}); }
  // too_large: above N bytes.
  static constexpr Result<InlineString> make(std::string_view text) {
    if (text.size() > N) return Status::too_large;
    InlineString s;
    s.set(text);
    return s;
  }

  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  // Valid as long as this object, also if it is a copy.
  constexpr std::string_view view() const { return {text_, size_}; }
  constexpr operator std::string_view() const { return view(); }

  friend constexpr bool operator==(const InlineString& a, const InlineString& b) {
    return a.view() == b.view();
  }
  friend constexpr auto operator<=>(const InlineString& a, const InlineString& b) {
    return a.view() <=> b.view();
  }
  template <std::convertible_to<std::string_view> S>
  requires(!std::same_as<S, InlineString>) friend constexpr bool operator==(const InlineString& a,
                                                                            const S& b) {
    return a.view() == std::string_view(b);
  }
  template <std::convertible_to<std::string_view> S>
  requires(!std::same_as<S, InlineString>) friend constexpr auto operator<=>(const InlineString& a,
                                                                             const S& b) {
    return a.view() <=> std::string_view(b);
  }

 private:
  constexpr void set(std::string_view text) {
    std::copy(text.begin(), text.end(), text_);
    size_ = static_cast<Size>(text.size());
  }

  Size size_ = 0;
  char text_[N] = {};
};

}  // namespace TENUTO_NS

namespace std {
template <std::size_t N>
struct hash<tenuto::InlineString<N>> {
  std::size_t operator()(const tenuto::InlineString<N>& s) const {
    return std::hash<std::string_view>()(s.view());
  }
};
}  // namespace std
