#include "store/rescue/tree.h"

#include <bit>
#include <deque>
#include <unordered_map>

#include "pm/plant.h"
#include "store/tree/hash.h"
#include "store/tree/image.h"
#include "store/tree/unmade.h"

namespace TENUTO_NS::store {

void RescueGround::lose(RescueLoss loss) {
  result.losses_count += 1;
  if (result.losses.size() < kRescueLossesMax) result.losses.push_back(std::move(loss));
}

void TreeRescue::lose(Report report, bool about_keys, std::string from,
                      std::optional<std::string> to) {
  lost_ = true;
  if (about_keys) lost_keys_.add(from, to);
  ground_.lose({std::move(report), about_keys, std::move(from), std::move(to), entry_.name});
}

void TreeRescue::find() {
  if (ground_.any_key_lost) lost_keys_.add({}, std::nullopt);
  salvage_.run();
  for (const Report& r : salvage_.notes()) ground_.result.notes.push_back(r);
  ground_.result.leaves += salvage_.live().size();
  note_gaps();
  compare_with_image();
  judge_leaves();
}

void TreeRescue::note_gaps() {
  const std::vector<FoundLeaf>& live = salvage_.live();
  if (live.empty()) {
    return lose({"no leaf of the store can be read", ground_.file.path(), {}, {}}, true);
  }
  const auto gap = [&](PoolOffset at, std::string from, std::optional<std::string> to) {
    lose({"leaves are missing here", ground_.file.where(at, "leaf"), {}, {}}, true, std::move(from),
         std::move(to));
  };
  if (!live[0].low.empty()) gap({pm::kHeadPageOffset}, {}, live[0].low);
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (salvage_.continued(i)) continue;
    const bool last = i + 1 == live.size();
    gap(live[i].at, live[i].low, last ? std::nullopt : std::optional(live[i + 1].low));
  }
}

// After a clean close: a leaf whose last write the medium lost is as sound as it was before that.
void TreeRescue::compare_with_image() {
  const std::vector<FoundLeaf>& live = salvage_.live();
  if (!ground_.file.was_clean() || live.empty() || !live[0].low.empty()) return;
  const Result<PoolOffset> image = image_of(salvage_.leaf(live[0]));
  if (!image || TENUTO_PLANT("store_rescue_believes_an_older_leaf")) return;
  std::unordered_map<std::uint64_t, const KeptLeaf*> kept;
  std::deque<KeptLeaf> copies;
  const Status compared =
      each_kept_leaf(ground_.file, entry_.id, *image, [&](PoolOffset leaf, const KeptLeaf* k) {
        if (k != nullptr) copies.push_back(*k);
        kept.emplace(leaf.value, k != nullptr ? &copies.back() : nullptr);
      });
  if (compared == Status::conflict) {
    lose({"the first leaf and the head page are not of the same close: some records may be old, or "
          "missing",
          ground_.file.where(live[0].at, "first leaf"),
          {},
          {}},
         true, live[0].low, end_of(0));
  }
  for (std::size_t i = 0; compared == Status::ok && i < live.size(); ++i) {
    const auto its = kept.find(live[i].at.value);
    const bool same = its != kept.end() &&
                      (its->second == nullptr || is_kept(salvage_.leaf(live[i]), *its->second));
    if (same) continue;
    lose({"a leaf is not the one of the close: some of its records may be old, or missing",
          ground_.file.where(live[i].at, "leaf"),
          {},
          {}},
         true, live[i].low, end_of(i));
  }
}

std::optional<std::string> TreeRescue::end_of(std::size_t i) const {
  const std::vector<FoundLeaf>& live = salvage_.live();
  for (std::size_t k = i + 1; k < live.size(); ++k) {
    if (live[k].low_ok && live[k].low > live[i].low) return live[k].low;
  }
  return std::nullopt;
}

// Sets leaves_are_all_: the chain of leaves is whole and has as many entries as the clean close
// counted, so every entry is current. Otherwise, after a clean close, an entry also needs its
// slab's bit: if the block is not in use the entry may be of an older state of its leaf.
void TreeRescue::judge_leaves() {
  std::uint64_t entries = 0;
  for (const FoundLeaf& f : salvage_.live()) {
    if (!bitmap_known(salvage_.leaf(f))) return;
    entries += static_cast<std::uint64_t>(std::popcount(bitmap_of(salvage_.leaf(f))));
  }
  leaves_are_all_ = !lost_ && !ground_.doubtful && expected_ == std::optional(entries);
}

// Whether the bits are sound. A damaged fingerprint is replaced by that of its record.
bool TreeRescue::bitmap_known(const Leaf& leaf) const {
  if (bitmap_sound(leaf)) return true;
  const std::uint64_t bits = bitmap_of(leaf);
  UsedFingerprints fingerprints = fingerprints_of(leaf, bits);
  for (std::uint64_t used = bits; used != 0; used &= used - 1) {
    const int slot = std::countr_zero(used);
    Record r;
    if (read_sound(leaf.slot[slot], nullptr, r))
      fingerprints.of[slot] = hash_key(r.key).fingerprint;
  }
  return bitmap_word(leaf.head.bitmap, bits, fingerprints).raw == leaf.head.bitmap.raw;
}

