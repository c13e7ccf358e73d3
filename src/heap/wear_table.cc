// The counts of wear levelling on media, over a close and a crash (WearHead in format.h). They are
// in a logged extent, or a huge object, with a type of its own: a walk by type finds it, and no
// other part of the format knows of it. A table is never changed. The next one is a new object, in
// the least written place, and takes the place of the old one:
//
//   counts | entry of the new table | tombstone of the old one | its place is used again
//
// First fence: an entry names a whole table. Second fence: there is always a table. Third fence: as
// for every extent. After a crash there may be two; the later one counts, and the other is freed.
// A table is written at a close, and when an eighth of the pool was handed out since the last one,
// at least 1 MiB. So a crash loses at most that. Its size is .1 % of the pool's, so the tables
// themselves add less than 1 % to the writes. If there is no room for it, the old one stays.
#include <algorithm>
#include <cstring>

#include "heap/heap_paths.h"
#include "pm/crc32c.h"
#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::heap {

namespace {

std::uint64_t units_of(std::uint64_t frames) {
  return (frames + Wear::kUnitFrames - 1) / Wear::kUnitFrames;
}
std::uint64_t table_bytes(std::uint64_t frames) {
  return sizeof(WearHead) + (frames + units_of(frames)) * sizeof(std::uint32_t);
}
std::uint32_t head_crc(const WearHead& h) { return pm::crc32c(&h, offsetof(WearHead, crc)); }
std::uint32_t counts_crc(const std::uint32_t* counts, std::uint64_t frames) {
  return pm::crc32c(counts, (frames + units_of(frames)) * sizeof(std::uint32_t));
}

}  // namespace

// The next object of our type at or behind `from`, sound or not.
PoolOffset Heap::State::next_wear_table(PoolOffset from) const {
  if (!extents.any_typed()) return {};
  const std::uint64_t end = file.bytes();
  while (from.value < end) {
    const PoolOffset next{std::min(round_down(from.value, kHugeBytes) + kHugeBytes, end)};
    if (const PoolOffset found = extents.find_typed(from, next, kWearType)) return found;
    from = next;
  }
  return {};
}

namespace {
bool is_ours(const WearHead& h, const pm::PoolFile& file, PoolOffset o, std::uint64_t bytes) {
  return h.magic == kWearMagic && h.crc == head_crc(h) && h.self == o.value &&
         h.pool_id == file.superblock().pool_id && bytes >= sizeof(WearHead) &&
         h.frames <= file.bytes_max() / kFrameBytes && table_bytes(h.frames) <= bytes;
}
}  // namespace

bool Heap::State::is_wear_table(PoolOffset o, std::uint64_t bytes) const {
  return bytes >= sizeof(WearHead) && is_ours(*file.at<WearHead>(o), file, o, bytes);
}

// Throws bad_alloc.
std::optional<WearCounts> Heap::State::wear_table_at(PoolOffset o) const {
  const auto& head = *file.at<WearHead>(o);
  const auto* at = reinterpret_cast<const std::uint32_t*>(&head + 1);
  const bool any = TENUTO_PLANT("heap_wear_believes_a_damaged_table");
  if (counts_crc(at, head.frames) != head.counts_crc && !any) return std::nullopt;
  WearCounts c;
  c.data.assign(at, at + head.frames);
  c.bits.assign(at + head.frames, at + head.frames + units_of(head.frames));
  return c;
}

// What a table says is a hint: what cannot be read counts as not written.
void Heap::State::read_wear_tables() {
  const std::lock_guard lock(wear->table_mu);
  const auto read = [&] {
    std::vector<PoolOffset> tables;
    for (PoolOffset o = next_wear_table({0}); o; o = next_wear_table(o + 1)) {
      const Result<Block> b = extents.find(o, Kind::typed, Wanted::allocated);
      if (b && is_wear_table(o, b->bytes)) tables.push_back(o);
    }
    const auto sequence = [&](PoolOffset o) { return file.at<WearHead>(o)->sequence; };
    std::sort(tables.begin(), tables.end(),
              [&](PoolOffset a, PoolOffset b) { return sequence(a) > sequence(b); });
    if (tables.empty() || TENUTO_PLANT("heap_wear_starts_anew")) return;
    for (const PoolOffset o : tables) {
      wear->table_sequence = std::max(wear->table_sequence, sequence(o));
      const std::optional<WearCounts> counts = wear_table_at(o);
      if (wear->table || !counts) continue;
      wear->table = o;
      wear->set_counts(*counts);
    }
    for (const PoolOffset o : tables) {
      if (o != wear->table && !clean) drop_wear_table(0, o, false);
    }
  };
  static_cast<void>(pm::had_memory(read));
}

