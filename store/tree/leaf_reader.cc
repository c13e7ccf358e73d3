// Searches, whole leaves, and walks in key order. A walk reads only the records that it hands out.
// The order of the slots is in the shadow leaf (shadow_leaf.h). A walk completes it: it sorts in
// the few slots that were filled since, or sorts all. A record is read when the cursor comes to it.
// Before that its lines are prefetched, as are the next leaf's.
#include "store/tree/leaf_reader.h"

#include <algorithm>
#include <array>
#include <bit>

#include "pm/plant.h"
#include "store/tree/key_sort.h"
#include "store/tree/leaf.h"

namespace TENUTO_NS::store {

Status LeafReader::damaged(PoolOffset at, const char* what) const {
  TENUTO_TRY(file_.bad_pages());  // zeros in place of a bad page are no damage on media
  file_.poison(Status::corrupt);
  file_.log(file_.where(at, what) + ": damaged; the pool turns read-only");
  return Status::corrupt;
}

// conflict: the leaf has changed meanwhile. A record is read only if the fingerprint and 16 more
// hash bits agree, so one record is read as a rule.
Status LeafReader::search(const Place& place, std::string_view key, KeyHash hash,
                          Found& out) const {
  for (std::uint64_t hits = place.leaf->match(hash.fingerprint); hits != 0; hits &= hits - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(hits));
    const SlotWord word = place.leaf->word(slot);
    if (word.hash() != hash.slot) continue;
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

Status LeafReader::entries(const Place& place, std::vector<Entry>& out, bool for_values) const {
  out.clear();
  const ShadowLeaf& shadow = *place.leaf;
  for (std::uint64_t used = shadow.used_slots(); used != 0; used &= used - 1) {
    const auto slot = static_cast<std::uint8_t>(std::countr_zero(used));
    out.push_back({{}, shadow.word(slot), slot});
  }
  if (!shadow.still(place.version)) return Status::conflict;
  for (const Entry& e : out) prefetch(e.word);
  for (Entry& e : out) TENUTO_TRY(read(e, for_values));
  return in_range(place, out);
}

// A key in the wrong leaf would be skipped by a walk, and lost by a split.
Status LeafReader::in_range(const Place& place, const std::vector<Entry>& found) const {
  const Result<std::string_view> low = low_of(*place.leaf);
  if (!low) return low.error();
  const Result<std::optional<std::string_view>> end = end_of(*place.leaf);
  if (!end) return end.error();
  const auto wrong = std::find_if(found.begin(), found.end(), [&](const Entry& e) {
    return e.record.key < *low || (*end && **end <= e.record.key);
  });
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

Status LeafReader::read(Entry& e, bool for_value) const {
  if (!e.read) {
    if (!read_record(file_, e.word.record(), e.record)) {
      return damaged(e.word.record(), "record");
    }
    // A key that the medium changed may sort anywhere. Also, a page written to the wrong place may
    // put a whole record here.
    const bool its_own = hash_key(e.record.key).slot == e.word.hash();
    if (!its_own && !TENUTO_PLANT("store_key_not_compared_with_its_slot")) {
      return damaged(e.word.record(), "record that is not its slot's");
    }
    e.read = true;
  }
  return for_value && verify_ ? verify(e) : Status::ok;
}

Status LeafReader::verify(Entry& e) const {
  TENUTO_TRY(read(e, false));
  if (e.verified) return Status::ok;
  if (!record_sound(file_, e.word.record(), e.record)) {
    return damaged(e.word.record(), "record's checksum");
  }
  e.verified = true;
  return Status::ok;
}

Status LeafReader::verify(const Record& record) const {
  const PoolOffset at = place_of(file_, record);
  return record_sound(file_, at, record) ? Status::ok : damaged(at, "record's checksum");
}

// --- walks ---------------------------------------------------------------------------------------

namespace {
constexpr unsigned kFew = 12;  // slots that are sorted in one by one
}

Status LeafReader::ordered(const Place& place, std::vector<Entry>& out) const {
  const ShadowLeaf& shadow = *place.leaf;
  const std::uint64_t used = shadow.used_slots();
  const std::uint64_t known = used & shadow.slots_in_order();
  out.clear();
  for (unsigned i = 0; i < kSlots; ++i) {
    const unsigned slot = shadow.ordered_slot(i);
    if (slot >= kSlots) break;
    if ((known >> slot & 1) != 0) {
      out.push_back({{}, shadow.word(slot), static_cast<std::uint8_t>(slot)});
    }
  }
  const std::uint64_t since = used & ~known;
  if (since != 0 && (known == 0 || !TENUTO_PLANT("store_walk_without_new_slots"))) {
    if (known == 0 || std::popcount(since) > static_cast<int>(kFew)) return sort_all(place, out);
    return sort_in(place, since, out);
  }
  return shadow.still(place.version) ? Status::ok : Status::conflict;
}

namespace {
void keep_order(const Place& place, const std::vector<Entry>& sorted) {
  std::array<std::uint8_t, kSlots> slots;
  for (std::size_t i = 0; i < sorted.size(); ++i) slots[i] = sorted[i].slot;
  place.leaf->keep_order(place.version, slots.data(), static_cast<unsigned>(sorted.size()));
}
}  // namespace

Status LeafReader::sort_all(const Place& place, std::vector<Entry>& out) const {
  TENUTO_TRY(entries(place, out));
  sort(out);
  keep_order(place, out);
  return Status::ok;
}

// Sorts these slots in among the others. Their keys came since the whole leaf was sorted and
// checked, from writes that had located this leaf. So their range is not checked again.
Status LeafReader::sort_in(const Place& place, std::uint64_t slots,
                           std::vector<Entry>& sorted) const {
  std::array<Entry, kFew> added;
  unsigned count = 0;
  for (; slots != 0; slots &= slots - 1) {
    const auto slot = static_cast<std::uint8_t>(std::countr_zero(slots));
    added[count++] = {{}, place.leaf->word(slot), slot};
  }
  if (!place.leaf->still(place.version)) return Status::conflict;
  for (unsigned i = 0; i < count; ++i) prefetch(added[i].word);
  for (unsigned i = 0; i < count; ++i) {
    TENUTO_TRY(read(added[i], false));
    std::size_t rank = 0;
    TENUTO_TRY(count_below(sorted, added[i].record.key, false, rank));
    sorted.insert(sorted.begin() + static_cast<std::ptrdiff_t>(rank), added[i]);
  }
  keep_order(place, sorted);
  return Status::ok;
}

// Prefetches the keys of three halvings at once.
Status LeafReader::count_below(std::vector<Entry>& sorted, std::string_view key, bool inclusive,
                               std::size_t& count) const {
  std::size_t from = 0;
  std::size_t to = sorted.size();
  for (unsigned step = 0; from < to; ++step) {
    const std::size_t mid = from + (to - from) / 2;
    if (step % 3 == 0) {
      for (std::size_t eighth = 1; eighth < 8; ++eighth) {
        prefetch(sorted[from + (to - from) * eighth / 8].word);
      }
    }
    TENUTO_TRY(read(sorted[mid], false));
    const std::string_view at_mid = sorted[mid].record.key;
    if (inclusive ? at_mid <= key : at_mid < key) {
      from = mid + 1;
    } else {
      to = mid;
    }
  }
  count = from;
  return Status::ok;
}

void LeafReader::prefetch_shadow(const ShadowLeaf& shadow) {
  for (std::size_t line = 0; line < sizeof shadow; line += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const char*>(&shadow) + line);
  }
}

void LeafReader::prefetch_first_records(const ShadowLeaf& shadow) const {
  constexpr unsigned kFirst = 4;
  if (shadow.slots_in_order() == 0) return;
  for (unsigned i = 0; i < kFirst; ++i) {
    const unsigned slot = shadow.ordered_slot(i);
    if (slot < kSlots) prefetch(shadow.word(slot));
  }
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
  const HeaderWord next{__atomic_load_n(&at.raw, __ATOMIC_ACQUIRE)};
  if (!next.sound(salt_of(at)) ||
      (next.value() != 0 && !file_.in_range({next.value()}, sizeof(Leaf)))) {
    return damaged(file_.offset_of(shadow.leaf), "link to the next leaf");
  }
  return PoolOffset{next.value()};
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
