// Record blocks: {head, key, value}, written once and never changed while a slot names them.
// Written by tree.cc and batch.cc before any lock is taken, read by everybody under an epoch guard.
// Whatever lengths the media shows, a read stays inside the pool file. A tree's protocol says which
// head its records have (format.h).
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "heap/heap.h"
#include "pm/plant.h"
#include "pm/pool_file.h"
#include "store/format.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::store {

struct Record {
  std::string_view key;
  std::string_view value;
};

// As the store counts them.
inline std::int64_t bytes_of(const Record& r) {
  return static_cast<std::int64_t>(r.key.size() + r.value.size());
}

constexpr bool is_tagged(CommitProtocol p) { return p == CommitProtocol::one_fence; }
constexpr std::uint64_t long_value(CommitProtocol p) {
  return is_tagged(p) ? TaggedHead::kLongValue : RecordHead::kLongValue;
}
static_assert(sizeof(RecordHead) == sizeof(TaggedHead));

// The bytes of a block that holds such a record.
constexpr std::uint64_t record_bytes(CommitProtocol p, std::size_t key_bytes,
                                     std::size_t value_bytes) {
  const std::uint64_t extra = value_bytes >= long_value(p) ? 8 : 0;
  return sizeof(RecordHead) + extra + key_bytes + value_bytes;
}

// Whole lines where that wastes little: a block on line bounds is flushed with the fewest lines.
constexpr std::uint64_t record_block_bytes(std::uint64_t bytes) {
  const std::uint64_t lines = round_up(bytes, kLineBytes);
  return lines - bytes <= lines / 8 ? lines : bytes;
}

inline std::uint32_t record_crc(std::string_view key, std::string_view value) {
  std::uint32_t crc = pm::crc32c_u64(pm::crc32c_u64(~0u, key.size()), value.size());
  crc = pm::crc32c(key.data(), key.size(), crc);
  return pm::crc32c(value.data(), value.size(), crc);
}
// The same of a record where it stands: its value follows its key.
inline std::uint32_t record_crc(const Record& r) {
  const std::uint32_t crc = pm::crc32c_u64(pm::crc32c_u64(~0u, r.key.size()), r.value.size());
  return pm::crc32c(r.key.data(), r.key.size() + r.value.size(), crc);
}

inline std::uint16_t record_check(std::uint32_t crc) {
  return static_cast<std::uint16_t>(crc ^ crc >> 16);
}

// `crc` is record_crc. The fields come last, so that the salt changes every checksum by the same.
inline TaggedHead make_tagged(std::uint32_t crc, std::uint32_t fields) {
  return TaggedHead::make(fields, pm::crc32c_u64(crc, fields));
}

// The head of a record that is to stand where `standing` stands now: its tag is another.
inline TaggedHead tagged_head(std::string_view key, std::string_view value, TaggedHead standing) {
  const std::uint64_t field =
      value.size() >= TaggedHead::kLongValue ? TaggedHead::kLongValue : value.size();
  const std::uint32_t crc = record_crc(key, value);
  const TaggedHead head = make_tagged(crc, TaggedHead::make_fields(key.size(), field, false));
  if (head.tag() != standing.tag() || TENUTO_PLANT("store_tag_may_be_the_standing_one")) [[likely]]
    return head;
  return make_tagged(crc, TaggedHead::make_fields(key.size(), field, true));
}

inline std::uint64_t head_at(const std::byte* block) {
  std::uint64_t raw;
  std::memcpy(&raw, block, sizeof raw);
  return raw;
}

inline std::uint64_t make_head(CommitProtocol p, const std::byte* block, std::string_view key,
                               std::string_view value) {
  if (is_tagged(p)) return tagged_head(key, value, {head_at(block)}).raw;
  const std::uint64_t field =
      value.size() >= RecordHead::kLongValue ? RecordHead::kLongValue : value.size();
  return RecordHead::make(key.size(), field, record_check(record_crc(key, value))).raw;
}

// Fills a block and flushes it; durable after the caller's fence. The head is the last store of its
// line (one_fence.h).
inline void write_record(CommitProtocol p, std::byte* block, std::string_view key,
                         std::string_view value) {
  const std::uint64_t head = make_head(p, block, key, value);
  std::byte* to = block + sizeof head;
  if (value.size() >= long_value(p)) {
    const std::uint64_t bytes = value.size();
    std::memcpy(to, &bytes, sizeof bytes);
    to += sizeof bytes;
  }
  if (!key.empty()) std::memcpy(to, key.data(), key.size());
  if (!value.empty()) std::memcpy(to + key.size(), value.data(), value.size());
  store_ordered(*reinterpret_cast<std::uint64_t*>(block), head);
  flush_bytes(block, record_bytes(p, key.size(), value.size()));
}

// Asks for the two lines in which most records stand, whatever offset it is given.
inline void prefetch_record(const pm::PoolFile& file, PoolOffset at) {
  if (!file.in_range(at, 2 * kLineBytes)) return;
  __builtin_prefetch(file.at<char>(at));
  __builtin_prefetch(file.at<char>(at + kLineBytes));
}

// The record at an offset read from media; false when it cannot be one (the caller reports
// damage). Does not verify the checksum.
inline bool read_record(CommitProtocol p, const pm::PoolFile& file, PoolOffset at, Record& out) {
  if (!file.in_range(at, sizeof(RecordHead)) || at.value % alignof(RecordHead) != 0) return false;
  const char* bytes = file.at<const char>(at);
  const std::uint64_t head = head_at(file.at<const std::byte>(at));
  const std::uint64_t key_bytes = RecordHead{head}.key_bytes();
  std::uint64_t value_bytes =
      is_tagged(p) ? TaggedHead{head}.value_field() : RecordHead{head}.value_field();
  std::uint64_t fixed = sizeof head;
  if (value_bytes == long_value(p)) [[unlikely]] {
    fixed += 8;
    if (!file.in_range(at, fixed)) return false;
    std::memcpy(&value_bytes, bytes + sizeof head, sizeof value_bytes);
    if (value_bytes < long_value(p) || value_bytes > kOffsetMask) return false;
  }
  if (key_bytes > kKeyBytesMax || !file.in_range(at, fixed + key_bytes + value_bytes)) return false;
  out.key = {bytes + fixed, key_bytes};
  out.value = {bytes + fixed + key_bytes, value_bytes};
  return true;
}

inline bool record_sound(CommitProtocol p, const pm::PoolFile& file, PoolOffset at,
                         const Record& r) {
  const std::uint64_t head = head_at(file.at<const std::byte>(at));
  if (!is_tagged(p)) return RecordHead{head}.check() == record_check(record_crc(r));
  const TaggedHead tagged{head};
  return make_tagged(record_crc(r), tagged.fields()).raw == head;
}

}  // namespace tenuto::inline TENUTO_ABI::store
