#include "heap/heap.h"

#include <algorithm>
#include <bit>

#include "heap/heap_paths.h"
#include "heap/morph.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/os.h"
#include "pm/plant.h"
#include "pm/thread.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kBatchesBeforeGrowth = 8;  // of durable frees

std::uint64_t record_zones_from(const HeapOptions& o) {
  constexpr std::uint64_t kLeast = 64u << 20;
  constexpr std::uint64_t kMemoryShare = 8;
  if (o.memory_max != 0) return o.memory_max;
  // Read once in a process: an open of a pool need not wait for the system's files.
  static const std::uint64_t limit = pm::memory_limit();
  return std::max(kLeast, limit / kMemoryShare);
}
}  // namespace

Heap::Heap() = default;
Heap::~Heap() = default;

Heap::State::State(pm::PoolFile& f, frame::Frames& fr, pm::Lanes& l, const HeapOptions& o)
    : options(o),
      gc(f.consistency() == Consistency::gc),
      internal(f.consistency() == Consistency::internal),
      canary_bytes(f.canaries() ? kCanaryBytes : 0),
      cached_end(f.canaries() ? 0 : kSmallBytesMax + 1),
      frees_with_intent_only(!gc && !internal && !f.canaries()),
      stores_persist(f.medium() == Medium::cache || TENUTO_PLANT("heap_stores_persist_anywhere")),
      file(f),
      lanes(l),
      numa(o.numa, f),
      pages(f.bytes_max()),
      frames(f, fr, record_zones_from(o)),
      extents(f, frames, options, numa.cores()),
      lane_heaps(std::make_unique<std::atomic<LaneHeap*>[]>(kLanesMax)) {
  if (options.wear_levelling && !f.read_only()) begin_wear(fr);
  for (unsigned i = 0; i < numa.cores(); ++i) {
    arenas.push_back(std::make_unique<Arena>(f, frames, pages, i, o.morph_occupancy, wear.get()));
    arenas.back()->node = numa.node_of_core(i);
    arenas.back()->on_one_node = !numa.on();
  }
}

SlabBlock Heap::State::old_block(Slab& slab, const OldPart& old, PoolOffset o) {
  const unsigned i = old.held_at(o);
  if (i != kNoBlock) return {old.slab, i};
  return {&slab, slab.index_of(o)};
}

Result<std::uint64_t> block_bytes(std::uint64_t bytes, std::uint64_t align, bool typed) {
  if (!std::has_single_bit(align) || align > kHugeBytes) return Status::invalid_argument;
  const ClassId class_id = class_of(bytes, align);
  if (class_id != kNoClass) return std::uint64_t{kClassBytes[class_id.value]};
  const std::uint64_t type = typed ? kTypeBytes : 0;
  if (bytes > round_down(~0ull, kHugeBytes) - type) return Status::too_large;
  bytes += type;
  const std::uint64_t unit = bytes > kExtentBytesMax ? kHugeBytes : kFrameBytes;
  return round_up(std::max(bytes, align), unit) - type;
}

Result<Block> Heap::State::reserve(LaneHeap& h, std::uint64_t bytes, Kind kind, std::uint64_t align,
                                   bool near) {
  constexpr std::uint64_t kAnyBlock = 16;  // every block has this alignment
  if (kind == Kind::logged && align == kAnyBlock) [[likely]] {
    make_way(h);
    const Block cached = take_cached(h, bytes, near);
    if (cached.offset) [[likely]]
      return cached;
  }
  if (kind != Kind::record) return reserve_in(h, bytes, kind, align, near);
  const bool apart = frames.has_record_zones() && class_of(bytes, align) != kNoClass;
  if (apart) {
    Result<Block> block = reserve_in(h, bytes, kind, align, near);
    if (block || block.error() != Status::full) return block;
  }
  return reserve_in(h, bytes, Kind::derived, align, near);
}

