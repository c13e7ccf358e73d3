// Options of a pool: its size, its medium, its heap and its journal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tenuto/abi.h"
#include "tenuto/garbage.h"
#include "tenuto/numa.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

// What a pool survives (src/pm/README.md):
//   line       a power cut, on persistent memory mapped with MAP_SYNC
//   cache      a crash of the process; a power cut only if the CPU caches are persistent
//   model      as line; every flush is counted
//   journal    a power cut, on any file system: all that was synced, and the rest up to a point in
//              time shortly before the cut
//   automatic  line if the file system grants MAP_SYNC, cache in memory (tmpfs), else journal
// In the traced build (tenuto/crash.h) automatic and journal are line, so that the explorer crashes
// a program at each flush. On `cache` only CrashMode::kill says what a crash can leave.
//
// The stores of one thread to one line keep their order over a crash without a fence. Medium
// journal on a processor without AVX-512 has one exception. A thread stores an earlier value to a
// word again and has not flushed the line in between, while other threads flush it too: then only a
// fence orders its stores to that line (src/journal/capture.h).
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

// sync: the call returns when the write survives all that the medium survives. buffered: the call
// may return before that; a crash then loses at most the latest writes, never one from the middle.
// On all media but `journal` both are the same and return after the fence. On `journal` sync waits
// for the device. There buffered loses the work since the last commit, in a power cut as in a crash
// of the process: as a rule that of JournalOptions::sync_every_ms.
enum class Durability : std::uint8_t { sync, buffered };

// For medium `journal`.
struct JournalOptions {
  // Empty: the pool's real path (links resolved) with ".journal". A file there is used only if its
  // ids and the pool's name each other; otherwise it is left alone ("Whose it is" in
  // src/journal/README.md covers links, mounts and copies).
  std::string path = {};
  // The ring of a new journal, at least 256 KiB; recovery reads up to this much. 0: half of the
  // pool's bytes, from 6 to 64 MiB, and at most 1/32 of memory. It grows with the pool, while that
  // is open and when it is opened. What the ring holds is in memory, too.
  std::uint64_t bytes = 0;
  // A thread commits buffered writes after this time. It is late while its write waits for the
  // device, or when no processor is free. 0: only a sync commits, or a full journal.
  unsigned sync_every_ms = 100;
  // A checkpoint empties the journal into the pool early enough that a replay after a crash takes
  // about this time. PoolStats::journal_recovery_ms is the estimate, from the times of checkpoints
  // and of the last replay. 0: a checkpoint when the journal is half full.
  unsigned recovery_ms_max = 2000;
  // true: the file stays after a clean close, so that the next open need not make it. false: a
  // clean close removes a file that this open has made; an older one stays, closed.
  bool keep = true;
};

// How the heap keeps malloc_to, free_from, publish and swap consistent over a crash (NVAlloc,
// ASPLOS'22, has the same variants). It belongs to the pool. Transactions and the store are the
// same in all: atomic, and durable as Durability says.
enum class Consistency : std::uint8_t {
  as_is = 0,  // what the pool has; a new pool gets `log`
  // Each call is atomic and durable, and a crash leaks nothing.
  log = 1,
  // After a crash the pool keeps what its root object leads to, and frees the rest. Without
  // root_filter and filters (below) it also keeps what a number in an object seems to lead to,
  // freed or not (tenuto/garbage.h tells how pointers are found). A call stores one word, writes no
  // log and waits for nothing. It is durable after the thread's next Pool::sync or commit, its end,
  // 64 more calls, or a close. A crash before may undo it, and of several calls any. Objects that
  // only a walk by type reaches are lost in a crash. Blocks above 16 KiB, those with a type or
  // zeros, and publish and swap have fences.
  gc = 2,
  // malloc_to and free_from have one fence and no log; with a type or zeros malloc_to has two. What
  // returned is durable. A crash in a call leaves any part of it: a block that no word names, or a
  // word that names no block (Pool::usable_size is 0). The application finds its objects by walks
  // by type, or with Pool::find_garbage, and mends its words before it allocates (a versioned word
  // that names no block by a plain store of zero). A batch has one fence, too, and may be cut
  // anywhere. publish and swap are atomic as with `log`.
  internal = 3,
};

constexpr const char* consistency_name(Consistency c) {
  constexpr const char* kNames[] = {"as_is", "log", "gc", "internal"};
  return kNames[static_cast<std::size_t>(c)];
}

