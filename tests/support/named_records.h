// Named collections in a pool that is going to be damaged: one that is ordered backwards and has
// duplicates, one whose records expire, one of integer keys. What was ever written to them is
// known, so that whatever a read hands out can be told from a wrong value. For mutants_fuzz and
// fuzz_pool_open.
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
  std::set<Pair> now;   // what is there, at kReadMs
  std::set<Pair> ever;  // what was there at some time, and may be seen at kReadMs

  bool reversed() const;
};

// None written yet.
std::vector<NamedRecords> named_records();

// Numbers `from` to `to` into each of them, and some out again. The first call makes them. `store`
// null: only what is known of them follows.
Status write_named(Store* store, std::vector<NamedRecords>& all, int from, int to);

// Replaces and erases some of the numbers below `count`, in batches over all of them and one by
// one. What is there afterwards may be what was there before, in part. `store` null: as above.
void disturb_named(Store* store, std::vector<NamedRecords>& all, int count);

struct ReadNamed {
  bool exact = false;  // all that `now` has must be there, and nothing else
  bool values = true;  // what is handed out was once written
};

// How the text about a value that was never written begins.
inline constexpr const char* kWrongValue = "wrong value: ";

// Reads all of them, in every way. What was wrong, empty when nothing.
std::string read_named(Store& store, const std::vector<NamedRecords>& all, const ReadNamed& how);

}  // namespace tenuto::test
