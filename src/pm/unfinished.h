// Names of files that are still being made, where the file system has no files without one, and
// what makers that were killed left under them.
//
// A name says that it is one of ours: it ends with a checksum of itself. Its maker holds the lock
// of the file from right after it was made until it has its own name, so what nobody has locked is
// left over. Two makers of one path may take each other's file in the moment between: then one of
// them finds its name gone, as it would have found the path taken.
#pragma once

#include <string>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// A new one beside `path`: "p.tnt.creating-8 digits-8 digits".
std::string unfinished_name(const std::string& path);

// Removes what a maker of `path` that is gone left beside it, and nothing else.
void remove_unfinished(const std::string& path);

}  // namespace TENUTO_NS::pm
