// The data that a benchmark stores: numbered records, each with a key. Each version of a record has
// a value computed from (key, version). So a value can be verified byte by byte without a second
// copy of the data. This finds old, torn and foreign bytes.
//
// Constant after construction; any thread may call any function.
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

  // Writes the key to `out`, which has room for key_bytes_max. Returns its length.
  virtual std::size_t make_key(std::uint64_t record, char* out) const = 0;
  // Writes the value to `out`, which has room for value_bytes_max. Returns its length.
  virtual std::size_t make_value(std::uint64_t record, std::string_view key, std::uint32_t version,
                                 char* out) const = 0;
  // Reads every byte of the value. Returns true and the `version` if make_value made it for this
  // key. Takes the same time for a wrong value of the right size.
  virtual bool check_value(std::string_view key, std::string_view value,
                           std::uint32_t& version) const = 0;
  virtual std::optional<std::uint64_t> record_of(std::string_view key) const = 0;
};

// YCSB's synthetic records. A key of 8 bytes is an integer. A longer key (from 16 bytes) is "user",
// zero padding and twelve base-32 digits of the (hashed) record number. A value is the version,
// followed by noise that does not compress.
class YcsbRecords final : public Records {
 public:
  static bool supports(std::size_t key_bytes, std::size_t value_bytes) {
    return (key_bytes == 8 || (key_bytes >= 16 && key_bytes <= 255)) && value_bytes >= 8 &&
           value_bytes <= (1u << 20);
  }
  // `ordered`: keys rise with the record number (YCSB's insertorder=ordered); otherwise hashed.
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

// Four multiply-and-fold lanes over 32 bytes at a time. It runs at memory speed, and any changed
// byte changes the result. It is no defence against an adversary.
std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed);

}  // namespace bench
