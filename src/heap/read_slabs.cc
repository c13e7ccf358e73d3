// How the slabs are read: their headers are found, their bits taken, and the free lists filled. An
// open after a crash does the first before its recovery, and the rest after it. A clean open does
// nothing of it: a store that is only read needs no free list. The first call that comes to the
// heap's state does (Heap::Access).
#include <algorithm>
#include <bit>

#include "heap/heap_paths.h"
#include "heap/morph.h"
#include "pm/metadata_key.h"
#include "pm/parallel.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

namespace {
constexpr const char* kHeaderDamaged =
    "nobody owns a frame that is taken: the header of a slab was damaged while the pool was "
    "closed, "
    "and its objects cannot be found";

// The header and the stripes of most slabs. A line whose page is not mapped yet is left out.
void prefetch_slab(const pm::PoolFile& file, PoolOffset o) {
  constexpr std::size_t kLines = 8;
  for (std::size_t i = 0; i < kLines; ++i) __builtin_prefetch(file.at<char>(o + i * kLineBytes));
}
}  // namespace

// Every taken 64-KiB frame with a sound header is a slab, because a header is durably erased before
// its frame is given back. Extents are skipped: they hold the users' bytes. After a clean close
// most derived slabs are known from its table.
Status Heap::State::find_slabs(unsigned threads, Report* report) {
  if (clean) adopt_slab_table();
  std::vector<PoolOffset> places;
  const std::uint64_t end = file.bytes();
  for (PoolOffset o{round_up(pm::kHeadBytes, kSlabBytes)}; o.value + kSlabBytes <= end;
       o = o + kSlabBytes) {
    if (const std::uint64_t past = extents.end_of_known(o); past != 0) {
      o = {round_down(past - 1, kSlabBytes)};
      continue;
    }
    const bool known = pages.find(o).owner != PageOwner::none;
    if (!known && frames.frames().taken(frame_of_offset(o), frame::kOrderSlab)) {
      places.push_back(o);
    }
  }
  constexpr std::size_t kAtOnce = 64;  // whose headers a disk is asked for together
  constexpr std::size_t kParts = 8;    // fewer are not worth a thread
  const std::size_t parts = (places.size() + kAtOnce - 1) / kAtOnce;
  std::vector<std::uint64_t> adopted(parts);
  const auto adopt = [&](std::size_t part) {
    const std::size_t from = part * kAtOnce;
    const std::span<const PoolOffset> here(&places[from], std::min(kAtOnce, places.size() - from));
    file.read_ahead(here.data(), here.size());
    const bool mapped = in_large_pages(here);
    std::size_t turn = part;
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (mapped && i + 1 < here.size()) prefetch_slab(file, here[i + 1]);
      if (adopt_slab(here[i], mapped, turn)) adopted[part] |= 1ull << i;
    }
  };
  const Status s = pm::parallel_each(parts, parts < kParts ? 1 : threads, adopt);
  if (s != Status::ok) return fail(s, report, pm::kNoThreadHere, file.path());
  no_slabs.clear();
  for (std::size_t i = 0; i < places.size(); ++i) {
    if ((adopted[i / kAtOnce] >> i % kAtOnce & 1) == 0) no_slabs.push_back(places[i]);
  }
  return Status::ok;
}

// Arenas have their turns; NUMA: those of the slab's node.
Arena& Heap::State::arena_for(PoolOffset slab, std::size_t turn) {
  if (!numa.on()) return *arenas[turn % arenas.size()];
  const unsigned node = frames.frames().node_of(frame_of_offset(slab));
  return *arenas[numa.core_of(node, static_cast<unsigned>(turn))];
}

// Judges by two slabs of one huge frame. A pool that is open to read does not know its holes.
bool Heap::State::in_large_pages(std::span<const PoolOffset> slabs) {
  const auto hole = [this](PoolOffset o) {
    return frames.holes().is_hole(frame_of_offset(o).value);
  };
  if (file.read_only()) return false;
  for (std::size_t i = 1; i < slabs.size(); ++i) {
    const PoolOffset one = slabs[i - 1];
    const PoolOffset other = slabs[i];
    if (one.value / kHugeBytes != other.value / kHugeBytes || hole(one) || hole(other)) continue;
    return file.maps_both(one, other);
  }
  return false;
}

