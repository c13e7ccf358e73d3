// The child processes that run a case; see stage.h.
#include "bench/alloc/stage.h"

#include <signal.h>

#include <barrier>
#include <cstdio>
#include <cstring>
#include <deque>
#include <thread>

#include "bench/support/clock.h"

namespace bench {
namespace {

constexpr std::size_t kLineBytes = 64;

int refuse(AllocResult& r, const char* what, const std::string& why) {
  std::snprintf(r.error, sizeof r.error, "%s: %s", what, why.c_str());
  return 1;
}

std::size_t stride_of(const Allocator& allocator, bool apart) {
  return apart ? kLineBytes : allocator.word_bytes();
}

AllocatorOptions options_of(const StageOptions& o, const Case& work, const Allocator& allocator) {
  AllocatorOptions a{o.dir, o.medium, work.slots() * stride_of(allocator, o.apart)};
  a.live_bytes = work.live_bytes();
  a.ablation = o.ablation;
  a.threads = o.work.threads;
  a.verify = o.verify;
  a.linked = work.linked();
  return a;
}

// An open allocator with the hands of all threads.
class Stage {
 public:
  Stage(Allocator& allocator, Case& work, const StageOptions& o, Slots slots, AllocResult& r)
      : allocator_(allocator), case_(work), r_(r), ledger_(work.slots(), o.verify) {
    for (unsigned t = 0; t < o.work.threads; ++t) {
      hands_.emplace_back(allocator, slots, ledger_, t, o.work.batch, o.timed);
    }
    r_.heap_start = allocator.heap_bytes();
    const std::uint64_t interval = std::max<std::uint64_t>(1, case_.ops() / case_.samples());
    hands_.front().sample_each(interval, [this] { sample(); });
  }

  void run() {
    on_all_threads([this](Hands& h) { case_.prepare(h); });
    sample();
    for (Hands& h : hands_) h.reset_counts();
    const EngineCounters before = allocator_.counters();
    r_.seconds = on_all_threads([this](Hands& h) { case_.run(h); });
    r_.counted = difference(allocator_.counters(), before);
    sample();
    r_.shape = allocator_.shape();
    for (const Hands& h : hands_) {
      r_.ops += h.ops();
      r_.latency.merge(h.ticks_per_group());
    }
    case_.conclude(r_.findings);
    r_.ran = true;
    gather_failures();
  }

  // Checks and frees every block that is still live.
  void clear() {
    r_.failures = 0;
    for (std::uint32_t slot = 0; slot < ledger_.slots(); ++slot) {
      if (ledger_.live(slot)) hands_.front().drop(slot);
    }
    hands_.front().settle();
    r_.heap_after = static_cast<double>(heap_above_start());
    gather_failures();
  }

 private:
  // Seconds from the first thread's start to the last thread's end.
  template <class Body>
  double on_all_threads(Body&& body) {
    const std::size_t n = hands_.size();
    std::vector<std::uint64_t> started(n);
    std::vector<std::uint64_t> ended(n);
    std::barrier start(static_cast<std::ptrdiff_t>(n));
    const auto work = [&](std::size_t i) {
      start.arrive_and_wait();
      started[i] = ticks();
      body(hands_[i]);
      ended[i] = ticks();
    };
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < n; ++i) others.emplace_back(work, i);
    work(0);
    for (std::thread& t : others) t.join();
    return seconds_of(*std::max_element(ended.begin(), ended.end()) -
                      *std::min_element(started.begin(), started.end()));
  }

  std::uint64_t heap_above_start() {
    const std::uint64_t now = allocator_.heap_bytes();
    return now > r_.heap_start ? now - r_.heap_start : 0;
  }
  void sample() {
    r_.heap_peak = std::max(r_.heap_peak, heap_above_start());
    if (const double file = allocator_.file_bytes(); file >= 0)
      r_.file_peak = std::max(r_.file_peak, file - static_cast<double>(r_.heap_start));
    std::int64_t live = 0;
    for (const Hands& h : hands_) live += h.live_bytes();
    r_.live_peak =
        std::max(r_.live_peak, static_cast<std::uint64_t>(std::max<std::int64_t>(live, 0)));
  }
  void gather_failures() {
    r_.failures = 0;
    for (const Hands& h : hands_) {
      if (r_.failures == 0 && h.failures() > 0) {
        std::snprintf(r_.first_failure, sizeof r_.first_failure, "%s", h.first_failure().c_str());
      }
      r_.failures += h.failures();
    }
  }

