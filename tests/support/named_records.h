// Named collections in a pool that a test damages: one in reverse order with duplicates, one whose
// records expire, one of integer keys. All values ever written to them are known, so that a wrong
// value is recognised. mutants_fuzz and fuzz_pool_open use it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/named_forms.h"

namespace tenuto::test {

struct NamedRecords {
  using Pair = std::pair<std::string, std::string>;

  std::string name;
  CollectionOptions options;
  std::set<Pair> now;   // what is there at kReadMs
  std::set<Pair> ever;  // what was there at some time, and may be seen at kReadMs

  bool reversed() const;
};

// The collections before any write.
std::vector<NamedRecords> named_records();

// Puts the numbers `from` to `to` into each collection, and erases some. The first call makes the
// collections. If `store` is null, only `all` changes.
Status write_named(Store* store, std::vector<NamedRecords>& all, int from, int to);

// Replaces and erases some of the numbers below `count`, one by one and in batches over all
// collections. The store may show any part of these changes afterwards. `store` null: as above.
void disturb_named(Store* store, std::vector<NamedRecords>& all, int count);

struct ReadNamed {
  bool exact = false;  // all of `now` must be there, and nothing else
  bool values = true;  // values are checked against `ever`
};

// The begin of the text about a value that was never written.
inline constexpr const char* kWrongValue = "wrong value: ";

// Reads all collections, in every way. Returns what was wrong, or an empty string.
std::string read_named(Store& store, const std::vector<NamedRecords>& all, const ReadNamed& how);

}  // namespace tenuto::test
