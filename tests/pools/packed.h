// A pool file as it is in git: an LZ4 frame (which `lz4 -d` reads, too). It has the file's length
// in bytes, and then the offset and the bytes of each page of 4 KiB that is not all zero. Words
// have 64 bits, little-endian.
#pragma once

#include <string>

namespace tenuto::test {

// Both return what went wrong, or an empty string. unpack_file() makes a file with holes.
std::string pack_file(const std::string& from, const std::string& to);
std::string unpack_file(const std::string& from, const std::string& to);

}  // namespace tenuto::test
