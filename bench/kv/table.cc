// Tables of markdown; see table.h.
#include "bench/kv/table.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <utility>

#include "bench/support/origin.h"

namespace bench {
namespace {

using Values = std::vector<double> CaseFigures::*;

std::string range_of(const ContestFigures& figures, std::size_t i, Workload w, Values values,
                     double unit = 1) {
  const CaseFigures* f = figures.find(i, w);
  return f == nullptr || (f->*values).empty() ? "" : range_text(f->*values, unit);
}

std::string median_of(const ContestFigures& figures, std::size_t i, Workload w, Values values,
                      double unit = 1) {
  const CaseFigures* f = figures.find(i, w);
  return f == nullptr || (f->*values).empty() ? "" : median_text(f->*values, unit);
}

std::string tail_of(const ContestFigures& figures, std::size_t i, Workload w, OpKind kind) {
  const CaseFigures* f = figures.find(i, w);
  if (f == nullptr) return "";
  const Histogram& h = f->by_kind[static_cast<std::size_t>(kind)];
  if (h.total() == 0) return "";
  const auto at = [&](double share) { return short_number(microseconds(h.percentile(share))); };
  return fmt::format("{} / {} / {} / {}", at(.5), at(.99), at(.999),
                     short_number(microseconds(h.max())));
}

// Of one round; of a load as many as records.
double operations(const ContestFigures& figures, std::size_t i, Workload w) {
  const CaseFigures* f = figures.find(i, w);
  return f == nullptr ? 1 : static_cast<double>(f->ops);
}

// Several figures in one cell; empty if one of them was not measured.
std::string joined(std::initializer_list<std::string> texts) {
  std::string all;
  for (const std::string& t : texts) {
    if (t.empty()) return "";
    all += (all.empty() ? "" : " / ") + t;
  }
  return all;
}

// What points do not share tells them apart.
struct Differences {
  explicit Differences(const std::vector<Played>& points) {
    const Setting& first = points.front().setting;
    for (const Played& p : points) {
      const Setting& s = p.setting;
      threads |= s.threads != first.threads;
      shape |= s.key_bytes != first.key_bytes || s.value_bytes != first.value_bytes;
      records |= s.records != first.records;
    }
  }
  std::string label(const Setting& s) const {
    std::string text;
    if (records) text += fmt::format(", {} M records", short_number(double(s.records) / 1e6));
    if (shape) text += fmt::format(", {} + {} B", s.key_bytes, s.value_bytes);
    if (threads) text += fmt::format(", {} thread{}", s.threads, s.threads == 1 ? "" : "s");
    return text;
  }

  bool threads = false, shape = false, records = false;
};

std::string shape_text(const Setting& s) {
  return fmt::format("{} + {}", s.key_bytes, s.value_bytes);
}

void add_once(std::vector<std::string>& texts, std::string text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
}

template <class Get>
std::string listed(const std::vector<Played>& points, Get&& get) {
  std::vector<std::string> texts;
  for (const Played& p : points) add_once(texts, get(p));
  std::string all;
  for (const std::string& t : texts) all += (all.empty() ? "" : ", ") + t;
  return all;
}

// Rounds that were played: a limit of time may have ended them early.
std::string rounds_text(const std::vector<Played>& points) {
  std::set<std::size_t> rounds;
  for (const Played& p : points) {
    for (const auto& [key, f] : p.figures.figures) rounds.insert(f.file_bytes.size());
  }
  if (rounds.empty()) return "no round";
  const std::size_t least = *rounds.begin(), most = *rounds.rbegin();
  return (least == most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most)) +
         (most == 1 ? " round" : " interleaved rounds");
}

std::string row_text(const std::string& words, const std::vector<std::string>& cells) {
  std::string row = words.empty() ? "|" : "| " + words;
  for (const std::string& cell : cells) row += " | " + cell;
  return row + " |\n";
}

std::string rule_text(std::size_t columns) {
  std::string rule;
  for (std::size_t i = 0; i < columns; ++i) rule += "|---";
  return rule + "|\n";
}

}  // namespace

