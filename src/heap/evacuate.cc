// Evacuation: empties sparse slabs, of derived blocks or of typed ones. The heap chooses the slabs
// and hands out nothing from them. The owner of the blocks (the store; a program that knows all
// pointers to its objects) walks over its blocks and moves those for which leaving() is true. A
// slab loses its frame when its last block is given back. Slabs of logged blocks without types are
// morphed instead (morph.h).
//
// Nothing of this is on media: a crash leaves the blocks where the owner's structure names them.
// Some blocks cannot be moved: their owner takes no part, or a reader holds them. Their slab stays.
// It is as before when end_evacuation() returns, or when a thread finds the pool full.
//
// Caches do not keep blocks of a leaving slab: give_back() does not cache them, and a lane empties
// its caches when it sees a new value of `evacuations`. A lane whose thread makes no calls keeps
// its cached blocks.
#include <algorithm>
#include <array>

#include "heap/block_marks.h"
#include "heap/heap_paths.h"
#include "pm/assert.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

// --- the arena's part ----------------------------------------------------------------------------

void Arena::use_all() {
  const std::lock_guard lock(mu);
  if (!TENUTO_PLANT("heap_evacuation_beside_dense_slabs")) list_dense();
}

bool Arena::leave(Slab& slab) {
  const std::lock_guard lock(mu);
  if (slab.header == nullptr || slab.kind == Kind::logged || slab.empty()) return false;
  if (slab.listed) unlist(slab);
  slab.leaving.store(true, std::memory_order_relaxed);
  return true;
}

unsigned Arena::stay_all() {
  const std::lock_guard lock(mu);
  uses_all_ = false;
  unsigned left = 0;
  for (const auto& slab : slabs_) {
    if (slab->header == nullptr || !slab->leaving.load(std::memory_order_relaxed)) continue;
    left += 1;
    slab->leaving.store(false, std::memory_order_relaxed);
    if (slab->free_count != 0) list_last(*slab);
  }
  return left;
}

unsigned Arena::count_leaving() {
  const std::lock_guard lock(mu);
  return static_cast<unsigned>(std::count_if(slabs_.begin(), slabs_.end(), [](const auto& slab) {
    return slab->header != nullptr && slab->leaving.load(std::memory_order_relaxed);
  }));
}

// The slab is to become empty, so the other slabs give their free blocks first.
void Arena::list_last(Slab& slab) {
  List& l = list_of(slab);
  slab.prev = l.tail;
  slab.next = nullptr;
  (slab.prev != nullptr ? slab.prev->next : l.head) = &slab;
  l.tail = &slab;
  slab.listed = true;
}

// --- choosing ------------------------------------------------------------------------------------

namespace {

struct Candidate {
  Slab* slab;
  unsigned used;
};

// One class: the slabs to choose from, emptiest first, and the room in other slabs.
struct ClassPlan {
  std::vector<Candidate> sparse;
  std::uint64_t room = 0;  // free blocks of all slabs in the caller's arena
  unsigned blocks = 0;     // of a slab
  const Arena* from = nullptr;

  // How many of the emptiest slabs to evacuate: the number that gives most frames back, and no
  // more. Their blocks move to free blocks of the other slabs, then to new slabs.
  std::size_t best() const {
    std::size_t best = 0;
    std::uint64_t best_gain = 0;
    std::uint64_t used = 0;
    std::uint64_t rest = room;
    for (std::size_t n = 1; n <= sparse.size(); ++n) {
      const Candidate& c = sparse[n - 1];
      used += c.used;
      if (c.slab->arena == from) rest -= blocks - c.used;
      const std::uint64_t fresh = used > rest ? (used - rest + blocks - 1) / blocks : 0;
      if (fresh < n && n - fresh > best_gain) {
        best = n;
        best_gain = n - fresh;
      }
    }
    return best;
  }
};

}  // namespace

