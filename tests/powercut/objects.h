// What a thread does to objects of the pool: transactions over its own cells, a block that it
// replaces, and accounts that all such threads share. Follows from numbers alone, as keys.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "powercut/keys.h"
#include "powercut/story.h"
#include "tenuto/pool.h"

namespace tenuto::powercut {

inline constexpr unsigned kCells = 24;
inline constexpr unsigned kAccounts = 32;

// A block whose words follow from who wrote it.
struct Note {
  Stamp stamp;
  std::uint64_t words;
  std::uint64_t* at(std::uint64_t i) { return reinterpret_cast<std::uint64_t*>(this + 1) + i; }
  std::uint64_t filling(std::uint64_t i) const { return mix(mix(stamp.op, stamp.life), i); }
};

struct ThreadObjects {
  Stamp last;  // its last operation
  Progress before;
  std::array<std::uint64_t, kCells> cell;  // the operation that wrote it
  Ptr<Note> note;
};

struct Objects {
  std::array<ThreadObjects, kObjectThreads> thread;
  std::array<std::uint64_t, kAccounts> account;
};
inline constexpr const char* kObjectsLayout = "powercut";

struct ObjectOp {
  std::uint64_t number = 0;
  std::array<unsigned, 2> cell{};
  bool new_note = false;
  std::uint64_t note_words = 0;
  unsigned from = 0, to = 0;  // accounts
  std::uint64_t amount = 0;
  bool sync = false;
  bool abort_first = false;  // the same is begun and rolled back before
};

// As KeyModel; also what the thread's transfers have done to the accounts.
class ObjectModel {
 public:
  ObjectModel(std::uint64_t seed, unsigned thread) : seed_(seed), thread_(thread) {}
  ObjectOp next(std::uint64_t life);
  std::uint64_t done() const { return done_; }
  // Empty, or what is different in the pool.
  std::string compare(const Pool& pool, const ThreadObjects& there) const;
  const std::array<std::uint64_t, kAccounts>& transferred() const { return transferred_; }

 private:
  const std::uint64_t seed_;
  const unsigned thread_;
  std::uint64_t done_ = 0;
  std::array<std::uint64_t, kCells> cell_{};
  Stamp note_;
  std::uint64_t note_words_ = 0;
  std::array<std::uint64_t, kAccounts> transferred_{};
};

}  // namespace tenuto::powercut
