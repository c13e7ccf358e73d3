#include "bench/alloc/wear.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "bench/support/json_line.h"
#include "bench/support/origin.h"
#include "bench/support/rng.h"
#include "bench/support/spread.h"
#include "bench/support/tenuto_medium.h"
#include "tenuto/pool.h"

namespace bench {
namespace {

using tenuto::kFrameBytes;
using tenuto::Pool;
using tenuto::PtrWord;
using tenuto::Status;

constexpr std::uint64_t kPoolBytes = 64u << 20;
constexpr std::uint64_t kLiveShare = 8;      // of the pool is in use
constexpr std::uint64_t kHotShare = 10;      // of the objects are replaced, the others live on
constexpr std::uint64_t kWrittenPools = 10;  // what is written in all, in pools
constexpr unsigned kPerMs = 64;              // replacements, by the pool's clock
constexpr std::uint64_t kSeed = 7;

struct Sizes {
  std::uint64_t least, most;
  std::uint64_t mean() const { return (least + most) / 2; }
};
constexpr Sizes kSizes[] = {{64, 64}, {128, 128}, {256, 256}, {512, 512}, {1024, 1024}, {64, 1024}};

struct WearOutcome {
  double mops = 0;
  double spread = 0;     // most over mean lines of a frame
  double variation = 0;  // standard deviation over mean
  std::uint64_t bytes = 0;
};

// One pool: it is filled, and then some of its objects are replaced again and again. What is
// counted is a line of an object that was handed out, with the option and without. The clock is the
// run's own, so the spread repeats exactly.
class WearRun {
 public:
  WearRun(const WearBenchOptions& o, const Sizes& sizes, bool on) : o_(o), sizes_(sizes) {
    how_.size = kPoolBytes;
    how_.medium = *medium_of(o.medium);
    how_.durability = tenuto::Durability::buffered;
    how_.heap.wear_levelling = on;
    how_.heap.wear_rest_ms = 10;
    how_.heap.decay_ms = -1;
    how_.heap.clock_ms = [this] { return now_; };
  }

  std::string play(WearOutcome& to) {
    tenuto::Report report;
    auto made = Pool::create(o_.dir + "/wear.tnt", how_, &report);
    if (!made) return report.text();
    Pool& pool = *made;
    const std::uint64_t objects = kPoolBytes / kLiveShare / sizes_.mean();
    const auto root = pool.root("wear", objects * sizeof(PtrWord), &report);
    if (!root) return report.text();
    auto* const words = static_cast<PtrWord*>(*root);
    for (std::uint64_t i = 0; i < objects; ++i) {
      if (!put(pool, words[i])) return "an object was refused";
    }
    const std::uint64_t replaced = replacements();
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t n = 0; n < replaced; ++n) {
      PtrWord& word = words[rng_.below(objects / kHotShare) * kHotShare];
      if (pool.free_from(word) != Status::ok || !put(pool, word)) return "an object was refused";
      if (n % kPerMs == 0) ++now_;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    to.mops = 2 * static_cast<double>(replaced) / took.count() / 1e6;
    to.bytes = pool.stats().file_bytes;
    spread(to);
    if (pool.validate(&report) != Status::ok) return report.text();
    return pool.close() == Status::ok ? "" : "close failed";
  }

 private:
  std::uint64_t replacements() const {
    const double all = static_cast<double>(kWrittenPools * kPoolBytes / sizes_.mean()) * o_.scale;
    return std::max<std::uint64_t>(static_cast<std::uint64_t>(all), 1);
  }
  bool put(Pool& pool, PtrWord& word) {
    const std::uint64_t bytes = sizes_.least + rng_.below(sizes_.most - sizes_.least + 1);
    if (pool.malloc_to(bytes, word) != Status::ok) return false;
    const std::uint64_t o = pool.offset_of(PtrWord::decode(&word, word.raw)).value;
    if (const std::size_t end = (o + bytes) / kFrameBytes + 1; lines_.size() < end)
      lines_.resize(end);
    for (std::uint64_t l = o / tenuto::kLineBytes; l * tenuto::kLineBytes < o + bytes; ++l) {
      lines_[l * tenuto::kLineBytes / kFrameBytes] += 1;
    }
    return true;
  }
  // Over all frames of the file. The head is a few of them, and counts as never written.
  void spread(WearOutcome& to) {
    lines_.resize(to.bytes / kFrameBytes);
    double sum = 0;
    double squares = 0;
    double most = 0;
    for (const std::uint64_t n : lines_) {
      const auto lines = static_cast<double>(n);
      sum += lines;
      squares += lines * lines;
      most = std::max(most, lines);
    }
    const auto frames = static_cast<double>(lines_.size());
    const double mean = sum / frames;
    to.spread = most / mean;
    to.variation = std::sqrt(std::max(squares / frames - mean * mean, 0.0)) / mean;
  }

  const WearBenchOptions& o_;
  const Sizes sizes_;
  tenuto::PoolOptions how_;
  std::int64_t now_ = 0;
  Rng rng_{kSeed};
  std::vector<std::uint64_t> lines_;  // by frame
};

// By speed; the spread is the same in every round.
std::string json_line(const WearBenchOptions& o, const std::string& sizes, bool on,
                      const std::vector<WearOutcome>& all) {
  const WearOutcome& m = all[all.size() / 2];
  std::vector<double> mops;
  for (const WearOutcome& one : all) mops.push_back(one.mops);
  JsonLine line;
  line.text("bench", "alloc_wear").text("case", "wear " + sizes).text("engine", "tenuto");
  line.text("medium", o.medium).integer("threads", 1).number("scale", o.scale);
  line.flag("wear_levelling", on);
  line.raw("mops", json_of(spread_of(mops)));
  line.number("most_per_mean", m.spread).number("deviation_per_mean", m.variation);
  line.integer("file_bytes", m.bytes);
  add_origin(line);
  return line.str();
}

}  // namespace

std::string run_wear_bench(const WearBenchOptions& o, std::FILE* out,
                           std::vector<std::string>& json) {
  fmt::print(out,
             "a pool of {} MiB, 1/{} in use, 1/{} of the objects replaced all the time; medium {}; "
             "median of {} rounds\n",
             kPoolBytes >> 20, kLiveShare, kHotShare, o.medium, o.rounds);
  fmt::print(out, "{:<12} {:>15} {:>10} {:>14} {:>9} {:>8}\n", "object bytes", "wear levelling",
             "most/mean", "deviation/mean", "file MiB", "Mops/s");
  for (const Sizes& sizes : kSizes) {
    const bool one = sizes.least == sizes.most;
    const std::string name =
        one ? std::to_string(sizes.least) : fmt::format("{}..{}", sizes.least, sizes.most);
    for (const bool on : {false, true}) {
      std::vector<WearOutcome> all(o.rounds);
      for (WearOutcome& outcome : all) {
        WearRun run(o, sizes, on);
        if (const std::string wrong = run.play(outcome); !wrong.empty()) return wrong;
        std::remove((o.dir + "/wear.tnt").c_str());
        std::remove((o.dir + "/wear.tnt.journal").c_str());
      }
      std::sort(all.begin(), all.end(),
                [](const WearOutcome& a, const WearOutcome& b) { return a.mops < b.mops; });
      const WearOutcome& m = all[all.size() / 2];
      json.push_back(json_line(o, name, on, all));
      fmt::print(out, "{:<12} {:>15} {:>10.2f} {:>14.2f} {:>9} {:>8.2f}\n", name, on ? "on" : "off",
                 m.spread, m.variation, m.bytes >> 20, m.mops);
    }
  }
  return {};
}

}  // namespace bench
