// How a collection's keys and values are stored in its tree. A tree is ordered by bytes; it knows
// no orders, duplicates or lifetimes. The public calls encode what they give the tree and decode
// what they get.
//
//   order             bytes, u64: the key as it is
//                     reverse, reverse_u64: the same; cursors walk the other way
//                     registered: the key as its codec encodes it
//   duplicates        stored key: the key's bytes, each 00 as 00 ff, then 00 01, then the value;
//                     stored value: empty
//   expires           eight bytes before the value, big-endian: when the record expires, in ms
//                     since 1970; 0: never
//
// With duplicates, 00 01 ends the key. A longer key has 00 ff or a non-zero byte in this place.
// Both are greater, so pairs are ordered by the bytes of their keys, then by their values. The key
// with 00 02 begins no pair, and is an upper bound of all pairs of the key.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/kv/catalog.h"
#include "store/tree/clock.h"
#include "tenuto/collection.h"

namespace TENUTO_NS::store {

// Stored keys from lower (inclusive) to upper (exclusive; none: to the end).
struct Span {
  std::string lower;
  std::optional<std::string> upper;
};

// The span of an iterator, or why it has none.
struct Where {
  Span span;
  Status status = Status::ok;
};

// The options that make such a collection.
CollectionOptions options_of(const CollectionSpec& spec);

// The least string above all that start with the prefix. None: there is no such string.
std::optional<std::string> behind_prefix(std::string prefix);

// A stored key, decoded. The views are into the stored key or into the strings here.
struct Apart {
  std::string_view key;
  std::string_view value;  // with duplicates
  std::string plain_key;
  std::string decoded;
};

class Encoding {
 public:
  // Keeps a copy of the codec. Null: there is none.
  Encoding(const CollectionSpec& spec, const KeyCodec* codec, std::shared_ptr<ExpiryClock> clock);

  // Keys and values are stored as they are, and cursors walk forwards.
  bool plain() const { return plain_; }
  bool duplicates() const { return how_.duplicates; }
  bool expires() const { return how_.expires; }
  bool reversed() const { return reversed_; }
  const CollectionSpec& spec() const { return spec_; }
  // From now on keys and values are shown as they are stored.
  void show_stored();

  // --- writing -----------------------------------------------------------------------------------
  // Encodes a key. `out` is the key itself or points into `room`. too_large | invalid_argument: the
  // collection has no such keys. REQUIRES: no duplicates.
  Status key(std::string_view key, std::string& room, std::string_view& out) const;
  // As key(), for a pair. REQUIRES: duplicates.
  Status pair(std::string_view key, std::string_view value, std::string& room) const;
  // As key(), for a value, which is empty with duplicates. invalid_argument: a lifetime in a
  // collection whose records do not expire.
  Status value(std::string_view value, std::uint64_t ttl_ms, std::string& room,
               std::string_view& out) const;

  // --- reading -----------------------------------------------------------------------------------
  // The time for live(). Call it before the tree is read: a record found expired had then expired
  // when it was read. 0 where nothing expires.
  TimeMs now() const { return how_.expires ? clock_->now() : 0; }
  // False: the record with this stored value has expired.
  bool live(std::string_view stored, TimeMs at) const {
    return !how_.expires || !expired(stored, at);
  }
  // When the record expires. 0: never.
  TimeMs gone_at(std::string_view stored) const;
  std::string_view value_in(std::string_view stored) const {
    return how_.expires && stored.size() >= kStamp ? stored.substr(kStamp) : stored;
  }
  // How many milliseconds the record has left, 1 if it has expired. 0: it never expires.
  std::uint64_t ttl_ms(std::string_view stored, TimeMs at) const;
  // False: this cannot be a stored key.
  bool take_apart(std::string_view stored, Apart& out) const;

  // --- places of the tree, in its order ----------------------------------------------------------
  // Bounds of the stored keys of a key: begin_of is the least one that can be, end_of is an
  // exclusive upper bound.
  Status begin_of(std::string_view key, std::string& out) const;
  Status end_of(std::string_view key, std::string& out) const;
  // Keys from `from` (inclusive) to `to` (exclusive), in the user's order.
  Status range(std::optional<std::string_view> from, std::optional<std::string_view> to,
               Span& out) const;
  // What an iterator with these options walks over.
  Status span(const IteratorOptions& options, Span& out) const;

 private:
  static constexpr std::size_t kStamp = 8;

  bool may_be_key(std::string_view key) const;
  bool expired(std::string_view stored, TimeMs at) const;
  Status encoded(std::string_view key, std::string& room, std::string_view& out) const;
  Status escaped(std::string_view key, char end, std::string& out) const;

  CollectionSpec spec_;
  CollectionSpec how_;  // spec_, or all plain after show_stored()
  KeyCodec codec_;      // without functions: none
  std::shared_ptr<ExpiryClock> clock_;
  bool reversed_;
  bool plain_;
};

// Makes the encodings of a store's collections.
class Encodings {
 public:
  Encodings() = default;
  explicit Encodings(std::vector<KeyCodec> codecs) : codecs_(std::move(codecs)) {}
  // Keys and values go in and out as they are stored: for copies of whole stores.
  static Encodings of_stored_keys();

  Encoding make(const CollectionSpec& spec, std::shared_ptr<ExpiryClock> clock) const;
  // invalid_argument: the codec is not registered or lacks a function, or order and codec do not
  // belong together.
  Status usable(const CollectionSpec& spec, const std::string& where, Report* report) const;

 private:
  const KeyCodec* codec_of(const CollectionSpec& spec) const;

  std::vector<KeyCodec> codecs_;
  bool stored_keys_ = false;
};

}  // namespace TENUTO_NS::store
