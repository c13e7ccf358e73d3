// Threads that run at once stand still now and then, wherever they are, as a scheduler may have it:
// a timer of the thread's own sends a signal whose handler sleeps. So a window of some instructions
// becomes as wide as the calls of others. For Crew (crew.cc).
#pragma once

#include <cstdint>

namespace tenuto::life {

// For the calling thread, from start() on until it is gone. Nothing when pause_us_max is 0.
class Gusts {
 public:
  Gusts(std::uint64_t pause_us_max, std::uint64_t seed);
  ~Gusts();
  Gusts(const Gusts&) = delete;
  Gusts& operator=(const Gusts&) = delete;
  void start();
};

}  // namespace tenuto::life
