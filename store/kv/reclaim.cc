#include "store/kv/reclaim.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "pm/no_memory.h"
#include "pm/plant.h"
#include "pm/thread.h"
#include "store/kv/cursor.h"

namespace TENUTO_NS::store {

namespace {

// A cursor holds garbage back, so a new one is taken after so many records.
constexpr std::uint64_t kAtATime = 1000;

// The longest pause. A much longer one would overflow the time at which it ends, which would then
// be over at once.
constexpr std::uint64_t kPauseMsMax = 365ull * 24 * 3600 * 1000;

Status erase_if_expired(const CollectionState& state, const std::string& key, TimeMs time,
                        bool& erased) {
  const CollectionUse use(&state);
  TENUTO_TRY(use.status());
  return use->put_when(key, [&](const Record* old) -> Decision {
    erased = old != nullptr && !state.encoding.live(old->value, time);
    return {erased ? Decision::What::erase : Decision::What::leave};
  });
}

}  // namespace

Status Reclaimer::walk(const std::shared_ptr<CollectionState>& state, TimeMs time,
                       std::uint64_t records_max, std::uint64_t& looked_at, std::uint64_t& erased) {
  std::string& from = place_[state->id];
  for (;;) {
    const std::uint64_t now = std::min(kAtATime, records_max - looked_at);
    std::vector<std::string> expired;
    bool at_end = false;
    {
      Cursor cursor(state, {}, nullptr, nullptr, nullptr);
      cursor.seek(from);
      for (std::uint64_t i = 0; cursor.valid() && i < now; ++i, cursor.next()) {
        ++looked_at;
        if (!state->encoding.live(cursor.value(), time)) expired.emplace_back(cursor.key());
      }
      at_end = !cursor.valid();
      if (!at_end) from = cursor.key();
      TENUTO_TRY(cursor.status());
    }
    for (const std::string& key : expired) {
      bool gone = false;
      TENUTO_TRY(erase_if_expired(*state, key, time, gone));
      erased += gone ? 1 : 0;
    }
    if (at_end) place_.erase(state->id);
    if (at_end || looked_at == records_max) return Status::ok;
  }
}

Result<std::uint64_t> Reclaimer::run(std::uint64_t records_max) {
  const std::lock_guard lock(run_mu_);
  return look(records_max);
}

// Gives the freed blocks to all threads: this thread never needs them.
void Reclaimer::run_and_give(std::uint64_t records_max) {
  const std::lock_guard lock(run_mu_);
  const bool freed = all_.waiting().items != 0;
  const Result<std::uint64_t> erased = look(records_max);  // a failure shows in the next write
  if (freed || erased.value_or(0) != 0) all_.give_cached_blocks();
}

// REQUIRES: run_mu_.
Result<std::uint64_t> Reclaimer::look(std::uint64_t records_max) {
  TENUTO_TRY(all_.file().writable());
  if (!TENUTO_PLANT("store_reclaim_leaves_retired")) all_.make_room();
  std::vector<std::shared_ptr<CollectionState>> states;
  TENUTO_TRY(all_.expiring(states));
  std::erase_if(place_, [&](const auto& place) {  // of collections that were dropped
    return std::none_of(states.begin(), states.end(),
                        [&](const auto& state) { return state->id == place.first; });
  });
  if (records_max == 0) {
    place_.clear();
    next_ = {};
    records_max = ~0ull;
  }
  const auto at = std::find_if(states.begin(), states.end(),
                               [this](const auto& state) { return state->id >= next_; });
  std::rotate(states.begin(), at, states.end());
  std::uint64_t looked_at = 0;
  std::uint64_t erased = 0;
  if (states.empty()) return erased;
  start();  // again, if the system had no thread before
  const TimeMs time = all_.clock().confirmed();
  all_.keep_time();  // the next open must see as expired what is erased by this time
  for (const auto& state : states) {
    if (looked_at == records_max) break;
    const Status s = walk(state, time, records_max, looked_at, erased);
    if (s != Status::ok && s != Status::not_found) return s;  // not_found: dropped meanwhile
    next_ = place_.contains(state->id) ? state->id : TreeId{state->id.value + 1};
  }
  return erased;
}

// --- the thread ----------------------------------------------------------------------------------

void Reclaimer::set_pace(std::uint64_t every_ms, std::uint64_t at_once) {
  const std::lock_guard lock(thread_mu_);
  every_ms_ = std::min(every_ms, kPauseMsMax);
  at_once_ = std::max<std::uint64_t>(at_once, 1);
}

void Reclaimer::start() {
  std::unique_lock lock(thread_mu_);
  if (every_ms_ == 0 || stopping_ || thread_.joinable()) return;
  const auto begin = [this] { thread_ = pm::new_thread([this] { reclaim_now_and_then(); }); };
  if (TENUTO_PLANT("store_reclaimer_throws")) return begin();
  if (pm::had_thread(begin)) return;
  lock.unlock();
  static_cast<void>(pm::had_memory([this] {
    all_.file().log(
        "the thread that reclaims expired records cannot be started: they stay, hidden, until the "
        "next collection with lifetimes is made, or reclaim is called, and it can be");
  }));
}

void Reclaimer::reclaim_now_and_then() {
  std::unique_lock wait(thread_mu_);
  while (
      !wake_.wait_for(wait, std::chrono::milliseconds(every_ms_), [this] { return stopping_; })) {
    const std::uint64_t at_once = at_once_;
    wait.unlock();
    static_cast<void>(pm::had_memory([&] { run_and_give(at_once); }));
    wait.lock();
  }
}

void Reclaimer::stop() {
  std::thread ended;
  {
    const std::lock_guard lock(thread_mu_);
    stopping_ = true;
    ended = std::move(thread_);
  }
  wake_.notify_all();
  if (ended.joinable()) pm::join(ended);
}

// --- the parts of Collections for it -------------------------------------------------------------

Status Collections::expiring(std::vector<State>& out) {
  const std::lock_guard lock(mu_);
  out.clear();
  std::vector<CatalogEntry> entries;
  if (catalog_ != nullptr) TENUTO_TRY(catalog_->list(entries, nullptr));
  for (const CatalogEntry& entry : entries) {
    if (!entry.spec.expires) continue;
    const Result<State> state = get_locked(entry.name, nullptr);
    if (!state) return state.error();
    out.push_back(*state);
  }
  std::sort(out.begin(), out.end(), [](const State& a, const State& b) { return a->id < b->id; });
  return Status::ok;
}

Status Collections::start_reclaiming(Report* report) {
  if (ground_.file.writable() != Status::ok) return Status::ok;
  std::vector<CatalogEntry> entries;
  TENUTO_TRY(list(entries, report));
  const bool any = std::any_of(entries.begin(), entries.end(),
                               [](const CatalogEntry& entry) { return entry.spec.expires; });
  if (any) reclaimer_.start();
  return Status::ok;
}

}  // namespace TENUTO_NS::store
