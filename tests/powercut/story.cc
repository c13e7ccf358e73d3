#include "powercut/story.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace tenuto::powercut {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x632be59bd9b4e019ull);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

std::optional<Story> Story::read(const std::string& path) {
  Story s;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!s.add(line)) return std::nullopt;
  }
  return s;
}

bool Story::add(const std::string& line) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  if (kind == "L") {
    Life life{};
    words >> life.number;
    for (std::uint64_t& n : life.begin) words >> n;
    if (!words || life.number != next_life()) return false;
    for (unsigned t = 0; t < kThreads; ++t) {
      // What a life found and reported is durable.
      if (life.begin[t] < durable_[t]) return false;
      durable_[t] = life.begin[t];
    }
    lives_.push_back(life);
    return true;
  }
  if (kind == "A") {
    unsigned thread = 0;
    std::uint64_t n = 0;
    // A life that is killed while it writes this leaves the beginning of the line. Its number is
    // then smaller, which requires less.
    if (!(words >> thread >> n)) return true;
    if (thread >= kThreads || !has_life()) return false;
    durable_[thread] = std::max(durable_[thread], n);
  }
  return true;
}

std::uint64_t Story::life_of(unsigned thread, std::uint64_t op) const {
  const auto below = [&](const Life& life) { return life.begin[thread] < op; };
  const auto end = std::partition_point(lives_.begin(), lives_.end(), below);
  return end == lives_.begin() ? 0 : std::prev(end)->number;
}

Wire::Wire(const std::string& port, const std::string& file)
    : port_(::open(port.c_str(), O_WRONLY | O_NOCTTY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)),
      file_(::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644)) {
  if (port_ < 0 || file_ < 0) {
    std::perror("powercut_life: the port or the story cannot be opened");
    std::exit(2);
  }
  termios raw{};
  if (::tcgetattr(port_, &raw) == 0) {
    ::cfmakeraw(&raw);
    ::tcsetattr(port_, TCSANOW, &raw);
  }
}

void Wire::say(const std::string& line) {
  const std::string whole = line + "\n";
  const std::lock_guard lock(mu_);
  for (const int fd : {port_, file_}) {
    if (::write(fd, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) {
      std::perror("powercut_life: a line did not go out");
      std::_Exit(2);
    }
  }
}

void Wire::drain() {
  const std::lock_guard lock(mu_);
  ::tcdrain(port_);
}

}  // namespace tenuto::powercut
