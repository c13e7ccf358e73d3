// Switches for tenuto's own settings. They show what each part of its design is worth. Each switch
// is an option of alloc_bench that takes a list of values. Each value is a contestant of its own,
// so rounds interleave them. To add a switch, add a row in ablation.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenuto/pool_options.h"

namespace bench {

struct AblationSwitch {
  const char* name;  // in JSON; the option has dashes instead of underscores
  double least;
  double most;
  bool whole;  // values are integers
  const char* help;
  void (*set)(tenuto::PoolOptions&, double value);
};

std::span<const AblationSwitch> ablation_switches();
std::string option_of(const AblationSwitch& s);  // "--morph-occupancy"

// The settings that a contestant changes. Empty: the library's defaults.
struct Ablation {
  struct Value {
    const AblationSwitch* what;
    double value;
  };
  std::vector<Value> values;
  bool delays = false;  // Optane's published delays, on medium model

  void apply(tenuto::PoolOptions& to) const;
  std::string text() const;  // " stripes=1 ..."; empty when nothing is changed
};

// All combinations with one value for each switch. `values` has one list per switch; an empty list
// means the default.
std::vector<Ablation> combinations(std::span<const std::vector<double>> values);
// Returns an empty string, or what is wrong with the values.
std::string wrong_values(std::span<const std::vector<double>> values);

}  // namespace bench
