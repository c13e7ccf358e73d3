// Which pairs of calls have met. Two calls on a store meet in three cases: one is made while the
// other runs; or while what the other began (a snapshot, a transaction, a cursor) is still there;
// or at most kNear calls after it in the same process.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "record.h"

namespace tenuto::life {

class Crossings {
 public:
  static constexpr std::size_t kNear = 6;

  // Adds the calls of one process.
  void add(const std::vector<Op>& ops);
  void add(const Crossings& other);
  std::uint64_t covered() const;
  static std::uint64_t all();
  std::uint64_t calls(Verb v) const { return calls_[static_cast<std::size_t>(v)]; }
  // Returns one line for each call: how many others it met, and which it never met.
  std::string table() const;

 private:
  std::array<std::array<std::uint64_t, kVerbs>, kVerbs> met_{};
  std::array<std::uint64_t, kVerbs> calls_{};
};

}  // namespace tenuto::life
