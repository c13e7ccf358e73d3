#include "store/tree/shadow_leaves.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>

namespace TENUTO_NS::store {

namespace {
std::size_t bytes_of_table(const pm::PoolFile& file, std::size_t bytes_each) {
  return (file.bytes_max() / sizeof(Leaf) + 1) * bytes_each;
}
}  // namespace

// Leaves are some hundredth of a pool, so large pages of the table would be nearly empty.
ShadowLeaves::ShadowLeaves(const pm::PoolFile& file)
    : file_(file),
      with_words_(file.on_disk()),
      shift_(static_cast<unsigned>(
          std::countr_zero(with_words_ ? sizeof(ShadowLeafWithWords) : sizeof(ShadowLeaf)))),
      pages_(bytes_of_table(file, bytes_each())),
      first_(pages_.as<char>()) {
  if (there()) ::madvise(first_, bytes_of_table(file, bytes_each()), MADV_NOHUGEPAGE);
}

void ShadowLeaves::set_empty(ShadowLeaf& shadow) const {
  for (unsigned i = 0; i < kSlots; ++i) shadow.set_fingerprint(i, 0);
  shadow.set_order(nullptr, 0);
  shadow.version.store(with_words_ ? ShadowLeaf::kHasWords : 0, std::memory_order_relaxed);
}

ShadowLeaf& ShadowLeaves::fresh(PoolOffset leaf) {
  skew_.store(static_cast<std::uint32_t>(leaf.value % sizeof(Leaf)), std::memory_order_relaxed);
  ShadowLeaf& shadow = of(leaf);
  set_empty(shadow);
  shadow.leaf = file_.at<Leaf>(leaf);
  return shadow;
}

void ShadowLeaves::clear(ShadowLeafWithWords& shadow) const { set_empty(shadow); }

ShadowLeaf& ShadowLeaves::put(const ShadowLeafWithWords& filled) {
  ShadowLeaf& shadow = fresh(file_.offset_of(filled.leaf));
  std::memcpy(static_cast<void*>(&shadow), static_cast<const void*>(&filled), bytes_each());
  return shadow;
}

}  // namespace TENUTO_NS::store
