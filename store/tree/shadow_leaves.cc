#include "store/tree/shadow_leaves.h"

#include <sys/mman.h>

#include <bit>
#include <cstring>

#include "pm/no_memory.h"

namespace TENUTO_NS::store {

// A small store should not pay for a large page.
ShadowLeaves::ShadowLeaves(const pm::PoolFile& file)
    : file_(file),
      with_words_(file.on_disk()),
      shift_(static_cast<unsigned>(
          std::countr_zero(with_words_ ? sizeof(ShadowLeafWithWords) : sizeof(ShadowLeaf)))),
      group_pages_((file.bytes_max() / kUnitBytes + 1) * sizeof(std::uint32_t)),
      unit_pages_((file.bytes_max() / kUnitBytes + 2) * sizeof(std::uint32_t)),
      groups_(group_pages_.as<std::atomic<std::uint32_t>>()),
      units_(unit_pages_.as<std::atomic<std::uint32_t>>()) {
  shadows_.map(table_bytes(bytes_each()));
  heads_.map(table_bytes(sizeof(SlotHeads)));
}

ShadowLeaves::~ShadowLeaves() {
  shadows_.unmap(table_bytes(bytes_each()));
  heads_.unmap(table_bytes(sizeof(SlotHeads)));
}

// With room to begin at a huge page.
std::size_t ShadowLeaves::table_bytes(std::size_t each) const {
  const std::uint64_t groups = file_.bytes_max() / kUnitBytes + 2;
  return round_up(groups * kGroupLeaves * each, kHugeBytes) + 2 * kHugeBytes;
}

void ShadowLeaves::Table::map(std::size_t bytes) {
  void* const p =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return;
  mapped = p;
  first = reinterpret_cast<char*>(round_up(reinterpret_cast<std::uintptr_t>(p), kHugeBytes));
  ::madvise(first, kHugeBytes, MADV_NOHUGEPAGE);
  ::madvise(first + kHugeBytes, bytes - 2 * kHugeBytes, MADV_HUGEPAGE);
}

void ShadowLeaves::Table::unmap(std::size_t bytes) {
  if (mapped != nullptr) ::munmap(mapped, bytes);
}

bool ShadowLeaves::Table::make_writable(std::size_t end) {
  if (end <= writable) return true;
  const std::size_t more = round_up(end, kHugeBytes) - writable;
  if (::mprotect(first + writable, more, PROT_READ | PROT_WRITE) != 0) return false;
  writable += more;
  return true;
}

void ShadowLeaves::make_group(PoolOffset leaf) {
  const std::lock_guard lock(mu_);
  std::atomic<std::uint32_t>& group = groups_[leaf.value / kUnitBytes];
  if (group.load(std::memory_order_relaxed) != 0) return;
  const std::uint32_t made = groups_made_ + 1;
  const std::size_t leaves = (made + 1) * kGroupLeaves;
  const bool writable = shadows_.make_writable(leaves * bytes_each()) &&
                        heads_.make_writable(leaves * sizeof(SlotHeads));
  if (!writable) pm::throw_bad_alloc();
  groups_made_ = made;
  units_[made].store(static_cast<std::uint32_t>(leaf.value / kUnitBytes),
                     std::memory_order_relaxed);
  group.store(made, std::memory_order_release);
}

void ShadowLeaves::set_empty(ShadowLeaf& shadow) const {
  std::memset(static_cast<void*>(&shadow), 0, sizeof(ShadowLeaf));
  shadow.version.store(with_words_ ? ShadowLeaf::kHasWords : 0, std::memory_order_relaxed);
}

ShadowLeaf& ShadowLeaves::place_of(PoolOffset leaf) {
  const auto skew = static_cast<std::uint32_t>(leaf.value % sizeof(Leaf));
  // All threads read this line, so it is written once.
  if (skew_.load(std::memory_order_relaxed) != skew) skew_.store(skew, std::memory_order_relaxed);
  cover(leaf);
  return of(leaf);
}

ShadowLeaf& ShadowLeaves::fresh(PoolOffset leaf) {
  ShadowLeaf& shadow = place_of(leaf);
  set_empty(shadow);
  shadow.leaf = file_.at<Leaf>(leaf);
  return shadow;
}

void ShadowLeaves::clear(ShadowLeafWithWords& shadow) const {
  set_empty(shadow);
  shadow.order.lose();
}

ShadowLeaf& ShadowLeaves::put(const ShadowLeafWithWords& filled) {
  ShadowLeaf& shadow = place_of(file_.offset_of(filled.leaf));
  std::memcpy(static_cast<void*>(&shadow), &filled, bytes_each());
  return shadow;
}

}  // namespace TENUTO_NS::store
