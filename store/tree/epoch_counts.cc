// What waits in the limbos, and the counts of records that are kept in them.
#include <algorithm>

#include "store/tree/epoch.h"

namespace TENUTO_NS::store {

void Limbos::for_each(const std::function<void(const Retired&)>& f) const {
  const auto each = [&](const RetiredChunk& chunk) {
    std::for_each(chunk.begin(), chunk.end(), f);
  };
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo != nullptr) each(*limbo->fresh);
  }
  const std::lock_guard lock(mu_);
  for (const RetiredChunk* c = sealed_.first(); c != nullptr; c = c->next) each(*c);
  for (const RetiredChunk* c = held_.first(); c != nullptr; c = c->next) each(*c);
}

Limbos::Waiting Limbos::waiting() const {
  Waiting w;
  {
    const std::lock_guard lock(mu_);
    w = waiting_;
  }
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo == nullptr) continue;
    w.items += limbo->fresh_count.load(std::memory_order_relaxed);
    w.bytes += limbo->fresh_bytes.load(std::memory_order_relaxed);
  }
  return w;
}

std::int64_t Limbos::records() const {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo != nullptr) n += limbo->records.load(std::memory_order_relaxed);
  }
  return n;
}

std::int64_t Limbos::record_bytes() const {
  std::int64_t n = 0;
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo != nullptr) n += limbo->record_bytes.load(std::memory_order_relaxed);
  }
  return n;
}

std::uint64_t Limbos::changes() const {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < kEpochSlots; ++i) {
    const Limbo* limbo = table_[i].load(std::memory_order_acquire);
    if (limbo != nullptr) n += limbo->changes.load(std::memory_order_relaxed);
  }
  return n;
}

}  // namespace TENUTO_NS::store
