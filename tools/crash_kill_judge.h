// The judge of a kill test. It compares what a child found after a reopen with what was announced
// and acknowledged before. It runs in the process that is never killed.
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
  KillJudge(KillState& state, KillTotals& totals)
      : state_(state), totals_(totals), ops_(state.key.size()) {}

  // Starts with a new pool: nothing was done yet.
  void forget_all();
  // Judges the child's sight. Returns an empty string if it is correct. The sight is then the new
  // model, and everything before it is forgotten. REQUIRES: the child waits or is dead.
  std::string judge();

 private:
  struct Batch {  // interrupted by the kill
    std::vector<std::uint32_t> keys;
    bool some_there = false;  // one of its values is the key's current value
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
  std::string short_key(std::uint32_t key) const;
  std::string judge_batches();
  void collect(std::uint32_t thread);
  bool key_allows(std::uint32_t key, std::uint32_t batches_in);
  std::vector<KeyOp> history(std::uint32_t key, std::uint32_t batches_in, bool free) const;

  KillState& state_;
  KillTotals& totals_;
  std::uint64_t crash_ = 0;  // ticket
  std::vector<Batch> batches_;
  std::vector<std::vector<LoggedOp>> ops_;           // by key
  std::unordered_map<std::uint64_t, bool> allowed_;  // cached results of key_allows
};

}  // namespace tenuto::tool
