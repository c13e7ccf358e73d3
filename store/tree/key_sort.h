// The order of things by their keys. It compares the eight bytes after the prefix that all keys
// share, as one number, and whole keys only if those are equal.
#pragma once

#include <nmmintrin.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "store/tree/inner.h"

namespace TENUTO_NS::store {

struct KeyRank {
  std::uint64_t head;
  std::uint32_t at;  // which of the things
};

// Sorts by the heads alone. A thing's place is the number of those with a lower head, which needs
// no branch: a vector instruction compares two. False: nothing is done, because there are many or
// two heads are equal. Cost: count^2 / 2 compares, for the things of a leaf less than a third of
// the time of std::sort.
inline bool sort_few_by_head(std::span<KeyRank> order) {
  constexpr std::size_t kFew = 64;
  const std::size_t count = order.size();
  if (count > kFew) return false;
  // The top bit is flipped, because vector instructions compare signed numbers.
  alignas(16) std::int64_t head[kFew];
  for (std::size_t i = 0; i < count; ++i) {
    head[i] = static_cast<std::int64_t>(order[i].head ^ 1ull << 63);
  }
  if (count % 2 != 0) head[count] = INT64_MAX;  // below none
  const auto* const pairs = reinterpret_cast<const __m128i*>(head);
  KeyRank sorted[kFew];
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const __m128i own = _mm_set1_epi64x(head[i]);
    __m128i lower = _mm_setzero_si128();  // -1 for each
    for (std::size_t j = 0; j < (count + 1) / 2; ++j) {
      lower = _mm_add_epi64(lower, _mm_cmpgt_epi64(own, _mm_load_si128(pairs + j)));
    }
    lower = _mm_add_epi64(lower, _mm_unpackhi_epi64(lower, lower));
    const auto place = static_cast<std::size_t>(-_mm_cvtsi128_si64(lower));
    sorted[place] = order[i];
    taken |= 1ull << place;
  }
  const std::uint64_t all = count == kFew ? ~0ull : (1ull << count) - 1;
  if (taken != all) return false;
  std::copy(sorted, sorted + count, order.begin());
  return true;
}

// Ranks as many things as there is room for in `order`. key_of(i) is the key of thing i. Things
// with equal keys keep their order.
template <class KeyOf>
void sort_by_key(std::span<KeyRank> order, const KeyOf& key_of) {
  if (order.empty()) return;
  std::string_view shared = key_of(0);
  for (std::uint32_t i = 1; i < order.size(); ++i) {
    shared = shared.substr(0, common_prefix(shared, key_of(i)));
  }
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    order[i] = {key_head(std::string_view(key_of(i)).substr(shared.size())), i};
  }
  const auto before = [&](const KeyRank& a, const KeyRank& b) {
    if (a.head != b.head) return a.head < b.head;
    const int by_key = std::string_view(key_of(a.at)).compare(key_of(b.at));
    return by_key != 0 ? by_key < 0 : a.at < b.at;
  };
  if (std::is_sorted(order.begin(), order.end(), before)) return;
  if (!sort_few_by_head(order)) std::sort(order.begin(), order.end(), before);
}

}  // namespace TENUTO_NS::store
