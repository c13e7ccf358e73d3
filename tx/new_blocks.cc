#include "tx/new_blocks.h"

#include <algorithm>

namespace TENUTO_NS::tx {

void NewBlocks::make_room() {
  const std::size_t n = blocks_.size();
  if (n == blocks_.capacity()) blocks_.reserve(std::max(kSearchMax, 2 * n));
  ranges_.make_room();
  if (n < kSearchMax) return;
  for (std::size_t i = index_.size(); i < n; ++i) index_.emplace(blocks_[i].offset.value, i);
  const auto buckets = static_cast<double>(index_.bucket_count());
  if (static_cast<double>(n + 1) > buckets * index_.max_load_factor()) index_.reserve(2 * (n + 1));
  // No block is at 0.
  if (!node_) node_ = index_.extract(index_.emplace(0, 0).first);
}

void NewBlocks::add(PoolOffset block, std::uint64_t bytes) {
  blocks_.push_back({block, bytes, false});
  if (bytes > 0) ranges_.insert({block.value, block.value + bytes});
  const std::size_t n = blocks_.size();
  if (n <= kSearchMax) return;
  node_.key() = block.value;
  node_.mapped() = n - 1;
  index_.insert(std::move(node_));
}

NewBlock* NewBlocks::find(PoolOffset block) {
  if (blocks_.size() <= kSearchMax) {
    for (NewBlock& b : blocks_) {
      if (b.offset == block) return &b;
    }
    return nullptr;
  }
  const auto it = index_.find(block.value);
  return it == index_.end() ? nullptr : &blocks_[it->second];
}

void NewBlocks::sort() {
  if (blocks_.size() > 1)
    std::sort(blocks_.begin(), blocks_.end(),
              [](const NewBlock& a, const NewBlock& b) { return a.offset < b.offset; });
}

void NewBlocks::clear() {
  ranges_.clear();
  blocks_.clear();
  if (!index_.empty()) index_.clear();
}

}  // namespace TENUTO_NS::tx
