// Runs of huge frames, for objects above 2 MiB. A run may cross trees, reserved or not. Its frames
// are first claimed from the counters, in the trees and in all slots. Then they are taken child by
// child. On a conflict exactly the claimed and taken frames are undone, and the search continues
// below.
#include <algorithm>

#include "frame/upper.h"

namespace TENUTO_NS::frame {

namespace {

// Calls f(tree, children) for each tree that the run touches, until f returns false.
template <class F>
bool for_trees(std::uint32_t first, std::uint32_t count, F&& f) {
  while (count > 0) {
    const std::uint32_t here = std::min(count, kTreeChildren - first % kTreeChildren);
    if (!f(first / kTreeChildren, here)) return false;
    first += here;
    count -= here;
  }
  return true;
}

}  // namespace

// Lowers the tree's counter, in its word and in any slot, by `frames`: all or nothing.
bool Upper::claim(TreeId id, unsigned frames) {
  unsigned have = 0;
  const auto from_tree = update(tree(id), [=](Tree t) { return t.take_up_to(frames); });
  if (from_tree) have = std::min(from_tree->free(), frames);
  for (Slot& slot : slots_) {
    if (have == frames) return true;
    const unsigned rest = frames - have;
    const auto from_slot =
        update(slot.reservation, [=](Reservation r) { return r.take_up_to(id, rest); });
    if (from_slot) have += std::min(from_slot->free(), rest);
  }
  if (have == frames) return true;
  if (have > 0) credit(id, have);
  return false;
}

bool Upper::claim_run(const Zone& zone, std::uint32_t first, std::uint32_t count) {
  std::uint32_t claimed = 0;
  const bool all = for_trees(first, count, [&](std::uint32_t t, std::uint32_t children) {
    if (!claim({zone.index(), t}, children * kHugeFrames)) return false;
    claimed += children;
    return true;
  });
  if (!all) credit_run(zone, first, claimed);
  return all;
}

void Upper::credit_run(const Zone& zone, std::uint32_t first, std::uint32_t count) {
  (void)for_trees(first, count, [&](std::uint32_t t, std::uint32_t children) {
    credit({zone.index(), t}, children * kHugeFrames);
    return true;
  });
}

Taken Upper::get_run_in(Zone& zone, std::uint32_t count, unsigned node, unsigned& moves) {
  if (zone.use() != ZoneUse::any || (node != ~0u && zone.node != node)) return {};
  std::uint32_t below = zone.geometry().children;
  while (const Found first = zone.lower.find_run(below, count)) {
    const Moves::Transit transit(moves_, moves);
    if (claim_run(zone, *first, count)) {
      if (zone.lower.get_run(*first, count)) return {zone.id_of(*first * kHugeFrames)};
      credit_run(zone, *first, count);
    }
    below = *first + count - 1;
  }
  return {};
}

// Searches from the zone's end downwards, because small frames fill the trees from the other end.
Result<FrameId> Upper::get_run(std::uint32_t count, unsigned node) {
  const Taken frame = moves_.until_quiet([&](unsigned& own) {
    Taken found;
    for (std::uint32_t z = 0; z < zone_count() && !found; ++z) {
      found = get_run_in(*zones_[z], count, node, own);
    }
    return found;
  });
  if (!frame) return Status::full;
  return frame.id;
}

Status Upper::get_huge(FrameId frame) {
  Zone* zone = find(frame, kHugeFrames);
  if (zone == nullptr || frame.value % kHugeFrames != 0) return Status::invalid_argument;
  const std::uint32_t child = zone->relative(frame) / kHugeFrames;
  unsigned moves = 0;
  const Moves::Transit transit(moves_, moves);
  if (!claim_run(*zone, child, 1)) return Status::full;
  if (zone->lower.get_run(child, 1)) return Status::ok;
  credit_run(*zone, child, 1);
  return Status::full;
}

// In this file because its claim, too, may be in the tree or in any slot.
Status Upper::get_at(FrameId frame, unsigned order) {
  const unsigned frames = 1u << order;
  Zone* zone = find(frame, frames);
  if (zone == nullptr || frame.value % frames != 0) return Status::invalid_argument;
  const std::uint32_t at = zone->relative(frame);
  if (zone->lower.taken(at, order)) return Status::full;
  const TreeId id{zone->index(), at / kTreeFrames};
  unsigned moves = 0;
  const Moves::Transit transit(moves_, moves);
  if (!claim(id, frames)) return Status::full;
  if (zone->lower.get_at(at, order)) return Status::ok;
  credit(id, frames);
  return Status::full;
}

Status Upper::put_run(FrameId frame, std::uint32_t count) {
  Zone* zone = find(frame, std::uint64_t{count} * kHugeFrames);
  if (zone == nullptr || frame.value % kHugeFrames != 0) return Status::corrupt;
  const std::uint32_t first = zone->relative(frame) / kHugeFrames;
  if (!zone->lower.put_run(first, count)) return Status::corrupt;
  credit_run(*zone, first, count);
  return Status::ok;
}

}  // namespace TENUTO_NS::frame
