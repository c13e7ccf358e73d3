// A hash map in a pool for many threads. It is kShards hash maps (tenuto/hash_map.h), each with a
// lock of its own.
//
//   struct Root {
//     ConcurrentHashMap<std::uint64_t, std::uint64_t> visits;
//   };
//   ConcurrentHashMap<std::uint64_t, std::uint64_t>::Handle visits(pool, root.visits);
//   visits.insert(7, 42);                             // any thread; durable on return
//   std::optional<std::uint64_t> n = visits.get(7);
//
// The map in the pool has no lock, because a lock must not survive a crash. A handle has them, in
// DRAM. Make one after the pool was opened and share it: all threads must use the same one.
//
// Two transactions that are open at once must not log the same field, because an abort stores back
// the old bytes. So each shard has its own buckets and its own count, and a transaction that
// changes a shard holds its lock until it has ended. What a reader sees is committed.
//
// Single operations are transactions of their own. They lock one shard, so they cannot deadlock.
//
// Inside a transaction of the caller, pass it: visits.insert(tx, 7, 42). It locks the shard
// (Transaction::lock) until the outermost transaction has ended.
//   - Two transactions that lock shards in different orders wait for each other for ever. Lock all
//     keys first: visits.lock(tx, 7, 8) locks their shards in their order. With several maps, or
//     other locks, agree on an order of these, too.
//   - Do not call what has no `tx` inside such a transaction: a reader would wait for its own lock,
//     and a mutator would end with the transaction and not at once.
//
// A thread that ends with an open transaction rolls it back and frees its locks. Fork: in a child
// mutators return Status::forked. Readers must not be called there: a lock that another thread of
// the parent held is never freed. Locks that the forking thread's transaction holds are free in the
// child. When the handle is destroyed nothing happens to the map. REQUIRES then: no call and no
// transaction that used it is under way; the pool may be closed already.
//
// Thread safety: any threads may make all calls of one handle at once. Errors, cost: as HashMap.
// After the outermost commit on medium journal a shard is unlocked before the commit is in the
// journal when the transaction was the caller's, and after it when it was the operation's own.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "tenuto/hash_map.h"
#include "tenuto/pool.h"
#include "tenuto/units.h"

namespace TENUTO_NS {

template <class K, class V, class Hash = StableHash, class Equal = std::equal_to<>,
          std::size_t kShards = 32>
class ConcurrentHashMap {
  static_assert(std::has_single_bit(kShards) && kShards <= 256);
  using Map = HashMap<K, V, Hash, Equal>;

 public:
  // The locks of a map. Calls with a Transaction belong to it. The others are a transaction each.
  class Handle {
   public:
    // REQUIRES: the map is in the pool, which is not moved, and no other handle of it is in use.
    Handle(Pool& pool, ConcurrentHashMap& map)
        : pool_(&pool), map_(&map), locks_(std::make_unique<Lock[]>(kShards)) {}
    Handle(Handle&&) noexcept = default;
    Handle& operator=(Handle&&) noexcept = default;

    // --- single operations -----------------------------------------------------------------------

    // Calls f(const V&) under the shard's lock, shared with other readers. not_found. f must not
    // call the map.
    template <class Key, class F>
    Status visit(const Key& key, F&& f) const {
      const std::size_t shard = shard_of(key);
      std::shared_lock lock(locks_[shard].mutex);
      const V* const value = std::as_const(map_->shards_[shard].map).get(key);
      if (value == nullptr) return Status::not_found;
      std::forward<F>(f)(*value);
      return Status::ok;
    }
    // A copy of the value.
    template <class Key>
    std::optional<V> get(const Key& key) const {
      std::optional<V> copy;
      static_cast<void>(visit(key, [&](const V& value) { copy.emplace(value); }));
      return copy;
    }
    template <class Key>
    bool contains(const Key& key) const {
      return visit(key, [](const V&) {}) == Status::ok;
    }
    // Calls f(const K&, const V&) for each entry, shard by shard. An entry that is inserted or
    // erased meanwhile may be shown. f must not call the map.
    template <class F>
    void for_each(F&& f) const {
      for (std::size_t i = 0; i < kShards; ++i) {
        std::shared_lock lock(locks_[i].mutex);
        for (const auto& [key, value] : map_->shards_[i].map) f(key, value);
      }
    }
    // The sum of the shards, one after the other.
    std::uint64_t size() const {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < kShards; ++i) {
        std::shared_lock lock(locks_[i].mutex);
        sum += map_->shards_[i].map.size();
      }
      return sum;
    }

