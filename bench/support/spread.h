// Medians with minimum and maximum, ratios round by round, and their text in tables and JSON lines.
// A figure that was not measured is an empty vector, and is absent in JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/support/histogram.h"
#include "bench/support/json_line.h"

namespace bench {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
// REQUIRES: values is not empty. For an even count, the median is the mean of the middle two.
Spread spread_of(std::vector<double> values);
// The spread of mine[i] / theirs[i]; nullopt if the rounds do not pair up, as after a failed turn.
std::optional<Spread> ratio_of(const std::vector<double>& mine, const std::vector<double>& theirs);

std::string short_number(double v);  // about three digits: 0.123 1.23 12.3 12345
std::string median_text(const std::vector<double>& values, double unit = 1);  // "-": not measured
// "1.93 (1.71..2.20)", the median alone if it is all; "-": not measured.
std::string range_text(const std::vector<double>& values, double unit = 1);
std::string range_text(const Spread& spread);
double microseconds(std::uint64_t tick_count);

std::string json_of(const Spread& spread);
void add_spread(JsonLine& line, const char* name, const std::vector<double>& values);
void add_median(JsonLine& line, const char* name, const std::vector<double>& values);
void add_median_whole(JsonLine& line, const char* name, const std::vector<double>& values);
void add_latency(JsonLine& line, const Histogram& ticks);
// Writes to a file, or to stdout if its name is "-". Returns false on failure; see errno.
bool write_lines(const std::string& file, const std::vector<std::string>& lines);

}  // namespace bench
