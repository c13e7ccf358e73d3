// Switches of tenuto's own settings, to see what a part of its design is worth: each is an option
// of alloc_bench that takes a list, and each value makes a contestant of its own, so that rounds
// interleave them. To add one: a row in ablation.cc.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tenuto/pool_options.h"

namespace bench {

struct AblationSwitch {
  const char* name;  // in JSON; the option has dashes for underlines
  double least;
  double most;
  bool whole;  // values are integers
  const char* help;
  void (*set)(tenuto::PoolOptions&, double value);
};

std::span<const AblationSwitch> ablation_switches();
std::string option_of(const AblationSwitch& s);  // "--morph-occupancy"

// What a contestant changes; nothing: the library's defaults.
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

// All combinations of one value a switch. `values` by switch; an empty list: the default alone.
std::vector<Ablation> combinations(std::span<const std::vector<double>> values);
// Empty, or what is wrong with the values.
std::string wrong_values(std::span<const std::vector<double>> values);

}  // namespace bench
