#include "heap/numa.h"

#include <algorithm>

#include "heap/frame_source.h"
#include "heap/heap_paths.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "pm/thread.h"

namespace TENUTO_NS::heap {

namespace {
constexpr unsigned kCoresMax = 1024;
// Read once in a process: an open of a pool need not wait for that. It stays: the program may open
// a pool while it ends.
const pm::Topology& machine() {
  static const pm::Topology& topology = *new pm::Topology(pm::Topology::read());
  return topology;
}
}  // namespace

Numa::Numa(const NumaOptions& options, const pm::PoolFile& file)
    : options_(options),
      file_(file),
      topology_(options.nodes == 0 ? machine() : pm::Topology()),
      nodes_(std::min(options.nodes == 0 ? topology_.nodes() : options.nodes, kNodesMax)),
      simulated_(options.nodes > 1) {
  cores_ = static_cast<unsigned>(
      round_up(options.cores == 0 ? pm::cores() : std::min(options.cores, kCoresMax), nodes_));
}

unsigned Numa::deal() {
  if (!simulated_ || options_.node_of_thread) return here(0);
  return dealt_.fetch_add(1, std::memory_order_relaxed) % nodes_;
}

unsigned Numa::here(unsigned dealt) const {
  if (options_.node_of_thread) {
    const pm::MetadataClosed closed;
    return options_.node_of_thread() % nodes_;
  }
  return simulated_ ? dealt : topology_.here();
}

void Numa::pin(unsigned node) const {
  if (options_.pin_threads && !simulated_) topology_.pin(node);
}

unsigned Numa::node_of_zone(const pm::ZoneEntry& zone, std::size_t index) const {
  const unsigned planned = index < planned_.size() ? planned_[index] : 0;
  const unsigned wanted = planned != 0 ? planned - 1 : static_cast<unsigned>(index % nodes_);
  if (simulated_) return wanted;
  // Its state is at its start: a page that is there.
  const PoolOffset first{zone.offset == 0 ? pm::kHeadPageOffset : zone.offset};
  const unsigned node = topology_.node_of(file_.at<char>(first), wanted);
  topology_.prefer(file_.at<char>(PoolOffset{zone.offset}), zone.bytes, node);
  return node;
}

Numa::Preferred::Preferred(const Numa& numa, unsigned node) {
  if (numa.simulated()) return;
  bound_ = true;
  before_ = numa.topology_.prefer_here(node);
}

Numa::Preferred::~Preferred() {
  if (bound_) pm::Topology::restore(before_);
}

// --- frames --------------------------------------------------------------------------------------

// A frame of the node: from its zones, from what its extents can do without, or from a zone that
// the pool grows by. Else `full`: the caller looks elsewhere.
Result<PoolOffset> FrameSource::get_near(const std::function<Result<FrameId>(unsigned)>& get,
                                         std::uint64_t frames, unsigned node, frame::ZoneUse use) {
  if (TENUTO_PLANT("heap_numa_frames_of_any_node")) return Status::full;
  const auto failed = [](const Result<FrameId>& got) {
    return !got && got.error() == Status::full;
  };
  Result<FrameId> got = get(node);
  if (failed(got) && numa_->may_grow(node, file_.bytes())) {
    const bool reclaims = use == frame::ZoneUse::any && reclaim_ != nullptr;
    if (reclaims && reclaim_()) got = get(node);
    if (failed(got)) {
      const std::lock_guard lock(grow_mu_);
      got = get(node);  // another thread may have grown the pool meanwhile
      if (failed(got)) {
        const std::uint64_t huge_frames = (frames + frame::kHugeFrames - 1) / frame::kHugeFrames;
        if (grow(huge_frames, use, node) == Status::ok) {
          got = get(node);
          const PoolOffset last{file_.bytes() - kFrameBytes};
          const bool elsewhere = frames_.node_of(frame_of_offset(last)) != node;
          if (elsewhere && !TENUTO_PLANT("heap_numa_grows_for_nothing")) {
            numa_->missed(node, file_.bytes());
          }
        }
        if (failed(got)) numa_->refused(node, file_.bytes());
      }
    }
  }
  if (!got) return got.error();
  large_.took(frames);
  return offset_of_frame(*got);
}

// --- lanes ---------------------------------------------------------------------------------------

void Heap::State::use_nodes() {
  if (!numa.on()) return;
  frames.set_numa(&numa);
  frames.frames().set_nodes(
      {numa.nodes(), numa.cores(), [this](const pm::ZoneEntry& zone, std::size_t index) {
         return numa.node_of_zone(zone, index);
       }});
  lanes.set_nodes(
      {[this](PoolOffset segment) { return frames.frames().node_of(frame_of_offset(segment)); },
       [this] { return numa.deal(); }});
  extents.set_nodes(numa.nodes());
}

void Heap::State::join_node(LaneHeap& h, unsigned node) {
  h.numa->node = node;
  h.core = numa.core_of(node, h.lane->id.value);
  h.arena = arenas[h.core].get();
}

// REQUIRES: the caller holds the lane, and is not in the middle of giving blocks back.
void Heap::State::look_where(LaneHeap& h) {
  LaneNuma& n = *h.numa;
  const bool new_holder = n.holders != h.lane->holders;
  n.holders = h.lane->holders;
  const unsigned node = numa.here(h.lane->holder_node);
  if (new_holder) numa.pin(node);
  if (node == n.node || TENUTO_PLANT("heap_numa_lane_keeps_its_node")) return;
  flush_recorded(h, h);
  empty_caches(h);  // they are of the other node
  join_node(h, node);
}

}  // namespace TENUTO_NS::heap
