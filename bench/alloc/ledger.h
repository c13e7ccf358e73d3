// What is live, as the benchmark knows it: for each slot the block's size and tag. Every block
// carries its tag in its first and last eight bytes from its malloc to its free, so that two blocks
// that overlap, or a block that was handed out twice, show. With `verify` each byte is filled and
// checked, and an interval map of all live blocks finds an overlap when it is made.
//
// Thread safety: a slot belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace bench {

class Ledger {
 public:
  Ledger(std::size_t slots, bool verify) : entries_(slots), verify_(verify) {}

  // The block was handed out for the slot. `sequence` is never given twice. Null, or why that
  // cannot be right.
  const char* born(std::uint32_t slot, void* block, std::uint64_t bytes, std::uint64_t sequence);
  // The slot's block is about to be freed. Null, or what is wrong with it.
  const char* dies(std::uint32_t slot, const void* block);
  // Reads a block that lives on.
  const char* check(std::uint32_t slot, const void* block) const;

  bool live(std::uint32_t slot) const { return entries_[slot].tag != 0; }
  std::uint64_t bytes(std::uint32_t slot) const { return entries_[slot].bytes; }
  std::size_t slots() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t tag = 0;  // 0: no block
    std::uint64_t bytes = 0;
  };

  const char* enter(const void* block, std::uint64_t bytes);
  const char* leave(const void* block, std::uint64_t bytes);

  std::vector<Entry> entries_;
  const bool verify_;
  std::mutex mu_;
  std::map<std::uintptr_t, std::uintptr_t> intervals_;  // guarded by mu_: start to end
};

}  // namespace bench
