#include "process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "support/failing_calls.h"
#include "support/failing_memory.h"
#include "tenuto/pool.h"

namespace tenuto::life {
namespace fs = std::filesystem;

namespace {

// A static object whose destructor closes the stores at the end of the process.
struct AtExit {
  std::function<void()> close;
  ~AtExit() {
    if (close) close();
  }
};
AtExit at_exit;

}  // namespace

std::string World::path_of(unsigned s, unsigned path) const {
  const std::string name = "s" + std::to_string(s) + ".tnt";
  switch (path) {
    case 1:
      return folder + "/other/link-to-" + name;
    case 2:
      return name;
    case 3:
      return folder + "/other/hard-" + name;
    default:
      return folder + "/" + name;
  }
}
std::string World::journal_elsewhere(unsigned s) const {
  return folder + "/elsewhere" + std::to_string(s) + ".journal";
}
std::string World::side_of(unsigned s) const {
  return folder + "/side" + std::to_string(s) + ".tnt";
}
std::string World::backup_of(unsigned to) const {
  return folder + "/backup" + std::to_string(to) + ".tnt";
}

bool World::may_keep_others(Pool& pool) const {
  if (pool.info().layout != kRootLayout) return false;
  const auto root = pool.root<RootObject>(kRootLayout);
  return root && (*root)->shelf.may_keep_others(story.consistency);
}

StoreOptions World::options_of(unsigned s, unsigned path) const {
  StoreOptions o;
  o.pool.size = story.pool_bytes;
  o.pool.size_max = story.pool_bytes_max;
  o.pool.medium = story.medium;
  o.pool.consistency = static_cast<Consistency>(story.consistency);
  o.pool.recovery_threads = 1;
  // Without it a word of the root may happen to look like a pointer of the other kind, and keep a
  // block after a crash. Of the second pool the root is smaller: it is read word by word.
  o.pool.root_filter = reference_filter<RootObject>();
  o.pool.journal.bytes = 256u << 10;  // the least size, so that there are many checkpoints
  o.pool.journal.sync_every_ms = static_cast<unsigned>(story.sync_ms);
  if (path == 4) o.pool.journal.path = journal_elsewhere(s);
  o.order = story.numbers ? KeyOrder::u64 : KeyOrder::bytes;
  o.snapshot_bytes_max = story.snapshot_bytes_max;
  o.lookup_cache_bytes = story.lookup_bytes;
  o.pool.heap.memory_max = story.records_from;
  o.pool.heap.numa.nodes = static_cast<unsigned>(story.nodes);
  o.pool.canaries = story.canaries != 0;
  const bool turned_off = story.wear == 2 && shared.fresh.load() % 2 != 0;
  o.pool.heap.wear_levelling = story.wear != 0 && !turned_off;
  o.pool.heap.wear_rest_ms = story.wear > 2 ? static_cast<std::int64_t>(story.wear) : 0;
  o.codecs = {masked_codec()};
  o.reclaim_every_ms = story.reclaim_ms;
  o.clock_ms = [&state = shared] { return state.clock_ms.load(); };
  return o;
}

// A store reads the clock only when a call needs it, for example for a snapshot. This makes the
// store know every time that was shown.
void World::ask_for_time(unsigned s) { static_cast<void>(store[s].store->snapshot()); }

void World::let_calls_be() {
  if (calls_fail.exchange(false)) test::fail_call_anywhere(0, 0, false);
}

void World::broken(const std::string& what) {
  if (shared.failing.exchange(1) == 0) {
    std::snprintf(shared.failure, sizeof shared.failure, "%s", what.c_str());
  }
  ::_exit(kExitBroken);
}

Process::Process(World& world) : world_(world), crew_(kThreadsMax) {
  for (unsigned t = 0; t < kThreadsMax; ++t) actors_.push_back(std::make_unique<Actor>(world, t));
}

void Process::live(std::size_t from) {
  const std::vector<Step>& steps = world_.story.steps;
  const unsigned threads = std::clamp(world_.story.threads, 1u, kThreadsMax);
  std::size_t i = from;
  while (i < steps.size()) {
    const bool room = std::ranges::all_of(actors_, [](const auto& a) { return a->room(); });
    if (!room) {
      world_.shared.next_step.store(i);
      leave(0, i);
    }
    if (info_of(steps[i].verb).where != Where::any) {
      world_.shared.next_step.store(i + 1);
      main_step(steps[i], i);
      ++i;
    } else if (!world_.story.at_once) {
      world_.shared.next_step.store(i + 1);
      const unsigned t = steps[i].thread % threads;
      crew_.run(t, [&] { actors_[t]->act(steps[i], i); });
      ++i;
    } else {
      std::size_t to = i;
      while (to < steps.size() && info_of(steps[to].verb).where == Where::any) ++to;
      world_.shared.next_step.store(to);
      std::vector<std::function<void()>> work;
      for (unsigned t = 0; t < threads; ++t) {
        const bool any = std::any_of(steps.begin() + static_cast<std::ptrdiff_t>(i),
                                     steps.begin() + static_cast<std::ptrdiff_t>(to),
                                     [&](const Step& step) { return step.thread % threads == t; });
        work.emplace_back();
        if (!any) continue;
        work.back() = [&, t, i] {
          for (std::size_t at = i; at < to && actors_[t]->room(); ++at) {
            if (steps[at].thread % threads == t) actors_[t]->act(steps[at], at);
          }
        };
      }
      world_.alone = std::ranges::count_if(work, [](const auto& w) { return w != nullptr; }) == 1;
      crew_.run_all(work, world_.story.gusts_us, world_.story.seed + i);
      i = to;
    }
  }
  world_.shared.next_step.store(steps.size());
  leave(0, steps.size());
}

void Process::main_step(const Step& step, std::size_t number) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  world_.shared.step[0].store(static_cast<std::uint32_t>(number) + 1);
  world_.shared.call[0].store(static_cast<std::uint32_t>(step.verb) + 1);
  const bool own_work = step.verb != Verb::open && step.verb != Verb::close &&
                        step.verb != Verb::clock && step.verb != Verb::meet;
  if (own_work) world_.let_calls_be();
  switch (step.verb) {
    case Verb::open:
      open(step, number);
      break;
    case Verb::close:
      close(s, number);
      break;
    case Verb::validate:
      validate(s, number);
      break;
    case Verb::look:
      // A store that a failure has stopped cannot be looked at.
      if (world_.store[s].store != nullptr &&
          world_.store[s].store->pool().health() == Status::ok) {
        actors_[0]->look(s, number, false);
      }
      break;
    case Verb::rest:
      rest(step, number);
      break;
    case Verb::check_backup:
      check_backup(step, number);
      break;
    case Verb::clock: {
      const auto now = static_cast<std::int64_t>(world_.shared.clock_ms.load());
      world_.shared.clock_ms.store(
          static_cast<std::uint64_t>(std::max<std::int64_t>(1, now + step.a[0])));
      for (unsigned t = 0; t < kStores; ++t) {
        if (world_.store[t].store == nullptr) continue;
        world_.ask_for_time(t);
        actors_[0]->recorder().begin(Verb::clock, number, t, {world_.shared.clock_ms.load()});
        actors_[0]->recorder().end(Status::ok);
      }
      break;
    }
    case Verb::thread_end: {
      const unsigned t = static_cast<unsigned>(step.a[0]) % kThreadsMax;
      if (t != 0) {
        crew_.run(t, [&] { actors_[t]->drop_views(); });
        crew_.end(t);
      }
      break;
    }
    case Verb::meet:
      break;
    case Verb::forge:
      forge(step);
      break;
    case Verb::copy:
      copy(step, number);
      break;
    case Verb::restore:
      restore(step, number);
      break;
    case Verb::rescue:
      rescue(step, number);
      break;
    case Verb::other_opens:
      other_opens(step, number);
      break;
    case Verb::fork_child:
      fork_child(step, number);
      break;
    case Verb::kill_soon:
      kill_soon(step);
      break;
    case Verb::kill:
      world_.shared.kill_wanted.store(1);
      ::kill(::getpid(), SIGKILL);
      std::abort();
    default:  // leave
      leave(step.a[0], number);
  }
  world_.shared.step[0].store(0);
}

