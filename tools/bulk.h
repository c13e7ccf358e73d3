// What load and dump share.
#pragma once

#include <optional>
#include <string>

#include "error.h"
#include "record_format.h"

namespace tenuto::tool {

// The format asked for, else the one that the file's name tells (.tsv, .jsonl, .ndjson).
Error choose_format(const std::optional<RecordFormat>& asked, const std::string& file,
                    RecordFormat& format);

}  // namespace tenuto::tool
