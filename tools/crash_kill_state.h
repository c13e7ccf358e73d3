// What a killed process leaves for its judge: memory shared with the process that is never killed.
// Every operation is announced here before it begins and acknowledged after it returned, so that at
// any moment of a kill it is known what must be there and what may be.
//
// Two models. Keys are shared by all threads: their operations are logged with tickets, and the
// judge looks for an order that explains them. Cells (balances, chains of objects, heap slots) are
// changed by one thread at a time under a lock, some together in one atomic step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tenuto::tool {

inline constexpr std::uint32_t kKillThreadsMax = 8;  // a batch in flight on each: 256 choices
inline constexpr std::uint32_t kKillKeys = 1500;
inline constexpr std::uint32_t kKillNamedEvery =
    3;  // one key of so many is in the named collection
inline constexpr std::uint32_t kKillBatchMax = 12;
inline constexpr std::uint32_t kKillLogMax = 20'000;  // operations of a thread between two kills

inline constexpr std::uint32_t kBalances = 32;
inline constexpr std::uint32_t kChains = 12;
inline constexpr std::uint32_t kChainNodesMax = 24;
inline constexpr std::uint32_t kSlots = 192;
inline constexpr std::uint32_t kPlainSlots = 96;  // the others are versioned words
inline constexpr std::uint32_t kBalanceCells = 0;
inline constexpr std::uint32_t kChainCells = kBalances;
inline constexpr std::uint32_t kSlotCells = kBalances + kChains;
inline constexpr std::uint32_t kCells = kSlotCells + kSlots;
inline constexpr std::uint64_t kFirstBalance = 1000;

// Contents of a slot that are no stamp: nothing, torn, a block whose bytes mean nothing yet.
inline constexpr std::uint64_t kSlotEmpty = 0;
inline constexpr std::uint64_t kSlotTorn = 1;
inline constexpr std::uint64_t kSlotRaw = 2;

enum class KillVerb : std::uint8_t { put, erase, get };
// unknown: the kill came first. failed: full, or a transaction's conflict, which must have changed
// nothing.
enum class KillEnd : std::uint8_t { unknown, done, failed };

struct KillOp {
  std::uint64_t invoked;
  std::uint64_t ended;
  std::uint64_t value;  // of a put what it writes, of a get what it saw
  std::uint32_t key;
  std::uint32_t batch;  // entries of a batch share the number of its first entry + 1; 0: alone
  KillVerb verb;
  std::uint8_t saw;  // of an erase: 0 unknown, 1 existed, 2 absent
  std::atomic<KillEnd> end;
};

struct KillStep {
  enum State : std::uint32_t { none, begun, done };
  struct Change {
    std::uint32_t cell;
    std::uint64_t before, after;
  };
  std::atomic<std::uint32_t> state;
  std::uint32_t changes;
  Change change[3];
};

struct KillThreadLog {
  std::atomic<std::uint32_t> logged;
  std::atomic<std::uint64_t> steps;         // acknowledged, of all kills
  std::atomic<std::uint64_t> transactions;  // the same
  std::atomic<std::uint64_t> compactions;   // begun
  KillStep step;
  KillOp op[kKillLogMax];
};

enum class KillPhase : std::uint32_t { opening, checking, observed, working };

// What the child finds in the pool after recovery.
struct KillExtent {
  std::uint64_t offset, bytes;
};
struct KillSight {
  std::uint64_t key[kKillKeys];
  std::uint64_t cell[kCells];
  std::uint64_t objects;  // the pool's own count
  std::uint32_t extents;  // the reachable ones
  KillExtent extent[1 + kSlots + kChains * kChainNodesMax];
};

struct KillFigures {
  std::uint64_t opens, unclean, rolled_back, leaked_frames, morphed_slabs;
  double recovery_ms_sum, recovery_ms_max;
};

struct KillState {
  std::atomic<std::uint64_t> ticket;
  std::atomic<KillPhase> phase;
  std::atomic<std::uint32_t> sights;  // observations the child has made since it was forked
  std::atomic<std::uint32_t> judged;  // of those, found sound
  std::atomic<std::uint32_t> failing;
  char failure[4096];
  // The model: what must be there, as of the last observation that was found sound.
  std::uint64_t key[kKillKeys];
  std::uint64_t cell[kCells];
  KillSight sight;
  KillFigures figures;
  KillThreadLog thread[kKillThreadsMax];
};

inline std::uint64_t kill_hash(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace tenuto::tool
