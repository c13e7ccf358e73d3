// The times that a pool stores for lifetimes (store/tree/clock.cc). The floor: no clock below it is
// believed. The time seen: a clock value that is not believed yet. Each is stored twice, sealed, in
// one line of the head page. They are stored like any other data, so a journal takes their line
// image. A word counts if its seal fits; of two that fit, the later time counts. A word that was
// never written is time 0.
#include <algorithm>

#include "file/pool_file.h"
#include "pm/crc32c.h"
#include "pm/metadata_key.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

namespace {

constexpr unsigned kTimeBits = 48;  // milliseconds: some 8900 years
constexpr std::uint64_t kTimeMask = (std::uint64_t{1} << kTimeBits) - 1;
constexpr std::size_t kFloor = 0, kSeen = 1, kSecondCopy = 4;

std::uint64_t sealed(std::uint64_t ms, std::size_t word, std::uint64_t pool_id) {
  const std::uint64_t said[] = {ms, word, pool_id};
  return ms | (std::uint64_t{crc32c(said, sizeof said)} << kTimeBits);
}

}  // namespace

std::uint64_t PoolFile::time_word(std::size_t which) const {
  const MetadataOpen rights;
  std::uint64_t found = 0;
  for (const std::size_t word : {which, which + kSecondCopy}) {
    const std::uint64_t raw = __atomic_load_n(&head().times[word], __ATOMIC_RELAXED);
    const std::uint64_t ms = raw & kTimeMask;
    if (raw == sealed(ms, word, super_.pool_id) && ms > found) found = ms;
  }
  return found;
}

bool PoolFile::times_damaged() const {
  const MetadataOpen rights;
  const auto written = [this](std::size_t word) {
    return __atomic_load_n(&head().times[word], __ATOMIC_RELAXED) != 0;
  };
  return time_floor() == 0 && (written(kFloor) || written(kFloor + kSecondCopy));
}

std::uint64_t PoolFile::time_floor() const { return time_word(kFloor); }
std::uint64_t PoolFile::time_seen() const { return time_word(kSeen); }

void PoolFile::set_times(std::uint64_t floor, std::uint64_t seen) {
  const MetadataOpen rights;
  const auto put = [this](std::size_t word, std::uint64_t ms) {
    store_published(head().times[word], sealed(std::min(ms, kTimeMask), word, super_.pool_id));
  };
  for (const std::size_t copy : {std::size_t{0}, kSecondCopy}) {
    put(copy + kFloor, floor);
    put(copy + kSeen, seen);
  }
  flush(head().times);
  fence("times", "lifetimes go by them");
}

}  // namespace TENUTO_NS::pm