Evacuation Heap::begin_evacuation(double occupancy, std::uint64_t blocks_max,
                                  std::span<const PoolOffset> fixed, Evacuees who) {
  const pm::MetadataOpen rights;
  State& s = *state_;
  if (s.file.writable() != Status::ok) return {};
  LaneHeap& mine = s.mine();
  s.scavenge(mine);
  std::vector<std::uint64_t> fixed_slabs;
  for (const PoolOffset o : fixed) fixed_slabs.push_back(slab_at(o).value);
  std::sort(fixed_slabs.begin(), fixed_slabs.end());
  std::array<ClassPlan, kKinds * kClasses> plans;  // by kind and class
  for (const auto& arena : s.arenas) {
    arena->for_each_slab([&](const Slab& slab) {
      const bool asked = who == Evacuees::typed ? slab.kind == Kind::typed : is_derived(slab.kind);
      if (!asked || slab.empty()) return;
      ClassPlan& plan = plans[static_cast<unsigned>(slab.kind) * kClasses + slab.class_id.value];
      plan.blocks = slab.blocks;
      // Which slabs give blocks under wear levelling, their wear decides: count on none.
      plan.from = s.wear == nullptr ? mine.arena : nullptr;
      if (slab.arena == plan.from) plan.room += slab.free_count;
      const bool stays =
          std::binary_search(fixed_slabs.begin(), fixed_slabs.end(), slab.offset.value);
      if (!stays && slab.used() < occupancy * slab.blocks) {
        plan.sparse.push_back({const_cast<Slab*>(&slab), slab.used()});
      }
    });
  }
  Evacuation chosen;
  std::uint64_t blocks = 0;
  for (ClassPlan& plan : plans) {
    std::sort(plan.sparse.begin(), plan.sparse.end(),
              [](const Candidate& a, const Candidate& b) { return a.used < b.used; });
    const std::size_t best = occupancy == kEvacuateAll ? plan.sparse.size() : plan.best();
    for (std::size_t i = 0; i < best; ++i) {
      const Candidate& c = plan.sparse[i];
      if (blocks_max != 0 && chosen.slabs != 0 && blocks + c.used > blocks_max) {
        chosen.all = false;
        break;
      }
      if (!c.slab->arena->leave(*c.slab)) continue;
      chosen.slabs += 1;
      blocks += c.used;
    }
  }
  for (const auto& arena : s.arenas) arena->use_all();
  // Release: pairs with the lanes' load in make_way(). A lane that sees the count sees the marks.
  s.evacuations.fetch_add(1, std::memory_order_release);
  s.empty_moving_caches(mine);
  return chosen;
}

void Heap::find_sparse(double occupancy, BlockMarks& slabs) {
  const pm::MetadataOpen rights;
  state_->scavenge(state_->mine());  // so that the choice finds the same ones
  for (const auto& arena : state_->arenas) {
    arena->for_each_slab([&](const Slab& slab) {
      if (slab.kind != Kind::typed || slab.empty()) return;
      if (slab.used() < occupancy * slab.blocks) slabs.set(slab.offset);
    });
  }
}

PoolOffset Heap::slab_at(PoolOffset block) { return {round_down(block.value, kSlabBytes)}; }

bool Heap::leaving(PoolOffset block) const {
  const PageTable::Entry e = state_->pages.find(block);
  return e.owner != PageOwner::none && e.slab()->leaving.load(std::memory_order_relaxed);
}

std::uint64_t Heap::slabs_leaving() const {
  std::uint64_t slabs = 0;
  for (const auto& arena : state_->arenas) slabs += arena->count_leaving();
  return slabs;
}

std::uint64_t Heap::end_evacuation() {
  const pm::MetadataOpen rights;
  state_->free_deferred(state_->mine());  // the last blocks of chosen slabs may be among them
  state_->abandon_evacuation();
  return state_->slabs_stayed.exchange(0, std::memory_order_relaxed);
}

// Also called for a thread that finds the pool full: it may use the blocks that are held back.
bool Heap::State::abandon_evacuation() {
  std::uint64_t stayed = 0;
  for (const auto& arena : arenas) stayed += arena->stay_all();
  slabs_stayed.fetch_add(stayed, std::memory_order_relaxed);
  return stayed != 0;
}

void Heap::State::empty_moving_caches(LaneHeap& h) {
  h.evacuations = evacuations.load(std::memory_order_acquire);
  if (h.numa != nullptr) flush_plain(h);
  for (const Kind kind : {Kind::derived, Kind::record, Kind::typed}) {
    for (ClassCache& cache : h.caches[static_cast<unsigned>(kind)]) {
      if (cache.count() != 0) spill(h, cache, true);
    }
  }
}

}  // namespace TENUTO_NS::heap
