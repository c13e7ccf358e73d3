#include "store/tree/shadow_leaves.h"

#include <sys/mman.h>

#include "pm/assert.h"
#include "pm/no_memory.h"
#include "tenuto/units.h"

namespace TENUTO_NS::store {

ShadowLeaves::~ShadowLeaves() {
  for (const Row& row : rows_) ::munmap(row.memory, row.bytes);
}

// Fresh memory is zero: an unlocked shadow leaf without entries.
ShadowLeaf* ShadowLeaves::make_row(std::size_t count) {
  const std::size_t bytes = round_up(count * sizeof(ShadowLeaf), kHugeBytes) + kHugeBytes;
  rows_.reserve(rows_.size() + 1);
  idle_.reserve(shadows_ + count);  // put() is called under locks and may need no memory
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) pm::throw_bad_alloc();
  TENUTO_ASSERT(p != MAP_FAILED);
  shadows_ += count;
  ::madvise(p, bytes, MADV_HUGEPAGE);  // a refusal only costs speed
  rows_.push_back({p, bytes});
  const auto at = round_up(reinterpret_cast<std::uintptr_t>(p), kHugeBytes);
  return reinterpret_cast<ShadowLeaf*>(at);
}

ShadowLeaf* ShadowLeaves::take_row(std::size_t count) {
  constexpr std::size_t kRow = kHugeBytes / sizeof(ShadowLeaf);
  const std::lock_guard lock(mu_);
  if (count > kRow / 4) return make_row(count);
  if (fresh_count_ < count) {
    for (; fresh_count_ > 0; --fresh_count_) idle_.push_back(fresh_++);
    fresh_ = make_row(kRow);
    fresh_count_ = kRow;
  }
  ShadowLeaf* row = fresh_;
  fresh_ += count;
  fresh_count_ -= count;
  return row;
}

ShadowLeaf* ShadowLeaves::take() {
  {
    const std::lock_guard lock(mu_);
    if (!idle_.empty()) {
      ShadowLeaf* shadow = idle_.back();
      idle_.pop_back();
      for (unsigned i = 0; i < kSlots; ++i) shadow->set_fingerprint(i, 0);
      shadow->set_order(nullptr, 0);
      shadow->version.store(0, std::memory_order_relaxed);
      return shadow;
    }
  }
  return take_row(1);
}

void ShadowLeaves::put(ShadowLeaf* shadow) {
  const std::lock_guard lock(mu_);
  idle_.push_back(shadow);
}

}  // namespace TENUTO_NS::store
