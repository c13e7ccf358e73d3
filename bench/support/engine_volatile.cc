// Maps in memory behind the adapter: bounds of what an ordered store can reach. Nothing of theirs
// survives the process, so they take part in no opening and in nothing that is synced.
//
// absl::btree_map and std::map know no threads: with several, reads share one std::shared_mutex and
// writes have it alone (shards would break the order that scans need). A read holds it until
// release(). tbb::concurrent_map, a skip list, needs no lock for inserts, lookups and walks; each
// record has a lock of its own for its value, and an erased record stays as an empty one, since the
// map erases only when it is alone.
#include <tbb/concurrent_map.h>
#include <xmmintrin.h>

#include <atomic>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <utility>

#include "bench/support/engine.h"

#ifdef TENUTO_PEER_ABSL
#include <absl/container/btree_map.h>
#endif

namespace bench {
namespace {

template <class Map>
struct LockedMap {
  Map map;
  std::shared_mutex mutex;
  bool locks = false;  // there are several threads

  template <class Lock>
  Lock lock() {
    return locks ? Lock(mutex) : Lock(mutex, std::defer_lock);
  }
};

template <class Map>
class LockedSession final : public Session {
 public:
  explicit LockedSession(LockedMap<Map>& of) : of_(of) {}

  bool read(std::string_view key, std::string_view& value) override {
    reading_ = of_.template lock<SharedLock>();
    const auto at = of_.map.find(key);
    if (at == of_.map.end()) {
      release();
      return false;
    }
    value = at->second;
    return true;
  }
  void release() override { reading_ = {}; }
  bool write(std::string_view key, std::string_view value) override {
    const auto alone = of_.template lock<Lock>();
    const auto at = of_.map.lower_bound(key);
    if (at != of_.map.end() && at->first == key) {
      at->second.assign(value);
    } else {
      of_.map.emplace_hint(at, key, value);
    }
    return true;
  }
  bool erase(std::string_view key) override {
    const auto alone = of_.template lock<Lock>();
    const auto at = of_.map.find(key);
    if (at == of_.map.end()) return false;
    of_.map.erase(at);
    return true;
  }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    const auto shared = of_.template lock<SharedLock>();
    std::uint64_t taken = 0;
    for (auto at = of_.map.lower_bound(start); at != of_.map.end() && taken < count; ++at) {
      sink.take(at->first, at->second);
      ++taken;
    }
    return taken;
  }

 private:
  using Lock = std::unique_lock<std::shared_mutex>;
  using SharedLock = std::shared_lock<std::shared_mutex>;
  LockedMap<Map>& of_;
  SharedLock reading_;
};

template <class Map>
class LockedEngine final : public Engine {
 public:
  bool open(const EngineOptions& options) override {
    of_.locks = options.threads > 1;
    return true;
  }
  std::unique_ptr<Session> session() override { return std::make_unique<LockedSession<Map>>(of_); }
  bool close() override { return true; }

 private:
  LockedMap<Map> of_;
};

// A value of the concurrent map. Its lock is held for the time of a copy or a check.
class Cell {
 public:
  explicit Cell(std::string_view value) : value_(value) {}

  void lock() {
    while (locked_.exchange(true, std::memory_order_acquire)) _mm_pause();
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

  // All need the lock.
  bool live() const { return live_; }
  const std::string& value() const { return value_; }
  void set(std::string_view value) {
    value_.assign(value);
    live_ = true;
  }
  void clear() { live_ = false; }

 private:
  std::atomic<bool> locked_ = false;
  bool live_ = true;
  std::string value_;
};

using SkipList = tbb::concurrent_map<std::string, Cell, std::less<>>;

class SkipListSession final : public Session {
 public:
  explicit SkipListSession(SkipList& map) : map_(map) {}

  bool read(std::string_view key, std::string_view& value) override {
    const auto at = map_.find(key);
    if (at == map_.end()) return false;
    reading_ = std::unique_lock(at->second);
    value = at->second.value();
    if (!at->second.live()) release();
    return reading_.owns_lock();
  }
  void release() override { reading_ = {}; }
  bool write(std::string_view key, std::string_view value) override {
    auto at = map_.find(key);
    if (at == map_.end()) {
      const auto [made, fresh] = map_.emplace(std::piecewise_construct, std::forward_as_tuple(key),
                                              std::forward_as_tuple(value));
      if (fresh) return true;
      at = made;
    }
    const std::lock_guard lock(at->second);
    at->second.set(value);
    return true;
  }
  bool erase(std::string_view key) override {
    const auto at = map_.find(key);
    if (at == map_.end()) return false;
    const std::lock_guard lock(at->second);
    const bool was = at->second.live();
    at->second.clear();
    return was;
  }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    std::uint64_t taken = 0;
    for (auto at = map_.lower_bound(start); at != map_.end() && taken < count; ++at) {
      const std::lock_guard lock(at->second);
      if (!at->second.live()) continue;
      sink.take(at->first, at->second.value());
      ++taken;
    }
    return taken;
  }

 private:
  SkipList& map_;
  std::unique_lock<Cell> reading_;
};

class SkipListEngine final : public Engine {
 public:
  bool open(const EngineOptions&) override { return true; }
  std::unique_ptr<Session> session() override { return std::make_unique<SkipListSession>(map_); }
  bool close() override { return true; }

 private:
  SkipList map_;
};

using StdMap = std::map<std::string, std::string, std::less<>>;

std::string locked_settings(const char* map, const EngineOptions& options) {
  return std::string("VOLATILE, a bound: ") + map + " of std::string to std::string, " +
         (options.threads > 1 ? "reads share one std::shared_mutex, writes have it alone"
                              : "no lock");
}

}  // namespace

std::unique_ptr<Engine> make_std_map() { return std::make_unique<LockedEngine<StdMap>>(); }
std::string std_map_settings(const EngineOptions& o) { return locked_settings("std::map", o); }

std::unique_ptr<Engine> make_tbb_map() { return std::make_unique<SkipListEngine>(); }
std::string tbb_map_settings(const EngineOptions&) {
  return "VOLATILE, a bound: tbb::concurrent_map (a skip list) of std::string to std::string, a "
         "lock a record";
}

#ifdef TENUTO_PEER_ABSL
using AbslMap = absl::btree_map<std::string, std::string, std::less<>>;
std::unique_ptr<Engine> make_absl_btree() { return std::make_unique<LockedEngine<AbslMap>>(); }
std::string absl_btree_settings(const EngineOptions& o) {
  return locked_settings("absl::btree_map", o);
}
#endif

}  // namespace bench
