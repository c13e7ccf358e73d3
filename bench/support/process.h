// What the operating system knows of this process, its files and its memory. Also the scratch
// directory of a run, which is deleted at the end and on Ctrl-C.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

std::uint64_t anonymous_bytes();   // private memory in use, without file mappings
std::uint64_t write_call_bytes();  // passed to write calls by this process so far

struct DirectorySize {
  std::uint64_t allocated = 0;  // blocks on the file system
  std::uint64_t apparent = 0;   // lengths; a sparse file is longer than its blocks
};
DirectorySize directory_size(const std::string& dir);

// "tmpfs", "ext4", "overlay" ... or the magic number in hexadecimal.
std::string file_system_name(const std::string& path);
// The device below a directory: "vda, cache: write back, no FUA", or "no block device".
std::string device_text(const std::string& path);
std::uint64_t memory_limit_bytes();  // of the machine, or of the process's control group
std::uint64_t free_memory_bytes();   // MemAvailable

// The first mapping of a file in this process; all zero if there is none.
struct MappedFile {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t large_bytes = 0;  // mapped by pages of 2 MiB
};
MappedFile mapped_file(const std::string& path);
std::string processor_name();

// A fresh directory under `parent`. Only the process that made it removes it; a forked child's copy
// does nothing. SIGINT, SIGTERM and SIGHUP only set interrupted(). Code that waits for a child
// checks it and returns, so that destructors run.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { remove(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool create(const std::string& parent, const std::string& name);  // false: see errno
  bool clear();                                                     // empties it
  void remove();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int owner_ = 0;  // process id
};

void catch_interrupts();
bool interrupted();

}  // namespace bench
