// Real records for the main job: the stanzas of a Debian package index, one record each. The key is
// "package/version/architecture". The value is the stanza with one more field. It names the written
// version and has a hash of key, version and text. So a value verifies itself and stays readable.
// If more records are requested than there are stanzas, they repeat under the keys "...#2",
// "...#3".
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "bench/support/records.h"

namespace bench {

class PackageRecords final : public Records {
 public:
  // Reads the machine's own index, or `sample_path` if that is missing or tiny. Returns false if
  // neither exists.
  bool load(const std::string& sample_path);
  // Reads the stanzas of `text`, which are separated by empty lines.
  void take(std::string_view text);

  const std::string& source() const { return source_; }
  std::uint64_t stanzas() const { return stanzas_.size(); }
  std::uint64_t stanza_bytes() const { return stanza_bytes_; }
  double key_bytes_mean() const;

  std::size_t key_bytes_max() const override { return key_bytes_max_ + kCopyBytesMax; }
  std::size_t value_bytes_max() const override { return stanza_bytes_max_ + kSealBytes; }
  double value_bytes_mean() const override;
  std::size_t make_key(std::uint64_t record, char* out) const override;
  std::size_t make_value(std::uint64_t record, std::string_view key, std::uint32_t version,
                         char* out) const override;
  bool check_value(std::string_view key, std::string_view value,
                   std::uint32_t& version) const override;
  std::optional<std::uint64_t> record_of(std::string_view key) const override;

 private:
  static constexpr std::size_t kCopyBytesMax = 12;
  // "Tenuto-Seal: 01234567 0123456789abcdef\n"
  static constexpr std::string_view kSealName = "Tenuto-Seal: ";
  static constexpr std::size_t kSealBytes = kSealName.size() + 8 + 1 + 16 + 1;

  struct Stanza {
    std::string key;
    std::string text;
  };
  std::vector<Stanza> stanzas_;
  std::unordered_map<std::string_view, std::uint32_t> by_key_;  // views into stanzas_
  std::string source_;
  std::uint64_t stanza_bytes_ = 0;
  std::uint64_t key_bytes_ = 0;
  std::size_t stanza_bytes_max_ = 0;
  std::size_t key_bytes_max_ = 0;
};

}  // namespace bench
