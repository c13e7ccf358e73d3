// get, put, erase. A write first prepares its record and finds its place, without locks. It locks
// the leaf only if the leaf has not changed since. It holds the lock through the last fence. What
// each fence is for: leaf.h.
#include "store/tree/tree.h"

#include <unistd.h>

#include <bit>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

const CollectionLife Tree::kStays;

Tree::Tree(Ground& ground, TreeId id, PoolOffset first_leaf, KeyOrder order)
    : file_(ground.file),
      heap_(ground.heap),
      engine_(ground.engine),
      versions_(ground.versions),
      id_(id),
      first_leaf_(first_leaf),
      order_(order),
      shadows_(ground.shadows),
      leaves_(ground.file, ground.shadows, id),
      maker_(ground.file, leaves_, ground.shadows, id),
      lookups_(ground.lookups),
      garbage_([this](const Retired& item) { free(item); },
               [this] {
                 const bool lost = TENUTO_PLANT("store_thread_frees_unprepared");
                 return lost || pm::had_memory([this] { heap_.prepare_thread(); });
               }),
      index_(
          [this](Node* node) {
            garbage_.retire(garbage_.mine(),
                            {reinterpret_cast<std::uintptr_t>(node), Retired::What::node});
          },
          &maker_) {}

// What still waits was not drained by a clean close. Its blocks are left to the next recovery. Its
// nodes and versions are freed here.
Tree::~Tree() {
  garbage_.for_each([](const Retired& item) {
    if (item.what == Retired::What::node) Node::destroy(reinterpret_cast<Node*>(item.word));
    if (item.what == Retired::What::old_version) {
      OldVersion::destroy(reinterpret_cast<OldVersion*>(item.word));
    }
  });
}

// --- reading -------------------------------------------------------------------------------------

Status Tree::lookup(std::string_view key, Record& out, bool for_value) const {
  if (key.size() > kKeyBytesMax) return Status::too_large;
  const LookupCache::Look look = lookups_.look(hash_key(key));
  Status s = Status::ok;
  if (lookup_cached(key, look, out, for_value, s)) return s;
  return lookup_in_leaf(key, look, out, for_value);
}

Status Tree::lookup_in_leaf(std::string_view key, const LookupCache::Look& look, Record& out,
                            bool for_value) const {
  Status s = Status::conflict;
  while (s == Status::conflict) {
    s = lookup_at_place(index_.locate(key), key, look, out, for_value);
  }
  return s;
}

Status Tree::lookup_at_place(const Place& place, std::string_view key,
                             const LookupCache::Look& look, Record& out, bool for_value) const {
  Found found;
  TENUTO_TRY(leaves_.search(place, key, look.hash(), found));
  TENUTO_TRY(leaves_.judge(found, for_value, out));
  lookups_.enter(look, found.word.record());
  if (lookups_.wants_to_grow()) [[unlikely]]
    lookups_.grow(count().records);
  return Status::ok;
}

Status Tree::get(std::string_view key, std::string& value) const {
  const EpochGuard guard;
  Record record;
  TENUTO_TRY(lookup(key, record));
  value.assign(record.value);
  return file_.bad_pages();
}

// --- writing -------------------------------------------------------------------------------------

Status Tree::check_key(std::string_view key) const {
  if (key.size() > kKeyBytesMax) return Status::too_large;
  if (order_ == KeyOrder::u64 && key.size() != sizeof(U64Key)) return Status::invalid_argument;
  return Status::ok;
}

// If the heap is full, frees all that waits for readers and tries again. REQUIRES: the calling
// thread is pinned at most to hold this tree.
Result<heap::Block> Tree::reserve(std::uint64_t bytes, heap::Kind kind) {
  Result<heap::Block> block = heap_.reserve(bytes, kind);
  if (block || block.error() != Status::full) return block;
  garbage_.collect_all_at_rest();
  return heap_.reserve(bytes, kind);
}

Result<heap::Block> Tree::reserve_record(std::string_view key, std::string_view value) {
  if (value.size() > kOffsetMask) return Status::too_large;
  return reserve(record_block_bytes(record_bytes(key.size(), value.size())), heap::Kind::record);
}

Status Tree::put(std::string_view key, std::string_view value) {
  TENUTO_TRY(check_key(key));
  TENUTO_TRY(file_.writable());
  const Result<heap::Block> record = reserve_record(key, value);
  if (!record) return record.error();
  Pending p{key, hash_key(key), record->offset, bytes_of({key, value}), false};
  lookups_.prefetch(p.hash);
  // A record that is not linked is given back on every way out.
  struct GiveBack {
    heap::Heap& heap;
    const Pending& pending;
    ~GiveBack() {
      if (pending.record) heap.release(pending.record);
    }
  } const give_back{heap_, p};
  Status s = put_at(p, value);
  if (s == Status::full) {  // no room for a leaf: what waits for readers may make some
    garbage_.collect_all_at_rest();
    s = put_at(p, value);
  }
  return s == Status::ok ? file_.bad_pages() : s;
}

Status Tree::put_at(Pending& p, std::string_view value) {
  const EpochGuard guard;
  // The flush runs while the leaf is looked for. It comes after the guard, whose locked instruction
  // would wait for it.
  write_record(file_, p.record, p.key, value);
  for (;;) {
    const Place place = index_.locate(p.key);
    Found old;
    Status s = leaves_.search(place, p.key, p.hash, old);
    if (s == Status::ok) s = link_record(place, p, old);
    if (s != Status::conflict) return s;
  }
}