  Allocator& allocator_;
  Case& case_;
  AllocResult& r_;
  Ledger ledger_;
  std::deque<Hands> hands_;
};

int run_case(const AllocatorKind& kind, const CaseKind& what, const StageOptions& o,
             AllocResult& r) {
  const std::unique_ptr<Allocator> allocator = kind.make();
  const std::unique_ptr<Case> work = what.make(o.work);
  if (!allocator->open(options_of(o, *work, *allocator))) {
    return refuse(r, "open", allocator->error());
  }
  std::snprintf(r.medium, sizeof r.medium, "%s", allocator->medium().c_str());
  const Slots slots = {allocator->root(), stride_of(*allocator, o.apart)};
  if (slots.first == nullptr) return refuse(r, "root", allocator->error());
  {
    Stage stage(*allocator, *work, o, slots, r);
    stage.run();
    if (what.reopened && kind.persistent) {
      work->flush_contents(*allocator, slots);
      if (!allocator->sync()) return refuse(r, "sync", allocator->error());
      ::raise(SIGKILL);
    }
    stage.clear();
  }
  if (!allocator->validate()) return refuse(r, "validate", allocator->error());
  if (!allocator->close()) return refuse(r, "close", allocator->error());
  r.finished = true;
  return 0;
}

int open_again(const AllocatorKind& kind, const CaseKind& what, const StageOptions& o, double& ms,
               double& recovery_ms, AllocResult& r) {
  const std::unique_ptr<Allocator> allocator = kind.make();
  const std::unique_ptr<Case> work = what.make(o.work);
  const AllocatorOptions options = options_of(o, *work, *allocator);
  const std::uint64_t start = ticks();
  if (!allocator->open(options)) return refuse(r, "open again", allocator->error());
  const Slots slots = {allocator->root(), stride_of(*allocator, o.apart)};
  ms = milliseconds_since(start);
  recovery_ms = allocator->recovery_ms();
  if (slots.first == nullptr) return refuse(r, "root", allocator->error());
  if (const char* wrong = work->inspect(*allocator, slots)) {
    return refuse(r, "what was found after opening again", wrong);
  }
  if (!allocator->validate()) return refuse(r, "validate", allocator->error());
  return allocator->close() ? 0 : refuse(r, "close", allocator->error());
}

// Returns false if the child failed; the result has the reason.
bool in_child(const std::function<int()>& body, unsigned seconds_max, AllocResult& r,
              bool killed = false) {
  const pid_t child = start_child(body);
  std::string why;
  if (child < 0) {
    refuse(r, "fork", std::strerror(errno));
    return false;
  }
  if (wait_child(child, seconds_max, why)) return true;
  if (killed && r.ran && why == std::string("died: ") + ::strsignal(SIGKILL)) return true;
  if (r.error[0] == '\0') refuse(r, "the turn", why);
  return false;
}

}  // namespace

void play(const AllocatorKind& kind, const CaseKind& what, const StageOptions& o,
          Shared<AllocResult>& result) {
  result.reset();
  AllocResult& r = *result;
  ns_per_tick();  // calibrates once here instead of in every child
  const bool reopened = what.reopened && kind.persistent;
  if (!in_child([&] { return run_case(kind, what, o, r); }, o.seconds_max, r, reopened)) return;
  if (!reopened) return;
  r.finished =
      in_child([&] { return open_again(kind, what, o, r.open_killed_ms, r.recovery_ms, r); },
               o.seconds_max, r) &&
      in_child([&] { return open_again(kind, what, o, r.open_ms, r.recovery_clean_ms, r); },
               o.seconds_max, r);
}

}  // namespace bench
