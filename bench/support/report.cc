// The tables and the JSON lines; see report.h.
#include "bench/support/report.h"

#include <fmt/core.h>

#include <algorithm>

#include "bench/support/origin.h"

namespace bench {
namespace {

std::string latency_text(const Histogram& h) {
  return fmt::format("{:>8}{:>8}{:>8}{:>9}", short_number(microseconds(h.percentile(0.5))),
                     short_number(microseconds(h.percentile(0.99))),
                     short_number(microseconds(h.percentile(0.999))),
                     short_number(microseconds(h.max())));
}

void print_case(std::FILE* out, const ContestFigures& figures, std::size_t contestant, Workload w) {
  const CaseFigures* f = figures.find(contestant, w);
  if (f == nullptr || f->ops_per_second.empty()) return;
  const Spread speed = spread_of(f->ops_per_second);
  std::string ratio = "";
  if (const std::optional<Spread> r = figures.ratio_to(contestant, w)) {
    ratio = fmt::format("{:.2f}x ({:.2f}..{:.2f})", r->median, r->min, r->max);
  }
  std::string row = fmt::format(
      "{:<14}{:<16}{:>9} {:>17} {:>20}", workload_name(w), figures.contestants[contestant].label,
      short_number(speed.median / 1e3),
      "(" + short_number(speed.min / 1e3) + ".." + short_number(speed.max / 1e3) + ")", ratio);
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    if (f->by_kind[k].total() == 0) continue;
    fmt::print(out, "{:<79} {:<7}{}", row, op_name(static_cast<OpKind>(k)),
               latency_text(f->by_kind[k]));
    if (!row.empty()) fmt::print(out, "{:>9}", median_text(f->bytes_written_per_op));
    fmt::print(out, "\n");
    row.clear();
  }
}

std::string latencies_by_kind(const CaseFigures& f) {
  JsonLine kinds;
  for (std::size_t k = 0; k < kOpKinds; ++k) {
    if (f.by_kind[k].total() == 0) continue;
    JsonLine one;
    one.integer("count", f.by_kind[k].total());
    add_latency(one, f.by_kind[k]);
    kinds.raw(op_name(static_cast<OpKind>(k)), one.str());
  }
  return kinds.str();
}

std::string ratios_to_others(const ContestFigures& figures, Workload w) {
  JsonLine ratios;
  bool any = false;
  for (std::size_t i = 1; i < figures.contestants.size(); ++i) {
    const std::optional<Spread> r = figures.ratio_to(i, w);
    if (!r) continue;
    ratios.raw(figures.contestants[i].label, json_of(*r));
    any = true;
  }
  return any ? ratios.str() : "";
}

EngineOptions options_of(const Setting& setting, const Contestant& c) {
  EngineOptions options = setting.engine;
  options.medium = c.medium;
  options.journal_writes = c.journal_writes;
  return options;
}

std::string json_line(const Setting& s, const ContestFigures& figures, std::size_t contestant,
                      Workload w, const CaseFigures& f) {
  const Contestant& c = figures.contestants[contestant];
  JsonLine line;
  line.text("bench", s.bench).text("case", workload_name(w)).text("engine", c.kind->name);
  if (!f.medium.empty()) line.text("medium", f.medium);
  if (c.kind->is_volatile) line.flag("volatile", true);
  line.integer("threads", w == Workload::open ? 1 : s.threads)
      .integer("records", s.records)
      .integer("ops", f.ops);
  line.integer("key_bytes", s.key_bytes).integer("value_bytes", s.value_bytes);
  line.text("key_order", s.ordered ? "ordered" : "hashed");
  if (s.engine.compacted) line.flag("compacted", true);
  line.text("distribution", w == Workload::d ? "latest" : distribution_name(s.distribution));
  line.text("durability", s.engine.sync || w == Workload::sync_insert ? "sync" : "buffered");
  if (f.medium == "journal") line.text("journal_writes", c.journal_writes);
  line.text("device", s.device);
  line.text("file_system", s.file_system)
      .integer("rounds", w == Workload::open ? s.opens : s.rounds);
  line.integer("turns", f.file_bytes.size()).integer("seed", s.seed);
  if (!f.ops_per_second.empty()) {
    Spread mops = spread_of(f.ops_per_second);
    mops = {mops.median / 1e6, mops.min / 1e6, mops.max / 1e6};
    line.raw("mops", json_of(mops));
    add_latency(line, f.all);
    line.raw("latency", latencies_by_kind(f));
  }
  add_median(line, "scanned_per_op", f.scanned_per_op);
  add_median(line, "lines_per_op", f.lines_per_op);
  add_median(line, "fences_per_op", f.fences_per_op);
  add_median(line, "reflushes_per_op", f.reflushes_per_op);
  add_median(line, "bytes_written_per_op", f.bytes_written_per_op);
  add_median(line, "cpu_us_per_op", f.cpu_us_per_op);
  add_median(line, "instructions_per_op", f.instructions_per_op);
  add_median(line, "cycles_per_op", f.cycles_per_op);
  add_median(line, "cache_misses_per_op", f.cache_misses_per_op);
  add_median(line, "tlb_misses_per_op", f.tlb_misses_per_op);
  add_median(line, "sync_calls_per_write", f.sync_calls_per_write);
  add_median(line, "device_flushes_per_write", f.device_flushes_per_write);
  add_median(line, "storage_bytes_per_write", f.storage_bytes_per_write);
  add_median(line, "device_bytes_per_write", f.device_bytes_per_write);
  add_median(line, "commits_per_write", f.commits_per_write);
  add_median(line, "journal_lines_per_write", f.journal_lines_per_write);
  add_median(line, "journal_payload_per_write", f.journal_payload_per_write);
  add_median(line, "journal_written_per_write", f.journal_written_per_write);
  add_median(line, "checkpoint_bytes_per_write", f.checkpoint_bytes_per_write);
  add_median(line, "lost_ops", f.lost_ops);
  add_median(line, "lost_ms", f.lost_ms);
  add_median_whole(line, "memory_bytes", f.memory_bytes);
  add_median_whole(line, "file_bytes", f.file_bytes);
  add_spread(line, "open_ms", f.open_ms);
  add_spread(line, "first_get_ms", f.first_get_ms);
  add_spread(line, "first_write_ms", f.first_write_ms);
  add_spread(line, "open_killed_ms", f.open_killed_ms);
  add_spread(line, "first_get_killed_ms", f.first_get_killed_ms);
  add_spread(line, "first_write_killed_ms", f.first_write_killed_ms);
  add_spread(line, "close_ms", f.close_ms);
  const std::string ratios = contestant == 0 ? ratios_to_others(figures, w) : "";
  if (!ratios.empty()) line.raw("ratio_to", ratios);
  EngineOptions options = options_of(s, c);
  options.sync = options.sync || w == Workload::sync_insert;
  line.text("settings", c.kind->settings(options));
  if (!f.note.empty()) line.text("note", f.note);
  add_origin(line);
  return line.str();
}

void print_io(std::FILE* out, const ContestFigures& figures) {
  fmt::print(out, "\n{:<14}{:<16}{:>10}{:>12}{:>12}{:>10}{:>10}{:>11}{:>11}{:>11}{:>12}\n",
             "for each", "engine", "CPU us", "sync calls", "flushes*", "bytes", "bytes*", "commits",
             "lines", "payload", "checkpoint");
  for (const Workload w : figures.cases) {
    for (std::size_t i = 0; i < figures.contestants.size(); ++i) {
      const CaseFigures* f = figures.find(i, w);
      if (f == nullptr || f->cpu_us_per_op.empty()) continue;
      fmt::print(out, "{:<14}{:<16}{:>10}{:>12}{:>12}{:>10}{:>10}{:>11}{:>11}{:>11}{:>12}\n",
                 workload_name(w), figures.contestants[i].label, median_text(f->cpu_us_per_op),
                 median_text(f->sync_calls_per_write), median_text(f->device_flushes_per_write),
                 median_text(f->storage_bytes_per_write), median_text(f->device_bytes_per_write),
                 median_text(f->commits_per_write), median_text(f->journal_lines_per_write),
                 median_text(f->journal_payload_per_write),
                 median_text(f->checkpoint_bytes_per_write));
    }
  }
  fmt::print(out,
             "CPU: for each operation, all threads of the process; the others for each write. Sync "
             "calls: fsync and its kin, and writes to O_DSYNC files. Bytes: sent to storage by the "
             "process. *: of the whole device, whoever caused it.\n");
}

// One row per case, or the reason why there is none.
void print_hardware(std::FILE* out, const ContestFigures& figures) {
  const std::string missing = HardwareMeter::why();
  if (!missing.empty()) fmt::print(out, "\nProcessor's counters: n/a ({})\n", missing);
  const auto counted = [](const CaseFigures* f) {
    return f != nullptr && !(f->instructions_per_op.empty() && f->cycles_per_op.empty() &&
                             f->cache_misses_per_op.empty() && f->tlb_misses_per_op.empty());
  };
  bool any = false;
  for (const Workload w : figures.cases) {
    for (std::size_t i = 0; i < figures.contestants.size(); ++i) {
      const CaseFigures* f = figures.find(i, w);
      if (!counted(f)) continue;
      if (!any) {
        fmt::print(out, "\n{:<14}{:<16}{:>14}{:>10}{:>14}{:>12}\n", "for each op", "engine",
                   "instructions", "cycles", "cache misses", "TLB misses");
      }
      any = true;
      fmt::print(out, "{:<14}{:<16}{:>14}{:>10}{:>14}{:>12}\n", workload_name(w),
                 figures.contestants[i].label, median_text(f->instructions_per_op),
                 median_text(f->cycles_per_op), median_text(f->cache_misses_per_op),
                 median_text(f->tlb_misses_per_op));
    }
  }
}

// Sizes and times of opening, after the load and after the last workload of a store. Times of
// opening have least and most.
void print_ends(std::FILE* out, const ContestFigures& figures) {
  constexpr const char* kRow =
      "{:<14}{:<16}{:>10}{:>9}{:>24}{:>9}{:>9}{:>24}{:>9}{:>9}{:>10}{:>9}\n";
  fmt::print(out, fmt::runtime(std::string("\n") + kRow), "at the end of", "engine", "memory MB",
             "file MB", "open ms", "get ms", "write ms", "after SIGKILL", "get ms", "write ms",
             "close ms", "lost ms");
  for (const Workload w : figures.cases) {
    for (std::size_t i = 0; i < figures.contestants.size(); ++i) {
      const CaseFigures* f = figures.find(i, w);
      const bool last = w == figures.cases.back() || w == Workload::load;
      if (f == nullptr || !(last || !f->open_ms.empty())) continue;
      fmt::print(out, fmt::runtime(kRow), workload_name(w), figures.contestants[i].label,
                 median_text(f->memory_bytes, 1e6), median_text(f->file_bytes, 1e6),
                 range_text(f->open_ms), median_text(f->first_get_ms),
                 median_text(f->first_write_ms), range_text(f->open_killed_ms),
                 median_text(f->first_get_killed_ms), median_text(f->first_write_killed_ms),
                 median_text(f->close_ms), median_text(f->lost_ms));
    }
  }
}

}  // namespace

