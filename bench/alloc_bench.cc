// alloc_bench: NVAlloc's benchmarks and a few more, with interleaved rounds in one program. They
// run on tenuto's heap, on libpmemobj and, as bounds, on volatile allocators. bench/README.md
// describes the measurements; --list and --help describe the options.
#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "bench/alloc/contestants.h"
#include "bench/alloc/library.h"
#include "bench/alloc/numa.h"
#include "bench/alloc/steps.h"
#include "bench/alloc/wear.h"
#include "bench/support/peers.h"
#include "bench/support/process.h"
#include "bench/support/tenuto_medium.h"

namespace {

using namespace bench;

struct Options {
  std::vector<std::string> cases;
  std::vector<std::string> allocators = allocators_of(
      {"tenuto", "tenuto-v", "tenuto-reserve", "pmdk", "pmdk-tx", "mimalloc", "jemalloc", "glibc"});
  std::vector<std::string> media = {"line"};
  std::vector<unsigned> threads = {1};
  std::vector<unsigned> batches = {1};
  std::vector<std::uint64_t> objects = {1'000'000};
  std::vector<std::vector<double>> ablations;  // one list of values per switch
  double scale = 1;
  double seconds = 60;
  unsigned rounds = 5;
  std::uint64_t seed = 42;
  std::string dir = "/dev/shm";
  std::string json;
  bool verify = false;
  bool latency = false;
  bool apart = false;
  bool delays = false;
  bool quick = false;
  bool list = false;
  bool numa = false;
  bool wear = false;
  bool steps = false;
};

constexpr double kQuickScale = 0.02;
constexpr std::uint64_t kQuickObjects = 20'000;
constexpr double kQuickSeconds = 0.2;
constexpr unsigned kThreadsMax = 256;
constexpr std::uint64_t kObjectsMax = 1'000'000'000;
constexpr double kScaleMax = 1e6;
constexpr unsigned kTurnSecondsMax = 1800;
constexpr std::uint64_t kSpaceFactor = 4;  // heap over live bytes, for the worst allocator

int usage_error(const std::string& what) {
  fmt::print(stderr, "alloc_bench: {} (see --help and --list)\n", what);
  return 2;
}

void declare(CLI::App& app, Options& o) {
  const auto list_of = [&](const char* name, auto& to, const char* help) {
    app.add_option(name, to, help)->delimiter(',')->capture_default_str();
  };
  list_of("--bench", o.cases,
          "benchmarks (--list), fragbench for its four, all; usual ones if none");
  list_of("--allocator", o.allocators, "allocators; ratios are the first one's over each other's");
  list_of("--medium", o.media,
          "media of the persistent ones: line, cache; tenuto: auto, model, journal, too");
  list_of("--threads", o.threads, "numbers of threads");
  list_of("--batch", o.batches, "operations in a group: one transaction, shared fences");
  list_of("--objects", o.objects, "for recovery-list, recovery-tree and growth");
  app.add_option("--scale", o.scale, "multiplies the work; below 1 also the number of objects")
      ->capture_default_str();
  app.add_option("--seconds", o.seconds, "of soak")->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds, interleaved")->capture_default_str();
  app.add_option("--seed", o.seed, "of all random choices")->capture_default_str();
  app.add_option("--dir", o.dir, "where the scratch directory is made")->capture_default_str();
  app.add_option("--json", o.json, "write one JSON object a line and case to FILE, or - (stdout)");
  app.add_flag("--verify", o.verify, "fill and check every byte, map all live blocks (slow)");
  app.add_flag("--latency", o.latency, "time each operation or group (some 20 ns)");
  app.add_flag("--apart", o.apart, "each destination in a line of its own (default: an array)");
  app.add_flag("--delays", o.delays, "on medium model: Optane's published delays for each line");
  o.ablations.resize(ablation_switches().size());
  for (std::size_t i = 0; i < o.ablations.size(); ++i) {
    const AblationSwitch& s = ablation_switches()[i];
    app.add_option(option_of(s), o.ablations[i], s.help)
        ->delimiter(',')
        ->group("Tenuto's settings");
  }
  app.add_flag("--quick", o.quick, "small sizes, one round: seconds, for CI");
  app.add_flag("--numa", o.numa,
               "instead: threads on one node and over two, with two-phase deallocation and "
               "without; simulated if the machine has one node");
  app.add_flag("--wear", o.wear,
               "instead: how evenly writes are spread, without wear levelling and with it");
  app.add_flag("--steps", o.steps,
               "instead: instructions, fences and lines of a malloc and a free, by single steps");
  app.add_flag("--list", o.list, "print benchmarks and allocators");
}

void print_list() {
  fmt::print("benchmarks ('-': only when asked for)\n");
  for (const CaseKind& kind : case_kinds()) {
    fmt::print("  {} {:<14} {}\n", kind.usual ? ' ' : '-', kind.name, kind.what);
  }
  fmt::print("allocators\n");
  for (const AllocatorKind& kind : allocator_kinds()) {
    fmt::print("    {:<14} {}{}\n", kind.name, kind.settings("line"),
               kind.media[0] == '\0' ? "" : fmt::format("; media {}", kind.media));
  }
  fmt::print("{}tenuto's settings\n", peers_left_out());
  for (const AblationSwitch& s : ablation_switches()) {
    fmt::print("    {:<24} {}\n", option_of(s), s.help);
  }
}

bool parse_cases(const Options& o, std::vector<const CaseKind*>& to, std::string& wrong) {
  std::set<std::string_view> asked(o.cases.begin(), o.cases.end());
  for (const CaseKind& kind : case_kinds()) {
    const std::string_view name = kind.name;
    const bool in_group = name.starts_with("fragbench-") && asked.contains("fragbench");
    if (asked.empty() ? kind.usual : in_group || asked.contains("all") || asked.contains(name)) {
      to.push_back(&kind);
    }
  }
  for (const std::string_view name : asked) {
    if (name == "all" || name == "fragbench" || find_case(name) != nullptr) continue;
    wrong = fmt::format("no benchmark is called {}", name);
    return false;
  }
  return true;
}

bool parse_numbers(const Options& o, std::string& wrong) {
  const auto outside = [](const auto& values, auto least, auto most) {
    return values.empty() ||
           std::any_of(values.begin(), values.end(), [&](auto v) { return v < least || v > most; });
  };
  if (outside(o.threads, 1u, kThreadsMax)) {
    wrong = fmt::format("--threads must be 1..{}", kThreadsMax);
  } else if (outside(o.batches, 1u, kBatchMax)) {
    wrong = fmt::format("--batch must be 1..{}", kBatchMax);
  } else if (outside(o.objects, std::uint64_t{1}, kObjectsMax)) {
    wrong = fmt::format("--objects must be 1..{}", kObjectsMax);
  } else if (!(o.scale > 0 && o.scale <= kScaleMax)) {
    wrong = fmt::format("--scale must be above 0, at most {:.0f}", kScaleMax);
  } else if (!(o.seconds > 0 && o.seconds <= kTurnSecondsMax / 2)) {
    wrong = fmt::format("--seconds must be above 0, at most {}", kTurnSecondsMax / 2);
  } else if (o.rounds < 1) {
    wrong = "--rounds starts at 1";
  }
  return wrong.empty();
}

// What --numa takes of the options: one number of threads, one medium.
bool parse_instead(const Options& o, std::string& wrong) {
  if (!parse_numbers(o, wrong)) return false;
  if (o.numa + o.wear + o.steps > 1)
    wrong = "--numa, --wear and --steps are benchmarks of their own";
  if (o.steps && std::find(o.media.begin(), o.media.end(), "model") != o.media.end())
    wrong = "--steps would count what medium model itself executes";
  if (o.numa && o.threads.front() > 1 && o.threads.front() % 2 != 0)
    wrong = "--numa needs an even number of threads";
  if (!medium_of(o.media.front())) wrong = "no medium is called " + o.media.front();
  return wrong.empty();
}

bool make_scratch(Scratch& scratch, const std::string& dir) {
  if (scratch.create(dir, "tenuto-bench")) return true;
  fmt::print(stderr, "alloc_bench: cannot make a directory in {}: {}\n", dir, std::strerror(errno));
  return false;
}

bool write_json(const std::string& file, const std::vector<std::string>& lines) {
  if (file.empty() || write_lines(file, lines)) return true;
  fmt::print(stderr, "alloc_bench: cannot write {}\n", file);
  return false;
}

// --numa, --wear, --steps: one of the benchmarks that are no cases.
int run_instead(const Options& o, const std::vector<AllocContestant>& contestants) {
  Scratch scratch;
  if (!make_scratch(scratch, o.dir)) return 8;
  const std::string medium = o.media.front();
  const unsigned threads = std::max(2u, o.threads.front());
  std::vector<std::string> json;
  std::FILE* const out = o.json == "-" ? stderr : stdout;
  std::string wrong;
  if (o.steps)
    wrong = run_steps_bench({scratch.path(), o.batches, o.quick ? kStepsQuick : kStepsCounted},
                            contestants, out, json);
  else if (o.numa)
    wrong = run_numa_bench({scratch.path(), medium, threads, o.rounds, o.scale}, out, json);
  else
    wrong = run_wear_bench({scratch.path(), medium, o.rounds, o.scale}, out, json);
  if (!wrong.empty()) fmt::print(stderr, "FAILED {}\n", wrong);
  return write_json(o.json, json) && wrong.empty() ? 0 : 1;
}

class Run {
 public:
  Run(const Options& options, std::vector<const CaseKind*> cases,
      std::vector<AllocContestant> contestants)
      : o_(options), cases_(std::move(cases)), contestants_(std::move(contestants)) {
    catch_interrupts();
  }

