// frame_bench: the experiments of LLFree (ATC'23) on the frame allocator: bulk, rand, repeat, the
// fragmentation run, and opening. What they do is in --list; what they mean in src/frame/README.md.
#include <CLI/CLI.hpp>

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/frame_engine.h"
#include "bench/support/clock.h"
#include "bench/support/contest.h"
#include "bench/support/json_line.h"
#include "bench/support/report.h"
#include "bench/support/rng.h"

namespace {

using namespace bench;
using tenuto::Medium;

constexpr std::uint64_t kHuge = 512;  // base frames of a huge frame
constexpr unsigned kOrderMax = 10;

struct Options {
  std::vector<std::string> cases = {"bulk", "rand", "repeat", "fragment", "open"};
  std::vector<std::string> media = {"cache", "line"};
  std::vector<unsigned> threads = {1, 2};
  std::vector<unsigned> orders = {0, 9};
  std::uint64_t mib = 2048;
  std::uint64_t repeats = 2'000'000;  // pairs a thread in case repeat
  unsigned rounds = 5;
  unsigned turns = 100;  // of case fragment
  std::uint64_t seed = 42;
  std::string dir = "/dev/shm";
  std::string json;
  bool quick = false;
  bool list = false;
};

// What one round of one case found.
struct Sample {
  double get_ns = 0;  // an operation of one thread, all threads working
  double put_ns = 0;
  std::uint64_t operations = 0;
  double lines_per_op = 0;
  double reflushes_per_op = 0;
  double huge_recovered = 0;  // fragment: share of the polluted huge frames
  double copies_left = 0;     // fragment: compaction cost, share of that before
  double open_clean_ms = 0;   // open
  double open_crashed_ms = 0;
  std::string wrong;  // empty when all answers were right
};

struct Run {
  FrameEngine& engine;
  const Options& options;
  unsigned threads;
  unsigned order;
  std::uint64_t seed;
};

// --- threads -----------------------------------------------------------------------------------

void pin(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core % std::max(std::thread::hardware_concurrency(), 1u), &set);
  (void)::sched_setaffinity(0, sizeof set, &set);  // unpinned is slower, not wrong
}

// body(thread) on all threads at once; the mean of their ticks.
double timed(unsigned threads, const std::function<void(unsigned)>& body) {
  std::barrier start(threads);
  std::vector<std::uint64_t> spent(threads);
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      pin(t);
      start.arrive_and_wait();
      const std::uint64_t begin = ticks();
      body(t);
      spent[t] = ticks() - begin;
    });
  }
  double sum = 0;
  for (unsigned t = 0; t < threads; ++t) {
    pool[t].join();
    sum += seconds_of(spent[t]);
  }
  return sum / threads;
}

// Whether these pieces overlap or leave the pool.
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

void finish(Sample& s, const Run& run, std::uint64_t free_before) {
  if (s.wrong.empty()) s.wrong = run.engine.disagreement();
  if (s.wrong.empty() && run.engine.free_frames() != free_before) s.wrong = "frames were lost";
}

// Each thread takes `each` frames into its list.
double get_all(const Run& run, std::vector<std::vector<std::uint64_t>>& held, std::uint64_t each) {
  held.assign(run.threads, {});
  for (auto& list : held) list.assign(each, 0);  // pages are touched before the clock starts
  return timed(run.threads, [&](unsigned t) {
    std::size_t n = 0;
    for (; n < each; ++n) {
      const auto f = run.engine.get(run.order, t);
      if (!f) break;
      held[t][n] = *f;
    }
    held[t].resize(n);
  });
}

double put_all(const Run& run, const std::vector<std::vector<std::uint64_t>>& held,
               std::atomic<std::uint64_t>& refused) {
  return timed(run.threads, [&](unsigned t) {
    for (const std::uint64_t f : held[t]) {
      if (!run.engine.put(f, run.order, t)) ++refused;
    }
  });
}

// --- cases -------------------------------------------------------------------------------------