std::string settings_text(const Setting& setting, const Contestant& contestant) {
  return contestant.kind->settings(options_of(setting, contestant));
}

void print_settings(std::FILE* out, const Setting& setting,
                    const std::vector<Contestant>& contestants) {
  for (const Contestant& c : contestants) {
    fmt::print(out, "  {:<12} {}\n", c.label, settings_text(setting, c));
  }
}

void print_tables(std::FILE* out, const Setting& s, const ContestFigures& figures) {
  fmt::print(out,
             "\n{} records, keys of {} bytes ({}), values of {} bytes, {} thread{}, {}, {}, {} "
             "round{} on {}, {}\n",
             s.records, s.key_bytes, s.ordered ? "ordered" : "hashed", s.value_bytes, s.threads,
             s.threads == 1 ? "" : "s", distribution_name(s.distribution),
             s.engine.sync ? "sync" : "buffered", s.rounds, s.rounds == 1 ? "" : "s", s.file_system,
             s.device);
  fmt::print(out, "{}\n", origin_text());
  const std::string first = figures.contestants.front().label + "/this";
  fmt::print(out, "{:<14}{:<16}{:>9} {:>17} {:>20} {:<7}{:>8}{:>8}{:>8}{:>9}{:>9}\n", "workload",
             "engine", "kops/s", "(min..max)", figures.contestants.size() > 1 ? first : "", " op",
             "p50 us", "p99 us", "p99.9", "max us", "B/op");
  for (const Workload w : figures.cases) {
    for (std::size_t i = 0; i < figures.contestants.size(); ++i) print_case(out, figures, i, w);
  }
  print_io(out, figures);
  print_hardware(out, figures);
  print_ends(out, figures);
  for (const std::string& note : notes_of(figures)) fmt::print(out, "{}\n", note);
}

std::vector<std::string> notes_of(const ContestFigures& figures) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < figures.contestants.size(); ++i) {
    for (const Workload w : figures.cases) {
      const CaseFigures* f = figures.find(i, w);
      if (f == nullptr) continue;
      const Contestant& c = figures.contestants[i];
      const bool chosen = !f->medium.empty() && f->medium != c.medium;  // by `auto`
      if (f->note.empty() && !chosen) continue;
      const std::string note = c.label + ": " + (chosen ? "medium " + f->medium : "") + f->note;
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
    }
  }
  return notes;
}

std::vector<std::string> json_lines(const Setting& setting, const ContestFigures& figures) {
  std::vector<std::string> lines;
  for (const Workload w : figures.cases) {
    for (std::size_t i = 0; i < figures.contestants.size(); ++i) {
      const CaseFigures* f = figures.find(i, w);
      if (f != nullptr) lines.push_back(json_line(setting, figures, i, w, *f));
    }
  }
  return lines;
}

}  // namespace bench
