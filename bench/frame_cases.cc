#include "bench/frame_cases.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <thread>

#include "bench/support/clock.h"
#include "bench/support/rng.h"

namespace bench {

namespace {

constexpr std::uint64_t kHuge = 512;  // base frames of a huge frame

// --- threads -------------------------------------------------------------------------------------

void pin(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core % std::max(std::thread::hardware_concurrency(), 1u), &set);
  (void)::sched_setaffinity(0, sizeof set, &set);  // unpinned is slower, not wrong
}

class Stopwatch {
 public:
  explicit Stopwatch(bool cpu_clock) : cpu_(cpu_clock), begin_(now()) {}
  double seconds() const { return now() - begin_; }

 private:
  double now() const {
    if (!cpu_) return seconds_of(ticks());
    timespec t;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }
  bool cpu_;
  double begin_;
};

// Runs body(thread) on all threads at once. Returns the mean of their times.
double timed(const FrameRun& run, const std::function<void(unsigned)>& body) {
  std::barrier start(run.threads);
  std::vector<double> spent(run.threads);
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < run.threads; ++t) {
    pool.emplace_back([&, t] {
      pin(t);
      start.arrive_and_wait();
      const Stopwatch watch(run.cpu_clock);
      body(t);
      spent[t] = watch.seconds();
    });
  }
  double sum = 0;
  for (unsigned t = 0; t < run.threads; ++t) {
    pool[t].join();
    sum += spent[t];
  }
  return sum / run.threads;
}

// Checks that no two pieces overlap and that none leaves the pool.
std::string verify(const std::vector<std::vector<std::uint64_t>>& held, unsigned order,
                   std::uint64_t frames) {
  std::vector<bool> seen(frames >> order);
  for (const auto& list : held) {
    for (const std::uint64_t f : list) {
      if (f % (1u << order) != 0 || f + (1u << order) > frames) return "a misplaced frame";
      if (seen[f >> order]) return "a frame was handed out twice";
      seen[f >> order] = true;
    }
  }
  return "";
}

void finish(FrameSample& s, const FrameRun& run, std::uint64_t free_before) {
  if (s.wrong.empty()) s.wrong = run.engine.disagreement();
  if (s.wrong.empty() && run.engine.free_frames() != free_before) s.wrong = "frames were lost";
}

// Each thread takes `each` frames into its own list.
double get_all(const FrameRun& run, std::vector<std::vector<std::uint64_t>>& held,
               std::uint64_t each) {
  held.assign(run.threads, {});
  for (auto& list : held) list.assign(each, 0);  // touches the pages before the clock starts
  return timed(run, [&](unsigned t) {
    std::size_t n = 0;
    for (; n < each; ++n) {
      const auto f = run.engine.get(run.order, t);
      if (!f) break;
      held[t][n] = *f;
    }
    held[t].resize(n);
  });
}

double put_all(const FrameRun& run, const std::vector<std::vector<std::uint64_t>>& held,
               std::atomic<std::uint64_t>& refused) {
  return timed(run, [&](unsigned t) {
    for (const std::uint64_t f : held[t]) {
      if (!run.engine.put(f, run.order, t)) ++refused;
    }
  });
}

// --- cases ---------------------------------------------------------------------------------------

FrameSample bulk_or_rand(const FrameRun& run, bool random) {
  FrameSample s;
  const std::uint64_t free_before = run.engine.free_frames();
  const std::uint64_t usable = run.order >= 9 ? run.engine.free_huge_frames() * kHuge : free_before;
  const std::uint64_t each = (usable >> run.order) / run.threads / (random ? 1 : 2);
  std::vector<std::vector<std::uint64_t>> held;
  const double get_s = get_all(run, held, each);
  s.wrong = verify(held, run.order, run.engine.frames());
  std::uint64_t count = 0;
  for (const auto& list : held) count += list.size();
  if (!random && count != each * run.threads) s.wrong = "full with half of it free";
  if (random) {
    // Shuffles over all threads, so most frees go to trees that other threads allocated from.
    std::vector<std::uint64_t> all;
    for (const auto& list : held) all.insert(all.end(), list.begin(), list.end());
    Rng rng(run.seed);
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[rng.below(i)]);
    for (std::size_t i = 0, t = 0; t < held.size(); ++t) {
      const std::size_t n = held[t].size();
      held[t].assign(all.begin() + static_cast<std::ptrdiff_t>(i),
                     all.begin() + static_cast<std::ptrdiff_t>(i + n));
      i += n;
    }
  }
  std::atomic<std::uint64_t> refused = 0;
  const double put_s = put_all(run, held, refused);
  if (refused != 0) s.wrong = "a put was refused";
  const double per_thread = static_cast<double>(count) / run.threads;
  s.get_ns = get_s * 1e9 / per_thread;
  s.put_ns = put_s * 1e9 / per_thread;
  s.operations = 2 * count;
  finish(s, run, free_before);
  return s;
}

