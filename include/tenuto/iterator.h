// A cursor over records in key order, and a view of one value in place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tenuto/status.h"

namespace TENUTO_NS {

struct IteratorOptions {
  std::string prefix = {};                // only keys that begin with it
  std::optional<std::string> lower = {};  // inclusive
  std::optional<std::string> upper = {};  // exclusive
};

// A cursor over the records in key order. It reads each leaf at one point in time. Concurrent
// writes to other leaves may or may not be seen. No key is seen twice or skipped.
//   - key() and value() are valid until the iterator moves or is destroyed.
//   - Between two calls it keeps only the records of its leaf, at most 48, from being freed (an
//     iterator of a snapshot: also their old versions), however long it lives.
//   - A process may have 4096 iterators and views. The status of the next one is busy.
//   - After an exception (std::bad_alloc) valid() is false until the next seek.
//   - When its collection is dropped, it goes on to the end of its leaf. Then it is not_found.
class TENUTO_API Iterator {
 public:
  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  void seek_first();
  void seek_last();
  // With duplicates seek finds the first value of a key, and seek_for_prev the last one.
  void seek(std::string_view key);           // to the first key >= key
  void seek_for_prev(std::string_view key);  // to the last key <= key
  void next();                               // REQUIRES: valid()
  void prev();                               // REQUIRES: valid()
  // Only with duplicates: to the first pair >= {key, value}; to the first value of the next key; to
  // the last value of the previous key. Without duplicates the last two are next and prev.
  void seek_pair(std::string_view key, std::string_view value);
  void next_key();  // REQUIRES: valid()
  void prev_key();  // REQUIRES: valid()
  bool valid() const;
  std::string_view key() const;    // REQUIRES: valid()
  std::string_view value() const;  // REQUIRES: valid()
  // Milliseconds until the record expires; 0: it does not expire. REQUIRES: valid().
  std::uint64_t ttl_ms() const;
  // Why the iterator is not valid. ok: it is valid, at the end of its range, or not positioned yet.
  // corrupt: damage ended the walk; a record with a damaged key is not skipped. expired: its
  // snapshot has expired. not_found: the collection was dropped. closed: the store was closed, its
  // transaction has ended, or it was moved from. busy: see above. io | forked.
  // invalid_argument until the next seek: the codec refuses the key, or the collection cannot have
  // the pair. (In an order of integers a seek takes any bytes, as a bound does.)
  // invalid_argument for good: the collection cannot have a bound of the options; it has a
  // registered order, and the options a prefix; or it belongs to another store than the snapshot or
  // transaction.
  Status status() const;

 private:
  friend class Collection;
  friend class Snapshot;
  friend class StoreTransaction;
  struct Impl;
  explicit Iterator(std::unique_ptr<Impl>);
  static Iterator refused(Status why);
  template <class How>
  void go(const How& how);
  std::unique_ptr<Impl> impl_;
};

// A value in place, without a copy. It is valid while the View lives, on any thread. The View keeps
// only this record from being freed.
class TENUTO_API View {
 public:
  View() = default;
  View(View&& o) noexcept;
  View& operator=(View&& o) noexcept;
  ~View();
  std::string_view value() const { return value_; }

 private:
  friend class Collection;
  void* hold_ = nullptr;
  std::string_view value_;
};

}  // namespace TENUTO_NS
