// The time by which records expire. One clock a store, made of the system's (or the user's), with
// what the pool remembers of lives before. Asked by encoding.cc's users, versions.cc (a moment
// includes its time), batch.cc (commits), and reclaim.cc.
//
//   now        what all calls go by: the clock, and never less than it was. It stands still while
//              the clock is behind, so what has expired stays so.
//   confirmed  what has certainly come: nothing is erased for good by a later time, and no later
//              one is remembered. As a rule confirmed == now. A clock that leaps ahead, by more
//              than `jump_ms_max` beyond the time that has passed meanwhile, is doubted: confirmed
//              goes on from where it was at the pace of a clock that cannot be set, until the leap
//              has stood for confirm_ms, or until a life later by as much sees the same.
//
//   floor <= confirmed <= now                                     (I1) floor: what the pool holds
//
// So one wrong leap hides records for as long as the store is open and destroys none: the next life
// begins at the floor again. Across lives time does not go back behind the floor, which a clean
// close raises to `confirmed` and a running reclaimer about once a second. A backup and a rescue
// take floor and doubt with them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {
class PoolFile;
}  // namespace TENUTO_NS::pm

namespace TENUTO_NS::store {

using TimeMs = std::uint64_t;  // since 1970

// What a pool holds of time.
struct Times {
  TimeMs floor = 0;  // 0: unknown
  TimeMs seen = 0;   // the first that was doubted and is not confirmed yet; 0: none
};

class ExpiryClock {
 public:
  using Source = std::function<std::uint64_t()>;
  using Log = std::function<void(std::string_view)>;
  struct Limits {
    std::uint64_t jump_ms_max = 0;  // 0: every leap is believed
    std::uint64_t confirm_ms = 0;
  };

  // No source: the system's clock.
  ExpiryClock(Source source, Limits limits, Times known, Log log);
  ExpiryClock(const ExpiryClock&) = delete;
  ExpiryClock& operator=(const ExpiryClock&) = delete;

  // Any thread; no lock but where the clock leaps. Cost: the source's, and a store a millisecond.
  TimeMs now();
  TimeMs confirmed();
  // To be held by the pool. Nothing, where nobody ever asked for the time.
  Times times();

 private:
  static constexpr TimeMs kAlways = ~TimeMs{0};
  static constexpr TimeMs kLongest = TimeMs{1} << 48;  // so that sums do not run over

  void look_closer(TimeMs clock);
  void begin(TimeMs clock);
  void doubt(TimeMs clock, TimeMs from);
  TimeMs raise(TimeMs to);
  TimeMs confirmed_locked();

  // Constant.
  const Source source_;
  const Limits limits_;
  const Log log_;

  std::atomic<TimeMs> last_{0};
  std::atomic<TimeMs> near_{0};  // up to here a time is no leap; 0: nobody has asked yet

  std::mutex mu_;
  // Guarded by mu_.
  Times known_;
  TimeMs sure_ = 0;         // was confirmed,
  TimeMs sure_steady_ = 0;  // when the steady clock stood here
  bool doubted_ = false;
  TimeMs leap_ = 0;         // what the clock showed,
  TimeMs leap_steady_ = 0;  // then
};

Times load_times(const pm::PoolFile& file);
// What the pool holds, and what was seen since.
Times times_of(const pm::PoolFile& file, ExpiryClock& clock);
// Flushes and fences. REQUIRES: one thread at a time, a pool that can be written.
void store_times(pm::PoolFile& file, Times t);

}  // namespace TENUTO_NS::store
