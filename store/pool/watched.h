// What the calls of a pool tell the watch for mistakes (tx/watch.h): which words and blocks the
// heap has changed, so that they are right as they are.
#pragma once

#include <vector>

#include "store/pool/pool_impl.h"
#include "tenuto/words.h"

namespace TENUTO_NS {

inline void settle(const PoolImpl& impl, PoolOffset block) {
  if (tx::Watch* const watch = impl.engine->watch()) watch->taken(block);
}

// The block that a word names. No offset: none in the pool.
PoolOffset block_of(const PoolImpl& impl, const PointerWord auto& word) {
  const void* const block = impl.file->contains(&word) ? word.decode(&word, word.raw) : nullptr;
  return impl.file->contains(block) ? impl.file->offset_of(block) : PoolOffset{};
}

// A word that the heap has stored. On medium cache the heap does not flush it. `fresh`: the block
// that it names is new.
[[gnu::noinline]] void settle_now(const PoolImpl& impl, const PointerWord auto& word, bool fresh) {
  if (!impl.file->contains(&word)) return;
  const std::uint64_t at = impl.file->offset_of(&word).value;
  impl.engine->watch()->settle({at, at + sizeof word});
  if (const PoolOffset block = block_of(impl, word); fresh && block) settle(impl, block);
}
template <PointerWord W>
void settle_now(const PoolImpl& impl, const Words<W>& words, bool fresh) {
  for (std::size_t i = 0; i < words.count(); ++i) settle_now(impl, words[i], fresh);
}
void settle(const PoolImpl& impl, const auto& dest, bool fresh = false) {
  if (impl.engine->watch() != nullptr) settle_now(impl, dest, fresh);
}

void add_blocks(const PoolImpl& impl, const PointerWord auto& word, std::vector<PoolOffset>& to) {
  if (const PoolOffset block = block_of(impl, word)) to.push_back(block);
}
template <PointerWord W>
void add_blocks(const PoolImpl& impl, const Words<W>& words, std::vector<PoolOffset>& to) {
  for (std::size_t i = 0; i < words.count(); ++i) add_blocks(impl, words[i], to);
}
// Heap::free_from. Statuses as that.
[[gnu::noinline]] Status free_watched(PoolImpl& impl, auto& dest) {
  std::vector<PoolOffset> blocks;
  add_blocks(impl, dest, blocks);
  for (const PoolOffset block : blocks) settle(impl, block);
  TENUTO_TRY(impl.heap->free_from(dest));
  settle_now(impl, dest, false);
  for (const PoolOffset block : blocks) impl.engine->watch()->freed(block);
  return Status::ok;
}

}  // namespace TENUTO_NS
