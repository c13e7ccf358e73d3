// Names of files that are still being made, on file systems that have no nameless files, and
// removal of such files that killed processes left.
//
// A name ends with a checksum of itself, which marks it as the library's. The maker of a file locks
// it right after it is made, and holds the lock until the file has its final name. So a file that
// is not locked is left over. Between making and locking, another maker of the same path
// may remove the file. The first one then finds its name gone, and fails as if the path were taken.
#pragma once

#include <string>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// A new name beside `path`: "p.tnt.creating-", 8 digits, "-", 8 digits (hexadecimal).
std::string unfinished_name(const std::string& path);

// Removes what a killed maker of `path` left beside it, and nothing else.
void remove_unfinished(const std::string& path);

}  // namespace TENUTO_NS::pm
