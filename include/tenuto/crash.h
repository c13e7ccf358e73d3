// The crash explorer. It runs a workload on a pool file, or on several at once. At every fence it
// lays out what a power cut at that point could leave. The caller's check recovers each such image
// and judges it. Needs the traced build of the library (tenuto_traced). tests/support/README.md
// shows how to write a test.
//
// What a crash may lose:
//   - Of each line, any tail of the stores since its last fenced flush. Lines are independent,
//     whether they are in one file or in two.
//   - A store tears into aligned 8-byte words.
//   - Stores to one line may survive in any order, unless a release store, a flush or a fence
//     separates them. (A compiler may emit them in any order.)
// If there are more than product_max combinations, the explorer tries the most suspicious ones and
// then random ones. A run is repeatable: the seed determines it, if it determines the workload.
#pragma once

// A program with an explorer of its own may want the types alone.
#if !defined(TENUTO_TRACED) && !defined(TENUTO_CRASH_TYPES)
#error "tenuto/crash.h needs the traced library: tenuto::tenuto_traced, or pkg-config tenuto_traced"
#endif

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

inline constexpr std::size_t kCrashFilesMax = 4;  // of CrashOptions::files

// The path of pool file `file` of a run, if that of file 0 is `path`: PATH, PATH.1, PATH.2, ...
inline std::string crash_path(const std::string& path, std::size_t file) {
  return file == 0 ? path : path + '.' + std::to_string(file);
}

// Counts of one named fence, also from recovery of crash states. Forked workers share the memory.
struct FenceStats {
  char first[80];
  char then[80];
  std::uint64_t passed;       // times it was executed
  std::uint64_t explored;     // times crash states before it were checked
  std::uint64_t empty;        // times nothing had been flushed for it
  std::uint64_t lines;        // lines flushed for it, in total
  std::uint32_t flushes_max;  // flush calls before it, the maximum of all times
};

// Flushes and fences of the calling thread since it began, in any pool.
struct TraceCounts {
  std::uint64_t flushes = 0;  // calls
  std::uint64_t lines = 0;
  std::uint64_t fences = 0;
};
TraceCounts trace_counts();

// A mistake that the recorder makes: one fence, or one flush before it, does nothing.
struct Mutation {
  enum class Kind : std::uint8_t { none, drop_fence, drop_flush };
  Kind kind = Kind::none;
  std::string first, then;  // the names of the fence
  std::uint32_t nth = 0;    // drop_flush: the flush call since the thread's previous fence, from 0

  std::string text() const;
};

// Switches a planted mistake of the code on (TENUTO_PLANT in src/pm/plant.h), and all off. The
// environment variable TENUTO_PLANT (names separated by commas) switches mistakes on from the start
// of the process.
void plant(const std::string& name);
void unplant_all();
// How often the code passed the mistake `name` while it was on, also in recovery of crash states.
std::uint64_t plant_visits(const std::string& name);

// What a crash keeps of the stores that are not durable yet.
enum class CrashMode : std::uint8_t {
  adr,   // a prefix of each line's stores: a power cut that loses the CPU's caches
  page,  // a prefix of each 512-byte sector's stores: a crash of the operating system that loses
         // the page cache, with pages torn where disks tear them
  eadr,  // a prefix of all stores together: a power cut, and the machine flushes the caches
  kill,  // the same, and all stores before the last change of the model: the process is killed
};
const char* crash_mode_name(CrashMode mode);

