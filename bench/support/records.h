// What a benchmark stores: numbered records, each with a key and, for each version, a value that
// follows from (key, version). A value read back therefore proves itself, byte by byte, without a
// second copy of the data; a store that hands out old, torn or foreign bytes is caught.
//
// Constant after construction; any thread may call anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bench {

class Records {
 public:
  virtual ~Records() = default;

  virtual std::size_t key_bytes_max() const = 0;
  virtual std::size_t value_bytes_max() const = 0;
  virtual double value_bytes_mean() const = 0;
  // Integer keys of 8 bytes, big-endian (engines may use their integer mode).
  virtual bool integer_keys() const { return false; }

  // Writes the key to `out` (room for key_bytes_max) and returns its length.
  virtual std::size_t make_key(std::uint64_t record, char* out) const = 0;
  // Writes the value to `out` (room for value_bytes_max) and returns its length.
  virtual std::size_t make_value(std::uint64_t record, std::string_view key, std::uint32_t version,
                                 char* out) const = 0;
  // Reads every byte of the value. True when it is one that make_value made for this key; then
  // `version` is which one. Takes the same time whether it fits or not.
  virtual bool check_value(std::string_view key, std::string_view value,
                           std::uint32_t& version) const = 0;
  virtual std::optional<std::uint64_t> record_of(std::string_view key) const = 0;
};

// YCSB's synthetic records. Keys: 8 bytes = an integer; 16 and more = "user", zero padding and
// twelve base-32 digits of the record's (hashed) number. Values: the version, then noise that no
// compressor can shrink.
class YcsbRecords final : public Records {
 public:
  static bool supports(std::size_t key_bytes, std::size_t value_bytes) {
    return (key_bytes == 8 || (key_bytes >= 16 && key_bytes <= 255)) && value_bytes >= 8 &&
           value_bytes <= (1u << 20);
  }
  // `ordered`: keys rise with the record number (YCSB's insertorder=ordered), else hashed.
  // REQUIRES: supports(key_bytes, value_bytes).
  YcsbRecords(std::size_t key_bytes, std::size_t value_bytes, bool ordered)
      : key_bytes_(key_bytes), value_bytes_(value_bytes), ordered_(ordered) {}

  std::size_t key_bytes_max() const override { return key_bytes_; }
  std::size_t value_bytes_max() const override { return value_bytes_; }
  double value_bytes_mean() const override { return static_cast<double>(value_bytes_); }
  bool integer_keys() const override { return key_bytes_ == 8; }
  std::size_t make_key(std::uint64_t record, char* out) const override;
  std::size_t make_value(std::uint64_t record, std::string_view key, std::uint32_t version,
                         char* out) const override;
  bool check_value(std::string_view key, std::string_view value,
                   std::uint32_t& version) const override;
  std::optional<std::uint64_t> record_of(std::string_view key) const override;

 private:
  std::size_t key_bytes_;
  std::size_t value_bytes_;
  bool ordered_;
};

// Four multiply-and-fold lanes over 32 bytes at a time: fast enough to touch a value at memory
// speed, and any changed byte changes the result. Not a defence against an adversary.
std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed);

}  // namespace bench
