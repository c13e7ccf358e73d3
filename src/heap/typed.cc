// Typed blocks, and the walk that finds them. A typed block is a logged one with a type of one
// word. A small block's type is in a table between the stripes and the blocks of its slab, which
// has only typed blocks. The type of an extent or huge object is its last 8 bytes. The bit, or the
// entry in the bookkeeping log, tells whether the block exists. The type of a free block means
// nothing, so no free changes it.
//
// The type is stored when the block is reserved. The code that makes the block reachable flushes it
// before a fence that its protocol has anyway. Cost: one line, no fence.
//   publish, plain        type, malloc intent | D, B
//   publish, versioned    type, contents | versioned malloc intent | D, B
//   malloc_to, versioned  type, versioned malloc intent | D, B
//   batches               as publish; a versioned batch has the first fence once for all its blocks
//   transactions          type, bit, modified data | commit record
// A versioned intent is replayed forward and may be durable early. So publish fences the type
// before it. malloc_to has no such fence: its intent names the type, and recovery stores it.
//
// The walk goes through the pool by address and shows allocated blocks. It reads bits and entries,
// not the shadows' live_bits: a free clears these long before its transaction commits. A block of a
// transaction has its bit before the commit record. It is `reserved` until that record is durable.
#include <algorithm>
#include <bit>

#include "heap/heap_paths.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

// --- words ---------------------------------------------------------------------------------------

std::uint64_t& Extents::type_word(PoolOffset o) const {
  return *file_.at<std::uint64_t>(o + slots_.find(o).bytes());
}

// Null when no typed block is there.
std::uint64_t* Heap::State::type_word(PoolOffset block) const {
  if (const SlabBlock b = slab_block(block)) {
    const bool typed = b.slab->kind == Kind::typed && b.index != kNoBlock;
    return typed ? &b.slab->type_word(b.index) : nullptr;
  }
  return extents.is_typed(block) ? &extents.type_word(block) : nullptr;
}

void Heap::State::flush_type(PoolOffset block) const {
  const std::uint64_t* word = type_word(block);
  if (word != nullptr && !TENUTO_PLANT("heap_type_not_flushed")) flush(*word);
}

// The block is given back, so its type need not be durable.
void Heap::State::forget_type(PoolOffset block) const {
  const std::uint64_t* word = type_word(block);
  if (word != nullptr) transient(word, sizeof *word);
}

namespace {
std::uint64_t load(const std::uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }
}  // namespace

Result<Block> Heap::reserve_typed(std::uint64_t bytes, std::uint64_t type, std::uint64_t align) {
  const pm::MetadataOpen rights;
  TENUTO_ASSERT(type != 0);
  TENUTO_TRY(state_->file.writable());
  Result<Block> block = state_->reserve(state_->mine(), bytes, Kind::typed, align);
  if (!block) return block;
  if (const SlabBlock b = state_->slab_block(block->offset)) {
    const bool fresh = b.slab->set_reserved(b.index);
    TENUTO_ASSERT(fresh);
  }
  store_ordered(*state_->type_word(block->offset), type);
  return block;
}

// Writes the types of the batch's blocks (0: none) before any of them is named, and flushes each
// line of types once. `versioned`: it fences also what the blocks hold.
void Heap::State::prepare_batch(LaneHeap& h, std::uint64_t type, bool versioned) {
  std::vector<PoolOffset>& lines = h.places;
  lines.clear();
  const std::size_t typed = type == 0 ? 0 : h.batch.size();
  for (std::size_t i = 0; i < typed; ++i) {
    const IntentElement& e = h.batch[i];
    std::uint64_t& word = *type_word(e.block);
    store_ordered(word, type);
    lines.push_back({round_down(file.offset_of(&word).value, kLineBytes)});
  }
  std::sort(lines.begin(), lines.end());
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  if (TENUTO_PLANT("heap_batch_flushes_its_last_type") && lines.size() > 1) {
    lines.erase(lines.begin(), std::prev(lines.end()));
  }
  for (const PoolOffset line : lines) flush_bytes(file.at<void>(line), kLineBytes);
  lines.clear();
  if (!versioned) return;
  fence_lane(h, "contents of a block", "versioned malloc intent");
}

// --- transactions --------------------------------------------------------------------------------

const std::uint64_t& Heap::State::mark_typed(const LaneHeap& h, PoolOffset block) {
  if (!TENUTO_PLANT("heap_types_of_commit_not_flushed")) flush_type(block);
  const SlabBlock b = slab_block(block);
  if (!b) return extents.record(block, h.core);
  TENUTO_ASSERT(b.slab->reserved(b.index));
  if (b.slab->in_dram) return *file.at<std::uint64_t>(block);
  return b.slab->store_persistent(b.index, true);
}

void Heap::confirm_allocated(PoolOffset block) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  if (const SlabBlock b = s.slab_block(block)) {
    if (b.slab->kind != Kind::typed) return;
    b.slab->set_live(b.index);
    b.slab->clear_reserved(b.index);
  } else if (s.extents.is_typed(block)) {
    s.extents.set_live(block);
  }
}

