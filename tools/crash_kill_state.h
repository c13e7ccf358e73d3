// Memory shared between a killed process and its judge, which is never killed. Every operation is
// announced here before it starts and acknowledged after it returns. So at every kill it is known
// what must be in the pool and what may be.
//
// There are two models. Keys are shared by all threads: operations are logged with tickets, and the
// judge searches for an order that explains them. Cells (balances, chains of objects, heap slots)
// are changed by one thread at a time under a lock. One atomic step may change several cells.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tenuto::tool {

class KillRecords;

inline constexpr std::uint32_t kKillThreadsMax = 8;  // one batch in flight on each: 256 choices
inline constexpr std::uint32_t kKillBatchMax = 12;

inline constexpr std::uint32_t kBalances = 32;
inline constexpr std::uint32_t kChains = 12;
inline constexpr std::uint32_t kChainNodesMax = 24;
inline constexpr std::uint32_t kSlots = 192;
inline constexpr std::uint32_t kPlainSlots = 96;  // the other slots are versioned words
inline constexpr std::uint32_t kBalanceCells = 0;
inline constexpr std::uint32_t kChainCells = kBalances;
inline constexpr std::uint32_t kSlotCells = kBalances + kChains;
inline constexpr std::uint32_t kCells = kSlotCells + kSlots;
inline constexpr std::uint64_t kFirstBalance = 1000;

// Slot contents that are no stamp: empty, torn, and a block whose bytes are still undefined.
inline constexpr std::uint64_t kSlotEmpty = 0;
inline constexpr std::uint64_t kSlotTorn = 1;
inline constexpr std::uint64_t kSlotRaw = 2;

enum class KillVerb : std::uint8_t { put, erase, get };
// unknown: the kill came first. failed: full, or a transaction's conflict; it must have changed
// nothing.
enum class KillEnd : std::uint8_t { unknown, done, failed };

struct KillOp {
  std::uint64_t invoked;
  std::uint64_t ended;
  std::uint64_t value;  // put: the value written; get: the value seen
  std::uint32_t key;
  std::uint32_t batch;  // 0: no batch; else the index of the batch's first entry, plus 1
  KillVerb verb;
  std::uint8_t saw;  // erase: 0 unknown, 1 existed, 2 absent
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
  std::atomic<std::uint64_t> steps;         // acknowledged, over all kills
  std::atomic<std::uint64_t> transactions;  // acknowledged, over all kills
  std::atomic<std::uint64_t> compactions;   // started, over all kills
  KillStep step;
  std::span<KillOp> op;  // all processes have it at the same address
};

enum class KillPhase : std::uint32_t { opening, checking, observed, working };

// What the child finds in the pool after recovery.
struct KillExtent {
  std::uint64_t offset, bytes;
};
struct KillSight {
  std::span<std::uint64_t> key;
  std::uint64_t cell[kCells];
  std::uint64_t objects;  // as counted by the pool
  std::uint32_t extents;  // number of reachable objects
  KillExtent extent[1 + kSlots + kChains * kChainNodesMax];
};

struct KillFigures {
  std::uint64_t opens, unclean, rolled_back, leaked_frames, morphed_slabs;
  double recovery_ms_sum, recovery_ms_max;
  double open_ms, recovery_ms, rebuild_ms, look_ms;  // the last ones
};

struct KillState {
  const KillRecords* records;
  std::atomic<std::uint64_t> ticket;
  std::atomic<KillPhase> phase;
  std::atomic<std::uint32_t> sights;  // observations by the child since it was forked
  std::atomic<std::uint32_t> judged;  // number of them found correct
  std::atomic<std::uint32_t> failing;
  char failure[4096];
  // The model: the required contents, as of the last observation that was correct.
  std::span<std::uint64_t> key;
  std::uint64_t cell[kCells];
  KillSight sight;
  KillFigures figures;
  KillThreadLog thread[kKillThreadsMax];
};

// The mapping that holds a KillState, its keys and its logs. Forked processes have it at the same
// address.
class KillMemory {
 public:
  KillMemory() = default;
  KillMemory(const KillMemory&) = delete;
  KillMemory& operator=(const KillMemory&) = delete;
  ~KillMemory();
  // Null on failure: see errno. REQUIRES: called once.
  KillState* make(const KillRecords& records, std::size_t log_operations);

 private:
  void* at_ = nullptr;
  std::size_t bytes_ = 0;
};

inline std::uint64_t kill_hash(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace tenuto::tool
