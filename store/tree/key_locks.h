// Keys that transactions have locked for update: volatile, of one process, never waited for, so
// there is no deadlock. They keep transactions from wasting their work; what makes commits right is
// the validation (versions.h), which single puts cannot pass by either.
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
  // What a lock is known by. Made and kept before it is taken, so that its release needs no memory.
  static std::string name(TreeId tree, std::string_view key) {
    std::string n(reinterpret_cast<const char*>(&tree.value), sizeof tree.value);
    n += key;
    return n;
  }
  // False: somebody else has it. Taking what one has is fine, and is released once.
  bool take(const std::string& name, const void* owner) {
    Shard& s = shard(name);
    const std::lock_guard lock(s.mu);
    const auto [at, fresh] = s.owners.emplace(name, owner);
    if (fresh) held_.fetch_add(1, std::memory_order_relaxed);
    return at->second == owner;
  }
  // What the owner does not have is passed by.
  void release(const std::string& name, const void* owner) {
    Shard& s = shard(name);
    const std::lock_guard lock(s.mu);
    const auto at = s.owners.find(name);
    if (at == s.owners.end() || at->second != owner) return;
    s.owners.erase(at);
    held_.fetch_sub(1, std::memory_order_relaxed);
  }
  // A hint: whoever locks it later conflicts by validation.
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
