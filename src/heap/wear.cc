#include "heap/wear.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "heap/decay.h"
#include "heap/morph.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr std::uint32_t kFull = ~std::uint32_t{0} - (1u << 24);         // a count goes no higher
constexpr std::uint64_t kLinesBetweenTables = (1u << 20) / kLineBytes;  // at least
constexpr std::uint64_t kPoolShare = 8;  // else after an eighth of the pool
constexpr unsigned kBitLinesABlock = 2;  // its bit is set, and cleared later

// The first lines of the pool are its head, which hands out nothing.
std::uint64_t first_frame() { return pm::kHeadBytes / kFrameBytes; }
}  // namespace

WearFigures WearCounts::figures() const {
  WearFigures f;
  for (std::size_t i = first_frame(); i < data.size(); ++i) {
    f.frames += 1;
    f.lines += data[i];
    f.max = std::max<std::uint64_t>(f.max, data[i]);
  }
  for (const std::uint32_t n : bits) {
    f.bits += n;
    f.bits_max = std::max<std::uint64_t>(f.bits_max, n);
  }
  return f;
}

Wear::Wear(const pm::PoolFile& file, const HeapOptions& options, std::size_t queues)
    : file_(file),
      options_(options),
      data_pages_((file.bytes_max() / kFrameBytes + kUnitFrames) * sizeof(std::uint32_t)),
      data_(data_pages_.as<std::atomic<std::uint32_t>>()),
      bits_pages_((file.bytes_max() / kSlabBytes + 1) * sizeof(std::uint32_t)),
      bits_(bits_pages_.as<std::atomic<std::uint32_t>>()) {
  for (std::size_t i = 0; i < queues; ++i) queues_.push_back(std::make_unique<RestQueue>());
}

std::int64_t Wear::now_ms() const { return heap_clock_ms(options_); }

std::uint64_t Wear::resting_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& q : queues_) bytes += q->derived_bytes();
  return bytes;
}

// --- counting ------------------------------------------------------------------------------------

void Wear::count(std::atomic<std::uint32_t>& at, std::uint64_t lines, int sign) {
  const auto n = static_cast<std::uint32_t>(lines);
  if (sign > 0) {
    if (at.load(std::memory_order_relaxed) < kFull) at.fetch_add(n, std::memory_order_relaxed);
  } else if (at.load(std::memory_order_relaxed) >= n) {
    at.fetch_sub(n, std::memory_order_relaxed);
  }
}

namespace {
// Calls f(frame, lines) for each frame that the block touches.
template <class F>
void for_each_frame(PoolOffset o, std::uint64_t bytes, const F& f) {
  constexpr std::uint64_t kFrameLines = kFrameBytes / kLineBytes;
  const std::uint64_t end = (o.value + bytes + kLineBytes - 1) / kLineBytes;
  for (std::uint64_t at = o.value / kLineBytes; at < end;) {
    const std::uint64_t next = std::min(end, round_down(at, kFrameLines) + kFrameLines);
    f(at / kFrameLines, next - at);
    at = next;
  }
}
}  // namespace

void Wear::add(PoolOffset o, std::uint64_t bytes, int sign) {
  if (TENUTO_PLANT("heap_wear_not_counted")) return;
  std::uint64_t all = 0;
  for_each_frame(o, bytes, [&](std::uint64_t frame, std::uint64_t lines) {
    count(data_[frame], lines, sign);
    all += lines;
  });
  data_lines_.fetch_add(sign > 0 ? all : 0 - all, std::memory_order_relaxed);
  if (sign > 0) handed_out_.fetch_add(all, std::memory_order_relaxed);
}

void Wear::add_bits(PoolOffset slab, std::uint64_t lines, int sign) {
  count(bits_[slab.value / kSlabBytes], lines, sign);
  bits_lines_.fetch_add(sign > 0 ? lines : 0 - lines, std::memory_order_relaxed);
}

// A line that two blocks share counts for both, because each is written by itself. Those of a frame
// are counted together: few atomic instructions for a refill.
void Wear::took(const Slab& slab, const TakenBlock* blocks, unsigned n) {
  if (!slab.in_dram) add_bits(slab.offset, std::uint64_t{kBitLinesABlock} * n);
  if (TENUTO_PLANT("heap_wear_not_counted")) return;
  std::uint64_t all = 0;
  std::uint64_t here = 0;  // the frame, and its lines
  std::uint64_t sum = 0;
  const auto count_here = [&] {
    if (sum != 0) count(data_[here], sum, 1);
    all += std::exchange(sum, 0);
  };
  for (unsigned i = 0; i < n; ++i) {
    for_each_frame(blocks[i].offset, slab.block_bytes, [&](std::uint64_t f, std::uint64_t lines) {
      if (f != here) count_here();
      here = f;
      sum += lines;
    });
  }
  count_here();
  data_lines_.fetch_add(all, std::memory_order_relaxed);
  handed_out_.fetch_add(all, std::memory_order_relaxed);
}

void Wear::gave_unused(const Slab& slab, PoolOffset block) {
  if (TENUTO_PLANT("heap_wear_counts_unused_blocks")) return;
  add(block, slab.block_bytes, -1);
  if (!slab.in_dram) add_bits(slab.offset, kBitLinesABlock, -1);
}

