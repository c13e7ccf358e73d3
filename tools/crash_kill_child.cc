// See crash_kill_child.h.
#include "crash_kill_child.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace tenuto::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kChildPoll = std::chrono::microseconds(100);
constexpr std::uint32_t kBurst = 16;         // operations with one engine before the next choice
constexpr std::uint64_t kCompactEvery = 16;  // bursts of single operations
constexpr const char* kLayout = "tenuto kill test 1";
constexpr const char* kNamed = "kill test";

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

void KillChild::run() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
  open();
  look();
  wait_for_the_judge();
  if (order_.reopen) {
    for (Collection& c : collection_) c = {};
    check(store_->close(), "close");
    store_.reset();
    open();
    look();
    wait_for_the_judge();
  }
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    const std::uint64_t stamp = state_.cell[kSlotCells + i];
    slot_bytes_ += stamp > kSlotRaw ? kill_stamp_bytes(stamp) : 0;
  }
  state_.phase = KillPhase::working;
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < order_.threads; ++t) threads.emplace_back([this, t] { work(t); });
  for (;;) ::pause();
}

void KillChild::fail(const std::string& what) {
  // Only the first failure is reported.
  if (state_.failing.exchange(1) == 0) {
    std::snprintf(state_.failure, sizeof state_.failure, "%s", what.c_str());
    std::_Exit(kKillExitFailed);
  }
  for (;;) ::pause();
}

void KillChild::open() {
  state_.phase = KillPhase::opening;
  StoreOptions o;
  o.pool.medium = order_.medium;
  o.pool.size = order_.pool_bytes;
  o.pool.size_max = order_.pool_bytes_max;
  // Half of the processes always punch holes and keep the bookkeeping log as short as possible.
  if (order_.seed % 2 == 0) {
    o.pool.heap.decay_ms = 0;
    o.pool.heap.book_chunks_least = o.pool.heap.book_dead_factor = 1;
  }
  Report report;
  const auto opening = Clock::now();
  auto opened = Store::open(order_.path, o, &report);
  if (!opened) fail("open: " + std::string(status_name(opened.error())) + " " + report.text());
  store_ = std::make_unique<Store>(std::move(*opened));
  state_.phase = KillPhase::checking;
  const PoolInfo info = store_->pool().info();
  KillFigures& f = state_.figures;
  f.open_ms = milliseconds_since(opening);
  f.recovery_ms = info.recovery_ms;
  f.rebuild_ms = store_->stats().rebuild_ms;
  f.opens += 1;
  f.unclean += info.was_clean ? 0 : 1;
  f.rolled_back += info.rolled_back;
  f.leaked_frames += info.leaked_frames;
  if (!info.was_clean) {
    f.recovery_ms_sum += info.recovery_ms;
    f.recovery_ms_max = std::max(f.recovery_ms_max, info.recovery_ms);
  }
  open_collections();
  auto root = store_->pool().root<KillRoot>(kLayout, &report);
  if (!root) fail("root: " + std::string(status_name(root.error())) + " " + report.text());
  root_ = *root;
  const auto is_zero = [](std::uint64_t b) { return b == 0; };
  if (!std::all_of(std::begin(root_->balance), std::end(root_->balance), is_zero)) return;
  const Status s = store_->pool().run([this](Transaction& tx) {
    TENUTO_TRY(tx.add(root_->balance));
    for (std::uint64_t& b : root_->balance) b = kFirstBalance;
    return Status::ok;
  });
  check(s, "first balances");
}

void KillChild::open_collections() {
  Report report;
  CollectionOptions o;
  o.order = KeyOrder::reverse;
  o.check_order = true;
  auto named = store_->collection(kNamed, o, &report);
  if (!named) fail("collection: " + std::string(status_name(named.error())) + " " + report.text());
  const auto all = store_->collections(&report);
  if (!all || all->size() != 1) fail("there is not one named collection: " + report.text());
  collection_[0] = *store_;
  collection_[1] = std::move(*named);
}

void KillChild::look() {
  const auto start = Clock::now();
  KillSight& sight = state_.sight;
  sight.extents = 0;
  add_extent(root_, sizeof *root_, "the root");
  for (const Collection& collection : collection_) look_at_keys(collection);
  std::copy(std::begin(root_->balance), std::end(root_->balance), sight.cell + kBalanceCells);
  look_at_chains();
  look_at_slots();
  const PoolStats stats = store_->pool().stats();
  sight.objects = stats.objects;
  state_.figures.morphed_slabs += stats.morphed_slabs;
  Report report;
  if (store_->validate(&report) != Status::ok) fail("validate: " + report.text());
  state_.figures.look_ms = milliseconds_since(start);
}

void KillChild::look_at_keys(const Collection& collection) {
  KillSight& sight = state_.sight;
  std::vector<std::pair<std::string, std::uint32_t>> keys;
  std::string value;
  std::string expected;
  std::size_t there = 0;
  const KillRecords& records = *state_.records;
  for (std::uint32_t k = 0; k < records.count(); ++k) {
    if (home_of(k).id() != collection.id()) continue;
    const std::string key = records.key(k);
    sight.key[k] = 0;
    const Status s = collection.get(key, value);
    if (s == Status::not_found) continue;
    check(s, "get");
    sight.key[k] = records.version(key, value);
    records.value(k, sight.key[k], expected);
    if (value != expected) fail("torn value of key " + key);
    keys.emplace_back(key, k);
    ++there;
  }
  std::sort(keys.begin(), keys.end());
  if (collection.order() == KeyOrder::reverse) std::reverse(keys.begin(), keys.end());
  std::size_t seen = 0;
  Iterator it = collection.iterator();
  for (it.seek_first(); it.valid(); it.next(), ++seen) {
    if (seen >= there || it.key() != keys[seen].first) {
      fail("a scan finds the key " + std::string(it.key().substr(0, 60)) + " out of place");
    }
    if (records.version(it.key(), it.value()) != sight.key[keys[seen].second]) {
      fail("scan and get differ about the key " + keys[seen].first);
    }
  }
  check(it.status(), "iterator");
  if (seen != there) {
    fail(std::to_string(there) + " keys by get, " + std::to_string(seen) + " by a scan");
  }
}

