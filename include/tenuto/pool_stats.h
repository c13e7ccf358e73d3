// What an open pool tells of itself: its figures, and what it is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tenuto/numa.h"
#include "tenuto/pool_options.h"

namespace TENUTO_NS {

// Sums over what other threads are changing are those of no single moment. They are exact while no
// other thread is in a call. Cost of Pool::stats: a pass over the slabs (one for each 64 KiB of
// small blocks), under their locks, and over the caches of all threads; and the kernel passes over
// the page tables of the process. No fence.
struct PoolStats {
  std::uint64_t file_bytes = 0;  // size of the file
  // The same without its holes, and with what is reserved for the next growth.
  std::uint64_t disk_bytes = 0;
  // Of file_bytes this process has mapped so much in pages of 2 MiB (PoolOptions::large_pages) so
  // far. Only pools in memory (tmpfs); else 0.
  std::uint64_t large_bytes = 0;
  // Metadata that is under the protection key (PoolOptions::protect_metadata).
  std::uint64_t protected_bytes = 0;
  // What this process has of the file in memory: pages that it has mapped. Of these, those that are
  // not in the file yet, and those that stay in memory as long as the pool is open (medium journal,
  // HeapOptions::memory_max). The kernel writes the other ones back, and drops them when
  // memory is short.
  std::uint64_t resident_bytes = 0;
  std::uint64_t dirty_bytes = 0;    // those that stay included
  std::uint64_t private_bytes = 0;  // those that stay
  std::uint64_t used_bytes = 0;     // frames taken
  // What the application holds: all blocks that are allocated or reserved (also by an open
  // transaction), and the records and leaves of a store, also those that are replaced and not free
  // yet (StoreStats::retired_bytes). Each with its whole block: a size class, or an extent of whole
  // pages. Not: a block that a call, or an open transaction, is freeing.
  std::uint64_t allocated_bytes = 0;
  // Blocks that nobody holds, and that are not free to every thread yet: in caches of threads, and
  // freed ones whose log a crash could still replay. Pool::trim empties the caches of the calling
  // thread and of ended threads.
  std::uint64_t cached_bytes = 0;
  std::uint64_t objects = 0;  // blocks allocated by malloc_to, publish, transactions
  std::uint64_t slabs = 0;
  std::uint64_t morphed_slabs = 0;  // with blocks of two sizes
  // Slabs by the tenth of their blocks that is not free: in use, in a thread's cache, or under a
  // block of an old size. The last one: 90 to 100 %.
  std::array<std::uint64_t, 10> slabs_by_tenth{};
  std::uint64_t extents = 0;
  std::uint64_t reclaimed_bytes = 0;    // free extents whose pages are still in the file
  std::uint64_t retained_bytes = 0;     // free extents whose pages were given back
  std::uint64_t book_bytes = 0;         // bookkeeping log
  std::uint64_t book_list_bytes = 0;    // of these in use
  std::uint64_t book_live_entries = 0;  // its extents and huge objects in use
  std::uint64_t book_fast_gcs = 0;      // since open: chunks of it that were dropped whole
  std::uint64_t book_slow_gcs = 0;      // since open: times that it was rewritten
  std::uint64_t zones = 0;
  std::uint64_t lanes = 0;
  // Wear levelling (HeapOptions::wear_levelling), over the life of the pool as far as it was open
  // with it. In lines of 64 bytes. A block counts when it is handed out, with all its lines: what
  // its owner changes in it later does not. The spread is wear_max * wear_frames / wear_lines, max
  // over mean. Without the option: what the last open with it has left; 0 without any.
  std::uint64_t wear_frames = 0;      // 4-KiB frames behind the pool's head
  std::uint64_t wear_lines = 0;       // written in all of them
  std::uint64_t wear_max = 0;         // in one of them
  std::uint64_t wear_bits_lines = 0;  // flushed by the heap in the first frames of slabs
  std::uint64_t wear_bits_max = 0;    // in one of these
  std::uint64_t wear_rested = 0;      // since open: blocks whose rest ended in time
  std::uint64_t wear_forced = 0;      // ... and early: the pool was full, or had no memory
  std::uint64_t wear_tables = 0;      // since open: times that the counts were written
  // The next five: medium model only, all such pools of this process.
  std::uint64_t lines_flushed = 0;
  std::uint64_t fences = 0;
  std::uint64_t reflushes = 0;          // flushes of one of the thread's last four lines
  std::uint64_t writes_sequential = 0;  // 256-byte device writes
  std::uint64_t writes_random = 0;
  // Those of the journal: medium journal only, since the open.
  std::uint64_t journal_bytes = 0;             // size of its ring
  std::uint64_t journal_used_bytes = 0;        // of these not yet in the pool file
  std::uint64_t journal_commits = 0;           // device writes that made something durable
  std::uint64_t journal_lines = 0;             // in the commits
  std::uint64_t journal_payload_bytes = 0;     // in the commits, compressed
  std::uint64_t journal_written_bytes = 0;     // the same with padding to whole pages
  std::uint64_t journal_device_flushes = 0;    // of journal and pool
  std::uint64_t journal_checkpoints = 0;       // times that the ring was emptied into the pool
  std::uint64_t journal_checkpoint_bytes = 0;  // that these wrote to the pool
  double journal_recovery_ms = 0;              // estimated time of a replay after a crash now
  std::uint64_t journal_replayed_bytes = 0;    // of the ring, by the open; 0: there was no replay
  std::uint64_t journal_replayed_lines = 0;
  double journal_replay_ms = 0;
  NumaStats numa;
};

struct PoolInfo {
  std::string path;
  std::string layout;  // of the root object; empty when there is none
  std::uint64_t pool_id = 0;
  std::uint32_t version = 0;
  // The medium in use. If opened to read: the one that an open for writing would use.
  Medium medium = Medium::cache;
  Consistency consistency = Consistency::log;
  bool canaries = false;  // PoolOptions::canaries
  // Whether this machine has protection keys, which PoolOptions::protect_metadata needs.
  bool has_protection_keys = false;
  bool power_cut_safe = false;  // the medium survives a power cut
  bool was_clean = true;        // the last close before this open was clean
  bool read_only = false;
  bool has_store = false;
  double collect_ms = 0;            // of recovery_ms: following the pointers, if consistency is gc
  double recovery_ms = 0;           // of this open
  std::uint64_t leaked_frames = 0;  // given back by recovery
  std::uint64_t rolled_back = 0;    // transactions undone by recovery
  // Parts of transactions over several pools that this pool decided, and that may still ask.
  std::uint64_t decisions_waiting = 0;
  std::vector<std::uint64_t> pools_waited_for;  // the pools of those found by this open, by id
  // The pool's journal, on any medium. The call looks at the file.
  std::uint64_t journal_id = 0;    // 0: the pool never had a journal
  std::string journal_path;        // where an open with these options looks for it
  std::string journal_last_place;  // its place at the last open with it; empty: unknown
  JournalFound journal_found = JournalFound::none;
};

}  // namespace TENUTO_NS
