// What left the machine before its power went: the lines that lives sent through the second serial
// port. The host hands them to the next boot, whose life judges the pool by them.
//
//   B LIFE                a life begins: it opens the pool
//   L LIFE n0 n1 ...      it found the pool right, with n operations of each thread; it goes on
//   there A THREAD n            the thread's operations up to n are durable H it is alive T LIFE
//   COMMITS CHECKPOINTS BYTES   what its journal did so far; size of the pool V LIFE CLEAN OPEN_MS
//   VALIDATE_MS JUDGE_MS   after L: what opening was like W text                it found something
//   wrong
//
// Operation n of a thread belongs to the last life that began below n: a later life does again,
// with other contents, what was lost of an earlier one.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tenuto::powercut {

// Threads of a life. The first three write keys of the store, the others objects.
inline constexpr unsigned kThreads = 5;
inline constexpr unsigned kKeyThreads = 3;
inline constexpr unsigned kObjectThreads = kThreads - kKeyThreads;
inline constexpr unsigned kSyncThread = 0;             // every operation is synced
inline constexpr unsigned kMixedThread = 1;            // some are
inline constexpr unsigned kBufferedThread = 2;         // none is; it calls Store::sync at times
using Progress = std::array<std::uint64_t, kThreads>;  // operations of each thread

std::uint64_t mix(std::uint64_t a, std::uint64_t b);

class Story {
 public:
  // Nothing when a line makes no sense. A file that is not there is an empty story.
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

// Where the lines go: out of the machine, and into a file in its memory for the next life that
// begins before the power goes.
class Wire {
 public:
  Wire(const std::string& port, const std::string& file);
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void say(const std::string& line);
  // Returns when everything said has left the machine.
  void drain();

 private:
  std::mutex mu_;
  int port_;
  int file_;
};

}  // namespace tenuto::powercut
