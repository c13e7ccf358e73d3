// The steps of a compaction in one tree.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "store/tree/tree.h"

namespace TENUTO_NS::store {

// A compaction under way, over all trees.
struct CompactWork {
  std::uint64_t moves_max = 0;  // 0: no limit
  bool in_key_order = false;
  CompactStats done;
  const std::function<bool()>* stop = nullptr;

  bool over() const {
    if (stop != nullptr && *stop && (*stop)()) return true;
    return moves_max != 0 &&
           done.records_moved + done.leaves_moved + done.leaves_merged >= moves_max;
  }
};

// Each handles some leaves from `from` on, and sets `from` to where the next step begins; none:
// there are no more leaves. merge_leaves merges sparse neighbours. move_blocks moves blocks out of
// slabs that are to be emptied. full: there is no room to move to.
Status merge_leaves(Tree& tree, std::optional<std::string>& from, CompactWork& work);
Status move_blocks(Tree& tree, std::optional<std::string>& from, CompactWork& work);

}  // namespace TENUTO_NS::store
