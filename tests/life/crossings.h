// Which calls have met: a pair of calls did when one was made on a store while the other was under
// way, or while what the other began (a snapshot, a transaction, a cursor, a view) stood, or next
// to it in the same process, at most kNear calls apart.
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

  // The calls of one process.
  void add(const std::vector<Op>& ops);
  void add(const Crossings& other);
  std::uint64_t covered() const;
  static std::uint64_t all();
  std::uint64_t calls(Verb v) const { return calls_[static_cast<std::size_t>(v)]; }
  // A line a call: how many of the others it met, and those it did not.
  std::string table() const;

 private:
  std::array<std::array<std::uint64_t, kVerbs>, kVerbs> met_{};
  std::array<std::uint64_t, kVerbs> calls_{};
};

}  // namespace tenuto::life