Result<Block> Heap::State::reserve_in(LaneHeap& h, std::uint64_t bytes, Kind kind,
                                      std::uint64_t align, bool near) {
  if (bytes > file.bytes_max()) return Status::too_large;
  if (!std::has_single_bit(align) || align > kHugeBytes) return Status::invalid_argument;
  if (canary_bytes != 0 && is_logged(kind)) {
    align = align_beside_canary(bytes, align);
    bytes += canary_bytes;
  }
  const ClassId class_id = class_of(bytes, align);
  if (class_id == kNoClass) return reserve_extent(h, bytes, kind, align);
  make_way(h);
  ClassCache& cache = h.caches[static_cast<unsigned>(kind)][class_id.value];
  PoolOffset block = near ? cache.take_near() : cache.take();
  if (!block) {
    Result<PoolOffset> got = refill(h, cache, class_id, kind);
    const auto full = [&got] { return !got && got.error() == Status::full; };
    const auto try_again = [&] {
      got = refill(h, cache, class_id, kind);
      if (full()) got = take_elsewhere(h, class_id, kind);
    };
    if (full()) {
      scavenge(h);
      try_again();
    }
    while (full() && wear != nullptr && force_rests(h)) try_again();
    if (full() && abandon_evacuation()) try_again();
    if (!got) return got.error();
    block = *got;
  }
  return Block{block, kClassBytes[class_id.value]};
}

Result<Block> Heap::State::reserve_extent(LaneHeap& h, std::uint64_t bytes, Kind kind,
                                          std::uint64_t align) {
  if (kind == Kind::typed) bytes += kTypeBytes;
  bytes = std::max(bytes, align);
  align = std::max(align, kFrameBytes);
  if (wear != nullptr) end_rests(h);
  Result<Block> block = extents.reserve(bytes, kind, h.core, align);
  if (!block && block.error() == Status::full) {
    scavenge(h);
    block = extents.reserve(bytes, kind, h.core, align);
  }
  while (!block && block.error() == Status::full && wear != nullptr && force_rests(h)) {
    block = extents.reserve(bytes, kind, h.core, align);
  }
  if (block && canary_bytes != 0 && is_logged(kind)) write_canary_of_extent(*block);
  return block;
}

Result<PoolOffset> Heap::State::refill(LaneHeap& h, ClassCache& cache, ClassId class_id,
                                       Kind kind) {
  extents.tick(h.core);
  if (h.numa != nullptr) {
    look_where_now_and_then(h);
    take_inbox(h);
    if (cache.count() != 0) return cache.take();
  }
  if (wear != nullptr) end_rests(h);
  if (kind == Kind::record) {
    free_durable(h, kBatchesBeforeGrowth);
    if (cache.count() != 0) return cache.take();
  }
  const SlabGeometry g = slab_geometry(kClassBytes[class_id.value], file.superblock().stripes);
  if (!cache.ready()) cache.init(class_id, cache_stripes(kind, g.stripes));
  std::array<TakenBlock, 64> blocks;
  const unsigned want = std::min<unsigned>(blocks.size(), std::max(1u, cache.capacity() / 2));
  const Result<unsigned> got = h.arena->take(class_id, kind, blocks.data(), want);
  if (!got) return got.error();
  if (h.numa != nullptr) h.numa->count(NumaAccess::slabs, h.arena->node, kLinesOfGive + *got / 64);
  if (kind == Kind::record && file.on_disk()) {  // their pages, all at once
    std::array<PoolOffset, blocks.size()> places;
    for (unsigned i = 0; i < *got; ++i) places[i] = blocks[i].offset;
    file.read_ahead(places.data(), *got);
  }
  for (unsigned i = *got; i > 0; --i) {
    TakenBlock& b = blocks[i - 1];
    const unsigned stripe = cache.stripes() == 1 ? 0 : b.stripe;
    if (!cache.put(b.offset, stripe)) give_unused({&b.offset, 1}, h);
  }
  return cache.take();  // from the stripe whose turn it is
}

void Heap::State::give_back_slowly(LaneHeap& h, PoolOffset block, const SlabBlock& b) {
  const auto [slab, index] = b;
  if (wear != nullptr && give_to_rest(h, block, b)) return;
  if (slab == nullptr) {
    extents.release(block, h.core);
    return;
  }
  TENUTO_ASSERT(index != kNoBlock);
  if (is_derived(slab->kind)) make_way(h);
  const bool leaving = slab->leaving.load(std::memory_order_relaxed);
  if (leaving || slab->is_old()) [[unlikely]] {  // it is emptied, or another class needs the place
    slab->arena->give(*slab, &index, 1);
    return;
  }
  if (h.numa != nullptr && slab->owner != h.numa->node) [[unlikely]] {
    if (!TENUTO_PLANT("heap_numa_caches_keep_blocks_of_other_nodes"))
      return give_remote(h, block, b);
  }
  if (wear != nullptr) [[unlikely]]  // no memory for its rest
    return slab->arena->give(*slab, &index, 1);
  ClassCache& cache = h.caches[static_cast<unsigned>(slab->kind)][slab->class_id.value];
  if (!cache.ready()) [[unlikely]] {
    const auto ready = [&, s = slab] {
      cache.init(s->class_id, cache_stripes(s->kind, s->stripes));
    };
    if (!pm::had_memory(ready)) return slab->arena->give(*slab, &index, 1);
  }
  const unsigned stripe = cache.stripes() == 1 ? 0 : slab->stripe_of(index);
  if (cache.put(block, stripe)) [[likely]]
    return;
  spill(h, cache, false);
  const bool fits = cache.put(block, stripe);
  TENUTO_ASSERT(fits);
}

