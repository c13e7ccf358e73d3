// The upper layer: which tree a core takes its frames from. DRAM only; built from the children of
// all zones and thrown away at close, so nothing here is flushed.
//
// A core reserves a tree for base frames and another one for huge frames and works in them alone;
// the shared words (trees) change only when a reservation is moved or another core frees into a
// tree. When a reservation runs dry it takes what others freed into its tree, else it looks for
// another tree, in this order:
//   1. partial, then free trees on the same line of tree words
//   2. zone by zone, from the reservation's zone on: partial, then free trees
//   3. trees with few free frames
//   4. the reservations of other cores
// (huge frames: free before partial trees). A tree in which the lower layer finds no fit is
// released at once. Nothing waits for another thread.
//
// Equation between operations, for a tree t and the slot s that reserved it:
//   t.free + s.free + (claims of gets and runs on their way) == sum of t's children's counters
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "frame/moves.h"
#include "frame/slot.h"
#include "frame/zone.h"
#include "pm/format.h"
#include "tenuto/status.h"
#include "tenuto/units.h"

namespace TENUTO_NS::frame {

// A frame that was taken, or none: frame 0 is the head and never handed out (see Found for why
// this is no std::optional).
struct Taken {
  FrameId id;

  explicit operator bool() const { return id.value != 0; }
};

class Upper {
 public:
  // `cores` reservations of each kind.
  explicit Upper(unsigned cores);

  // Appends a zone whose lower state has been checked. With `serve` its free frames may be taken at
  // once. One caller at a time; get and put may run meanwhile. full when there are kZonesMax.
  Status add_zone(std::unique_ptr<Zone> zone, bool serve);
  // Counters of all trees from the children, no reservations. Quiescent.
  void rebuild();

  Result<FrameId> get(unsigned order, unsigned core);
  Status put(FrameId frame, unsigned order, unsigned core);
  Result<FrameId> get_run(std::uint32_t count);
  Status put_run(FrameId frame, std::uint32_t count);
  Status get_huge(FrameId frame);
  Status get_at(FrameId frame, unsigned order);

  std::uint32_t zone_count() const { return zone_count_.load(std::memory_order_acquire); }
  Zone& zone(std::uint32_t i) const { return *zones_[i]; }
  // The zone that may hand out [frame, frame + frames); null for other frames.
  Zone* find(FrameId frame, std::uint64_t frames) const;

  // Tree counters and reservations against the children. Quiescent.
  Status validate(Report* report) const;

 private:
  // A get on its way: for whom, and how many moves it has made.
  struct Request {
    Slot& slot;
    unsigned order;
    unsigned moves = 0;

    unsigned frames() const { return 1u << order; }
  };

  Slot& slot_of(unsigned core, unsigned order);
  Taken get_reserved(Request& request);
  Taken get_elsewhere(Request& request);
  Taken get_in_class(Request& request, Zone& zone, std::uint32_t begin, std::uint32_t end,
                     TreeClass which);
  Taken steal(Request& request, Slot& victim);
  Taken get_owned(Request& request, TreeId id, std::uint32_t start, unsigned free);
  bool refill(Request& request);
  void adopt(Slot& slot, Reservation to);
  void credit(TreeId id, unsigned frames);
  void give_back(Slot& slot, TreeId id, unsigned frames);
  void reserve_freed(Slot& slot, TreeId id, std::uint32_t frame);

  bool claim(TreeId id, unsigned frames);
  bool claim_run(const Zone& zone, std::uint32_t first, std::uint32_t count);
  void credit_run(const Zone& zone, std::uint32_t first, std::uint32_t count);
  Taken get_run_in(Zone& zone, std::uint32_t count, unsigned& moves);

  Tree& tree(TreeId id) const { return zones_[id.zone]->tree(id.tree); }

  std::vector<Slot> slots_;  // base and huge of core 0, of core 1, ...
  // Written once each, before zone_count_ shows them.
  std::array<std::unique_ptr<Zone>, pm::kZonesMax> zones_;
  std::atomic<std::uint32_t> zone_count_ = 0;
  Moves moves_;
};

}  // namespace TENUTO_NS::frame
