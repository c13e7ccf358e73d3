#include "frame/frames.h"

#include <atomic>
#include <bit>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "frame/bitfield.h"
#include "frame/lower.h"
#include "frame/owned.h"
#include "frame/upper.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "pm/thread.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::frame {

struct Frames::State {
  State(pm::PoolFile& pool_file, unsigned cores) : file(pool_file), upper(cores) {}

  Status attach(std::size_t index, bool clean, Report* report);

  pm::PoolFile& file;
  Upper upper;
  Nodes nodes;
  std::vector<OwnedFrames> owned;  // one a zone, while recovering
  std::atomic<bool> has_records{false};
  std::mutex grow_mu;  // zones are appended one at a time
};

namespace {

std::uint64_t head_bytes_of(const pm::ZoneEntry& zone) {
  return zone.offset == 0 ? pm::kHeadBytes : 0;
}

// The inner layers report offsets; this adds the file's name.
Status name_file(Status s, const pm::PoolFile& file, Report* report) {
  if (s != Status::ok && report != nullptr) report->where = file.path() + ", " + report->where;
  return s;
}

}  // namespace

// --- open and growth -----------------------------------------------------------------------------

void Frames::format_zone(pm::PoolFile& file, const pm::ZoneEntry& zone, std::uint64_t head_bytes,
                         ZoneUse use) {
  const pm::MetadataOpen rights;
  const auto geometry = ZoneGeometry::of(zone, head_bytes);
  TENUTO_ASSERT(geometry);
  const std::size_t index = zone.offset == 0 ? 0 : file.zone_count();
  Lower::format(file.base(), *geometry, static_cast<std::uint32_t>(index), use);
}

std::uint64_t Frames::zone_bytes_for(std::uint64_t huge_frames) {
  // Children for these huge frames, for one to align by, and for the frames of the state itself.
  const std::uint64_t children = round_up(huge_frames + 4 + huge_frames / 1024, kTreeChildren);
  const std::uint64_t own = sizeof(ZoneHeader) + children * (sizeof(Child) + sizeof(Bitfield));
  return round_up(own, kHugeBytes) + (huge_frames + 1) * kHugeBytes;
}

Status Frames::State::attach(std::size_t index, bool clean, Report* report) {
  const pm::ZoneEntry entry = file.zone(index);
  const auto bad = [&](const char* what) {
    return fail(Status::corrupt, report, what,
                "entry " + std::to_string(index) + " of the zone table",
                "whole frames inside the file, behind the zone before",
                std::to_string(entry.bytes) + " bytes at " + std::to_string(entry.offset));
  };
  std::uint64_t begin = 0;
  if (index > 0) {
    const pm::ZoneEntry& before = file.zone(index - 1);
    begin = before.offset + before.bytes;
  }
  if (entry.offset != begin || entry.offset > file.bytes() ||
      entry.bytes > file.bytes() - entry.offset) {
    return bad("a zone does not lie where it should");
  }
  const auto geometry = ZoneGeometry::of(entry, head_bytes_of(entry));
  if (!geometry) return bad("a zone has an impossible size");
  auto zone = std::make_unique<Zone>(file.base(), *geometry, static_cast<std::uint32_t>(index));
  if (nodes.of_zone) zone->node = nodes.of_zone(entry, index);
  TENUTO_TRY(zone->lower.check(zone->index(), clean, report));
  if (!clean) zone->lower.recount();
  if (zone->use() == ZoneUse::records) {
    // Before a frame of it is handed out, or read.
    const PoolOffset first = offset_of_frame(zone->id_of(geometry->usable_begin()));
    TENUTO_TRY(file.share(first, entry.offset + entry.bytes - first.value, report));
    has_records.store(true, std::memory_order_release);
  }
  TENUTO_TRY(file.protect({entry.offset}, std::uint64_t{geometry->own} * kFrameBytes, report));
  return upper.add_zone(std::move(zone), clean);
}

