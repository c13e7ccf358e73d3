// See progress.h.
#include "progress.h"

#include <algorithm>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "numbers.h"
#include "text_format.h"

namespace tenuto::tool {
namespace {

constexpr auto kDrawEvery = std::chrono::milliseconds(100);
constexpr std::size_t kBarCells = 20;
constexpr double kClockMax = 359999;  // 99:59:59

void to_terminal(const std::string& text) {
  // A terminal that disappeared must not stop the work.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

std::string format_clock(double seconds) {
  const auto s = static_cast<std::uint64_t>(std::clamp(seconds, 0.0, kClockMax));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string progress_line(std::uint64_t records, std::uint64_t bytes, std::uint64_t total_bytes,
                          double seconds) {
  std::string line;
  const double bytes_per_s = seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
  const double records_per_s = seconds > 0 ? static_cast<double>(records) / seconds : 0;
  if (total_bytes > 0) {
    const double share =
        std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total_bytes));
    const auto cells = static_cast<std::size_t>(share * static_cast<double>(kBarCells));
    line = fmt::format("[{}{}] {:3.0f} %  ", std::string(cells, '#'),
                       std::string(kBarCells - cells, '-'), share * 100);
  }
  line += fmt::format("{} records  {}/s  {}/s", format_count(records),
                      format_count(static_cast<std::uint64_t>(records_per_s)),
                      format_size(static_cast<std::uint64_t>(bytes_per_s)));
  if (total_bytes > 0 && bytes_per_s > 0) {
    const double left = static_cast<double>(total_bytes - std::min(bytes, total_bytes));
    line += fmt::format("  {} left", format_clock(left / bytes_per_s));
  }
  return line;
}

Progress::Progress(bool enabled, std::uint64_t total_bytes)
    : enabled_(enabled),
      total_bytes_(total_bytes),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) to_terminal("\r\x1b[K");
  drawn_ = false;
}

void Progress::draw(std::uint64_t records, std::uint64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < kDrawEvery) return;
  last_ = now;
  drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::string line = progress_line(records, bytes, total_bytes_, seconds);
  // A line that wraps could not be redrawn.
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
    line.resize(std::min<std::size_t>(line.size(), size.ws_col - 1u));
  }
  to_terminal("\r" + line + "\x1b[K");
}

}  // namespace tenuto::tool
