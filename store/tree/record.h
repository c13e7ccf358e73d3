// Record blocks: {head, key, value}. A block is written once, before any leaf is locked, and does
// not change while a slot names it. Any thread may read it under an epoch guard. A read stays
// inside the pool file, whatever lengths the media has.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "file/pool_file.h"
#include "heap/heap.h"
#include "pm/plant.h"
#include "store/tree/format.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::store {

struct Record {
  std::string_view key;
  std::string_view value;
};

// The bytes that the store's counts include.
inline std::int64_t bytes_of(const Record& r) {
  return static_cast<std::int64_t>(r.key.size() + r.value.size());
}

// The bytes that such a record takes in its block.
constexpr std::uint64_t record_bytes(std::size_t key_bytes, std::size_t value_bytes) {
  const std::uint64_t extra = value_bytes >= RecordHead::kLongValue ? 8 : 0;
  return sizeof(RecordHead) + extra + key_bytes + value_bytes;
}

inline std::uint64_t record_bytes_of(const Record& r) {
  return record_bytes(r.key.size(), r.value.size());
}

// Whole lines if that wastes little: a block on line bounds is flushed with the fewest lines.
constexpr std::uint64_t record_block_bytes(std::uint64_t bytes) {
  const std::uint64_t lines = round_up(bytes, kLineBytes);
  return lines - bytes <= lines / 8 ? lines : bytes;
}

constexpr std::uint16_t fold_check(std::uint32_t crc) {
  return static_cast<std::uint16_t>(crc ^ crc >> 16);
}
// The first part of a record's checksum: its place and the lengths. The place is there because a
// page may be written to the wrong place, with an older record of the same key in it. 0.1.0 had no
// place: it counts as 0.
inline std::uint32_t record_seed(PoolOffset at, std::uint64_t key_bytes,
                                 std::uint64_t value_bytes) {
  const std::uint64_t first = at.value >> 3 << RecordHead::kKeyBits | key_bytes;
  return pm::crc32c_u64(pm::crc32c_u64(~0u, first), value_bytes);
}
inline std::uint16_t record_check(PoolOffset at, std::string_view key, std::string_view value) {
  const std::uint32_t crc =
      pm::crc32c(key.data(), key.size(), record_seed(at, key.size(), value.size()));
  return fold_check(pm::crc32c(value.data(), value.size(), crc));
}
// The same for a record in its block, where the value follows the key.
inline std::uint16_t record_check(PoolOffset at, const Record& r) {
  return fold_check(pm::crc32c(r.key.data(), r.key.size() + r.value.size(),
                               record_seed(at, r.key.size(), r.value.size())));
}

// Fills a block and flushes it. It is durable after the caller's fence.
inline void write_record(const pm::PoolFile& file, PoolOffset at, std::string_view key,
                         std::string_view value) {
  const bool is_long = value.size() >= RecordHead::kLongValue;
  const PoolOffset place = TENUTO_PLANT("store_record_place_not_covered") ? PoolOffset{} : at;
  const RecordHead head = RecordHead::make(
      key.size(), is_long ? RecordHead::kLongValue : value.size(), record_check(place, key, value));
  auto* const block = file.at<std::byte>(at);
  std::byte* to = block;
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  if (is_long) {
    const std::uint64_t bytes = value.size();
    std::memcpy(to, &bytes, sizeof bytes);
    to += sizeof bytes;
  }
  if (!key.empty()) std::memcpy(to, key.data(), key.size());
  if (!value.empty()) std::memcpy(to + key.size(), value.data(), value.size());
  flush_bytes(block, record_bytes(key.size(), value.size()));
}

// Prefetches the two lines in which most records are, or so many. Any offset is allowed: a prefetch
// does not fault.
inline void prefetch_record(const pm::PoolFile& file, PoolOffset at, std::uint64_t lines = 2) {
  for (std::uint64_t i = 0; i < lines; ++i) __builtin_prefetch(file.at<char>(at + i * kLineBytes));
}

// The same for its key, which is in the first line as a rule.
inline void prefetch_key(const pm::PoolFile& file, PoolOffset at) {
  constexpr std::uint64_t kHeadAndKey = 32;
  __builtin_prefetch(file.at<char>(at));
  __builtin_prefetch(file.at<char>(at + kHeadAndKey));
}

// The record at an offset that was read from media. False: there cannot be one, and the caller
// reports damage. Does not verify the checksum.
inline bool read_record(const pm::PoolFile& file, PoolOffset at, Record& out) {
  if (at.value < pm::kHeadBytes || !file.in_range(at, sizeof(RecordHead)) ||
      at.value % alignof(RecordHead) != 0)
    return false;
  const char* p = file.at<const char>(at);
  RecordHead head;
  std::memcpy(&head, p, sizeof head);
  const std::uint64_t key_bytes = head.key_bytes();
  std::uint64_t value_bytes = head.value_field();
  std::uint64_t fixed = sizeof head;
  if (value_bytes == RecordHead::kLongValue) [[unlikely]] {
    fixed += 8;
    if (!file.in_range(at, fixed)) return false;
    std::memcpy(&value_bytes, p + sizeof head, sizeof value_bytes);
    if (value_bytes < RecordHead::kLongValue || value_bytes > kOffsetMask) return false;
  }
  if (key_bytes > kKeyBytesMax || !file.in_range(at, fixed + key_bytes + value_bytes)) return false;
  out.key = {p + fixed, key_bytes};
  out.value = {p + fixed + key_bytes, value_bytes};
  return true;
}

// The block of a record that read_record has found.
inline PoolOffset place_of(const pm::PoolFile& file, const Record& r) {
  const PoolOffset behind = file.offset_of(r.key.data());
  const std::uint64_t bytes = record_bytes(r.key.size(), r.value.size());
  return {behind.value - (bytes - r.key.size() - r.value.size())};
}

// Whether the record was written to this place. False for records of 0.1.0, whose place is unknown.
inline bool record_of_its_place(const pm::PoolFile& file, PoolOffset at, const Record& r) {
  RecordHead head;
  std::memcpy(&head, file.at<const char>(at), sizeof head);
  return head.check() == record_check(at, r);
}

// Of a record of 0.1.0. Not inline, so that record_sound is.
bool record_sound_anywhere(const pm::PoolFile& file, PoolOffset at, const Record& r);

inline bool record_sound(const pm::PoolFile& file, PoolOffset at, const Record& r) {
  return record_of_its_place(file, at, r) || record_sound_anywhere(file, at, r);
}

}  // namespace TENUTO_NS::store
