#include "heap/slab.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "heap/guard.h"
#include "heap/morph.h"
#include "pm/assert.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

Slab::Slab(unsigned words)
    : plain_(std::make_unique<std::uint64_t[]>(words)),
      atomic_(std::make_unique<std::atomic<std::uint64_t>[]>(std::size_t{2} * words)) {
  free_bits = {plain_.get(), words};
  live_bits_ = {atomic_.get(), words};
  reserved_bits = {atomic_.get() + words, words};
}
Slab::~Slab() = default;

void Slab::fill_free_all() {
  std::fill(free_bits.begin(), free_bits.end(), 0);
  for (unsigned i = 0; i < blocks / 64; ++i) free_bits[i] = ~0ull;
  if (blocks % 64 != 0) free_bits[blocks / 64] = (1ull << blocks % 64) - 1;
  free_count = blocks;
}

unsigned Slab::take(TakenBlock* out, unsigned want) {
  unsigned got = 0;
  for (unsigned w = 0; w * 64 < blocks && got < want; ++w) {
    std::uint64_t bits = free_bits[w];
    for (; bits != 0 && got < want; bits &= bits - 1) {
      const unsigned i = first_block(w, bits);
      out[got++] = {block_offset(i), stripe_of(i)};
    }
    free_bits[w] = bits;
  }
  free_count -= got;
  return got;
}

namespace {
constinit std::atomic<std::uint64_t> slabs_born = 0;
}  // namespace

void attach_slab(Slab& slab, pm::PoolFile& file, PoolOffset offset, const SlabHeader& h,
                 const SlabShape& shape) {
  const auto kind = static_cast<Kind>(h.kind);
  const SlabGeometry g = kind == Kind::typed
                             ? typed_geometry(kClassBytes[shape.now.class_id], h.stripes)
                             : cut_geometry(shape.now, h.stripes);
  slab.offset = offset;
  slab.block_bytes = kClassBytes[shape.now.class_id];
  slab.data_offset = g.data_offset;
  slab.blocks = g.blocks;
  slab.divider =
      static_cast<std::uint32_t>(((1ull << 32) + slab.block_bytes - 1) / slab.block_bytes);
  slab.header = file.at<SlabHeader>(offset);
  slab.born = slabs_born.fetch_add(1, std::memory_order_relaxed) + 1;
  slab.shape = shape;
  slab.set_stripes(g.stripes);
  slab.class_id = {shape.now.class_id};
  slab.kind = kind;
  slab.in_dram = is_derived(kind) || file.consistency() == Consistency::gc;
  slab.old.store(nullptr, std::memory_order_relaxed);
  slab.successor.store(nullptr, std::memory_order_relaxed);
  TENUTO_ASSERT(slab.blocks <= 64 * slab.words());
  std::fill(slab.free_bits.begin(), slab.free_bits.end(), 0);
  slab.free_count = 0;
  slab.blocked = 0;
  slab.prev = slab.next = slab.sparse_prev = slab.sparse_next = nullptr;
  slab.listed = slab.sparse = slab.stripes_known = false;
  slab.leaving.store(false, std::memory_order_relaxed);
  for (std::size_t w = 0; w < slab.words(); ++w) slab.set_live_word(w, 0);
  for (auto& word : slab.reserved_bits) word.store(0, std::memory_order_relaxed);
}

SlabHeader format_slab(pm::PoolFile& file, PoolOffset offset, ClassId class_id, Kind kind) {
  auto& h = *file.at<SlabHeader>(offset);
  const unsigned pool_stripes = file.superblock().stripes;
  const SlabCut cut = whole_cut(class_id, pool_stripes, kind == Kind::logged);
  const SlabGeometry g = cut_geometry(cut, pool_stripes);
  store_ordered(h.magic, 0);
  if (!TENUTO_PLANT("heap_slab_stripes_not_zeroed")) zero_flush(&h, kLineBytes * (1 + g.stripes));
  if (file.canaries() && is_logged(kind) && !TENUTO_PLANT("heap_slab_without_canaries")) {
    const SlabGeometry typed = typed_geometry(kClassBytes[class_id.value], pool_stripes);
    const SlabGeometry& blocks = kind == Kind::typed ? typed : g;
    write_canaries(file,
                   {offset, kClassBytes[class_id.value], blocks.data_offset, blocks.blocks, 0});
  }
  fence("slab frame and empty stripes", "slab header");

  SlabHeader said{};
  said.self = offset.value;
  said.pool_id = file.superblock().pool_id;
  said.kind = static_cast<std::uint8_t>(kind == Kind::record ? Kind::derived : kind);
  said.stripes = static_cast<std::uint8_t>(pool_stripes);
  said.crc = slab_crc(said);
  said.shape = ShapeWord::make({cut, {}}, offset);
  h = said;
  publish(h.magic, kSlabMagic);
  fence("slab header", "its blocks are handed out");
  return said;
}