void Process::drop_handles(unsigned s) {
  for (unsigned t = 0; t < kThreadsMax; ++t) {
    for (CursorSlot& c : world_.cursor[t]) {
      if (c.cursor && c.store == s) c = {};
    }
    const bool has_view = std::ranges::any_of(
        world_.view[t], [&](const ViewSlot& v) { return v.view && v.store == s; });
    if (has_view) crew_.run(t, [&] { actors_[t]->drop_views(); });
  }
}

bool Process::close(unsigned s, std::size_t number) {
  StoreSlot& slot = world_.store[s];
  if (slot.store == nullptr) return true;
  drop_handles(s);
  if (number % 3 == 0) slot.side.reset();  // before the store, after it, or with the process
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::close, number, s, {});
  const Status status = slot.store->close();
  for (Collection& c : slot.collection) c = {};
  slot.store.reset();
  if (number % 3 == 1) slot.side.reset();
  record.end(status);
  return status == Status::ok;
}

void Process::validate(unsigned s, std::size_t number) {
  StoreSlot& slot = world_.store[s];
  if (slot.store == nullptr) return;
  Report report;
  Recorder& record = actors_[0]->recorder();
  record.begin(Verb::validate, number, s, {});
  Status status = slot.store->validate(&report);
  if (status == Status::ok) status = slot.store->pool().validate(&report);
  const Status health = slot.store->pool().health();
  record.end(status);
  // After a failed system call a pool may be in any state.
  if (status != Status::ok && health == Status::ok && status != Status::io) {
    world_.broken("validate says " + std::string(status_name(status)) + ": " + report.text());
  }
  // All objects of a life are the root's.
  if (status != Status::ok) return;
  const Result<Garbage> g = slot.store->pool().find_garbage({}, &report);
  if (!g && g.error() != Status::busy && slot.store->pool().health() == Status::ok) {
    world_.broken("find_garbage says " + report.text());
  }
  const bool lost = g && !g->lost.empty();
  if (lost && !world_.may_keep_others(slot.store->pool())) world_.broken("objects are lost");
  compact_objects(slot.store->pool(), number);
  check_side(s);
}

