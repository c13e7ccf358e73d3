// A worker lays out crash states in the image file, one after another. It lets the check recover
// and judge each one, and puts the image back: only the lines that the state and the recovery
// wrote.
//
// It runs in a child process that is forked at the crash point. So the check sees the workload's
// model as it was then, and a recovery that crashes or hangs ends only the child. If the check
// needs no model but the counts (CrashOptions::counted_model), one child serves many crash points
// (explore_server.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "crash/explore_files.h"
#include "crash/explore_states.h"
#include "tenuto/abi.h"
#include "tenuto/crash.h"

namespace TENUTO_NS::pm {

// Hashes of the pairs (image, model) that were judged already, in memory shared with the workers.
// Parent and worker never use it at the same time. When it is full, everything counts as new.
//
// A hash table that doubles. A new worker has a page fault at each page that it looks at, so the
// table is no larger than it must be.
class SeenStates {
 public:
  SeenStates();
  ~SeenStates();
  SeenStates(const SeenStates&) = delete;
  SeenStates& operator=(const SeenStates&) = delete;
  bool insert(std::uint64_t hash);  // true if it was new
  bool contains(std::uint64_t hash) const { return *find(hash | 1) != 0; }

 private:
  struct Shared {
    std::size_t slots;  // a power of two
    std::size_t hashes;
    // Tables follow. The one of n slots is at [n, 2 * n). 0: empty.
    std::uint64_t* tables() { return reinterpret_cast<std::uint64_t*>(this + 1); }
  };
  // The slot that has the hash, or the empty one where it belongs.
  std::uint64_t* find(std::uint64_t hash) const;

  Shared* shared_;
};

enum class CrashPhase : std::uint32_t { recovery, second_recovery };

// Nested crashes inside recovery: each is in the recovery after the one before it. By the hashes
// of their images.
struct CrashChain {
  static constexpr std::size_t kMax = 4;
  std::uint64_t hash[kMax];
  std::uint32_t depth;
};

// A worker's report to its parent, in shared memory, so that it survives the worker.
struct WorkerReport {
  std::uint64_t state;  // index in WorkerJob::order of the state being judged
  CrashPhase phase;
  CrashChain chain;
  char fences[512];  // the fences of recovery before which the crashes of the chain were
  char text[2048];   // the check's verdict
  std::uint64_t checks;
  std::uint64_t recovery_states;
  bool complete;  // all states were judged and are fine
};

struct WorkerJob {
  const std::vector<LineChoices>* lines;
  const std::vector<CrashState>* states;
  std::vector<std::uint64_t> order;  // indices into states
  std::uint64_t image_hash;          // of the image with all lines old
  std::uint64_t model;
  bool know_seen;  // true: sample the crashes in recovery not judged yet; false: try all
  std::uint64_t invoked, acknowledged;
  CrashChain chain;  // if depth != 0: only these crashes in recovery
};

class CrashWorker final : public TraceObserver {
 public:
  CrashWorker(const CrashOptions& options, const CrashRunner::Check& check, ExploreFiles& image,
              SeenStates& seen, WorkerReport& report);

  // Called in the child. False at the first bad state, with the report filled.
  bool run(const WorkerJob& job);

 private:
  // An image that a crash inside recovery leaves: the lines that differ from the durable ones.
  struct RecoveryCrash {
    std::vector<std::pair<std::uint64_t, LineWords>> lines;  // by line
    std::uint64_t hash;
    FileLengths lengths;
    const char* first;
    const char* then;
    CrashChain chain;  // up to and with this crash
    std::string fences;
  };

  void before_fence(const char* first, const char* then) override;
  void floor_raised(const LineLog&, const LineWords&) override {}
  const std::byte* resized(std::size_t, std::uint64_t) override { return nullptr; }

  bool judge_state();
  bool judge_image();
  bool judge(CrashPhase phase, bool collect);
  void lay_out(const CrashState& state);
  void undo();
  void collect(const char* first, const char* then);
  bool wanted(std::uint64_t hash) const;
  // A line of a crash inside recovery, before that recovery.
  struct LineBefore {
    std::uint64_t hash = 0;  // line_hash
    std::uint32_t same = 0;  // the variant with the same words; as many as there are: none
    bool laid_out = false;
  };
  std::vector<LineBefore> lines_before(const std::vector<LineChoices>& lines) const;
  std::vector<std::pair<std::uint64_t, LineWords>> crash_lines(
      const std::vector<LineChoices>& lines, const std::vector<LineBefore>& before,
      const CrashState& state) const;
  LineWords laid_out(std::uint64_t line) const;

  const CrashOptions& options_;
  const CrashRunner::Check& check_;
  ExploreFiles& image_;
  SeenStates& seen_;
  WorkerReport& report_;

  std::vector<TraceFile> watched_;
  const WorkerJob* job_ = nullptr;
  CrashChain chain_{};  // crashes in recovery that led to the image laid out
  std::string fences_;  // WorkerReport::fences of chain_
  bool collecting_ = false;
  bool changed_ = false;          // the check called CrashImage::recovered()
  std::uint64_t state_hash_ = 0;  // of the image laid out
  std::vector<std::pair<std::uint64_t, LineWords>> laid_out_;  // by line
  FileLengths lengths_{};               // of the image laid out, where recovery made files longer
  std::vector<std::uint64_t> written_;  // lines that recoveries stored to
  std::vector<RecoveryCrash> crashes_;
  std::uint64_t crashes_met_ = 0;  // all candidates for crashes_, which is a sample
  std::uint64_t order_before_ = 0;
  ExploreRng rng_{0};
};

}  // namespace TENUTO_NS::pm
