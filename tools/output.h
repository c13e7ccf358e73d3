// Where commands write: standard output, a file, or a file that appears only when it is whole.
// Errors are sticky and seen at finish(): a full disk or a closed pipe is an error with an exit
// code, never a crash or a short file that looks whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "error.h"

namespace tenuto::tool {

class Output {
 public:
  // Writes to a descriptor that stays the caller's.
  Output(int fd, std::string name);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual ~Output() = default;

  // Buffered. After an error it does nothing.
  void write(std::string_view bytes);
  bool ok() const { return error_number_ == 0; }
  std::uint64_t bytes() const { return bytes_; }
  // Writes what is buffered and says whether all of it arrived. The last call.
  virtual Error finish();

 protected:
  Error flush();

  int fd_;
  std::string name_;

 private:
  void drain(std::string_view bytes);

  std::string buffer_;
  std::uint64_t bytes_ = 0;
  int error_number_ = 0;
};

// A file that replaces `path` in one step at finish(), after its bytes reached the device: at every
// moment, and after any failure or crash, `path` is the old file or the whole new one. Without
// finish() nothing is left, by a killed process neither. A path that is no regular file (a pipe,
// /dev/stdout) is written directly.
Error open_file_output(const std::string& path, std::unique_ptr<Output>& out);

// Moves `from` over `path` (same folder) and makes that durable.
Error rename_durably(const std::string& from, const std::string& path);
// An unused name in the folder of `path`; whether a name in that folder may be such a one.
std::string temporary_name(const std::string& path);
bool is_temporary_name(const std::string& name, const std::string& path);

}  // namespace tenuto::tool
