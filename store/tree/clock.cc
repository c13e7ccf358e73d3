#include "store/tree/clock.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "file/pool_file.h"
#include "pm/plant.h"

namespace TENUTO_NS::store {

namespace {

TimeMs system_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<TimeMs>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

// Cannot be set, and goes on while the machine sleeps.
TimeMs steady_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<TimeMs>(t.tv_sec) * 1000 + static_cast<TimeMs>(t.tv_nsec) / 1'000'000;
}

// In the largest unit that leaves at least two.
std::string in_words(TimeMs ms) {
  constexpr std::pair<TimeMs, const char*> kUnits[] = {
      {86'400'000, " days"}, {3'600'000, " hours"}, {60'000, " minutes"}, {1000, " seconds"}};
  for (const auto& [unit, name] : kUnits) {
    if (ms >= 2 * unit) return std::to_string(ms / unit) + name;
  }
  return std::to_string(ms) + " ms";
}

// A clock that is set back by less is not worth a message.
constexpr TimeMs kBehindMs = 60'000;

}  // namespace

ExpiryClock::ExpiryClock(Source source, Limits limits, Times known, Log log)
    : source_(source ? std::move(source) : Source(system_ms)),
      limits_{std::min(limits.jump_ms_max, kLongest), std::min(limits.confirm_ms, kLongest)},
      log_(std::move(log)),
      known_(known) {}

TimeMs ExpiryClock::now() {
  const TimeMs clock = source_();
  if (TENUTO_PLANT("store_clock_goes_back")) return clock;
  const TimeMs last = last_.load(std::memory_order_relaxed);
  if (clock <= last) {
    if (last - clock >= kBehindMs) say_behind(last, clock);
    return last;
  }
  if (clock > near_.load(std::memory_order_acquire)) look_closer(clock);
  return raise(clock);
}

// Once for each time that stands still.
void ExpiryClock::say_behind(TimeMs last, TimeMs clock) {
  if (stands_at_.load(std::memory_order_relaxed) == last) return;
  if (stands_at_.exchange(last, std::memory_order_relaxed) == last) return;
  log_("the clock is behind the last time this store knew, by " + in_words(last - clock) +
       ": records with lifetimes stand still until it has caught up");
}

TimeMs ExpiryClock::raise(TimeMs to) {
  TimeMs last = last_.load(std::memory_order_relaxed);
  while (last < to && !last_.compare_exchange_weak(last, to, std::memory_order_relaxed)) {
  }
  return std::max(last, to);
}

// Called at the first request, and when the clock is beyond near_.
void ExpiryClock::look_closer(TimeMs clock) {
  const std::lock_guard lock(mu_);
  const TimeMs near = near_.load(std::memory_order_relaxed);
  if (clock <= near) return;
  if (near == 0) {
    begin(clock);
  } else if (doubted_) {
    // A further leap has to be confirmed anew.
    if (clock > leap_ + (steady_ms() - leap_steady_) + limits_.jump_ms_max) {
      doubt(clock, confirmed_locked());
    }
  } else {
    const TimeMs passed = steady_ms() - sure_steady_;
    if (limits_.jump_ms_max != 0 && clock > sure_ + passed + limits_.jump_ms_max) {
      doubt(clock, std::max(sure_ + passed, last_.load(std::memory_order_relaxed)));
    } else {
      sure_ = clock;
      sure_steady_ = steady_ms();
    }
  }
  const TimeMs step = limits_.jump_ms_max == 0 ? kAlways : limits_.jump_ms_max;
  near_.store(clock > kAlways - step ? kAlways : clock + step, std::memory_order_release);
}

// The first request of this open, compared with what earlier opens knew.
void ExpiryClock::begin(TimeMs clock) {
  sure_ = std::max(clock, known_.floor);
  sure_steady_ = steady_ms();
  raise(known_.floor);
  if (clock < known_.floor) say_behind(known_.floor, clock);
  if (known_.floor == 0 || limits_.jump_ms_max == 0) return;
  const bool stood = known_.seen != 0 && clock >= known_.seen + limits_.confirm_ms;
  if (stood) known_.floor = std::max(known_.floor, known_.seen);
  if (clock > known_.floor + limits_.jump_ms_max) doubt(clock, known_.floor);
}

void ExpiryClock::doubt(TimeMs clock, TimeMs from) {
  doubted_ = true;
  sure_ = from;
  leap_ = clock;
  sure_steady_ = leap_steady_ = steady_ms();
  // A time that an earlier open doubted is kept, unless it is in the future: it has stood since
  // then.
  if (known_.seen <= from || known_.seen > clock) known_.seen = clock;
  log_("the clock is ahead of the last time this store knew, by " + in_words(clock - from) +
       ": what has expired since is hidden, and not reclaimed before the clock has stood for " +
       in_words(limits_.confirm_ms) + ". If it is wrong, set it right and " +
       "open the store again");
}

TimeMs ExpiryClock::confirmed() {
  (void)now();
  const std::lock_guard lock(mu_);
  return confirmed_locked();
}

TimeMs ExpiryClock::confirmed_locked() {
  const TimeMs last = last_.load(std::memory_order_relaxed);
  if (!doubted_ || TENUTO_PLANT("store_clock_leap_believed")) return last;
  const TimeMs stood = steady_ms() - leap_steady_;
  const TimeMs clock = source_();
  // The clock has gone on with the time; jump_ms_max / 2 is allowed for corrections of the clock.
  const bool agrees = clock + limits_.jump_ms_max / 2 >= leap_ + stood;
  if (stood >= limits_.confirm_ms && agrees) {
    doubted_ = false;
    known_.seen = 0;
    sure_ = last;
    sure_steady_ = steady_ms();
    log_("the clock has stood: what has expired by it is reclaimed from now on");
    return last;
  }
  return std::min(last, sure_ + (steady_ms() - sure_steady_));
}

Times ExpiryClock::times() {
  const std::lock_guard lock(mu_);
  if (near_.load(std::memory_order_relaxed) == 0) return {};
  const TimeMs sure = confirmed_locked();
  return {std::max(known_.floor, sure), doubted_ ? known_.seen : 0};
}

Times load_times(const pm::PoolFile& file) { return {file.time_floor(), file.time_seen()}; }
Times times_of(const pm::PoolFile& file, ExpiryClock& clock) {
  const Times held = load_times(file);
  const Times now = clock.times();
  if (now.floor == 0) return held;  // no call has asked in this open
  return {std::max(held.floor, now.floor), now.seen};
}

void store_times(pm::PoolFile& file, Times t) { file.set_times(t.floor, t.seen); }

}  // namespace TENUTO_NS::store
