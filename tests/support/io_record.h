// A record of what a program writes to some files, and of their possible bytes after a power cut. A
// program that links io_record.cc has pwrite, fallocate, fdatasync and fsync in place of libc's.
// Calls on other files work as usual.
//
// After a cut a file has every write that O_DSYNC or a later sync of the file made durable. Of all
// other writes, also of one that runs, it has any 512-byte sectors. Stores through a shared mapping
// are writes, too: at each call they are found by a comparison of the file with what was recorded.
// A hole that is punched is a write of zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tenuto::test {

class IoRecord {
 public:
  struct Event {
    enum class Kind { write, grow, sync, mark } kind = Kind::mark;
    std::size_t file = 0;
    std::uint64_t offset = 0;  // of grow: the file's new end
    std::vector<char> bytes;
    bool durable = false;    // a write through O_DSYNC
    std::uint64_t mark = 0;  // the number that the workload passed
    bool stored = false;     // a write through the mapping, found at the next call
  };

  // Starts with these files as they are. A process has one record at a time. mapped: the first file
  // is stored to through a mapping; then each call costs a comparison of it.
  explicit IoRecord(std::vector<std::string> paths, bool mapped = false);
  ~IoRecord();
  IoRecord(const IoRecord&) = delete;
  IoRecord& operator=(const IoRecord&) = delete;

  void mark(std::uint64_t n);
  void stop();  // later calls are not recorded
  // Sets a function that the calling thread runs for each event: after all earlier events were
  // recorded, and before a write is made.
  void watch(std::function<void(std::size_t at)> on_event) { on_event_ = std::move(on_event); }
  // For a forked child, before anything else. Ends recording, and frees a lock that another thread
  // held.
  static void forked();
  const std::vector<Event>& events() const { return events_; }

  // Which of the writes that are not durable survive.
  enum class Loss { all, none, random };
  // The files' bytes if power fails during event `at` (events().size(): after all).
  std::vector<std::vector<char>> cut(std::size_t at, Loss loss, std::mt19937_64& rng) const;
  // The last mark before event `at`. 0: none.
  std::uint64_t marked(std::size_t at) const;

  // For the functions in io_record.cc.
  void note_write(int fd, const void* from, std::size_t bytes, std::uint64_t offset);
  void note_hole(int fd, std::uint64_t offset, std::uint64_t bytes);
  void note_growth(int fd, std::uint64_t end);
  void note_sync(int fd);
  void note_stores();  // through the mapping, since the last event

 private:
  struct Seen;
  bool find(int fd, std::size_t* file) const;

  std::vector<std::string> paths_;
  std::vector<std::vector<char>> initial_;
  std::vector<Event> events_;
  const bool mapped_;
  std::vector<char> known_;  // mapped: the first file, with all events
  std::function<void(std::size_t)> on_event_;
  bool recording_ = true;
};

std::vector<char> read_whole(const std::string& path);
void write_whole(const std::string& path, const std::vector<char>& bytes);

}  // namespace tenuto::test
