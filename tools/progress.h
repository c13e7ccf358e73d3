// A progress line for standard error on a terminal: done, rate, time left.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tenuto::tool {

class Progress {
 public:
  // `total_bytes`: 0 if unknown. Prints nothing unless `enabled`.
  Progress(bool enabled, std::uint64_t total_bytes);
  ~Progress();  // removes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap: reads the clock on every eighth call only and draws at most ten times a second.
  void update(std::uint64_t records, std::uint64_t bytes) {
    if (enabled_ && ++calls_ % 8 == 0) draw(records, bytes);
  }
  void clear();

 private:
  void draw(std::uint64_t records, std::uint64_t bytes);

  bool enabled_;
  bool drawn_ = false;
  unsigned calls_ = 0;
  std::uint64_t total_bytes_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

// The text of the line. The bar and the time left need a known total.
// "[#####---------------]  25 %  1,200,000 records  310,000/s  42.1 MiB/s  0:12 left"
std::string progress_line(std::uint64_t records, std::uint64_t bytes, std::uint64_t total_bytes,
                          double seconds);
// 3725 -> "1:02:05", 65 -> "1:05".
std::string format_clock(double seconds);

}  // namespace tenuto::tool
