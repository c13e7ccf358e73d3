#include "bench/alloc/steps.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "bench/support/child.h"
#include "bench/support/origin.h"
#include "bench/support/spread.h"
#include "bench/support/step_counter.h"

namespace bench {
namespace {

constexpr std::uint64_t kObjectBytes = 64;
constexpr std::size_t kObjects = 8192;  // live at most; some slabs of any allocator
constexpr unsigned kSecondsMax = 300;

enum Call { kMalloc, kFree, kCalls };
constexpr const char* kCallNames[kCalls] = {"malloc", "free"};

// Of one object, whose group's counts were divided by its size. Plain memory: a child writes it.
struct Counted {
  std::size_t groups = 0;
  double instructions[kStepsCounted] = {};
  double locked = 0;  // these are means
  double drains = 0;
  double fences = 0;
  double lines = 0;
};

struct StepsResult {
  Counted of[kCalls];
  char error[400] = {};
};

// A heap in the state of threadtest's: kObjects were allocated and freed, and are again.
class Steps {
 public:
  Steps(Allocator& allocator, std::byte* root, unsigned batch, std::size_t counted)
      : allocator_(allocator),
        objects_(kObjects / batch * batch),
        counted_(std::max<std::size_t>(counted, batch) / batch * batch) {
    for (std::size_t i = 0; i < objects_; ++i) words_.push_back(root + i * allocator.word_bytes());
    sizes_.assign(batch, kObjectBytes);
  }

  bool run(StepsResult& r) {
    bool all = true;
    for (int turn = 0; turn < 2; ++turn) {
      for (std::size_t i = 0; i < objects_; i += batch()) all = all && call(kMalloc, i);
      for (std::size_t i = 0; i < objects_; i += batch()) all = all && call(kFree, i);
    }
    const std::size_t first = objects_ / 2 / batch() * batch();
    const std::size_t last = first + counted_;
    for (const Call what : {kMalloc, kFree}) {
      for (std::size_t i = 0; i < objects_; i += batch()) {
        const bool counted = first <= i && i < last;
        all = all && (counted ? count(what, i, r.of[what]) : call(what, i));
      }
    }
    return all;
  }

 private:
  std::size_t batch() const { return sizes_.size(); }
  // For the objects i to i + batch() - 1.
  bool call(Call what, std::size_t i) {
    const auto words = std::span<void* const>(words_).subspan(i, batch());
    if (batch() > 1) {
      return what == kMalloc ? allocator_.malloc_group(words, sizes_)
                             : allocator_.free_group(words);
    }
    if (what == kFree) return allocator_.free_from(words[0]);
    return allocator_.malloc_to(kObjectBytes, words[0]) != nullptr;
  }
  bool count(Call what, std::size_t i, Counted& to) {
    bool done = false;
    const StepCounts c = steps_.count([&] { done = call(what, i); });
    const auto n = static_cast<double>(batch());
    const double share = n / static_cast<double>(counted_);
    to.instructions[to.groups++] = static_cast<double>(c.instructions - own_.instructions) / n;
    to.locked += static_cast<double>(c.locked) / n * share;
    to.drains += static_cast<double>(c.drains) / n * share;
    to.fences += static_cast<double>(c.fences) / n * share;
    to.lines += c.lines() / n * share;
    return done;
  }

  Allocator& allocator_;
  const std::size_t objects_, counted_;  // whole groups
  std::vector<void*> words_;
  std::vector<std::uint64_t> sizes_;  // of a group
  StepCounter steps_;
  const StepCounts own_ = steps_.count([] {});
};

int refuse(StepsResult& r, const char* what, const std::string& why) {
  std::snprintf(r.error, sizeof r.error, "%s: %s", what, why.c_str());
  return 1;
}

int run_steps(const AllocContestant& c, const StepsBenchOptions& o, unsigned batch,
              StepsResult& r) {
  const std::unique_ptr<Allocator> allocator = c.kind->make();
  const std::uint64_t root_bytes = kObjects * allocator->word_bytes();
  if (!allocator->open({o.dir, c.medium, root_bytes, kObjects * kObjectBytes, c.ablation})) {
    return refuse(r, "open", allocator->error());
  }
  std::byte* const root = allocator->root();
  if (root == nullptr) return refuse(r, "root", allocator->error());
  if (!Steps(*allocator, root, batch, o.counted).run(r)) return refuse(r, "an object", "refused");
  if (!allocator->validate()) return refuse(r, "validate", allocator->error());
  return allocator->close() ? 0 : refuse(r, "close", allocator->error());
}

void print(std::FILE* out, const std::string& label, unsigned batch, Call what, const Counted& c,
           const Spread& instructions, double mean) {
  fmt::print(out, "{:<22}{:>6} {:<7}{:>9.0f}{:>9.0f}{:>9.0f}{:>9}{:>9}{:>9}{:>9}\n", label, batch,
             kCallNames[what], instructions.median, mean, instructions.max, short_number(c.locked),
             short_number(c.drains), short_number(c.fences), short_number(c.lines));
}

std::string json_line(const AllocContestant& c, unsigned batch, Call what, const Counted& counted,
                      const Spread& instructions, double mean) {
  JsonLine line;
  line.text("bench", "alloc_steps").text("case", kCallNames[what]).text("engine", c.kind->engine);
  if (c.kind->variant[0] != '\0') line.text("variant", c.kind->variant);
  if (!c.medium.empty()) line.text("medium", c.medium);
  line.integer("threads", 1).integer("batch", batch).integer("value_bytes", kObjectBytes);
  line.raw("instructions", json_of(instructions)).number("instructions_mean", mean);
  line.number("locked", counted.locked).number("drains", counted.drains);
  line.number("fences", counted.fences);
  line.number("lines", counted.lines);
  line.text("settings", c.kind->settings(c.medium));
  add_origin(line);
  return line.str();
}

}  // namespace

std::string run_steps_bench(const StepsBenchOptions& o,
                            const std::vector<AllocContestant>& contestants, std::FILE* out,
                            std::vector<std::string>& json) {
  fmt::print(out,
             "objects of {} B, {} of {} counted by single steps, one thread; of an object\n"
             "{:<22}{:>6} {:<7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n",
             kObjectBytes, o.counted, kObjects, "allocator", "group", "call", "instr.", "mean",
             "most", "locked", "drains", "fences", "lines");
  Shared<StepsResult> result;
  for (const unsigned batch : o.batches) {
    for (const AllocContestant& c : contestants) {
      result.reset();
      const pid_t child = start_child([&] { return run_steps(c, o, batch, *result); });
      std::string why = child < 0 ? "cannot fork" : "";
      const bool ran = child >= 0 && wait_child(child, kSecondsMax, why);
      for (const auto& file : std::filesystem::directory_iterator(o.dir)) {
        std::filesystem::remove_all(file);
      }
      if (!ran) return c.label + ": " + (result->error[0] != '\0' ? result->error : why);
      for (const Call what : {kMalloc, kFree}) {
        const Counted& counted = result->of[what];
        const std::vector<double> all(counted.instructions, counted.instructions + counted.groups);
        double sum = 0;
        for (const double n : all) sum += n;
        const double mean = sum / static_cast<double>(all.size());
        print(out, c.label, batch, what, counted, spread_of(all), mean);
        json.push_back(json_line(c, batch, what, counted, spread_of(all), mean));
      }
    }
  }
  return {};
}

}  // namespace bench