Sample bulk_or_rand(const Run& run, bool random) {
  Sample s;
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
    // Shuffled over all threads, so that most frees go to trees that others allocated from.
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

Sample repeat(const Run& run) {
  Sample s;
  const std::uint64_t free_before = run.engine.free_frames();
  std::atomic<std::uint64_t> failed = 0;
  const double seconds = timed(run.threads, [&](unsigned t) {
    for (std::uint64_t i = 0; i < run.options.repeats; ++i) {
      const auto f = run.engine.get(run.order, t);
      if (!f || !run.engine.put(*f, run.order, t)) ++failed;
    }
  });
  if (failed != 0) s.wrong = "a get or put was refused";
  s.get_ns = seconds * 1e9 / static_cast<double>(run.options.repeats);  // of the pair
  s.operations = 2 * run.options.repeats * run.threads;
  finish(s, run, free_before);
  return s;
}

// How many frames must be copied, at least, to empty as many huge frames as there is free room for.
std::uint64_t copies_needed(const std::vector<std::uint64_t>& held, std::uint64_t frames) {
  std::vector<std::uint32_t> used(frames / kHuge);
  for (const std::uint64_t f : held) ++used[f / kHuge];
  std::sort(used.begin(), used.end());
  const std::uint64_t emptied = (frames - held.size()) / kHuge;
  std::uint64_t copies = 0;
  for (std::uint64_t i = 0; i < emptied; ++i) copies += used[i];
  return copies;
}

// 90 % full, a random half freed, then turns of freeing and taking 10 % of what is allocated, all
// frames single: how many huge frames become free by themselves?
Sample fragment(const Run& run) {
  Sample s;
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
  const std::uint64_t begin = ticks();
  for (unsigned turn = 0; turn < run.options.turns; ++turn) {
    const std::uint64_t part = held.size() / 10;
    put(part);
    get(part);
    s.operations += 2 * part;
  }
  const double seconds = seconds_of(ticks() - begin);
  s.get_ns = seconds * 1e9 / static_cast<double>(s.operations / 2);  // of the pair
  s.huge_recovered = static_cast<double>(e.free_huge_frames() - huge_start) / polluted;
  s.copies_left = static_cast<double>(copies_needed(held, e.frames())) / copies_start;
  if (s.wrong.empty()) s.wrong = verify({held}, 0, e.frames());
  put(held.size());
  finish(s, run, free_before);
  return s;
}

// Half of the pool allocated at random, then attached again, clean and after a crash.
Sample open(const Run& run) {
  Sample s;
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
  std::uint64_t begin = ticks();
  if (!e.reopen_clean()) s.wrong = "clean open failed";
  s.open_clean_ms = seconds_of(ticks() - begin) * 1e3;
  begin = ticks();
  if (!e.reopen_crashed(held)) s.wrong = "recovery failed";
  s.open_crashed_ms = seconds_of(ticks() - begin) * 1e3;
  for (const std::uint64_t f : held) {
    if (!e.put(f, 0, 0)) s.wrong = "an owned frame was lost";
  }
  s.operations = 1;
  finish(s, run, free_before);
  return s;
}

struct Case {
  const char* name;
  const char* help;
  bool one_order;  // order 0 only
  bool one_thread;
  std::function<Sample(const Run&)> run;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"bulk", "all threads take half of the pool, then give it back in the same order", false,
       false, [](const Run& r) { return bulk_or_rand(r, false); }},
      {"rand", "all threads take all of the pool, then give it back in random order", false, false,
       [](const Run& r) { return bulk_or_rand(r, true); }},
      {"repeat", "each thread takes and gives back one frame (figure: the pair)", false, false,
       repeat},
      {"fragment", "90 % full, a random half freed, then turns of renewing 10 % (order 0)", true,
       false, fragment},
      {"open", "half full at random: attaching after a clean close and after a crash (order 0)",
       true, true, open},
  };
  return kCases;
}

// --- report ------------------------------------------------------------------------------------

std::string text_of(const Spread& s, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}..{:.{}f})", s.median, digits, s.min, digits, s.max, digits);
}

