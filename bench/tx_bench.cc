// tx_bench: transactions over objects on tenuto and libpmemobj, in one program: rows of single
// transactions and whole structures, with their fences, flushed lines, instructions and times.
// bench/README.md describes the measurements; --list and --help describe the options.
#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/support/origin.h"
#include "bench/support/peers.h"
#include "bench/support/process.h"
#include "bench/support/spread.h"
#include "bench/tx/report.h"

namespace {

using namespace bench;

struct Options {
  std::vector<std::string> cases = {"all"};
  std::vector<std::string> engines;
  std::vector<std::string> media = {"line"};
  std::vector<unsigned> threads = {1};
  std::vector<std::uint64_t> values = {std::begin(kValueSizes), std::end(kValueSizes)};
  std::uint64_t transactions = 100'000;
  std::uint64_t elements = 10'000;
  unsigned samples = 16;
  unsigned rounds = 5;
  std::string dir = "/dev/shm";
  std::string json;
  bool quick = false;
  bool list = false;
};

constexpr std::uint64_t kQuickTransactions = 200;
constexpr std::uint64_t kQuickElements = 100;
constexpr unsigned kQuickSamples = 1;
constexpr unsigned kThreadsMax = 64;
constexpr unsigned kRoundsMax = 1000;
constexpr std::uint64_t kTransactionsMax = 1'000'000'000;
constexpr std::uint64_t kElementsMax = 1'000'000;

int usage_error(const std::string& what) {
  fmt::print(stderr, "tx_bench: {} (see --help and --list)\n", what);
  return 2;
}

void declare(CLI::App& app, Options& o) {
  const auto list_of = [&](const char* name, auto& to, const char* help) {
    app.add_option(name, to, help)->delimiter(',')->capture_default_str();
  };
  for (const TxEngineKind& kind : tx_engine_kinds()) o.engines.push_back(kind.name);
  list_of("--bench", o.cases, "cases (--list), list, map, tree, queue, rows, structures, or all");
  list_of("--engine,--engines", o.engines, "ratios are the first one's over each other's");
  list_of("--medium", o.media, "line, cache; tenuto: model, too, which counts alone");
  list_of("--threads", o.threads, "numbers of threads, each with its own objects");
  list_of("--value", o.values, "bytes of a structure's values: 64, 1024");
  app.add_option("--transactions", o.transactions, "timed, a round and thread: at least so many")
      ->capture_default_str();
  app.add_option("--elements", o.elements, "of each thread's structure")->capture_default_str();
  app.add_option("--samples", o.samples, "transactions counted, one step at a time; 0: none")
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "timed, interleaved; 0: counts alone")
      ->capture_default_str();
  app.add_option("--dir", o.dir, "where the scratch directory is made")->capture_default_str();
  app.add_option("--json", o.json, "write one JSON object a line and case to FILE, or - (stdout)");
  app.add_flag("--quick", o.quick, "small sizes, one round: seconds, for CI");
  app.add_flag("--list", o.list, "print cases and engines");
}

void print_list() {
  fmt::print("cases\n");
  for (const TxCase& what : tx_cases()) fmt::print("  {:<15} {}\n", what.name, what.what);
  fmt::print("engines\n");
  for (const TxEngineKind& kind : tx_engine_kinds()) {
    std::string media;
    for (const std::string_view m : kind.media)
      media += (media.empty() ? "" : ",") + std::string(m);
    fmt::print("  {:<15} {}; media {}\n", kind.name, kind.settings("line"), media);
  }
  fmt::print("{}", peers_left_out());
}

std::string wrong_names(const Options& o) {
  for (const std::string& name : o.cases) {
    const auto cases = tx_cases();
    if (std::none_of(cases.begin(), cases.end(),
                     [&](const TxCase& what) { return is_meant(what, name); })) {
      return "no benchmark is called " + name;
    }
  }
  for (const std::string& name : o.engines) {
    if (find_tx_engine(name) == nullptr) return "no engine is called " + name;
  }
  for (const std::string& medium : o.media) {
    const auto kinds = tx_engine_kinds();
    if (std::none_of(kinds.begin(), kinds.end(),
                     [&](const TxEngineKind& kind) { return has_medium(kind, medium); })) {
      return "no medium is called " + medium;
    }
    if (std::none_of(o.engines.begin(), o.engines.end(), [&](const std::string& name) {
          return has_medium(*find_tx_engine(name), medium);
        })) {
      return "none of the engines has medium " + medium;
    }
  }
  return "";
}

std::string wrong_numbers(const Options& o) {
  if (o.cases.empty() || o.engines.empty() || o.media.empty()) return "an empty list";
  const bool threads =
      !o.threads.empty() && std::all_of(o.threads.begin(), o.threads.end(),
                                        [](unsigned t) { return t >= 1 && t <= kThreadsMax; });
  if (!threads) return fmt::format("--threads must be 1..{}", kThreadsMax);
  const bool values =
      !o.values.empty() && std::all_of(o.values.begin(), o.values.end(), [](auto v) {
        return std::find(std::begin(kValueSizes), std::end(kValueSizes), v) !=
               std::end(kValueSizes);
      });
  if (!values) return "--value must be 64 or 1024";
  if (o.transactions < 1 || o.transactions > kTransactionsMax) {
    return fmt::format("--transactions must be 1..{}", kTransactionsMax);
  }
  if (o.elements < 1 || o.elements > kElementsMax) {
    return fmt::format("--elements must be 1..{}", kElementsMax);
  }
  if (o.samples > kSamplesMax) return fmt::format("--samples must be 0..{}", kSamplesMax);
  if (o.rounds > kRoundsMax) return fmt::format("--rounds must be 0..{}", kRoundsMax);
  return o.rounds == 0 && o.samples == 0 ? "--rounds 0 and --samples 0: nothing to measure" : "";
}

