#include "heap/morph.h"

#include <algorithm>
#include <bit>

#include "heap/guard.h"
#include "pm/assert.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kFreePartLeast = 16;  // at least 1 / this of the new blocks is free at once

struct Range {
  unsigned begin, end;
};

// The blocks of `grid` that overlap the bytes [begin, end) of the slab.
Range blocks_over(const BlockGrid& grid, std::uint32_t begin, std::uint32_t end) {
  if (end <= grid.data_offset) return {0, 0};
  const std::uint32_t from = begin <= grid.data_offset ? 0 : begin - grid.data_offset;
  const std::uint32_t to = end - grid.data_offset + grid.block_bytes - 1;
  return {std::min(from / grid.block_bytes, grid.blocks),
          std::min(to / grid.block_bytes, grid.blocks)};
}
Range blocks_over(const BlockGrid& grid, const BlockGrid& other, unsigned i) {
  const std::uint32_t begin = other.data_offset + i * other.block_bytes;
  return blocks_over(grid, begin, begin + other.block_bytes);
}

std::uint64_t word_of(std::span<const std::uint64_t> bits, std::size_t w) { return bits[w]; }
std::uint64_t word_of(std::span<const std::atomic<std::uint64_t>> bits, std::size_t w) {
  return bits[w].load(std::memory_order_relaxed);
}
template <class Bits>
unsigned count(const Bits& bits, Range r) {
  unsigned n = 0;
  for (unsigned i = r.begin; i < r.end;) {
    const unsigned stop = std::min(r.end, (i / 64 + 1) * 64);
    const std::uint64_t mask = (stop - i == 64 ? ~0ull : (1ull << (stop - i)) - 1) << i % 64;
    n += static_cast<unsigned>(std::popcount(word_of(bits, i / 64) & mask));
    i = stop;
  }
  return n;
}

BlockGrid grid_of(const BlockGrid& slab, const SlabCut& cut, unsigned pool_stripes) {
  const SlabGeometry g = cut_geometry(cut, pool_stripes);
  return {slab.offset, kClassBytes[cut.class_id], g.data_offset, g.blocks, 0};
}
}  // namespace

std::optional<SlabShape> plan_morph(const Slab& slab, ClassId class_id, unsigned pool_stripes) {
  // A slab without blocks has only zero bits, so zeros may overwrite them.
  if (slab.free_count == slab.blocks) return SlabShape{whole_cut(class_id, pool_stripes, true), {}};

  const unsigned stripes = slab_geometry(kClassBytes[class_id.value], pool_stripes).stripes;
  const SlabCut& old = slab.shape.now;
  const unsigned old_end = old.first_line + slab.stripes;
  const unsigned first = 1 + stripes <= old.first_line ? 1 : old_end;
  const unsigned end = std::max(old_end, first + stripes);
  if (end > kHeaderLinesMax) return std::nullopt;
  const Range header = blocks_over(slab, 0, end * static_cast<unsigned>(kLineBytes));
  const bool checked = !TENUTO_PLANT("heap_morph_header_over_live_block");
  if (checked && count(slab.free_bits, header) < header.end - header.begin) return std::nullopt;

  const SlabShape shape{
      {class_id.value, static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(end)}, old};
  const BlockGrid grid = grid_of(slab, shape.now, pool_stripes);
  unsigned free_blocks = 0;
  for (unsigned j = 0; j < grid.blocks; ++j) {
    const Range under = blocks_over(slab, grid, j);
    free_blocks += count(slab.free_bits, under) == under.end - under.begin ? 1 : 0;
  }
  if (free_blocks * kFreePartLeast < grid.blocks || free_blocks == 0) return std::nullopt;
  return shape;
}

