#include "heap/slab.h"

#include <algorithm>
#include <bit>

#include "pm/assert.h"
#include "pm/plant.h"

namespace tenuto::inline TENUTO_ABI::heap {

void Slab::fill_free_all() {
  free_bits.fill(0);
  for (unsigned i = 0; i < blocks / 64; ++i) free_bits[i] = ~0ull;
  if (blocks % 64 != 0) free_bits[blocks / 64] = (1ull << blocks % 64) - 1;
  free_count = blocks;
}

unsigned Slab::take(PoolOffset* out, unsigned want) {
  unsigned got = 0;
  for (unsigned w = 0; w * 64 < blocks && got < want; ++w) {
    while (free_bits[w] != 0 && got < want) {
      const auto bit = static_cast<unsigned>(std::countr_zero(free_bits[w]));
      free_bits[w] &= free_bits[w] - 1;
      out[got++] = block_offset(w * 64 + bit);
    }
  }
  free_count -= got;
  return got;
}

void attach_slab(Slab& slab, pm::PoolFile& file, PoolOffset offset, const SlabHeader& h) {
  slab.header = file.at<SlabHeader>(offset);
  slab.offset = offset;
  slab.block_bytes = h.block_bytes;
  slab.data_offset = h.data_offset;
  slab.blocks = h.blocks;
  slab.stripes = h.stripes;
  slab.divider = static_cast<std::uint32_t>(((1ull << 32) + h.block_bytes - 1) / h.block_bytes);
  slab.class_id = {h.class_id};
  slab.kind = static_cast<Kind>(h.kind);
  slab.free_bits.fill(0);
  slab.free_count = 0;
  slab.prev = slab.next = nullptr;
  slab.listed = false;
  for (auto& word : slab.live_bits) word.store(0, std::memory_order_relaxed);
  for (auto& word : slab.reserved_bits) word.store(0, std::memory_order_relaxed);
}

SlabHeader format_slab(pm::PoolFile& file, PoolOffset offset, ClassId class_id, Kind kind) {
  auto& h = *file.at<SlabHeader>(offset);
  const std::uint32_t block_bytes = kClassBytes[class_id.value];
  const SlabGeometry g = slab_geometry(block_bytes, file.superblock().stripes);
  store_ordered(h.magic, 0);
  if (!TENUTO_PLANT("heap_slab_stripes_not_zeroed")) zero_flush(&h, kLineBytes * (1 + g.stripes));
  fence("slab frame and empty stripes", "slab header");

  SlabHeader said{};
  said.self = offset.value;
  said.pool_id = file.superblock().pool_id;
  said.block_bytes = block_bytes;
  said.data_offset = g.data_offset;
  said.blocks = g.blocks;
  said.class_id = class_id.value;
  said.kind = static_cast<std::uint8_t>(kind);
  said.stripes = static_cast<std::uint8_t>(g.stripes);
  said.crc = slab_crc(said);
  h = said;
  publish(h.magic, kSlabMagic);
  fence("slab header", "its blocks are handed out");
  return said;
}

void erase_slab(Slab& slab) { publish(slab.header->magic, 0); }

namespace {
bool is_slab_of(const SlabHeader& h, PoolOffset offset, std::uint64_t pool_id, unsigned stripes) {
  if (h.magic != kSlabMagic || h.self != offset.value) return false;
  if (h.pool_id != pool_id || h.crc != slab_crc(h)) return false;
  if (h.class_id >= kClasses || h.kind > 1 || h.block_bytes != kClassBytes[h.class_id]) {
    return false;
  }
  const SlabGeometry g = slab_geometry(h.block_bytes, stripes);
  return g.stripes == h.stripes && g.data_offset == h.data_offset && g.blocks == h.blocks;
}

// Each word is read once: the file may be cut under the mapping between a check and a use.
SlabHeader copy_header(const pm::PoolFile& file, PoolOffset offset) {
  std::array<std::uint64_t, kLineBytes / 8> words;
  const auto* from = file.at<std::uint64_t>(offset);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
  }
  return std::bit_cast<SlabHeader>(words);
}
}  // namespace

std::optional<SlabHeader> find_slab(const pm::PoolFile& file, PoolOffset offset) {
  // All slabs of a pool are cut for its number of stripes.
  const pm::Superblock& s = file.superblock();
  const SlabHeader h = copy_header(file, offset);
  if (!is_slab_of(h, offset, s.pool_id, s.stripes)) return std::nullopt;
  return h;
}

std::optional<SlabHeader> find_slab_of_any_pool(const pm::PoolFile& file, PoolOffset offset) {
  if (file.superblock().pool_id != 0) return find_slab(file, offset);
  const SlabHeader h = copy_header(file, offset);
  if (h.stripes == 0 || h.stripes > kStripesMax) return std::nullopt;
  if (!is_slab_of(h, offset, h.pool_id, h.stripes)) return std::nullopt;
  return h;
}

void write_stripes(const Slab& slab, const BlockBits& free_bits) {
  auto* stripes = reinterpret_cast<std::uint64_t*>(slab.header) + 8;
  std::array<std::uint64_t, std::size_t{kStripesMax} * 8> image{};
  for (unsigned i = 0; i < slab.blocks; ++i) {
    if ((free_bits[i / 64] >> (i % 64) & 1) != 0) continue;
    image[i % slab.stripes * 8 + i / slab.stripes / 64] |= 1ull << (i / slab.stripes % 64);
  }
  copy_flush(stripes, image.data(), std::size_t{slab.stripes} * kLineBytes);
}

namespace {
std::uint32_t stripes_crc(const Slab& slab) {
  return pm::crc32c(slab.header + 1, std::size_t{slab.stripes} * kLineBytes);
}
}  // namespace

void seal_stripes(const Slab& slab) {
  store_ordered(slab.header->closed_crc, stripes_crc(slab));
  flush(slab.header->closed_crc);
}

bool stripes_sealed(const Slab& slab) { return slab.header->closed_crc == stripes_crc(slab); }

void read_stripes(const Slab& slab, BlockBits& used) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(slab.header) + 8;
  used.fill(0);
  for (unsigned w = 0; w < slab.stripes * 8; ++w) {
    std::uint64_t bits = __atomic_load_n(&words[w], __ATOMIC_ACQUIRE);
    for (; bits != 0; bits &= bits - 1) {
      const unsigned within = w % 8 * 64 + static_cast<unsigned>(std::countr_zero(bits));
      const unsigned i = within * slab.stripes + w / 8;
      if (i < slab.blocks) used[i / 64] |= 1ull << (i % 64);
    }
  }
}

}  // namespace tenuto::inline TENUTO_ABI::heap