// --- the walk ------------------------------------------------------------------------------------

namespace {
bool shows(const Slab& slab, unsigned i) {
  return (slab.in_dram ? slab.live(i) : slab.persistent(i)) && !slab.reserved(i);
}
bool shows(const ExtentWord& w) {
  return w.state() == ExtentState::live || w.state() == ExtentState::claimed;
}
}  // namespace

bool Extents::shows_typed(PoolOffset o) const { return is_typed(o) && shows(slots_.find(o)); }

std::uint64_t Heap::type_of(PoolOffset block) const {
  const pm::MetadataOpen rights;
  const State& s = *state_;
  const SlabBlock b = s.slab_block(block);
  const std::uint64_t* const word = s.type_word(block);
  const bool shown = b ? word != nullptr && shows(*b.slab, b.index) : s.extents.shows_typed(block);
  return shown ? load(*word) : 0;
}

std::uint64_t Heap::type_of_taken(PoolOffset block) const {
  const pm::MetadataOpen rights;
  if (!find_taken(block, Kind::logged)) return 0;
  const std::uint64_t* const word = state_->type_word(block);
  return word == nullptr ? 0 : load(*word);
}

// The first block of the type at or behind `from`, in the 64 KiB that contain `from`.
PoolOffset Heap::State::find_in_slab(PoolOffset from, std::uint64_t type) const {
  const PageTable::Entry e = pages.find(from);
  if (e.owner != PageOwner::typed) return {};
  const Slab& slab = *e.slab();
  const std::lock_guard lock(slab.arena->mu);  // the shadow stays that of this slab
  const PageTable::Entry now = pages.find(from);
  if (now.owner != e.owner || now.object != e.object) return {};
  const std::uint64_t first = slab.offset.value + slab.data_offset;
  const std::uint64_t before = from.value > first ? from.value - first : 0;
  for (auto i = static_cast<unsigned>((before + slab.block_bytes - 1) / slab.block_bytes);
       i < slab.blocks; ++i) {
    const bool all = TENUTO_PLANT("heap_walk_shows_what_is_not_allocated");
    const std::uint64_t taken = (all ? ~0ull : ~slab.free_bits[i / 64]) >> i % 64;
    if (taken == 0) {
      i |= 63;
      continue;
    }
    i += static_cast<unsigned>(std::countr_zero(taken));
    if (i >= slab.blocks) break;
    const std::uint64_t& word = slab.type_word(i);
    const auto matches = [&] { return type == kAnyType || load(word) == type; };
    if (!matches()) continue;
    if (!all && !shows(slab, i)) continue;
    // Freed and reserved meanwhile with another type: not shown as what it was.
    if (matches()) return slab.block_offset(i);
  }
  return {};
}

PoolOffset Extents::find_typed(PoolOffset from, PoolOffset end, std::uint64_t type) const {
  if (typed_.load(std::memory_order_relaxed) == 0) return {};
  const std::uint64_t half = from.value / kHugeBytes;
  const auto in_chunk = [&] { return (halves_[half / 2].load() >> (half % 2) & 1) != 0; };
  // The lock keeps what is there from being cut anew. The owner may change until it is held.
  const Shard* shard = &owner_of(from.value / kFrameBytes);
  Lock lock(shard->mu);
  for (const Shard* now = nullptr; (now = &owner_of(from.value / kFrameBytes)) != shard;) {
    shard = now;
    lock = {};  // never two of them
    lock = Lock(shard->mu);
  }
  const bool chunk = in_chunk();
  const std::unique_lock huge = chunk ? std::unique_lock<std::mutex>() : std::unique_lock(huge_mu_);
  std::uint64_t frame = round_up(from.value, kFrameBytes) / kFrameBytes;
  if (!chunk && frame % kHugeFrames != 0) return {};  // inside a huge object, or without owner
  while (frame < end.value / kFrameBytes) {
    const ExtentWord w = slots_[frame].get();
    const PoolOffset o = offset_of_frame({frame});
    const bool here = shows(w) && w.kind() == Kind::typed;
    if (here && (type == kAnyType || load(type_word(o)) == type)) return o;
    if (!chunk) return {};
    frame += w.state() == ExtentState::tail ? 1 : std::max<std::uint64_t>(w.frames(), 1);
  }
  return {};
}

PoolOffset Heap::find_typed(PoolOffset from, std::uint64_t type) const {
  const pm::MetadataOpen rights;
  const State& s = *state_;
  const std::uint64_t end = s.file.bytes();
  while (from.value < end) {
    // A huge frame has slabs or extents, never both.
    const PoolOffset next{std::min(round_down(from.value, kHugeBytes) + kHugeBytes, end)};
    for (PoolOffset at = from; at < next; at = {round_down(at.value, kSlabBytes) + kSlabBytes}) {
      if (const PoolOffset found = s.find_in_slab(at, type)) return found;
    }
    if (const PoolOffset found = s.extents.find_typed(from, next, type)) return found;
    from = next;
  }
  return {};
}

}  // namespace TENUTO_NS::heap
