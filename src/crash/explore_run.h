// One run of the explorer. It watches the workload's durability, has a worker judge the states of
// each crash point, and turns the worker's report into findings. Made by CrashRunner::run.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "crash/explore_case.h"
#include "crash/explore_files.h"
#include "crash/explore_server.h"
#include "crash/explore_states.h"
#include "crash/explore_worker.h"
#include "tenuto/abi.h"
#include "tenuto/crash.h"

namespace TENUTO_NS::pm {

class CrashExplorer final : public TraceObserver {
 public:
  // REQUIRES: the directory exists and is the run's own.
  CrashExplorer(const CrashOptions& options, std::string directory);
  ~CrashExplorer();
  CrashExplorer(const CrashExplorer&) = delete;
  CrashExplorer& operator=(const CrashExplorer&) = delete;

  CrashResult run(const CrashRunner::Setup& setup, const CrashRunner::Workload& workload,
                  const CrashRunner::Check& check);
  // Runs the workload without crashes and counts its crash points, for the progress of run().
  void expect_points_of(const CrashRunner::Setup& setup, const CrashRunner::Workload& workload);

  // For CrashContext.
  const std::string& pool_path() const { return pool_; }
  void before_change();
  void invoke();
  void ack();
  void update(const std::function<void()>& body);
  void crash_point(const char* name);
  void interleave(const std::vector<std::function<void()>>& bodies);

 private:
  // A crash point with its crash states.
  struct CrashPoint {
    std::vector<const LineLog*> logs;
    std::vector<LineChoices> lines;
    std::vector<CrashState> states;
    std::string where;
  };
  // How one worker ended: well, or with a bad state and the reason.
  struct Verdict {
    bool bad = false;
    std::size_t at = 0;  // in WorkerJob::order
    std::string recovery;
    std::string what;
    CrashChain chain{};
  };

  void before_fence(const char* first, const char* then) override;
  void floor_raised(const LineLog& log, const LineWords& old_floor) override;
  const std::byte* resized(std::size_t file, std::uint64_t bytes) override;

  void explore(std::string where, const char* first, const char* then);
  bool chosen(const char* first, const char* then);
  void judge(CrashPoint& m, const char* first, const char* then);
  WorkerJob job_for(const CrashPoint& m, std::vector<std::uint64_t> order) const;
  Verdict run_worker(const WorkerJob& job);
  [[noreturn]] void be_worker(const std::function<void()>& body);
  std::optional<int> judge_in_child(const WorkerJob& job);
  std::string worker_stderr() const;
  void minimise(CrashPoint& m, CrashState& state, Verdict& verdict);
  std::vector<std::uint32_t> lines_that_matter(CrashPoint& m, const CrashState& state);
  bool still_bad(CrashPoint& m, const CrashState& state, Verdict& verdict);
  void save(CrashFinding& f, const CrashPoint& m, const CrashState& state, const Verdict& v);
  void show_progress();
  void tell_coverage() const;
  void add_finding(CrashPoint& m, std::uint64_t index, const Verdict& first_verdict);
  void add_lint();
  void compare_memory(const std::string& where);
  void compare_mapped(const std::string& where, std::size_t file);
  void remove_pools() const;
  void add_unseen(const std::string& where, const std::string& what, std::uint64_t line);
  std::uint64_t model_hash() const;

  const CrashOptions options_;
  const std::string directory_;
  const std::string pool_;  // the first file
  // The images have the names of the pool files, in a folder of their own: so a pool that stores
  // the name of another one in its folder finds that one's image.
  const std::string images_;
  const CrashRunner::Check* check_ = nullptr;
  std::optional<ExploreFiles> image_;
  SeenStates seen_;
  CrashServer server_;
  WorkerReport* report_ = nullptr;  // shared with workers
  int stderr_fd_ = -1;              // where workers write

  std::uint64_t image_hash_ = 0;  // of the durable content, relative to the start
  std::uint64_t invoked_ = 0, acknowledged_ = 0, changes_ = 0;
  bool model_told_ = false;  // the workload reports when its model changes
  std::uint64_t point_ = 0;
  std::uint64_t order_before_ = 0;  // order of the last store before the previous crash point
  bool stopped_ = false;
  std::uint64_t repeats_ = 0;
  std::optional<CrashCase> replay_;
  std::uint64_t run_ = 0;  // number of this exploration in the process, from 1
  std::uint64_t points_expected_ = 0;
  bool dry_ = false;  // only count crash points
  std::chrono::steady_clock::time_point begin_, shown_;
  ExploreRng choice_rng_;
  std::set<std::string> signatures_;
  std::set<std::uint64_t> unseen_told_;
  CrashResult result_;
};

// Call chains of this program as text, one for each site, as far as debug information has them.
std::vector<std::string> source_places(const std::vector<TraceSite>& sites);

}  // namespace TENUTO_NS::pm
