#include "tx/open_engines.h"

#include <map>
#include <mutex>
#include <vector>

#include "heap/place.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "pm/process.h"
#include "pm/trace.h"
#include "tx/engine.h"

namespace TENUTO_NS::tx {

constinit Engine* OpenEngines::first_ = nullptr;

namespace {
// What the lanes of closed pools had committed, by pool id. Never destroyed: a pool that is a
// static object closes late.
std::map<std::uint64_t, std::vector<std::uint64_t>>& closed_pools() {
  static auto* const pools = new std::map<std::uint64_t, std::vector<std::uint64_t>>;
  return *pools;
}
}  // namespace

void OpenEngines::add(Engine& engine) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  engine.next_open_ = first_;
  first_ = &engine;
  closed_pools().erase(engine.file().superblock().pool_id);
}

bool OpenEngines::is_open(std::uint64_t pool_id) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  std::size_t count = 0;
  return find(pool_id, count) != nullptr;
}

void OpenEngines::closed(const Engine& engine) {
  const pm::Superblock& super = engine.file().superblock();
  if ((super.variant & pm::kVariantJoint) == 0) return;
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  // Without memory the lines of its parts wait until it is opened again.
  static_cast<void>(
      pm::had_memory([&] { closed_pools()[super.pool_id] = engine.committed_by_lane(); }));
}

void OpenEngines::remove(Engine& engine) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  for (Engine** at = &first_; *at != nullptr; at = &(*at)->next_open_) {
    if (*at != &engine) continue;
    *at = engine.next_open_;
    return;
  }
}

// A child of a fork finds the engines of its parent here, and passes them by.
Engine* OpenEngines::find(std::uint64_t pool_id, std::size_t& count) {
  Engine* found = nullptr;
  count = 0;
  for (Engine* e = first_; e != nullptr; e = e->next_open_) {
    if (e->file().forked() || e->file().superblock().pool_id != pool_id) continue;
    found = e;
    count += 1;
  }
  return found;
}

Verdict OpenEngines::ask(const TxnName& decider, const TxnName& part) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  std::size_t count = 0;
  const Engine* const engine = find(decider.pool_id, count);
  if (count == 0) return Verdict::not_open;
  if (count > 1) return Verdict::two_open;
  const Verdict verdict = engine->verdict(decider, part);
  pm::PoolFile& file = engine->file();
  const bool sound = file.poisoned() == Status::ok && file.bad_pages() == Status::ok &&
                     file.acknowledge(Durability::buffered) == Status::ok;
  return sound || TENUTO_PLANT("tx_failed_pool_decides") ? verdict : Verdict::failed;
}

bool OpenEngines::has_ended(const TxnName& part) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  std::size_t count = 0;
  const Engine* const engine = find(part.pool_id, count);
  if (count != 0) return count == 1 && engine->ended(part);
  const auto closed = closed_pools().find(part.pool_id);
  return closed != closed_pools().end() && part.lane < closed->second.size() &&
         closed->second[part.lane] >= part.sequence;
}

std::string OpenEngines::describe(const void* p) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  for (const Engine* e = first_; e != nullptr; e = e->next_open_) {
    if (e->file().forked() || !e->file().contains(p)) continue;
    const PoolOffset o = e->file().offset_of(p);
    const heap::Place place = e->heap_.look(o);
    const bool object = place.what == heap::Place::What::block && !place.derived &&
                        place.use != heap::Place::Use::free;
    return object ? "the pool " + e->file().path() + ", " + place.text(o) : std::string();
  }
  return {};
}

bool OpenEngines::sync(std::uint64_t pool_id) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  std::size_t count = 0;
  Engine* const engine = find(pool_id, count);
  if (count == 0) return closed_pools().count(pool_id) != 0;
  return count == 1 && engine->file().acknowledge(Durability::sync) == Status::ok;
}

}  // namespace TENUTO_NS::tx