Result<std::unique_ptr<Frames>> Frames::open(pm::PoolFile& file, bool clean, Report* report) {
  const pm::MetadataOpen rights;
  if (!clean && file.read_only()) {
    return fail(Status::read_only, report, "the pool needs recovery: open it for writing first",
                file.path());
  }
  std::unique_ptr<Frames> frames(new Frames());
  frames->state_ = std::make_unique<State>(file, pm::cores());
  for (std::size_t i = 0; i < file.zone_count(); ++i) {
    const Status s = frames->state_->attach(i, clean, report);
    if (s != Status::ok) return name_file(s, file, report);
  }
  return frames;
}

void Frames::set_nodes(Nodes nodes) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  s.nodes = std::move(nodes);
  s.upper.set_nodes(s.nodes.nodes, s.nodes.cores);
  for (std::uint32_t i = 0; i < s.upper.zone_count(); ++i) {
    s.upper.zone(i).node = s.nodes.of_zone(s.file.zone(i), i);
  }
}

unsigned Frames::node_of(FrameId frame) const { return state_->upper.node_of(frame); }

Frames::Frames() = default;
Frames::~Frames() = default;

Status Frames::add_zone(const pm::ZoneEntry& zone) {
  const pm::MetadataOpen rights;
  const std::lock_guard lock(state_->grow_mu);
  Upper& upper = state_->upper;
  while (upper.zone_count() < state_->file.zone_count()) {
    TENUTO_TRY(state_->attach(upper.zone_count(), true, nullptr));
  }
  return upper.find({zone.offset / kFrameBytes + zone.bytes / kFrameBytes - 1}, 1) != nullptr
             ? Status::ok
             : Status::invalid_argument;
}

// --- use -----------------------------------------------------------------------------------------

Result<FrameId> Frames::get(unsigned order, unsigned core, ZoneUse use, unsigned node) {
  const pm::MetadataOpen rights;
  if (order > kOrderMax) return Status::invalid_argument;
  TENUTO_TRY(state_->file.writable());
  return state_->upper.get(order, core, use, node);
}

ZoneUse Frames::use_of(FrameId frame) const {
  const Zone* zone = state_->upper.find(frame, 1);
  return zone == nullptr ? ZoneUse::any : zone->use();
}

bool Frames::has(ZoneUse use) const {
  return use == ZoneUse::any || state_->has_records.load(std::memory_order_acquire);
}

Status Frames::put(FrameId frame, unsigned order, unsigned core) {
  const pm::MetadataOpen rights;
  if (order > kOrderMax) return Status::invalid_argument;
  TENUTO_TRY(state_->file.writable());
  return state_->upper.put(frame, order, core);
}

Result<FrameId> Frames::get_run(std::uint64_t count, unsigned /*core*/, unsigned node) {
  const pm::MetadataOpen rights;
  if (count == 0) return Status::invalid_argument;
  TENUTO_TRY(state_->file.writable());
  if (count > kZoneFramesMax / kHugeFrames) return Status::full;
  return state_->upper.get_run(static_cast<std::uint32_t>(count), node);
}

Status Frames::put_run(FrameId frame, std::uint64_t count, unsigned /*core*/) {
  const pm::MetadataOpen rights;
  if (count == 0) return Status::invalid_argument;
  TENUTO_TRY(state_->file.writable());
  if (count > kZoneFramesMax / kHugeFrames) return Status::corrupt;
  return state_->upper.put_run(frame, static_cast<std::uint32_t>(count));
}

Status Frames::get_huge(FrameId frame) {
  const pm::MetadataOpen rights;
  TENUTO_TRY(state_->file.writable());
  return state_->upper.get_huge(frame);
}

Status Frames::get_at(FrameId frame, unsigned order) {
  const pm::MetadataOpen rights;
  if (order > kOrderWord) return Status::invalid_argument;
  TENUTO_TRY(state_->file.writable());
  return state_->upper.get_at(frame, order);
}

bool Frames::taken(FrameId frame, unsigned order) const {
  const pm::MetadataOpen rights;
  if (order > kOrderMax) return false;
  const std::uint64_t frames = std::uint64_t{1} << order;
  if (frame.value % frames != 0) return false;
  Zone* zone = state_->upper.find(frame, frames);
  return zone != nullptr && zone->lower.taken(zone->relative(frame), order);
}

