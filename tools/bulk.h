// Shared by load and dump.
#pragma once

#include <optional>
#include <string>

#include "error.h"
#include "record_format.h"

namespace tenuto::tool {

// The requested format, or else the one of the file's name (.tsv, .jsonl, .ndjson, .csv, .json).
// Fails if the format needs a key field and there is none, or the other way round.
Error choose_format(const std::optional<RecordFormat>& asked, const std::string& file,
                    const std::string& key_field, RecordFormat& format);

}  // namespace tenuto::tool
