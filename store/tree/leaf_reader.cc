// Searches, whole leaves, and walks in key order. A walk reads only the records that it hands out.
// The order of the slots is in the shadow leaf (slot_order.h). A walk that finds none sorts the
// leaf, and leaves the order there. A record is read when the cursor comes to it. Before that its
// lines are prefetched, as are the next leaf's.
#include "store/tree/leaf_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "pm/plant.h"
#include "store/tree/key_sort.h"
#include "store/tree/leaf.h"
#include "store/tree/unmade.h"

namespace TENUTO_NS::store {

Status LeafReader::damaged(PoolOffset at, const char* what) const {
  TENUTO_TRY(file_.bad_pages());  // zeros in place of a bad page are no damage on media
  return file_.damaged(at, what);
}

// conflict: the leaf has changed meanwhile. A record is read only if the fingerprint and 16 more
// hash bits agree, so one record is read as a rule.
Status LeafReader::search(const Place& place, std::string_view key, KeyHash hash,
                          Found& out) const {
  if (ShadowLeaf::damaged(place.version)) [[unlikely]]
    return damaged(file_.offset_of(place.leaf->leaf), "leaf");
  for (std::uint64_t hits = place.leaf->match(hash.fingerprint); hits != 0; hits &= hits - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(hits));
    const SlotWord word = place.leaf->word(slot);
    if (word.hash() != hash.slot) {
      if (word.raw != 0) [[likely]]
        continue;
      if (!place.leaf->still(place.version)) return Status::conflict;
      return damaged_word(*place.leaf, slot);
    }
    prefetch_record(file_, word.record());
    if (!place.leaf->still(place.version)) return Status::conflict;
    Record record;
    if (!read_record(file_, word.record(), record)) return damaged(word.record(), "record");
    if (record.key == key) {
      out = {true, slot, word, record};
      return Status::ok;
    }
    // Two keys may share 24 bits of hash. But a record that does not fit its own slot is damage.
    const KeyHash own = hash_key(record.key);
    if (own.fingerprint != hash.fingerprint || own.slot != hash.slot)
      return damaged(word.record(), "record");
  }
  out.found = false;
  return place.leaf->still(place.version) ? Status::ok : Status::conflict;
}

Status LeafReader::judge(const Found& found, bool for_value, Record& out) const {
  if (!found.found) {
    TENUTO_TRY(file_.bad_pages());
    return Status::not_found;
  }
  out = found.record;
  return judge(found.word.record(), out, for_value);
}

// --- entries -------------------------------------------------------------------------------------

Status LeafReader::entries(const Place& place, std::vector<Entry>& out, bool verified) const {
  TENUTO_TRY(read_all(place, out, verified));
  const Result<KeyRange> range = range_of(*place.leaf);
  return range ? in_range(place, *range, out) : range.error();
}

Status LeafReader::read_all(const Place& place, std::vector<Entry>& out, bool verified) const {
  out.clear();
  const ShadowLeaf& shadow = *place.leaf;
  for (std::uint64_t used = shadow.used_slots(); used != 0; used &= used - 1) {
    const auto slot = static_cast<std::uint8_t>(std::countr_zero(used));
    out.push_back({{}, shadow.word(slot), slot});
  }
  if (!shadow.still(place.version)) return Status::conflict;
  read_ahead(out);
  for (const Entry& e : out) prefetch(e.word);
  for (Entry& e : out) TENUTO_TRY(read(e.word, verified, e.record));
  return Status::ok;
}

void LeafReader::read_ahead(std::span<const Entry> entries) const {
  if (!file_.on_disk()) return;
  std::array<PoolOffset, kSlots> places;
  std::size_t count = 0;
  for (const Entry& e : entries) places[count++] = e.word.record();
  file_.read_ahead(places.data(), count);
}

