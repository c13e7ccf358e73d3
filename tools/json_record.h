// The reader of one record written as a JSON object.
#pragma once

#include <string_view>

#include "record_format.h"

namespace tenuto::tool {

// Parses an object with these members, in any order and with any JSON whitespace: "key" (a string,
// or a number in a u64 store) or "key_base64"; "value" or "value_base64"; and, if records may have
// lifetimes, optionally the number "expires_ms".
MaybeError parse_json_record(RecordShape shape, std::string_view line, Record& record);

// Parses {"collection":NAME,"form":WORDS}, or "collection_base64" for a name that is not UTF-8.
// False: it is another object.
bool parse_json_collection(std::string_view line, std::string& name, std::string& form);

}  // namespace tenuto::tool
