// Reads of the tree at a snapshot's timestamp, the validation of reads, and sweeps of old versions.
// Why each step is right: versions.h.
#include <algorithm>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// --- reads ---------------------------------------------------------------------------------------

namespace {
// Call it after the look: versions may have been missing during it.
Status still_active(const SnapshotCore& at) {
  return at.expired.load(std::memory_order_acquire) ? Status::expired : Status::ok;
}
}  // namespace

Status Tree::lookup_at(std::string_view key, const SnapshotCore& at, Record& out,
                       bool for_value) const {
  if (key.size() > kKeyBytesMax) return Status::too_large;
  const KeyHash hash = hash_key(key);
  for (;;) {
    const OldVersion* before = nullptr;
    if (TENUTO_PLANT("store_snapshot_asks_versions_first")) {
      before = versions_.find(index_.locate(key).version, key, hash, at.timestamp);
    }
    const Place place = index_.locate(key);
    Found found;
    const Status s = leaves_.search(place, key, hash, found);
    if (s == Status::conflict) continue;
    TENUTO_TRY(s);
    PoolOffset record = found.found ? found.word.record() : PoolOffset{};
    const OldVersion* v = versions_.find(place.version, key, hash, at.timestamp);
    if (TENUTO_PLANT("store_snapshot_asks_versions_first")) v = before;
    if (v != nullptr) {
      record = v->record;
      found.found = static_cast<bool>(record);
      if (record && !read_record(file_, record, found.record))
        return leaves_.damaged(record, "record");
    }
    if (!place.leaf->still(place.version)) continue;
    TENUTO_TRY(still_active(at));
    TENUTO_TRY(file_.bad_pages());
    if (!found.found) return Status::not_found;
    out = found.record;
    if (for_value && leaves_.verifies() && !record_sound(file_, record, out)) {
      return leaves_.damaged(record, "record's checksum");
    }
    return file_.bad_pages();
  }
}

// A leaf without a list is as it was.
Status Tree::ordered_at(const Place& place, const SnapshotCore& at, SortedLeaf& out) const {
  if (ShadowLeaf::version_list(place.version) == 0) {
    TENUTO_TRY(leaves_.ordered(place, out));
    return still_active(at);
  }
  std::vector<Entry> found;
  TENUTO_TRY(leaves_.entries(place, found));
  std::vector<const OldVersion*> past;
  versions_.collect(place.version, at.timestamp, past);
  if (!place.leaf->still(place.version)) return Status::conflict;
  std::erase_if(found, [&](const Entry& e) {
    const auto v = std::lower_bound(
        past.begin(), past.end(), e.record.key,
        [](const OldVersion* old, std::string_view key) { return old->key() < key; });
    return v != past.end() && (*v)->key() == e.record.key;
  });
  for (const OldVersion* v : past) {
    if (!v->record) continue;
    found.push_back({{}, SlotWord::make(v->record, hash_key(v->key()).slot), 0});
    TENUTO_TRY(leaves_.read(found.back().word, false, found.back().record));
  }
  LeafReader::sort(found);
  out.take(found);
  return still_active(at);
}

// --- validation ----------------------------------------------------------------------------------

Status Tree::unchanged(const ReadRange& range, Timestamp since,
                       std::span<ShadowLeaf* const> mine) const {
  const bool point = range.is_key();
  if (TENUTO_PLANT("store_commit_keys_not_validated") && point) return Status::ok;
  if (TENUTO_PLANT("store_commit_ranges_not_validated") && !point) return Status::ok;
  const std::string_view to = range.to() ? std::string_view(*range.to()) : std::string_view();
  std::string at = range.from();
  // A thread that holds a leaf may wait for one of ours, so the wait is bounded: first spins, then
  // some yields. Few yields, because on a busy processor each may cost another thread's whole turn.
  constexpr unsigned kTriesMax = 1000;
  constexpr unsigned kYieldsMax = 16;
  const bool long_yields = TENUTO_PLANT("store_validation_yields_for_long");
  Backoff wait(kTriesMax - (long_yields ? 872 : kYieldsMax));
  for (unsigned tries = 0; tries < kTriesMax;) {
    ShadowLeaf& shadow = *index_.route(at);
    const std::uint64_t version = shadow.version.load(std::memory_order_seq_cst);
    const bool own = std::binary_search(mine.begin(), mine.end(), &shadow);
    const bool others = ShadowLeaf::locked(version) && !TENUTO_PLANT("store_commit_ignores_locks");
    if (!own && (others || ShadowLeaf::dead(version) || !index_.leads_to(at, &shadow))) {
      wait.pause();
      ++tries;
      continue;
    }
    const bool changed = versions_.changed(version, at, range.to() ? &to : nullptr, since);
    const Result<std::optional<std::string_view>> end = leaves_.end_of(shadow);
    if (!own && !shadow.still(version)) {
      ++tries;
      continue;
    }
    if (changed) return Status::conflict;
    if (!end) return end.error();
    if (point || !*end || (range.to() && to < **end)) return Status::ok;
    at = **end;
  }
  return Status::conflict;
}

bool Tree::changed_since(std::string_view key, const SnapshotCore& at) const {
  const EpochGuard guard;
  return unchanged({*this, key}, at.timestamp, {}) != Status::ok;
}

// --- sweeps --------------------------------------------------------------------------------------

void Tree::retire_version(OldVersion* v) {
  TENUTO_ASSERT(!v->listed || TENUTO_PLANT("store_versions_lost_at_unlink") ||
                TENUTO_PLANT("store_versions_lost_at_merge") ||
                TENUTO_PLANT("store_versions_lost_at_split"));
  garbage_.retire(garbage_.mine(),
                  {reinterpret_cast<std::uintptr_t>(v), Retired::What::old_version});
}

std::size_t Tree::sweep(std::span<OldVersion* const> going) {
  // Before any lock: the list may have to be made. From here on nothing needs memory.
  const bool ready = pm::had_memory([this] {
    const EpochGuard guard;
    static_cast<void>(garbage_.mine());
  });
  if (!ready) return 0;
  for (std::size_t i = 0, end = 0; i < going.size(); i = end) {
    const EpochGuard guard;
    const std::string_view key = going[i]->key();
    ShadowLeaf* shadow = nullptr;
    while (shadow == nullptr) {
      const Place place = index_.locate(key);
      if (place.leaf->lock_if(place.version)) shadow = place.leaf;
    }
    LeafLock lock(*shadow);
    // The range of a locked leaf does not change.
    while (end < going.size() && (end == i || index_.leads_to(going[end]->key(), shadow))) {
      going[end++]->going = true;
    }
    versions_.unlink_going(*shadow);
    const bool without =
        ShadowLeaf::version_list(shadow->version.load(std::memory_order_relaxed)) == 0;
    const bool empty = without && shadow->used_slots() == 0;
    lock.unlock_unchanged();  // the same for every active snapshot
    for (std::size_t n = i; n < end; ++n) {
      retire_block(going[n]->record, going[n]->held_bytes);
      retire_version(going[n]);
    }
    if (empty) unlink_empty(key);
  }
  garbage_.collect_all();
  return going.size();
}

}  // namespace TENUTO_NS::store
