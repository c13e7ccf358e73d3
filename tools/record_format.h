// One record as one line of text, TSV or JSON lines, and back. For every record r: parse(append(r))
// == r; and append writes the canonical line, the only one of its record. tools/tenuto.md defines
// both formats for users.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenuto/kv.h"
#include "text_format.h"

namespace tenuto::tool {

enum class RecordFormat : std::uint8_t { tsv, jsonl };

struct Record {
  std::string key;  // as the store takes it; of a u64 store u64_key(n)
  std::string value;
  std::uint64_t expires_ms = 0;  // when its lifetime ends, since 1970; 0: never
};

// What the records of a collection are made of.
struct RecordShape {
  RecordShape(KeyKind k, bool e = false) : kind(k), expires(e) {}
  KeyKind kind;
  bool expires;  // they may have lifetimes
};

// Appends the canonical line without its LF.
void append_record(RecordFormat format, KeyKind kind, std::string_view key, std::string_view value,
                   std::string& out, std::uint64_t expires_ms = 0);
// Reads a line without its LF; `record` is reused and undefined after an error.
MaybeError parse_record(RecordFormat format, RecordShape shape, std::string_view line,
                        Record& record);

// A key alone, as the formats write it: escaped or decimal; a JSON member "key", "key_base64".
void append_key_text(KeyKind kind, std::string_view key, std::string& out);
void append_key_member(KeyKind kind, std::string_view key, std::string& out);
// The members "value" or "value_base64".
void append_value_member(std::string_view value, std::string& out);

// The number of a u64 store's key. REQUIRES: key.size() == 8.
std::uint64_t key_number(std::string_view key);

}  // namespace tenuto::tool
