// A story: the whole life of a store as a list of steps, in text, one a line. A story comes from a
// seed (generate.h) or a file. It is run (life.h) and judged (judge.h). If it fails, it is cut down
// to what the failure needs (shrink.h).
//
// Steps name handles by slots (collection 3, cursor 1). A step on an empty slot does nothing, so
// every part of a story is a story, too.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tenuto/pool_options.h"

namespace tenuto::life {

inline constexpr unsigned kThreadsMax = 4;
inline constexpr unsigned kStores = 2;
inline constexpr unsigned kCollections = 6;  // slots of each store; 0 is the default collection
inline constexpr unsigned kNames = 5;        // names for collections
inline constexpr unsigned kSnapshotsMax = 4;
inline constexpr unsigned kTransactionsMax = 4;
inline constexpr unsigned kCursorsMax = 6;
inline constexpr unsigned kViewsMax = 3;
inline constexpr unsigned kCopies = 2;
inline constexpr unsigned kBackups = 2;
inline constexpr unsigned kObjects = 256;
inline constexpr unsigned kKeys = 2048;
inline constexpr std::size_t kArguments = 6;

enum class Verb : std::uint8_t {
#define TENUTO_LIFE(name, ...) name,
#include "verbs.inc"
#undef TENUTO_LIFE
};
inline constexpr unsigned kVerbs = 0
#define TENUTO_LIFE(name, ...) +1
#include "verbs.inc"
#undef TENUTO_LIFE
    ;

enum class Where : std::uint8_t { any, main, end };

struct VerbInfo {
  const char* name;
  Where where;
  std::array<const char*, kArguments> arguments;  // names; null: no more
};
const VerbInfo& info_of(Verb v);

struct Step {
  unsigned thread = 0;
  Verb verb{};
  std::array<std::int64_t, kArguments> a{};
};

struct Story {
  std::uint64_t seed = 0;
  Medium medium = Medium::cache;
  // Of new pools: a number of Consistency. A pool that has gc or internal is in memory, and objects
  // come one at a time: of a batch a kill may leave any part.
  std::uint64_t consistency = 1;
  unsigned threads = 1;
  // Threads make their steps in turn, in the story's order. If set, each runs at its own speed,
  // between steps that the main thread makes alone.
  bool at_once = false;
  // Gusts stop threads that run at once for up to so long (gusts.h).
  std::uint64_t gusts_us = 0;
  std::uint64_t pool_bytes = 8u << 20, pool_bytes_max = 32u << 20;
  bool numbers = false;          // the default collection has integer keys
  std::uint64_t sync_ms = 0;     // JournalOptions::sync_every_ms
  std::uint64_t reclaim_ms = 0;  // StoreOptions::reclaim_every_ms
  std::uint64_t snapshot_bytes_max = 0;
  std::uint64_t lookup_bytes = 256u << 20;  // StoreOptions::lookup_cache_bytes
  std::uint64_t records_from = 0;           // HeapOptions::memory_max
  std::uint64_t nodes = 0;                  // NumaOptions::nodes, simulated
  std::uint64_t canaries = 0;               // PoolOptions::canaries
  // HeapOptions::wear_levelling. 0: off; 1: on, without rests; 2: now on, now off; above: on, and
  // freed blocks rest for so many ms.
  std::uint64_t wear = 0;
  // After each look the store is closed and opened again, so that the spell begins with leaves that
  // no thread has come to. 2: it is also as after a kill, with blocks that nobody has marked.
  std::uint64_t unread = 0;
  // A second pool beside each store: transactions over objects are over both (process_side.cc).
  std::uint64_t side = 0;
  std::vector<Step> steps;
};

std::string text_of(const Step& step);
std::string text_of(const Story& story);
// Returns an empty string, or what is wrong, with the line.
std::string read_story(const std::string& text, Story& story);

// Random numbers from a seed, the same on every machine.
struct Random {
  std::uint64_t state;
  std::uint64_t operator()() {
    std::uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return (*this)() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
};

}  // namespace tenuto::life
