// NUMA: machines whose memory is on several nodes, each next to some of the processors (PMAlloc).
//
// A zone of a pool is on one node, with its metadata. A thread takes blocks from zones of its node,
// and from others only when these have none and the pool cannot grow. A block of another node is
// freed in two phases: the free is recorded on the thread's own node, and a thread of the block's
// node takes many of them at once. A pool on a machine with one node knows nothing of this.
// Nothing of it is in the pool's format: an open decides anew (src/heap/numa.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "tenuto/abi.h"

namespace TENUTO_NS {

inline constexpr unsigned kNodesMax = 16;  // a machine with more is used as if it had so many

struct NumaOptions {
  // 0: the nodes of the machine that have processors (/sys/devices/system/node). 1: none; the pool
  // is used as on a machine with one node. Above: so many nodes are simulated, at most kNodesMax:
  // threads and zones are dealt out to them in turn, and no memory is bound. For tests.
  unsigned nodes = 0;
  // false: a block of another node is given back to its slab by each free. true: with
  // Consistency::log a plain free_from of such a block claims it later. A second word that leads to
  // the block, an error of the program, is then refused by the same thread alone, and counted
  // otherwise (NumaStats::frees_late).
  bool two_phase = true;
  // A thread that begins to write stays on the processors of its node: those of them that it may
  // use already. It stays there also when the pool is closed. Simulated nodes pin nothing.
  bool pin_threads = false;
  // Tells the node of the calling thread, from 0, instead of the processor that it runs on. Called
  // by any thread, often; must not call the pool. Empty: the system is asked.
  std::function<unsigned()> node_of_thread = {};
  // 0: the processors of the machine. Above: as if it had so many, at most 1024. For tests.
  unsigned cores = 0;
};

// What an access is to. Each counts one for each cache line, or lock, that it touches. Constant
// words, which every node keeps a copy of, count nothing; nor do blocks and destinations, which are
// the application's.
enum class NumaAccess : std::uint8_t {
  state,   // the bits in DRAM that tell which blocks are in use
  bits,    // the bits on media
  slabs,   // free blocks of slabs: the lock of an arena, a slab's counters, its free bits
  log,     // intents
  buffer,  // frees that another node recorded, and the log of these
};
inline constexpr std::size_t kNumaAccesses = 5;

constexpr const char* numa_access_name(NumaAccess a) {
  constexpr const char* kNames[] = {"state", "bits", "slabs", "log", "buffer"};
  return kNames[static_cast<std::size_t>(a)];
}

// Since the open. All 0 with one node. Accesses of extents and of the bookkeeping log, which the
// pool has one of, are not counted.
struct NumaStats {
  unsigned nodes = 1;
  bool simulated = false;
  std::array<std::uint64_t, kNumaAccesses> local{};   // by NumaAccess
  std::array<std::uint64_t, kNumaAccesses> remote{};  // to another node than the thread's
  std::array<std::uint64_t, kNodesMax> zones{};       // by node
  std::uint64_t frames_remote = 0;   // frames taken from another node: none was left
  std::uint64_t frees_recorded = 0;  // of blocks of another node
  std::uint64_t frees_waiting = 0;   // of these not yet taken
  std::uint64_t batches_taken = 0;   // by a thread of the blocks' node
  std::uint64_t batches_pushed = 0;  // by another one: too many waited, or the pool was full
  std::uint64_t frees_late = 0;      // recorded ones whose block turned out to be free already

  std::uint64_t local_all() const { return sum(local); }
  std::uint64_t remote_all() const { return sum(remote); }

 private:
  static std::uint64_t sum(const std::array<std::uint64_t, kNumaAccesses>& a) {
    std::uint64_t all = 0;
    for (const std::uint64_t n : a) all += n;
    return all;
  }
};

}  // namespace TENUTO_NS
