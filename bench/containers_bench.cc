// containers_bench: reads of the containers in a pool beside those of std in DRAM, in one process:
// lookups that find and that do not, and passes over all. Both hold the same keys of 8 bytes, put
// in the same random order. Their rounds take turns, and each answer is compared. bench/README.md
// describes the options and the table.
#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/support/clock.h"
#include "bench/support/origin.h"
#include "bench/support/process.h"
#include "bench/support/rng.h"
#include "bench/support/spread.h"
#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"
#include "tenuto/pool.h"
#include "tenuto/queue.h"
#include "tenuto/vector.h"

namespace {

using namespace bench;
using tenuto::Status;
using tenuto::Transaction;

struct Options {
  std::vector<std::uint64_t> elements = {100, 10'000, 1'000'000};
  unsigned rounds = 7;
  unsigned ms = 100;
  std::string dir = "/dev/shm";
  bool quick = false;
};

struct Ours {
  tenuto::OrderedMap<std::uint64_t, std::uint64_t> tree;
  tenuto::HashMap<std::uint64_t, std::uint64_t> table;
  tenuto::Vector<std::uint64_t> array;
  tenuto::Queue<std::uint64_t> queue;
};
struct Theirs {
  std::map<std::uint64_t, std::uint64_t> tree;
  std::unordered_map<std::uint64_t, std::uint64_t> table;
  std::vector<std::uint64_t> array;
  std::deque<std::uint64_t> queue;
};

using KeyOf = Permutation<64>;  // even numbers have elements, odd ones have not

Status fill(tenuto::Pool& pool, Ours& ours, Theirs& theirs, std::uint64_t n) {
  constexpr std::uint64_t kAtOnce = 1000;
  for (std::uint64_t first = 0; first < n; first += kAtOnce) {
    const Status s = pool.run([&](Transaction& tx) -> Status {
      for (std::uint64_t i = first; i < std::min(n, first + kAtOnce); ++i) {
        const std::uint64_t key = KeyOf::forward(2 * i);
        TENUTO_TRY(ours.tree.insert(tx, key, i));
        TENUTO_TRY(ours.table.insert(tx, key, i));
        TENUTO_TRY(ours.array.push_back(tx, key));
        TENUTO_TRY(ours.queue.push(tx, key));
        theirs.tree.emplace(key, i);
        theirs.table.emplace(key, i);
        theirs.array.push_back(key);
        theirs.queue.push_back(key);
      }
      return Status::ok;
    });
    if (s != Status::ok) return s;
  }
  return Status::ok;
}

// A read on both sides: does `count` steps from a seed, and returns a sum that must be the same.
using Work = std::function<std::uint64_t(std::uint64_t seed, std::uint64_t count)>;
struct Case {
  const char* name;
  const char* theirs_name;
  Work ours, theirs;
};

std::uint64_t value_in(const auto& map, std::uint64_t key) {
  if constexpr (requires { map.find(key)->second; }) {
    const auto at = map.find(key);
    return at == map.end() ? 1 : at->second;
  } else {
    const auto* const value = map.get(key);
    return value == nullptr ? 1 : *value;
  }
}
Work lookups(const auto& map, std::uint64_t n, std::uint64_t odd) {
  return [&map, n, odd](std::uint64_t seed, std::uint64_t count) {
    Rng rng(seed);
    std::uint64_t sum = 0;
    for (; count > 0; --count) sum += value_in(map, KeyOf::forward(2 * rng.below(n) + odd));
    return sum;
  };
}
Work bounds(const auto& map) {
  return [&map](std::uint64_t seed, std::uint64_t count) {
    Rng rng(seed);
    std::uint64_t sum = 0;
    for (; count > 0; --count) {
      const auto at = map.lower_bound(rng.next());
      if (at == map.end()) continue;
      if constexpr (requires { at->second; })
        sum += at->second;
      else
        sum += at->value;
    }
    return sum;
  };
}
// An element is a step. Over and over; the sums of maps do not depend on their order.
Work passes(const auto& all) {
  return [&all](std::uint64_t, std::uint64_t count) {
    std::uint64_t sum = 0;
    for (std::uint64_t done = 0; done < count; done += all.size()) {
      for (const auto& element : all) {
        if constexpr (requires { element.second; })
          sum += element.second;
        else if constexpr (requires { element.value; })
          sum += element.value;
        else
          sum += element;
      }
    }
    return sum;
  };
}
Work picks(const auto& array, std::uint64_t n) {
  return [&array, n](std::uint64_t seed, std::uint64_t count) {
    Rng rng(seed);
    std::uint64_t sum = 0;
    for (; count > 0; --count) sum += array[rng.below(n)];
    return sum;
  };
}

std::vector<Case> cases(const Ours& ours, const Theirs& theirs, std::uint64_t n) {
  return {
      {"OrderedMap: found", "map", lookups(ours.tree, n, 0), lookups(theirs.tree, n, 0)},
      {"OrderedMap: not found", "map", lookups(ours.tree, n, 1), lookups(theirs.tree, n, 1)},
      {"OrderedMap: lower_bound", "map", bounds(ours.tree), bounds(theirs.tree)},
      {"OrderedMap: pass", "map", passes(ours.tree), passes(theirs.tree)},
      {"HashMap: found", "unordered_map", lookups(ours.table, n, 0), lookups(theirs.table, n, 0)},
      {"HashMap: not found", "unordered_map", lookups(ours.table, n, 1),
       lookups(theirs.table, n, 1)},
      {"HashMap: pass", "unordered_map", passes(ours.table), passes(theirs.table)},
      {"Vector: element", "vector", picks(ours.array, n), picks(theirs.array, n)},
      {"Vector: pass", "vector", passes(ours.array), passes(theirs.array)},
      {"Queue: pass", "deque", passes(ours.queue), passes(theirs.queue)},
  };
}

class Bench {
 public:
  explicit Bench(const Options& o) : o_(o) {}

