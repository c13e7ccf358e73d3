// The kill test. A process works on a pool with several threads and is killed with SIGKILL at
// random times, also during recovery. Another process, which is never killed, checks the contents
// after each reopen. Used by `tenuto crash kill`, bench/main_job and tests/kill_stress.
//
// kill_loop (crash_kill.cc) forks, kills and counts. crash_kill_child works on the pool and reports
// its contents. crash_kill_judge compares them with the model. crash_kill_state.h is the shared
// memory between them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "error.h"
#include "tenuto/pool_options.h"

namespace tenuto::tool {

// What threads work on. Each value is a bit.
enum KillEngine : std::uint32_t {
  kEngineKv = 1,       // put, erase, get on keys that all threads share; compactions
  kEngineBatch = 2,    // atomic batches and transactions on the same keys
  kEngineObjects = 4,  // transactions: balances with a constant sum, chains of blocks
  kEngineHeap = 8,     // malloc_to, free_from, reserve, publish, cancel
};
inline constexpr std::uint32_t kEngineAll = 15;

enum class KillMix : std::uint8_t {
  uniform,  // all keys equally often
  hot,      // nearly all operations on a few keys
  fill,     // mostly puts for some kills, then mostly erases: growth and reuse
  long_values,
  ycsb_a,  // first each key once, then half gets and half puts, some keys much oftener than others
};

// The keys of a kill test and their values. A value follows from its key and a version, so a torn
// or foreign value is recognised. Versions rise from 1. Any thread may call any function.
class KillRecords {
 public:
  virtual ~KillRecords() = default;
  virtual std::uint32_t count() const = 0;
  virtual bool named(std::uint32_t key) const = 0;  // is in the named collection
  virtual std::string key(std::uint32_t key) const = 0;
  virtual void value(std::uint32_t key, std::uint64_t version, std::string& out) const = 0;
  // 0 if the value is recognisably not one of the key's. Otherwise the caller compares it.
  virtual std::uint64_t version(std::string_view key, std::string_view value) const = 0;
};

// Deliberate bugs in the child's own wrappers, to test the judge. For tests only.
enum class KillBug : std::uint8_t {
  none,
  forget_put,     // a put is acknowledged and not done
  early_ack,      // a put is acknowledged before it is done
  stale_read,     // a get returns the value that its thread saw last
  torn_batch,     // a batch is written entry by entry
  parted_batch,   // a batch is split by collection
  lost_block,     // a block is detached without being freed
  unlogged_store  // a transaction stores to a word that was not added
};

struct KillOptions {
  std::string directory = "/dev/shm";  // for the pools
  Medium medium = Medium::automatic;
  std::string findings = ".";  // where a finding's folder is made
  std::uint64_t kills = 400;   // 0: no limit
  double seconds = 0;          // 0: no limit
  std::uint64_t seed = 1;
  std::vector<std::uint32_t> threads = {1, 2, 4};
  std::uint32_t engines = kEngineAll;
  const KillRecords* records = nullptr;   // null: numbered ones of many lengths
  std::uint32_t log_operations = 20'000;  // of a thread between two kills; then it waits
  std::uint64_t work_us_max = 15'000;     // of a child; its first two of a pool keep to the default
  std::uint64_t long_work_us_max = 80'000;  // one time in ten
  std::vector<KillMix> mixes = {KillMix::uniform, KillMix::hot, KillMix::fill,
                                KillMix::long_values};
  std::uint64_t pool_bytes = 8u << 20;
  std::uint64_t pool_bytes_max = 64u << 20;
  std::uint32_t kills_a_pool = 150;  // then a new pool is made
  std::uint32_t findings_max = 1;    // then the test stops
  bool keep_images = true;           // copy the pool as each kill left it
  KillBug bug = KillBug::none;
};

struct KillTotals {
  std::uint64_t kills = 0;
  std::uint64_t in_recovery = 0;  // killed before the store was open
  std::uint64_t in_check = 0;     // killed while the child looked through the open store
  std::uint64_t pools = 0;
  std::uint64_t key_operations = 0;
  std::uint64_t batches = 0;             // including transactions on keys
  std::uint64_t key_transactions = 0;    // acknowledged
  std::uint64_t compactions = 0;         // started; a kill interrupts many
  std::uint64_t pending_operations = 0;  // interrupted by a kill
  std::uint64_t steps = 0;               // transactions on objects and heap operations
  std::uint64_t full = 0;                // refused with full or conflict
  std::uint64_t writes = 0;              // of keys, acknowledged
  std::uint64_t kept_writes = 0;         // interrupted puts whose value is there
  std::uint64_t sights = 0;              // complete comparisons
  std::uint64_t opens = 0;
  std::uint64_t unclean_opens = 0;
  std::uint64_t rolled_back = 0;
  std::uint64_t leaked_frames = 0;
  std::uint64_t morphed_slabs = 0;  // sum over all looks
  double recovery_ms_mean = 0;
  double recovery_ms_max = 0;
  double seconds = 0;
};

// What a child found that was opened after one kill or more, and that the judge found correct.
struct KillLook {
  std::uint64_t kills = 0;  // since the last look
  KillTotals totals;        // so far
  double worked_seconds = 0;
  std::uint64_t writes = 0, kept_writes = 0;  // as in KillTotals, since the last look
  std::uint64_t records = 0;                  // keys that are there
  double open_ms = 0, recovery_ms = 0, rebuild_ms = 0;
  double look_ms = 0;  // every key by get and by scan, every object, validate()
};

struct KillFinding {
  std::uint64_t kill = 0;
  std::string text;
  std::string folder;  // pool-at-kill.tnt, pool.tnt, finding.txt; empty if nothing could be saved
};

struct KillReport {
  KillTotals totals;
  std::vector<KillFinding> findings;
  Error error;  // why the test could not continue; this is no finding
  bool stopped = false;
};

// Called repeatedly with the totals so far. Returning false stops the test.
using KillProgress = std::function<bool(const KillTotals&, std::size_t findings)>;
using KillLooked = std::function<void(const KillLook&)>;

KillReport kill_loop(const KillOptions& options, const KillProgress& progress = {},
                     const KillLooked& looked = {});

// "kv,batch" to bits, and bits to names. parse_kill_engines returns 0 for an invalid list.
std::uint32_t parse_kill_engines(std::string_view names);
std::string kill_engine_names(std::uint32_t engines);
const char* kill_mix_name(KillMix mix);

}  // namespace tenuto::tool