    template <class Key, class Value>
    Status insert(const Key& key, const Value& value, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
      return alone(file, line, key,
                   [&](Transaction& tx, Map& map) { return map.insert(tx, key, value); });
    }
    template <class Key, class Value>
    Status insert_or_assign(const Key& key, const Value& value, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
      return alone(file, line, key,
                   [&](Transaction& tx, Map& map) { return map.insert_or_assign(tx, key, value); });
    }
    template <class Key>
    Status erase(const Key& key, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
      return alone(file, line, key, [&](Transaction& tx, Map& map) { return map.erase(tx, key); });
    }
    // Runs f(Transaction&, V&) -> Status on the value, which was added (Transaction::add) for any
    // stores. Another status than ok rolls back. not_found.
    template <class Key, class F>
    Status update(const Key& key, F&& f, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
      return alone(file, line, key, [&](Transaction& tx, Map& map) -> Status {
        const Result<V*> value = map.edit(tx, key);
        if (!value) return value.error();
        return f(tx, **value);
      });
    }

    // --- in a transaction of the caller ----------------------------------------------------------

    // Locks the shards of these keys, in their order, until the outermost transaction ends.
    // REQUIRES: the transaction holds no lock of this handle yet, or all calls with these locks
    // agree on an order.
    template <class... Keys>
    Status lock(Transaction& tx, const Keys&... keys) {
      std::array<std::size_t, sizeof...(Keys)> shards = {shard_of(keys)...};
      return lock_shards(tx, shards);
    }
    template <class Range>
    requires requires(const Range& r) { r.begin(), r.end(); }
    Status lock_all(Transaction& tx, const Range& keys) {
      std::array<bool, kShards> wanted{};
      for (const auto& key : keys) wanted[shard_of(key)] = true;
      for (std::size_t i = 0; i < kShards; ++i) {
        if (wanted[i]) TENUTO_TRY(tx.lock(locks_[i].mutex));
      }
      return Status::ok;
    }
    // The map that has this key, locked for the transaction: for all calls of HashMap with this key
    // (or another key of the same shard).
    template <class Key>
    Result<Map*> locked(Transaction& tx, const Key& key) {
      const std::size_t shard = shard_of(key);
      TENUTO_TRY(tx.lock(locks_[shard].mutex));
      return &map_->shards_[shard].map;
    }
    // Null: not found. Valid until the map changes, and at most until the transaction ends.
    template <class Key>
    Result<const V*> get(Transaction& tx, const Key& key) {
      const Result<Map*> map = locked(tx, key);
      if (!map) return map.error();
      return std::as_const(**map).get(key);
    }
    template <class Key, class Value>
    Status insert(Transaction& tx, const Key& key, const Value& value) {
      const Result<Map*> map = locked(tx, key);
      return map ? (*map)->insert(tx, key, value) : map.error();
    }
    template <class Key, class Value>
    Status insert_or_assign(Transaction& tx, const Key& key, const Value& value) {
      const Result<Map*> map = locked(tx, key);
      return map ? (*map)->insert_or_assign(tx, key, value) : map.error();
    }
    template <class Key>
    Result<V*> edit(Transaction& tx, const Key& key) {
      const Result<Map*> map = locked(tx, key);
      if (!map) return map.error();
      return (*map)->edit(tx, key);
    }
    template <class Key>
    Status erase(Transaction& tx, const Key& key) {
      const Result<Map*> map = locked(tx, key);
      return map ? (*map)->erase(tx, key) : map.error();
    }
    // Locks all shards.
    Status clear(Transaction& tx) {
      for (std::size_t i = 0; i < kShards; ++i) TENUTO_TRY(tx.lock(locks_[i].mutex));
      for (auto& shard : map_->shards_) TENUTO_TRY(shard.map.clear(tx));
      return Status::ok;
    }

