#include "tx/open_engines.h"

#include <mutex>

#include "pm/plant.h"
#include "pm/process.h"
#include "pm/trace.h"
#include "tx/engine.h"

namespace TENUTO_NS::tx {

constinit Engine* OpenEngines::first_ = nullptr;

void OpenEngines::add(Engine& engine) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  engine.next_open_ = first_;
  first_ = &engine;
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
  return count == 1 && engine->ended(part);
}

bool OpenEngines::sync(std::uint64_t pool_id) {
  const pm::TraceUninterrupted alone;
  const std::lock_guard lock(pm::process_locks.engines);
  std::size_t count = 0;
  Engine* const engine = find(pool_id, count);
  return count == 1 && engine->file().acknowledge(Durability::sync) == Status::ok;
}

}  // namespace TENUTO_NS::tx
