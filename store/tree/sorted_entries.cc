#include "store/tree/sorted_entries.h"

#include <bit>
#include <span>

namespace TENUTO_NS::store {

Status SortedEntries::read(const LeafReader& leaves, ShadowLeaf& locked) {
  count_ = 0;
  for (std::uint64_t used = locked.used_slots(); used != 0; used &= used - 1) {
    const auto slot = static_cast<std::uint8_t>(std::countr_zero(used));
    entry_[count_++] = {{}, locked.word(slot), slot};
  }
  leaves.read_ahead({entry_.data(), count_});
  for (std::size_t i = 0; i < count_; ++i) leaves.prefetch(entry_[i].word);
  for (std::size_t i = 0; i < count_; ++i)
    TENUTO_TRY(leaves.read(entry_[i].word, false, entry_[i].record));
  if (count_ == 0) return Status::ok;
  sort_by_key({order_.data(), count_}, [this](std::uint32_t i) { return entry_[i].record.key; });
  // The first and the last key tell of all.
  const std::array<Entry, 2> ends{(*this)[0], (*this)[count_ - 1]};
  return leaves.in_range({&locked, locked.version.load(std::memory_order_relaxed)}, ends);
}

}  // namespace TENUTO_NS::store