// --- choosing ------------------------------------------------------------------------------------

std::uint64_t Wear::of_frames(std::uint64_t frame, std::uint64_t frames) const {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < frames; ++i) sum += of_frame(frame + i);
  return sum;
}

std::uint64_t Wear::of_unit(PoolOffset o) const {
  const std::uint64_t unit = o.value / kSlabBytes;
  return of_frames(unit * kUnitFrames, kUnitFrames) + bits_[unit].load(std::memory_order_relaxed);
}

namespace {
// The blocks that begin in the slab's frame f: [first_in(f), first_in(f + 1)).
unsigned first_in(const BlockGrid& grid, unsigned f) {
  const std::uint64_t at = f * kFrameBytes;
  if (at <= grid.data_offset) return 0;
  const std::uint64_t i = (at - grid.data_offset + grid.block_bytes - 1) / grid.block_bytes;
  return static_cast<unsigned>(std::min<std::uint64_t>(i, grid.blocks));
}

// The next free block in [i, end), or end.
unsigned next_free(const Slab& slab, unsigned i, unsigned end) {
  while (i < end) {
    const std::uint64_t bits = slab.free_bits[i / 64] >> i % 64;
    if (bits != 0) return std::min(i + static_cast<unsigned>(std::countr_zero(bits)), end);
    i = (i | 63) + 1;
  }
  return end;
}
}  // namespace

// How worn the slab's frame f is for its free blocks. The last block that begins in it ends in the
// next one, or later. If no other is free, the most written of its frames counts. No free block:
// the most there is.
std::uint64_t Wear::of_free_blocks(const Slab& slab, unsigned f) const {
  const unsigned end = first_in(slab, f + 1);
  const unsigned i = next_free(slab, first_in(slab, f), end);
  if (i == end) return ~std::uint64_t{0};
  return i + 1 == end ? of_block(slab, i) : of_frame(slab.offset.value / kFrameBytes + f);
}

std::uint64_t Wear::of_block(const Slab& slab, unsigned i) const {
  const std::uint64_t first = slab.block_offset(i).value;
  std::uint64_t most = 0;
  for (std::uint64_t f = first / kFrameBytes; f <= (first + slab.block_bytes - 1) / kFrameBytes;
       ++f) {
    most = std::max(most, of_frame(f));
  }
  return most;
}

// REQUIRES: the lock of the slab's arena, and it has a free block.
std::uint64_t Wear::of_slab(const Slab& slab) const {
  std::uint64_t least = std::uint64_t{1} << 40;  // more than any count, and far from overflow
  for (unsigned f = 0; f < kUnitFrames; ++f) least = std::min(least, of_free_blocks(slab, f));
  return std::max(least * kWorn / frame_limit(), of_unit(slab.offset) * kWorn / limit());
}

// The frame that is least written for its free blocks, and others while they are not worn. In each
// its blocks by address, so that neighbours have their bits in different stripes. REQUIRES: as
// of_slab.
unsigned Slab::take_least_worn(const Wear& wear, TakenBlock* out, unsigned want) {
  std::array<std::pair<std::uint64_t, unsigned>, Wear::kUnitFrames> frames;
  for (unsigned f = 0; f < frames.size(); ++f) frames[f] = {wear.of_free_blocks(*this, f), f};
  std::sort(frames.begin(), frames.end());
  const std::uint64_t limit = wear.frame_limit();
  unsigned got = 0;
  for (const auto& [worn, f] : frames) {
    if (got != 0 && worn > limit) break;
    const unsigned end = first_in(*this, f + 1);
    for (unsigned i = next_free(*this, first_in(*this, f), end); i < end;
         i = next_free(*this, i + 1, end)) {
      if (got == want) return got;
      if (got != 0 && i + 1 == end && wear.of_block(*this, i) > limit) break;
      clear_free(i);
      out[got++] = {block_offset(i), stripe_of(i)};
    }
  }
  return got;
}

// --- the table -----------------------------------------------------------------------------------

std::uint64_t Wear::lines_between_tables() const {
  return std::max(kLinesBetweenTables, file_.bytes() / kLineBytes / kPoolShare);
}

WearCounts Wear::counts() const {
  WearCounts c;
  c.data.resize(file_.bytes() / kFrameBytes);
  c.bits.resize((c.data.size() + kUnitFrames - 1) / kUnitFrames);
  for (std::size_t i = 0; i < c.data.size(); ++i) {
    c.data[i] = data_[i].load(std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < c.bits.size(); ++i) {
    c.bits[i] = bits_[i].load(std::memory_order_relaxed);
  }
  return c;
}

// Adds what the last life counted. Recovery may have counted some by now.
void Wear::set_counts(const WearCounts& c) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < c.data.size(); ++i) {
    data_[i].fetch_add(c.data[i], std::memory_order_relaxed);
    sum += c.data[i];
  }
  data_lines_.fetch_add(sum, std::memory_order_relaxed);
  sum = 0;
  for (std::size_t i = 0; i < c.bits.size(); ++i) {
    bits_[i].fetch_add(c.bits[i], std::memory_order_relaxed);
    sum += c.bits[i];
  }
  bits_lines_.fetch_add(sum, std::memory_order_relaxed);
}

}  // namespace TENUTO_NS::heap
