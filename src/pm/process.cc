#include "pm/process.h"

#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <atomic>

#include "pm/assert.h"
#include "pm/bare_forks.h"
#include "pm/plant.h"
#include "pm/thread_end.h"

namespace TENUTO_NS::pm {

constinit ProcessPage process_page;
constinit ProcessLocks process_locks;

namespace {

// Not wiped in a child: it continues from its parent's count.
constinit std::atomic<std::uint64_t> last_number = 0;
constinit OfProcess* owned = nullptr;               // guarded by process_locks.owned
constinit std::array<void (*)(), 8> child_calls{};  // guarded by process_locks.owned

constexpr std::mutex ProcessLocks::*kAll[] = {
    &ProcessLocks::engines,  &ProcessLocks::steps,   &ProcessLocks::readers,
    &ProcessLocks::open,     &ProcessLocks::regions, &ProcessLocks::models,
    &ProcessLocks::mappings, &ProcessLocks::owned,   &ProcessLocks::metadata_key};

void before_fork() {
  if (forks_are_bare) return;
  for (auto lock : kAll) (process_locks.*lock).lock();
}
void after_fork() {
  if (forks_are_bare) return;
  for (auto lock : kAll) (process_locks.*lock).unlock();
}
void after_fork_in_child() {
  if (forks_are_bare) return;
  if (!TENUTO_PLANT("pm_fork_not_noticed")) {
    process_page.number.store(0, std::memory_order_relaxed);  // for kernels that do not wipe it
    forget_thread_parts();
    let_go_in_child();
    for (const auto f : child_calls) {
      if (f != nullptr) f();
    }
  }
  after_fork();
}

void prepare() {
  static const bool done = [] {
    TENUTO_ASSERT(::pthread_atfork(before_fork, after_fork, after_fork_in_child) == 0);
    return true;
  }();
  static_cast<void>(done);
  // On a kernel without it (before 4.14) only the fork handler resets the number.
  if (!TENUTO_PLANT("pm_fork_not_noticed")) {
    static_cast<void>(::madvise(&process_page, sizeof process_page, MADV_WIPEONFORK));
  }
}

}  // namespace

std::uint64_t this_process() {
  std::uint64_t number = process_page.number.load(std::memory_order_relaxed);
  if (number != 0) return number;
  prepare();
  forget_thread_parts();  // of the parent's pools
  const std::uint64_t mine = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  process_page.number.compare_exchange_strong(number, mine, std::memory_order_relaxed);
  return process_page.number.load(std::memory_order_relaxed);
}

void let_go_in_child() {
  for (OfProcess* o = owned; o != nullptr; o = o->next_) {
    if (!o->gone_) o->let_go();
    o->gone_ = true;
  }
}

void OfProcess::join() {
  const std::lock_guard lock(process_locks.owned);
  next_ = owned;
  before_ = &owned;
  if (next_ != nullptr) next_->before_ = &next_;
  owned = this;
  joined_ = true;
}

void OfProcess::part() {
  const std::lock_guard lock(process_locks.owned);
  *before_ = next_;
  if (next_ != nullptr) next_->before_ = before_;
  joined_ = false;
}

OfProcess::~OfProcess() { TENUTO_ASSERT(!joined_); }

void call_in_child(void (*f)()) {
  const std::lock_guard lock(process_locks.owned);
  auto at = child_calls.begin();
  while (*at != nullptr) ++at;
  TENUTO_ASSERT(at != child_calls.end());
  *at = f;
}

// Takes no lock: a child of a bare fork may have it locked for ever.
void abandon(void* object) {
  struct Abandoned {
    void* object;
    Abandoned* next;
  };
  static constinit std::atomic<Abandoned*> all = nullptr;
  auto* const fresh = new Abandoned{object, all.load(std::memory_order_relaxed)};
  while (!all.compare_exchange_weak(fresh->next, fresh, std::memory_order_release)) {
  }
}

}  // namespace TENUTO_NS::pm
