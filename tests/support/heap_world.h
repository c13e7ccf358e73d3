// A small persistent world for crash tests of the heap below transactions: a table of destinations
// for logged blocks, each of which may have a destination of its own inside (so that containers are
// freed and used again), and of words that name derived blocks. After a crash every cell shows its
// last acknowledged content, or that of an operation that was under way; the blocks and frames that
// are taken are exactly those that follow from it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/crash.h"

namespace tenuto::test {

struct HeapTable {
  static constexpr std::size_t kSlots = 24;
  static constexpr std::size_t kDerived = 8;
  struct alignas(kLineBytes) Slot {
    PtrWord word;
    std::uint64_t pad[7];
  };
  Slot slot[kSlots];
  Slot derived[kDerived];  // raw: offset
};

// What a cell names. bytes 0: nothing; tag 0: contents not known.
struct HeapNode {
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t data = 0;  // what its second word holds, when not a destination
};

// Cells: slots, then the destinations inside their blocks, then derived words.
struct HeapCells {
  static constexpr std::size_t kSlots = HeapTable::kSlots;
  static constexpr std::size_t kCells = 2 * kSlots + HeapTable::kDerived;
  static constexpr std::size_t inner(std::size_t slot) { return kSlots + slot; }
  static constexpr std::size_t derived(std::size_t i) { return 2 * kSlots + i; }
};

struct HeapModel {
  struct Change {
    bool on = false;
    std::size_t cell = 0;
    HeapNode after;
  };
  std::array<HeapNode, HeapCells::kCells> now{};
  std::array<Change, 4> change{};  // by thread
};

class HeapSession {
 public:
  HeapSession(CrashContext& context, HeapModel& model, PoolOptions options);

  // By the calling thread, `thread` is its number in the model.
  void put(std::size_t cell, std::uint64_t bytes, unsigned thread = 0, std::uint64_t data = 0);
  void put_unfilled(std::size_t cell, std::uint64_t bytes, unsigned thread = 0);  // malloc_to
  void take(std::size_t cell, unsigned thread = 0);
  void close();
  void reopen();
  PtrWord& word(std::size_t cell);
  PoolParts& pool() { return pool_; }

 private:
  void change(unsigned thread, std::size_t cell, HeapNode after);
  void done(unsigned thread);

  CrashContext& context_;
  HeapModel& model_;
  PoolOptions options_;
  PoolParts pool_;
  std::uint64_t tag_ = 1000;
};

PoolOptions heap_world_options(std::uint64_t size_max = kPoolBytesMin);
// An empty world, closed cleanly; `more` may work on it before.
void make_heap_world(const std::string& path, const PoolOptions& options,
                     const std::function<void(PoolParts&)>& more = {},
                     std::uint64_t table_bytes = 0);
// Empty, or what is wrong. Then goes on to use the heap.
std::string check_heap_world(const CrashImage& image, const HeapModel& model,
                             const PoolOptions& options);

}  // namespace tenuto::test
