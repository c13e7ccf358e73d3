// The crash explorer: runs a workload on a pool file, and at every fence asks what a power cut at
// that moment could leave behind. Each such image is recovered and judged by the caller's check.
// Needs the traced build of the library (tenuto_traced); how to write a test with it stands in
// tests/support/README.md.
//
// What may be lost: of every line, any tail of the stores since its last fenced flush; lines are
// independent of each other; a store tears into aligned 8-byte words; stores of one line that no
// release store, flush or fence separates may survive in any order (a compiler may emit them so).
// When there are more combinations than product_max, the likely culprits are tried and then random
// ones. Everything follows from the seed, as long as the workload does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenuto/abi.h"

namespace TENUTO_NS {

namespace pm {
class CrashExplorer;
class CrashWorker;
}  // namespace pm

// What one named fence saw, in recovery of crash states too. Lives in memory that forked workers
// share.
struct FenceStats {
  char first[80];
  char then[80];
  std::uint64_t passed;       // times it was executed
  std::uint64_t explored;     // times crash states before it were checked
  std::uint64_t empty;        // times nothing had been flushed for it
  std::uint64_t lines;        // lines flushed for it, all times together
  std::uint32_t flushes_max;  // flush calls before it, most at one time
};

// Flushes and fences of the calling thread since it began, watched pool or not.
struct TraceCounts {
  std::uint64_t flushes = 0;  // calls
  std::uint64_t lines = 0;
  std::uint64_t fences = 0;
};
TraceCounts trace_counts();

// A bug made by the recorder: one fence, or one flush before it, does nothing.
struct Mutation {
  enum class Kind : std::uint8_t { none, drop_fence, drop_flush };
  Kind kind = Kind::none;
  std::string first, then;  // the fence's names
  std::uint32_t nth = 0;    // drop_flush: which flush call since the thread's fence before, from 0