void LeafReader::ask_to_read(const SlotWord* words, std::size_t count) const {
  std::array<PoolOffset, kSlots> places;
  count = std::min(count, places.size());
  for (std::size_t i = 0; i < count; ++i) places[i] = words[i].record();
  file_.read_ahead(places.data(), count);
}

// A key in the wrong leaf would be skipped by a walk, and lost by a split.
Status LeafReader::in_range(const Place& place, const KeyRange& range,
                            std::span<const Entry> found) const {
  const auto wrong = std::find_if(found.begin(), found.end(),
                                  [&](const Entry& e) { return !range.has(e.record.key); });
  if (wrong == found.end() || TENUTO_PLANT("store_range_of_keys_not_checked")) return Status::ok;
  // The leaf may have been split since its entries were read.
  if (!place.leaf->still(place.version)) return Status::conflict;
  return damaged(wrong->word.record(), "record whose key does not belong into its leaf");
}

void LeafReader::sort(std::vector<Entry>& entries) {
  if (entries.size() > kSlots) {  // with old versions of keys that are absent now
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.record.key < b.record.key; });
    return;
  }
  std::array<Entry, kSlots> old;
  std::copy(entries.begin(), entries.end(), old.begin());
  std::array<KeyRank, kSlots> ranks;
  const std::span<KeyRank> order(ranks.data(), entries.size());
  sort_by_key(order, [&](std::uint32_t i) { return old[i].record.key; });
  for (std::size_t i = 0; i < order.size(); ++i) entries[i] = old[order[i].at];
}

Status LeafReader::read(SlotWord word, bool verified, Record& out) const {
  const PoolOffset at = word.record();
  if (!read_record(file_, at, out)) [[unlikely]]
    return damaged(at, "record");
  // A key that the medium changed may sort anywhere. Also, an older state of the slot may name a
  // whole record, of another key.
  const bool its_own = hash_key(out.key).slot == word.hash();
  if (!its_own && !TENUTO_PLANT("store_key_not_compared_with_its_slot")) [[unlikely]]
    return damaged(at, "record that is not its slot's");
  return verified ? verify(word, out) : Status::ok;
}

Status LeafReader::verify(const Record& record) const {
  const PoolOffset at = place_of(file_, record);
  return record_sound(file_, at, record) ? Status::ok : damaged(at, "record's checksum");
}

// --- walks ---------------------------------------------------------------------------------------

void SortedLeaf::insert(std::size_t rank, SlotWord word) {
  std::copy_backward(&words[rank], words.data() + count, words.data() + count + 1);
  words[rank] = word;
  count += 1;
}

void SortedLeaf::take(const std::vector<Entry>& sorted) {
  clear();
  if (sorted.size() > words.size()) words.resize(sorted.size());
  bool all_in_pool = true;
  for (const Entry& e : sorted) {
    words[count++] = e.word;
    all_in_pool = all_in_pool && e.word.record();
  }
  if (all_in_pool) return;
  for (const Entry& e : sorted) own.push_back(e.record);
}

Status LeafReader::ordered(const Place& place, SortedLeaf& out) const {
  const ShadowLeaf& shadow = *place.leaf;
  if (!shadow.order.known()) [[unlikely]]
    return sort_all(place, out);
  out.own.clear();
  SlotWord* const words = out.words.data();
  const ShadowLeaf::Words word = shadow.words();
  const unsigned count = shadow.count();
  for (unsigned i = 0; i < count; ++i) {
    const unsigned slot = shadow.order.slot(i);
    words[i] = word[slot];
    if (words[i].raw == 0) [[unlikely]] {
      if (!shadow.still(place.version)) return Status::conflict;
      return damaged_word(shadow, slot);
    }
  }
  out.count = count;
  return shadow.still(place.version) ? Status::ok : Status::conflict;
}

