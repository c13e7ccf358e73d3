// Destinations for output: standard output, a file, or a file that appears only when it is
// complete. Errors are sticky and are returned by finish(). A full disk or a closed pipe is an
// error with an exit code. It is never a crash or a short file that looks complete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "error.h"

namespace tenuto::tool {

class Output {
 public:
  // The descriptor stays the caller's.
  Output(int fd, std::string name);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  virtual ~Output() = default;

  // Buffered. Does nothing after an error.
  void write(std::string_view bytes);
  bool ok() const { return error_number_ == 0; }
  std::uint64_t bytes() const { return bytes_; }
  // Writes the buffered bytes and returns whether all bytes arrived. Must be the last call.
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

// A file that replaces `path` in one step at finish(), after its bytes are durable. At all times,
// and after any failure or crash, `path` is the old file or the complete new one. Without finish(),
// no new file remains. Only where the file system has no O_TMPFILE, a killed process leaves a
// temporary file. If `path` is not a regular file (a pipe, /dev/stdout), it is written directly.
Error open_file_output(const std::string& path, std::unique_ptr<Output>& out);

// Makes the contents of a file durable.
Error write_to_device(const std::string& path);
// Renames `from` to `path` in the same folder and makes that durable.
Error rename_durably(const std::string& from, const std::string& path);
// An unused name in the folder of `path`. is_temporary_name returns whether `name` has that form.
std::string temporary_name(const std::string& path);
bool is_temporary_name(const std::string& name, const std::string& path);

}  // namespace tenuto::tool
