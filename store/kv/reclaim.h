// Erases records that have expired (encoding.h): when somebody asks, and by a thread of its own,
// which runs from the moment at which the store has a collection with lifetimes. Owned by
// Collections.
//
// An expired record is not there for any call already, so nothing depends on when this happens. It
// is erased as by anybody, under its leaf's lock and only if it still is expired: what a put has
// made live again stays. It goes by the time that is confirmed (clock.h), not by what a clock has
// just leapt to.
//
// Before, it frees what was replaced or erased and waits for nobody any more: a call that was under
// way, this one among them, may have kept it from those who replaced it, and they may rest now.
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

  // Nothing is erased while it is held.
  [[nodiscard]] std::unique_lock<std::mutex> pause() { return std::unique_lock(run_mu_); }

  // What the thread does once it runs; every_ms 0: it never does.
  void set_pace(std::uint64_t every_ms, std::uint64_t at_once);
  // There is something to do now. Any thread; throws nothing. What was done before it is done:
  // where the system has no thread to give, a line in the log says so, and the next start or run
  // tries again.
  void start();
  // Waits for the thread. REQUIRES: the caller holds none of the collections' locks.
  void stop();

 private:
  void reclaim_now_and_then();
  void run_and_give(std::uint64_t records_max);
  Result<std::uint64_t> look(std::uint64_t records_max);
  // Looks at so many records at most, erases those that have expired, and says how many it looked
  // at and erased.
  Status walk(const std::shared_ptr<CollectionState>& state, TimeMs time, std::uint64_t records_max,
              std::uint64_t& looked_at, std::uint64_t& erased);

  Collections& all_;

  std::mutex run_mu_;  // before the collections' lock
  // Guarded by run_mu_: where the next call goes on, by collection; none: at its beginning.
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
