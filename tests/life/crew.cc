#include "crew.h"

#include <atomic>

#include "gusts.h"
#include "story.h"

namespace tenuto::life {

Crew::~Crew() {
  for (unsigned t = 0; t < workers_.size(); ++t) end(t);
}

void Crew::start(unsigned thread, const std::function<void()>& work) {
  auto& w = workers_[thread];
  if (w == nullptr) {
    w = std::make_unique<Worker>();
    w->thread = std::thread([worker = w.get()] {
      std::unique_lock lock(worker->mu);
      for (;;) {
        worker->turn.wait(lock, [&] { return worker->work != nullptr || worker->ends; });
        if (worker->work == nullptr) return;
        lock.unlock();
        worker->work();
        lock.lock();
        worker->work = nullptr;
        worker->turn.notify_all();
      }
    });
  }
  const std::lock_guard lock(w->mu);
  w->work = work;
  w->turn.notify_all();
}

void Crew::wait(unsigned thread) {
  Worker& w = *workers_[thread];
  std::unique_lock lock(w.mu);
  w.turn.wait(lock, [&] { return w.work == nullptr; });
}

void Crew::run(unsigned thread, const std::function<void()>& work) {
  if (thread == 0) return work();
  start(thread, work);
  wait(thread);
}

void Crew::run_all(const std::vector<std::function<void()>>& work, std::uint64_t gusts_us,
                   std::uint64_t seed) {
  // All threads wait for each other, so that none begins earlier.
  std::atomic<std::size_t> missing = 0;
  for (const auto& one : work) missing += one != nullptr;
  const bool several = missing > 1;
  const auto together = [&](unsigned t) {
    Gusts gusts(several ? gusts_us : 0, (seed * kThreadsMax) + t);
    --missing;
    while (missing != 0) std::this_thread::yield();
    gusts.start();
    work[t]();
  };
  for (unsigned t = 1; t < work.size(); ++t) {
    if (work[t]) start(t, [&, t] { together(t); });
  }
  if (!work.empty() && work[0]) together(0);
  for (unsigned t = 1; t < work.size(); ++t) {
    if (work[t]) wait(t);
  }
}

void Crew::end(unsigned thread) {
  auto& w = workers_[thread];
  if (w == nullptr) return;
  {
    const std::lock_guard lock(w->mu);
    w->ends = true;
    w->turn.notify_all();
  }
  w->thread.join();
  w.reset();
}

void Crew::abandon() {
  for (auto& w : workers_) {
    if (w == nullptr) continue;
    w->thread.detach();
    static_cast<void>(w.release());
  }
}

}  // namespace tenuto::life
