// Internals of the checker of tenuto/crash_history.h: the search, and the text of its result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tenuto/crash_history.h"

namespace TENUTO_NS::pm {

struct SearchResult {
  Verdict verdict;
  std::vector<std::uint64_t> finals;
  std::size_t op;  // with a contradiction: the operation whose return no order explains
};

SearchResult search_key_history(std::span<const KeyOp> ops, std::span<const std::uint64_t> before);

// `culprit` is SearchResult::op.
std::string explain_contradiction(std::span<const KeyOp> ops, std::span<const std::uint64_t> before,
                                  std::size_t culprit);

}  // namespace TENUTO_NS::pm
