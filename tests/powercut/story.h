// What left the machine before its power went: the lines that lives sent through the second serial
// port. The host hands them to the next boot, whose life judges the pool by them.
//
//   B LIFE                             a life begins: it opens the pool
//   L LIFE n0 n1 ...                   the pool is right, with n operations of each thread
//   V LIFE CLEAN OPEN_MS VALIDATE_MS JUDGE_MS   after L: how it was closed, and how long that took
//   A THREAD n                         the thread's operations up to n are durable
//   H                                  it is alive
//   T LIFE COMMITS CHECKPOINTS BYTES   what its journal did so far; size of the pool
//   W text                             something is wrong
//
// Operation n of a thread belongs to the last life that began below n. A later life makes
// operations that an earlier life lost once more, with other contents.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tenuto::powercut {

// Threads of a life. The first three write keys of the store, the other two objects.
inline constexpr unsigned kThreads = 5;
inline constexpr unsigned kKeyThreads = 3;
inline constexpr unsigned kObjectThreads = kThreads - kKeyThreads;
inline constexpr unsigned kSyncThread = 0;             // every operation is synced
inline constexpr unsigned kMixedThread = 1;            // some operations are synced
inline constexpr unsigned kBufferedThread = 2;         // none is; it calls Store::sync at times
using Progress = std::array<std::uint64_t, kThreads>;  // operations of each thread

std::uint64_t mix(std::uint64_t a, std::uint64_t b);

class Story {
 public:
  // Returns nothing if a line makes no sense. A missing file is an empty story.
  static std::optional<Story> read(const std::string& path);

  bool has_life() const { return !lives_.empty(); }
  std::uint64_t next_life() const { return has_life() ? lives_.back().number + 1 : 1; }
  std::uint64_t life_of(unsigned thread, std::uint64_t op) const;
  const Progress& durable() const { return durable_; }

 private:
  struct Life {
    std::uint64_t number;
    Progress begin;
  };
  bool add(const std::string& line);

  std::vector<Life> lives_;
  Progress durable_{};
};

// Sends lines out of the machine, and to a file in its memory for the next life before the power
// goes.
class Wire {
 public:
  Wire(const std::string& port, const std::string& file);
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void say(const std::string& line);
  // Returns when all lines have left the machine.
  void drain();

 private:
  std::mutex mu_;
  int port_;
  int file_;
};

}  // namespace tenuto::powercut
