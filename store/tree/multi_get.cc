// Many keys at once. Their lookups run step by step together, so that their cache misses overlap.
// Each group of keys descends level by level. Then it prefetches the shadow leaves, then the slot
// words that the fingerprints select, then the records. Last, the ordinary search runs for each
// key, with all lines in the cache.
//
// A key whose leaf changes meanwhile is looked up alone.
#include <array>
#include <bit>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

namespace {

// A few more than the misses that a core can have under way.
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
      if (word.hash() == hashes[i].slot) leaves_.prefetch(word);
    }
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Found found;
    Status s = Status::conflict;
    if (places[i].leaf != nullptr && keys[i].size() <= kKeyBytesMax) {
      s = leaves_.search(places[i], keys[i], hashes[i], found);
    }
    if (s == Status::ok) s = leaves_.judge(found, true, out[i].record);
    out[i].status = s == Status::conflict ? lookup(keys[i], out[i].record) : s;
  }
}

}  // namespace TENUTO_NS::store
