// tenuto-crash: explores the product's own structures. `tenuto crash run` starts it.
#include <cstdlib>

#include "tests.h"

namespace {

// The workload's size comes from the environment, so it is the same when a case is replayed.
std::uint64_t number(const char* variable, std::uint64_t usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tenuto::crash_tool;
  WorkloadOptions o;
  o.seed = number("TENUTO_CRASH_WORKLOAD", o.seed);
  o.operations = number("TENUTO_CRASH_OPERATIONS", o.operations);
  o.keys = number("TENUTO_CRASH_KEYS", o.keys);
  std::vector<tenuto::CrashTest> tests;
  add_kv_tests(o, tests);
  add_pool_tests(o, tests);
  return tenuto::crash_main(argc, argv, tests);
}
