// Many keys at once. A group of keys runs step by step together, so that its cache misses overlap.
// The buckets of the lookup cache are prefetched, then the records that they name. The keys that
// the cache does not know descend together, level by level. Then come the shadow leaves, then the
// slot words that the fingerprints select, then the records (warm). Batches lock their leaves after
// that. A read runs the ordinary search for each key, with all lines in the cache.
//
// A key whose leaf is locked or changes meanwhile is looked up alone.
#include <array>
#include <bit>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// The keys of a group that the lookup cache does not know.
struct Tree::Missed {
  std::size_t count = 0;
  std::array<std::string_view, kLocatedAtOnce> keys;
  std::array<KeyHash, kLocatedAtOnce> hashes;
  std::array<LookupCache::Look, kLocatedAtOnce> looks;
  std::array<Looked*, kLocatedAtOnce> out;

  void add(std::string_view key, const LookupCache::Look& look, Looked& answer) {
    keys[count] = key;
    hashes[count] = look.hash();
    looks[count] = look;
    out[count++] = &answer;
  }
};

void Tree::multi_lookup(std::span<const std::string_view> keys, std::span<Looked> out) const {
  TENUTO_ASSERT(keys.size() == out.size());
  for (std::size_t from = 0; from < keys.size(); from += kLocatedAtOnce) {
    const std::size_t n = std::min(kLocatedAtOnce, keys.size() - from);
    lookup_group(keys.subspan(from, n), out.subspan(from, n));
  }
}

void Tree::lookup_group(std::span<const std::string_view> keys, std::span<Looked> out) const {
  std::array<KeyHash, kLocatedAtOnce> hashes;
  std::array<LookupCache::Look, kLocatedAtOnce> looks;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    hashes[i] = hash_key(keys[i]);
    lookups_.prefetch(hashes[i]);
  }
  std::array<PoolOffset, kLocatedAtOnce> places;
  std::size_t known = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    looks[i] = lookups_.look(hashes[i]);
    LookupCache::Look ahead = looks[i];
    if (const PoolOffset at = ahead.next()) prefetch_record(file_, places[known++] = at);
  }
  file_.read_ahead(places.data(), known);
  Missed missed;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].size() > kKeyBytesMax) {
      out[i].status = Status::too_large;
    } else if (!lookup_cached(keys[i], looks[i], out[i].record, true, out[i].status)) {
      missed.add(keys[i], looks[i], out[i]);
    }
  }
  if (missed.count != 0) lookup_missed(missed);
}

void Tree::lookup_missed(const Missed& m) const {
  std::array<Place, kLocatedAtOnce> places;
  warm({m.keys.data(), m.count}, m.hashes.data(), places.data());
  for (std::size_t i = 0; i < m.count; ++i) {
    Looked& out = *m.out[i];
    out.status = Status::conflict;
    if (places[i].leaf != nullptr) {
      out.status = lookup_at_place(places[i], m.keys[i], m.looks[i], out.record, true);
    }
    if (out.status == Status::conflict) {
      out.status = lookup_in_leaf(m.keys[i], m.looks[i], out.record, true);
    }
  }
}

void Tree::warm(std::span<const std::string_view> keys, const KeyHash* hashes,
                Place* places) const {
  index_.locate_many(keys, places);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const ShadowLeaf* const leaf = places[i].leaf;
    if (leaf == nullptr) continue;
    const std::uint64_t hits = leaf->match(hashes[i].fingerprint);
    if (hits != 0) shadows_.prefetch_word(*leaf, static_cast<unsigned>(std::countr_zero(hits)));
  }
  std::array<SlotWord, kLocatedAtOnce> words;
  std::size_t found = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const ShadowLeaf* const leaf = places[i].leaf;
    if (leaf == nullptr) continue;
    for (std::uint64_t hits = leaf->match(hashes[i].fingerprint); hits != 0; hits &= hits - 1) {
      const SlotWord word = leaf->word(static_cast<unsigned>(std::countr_zero(hits)));
      if (word.hash() != hashes[i].slot) continue;
      leaves_.prefetch(word);
      if (found < words.size()) words[found++] = word;
    }
  }
  leaves_.read_ahead(words.data(), found);
}

}  // namespace TENUTO_NS::store