  std::string text() const;
};

// Switches planted bugs of the code on (TENUTO_PLANT in src/pm/plant.h) and off again; also in
// builds with debug checks, where the rest of this header is not. The environment variable
// TENUTO_PLANT, names separated by commas, is the same from the start of the process.
void plant(const std::string& name);
void unplant_all();
// How often the code asked for `name` while it was switched on, in recovery of crash states too.
std::uint64_t plant_visits(const std::string& name);

// What a crash keeps of stores that no fence has made durable yet.
enum class CrashMode : std::uint8_t {
  adr,   // of every line a prefix of its stores: a power cut that loses the CPU's caches
  page,  // of every 512-byte sector a prefix of its stores: an operating system's crash that loses
         // the page cache, pages being torn where disks tear them
  eadr,  // of all stores together a prefix: a power cut with caches that are flushed by the machine
};
const char* crash_mode_name(CrashMode mode);

struct CrashOptions {
  std::uint64_t seed = 1;
  CrashMode mode = CrashMode::adr;
  std::size_t product_max = 2000;            // states of one moment: all of them up to this many
  std::size_t samples_max = 200;             // random states where there are more
  std::size_t findings_max = 3;              // stop after so many different findings
  std::chrono::milliseconds timeout{10000};  // of one recovery and check
  std::uint32_t recovery_depth = 2;  // crashes inside recovery, inside recovery after these, ...
  std::size_t recovery_states_max = 20;  // of one state; half as many a level deeper
  bool recover_twice = true;             // check each image again after the check closed it
  bool reorder_stores = true;  // see above; false: program order within a line. Mode adr only
  // The check judges by invoked(), acknowledged() and constants, and by nothing that the workload
  // changes: then one worker process serves all moments, which saves a fork for each.
  bool counted_model = false;
  // Locked instructions (mutexes too) complete the thread's earlier flushes, as they do on x86.
  // For threads that hand over unfenced lines under such a contract.
  bool locked_instructions_fence = false;
  std::uint32_t switch_every = 0;  // events between switches of interleave(); 0: the seed chooses
  std::uint32_t points_percent =
      100;  // of the moments; each fence's first moments are always tried
  bool minimise = true;
  // Report lines that the workload stored to and did not flush before a fence behind a publish(),
  // a commit or an acknowledgement made others rely on them (CrashResult::forgotten).
  bool lint = true;
  std::string directory = "/dev/shm";  // where pool and image are put
  // Where each finding is saved: NAME.case, which TENUTO_CRASH_REPLAY=NAME.case or `tenuto crash
  // replay NAME.case` runs again, and NAME.image, the pool file before its recovery. Empty:
  // nowhere, or what the environment variable TENUTO_CRASH_SAVE says.
  std::string save_to = {};
  bool progress = false;                 // a line on stderr, for people
  Mutation mutation = {};                // a bug to make, for checking the check
  std::vector<std::string> plants = {};  // planted bugs to switch on during the run
};

// A crash image to be judged. The model objects that a check captures by reference are as they
// were at the moment of the crash.
class CrashImage {
 public:
  const std::string& path() const { return path_; }
  // The image in memory, for structures that need no opening: mapped once for all checks. What a
  // check stores there is put back as recovery's stores are. Not together with opening path().
  std::span<std::byte> data() const;
  // Operations begun and completed by then: `acknowledged <= n <= invoked` must hold for the n
  // operations that the image shows.
  std::uint64_t invoked() const { return invoked_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  // Ends the part of a check in which crashes inside recovery are tried. To be called after opening
  // when the check goes on to change the pool; the check is then not repeated on what it left.
  void recovered() const;

 private:
  friend class pm::CrashWorker;
  std::string path_;
  std::uint64_t invoked_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::function<void()> on_recovered_;
  std::function<std::span<std::byte>()> data_;
};

// The workload's side. All may be called from any of its threads.
class CrashContext {
 public:
  const std::string& path() const;
  // An operation begins; now both its old and its new outcome are fine.
  void invoke();
  // All operations begun are complete: their effects must survive from now on.
  void ack();
  // Changes the workload's own model while no crash can happen; body must not touch the pool.
  void update(const std::function<void()>& body);
  // A crash may happen here; `name` is for the report.
  void crash_point(const char* name);
  // Runs the bodies in threads of their own, one at a time, with every switch chosen by the seed:
  // at stores to the pool, atomic operations, flushes, fences and locks. Repeatable, as long as the
  // threads wait for each other only with mutexes or loops on atomics. Other seeds, other
  // schedules.
  void interleave(const std::vector<std::function<void()>>& bodies);

 private:
  friend class pm::CrashExplorer;
  explicit CrashContext(pm::CrashExplorer& e) : explorer_(e) {}
  pm::CrashExplorer& explorer_;
};

struct LostLine {
  std::uint64_t offset;    // in the pool file
  std::size_t stores;      // that could be lost
  std::size_t lost;        // that were
  bool flushed;            // all of these are flushed and only wait for a fence
  std::string first_lost;  // source place of the first of them, with its callers; may be empty
  std::string last_lost;   // of the last one, if that is another
};

// A line that must have survived for the check to fail.
struct KeptLine {
  std::uint64_t offset;  // in the pool file
  std::string last;      // source place of the latest store to it
};

struct CrashFinding {
  std::string where;     // crash before fence("a", "b")
  std::string recovery;  // what went wrong when: "recovery", "second recovery", "crash inside ..."
  std::string what;      // the check's text, or how it died
  std::vector<LostLine> lost;  // persisting any other line does not help
  std::vector<KeptLine> kept;  // of what no fence had made durable; losing any other does not help
  std::uint64_t point = 0;     // TENUTO_CRASH_REPLAY=point:state runs only this one
  std::uint64_t state = 0;
  std::string saved;  // the case file, or empty
  std::string text() const;
};

// Stores of the workload that were not made durable when they had to be, found without a crash.
struct ForgottenStore {
  std::string when;    // what relied on them: fence("a", "b") after publish in ..., a commit, ...
  std::string place;   // the store, with its callers
  std::uint64_t line;  // offset of the first such line
  std::uint64_t count;
};

// Flushes of one place that did nothing: of lines without a store since they were last flushed.
struct WastedFlush {
  std::string place;
  std::uint64_t lines;    // flushed there
  std::uint64_t clean;    // of them unchanged since the last flush
  std::uint64_t reflush;  // of them flushed before under the same fence, and changed in between
};

struct CrashResult {
  std::uint64_t seed = 0;
  std::vector<CrashFinding> findings;
  std::vector<FenceStats> fences;
  std::vector<ForgottenStore> forgotten;  // see CrashOptions::lint
  std::vector<WastedFlush> wasted;        // the most wasteful first; these cost time, not data
  std::uint64_t points = 0;               // moments explored
  std::uint64_t states = 0;               // crash states there
  std::uint64_t unique = 0;               // of them different in image or model
  std::uint64_t recovery_states = 0;      // different images of crashes inside recovery
  std::uint64_t checks = 0;               // recoveries that were judged
  double seconds = 0;

