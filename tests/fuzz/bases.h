// The pools that fuzz inputs start from. The library makes them at the first use, always the same,
// because a constant replaces the pool's random id. Also the places in them, so that a patched line
// can get its right checksum and pass that check.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "fuzz/work_file.h"
#include "support/named_records.h"
#include "tenuto/kv.h"

namespace tenuto::fuzz {

inline constexpr std::uint64_t kPoolBytes = 8u << 20;
inline constexpr std::uint64_t kPoolBytesMax = 12u << 20;  // the pool grows once

// The root object of every base except the empty ones, with the layout "fuzz".
struct Root {
  Ptr<char> word[16];
  std::uint64_t number[512];  // more than a lane's own undo area holds
};

enum class BaseName : std::uint8_t {
  empty,       // a store of byte keys, closed
  empty_u64,   // a store of integer keys, closed
  clean,       // 300 records, objects; closed
  unclean,     // the same, open: frees in limbo, records replaced
  split,       // crash between the two stores of a split
  pending,     // crash inside a transaction that needed a log frame
  named,       // 150 records, and collections of several encodings; closed
  named_open,  // the same, open: records replaced in all of them
  count
};

struct Base {
  Image image;
  std::vector<std::uint64_t> lines;             // those that are not all zero
  std::vector<std::uint64_t> leaves;            // in order of the chains
  std::map<std::uint64_t, std::uint64_t> tree;  // tree of each leaf
  std::map<std::uint64_t, std::uint64_t> slot;  // slot of each record, by the record's offset
};

inline constexpr int kNamedRecords = 150;  // in each collection

StoreOptions pool_options();
const Base& base(BaseName name);

// Gives the line at `offset` the checksum of its contents, if it has a checksum. `base` tells what
// the line is.
void reseal(const WorkFile& file, const Base& base, std::uint64_t offset);

// The records of every base except the empty ones.
std::string base_key(int i);
std::string base_value(int i);
// The contents of the bases with named collections.
std::vector<test::NamedRecords> named_of_bases();

}  // namespace tenuto::fuzz
