// The lists of versions at the leaves: how versions are kept, found and divided. See versions.h.
#include "store/tree/versions.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "pm/assert.h"
#include "pm/plant.h"
#include "store/tree/tree.h"

namespace TENUTO_NS::store {

namespace {

std::uint32_t word_of(KeyHash h) {
  return static_cast<std::uint32_t>(h.fingerprint) << 16 | h.slot;
}

}  // namespace

OldVersion* OldVersion::make(std::string_view key) {
  void* memory = ::operator new(sizeof(OldVersion) + key.size(), std::nothrow);
  if (memory == nullptr) return nullptr;
  auto* v = new (memory) OldVersion{};
  v->key_bytes = static_cast<std::uint32_t>(key.size());
  if (!key.empty()) std::memcpy(static_cast<void*>(v + 1), key.data(), key.size());
  return v;
}

void OldVersion::destroy(OldVersion* v) { ::operator delete(v); }

VersionStore::VersionStore() : chunks_(new std::atomic<Chunk*>[kChunks]) {
  for (std::size_t i = 0; i < kChunks; ++i) chunks_[i].store(nullptr, std::memory_order_relaxed);
}

VersionStore::~VersionStore() {
  shut(false);
  for (std::size_t i = 0; i < kChunks; ++i) delete chunks_[i].load(std::memory_order_relaxed);
}

// --- the lists of the leaves ---------------------------------------------------------------------

VersionStore::Head& VersionStore::head(std::uint32_t which) const {
  return chunks_[which / kChunk].load(std::memory_order_acquire)->heads[which % kChunk];
}

OldVersion* VersionStore::first(std::uint64_t version) const {
  const std::uint32_t which = ShadowLeaf::version_list(version);
  return which == 0 ? nullptr : head(which).load(std::memory_order_acquire);
}

// 0: there is no number left, or no memory for the head.
std::uint32_t VersionStore::take_head() {
  if (idle_heads_ != 0) {
    idle_heads_ -= 1;
    const Chunk& chunk = *chunks_[idle_heads_ / kChunk].load(std::memory_order_relaxed);
    const std::uint32_t which = chunk.idle[idle_heads_ % kChunk];
    TENUTO_ASSERT(head(which).load(std::memory_order_relaxed) == nullptr);
    return which;
  }
  if (heads_ == kChunk * kChunks) return 0;
  std::atomic<Chunk*>& chunk = chunks_[heads_ / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    auto* made = new (std::nothrow) Chunk;
    if (made == nullptr) return 0;
    chunk.store(made, std::memory_order_release);
  }
  return heads_++;
}

// idle_heads_ < heads_, so the chunk is there.
void VersionStore::give_idle(std::uint32_t which) {
  Chunk& chunk = *chunks_[idle_heads_ / kChunk].load(std::memory_order_relaxed);
  chunk.idle[idle_heads_ % kChunk] = which;
  idle_heads_ += 1;
}

// REQUIRES: the list is empty.
void VersionStore::give_head(ShadowLeaf& shadow) {
  give_idle(ShadowLeaf::version_list(shadow.version.load(std::memory_order_relaxed)));
  shadow.set_version_list(0);
}

// REQUIRES: the leaf has a head.
void VersionStore::push(ShadowLeaf& shadow, OldVersion* v) {
  Head& h = head(ShadowLeaf::version_list(shadow.version.load(std::memory_order_relaxed)));
  // Release: in join(), readers that are at v go on to versions that they have not loaded yet.
  v->next.store(h.load(std::memory_order_relaxed), std::memory_order_release);
  v->listed = true;
  h.store(v, std::memory_order_release);
}

void VersionStore::clear(ShadowLeaf& shadow) {
  const std::lock_guard lock(mu_);
  clear_locked(shadow);
}

// Keeps the links between the versions, because a reader may be walking along them.
void VersionStore::clear_locked(ShadowLeaf& shadow) {
  const std::uint64_t version = shadow.version.load(std::memory_order_relaxed);
  if (ShadowLeaf::version_list(version) == 0) return;
  for (OldVersion* v = first(version); v != nullptr; v = v->next.load(std::memory_order_relaxed)) {
    v->listed = false;
  }
  if (!TENUTO_PLANT("store_list_head_given_back_full")) {
    head(ShadowLeaf::version_list(version)).store(nullptr, std::memory_order_release);
  }
  give_head(shadow);
}

void VersionStore::unlink_going(ShadowLeaf& shadow) {
  const std::lock_guard lock(mu_);
  unlink_going_locked(shadow);
}

void VersionStore::unlink_going_locked(ShadowLeaf& shadow) {
  const std::uint64_t version = shadow.version.load(std::memory_order_relaxed);
  if (ShadowLeaf::version_list(version) == 0) return;
  std::atomic<OldVersion*>* link = &head(ShadowLeaf::version_list(version));
  for (OldVersion* v = link->load(std::memory_order_relaxed); v != nullptr;) {
    OldVersion* const next = v->next.load(std::memory_order_relaxed);
    if (v->going) {
      link->store(next, std::memory_order_release);
      v->listed = false;
    } else {
      link = &v->next;
    }
    v = next;
  }
  if (first(version) == nullptr) give_head(shadow);
}

void VersionStore::divide(ShadowLeaf& left, ShadowLeaf& right, std::string_view low) {
  const std::uint64_t version = left.version.load(std::memory_order_relaxed);
  if (first(version) == nullptr) return;
  const std::lock_guard lock(mu_);
  const std::uint32_t which = TENUTO_PLANT("store_versions_lost_at_split") ? 0 : take_head();
  bool used = false;
  std::atomic<OldVersion*>* link = &head(ShadowLeaf::version_list(version));
  for (OldVersion* v = link->load(std::memory_order_relaxed); v != nullptr;) {
    OldVersion* const next = v->next.load(std::memory_order_relaxed);
    if (v->key() < low) {
      link = &v->next;
    } else {
      link->store(next, std::memory_order_release);
      v->listed = false;
      if (which == 0) {  // see keep(): no snapshot relies on it
        if (!TENUTO_PLANT("store_versions_lost_at_split")) expire_all();
      } else {
        right.set_version_list(which);
        push(right, v);
        used = true;
      }
    }
    v = next;
  }
  if (which != 0 && !used) give_idle(which);
  if (first(version) == nullptr) give_head(left);
}

// A reader of `from` may go on into the list of `to`. It finds afterwards that its leaf has
// changed.
void VersionStore::join(ShadowLeaf& to, ShadowLeaf& from) {
  const std::uint64_t version = from.version.load(std::memory_order_relaxed);
  const std::uint32_t which = ShadowLeaf::version_list(version);
  if (which == 0 || TENUTO_PLANT("store_versions_lost_at_merge")) return;
  const std::lock_guard lock(mu_);
  if (ShadowLeaf::version_list(to.version.load(std::memory_order_relaxed)) == 0) {
    to.set_version_list(which);
    from.set_version_list(0);
    return;
  }
  for (OldVersion* v = first(version); v != nullptr;) {
    OldVersion* const next = v->next.load(std::memory_order_relaxed);
    head(which).store(next, std::memory_order_release);
    push(to, v);
    v = next;
  }
  give_head(from);
}

// --- reading -------------------------------------------------------------------------------------

const OldVersion* VersionStore::find(std::uint64_t version, std::string_view key, KeyHash hash,
                                     Timestamp at) const {
  const OldVersion* best = nullptr;
  for (const OldVersion* v = first(version); v != nullptr;
       v = v->next.load(std::memory_order_acquire)) {
    if (v->hash != word_of(hash) || v->death <= at || v->key() != key) continue;
    if (best == nullptr || v->death < best->death) best = v;
  }
  return best;
}

void VersionStore::collect(std::uint64_t version, Timestamp at,
                           std::vector<const OldVersion*>& out) const {
  out.clear();
  for (const OldVersion* v = first(version); v != nullptr;
       v = v->next.load(std::memory_order_acquire)) {
    if (v->death > at) out.push_back(v);
  }
  std::sort(out.begin(), out.end(), [](const OldVersion* a, const OldVersion* b) {
    const int order = a->key().compare(b->key());
    return order != 0 ? order < 0 : a->death < b->death;
  });
  const auto end =
      std::unique(out.begin(), out.end(),
                  [](const OldVersion* a, const OldVersion* b) { return a->key() == b->key(); });
  out.erase(end, out.end());
}

bool VersionStore::changed(std::uint64_t version, std::string_view from, const std::string_view* to,
                           Timestamp since) const {
  for (const OldVersion* v = first(version); v != nullptr;
       v = v->next.load(std::memory_order_acquire)) {
    if (v->death <= since || v->key() < from) continue;
    if (to == nullptr || v->key() <= *to) return true;
  }
  return false;
}

// --- keeping -------------------------------------------------------------------------------------

bool VersionStore::keep(const Replaced& r) {
  if (r.record == PoolOffset{} && TENUTO_PLANT("store_versions_not_made_for_inserts")) return false;
  const std::uint64_t version = r.shadow.version.load(std::memory_order_relaxed);
  OldVersion* last = nullptr;
  for (OldVersion* v = first(version); v != nullptr; v = v->next.load(std::memory_order_relaxed)) {
    if (v->hash != word_of(r.hash) || v->key() != r.key) continue;
    if (last == nullptr || v->death > last->death) last = v;
  }
  const Timestamp birth = last == nullptr ? 0 : last->death;
  if (last != nullptr && TENUTO_PLANT("store_versions_one_a_key")) return false;
  const std::lock_guard lock(mu_);
  SnapshotCore* needs = newest_;
  while (needs != nullptr && (needs->timestamp >= r.t || needs == r.own)) needs = needs->older;
  if (needs == nullptr || needs->timestamp < birth) {
    // The key was inserted since, and is erased now. So the leaf says what `last` says: it is
    // absent.
    const bool said = r.erased && last != nullptr && !last->record;
    if (said && last->owner != nullptr) {
      condemn(last);
      condemned_ = last->after;  // not left to a sweep: a later keep() must not find it
      last->going = true;
      unlink_going_locked(r.shadow);
      r.tree.retire_version(last);
    }
    return false;
  }
  OldVersion* v = OldVersion::make(r.key);
  if (v != nullptr && ShadowLeaf::version_list(version) == 0) {
    const std::uint32_t which = take_head();
    if (which != 0) {
      r.shadow.set_version_list(which);
    } else {
      OldVersion::destroy(v);
      v = nullptr;
    }
  }
  // No memory, or more leaves with a list than there are numbers: no snapshot may rely on this
  // leaf.
  if (v == nullptr) {
    expire_all();
    return false;
  }
  v->tree = &r.tree;
  v->birth = birth;
  v->death = r.t;
  v->record = r.record;
  v->hash = word_of(r.hash);
  v->held_bytes = sizeof(OldVersion) + r.key.size() + r.record_bytes;
  push(r.shadow, v);
  own(*needs, v);
  stats_.versions += 1;
  stats_.held_bytes += v->held_bytes;
  expire_beyond_limits();
  return true;
}

}  // namespace TENUTO_NS::store
