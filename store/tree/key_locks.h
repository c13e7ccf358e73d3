// Locks of keys, which transactions take before an update. They are volatile and of one process. No
// call waits for one, so there is no deadlock. They only keep transactions from wasted work.
// Commits are right because of the validation (versions.h), which also covers single puts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "store/tree/format.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::store {

class KeyLocks {
 public:
  // The name of a lock. The caller makes and keeps it before it takes the lock, so that the release
  // needs no memory.
  static std::string name(TreeId tree, std::string_view key) {
    std::string n(reinterpret_cast<const char*>(&tree.value), sizeof tree.value);
    n += key;
    return n;
  }
  // False: another owner has it. An owner may take it again; one release gives it up.
  bool take(const std::string& name, const void* owner) {
    Shard& s = shard(name);
    const std::lock_guard lock(s.mu);
    const auto [at, fresh] = s.owners.emplace(name, owner);
    if (fresh) held_.fetch_add(1, std::memory_order_relaxed);
    return at->second == owner;
  }
  // Does nothing if this owner does not have it.
  void release(const std::string& name, const void* owner) {
    Shard& s = shard(name);
    const std::lock_guard lock(s.mu);
    const auto at = s.owners.find(name);
    if (at == s.owners.end() || at->second != owner) return;
    s.owners.erase(at);
    held_.fetch_sub(1, std::memory_order_relaxed);
  }
  // A hint: if another transaction locks the key later, validation finds the conflict.
  bool held_by_another(TreeId tree, std::string_view key, const void* owner) {
    if (held_.load(std::memory_order_relaxed) == 0) return false;
    const std::string name = KeyLocks::name(tree, key);
    Shard& s = shard(name);
    const std::lock_guard lock(s.mu);
    const auto at = s.owners.find(name);
    return at != s.owners.end() && at->second != owner;
  }

 private:
  static constexpr std::size_t kShards = 64;
  struct Shard {
    std::mutex mu;
    std::unordered_map<std::string, const void*> owners;  // guarded by mu
  };

  Shard& shard(const std::string& name) {
    return shards_[std::hash<std::string>{}(name) % kShards];
  }

  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> held_{0};
};

}  // namespace TENUTO_NS::store
