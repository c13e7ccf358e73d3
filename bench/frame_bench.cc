// frame_bench: the experiments of LLFree (ATC'23) on the frame allocator: bulk, rand, repeat,
// fragment and open. --list describes each case; src/frame/README.md explains the results.
#include <CLI/CLI.hpp>

#include <fmt/core.h>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/frame_cases.h"
#include "bench/support/contest.h"
#include "bench/support/json_line.h"
#include "bench/support/report.h"

namespace {

using namespace bench;
using tenuto::Medium;

constexpr unsigned kOrderMax = 10;

struct Options {
  std::vector<std::string> cases = {"bulk", "rand", "repeat", "fragment", "open"};
  std::vector<std::string> media = {"cache", "line"};
  std::vector<unsigned> threads = {1, 2};
  std::vector<unsigned> orders = {0, 9};
  std::uint64_t mib = 2048;
  std::uint64_t repeats = 2'000'000;  // pairs per thread in case repeat
  unsigned rounds = 5;
  unsigned turns = 100;  // of case fragment
  std::uint64_t seed = 42;
  std::string clock = "wall";
  std::string dir = "/dev/shm";
  std::string json;
  bool quick = false;
  bool list = false;
};

// --- report --------------------------------------------------------------------------------------

std::string text_of(const Spread& s, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}..{:.{}f})", s.median, digits, s.min, digits, s.max, digits);
}

template <class Field>
Spread spread(const std::vector<FrameSample>& samples, Field&& field) {
  std::vector<double> values;
  for (const FrameSample& s : samples) values.push_back(field(s));
  return spread_of(values);
}

struct Setting {
  const FrameCase& what;
  std::string medium;
  unsigned threads;
  unsigned order;
};

void report(std::FILE* table, std::FILE* json, const Options& o, const Setting& setting,
            const std::vector<FrameSample>& samples) {
  const std::string name = setting.what.name;
  JsonLine line;
  line.text("bench", "frame").text("case", name).text("engine", "tenuto");
  line.text("medium", setting.medium).integer("threads", setting.threads);
  line.integer("order", setting.order).integer("rounds", samples.size());
  line.integer("pool_bytes", o.mib << 20).text("clock", o.clock);
  std::string figures;
  const auto add = [&](const char* field, const char* label, int digits, const Spread& s) {
    line.raw(field, json_of(s));
    figures += fmt::format("  {} {}", label, text_of(s, digits));
  };
  if (name == "open") {
    add("open_ms", "clean ms", 2,
        spread(samples, [](const FrameSample& s) { return s.open_clean_ms; }));
    add("open_crashed_ms", "crashed ms", 2,
        spread(samples, [](const FrameSample& s) { return s.open_crashed_ms; }));
    add("keep_ns", "keep ns", 1, spread(samples, [](const FrameSample& s) { return s.keep_ns; }));
  } else if (name == "repeat" || name == "fragment") {
    add("pair_ns", "pair ns", 1, spread(samples, [](const FrameSample& s) { return s.get_ns; }));
  } else {
    add("get_ns", "get ns", 1, spread(samples, [](const FrameSample& s) { return s.get_ns; }));
    add("put_ns", "put ns", 1, spread(samples, [](const FrameSample& s) { return s.put_ns; }));
  }
  if (name == "fragment") {
    add("huge_recovered", "huge frames recovered", 3,
        spread(samples, [](const FrameSample& s) { return s.huge_recovered; }));
    add("copies_left", "compaction cost left", 3,
        spread(samples, [](const FrameSample& s) { return s.copies_left; }));
  } else if (name != "open") {
    line.raw("mops", json_of(spread(samples, [&](const FrameSample& s) {
               return 2e3 * setting.threads / (s.get_ns + s.put_ns);
             })));
  }
  if (setting.medium == "model" && name != "open") {
    add("lines_per_op", "lines/op", 2,
        spread(samples, [](const FrameSample& s) { return s.lines_per_op; }));
    add("reflushes_per_op", "reflushes/op", 2,
        spread(samples, [](const FrameSample& s) { return s.reflushes_per_op; }));
  }
  line.integer("seed", o.seed);
  fmt::print(table, "{:<9} {:<6} order {:<2} threads {}{}\n", name, setting.medium, setting.order,
             setting.threads, figures);
  if (json != nullptr) fmt::print(json, "{}\n", line.str());
}

// --- main ----------------------------------------------------------------------------------------

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
  app.add_option("--clock", o.clock,
                 "wall, or cpu: a thread's own time, for a machine with company")
      ->check(CLI::IsMember({"wall", "cpu"}))
      ->capture_default_str();
  app.add_option("--dir", o.dir, "where the pool's nameless file is made")->capture_default_str();
  app.add_option("--json", o.json, "write one JSON object a line and case to FILE, or - (stdout)");
  app.add_flag("--quick", o.quick, "a small pool, one round: seconds, for CI");
  app.add_flag("--list", o.list, "print cases");
}

const FrameCase* find_case(const std::string& name) {
  for (const FrameCase& c : frame_cases()) {
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

// Runs all rounds of one setting. Returns false if an answer was wrong.
bool measure(const Options& o, const Setting& setting, std::FILE* table, std::FILE* json) {
  std::vector<FrameSample> samples;
  for (unsigned round = 0; round < o.rounds; ++round) {
    std::string why;
    const auto engine = FrameEngine::make(o.dir + "/tenuto-frame-bench", o.mib << 20,
                                          *find_medium(setting.medium), why);
    if (engine == nullptr) {
      fmt::print(stderr, "frame_bench: {}\n", why);
      return false;
    }
    const FrameCounts before = engine->counts();
    FrameSample s = setting.what.run({*engine, setting.threads, setting.order, o.seed + round,
                                      o.repeats, o.turns, o.clock == "cpu"});
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
    for (const FrameCase& c : frame_cases()) fmt::print("{:<9} {}\n", c.name, c.help);
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
    const FrameCase& what = *find_case(name);
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
