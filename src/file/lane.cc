#include "file/lane.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/not_cancelled.h"
#include "pm/plant.h"
#include "pm/process.h"
#include "pm/thread_end.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

namespace {

// The open pools, so that an ending thread can tell whether a pool it used is still open. Lock
// order: open_mu before Lanes::mu_.
constinit std::mutex& open_mu = process_locks.open;
std::unordered_map<std::uint64_t, Lanes*>& open_lanes() {
  static auto* map = new std::unordered_map<std::uint64_t, Lanes*>;  // outlives every thread
  return *map;
}
std::uint64_t last_instance = 0;  // guarded by open_mu

}  // namespace

// The lanes that a thread holds, one for each pool, latest used first.
struct ThreadLanes {
  struct Held {
    std::uint64_t instance;
    Lane* lane;
  };
  std::vector<Held> held;

  ThreadLanes() { held.reserve(4); }
  // The thread's last flushes may still wait for a fence of the lane. The next fence of the lane is
  // another thread's, and that covers none of this thread's flushes. So this thread fences.
  ~ThreadLanes() {
    const MetadataOpen rights;
    {
      const std::lock_guard lock(open_mu);  // no pool is closed meanwhile
      for_each_open([](Lanes& lanes, const Held& h) {
        last_lane = {h.instance, h.lane};
        if (lanes.lane_end_) lanes.lane_end_(*h.lane);
      });
    }
    last_lane = {};
    if (!held.empty()) fence("flushed by an ending thread", "its lane is handed on");
    const std::lock_guard lock(open_mu);
    for_each_open([](Lanes& lanes, const Held& h) { lanes.release(h.lane); });
  }
  // In the order of the instances: f may use any pool, and so change the order of `held`.
  template <class F>
  void for_each_open(const F& f) const {
    std::uint64_t done = 0;
    const auto later = [&](const Held& a, const Held& b) {
      return a.instance > done && (b.instance <= done || a.instance < b.instance);
    };
    while (!held.empty()) {
      const Held h = *std::min_element(held.begin(), held.end(), later);
      if (h.instance <= done) return;
      done = h.instance;
      const auto it = open_lanes().find(h.instance);
      if (it != open_lanes().end()) f(*it->second, h);
    }
  }

  static Lane* find(std::vector<Held>& held, std::uint64_t instance) {
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (held[i].instance != instance) continue;
      if (i != 0) std::swap(held[i], held[0]);
      return held[0].lane;
    }
    return nullptr;
  }
  // Called before a lane is taken: if there were no memory to note it, the lane would be lost.
  void make_room() {
    const std::lock_guard lock(open_mu);
    std::erase_if(held, [](const Held& h) { return !open_lanes().contains(h.instance); });
    if (held.size() == held.capacity()) held.reserve(2 * held.size());
  }
  void add(std::uint64_t instance, Lane* lane) {
    const std::lock_guard lock(open_mu);
    held.push_back({instance, lane});
  }
};

Lanes::Lanes(PoolFile& file) : file_(file) {
  const std::lock_guard lock(open_mu);
  instance_ = ++last_instance;
  open_lanes().emplace(instance_, this);
}

void Lanes::set_lane_end(LaneEnd end) {
  const std::lock_guard lock(open_mu);
  lane_end_ = std::move(end);
}

void Lanes::set_nodes(NodesOf nodes) {
  const std::lock_guard lock(mu_);
  nodes_ = std::move(nodes);
  for (const auto& lane : lanes_) lane->node = nodes_.segment(file_.offset_of(lane->lines));
}

Lanes::~Lanes() {
  const std::lock_guard lock(open_mu);
  open_lanes().erase(instance_);
}