class Run {
 public:
  explicit Run(const Options& options) : o_(options) { catch_interrupts(); }

  int run() {
    if (!scratch_.create(o_.dir, "tenuto-bench")) {
      fmt::print(stderr, "tx_bench: cannot make a directory in {}: {}\n", o_.dir,
                 std::strerror(errno));
      return 8;
    }
    fmt::print(human(), "tx_bench on {}, {}\n", origin_text(), file_system_name(scratch_.path()));
    for (const std::string& medium : o_.media) {
      play_medium(medium);
      if (interrupted()) return 130;
    }
    for (const std::string& f : failures_) fmt::print(stderr, "FAILED {}\n", f);
    if (!o_.json.empty() && !write_lines(o_.json, json_)) {
      fmt::print(stderr, "tx_bench: cannot write {}\n", o_.json);
      return 1;
    }
    return failures_.empty() ? 0 : 1;
  }

 private:
  std::FILE* human() const { return o_.json == "-" ? stderr : stdout; }

  void play_medium(const std::string& medium) {
    std::vector<const TxEngineKind*> engines;
    for (const std::string& name : o_.engines) {
      const TxEngineKind* const kind = find_tx_engine(name);
      if (has_medium(*kind, medium)) engines.push_back(kind);
    }
    for (const TxEngineKind* kind : engines) {
      fmt::print(human(), "  {}: {}\n", kind->name, kind->settings(medium));
    }
    print_tx_head(human(), engines, medium);
    for (const TxSetting& s : settings(medium)) {
      play_setting(s, engines);
      if (interrupted()) return;
    }
  }

  // Rows have no values.
  std::vector<TxSetting> settings(const std::string& medium) const {
    std::vector<TxSetting> all;
    for (const TxCase& what : tx_cases()) {
      if (std::none_of(o_.cases.begin(), o_.cases.end(),
                       [&](const std::string& name) { return is_meant(what, name); })) {
        continue;
      }
      const bool row = what.part == Part::row;
      for (const std::uint64_t value : row ? std::vector<std::uint64_t>{0} : o_.values) {
        for (const unsigned threads : o_.threads) {
          // Medium `model` keeps books: its times are not those of a pool.
          TxSetting s{&what, medium, threads, {}, 0, medium == "model" ? 0 : o_.rounds};
          s.size = {row ? std::min(o_.transactions, kRowBatchMax) : o_.elements, value};
          s.transactions = batches(s.size) * s.size.batch;
          all.push_back(s);
        }
      }
    }
    return all;
  }

  std::uint64_t batches(const WorkSize& size) const {
    return (o_.transactions + size.batch - 1) / size.batch;
  }

  // Counts are the same in each round and on each thread: the first number of threads has them.
  void play_setting(const TxSetting& s, const std::vector<const TxEngineKind*>& engines) {
    std::vector<TxFigures> figures(engines.size());
    TurnOptions turn{scratch_.path(), s.medium, s.threads, s.size, batches(s.size), 0};
    for (unsigned round = 0; round < s.rounds; ++round) play_round(s, engines, turn, figures);
    if (s.threads == o_.threads.front() && o_.samples > 0) {
      turn.threads = 1;
      turn.samples = o_.samples;
      play_round(s, engines, turn, figures);
    }
    if (interrupted()) return;
    print_tx_row(human(), s, figures);
    std::fflush(human());
    for (std::string& line : tx_json_lines(s, engines, figures)) json_.push_back(std::move(line));
  }

  void play_round(const TxSetting& s, const std::vector<const TxEngineKind*>& engines,
                  const TurnOptions& turn, std::vector<TxFigures>& figures) {
    for (std::size_t i = 0; i < engines.size() && !interrupted(); ++i) {
      play(*engines[i], *s.what, turn, result_);
      scratch_.clear();
      if (interrupted()) return;
      figures[i].add(*result_);
      if (result_->finished) continue;
      failures_.push_back(fmt::format("{}, {}, {}, {} threads: {}", s.what->name, engines[i]->name,
                                      s.medium, s.threads, result_->error));
    }
  }

  const Options& o_;
  Scratch scratch_;
  Shared<TurnResult> result_;
  std::vector<std::string> json_;
  std::vector<std::string> failures_;
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("transactions over objects, on tenuto and libpmemobj");
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
    o.transactions = std::min(o.transactions, kQuickTransactions);
    o.elements = std::min(o.elements, kQuickElements);
    o.samples = std::min(o.samples, kQuickSamples);
    o.rounds = std::min(o.rounds, 1u);
  }
  std::string wrong = wrong_numbers(o);
  if (wrong.empty()) wrong = wrong_names(o);
  if (!wrong.empty()) return usage_error(wrong);
  Run run(o);
  return run.run();
}
