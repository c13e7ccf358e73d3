// The list of cases: rows of single transactions, and structures of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bench {

enum class Part : std::uint8_t { row, list, map, tree, queue };
enum class Phase : std::uint8_t { insert, lookup, remove };

struct TxCase {
  const char* name;
  const char* what;
  Part part = Part::row;
  Phase phase = Phase::insert;  // of a structure
};

// How much a Work does.
struct WorkSize {
  std::uint64_t batch = 0;        // transactions; for a structure also its elements
  std::uint64_t value_bytes = 0;  // for a structure: one of kValueSizes
};

inline constexpr std::uint64_t kValueSizes[] = {64, 1024};
inline constexpr std::uint64_t kRowObjectBytes = 64;
inline constexpr std::uint64_t kRowBatchMax = 1024;  // each transaction of a batch may have a slot

std::span<const TxCase> tx_cases();
// Whether a name of --bench means this case: its own, its structure's, rows, structures or all.
bool is_meant(const TxCase& what, std::string_view name);

}  // namespace bench
