// The table of switches; see ablation.h.
#include "bench/alloc/ablation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace bench {
namespace {

using tenuto::PoolOptions;

std::uint64_t whole(double v) { return static_cast<std::uint64_t>(v); }

constexpr std::array kSwitches = {
    AblationSwitch{"stripes", 1, 32, true,
                   "bitmap lines that neighbours go to in turn; 1: not interleaved",
                   [](PoolOptions& o, double v) { o.stripes = static_cast<unsigned>(v); }},
    AblationSwitch{"morph_occupancy", 0, 1, false,
                   "slabs of which less than this part is in use may change their size; 0: never",
                   [](PoolOptions& o, double v) { o.heap.morph_occupancy = v; }},
    AblationSwitch{"book_dead_factor", 2, 1e9, true,
                   "the bookkeeping log is rewritten at so many entries for each live one",
                   [](PoolOptions& o, double v) { o.heap.book_dead_factor = whole(v); }},
    AblationSwitch{"book_heap_ppm", 0, 1e6, true,
                   "... or at two, from so many millionths of the pool's bytes on",
                   [](PoolOptions& o, double v) { o.heap.book_heap_ppm = whole(v); }},
    AblationSwitch{"book_chunks_least", 1, 1e9, true,
                   "... but never below so many KiB; 1000000000: never",
                   [](PoolOptions& o, double v) { o.heap.book_chunks_least = whole(v); }},
    AblationSwitch{"wear_levelling", 0, 1, true, "1: spreads the writes over the pool",
                   [](PoolOptions& o, double v) { o.heap.wear_levelling = v != 0; }},
    AblationSwitch{"wear_rest_ms", 0, 1e9, true, "how long a freed block rests then",
                   [](PoolOptions& o, double v) { o.heap.wear_rest_ms = std::int64_t(v); }},
};

}  // namespace

std::span<const AblationSwitch> ablation_switches() { return kSwitches; }

std::string option_of(const AblationSwitch& s) {
  std::string option = std::string("--") + s.name;
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

void Ablation::apply(PoolOptions& to) const {
  for (const Value& v : values) v.what->set(to, v.value);
  to.model_delays = delays;
}

std::string Ablation::text() const {
  std::string text = delays ? " delays" : "";
  for (const Value& v : values) text += fmt::format(" {}={}", v.what->name, v.value);
  return text;
}

std::vector<Ablation> combinations(std::span<const std::vector<double>> values) {
  std::vector<Ablation> all(1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty()) continue;
    std::vector<Ablation> longer;
    for (const Ablation& a : all) {
      for (const double value : values[i]) {
        longer.push_back(a);
        longer.back().values.push_back({&kSwitches[i], value});
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string wrong_values(std::span<const std::vector<double>> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const AblationSwitch& s = kSwitches[i];
    for (const double v : values[i]) {
      const bool inside = v >= s.least && v <= s.most;
      if (inside && (!s.whole || v == std::floor(v))) continue;
      return fmt::format("{} must be {}{}..{}", option_of(s), s.whole ? "whole numbers " : "",
                         s.least, s.most);
    }
  }
  return "";
}

}  // namespace bench
