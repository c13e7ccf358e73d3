// What a thread does to its keys of the store, operation by operation. Only numbers decide it, so
// the life after a cut knows what the lives before it wrote.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "powercut/story.h"

namespace tenuto::powercut {

inline constexpr unsigned kKeys = 40;  // of each thread

// The writer of a value. op 0: the key has no record.
struct Stamp {
  std::uint64_t op = 0;
  std::uint64_t life = 0;
  bool operator==(const Stamp&) const = default;
};
using KeyStamps = std::array<Stamp, kKeys>;

// One operation: a put, an erase, or several of them in a batch.
struct KeyOp {
  struct Change {
    unsigned key = 0;
    bool erase = false;
  };
  std::uint64_t number = 0;
  std::vector<Change> changes;
  bool sync = false;  // the call waits for the device
};

class KeyModel {
 public:
  KeyModel(std::uint64_t seed, unsigned thread) : seed_(seed), thread_(thread) {}
  // Returns the next operation, for this life. The model then includes it.
  KeyOp next(std::uint64_t life);
  std::uint64_t done() const { return done_; }
  const KeyStamps& stamps() const { return stamps_; }

 private:
  const std::uint64_t seed_;
  const unsigned thread_;
  std::uint64_t done_ = 0;
  KeyStamps stamps_{};
};

std::string key_of(unsigned thread, unsigned key);

// A value names its writer, and how far each thread had come when it was written. A cut that leaves
// the value must leave all of that, too.
std::string value_of(unsigned thread, unsigned key, Stamp stamp, const Progress& before);
struct Written {
  Stamp stamp;
  Progress before{};
};
// Returns nothing unless the value is, to the byte, one that value_of makes.
std::optional<Written> read_value(unsigned thread, unsigned key, std::string_view value);

}  // namespace tenuto::powercut