  int run() {
    if (!make_scratch(scratch_, o_.dir)) return 8;
    fmt::print(human(), "alloc_bench on {}, {} GB memory free, {} on {}, {}\n", processor_name(),
               free_memory_bytes() >> 30, scratch_.path(), file_system_name(scratch_.path()),
               device_text(scratch_.path()));
    for (const AllocContestant& c : contestants_) {
      fmt::print(human(), "  {:<{}} {}\n", c.label, label_width(contestants_),
                 c.kind->settings(c.medium));
    }
    for (const std::string& absent : left_out()) {
      fmt::print(human(), "  {:<20} left out: it has none of the media asked for\n", absent);
    }
    print_head(human(), contestants_, o_.latency);
    for (const AllocSetting& s : settings()) {
      if (!fits(s)) return 4;
      play_setting(s);
      if (interrupted()) return 130;
    }
    for (const std::string& f : failures_) fmt::print(stderr, "FAILED {}\n", f);
    return write_json(o_.json, json_) && failures_.empty() ? 0 : 1;
  }

 private:
  std::FILE* human() const { return o_.json == "-" ? stderr : stdout; }

  std::vector<std::string> left_out() const {
    std::vector<std::string> names;
    for (const std::string& name : o_.allocators) {
      if (std::none_of(contestants_.begin(), contestants_.end(),
                       [&](const AllocContestant& c) { return name == c.kind->name; })) {
        names.push_back(name);
      }
    }
    return names;
  }

