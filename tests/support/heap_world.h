// A small persistent world for crash tests of the heap, below transactions. A table has
// destinations for logged blocks, plain and versioned, and words that name derived blocks. Logged
// blocks may contain destinations of both kinds, so that containers are freed and reused. After a
// crash every cell shows its last acknowledged content, or that of an operation that ran. Exactly
// the blocks and frames that follow from the cells are taken.
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
  static constexpr std::size_t kVersioned = 12;
  struct alignas(kLineBytes) Slot {
    PtrWord word;
    std::uint64_t pad[7];
  };
  Slot slot[kSlots];
  Slot derived[kDerived];  // raw is an offset
  // The last ones are neighbours. The others have their own lines.
  static constexpr std::size_t kSpread = 4;
  struct alignas(kLineBytes) VSlot {
    VPtrWord word;
    std::uint64_t pad[7];
  };
  VSlot versioned[kSpread];
  VPtrWord row[kVersioned - kSpread];
};

// What a cell names. bytes 0: nothing. tag 0: the contents are not known.
struct HeapNode {
  std::uint64_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t data = 0;  // its second and third word, if they are not destinations
  std::uint64_t type = 0;  // below HeapSession::kTypesEnd
};

// Numbers of cells: slots, the destinations inside their blocks, derived words, versioned words of
// the table, versioned words inside the blocks of slots.
struct HeapCells {
  static constexpr std::size_t kSlots = HeapTable::kSlots;
  static constexpr std::size_t kFirstVersioned = 2 * kSlots + HeapTable::kDerived;
  static constexpr std::size_t kCells = kFirstVersioned + HeapTable::kVersioned + kSlots;
  static constexpr std::size_t inner(std::size_t slot) { return kSlots + slot; }
  static constexpr std::size_t derived(std::size_t i) { return 2 * kSlots + i; }
  static constexpr std::size_t versioned(std::size_t i) { return kFirstVersioned + i; }
  static constexpr std::size_t row(std::size_t i) { return versioned(HeapTable::kSpread + i); }
  static constexpr std::size_t versioned_inner(std::size_t slot) {
    return kFirstVersioned + HeapTable::kVersioned + slot;
  }
};

struct HeapModel {
  struct Change {
    bool on = false;
    std::size_t cell = 0;
    HeapNode after;
  };
  std::array<HeapNode, HeapCells::kCells> now{};
  static constexpr std::size_t kThreads = 4, kBatch = 20;
  std::array<Change, kThreads * kBatch> change{};  // kBatch for each thread
};

class HeapSession {
 public:
  HeapSession(CrashContext& context, HeapModel& model, PoolOptions options);

  // The type of logged blocks from now on. 0: none.
  static constexpr std::uint64_t kTypesEnd = 4;
  void set_type(std::uint64_t type) { type_ = type; }
  // The calling thread works. `thread` is its number in the model.
  void put(std::size_t cell, std::uint64_t bytes, unsigned thread = 0, std::uint64_t data = 0);
  void put_unfilled(std::size_t cell, std::uint64_t bytes, unsigned thread = 0);  // malloc_to
  void take(std::size_t cell, unsigned thread = 0);
  // Frees one cell's block, and then puts one of the same size into another cell. Both together are
  // one operation: nothing is fenced in between, unless the heap does it.
  void move(std::size_t from, std::size_t to, std::uint64_t bytes);
  void move_unfilled(std::size_t from, std::size_t to, std::uint64_t bytes);  // by malloc_to
  // The same while another thread takes it, too. Returns false if the other thread got it.
  bool take_raced(std::size_t cell, unsigned thread);
  // Batches. All cells are plain, or all are versioned. Neighbours are passed as a row.
  void put_all(const std::vector<std::size_t>& cells, std::uint64_t bytes, unsigned thread = 0);
  void take_all(const std::vector<std::size_t>& cells, unsigned thread = 0);
  void swap(std::size_t a, std::size_t b, unsigned thread = 0);  // both versioned
  void close();
  void reopen();
  PtrWord& word(std::size_t cell);
  VPtrWord& versioned(std::size_t cell);
  PoolParts& pool() { return pool_; }

 private:
  Result<heap::Block> reserve(std::size_t cell, std::uint64_t bytes);
  void change(unsigned thread, std::size_t cell, HeapNode after) {
    change(thread, std::vector<std::pair<std::size_t, HeapNode>>{{cell, after}});
  }
  void change(unsigned thread, const std::vector<std::pair<std::size_t, HeapNode>>& all);
  void done(unsigned thread);

  CrashContext& context_;
  HeapModel& model_;
  PoolOptions options_;
  PoolParts pool_;
  std::uint64_t tag_ = 1000;
  std::uint64_t type_ = 0;
};

PoolOptions heap_world_options(std::uint64_t size_max = kPoolBytesMin);
// Makes an empty world and closes it cleanly. `more` may use it before.
void make_heap_world(const std::string& path, const PoolOptions& options,
                     const std::function<void(PoolParts&)>& more = {},
                     std::uint64_t table_bytes = 0);
// Returns what is wrong, or an empty string. Afterwards it uses the heap.
std::string check_heap_world(const CrashImage& image, const HeapModel& model,
                             const PoolOptions& options);

}  // namespace tenuto::test