void write_shape(pm::PoolFile& file, const Slab& slab, const SlabShape& shape) {
  auto* const lines = file.at<SlabHeader>(slab.offset);
  ShapeWord said = ShapeWord::make(shape, slab.offset);
  if (TENUTO_PLANT("heap_morph_forgets_old_part"))
    said = ShapeWord::make({shape.now, {}}, slab.offset);
  const bool early = TENUTO_PLANT("heap_morph_shape_before_stripes");
  const bool late = TENUTO_PLANT("heap_morph_blocks_before_shape");
  const std::size_t stripes = cut_geometry(shape.now, file.superblock().stripes).stripes;
  if (early) publish(lines->shape, said);
  if (!TENUTO_PLANT("heap_morph_stripes_not_zeroed")) {
    zero_flush(lines + shape.now.first_line, stripes * kLineBytes);
  }
  if (!shape.old && file.canaries() && !TENUTO_PLANT("heap_slab_cut_anew_without_canaries")) {
    write_canaries(file, grid_of(slab, shape.now, file.superblock().stripes));
  }
  fence("empty stripes of the new part", "slab shape");
  if (!early && !late) publish(lines->shape, said);
  fence("slab shape", "blocks of the new part are handed out");
  if (late) publish(lines->shape, said);
}

void make_room_for_old(Slab& now) {
  if (now.old_storage == nullptr) now.old_storage = std::make_unique<OldPart>();
}

void join_parts(Slab& now, Slab& old) {
  make_room_for_old(now);
  OldPart& part = *now.old_storage;
  part.grid = old;
  part.slab = &old;
  for (auto& word : part.held) word.store(0, std::memory_order_relaxed);
  old.successor.store(&now, std::memory_order_release);
  now.old.store(&part, std::memory_order_release);  // pairs with the load in slab_block
}

namespace {
// False when block i of the old part overlaps a new block that is in use.
bool hold(Slab& now, OldPart& part, unsigned i) {
  Slab::set(part.held, i);
  bool apart = true;
  const Range over = blocks_over(now, part.grid, i);
  for (unsigned j = over.begin; j < over.end; ++j) {
    apart = apart && !now.live(j);
    if (!now.is_free(j)) continue;
    now.clear_free(j);
    now.blocked += 1;
  }
  return apart;
}
}  // namespace

bool hold_old_blocks(Slab& now) {
  OldPart& part = *now.old.load(std::memory_order_relaxed);
  bool apart = true;
  for (unsigned i = 0; i < part.grid.blocks; ++i) {
    if (part.slab->is_free(i)) continue;
    if (TENUTO_PLANT("heap_morph_blocks_over_live_block")) {
      Slab::set(part.held, i);
      continue;
    }
    apart = hold(now, part, i) && apart;
  }
  return apart;
}

unsigned take_old_blocks(Slab& now, TakenBlock* out, unsigned want) {
  OldPart& part = *now.old.load(std::memory_order_relaxed);
  Slab& old = *part.slab;
  const unsigned header_end = now.shape.now.end_line * static_cast<unsigned>(kLineBytes);
  unsigned got = 0;
  for (unsigned i = blocks_over(old, 0, header_end).end; i < old.blocks && got < want; ++i) {
    if (!old.is_free(i)) continue;
    const Range over = blocks_over(now, old, i);
    bool in_use = false;
    for (unsigned j = over.begin; j < over.end; ++j) {
      in_use |= !now.is_free(j) && count(part.held, blocks_over(old, now, j)) == 0;
    }
    if (in_use) continue;
    old.clear_free(i);
    hold(now, part, i);
    out[got++] = {old.block_offset(i), old.stripe_of(i)};
  }
  return got;
}

bool blocked_soundly(const Slab& now) {
  const OldPart& part = *now.old.load(std::memory_order_relaxed);
  unsigned n = 0;
  for (unsigned j = 0; j < now.blocks; ++j) {
    if (count(part.held, blocks_over(part.grid, now, j)) == 0) continue;
    if (now.is_free(j) || now.live(j) || now.reserved(j)) return false;
    n += 1;
  }
  return n == now.blocked;
}

void free_old_block(Slab& now, unsigned i) {
  OldPart& part = *now.old.load(std::memory_order_relaxed);
  Slab::clear(part.held, i);
  const Range over = blocks_over(now, part.grid, i);
  for (unsigned j = over.begin; j < over.end; ++j) {
    if (count(part.held, blocks_over(part.grid, now, j)) != 0) continue;
    now.set_free(j);
    now.blocked -= 1;
  }
}

}  // namespace TENUTO_NS::heap
