// Erases records that have expired (encoding.h): by Store::reclaim, and by a thread of its own. The
// thread runs once the store has a collection with lifetimes. Owned by Collections.
//
// No call sees an expired record, so nothing depends on when it is erased. The erase is a
// conditional one: it happens under the leaf's lock, and only if the record still is expired. A
// record that a put has renewed stays. The erase uses the clock's confirmed time (clock.h), so a
// clock that has just leapt erases nothing.
//
// Before that it frees garbage that no reader holds back any more. The writers that retired it
// could not free it while a call (of the reclaimer, too) was under way, and they may be idle now.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "store/tree/clock.h"
#include "store/tree/format.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

struct CollectionState;

namespace store {

class Collections;

class Reclaimer {
 public:
  explicit Reclaimer(Collections& all) : all_(all) {}
  ~Reclaimer() { stop(); }
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // See Store::reclaim. Any thread.
  Result<std::uint64_t> run(std::uint64_t records_max);

  // While the lock is held nothing is erased.
  [[nodiscard]] std::unique_lock<std::mutex> pause() { return std::unique_lock(run_mu_); }

  // The thread wakes every `every_ms` and looks at `at_once` records, at least 1. every_ms 0: there
  // is no thread.
  void set_pace(std::uint64_t every_ms, std::uint64_t at_once);
  // Starts the thread if it does not run. Any thread; throws nothing. If the system has no thread
  // to give, the log says so, and the next start or run tries again.
  void start();
  // Ends the thread and waits for it. REQUIRES: the caller holds none of the collections' locks.
  void stop();

 private:
  void reclaim_now_and_then();
  void run_and_give(std::uint64_t records_max);
  Result<std::uint64_t> look(std::uint64_t records_max);
  // Looks at records of one collection until looked_at == records_max, and erases those that have
  // expired. Counts both.
  Status walk(const std::shared_ptr<CollectionState>& state, TimeMs time, std::uint64_t records_max,
              std::uint64_t& looked_at, std::uint64_t& erased);

  Collections& all_;

  std::mutex run_mu_;  // before the collections' lock
  // Guarded by run_mu_. Where the next call continues in each collection. No entry: at its first
  // key.
  std::map<TreeId, std::string> place_;
  TreeId next_{};

  std::mutex thread_mu_;
  std::condition_variable wake_;
  // Guarded by thread_mu_.
  std::uint64_t every_ms_ = 0;
  std::uint64_t at_once_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace store
}  // namespace TENUTO_NS
