// The kill test: a process works on a pool with several threads, is killed with SIGKILL at random
// moments (also while it recovers), and another process, which is never killed, judges after each
// reopen what is there. Behind `tenuto crash kill` and tests/kill_stress.
//
// kill_loop (crash_kill.cc) forks, kills and keeps score; crash_kill_child works and looks;
// crash_kill_judge compares; crash_kill_state.h is the memory between them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "error.h"

namespace tenuto::tool {

// What threads work with; the numbers are bits.
enum KillEngine : std::uint32_t {
  kEngineKv = 1,       // put, erase, get on keys that all threads share; compactions
  kEngineBatch = 2,    // atomic batches and transactions on the same keys
  kEngineObjects = 4,  // transactions: balances with a constant sum, chains of blocks
  kEngineHeap = 8,     // malloc_to, free_from, reserve, publish, cancel
};
inline constexpr std::uint32_t kEngineAll = 15;

enum class KillMix : std::uint8_t {
  uniform,  // all keys alike
  hot,      // nearly all on a few keys
  fill,     // for some kills mostly puts, then mostly erases: growth and reuse
  long_values,
};

// Bugs that the child's own wrappers make, to check the judge. For tests only.
enum class KillBug : std::uint8_t {
  none,
  forget_put,     // acknowledged and not done
  early_ack,      // acknowledged before it is done
  stale_read,     // a get answers with what its thread saw last
  torn_batch,     // entry by entry
  parted_batch,   // a batch for each collection
  lost_block,     // a block detached without being freed
  unlogged_store  // a store in a transaction that was not added
};

struct KillOptions {
  std::string directory = "/dev/shm";  // where pools lie
  std::string findings = ".";          // where a finding's folder is made
  std::uint64_t kills = 400;           // 0: until seconds are over
  double seconds = 0;                  // 0: until the kills are done
  std::uint64_t seed = 1;
  std::vector<std::uint32_t> threads = {1, 2, 4};
  std::uint32_t engines = kEngineAll;
  std::vector<KillMix> mixes = {KillMix::uniform, KillMix::hot, KillMix::fill,
                                KillMix::long_values};
  std::uint64_t pool_bytes = 8u << 20;
  std::uint64_t pool_bytes_max = 64u << 20;
  std::uint32_t kills_a_pool = 150;  // then a new one
  std::uint32_t findings_max = 1;    // then stop
  bool keep_images = true;           // a copy of the pool as each kill left it
  KillBug bug = KillBug::none;
};

struct KillTotals {
  std::uint64_t kills = 0;
  std::uint64_t in_recovery = 0;  // killed before the store was open
  std::uint64_t in_check = 0;     // while the opened store was looked through
  std::uint64_t pools = 0;
  std::uint64_t key_operations = 0;
  std::uint64_t batches = 0;             // transactions on keys included
  std::uint64_t key_transactions = 0;    // acknowledged
  std::uint64_t compactions = 0;         // begun: many do not end before the kill
  std::uint64_t pending_operations = 0;  // cut off by a kill
  std::uint64_t steps = 0;               // transactions and heap operations
  std::uint64_t full = 0;                // refused for want of room
  std::uint64_t sights = 0;              // times everything was compared
  std::uint64_t opens = 0;
  std::uint64_t unclean_opens = 0;
  std::uint64_t rolled_back = 0;
  std::uint64_t leaked_frames = 0;
  std::uint64_t morphed_slabs = 0;  // found by all the looks together
  double recovery_ms_mean = 0;
  double recovery_ms_max = 0;
  double seconds = 0;
};

struct KillFinding {
  std::uint64_t kill = 0;
  std::string text;
  std::string folder;  // pool-at-kill.tnt, pool.tnt, finding.txt; empty when nothing could be saved
};

struct KillReport {
  KillTotals totals;
  std::vector<KillFinding> findings;
  Error error;  // why the test could not go on; no finding
  bool stopped = false;
};

// Called now and then with the score so far; false stops the test.
using KillProgress = std::function<bool(const KillTotals&, std::size_t findings)>;

KillReport kill_loop(const KillOptions& options, const KillProgress& progress = {});

// "kv,batch" -> bits, and the names of bits; 0 for what is no list of engines.
std::uint32_t parse_kill_engines(std::string_view names);
std::string kill_engine_names(std::uint32_t engines);
const char* kill_mix_name(KillMix mix);

}  // namespace tenuto::tool
