// malloc_to and free_from: protocols R2F and F1 of 09-protocols, on a lane's intent lines.
//
//   malloc_to   W{malloc, b, d} | D = b; B = 1 | W = 0 (flushed, rides on the lane's next fence)
//   free_from   W{free, b, d, s} | D = 0; B = 0 (flushed, ride on the lane's next fence)
//               later, after such a fence: lane.retired = s, and after one more fence b is reused
//
// W is the intent line, D the destination word, B the block's bit (or its entry in the
// bookkeeping log). Authoritative: while W is sealed (and, for a free, above lane.retired) the
// intent, then D and B. Recovery: malloc: B = (D == b), which finishes or undoes; free: D = 0 if
// it is still b, B = 0. First fence: the intent is there before D or B changes. Second fence of
// malloc_to: the caller may rely on D. What the missing third fence asks of callers is the seal
// (Pool::malloc_to). Two intents and frees of other lanes never name the same block: it is in
// limbo as long as an intent names it, so lanes may be replayed in any order.
#include <algorithm>

#include "heap/heap_state.h"
#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::heap {

namespace {
pm::LogLine& malloc_line(LaneHeap& h) { return h.lane->lines[pm::kLaneMallocLine + h.malloc_slot]; }
pm::LogLine& free_line(LaneHeap& h, std::uint64_t n) {
  return h.lane->lines[pm::kLaneFreeLine + n % kFreeSlots];
}
std::uint64_t& retired_word(LaneHeap& h) { return h.lane->lines[pm::kLaneRetiredLine].word[0]; }
}  // namespace

bool Heap::State::is_word(const PtrWord& dest) const {
  return file.contains(&dest) && reinterpret_cast<std::uintptr_t>(&dest) % alignof(PtrWord) == 0;
}

// Retires the frees that are known to be durable, when there are enough of them. Flushed.
void Heap::State::before_fence(LaneHeap& h) {
  if (h.limbo_count < kRetireEvery) return;
  std::uint64_t retired = 0;
  for (unsigned i = 0; i < h.limbo_count; ++i) {
    LimboFree& f = h.limbo_at(i);
    if (f.stage != LimboStage::durable && !TENUTO_PLANT("heap_free_retired_before_durable"))
      continue;
    f.stage = LimboStage::retiring;
    retired = f.sequence;
  }
  if (retired != 0) tenuto::publish(retired_word(h), retired);
}

void Heap::State::after_fence(LaneHeap& h) {
  const bool early = TENUTO_PLANT("heap_block_reused_before_retirement");
  const LimboStage over = early ? LimboStage::durable : LimboStage::retiring;
  while (h.limbo_count > 0 && h.limbo_at(0).stage >= over) {
    const PoolOffset block = h.limbo_at(0).block;
    h.pending_dest[(h.frees - h.limbo_count) % kFreeSlots].store(0, std::memory_order_release);
    h.limbo_count -= 1;
    retire(h, block);
  }
  for (unsigned i = 0; i < h.limbo_count; ++i) {
    LimboFree& f = h.limbo_at(i);
    if (f.stage == LimboStage::cleared) f.stage = LimboStage::durable;
  }
}

void Heap::State::drain_limbo(LaneHeap& h) {
  if (h.limbo_count > 0) {
    fence("cleared destinations and bits", "their intents are retired");
    const std::uint64_t last = h.limbo_at(h.limbo_count - 1).sequence;
    for (unsigned i = 0; i < h.limbo_count; ++i) h.limbo_at(i).stage = LimboStage::retiring;
    tenuto::publish(retired_word(h), last);
    fence("retired intents", "their blocks are reused");
    after_fence(h);
  }
  empty_quarantine(h);
}

void Heap::State::flush_unfenced(LaneHeap& h) {
  for (std::size_t i = 0; i < pm::kLaneMallocSlots; ++i) {
    flush(h.lane->lines[pm::kLaneMallocLine + i]);
  }
  for (unsigned i = 0; i < h.limbo_count; ++i) {
    const std::uint64_t n = h.frees - h.limbo_count + i;
    const PoolOffset dest{h.pending_dest[n % kFreeSlots].load(std::memory_order_relaxed)};
    flush(*file.at<PtrWord>(dest));
    const PoolOffset block = h.limbo_at(i).block;
    if (const SlabBlock b = slab_block(block)) flush(b.slab->persistent_word(b.index));
  }
}

void Heap::State::retire(LaneHeap& h, PoolOffset block) {
  h.quarantine.push_back(block);
  if (h.quarantine.size() >= kQuarantineBatch) empty_quarantine(h);
}