// How a transaction over several pools ends that was prepared in this pool before a crash, when the
// pool that decides it cannot be asked (tenuto/tx.h).
enum class InDoubt : std::uint8_t {
  ask = 0,  // the open returns in_doubt, and its report names the pool to open first
  // If that pool can be asked, what it says counts. Else so, and the other pools may end it the
  // other way; this cannot be detected.
  commit = 1,
  abort = 2,
};

// What is at the place of a pool's journal.
enum class JournalFound : std::uint8_t {
  none,     // nothing, and the pool never had a journal
  in_use,   // the journal that this open uses
  fits,     // the pool's own journal; an open would use it
  gone,     // nothing, but the pool has had a journal
  foreign,  // something else, which is left alone, or a journal that another open uses
};

constexpr const char* journal_found_name(JournalFound f) {
  constexpr const char* kNames[] = {"none", "in_use", "fits", "gone", "foreign"};
  return kNames[static_cast<std::size_t>(f)];
}

// Thresholds of the heap. They change no format, so each open of a pool may use others.
struct HeapOptions {
  // A slab of small blocks may change to another block size when less than this part of it is in
  // use. 0: never.
  double morph_occupancy = 0.5;
  // Free extents give their pages back over this time, the longest free ones first. Of the extents
  // that became free at one time all pages remain at first, half after half of this time, and none
  // at its end (smootherstep, as in jemalloc). 0: at once. Negative, and on medium journal:
  // only by Pool::trim.
  std::int64_t decay_ms = 10'000;
  std::int64_t decay_tick_ms = 50;  // how often heap operations check this
  // The bookkeeping log is rewritten when it has more than book_dead_factor entries for each live
  // one. If it is larger than book_heap_ppm millionths of the pool, two for each are enough. Up to
  // book_chunks_least KiB it is never rewritten.
  std::uint64_t book_dead_factor = 4;
  std::uint64_t book_heap_ppm = 2'000;
  std::uint64_t book_chunks_least = 4;
  // Medium journal: so much of the pool may stay in memory. Pages that are written stay there while
  // the pool is open. When the pool has this many bytes, it gets zones for the store's records
  // (blocks of less than 16 KiB) alone, whose pages are the file's own: the kernel writes them back
  // and drops them when memory is short. Updates of records there are about half as fast. Leaves
  // and objects stay outside these zones, and in memory: some 12 bytes a record. 0: an eighth of
  // the memory that the process may use (of the machine or of its control group), at least 64 MiB.
  std::uint64_t memory_max = 0;
  NumaOptions numa = {};
  // Wear levelling (PMMS): spreads the writes over the memory that wears out by them. Every freed
  // block rests before it is handed out again. Of the blocks, slabs, extents and frames that a
  // request could get, the least written ones go first; frames that the file has anyway come before
  // frames that were written more than others. So a heap spreads over its whole file, large frames
  // become rarer, and the pool grows rather than hand out a block early. Only what is freed moves:
  // objects that stay where they are keep their frames out of it. The counts (PoolStats::wear_max)
  // are in an object of the pool, written at a close and now and then; a crash loses the latest.
  // Cost: each free takes a lock and reads a clock, and each use of a block begins in its slab.
  bool wear_levelling = false;
  // How long a freed block rests, in milliseconds. 0: not at all. A pool that is full ends the rest
  // of the blocks that were freed first (PoolStats::wear_forced). After an open nothing rests.
  std::int64_t wear_rest_ms = 100;
  // Milliseconds of a clock that never goes back, for tests. Empty: the system's coarse clock.
  std::function<std::int64_t()> clock_ms = {};
};