bool Frames::untaken(FrameId frame, unsigned order) const {
  const pm::MetadataOpen rights;
  const std::uint64_t frames = std::uint64_t{1} << order;
  if (order > kOrderWord || frame.value % frames != 0) return false;
  Zone* zone = state_->upper.find(frame, frames);
  return zone != nullptr && zone->lower.untaken(zone->relative(frame), order);
}

// --- recovery ------------------------------------------------------------------------------------

void Frames::begin_recovery() {
  state_->owned.clear();
  for (std::uint32_t z = 0; z < state_->upper.zone_count(); ++z) {
    state_->owned.emplace_back(state_->upper.zone(z).geometry());
  }
}

Status Frames::keep(FrameId first, std::uint64_t frames, Report* report) {
  const pm::MetadataOpen rights;
  TENUTO_ASSERT(!state_->owned.empty());
  const auto bad = [&](const char* what, const char* expected) {
    return fail(Status::corrupt, report, what,
                state_->file.where(offset_of_frame(first), "frames of an owner"), expected,
                std::to_string(frames) + " frames from frame " + std::to_string(first.value));
  };
  const bool huge = frames >= kHugeFrames;
  const bool shaped = huge ? frames % kHugeFrames == 0 && first.value % kHugeFrames == 0
                           : std::has_single_bit(frames) && first.value % frames == 0;
  Zone* zone = shaped ? state_->upper.find(first, frames) : nullptr;
  if (zone == nullptr) return bad("an owner names frames that cannot exist", "an aligned frame");
  const std::uint32_t at = zone->relative(first);
  OwnedFrames& owned = state_->owned[zone->index()];
  bool fresh = false;
  if (huge) {
    const auto count = static_cast<std::uint32_t>(frames / kHugeFrames);
    if (!zone->lower.run_taken(at / kHugeFrames, count)) {
      return bad("an owner names huge frames that are not taken", "taken as huge frames");
    }
    fresh = owned.name_run(at / kHugeFrames, count);
  } else {
    const auto order = static_cast<unsigned>(std::countr_zero(frames));
    if (!zone->lower.taken(at, order)) {
      return bad("an owner names frames that are not taken", "taken");
    }
    fresh = owned.name(at, order);
  }
  return fresh ? Status::ok : bad("frames have two owners", "one owner");
}

std::uint64_t Frames::end_recovery() {
  const pm::MetadataOpen rights;
  std::uint64_t given_back = 0;
  for (std::uint32_t z = 0; z < state_->upper.zone_count(); ++z) {
    Lower& lower = state_->upper.zone(z).lower;
    if (TENUTO_PLANT("frame_recovery_forgets_later_zones") && z > 0) continue;
    given_back += state_->owned[z].apply(lower);
    lower.flush_all();
  }
  fence("frames given back", "frames handed out again");
  state_->owned.clear();
  state_->upper.rebuild();
  return given_back;
}

void Frames::close() {
  const pm::MetadataOpen rights;
  for (std::uint32_t z = 0; z < state_->upper.zone_count(); ++z) {
    if (TENUTO_PLANT("frame_close_forgets_later_zones") && z > 0) continue;
    state_->upper.zone(z).lower.flush_all();
  }
  fence("frame counters", "clean close");
}

// --- introspection -------------------------------------------------------------------------------

FrameStats Frames::stats() const {
  const pm::MetadataOpen rights;
  FrameStats s;
  s.zones = state_->upper.zone_count();
  for (std::uint32_t z = 0; z < s.zones; ++z) {
    const Zone& zone = state_->upper.zone(z);
    s.frames += zone.geometry().frames;
    for (std::uint32_t c = 0; c < zone.geometry().children; ++c) {
      const unsigned free = zone.lower.child(c).free();
      s.frames_free += free;
      s.huge_free += free == kHugeFrames ? 1 : 0;
    }
  }
  return s;
}

Status Frames::validate(Report* report) const {
  const pm::MetadataOpen rights;
  const Upper& upper = state_->upper;
  for (std::uint32_t z = 0; z < upper.zone_count(); ++z) {
    const Status s = upper.zone(z).lower.check(z, true, report);
    if (s != Status::ok) return name_file(s, state_->file, report);
  }
  return name_file(upper.validate(report), state_->file, report);
}

}  // namespace TENUTO_NS::frame