Result<std::unique_ptr<Lanes>> Lanes::open(PoolFile& file, Report* report) {
  const MetadataOpen rights;
  std::unique_ptr<Lanes> lanes(new Lanes(file));
  const HeadPage& head = file.head();
  for (std::size_t i = 0; i < kLaneSegmentsMax; ++i) {
    const PoolOffset segment{head.lane_segments[i]};
    if (!segment && i > 0) break;
    if (TENUTO_PLANT("pm_later_lane_segments_forgotten") && i > 0) break;
    const std::uint64_t* const before = head.lane_segments;
    const bool sound = i == 0 ? segment.value == kLanesOffset
                              : file.in_range(segment, kLaneSegmentBytes) &&
                                    segment.value % kLaneSegmentBytes == 0 &&
                                    std::find(before, before + i, segment.value) == before + i;
    if (!sound) {
      return fail(Status::corrupt, report, "a lane segment lies where none can be",
                  file.where({kHeadPageOffset + offsetof(HeadPage, lane_segments) + i * 8},
                             "lane segment table"),
                  {}, std::to_string(segment.value));
    }
    if (i > 0) TENUTO_TRY(file.protect(segment, kLaneSegmentBytes, report));
    lanes->attach(segment, lanes->make_lanes());
  }
  return lanes;
}

// Allocates all that attach() needs: by then the segment is durable, and attach() must not fail.
Lanes::Fresh Lanes::make_lanes() {
  Fresh fresh;
  for (auto& lane : fresh) lane = std::make_unique<Lane>();
  const std::lock_guard lock(mu_);
  lanes_.reserve(lanes_.size() + kLanesPerSegment);
  return fresh;
}

void Lanes::attach(PoolOffset segment, Fresh fresh) {
  const std::lock_guard lock(mu_);
  for (std::size_t i = 0; i < kLanesPerSegment; ++i) {
    fresh[i]->id = {static_cast<std::uint32_t>(lanes_.size())};
    fresh[i]->lines = file_.at<LogLine>(segment + i * kLaneBytes);
    if (nodes_.segment) fresh[i]->node = nodes_.segment(segment);
    lanes_.push_back(std::move(fresh[i]));
  }
  // Low numbers on top of the stack.
  for (std::size_t i = 0; i < kLanesPerSegment; ++i) {
    push_idle(lanes_[lanes_.size() - 1 - i].get());
  }
  segments_ += 1;
}

// REQUIRES: mu_ is held.
void Lanes::push_idle(Lane* lane) {
  lane->next_idle = idle_;
  idle_ = lane;
}

// REQUIRES: mu_ is held.
Lane* Lanes::pop_idle(unsigned node) {
  Lane** at = &idle_;
  while (node != kAnyNode && *at != nullptr && (*at)->node != node) at = &(*at)->next_idle;
  Lane* const lane = *at;
  if (lane != nullptr) *at = lane->next_idle;
  return lane;
}

Lane* Lanes::take_spare(unsigned node) {
  const std::lock_guard lock(mu_);
  if (spares_ >= segments_ * kLanesPerSegment / 4) return nullptr;
  Lane* lane = pop_idle(node);
  if (lane == nullptr) lane = pop_idle(kAnyNode);
  spares_ += lane != nullptr ? 1 : 0;
  return lane;
}

void Lanes::give_spare(Lane* lane) {
  {
    const std::lock_guard lock(mu_);
    spares_ -= 1;
  }
  release(lane);
}

Lane& Lanes::find_mine() {
  const MetadataOpen rights;
  ThreadLanes& mine = thread_part<ThreadLanes>(ThreadPart::lanes);
  Lane* lane = ThreadLanes::find(mine.held, instance_);
  if (lane == nullptr) {
    mine.make_room();
    lane = acquire();
    mine.add(instance_, lane);
  }
  last_lane = {instance_, lane};
  return *lane;
}

