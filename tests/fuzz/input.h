// The bytes of one fuzz input, read from the front, and the report of a broken promise. A read past
// the end returns zeros. So every input is valid, and cutting off its tail, which a fuzzer does to
// make it small, does not change the rest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace tenuto::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t bytes) : at_(data), left_(bytes) {}

  bool done() const { return left_ == 0; }
  template <class T>
  T take() {
    T value{};
    const std::size_t n = std::min(sizeof value, left_);
    if (n != 0) std::memcpy(&value, at_, n);
    skip(n);
    return value;
  }
  std::uint8_t u8() { return take<std::uint8_t>(); }
  std::uint16_t u16() { return take<std::uint16_t>(); }
  std::uint32_t u32() { return take<std::uint32_t>(); }
  std::uint64_t u64() { return take<std::uint64_t>(); }
  // Returns a number from 0 to n - 1. REQUIRES: n > 0.
  std::size_t below(std::size_t n) { return (n <= 256 ? u8() : u16()) % n; }
  std::string_view bytes(std::size_t n) {
    n = std::min(n, left_);
    const std::string_view taken(reinterpret_cast<const char*>(at_), n);
    skip(n);
    return taken;
  }
  std::string_view rest() { return bytes(left_); }

 private:
  void skip(std::size_t n) {
    at_ += n;
    left_ -= n;
  }

  const std::uint8_t* at_;
  std::size_t left_;
};

// Stops the process. The fuzzer or the driver then names the input and keeps it.
[[noreturn]] inline void broken(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: broken promise: %s\n", file, line, what.c_str());
  std::abort();
}

}  // namespace tenuto::fuzz

#define FUZZ_REQUIRE(condition, what)                                     \
  do {                                                                    \
    if (!(condition)) ::tenuto::fuzz::broken(__FILE__, __LINE__, (what)); \
  } while (false)