void Heap::State::put_back(LaneHeap& h, PoolOffset block) {
  if (!slab_block(block)) {
    const bool reserved = extents.cancel(block);
    TENUTO_ASSERT(reserved);
  }
  give_back(h, block);
}

void Heap::State::spill(LaneHeap& h, ClassCache& cache, bool all) {
  std::array<PoolOffset, ClassCache::kMost> blocks;
  give_unused({blocks.data(), cache.spill(blocks.data(), all)}, h);
}

void Heap::State::give_to_slabs(std::span<PoolOffset> blocks, LaneHeap& h) {
  // Blocks that were freed in order come in runs of one slab. Only others are worth a sort.
  constexpr std::size_t kRun = 8;
  const auto unit = [](PoolOffset o) { return o.value / kSlabBytes; };
  std::size_t runs = 1;
  for (std::size_t i = 1; i < blocks.size(); ++i) runs += unit(blocks[i]) != unit(blocks[i - 1]);
  if (runs * kRun > blocks.size()) std::sort(blocks.begin(), blocks.end());
  std::array<unsigned, 256> indexes;
  for (std::size_t i = 0; i < blocks.size();) {
    SlabBlock b = slab_block_of(blocks[i]);
    Slab& slab = *b.slab;
    // Without an old part all these blocks are of this shadow, even if the slab is morphed now.
    const bool whole = !slab.is_old() && slab.old.load(std::memory_order_acquire) == nullptr;
    const std::uint64_t here = unit(blocks[i]);
    std::size_t n = 0;
    while (b.slab == &slab && n < indexes.size()) {
      indexes[n++] = b.index;
      if (++i == blocks.size() || unit(blocks[i]) != here) break;
      b = whole ? SlabBlock{&slab, slab.index_of_start(blocks[i])} : slab_block_of(blocks[i]);
    }
    slab.arena->give(slab, indexes.data(), n);
    if (h.numa != nullptr)
      h.numa->count(NumaAccess::slabs, slab.owner, kLinesOfGive - 1 + (n + 7) / 8);
  }
}

void Heap::State::empty_caches(LaneHeap& h) {
  for (auto& kind : h.caches) {
    for (ClassCache& cache : kind) {
      if (cache.count() != 0) spill(h, cache, true);
    }
  }
}

void Heap::State::unclaim(PoolOffset block) {
  if (const SlabBlock b = slab_block(block)) {
    b.slab->set_live(b.index);
  } else {
    extents.unclaim(block);
  }
}

// --- the interface -------------------------------------------------------------------------------

Result<Block> Heap::reserve(std::uint64_t bytes, Kind kind, std::uint64_t align) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(state_->file.writable());
  if (kind == Kind::derived && TENUTO_PLANT("heap_leaves_in_zones_of_records")) kind = Kind::record;
  Result<Block> block = state_->reserve(state_->mine(), bytes, kind, align);
  if (!block || is_derived(kind)) return block;
  if (const SlabBlock b = state_->slab_block(block->offset)) {
    const bool fresh = b.slab->set_reserved(b.index);
    TENUTO_ASSERT(fresh);
  }
  return block;
}

void Heap::grow_little() { state_.as_opened().frames.grow_little(); }

void Heap::prepare_thread() { static_cast<void>(state_->mine()); }

