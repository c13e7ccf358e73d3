// What the public calls on records share: stored keys and records on their way into a tree.
#pragma once

#include <string>
#include <string_view>

#include "store/kv/store_impl.h"

namespace TENUTO_NS {

// The stored key of a key in a collection without duplicates. Not movable: it points into itself.
class StoredKey {
 public:
  StoredKey(const store::Encoding& encoding, std::string_view key) : key_(key) {
    if (!encoding.plain()) status_ = encoding.key(key, room_, key_);
  }
  StoredKey(const StoredKey&) = delete;
  StoredKey& operator=(const StoredKey&) = delete;

  Status status() const { return status_; }
  std::string_view get() const { return key_; }

 private:
  std::string room_;
  std::string_view key_;
  Status status_ = Status::ok;
};

// The stored key and value of a record: with duplicates, a pair.
class StoredRecord {
 public:
  StoredRecord(const store::Encoding& encoding, std::string_view key, std::string_view value,
               std::uint64_t ttl_ms)
      : key_(key), value_(value) {
    if (encoding.plain()) [[likely]] {
      if (ttl_ms != 0) status_ = Status::invalid_argument;
      return;
    }
    if (encoding.duplicates()) {
      status_ = encoding.pair(key, value, key_room_);
      key_ = key_room_;
      value_ = {};
    } else {
      status_ = encoding.key(key, key_room_, key_);
    }
    if (status_ == Status::ok) status_ = encoding.value(value_, ttl_ms, value_room_, value_);
  }
  StoredRecord(const StoredRecord&) = delete;
  StoredRecord& operator=(const StoredRecord&) = delete;

  Status status() const { return status_; }
  std::string_view key() const { return key_; }
  std::string_view value() const { return value_; }

 private:
  std::string key_room_;
  std::string value_room_;
  std::string_view key_;
  std::string_view value_;
  Status status_ = Status::ok;
};

// The value of the first pair.
inline Status first_value(Iterator pairs, std::string& value) {
  pairs.seek_first();
  if (!pairs.valid()) return pairs.status() == Status::ok ? Status::not_found : pairs.status();
  value.assign(pairs.value());
  return pairs.status();
}

}  // namespace TENUTO_NS
