// The upper layer chooses the tree that a core takes its frames from. It is in DRAM only: built
// from the children of all zones at open and dropped at close. So nothing here is flushed.
//
// A core reserves one tree for base frames and one for huge frames, and its gets work in them
// alone. A third one is in zones of ZoneUse::records; no other get looks into these zones. The
// shared words (trees) change only when a reservation moves or another core frees into a tree. When
// a reservation runs dry, it first takes what other cores freed into its tree. Then it looks for
// another tree, in this order:
//   1. partial, then free trees on the same line of tree words
//   2. zone by zone, from the reservation's zone on: partial, then free trees
//   3. trees with few free frames
//   4. the reservations of other cores
// For huge frames, free trees come before partial ones. A tree in which the lower layer finds no
// fit is released at once. No thread waits for another, but for the bounded wait before `full`
// (moves.h).
//
// For a tree t and the slot s that reserved it:
//   t.free + s.free <= sum of the free counters of t's children      (always)
// The difference is what operations under way hold: claims of gets and runs, credits of puts,
// counters in transit. It is 0 when no operation runs.
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

// A frame that was taken, or none. Frame 0 is the head and never handed out, so it means none.
// (Found in word.h explains why this is no std::optional.)
struct Taken {
  FrameId id;

  explicit operator bool() const { return id.value != 0; }
};

class Upper {
 public:
  // Makes `cores` reservations for base frames, for huge frames, and for frames of records.
  explicit Upper(unsigned cores);

  // Appends a zone whose lower state has been checked. With `serve` its free frames can be taken at
  // once. One caller at a time; get and put may run meanwhile. full when there are kZonesMax zones.
  Status add_zone(std::unique_ptr<Zone> zone, bool serve);
  // Sets the counters of all trees from the children and drops all reservations. REQUIRES:
  // quiescent.
  void rebuild();
  // NUMA. Reservations for more cores, and a core's frees reserve no tree of another node.
  // REQUIRES: quiescent, and nothing is reserved.
  void set_nodes(unsigned nodes, unsigned cores);
  unsigned node_of(FrameId frame) const;

  Result<FrameId> get(unsigned order, unsigned core, ZoneUse use = ZoneUse::any,
                      unsigned node = ~0u);
  Status put(FrameId frame, unsigned order, unsigned core);
  Result<FrameId> get_run(std::uint32_t count, unsigned node = ~0u);
  Status put_run(FrameId frame, std::uint32_t count);
  Status get_huge(FrameId frame);
  Status get_at(FrameId frame, unsigned order);

  std::uint32_t zone_count() const { return zone_count_.load(std::memory_order_acquire); }
  Zone& zone(std::uint32_t i) const { return *zones_[i]; }
  // The zone whose usable frames include [frame, frame + frames), or null.
  Zone* find(FrameId frame, std::uint64_t frames) const;

  // Checks tree counters and reservations against the children. REQUIRES: quiescent.
  Status validate(Report* report) const;

 private:
  // A get under way, and how many moves it has made itself (moves.h).
  struct Request {
    Slot& slot;
    unsigned order;
    ZoneUse use;
    unsigned node;  // or ~0u: any
    unsigned moves = 0;

    unsigned frames() const { return 1u << order; }
    bool wants(const Zone& zone) const {
      return zone.use() == use && (node == ~0u || zone.node == node);
    }
  };

  Slot& slot_of(unsigned core, unsigned order, ZoneUse use);
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
  Taken get_run_in(Zone& zone, std::uint32_t count, unsigned node, unsigned& moves);

  Tree& tree(TreeId id) const { return zones_[id.zone]->tree(id.tree); }

  static constexpr std::size_t kSlotsOfCore = 3;  // base, huge, records
  std::vector<Slot> slots_;                       // of core 0, of core 1, ...
  // Each is written once, before zone_count_ is raised.
  std::array<std::unique_ptr<Zone>, pm::kZonesMax> zones_;
  std::atomic<std::uint32_t> zone_count_ = 0;
  unsigned nodes_ = 1;  // constant after open
  Moves moves_;
};

}  // namespace TENUTO_NS::frame
