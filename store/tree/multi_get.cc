// Many keys at once. Their lookups run step by step together, so that their cache misses overlap.
// For each group of keys the buckets of the lookup cache are prefetched, then the records that they
// name. The keys that the cache does not know descend together, level by level. Then come the
// shadow leaves, then the slot words that the fingerprints select, then the records. Last, the
// ordinary search runs for each of these keys, with all lines in the cache.
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

// The keys of a group that the lookup cache does not know.
struct Tree::Missed {
  std::size_t count = 0;
  std::array<std::string_view, kGroup> keys;
  std::array<LookupCache::Look, kGroup> looks;
  std::array<Looked*, kGroup> out;

  void add(std::string_view key, const LookupCache::Look& look, Looked& answer) {
    keys[count] = key;
    looks[count] = look;
    out[count++] = &answer;
  }
};

void Tree::multi_lookup(std::span<const std::string_view> keys, std::span<Looked> out) const {
  TENUTO_ASSERT(keys.size() == out.size());
  for (std::size_t from = 0; from < keys.size(); from += kGroup) {
    const std::size_t n = std::min(kGroup, keys.size() - from);
    lookup_group(keys.subspan(from, n), out.subspan(from, n));
  }
}

void Tree::lookup_group(std::span<const std::string_view> keys, std::span<Looked> out) const {
  std::array<KeyHash, kGroup> hashes;
  std::array<LookupCache::Look, kGroup> looks;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    hashes[i] = hash_key(keys[i]);
    lookups_.prefetch(hashes[i]);
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    looks[i] = lookups_.look(hashes[i]);
    LookupCache::Look ahead = looks[i];
    if (const PoolOffset at = ahead.next()) prefetch_record(file_, at);
  }
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
  std::array<Place, kGroup> places;
  index_.locate_many({m.keys.data(), m.count}, places.data());
  for (std::size_t i = 0; i < m.count; ++i) {
    if (places[i].leaf == nullptr) continue;
    const std::uint64_t hits = places[i].leaf->match(m.looks[i].hash().fingerprint);
    if (hits != 0) __builtin_prefetch(&places[i].leaf->words[std::countr_zero(hits)]);
  }
  for (std::size_t i = 0; i < m.count; ++i) {
    if (places[i].leaf == nullptr) continue;
    const KeyHash hash = m.looks[i].hash();
    for (std::uint64_t hits = places[i].leaf->match(hash.fingerprint); hits != 0;
         hits &= hits - 1) {
      const SlotWord word = places[i].leaf->word(static_cast<unsigned>(std::countr_zero(hits)));
      if (word.hash() == hash.slot) leaves_.prefetch(word);
    }
  }
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

}  // namespace TENUTO_NS::store
