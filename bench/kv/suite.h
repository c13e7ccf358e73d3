// Suites: all tables that a part of bench/results.md needs, by one command, in markdown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bench {

struct SuiteOptions {
  std::uint64_t records = 1'000'000;  // of the largest stores; others have a share of it
  unsigned rounds = 5;
  unsigned opens = 8;
  // What all parts together may take. Each has a share of it and ends its rounds early where it
  // must; it has one round at least. 0: no limit.
  double seconds = 0;
  std::uint64_t seed = 42;
  std::string dir = "/dev/shm";
  std::string disk = "/var/tmp";
  std::string json;
  std::string part;  // only those parts whose titles contain it
  bool quick = false;
};

bool has_suite(std::string_view name);
std::string suite_names();
// Of suite `memory`: what can be stored in five times the memory.
std::uint64_t records_beyond(std::uint64_t memory_bytes);
// Plays it and prints its tables. Returns the program's exit code.
int play_suite(std::string_view name, const SuiteOptions& options);

}  // namespace bench