  int run() {
    catch_interrupts();
    Scratch scratch;
    if (!scratch.create(o_.dir, "containers_bench")) {
      fmt::print(stderr, "containers_bench: cannot make a directory in {}\n", o_.dir);
      return 1;
    }
    fmt::print("containers_bench on {}, {}; {} rounds of {} ms\n\n", origin_text(),
               file_system_name(scratch.path()), o_.rounds, o_.ms);
    fmt::print("| elements | read | ns | std's, ns | over std's |\n|---|---|---|---|---|\n");
    for (const std::uint64_t n : o_.elements) {
      const Status s = size(scratch.path() + "/pool" + std::to_string(n), n);
      if (s != Status::ok) {
        fmt::print(stderr, "containers_bench: {}\n", tenuto::status_name(s));
        return 1;
      }
      if (interrupted()) return 130;
    }
    return wrong_ ? 1 : 0;
  }

 private:
  Status size(const std::string& path, std::uint64_t n) {
    tenuto::PoolOptions options;
    options.medium = tenuto::Medium::cache;
    auto pool = tenuto::Pool::create(path, options);
    if (!pool) return pool.error();
    const auto ours = pool->root<Ours>("containers_bench");
    if (!ours) return ours.error();
    Theirs theirs;
    TENUTO_TRY(fill(*pool, **ours, theirs, n));
    for (const Case& c : cases(**ours, theirs, n)) {
      if (interrupted()) break;
      play(c, n);
    }
    return pool->close();
  }

  void play(const Case& c, std::uint64_t n) {
    // As many steps as std's needs for a round, found by doubling.
    std::uint64_t steps = n;
    while (milliseconds_of(c.theirs, 0, steps) < o_.ms / 2.0 && !o_.quick) steps *= 2;
    std::vector<double> mine, other;
    for (unsigned round = 0; round < o_.rounds; ++round) {
      const bool first = round % 2 == 0;
      if (first) mine.push_back(nanoseconds(c.ours, round, steps));
      other.push_back(nanoseconds(c.theirs, round, steps));
      if (!first) mine.push_back(nanoseconds(c.ours, round, steps));
      if (c.ours(round, n) != c.theirs(round, n)) {
        fmt::print(stderr, "containers_bench: {}: another answer\n", c.name);
        wrong_ = true;
      }
    }
    fmt::print("| {} | {}, {} | {} | {} | {} |\n", n, c.name, c.theirs_name, range_text(mine),
               range_text(other), range_text(*ratio_of(mine, other)));
    std::fflush(stdout);
  }
  double milliseconds_of(const Work& work, std::uint64_t seed, std::uint64_t steps) {
    const std::uint64_t start = ticks();
    sum_ = sum_ + work(seed, steps);
    return milliseconds_since(start);
  }
  double nanoseconds(const Work& work, std::uint64_t seed, std::uint64_t steps) {
    return milliseconds_of(work, seed, steps) * 1e6 / static_cast<double>(steps);
  }

  const Options& o_;
  bool wrong_ = false;
  volatile std::uint64_t sum_ = 0;  // so that no read is left out
};

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Reads of containers in a pool beside those of std in DRAM.");
  app.add_option("--elements", o.elements, "numbers of elements")
      ->delimiter(',')
      ->check(CLI::Range(1u, 100'000'000u))
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds, ours and std's in turn")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_option("--ms", o.ms, "milliseconds of a round, about")
      ->check(CLI::Range(1u, 60'000u))
      ->capture_default_str();
  app.add_option("--dir", o.dir, "where the pool is")->capture_default_str();
  app.add_flag("--quick", o.quick, "100 and 3000 elements, two rounds: for CI");
  CLI11_PARSE(app, argc, argv);
  if (o.quick) {
    o.elements = {100, 3000};
    o.rounds = 2;
  }
  return Bench(o).run();
}