FrameSample repeat(const FrameRun& run) {
  FrameSample s;
  const std::uint64_t free_before = run.engine.free_frames();
  std::atomic<std::uint64_t> failed = 0;
  const double seconds = timed(run, [&](unsigned t) {
    for (std::uint64_t i = 0; i < run.repeats; ++i) {
      const auto f = run.engine.get(run.order, t);
      if (!f || !run.engine.put(*f, run.order, t)) ++failed;
    }
  });
  if (failed != 0) s.wrong = "a get or put was refused";
  s.get_ns = seconds * 1e9 / static_cast<double>(run.repeats);  // per pair
  s.operations = 2 * run.repeats * run.threads;
  finish(s, run, free_before);
  return s;
}

// The minimum number of frames to copy to empty as many huge frames as the free space allows.
std::uint64_t copies_needed(const std::vector<std::uint64_t>& held, std::uint64_t frames) {
  std::vector<std::uint32_t> used(frames / kHuge);
  for (const std::uint64_t f : held) ++used[f / kHuge];
  std::sort(used.begin(), used.end());
  const std::uint64_t emptied = (frames - held.size()) / kHuge;
  std::uint64_t copies = 0;
  for (std::uint64_t i = 0; i < emptied; ++i) copies += used[i];
  return copies;
}

// Fills the pool to 90 % and frees a random half. Each turn then frees and takes 10 % of the
// allocated frames, all of them single. Measures how many huge frames become free without
// compaction.
FrameSample fragment(const FrameRun& run) {
  FrameSample s;
  FrameEngine& e = run.engine;
  const std::uint64_t free_before = e.free_frames();
  Rng rng(run.seed);
  std::vector<std::uint64_t> held;
  const auto get = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      const auto f = e.get(0, static_cast<unsigned>(i % run.threads));
      if (!f) {
        s.wrong = "full";
        return;
      }
      held.push_back(*f);
    }
  };
  const auto put = [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      std::swap(held[rng.below(held.size())], held.back());
      if (!e.put(held.back(), 0, static_cast<unsigned>(i % run.threads))) s.wrong = "refused";
      held.pop_back();
    }
  };
  get(free_before / 10 * 9);
  put(held.size() / 2);
  const std::uint64_t huge_start = e.free_huge_frames();
  const double polluted = static_cast<double>(e.frames() / kHuge - huge_start);
  const double copies_start = static_cast<double>(copies_needed(held, e.frames()));
  const Stopwatch watch(run.cpu_clock);
  for (unsigned turn = 0; turn < run.turns; ++turn) {
    const std::uint64_t part = held.size() / 10;
    put(part);
    get(part);
    s.operations += 2 * part;
  }
  const double seconds = watch.seconds();
  s.get_ns = seconds * 1e9 / static_cast<double>(s.operations / 2);  // per pair
  s.huge_recovered =
      (static_cast<double>(e.free_huge_frames()) - static_cast<double>(huge_start)) / polluted;
  s.copies_left = static_cast<double>(copies_needed(held, e.frames())) / copies_start;
  if (s.wrong.empty()) s.wrong = verify({held}, 0, e.frames());
  put(held.size());
  finish(s, run, free_before);
  return s;
}

// Allocates a random half of the pool, then attaches again, clean and after a crash.
FrameSample open(const FrameRun& run) {
  FrameSample s;
  FrameEngine& e = run.engine;
  const std::uint64_t free_before = e.free_frames();
  Rng rng(run.seed);
  std::vector<std::uint64_t> held;
  while (const auto f = e.get(0, 0)) held.push_back(*f);
  for (std::size_t n = held.size() / 2; n > 0; --n) {
    std::swap(held[rng.below(held.size())], held.back());
    (void)e.put(held.back(), 0, 0);
    held.pop_back();
  }
  const Stopwatch clean(run.cpu_clock);
  if (!e.reopen_clean()) s.wrong = "clean open failed";
  s.open_clean_ms = clean.seconds() * 1e3;
  const Stopwatch crashed(run.cpu_clock);
  if (!e.reopen_crashed()) s.wrong = "open after a crash failed";
  const double attached = crashed.seconds();
  if (!e.keep(held)) s.wrong = "an owner was refused";
  const double kept = crashed.seconds();
  if (!e.finish_recovery()) s.wrong = "owned frames were given back";
  s.keep_ns = (kept - attached) * 1e9 / static_cast<double>(held.size());
  s.open_crashed_ms = (crashed.seconds() - (kept - attached)) * 1e3;
  for (const std::uint64_t f : held) {
    if (!e.put(f, 0, 0)) s.wrong = "an owned frame was lost";
  }
  s.operations = 1;
  finish(s, run, free_before);
  return s;
}

}  // namespace

const std::vector<FrameCase>& frame_cases() {
  static const std::vector<FrameCase> kCases = {
      {"bulk", "all threads take half of the pool, then give it back in the same order", false,
       false, [](const FrameRun& r) { return bulk_or_rand(r, false); }},
      {"rand", "all threads take all of the pool, then give it back in random order", false, false,
       [](const FrameRun& r) { return bulk_or_rand(r, true); }},
      {"repeat", "each thread takes and gives back one frame (figure: the pair)", false, false,
       repeat},
      {"fragment", "90 % full, a random half freed, then turns of renewing 10 % (order 0)", true,
       false, fragment},
      {"open", "half full at random: attaching after a clean close and after a crash (order 0)",
       true, true, open},
  };
  return kCases;
}

}  // namespace bench
