// Canaries behind the blocks of objects (guard.h).
#include <bit>
#include <cstdio>

#include "heap/guard.h"
#include "heap/guard_report.h"
#include "heap/heap_paths.h"
#include "heap/size_class.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {
constexpr const char* kPastEnd = "a block was overwritten behind its end, or after it was freed";

std::string hex(std::uint64_t v) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(v));
  return text;
}
}  // namespace

// The canary must not cost a request for whole lines its alignment.
std::uint64_t align_beside_canary(std::uint64_t bytes, std::uint64_t align) {
  const bool lines = bytes != 0 && bytes % kLineBytes == 0;
  return lines ? std::max<std::uint64_t>(align, kLineBytes) : align;
}

// A finaliser of a hash (splitmix64): neighbouring places and pools have unlike values.
std::uint64_t canary_at(const pm::PoolFile& file, PoolOffset place) {
  std::uint64_t z = file.superblock().pool_id + place.value * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

bool canary_intact(const pm::PoolFile& file, PoolOffset block, std::uint64_t bytes) {
  if (TENUTO_PLANT("heap_canary_believed")) return true;
  const PoolOffset place = canary_place(block, bytes);
  return __atomic_load_n(file.at<std::uint64_t>(place), __ATOMIC_RELAXED) == canary_at(file, place);
}

bool write_canary(const pm::PoolFile& file, PoolOffset block, std::uint64_t bytes) {
  const PoolOffset place = canary_place(block, bytes);
  auto& word = *file.at<std::uint64_t>(place);
  const std::uint64_t value = canary_at(file, place);
  if (__atomic_load_n(&word, __ATOMIC_RELAXED) == value) return false;
  store_ordered(word, value);
  flush(word);
  return true;
}

void write_canaries(const pm::PoolFile& file, const BlockGrid& grid) {
  const char* before = nullptr;  // its line is not flushed yet
  for (unsigned i = 0; i < grid.blocks; ++i) {
    const PoolOffset place = canary_place(grid.block_offset(i), grid.block_bytes);
    auto& word = *file.at<std::uint64_t>(place);
    store_ordered(word, canary_at(file, place));
    const char* const line = pm::line_of(&word);
    if (before != nullptr && before != line) flush_bytes(before, kLineBytes);
    before = line;
  }
  if (before != nullptr) flush_bytes(before, kLineBytes);
}

namespace {
// Whether the canary of a free block is there. A crash may leave the zeros of a morph's new stripes
// without its shape, so nothing is known of the lines where a header can end.
bool must_be_there(const Slab& slab, PoolOffset block) {
  const PoolOffset place = canary_place(block, slab.block_bytes);
  const bool near = place.value - slab.offset.value < kHeaderLinesMax * kLineBytes;
  return !slab.shape.old && (!near || TENUTO_PLANT("heap_canary_under_a_new_header_expected"));
}

// How many blocks behind the one at `block` have broken canaries, one after the other.
unsigned broken_behind(const pm::PoolFile& file, const Slab& slab, PoolOffset block) {
  unsigned n = 0;
  for (unsigned i = slab.index_of(block) + 1; i < slab.blocks; ++i, ++n) {
    if (canary_intact(file, slab.block_offset(i), slab.block_bytes)) break;
  }
  return n;
}
}  // namespace

Status guard_taken(pm::PoolFile& file, const Slab* slab, std::uint64_t block_bytes,
                   std::span<const TakenBlock> blocks) {
  bool written = false;
  for (const TakenBlock& b : blocks) {
    if (canary_intact(file, b.offset, block_bytes)) continue;
    if (slab != nullptr && must_be_there(*slab, b.offset)) {
      return overflowed(file, {b.offset, block_bytes, 0, broken_behind(file, *slab, b.offset)});
    }
    if (!TENUTO_PLANT("heap_morphed_canaries_missing"))
      written = write_canary(file, b.offset, block_bytes) || written;
  }
  if (written) fence("canaries of a morphed slab", "its blocks are handed out");
  return Status::ok;
}

Status say_overflow(const pm::PoolFile& file, const Overflow& o, const char* what, Report* report) {
  const PoolOffset place = canary_place(o.block, o.bytes);
  const std::uint64_t right = canary_at(file, place);
  const std::uint64_t found = __atomic_load_n(file.at<std::uint64_t>(place), __ATOMIC_RELAXED);
  const auto changed = [&](unsigned i) { return ((right ^ found) >> 8 * i & 0xff) != 0; };
  unsigned first = 0;
  while (first < kCanaryBytes - 1 && !changed(first)) ++first;
  unsigned last = kCanaryBytes - 1;
  while (last > first && !changed(last)) --last;
  const std::uint64_t usable = o.bytes - kCanaryBytes;
  std::string is = "block of " + std::to_string(usable) + " bytes";
  if (o.type != 0) is += ", type " + std::to_string(o.type);
  std::string far = hex(found) + ": bytes " + std::to_string(usable + first) + " to " +
                    std::to_string(usable + last) + " of the block changed";
  if (o.next != 0) far += ", and the canaries of the next " + std::to_string(o.next) + " blocks";
  return fail(Status::corrupt, report, what, file.where(o.block, is), hex(right), far);
}

Status overflowed(pm::PoolFile& file, const Overflow& o) {
  const Status s = turn_read_only(file, o.block, kPastEnd, [&](Report* report) {
    return say_overflow(file, o, kPastEnd, report);
  });
  write_canary(file, o.block, o.bytes);
  return s;
}

// --- of a heap -----------------------------------------------------------------------------------

void Heap::State::write_canary_of_extent(const Block& block) const {
  if (TENUTO_PLANT("heap_extent_without_canary")) return;
  if (!write_canary(file, block.offset, block.bytes)) return;
  if (TENUTO_PLANT("heap_extent_canary_unfenced")) return;
  fence("canary of an extent", "it is handed out");
}

Overflow Heap::State::overflow_at(PoolOffset block, std::uint64_t bytes) const {
  Overflow o{block, bytes};
  const SlabBlock b = slab_block(block);
  if (const std::uint64_t* type = type_word(block)) {
    o.type = __atomic_load_n(type, __ATOMIC_RELAXED);
  }
  if (b && b.index != kNoBlock) o.next = broken_behind(file, *b.slab, block);
  return o;
}

Status Heap::State::check_canary(PoolOffset block, std::uint64_t bytes) {
  if (canary_bytes == 0 || canary_intact(file, block, bytes)) return Status::ok;
  return overflowed(file, overflow_at(block, bytes));
}

Status Heap::check_canary(const Block& block) {
  const pm::MetadataOpen rights;
  return state_->check_canary(block.offset, block.bytes);
}

// REQUIRES: the arena's lock of a slab is held.
Status Heap::State::validate_canaries(const Slab& slab, Report* report) const {
  if (canary_bytes == 0 || is_derived(slab.kind)) return Status::ok;
  for (unsigned i = 0; i < slab.blocks; ++i) {
    const PoolOffset block = slab.block_offset(i);
    const bool there = !slab.is_old() && must_be_there(slab, block);
    if (!there && !slab.live(i) && !slab.reserved(i)) continue;
    if (canary_intact(file, block, slab.block_bytes)) continue;
    Overflow o{block, slab.block_bytes, 0, broken_behind(file, slab, block)};
    if (slab.kind == Kind::typed && slab.live(i)) o.type = slab.type_word(i);
    return say_overflow(file, o, kPastEnd, report);
  }
  return Status::ok;
}

Status Heap::State::validate_canaries(Report* report) const {
  if (canary_bytes == 0) return Status::ok;
  Status status = Status::ok;
  extents.for_each(Kind::logged, [&](PoolOffset o, std::uint64_t bytes) {
    if (status != Status::ok || !extents.find(o, Kind::logged, Wanted::in_use)) return;
    if (!canary_intact(file, o, bytes)) {
      status = say_overflow(file, overflow_at(o, bytes), kPastEnd, report);
    }
  });
  return status;
}

// --- a reserved block that is not published ------------------------------------------------------

Status Heap::cancel(PoolOffset block) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  const Result<Block> taken = find_taken(block, Kind::logged);
  if (!taken || find_allocated(block)) return Status::invalid_argument;
  TENUTO_TRY(check_canary(*taken));
  LaneHeap& h = s.mine();  // may throw, and then nothing has changed
  // Of two threads that cancel it one succeeds.
  const SlabBlock b = s.slab_block(block);
  const bool mine = TENUTO_PLANT("heap_cancelled_by_two_threads") ||
                    (b ? b.slab->clear_reserved(b.index) : s.extents.cancel_reserved(block));
  if (!mine) return Status::invalid_argument;
  s.retire(h, block);
  return Status::ok;
}

// --- sizes ---------------------------------------------------------------------------------------

std::uint64_t Heap::usable(const Block& block) const {
  return block.bytes - state_.as_opened().canary_bytes;
}

Result<std::uint64_t> Heap::usable_bytes(std::uint64_t bytes, std::uint64_t align,
                                         bool typed) const {
  const std::uint64_t canary = state_.as_opened().canary_bytes;
  if (canary == 0) return heap::block_bytes(bytes, align, typed);
  if (bytes > state_->file.bytes_max()) return Status::too_large;
  const auto all = heap::block_bytes(bytes + canary, align_beside_canary(bytes, align), typed);
  if (!all) return all.error();
  return *all - canary;
}

}  // namespace TENUTO_NS::heap
