#include "powercut/keys.h"

#include <algorithm>
#include <sstream>

#include "support/kill_records.h"

namespace tenuto::powercut {

namespace {

constexpr std::size_t kBatchMax = 5;
constexpr std::uint64_t kBulkBytesMin = 60'000;  // far more than an epoch of the journal holds
constexpr std::uint64_t kBulkBytesRange = 120'000;

std::string filling(unsigned thread, unsigned key, Stamp stamp) {
  const std::uint64_t h = mix(stamp.op, stamp.life);
  std::string s = test::kill_value(static_cast<int>(thread), static_cast<int>(key),
                                   static_cast<std::uint32_t>(h));
  const bool bulk = thread == kBufferedThread && key % 8 == 0 && (h >> 32) % 4 == 0;
  if (!bulk) return s;
  const std::string piece = s;
  const std::uint64_t bytes = kBulkBytesMin + (h >> 40) % kBulkBytesRange;
  while (s.size() < bytes) s += piece + std::to_string(s.size());
  return s;
}

}  // namespace

KeyOp KeyModel::next(std::uint64_t life) {
  done_ += 1;
  const std::uint64_t h = mix(mix(seed_, thread_), mix(done_, life));
  KeyOp op;
  op.number = done_;
  op.sync = thread_ == kSyncThread || (thread_ == kMixedThread && h % 6 == 0);
  const std::size_t count = (h >> 8) % 5 == 0 ? 2 + (h >> 12) % (kBatchMax - 1) : 1;
  for (std::uint64_t i = 0; op.changes.size() < count; ++i) {
    const std::uint64_t g = mix(h, i);
    const auto key = static_cast<unsigned>(g % kKeys);
    const auto same = [key](const KeyOp::Change& c) { return c.key == key; };
    if (std::any_of(op.changes.begin(), op.changes.end(), same)) continue;
    const bool erase = stamps_[key].op != 0 && (g >> 32) % 5 == 0;
    op.changes.push_back({key, erase});
    stamps_[key] = erase ? Stamp{} : Stamp{done_, life};
  }
  return op;
}

std::string key_of(unsigned thread, unsigned key) {
  return test::kill_key(static_cast<int>(thread), static_cast<int>(key));
}

std::string value_of(unsigned thread, unsigned key, Stamp stamp, const Progress& before) {
  std::string s = std::to_string(stamp.op) + " " + std::to_string(stamp.life);
  for (const std::uint64_t n : before) s += " " + std::to_string(n);
  return s + ";" + filling(thread, key, stamp);
}

std::optional<Written> read_value(unsigned thread, unsigned key, std::string_view value) {
  Written w;
  std::istringstream head(std::string(value.substr(0, value.find(';'))));
  head >> w.stamp.op >> w.stamp.life;
  for (std::uint64_t& n : w.before) head >> n;
  if (!head || value != value_of(thread, key, w.stamp, w.before)) return std::nullopt;
  return w;
}

}  // namespace tenuto::powercut
