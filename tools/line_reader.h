// Lines of an input of any size. Memory use is one line, up to a limit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tenuto/status.h"

namespace tenuto::tool {

class LineReader {
 public:
  // Reads from a descriptor that stays the caller's.
  LineReader(int fd, std::uint64_t line_bytes_max) : fd_(fd), line_bytes_max_(line_bytes_max) {}

  // ok: `line` is the next one without its LF, valid until the next call. The last line needs no
  // LF; an LF at the end starts no empty line. not_found: the end. too_large: the line was above
  // the limit and has been skipped. io: see error_number(). aborted: a signal asked to stop.
  Status next(std::string_view& line);

  std::uint64_t line_number() const { return line_number_; }  // of the last line, from 1
  std::uint64_t bytes_read() const { return bytes_read_; }
  int error_number() const { return error_number_; }

 private:
  Status fill();

  int fd_;
  std::uint64_t line_bytes_max_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what has not been handed out
  std::size_t end_ = 0;    // of what has been read
  bool at_end_ = false;
  std::uint64_t line_number_ = 0;
  std::uint64_t bytes_read_ = 0;
  int error_number_ = 0;
};

}  // namespace tenuto::tool
