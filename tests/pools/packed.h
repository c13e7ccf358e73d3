// A pool file as it stands in git: an LZ4 frame (`lz4 -d` reads it, too) of the file's length in
// bytes, and of each page of 4 KiB that is not all zero its offset and its bytes. Words are 64
// bits, little-endian.
#pragma once

#include <string>

namespace tenuto::test {

// Both say what went wrong; empty: all is well. unpack() makes a file with holes.
std::string pack_file(const std::string& from, const std::string& to);
std::string unpack_file(const std::string& from, const std::string& to);

}  // namespace tenuto::test
