// Stories from seeds.
#pragma once

#include <string>

#include "story.h"

namespace tenuto::life {

struct Wanted {
  Medium medium = Medium::automatic;  // automatic: any of them
  unsigned threads = 0;               // 0: any number
  int at_once = -1;                   // -1: now and then
  std::uint64_t without = 0;          // bits of groups of calls that are left out
};

// "forks,faults" -> bits; false: no such group. group_names() lists them.
bool read_groups(const std::string& names, std::uint64_t& bits);
std::string group_names();

// The same story for the same seed and wishes, on every machine.
Story make_story(std::uint64_t seed, const Wanted& wanted);

}  // namespace tenuto::life
