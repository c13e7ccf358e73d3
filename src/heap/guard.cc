#include "heap/guard.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "heap/guard_report.h"
#include "heap/heap_paths.h"
#include "heap/morph.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {

constexpr const char* kHeaderChanged =
    "the header of a slab was overwritten, by a store behind the end of the block before it or by "
    "a stray one";
constexpr const char* kBitsChanged =
    "the bits of a slab were overwritten, by a store behind the end of a block or by a stray one";

// The header that DRAM says. The seal of the last close means nothing now.
SlabHeader header_of(const pm::PoolFile& file, const Slab& slab) {
  SlabHeader h{};
  h.magic = kSlabMagic;
  h.self = slab.offset.value;
  h.pool_id = file.superblock().pool_id;
  h.kind = static_cast<std::uint8_t>(slab.kind == Kind::record ? Kind::derived : slab.kind);
  h.stripes = static_cast<std::uint8_t>(file.superblock().stripes);
  h.crc = slab_crc(h);
  h.shape = ShapeWord::make(slab.shape, slab.offset);
  h.closed_crc = slab.header->closed_crc;
  return h;
}

}  // namespace

// --- headers -------------------------------------------------------------------------------------

bool header_sound(const pm::PoolFile& file, const Slab& slab) {
  // The second one writes another shape, which only a crash is to show.
  if (TENUTO_PLANT("heap_header_believed") || TENUTO_PLANT("heap_morph_forgets_old_part"))
    return true;
  const SlabHeader said = header_of(file, slab);
  return std::memcmp(static_cast<const void*>(slab.header), &said, sizeof said) == 0;
}

Status say_header(const pm::PoolFile& file, const Slab& slab, const char* what, Report* report) {
  const SlabHeader said = header_of(file, slab);
  const auto* const right = reinterpret_cast<const unsigned char*>(&said);
  const auto* const found = reinterpret_cast<const unsigned char*>(slab.header);
  unsigned first = sizeof said;
  unsigned last = 0;
  for (unsigned i = 0; i < sizeof said; ++i) {
    if (right[i] == found[i]) continue;
    first = std::min(first, i);
    last = i;
  }
  const std::string place = "header of the slab of " + std::to_string(slab.block_bytes) +
                            "-byte blocks; the block before it ends here";
  return fail(Status::corrupt, report, what, file.where(slab.offset, place), {},
              "bytes " + std::to_string(first) + " to " + std::to_string(last) + " changed");
}

bool guard_header(pm::PoolFile& file, const Slab& slab) {
  if (header_sound(file, slab)) [[likely]]
    return true;
  static_cast<void>(turn_read_only(file, slab.offset, kHeaderChanged, [&](Report* report) {
    return say_header(file, slab, kHeaderChanged, report);
  }));
  if (TENUTO_PLANT("heap_header_not_restored")) return false;
  const SlabHeader said = header_of(file, slab);
  copy_flush(slab.header, &said, sizeof said);
  return false;
}

// --- a close -------------------------------------------------------------------------------------

namespace {
// Whether the stripes have exactly the live blocks of the part. If not, they are restored.
bool guard_bits(const Slab& part) {
  BlockBits used;
  read_stripes(part, used);
  bool same = true;
  for (std::size_t w = 0; w < part.words(); ++w) same = same && used[w] == part.live_word(w);
  if (same) return true;
  BlockBits free_now{};
  for (std::size_t w = 0; w < part.words(); ++w) free_now[w] = ~part.live_word(w);
  write_stripes(part, free_now);
  return false;
}

bool guard_old_stripes(const pm::PoolFile& file, const Slab& slab) {
  if (old_stripes_clear(slab)) return true;
  const SlabCut& old = slab.shape.old;
  const std::size_t lines = cut_geometry(old, file.superblock().stripes).stripes;
  zero_flush(slab.header + old.first_line, lines * kLineBytes);
  return false;
}
}  // namespace

// REQUIRES: arena->mu is held; quiescent, and no transaction is open.
bool Heap::State::guard_slab(const Slab& slab) {
  if (slab.is_old()) return true;
  const bool header = guard_header(file, slab);
  if (slab.in_dram || TENUTO_PLANT("heap_close_seals_any_bits")) return header;
  const OldPart* old = slab.old.load(std::memory_order_relaxed);
  bool bits = guard_bits(slab);
  bits = (old != nullptr ? guard_bits(*old->slab) : guard_old_stripes(file, slab)) && bits;
  if (bits) return header;
  static_cast<void>(turn_read_only(file, slab.offset, kBitsChanged, [&](Report* report) {
    return fail(
        Status::corrupt, report, kBitsChanged,
        file.where(slab.offset, "slab of " + std::to_string(slab.block_bytes) + "-byte blocks"));
  }));
  return false;
}

// A slab that nothing changed is not read for a close. But behind objects of the program it may
// have been overwritten.
bool Heap::State::behind_objects(const Slab& slab) const {
  const PoolOffset below{slab.offset.value - 1};
  const PageTable::Entry e = pages.find(below);
  if (e.owner != PageOwner::none) return is_logged(e.slab()->kind);
  const Result<ExtentAt> at = extents.containing(below);
  return at && at->word.used() && is_logged(at->word.kind());
}

bool Heap::guard(bool quiescent) {
  const pm::MetadataOpen rights;
  State& s = state_.as_opened();
  // DRAM knows no better than the medium.
  if (!state_.has_read() || s.slabs_damaged) return !s.slabs_damaged;
  bool sound = true;
  s.for_each_slab([&](const Slab& slab) {
    if (slab.is_old()) return;
    sound = (quiescent ? s.guard_slab(slab) : guard_header(s.file, slab)) && sound;
  });
  return s.extents.guard_log() && sound;
}

// --- the bookkeeping log -------------------------------------------------------------------------

bool Extents::guard_log() { return book_.guard(); }

bool Book::guard() {
  const All all(*this);
  bool sound = true;
  const auto put_right = [&](void* at, const std::uint64_t* said, std::size_t words) {
    const std::size_t bytes = words * sizeof *said;
    if (std::memcmp(at, said, bytes) == 0) return;
    sound = false;
    const PoolOffset o = file_.offset_of(at);
    static constexpr const char* kWhat =
        "the header of the bookkeeping log was overwritten, by a store behind the end of the block "
        "before it or by a stray one";
    static_cast<void>(turn_read_only(file_, o, kWhat, [&](Report* report) {
      return fail(Status::corrupt, report, kWhat, file_.where(o, "bookkeeping log"));
    }));
    copy_flush(at, said, bytes);
  };
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const std::uint64_t next = i + 1 < segments_.size() ? segments_[i + 1].at().value : 0;
    const std::uint64_t said[3] = {kBookSegmentMagic, segments_[i].at().value, next};
    put_right(&segment(segments_[i].at()), said, 3);
  }
  for (const BookShadow* t = first_; t != nullptr; t = t->next) {
    const std::uint64_t next = t->next == nullptr ? 0 : t->next->at.value;
    const std::uint64_t said[4] = {kBookChunkMagic, t->at.value, next, t->id};
    put_right(chunk(t->at), said, 4);
  }
  return sound;
}

}  // namespace TENUTO_NS::heap
