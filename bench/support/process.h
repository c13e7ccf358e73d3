// What the operating system knows of this process, its files and its memory; and the scratch
// directory of a run, which is deleted at the end and on Ctrl-C.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

std::uint64_t anonymous_bytes();   // private memory in use now; file mappings do not count
std::uint64_t write_call_bytes();  // given to write(2) and its kin so far, by this process

struct DirectorySize {
  std::uint64_t allocated = 0;  // blocks taken on the file system
  std::uint64_t apparent = 0;   // lengths; sparse files are longer than what they take
};
DirectorySize directory_size(const std::string& dir);

// "tmpfs", "ext4", "overlay" ... or a hexadecimal magic.
std::string file_system_name(const std::string& path);
// The device under a directory: "vda, write cache, no FUA"; "no block device".
std::string device_text(const std::string& path);
std::uint64_t free_memory_bytes();  // MemAvailable
std::string processor_name();

// A fresh directory under `parent`. REQUIRES: the process that made it removes it (a forked
// child's copy does nothing). SIGINT, SIGTERM and SIGHUP only set interrupted(): whoever waits for
// a child asks it and returns, so that destructors run.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { remove(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool create(const std::string& parent, const std::string& name);  // false: errno says why
  bool clear();                                                     // empties it
  void remove();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int owner_ = 0;  // process
};

void catch_interrupts();
bool interrupted();

}  // namespace bench