struct PoolOptions {
  std::uint64_t size = 8u << 20;  // bytes of a new pool, at least kPoolBytesMin
  // It grows up to this, and so many addresses are reserved. 0: kAutomaticSizeMax, or half or less
  // of it where the process may not have twice as many addresses, or the system promises no memory.
  std::uint64_t size_max = 0;
  // Permissions of a new pool file, without the process's umask. Its journal has those of the file.
  // 0: only the owner (0600); for a backup or a rescue those of the source pool.
  unsigned mode = 0;
  Medium medium = Medium::automatic;
  // Opens a pool to read. Writes return Status::read_only. The pool must be cleanly closed, and
  // must not be beside a newer journal of its own (corrupt: the pool is an older copy).
  bool read_only = false;
  // true: when an address of the pool cannot be read or written (the file was truncated, or the
  // device failed), the operation and all later ones return Status::io. This needs a handler for
  // SIGBUS, which is installed once in a process. It passes other addresses on to the previous
  // handler. false: no handler is installed, and such an access ends the process. So it does in a
  // thread that blocks SIGBUS (sigfillset); let it through in threads that use a pool.
  bool catch_bus_errors = true;
  // Asks for pages of 2 MiB where the pool is in memory (tmpfs) and mapped shared: one access in a
  // large pool needs fewer of the processor's address translations. A hint: the kernel may refuse
  // (before Linux 6.1 it does), and nothing else depends on it. PoolStats::large_bytes tells. A
  // thread with a low priority does it, in the background, in pools of at least 32 MiB. Memory that
  // is given back splits a large page until it is used again. The same thread reserves the space of
  // the next growth when the pool is nearly full, so that no call waits for that, also in a smaller
  // pool that has grown since it was opened: an eighth of the pool (4 MiB at least, and up to half
  // of a small one), only while the file system, the system and the process's control group have
  // four times as much left. A trim, a close, and this pool's own need on a full file system give
  // it back; what other pools and programs need later does not.
  bool large_pages = true;
  // Adds Optane's published delays to medium `model` (reflush, random and sequential write).
  bool model_delays = false;
  // Of a new pool. An open to write with another one than the pool has changes it, if the pool was
  // closed cleanly (else invalid_argument).
  Consistency consistency = Consistency::as_is;
  // Of a new pool: each object has a canary, 8 bytes behind what Pool::usable_size says. It is
  // compared when the object is freed or resized, and by Pool::validate; in most slabs also when a
  // free block is handed out. A wrong one is Status::corrupt, and the pool turns read-only; the
  // report of Pool::health names the object and how far it was overwritten. The canary is restored,
  // so that the object can be freed after the next open. An object of whole lines stays aligned to
  // a line, and may need the next size that is. The pool keeps its canaries; an open with this
  // option of a pool without them is invalid_argument. A version that knows no canaries refuses
  // the pool (wrong_version). Records and leaves of the store have none. Cost: on a warm heap no
  // line and no fence, and a load at each free; a new slab flushes a line for each of its blocks.
  bool canaries = false;
  // Metadata of this open's mapping is under a protection key of the processor (Intel and AMD: pku
  // in /proc/cpuinfo). A stray store of the program there ends the process with SIGSEGV (si_code
  // SEGV_PKUERR) at the store, where it would otherwise damage the pool. "Metadata under a key" in
  // src/file/README.md tells what that is; headers of slabs are not, as blocks share their pages
  // (they have a guard of their own). invalid_argument: the machine has no keys. full: this process
  // has used all of its 15; all pools share one, which is kept until the process ends. Nothing of
  // it is in the file, so a pool opens on any machine. A pool opened to read is mapped without the
  // right to write, and needs no key. Cost: two instructions for each call that changes metadata.
  bool protect_metadata = false;
  // For pools with Consistency::gc, at an open after a crash: where the references of the root
  // object are, and those of objects with a type (tenuto/references.h). What has no filter is read
  // word by word.
  PointerFilter root_filter = {};
  std::map<std::uint64_t, PointerFilter> filters = {};
  unsigned stripes = 6;  // neighbouring blocks use so many bitmap lines in turn, 1..32
  // 0: all cores. With more than one, oneTBB starts threads, and memory that is refused to one of
  // them there (also for want of mappings: vm.max_map_count) ends the process.
  unsigned recovery_threads = 0;
  HeapOptions heap = {};
  JournalOptions journal = {};
  // For calls without such an option: malloc_to, free_from, publish, realloc_to, swap, drop,
  // rename, transactions over objects and others.
  Durability durability = Durability::sync;
  InDoubt in_doubt = InDoubt::ask;
  // Not empty: the pool looks for mistakes of the program, and gives each to this function
  // (tenuto/mistakes.h).
  std::function<void(const Report&)> on_mistake = {};
  // Gets messages for people, for example that a power cut may damage this pool. May be called by
  // any thread.
  std::function<void(std::string_view)> log = {};
};

inline constexpr std::uint64_t kPoolBytesMin = 8u << 20;
inline constexpr std::uint64_t kAutomaticSizeMax = 4ull << 40;

}  // namespace TENUTO_NS
