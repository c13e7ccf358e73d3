// The files of a kill test: its own folder in shared memory, which is removed at the end, and the
// folder that keeps a finding.
#pragma once

#include <string>

#include "crash_kill.h"

namespace tenuto::tool {

class KillFolder {
 public:
  KillFolder() = default;
  KillFolder(const KillFolder&) = delete;
  KillFolder& operator=(const KillFolder&) = delete;
  ~KillFolder();  // removes the folder

  Error make(const std::string& directory);
  std::string pool() const { return path_ + "/pool.tnt"; }
  std::string image() const { return path_ + "/pool-at-kill.tnt"; }
  // Removes pool and image.
  void clear() const;
  // Copies the pool, as a kill left it, to image().
  bool keep_image() const;
  // Copies all files and `text` into a new folder for `finding`. Returns its path, or an empty
  // string on failure.
  std::string save(const std::string& findings, const KillFinding& finding, std::uint64_t seed,
                   const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace tenuto::tool