  // The product of all lists. A case with one thread ignores --threads; one without a number of
  // objects ignores --objects.
  std::vector<AllocSetting> settings() const {
    std::vector<AllocSetting> all;
    for (const CaseKind* kind : cases_) {
      const bool one_thread = kind->threads_max == 1;
      for (const unsigned batch : o_.batches) {
        for (std::size_t i = 0; i < (kind->by_objects ? o_.objects.size() : 1); ++i) {
          for (const unsigned threads : one_thread ? std::vector{1u} : o_.threads) {
            AllocSetting s;
            s.kind = kind;
            s.rounds = o_.rounds;
            s.file_system = file_system_name(scratch_.path());
            s.stage.work = {threads, batch, o_.scale, o_.objects[i], o_.seconds, o_.seed};
            s.stage.dir = scratch_.path();
            s.stage.verify = o_.verify;
            s.stage.timed = o_.latency;
            s.stage.apart = o_.apart;
            s.stage.seconds_max = kTurnSecondsMax;
            all.push_back(s);
          }
        }
      }
    }
    return all;
  }

  bool fits(const AllocSetting& s) const {
    const std::unique_ptr<Case> work = s.kind->make(s.stage.work);
    const std::uint64_t needed = kSpaceFactor * work->live_bytes() + 64 * work->slots();
    if (s.file_system != "tmpfs" || needed < free_memory_bytes()) return true;
    fmt::print(stderr,
               "alloc_bench: {} might take {} MB, more than there is memory; scratch it or "
               "give --dir on a disk\n",
               s.kind->name, needed >> 20);
    return false;
  }

