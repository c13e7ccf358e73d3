#include "store/tree/shadow_leaves.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "pm/no_memory.h"

namespace TENUTO_NS::store {

namespace {

constexpr std::uint64_t kCoverBytes = 16u << 20;  // of the pool, at a time

// null: zeros. Atomic, because threads look at a leaf that has ended for prefetches (word_hint).
void copy_words(void* to, const void* from, std::size_t bytes) {
  using Word [[gnu::may_alias]] = std::uint64_t;
  auto* const out = static_cast<Word*>(to);
  const auto* const in = static_cast<const Word*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(Word); ++i) {
    __atomic_store_n(&out[i], in == nullptr ? 0 : in[i], __ATOMIC_RELAXED);
  }
}
}  // namespace

// Leaves are some hundredth of a pool, so large pages of the table would be nearly empty.
ShadowLeaves::ShadowLeaves(const pm::PoolFile& file)
    : file_(file),
      with_words_(file.on_disk()),
      shift_(static_cast<unsigned>(
          std::countr_zero(with_words_ ? sizeof(ShadowLeafWithWords) : sizeof(ShadowLeaf)))) {
  void* const p =
      ::mmap(nullptr, table_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return;
  first_ = static_cast<char*>(p);
  ::madvise(p, table_bytes(), MADV_NOHUGEPAGE);
}

ShadowLeaves::~ShadowLeaves() {
  if (there()) ::munmap(first_, table_bytes());
}

std::size_t ShadowLeaves::table_bytes() const {
  return round_up(file_.bytes_max(), kCoverBytes) / sizeof(Leaf) * bytes_each();
}

void ShadowLeaves::cover_more(PoolOffset leaf) {
  const std::lock_guard lock(mu_);
  const std::uint64_t from = covered_.load(std::memory_order_relaxed);
  const std::uint64_t to = round_up(std::max(leaf.value + 1, file_.bytes()), kCoverBytes);
  if (leaf.value < from) return;
  const auto place = [this](std::uint64_t o) { return first_ + (o / sizeof(Leaf) << shift_); };
  const auto bytes = static_cast<std::size_t>(place(to) - place(from));
  if (::mprotect(place(from), bytes, PROT_READ | PROT_WRITE) != 0) pm::throw_bad_alloc();
  covered_.store(to, std::memory_order_release);
}

void ShadowLeaves::set_empty(ShadowLeaf& shadow) const {
  copy_words(&shadow, nullptr, sizeof(ShadowLeaf));
  shadow.set_order(nullptr, 0);
  shadow.version.store(with_words_ ? ShadowLeaf::kHasWords : 0, std::memory_order_relaxed);
}

ShadowLeaf& ShadowLeaves::fresh(PoolOffset leaf) {
  skew_.store(static_cast<std::uint32_t>(leaf.value % sizeof(Leaf)), std::memory_order_relaxed);
  cover(leaf);
  ShadowLeaf& shadow = of(leaf);
  set_empty(shadow);
  shadow.leaf = file_.at<Leaf>(leaf);
  return shadow;
}

void ShadowLeaves::clear(ShadowLeafWithWords& shadow) const { set_empty(shadow); }

ShadowLeaf& ShadowLeaves::put(const ShadowLeafWithWords& filled) {
  ShadowLeaf& shadow = fresh(file_.offset_of(filled.leaf));
  copy_words(&shadow, &filled, bytes_each());
  return shadow;
}

}  // namespace TENUTO_NS::store
