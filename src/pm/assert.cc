#include "pm/assert.h"

#include <cstdio>
#include <cstdlib>

namespace TENUTO_NS::pm {

void assert_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "tenuto: assertion failed: %s (%s:%d)\n", what, file, line);
  std::abort();
}

}  // namespace TENUTO_NS::pm