struct CrashOptions {
  std::uint64_t seed = 1;
  CrashMode mode = CrashMode::adr;
  std::size_t product_max = 2000;            // up to so many states of a crash point: all are tried
  std::size_t samples_max = 200;             // if there are more: so many random ones
  std::size_t findings_max = 3;              // stop after so many different findings
  std::chrono::milliseconds timeout{10000};  // for one recovery and check
  std::uint32_t recovery_depth = 2;  // nested crashes: inside recovery, inside the next one, ...
  std::size_t recovery_states_max = 20;  // such crashes of one state; half as many a level deeper
  bool recover_twice = true;             // check each image again after the check has closed it
  bool reorder_stores = true;  // see above; false: program order within a line. Mode adr only
  // How many pool files there are, up to kCrashFilesMax. A crash hits all at the same moment, and a
  // line of one may survive without those of the others. File i has the path crash_path(path, i).
  std::size_t files = 1;
  // The check judges only by invoked(), acknowledged() and constants, and by nothing that the
  // workload changes. Then one worker process serves all crash points, which saves a fork for each.
  bool counted_model = false;
  // Locked instructions (also those of mutexes) complete the thread's earlier flushes, as on x86.
  // For threads that hand over lines without a fence under such a contract.
  bool locked_instructions_fence = false;
  std::uint32_t switch_every = 0;  // events between switches of interleave(); 0: the seed chooses
  // So many percent of the fences are crashed at; the first two of each name always, unless it is
  // 0. Crashes at acknowledgements, at named crash points and at the end are tried in any case.
  std::uint32_t points_percent = 100;
  bool minimise = true;  // reduce each finding to the lines that matter
  // Report lines that the workload has stored to and not flushed when others may rely on them: at a
  // fence behind a publish(), a commit or an acknowledgement (CrashResult::forgotten).
  bool lint = true;
  std::string directory = "/dev/shm";  // for the pool and the images
  // The folder for findings. NAME.case runs again by TENUTO_CRASH_REPLAY=NAME.case or `tenuto crash
  // replay NAME.case`. NAME.image is the pool file before its recovery, NAME.1.image that of file
  // 1, and so on. Empty: the folder in the environment variable TENUTO_CRASH_SAVE, or none.
  std::string save_to = {};
  bool progress = false;                 // a progress line on stderr
  Mutation mutation = {};                // a mistake to make, to check the check
  std::vector<std::string> plants = {};  // planted mistakes to switch on during the run
};

// A crash image to be judged. The model objects that a check captures by reference are as they were
// at the crash.
class CrashImage {
 public:
  const std::string& path() const { return path_; }
  // With several files the check opens those that it needs, in any order. They have the names of
  // the workload's files, in another folder.
  std::string path(std::size_t file) const { return crash_path(path_, file); }
  // The image in memory, for structures that need no open. It is mapped once for all checks. Stores
  // of a check are undone, like those of recovery. A check must not use it and open path(file) as
  // well.
  std::span<std::byte> data(std::size_t file = 0) const;
  // The operations that had begun and those that had completed. If the image shows n operations,
  // then acknowledged() <= n <= invoked().
  std::uint64_t invoked() const { return invoked_; }
  std::uint64_t acknowledged() const { return acknowledged_; }
  // Ends the part of a check in which crashes inside recovery are tried. Call it after the open if
  // the check goes on to change the pool. The check is then not repeated on the image that it left.
  void recovered() const;

 private:
  friend class pm::CrashWorker;
  std::string path_;
  std::uint64_t invoked_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::function<void()> on_recovered_;
  std::function<std::span<std::byte>(std::size_t file)> data_;
};

// The interface of the workload. Any of its threads may make all calls.
class CrashContext {
 public:
  const std::string& path() const;
  std::string path(std::size_t file) const { return crash_path(path(), file); }
  // An operation begins. From now on its old and its new outcome are both right.
  void invoke();
  // All operations that have begun are complete. Their effects must survive from now on.
  void ack();
  // Changes the workload's own model while no crash can happen. REQUIRES: body does not touch the
  // pool.
  void update(const std::function<void()>& body);
  // A crash may happen here. `name` is for the report.
  void crash_point(const char* name);
  // Runs each body in its own thread, one at a time. The seed chooses every switch; switches are at
  // stores to the pool, atomic operations, flushes, fences and locks. A seed repeats its schedule,
  // if the threads wait for each other only with mutexes or loops on atomics.
  void interleave(const std::vector<std::function<void()>>& bodies);

 private:
  friend class pm::CrashExplorer;
  explicit CrashContext(pm::CrashExplorer& e) : explorer_(e) {}
  pm::CrashExplorer& explorer_;
};

struct LostLine {
  std::uint64_t offset;    // in the pool file
  std::size_t stores;      // stores that could be lost
  std::size_t lost;        // stores that were lost
  bool flushed;            // all lost stores were flushed, and not fenced
  std::string first_lost;  // source place of the first lost store, with its callers; may be empty
  std::string last_lost;   // that of the last one, if it is another
  std::size_t file = 0;    // the number of the pool file
};

// A line without whose survival the check does not fail.
struct KeptLine {
  std::uint64_t offset;  // in the pool file
  std::string last;      // source place of the latest store to it
  std::size_t file = 0;
};

