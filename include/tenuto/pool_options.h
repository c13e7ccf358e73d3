// How a pool is made and opened: its size, its medium, and what else a caller may choose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tenuto/abi.h"

namespace TENUTO_NS {

// What survives (src/pm/README.md): line: a power cut, on persistent memory mapped with MAP_SYNC.
// cache: a crash of the process; a power cut only where CPU caches are persistent. model: as line,
// and every flush is counted. journal: a power cut, on any file system: what was synced survives
// for certain, the rest up to some moment shortly before. automatic: line where the file system
// grants MAP_SYNC, cache in memory (tmpfs), else journal.
// Stores of one thread to one line keep their order after a crash without a fence. On medium
// journal and a processor without AVX-512 there is one exception: a thread that stores an earlier
// value over a word again and did not flush the line since, while others flush it too, needs a
// fence for the order of its stores to that line (src/journal/capture.h).
enum class Medium : std::uint8_t { automatic, line, cache, model, journal };

constexpr const char* medium_name(Medium m) {
  switch (m) {
    case Medium::automatic:
      return "auto";
    case Medium::line:
      return "line";
    case Medium::cache:
      return "cache";
    case Medium::model:
      return "model";
    case Medium::journal:
      return "journal";
  }
  return "unknown";
}

// sync: the call returns when the write survives what the medium survives. buffered: it may return
// before; a crash loses at most a recent suffix, never a middle. On the media `line` and `cache`
// both return after the fence and are the same. On `journal` sync waits for the device, and
// buffered loses at most JournalOptions::sync_every_ms of work, whether power or process ends.
enum class Durability : std::uint8_t { sync, buffered };

// Of medium `journal`.
struct JournalOptions {
  // Empty: the pool's real path (links resolved) with ".journal"; what stands there is used only
  // when its ids and the pool's name each other, and is left alone otherwise ("Whose it is" in
  // src/journal/README.md has links, mounts and copies).
  std::string path = {};
  std::uint64_t bytes = 64ull << 20;  // of a new journal, from 256 KiB; what recovery has to read
  // At the latest after so long buffered writes are durable. 0: only when somebody syncs, or the
  // journal is full.
  unsigned sync_every_ms = 100;
  // The journal is emptied into the pool early enough that replaying it after a crash takes about
  // so long (PoolStats::journal_recovery_ms is the estimate, from what checkpoints and the last
  // replay took). 0: when it is half full.
  unsigned recovery_ms_max = 2000;
  // The file stays after a clean close, so that the next open need not make it. false: one that was
  // made by such an open goes; one that was there before stays, closed.
  bool keep = true;
};

// What stands where a pool's journal goes.
enum class JournalFound : std::uint8_t {
  none,     // nothing, and the pool never had one
  in_use,   // by this open
  fits,     // the pool's own, which an open would use
  gone,     // nothing
  foreign,  // something else, which is left alone, or a journal that somebody else has open
};

constexpr const char* journal_found_name(JournalFound f) {
  constexpr const char* kNames[] = {"none", "in_use", "fits", "gone", "foreign"};
  return kNames[static_cast<std::size_t>(f)];
}

// The heap's thresholds. They change no format: a pool may be opened with others each time.
struct HeapOptions {
  // A slab of small blocks of which less than this part is in use may become one of another size.
  // 0: never.
  double morph_occupancy = 0.2;
  // Free extents lose their pages again, the longest free ones first: so that of what became free
  // at one time all is there at first, half after half of this time, and nothing at its end
  // (smootherstep, as in jemalloc). 0: at once; negative: never, but by Pool::trim.
  std::int64_t decay_ms = 10'000;
  std::int64_t decay_tick_ms = 50;  // how often that is looked at, by operations that come along
  // The bookkeeping log is written anew when it has this many entries for each live one, or, from
  // book_heap_ppm millionths of the pool's bytes on, two; never below book_chunks_least KiB.
  std::uint64_t book_dead_factor = 4;
  std::uint64_t book_heap_ppm = 2'000;
  std::uint64_t book_chunks_least = 4;
  // Milliseconds of a clock that never goes back, for tests. Empty: the system's coarse one.
  std::function<std::int64_t()> clock_ms = {};
};

struct PoolOptions {
  std::uint64_t size = 64u << 20;         // bytes of a new pool; at least kPoolBytesMin
  std::uint64_t size_max = 256ull << 30;  // it grows up to this; also the address space reserved
  // Permissions of a new pool file, whatever the process masks; of its journal those of the file.
  // 0: the owner's alone (0600); of a backup or a rescue those of the pool it is made of.
  unsigned mode = 0;
  Medium medium = Medium::automatic;
  // Needs a cleanly closed pool, and no newer journal of its own beside it (corrupt: this is an
  // older copy). Writes return Status::read_only.
  bool read_only = false;
  // An address of the pool that cannot be read or written (the file was cut short by somebody, the
  // device failed) makes the operation, and all later ones, return Status::io. That takes a handler
  // for SIGBUS, installed once a process; other addresses go to the handler there was. false: the
  // process's signals are left alone, and such an access ends it.
  bool catch_bus_errors = true;
  // Optane's published delays are added to medium `model` (reflush, random and sequential write).
  bool model_delays = false;
  unsigned stripes = 6;           // bitmap lines that neighbouring blocks go to in turn, 1..32
  unsigned recovery_threads = 0;  // 0: all cores
  HeapOptions heap = {};
  JournalOptions journal = {};
  // Of what has no option of its own: malloc_to, free_from, publish, realloc_to, transactions.
  Durability durability = Durability::sync;
  // Told about things a person should know (e.g. that a power cut may damage this pool).
  std::function<void(std::string_view)> log = {};
};

inline constexpr std::uint64_t kPoolBytesMin = 8u << 20;

}  // namespace TENUTO_NS
