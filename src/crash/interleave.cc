#include "crash/interleave.h"

#include <sched.h>

#include <cerrno>
#include <ctime>

#include "crash/trace_recorder.h"
#include "pm/assert.h"
#include "pm/trace.h"

namespace TENUTO_NS::pm {

namespace {

// The seed chooses one. Many switches mix the steps of short sections; few let another thread
// finish a whole commit between two steps of a reader.
constexpr std::uint32_t kSwitchEvery[] = {2, 5, 15, 60, 400};
constexpr long kPatienceNs = 500'000'000;  // without an event, before a thread counts as blocked

void post(sem_t& s) { TENUTO_ASSERT(::sem_post(&s) == 0); }

void take(sem_t& s) {
  while (::sem_wait(&s) != 0) TENUTO_ASSERT(errno == EINTR);
}

timespec end_of_patience() {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += kPatienceNs;
  until.tv_sec += until.tv_nsec / 1'000'000'000;
  until.tv_nsec %= 1'000'000'000;
  return until;
}

// Both return false when kPatienceNs passes first.
bool join_in_time(pthread_t thread) {
  const timespec until = end_of_patience();
  const int failed = ::pthread_timedjoin_np(thread, nullptr, &until);
  TENUTO_ASSERT(failed == 0 || failed == ETIMEDOUT);
  return failed == 0;
}
bool take_in_time(sem_t& s) {
  const timespec until = end_of_patience();
  while (::sem_timedwait(&s, &until) != 0) {
    if (errno == ETIMEDOUT) return false;
    TENUTO_ASSERT(errno == EINTR);
  }
  return true;
}

// One thread runs at a time, and a turn changes hands three times as fast within one processor.
void stay_here(pthread_t thread) {
  const int here = ::sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(here, &one);
  static_cast<void>(::pthread_setaffinity_np(thread, sizeof one, &one));  // else it is only slower
}

}  // namespace

constinit thread_local Interleaver::Slot* Interleaver::own_slot = nullptr;

Interleaver::Interleaver(std::uint64_t seed, std::uint32_t switch_every)
    : rng_(hash_mix(seed ^ 0x7468726561647321)), switch_every_(switch_every) {
  if (switch_every_ == 0) switch_every_ = kSwitchEvery[rng_.below(std::size(kSwitchEvery))];
}

bool Interleaver::managed() { return own_slot != nullptr; }

TraceUninterrupted::TraceUninterrupted() : before_(Interleaver::pause(true)) {}
TraceUninterrupted::~TraceUninterrupted() { Interleaver::pause(before_); }

void Interleaver::step(bool must_switch) {
  Slot* mine = own_slot;
  // The explorer's own work holds the recorder's lock and must not be interrupted.
  if (mine == nullptr || mine->inside || Recorder::held_by_caller()) return;
  mine->inside = true;
  Recorder::instance().drain_mine();
  Interleaver& i = *mine->owner;
  i.steps_.fetch_add(1, std::memory_order_relaxed);
  if (i.token_.load(std::memory_order_acquire) != mine->index) {
    i.wait(*mine);  // this thread counted as blocked and lost its turn
  } else if (must_switch || i.rng_.below(i.switch_every_) == 0) {
    i.hand_over(*mine);
  }
  mine->inside = false;
}

bool Interleaver::choose_next(std::size_t besides, std::size_t& chosen) {
  std::size_t living = 0;
  for (const auto& s : slots_) {
    if (s->index == besides || s->ended.load(std::memory_order_acquire)) continue;
    ++living;
    if (rng_.below(living) == 0) chosen = s->index;
  }
  return living != 0;
}

void Interleaver::give(std::size_t to) {
  token_.store(to, std::memory_order_release);
  post(slots_[to]->wake);
}

void Interleaver::wait(Slot& mine) {
  do {
    take(mine.wake);
  } while (token_.load(std::memory_order_acquire) != mine.index);
}

void Interleaver::hand_over(Slot& from) {
  std::size_t next = 0;
  if (!choose_next(from.index, next)) return;
  give(next);
  wait(from);
}

void* Interleaver::play(void* slot) {
  Slot& mine = *static_cast<Slot*>(slot);
  mine.owner->wait(mine);
  own_slot = &mine;
  (*mine.body)();
  own_slot = nullptr;  // the end of the thread is not interrupted
  mine.ended.store(true, std::memory_order_release);
  post(mine.owner->ended_);
  return nullptr;
}

void Interleaver::run(const std::vector<std::function<void()>>& bodies) {
  TENUTO_ASSERT(::sem_init(&ended_, 0, 0) == 0);
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->owner = this;
    slots_.back()->index = i;
    slots_.back()->body = &bodies[i];
    TENUTO_ASSERT(::sem_init(&slots_.back()->wake, 0, 0) == 0);
  }
  token_.store(bodies.size(), std::memory_order_relaxed);  // of no thread
  for (const auto& s : slots_) {
    TENUTO_ASSERT(::pthread_create(&s->thread, nullptr, play, s.get()) == 0);
    stay_here(s->thread);
  }
  std::size_t next = 0;
  std::size_t living = bodies.size();
  if (choose_next(bodies.size(), next)) give(next);
  std::uint64_t steps_seen = 0;
  while (living != 0) {
    const bool in_time = take_in_time(ended_);
    const std::uint64_t steps = steps_.load(std::memory_order_relaxed);
    bool kept = false;  // an ending thread waits for a lock, and its holder waits for the token
    for (const auto& s : slots_) {
      if (s->joined || !s->ended.load(std::memory_order_acquire)) continue;
      s->joined = join_in_time(s->thread);
      kept |= !s->joined;
      living -= s->joined ? 1 : 0;
    }
    if (!in_time && !kept && (steps != steps_seen || Recorder::held_by_any())) {
      steps_seen = steps;
      continue;
    }
    // The token's holder has ended, or blocks in something that is not an event.
    if (choose_next(token_.load(std::memory_order_relaxed), next)) give(next);
  }
  slots_.clear();
}

}  // namespace TENUTO_NS::pm
