// The time by which records expire. A store has one clock. It combines the system's clock, or the
// user's, with what the pool keeps from earlier opens.
//
//   now        The time that all calls use. It follows the clock, but never goes back: while the
//              clock is behind, it does not move. So what has expired stays expired.
//   confirmed  The time that has certainly come. Nothing is erased by a later time, and the pool
//              keeps no later one. As a rule confirmed == now.
//   floor      The time that the pool keeps.
//
//   floor <= confirmed <= now
//
// **A leap of the clock is doubted.** The clock leaps when it is more than `jump_ms_max` ahead of
// where the time that has passed would put it. Then `confirmed` goes on from where it was, at the
// pace of a clock that cannot be set. It follows the leap when the clock has agreed with it for
// confirm_ms. It also does so when a later open, at least confirm_ms after the doubted time, finds
// the same.
//
// So one wrong leap hides records while the store is open, and destroys none: the next open begins
// at the floor again. Two in a row do: an open cannot tell whether time has passed since the last
// one, or the clock is wrong once more. From one open to the next, time does not go back behind the
// floor. A clean close raises the floor to `confirmed`. A running reclaimer does so about once a
// second. A backup and a rescue copy floor and doubt.
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

using TimeMs = std::uint64_t;  // milliseconds since 1970

// What a pool keeps of time.
struct Times {
  TimeMs floor = 0;  // 0: unknown
  TimeMs seen = 0;   // the first time that was doubted and is not confirmed yet; 0: none
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

  // From any thread. Takes a lock only where the clock leaps. Cost: the source's, and one store a
  // millisecond.
  TimeMs now();
  TimeMs confirmed();
  // What the pool is to keep. Empty if no call ever asked for the time.
  Times times();

 private:
  static constexpr TimeMs kAlways = ~TimeMs{0};
  static constexpr TimeMs kLongest = TimeMs{1} << 48;  // so that sums do not overflow

  void look_closer(TimeMs clock);
  void say_behind(TimeMs last, TimeMs clock);
  void begin(TimeMs clock);
  void doubt(TimeMs clock, TimeMs from);
  TimeMs raise(TimeMs to);
  TimeMs confirmed_locked();

  // Constant.
  const Source source_;
  const Limits limits_;
  const Log log_;

  std::atomic<TimeMs> last_{0};
  std::atomic<TimeMs> stands_at_{0};  // where a clock that is behind was logged last
  std::atomic<TimeMs> near_{0};       // times up to here are no leap; 0: no call has asked yet

  std::mutex mu_;
  // Guarded by mu_.
  Times known_;
  TimeMs sure_ = 0;         // a confirmed time,
  TimeMs sure_steady_ = 0;  // and the steady clock at that time
  bool doubted_ = false;
  TimeMs leap_ = 0;         // the clock after the leap,
  TimeMs leap_steady_ = 0;  // and the steady clock at that time
};

Times load_times(const pm::PoolFile& file);
// What the pool keeps, and what was seen since.
Times times_of(const pm::PoolFile& file, ExpiryClock& clock);
// Flushes and fences. REQUIRES: one thread at a time, a pool that can be written.
void store_times(pm::PoolFile& file, Times t);

}  // namespace TENUTO_NS::store
