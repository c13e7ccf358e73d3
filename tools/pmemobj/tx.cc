// Begin, commit, abort and end of transactions. See tx_state.h for the stages.
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"
#include "tools/pmemobj/tx_state.h"

namespace TENUTO_NS::pmemobj {

namespace {

// A callback is told of the outermost level alone.
void tell(const TxState& state) {
  if (state.callback == nullptr || !state.outermost()) return;
  state.callback(state.pool->handle(), state.stage, state.callback_arg);
}

bool in_work(const TxState& state) { return state.stage == TX_STAGE_WORK; }

void release_locks(TxState& state) {
  for (auto l = state.locks.rbegin(); l != state.locks.rend(); ++l) {
    PMEMobjpool* const pop = state.pool->handle();
    if (l->type == TX_PARAM_MUTEX) {
      pmemobj_mutex_unlock(pop, static_cast<PMEMmutex*>(l->lock));
    } else {
      pmemobj_rwlock_unlock(pop, static_cast<PMEMrwlock*>(l->lock));
    }
  }
  state.locks.clear();
}

void roll_back(TxState& state) {
  state.values.clear();
  if (state.txn != nullptr) std::exchange(state.txn, nullptr)->abort();
}

// What actions set becomes part of the transaction (pmemobj_tx_publish logged it).
Status store_values(TxState& state) {
  if (state.values.empty()) return Status::ok;
  TENUTO_TRY(state.txn->ready());
  for (const ValueToSet& v : state.values) __atomic_store_n(v.at, v.value, __ATOMIC_RELEASE);
  state.values.clear();
  return Status::ok;
}

Status commit_engine(TxState& state) {
  TENUTO_TRY(store_values(state));
  TENUTO_TRY(std::exchange(state.txn, nullptr)->commit());
  return acknowledge(*state.pool);
}

int push_level(TxState& state, OpenPool& pool, std::jmp_buf env) {
  const auto behavior =
      state.levels.empty() ? POBJ_TX_FAILURE_ABORT : state.levels.back().on_failure;
  state.levels.push(env, behavior);
  state.last_error = 0;
  if (!state.outermost()) return 0;
  state.pool = &pool;
  state.user_data = nullptr;
  state.txn = nullptr;
  const Status usable = pool.impl->usable();
  if (usable != Status::ok) return refuse(usable, "cannot begin a transaction");
  tx::Txn& txn = pool.impl->engine->mine();
  if (const Status s = txn.begin(); s != Status::ok) return refuse(s, "cannot begin a transaction");
  state.txn = &txn;
  state.turn = txn.turn();
  return 0;
}

// Nothing here needs destruction, because abort_level may jump.
int begin_failed(TxState& state, int error) {
  if (state.stage == TX_STAGE_NONE || state.txn == nullptr) {
    state.stage = TX_STAGE_ONABORT;  // it has not begun
    state.last_error = error;
    return error;
  }
  abort_level(state, error);
  return error;
}

void set_callback(TxState& state, pmemobj_tx_callback callback, void* arg) {
  if (state.callback != nullptr && (state.callback != callback || state.callback_arg != arg)) {
    stop("pmemobj_tx_begin: another callback is set for this transaction");
  }
  state.callback = callback;
  state.callback_arg = arg;
}

void no_longer_in_tx(TxState& state) {
  PMEMobjpool* const pop = state.pool->handle();
  release_locks(state);
  state.pool = nullptr;
  state.stage = TX_STAGE_NONE;
  const auto callback = std::exchange(state.callback, nullptr);
  void* const arg = std::exchange(state.callback_arg, nullptr);
  if (callback != nullptr) callback(pop, TX_STAGE_NONE, arg);
}

}  // namespace

TxState& tx_state() {
  static thread_local TxState state;
  return state;
}

TxState::~TxState() {
  if (pool == nullptr || pool->impl->usable() != Status::ok) return;
  // The engine may have rolled it back already, when the thread gave its lane back.
  if (txn != nullptr && txn->turn() == turn && txn->active()) roll_back(*this);
  release_locks(*this);
}

TxState& tx_in_work(const char* call) {
  TxState& state = tx_state();
  if (!in_work(state)) [[unlikely]] {
    if (state.pool == nullptr) stop("%s called outside of transaction", call);
    stop("%s called in invalid stage %d", call, static_cast<int>(state.stage));
  }
  return state;
}

void abort_level(TxState& state, int error) {
  if (error == 0) error = ECANCELED;
  state.stage = TX_STAGE_ONABORT;
  if (state.outermost()) roll_back(state);
  state.last_error = error;
  errno = error;
  tell(state);
  Level& level = state.levels.back();
  if (level.jumps) std::longjmp(level.env, error);
}

int fail_in_tx(TxState& state, int error, std::uint64_t flags) {
  const bool stays = (flags & POBJ_FLAG_TX_NO_ABORT) != 0 ||
                     state.levels.back().on_failure == POBJ_TX_FAILURE_RETURN;
  if (!stays) abort_level(state, error);
  errno = error;
  return error;
}

int lock_for_tx(TxState& state, pobj_tx_param type, void* lock) {
  for (const TxLock& l : state.locks) {
    if (l.lock == lock) return 0;
  }
  if (type != TX_PARAM_MUTEX && type != TX_PARAM_RWLOCK) {
    return refuse(EINVAL, "unrecognized lock type %d", static_cast<int>(type));
  }
  return without_throwing(ENOMEM, [&] {
    state.locks.push_back({type, lock});
    // The lock lives in an object that may be added. Other threads wait for it, so a rollback, also
    // that of a thread that ends, must leave its state alone.
    state.txn->keep_on_abort(lock, sizeof(PMEMmutex));
    PMEMobjpool* const pop = state.pool->handle();
    const int error = type == TX_PARAM_MUTEX
                          ? pmemobj_mutex_lock(pop, static_cast<PMEMmutex*>(lock))
                          : pmemobj_rwlock_wrlock(pop, static_cast<PMEMrwlock*>(lock));
    if (error == 0) return 0;
    state.locks.pop_back();
    return refuse(error, "a lock cannot be taken: %s", std::strerror(error));
  });
}

}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;
using tenuto::Status;