   private:
    struct alignas(kLineBytes) Lock {
      std::shared_mutex mutex;
    };

    template <std::size_t kCount>
    Status lock_shards(Transaction& tx, std::array<std::size_t, kCount>& shards) {
      std::sort(shards.begin(), shards.end());
      for (const std::size_t shard : shards) TENUTO_TRY(tx.lock(locks_[shard].mutex));
      return Status::ok;
    }
    // The transaction begins before the lock is taken, because in a child it does not begin. It
    // ends before the lock is freed, also when f throws: no reader sees what may still be lost.
    template <class Key, class F>
    Status alone(const char* file, int line, const Key& key, F&& f) {
      const std::size_t shard = shard_of(key);
      std::unique_lock lock(locks_[shard].mutex, std::defer_lock);
      Transaction tx(*pool_, file, line);
      TENUTO_TRY(tx.status());
      lock.lock();
      const Status s = f(tx, map_->shards_[shard].map);
      if (s == Status::ok) return tx.commit();
      tx.abort();
      return s;
    }

    Pool* pool_;
    ConcurrentHashMap* map_;
    std::unique_ptr<Lock[]> locks_;
  };

  ConcurrentHashMap() = default;
  ConcurrentHashMap(Relocation r, ConcurrentHashMap& from) noexcept {
    for (std::size_t i = 0; i < kShards; ++i) {
      new (static_cast<void*>(&shards_[i].map)) Map(r, from.shards_[i].map);
    }
  }
  ConcurrentHashMap(const ConcurrentHashMap&) = delete;
  ConcurrentHashMap& operator=(const ConcurrentHashMap&) = delete;

  // As of HashMap. REQUIRES: no other thread uses the map.
  std::uint64_t size() const {
    std::uint64_t sum = 0;
    for (const Shard& s : shards_) sum += s.map.size();
    return sum;
  }
  Status release(Transaction& tx) {
    for (Shard& s : shards_) TENUTO_TRY(s.map.release(tx));
    return Status::ok;
  }
  Status validate(Report* report = nullptr) const {
    return validate_shards(report, [&](const Map& map) { return map.validate(report); });
  }
  template <PoolOfBlocks AnyPool>
  Status validate(const AnyPool& pool, Report* report = nullptr) const {
    return validate_shards(report, [&](const Map& map) { return map.validate(pool, report); });
  }
  // For collections (tenuto/references.h).
  void references(const References& visit) const {
    for (const Shard& s : shards_) visit(s.map);
  }
  template <class F>
  void for_each_block(F&& f) const {
    for (const Shard& s : shards_) s.map.for_each_block(f);
  }

 private:
  template <class Validate>
  Status validate_shards(Report* report, Validate&& validate_map) const {
    for (std::size_t i = 0; i < kShards; ++i) {
      TENUTO_TRY(validate_map(shards_[i].map));
      for (const auto& [key, value] : shards_[i].map) {
        if (shard_of(key) != i) return fail(Status::corrupt, report, "a key is in another shard");
      }
    }
    return Status::ok;
  }

  // A line, so that commits of two shards do not flush the same one.
  struct Shard {
    Map map;
    std::byte pad[kLineBytes - sizeof(Map)];
  };
  // Bits that neither choose the bucket, unless there are 2^40, nor are the tag.
  template <class Key>
  static std::size_t shard_of(const Key& key) {
    return Map::stable_hash(key) >> 48 & (kShards - 1);
  }

  Shard shards_[kShards];
};

}  // namespace TENUTO_NS