std::string speed_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::ops_per_second, 1e3);
}
std::string ratio_cell(const ContestFigures& f, std::size_t i, Workload w) {
  const std::optional<Spread> ratio = f.ratio_to(i, w);
  return ratio ? range_text(*ratio) : "";
}
std::string group_gain_cell(const ContestFigures& f, std::size_t i, Workload w) {
  const CaseFigures* const groups = f.find(i, w);
  const CaseFigures* const single =
      f.find(i, w == Workload::update_x100 ? Workload::update : Workload::c);
  if (groups == nullptr || single == nullptr) return "";
  const std::optional<Spread> gain = ratio_of(groups->ops_per_second, single->ops_per_second);
  return gain ? range_text(*gain) : "";
}
std::string reads_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return tail_of(f, i, w, OpKind::read);
}
std::string inserts_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return tail_of(f, i, w, OpKind::insert);
}
std::string updates_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return tail_of(f, i, w, OpKind::update);
}
std::string scans_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return tail_of(f, i, w, OpKind::scan);
}
std::string open_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::open_ms);
}
std::string first_get_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::first_get_ms);
}
std::string first_write_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::first_write_ms);
}
std::string open_killed_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::open_killed_ms);
}
std::string first_get_killed_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::first_get_killed_ms);
}
std::string first_write_killed_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::first_write_killed_ms);
}
std::string close_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::close_ms);
}
std::string lost_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return range_of(f, i, w, &CaseFigures::lost_ms);
}
std::string memory_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return median_of(f, i, w, &CaseFigures::memory_bytes, operations(f, i, w));
}
std::string file_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return median_of(f, i, w, &CaseFigures::file_bytes, operations(f, i, w));
}
std::string lines_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return joined({median_of(f, i, w, &CaseFigures::lines_per_op),
                 median_of(f, i, w, &CaseFigures::fences_per_op)});
}
std::string syncs_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return median_of(f, i, w, &CaseFigures::sync_calls_per_write);
}
std::string journal_cell(const ContestFigures& f, std::size_t i, Workload w) {
  return joined({median_of(f, i, w, &CaseFigures::journal_lines_per_write),
                 median_of(f, i, w, &CaseFigures::journal_payload_per_write),
                 median_of(f, i, w, &CaseFigures::journal_written_per_write)});
}

std::string setting_text(const std::vector<Played>& points) {
  const Setting& s = points.front().setting;
  std::string text = fmt::format(
      "{} records of {} bytes (keys and values), {} keys, {}, {}; threads: {}; {}; on {} ({}).\n\n"
      "{}.\n\n",
      listed(points, [](const Played& p) { return std::to_string(p.setting.records); }),
      listed(points, [](const Played& p) { return shape_text(p.setting); }),
      s.ordered ? "ordered" : "hashed", distribution_name(s.distribution),
      s.engine.sync ? "sync" : "buffered",
      listed(points, [](const Played& p) { return std::to_string(p.setting.threads); }),
      rounds_text(points), s.file_system, s.device, origin_text());
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < points.front().figures.contestants.size(); ++i) {
    for (const Played& p : points) {
      const Contestant& c = p.figures.contestants[i];
      add_once(lines, fmt::format("- `{}`: {}\n", c.label, settings_text(p.setting, c)));
    }
  }
  for (const Played& p : points) {
    for (const std::string& note : notes_of(p.figures)) add_once(lines, "- " + note + "\n");
  }
  for (const std::string& line : lines) text += line;
  return text + "\n";
}

std::string table_text(const Table& table, const std::vector<Played>& points) {
  const Differences differences(points);
  const std::vector<Contestant>& contestants = points.front().figures.contestants;
  std::vector<std::pair<std::string, std::vector<std::string>>> rows;
  for (const Figure& figure : table.figures) {
    for (const Workload w : figure.workloads) {
      for (const Played& p : points) {
        std::vector<std::string> cells;
        for (std::size_t i = 0; i < contestants.size(); ++i) {
          cells.push_back(figure.cell(p.figures, i, w));
        }
        const std::string words = figure.words.empty() ? workload_name(w) : figure.words;
        rows.emplace_back(words + differences.label(p.setting), std::move(cells));
      }
    }
  }
  // A column in which nothing was measured is left out, and so is such a row.
  const auto used = [&](std::size_t i) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const auto& row) { return !row.second[i].empty(); });
  };
  std::vector<std::size_t> columns;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    if (!used(i)) continue;
    columns.push_back(i);
    names.push_back(contestants[i].label);
  }
  if (columns.empty()) return "";
  std::string text = table.heading + ":\n\n" + row_text("", names) + rule_text(names.size() + 1);
  for (const auto& [words, all] : rows) {
    std::vector<std::string> cells;
    for (const std::size_t i : columns) cells.push_back(all[i]);
    const bool empty =
        std::all_of(cells.begin(), cells.end(), [](const auto& c) { return c.empty(); });
    if (!empty) text += row_text(words, cells);
  }
  return text + "\n";
}

}  // namespace bench