  bool ok() const { return findings.empty() && forgotten.empty(); }
  // "first | then" of named fences passed before which no crash was tried; empty when all were.
  std::vector<std::string> unexplored() const;
  std::size_t fences_passed() const;
  std::size_t fences_explored() const;
  bool explored(const std::string& first, const std::string& then) const;
  std::string text() const;
  // Fences and flushes that the workload could do without.
  std::string cost_text() const;
};

struct MutantOutcome {
  Mutation mutation;
  bool found = false;
  std::string finding;
};

struct MutantReport {
  CrashResult sound;  // the run without any mutation; with a finding there, no mutant was tried
  std::vector<MutantOutcome> mutants;

  // Mutants that were not found, e.g. `without fence("a", "b")`; the finding if the sound run has
  // one.
  std::vector<std::string> survivors() const;
  std::string text() const;

  auto begin() const { return mutants.begin(); }
  auto end() const { return mutants.end(); }
};

// Maps a whole file whose stores are to be recorded: for structures that live in a file of their
// own instead of a pool. One mapping of the explored file at a time. Aborts when it cannot.
class CrashMapping {
 public:
  explicit CrashMapping(const std::string& path);
  ~CrashMapping();
  CrashMapping(const CrashMapping&) = delete;
  CrashMapping& operator=(const CrashMapping&) = delete;
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  std::uint64_t bytes_;
};

class CrashRunner {
 public:
  // Makes the pool file; its state afterwards is durable.
  using Setup = std::function<void(const std::string& path)>;
  // Works on it. Starts its model anew, since it may be run several times.
  using Workload = std::function<void(CrashContext&)>;
  // Opens the pool by path, which recovers it, and compares with the model. Empty: all is well.
  // Runs in a forked child and must leave the model alone.
  using Check = std::function<std::string(const CrashImage&)>;

  explicit CrashRunner(CrashOptions options = {}) : options_(std::move(options)) {}

  CrashResult run(const Setup& setup, const Workload& workload, const Check& check) const;

  // Runs once for every fence passed and every flush before it, without that fence or flush. One
  // that is not found is needless, or the check is blind to it.
  MutantReport mutants(const Setup& setup, const Workload& workload, const Check& check) const;

 private:
  CrashOptions options_;
};

// One workload that a program offers to crash_main.
struct CrashTest {
  std::string name;
  std::string what;  // one line for --list
  CrashRunner::Setup setup;
  CrashRunner::Workload workload;
  CrashRunner::Check check;
  CrashOptions options = {};
};

// The main function of a program that explores its own workloads: reads the command line (--help
// lists it), runs the tests, shows progress, coverage and findings. Returns 0: nothing found, 1: a
// finding, 2: a wrong command line.
int crash_main(int argc, char** argv, const std::vector<CrashTest>& tests);

}  // namespace TENUTO_NS
