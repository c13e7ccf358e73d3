// Records of CSV and JSON files, of which one field is the key (tools/tenuto.md). The value is the
// whole record as a JSON object: in JSON its own text, in CSV a member for each column.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record_format.h"

namespace tenuto::tool {

// csv and json. The other formats have a key and a value of their own.
inline bool has_key_field(RecordFormat format) {
  return format == RecordFormat::csv || format == RecordFormat::json;
}

class FieldReader {
 public:
  FieldReader(RecordFormat format, std::string field) : format_(format), field_(std::move(field)) {}

  bool wants_header() const { return format_ == RecordFormat::csv; }
  MaybeError header(std::string_view text);
  // `record` is undefined after an error.
  MaybeError parse(RecordShape shape, std::string_view text, Record& record);

 private:
  MaybeError parse_csv_record(RecordShape shape, std::string_view text, Record& record);
  MaybeError parse_json(RecordShape shape, std::string_view text, Record& record);

  RecordFormat format_;
  std::string field_;
  std::vector<std::string> names_;
  std::size_t key_ = 0;  // index in names_
  std::vector<std::string> fields_;
  std::vector<std::size_t> columns_;
};

class FieldWriter {
 public:
  FieldWriter(RecordFormat format, std::string field) : format_(format), field_(std::move(field)) {}

  // Appends the record with all that is before it. If a later load could not read the same record
  // from it, returns what is wrong.
  std::optional<std::string> append(KeyOrder order, std::string_view key, std::string_view value,
                                    std::string& out);
  void end(std::string& out) const;

 private:
  std::optional<std::string> append_row(std::string& out);

  RecordFormat format_;
  std::string field_;
  bool any_ = false;
  std::vector<std::string> names_;  // CSV: the columns, from the first record
  std::vector<std::string> record_names_;
  std::vector<std::string> texts_;
  bool nested_ = false;  // a member of the record has no text
};

}  // namespace tenuto::tool
