// What a thread does to objects of the pool: transactions over its own cells, a block that it
// replaces, and accounts that all such threads share. As in keys.h, only numbers decide it.
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

// A block whose words follow from its writer's stamp.
struct Note {
  Stamp stamp;
  std::uint64_t words;
  std::uint64_t* at(std::uint64_t i) { return reinterpret_cast<std::uint64_t*>(this + 1) + i; }
  std::uint64_t filling(std::uint64_t i) const { return mix(mix(stamp.op, stamp.life), i); }
};

struct ThreadObjects {
  Stamp last;  // its last operation
  Progress before;
  std::array<std::uint64_t, kCells> cell;  // the operation that wrote each cell
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
  bool abort_first = false;  // first begin the same transaction and roll it back
};

// As KeyModel. It also has the sums that the thread's transfers have moved.
class ObjectModel {
 public:
  ObjectModel(std::uint64_t seed, unsigned thread) : seed_(seed), thread_(thread) {}
  ObjectOp next(std::uint64_t life);
  std::uint64_t done() const { return done_; }
  // Returns what differs in the pool, or an empty string.
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