// Objects with types go elsewhere, which nothing that a look sees may tell.
void Process::compact_objects(Pool& pool, std::size_t number) {
  const PoolInfo info = pool.info();
  if (info.layout != kRootLayout || info.read_only) return;
  Report report;
  CompactObjectsOptions options = compaction_of_objects(number % 2 == 0 ? 1 : 0.7);
  options.moves_max = number % 3 * 10;
  const Result<CompactObjectsStats> done = pool.compact(options, &report);
  const bool may_fail = !done && (done.error() == Status::busy || done.error() == Status::full ||
                                  done.error() == Status::io);
  if (!done && !may_fail && pool.health() == Status::ok) {
    world_.broken("Pool::compact says " + report.text());
  }
}

// Steps that end the process, or concern other processes.

void Process::kill_soon(const Step& step) {
  world_.shared.kill_wanted.store(1);
  world_.calls_fail.store(false);
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(1, step.a[1]));
  switch (step.a[0] % 3) {
    case 0:
      test::kill_at_allocation(n);
      break;
    case 1:
      test::fail_call_anywhere(static_cast<int>(n), test::kKillProcess, false);
      break;
    default:
      std::thread([n] {
        std::this_thread::sleep_for(std::chrono::microseconds(n));
        ::kill(::getpid(), SIGKILL);
      }).detach();
  }
}

// The exit of a forked child destroys the stores, as a program's static objects are.
void Process::at_exit_for_forked() {
  at_exit.close = [this] {
    for (StoreSlot& slot : world_.store) {
      for (Collection& c : slot.collection) c = {};
      slot.store.reset();
    }
    close_sides();
  };
}

void Process::leave(std::int64_t how, std::size_t number) {
  world_.let_calls_be();
  test::fail_call_anywhere(0, 0, false);
  world_.shared.call[0].store(static_cast<std::uint32_t>(Verb::leave) + 1);
  const auto close_all = [this, number] {
    for (unsigned s = 0; s < kStores; ++s) close(s, number);
    close_sides();
  };
  const auto ended = [this] { world_.shared.ended.store(1); };
  switch (how % 5) {
    case 0:  // a clean end
      for (unsigned t = 1; t < kThreadsMax; ++t) crew_.run(t, [&] { actors_[t]->drop_views(); });
      for (unsigned t = 1; t < kThreadsMax; ++t) crew_.end(t);
      close_all();
      ended();
      ::_exit(0);
    case 1:  // no close
      ended();
      ::_exit(0);
    case 2:  // from a static object's destructor, while threads rest
      for (unsigned s = 0; s < kStores; ++s) drop_handles(s);
      crew_.abandon();
      at_exit.close = [close_all, ended] {
        close_all();
        ended();
      };
      std::exit(0);
    case 3:  // main's objects are destroyed before static ones, while threads rest
      close_all();
      crew_.abandon();
      ended();
      std::exit(0);
    default:  // snapshots and transactions are destroyed after their store
      close_all();
      for (auto& slots : world_.transaction) {
        for (TransactionSlot& x : slots) x = {};
      }
      for (SnapshotSlot& n : world_.snapshot) n = {};
      crew_.abandon();
      ended();
      ::_exit(0);
  }
  std::abort();
}

}  // namespace tenuto::life