Lane* Lanes::acquire() {
  const unsigned node = nodes_.thread ? nodes_.thread() : 0;
  unsigned wanted = nodes_.thread ? node : kAnyNode;
  std::unique_lock lock(mu_);
  bool may_grow = true;  // false after a try that failed
  for (;;) {
    if (Lane* const lane = pop_idle(wanted)) {
      lane->holders += 1;
      lane->holder_node = node;
      return lane;
    }
    // The table grows once for a lane on the thread's node, if there is room on that node. Then any
    // lane will do. A segment elsewhere would be one more for each new thread.
    const bool others = std::exchange(wanted, kAnyNode) != kAnyNode && idle_ != nullptr;
    if (others && (growing_ || segments_ == kLaneSegmentsMax || !take_segment_)) continue;
    // One thread grows at a time. A thread that finds all new lanes taken grows again.
    if (!may_grow || growing_ || segments_ == kLaneSegmentsMax || !take_segment_) {
      const NotCancelled whole;
      released_.wait(lock);
      continue;
    }
    // Reset on every way out, because other threads wait for it.
    struct Growing {
      Lanes& lanes;
      std::unique_lock<std::mutex>& lock;
      Growing(Lanes& l, std::unique_lock<std::mutex>& held) : lanes(l), lock(held) {
        lanes.growing_ = true;
        lock.unlock();
      }
      ~Growing() {
        lock.lock();
        lanes.growing_ = false;
        lanes.released_.notify_all();
      }
    } const growing{*this, lock};
    const bool there = others && !TENUTO_PLANT("pm_lane_segment_on_any_node");
    const bool grown = grow(node, there);
    if (!others) may_grow = grown;
  }
}

// REQUIRES: the caller set growing_. False: there is no room for a segment.
bool Lanes::grow(unsigned node, bool there) {
  Fresh fresh = make_lanes();
  const Result<PoolOffset> segment = take_segment_(node, there);
  if (!segment) return false;
  if (file_.protect(*segment, kLaneSegmentBytes, nullptr) != Status::ok) {
    file_.leave_to_recovery(Unknown::key_kept);  // nothing names the segment
    return false;
  }
  std::uint64_t& entry = file_.head().lane_segments[segments_];
  if (TENUTO_PLANT("pm_lane_segment_published_early")) publish(entry, segment->value);
  if (!TENUTO_PLANT("pm_lane_segment_not_zeroed")) {
    zero_flush(file_.at<std::byte>(*segment), kLaneSegmentBytes);
  }
  fence("lane segment zeroed", "lane segment published");
  publish(entry, segment->value);
  fence("lane segment published", "its lanes are used");
  attach(*segment, std::move(fresh));
  return true;
}

void Lanes::release(Lane* lane) {
  {
    const std::lock_guard lock(mu_);
    push_idle(lane);
  }
  released_.notify_one();
}

std::vector<PoolOffset> Lanes::extra_segments() const {
  const MetadataOpen rights;
  std::vector<PoolOffset> all;
  const HeadPage& head = file_.head();
  for (std::size_t i = 1; i < kLaneSegmentsMax && head.lane_segments[i] != 0; ++i) {
    all.push_back({head.lane_segments[i]});
  }
  return all;
}

std::size_t Lanes::count() const {
  const std::lock_guard lock(mu_);
  return lanes_.size();
}

void Lanes::for_each_idle(const std::function<void(Lane&)>& f) {
  struct Taken {
    Lanes& lanes;
    Lane* first = nullptr;
    Lane* last = nullptr;
    explicit Taken(Lanes& l) : lanes(l) {
      const std::lock_guard lock(lanes.mu_);
      first = std::exchange(lanes.idle_, nullptr);
    }
    // On every way out the lanes go back, on top of the stack.
    ~Taken() {
      if (first == nullptr) return;
      for (last = first; last->next_idle != nullptr;) last = last->next_idle;
      {
        const std::lock_guard lock(lanes.mu_);
        last->next_idle = lanes.idle_;
        lanes.idle_ = first;
      }
      lanes.released_.notify_all();
    }
  } const taken{*this};
  for (Lane* lane = taken.first; lane != nullptr; lane = lane->next_idle) f(*lane);
}

}  // namespace TENUTO_NS::pm