template <class Field>
Spread spread(const std::vector<Sample>& samples, Field&& field) {
  std::vector<double> values;
  for (const Sample& s : samples) values.push_back(field(s));
  return spread_of(values);
}

struct Setting {
  const Case& what;
  std::string medium;
  unsigned threads;
  unsigned order;
};

void report(std::FILE* table, std::FILE* json, const Options& o, const Setting& setting,
            const std::vector<Sample>& samples) {
  const std::string name = setting.what.name;
  JsonLine line;
  line.text("bench", "frame").text("case", name).text("engine", "tenuto");
  line.text("medium", setting.medium).integer("threads", setting.threads);
  line.integer("order", setting.order).integer("rounds", samples.size());
  line.integer("pool_bytes", o.mib << 20);
  std::string figures;
  const auto add = [&](const char* field, const char* label, int digits, const Spread& s) {
    line.raw(field, json_of(s));
    figures += fmt::format("  {} {}", label, text_of(s, digits));
  };
  if (name == "open") {
    add("open_ms", "clean ms", 2, spread(samples, [](const Sample& s) { return s.open_clean_ms; }));
    add("open_crashed_ms", "crashed ms", 2,
        spread(samples, [](const Sample& s) { return s.open_crashed_ms; }));
  } else if (name == "repeat" || name == "fragment") {
    add("pair_ns", "pair ns", 1, spread(samples, [](const Sample& s) { return s.get_ns; }));
  } else {
    add("get_ns", "get ns", 1, spread(samples, [](const Sample& s) { return s.get_ns; }));
    add("put_ns", "put ns", 1, spread(samples, [](const Sample& s) { return s.put_ns; }));
  }
  if (name == "fragment") {
    add("huge_recovered", "huge frames recovered", 3,
        spread(samples, [](const Sample& s) { return s.huge_recovered; }));
    add("copies_left", "compaction cost left", 3,
        spread(samples, [](const Sample& s) { return s.copies_left; }));
  } else if (name != "open") {
    line.raw("mops", json_of(spread(samples, [&](const Sample& s) {
               return 2e3 * setting.threads / (s.get_ns + s.put_ns);
             })));
  }
  if (setting.medium == "model" && name != "open") {
    add("lines_per_op", "lines/op", 2,
        spread(samples, [](const Sample& s) { return s.lines_per_op; }));
    add("reflushes_per_op", "reflushes/op", 2,
        spread(samples, [](const Sample& s) { return s.reflushes_per_op; }));
  }
  line.integer("seed", o.seed);
  fmt::print(table, "{:<9} {:<6} order {:<2} threads {}{}\n", name, setting.medium, setting.order,
             setting.threads, figures);
  if (json != nullptr) fmt::print(json, "{}\n", line.str());
}

// --- main --------------------------------------------------------------------------------------

int usage_error(const std::string& what) {
  fmt::print(stderr, "frame_bench: {} (see --help and --list)\n", what);
  return 2;
}

void declare(CLI::App& app, Options& o) {
  const auto list_of = [&](const char* name, auto& to, const char* help) {
    app.add_option(name, to, help)->delimiter(',')->capture_default_str();
  };
  list_of("--case", o.cases, "cases (--list)");
  list_of("--medium", o.media, "cache, line, model");
  list_of("--threads", o.threads, "numbers of threads");
  list_of("--order", o.orders, "orders 0..10 (fragment and open: always 0)");
  app.add_option("--mib", o.mib, "size of the pool in MiB, at least 64")->capture_default_str();
  app.add_option("--repeats", o.repeats, "pairs a thread in case repeat")->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds; medians are printed")->capture_default_str();
  app.add_option("--turns", o.turns, "renewals in case fragment")->capture_default_str();
  app.add_option("--seed", o.seed, "of all random choices")->capture_default_str();
  app.add_option("--dir", o.dir, "where the pool's nameless file is made")->capture_default_str();
  app.add_option("--json", o.json, "write one JSON object a line and case to FILE, or - (stdout)");
  app.add_flag("--quick", o.quick, "a small pool, one round: seconds, for CI");
  app.add_flag("--list", o.list, "print cases");
}

