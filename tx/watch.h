// Finds stores that nothing knows of (PoolOptions::on_mistake).
//
// The watch keeps a copy of the pool in DRAM. It shows each byte as it was last flushed, because
// every flush copies its lines. A transaction tells the watch which ranges it may store to. When it
// ends, pool and copy are compared, before the transaction's own flushes. A byte that differs in an
// allocated object, and is in no such range, was stored and neither added nor flushed.
//
// Cost: each flush takes a lock and copies; each end of a transaction reads kChunksAtOnce chunks of
// pool and copy, and those that it stored to. So in a pool above 64 MiB a stray store far away is
// found some transactions later.
//
// Freed objects. A small block that the program freed is remembered until it is taken again, or its
// slab is gone. A byte that differs there was stored by a pointer that should not be in use.
//
// Pointers (watch_pools.cc). A word that was stored, and read as a Ptr leads into another open pool
// or into a closed one, is told at the same time. The watch also keeps the pool's addresses after
// its close (pm/closed_pools.h).
//
// The traced build has no watch: there the explorer sees each store.
// A build with ThreadSanitizer has none either, because a comparison reads what others write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "file/pool_file.h"
#include "heap/heap.h"
#include "pm/media.h"
#include "pm/no_memory.h"
#include "pm/sanitizer.h"
#include "tenuto/persist.h"
#include "tenuto/status.h"
#include "tx/ranges.h"

namespace TENUTO_NS::heap {
struct Place;
}  // namespace TENUTO_NS::heap

namespace TENUTO_NS::tx {

class Txn;

class Watch final : public pm::FlushWatch {
 public:
  using Handler = std::function<void(const Report&)>;
#if TENUTO_TSAN
  static constexpr bool kPossible = false;
#else
  static constexpr bool kPossible = !kTraced;
#endif

  Watch(pm::PoolFile& file, heap::Heap& heap, Handler handler);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // No call throws: commits, aborts and flushes must not. Without memory the watch ends.
  void flushed(const void* p, std::size_t bytes) noexcept override;

  // From now on the transaction may store to the range. A mistake: `added`, and no object is there.
  void cover(const Txn& txn, Range r, bool added) noexcept;
  // The transaction ended. What it stored, and what remains of blocks that it gave back, is right.
  void forget(const Txn& txn) noexcept;
  // The bytes are right as they are.
  void settle(Range r) noexcept;
  // The block was taken, or is about to be freed: it is right as it is.
  void taken(PoolOffset block) noexcept;
  // It is free now. REQUIRES: taken() before it was.
  void freed(PoolOffset block) noexcept;
  // Compares. `when`: what ends now, for the report.
  void check(const Txn& txn, const char* when) noexcept;
  // A call of the transaction was given a range, or a field its target, out of the pool.
  enum class Foreign : std::uint8_t { range, target };
  void foreign(const Txn& txn, Foreign what, const void* p) noexcept;
  // A thread ended before its transaction did.
  void left_open(const Txn& txn) noexcept;

 private:
  static constexpr std::uint64_t kChunkBytes = kHugeBytes;
  static constexpr std::uint64_t kChunksAtOnce = 32;

  struct Found {              // in one block
    std::uint64_t first = 0;  // the first byte
    std::uint64_t bytes = 0;
    std::string block;
    bool freed = false;
  };
  using FoundByBlock = std::map<std::uint64_t, Found>;

  template <class F>
  void unless_ended(F&& f) noexcept;
  void say(const std::string& what, const std::string& where) const;
  const std::byte* copy_of(std::uint64_t offset) const;
  void copy(Range r);
  bool covered(std::uint64_t at) const;
  struct Line {
    std::uint64_t at;
    std::uint64_t differs;  // a bit for each byte that no range covers
  };
  void compare_chunk(std::uint64_t chunk, std::vector<Line>& lines) const;
  void judge(const Line& line, FoundByBlock& found);
  bool was_freed(const heap::Place& place);
  struct Word {
    std::uint64_t at;
    std::uint64_t raw;
  };
  bool leads_out(Word word) const;
  void find_flushed_pointers(Range lines);
  void find_pointers(Range r, std::vector<Word>& words) const;
  void judge_pointer(Word word, const std::string& found_at) const;

  pm::PoolFile& file_;
  heap::Heap& heap_;
  const Handler handler_;
  // The innermost lock: a flush may hold any other. So no call to the heap is made under it.
  std::mutex mu_;
  std::atomic<bool> ended_ = false;                                         // there was no memory
  std::unordered_map<std::uint64_t, std::unique_ptr<std::byte[]>> chunks_;  // absent: zeros
  std::map<const Txn*, std::vector<Range>> ranges_;
  // Words that were flushed outside of transactions and may lead out of the pool.
  std::vector<Word> flushed_words_;
  std::unordered_map<std::uint64_t, std::uint64_t> freed_;  // blocks, with their Place::slab
  std::uint64_t next_ = 0;  // the chunk to compare next, in a large pool
};

template <class F>
void Watch::unless_ended(F&& f) noexcept {
  if (!ended_ && !pm::had_memory(f)) ended_ = true;
}

}  // namespace TENUTO_NS::tx