void KillChild::look_at_chains() {
  for (std::uint32_t c = 0; c < kChains; ++c) {
    const KillChain& chain = root_->chain[c];
    state_.sight.cell[kChainCells + c] = kill_chain_state(chain);
    std::uint64_t nodes = 0;
    for (KillNode* n = chain.head.get(); n != nullptr; n = n->next.get()) {
      if (++nodes > kChainNodesMax) fail("chain " + std::to_string(c) + " does not end");
      add_extent(n, sizeof *n + n->words * 8, "a node of a chain");
      for (std::uint64_t i = 0; i < n->words; ++i) {
        if (*n->at(i) != n->filling(i)) fail("a torn node in chain " + std::to_string(c));
      }
    }
    if (nodes != chain.count) {
      fail("chain " + std::to_string(c) + " has " + std::to_string(nodes) + " nodes and counts " +
           std::to_string(chain.count));
    }
  }
}

void KillChild::look_at_slots() {
  std::vector<std::uint64_t> expected;
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    std::uint64_t& seen = state_.sight.cell[kSlotCells + i];
    const std::uint64_t* block = root_->block(i);
    seen = kSlotEmpty;
    if (block == nullptr) continue;
    const std::uint64_t usable = store_->pool().usable_size(block);
    add_extent(block, std::max<std::uint64_t>(usable, 1), "a slot's block");
    const std::uint64_t stamp = *block;
    const std::uint64_t bytes = kill_stamp_bytes(stamp);
    seen = kSlotTorn;
    if (stamp <= kSlotRaw || bytes < 16 || bytes % 8 != 0 || bytes > usable) continue;
    expected.resize(bytes / 8);
    kill_fill_slot(expected.data(), stamp);
    if (std::equal(expected.begin(), expected.end(), block)) seen = stamp;
  }
}

void KillChild::add_extent(const void* p, std::uint64_t bytes, const char* what) {
  const Pool& pool = store_->pool();
  const char* last = static_cast<const char*>(p) + bytes - 1;
  if (!pool.contains(p) || !pool.contains(last)) fail(std::string(what) + " is outside the pool");
  if (pool.usable_size(p) < bytes) fail(std::string(what) + " is no block of its size");
  KillSight& sight = state_.sight;
  if (sight.extents == std::size(sight.extent)) fail("more objects than there can be");
  sight.extent[sight.extents++] = {pool.offset_of(p).value, bytes};
}

void KillChild::wait_for_the_judge() {
  const std::uint32_t mine = state_.sights + 1;
  state_.phase = KillPhase::observed;
  state_.sights = mine;
  while (state_.judged < mine) std::this_thread::sleep_for(kChildPoll);
}

void KillChild::work(std::uint32_t thread) {
  KillRng rng{kill_hash(order_.seed, thread)};
  KvWork kv(*this, thread, rng());
  ObjectWork objects(*this, thread, rng());
  HeapWork heap(*this, thread, rng());
  std::vector<std::uint32_t> engines;
  for (std::uint32_t e = 1; e <= order_.engines; e <<= 1) {
    if ((order_.engines & e) != 0) engines.push_back(e);
  }
  for (;;) {
    const std::uint32_t engine = engines[rng.below(engines.size())];
    const bool keys = engine == kEngineKv || engine == kEngineBatch;
    if (keys && !kv.room()) {
      std::this_thread::sleep_for(kChildPoll);
      continue;
    }
    const bool compacts = engine == kEngineKv && order_.mix != KillMix::ycsb_a;
    if (compacts && rng.one_in(kCompactEvery)) kv.compact();
    for (std::uint32_t i = 0; i < kBurst && (!keys || kv.room()); ++i) {
      if (engine == kEngineKv) kv.single();
      if (engine == kEngineBatch) kv.batch();
      if (engine == kEngineObjects) objects.one();
      if (engine == kEngineHeap) heap.one();
    }
  }
}

void KillChild::begin_step(KillThreadLog& log, std::initializer_list<KillStep::Change> changes) {
  KillStep& step = log.step;
  std::copy(changes.begin(), changes.end(), step.change);
  step.changes = static_cast<std::uint32_t>(changes.size());
  step.state.store(KillStep::begun, std::memory_order_release);
}

void KillChild::end_step(KillThreadLog& log) {
  check(store_->sync(), "sync");  // on medium journal a fence alone acknowledges nothing
  KillStep& step = log.step;
  step.state.store(KillStep::done, std::memory_order_release);
  for (std::uint32_t i = 0; i < step.changes; ++i) {
    state_.cell[step.change[i].cell] = step.change[i].after;
  }
  step.state.store(KillStep::none, std::memory_order_release);
  log.steps.fetch_add(1, std::memory_order_relaxed);
}

void KillChild::cancel_step(KillThreadLog& log) {
  log.step.state.store(KillStep::none, std::memory_order_release);
}

}  // namespace tenuto::tool