const Case* find_case(const std::string& name) {
  for (const Case& c : cases()) {
    if (name == c.name) return &c;
  }
  return nullptr;
}

std::optional<Medium> find_medium(const std::string& name) {
  for (const Medium m : {Medium::cache, Medium::line, Medium::model}) {
    if (name == tenuto::medium_name(m)) return m;
  }
  return std::nullopt;
}

std::string check(const Options& o) {
  for (const auto& c : o.cases) {
    if (find_case(c) == nullptr) return "unknown case " + c;
  }
  for (const auto& m : o.media) {
    if (!find_medium(m)) return "unknown medium " + m;
  }
  for (const unsigned order : o.orders) {
    if (order > kOrderMax) return "order " + std::to_string(order) + " is above 10";
  }
  for (const unsigned t : o.threads) {
    if (t == 0 || t > 256) return "threads must be 1..256";
  }
  if (o.mib < 64) return "--mib must be at least 64";
  if (o.rounds == 0 || o.repeats == 0) return "--rounds and --repeats must be at least 1";
  return "";
}

// All rounds of one setting; false when an answer was wrong.
bool measure(const Options& o, const Setting& setting, std::FILE* table, std::FILE* json) {
  std::vector<Sample> samples;
  for (unsigned round = 0; round < o.rounds; ++round) {
    std::string why;
    const auto engine = FrameEngine::make(o.dir + "/tenuto-frame-bench", o.mib << 20,
                                          *find_medium(setting.medium), why);
    if (engine == nullptr) {
      fmt::print(stderr, "frame_bench: {}\n", why);
      return false;
    }
    const FrameCounts before = engine->counts();
    Sample s = setting.what.run({*engine, o, setting.threads, setting.order, o.seed + round});
    const FrameCounts after = engine->counts();
    const auto operations = static_cast<double>(std::max<std::uint64_t>(s.operations, 1));
    s.lines_per_op = static_cast<double>(after.lines - before.lines) / operations;
    s.reflushes_per_op = static_cast<double>(after.reflushes - before.reflushes) / operations;
    if (!s.wrong.empty()) {
      fmt::print(stderr, "frame_bench: {}: {}\n", setting.what.name, s.wrong);
      return false;
    }
    samples.push_back(std::move(s));
  }
  report(table, json, o, setting, samples);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("The experiments of LLFree on tenuto's frame allocator");
  declare(app, o);
  CLI11_PARSE(app, argc, argv);
  if (o.list) {
    for (const Case& c : cases()) fmt::print("{:<9} {}\n", c.name, c.help);
    return 0;
  }
  if (o.quick) {
    o.mib = std::min<std::uint64_t>(o.mib, 256);
    o.repeats = std::min<std::uint64_t>(o.repeats, 100'000);
    o.rounds = 1;
    o.turns = std::min(o.turns, 10u);
  }
  if (const std::string wrong = check(o); !wrong.empty()) return usage_error(wrong);
  std::FILE* json = nullptr;
  if (o.json == "-") json = stdout;
  if (!o.json.empty() && json == nullptr) json = std::fopen(o.json.c_str(), "w");
  if (!o.json.empty() && json == nullptr) return usage_error("cannot write " + o.json);
  std::FILE* table = json == stdout ? stderr : stdout;

  bool right = true;
  for (const auto& name : o.cases) {
    const Case& what = *find_case(name);
    for (const auto& medium : o.media) {
      for (const unsigned order : what.one_order ? std::vector<unsigned>{0} : o.orders) {
        for (const unsigned t : what.one_thread ? std::vector<unsigned>{1} : o.threads) {
          right = measure(o, {what, medium, t, order}, table, json) && right;
        }
      }
    }
  }
  if (json != nullptr && json != stdout && std::fclose(json) != 0) right = false;
  return right ? 0 : 1;
}
