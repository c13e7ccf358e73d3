#include "gusts.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "story.h"

namespace tenuto::life {
namespace {

constexpr double kCalmer = 1.4;  // gaps grow, so that long calls end

// State of a thread and of its signal handler.
struct Weather {
  bool on = false;
  timer_t timer{};
  Random random{0};
  std::uint64_t pause_ns_max = 0;
  double gap_ns = 0;
};
thread_local Weather weather;

timespec of_ns(std::uint64_t ns) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  return {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
}

void wait_for_next() {
  itimerspec next{};
  next.it_value = of_ns(500 + weather.random.below(static_cast<std::uint64_t>(weather.gap_ns)));
  ::timer_settime(weather.timer, 0, &next, nullptr);
}

void stand_still(int) {
  const int error = errno;
  if (weather.on) {
    const timespec pause = of_ns(weather.random.below(weather.pause_ns_max));
    ::nanosleep(&pause, nullptr);
    weather.gap_ns *= kCalmer;
    wait_for_next();
  }
  errno = error;
}

}  // namespace

Gusts::Gusts(std::uint64_t pause_us_max, std::uint64_t seed) {
  weather.random = Random{seed};
  // Half of the threads have no gusts, so that they run while another one stands still.
  if (pause_us_max == 0 || weather.random.one_in(2)) return;
  struct sigaction action {};
  action.sa_handler = stand_still;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
  ::prctl(PR_SET_TIMERSLACK, 1);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGUSR1;
  event._sigev_un._tid = ::gettid();
  if (::timer_create(CLOCK_MONOTONIC, &event, &weather.timer) != 0) return;
  weather.pause_ns_max = pause_us_max * 1000;
  weather.gap_ns = weather.random.one_in(2) ? 20e3 : 100e3;
  weather.on = true;
}

void Gusts::start() {
  if (weather.on) wait_for_next();
}

Gusts::~Gusts() {
  if (!weather.on) return;
  weather.on = false;
  ::timer_delete(weather.timer);
}

}  // namespace tenuto::life
