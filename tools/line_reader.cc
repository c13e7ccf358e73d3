// See line_reader.h.
#include "line_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "process.h"

namespace tenuto::tool {
namespace {

constexpr std::size_t kReadBytes = 256u << 10;

}  // namespace

Status LineReader::next(std::string_view& line) {
  if (in_long_line_) {
    if (const Status s = skip_line(); s != Status::ok) return s;
  }
  std::size_t searched = 0;  // bytes after begin_ that are known to hold no LF
  while (true) {
    const char* start = buffer_.data() + begin_;
    const std::size_t have = end_ - begin_;
    const void* lf =
        have == searched ? nullptr : std::memchr(start + searched, '\n', have - searched);
    if (lf != nullptr || (at_end_ && have > 0)) {
      const std::size_t bytes =
          lf != nullptr ? static_cast<std::size_t>(static_cast<const char*>(lf) - start) : have;
      begin_ += bytes + (lf != nullptr ? 1 : 0);
      ++line_number_;
      if (bytes > line_bytes_max_) return Status::too_large;
      line = {start, bytes};
      return Status::ok;
    }
    if (at_end_) return Status::not_found;
    if (have > line_bytes_max_) {
      ++line_number_;
      in_long_line_ = true;
      return Status::too_large;
    }
    searched = have;
    if (const Status s = fill(); s != Status::ok) return s;
  }
}

// To the next LF, or to the end of the input.
Status LineReader::skip_line() {
  while (true) {
    const char* start = buffer_.data() + begin_;
    const void* lf = begin_ == end_ ? nullptr : std::memchr(start, '\n', end_ - begin_);
    begin_ = lf == nullptr
                 ? end_
                 : static_cast<std::size_t>(static_cast<const char*>(lf) + 1 - buffer_.data());
    in_long_line_ = lf == nullptr && !at_end_;
    if (!in_long_line_) return Status::ok;
    if (const Status s = fill(); s != Status::ok) return s;
  }
}

// Moves the unread rest to the front, then appends the result of one read.
Status LineReader::fill() {
  if (begin_ > 0) {
    std::copy(buffer_.data() + begin_, buffer_.data() + end_, buffer_.data());
    end_ -= begin_;
    begin_ = 0;
  }
  if (buffer_.size() - end_ < kReadBytes) {
    buffer_.resize(std::max(buffer_.size() * 2, end_ + kReadBytes));
  }
  while (true) {
    if (stop_requested()) return Status::aborted;
    const ssize_t n = read(fd_, buffer_.data() + end_, kReadBytes);
    if (n > 0) {
      end_ += static_cast<std::size_t>(n);
      bytes_read_ += static_cast<std::uint64_t>(n);
      return Status::ok;
    }
    if (n == 0) {
      at_end_ = true;
      return Status::ok;
    }
    if (errno != EINTR) {
      error_number_ = errno;
      return Status::io;
    }
  }
}

}  // namespace tenuto::tool
