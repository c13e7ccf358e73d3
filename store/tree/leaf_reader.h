// Reads the leaves and records of a tree, and checks what it reads. It changes nothing on media. So
// the writes, the cursors, the compaction and the validation of a tree share it.
//
// Thread safety: all but set_verify from any thread. REQUIRES for all: an epoch guard, or a locked
// leaf. Statuses: corrupt, damage on media; the pool is read-only from then on (Pool::health). io:
// a page could not be read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "file/pool_file.h"
#include "pm/plant.h"
#include "store/tree/hash.h"
#include "store/tree/index.h"
#include "store/tree/record.h"
#include "store/tree/shadow_leaves.h"
#include "tenuto/status.h"

namespace TENUTO_NS::store {

// An entry of a leaf with its key, for code that needs the order.
struct Entry {
  Record record;
  SlotWord word;
  std::uint8_t slot;
};

// What a cursor keeps of a leaf: slot words in key order, and no record.
struct SortedLeaf {
  std::vector<SlotWord> words = std::vector<SlotWord>(kSlots);  // the first `count` of them
  std::size_t count = 0;
  // Empty; or the records of all words, if those without a place are the writes of a transaction.
  std::vector<Record> own;

  std::size_t size() const { return count; }
  void clear() {
    count = 0;
    own.clear();
  }
  void insert(std::size_t rank, SlotWord word);  // REQUIRES: fewer than kSlots
  void take(const std::vector<Entry>& sorted);
};

// The keys that belong into a leaf: from its low separator to that of the next leaf, if there is
// one.
struct KeyRange {
  std::string_view low;
  std::optional<std::string_view> end;

  // How many bytes all of them share.
  std::size_t prefix() const { return end ? common_prefix(low, *end) : 0; }
  bool has(std::string_view key) const { return low <= key && !(end && *end <= key); }
};

// A key's head in an order with this prefix.
inline SlotHead slot_head(std::string_view key, std::size_t prefix) {
  const std::uint64_t head = key_head(key.substr(std::min(prefix, key.size())));
  return static_cast<SlotHead>(static_cast<std::uint32_t>(head >> 32) ^ 1u << 31);
}

// What a search for a key has found in its leaf.
struct Found {
  bool found = false;
  unsigned slot = 0;
  SlotWord word{};
  Record record;
};

class LeafReader {
 public:
  LeafReader(pm::PoolFile& file, const ShadowLeaves& shadows, TreeId id)
      : file_(file), shadows_(shadows), id_(id) {}

  // Whether a record that is read for its value is compared with its checksum. Call it before any
  // other thread knows the tree.
  void set_verify(bool on) { verify_ = on; }
  bool verifies() const { return verify_; }

  // Searches one leaf. conflict: it has changed, look again.
  Status search(const Place& place, std::string_view key, KeyHash hash, Found& out) const;
  // Whether the record at this place has the key. False for what cannot be a record.
  bool has_key(PoolOffset at, std::string_view key, Record& out) const {
    prefetch_record(file_, at);
    return read_record(file_, at, out) && out.key == key;
  }
  // Compares a record that was found with its checksum, if its value is to be read.
  Status judge(PoolOffset at, const Record& record, bool for_value) const {
    if (for_value && verify_ && !record_sound(file_, at, record)) [[unlikely]]
      return damaged(at, "record's checksum");
    return file_.bad_pages();
  }
  // Turns the result of a search into a status and a record.
  Status judge(const Found& found, bool for_value, Record& out) const;

