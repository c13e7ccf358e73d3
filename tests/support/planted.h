// The planted mistakes: bugs in the library's sources that a programmer might have made, one active
// at a time (TENUTO_PLANT in src/pm/plant.h). Each has a scenario that must find it.
// planted_crash.cc uses this.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tenuto/crash.h"

namespace tenuto::test {

struct Planted {
  const char* name;      // layer_what_goes_wrong
  const char* what;      // the mistake in words
  const char* scenario;  // a name of scenarios()
  const char* symptom;   // a regular expression that the finding matches at every seed
  std::uint64_t seed = 1;

  std::string layer() const;
};

struct Scenario {
  const char* name;
  std::function<CrashResult(const CrashOptions&)> run;
  CrashOptions options;
};

const std::vector<Planted>& planted_bugs();
// The bugs that are planted in store/ (planted_store.cc).
const std::vector<Planted>& planted_store_bugs();
// The bugs that are planted in the containers of tx/ (planted_containers.cc).
const std::vector<Planted>& planted_container_bugs();
// Those of transactions over several pools, and their scenarios (planted_joint.cc).
const std::vector<Planted>& planted_joint_bugs();
std::vector<Scenario> joint_scenarios();
const std::vector<Scenario>& scenarios();
const Scenario& scenario(const std::string& name);

// Runs the scenario with the bug until its first finding, with several seeds if needed. The counts
// are those of all runs, the seconds are processor time. `minimise` makes a report for people.
CrashResult find_planted(const Planted& bug, bool minimise = false);

// A plant's name, and its file, relative to the root.
struct PlantPlace {
  std::string name;
  std::string file;
  auto operator<=>(const PlantPlace&) const = default;
};
std::set<PlantPlace> plants_in_sources(const std::string& root);
// The string literals of the other tests that may be names of plants: those mistakes need no
// explorer.
std::set<std::string> names_in_tests(const std::string& root);

}  // namespace tenuto::test
