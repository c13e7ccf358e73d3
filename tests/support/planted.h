// The planted bugs: mistakes in the library's sources, one at a time, that a programmer might have
// made (TENUTO_PLANT in src/pm/plant.h), and for each the scenario that has to find it. Used by
// planted_crash.cc.
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
  const char* symptom;   // of the finding, whatever the seed; a regular expression
  std::uint64_t seed = 1;

  std::string layer() const;
};

struct Scenario {
  const char* name;
  std::function<CrashResult(const CrashOptions&)> run;
  CrashOptions options;
};

const std::vector<Planted>& planted_bugs();
// Of these, those planted in store/ (planted_store.cc).
const std::vector<Planted>& planted_store_bugs();
const std::vector<Scenario>& scenarios();
const Scenario& scenario(const std::string& name);

// Runs the scenario with the bug switched on up to its first finding, with a few seeds if need be.
// The counts are those of all runs; the seconds are of processor time. `minimise` makes a report
// for people of it.
CrashResult find_planted(const Planted& bug, bool minimise = false);

// A plant's name and the file it stands in, from the root.
struct PlantPlace {
  std::string name;
  std::string file;
  auto operator<=>(const PlantPlace&) const = default;
};
std::set<PlantPlace> plants_in_sources(const std::string& root);
// The string literals of the other tests that might be names of plants: mistakes that need no
// explorer to be found.
std::set<std::string> names_in_tests(const std::string& root);

}  // namespace tenuto::test
