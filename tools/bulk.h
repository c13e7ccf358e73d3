// Shared by load and dump.
#pragma once

#include <optional>
#include <string>

#include "error.h"
#include "record_format.h"

namespace tenuto::tool {

// The requested format, or else the one of the file's name (.tsv, .jsonl, .ndjson).
Error choose_format(const std::optional<RecordFormat>& asked, const std::string& file,
                    RecordFormat& format);

}  // namespace tenuto::tool
