// A small persistent world and scripts of transactions on it, for crash tests of tx: words, and
// pointers to tagged blocks. A script's steps run one after the other, on one lane or on two. After
// a crash the world is that after the first n steps, with acknowledged <= n <= invoked. Exactly the
// blocks that it names are allocated.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/tx_parts.h"
#include "tenuto/crash.h"

namespace tenuto::test {

enum class Op {
  transfer,    // two words under one fence
  one_by_one,  // three words, a fence each
  link,        // make a block
  late_link,   // add the pointer before the allocation
  unlink,      // free a block
  replace,     // free a block, make one, change a word
  cancel,      // make a block beside an added range, and free it again
  link_page,   // make a block in the world's slab
  sparse,      // empty caches, so that sparse slabs may be morphed
  link_large,  // make an extent
  link_typed,  // make a block with one of three types
  link_typed_large,
  link_adopted,  // a block that was reserved before the transaction, as Actions do
  batch,         // many add_later and one ready, as the store does
  overflow,      // more entries than the lane's area holds
  abort_stores,  // roll back after in-place stores, an allocation and a free
  abort_early,   // roll back entries that were not fenced
  abort_overflow,
  link_many,  // sixteen extents: so many that freed ones are reused at once
  unlink_many,
  cancel_many,   // make and free sixteen, with no other effect; the next step runs inside it
  field_stores,  // p<T>: three words, one of them twice
  field_link,    // p<T*>: free a block, make one, change a word
  field_mixed,   // fields before and after a range that is added
  field_many,    // a field in each line
  set_parts,     // Transaction::set: an object, parts of it before and after
  abort_fields,
  part_undone,   // stores, a free, an allocation and fields, and back to a savepoint before them
  append,        // overwrite: a slot without a value gets one, and a field counts it
  fill_unused,   // overwrite, and nothing else
  abort_append,  // the same, rolled back
  hold_many,     // make sixteen extents that nothing points to
  free_held,     // free one of them, and nothing else
  drain,         // empty the lane's limbo, and give back its log frames
};

struct Step {
  Step(Op o, int l = 0) : op(o), lane(l) {}
  Op op;
  int lane;  // 0: the main thread's, 1: the other thread's
};
using Script = std::vector<Step>;

struct World {
  static constexpr std::size_t kWords = 24;  // eight a line
  static constexpr std::size_t kDests = 3;   // in their own line
  static constexpr std::size_t kMany = 16;
  static constexpr std::size_t kSlots = 32;
  static constexpr std::size_t kSpread = 52;  // one a line: more than a lane's undo area holds

  struct alignas(kLineBytes) Spread {
    std::uint64_t word;
    std::uint64_t pad[7];
  };
  alignas(kLineBytes) std::uint64_t word[kWords];
  Ptr<std::uint64_t> dest[8];
  Ptr<std::uint64_t> many[kMany];
  Spread spread[kSpread];
  std::uint64_t used;  // slots that have a value
  std::uint64_t slot[kSlots];
};

// What a world must show.
struct WorldState {
  std::uint64_t word[World::kWords] = {};
  std::uint64_t tag[World::kDests] = {};   // contents of the block; 0: null
  std::uint64_t type[World::kDests] = {};  // of the block
  std::uint64_t many = 0;
  std::size_t held = 0;      // blocks that only a walk by their type finds
  std::uint64_t spread = 0;  // in all of them
  std::uint64_t used = 0;    // slot[i] is i * 7 + 1

  // `choice` selects the words and destinations.
  void apply(Op op, std::uint64_t choice);
  bool shown_by(const World& w) const;
};

class TxCrash {
 public:
  TxCrash(Script script, std::uint64_t seed) : script_(std::move(script)), seed_(seed) {}

  CrashResult run(CrashOptions options = {}) const;

 private:
  class Worker;

  static void setup(const std::string& path);
  void workload(CrashContext& c) const;
  std::string check(const CrashImage& image) const;
  std::string check_blocks(TxParts& p, const World& w, const WorldState& state) const;
  std::string use_again(TxParts& p, const CrashImage& image, const WorldState& found) const;

  Script script_;
  std::uint64_t seed_;
  mutable std::vector<WorldState> states_;  // after each step
};

}  // namespace tenuto::test
