// Many keys at once: their lookups go step by step together, so that the misses of one are waited
// for while the others' are under way. Each group descends level by level, then asks for the shadow
// leaves, then for the slot words that the fingerprints point at, then for the records; what was
// found is then judged by the ordinary search, whose lines are all there by now.
//
// A key whose leaf changes meanwhile is looked up by itself.
#include <array>
#include <bit>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

namespace {

// As many as a core has misses under way, and some.
constexpr std::size_t kGroup = 16;

}  // namespace

void Tree::multi_lookup(std::span<const std::string_view> keys, std::span<Looked> out) const {
  TENUTO_ASSERT(keys.size() == out.size());
  for (std::size_t from = 0; from < keys.size(); from += kGroup) {
    const std::size_t n = std::min(kGroup, keys.size() - from);
    lookup_group(keys.subspan(from, n), out.subspan(from, n));
  }
}

void Tree::lookup_group(std::span<const std::string_view> keys, std::span<Looked> out) const {
  std::array<Place, kGroup> places;
  std::array<KeyHash, kGroup> hashes;
  index_.locate_many(keys, places.data());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    hashes[i] = hash_key(keys[i]);
    if (places[i].leaf == nullptr) continue;
    const std::uint64_t hits = places[i].leaf->match(hashes[i].fingerprint);
    if (hits != 0) __builtin_prefetch(&places[i].leaf->words[std::countr_zero(hits)]);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (places[i].leaf == nullptr) continue;
    for (std::uint64_t hits = places[i].leaf->match(hashes[i].fingerprint); hits != 0;
         hits &= hits - 1) {
      const SlotWord word = places[i].leaf->word(static_cast<unsigned>(std::countr_zero(hits)));
      if (word.hash() == hashes[i].slot) prefetch(word);
    }
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Found found;
    Status s = Status::conflict;
    if (places[i].leaf != nullptr && keys[i].size() <= kKeyBytesMax) {
      s = search(places[i], keys[i], hashes[i], found);
    }
    if (s == Status::ok) s = judge(found, true, out[i].record);
    out[i].status = s == Status::conflict ? lookup(keys[i], out[i].record) : s;
  }
}

}  // namespace TENUTO_NS::store
