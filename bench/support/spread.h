// Medians with their least and greatest, ratios round by round, and how figures are written in
// tables and JSON lines. A figure that was not measured is an empty vector, and absent in JSON.
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
// REQUIRES: values is not empty. The median of an even number is the mean of the middle two.
Spread spread_of(std::vector<double> values);
// Of mine[i] / theirs[i]; nothing when the rounds do not pair up, as after a failed turn.
std::optional<Spread> ratio_of(const std::vector<double>& mine, const std::vector<double>& theirs);

std::string short_number(double v);  // three significant digits at any size: 0.123 12.3 12345
std::string median_text(const std::vector<double>& values, double unit = 1);  // "-": not measured
double microseconds(std::uint64_t tick_count);

std::string json_of(const Spread& spread);
void add_median(JsonLine& line, const char* name, const std::vector<double>& values);
void add_median_whole(JsonLine& line, const char* name, const std::vector<double>& values);
void add_latency(JsonLine& line, const Histogram& ticks);
// To a file, or to stdout when it is called "-". False: errno says why.
bool write_lines(const std::string& file, const std::vector<std::string>& lines);

}  // namespace bench
