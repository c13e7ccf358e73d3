// `tenuto crash life` (tools/tenuto.md): runs lives from seeds until the time is over. Prints each
// finding with its short story, and which calls met.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "crossings.h"
#include "generate.h"
#include "life.h"
#include "plants.h"
#include "pm/plant.h"
#include "process.h"
#include "shrink.h"
#include "support/seed.h"

// The output of sanitizers goes to the finding.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "exitcode=99:detect_leaks=0:abort_on_error=0:allocator_may_return_null=1:handle_segv=1";
}
extern "C" const char* __ubsan_default_options();
extern "C" const char* __ubsan_default_options() { return "halt_on_error=1:print_stacktrace=1"; }
// Called before ThreadSanitizer is initialised, so it is not instrumented.
extern "C" const char* __tsan_default_options();
extern "C" __attribute__((no_sanitize_thread)) const char* __tsan_default_options() {
  return "exitcode=66:halt_on_error=1:die_after_fork=0";
}

namespace tenuto::life {
namespace {

constexpr const char* kUsage =
    R"(Random whole lives of a store, each from a seed, judged against a model.

Usage: tenuto-life [options]
  --seed N           of the first life (default: any); the next ones are N+1, N+2 ...
  --lives N          so many lives
  --seconds S        or until so much time is over (default: 60)
  --hours H          the same in hours
  --medium M         cache, line, journal (default: all)
  --threads T        1 to 4 (default: any)
  --at-once 0|1      threads take turns, or run at once (default: both)
  --kind K           whole, few, meetings, places, pools, held (default: any)
  --without G,G      without these groups of calls (see below)
  --story FILE       runs this story
  --print            prints the story of the seed, and runs nothing
  --findings DIR     where stories that fail are written (default: none are)
  --findings-max N   stops after so many different ones (default: 1)
  --shrink S         seconds to make a story short (default: 60; 0: not at all)
  --trace            prints every call and what it came to
  --repeat N         of --story: so many times, until it fails
  --hang S           seconds without progress that are a hang (default: 10)
  --directory DIR    where stores live (default: /dev/shm)
  --plants N,N       switches each of these mistakes on alone, and says how long it took to find;
                     --seconds bounds each one. list: the defects of README.md, quick: those of
                     them that seconds find, all: those of plants.cc
  --crossings FILE   the table of calls that met; "-" is standard output
Exit status: 0 nothing was found, 1 something was, 2 wrong use.
)";

struct Args {
  std::uint64_t seed = 0;
  bool has_seed = false, print = false;
  std::uint64_t lives = 0, findings_max = 1, repeat = 1;
  double seconds = 60, shrink = 60;
  Wanted wanted;
  std::string story, findings, crossings, plants;
  LifeOptions life;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool read_medium(const std::string& text, Medium& m) {
  for (const Medium one : {Medium::cache, Medium::line, Medium::model, Medium::journal}) {
    if (text == medium_name(one)) {
      m = one;
      return true;
    }
  }
  return text == "all";
}

bool read_args(int argc, char** argv, Args& a) {
  bool bounded = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--print") {
      a.print = true;
      continue;
    }
    if (name == "--trace") {
      a.life.trace = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* const v = argv[++i];
    if (name == "--seed") {
      a.seed = std::strtoull(v, nullptr, 10);
      a.has_seed = true;
    } else if (name == "--lives") {
      a.lives = std::strtoull(v, nullptr, 10);
    } else if (name == "--seconds" || name == "--hours") {
      a.seconds = std::strtod(v, nullptr) * (name == "--hours" ? 3600 : 1);
      bounded = true;
    } else if (name == "--medium") {
      if (!read_medium(v, a.wanted.medium)) return false;
    } else if (name == "--threads") {
      a.wanted.threads = static_cast<unsigned>(std::strtoul(v, nullptr, 10)) % (kThreadsMax + 1);
    } else if (name == "--at-once") {
      a.wanted.at_once = std::atoi(v);
    } else if (name == "--kind") {
      if (!read_kind(v, a.wanted.kind)) return false;
    } else if (name == "--without") {
      if (!read_groups(v, a.wanted.without)) return false;
    } else if (name == "--story") {
      a.story = v;
    } else if (name == "--findings") {
      a.findings = v;
    } else if (name == "--findings-max") {
      a.findings_max = std::strtoull(v, nullptr, 10);
    } else if (name == "--repeat") {
      a.repeat = std::strtoull(v, nullptr, 10);
    } else if (name == "--shrink") {
      a.shrink = std::strtod(v, nullptr);
    } else if (name == "--hang") {
      a.life.hang_seconds = static_cast<unsigned>(std::strtoul(v, nullptr, 10));
    } else if (name == "--directory") {
      a.life.directory = v;
    } else if (name == "--plants") {
      a.plants = v;
    } else if (name == "--crossings") {
      a.crossings = v;
    } else {
      return false;
    }
  }
  if (a.lives != 0 && !bounded) a.seconds = 1e18;
  if (!a.has_seed) a.seed = tenuto::test::fresh_seed();
  return true;
}

void save(const Args& a, const Story& story, const LifeResult& r) {
  if (a.findings.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(a.findings, ignored);
  std::string name = r.kind;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  std::ofstream out(a.findings + "/" + std::to_string(story.seed) + "-" + name + ".story");
  std::istringstream lines(r.kind + "\n" + r.text);
  for (std::string line; std::getline(lines, line);) out << "# " << line << "\n";
  out << text_of(story);
}

// Shortens a finding and prints it.
void tell(const Args& a, Story story, LifeResult r, double since) {
  std::printf("\nFOUND after %.1f s, seed %llu, medium %s, threads %u%s: %s\n%s\n", now() - since,
              static_cast<unsigned long long>(story.seed), medium_name(story.medium), story.threads,
              story.at_once ? " at once" : "", r.kind.c_str(), r.text.c_str());
  std::fflush(stdout);
  if (a.shrink > 0) {
    ShrinkOptions o;
    o.life = a.life;
    if (r.kind.starts_with("hang")) o.life.hang_seconds = std::max(2u, a.life.hang_seconds / 3);
    o.seconds = a.shrink;
    o.tries = story.at_once ? 4 : 1;
    o.life.stacks = false;
    const std::size_t before = story.steps.size();
    const double from = now();
    story = shrink(std::move(story), r.kind, o, r);
    std::printf("%zu steps became %zu in %.1f s: %s\n%s\n%s", before, story.steps.size(),
                now() - from, r.kind.c_str(), r.text.c_str(), text_of(story).c_str());
  }
  save(a, story, r);
  std::fflush(stdout);
}

int run_file(const Args& a) {
  std::ifstream in(a.story);
  std::stringstream text;
  text << in.rdbuf();
  Story story;
  const std::string wrong = in ? read_story(text.str(), story) : "it cannot be read";
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s: %s\n", a.story.c_str(), wrong.c_str());
    return 2;
  }
  for (std::uint64_t i = 0; i < a.repeat; ++i) {
    const LifeResult r = run_story(story, a.life, nullptr);
    if (r.ok()) continue;
    std::printf("%s\n%s\n", r.kind.c_str(), r.text.c_str());
    return 1;
  }
  std::printf("nothing found\n");
  return 0;
}

int run_seeds(const Args& a) {
  Crossings crossings;
  std::set<std::string> kinds;
  const double since = now();
  double said = since;
  std::uint64_t lives = 0, processes = 0, calls = 0, undecided = 0;
  const auto line = [&](const char* end) {
    std::printf(
        "%.0f s: %llu lives, %llu processes, %llu calls, %llu of %llu crossings, %zu found%s",
        now() - since, static_cast<unsigned long long>(lives),
        static_cast<unsigned long long>(processes), static_cast<unsigned long long>(calls),
        static_cast<unsigned long long>(crossings.covered()),
        static_cast<unsigned long long>(Crossings::all()), kinds.size(), end);
    std::fflush(stdout);
  };
  while ((a.lives == 0 || lives < a.lives) && now() - since < a.seconds) {
    const Story story = make_story(a.seed + lives, a.wanted);
    const LifeResult r = run_story(story, a.life, &crossings);
    ++lives;
    processes += r.processes;
    calls += r.calls;
    undecided += r.undecided;
    if (!r.ok() && kinds.insert(r.kind).second) {
      tell(a, story, r, since);
      if (kinds.size() >= a.findings_max) break;
    }
    if (now() - said > 60) {
      said = now();
      line("\n");
    }
  }
  line("\n");
  if (undecided != 0) {
    std::printf("%llu looks had too many orders to try\n",
                static_cast<unsigned long long>(undecided));
  }
  if (a.crossings == "-") {
    std::printf("%s", crossings.table().c_str());
  } else if (!a.crossings.empty()) {
    std::ofstream(a.crossings) << crossings.table();
  }
  return kinds.empty() ? 0 : 1;
}

// The plants of these names: "all", "list" (those of the defects in README.md), "quick", or names.
std::vector<Plant> chosen_plants(const std::string& names) {
  std::vector<Plant> chosen;
  for (const Plant& p : plants()) {
    const bool listed = *p.of != 0;
    if (names == "all" || (names == "list" && listed) || (names == "quick" && p.quick) ||
        ("," + names + ",").find(std::string(",") + p.name + ",") != std::string::npos) {
      chosen.push_back(p);
    }
  }
  return chosen;
}

int run_plants(const Args& a) {
  const std::vector<Plant> chosen = chosen_plants(a.plants);
  if (chosen.empty()) {
    std::fprintf(stderr, "no mistake is called %s\n", a.plants.c_str());
    return 2;
  }
  std::size_t missed = 0;
  std::printf(
      "| defect | mistake | kind of life | how it showed | lives | seconds | steps |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const Plant& p : chosen) {
    PlantFound f = look_for(p, a.seed, a.seconds, a.wanted, a.life);
    missed += f.kind.empty();
    std::string steps = "-";
    if (!f.kind.empty() && a.shrink > 0) {
      ShrinkOptions o;
      o.life = a.life;
      o.seconds = a.shrink;
      o.tries = f.story.at_once ? 4 : 1;
      LifeResult r;
      r.kind = f.kind;
      r.step = f.story.steps.size();
      tenuto::plant(p.name);
      f.story = shrink(std::move(f.story), f.kind, o, r);
      tenuto::unplant_all();
      steps = std::to_string(f.story.steps.size());
      r.text += std::string("\nwith ") + p.name;
      save(a, f.story, r);
    }
    std::printf("| %s | `%s` | %s%s%s | %s | %llu | %.1f | %s |\n", p.of, p.name, name_of(p.kind),
                p.medium == Medium::automatic ? "" : ", ",
                p.medium == Medium::automatic ? "" : medium_name(p.medium),
                f.kind.empty() ? "NOT FOUND" : f.kind.c_str(),
                static_cast<unsigned long long>(f.lives), f.seconds, steps.c_str());
    std::fflush(stdout);
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenuto::life

int main(int argc, char** argv) {
  using namespace tenuto::life;
  if (argc == 4 && std::strcmp(argv[1], "--try-open") == 0) {
    return try_open(argv[2], static_cast<tenuto::Medium>(std::atoi(argv[3])));
  }
  Args a;
  if (argc == 2 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::printf("%sGroups of calls: %s.\n", kUsage, group_names().c_str());
    return 0;
  }
  if (!read_args(argc, argv, a)) {
    std::fprintf(stderr, "%sGroups of calls: %s.\n", kUsage, group_names().c_str());
    return 2;
  }
  if (!a.story.empty()) return run_file(a);
  if (a.print) {
    std::printf("%s", text_of(make_story(a.seed, a.wanted)).c_str());
    return 0;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(a.seed));
  return a.plants.empty() ? run_seeds(a) : run_plants(a);
}
