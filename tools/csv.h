// One record of CSV (RFC 4180): fields between commas; a field in quotes may hold commas, line ends
// and doubled quotes. Fields are UTF-8.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text_format.h"

namespace tenuto::tool {

// Parses a record without its last line end, of which a CR may be left. `columns`: where each field
// begins.
MaybeError parse_csv(std::string_view text, std::vector<std::string>& fields,
                     std::vector<std::size_t>& columns);

// Appends a field, in quotes if it needs them.
void append_csv_field(std::string_view field, std::string& out);

}  // namespace tenuto::tool
