// The end of a transaction, after its protocol (txn.cc): callbacks, locks, and what is kept for the
// next one. Also the end that a transaction has when its thread ends, and in a child of a fork.
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <type_traits>

#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "pm/trace.h"
#include "tx/engine.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

namespace {
constexpr std::size_t kFramesKept = 16;  // log frames of each area, between transactions
}

// In a child the transaction is the parent's. The child only unlocks its copies of the mutexes.
void Txn::let_go() {
  depth_ = 0;
  end_locks();
}

void Txn::end_locks() {
  turn_.store(turn_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  for (auto l = locks_.rbegin(); l != locks_.rend(); ++l) l->unlock(l->mutex, file_.forked());
  locks_.clear();
}

bool Txn::holds_lock(const void* mutex) const {
  return std::any_of(locks_.begin(), locks_.end(),
                     [mutex](const HeldLock& l) { return l.mutex == mutex; });
}

Status Txn::hold(void* mutex, LockMutex take, UnlockMutex unlock) {
  TENUTO_TRY(status());
  if (joint_ != nullptr ? joint_->holds(mutex) : holds_lock(mutex)) return Status::ok;
  if (locks_.size() == locks_.capacity()) locks_.reserve(2 * locks_.size() + 1);
  if (!take(mutex)) return Status::invalid_argument;
  locks_.push_back({mutex, unlock});
  return Status::ok;
}

namespace {

template <class Mutex>
bool lock_one(void* mutex) {
  static_cast<Mutex*>(mutex)->lock();
  return true;
}

// A mutex knows its owner by the number of a thread, which is another one in a child. Some look at
// it, and are made anew there.
template <class Mutex>
void unlock_one(void* mutex, bool forked) {
  if (forked && std::is_same_v<Mutex, std::shared_mutex>) {
    new (mutex) Mutex;
  } else {
    static_cast<Mutex*>(mutex)->unlock();
  }
}

bool lock_posix(void* mutex) {
  auto* const m = static_cast<pthread_mutex_t*>(mutex);
  const int error = ::pthread_mutex_lock(m);
  if (error == EOWNERDEAD) ::pthread_mutex_unlock(m);  // it is held, and of no use any more
  return error == 0;
}
void unlock_posix(void* mutex, bool forked) {
  auto* const m = static_cast<pthread_mutex_t*>(mutex);
  if (::pthread_mutex_unlock(m) != 0 && forked) ::pthread_mutex_init(m, nullptr);
}

}  // namespace

Status Txn::lock(std::mutex& m) { return hold(&m, &lock_one<std::mutex>, &unlock_one<std::mutex>); }
Status Txn::lock(std::shared_mutex& m) {
  return hold(&m, &lock_one<std::shared_mutex>, &unlock_one<std::shared_mutex>);
}
Status Txn::lock(pthread_mutex_t& m) { return hold(&m, &lock_posix, &unlock_posix); }

Status Txn::commit() {
  const pm::MetadataOpen rights;
  if (file_.forked()) {
    let_go();
    return Status::forked;
  }
  TENUTO_ASSERT(depth_ > 0);
  if (depth_ > 1) {
    depth_ -= 1;
    return aborted_ ? Status::aborted : field_error_;
  }
  if (joint_ != nullptr) {
    const std::shared_ptr<Joint> joint = joint_;
    const Status s = joint->commit();
    joint->end(s == Status::ok);
    return s;
  }
  Status refused = status();
  if (refused == Status::ok) refused = file_.writable();
  if (refused == Status::ok) {
    commit_outermost();
    refused = file_.bad_pages();
  } else if (!aborted_) {
    roll_back();  // a field was refused, or the pool was found damaged meanwhile
  }
  depth_ = 0;
  pm::trace_tx(refused == Status::ok ? pm::TraceTx::committed : pm::TraceTx::aborted);
  end(refused == Status::ok);
  return refused;
}

void Txn::abort() {
  const pm::MetadataOpen rights;
  if (file_.forked()) return let_go();
  const std::shared_ptr<Joint> joint = joint_;
  TENUTO_ASSERT(depth_ > 0);
  if (joint != nullptr) joint->roll_back();
  if (!aborted_) roll_back();
  aborted_ = true;
  depth_ -= 1;
  if (depth_ > 0) return;
  if (joint != nullptr) return joint->end(false);
  pm::trace_tx(pm::TraceTx::aborted);
  end(false);
}

// Of several pools it does not matter which one's lane ends first.
void Txn::abandon() {
  const pm::MetadataOpen rights;
  Txn& first = joint_ != nullptr ? joint_->leader() : *this;
  first.depth_ = 1;
  first.abort();
}

Status Txn::acknowledge(Durability d) {
  Status s = file_.acknowledge(d);
  if (also_.empty() && !also_sync_) [[likely]]
    return s;
  for (pm::PoolFile* file : also_) {
    if (const Status other = file->acknowledge(d); s == Status::ok) s = other;
  }
  forget_also();
  return s;
}

// Needs no memory. An exception here would leave the locks held and the transaction open.
void Txn::end_state(bool committed) noexcept {
  const auto count = [](std::atomic<std::uint64_t>& n, std::uint64_t more) {
    n.store(n.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  };
  count(committed ? stats_.committed : stats_.aborted, 1);
  if (Watch* const watch = engine_.watch()) [[unlikely]] {
    watch->forget(*this);
    file_name_ = nullptr;
  }
  aborted_ = false;
  field_error_ = Status::ok;
  savepoints_.clear();
  kept_.clear();
  if (log_.size() != 0 || !added_.empty()) {
    count(stats_.entries, log_.size());
    undo_pending_ = alloc_pending_ = any_typed_ = bits_stored_ = false;
    added_.clear();
    if (new_blocks_.size() != 0) new_blocks_.clear();
    freed_.clear();
  }
  if (log_.frames() != 0) {
    if (log_.frames() > kAreas * kFramesKept) drain();
    if (!in_limbo()) trim(kFramesKept);
    stats_.frames.store(log_.frames(), std::memory_order_relaxed);
  }
}

void Txn::end(bool committed) {
  end_state(committed);
  if (on_commit_.empty() && on_abort_.empty()) [[likely]] {
    end_locks();
  } else {
    struct Unlocks {
      Txn& txn;
      ~Unlocks() {
        const bool thrown = std::uncaught_exceptions() != before;
        if (!thrown || !TENUTO_PLANT("tx_throwing_callback_keeps_locks")) txn.end_locks();
      }
      const int before = std::uncaught_exceptions();
    } unlocks{*this};
    call_back(committed);
  }
}

std::string Txn::place() const {
  if (file_name_ == nullptr) return "a transaction";
  if (line_ == 0) return "the transaction of " + std::string(file_name_);
  return "the transaction begun at " + std::string(file_name_) + ":" + std::to_string(line_);
}

Status Txn::refuse_foreign(const void* p) {
  if (Watch* const watch = engine_.watch()) watch->foreign(*this, Watch::Foreign::range, p);
  return Status::invalid_argument;
}

void Txn::look_for_mistakes(const char* when) { engine_.watch()->check(*this, when); }

// An exception of a callback passes through. The transaction has ended all the same.
void Txn::call_back(bool committed) {
  struct Ended {
    Txn& txn;
    ~Ended() {
      txn.in_callbacks_ = false;
      txn.on_commit_.clear();
      txn.on_abort_.clear();
    }
  } ended{*this};
  in_callbacks_ = true;
  const pm::MetadataClosed closed;
  for (const auto& f : committed ? on_commit_ : on_abort_) f();
}

}  // namespace TENUTO_NS::tx
