// A small world over two or three pools, and scripts of transactions on it that change several of
// them, for crash tests of tx/joint.cc. A step is atomic over all pools: after a crash all of them
// show the world after the first n steps, with acknowledged <= n <= invoked. Exactly the blocks
// that the worlds name are allocated.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/tx_parts.h"
#include "support/tx_scripts.h"
#include "tenuto/crash.h"

namespace tenuto::test {

enum class JointOp {
  add,          // a word of each pool, by ranges
  fields,       // a word of each pool, by fields
  other_led,    // as add, and the last pool leads
  make,         // a block in each pool
  move,         // frees the block of one pool and makes one in the next
  release,      // frees the block of each pool
  free_alone,   // each pool frees a block that it names for ever, and does nothing else; once
  one,          // only the last pool changes
  many,         // as add, and more entries than a lane's area holds
  count,        // the first pool only overwrites a slot, and the last one leads and counts it
  append,       // overwritten bytes in the pool that leads, a word in the others
  undone,       // add and make, and an abort by the leader
  part_undone,  // the same, and an abort by a part
  limbo,        // forgets the last pool, and gives back what the lanes keep, log frames too
};
using JointScript = std::vector<JointOp>;

inline constexpr std::size_t kJointMax = 3;  // pools

struct alignas(kLineBytes) JointWorld {
  std::uint64_t word[8];
  std::uint64_t slot[8];
  std::uint64_t counted[8];    // slots that another pool counts, in its word[7]
  Ptr<std::uint64_t> dest[8];  // the first is used; the second is that of free_alone
  struct alignas(kLineBytes) Spread {
    std::uint64_t word;
  } spread[52];
};

struct JointState {
  struct OfPool {
    std::uint64_t word = 0;
    std::uint64_t slots = 0;  // that have a value
    std::uint64_t spread = 0;
    std::uint64_t tag = 0;  // contents of the block; 0: none
  };
  std::array<OfPool, kJointMax> pool;
  std::uint64_t counted = 0;
  bool spare = true;  // the blocks of free_alone are there
  std::uint64_t step = 0;

  void apply(JointOp op, std::size_t pools);
};

class JointCrash {
 public:
  JointCrash(JointScript script, std::size_t pools) : script_(std::move(script)), pools_(pools) {}

  CrashResult run(CrashOptions options) const;

 private:
  struct Pools;
  void setup(const std::string& path) const;
  void workload(CrashContext& c) const;
  std::string check(const CrashImage& image) const;
  std::string use_again(Pools& p, const CrashImage& image, const JointState& found) const;

  JointScript script_;
  std::size_t pools_;
  mutable std::vector<JointState> states_;  // after each step
};

// Two files have twice the states. TENUTO_CRASH_SCALE as for tx_crash_options().
inline CrashOptions joint_crash_options() {
  CrashOptions o = tx_crash_options();
  o.product_max = crash_scaled(50);
  o.samples_max = crash_scaled(15);
  o.recovery_states_max = crash_scaled(3);
  return o;
}

inline const JointScript kJointWords = {JointOp::add,   JointOp::fields, JointOp::other_led,
                                        JointOp::one,   JointOp::add,    JointOp::append,
                                        JointOp::count, JointOp::add,    JointOp::count};
// No frame of decisions has to be made in free_alone: its fence would cover the entries.
inline const JointScript kJointBlocks = {JointOp::make,  JointOp::free_alone, JointOp::move,
                                         JointOp::limbo, JointOp::release,    JointOp::make,
                                         JointOp::move,  JointOp::release};
inline const JointScript kJointAborts = {JointOp::make,        JointOp::undone, JointOp::add,
                                         JointOp::part_undone, JointOp::add,    JointOp::undone,
                                         JointOp::move};
inline const JointScript kJointLogs = {JointOp::many, JointOp::limbo, JointOp::add};
inline const JointScript kJointThree = {JointOp::fields, JointOp::make, JointOp::part_undone,
                                        JointOp::move};

}  // namespace tenuto::test
