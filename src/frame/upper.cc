#include "frame/upper.h"

#include <algorithm>
#include <string>

#include "pm/assert.h"

namespace TENUTO_NS::frame {

namespace {

// How often a get refills an exhausted reservation from its own tree before it looks for another.
constexpr unsigned kRefillsMax = 4;

// The start is rounded to rows of 64 frames, one word of a bitfield. That is precise enough to find
// the next free frame at once, and the shared word changes only once a row.
constexpr std::uint32_t row_of(std::uint32_t frame) { return frame / 64 * 64; }

}  // namespace

Upper::Upper(unsigned cores) : slots_(kSlotsOfCore * std::max(cores, 1u)) {}

// --- zones ---------------------------------------------------------------------------------------

Status Upper::add_zone(std::unique_ptr<Zone> zone, bool serve) {
  const std::uint32_t count = zone_count_.load(std::memory_order_relaxed);
  if (count == pm::kZonesMax) return Status::full;
  TENUTO_ASSERT(zone->index() == count);
  if (serve) zone->count_free();
  zones_[count] = std::move(zone);
  zone_count_.store(count + 1, std::memory_order_release);  // pairs with zone_count()
  return Status::ok;
}

Zone* Upper::find(FrameId frame, std::uint64_t frames) const {
  const auto begin = zones_.begin();
  const auto after = std::upper_bound(
      begin, begin + zone_count(), frame.value,
      [](std::uint64_t f, const auto& zone) { return f < zone->geometry().first_frame; });
  if (after == begin) return nullptr;
  Zone* zone = std::prev(after)->get();
  return zone->inside(frame, frames) ? zone : nullptr;
}

void Upper::set_nodes(unsigned nodes, unsigned cores) {
  nodes_ = nodes;
  if (kSlotsOfCore * cores > slots_.size()) slots_ = std::vector<Slot>(kSlotsOfCore * cores);
}

unsigned Upper::node_of(FrameId frame) const {
  std::uint32_t i = zone_count();
  while (i > 1 && zones_[i - 1]->geometry().first_frame > frame.value) --i;
  return i == 0 ? 0 : zones_[i - 1]->node;
}

// --- get -----------------------------------------------------------------------------------------

Slot& Upper::slot_of(unsigned core, unsigned order, ZoneUse use) {
  const auto cores = static_cast<unsigned>(slots_.size() / kSlotsOfCore);
  const unsigned which = use == ZoneUse::records ? 2 : order >= kOrderHuge ? 1 : 0;
  return slots_[kSlotsOfCore * (core < cores ? core : core % cores) + which];
}

Result<FrameId> Upper::get(unsigned order, unsigned core, ZoneUse use, unsigned node) {
  Request first{slot_of(core, order, use), order, use, node};
  if (const Taken frame = get_reserved(first)) return frame.id;
  const Taken frame = moves_.until_quiet([&](unsigned& own) {
    Request request{first.slot, order, use, node};
    Taken found = get_elsewhere(request);
    // A thread with the same core number may have reserved a tree meanwhile.
    if (!found) found = get_reserved(request);
    own = request.moves;
    return found;
  });
  if (!frame) return Status::full;
  return frame.id;
}

// Cost: one atomic change of the slot, one of a child, one of a bitfield word; one line flushed.
Taken Upper::get_reserved(Request& request) {
  Reservation& word = request.slot.reservation;
  for (unsigned i = 0; i < kRefillsMax; ++i) {
    const auto before = update(word, [&](Reservation r) {
      const bool there = request.node == ~0u || zones_[r.zone()]->node == request.node;
      return there ? r.take(request.frames()) : std::nullopt;
    });
    if (!before) {
      if (!refill(request)) return {};
      continue;
    }
    Zone& zone = *zones_[before->zone()];
    const Found frame = zone.lower.get(before->start(), request.order);
    if (!frame) {
      give_back(request.slot, before->tree(), request.frames());
      return {};
    }
    if (row_of(*frame) != before->start()) {
      (void)update(word, [&](Reservation r) { return r.move_start(zone.index(), row_of(*frame)); });
    }
    return {zone.id_of(*frame)};
  }
  return {};
}

// Moves to the slot what other cores freed into its tree. False when that is not enough, or when
// the slot has no tree.
bool Upper::refill(Request& request) {
  const Reservation now = load(request.slot.reservation);
  if (!now.present() || !request.wants(*zones_[now.zone()])) return false;
  const TreeId id = now.tree();
  if (now.free() + load(tree(id)).free() < request.frames()) return false;
  const Moves::Transit transit(moves_, request.moves);
  const auto before = update(tree(id), [](Tree t) { return t.take_up_to(kTreeFrames); });
  if (before) give_back(request.slot, id, before->free());
  return true;
}

Taken Upper::get_elsewhere(Request& request) {
  const Reservation hint = load(request.slot.reservation);
  const std::uint32_t count = zone_count();
  const bool huge = request.order >= kOrderHuge;
  const TreeClass preferred[] = {huge ? kFree : kPartial, huge ? kPartial : kFree};
  const TreeClass scarce = allocated_with(request.frames());
  Taken frame;
  if (count == 0) return frame;

  // The hint of a slot that has had no tree yet names zone 0, whatever its use.
  const std::uint32_t line = hint.tree().tree / kTreesPerLine * kTreesPerLine;
  for (const TreeClass which : preferred) {
    frame = get_in_class(request, *zones_[hint.zone()], line, line + kTreesPerLine, which);
    if (frame) return frame;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Zone& zone = *zones_[(hint.zone() + i) % count];
    for (const TreeClass which : preferred) {
      frame = get_in_class(request, zone, 0, zone.trees(), which);
      if (frame) return frame;
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Zone& zone = *zones_[(hint.zone() + i) % count];
    frame = get_in_class(request, zone, 0, zone.trees(), scarce);
    if (frame) return frame;
  }
  for (Slot& victim : slots_) {
    if (&victim != &request.slot) frame = steal(request, victim);
    if (frame) return frame;
  }
  return frame;
}

Taken Upper::get_in_class(Request& request, Zone& zone, std::uint32_t begin, std::uint32_t end,
                          TreeClass which) {
  if (!request.wants(zone)) return {};
  end = std::min(end, zone.trees());
  for (std::uint32_t t = begin; t < end; ++t) {
    if (!load(zone.tree(t)).reservable(which)) continue;
    const Moves::Transit transit(moves_, request.moves);
    const auto before = update(zone.tree(t), [=](Tree w) { return w.reserve(which); });
    if (!before) continue;
    const auto frame = get_owned(request, {zone.index(), t}, t * kTreeFrames, before->free());
    if (frame) return frame;
  }
  return {};
}

Taken Upper::steal(Request& request, Slot& victim) {
  const Reservation seen = load(victim.reservation);
  if (!seen.present()) return {};
  const TreeId id = seen.tree();
  if (!request.wants(*zones_[id.zone])) return {};
  if (seen.free() + load(tree(id)).free() < request.frames()) return {};
  const Moves::Transit transit(moves_, request.moves);
  const auto taken = update(victim.reservation, [=](Reservation r) { return r.drop(id); });
  if (!taken) return {};
  const auto rest = update(tree(id), [](Tree t) { return t.take_up_to(kTreeFrames); });
  return get_owned(request, id, taken->start(), taken->free() + (rest ? rest->free() : 0));
}

// Takes a frame from a tree that this thread has just reserved with counter `free`. On success the
// tree becomes the slot's; else it is released.
Taken Upper::get_owned(Request& request, TreeId id, std::uint32_t start, unsigned free) {
  Zone& zone = *zones_[id.zone];
  Found frame;
  if (free >= request.frames()) frame = zone.lower.get(start, request.order);
  if (!frame) {
    TENUTO_ASSERT(update(tree(id), [=](Tree t) { return t.unreserve(free); }));
    return {};
  }
  adopt(request.slot, Reservation::make(id.zone, row_of(*frame), free - request.frames()));
  return {zone.id_of(*frame)};
}

void Upper::adopt(Slot& slot, Reservation to) {
  const Reservation old = exchange(slot.reservation, to);
  if (!old.present()) return;
  TENUTO_ASSERT(update(tree(old.tree()), [=](Tree t) { return t.unreserve(old.free()); }));
}

// --- put -----------------------------------------------------------------------------------------

// Cost: one atomic change of a bitfield word, one of a child, one of the slot or the tree; one line
// flushed.
Status Upper::put(FrameId frame, unsigned order, unsigned core) {
  const unsigned frames = 1u << order;
  Zone* zone = find(frame, frames);
  if (zone == nullptr || frame.value % frames != 0) return Status::corrupt;
  const std::uint32_t at = zone->relative(frame);
  if (!zone->lower.put(at, order)) return Status::corrupt;

  Slot& slot = slot_of(core, order, zone->use());
  const TreeId id{zone->index(), at / kTreeFrames};
  if (update(slot.reservation, [=](Reservation r) { return r.give(id, frames); })) {
    return Status::ok;
  }
  credit(id, frames);
  const FreeHistory history = load(slot.history).next(id);
  store(slot.history, history, std::memory_order_relaxed);
  if (history.count() >= kReserveOnFree && (nodes_ == 1 || zone->node == core % nodes_)) {
    reserve_freed(slot, id, at);
  }
  return Status::ok;
}

void Upper::credit(TreeId id, unsigned frames) {
  TENUTO_ASSERT(update(tree(id), [=](Tree t) { return t.give(frames); }));
}

// Adds `frames` to the slot if it still holds the tree, else to the tree.
void Upper::give_back(Slot& slot, TreeId id, unsigned frames) {
  if (!update(slot.reservation, [=](Reservation r) { return r.give(id, frames); })) {
    credit(id, frames);
  }
}

// A thread that frees into one tree again and again will probably continue. The slot reserves that
// tree, so that the next frees do not touch the shared word.
void Upper::reserve_freed(Slot& slot, TreeId id, std::uint32_t frame) {
  constexpr TreeClass kWorthwhile{kPartial.min, kFree.max};
  if (!load(tree(id)).reservable(kWorthwhile)) return;
  unsigned own = 0;
  const Moves::Transit transit(moves_, own);
  const auto before = update(tree(id), [=](Tree t) { return t.reserve(kWorthwhile); });
  if (before) adopt(slot, Reservation::make(id.zone, row_of(frame), before->free()));
}

// --- quiescent -----------------------------------------------------------------------------------

void Upper::rebuild() {
  for (Slot& slot : slots_) slot = Slot{};
  for (std::uint32_t z = 0; z < zone_count(); ++z) zones_[z]->count_free();
}

Status Upper::validate(Report* report) const {
  for (std::uint32_t z = 0; z < zone_count(); ++z) {
    for (std::uint32_t t = 0; t < zones_[z]->trees(); ++t) {
      const Tree word = load(zones_[z]->tree(t));
      unsigned free = word.free();
      unsigned holders = 0;
      for (const Slot& slot : slots_) {
        const Reservation r = load(slot.reservation);
        if (!r.holds({z, t})) continue;
        ++holders;
        free += r.free();
      }
      const std::string where = "zone " + std::to_string(z) + ", tree " + std::to_string(t);
      const unsigned expected = zones_[z]->free_in_children(t);
      if (free != expected) {
        return fail(Status::corrupt, report, "a tree's free counter differs from its children",
                    where, std::to_string(expected), std::to_string(free));
      }
      if (holders != (word.reserved() ? 1u : 0u)) {
        return fail(Status::corrupt, report, "a tree's reservation is lost or held twice", where,
                    word.reserved() ? "1 holder" : "none", std::to_string(holders));
      }
    }
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::frame
