// Medians, ratios and their texts; see spread.h.
#include "bench/support/spread.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/support/clock.h"

namespace bench {

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

std::optional<Spread> ratio_of(const std::vector<double>& mine, const std::vector<double>& theirs) {
  if (mine.empty() || mine.size() != theirs.size()) return std::nullopt;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < mine.size(); ++i) ratios.push_back(mine[i] / theirs[i]);
  return spread_of(std::move(ratios));
}

std::string short_number(double v) {
  if (v == 0) return "0";
  const int digits = v < 1 ? 3 : v < 10 ? 2 : v < 100 ? 1 : 0;
  return fmt::format("{:.{}f}", v, digits);
}

std::string median_text(const std::vector<double>& values, double unit) {
  return values.empty() ? "-" : short_number(spread_of(values).median / unit);
}

std::string range_text(const std::vector<double>& values, double unit) {
  if (values.size() < 2) return median_text(values, unit);
  const Spread s = spread_of(values);
  return range_text(Spread{s.median / unit, s.min / unit, s.max / unit});
}

std::string range_text(const Spread& s) {
  if (s.min == s.max) return short_number(s.median);
  return fmt::format("{} ({}..{})", short_number(s.median), short_number(s.min),
                     short_number(s.max));
}

double microseconds(std::uint64_t tick_count) {
  return static_cast<double>(tick_count) * ns_per_tick() * 1e-3;
}

std::string json_of(const Spread& spread) {
  return JsonLine()
      .number("median", spread.median)
      .number("min", spread.min)
      .number("max", spread.max)
      .str();
}

void add_spread(JsonLine& line, const char* name, const std::vector<double>& values) {
  if (!values.empty()) line.raw(name, json_of(spread_of(values)));
}

void add_median(JsonLine& line, const char* name, const std::vector<double>& values) {
  if (!values.empty()) line.number(name, spread_of(values).median);
}

void add_median_whole(JsonLine& line, const char* name, const std::vector<double>& values) {
  if (!values.empty()) line.integer(name, std::llround(spread_of(values).median));
}

void add_latency(JsonLine& line, const Histogram& ticks) {
  line.number("p50_us", microseconds(ticks.percentile(0.5)));
  line.number("p99_us", microseconds(ticks.percentile(0.99)));
  line.number("p999_us", microseconds(ticks.percentile(0.999)));
  line.number("max_us", microseconds(ticks.max()));
}

bool write_lines(const std::string& file, const std::vector<std::string>& lines) {
  std::FILE* out = file == "-" ? stdout : std::fopen(file.c_str(), "w");
  bool written = out != nullptr;
  for (const std::string& line : lines) {
    written = written && std::fprintf(out, "%s\n", line.c_str()) > 0;
  }
  if (out != nullptr && out != stdout) written = std::fclose(out) == 0 && written;
  return written;
}

}  // namespace bench