enum pobj_tx_stage pmemobj_tx_stage(void) { return tx_state().stage; }

int pmemobj_tx_errno(void) { return tx_state().last_error; }

int pmemobj_tx_begin(PMEMobjpool* pop, jmp_buf env, ...) {
  TxState& state = tx_state();
  if (state.stage != TX_STAGE_NONE && state.stage != TX_STAGE_WORK) {
    stop("pmemobj_tx_begin called in invalid stage %d", static_cast<int>(state.stage));
  }
  if (state.stage == TX_STAGE_WORK && state.pool->handle() != pop) {
    return fail_in_tx(state, refuse(EINVAL, "nested transaction for different pool"), 0);
  }
  OpenPool* const pool = state.stage == TX_STAGE_WORK ? state.pool : pool_of(pop);
  if (pool == nullptr) stop("pmemobj_tx_begin: %p is no open pool", static_cast<void*>(pop));
  int error = without_throwing(ENOMEM, [&] { return push_level(state, *pool, env); });
  if (error != 0) return begin_failed(state, error);
  state.stage = TX_STAGE_WORK;
  va_list params;
  va_start(params, env);
  while (error == 0) {
    const auto type = static_cast<pobj_tx_param>(va_arg(params, int));
    if (type == TX_PARAM_NONE) break;
    if (type == TX_PARAM_CB) {
      const auto callback = va_arg(params, pmemobj_tx_callback);
      set_callback(state, callback, va_arg(params, void*));
    } else {
      error = lock_for_tx(state, type, va_arg(params, void*));
    }
  }
  va_end(params);
  return error == 0 ? 0 : begin_failed(state, error);
}

void pmemobj_tx_abort(int errnum) {
  TxState& state = tx_in_work("pmemobj_tx_abort");
  refuse(errnum == 0 ? ECANCELED : errnum, "explicit transaction abort");
  abort_level(state, errnum);
}

void pmemobj_tx_commit(void) {
  TxState& state = tx_in_work("pmemobj_tx_commit");
  tell(state);
  if (state.outermost()) {
    const int error = without_throwing(ENOMEM, [&] {
      const Status s = commit_engine(state);
      return s == Status::ok ? 0 : refuse(s, "cannot commit");
    });
    if (error != 0) return abort_level(state, error);
  }
  state.stage = TX_STAGE_ONCOMMIT;
  tell(state);
}

int pmemobj_tx_end(void) {
  TxState& state = tx_state();
  if (state.stage == TX_STAGE_WORK) stop("pmemobj_tx_end called without pmemobj_tx_commit");
  if (state.pool == nullptr) stop("pmemobj_tx_end called without pmemobj_tx_begin");
  if (state.stage == TX_STAGE_ONCOMMIT || state.stage == TX_STAGE_ONABORT) {
    state.stage = TX_STAGE_FINALLY;
    tell(state);
  }
  const int error = state.last_error;
  state.levels.pop();
  if (state.levels.empty()) {
    no_longer_in_tx(state);
  } else {
    state.stage = TX_STAGE_WORK;
    if (error != 0) abort_level(state, error);
  }
  return error;
}

void pmemobj_tx_process(void) {
  TxState& state = tx_state();
  if (state.pool == nullptr) stop("pmemobj_tx_process called outside of transaction");
  switch (state.stage) {
    case TX_STAGE_WORK:
      pmemobj_tx_commit();
      break;
    case TX_STAGE_ONABORT:
    case TX_STAGE_ONCOMMIT:
      state.stage = TX_STAGE_FINALLY;
      tell(state);
      break;
    case TX_STAGE_FINALLY:
      state.stage = TX_STAGE_NONE;
      break;
    default:
      break;
  }
}

int pmemobj_tx_xlock(enum pobj_tx_param type, void* lockp, uint64_t flags) {
  TxState& state = tx_in_work("pmemobj_tx_xlock");
  int error = (flags & ~POBJ_XLOCK_VALID_FLAGS) == 0 ? 0 : refuse(EINVAL, "unknown flags");
  if (error == 0) error = lock_for_tx(state, type, lockp);
  return error == 0 ? 0 : fail_in_tx(state, error, flags);
}

int pmemobj_tx_lock(enum pobj_tx_param type, void* lockp) {
  return pmemobj_tx_xlock(type, lockp, 0);
}

namespace {
TxState& in_any_stage(const char* call) {
  TxState& state = tx_state();
  if (state.pool == nullptr) stop("%s called outside of transaction", call);
  return state;
}
}  // namespace

void pmemobj_tx_set_user_data(void* data) {
  in_any_stage("pmemobj_tx_set_user_data").user_data = data;
}

void* pmemobj_tx_get_user_data(void) { return in_any_stage("pmemobj_tx_get_user_data").user_data; }

void pmemobj_tx_set_failure_behavior(enum pobj_tx_failure_behavior behavior) {
  tx_in_work("pmemobj_tx_set_failure_behavior").levels.back().on_failure = behavior;
}

enum pobj_tx_failure_behavior pmemobj_tx_get_failure_behavior(void) {
  return tx_in_work("pmemobj_tx_get_failure_behavior").levels.back().on_failure;
}

void _pobj_debug_notice(const char*, const char*, int) {}
