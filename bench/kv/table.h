// Tables of markdown from the figures of points: a row for each figure and point, a column for each
// contestant.
#pragma once

#include <string>
#include <vector>

#include "bench/kv/run.h"

namespace bench {

// The text of one cell; empty where nothing was measured.
using Cell = std::string (*)(const ContestFigures& figures, std::size_t contestant, Workload w);

std::string speed_cell(const ContestFigures&, std::size_t, Workload);  // thousands a second
// The first contestant's speed over this one's.
std::string ratio_cell(const ContestFigures&, std::size_t, Workload);
// Of a workload in groups: its speed over that of the same operations one by one.
std::string group_gain_cell(const ContestFigures&, std::size_t, Workload);
std::string reads_cell(const ContestFigures&, std::size_t, Workload);  // percentiles, and the most
std::string inserts_cell(const ContestFigures&, std::size_t, Workload);
std::string updates_cell(const ContestFigures&, std::size_t, Workload);
std::string scans_cell(const ContestFigures&, std::size_t, Workload);
std::string open_cell(const ContestFigures&, std::size_t, Workload);
std::string first_get_cell(const ContestFigures&, std::size_t, Workload);
std::string first_write_cell(const ContestFigures&, std::size_t, Workload);
std::string open_killed_cell(const ContestFigures&, std::size_t, Workload);
std::string first_get_killed_cell(const ContestFigures&, std::size_t, Workload);
std::string first_write_killed_cell(const ContestFigures&, std::size_t, Workload);
std::string close_cell(const ContestFigures&, std::size_t, Workload);
std::string lost_cell(const ContestFigures&, std::size_t, Workload);
std::string memory_cell(const ContestFigures&, std::size_t, Workload);  // private bytes a record
std::string file_cell(const ContestFigures&, std::size_t, Workload);    // bytes a record
std::string lines_cell(const ContestFigures&, std::size_t, Workload);   // lines / fences
std::string syncs_cell(const ContestFigures&, std::size_t, Workload);
std::string journal_cell(const ContestFigures&, std::size_t, Workload);  // lines, payload, written

struct Figure {
  std::string words;  // the row's; the workload's name if empty
  std::vector<Workload> workloads;
  Cell cell;
};

struct Table {
  std::string heading;  // what the cells are
  std::vector<Figure> figures;
};

// What holds for all tables of these points: data, rounds, machine, media, settings.
std::string setting_text(const std::vector<Played>& points);
// Empty if no cell has a text.
std::string table_text(const Table& table, const std::vector<Played>& points);

}  // namespace bench