void erase_slab(Slab& slab) { publish(slab.header->magic, 0); }

namespace {
bool is_cut(const SlabCut& cut, unsigned stripes) {
  if (cut.class_id >= kClasses || cut.first_line == 0) return false;
  const SlabGeometry g = slab_geometry(kClassBytes[cut.class_id], stripes);
  return cut.first_line + g.stripes <= cut.end_line;
}

bool is_slab_of(const SlabHeader& h, PoolOffset offset, std::uint64_t pool_id, unsigned stripes) {
  if (h.magic != kSlabMagic || h.self != offset.value) return false;
  if (h.pool_id != pool_id || h.crc != slab_crc(h)) return false;
  if (h.kind >= kKindsOnMedia || h.stripes != stripes || !h.shape.sound(offset)) return false;
  const auto [now, old] = h.shape.shape();
  if (!is_cut(now, stripes)) return false;
  const unsigned end_line = 1 + slab_geometry(kClassBytes[now.class_id], stripes).stripes;
  const bool typed = h.kind == static_cast<std::uint8_t>(Kind::typed);
  if (typed && (now.first_line != 1 || now.end_line != end_line)) return false;
  if (!old) return old == SlabCut{};
  if (h.kind != static_cast<std::uint8_t>(Kind::logged) || old.class_id == now.class_id)
    return false;
  if (!is_cut(old, stripes)) return false;
  // The new part's blocks begin behind both sets of stripes, and the sets do not overlap.
  const unsigned now_end = now.first_line + cut_geometry(now, stripes).stripes;
  const unsigned old_end = old.first_line + cut_geometry(old, stripes).stripes;
  return old_end <= now.end_line && (now_end <= old.first_line || old_end <= now.first_line);
}

SlabHeader copy_header(const pm::PoolFile& file, PoolOffset offset) {
  SlabHeader h;
  file.copy_out(offset, &h, sizeof h);
  return h;
}
}  // namespace

std::optional<SlabHeader> find_slab(const pm::PoolFile& file, PoolOffset offset) {
  // All slabs of a pool are cut for the pool's number of stripes.
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

bool has_bit_flipped(const pm::PoolFile& file, PoolOffset offset) {
  const pm::Superblock& s = file.superblock();
  SlabHeader h = copy_header(file, offset);
  std::array<std::uint8_t, offsetof(SlabHeader, closed_crc)> bytes;  // what is_slab_of looks at
  std::memcpy(bytes.data(), static_cast<const void*>(&h), bytes.size());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    std::memcpy(static_cast<void*>(&h), bytes.data(), bytes.size());
    if (is_slab_of(h, offset, s.pool_id, s.stripes)) return true;
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
  }
  return false;
}

void write_stripes(const Slab& slab, std::span<const std::uint64_t> free_bits) {
  auto* stripes = slab.header + slab.shape.now.first_line;
  std::array<std::uint64_t, std::size_t{kStripesMax} * 8> image{};
  for (unsigned i = 0; i < slab.blocks; ++i) {
    if ((free_bits[i / 64] >> (i % 64) & 1) != 0) continue;
    image[i % slab.stripes * 8 + i / slab.stripes / 64] |= 1ull << (i / slab.stripes % 64);
  }
  copy_flush(stripes, image.data(), std::size_t{slab.stripes} * kLineBytes);
}

