// The judge of a kill test: compares what a child found after a reopen with what had been announced
// and acknowledged before. Runs in the process that is never killed.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "crash_kill.h"
#include "crash_kill_state.h"
#include "tenuto/crash_history.h"

namespace tenuto::tool {

class KillJudge {
 public:
  KillJudge(KillState& state, KillTotals& totals) : state_(state), totals_(totals) {}

  // A new pool: nothing was ever done.
  void forget_all();
  // Judges the child's sight. Empty when all is as it must be: then the sight is what must be there
  // from now on, and everything that happened before is forgotten. REQUIRES: the child waits or is
  // dead.
  std::string judge();

 private:
  struct Batch {  // cut off by the kill
    std::vector<std::uint32_t> keys;
    bool some_there = false;  // a value of it is what the key holds now
  };
  struct LoggedOp {
    KeyOp op;
    int batch;  // index in batches_, or -1
  };

  std::string judge_cells();
  std::string judge_step(const KillStep& step, std::vector<bool>& open);
  std::string judge_objects() const;
  std::string judge_keys();
  std::string judge_key(std::uint32_t key);
  std::string judge_batches();
  void collect(std::uint32_t thread);
  bool key_allows(std::uint32_t key, std::uint32_t batches_in);
  std::vector<KeyOp> history(std::uint32_t key, std::uint32_t batches_in, bool free) const;

  KillState& state_;
  KillTotals& totals_;
  std::uint64_t crash_ = 0;  // ticket
  std::vector<Batch> batches_;
  std::vector<LoggedOp> ops_[kKillKeys];
  std::unordered_map<std::uint64_t, bool> allowed_;  // key_allows, remembered
};

}  // namespace tenuto::tool
