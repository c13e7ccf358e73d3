// Which snapshot owns a version, and how snapshots and versions end: dead lists. See versions.h.
#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <span>

#include "pm/not_cancelled.h"
#include "pm/plant.h"
#include "store/tree/tree.h"
#include "store/tree/versions.h"

namespace TENUTO_NS::store {

namespace {

std::uint64_t ms_since(std::chrono::steady_clock::time_point t) {
  const auto took = std::chrono::steady_clock::now() - t;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
}

}  // namespace

SnapshotCore::~SnapshotCore() {
  if (versions != nullptr && !versions->forked()) versions->release(*this);
}

void VersionStore::set_limits(std::uint64_t bytes_max, std::uint64_t age_ms_max) {
  const std::lock_guard lock(mu_);
  bytes_max_ = bytes_max;
  age_ms_max_ = age_ms_max;
}

// --- lists (all REQUIRE mu_) ---------------------------------------------------------------------

void VersionStore::own(SnapshotCore& s, OldVersion* v) {
  v->owner = &s;
  v->before = nullptr;
  v->after = s.owned;
  if (s.owned != nullptr) s.owned->before = v;
  s.owned = v;
}

void VersionStore::disown(OldVersion* v) {
  if (v->before != nullptr) {
    v->before->after = v->after;
  } else {
    v->owner->owned = v->after;
  }
  if (v->after != nullptr) v->after->before = v->before;
  v->owner = nullptr;
}

void VersionStore::condemn(OldVersion* v) {
  disown(v);
  v->after = condemned_;
  condemned_ = v;
  condemned_any_.store(true, std::memory_order_release);
  stats_.versions -= 1;
  stats_.held_bytes -= v->held_bytes;
}

// What it owned is given to the next older snapshot if that needs it, else it is condemned.
void VersionStore::deactivate(SnapshotCore& s) {
  word_.fetch_sub(TimestampWord::kRelease, std::memory_order_seq_cst);
  s.active = false;
  (s.newer != nullptr ? s.newer->older : newest_) = s.older;
  (s.older != nullptr ? s.older->newer : oldest_) = s.newer;
  stats_.snapshots -= 1;
  while (OldVersion* v = s.owned) {
    const bool needed = s.older != nullptr && s.older->timestamp >= v->birth &&
                        !TENUTO_PLANT("store_old_version_released_early");
    if (needed) {
      disown(v);
      own(*s.older, v);
    } else {
      condemn(v);
    }
  }
}

void VersionStore::expire(SnapshotCore& s) {
  s.expired.store(true, std::memory_order_release);
  stats_.expired += 1;
  deactivate(s);
}

void VersionStore::expire_all() {
  while (oldest_ != nullptr) expire(*oldest_);
}

void VersionStore::expire_beyond_limits() {
  while (bytes_max_ != 0 && stats_.held_bytes > bytes_max_ && oldest_ != nullptr) expire(*oldest_);
  expire_aged();
}

void VersionStore::expire_aged() {
  if (age_ms_max_ == 0) return;
  while (oldest_ != nullptr && ms_since(oldest_->taken) > age_ms_max_) expire(*oldest_);
}

// --- snapshots -----------------------------------------------------------------------------------

// In a child of a fork the lock may be held by a thread that is not there, and what was linked
// would never be unlinked (~SnapshotCore).
Result<std::shared_ptr<SnapshotCore>> VersionStore::take() {
  if (forked()) return Status::forked;
  auto s = std::make_shared<SnapshotCore>();
  const TimeMs time = clock_ == nullptr ? 0 : clock_->now();
  {
    const std::lock_guard lock(mu_);
    if (closed()) return Status::closed;
    expire_aged();
    if (now().snapshots() == TimestampWord::kSnapshotsMax) return Status::busy;
    s->versions = shared_from_this();
    s->taken = std::chrono::steady_clock::now();
    s->timestamp =
        TimestampWord{word_.fetch_add(TimestampWord::kTake, std::memory_order_seq_cst)}.clock();
    s->time = last_time_ = std::max(last_time_, time);
    s->active = true;
    s->older = newest_;
    (newest_ != nullptr ? newest_->newer : oldest_) = s.get();
    newest_ = s.get();
    stats_.snapshots += 1;
  }
  sweep();
  return s;
}

void VersionStore::release(SnapshotCore& s) {
  {
    const std::lock_guard lock(mu_);
    if (!s.active) return;
    deactivate(s);
  }
  sweep();
}

void VersionStore::expire_if_old(const SnapshotCore& s) {
  if (age_ms_max_ != 0 && ms_since(s.taken) > age_ms_max_) expire_old();
}

void VersionStore::expire_old() {
  if (forked()) return;
  {
    const std::lock_guard lock(mu_);
    expire_aged();
  }
  sweep();
}

// Takes all that is condemned now. Any number of threads may sweep, each with a list of its own.
void VersionStore::sweep_all() {
  std::unique_ptr<OldVersion*[]> room;
  std::span<OldVersion*> going;
  {
    const std::lock_guard lock(mu_);
    if (closed()) return;
    std::size_t count = 0;
    for (OldVersion* v = condemned_; v != nullptr; v = v->after) count += 1;
    room.reset(new (std::nothrow) OldVersion*[count]);
    if (room == nullptr) return;  // the next sweep tries again
    going = {room.get(), count};
    count = 0;
    for (OldVersion* v = condemned_; v != nullptr; v = v->after) {
      going[count++] = v;
      v->tree->in_sweeps += 1;
    }
    condemned_ = nullptr;
    condemned_any_.store(false, std::memory_order_release);
    sweepers_ += 1;
  }
  std::sort(going.begin(), going.end(), [](const OldVersion* a, const OldVersion* b) {
    return a->tree != b->tree ? a->tree < b->tree : a->key() < b->key();
  });
  for (std::size_t i = 0, end = 0; i < going.size(); i = end) {
    Tree& tree = *going[i]->tree;
    while (end < going.size() && going[end]->tree == &tree) ++end;
    const std::size_t swept = tree.sweep(going.subspan(i, end - i));
    const std::lock_guard lock(mu_);
    for (std::size_t n = i + swept; n < end; ++n) {  // for the next sweep
      going[n]->after = condemned_;
      condemned_ = going[n];
      condemned_any_.store(true, std::memory_order_release);
    }
    tree.in_sweeps -= end - i;  // from here on the tree may be freed
  }
  const std::lock_guard lock(mu_);
  sweepers_ -= 1;
  if (sweepers_ == 0) swept_.notify_all();
}

// --- the end -------------------------------------------------------------------------------------

void VersionStore::shut(bool give_back) {
  std::unique_lock lock(mu_);
  announce_shut();
  shut_ = true;
  const pm::NotCancelled whole;
  swept_.wait(lock, [this] { return sweepers_ == 0; });
  while (oldest_ != nullptr) deactivate(*oldest_);
  while (OldVersion* v = condemned_) {
    condemned_ = v->after;
    if (give_back && v->record) v->tree->give_back(v->record);
    OldVersion::destroy(v);
  }
  condemned_any_.store(false, std::memory_order_release);
  for (std::uint32_t which = 1; which < heads_; ++which) {
    head(which).store(nullptr, std::memory_order_relaxed);
  }
}

// What a snapshot owns is in the list of its leaf. A condemned version may be in none.
bool VersionStore::forget(Tree& tree, ShadowLeaf& shadow) {
  const std::lock_guard lock(mu_);
  if (tree.in_sweeps != 0 && !TENUTO_PLANT("store_tree_ended_under_its_sweep")) return false;
  const std::uint64_t version = shadow.version.load(std::memory_order_relaxed);
  for (OldVersion* v = first(version); v != nullptr; v = v->next.load(std::memory_order_relaxed)) {
    if (v->owner != nullptr) condemn(v);
  }
  clear_locked(shadow);
  return true;
}

bool VersionStore::take_condemned(Tree& tree, OldVersion*& out) {
  const std::lock_guard lock(mu_);
  if (tree.in_sweeps != 0 && !TENUTO_PLANT("store_tree_ended_under_its_sweep")) return false;
  for (OldVersion** link = &condemned_; *link != nullptr;) {
    OldVersion* const v = *link;
    if (v->tree != &tree) {
      link = &v->after;
      continue;
    }
    *link = v->after;
    v->after = out;
    out = v;
  }
  return true;
}

void VersionStore::for_each(const std::function<void(const OldVersion&)>& f) const {
  const std::lock_guard lock(mu_);
  for (const SnapshotCore* s = oldest_; s != nullptr; s = s->newer) {
    for (const OldVersion* v = s->owned; v != nullptr; v = v->after) f(*v);
  }
  for (const OldVersion* v = condemned_; v != nullptr; v = v->after) f(*v);
}

VersionStats VersionStore::stats() const {
  const std::lock_guard lock(mu_);
  VersionStats s = stats_;
  s.oldest_age_ms = oldest_ == nullptr ? 0 : ms_since(oldest_->taken);
  return s;
}

}  // namespace TENUTO_NS::store