// Not if nothing was handed out since the last one. One thread writes; others go on meanwhile.
// Their counts may be in it or not.
void Heap::State::write_wear_table(unsigned core) {
  const std::unique_lock lock(wear->table_mu, std::try_to_lock);
  if (!lock.owns_lock() || file.writable() != Status::ok) return;
  if (wear->table && wear->table_is_new()) return;
  wear->table_noted();
  if (TENUTO_PLANT("heap_wear_table_never_written")) return;
  static_cast<void>(pm::had_memory([&] { put_wear_table(core); }));
}

// REQUIRES: table_mu is held. Throws bad_alloc, before anything is written.
void Heap::State::put_wear_table(unsigned core) {
  WearCounts counts = wear->counts();
  const std::uint64_t count = counts.data.size();
  const std::uint64_t bytes = std::max<std::uint64_t>(table_bytes(count), kSmallBytesMax + 1);
  counts.data.insert(counts.data.end(), counts.bits.begin(), counts.bits.end());
  const Result<Block> block =
      extents.reserve(bytes + canary_bytes + kTypeBytes, Kind::typed, core, kFrameBytes);
  if (!block) return;
  const PoolOffset o = block->offset;
  if (canary_bytes != 0) write_canary(file, o, block->bytes);
  store_ordered(extents.type_word(o), kWearType);
  flush(extents.type_word(o));
  WearHead head{};
  head.magic = kWearMagic;
  head.pool_id = file.superblock().pool_id;
  head.self = o.value;
  head.sequence = ++wear->table_sequence;
  head.frames = count;
  head.counts_crc = counts_crc(counts.data.data(), count);
  head.crc = head_crc(head);
  copy_flush(file.at<std::byte>(o) + sizeof head, counts.data.data(),
             counts.data.size() * sizeof(std::uint32_t));
  copy_flush(file.at<std::byte>(o), &head, sizeof head);
  fence("counts of wear", "the entry of their table");
  flush(extents.mark_allocated(o, core));
  const PoolOffset old = std::exchange(wear->table, o);
  wear->tables_written += 1;
  if (TENUTO_PLANT("heap_wear_old_table_freed_early") && old) drop_wear_table(core, old, true);
  fence("entry of a wear table", "the table before is freed");
  if (old && !TENUTO_PLANT("heap_wear_old_tables_stay")) drop_wear_table(core, old, true);
}

void Heap::State::drop_wear_table(unsigned core, PoolOffset o, bool rests) {
  if (!extents.claim(o)) return;
  flush(extents.mark_free(o, core));
  fence("tombstone of a wear table", "its place is used again");
  if (!rests || !rest(core, o, {})) extents.release(o, core);
}

PoolOffset Heap::wear_table() const {
  const pm::MetadataOpen rights;
  const State& s = *state_;
  if (s.wear != nullptr) {
    const std::lock_guard lock(s.wear->table_mu);
    return s.wear->table;
  }
  const auto sequence = [&](PoolOffset o) { return s.file.at<WearHead>(o)->sequence; };
  PoolOffset latest;  // a crash may have left two
  for (PoolOffset o = s.next_wear_table({0}); o; o = s.next_wear_table(o + 1)) {
    const Result<Block> b = s.extents.find(o, Kind::typed, Wanted::allocated);
    if (!b || !s.is_wear_table(o, b->bytes)) continue;
    if (!latest || sequence(o) > sequence(latest)) latest = o;
  }
  return latest;
}

// With wear levelling what this life knows, else what a life with it has left. The table is no
// object of the application.
void Heap::State::add_wear(HeapStats& s, PoolOffset table) const {
  if (table) {
    const std::uint64_t bytes =
        extents.find(table, Kind::typed, Wanted::allocated).value_or(Block{}).bytes;
    s.objects -= std::min<std::uint64_t>(s.objects, 1);
    s.allocated_bytes -= std::min(s.allocated_bytes, round_up(bytes, kFrameBytes));
  }
  WearFigures f;
  const auto count = [&] {
    if (wear != nullptr) {
      f = wear->counts().figures();
    } else if (table) {
      const std::optional<WearCounts> counts = wear_table_at(table);
      if (counts) f = counts->figures();
    }
  };
  if (!pm::had_memory(count)) return;
  s.wear_lines = f.lines;
  s.wear_frames = f.frames;
  s.wear_max = f.max;
  s.wear_bits_lines = f.bits;
  s.wear_bits_max = f.bits_max;
  if (wear == nullptr) return;
  s.wear_rested = wear->rested.load(std::memory_order_relaxed);
  s.wear_forced = wear->forced.load(std::memory_order_relaxed);
  const std::lock_guard lock(wear->table_mu);
  s.wear_tables = wear->tables_written;
}

}  // namespace TENUTO_NS::heap
