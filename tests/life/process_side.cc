// The second pool of a life (Story::side). Each transaction over objects of a store changes both
// pools; each of them leads now and then, and its id says which one decides. After any end of the
// process both must show the same stamps.
#include <chrono>
#include <filesystem>
#include <thread>

#include "process.h"
#include "tenuto/pool.h"

namespace tenuto::life {

namespace {
constexpr unsigned kOpenTriesMax = 2000;  // a millisecond apart, as in Process::open
}

// Opens or makes it. in_doubt: the store must be open first. Other errors have a failed call as
// their cause.
Status Process::open_side(unsigned s) {
  StoreSlot& slot = world_.store[s];
  if (world_.story.side == 0 || slot.side) return Status::ok;
  const std::string path = world_.side_of(s);
  PoolOptions options = world_.options_of(s, 0).pool;
  options.size = options.size_max = kPoolBytesMin;
  const bool fails = world_.calls_fail.load();
  Report report;
  for (unsigned tries = 0; tries < kOpenTriesMax; ++tries) {
    auto pool = std::filesystem::exists(path) ? Pool::open(path, options, &report)
                                              : Pool::create(path, options, &report);
    if (pool) {
      slot.side.emplace(std::move(*pool));
      return Status::ok;
    }
    if (pool.error() == Status::in_doubt || fails) return pool.error();
    if (pool.error() != Status::busy) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  world_.broken("the second pool: " + report.text());
}

void Process::check_side(unsigned s) {
  StoreSlot& slot = world_.store[s];
  if (!slot.side || slot.store == nullptr || slot.read_only) return;
  Pool& pool = slot.store->pool();
  if (pool.health() != Status::ok || slot.side->health() != Status::ok) return;
  const bool any = pool.info().layout == kRootLayout;
  const auto root = any ? pool.root<RootObject>(kRootLayout) : Result<RootObject*>(nullptr);
  const bool sides = slot.side->info().layout == kSideLayout;
  const auto side = sides ? slot.side->root<SideRoot>(kSideLayout) : Result<SideRoot*>(nullptr);
  if (!root || !side) return world_.broken("a root of the two pools cannot be had");
  bool stamped = false;
  for (std::uint64_t n = 0; n < kObjects; ++n) {
    const std::uint64_t here = any ? (*root)->stamp[n].get() : 0;
    const std::uint64_t there = sides ? (*side)->stamp[n].get() : 0;
    if (here != there) {
      world_.broken("a transaction is in one of two pools: slot " + std::to_string(n) +
                    " has stamp " + std::to_string(here) + " and " + std::to_string(there));
    }
    stamped = stamped || there != 0;
  }
  Report report;
  if (slot.side->validate(&report) != Status::ok) {
    world_.broken("the second pool is not sound: " + report.text());
  }
  if (world_.story.consistency == 3 || !stamped) return;
  const std::uint64_t* const block = (*side)->last.get();
  if (block == nullptr || told_by_block(block, kSideBlock) != kSideBlock) {
    world_.broken("the block of the second pool is not what was committed");
  }
  if (world_.story.consistency == 1 && slot.side->stats().objects != 2) {
    world_.broken("the second pool has lost blocks");
  }
}

void Process::close_sides() {
  for (StoreSlot& slot : world_.store) slot.side.reset();
}

}  // namespace tenuto::life