// Reads the record of a slot. False: it is not sound, or has not the hash of its slot.
bool TreeRescue::read_sound(SlotWord word, const std::uint8_t* fingerprint, Record& r) const {
  if (!word.sound()) return false;
  const pm::PoolFile& file = ground_.file;
  if (!read_record(file, word.record(), r) || !record_sound(file, word.record(), r)) return false;
  const KeyHash hash = hash_key(r.key);
  return word.hash() == hash.slot && (fingerprint == nullptr || *fingerprint == hash.fingerprint) &&
         key_fits(r);
}

Status TreeRescue::take_leaves(const Take& f) {
  for (std::size_t i = 0; i < salvage_.live().size(); ++i) TENUTO_TRY(take_leaf(i, f));
  return Status::ok;
}

Status TreeRescue::take_leaf(std::size_t i, const Take& take) {
  const std::vector<FoundLeaf>& live = salvage_.live();
  const FoundLeaf& f = live[i];
  const std::optional<std::string> end = end_of(i);
  const Leaf& leaf = salvage_.leaf(f);
  ground_.accounted.insert(f.at.value);
  if (const PoolOffset block = f.low_ok ? low_block(leaf) : PoolOffset{}) {
    ground_.accounted.insert(block.value);
  }
  const std::string where = ground_.file.where(f.at, "leaf");
  if (!bitmap_known(leaf)) {
    lose({"a leaf's bitmap is damaged: which of its records are current is not known",
          where,
          {},
          {}},
         true, f.low, end);
    if (!ground_.file.was_clean()) uncertain_.push_back(f.at);
    return Status::ok;  // after a clean close take_blocks() finds its records
  }
  std::uint64_t bad = 0;
  for (std::uint64_t used = bitmap_of(leaf); used != 0; used &= used - 1) {
    const auto slot = static_cast<unsigned>(std::countr_zero(used));
    const SlotWord word = leaf.slot[slot];
    Record r;
    const std::uint8_t* fingerprint = bitmap_sound(leaf) ? &leaf.head.fingerprint[slot] : nullptr;
    if (!read_sound(word, fingerprint, r) || r.key < f.low || (end && r.key >= *end)) {
      bad += 1;
      continue;
    }
    if (!leaves_are_all_ && ground_.slabs->in_use(word.record()) == std::optional(false)) {
      outdated_.push_back(word);
    } else if (ground_.accounted.insert(word.record().value).second) {
      TENUTO_TRY(take(r));
    }
  }
  if (bad == 0) return Status::ok;
  ground_.result.damaged += bad;
  lose({std::to_string(bad) + " of a leaf's " + std::to_string(std::popcount(bitmap_of(leaf))) +
            " entries lead to no sound record",
        where,
        {},
        {}},
       true, f.low, end);
  return Status::ok;
}

Status TreeRescue::may_be_old(const Record& r, Writer& out) {
  if (!lost_keys_sorted_) lost_keys_.sort();
  lost_keys_sorted_ = true;
  if (!lost_keys_.contains(r.key)) return Status::ok;
  const Result<bool> there = out.has(r.key);
  if (!there) return there.error();
  if (*there) return Status::ok;
  if (!ground_.options.scavenge) {
    if (unproven_keys_.emplace(r.key).second) ground_.result.unproven += 1;
    return Status::ok;
  }
  ground_.result.scavenged += 1;
  return out.put(r);
}

Status TreeRescue::take_slots(PoolOffset at, std::uint64_t slots, Writer& out) {
  const Leaf& leaf = *ground_.file.at<Leaf>(at);
  for (; slots != 0; slots &= slots - 1) {
    const SlotWord word = leaf.slot[std::countr_zero(slots)];
    Record r;
    if (ground_.accounted.contains(word.record().value) || !read_sound(word, nullptr, r)) continue;
    if (ground_.slabs->in_use(word.record()) == std::optional(false)) continue;  // freed
    TENUTO_TRY(may_be_old(r, out));
  }
  return Status::ok;
}

Status TreeRescue::take_unproven(Writer& out) {
  for (const FoundLeaf& f : salvage_.unproven()) {
    const Leaf& leaf = salvage_.leaf(f);
    const bool sound = bitmap_known(leaf);
    TENUTO_TRY(take_slots(f.at, sound ? bitmap_of(leaf) : kBitmapMask, out));
  }
  for (const PoolOffset at : uncertain_) TENUTO_TRY(take_slots(at, kBitmapMask, out));
  for (const SlotWord word : outdated_) {
    Record r;
    if (read_sound(word, nullptr, r)) TENUTO_TRY(may_be_old(r, out));
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::store
