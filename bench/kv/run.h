// A run of kv_bench: points played one after the other, each in a scratch directory, their lines of
// JSON, and how the run ended.
#pragma once

#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/kv/point.h"

namespace bench {

struct Played {
  Setting setting;
  ContestFigures figures;
};

class Run {
 public:
  explicit Run(std::string json);  // a file, "-" for stdout, or empty

  std::FILE* human() const { return json_file_ == "-" ? stderr : stdout; }
  // Plays a point, and writes all lines of JSON so far: what a killed run has measured is there.
  // nullopt: the run is over, see finish().
  std::optional<Played> play(const Point& point);
  // Writes the last line, prints wrong answers, and returns the program's exit code.
  int finish();

 private:
  Scratch* scratch_in(const std::string& dir);
  bool fits(const Point& point, const Scratch& scratch) const;
  std::nullopt_t end(const char* how, int code);
  bool write_json() const;

  const std::string json_file_;
  std::map<std::string, Scratch> scratches_;  // by their parents
  std::vector<std::string> json_;
  std::vector<std::string> failures_;
  const char* ending_ = "complete";
  int code_ = 0;
};

}  // namespace bench