Status LeafReader::sort_all(const Place& place, SortedLeaf& out) const {
  const ShadowLeaf& shadow = *place.leaf;
  std::array<SlotWord, kSlots> words;
  std::array<std::uint8_t, kSlots> slot;
  const ShadowLeaf::Words word = shadow.words();
  std::size_t count = 0;
  for (std::uint64_t used = shadow.used_slots(); used != 0; used &= used - 1) {
    slot[count] = static_cast<std::uint8_t>(std::countr_zero(used));
    words[count] = word[slot[count]];
    count += 1;
  }
  if (!shadow.still(place.version)) return Status::conflict;
  read_ahead(words.data(), count);
  for (std::size_t i = 0; i < count; ++i) prefetch_key(file_, words[i].record());
  std::array<Record, kSlots> records;
  for (std::size_t i = 0; i < count; ++i) TENUTO_TRY(read(words[i], false, records[i]));
  std::array<KeyRank, kSlots> order;
  sort_by_key({order.data(), count}, [&](std::uint32_t i) { return records[i].key; });
  if (count != 0) {
    const Result<KeyRange> range = range_of(shadow);
    if (!range) return range.error();
    const std::uint32_t first = order[0].at;
    const std::uint32_t last = order[count - 1].at;
    const Entry ends[] = {{records[first], words[first], slot[first]},
                          {records[last], words[last], slot[last]}};
    TENUTO_TRY(in_range(place, *range, ends));
  }
  WholeOrder whole;
  out.clear();
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t at = order[i].at;
    out.words[out.count++] = words[at];
    whole.add(slot[at], 0);
  }
  place.leaf->keep_order(place.version, whole);
  return Status::ok;
}

std::optional<OrderPlace> LeafReader::place_in_order(const ShadowLeaf& shadow,
                                                     std::string_view key) const {
  const SlotOrder& order = shadow.order;
  if (!order.has_heads()) return {};
  const std::uint64_t used = shadow.used_slots();
  if (order.open() && !TENUTO_PLANT("store_prefix_of_a_new_key_not_compared")) {
    const Result<std::string_view> low = low_of(shadow);
    if (!low) return {};
    if (common_prefix(*low, key) < order.prefix()) {
      return OrderPlace{static_cast<unsigned>(std::popcount(used)), 0, nullptr};
    }
  }
  SlotHeads& heads = shadows_.heads_of(shadow);
  const SlotHead head = slot_head(key, order.prefix());
  const ComparedHeads compared = compare_heads(heads, head);
  auto from = static_cast<unsigned>(std::popcount(compared.lower & used));
  auto to = from + static_cast<unsigned>(std::popcount(compared.equal & used));
  // The first look is at the last of them, because keys often come in order.
  for (unsigned at = to - 1; from < to && !TENUTO_PLANT("store_equal_heads_not_compared");
       at = from + (to - from) / 2) {
    Record record;
    if (read(shadow.word(order.slot(at)), false, record) != Status::ok) return {};
    (record.key < key ? from : to) = record.key < key ? at + 1 : at;
  }
  return OrderPlace{from, head, &heads};
}

// Prefetches the keys of three halvings at once.
Status LeafReader::count_below(const SortedLeaf& leaf, std::string_view key, bool inclusive,
                               std::size_t& count) const {
  std::size_t from = 0;
  std::size_t to = leaf.size();
  for (unsigned step = 0; from < to; ++step) {
    const std::size_t mid = from + (to - from) / 2;
    if (step % 3 == 0) {
      for (std::size_t eighth = 1; eighth < 8; ++eighth) {
        prefetch(leaf.words[from + (to - from) * eighth / 8]);
      }
    }
    Record at_mid;
    TENUTO_TRY(read(leaf, mid, false, at_mid));
    if (inclusive ? at_mid.key <= key : at_mid.key < key) {
      from = mid + 1;
    } else {
      to = mid;
    }
  }
  count = from;
  return Status::ok;
}

