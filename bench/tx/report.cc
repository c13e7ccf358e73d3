// Tables and JSON; see report.h.
#include "bench/tx/report.h"

#include <fmt/core.h>

#include <numeric>
#include <optional>

#include "bench/support/origin.h"
#include "bench/support/spread.h"

namespace bench {
namespace {

using Series = std::vector<double> TxFigures::*;

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// "3 / 5": a figure for each engine.
template <class Text>
std::string cell(const std::vector<TxFigures>& figures, Text&& text) {
  std::string joined;
  for (const TxFigures& f : figures) joined += (joined.empty() ? "" : " / ") + text(f);
  return joined;
}

std::string whole_or_short(double v) {
  return v == static_cast<double>(static_cast<std::int64_t>(v)) ? fmt::format("{:.0f}", v)
                                                                : short_number(v);
}

std::string means(const std::vector<TxFigures>& figures, Series series) {
  return cell(figures, [&](const TxFigures& f) -> std::string {
    return (f.*series).empty() ? "-" : whole_or_short(mean_of(f.*series));
  });
}

// The first engine's counts over another's; nullopt where one has none.
std::optional<double> count_ratio(const std::vector<double>& mine,
                                  const std::vector<double>& theirs) {
  if (mine.empty() || theirs.empty() || mean_of(theirs) <= 0) return std::nullopt;
  return mean_of(mine) / mean_of(theirs);
}

std::string instruction_ratios(const std::vector<TxFigures>& figures) {
  std::string joined;
  for (std::size_t i = 1; i < figures.size(); ++i) {
    const auto r = count_ratio(figures[0].instructions, figures[i].instructions);
    joined += (joined.empty() ? "" : " / ") + (r ? fmt::format("{:.2f}", *r) : "-");
  }
  return joined;
}

// The speed of the first engine over each other's. Of times it is theirs over its.
std::optional<Spread> cpu_ratio(const TxFigures& first, const TxFigures& other) {
  return ratio_of(other.cpu_ns, first.cpu_ns);
}

template <class Ratio>
std::string speed_ratios(const std::vector<TxFigures>& figures, Ratio&& ratio) {
  std::string joined;
  for (std::size_t i = 1; i < figures.size(); ++i) {
    const std::optional<Spread> r = ratio(figures[0], figures[i]);
    joined += (joined.empty() ? "" : " / ") + (r ? range_text(*r) : "-");
  }
  return joined;
}

std::string name_of(const TxSetting& s) {
  std::string name = s.what->name;
  if (s.size.value_bytes > 0) name += fmt::format(", {} B", s.size.value_bytes);
  return name;
}

void add_counts(JsonLine& line, const char* name, const char* of_each,
                const std::vector<double>& values) {
  if (values.empty()) return;
  line.number(name, mean_of(values));
  add_spread(line, of_each, values);
}

// The first engine's speed over each other's, and its instructions over theirs.
void add_ratios(JsonLine& line, const std::vector<const TxEngineKind*>& engines,
                const std::vector<TxFigures>& figures) {
  JsonLine speeds;
  JsonLine cpu;
  JsonLine instructions;
  bool any_speed = false;
  bool any_instructions = false;
  for (std::size_t k = 1; k < figures.size(); ++k) {
    if (const auto r = ratio_of(figures[0].mops, figures[k].mops)) {
      speeds.raw(engines[k]->name, json_of(*r));
      if (const auto c = cpu_ratio(figures[0], figures[k])) cpu.raw(engines[k]->name, json_of(*c));
      any_speed = true;
    }
    if (const auto r = count_ratio(figures[0].instructions, figures[k].instructions)) {
      instructions.number(engines[k]->name, *r);
      any_instructions = true;
    }
  }
  if (any_speed) line.raw("ratio_to", speeds.str()).raw("cpu_ratio_to", cpu.str());
  if (any_instructions) line.raw("instructions_ratio_to", instructions.str());
}

}  // namespace

void TxFigures::add(const TurnResult& r) {
  if (!r.finished) return;
  if (r.mops > 0) {
    mops.push_back(r.mops);
    tx_ns.push_back(r.tx_ns);
    cpu_ns.push_back(r.cpu_ns);
  }
  for (unsigned i = 0; i < r.counted; ++i) {
    if (r.counts[i].instructions >= 0) instructions.push_back(r.counts[i].instructions);
    fences.push_back(r.counts[i].fences);
    lines.push_back(r.counts[i].lines);
  }
}

void print_tx_head(std::FILE* out, const std::vector<const TxEngineKind*>& engines,
                   const std::string& medium) {
  std::string names;
  for (const TxEngineKind* kind : engines)
    names += (names.empty() ? "" : " / ") + std::string(kind->name);
  fmt::print(
      out,
      "\nMedium {}, {}:\n\n"
      "| case | threads | fences | lines | instructions | x | ns | cpu ns | speed x | cpu x |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n",
      medium, names);
}

void print_tx_row(std::FILE* out, const TxSetting& s, const std::vector<TxFigures>& figures) {
  const auto ns = cell(figures, [](const TxFigures& f) { return range_text(f.tx_ns); });
  const auto cpu = cell(figures, [](const TxFigures& f) { return median_text(f.cpu_ns); });
  const auto speed = [](const TxFigures& first, const TxFigures& other) {
    return ratio_of(first.mops, other.mops);
  };
  fmt::print(out, "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name_of(s), s.threads,
             means(figures, &TxFigures::fences), means(figures, &TxFigures::lines),
             means(figures, &TxFigures::instructions), instruction_ratios(figures), ns, cpu,
             speed_ratios(figures, speed), speed_ratios(figures, cpu_ratio));
}

std::vector<std::string> tx_json_lines(const TxSetting& s,
                                       const std::vector<const TxEngineKind*>& engines,
                                       const std::vector<TxFigures>& figures) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const TxFigures& f = figures[i];
    if (f.mops.empty() && f.fences.empty()) continue;
    JsonLine line;
    line.text("bench", "tx").text("case", s.what->name).text("engine", engines[i]->name);
    line.text("medium", s.medium).integer("threads", s.threads);
    line.integer("value_bytes", s.size.value_bytes > 0 ? s.size.value_bytes : kRowObjectBytes);
    line.integer("batch", s.size.batch);
    line.integer("transactions", s.transactions).integer("rounds", s.rounds);
    add_spread(line, "mops", f.mops);
    add_spread(line, "ns_per_op", f.tx_ns);
    add_spread(line, "cpu_ns_per_op", f.cpu_ns);
    line.integer("samples", f.fences.size());
    add_counts(line, "fences_per_op", "fences", f.fences);
    add_counts(line, "lines_per_op", "lines", f.lines);
    add_counts(line, "instructions_per_op", "instructions", f.instructions);
    if (i == 0) add_ratios(line, engines, figures);
    line.text("settings", engines[i]->settings(s.medium));
    add_origin(line);
    lines.push_back(line.str());
  }
  return lines;
}

}  // namespace bench
