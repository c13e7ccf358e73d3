// Pictures of lines as the bytes of a journal block: line numbers, as differences, then the
// pictures in the same order. Called by journal.cc and journal_file.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pm/capture.h"

namespace tenuto::inline TENUTO_ABI::pm {

// The positions of the map's entries by ascending line.
std::vector<std::uint32_t> in_order(const LineMap& lines);

void pack_lines(const LineMap& lines, std::vector<std::byte>& out);

// False when the bytes are not those of so many lines. Replaces what is in `lines`.
bool unpack_lines(const std::byte* p, std::size_t bytes, std::uint64_t count, LineMap& lines);

}  // namespace tenuto::inline TENUTO_ABI::pm
