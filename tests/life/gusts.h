// Stops threads that run at once now and then, anywhere, as a scheduler may. Each thread has a
// timer, whose signal handler sleeps. A window of some instructions so becomes as wide as the calls
// of other threads. Crew uses it (crew.cc).
#pragma once

#include <cstdint>

namespace tenuto::life {

// For the calling thread, from start() until the destructor. Does nothing if pause_us_max is 0.
class Gusts {
 public:
  Gusts(std::uint64_t pause_us_max, std::uint64_t seed);
  ~Gusts();
  Gusts(const Gusts&) = delete;
  Gusts& operator=(const Gusts&) = delete;
  void start();
};

}  // namespace tenuto::life
