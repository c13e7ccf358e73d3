// The pools that fuzz inputs start from, made by the library at the first use, always the same:
// the pool's random number is replaced by a constant. And what stands where in them, so that a
// patched line can be given its right checksum and the damage gets past it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "fuzz/work_file.h"
#include "support/named_records.h"
#include "tenuto/kv.h"

namespace tenuto::fuzz {

inline constexpr std::uint64_t kPoolBytes = 8u << 20;
inline constexpr std::uint64_t kPoolBytesMax = 12u << 20;  // one growth

// The root object of every base but the empty ones, under the layout "fuzz".
struct Root {
  Ptr<char> word[16];
  std::uint64_t number[512];  // more than a lane's own undo area holds
};

enum class BaseName : std::uint8_t {
  empty,       // a store of byte keys, closed
  empty_u64,   // a store of integer keys, closed
  clean,       // 300 records, objects; closed
  unclean,     // the same, open: frees in limbo, records replaced
  split,       // crashed between the two stores of a split
  pending,     // crashed inside a transaction that needed a log frame
  named,       // 150 records, and collections of several forms; closed
  named_open,  // the same, open: records replaced in all of them
  count
};

struct Base {
  Image image;
  std::vector<std::uint64_t> lines;             // that are not all zero
  std::vector<std::uint64_t> leaves;            // in order of the chains
  std::map<std::uint64_t, std::uint64_t> tree;  // whose each leaf is
  std::map<std::uint64_t, std::uint64_t> slot;  // of each record, by the record's offset
};

inline constexpr int kNamedRecords = 150;  // in each collection

StoreOptions pool_options();
const Base& base(BaseName name);

// Gives the line at `offset` the checksum that fits what stands there, if it has one. `base` says
// what the line is.
void reseal(const WorkFile& file, const Base& base, std::uint64_t offset);

// Records that every base but the empty ones has.
std::string base_key(int i);
std::string base_value(int i);
// What the bases with named collections have in them.
std::vector<test::NamedRecords> named_of_bases();

}  // namespace tenuto::fuzz
