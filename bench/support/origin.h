// Where figures come from: each table and each line of JSON says which version ran on which
// processor, kernel, page size and setting of large pages. No more of the machine is written, so
// that figures can be shown to anybody.
#pragma once

#include <string>

#include "bench/support/json_line.h"

namespace bench {

// Adds "version", "commit" (with "+" after it when files differed from it), "processor", "kernel",
// "page_bytes", "large_pages" and "large_pages_shmem" (the kernel's settings: never, madvise ...).
// A build outside a git checkout has the commit "unknown".
void add_origin(JsonLine& line);
// The same in words, for a table.
std::string origin_text();

}  // namespace bench
