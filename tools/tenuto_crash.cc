// `tenuto crash kill`: runs the loop of crash_kill.h and prints its progress and findings.
#include "tenuto_crash.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "facts.h"
#include "numbers.h"
#include "output.h"
#include "process.h"
#include "progress.h"
#include "session.h"
#include "text_format.h"

namespace tenuto::tool {
namespace {

constexpr std::array kMixes = {KillMix::uniform, KillMix::hot, KillMix::fill, KillMix::long_values,
                               KillMix::ycsb_a};
constexpr double kHoursMax = 24.0 * 365;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// A line that is redrawn on a terminal. Elsewhere (a log), one line a minute.
class KillProgressLine {
 public:
  explicit KillProgressLine(bool quiet) : quiet_(quiet), terminal_(is_terminal(STDERR_FILENO)) {}
  ~KillProgressLine() {
    if (drawn_) write("\r\x1b[K");
  }
  KillProgressLine(const KillProgressLine&) = delete;
  KillProgressLine& operator=(const KillProgressLine&) = delete;

  void show(const KillTotals& t, std::size_t findings) {
    if (quiet_ || t.seconds < next_) return;
    next_ = t.seconds + (terminal_ ? 0.25 : 60);
    const double ops = static_cast<double>(t.key_operations + t.steps);
    const std::string line = fmt::format(
        "{}  {} kills ({} in recovery)  {} operations  {}/s  {} found", format_clock(t.seconds),
        format_count(t.kills), format_count(t.in_recovery),
        format_count(t.key_operations + t.steps),
        format_count(static_cast<std::uint64_t>(ops / std::max(t.seconds, 0.001))), findings);
    write(terminal_ ? "\r" + line + "\x1b[K" : line + "\n");
    drawn_ = terminal_;
  }

 private:
  static void write(const std::string& text) {
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
  }
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  double next_ = 1;
};

Facts facts_of(const KillOptions& o, const KillReport& r) {
  const KillTotals& t = r.totals;
  Facts facts;
  facts.count("seed", "seed", o.seed);
  facts.text("engines", "engines", kill_engine_names(o.engines));
  facts.count("kills", "kills", t.kills);
  facts.count("kills_in_recovery", "  in recovery", t.in_recovery);
  facts.count("kills_in_check", "  while looked through", t.in_check);
  facts.count("pools", "pools", t.pools);
  facts.count("comparisons", "comparisons", t.sights);
  facts.count("key_operations", "key operations", t.key_operations);
  facts.count("batches", "  batches", t.batches);
  facts.count("key_transactions", "  transactions", t.key_transactions);
  facts.count("pending_operations", "  cut off by a kill", t.pending_operations);
  facts.count("refused_operations", "  refused: full", t.full);
  facts.count("compactions", "compactions", t.compactions);
  facts.count("steps", "transactions, heap calls", t.steps);
  facts.count("opens", "opens", t.opens);
  facts.count("unclean_opens", "  after a kill", t.unclean_opens);
  facts.count("rolled_back", "rolled back", t.rolled_back);
  facts.count("leaked_frames", "frames given back", t.leaked_frames);
  facts.ms("recovery_ms_mean", "recovery, mean", t.recovery_ms_mean);
  facts.ms("recovery_ms_max", "recovery, longest", t.recovery_ms_max);
  facts.seconds("seconds", "time", t.seconds);
  std::string list;
  for (const KillFinding& f : r.findings) {
    Facts one;
    one.count("kill", "", f.kill);
    one.text("what", "", f.text);
    one.text("folder", "", f.folder);
    list += (list.empty() ? "" : ",") + one.json();
  }
  facts.member("\"findings\":[" + list + "]");
  return facts;
}

Error write_json(const std::string& file, const Facts& facts) {
  const std::string line = facts.json() + "\n";
  if (file == "-") {
    Output out(STDOUT_FILENO, "standard output");
    out.write(line);
    return out.finish();
  }
  std::unique_ptr<Output> out;
  TENUTO_TOOL_TRY(open_file_output(file, out));
  out->write(line);
  return out->finish();
}

}  // namespace

std::string parse_kill_threads(const std::string& text, std::vector<std::uint32_t>& threads) {
  threads.clear();
  for (const std::string& part : split(text)) {
    std::uint64_t n = 0;
    if (parse_u64(part, 1, n) || n < 1 || n > 8) return "numbers from 1 to 8, as in 1,2,4";
    threads.push_back(static_cast<std::uint32_t>(n));
  }
  return {};
}

std::string parse_kill_mixes(const std::string& text, std::vector<KillMix>& mixes) {
  mixes.clear();
  for (const std::string& part : split(text)) {
    const std::size_t before = mixes.size();
    for (const KillMix mix : kMixes) {
      if (part == kill_mix_name(mix)) mixes.push_back(mix);
    }
    if (mixes.size() == before) return "some of uniform,hot,fill,long,ycsb-a";
  }
  return {};
}

std::string parse_hours(const std::string& text, double& seconds) {
  char* end = nullptr;
  const double hours = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(hours) || hours <= 0 || hours > kHoursMax) {
    return "a number of hours above 0, as in 0.5";
  }
  seconds = hours * 3600;
  return {};
}

Error run_crash_kill(const CrashKillArgs& args) {
  KillOptions options = args.options;
  if (!args.has_seed) options.seed = std::random_device{}();
  catch_stop_signals();
  KillReport report;
  {
    KillProgressLine line(args.quiet);
    report = kill_loop(options, [&line](const KillTotals& totals, std::size_t findings) {
      line.show(totals, findings);
      return !stop_requested();
    });
  }
  if (report.error) return report.error;
  const Facts facts = facts_of(options, report);
  const bool json_to_stdout = args.json_file == "-";
  if (!args.json_file.empty()) TENUTO_TOOL_TRY(write_json(args.json_file, facts));
  if (!json_to_stdout && !args.quiet) {
    const bool sound = report.findings.empty();
    std::string rows = facts.rows(sound ? "Nothing acknowledged was lost" : "FAILED");
    rows.pop_back();
    TENUTO_TOOL_TRY(print_line(rows));
  }
  for (const KillFinding& f : report.findings) {
    print_note(fmt::format("kill {}: {}\n  saved: {}", f.kill, f.text,
                           f.folder.empty() ? "nothing" : f.folder));
  }
  if (!report.findings.empty()) {
    return failed(Status::corrupt, fmt::format("{} finding(s)", report.findings.size()),
                  options.findings, "look at finding.txt in the folders that were saved");
  }
  if (report.stopped) return failed(Status::aborted, "stopped by a signal");
  return no_error();
}

}  // namespace tenuto::tool
