// The file that crash states are laid out in, and a copy in memory. At rest (no state laid out)
// both hold the durable content of the workload's pool. Shared by the explorer and its workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crash/trace_recorder.h"
#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

class ExploreImage {
 public:
  // Copies the pool file at `source` to `path`.
  ExploreImage(const std::string& source, std::string path);
  ~ExploreImage();
  ExploreImage(const ExploreImage&) = delete;
  ExploreImage& operator=(const ExploreImage&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t device() const { return device_; }
  std::uint64_t inode() const { return inode_; }
  std::uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }
  std::byte* data() const { return file_; }
  const std::byte* durable() const { return durable_; }
  LineWords durable_line(std::uint64_t line) const;  // zeros beyond the end

  // Makes file and copy longer, because the pool grew.
  void resize(std::uint64_t bytes);
  // Sets the durable content of the line, in file and copy.
  void set_durable(std::uint64_t line, const LineWords& words);

  // For crash states: change a line of the file, and put it back.
  void patch(std::uint64_t line, const LineWords& words);
  void restore(std::uint64_t line);
  // Makes the file as long as a crash left it, and as long as before.
  void set_length(std::uint64_t bytes);
  void restore_length();
  // Puts everything back, after a worker died half-way.
  void restore_all();
  // Writes the durable content with some lines changed to a new file. False on failure, with errno.
  bool save(const std::string& path,
            const std::vector<std::pair<std::uint64_t, LineWords>>& lines) const;
  // A line where the file differs from the copy, if there is one. REQUIRES: at rest.
  std::optional<std::uint64_t> difference() const;
  // Calls body for each frame where `file` or the durable content may hold anything but zeros.
  void for_each_frame(int file, const std::function<void(std::uint64_t offset)>& body) const;

 private:
  void map();

  std::string path_;
  int fd_ = -1;
  int durable_fd_ = -1;
  std::byte* file_ = nullptr;
  std::byte* durable_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint64_t device_ = 0, inode_ = 0;
};

}  // namespace TENUTO_NS::pm
