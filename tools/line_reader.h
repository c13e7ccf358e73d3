// Reads the lines of an input of any size. Memory use is one line, up to a limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenuto/status.h"

namespace tenuto::tool {

class LineReader {
 public:
  // The descriptor stays the caller's.
  LineReader(int fd, std::uint64_t line_bytes_max) : fd_(fd), line_bytes_max_(line_bytes_max) {}

  // ok: `line` is the next line without its LF, valid until the next call. The last line needs no
  // LF. A final LF starts no empty line. not_found: end of input. too_large: the line exceeds the
  // limit; the next call skips what is left of it, which may have no end. io: see error_number().
  // aborted: a signal asked to stop.
  Status next(std::string_view& line);

  std::uint64_t line_number() const { return line_number_; }  // of the last line, from 1
  std::uint64_t bytes_read() const { return bytes_read_; }
  int error_number() const { return error_number_; }

 private:
  Status skip_line();
  Status fill();

  int fd_;
  std::uint64_t line_bytes_max_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the bytes not returned yet
  std::size_t end_ = 0;    // of the bytes read
  bool at_end_ = false;
  bool in_long_line_ = false;
  std::uint64_t line_number_ = 0;
  std::uint64_t bytes_read_ = 0;
  int error_number_ = 0;
};

}  // namespace tenuto::tool