// If no block starts there, damaged media named it. The heap's own structures were checked when
// they were read, but a reference can look right and lead nowhere.
void Heap::release(PoolOffset block) {
  const pm::MetadataOpen rights;
  LaneHeap& h = state_->mine();
  if constexpr (kTraced) state_->forget_type(block);
  if (h.numa != nullptr) state_->look_where_now_and_then(h);
  bool derived = false;
  bool sound = false;
  const SlabBlock b = state_->slab_block(block);
  if (b) {
    derived = is_derived(b.slab->kind);
    sound = b.index != kNoBlock && (derived || !b.slab->live(b.index));
    if (sound && !derived) b.slab->clear_reserved(b.index);
  } else {
    derived = state_->extents.find(block, Kind::derived, Wanted::in_use).has_value();
    sound = derived || state_->extents.cancel(block);
  }
  if (!sound) {
    static_cast<void>(state_->file.damaged(block, "freed where no block starts"));
  } else if (b && b.slab->kind == Kind::record) {
    state_->defer(h, b, block);
  } else if (derived) {
    state_->give_back(h, block);
  } else {
    state_->retire(h, block);
  }
}

Result<Block> Heap::find_allocated(PoolOffset block) const {
  const pm::MetadataOpen rights;
  return state_->find_allocated(block, state_->slab_block(block));
}

// In a call of a transaction, which has the rights to metadata.
bool Heap::claim_free(PoolOffset block) { return state_->claim(block, state_->slab_block(block)); }

void Heap::unclaim_free(PoolOffset block) { state_->unclaim(block); }

const std::uint64_t& Heap::mark_allocated(PoolOffset block) {
  const pm::MetadataOpen rights;
  const SlabBlock b = state_->slab_block(block);
  if (b ? b.slab->kind == Kind::typed : state_->extents.is_typed(block)) [[unlikely]]
    return state_->mark_typed(state_->mine(), block);
  if (!b) return state_->extents.mark_allocated(block, state_->mine().core);
  TENUTO_ASSERT(b.index != kNoBlock);
  const bool reserved = b.slab->clear_reserved(b.index);
  TENUTO_ASSERT(reserved);
  b.slab->set_live(b.index);
  if (b.slab->in_dram) return *state_->file.at<std::uint64_t>(block);
  return b.slab->store_persistent(b.index, true);
}

const std::uint64_t& Heap::mark_free(PoolOffset block) {
  const pm::MetadataOpen rights;
  SlabBlock b = state_->slab_block(block);
  if (!b) return state_->extents.mark_free(block, state_->mine().core);
  if (TENUTO_PLANT("heap_old_block_clears_new_bit")) {
    const SlabBlock now = state_->parts_at(block)[0];
    if (now.index != kNoBlock) b = now;
  }
  TENUTO_ASSERT(b.index != kNoBlock && !b.slab->live(b.index));
  if (b.slab->in_dram) return *state_->file.at<std::uint64_t>(block);
  return b.slab->store_persistent(b.index, false);
}

std::uint64_t Heap::usable_size(PoolOffset block) const {
  const pm::MetadataOpen rights;
  if (const Result<Block> b = find_allocated(block)) return usable(*b);
  if (const Result<Block> b = find_taken(block, Kind::derived)) return b->bytes;
  return 0;
}

Result<Block> Heap::find_taken(PoolOffset block, Kind kind) const {
  const pm::MetadataOpen rights;
  if (const SlabBlock b = state_->slab_block(block)) {
    const Slab& slab = *b.slab;
    if (is_logged(slab.kind) != is_logged(kind) || b.index == kNoBlock) return Status::not_found;
    if (is_logged(kind)) {
      if (!slab.live(b.index) && !slab.reserved(b.index)) return Status::not_found;
      return Block{block, slab.block_bytes};
    }
    const std::lock_guard lock(slab.arena->mu);
    if (slab.is_free(b.index) || slab.reserved(b.index)) return Status::not_found;
    return Block{block, slab.block_bytes};
  }
  return state_->extents.find(block, kind, Wanted::in_use);
}

void Heap::start_large_pages() { state_.as_opened().frames.large().start(); }

void Heap::trim() {
  const pm::MetadataOpen rights;
  State& s = *state_;
  if (s.file.writable() != Status::ok) return;
  if (s.wear != nullptr) s.end_all_due_rests(s.mine());
  s.scavenge(s.mine());
  s.extents.trim();
  s.frames.punch_free();
}

void Heap::empty_cache() {
  const pm::MetadataOpen rights;
  state_->empty_caches(state_->mine());
}

}  // namespace TENUTO_NS::heap
