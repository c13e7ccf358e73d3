// One record as one line of TSV or JSON lines, and back. For every record r, parse(append(r)) == r.
// append writes the canonical line, of which each record has exactly one. tools/tenuto.md defines
// both formats for users.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenuto/kv.h"
#include "text_format.h"

namespace tenuto::tool {

enum class RecordFormat : std::uint8_t { tsv, jsonl, csv, json };

struct Record {
  std::string key;  // in the store's form; u64_key(n) in a u64 store
  std::string value;
  std::uint64_t expires_ms = 0;  // end of its lifetime, ms since 1970; 0: never
};

// The properties of a collection's records.
struct RecordShape {
  RecordShape(KeyOrder o, bool e = false, bool d = false) : order(o), expires(e), duplicates(d) {}
  KeyOrder order;
  bool expires;     // records may have lifetimes
  bool duplicates;  // a key may have several values
};

// Appends the canonical line without its LF.
void append_record(RecordFormat format, KeyOrder order, std::string_view key,
                   std::string_view value, std::string& out, std::uint64_t expires_ms = 0);
// Parses a line without its LF. `record` is reused; it is undefined after an error.
MaybeError parse_record(RecordFormat format, RecordShape shape, std::string_view line,
                        Record& record);

// What is wrong with the length of a record. `column`: of its key. parse_record asks it.
MaybeError check_length(RecordShape shape, const Record& record, std::size_t column);

// Appends only a key: as escaped or decimal text, or as the JSON member "key" or "key_base64".
void append_key_text(KeyOrder order, std::string_view key, std::string& out);
void append_key_member(KeyOrder order, std::string_view key, std::string& out);
// Appends the member "value" or "value_base64".
void append_value_member(std::string_view value, std::string& out);

}  // namespace tenuto::tool
