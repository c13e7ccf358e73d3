// The reader of one record written as a JSON object.
#pragma once

#include <string_view>

#include "record_format.h"

namespace tenuto::tool {

// An object of these members, in any order and with any JSON whitespace: "key" (a string, or a
// number in a u64 store) or "key_base64"; "value" or "value_base64"; and perhaps, where records
// may have lifetimes, the number "expires_ms".
MaybeError parse_json_record(RecordShape shape, std::string_view line, Record& record);

}  // namespace tenuto::tool
