// The transaction of a thread: libpmemobj's stages and levels over one transaction of the engine.
//
//   NONE --begin--> WORK --commit--> ONCOMMIT --process--> FINALLY --process--> NONE
//                    |                                        ^
//                    +---abort-----> ONABORT -----process-----+
//
// A nested begin adds a level and nothing else. The engine's transaction begins with the first
// level and commits or rolls back with it. tx_end of a level that was aborted aborts the next one.
// abort jumps to the level's jump buffer, if it has one, so no caller of abort_level may have
// anything to destroy.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "tools/pmemobj/pools.h"
#include "tx/txn.h"

namespace TENUTO_NS::pmemobj {

struct Level {
  std::jmp_buf env;  // only if it jumps
  bool jumps;
  pobj_tx_failure_behavior on_failure;

  Level(std::jmp_buf to, pobj_tx_failure_behavior behavior)
      : jumps(to != nullptr), on_failure(behavior) {
    if (jumps) std::memcpy(env, to, sizeof env);
  }
};

static_assert(std::is_trivially_destructible_v<Level>);  // abort_level may jump

// The outermost level needs no memory, so that a begin which has none can fail as an abort.
class Levels {
 public:
  void push(std::jmp_buf env, pobj_tx_failure_behavior behavior) {
    if (first_) {
      inner_.emplace_back(env, behavior);
    } else {
      first_.emplace(env, behavior);
    }
  }
  void pop() {
    if (inner_.empty()) {
      first_.reset();
    } else {
      inner_.pop_back();
    }
  }
  Level& back() { return inner_.empty() ? *first_ : inner_.back(); }
  bool empty() const { return !first_; }
  bool one() const { return first_ && inner_.empty(); }

 private:
  std::optional<Level> first_;
  std::vector<Level> inner_;
};

struct TxLock {
  pobj_tx_param type;
  void* lock;
};

struct ValueToSet {
  std::uint64_t* at;
  std::uint64_t value;
};

struct TxState {
  OpenPool* pool = nullptr;  // null: the stage is NONE
  tx::Txn* txn = nullptr;    // null before it began, and after its commit or rollback
  std::uint64_t turn = 0;    // of txn
  pobj_tx_stage stage = TX_STAGE_NONE;
  int last_error = 0;
  pmemobj_tx_callback callback = nullptr;
  void* callback_arg = nullptr;
  void* user_data = nullptr;
  Levels levels;
  std::vector<TxLock> locks;
  std::vector<ValueToSet> values;  // of published actions: stored by the commit

  ~TxState();  // the thread ends: rolls back, then releases the locks
  bool outermost() const { return levels.one(); }
};

TxState& tx_state();

// For calls that must be made in the stage WORK. Ends the process with a message in another stage.
TxState& tx_in_work(const char* call);

// Aborts the innermost level with this error. Does not return if it has a jump buffer.
void abort_level(TxState& state, int error);

// A call of a transaction failed: aborts the level, or only tells, as flags (POBJ_FLAG_TX_NO_ABORT)
// and pmemobj_tx_set_failure_behavior say. Returns the error, if it returns.
int fail_in_tx(TxState& state, int error, std::uint64_t flags);

// Locks until the end of the outermost level. Returns 0 or errno.
int lock_for_tx(TxState& state, pobj_tx_param type, void* lock);

}  // namespace TENUTO_NS::pmemobj
