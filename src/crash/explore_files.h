// The images of all pool files of a run. Their lines have the recorder's numbers (trace_files.h);
// those of one ExploreImage count from its start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "crash/explore_image.h"
#include "crash/trace_files.h"
#include "tenuto/abi.h"
#include "tenuto/crash.h"

namespace TENUTO_NS::pm {

// One for each file; 0: not known, or no file.
using FileLengths = std::array<std::uint64_t, kCrashFilesMax>;

class ExploreFiles {
 public:
  // Copies `files` pool files, of which the first is `source`; the first image is `path`.
  ExploreFiles(const std::string& source, const std::string& path, std::size_t files);

  std::size_t size() const { return images_.size(); }
  ExploreImage& operator[](std::size_t file) { return *images_[file]; }
  const ExploreImage& operator[](std::size_t file) const { return *images_[file]; }
  const std::string& path() const { return images_[0]->path(); }

  LineWords durable_line(std::uint64_t line) const {
    return of(line).durable_line(line_in_file(line));
  }
  void set_durable(std::uint64_t line, const LineWords& words) const {
    of(line).set_durable(line_in_file(line), words);
  }
  void patch(std::uint64_t line, const LineWords& words) const {
    of(line).patch(line_in_file(line), words);
  }
  void restore(std::uint64_t line) const { of(line).restore(line_in_file(line)); }
  void set_lengths(const FileLengths& lengths) const;
  void restore_lengths() const;
  void restore_all() const;
  std::optional<std::uint64_t> difference() const;
  // Writes NAME.image, NAME.1.image, ... with these lines changed. False on failure, with errno.
  bool save(const std::string& name,
            const std::vector<std::pair<std::uint64_t, LineWords>>& lines) const;

 private:
  ExploreImage& of(std::uint64_t line) const { return *images_[file_of(line)]; }

  std::vector<std::unique_ptr<ExploreImage>> images_;
};

}  // namespace TENUTO_NS::pm