bool Heap::State::adopt_slab(PoolOffset o, bool mapped, std::size_t& turn) {
  SlabLines lines;
  const bool hole = frames.holes().is_hole(frame_of_offset(o).value);
  const std::optional<SlabHeader> header = lines.read(file, o, mapped && !hole);
  if (!header) return false;
  Slab* made = nullptr;
  for (std::size_t i = 1; made == nullptr; ++i) {
    made = arena_for(o, turn++).adopt(o, *header, i == arenas.size());
  }
  Slab& slab = *made;
  slab.sealed = lines.sealed(*header);
  // After a crash the bits mean nothing; marks replace them.
  if (slab.in_dram && !clean) return true;
  const auto take_bits = [&lines](Slab& part) {
    BlockBits used;
    lines.used(part, used);
    for (std::size_t w = 0; w < part.words(); ++w) part.set_live_word(w, used[w]);
  };
  take_bits(slab);
  if (const OldPart* old = slab.old.load(std::memory_order_relaxed)) take_bits(*old->slab);
  return true;
}

// Makes the free bits from the bits that were found, replayed or marked. REQUIRES: arena->mu is
// held (for_each_slab).
void Heap::State::finish_part(Slab& slab) const {
  slab.fill_free_all();
  for (std::size_t w = 0; w < slab.words(); ++w) {
    const std::uint64_t used = slab.live_word(w);
    slab.free_bits[w] &= ~used;
    slab.free_count -= static_cast<std::uint32_t>(std::popcount(used));
  }
  slab.stripes_known =
      is_derived(slab.kind) && (clean || TENUTO_PLANT("heap_close_believes_stripes_after_crash"));
}

// Before the first change of a slab: compares the seals, if the slabs are still those of the last
// clean close. A wrong bit would hand out a block that is in use. After a crash the bits of derived
// blocks mean nothing. Nor has every taken frame an owner then: a thread may have taken one for a
// lane segment. So of those without a slab only such are damage whose header is one bit off.
Status Heap::State::begin_use(Report* report) {
  Status status = Status::ok;
  const bool untouched = clean || extents.untouched();
  for_each_slab([&](const Slab& slab) {
    const bool meant = untouched && !slab.is_old() && (clean || !slab.in_dram);
    if (!meant || slab.sealed || status != Status::ok) return;
    status = fail(Status::corrupt, report, "the bits of a slab are not those of its last close",
                  file.where(slab.offset, "slab"));
  });
  for (const PoolOffset o : no_slabs) {
    if (clean || !untouched || status != Status::ok) break;
    if (TENUTO_PLANT("heap_recovery_looks_at_no_header") || !has_bit_flipped(file, o)) continue;
    status = fail(Status::corrupt, report, kHeaderDamaged, file.where(o, "slab"));
  }
  TENUTO_TRY(status);
  extents.break_seal();
  return Status::ok;
}

Status Heap::State::finish_slab(Slab& slab, Report* report) const {
  finish_part(slab);
  const OldPart* old = slab.old.load(std::memory_order_relaxed);
  if (old == nullptr) return Status::ok;
  finish_part(*old->slab);
  if (old->slab->free_count == old->slab->blocks) {
    slab.arena->drop_old_part(slab);
  } else if (!hold_old_blocks(slab)) {
    return fail(Status::corrupt, report, "blocks of both parts of a slab overlap",
                file.where(slab.offset, "slab"));
  }
  return Status::ok;
}

