// Stories from seeds.
#pragma once

#include <string>

#include "story.h"

namespace tenuto::life {

// What a life is like, beside what it is fond of.
enum class Kind : std::uint8_t {
  any,
  whole,     // all there is
  few,       // two or three groups of calls on very few keys, names and handles
  meetings,  // the same with threads at once: set up together, then a few calls of each meet
  places,    // short spells: other paths, copies put back whole or in part, unclean ends
  held,      // a small pool that is written over and over, with threads and handles at rest
  kKinds
};
const char* name_of(Kind kind);
bool read_kind(const std::string& name, Kind& kind);

struct Wanted {
  Kind kind = Kind::any;
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
