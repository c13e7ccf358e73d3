// Collects, prints and writes the measurements; see figures.h.
#include "bench/alloc/figures.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "bench/support/origin.h"

namespace bench {
namespace {

constexpr double kMB = 1e6;

void add_measured(std::vector<double>& to, double value) {
  if (value >= 0) to.push_back(value);
}

// The case's name in the table: growth 1M, threadtest x16 (a batch of 16).
std::string case_text(const AllocSetting& s) {
  std::string text = s.kind->name;
  const std::uint64_t n = s.stage.work.objects;
  if (s.kind->by_objects) {
    text += n % 1'000'000 == 0 ? fmt::format(" {}M", n / 1'000'000) : fmt::format(" {}", n);
  }
  if (s.stage.work.batch > 1) text += fmt::format(" x{}", s.stage.work.batch);
  return text;
}

std::string ratio_text(const AllocFigures& first, const AllocFigures& other) {
  const std::optional<Spread> r = ratio_of(first.mops, other.mops);
  if (!r || &first == &other) return "";
  return fmt::format("{}x ({}..{})", short_number(r->median), short_number(r->min),
                     short_number(r->max));
}

void print_row(std::FILE* out, const AllocSetting& s, const AllocContestant& c,
               const AllocFigures& f, const std::string& ratio, std::size_t label_width) {
  const Spread speed = spread_of(f.mops);
  fmt::print(out, "{:<22}{:<{}}{:>3}{:>9} {:>17} {:>22}{:>7}{:>7}{:>7}{:>9}{:>8}{:>9}{:>9}",
             case_text(s), c.label, label_width, s.stage.work.threads, short_number(speed.median),
             "(" + short_number(speed.min) + ".." + short_number(speed.max) + ")", ratio,
             median_text(f.lines_per_op), median_text(f.fences_per_op),
             median_text(f.reflushes_per_op), median_text(f.peak_bytes, kMB),
             median_text(f.peak_per_live), median_text(f.file_per_live),
             median_text(f.after_bytes, kMB));
  if (s.stage.timed) {
    for (const double share : {0.5, 0.99, 0.999, 1.0}) {
      fmt::print(out, "{:>9}", short_number(microseconds(f.latency.percentile(share))));
    }
  }
  fmt::print(out, "\n");
  if (!f.open_ms.empty()) {
    fmt::print(out, "{:<22}{:<{}}   open {} ms after SIGKILL", "", c.label, label_width,
               median_text(f.open_killed_ms));
    if (!f.recovery_ms.empty()) fmt::print(out, " (recovery {})", median_text(f.recovery_ms));
    fmt::print(out, ", {} ms after a clean close\n", median_text(f.open_ms));
  }
  if (f.findings.verdict[0] != '\0') {
    fmt::print(out, "{:<22}{:<{}}   {}; by tenths, MB:", "", c.label, label_width,
               f.findings.verdict);
    for (const double heap : f.findings.heap_by_tenth) fmt::print(out, " {:.1f}", heap / kMB);
    fmt::print(out, "\n");
  }
}

std::string json_list(std::span<const double> values) {
  std::string list;
  for (const double v : values) list += (list.empty() ? "" : ",") + fmt::format("{:.0f}", v);
  return "[" + list + "]";
}

std::string json_line(const AllocSetting& s, const AllocContestant& c, const AllocFigures& f,
                      const std::string& ratios) {
  JsonLine line;
  line.text("bench", "alloc").text("case", s.kind->name).text("engine", c.kind->engine);
  if (c.kind->variant[0] != '\0') line.text("variant", c.kind->variant);
  if (!f.medium.empty()) line.text("medium", f.medium);
  const CaseOptions& o = s.stage.work;
  for (const Ablation::Value& v : c.ablation.values) line.number(v.what->name, v.value);
  if (c.ablation.delays) line.flag("delays", true);
  line.integer("threads", o.threads).integer("batch", o.batch).number("scale", o.scale);
  const std::uint64_t value_bytes = s.kind->make(o)->value_bytes();
  if (value_bytes != 0) line.integer("value_bytes", value_bytes);
  if (s.kind->by_objects) line.integer("objects", o.objects);
  line.integer("ops", f.ops).integer("rounds", s.rounds).integer("seed", o.seed);
  line.flag("destinations_apart", s.stage.apart).flag("verify", s.stage.verify);
  line.text("file_system", s.file_system);
  line.raw("mops", json_of(spread_of(f.mops)));
  add_median(line, "lines_per_op", f.lines_per_op);
  add_median(line, "fences_per_op", f.fences_per_op);
  add_median(line, "reflushes_per_op", f.reflushes_per_op);
  if (s.stage.timed) add_latency(line, f.latency);
  add_median_whole(line, "peak_bytes", f.peak_bytes);
  add_median_whole(line, "live_bytes", f.live_bytes);
  add_median(line, "peak_per_live", f.peak_per_live);
  add_median(line, "file_per_live", f.file_per_live);
  add_median_whole(line, "after_bytes", f.after_bytes);
  add_median_whole(line, "book_bytes", f.book_bytes);
  add_median_whole(line, "book_fast_gcs", f.book_fast_gcs);
  add_median_whole(line, "book_slow_gcs", f.book_slow_gcs);
  add_median_whole(line, "morphed_slabs", f.morphed_slabs);
  if (f.shape.has_slabs) line.raw("slabs_by_tenth", json_list(f.shape.slabs_by_tenth));
  add_median(line, "open_ms", f.open_ms);
  add_median(line, "open_killed_ms", f.open_killed_ms);
  add_median(line, "recovery_ms", f.recovery_ms);
  add_median(line, "recovery_clean_ms", f.recovery_clean_ms);
  if (f.findings.verdict[0] != '\0') {
    line.raw("heap_by_tenth", json_list(f.findings.heap_by_tenth));
    line.flag("grows", f.findings.grows);
  }
  if (!ratios.empty()) line.raw("ratio_to", ratios);
  line.text("settings", c.kind->settings(c.medium));
  add_origin(line);
  return line.str();
}

}  // namespace

void AllocFigures::add(const AllocResult& r) {
  if (!r.ran || r.seconds <= 0) return;
  ops = r.ops;
  medium = r.medium;
  const auto n = static_cast<double>(r.ops);
  mops.push_back(n / r.seconds / 1e6);
  if (r.counted.lines_flushed >= 0 && r.ops > 0) {
    lines_per_op.push_back(r.counted.lines_flushed / n);
    fences_per_op.push_back(r.counted.fences / n);
    reflushes_per_op.push_back(r.counted.reflushes / n);
  }
  peak_bytes.push_back(static_cast<double>(r.heap_peak));
  live_bytes.push_back(static_cast<double>(r.live_peak));
  if (r.live_peak > 0) {
    peak_per_live.push_back(static_cast<double>(r.heap_peak) / static_cast<double>(r.live_peak));
    if (r.file_peak >= 0) file_per_live.push_back(r.file_peak / static_cast<double>(r.live_peak));
  }
  add_measured(after_bytes, r.heap_after);
  add_measured(open_ms, r.open_ms);
  add_measured(open_killed_ms, r.open_killed_ms);
  add_measured(recovery_ms, r.recovery_ms);
  add_measured(recovery_clean_ms, r.recovery_clean_ms);
  add_measured(book_bytes, r.shape.book_bytes);
  add_measured(book_fast_gcs, r.shape.book_fast_gcs);
  add_measured(book_slow_gcs, r.shape.book_slow_gcs);
  add_measured(morphed_slabs, r.shape.morphed_slabs);
  shape = r.shape;
  latency.merge(r.latency);
  findings = r.findings;
}

std::size_t label_width(const std::vector<AllocContestant>& contestants) {
  std::size_t width = 20;
  for (const AllocContestant& c : contestants) width = std::max(width, c.label.size() + 1);
  return width;
}

void print_head(std::FILE* out, const std::vector<AllocContestant>& contestants, bool latency) {
  fmt::print(out, "\n{:<22}{:<{}}{:>3}{:>9} {:>17} {:>22}{:>7}{:>7}{:>7}{:>9}{:>8}{:>9}{:>9}",
             "case", "allocator", label_width(contestants), "thr", "Mops/s", "(min..max)",
             "first/this", "lines", "fences", "reflu", "peak MB", "pk/live", "file/lv", "after MB");
  if (latency) fmt::print(out, "{:>9}{:>9}{:>9}{:>9}", "p50 us", "p99 us", "p99.9", "max us");
  fmt::print(out, "\n");
}

void print_rows(std::FILE* out, const AllocSetting& setting,
                const std::vector<AllocContestant>& contestants,
                const std::vector<AllocFigures>& figures) {
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    if (figures[i].mops.empty()) continue;
    print_row(out, setting, contestants[i], figures[i], ratio_text(figures[0], figures[i]),
              label_width(contestants));
  }
  std::fflush(out);
}

std::vector<std::string> json_lines(const AllocSetting& setting,
                                    const std::vector<AllocContestant>& contestants,
                                    const std::vector<AllocFigures>& figures) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    if (figures[i].mops.empty()) continue;
    JsonLine ratios;
    bool any = false;
    for (std::size_t k = 1; i == 0 && k < contestants.size(); ++k) {
      const std::optional<Spread> r = ratio_of(figures[0].mops, figures[k].mops);
      if (!r) continue;
      ratios.raw(contestants[k].label, json_of(*r));
      any = true;
    }
    lines.push_back(json_line(setting, contestants[i], figures[i], any ? ratios.str() : ""));
  }
  return lines;
}

}  // namespace bench