  void play_setting(const AllocSetting& setting) {
    std::vector<AllocFigures> figures(contestants_.size());
    Shared<AllocResult> result;
    for (unsigned round = 0; round < o_.rounds; ++round) {
      for (std::size_t i = 0; i < contestants_.size(); ++i) {
        const AllocContestant& c = contestants_[i];
        if (setting.kind->persistent_only && !c.kind->persistent) continue;
        StageOptions stage = setting.stage;
        stage.medium = c.medium;
        stage.ablation = c.ablation;
        play(*c.kind, *setting.kind, stage, result);
        scratch_.clear();
        if (interrupted()) return;
        note_failures(setting, c, round, *result);
        figures[i].add(*result);
      }
    }
    print_rows(human(), setting, contestants_, figures);
    for (std::string& line : json_lines(setting, contestants_, figures)) {
      json_.push_back(std::move(line));
    }
  }

  void note_failures(const AllocSetting& s, const AllocContestant& c, unsigned round,
                     const AllocResult& r) {
    const std::string where = fmt::format("{}, {}, {} threads, round {}: ", c.label, s.kind->name,
                                          s.stage.work.threads, round + 1);
    if (r.failures > 0) {
      failures_.push_back(where + fmt::format("{} wrong, first: {}", r.failures, r.first_failure));
    }
    if (!r.finished) failures_.push_back(where + "not finished: " + r.error);
    const bool ours = std::strcmp(c.kind->engine, "tenuto") == 0;  // a peer may grow: no failure
    if (r.findings.grows && ours) failures_.push_back(where + r.findings.verdict);
  }

  const Options& o_;
  const std::vector<const CaseKind*> cases_;
  const std::vector<AllocContestant> contestants_;
  Scratch scratch_;
  std::vector<std::string> json_;
  std::vector<std::string> failures_;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("NVAlloc's benchmarks on tenuto and its peers, in one program");
  declare(app, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (o.list) {
    print_list();
    return 0;
  }
  if (o.quick) {
    o.scale = std::min(o.scale, kQuickScale);
    o.seconds = std::min(o.seconds, kQuickSeconds);
    for (std::uint64_t& n : o.objects) n = std::min(n, kQuickObjects);
    o.rounds = 1;
  }
  std::string wrong;
  std::vector<AllocContestant> contestants;
  const bool instead = o.numa || o.wear || o.steps;
  if (!(instead ? parse_instead(o, wrong) : parse_numbers(o, wrong))) return usage_error(wrong);
  if (o.numa || o.wear) return run_instead(o, contestants);
  std::vector<const CaseKind*> cases;
  if (!parse_cases(o, cases, wrong)) return usage_error(wrong);
  wrong = choose_contestants({o.allocators, o.media, o.ablations, o.delays}, contestants);
  if (!wrong.empty()) return usage_error(wrong);
  if (std::find(o.allocators.begin(), o.allocators.end(), "jemalloc") != o.allocators.end()) {
    Library::reserve_static_tls(argv);
  }
  if (o.steps) return run_instead(o, contestants);
  Run run(o, std::move(cases), std::move(contestants));
  return run.run();
}
