// Where figures come from: a line of JSON says which version ran on which processor, kernel and
// page size. No more of the machine is written, so that a file of figures can be shown to anybody.
#pragma once

#include "bench/support/json_line.h"

namespace bench {

// Adds "version", "commit" (with "+" after it when files differed from it), "processor", "kernel"
// and "page_bytes". A build outside a git checkout has the commit "unknown".
void add_origin(JsonLine& line);

}  // namespace bench
