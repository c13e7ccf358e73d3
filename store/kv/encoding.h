// What stands in a collection's tree for the keys and values of its users: the tree is ordered by
// bytes and knows nothing of orders, duplicates or lifetimes. Called where the public calls begin
// (collection.cc, store.cc, snapshot.cc, transaction.cc, iterator.cc).
//
//   order             bytes, u64: the key as it is
//                     reverse, reverse_u64: the same; whoever walks walks the other way
//                     registered: what the codec makes of the key
//   duplicates        the key's bytes, each 00 as 00 ff, then 00 01, then the value; and no value
//   expires           eight bytes before the value: when it is gone, in ms since 1970, 0: never
//
// With duplicates, 00 01 ends the key: what comes there in a longer key, 00 ff or another byte, is
// greater, and so pairs are ordered by their keys, as bytes are, and then by their values. 00 02
// stands in no pair, and bounds all pairs of a key from above.
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

// Keys of a tree: from lower (inclusive) to upper (exclusive; none: the end).
struct Span {
  std::string lower;
  std::optional<std::string> upper;
};

// What an iterator walks over, or why it cannot.
struct Where {
  Span span;
  Status status = Status::ok;
};

// The options with which a collection like this is made.
CollectionOptions options_of(const CollectionSpec& spec);

// The least string above all that start with the prefix; none when there is no such string.
std::optional<std::string> behind_prefix(std::string prefix);

// A stored key, taken apart: views into it, or into the strings.
struct Apart {
  std::string_view key;
  std::string_view value;  // with duplicates
  std::string plain_key;
  std::string decoded;
};

class Encoding {
 public:
  // A copy of the codec is kept; null: none.
  Encoding(const CollectionSpec& spec, const KeyCodec* codec, std::shared_ptr<ExpiryClock> clock);

  // Nothing is done to keys and values, and cursors go forwards.
  bool plain() const { return plain_; }
  bool duplicates() const { return how_.duplicates; }
  bool expires() const { return how_.expires; }
  bool reversed() const { return reversed_; }
  const CollectionSpec& spec() const { return spec_; }
  // From now on nothing is done to keys and values.
  void show_stored();

  // --- writing -----------------------------------------------------------------------------------
  // What
  // stands for the key; `room` holds it where it is not the key itself. too_large |
  // invalid_argument: the collection has no such keys. REQUIRES: no duplicates.
  Status key(std::string_view key, std::string& room, std::string_view& out) const;
  // As key. REQUIRES: duplicates.
  Status pair(std::string_view key, std::string_view value, std::string& room) const;
  // As key, for a value (none, with duplicates). invalid_argument: a lifetime where nothing
  // expires.
  Status value(std::string_view value, std::uint64_t ttl_ms, std::string& room,
               std::string_view& out) const;

  // --- reading -----------------------------------------------------------------------------------
  // The time
  // by which to judge; to be asked before the look at the tree, so that what is found expired was
  // there until then. 0 where nothing expires.
  TimeMs now() const { return how_.expires ? clock_->now() : 0; }
  // False: what this value belongs to is not there any more.
  bool live(std::string_view stored, TimeMs at) const {
    return !how_.expires || !expired(stored, at);
  }
  // When it goes; 0: it stays.
  TimeMs gone_at(std::string_view stored) const;
  std::string_view value_in(std::string_view stored) const {
    return how_.expires && stored.size() >= kStamp ? stored.substr(kStamp) : stored;
  }
  // How long the record has; 0: it stays.
  std::uint64_t ttl_ms(std::string_view stored, TimeMs at) const;
  // False: a stored key that stands for nothing.
  bool take_apart(std::string_view stored, Apart& out) const;

  // --- places of the tree, in its order ----------------------------------------------------------
  // The first of what stands for a
  // key, or may, and behind the last.
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
  CollectionSpec how_;  // the same, unless what is stored is to be shown
  KeyCodec codec_;      // without functions: none
  std::shared_ptr<ExpiryClock> clock_;
  bool reversed_;
  bool plain_;
};

// Makes the forms of a store's collections.
class Encodings {
 public:
  Encodings() = default;
  explicit Encodings(std::vector<KeyCodec> codecs) : codecs_(std::move(codecs)) {}
  // Keys and values go in and out as they stand in the trees: for copies of whole stores.
  static Encodings of_stored_keys();

  Encoding make(const CollectionSpec& spec, std::shared_ptr<ExpiryClock> clock) const;
  // invalid_argument: the codec is missing, or makes no sense.
  Status usable(const CollectionSpec& spec, const std::string& where, Report* report) const;

 private:
  const KeyCodec* codec_of(const CollectionSpec& spec) const;

  std::vector<KeyCodec> codecs_;
  bool stored_keys_ = false;
};

}  // namespace TENUTO_NS::store
