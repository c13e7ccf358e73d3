// The benchmark's own record of live blocks: the size and the tag of each slot's block. A block
// carries its tag in its first and last eight bytes from its malloc to its free. The check before
// the free then finds a block that was handed out twice, or an overlap that reaches a tag. With
// `verify`, every byte is filled and every whole word is checked. An interval map of all live
// blocks also finds any overlap as soon as it is made.
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

  // The allocator returned `block` for the slot. `sequence` is unique for each call. Returns null,
  // or the error found.
  const char* born(std::uint32_t slot, void* block, std::uint64_t bytes, std::uint64_t sequence);
  // The slot's block is about to be freed. Returns null, or the error found.
  const char* dies(std::uint32_t slot, const void* block);
  // Checks a block that stays live. Returns null, or the error found.
  const char* check(std::uint32_t slot, const void* block) const;

  // Writes a word in each page of a live block, between its tags.
  void write_pages(std::uint32_t slot, void* block) const;

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
  std::map<std::uintptr_t, std::uintptr_t> intervals_;  // start to end; guarded by mu_
};

}  // namespace bench
