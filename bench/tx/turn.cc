// The child process of a turn; see turn.h.
#include "bench/tx/turn.h"

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "bench/support/clock.h"
#include "bench/support/rng.h"
#include "bench/support/step_counter.h"
#include "bench/tx/row.h"

namespace bench {
namespace {

constexpr unsigned kTurnSecondsMax = 600;
constexpr const char* kFailed = "a transaction failed, or found what should not be there";

// How a thread of the turn went.
struct Went {
  const char* wrong = nullptr;
  std::uint64_t ticks = 0;
  double cpu_ns = 0;
};

double thread_cpu_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

class Turn {
 public:
  Turn(TxEngine& engine, const TxCase& what, const TurnOptions& o, TurnResult& r)
      : engine_(engine), what_(what), o_(o), r_(r) {}

  const char* time() {
    std::vector<Went> went(o_.threads);
    std::barrier<> line_up(static_cast<std::ptrdiff_t>(o_.threads));
    std::vector<std::thread> others;
    for (unsigned t = 1; t < o_.threads; ++t) {
      others.emplace_back([&, t] { went[t] = time_thread(t, line_up); });
    }
    went[0] = time_thread(0, line_up);
    for (std::thread& t : others) t.join();
    const auto transactions = static_cast<double>(o_.batches * o_.size.batch);
    r_.mops = r_.tx_ns = r_.cpu_ns = 0;
    for (const Went& w : went) {
      if (w.wrong != nullptr) return w.wrong;
      const double ns = seconds_of(w.ticks) * 1e9 / transactions;
      r_.mops += 1e3 / ns;
      r_.tx_ns += ns / o_.threads;
      r_.cpu_ns += w.cpu_ns / transactions / o_.threads;
    }
    return nullptr;
  }

  const char* count() {
    const std::unique_ptr<Work> work = engine_.work(what_, o_.size, 0);
    if (work == nullptr) return "the engine has no such case";
    if (const char* wrong = work->prepare()) return wrong;
    if (const char* wrong = play_batch(*work)) return wrong;
    if (const char* wrong = count_batch(*work)) return wrong;
    return work->settle();
  }

 private:
  static constexpr std::uint64_t kSeed = 20;

  Went time_thread(unsigned thread, std::barrier<>& line_up) {
    Went went;
    const std::unique_ptr<Work> work = engine_.work(what_, o_.size, thread);
    if (work == nullptr)
      went.wrong = "the engine has no such case";
    else
      went.wrong = work->prepare();
    if (went.wrong == nullptr) went.wrong = play_batch(*work);
    for (std::uint64_t b = 0; b < o_.batches && went.wrong == nullptr; ++b) {
      line_up.arrive_and_wait();
      const double cpu_start = thread_cpu_ns();
      const std::uint64_t start = ticks();
      const bool ran = work->run(0, o_.size.batch);
      went.ticks += ticks() - start;
      went.cpu_ns += thread_cpu_ns() - cpu_start;
      went.wrong = ran ? work->settle() : kFailed;
    }
    line_up.arrive_and_drop();  // so that nobody waits for a thread that has failed
    return went;
  }

  // Fills caches and takes slabs.
  const char* play_batch(Work& work) {
    return work.run(0, o_.size.batch) ? work.settle() : kFailed;
  }

  // The sampled transactions are at random places of equal parts of the batch, so that work that
  // comes with every so many of them has its share.
  const char* count_batch(Work& work) {
    const std::uint64_t batch = o_.size.batch;
    const std::uint64_t samples = std::min<std::uint64_t>({o_.samples, kSamplesMax, batch});
    Rng rng(kSeed);
    StepCounter steps;
    // The counter's own instructions, and those of the call.
    const auto nothing =
        make_row([](std::uint64_t) { return true; }, [](std::uint64_t) { return kFailed; });
    const TxCounts own = count_one(steps, *nothing, 0);
    bool ran = true;
    for (std::uint64_t i = 0, done = 0; i < samples && ran; ++i) {
      const std::uint64_t from = i * batch / samples;
      const std::uint64_t to = (i + 1) * batch / samples;
      const std::uint64_t chosen = from + rng.below(to - from);
      ran = work.run(done, chosen - done);
      TxCounts& one = r_.counts[r_.counted++];
      one = count_one(steps, work, chosen, &ran);
      if (one.instructions >= 0) one.instructions -= own.instructions;
      done = chosen + 1;
      if (i + 1 == samples) ran = ran && work.run(done, batch - done);
    }
    return ran ? nullptr : kFailed;
  }

  // Medium `model` counts itself, and has its own instructions.
  TxCounts count_one(StepCounter& steps, Work& work, std::uint64_t i, bool* ran = nullptr) {
    bool done = false;
    TxCounts one;
    const EngineCounters before = engine_.counters();
    if (before.fences >= 0) {
      done = work.run(i, 1);
      const EngineCounters used = difference(engine_.counters(), before);
      one = {-1, used.fences, used.lines_flushed};
    } else {
      const StepCounts c = steps.count([&] { done = work.run(i, 1); });
      one = {static_cast<double>(c.instructions), static_cast<double>(c.fences), c.lines()};
    }
    if (ran != nullptr) *ran = *ran && done;
    return one;
  }

  TxEngine& engine_;
  const TxCase& what_;
  const TurnOptions& o_;
  TurnResult& r_;
};

int refused(TurnResult& r, const char* what, const std::string& why) {
  std::snprintf(r.error, sizeof r.error, "%s: %s", what, why.c_str());
  return 1;
}

int run_turn(const TxEngineKind& kind, const TxCase& what, const TurnOptions& o, TurnResult& r) {
  const std::unique_ptr<TxEngine> engine = kind.make();
  // A node has a key and pointers beside its value, and a tree's element a fork.
  constexpr std::uint64_t kOverheadBytes = 256;
  const std::uint64_t live = o.threads * o.size.batch * (o.size.value_bytes + kOverheadBytes);
  if (!engine->open({o.dir, o.medium, o.threads, live})) {
    return refused(r, "open", engine->error());
  }
  Turn turn(*engine, what, o, r);
  if (const char* wrong = o.samples > 0 ? turn.count() : turn.time()) {
    return refused(r, what.name, wrong);
  }
  if (!engine->validate()) return refused(r, "validate", engine->error());
  if (!engine->close()) return refused(r, "close", engine->error());
  r.finished = true;
  return 0;
}

}  // namespace

void play(const TxEngineKind& kind, const TxCase& what, const TurnOptions& o,
          Shared<TurnResult>& result) {
  result.reset();
  TurnResult& r = *result;
  ns_per_tick();  // calibrates once here instead of in every child
  const pid_t child = start_child([&] { return run_turn(kind, what, o, r); });
  std::string why = child < 0 ? std::string("fork: ") + std::strerror(errno) : "";
  if (child >= 0 && wait_child(child, kTurnSecondsMax, why)) return;
  r.finished = false;
  if (r.error[0] == '\0') refused(r, "the turn", why);
}

}  // namespace bench