// A thread that drops the collection may have read this leaf, and waits for no lock of it (life.h).
Status Tree::gone(LeafLock& lock) const {
  lock.unlock_unchanged();
  const Status s = life_->alive();
  return s == Status::ok ? Status::conflict : s;
}

Status Tree::link_record(const Place& place, Pending& p, const Found& old) {
  if (old.found) return replace_record(place, p, old);
  ShadowLeaf& shadow = *place.leaf;
  shadows_.prefetch_order(shadow);
  ThreadGarbage& garbage = garbage_.mine();  // before the lock: it may have to be made
  if (!shadow.lock_if(place.version)) return Status::conflict;
  LeafLock lock(shadow);
  const std::uint64_t used = shadow.used_slots();
  if (used == kBitmapMask) {
    const Status split = split_full(shadow, p.key);
    return split == Status::ok ? Status::conflict : split;
  }
  const TimestampWord now = versions_.now();
  if (!still_there()) [[unlikely]]
    return gone(lock);
  insert_entry(leaves_, shadow, choose_slot(used), SlotWord::make(p.record, p.hash.slot), p.key,
               p.hash.fingerprint);
  p.record = {};
  if (now.snapshots() != 0) [[unlikely]] {
    static_cast<void>(versions_.keep({*this, shadow, p.key, p.hash, now.clock(), {}}));
  }
  lock.unlock();
  garbage.count(1, p.bytes);
  if (now.snapshots() != 0) [[unlikely]]
    versions_.sweep();
  return Status::ok;
}

Status Tree::replace_record(const Place& place, Pending& p, const Found& old) {
  // Before the lock, so that readers wait for one fence only.
  if (!p.fenced) fence("record", "slot");
  p.fenced = true;
  ShadowLeaf& shadow = *place.leaf;
  ThreadGarbage& garbage = garbage_.mine();
  if (!shadow.lock_if(place.version)) return Status::conflict;
  LeafLock lock(shadow);
  TimestampWord now{};
  if (TENUTO_PLANT("store_lookup_change_after_timestamp")) {
    now = versions_.now();
    ::usleep(20);
  }
  LookupCache::Change change(lookups_, p.hash);
  if (!TENUTO_PLANT("store_lookup_change_after_timestamp")) now = versions_.now();
  if (!still_there()) [[unlikely]] {
    change.end();
    return gone(lock);
  }
  const PoolOffset old_record = old.word.record();
  const std::int64_t old_bytes = bytes_of(old.record);
  if (TENUTO_PLANT("store_old_record_released_early")) heap_.release(old_record);
  swap_entry(shadow, old.slot, SlotWord::make(p.record, p.hash.slot));
  change.becomes(p.record);
  change.end();
  p.record = {};
  bool kept = false;
  if (now.snapshots() != 0) [[unlikely]] {
    kept = versions_.keep({*this, shadow, p.key, p.hash, now.clock(), old_record,
                           static_cast<std::uint64_t>(old_bytes)});
  }
  lock.unlock();
  garbage.count(0, p.bytes - old_bytes);
  if (!kept && !TENUTO_PLANT("store_old_record_released_early"))
    retire_record(old_record, p.hash, record_bytes_of(old.record));
  if (now.snapshots() != 0) [[unlikely]]
    versions_.sweep();
  return Status::ok;
}

Status Tree::erase(std::string_view key) {
  TENUTO_TRY(check_key(key));
  TENUTO_TRY(file_.writable());
  const EpochGuard guard;
  const KeyHash hash = hash_key(key);
  for (;;) {
    const Place place = index_.locate(key);
    Found old;
    Status s = leaves_.search(place, key, hash, old);
    if (s == Status::ok) s = old.found ? unlink_record(place, key, old) : Status::not_found;
    if (s == Status::ok) return file_.bad_pages();
    if (s != Status::conflict) return s;
  }
}

Status Tree::unlink_record(const Place& place, std::string_view key, const Found& old) {
  ShadowLeaf& shadow = *place.leaf;
  ThreadGarbage& garbage = garbage_.mine();
  if (!shadow.lock_if(place.version)) return Status::conflict;
  LeafLock lock(shadow);
  const KeyHash hash = hash_key(key);
  if (!TENUTO_PLANT("store_lookup_keeps_erased")) lookups_.forget(hash);
  const TimestampWord now = versions_.now();
  if (!still_there()) [[unlikely]]
    return gone(lock);
  erase_entry(shadow, old.slot);
  bool kept = false;
  if (now.snapshots() != 0) [[unlikely]] {
    kept = versions_.keep({*this, shadow, key, hash, now.clock(), old.word.record(),
                           static_cast<std::uint64_t>(bytes_of(old.record)), true});
  }
  const bool emptied = shadow.used_slots() == 0;
  lock.unlock();
  garbage.count(-1, -bytes_of(old.record));
  if (!kept) retire_record(old.word.record(), hash, record_bytes_of(old.record));
  if (now.snapshots() != 0) versions_.sweep();
  if (emptied) unlink_empty(key);
  return Status::ok;
}

// --- what was unlinked ---------------------------------------------------------------------------

void Tree::free(const Retired& item) {
  switch (item.what) {
    case Retired::What::block:
      heap_.release({item.word});
      break;
    case Retired::What::node:
      Node::destroy(reinterpret_cast<Node*>(item.word));
      break;
    case Retired::What::old_version:
      OldVersion::destroy(reinterpret_cast<OldVersion*>(item.word));
      break;
  }
}

}  // namespace TENUTO_NS::store
