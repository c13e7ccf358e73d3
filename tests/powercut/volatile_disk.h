// A disk with a volatile write cache. A write can be read back at once, but is in the image only
// after a flush. A power cut decides for each sector what the image gets of the rest. This class
// does not know how requests arrive.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

namespace tenuto::powercut {

inline constexpr std::uint64_t kSectorBytes = 512;

// What a cut does to writes without a flush. sectors: each sector keeps any one of its versions or
// none, independently of its neighbours, so that requests are torn and reordered. requests: each
// request survives whole or not at all.
enum class Loss { drop, keep, sectors, requests };
std::optional<Loss> loss_of(std::string_view name);

class VolatileDisk {
 public:
  struct Counts {
    std::uint64_t writes = 0;   // requests
    std::uint64_t sectors = 0;  // in these requests
    std::uint64_t flushes = 0;
    std::uint64_t unflushed = 0;  // sectors whose newest version was not durable at the cut
    std::uint64_t lost = 0;       // of these, sectors of which the image has an older version
  };

  // REQUIRES: the image stays open as long as this object lives.
  VolatileDisk(int image, std::uint64_t bytes) : image_(image), bytes_(bytes) {}

  // All return false for a range that is not whole sectors of the disk, or if the image fails.
  bool write(std::uint64_t offset, std::vector<char> data);
  bool read(std::uint64_t offset, std::vector<char>& data) const;
  bool flush();
  // The power goes: decides what happens to unflushed writes. No call may follow.
  bool cut(Loss loss, std::uint64_t seed);

  std::uint64_t bytes() const { return bytes_; }
  bool has_unflushed() const { return !cache_.empty(); }
  const Counts& counts() const { return counts_; }

 private:
  using Sector = std::array<char, kSectorBytes>;
  struct Version {
    std::uint64_t request = 0;
    Sector content;
  };
  bool is_ours(std::uint64_t offset, std::uint64_t bytes) const;
  bool store(std::uint64_t sector, const Sector& content);

  const int image_;
  const std::uint64_t bytes_;
  std::map<std::uint64_t, std::vector<Version>> cache_;  // by sector, oldest version first
  Counts counts_;
};

}  // namespace tenuto::powercut
