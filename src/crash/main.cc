// crash_main: the command line of programs that explore their own workloads.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "crash/explore_case.h"
#include "tenuto/crash.h"

namespace TENUTO_NS {

namespace {

struct Arguments {
  std::vector<std::string> names;
  bool list = false;
  std::uint64_t seed = 1, seeds = 1;
  std::string mode = "adr";
  std::uint32_t depth = 2, points = 100;
  std::size_t product = 0, samples = 0, findings = 3;
  std::uint64_t timeout_ms = 0;
  bool mutants = false, no_lint = false, costs = false, no_save = false;
  std::vector<std::string> plants;
  std::string save = "crash-findings", replay, json, directory = "/dev/shm";
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("test", a.names, "tests to run; all, if none is named");
  app.add_flag("--list", a.list, "name the tests and stop");
  app.add_option("--seed", a.seed, "of samples and schedules")->capture_default_str();
  app.add_option("--seeds", a.seeds, "how many seeds, from --seed on")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--mode", a.mode,
                 "what a crash loses: lines (adr), sectors (page), a tail (eadr), or a tail of the "
                 "operation under way (kill)")
      ->check(CLI::IsMember({"adr", "page", "eadr", "kill", "all"}))
      ->capture_default_str();
  app.add_option("--depth", a.depth, "crashes inside recovery, one in the other")
      ->check(CLI::Range(0, 4))
      ->capture_default_str();
  app.add_option("--points", a.points, "percent of the crash points to try")
      ->check(CLI::Range(1, 100));
  app.add_option("--product", a.product, "states of one moment that are all tried");
  app.add_option("--samples", a.samples, "random states where there are more");
  app.add_option("--timeout", a.timeout_ms, "milliseconds for one recovery and check");
  app.add_option("--findings", a.findings, "stop after so many")->capture_default_str();
  app.add_flag("--mutants", a.mutants, "drop each fence and each flush in turn: is it missed?");
  app.add_option("--plant", a.plants, "switch a planted bug on; may be repeated");
  app.add_flag("--no-lint", a.no_lint, "do not look for forgotten flushes");
  app.add_flag("--costs", a.costs, "show flushes and fences that did nothing");
  app.add_option("--save", a.save, "folder for findings")->capture_default_str();
  app.add_flag("--no-save", a.no_save, "save no finding");
  app.add_option("--replay", a.replay, "run this saved case only");
  app.add_option("--json", a.json, "write the figures here");
  app.add_option("--directory", a.directory, "for pool and images")->capture_default_str();
}

CrashOptions options_of(const CrashTest& test, const Arguments& a, std::uint64_t seed,
                        CrashMode mode) {
  CrashOptions o = test.options;
  o.seed = seed;
  o.mode = mode;
  o.recovery_depth = a.depth;
  o.points_percent = a.points;
  o.findings_max = a.findings;
  if (a.product != 0) o.product_max = a.product;
  if (a.samples != 0) o.samples_max = a.samples;
  if (a.timeout_ms != 0) o.timeout = std::chrono::milliseconds(a.timeout_ms);
  o.lint = !a.no_lint;
  o.plants.insert(o.plants.end(), a.plants.begin(), a.plants.end());
  o.directory = a.directory;
  o.save_to = a.no_save ? "" : a.save;
  o.progress = ::isatty(STDERR_FILENO) != 0 && !a.mutants && a.replay.empty();
  return o;
}

std::vector<CrashMode> modes_of(const std::string& name) {
  std::vector<CrashMode> modes;
  for (const CrashMode m : {CrashMode::adr, CrashMode::page, CrashMode::eadr, CrashMode::kill}) {
    if (name == "all" || name == crash_mode_name(m)) modes.push_back(m);
  }
  return modes;
}

std::string json_of(const CrashTest& test, CrashMode mode, const CrashResult& r) {
  char text[512];
  std::snprintf(
      text, sizeof text,
      "{\"test\": \"%s\", \"mode\": \"%s\", \"seed\": %llu, \"points\": %llu, "
      "\"states\": %llu, \"distinct\": %llu, \"recovery_states\": %llu, \"checks\": "
      "%llu, \"seconds\": %.4f, \"fences\": %zu, \"fences_crashed_at\": %zu, "
      "\"findings\": %zu, \"forgotten\": %zu}",
      test.name.c_str(), crash_mode_name(mode), static_cast<unsigned long long>(r.seed),
      static_cast<unsigned long long>(r.points), static_cast<unsigned long long>(r.states),
      static_cast<unsigned long long>(r.unique), static_cast<unsigned long long>(r.recovery_states),
      static_cast<unsigned long long>(r.checks), r.seconds, r.fences_passed(), r.fences_explored(),
      r.findings.size(), r.forgotten.size());
  return text;
}

void show(const CrashTest& test, CrashMode mode, const CrashResult& r, bool costs) {
  std::printf("%s, mode %s, %s", test.name.c_str(), crash_mode_name(mode), r.text().c_str());
  std::printf("  %.0f states/s; %zu of %zu named fences crashed at\n",
              r.seconds > 0 ? static_cast<double>(r.states) / r.seconds : 0, r.fences_explored(),
              r.fences_passed());
  for (const std::string& name : r.unexplored()) {
    std::printf("  never crashed at: %s\n", name.c_str());
  }
  if (costs) std::fputs(r.cost_text().c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

int crash_main(int argc, char** argv, const std::vector<CrashTest>& tests) {
  Arguments a;
  CLI::App app("Explores what a crash at any moment can leave of these workloads' pools.");
  declare(app, a);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (a.list) {
    for (const CrashTest& t : tests) std::printf("%-24s %s\n", t.name.c_str(), t.what.c_str());
    return 0;
  }
  std::vector<const CrashTest*> chosen;
  for (const CrashTest& t : tests) {
    if (a.names.empty() || std::count(a.names.begin(), a.names.end(), t.name) != 0) {
      chosen.push_back(&t);
    }
  }
  for (const std::string& name : a.names) {
    if (std::none_of(tests.begin(), tests.end(),
                     [&](const CrashTest& t) { return t.name == name; })) {
      std::fprintf(stderr, "%s: no test is called %s; --list names them\n", argv[0], name.c_str());
      return 2;
    }
  }
  if (!a.replay.empty()) {
    if (!pm::CrashCase::read(a.replay)) {
      std::fprintf(stderr, "%s: %s is no case file\n", argv[0], a.replay.c_str());
      return 2;
    }
    ::setenv("TENUTO_CRASH_REPLAY", a.replay.c_str(), 1);
  }
  std::string json;
  bool found = false;
  for (const CrashTest* t : chosen) {
    for (const CrashMode mode : modes_of(a.mode)) {
      for (std::uint64_t seed = a.seed; seed < a.seed + a.seeds; ++seed) {
        const CrashRunner runner(options_of(*t, a, seed, mode));
        CrashResult r;
        if (a.mutants) {
          const MutantReport report = runner.mutants(t->setup, t->workload, t->check);
          for (const std::string& name : report.survivors()) {
            std::printf("  not missed: %s\n", name.c_str());
          }
          r = report.sound;
        } else {
          r = runner.run(t->setup, t->workload, t->check);
        }
        show(*t, mode, r, a.costs);
        found |= !r.ok();
        json += (json.empty() ? "" : ",\n ") + json_of(*t, mode, r);
      }
    }
  }
  if (!a.json.empty() && !(std::ofstream(a.json) << "[" << json << "]\n")) {
    std::fprintf(stderr, "%s: cannot write %s\n", argv[0], a.json.c_str());
    return 2;
  }
  return found ? 1 : 0;
}

}  // namespace TENUTO_NS