namespace {
std::uint32_t stripes_crc(const SlabHeader* lines, const SlabShape& shape, unsigned pool_stripes) {
  std::uint32_t crc = 0;
  for (const SlabCut& cut : {shape.now, shape.old}) {
    if (!cut) continue;
    const std::size_t n = cut_geometry(cut, pool_stripes).stripes;
    crc = pm::crc32c(lines + cut.first_line, n * kLineBytes, crc);
  }
  return crc;
}
std::uint32_t stripes_crc(const Slab& slab) {
  return stripes_crc(slab.header, slab.shape, slab.header->stripes);
}

// The lowest bits of `bits`, moved to the positions that are set in `mask` (PDEP). A stripe's word
// has the bits of every stripes-th block.
std::uint64_t deposit(std::uint64_t bits, std::uint64_t mask) {
  static const bool fast = __builtin_cpu_supports("bmi2") != 0;
  std::uint64_t out = 0;
  if (fast) {
    asm("pdep %2, %1, %0" : "=r"(out) : "r"(bits), "r"(mask));
    return out;
  }
  for (; mask != 0; mask &= mask - 1, bits >>= 1) {
    if ((bits & 1) != 0) out |= mask & -mask;
  }
  return out;
}

// From stripes (lines of eight words) to block order. Bits without a block are left out. The 64
// blocks of one word of `used` have every stripes-th bit in the same stripe.
template <class Word>
void gather(const Slab& slab, const Word& word, BlockBits& used) {
  used.fill(0);
  const unsigned stripes = slab.stripes;
  std::uint64_t every = 0;
  for (unsigned i = 0; i < 64; i += stripes) every |= 1ull << i;
  for (unsigned s = 0; s < stripes; ++s) {
    for (unsigned w = 0; w < 8 && w * 64 * stripes < slab.blocks; ++w) {
      std::uint64_t bits = word(s * 8 + w);
      // Bit k of `bits` is block (w * 64 + k) * stripes + s.
      for (unsigned j = 0, first = s; bits != 0 && j < stripes; ++j) {
        const std::size_t at = std::size_t{w} * stripes + j;
        const std::uint64_t mask = every << first;
        const auto n = static_cast<unsigned>(std::popcount(mask));
        if (at < used.size()) used[at] |= deposit(bits, mask);
        bits = n == 64 ? 0 : bits >> n;
        first = first + n * stripes - 64;
      }
    }
  }
  for (unsigned w = slab.blocks / 64; w < used.size(); ++w) {
    used[w] &= w == slab.blocks / 64 ? (1ull << slab.blocks % 64) - 1 : 0;
  }
}
}  // namespace

std::optional<SlabHeader> SlabLines::read(const pm::PoolFile& file, PoolOffset offset,
                                          bool mapped) {
  const unsigned kUsually = mapped ? 1 : 16;
  const pm::Superblock& s = file.superblock();
  const auto copy = [&](PoolOffset o, void* to, std::size_t bytes) {
    mapped ? file.copy_mapped(o, to, bytes) : file.copy_out(o, to, bytes);
  };
  copy(offset, word.data(), kUsually * kLineBytes);
  SlabHeader h;
  std::memcpy(static_cast<void*>(&h), word.data(), sizeof h);
  if (!is_slab_of(h, offset, s.pool_id, s.stripes)) return std::nullopt;
  const unsigned end = h.shape.shape().now.end_line;
  if (end > kUsually) {
    const std::size_t from = std::size_t{kUsually} * kLineBytes;
    copy(offset + from, &word[from / 8], (end - kUsually) * kLineBytes);
  }
  return h;
}

bool SlabLines::sealed(const SlabHeader& header) const {
  const auto* lines = reinterpret_cast<const SlabHeader*>(word.data());
  return header.closed_crc == stripes_crc(lines, header.shape.shape(), header.stripes);
}

void SlabLines::used(const Slab& part, BlockBits& bits) const {
  const std::size_t first = std::size_t{part.shape.now.first_line} * 8;
  gather(
      part, [&](std::size_t i) { return word[first + i]; }, bits);
}

bool old_stripes_clear(const Slab& slab) {
  const SlabCut& old = slab.shape.old;
  if (!old) return true;
  const auto* words = reinterpret_cast<const std::uint64_t*>(slab.header + old.first_line);
  const unsigned lines = cut_geometry(old, slab.header->stripes).stripes;
  return std::all_of(words, words + std::size_t{8} * lines, [](const std::uint64_t& w) {
    return __atomic_load_n(&w, __ATOMIC_ACQUIRE) == 0;
  });
}

void seal_stripes(const Slab& slab) {
  store_ordered(slab.header->closed_crc, stripes_crc(slab));
  flush(slab.header->closed_crc);
}

bool stripes_sealed(const Slab& slab) { return slab.header->closed_crc == stripes_crc(slab); }

void read_stripes(const Slab& slab, BlockBits& used) {
  const auto* words =
      reinterpret_cast<const std::uint64_t*>(slab.header + slab.shape.now.first_line);
  gather(
      slab, [&](std::size_t i) { return __atomic_load_n(&words[i], __ATOMIC_ACQUIRE); }, used);
}

}  // namespace TENUTO_NS::heap