struct CrashFinding {
  std::string where;           // crash before fence("a", "b")
  std::string recovery;        // what failed: "recovery", "second recovery", "crash inside ..."
  std::string what;            // the text of the check, or how it died
  std::vector<LostLine> lost;  // the failure needs the loss of these lines, and of no others
  std::vector<KeptLine> kept;  // unfenced lines that must survive for the failure, and no others
  std::uint64_t point = 0;     // TENUTO_CRASH_REPLAY=point:state runs only this crash
  std::uint64_t state = 0;
  std::string saved;      // the case file, or empty
  std::size_t files = 1;  // CrashOptions::files; text() names a line's file if there are several
  std::string text() const;
};

// Stores of the workload that were not durable when they had to be. They are found without a crash.
struct ForgottenStore {
  std::string when;    // what relied on them: fence("a", "b") after publish in ..., a commit, ...
  std::string place;   // the store, with its callers
  std::uint64_t line;  // offset of the first such line
  std::uint64_t count;
  std::size_t file = 0;   // of the first such line
  std::size_t files = 1;  // as in CrashFinding
};

// Flushes at one source place that could be saved.
struct WastedFlush {
  std::string place;
  std::uint64_t lines;    // lines flushed there
  std::uint64_t clean;    // of these: no store since their last flush
  std::uint64_t reflush;  // of these: flushed before under the same fence, and changed in between
};

struct CrashResult {
  std::uint64_t seed = 0;
  std::vector<CrashFinding> findings;
  std::vector<FenceStats> fences;
  std::vector<ForgottenStore> forgotten;  // see CrashOptions::lint
  std::vector<WastedFlush> wasted;        // the most wasteful first; they cost time, not data
  std::uint64_t points = 0;               // crash points explored
  std::uint64_t states = 0;               // crash states at these points
  std::uint64_t unique = 0;               // of these: states that differ in image or model
  std::uint64_t recovery_states = 0;      // different images of crashes inside recovery
  std::uint64_t checks = 0;               // recoveries that were judged
  double seconds = 0;

  bool ok() const { return findings.empty() && forgotten.empty(); }
  // "first | then" of the named fences that the run passed without trying a crash there.
  std::vector<std::string> unexplored() const;
  std::size_t fences_passed() const;
  std::size_t fences_explored() const;
  bool explored(const std::string& first, const std::string& then) const;
  std::string text() const;
  // Fences and flushes that the workload does not need.
  std::string cost_text() const;
};

struct MutantOutcome {
  Mutation mutation;
  bool found = false;
  std::string finding;
};

struct MutantReport {
  CrashResult sound;  // the run without a mutation; unless it is ok(), no mutant is tried
  std::vector<MutantOutcome> mutants;

  // The mutants that were not found, for example `without fence("a", "b")`; also the finding of the
  // sound run, if it has one.
  std::vector<std::string> survivors() const;
  std::string text() const;

  auto begin() const { return mutants.begin(); }
  auto end() const { return mutants.end(); }
};

// Maps a whole file and records the stores to it, for structures that use their own file instead of
// a pool. An explored file may have one mapping at a time. Aborts the process on failure.
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
  // Makes the pool file, or all CrashOptions::files of them, by crash_path(path, file). What they
  // hold is durable afterwards.
  using Setup = std::function<void(const std::string& path)>;
  // Works on the pool. It may run several times, so it must reset its model first.
  using Workload = std::function<void(CrashContext&)>;
  // Opens the pool by its path, which recovers it, and compares it with the model. Returns what is
  // wrong, or an empty string. It runs in a forked child, and must not change the model.
  using Check = std::function<std::string(const CrashImage&)>;

  explicit CrashRunner(CrashOptions options = {}) : options_(std::move(options)) {}

  CrashResult run(const Setup& setup, const Workload& workload, const Check& check) const;

  // Runs once for every fence and every flush before it, without that fence or flush. If a loss is
  // not found, the fence or flush is needless, or the check does not see it.
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

// The main function of a program that explores its own workloads. It reads the command line (--help
// lists it), runs the tests, and shows progress, coverage and findings. In CrashTest::options it
// replaces seed, mode, recovery_depth, points_percent, findings_max, lint, directory, save_to and
// progress, also by its defaults. Returns 0: no finding, 1: a finding, 2: a wrong command line.
int crash_main(int argc, char** argv, const std::vector<CrashTest>& tests);

}  // namespace TENUTO_NS
