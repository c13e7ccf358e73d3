// Reads package indexes and seals stanzas; see package_records.h.
#include "bench/main_job/package_records.h"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <unordered_set>

namespace bench {
namespace {

// Prints every stanza that apt knows, however its lists are compressed.
constexpr const char* kIndexCommand = "apt-cache dumpavail 2>/dev/null";
constexpr std::uint64_t kStanzasMin = 1000;  // fewer: the machine has no real index

std::string output_of(const char* command) {
  std::string text;
  std::FILE* pipe = ::popen(command, "re");
  if (pipe == nullptr) return text;
  char block[1 << 16];
  while (const std::size_t n = std::fread(block, 1, sizeof block, pipe)) text.append(block, n);
  ::pclose(pipe);
  return text;
}

std::string_view field(std::string_view stanza, std::string_view name) {
  std::size_t at = 0;
  while (at < stanza.size()) {
    const std::string_view line = stanza.substr(at, stanza.find('\n', at) - at);
    if (line.size() > name.size() + 2 && line.compare(0, name.size(), name) == 0 &&
        line.compare(name.size(), 2, ": ") == 0) {
      return line.substr(name.size() + 2);
    }
    at += line.size() + 1;
  }
  return {};
}

void put_hex(char* out, std::size_t digits, std::uint64_t value) {
  for (std::size_t i = digits; i-- > 0; value >>= 4) out[i] = "0123456789abcdef"[value & 15];
}

bool get_hex(std::string_view digits, std::uint64_t& value) {
  const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return r.ec == std::errc() && r.ptr == digits.data() + digits.size();
}

std::uint64_t seal_of(std::string_view key, std::string_view text, std::uint32_t version) {
  return hash_bytes(text, hash_bytes(key, version));
}

}  // namespace

bool PackageRecords::load(const std::string& sample_path) {
  take(output_of(kIndexCommand));
  source_ = "this machine's Debian package index";
  if (stanzas() >= kStanzasMin) return true;
  std::ifstream in(sample_path);
  if (!in) return false;
  std::ostringstream sample;
  sample << in.rdbuf();
  take(sample.str());
  source_ = "the sample " + sample_path + " (this machine has no Debian package index)";
  return !stanzas_.empty();
}

void PackageRecords::take(std::string_view text) {
  stanzas_.clear();
  by_key_.clear();
  stanza_bytes_ = key_bytes_ = 0;
  stanza_bytes_max_ = key_bytes_max_ = 0;
  std::unordered_set<std::string> keys;  // a package may be in several lists
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find("\n\n", at), text.size());
    const std::string_view stanza = text.substr(at, end - at);
    at = std::min(end + 2, text.size());
    const std::string_view name = field(stanza, "Package");
    if (name.empty()) continue;
    std::string key(name);
    key.append("/").append(field(stanza, "Version"));
    key.append("/").append(field(stanza, "Architecture"));
    if (!keys.insert(key).second) continue;
    std::string value(stanza);
    if (value.back() != '\n') value += '\n';
    stanza_bytes_ += value.size();
    key_bytes_ += key.size();
    stanza_bytes_max_ = std::max(stanza_bytes_max_, value.size());
    key_bytes_max_ = std::max(key_bytes_max_, key.size());
    stanzas_.push_back({std::move(key), std::move(value)});
  }
  for (std::uint32_t i = 0; i < stanzas_.size(); ++i) by_key_.emplace(stanzas_[i].key, i);
}

double PackageRecords::key_bytes_mean() const {
  return static_cast<double>(key_bytes_) / static_cast<double>(stanzas_.size());
}

double PackageRecords::value_bytes_mean() const {
  return static_cast<double>(stanza_bytes_) / static_cast<double>(stanzas_.size()) + kSealBytes;
}

std::size_t PackageRecords::make_key(std::uint64_t record, char* out) const {
  const std::string& key = stanzas_[record % stanzas_.size()].key;
  std::memcpy(out, key.data(), key.size());
  const std::uint64_t copy = record / stanzas_.size();
  if (copy == 0) return key.size();
  out[key.size()] = '#';
  const auto r = std::to_chars(out + key.size() + 1, out + key.size() + kCopyBytesMax, copy + 1);
  return static_cast<std::size_t>(r.ptr - out);
}

std::optional<std::uint64_t> PackageRecords::record_of(std::string_view key) const {
  std::uint64_t copy = 1;
  const std::size_t mark = key.rfind('#');  // never part of a name or version
  if (mark != std::string_view::npos) {
    const char* end = key.data() + key.size();
    const auto r = std::from_chars(key.data() + mark + 1, end, copy);
    if (r.ec != std::errc() || r.ptr != end || copy < 2) return std::nullopt;
    key = key.substr(0, mark);
  }
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return std::nullopt;
  return (copy - 1) * stanzas_.size() + at->second;
}

std::size_t PackageRecords::make_value(std::uint64_t record, std::string_view key,
                                       std::uint32_t version, char* out) const {
  const std::string& text = stanzas_[record % stanzas_.size()].text;
  std::memcpy(out, text.data(), text.size());
  char* seal = out + text.size();
  std::memcpy(seal, kSealName.data(), kSealName.size());
  seal += kSealName.size();
  put_hex(seal, 8, version);
  seal[8] = ' ';
  put_hex(seal + 9, 16, seal_of(key, text, version));
  seal[25] = '\n';
  return text.size() + kSealBytes;
}

bool PackageRecords::check_value(std::string_view key, std::string_view value,
                                 std::uint32_t& version) const {
  if (value.size() < kSealBytes) return false;
  const std::string_view text = value.substr(0, value.size() - kSealBytes);
  const std::string_view seal = value.substr(text.size());
  std::uint64_t number = 0;
  std::uint64_t hash = 0;
  if (seal.substr(0, kSealName.size()) != kSealName || seal.back() != '\n' ||
      seal[kSealName.size() + 8] != ' ') {
    return false;
  }
  if (!get_hex(seal.substr(kSealName.size(), 8), number)) return false;
  if (!get_hex(seal.substr(kSealName.size() + 9, 16), hash)) return false;
  version = static_cast<std::uint32_t>(number);
  return hash == seal_of(key, text, version);
}

}  // namespace bench