// After a clean close every taken frame has an owner. One that is no slab, and that nobody else
// names, was a slab: its objects would be lost in silence, and the next recovery would give the
// frame back.
Status Heap::State::expect_owners(Report* report) {
  const auto named = [this](PoolOffset o, std::uint64_t count) {
    const auto from = std::lower_bound(no_slabs.begin(), no_slabs.end(), o);
    const auto to = std::lower_bound(from, no_slabs.end(), o + count * kFrameBytes);
    no_slabs.erase(from, to);
    return Status::ok;
  };
  TENUTO_TRY(name_frames(named));
  if (no_slabs.empty() || TENUTO_PLANT("heap_damaged_header_is_no_slab")) return Status::ok;
  return fail(Status::corrupt, report, kHeaderDamaged, file.where(no_slabs.front(), "slab"));
}

// Fills the free lists. Needs memory at its beginning alone: it may not be done twice, as it counts
// the blocks that are held in slabs with two parts.
Status Heap::State::finish_slabs(Report* report) {
  if (clean) TENUTO_TRY(expect_owners(report));
  if (clean) TENUTO_TRY(begin_use(report));
  std::size_t count = 0;
  for_each_slab([&](const Slab&) { count += 1; });
  std::vector<Slab*> slabs;
  slabs.reserve(count);
  Status status = Status::ok;
  for_each_slab([&](Slab& slab) {
    if (slab.is_old() || status != Status::ok) return;
    status = finish_slab(slab, report);
    slabs.push_back(&slab);
  });
  TENUTO_TRY(status);
  for (Slab* slab : slabs) {
    if (slab->empty() && !clean) {
      slab->arena->discard(*slab);
    } else {
      slab->arena->enlist(*slab);
    }
  }
  return Status::ok;
}

// If an allocation fails, the next call goes on: a slab is in the page table, or not adopted at
// all; and nothing is counted or listed before memory is needed no more.
void Heap::Access::read() const {
  const pm::MetadataOpen rights;
  State& s = *state_;
  const std::lock_guard lock(s.read_mu);
  if (read_.load(std::memory_order_relaxed)) return;
  Report report;
  Status found = s.clean ? s.find_slabs(s.read_threads, &report) : Status::ok;
  if (found == Status::io) found = s.find_slabs(1, &report);  // the system had no thread
  if (found == Status::ok) found = s.clean ? s.finish_slabs(&report) : s.end_recovery(&report);
  s.slabs_damaged = found != Status::ok;
  // A recovery would not see it.
  if (s.clean && found == Status::corrupt && !TENUTO_PLANT("heap_damage_not_marked")) {
    s.file.mark_damaged(report, pm::kVariantDamaged);
  }
  if (s.slabs_damaged) s.file.poison(found, report);
  if (!s.slabs_damaged) s.free_released();
  read_.store(true, std::memory_order_release);
}

void Heap::State::free_released() {
  if (TENUTO_PLANT("heap_released_unread_stays")) released_unread.clear();
  for (const PoolOffset o : released_unread) {
    const SlabBlock b = slab_block(o);
    const bool in_slab =
        b && is_derived(b.slab->kind) && b.index != kNoBlock && !b.slab->is_free(b.index);
    if (in_slab) {
      b.slab->arena->give(*b.slab, &b.index, 1);
    } else if (!b && extents.find(o, Kind::derived, Wanted::in_use)) {
      extents.release(o, 0);
    } else {
      static_cast<void>(file.damaged(o, "freed where no block starts"));
    }
  }
  released_unread.clear();
}

Status Heap::was_read(Report* report) const {
  return state_->slabs_damaged ? state_->file.health(report) : Status::ok;
}

bool Heap::keep_released(std::size_t blocks) {
  State& s = state_.as_opened();
  const std::lock_guard lock(s.read_mu);
  if (state_.has_read() || s.released_unread.size() != blocks) return false;
  s.released_unread.clear();
  return true;
}

void Heap::release_when_read(std::span<const PoolOffset> blocks,
                             const std::function<void()>& unname) {
  const pm::MetadataOpen rights;
  State& s = state_.as_opened();
  const std::lock_guard lock(s.read_mu);
  s.released_unread.reserve(s.released_unread.size() + blocks.size());
  unname();
  s.released_unread.insert(s.released_unread.end(), blocks.begin(), blocks.end());
  if (state_.has_read()) s.free_released();
}

}  // namespace TENUTO_NS::heap
