#include "store/tree/sorted_entries.h"

#include <bit>
#include <span>

namespace TENUTO_NS::store {

Status SortedEntries::read(const LeafReader& leaves, ShadowLeaf& locked) {
  count_ = 0;
  const auto take = [&](unsigned slot) {
    entry_[count_++] = {{}, locked.word(slot), static_cast<std::uint8_t>(slot)};
  };
  if (locked.order.known()) {  // then there is nothing left to sort
    for (unsigned i = 0; i < locked.count(); ++i) take(locked.order.slot(i));
  } else {
    for (std::uint64_t used = locked.used_slots(); used != 0; used &= used - 1) {
      take(static_cast<unsigned>(std::countr_zero(used)));
    }
  }
  leaves.read_ahead({entry_.data(), count_});
  for (std::size_t i = 0; i < count_; ++i) leaves.prefetch(entry_[i].word);
  for (std::size_t i = 0; i < count_; ++i)
    TENUTO_TRY(leaves.read(entry_[i].word, false, entry_[i].record));
  const Result<KeyRange> range = leaves.range_of(locked);
  if (!range) return range.error();
  range_ = *range;
  if (count_ == 0) return Status::ok;
  sort_by_key({order_.data(), count_}, [this](std::uint32_t i) { return entry_[i].record.key; });
  // The first and the last key tell of all.
  const std::array<Entry, 2> ends{(*this)[0], (*this)[count_ - 1]};
  return leaves.in_range({&locked, locked.version.load(std::memory_order_relaxed)}, range_, ends);
}

}  // namespace TENUTO_NS::store