  // The leaf's entries at the place's version, unsorted. conflict: the leaf has changed, look
  // again.
  Status entries(const Place& place, std::vector<Entry>& out, bool verified = false) const;
  // The leaf in key order. It reads a record only if it must. It leaves the order in the shadow
  // leaf for the next call. conflict: as above.
  Status ordered(const Place& place, SortedLeaf& out) const;
  // Reads one of its records; verified: and compares it with its checksum.
  Status read(const SortedLeaf& leaf, std::size_t i, bool verified, Record& out) const {
    if (leaf.words[i].record()) [[likely]]
      return read(leaf.words[i], verified, out);
    out = leaf.own[i];
    return Status::ok;
  }
  Status read(SlotWord word, bool verified, Record& out) const;
  // The same for a step of a cursor. False: read() says why.
  bool read_well(SlotWord word, bool verified, Record& out) const {
    if (!read_record(file_, word.record(), out)) return false;
    const bool its_own = hash_key(out.key).slot == word.hash();
    if (!its_own && !TENUTO_PLANT("store_step_without_hash")) return false;
    if (verified && !record_sound(file_, word.record(), out) &&
        !TENUTO_PLANT("store_step_without_checksum"))
      return false;
    return file_.bad_pages() == Status::ok;
  }
  // Counts the entries that are below the key, or equal to it if inclusive.
  Status count_below(const SortedLeaf& leaf, std::string_view key, bool inclusive,
                     std::size_t& count) const;
  // Compares a record that was read before with its checksum, whatever set_verify() was given.
  Status verify(SlotWord word, const Record& record) const {
    return record_sound(file_, word.record(), record) ? Status::ok
                                                      : damaged(word.record(), "record's checksum");
  }
  // The same for a record that lookup, lookup_at or put_when has given.
  Status verify(const Record& record) const;
  // Sorts by key.
  static void sort(std::vector<Entry>& entries);

  // The place of a new key in the order of a locked leaf. None: the order is lost, because it is
  // not known, has no heads, or something could not be read. Cost: compare_heads, and log2 of the
  // keys with the same head reads.
  std::optional<OrderPlace> place_in_order(const ShadowLeaf& shadow, std::string_view key) const;
  // Whether the keys belong into their leaf. conflict: as above.
  Status in_range(const Place& place, const KeyRange& range, std::span<const Entry> found) const;
  // It counts if the leaf's version is still the same after.
  Result<KeyRange> range_of(const ShadowLeaf& shadow) const;
  Result<std::string_view> low_of(const ShadowLeaf& shadow) const;
  Result<PoolOffset> next_of(const ShadowLeaf& shadow) const;
  // The low separator of the next leaf; none: there is no next leaf. It counts if the leaf's
  // version is still the same after.
  Result<std::optional<std::string_view>> end_of(const ShadowLeaf& shadow) const;

  // Asks for all of these records at once, if they may be on a disk (PoolFile::read_ahead).
  void read_ahead(const SlotWord* words, std::size_t count) const {
    if (file_.on_disk()) ask_to_read(words, count);
  }
  void read_ahead(std::span<const Entry> entries) const;
  void prefetch(SlotWord word, std::uint64_t lines = 2) const {
    prefetch_record(file_, word.record(), lines);
  }
  // Whether all slot words in use are sound. REQUIRES: the leaf is locked.
  Status words_sound(const ShadowLeaf& shadow) const;
  // Prefetches a leaf that a walk comes to, or will come to soon (UpperBound::next).
  void prefetch_leaf(const ShadowLeaf& shadow) const { shadows_.prefetch(shadow); }
  void prefetch_leaf(const void* child) const;
  // Later, when that is in the cache: the leaf's first records, or, if its order is not known, the
  // keys of all, which a walk will sort. REQUIRES: the leaf was linked in an epoch that has not
  // ended, and the thread is pinned.
  void prefetch_records(const void* child, unsigned count) const;

  // Notes the damage in the log and turns the pool read-only. corrupt | io.
  Status damaged(PoolOffset at, const char* what) const;
  // After damage that no later open can see: from now on opens refuse the pool.
  void mark_lost() const { file_.mark_damaged({}, pm::kVariantLeafLost); }

 private:
  void ask_to_read(const SlotWord* words, std::size_t count) const;
  Status damaged_word(const ShadowLeaf& shadow, unsigned slot) const;
  Status sort_all(const Place& place, SortedLeaf& out) const;
  Status read_all(const Place& place, std::vector<Entry>& out, bool verified) const;

  pm::PoolFile& file_;
  const ShadowLeaves& shadows_;
  const TreeId id_;
  bool verify_ = true;
};

}  // namespace TENUTO_NS::store
