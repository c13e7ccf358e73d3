// The tests of `tenuto-crash`: the product's own structures under seeded workloads.
#pragma once

#include <cstdint>
#include <vector>

#include "tenuto/crash.h"

namespace tenuto::crash_tool {

struct WorkloadOptions {
  std::uint64_t seed = 1;
  std::uint64_t operations = 30;
  std::uint64_t keys = 40;
};

void add_kv_tests(const WorkloadOptions& options, std::vector<CrashTest>& tests);
void add_pool_tests(const WorkloadOptions& options, std::vector<CrashTest>& tests);

}  // namespace tenuto::crash_tool
