// A disk with a volatile write cache: what was written is read back at once, but stands in the
// image only after a flush. A power cut decides, sector by sector, what of the rest the image gets.
// It knows nothing of how requests arrive.
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

// What a cut does to writes that were not flushed. sectors: each sector keeps any one of its
// versions or none, whatever its neighbours do, so that requests are torn and overtake each other.
// requests: each request survives whole or not at all.
enum class Loss { drop, keep, sectors, requests };
std::optional<Loss> loss_of(std::string_view name);

class VolatileDisk {
 public:
  struct Counts {
    std::uint64_t writes = 0;   // requests
    std::uint64_t sectors = 0;  // in them
    std::uint64_t flushes = 0;
    std::uint64_t unflushed = 0;  // sectors whose newest version was not durable at the cut
    std::uint64_t lost = 0;       // of which the image has an older version
  };

  // The image stays open as long as this lives.
  VolatileDisk(int image, std::uint64_t bytes) : image_(image), bytes_(bytes) {}

  // All return false for what is not in whole sectors of the disk, or when the image fails.
  bool write(std::uint64_t offset, std::vector<char> data);
  bool read(std::uint64_t offset, std::vector<char>& data) const;
  bool flush();
  // The power goes: settles what was not flushed. Nothing may follow.
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
