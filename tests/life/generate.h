// Draws stories from seeds.
#pragma once

#include <string>

#include "story.h"

namespace tenuto::life {

// The kind of a life. Its favourite calls are drawn separately.
enum class Kind : std::uint8_t {
  any,
  whole,     // all calls
  few,       // two to four groups of calls on very few keys, names and handles
  meetings,  // the same with threads at once: a common setup, then a few calls of each thread meet
  places,    // short spells: other paths, copies put back whole or in part, unclean ends
  pools,     // transactions over objects in two pools, and unclean ends
  held,      // a small pool, written over and over while threads and handles rest
  kKinds
};
const char* name_of(Kind kind);
bool read_kind(const std::string& name, Kind& kind);

struct Wanted {
  Kind kind = Kind::any;
  Medium medium = Medium::automatic;  // automatic: any medium
  unsigned threads = 0;               // 0: any number
  int at_once = -1;                   // -1: in some lives
  std::uint64_t without = 0;          // bits of groups of calls to leave out
};

// Reads "forks,faults" into bits. Returns false for an unknown group. group_names() lists them.
bool read_groups(const std::string& names, std::uint64_t& bits);
std::string group_names();

// The same seed and wishes give the same story on every machine.
Story make_story(std::uint64_t seed, const Wanted& wanted);

}  // namespace tenuto::life
