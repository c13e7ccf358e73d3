// Reads an input of any size record by record. In TSV and JSON lines a record is a line. In CSV it
// may have line ends inside quotes. In JSON it is an object, in an array or one behind the other.
// Memory use is one record, up to a limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "line_reader.h"
#include "record_format.h"

namespace tenuto::tool {

class RecordReader {
 public:
  // The descriptor stays the caller's.
  RecordReader(RecordFormat format, int fd, std::uint64_t bytes_max)
      : format_(format), lines_(fd, bytes_max), bytes_max_(bytes_max) {}

  // As LineReader::next, for a record without its last LF. too_large: as soon as the record exceeds
  // the limit; the next call skips what is left of it, which may have no end. invalid_argument:
  // there is no record here, and no later one can be found. error() says why, for both.
  Status next(std::string_view& text);

  std::uint64_t line_number() const { return first_line_; }  // of the last record, from 1
  std::uint64_t last_line() const { return lines_.line_number(); }
  std::uint64_t bytes_read() const { return lines_.bytes_read(); }
  int error_number() const { return lines_.error_number(); }
  const FormatError& error() const { return error_; }

 private:
  Status next_line();
  Status next_csv(std::string_view& text);
  Status next_json(std::string_view& text);
  Status object(std::string_view& text);
  bool close_object();
  Status next_line_of_object();
  void begin_record();
  Status too_large();
  Status refused(std::string what);
  Status line_failed(Status s);

  RecordFormat format_;
  LineReader lines_;
  std::uint64_t bytes_max_;
  std::uint64_t first_line_ = 0;
  std::size_t first_column_ = 1;
  FormatError error_;
  std::string text_;       // of a record of several lines
  std::string_view line_;  // JSON: of it, what is behind at_ has not been read
  std::size_t at_ = 0;
  bool open_ = false;      // in a record: CSV: inside quotes; JSON: inside an object
  std::size_t depth_ = 0;  // JSON: of braces and brackets
  bool in_string_ = false;
  enum class Around : std::uint8_t { unknown, nothing, array, behind_array } around_{};
  bool comma_ = false;  // between two elements of the array
};

}  // namespace tenuto::tool
