#include "powercut/volatile_disk.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace tenuto::powercut {

std::optional<Loss> loss_of(std::string_view name) {
  if (name == "drop") return Loss::drop;
  if (name == "keep") return Loss::keep;
  if (name == "sectors") return Loss::sectors;
  if (name == "requests") return Loss::requests;
  return std::nullopt;
}

bool VolatileDisk::is_ours(std::uint64_t offset, std::uint64_t bytes) const {
  return offset % kSectorBytes == 0 && bytes % kSectorBytes == 0 && bytes <= bytes_ &&
         offset <= bytes_ - bytes;
}

bool VolatileDisk::store(std::uint64_t sector, const Sector& content) {
  return ::pwrite(image_, content.data(), content.size(),
                  static_cast<off_t>(sector * kSectorBytes)) ==
         static_cast<ssize_t>(content.size());
}

bool VolatileDisk::write(std::uint64_t offset, std::vector<char> data) {
  if (!is_ours(offset, data.size())) return false;
  counts_.writes += 1;
  counts_.sectors += data.size() / kSectorBytes;
  for (std::size_t at = 0; at < data.size(); at += kSectorBytes) {
    Version v;
    v.request = counts_.writes;
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(at), kSectorBytes, v.content.begin());
    cache_[(offset + at) / kSectorBytes].push_back(v);
  }
  return true;
}

bool VolatileDisk::read(std::uint64_t offset, std::vector<char>& data) const {
  if (!is_ours(offset, data.size())) return false;
  if (::pread(image_, data.data(), data.size(), static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(data.size())) {
    return false;
  }
  const std::uint64_t first = offset / kSectorBytes;
  const std::uint64_t end = first + data.size() / kSectorBytes;
  for (auto at = cache_.lower_bound(first); at != cache_.end() && at->first < end; ++at) {
    std::memcpy(&data[(at->first - first) * kSectorBytes], at->second.back().content.data(),
                kSectorBytes);
  }
  return true;
}

bool VolatileDisk::flush() {
  counts_.flushes += 1;
  for (const auto& [sector, versions] : cache_) {
    if (!store(sector, versions.back().content)) return false;
  }
  cache_.clear();
  return true;
}

bool VolatileDisk::cut(Loss loss, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  // The share that survives differs from cut to cut. With always half of all sectors, no request of
  // many sectors would ever survive whole.
  const double survival = std::uniform_real_distribution<>(0, 1)(rng);
  const auto survives = [&] { return std::uniform_real_distribution<>(0, 1)(rng) < survival; };
  std::unordered_map<std::uint64_t, bool> request_survives;
  for (const auto& [sector, versions] : cache_) {
    std::size_t kept = 0;  // the version that is kept, from 1; 0: the flushed one
    if (loss == Loss::keep) kept = versions.size();
    if (loss == Loss::sectors && survives()) kept = 1 + rng() % versions.size();
    for (std::size_t i = 0; loss == Loss::requests && i < versions.size(); ++i) {
      const auto [at, fresh] = request_survives.try_emplace(versions[i].request, false);
      if (fresh) at->second = survives();
      if (at->second) kept = i + 1;
    }
    counts_.unflushed += 1;
    if (kept < versions.size()) counts_.lost += 1;
    if (kept != 0 && !store(sector, versions[kept - 1].content)) return false;
  }
  cache_.clear();
  return true;
}

}  // namespace tenuto::powercut