// The slot of the leaf itself, where word() has found damage, or of a leaf that is damaged whole.
Status LeafReader::damaged_word(const ShadowLeaf& shadow, unsigned slot) const {
  return damaged(file_.offset_of(&shadow.leaf->slot[slot]), "slot of a leaf");
}

Status LeafReader::words_sound(const ShadowLeaf& shadow) const {
  for (std::uint64_t used = shadow.used_slots(); used != 0; used &= used - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(used));
    if (shadow.word(slot).raw == 0) return damaged_word(shadow, slot);
  }
  return Status::ok;
}

void LeafReader::prefetch_leaf(const void* child) const {
  if (child == nullptr) return;
  const UnmadeLeaf unmade = UnmadeLeaf::of(child);
  if (!UnmadeLeaf::is(child)) return prefetch_leaf(*static_cast<const ShadowLeaf*>(child));
  for (std::size_t line = 0; line < sizeof(Leaf); line += kLineBytes) {
    __builtin_prefetch(file_.at<char>(unmade.at() + line));
  }
}

void LeafReader::prefetch_records(const void* child, unsigned count) const {
  if (child == nullptr) return;
  const auto prefetch_keys = [this](std::uint64_t used, const auto& word) {
    for (; used != 0; used &= used - 1) {
      prefetch_key(file_, word(static_cast<unsigned>(std::countr_zero(used))).record());
    }
  };
  if (UnmadeLeaf::is(child)) {
    if (file_.on_disk()) return;  // it may have to be read
    const Leaf& leaf = *file_.at<Leaf>(UnmadeLeaf::of(child).at());
    return prefetch_keys(bitmap_of(leaf) & kBitmapMask,
                         [&](unsigned slot) { return read_word(leaf.slot[slot]); });
  }
  const auto& shadow = *static_cast<const ShadowLeaf*>(child);
  const ShadowLeaf::Words words = shadow.words();
  if (!shadow.order.known()) {
    return prefetch_keys(shadow.used_slots(), [&](unsigned slot) { return words[slot]; });
  }
  count = std::min(count, shadow.count());
  for (unsigned i = 0; i < count; ++i) prefetch(words[shadow.order.slot(i)]);
}

// --- separators and links ------------------------------------------------------------------------

Result<std::string_view> LeafReader::low_of(const ShadowLeaf& shadow) const {
  const Result<std::string_view> low = store::low_of(file_, *shadow.leaf);
  if (!low || !low_sound(file_, *shadow.leaf, id_, *low)) {
    return damaged(file_.offset_of(shadow.leaf), "low separator");
  }
  return *low;
}

Result<PoolOffset> LeafReader::next_of(const ShadowLeaf& shadow) const {
  const HeaderWord& at = shadow.leaf->head.next;
  const HeaderWord next = read_word(at);
  if (!next.sound(salt_of(at)) ||
      (next.value() != 0 && !file_.in_range({next.value()}, sizeof(Leaf)))) {
    return damaged(file_.offset_of(shadow.leaf), "link to the next leaf");
  }
  return PoolOffset{next.value()};
}

Result<KeyRange> LeafReader::range_of(const ShadowLeaf& shadow) const {
  const Result<std::string_view> low = low_of(shadow);
  if (!low) return low.error();
  const Result<std::optional<std::string_view>> end = end_of(shadow);
  if (!end) return end.error();
  return KeyRange{*low, *end};
}

Result<std::optional<std::string_view>> LeafReader::end_of(const ShadowLeaf& shadow) const {
  const Result<PoolOffset> next = next_of(shadow);
  if (!next) return next.error();
  if (!*next) return std::optional<std::string_view>{};
  const Leaf& leaf = *file_.at<Leaf>(*next);
  const Result<std::string_view> low = store::low_of(file_, leaf);
  if (!low || !low_sound(file_, leaf, id_, *low)) return damaged(*next, "low separator");
  return std::optional(*low);
}

}  // namespace TENUTO_NS::store
