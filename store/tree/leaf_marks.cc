#include "store/tree/leaf_marks.h"

#include <algorithm>
#include <bit>
#include <span>

#include "pm/plant.h"
#include "store/tree/leaf.h"
#include "store/tree/unmade.h"

namespace TENUTO_NS::store {

Status LeafMarks::blocks(std::size_t part, std::vector<PoolOffset>& out, Report* report) const {
  const std::size_t from = part * kAtOnce;
  const std::span<const LeafAtOpen> leaves(&leaves_[from],
                                           std::min(kAtOnce, leaves_.size() - from));
  std::size_t count = 0;
  for (const LeafAtOpen& l : leaves) count += 2 + static_cast<std::size_t>(std::popcount(l.used));
  out.reserve(out.size() + count);
  const std::uint64_t record_max = file_.bytes() - sizeof(RecordHead);
  for (const LeafAtOpen& l : leaves) {
    if (&l != &leaves.back()) {
      const char* next = file_.at<char>((&l + 1)->at);
      for (std::size_t o = 0; o < sizeof(Leaf); o += kLineBytes) __builtin_prefetch(next + o);
    }
    const Leaf& leaf = *file_.at<Leaf>(l.at);
    out.push_back(l.at);
    const PoolOffset low = low_block(leaf);
    if (low && !TENUTO_PLANT("store_separator_block_not_marked")) out.push_back(low);
    for (std::uint64_t rest = l.used; rest != 0; rest &= rest - 1) {
      const int slot = std::countr_zero(rest);
      const SlotWord word = read_word(leaf.slot[slot]);
      if (slot_wrong(word, leaf.head.fingerprint[slot], record_max)) {
        const std::uint64_t before = kLineBytes + static_cast<unsigned>(slot) * sizeof(SlotWord);
        return fail(Status::corrupt, report, "the store is damaged",
                    file_.where(l.at + before, "slot of a leaf"));
      }
      out.push_back(word.record());
    }
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::store