// A free intent of another lane that names a destination inside a freed block would, replayed
// after the block's reuse, write into somebody else's data if that happens to look like the old
// pointer. Such blocks wait for that lane.
void Heap::State::empty_quarantine(LaneHeap& h) {
  if (h.quarantine.empty()) return;
  std::vector<PoolOffset>& blocks = h.quarantine;
  std::sort(blocks.begin(), blocks.end());
  std::vector<PoolOffset> kept;
  const std::size_t lanes_used = lane_heaps_end.load(std::memory_order_acquire);
  const std::size_t end = TENUTO_PLANT("heap_quarantine_skipped") ? 0 : lanes_used;
  for (std::size_t id = 0; id < end; ++id) {
    const LaneHeap* other = lane_heaps[id].load(std::memory_order_acquire);
    if (other == nullptr) continue;
    for (const auto& dest : other->pending_dest) {
      const std::uint64_t d = dest.load(std::memory_order_acquire);
      if (d == 0) continue;
      auto after = std::upper_bound(blocks.begin(), blocks.end(), PoolOffset{d});
      if (after == blocks.begin()) continue;
      const PoolOffset before = *std::prev(after);
      const Slab* slab = slab_block(before).slab;
      const std::uint64_t bytes =
          slab != nullptr
              ? slab->block_bytes
              : extents.find(before, Kind::logged, Wanted::not_free).value_or(Block{}).bytes;
      if (d >= before.value + bytes) continue;
      kept.push_back(before);
      blocks.erase(std::prev(after));
    }
  }
  for (const PoolOffset block : blocks) give_back(h, block);
  blocks = std::move(kept);
}

void Heap::State::publish_block(LaneHeap& h, const Block& block, PtrWord& dest) {
  pm::LogLine& w = malloc_line(h);
  h.malloc_slot = (h.malloc_slot + 1) % pm::kLaneMallocSlots;
  const std::uint64_t words[7] = {static_cast<std::uint64_t>(Intent::malloc_to), block.offset.value,
                                  file.offset_of(&dest).value, block.bytes};
  const std::uint64_t pointer = PtrWord::encode(&dest, file.at<void>(block.offset));
  if (TENUTO_PLANT("heap_destination_before_intent")) tenuto::publish(dest.raw, pointer);
  pm::write_log_line(w, words, ++h.sequence);
  before_fence(h);
  fence("malloc intent", "destination and bit");
  after_fence(h);

  tenuto::publish(dest.raw, pointer);
  if (const SlabBlock b = slab_block(block.offset)) {
    b.slab->set_persistent(b.index, true);
    b.slab->set_live(b.index);
    b.slab->clear_reserved(b.index);
  } else {
    extents.mark_allocated(block.offset);
  }
  before_fence(h);
  fence("destination and bit", "malloc_to returns");
  after_fence(h);
  pm::clear_log_line(w);
}

Status Heap::malloc_to(std::uint64_t bytes, PtrWord& dest) {
  TENUTO_TRY(state_->file.writable());
  if (!state_->is_word(dest)) return Status::invalid_argument;
  if (__atomic_load_n(&dest.raw, __ATOMIC_RELAXED) != 0) return Status::invalid_argument;
  LaneHeap& h = state_->mine();
  const Result<Block> block = state_->reserve(h, bytes, Kind::logged);
  if (!block) return block.error();
  state_->publish_block(h, *block, dest);
  return Status::ok;
}

Status Heap::publish(const Block& block, PtrWord& dest) {
  TENUTO_TRY(state_->file.writable());
  if (!state_->is_word(dest)) return Status::invalid_argument;
  if (__atomic_load_n(&dest.raw, __ATOMIC_RELAXED) != 0) return Status::invalid_argument;
  const Result<Block> taken = find_taken(block.offset, Kind::logged);
  if (!taken || find_allocated(block.offset)) return Status::invalid_argument;
  state_->publish_block(state_->mine(), *taken, dest);
  return Status::ok;
}

Status Heap::free_from(PtrWord& dest) {
  State& s = *state_;
  TENUTO_TRY(s.file.writable());
  if (!s.is_word(dest)) return Status::invalid_argument;
  const std::uint64_t raw = __atomic_load_n(&dest.raw, __ATOMIC_ACQUIRE);
  const void* target = PtrWord::decode(&dest, raw);
  if (target == nullptr || !s.file.contains(target)) return Status::invalid_argument;
  const PoolOffset block = s.file.offset_of(target);
  const Result<Block> found = find_allocated(block);
  if (!found || !claim_free(block)) return Status::invalid_argument;

  LaneHeap& h = s.mine();
  if (h.limbo_count == kFreeSlots) s.drain_limbo(h);
  const std::uint64_t words[7] = {static_cast<std::uint64_t>(Intent::free_from), block.value,
                                  s.file.offset_of(&dest).value, found->bytes};
  const bool early = TENUTO_PLANT("heap_bit_cleared_before_intent");
  if (early) mark_free(block);
  pm::write_log_line(free_line(h, h.frees), words, ++h.sequence);
  s.before_fence(h);
  fence("free intent", "destination and bit cleared");
  s.after_fence(h);

  tenuto::publish(dest.raw, 0);
  if (!early) mark_free(block);
  h.pending_dest[h.frees % kFreeSlots].store(s.file.offset_of(&dest).value,
                                             std::memory_order_release);
  h.limbo[h.frees % kFreeSlots] = {block, h.sequence, LimboStage::cleared};
  h.frees += 1;
  h.limbo_count += 1;
  if (TENUTO_PLANT("heap_free_without_limbo")) s.give_back(h, block);
  return Status::ok;
}

}  // namespace tenuto::inline TENUTO_ABI::heap
