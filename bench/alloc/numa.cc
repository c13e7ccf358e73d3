#include "bench/alloc/numa.h"

#include <sched.h>

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "bench/support/json_line.h"
#include "bench/support/origin.h"
#include "bench/support/spread.h"
#include "bench/support/tenuto_medium.h"
#include "tenuto/pool.h"

namespace bench {
namespace {

using tenuto::NumaStats;
using tenuto::Pool;
using tenuto::PtrWord;
using tenuto::Status;

// Simulated: a thread says where it is.
thread_local unsigned place_of_thread = 0;

// The processors of a node of the machine; empty: it has no such node, or none with processors.
std::vector<int> cpus_of(unsigned node) {
  std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  std::vector<int> all;
  for (int first = 0; file >> first;) {
    int last = first;
    if (file.peek() == '-') {
      file.ignore();
      file >> last;
    }
    for (int i = first; i <= last; ++i) all.push_back(i);
    if (file.peek() == ',') file.ignore();
  }
  return all;
}

enum class Placement { one_node, two_nodes, apart };
struct Work {
  const char* name;
  Placement placement;
  bool consumes;  // half of the threads free what the others allocate
};
constexpr Work kWorks[] = {
    {"shbench, all on one node", Placement::one_node, false},
    {"shbench, over two nodes", Placement::two_nodes, false},
    {"prodcon, on one node", Placement::one_node, true},
    {"prodcon, each pair on one of two nodes", Placement::two_nodes, true},
    {"prodcon, consumers on the other node", Placement::apart, true},
};

constexpr std::size_t kSlots = 1024;  // of a pair of threads, or of one thread
constexpr double kOperations = 400'000;

struct Outcome {
  double mops = 0;
  NumaStats counted;
  std::uint64_t frees = 0;
};

class Run {
 public:
  Run(const NumaBenchOptions& o, const Work& w, bool simulated, bool two_phase)
      : o_(o), work_(w), simulated_(simulated) {
    how_.medium = *medium_of(o.medium);
    how_.durability = tenuto::Durability::buffered;
    how_.heap.numa.two_phase = two_phase;
    if (!simulated) return;
    how_.heap.numa.nodes = 2;
    how_.heap.numa.node_of_thread = [] { return place_of_thread; };
  }

  std::string play(Outcome& to) {
    tenuto::Report report;
    const std::string path = o_.dir + "/numa.tnt";
    auto made = Pool::create(path, how_, &report);
    if (!made) return report.text();
    Pool& pool = *made;
    const std::size_t groups = work_.consumes ? o_.threads / 2 : o_.threads;
    const auto root = pool.root("numa", groups * kSlots * sizeof(PtrWord), &report);
    if (!root) return report.text();
    auto* const words = static_cast<PtrWord*>(*root);
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    // Behind each other on two lines: how far producer and consumer of a pair are.
    struct alignas(128) Turn {
      std::atomic<std::uint64_t> made{0};
      alignas(64) std::atomic<std::uint64_t> freed{0};
    };
    std::vector<Turn> turns(groups);
    for (std::size_t g = 0; g < groups; ++g) {
      PtrWord* const mine = words + g * kSlots;
      const unsigned near = work_.placement == Placement::two_nodes ? g % 2 : 0;
      const unsigned far = work_.placement == Placement::apart ? 1 : near;
      if (!work_.consumes) {
        threads.emplace_back([&, mine, near] { shbench(pool, mine, near); });
        continue;
      }
      threads.emplace_back([&, mine, near, g] {
        place(near);
        for (std::uint64_t i = 0; i < operations(); ++i) {
          wait_until([&] { return i < turns[g].freed.load(std::memory_order_acquire) + kSlots; });
          check(pool.malloc_to(64 + i % 5 * 64, mine[i % kSlots]));
          // Another thread may use a plain word after this thread's next fence: two calls later.
          if (i > 0) turns[g].made.store(i, std::memory_order_release);
        }
        check(pool.sync());
        tenuto::fence("the last block", "its consumer");
        turns[g].made.store(operations(), std::memory_order_release);
      });
      threads.emplace_back([&, mine, far, g] {
        place(far);
        for (std::uint64_t i = 0; i < operations(); ++i) {
          wait_until([&] { return i < turns[g].made.load(std::memory_order_acquire); });
          check(pool.free_from(mine[i % kSlots]));
          turns[g].freed.store(i + 1, std::memory_order_release);
        }
      });
    }
    for (std::thread& t : threads) t.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    to.frees = operations() * groups;
    to.mops = 2 * static_cast<double>(to.frees) / took.count() / 1e6;
    to.counted = pool.stats().numa;
    if (!ok_) return "an operation was refused";
    if (pool.validate(&report) != Status::ok) return report.text();
    if (pool.close() != Status::ok) return "close failed";
    return {};
  }

 private:
  std::uint64_t operations() const {
    return std::max<std::uint64_t>(static_cast<std::uint64_t>(kOperations * o_.scale), 1);
  }
  void check(Status s) {
    if (s != Status::ok) ok_ = false;
  }
  template <class F>
  static void wait_until(const F& f) {
    while (!f()) std::this_thread::yield();
  }
  void place(unsigned node) const {
    place_of_thread = node;
    if (simulated_) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus_of(node)) CPU_SET(static_cast<unsigned>(cpu), &set);
    ::sched_setaffinity(0, sizeof set, &set);
  }
  // Objects of 64 to 400 bytes, a random one of a thread's own replaced each time.
  void shbench(Pool& pool, PtrWord* mine, unsigned node) {
    place(node);
    std::uint64_t random = 88172645463325252ull + node;
    for (std::uint64_t i = 0; i < operations(); ++i) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      PtrWord& word = mine[random % kSlots];
      if (PtrWord::decode(&word, word.raw) != nullptr) check(pool.free_from(word));
      check(pool.malloc_to(64 + random / kSlots % 337, word));
    }
  }

  const NumaBenchOptions& o_;
  const Work& work_;
  const bool simulated_;
  tenuto::PoolOptions how_;
  std::atomic<bool> ok_{true};
};

// By speed; counts are those of the median.
std::string json_line(const NumaBenchOptions& o, const Work& work, bool simulated, bool two_phase,
                      const std::vector<Outcome>& all) {
  const Outcome& m = all[all.size() / 2];
  const double operations = 2 * static_cast<double>(m.frees);
  std::vector<double> mops;
  for (const Outcome& one : all) mops.push_back(one.mops);
  JsonLine line;
  line.text("bench", "alloc_numa").text("case", work.name).text("engine", "tenuto");
  line.text("medium", o.medium).integer("threads", o.threads).number("scale", o.scale);
  line.flag("two_phase", two_phase).flag("simulated", simulated);
  line.raw("mops", json_of(spread_of(mops)));
  line.number("local_per_op", static_cast<double>(m.counted.local_all()) / operations);
  line.number("remote_per_op", static_cast<double>(m.counted.remote_all()) / operations);
  for (std::size_t a = 0; a < tenuto::kNumaAccesses; ++a) {
    const char* const kind = numa_access_name(static_cast<tenuto::NumaAccess>(a));
    line.number(fmt::format("remote_{}_per_op", kind),
                static_cast<double>(m.counted.remote[a]) / operations);
  }
  add_origin(line);
  return line.str();
}

}  // namespace

std::string run_numa_bench(const NumaBenchOptions& o, std::FILE* out,
                           std::vector<std::string>& json) {
  const bool simulated = cpus_of(1).empty();
  fmt::print(
      out, "{} threads, medium {}, {}; median of {} rounds\n", o.threads, o.medium,
      simulated ? "two simulated nodes on one: times mean nothing" : "nodes 0 and 1 of the machine",
      o.rounds);
  fmt::print(out, "{:<40} {:>9} {:>8} {:>9} {:>9}  remote by kind, an operation\n", "", "two-phase",
             "Mops/s", "local/op", "remote/op");
  for (const Work& work : kWorks) {
    for (const bool two_phase : {false, true}) {
      std::vector<Outcome> all;
      for (unsigned i = 0; i < o.rounds; ++i) {
        Run run(o, work, simulated, two_phase);
        Outcome one;
        if (const std::string wrong = run.play(one); !wrong.empty()) return wrong;
        std::remove((o.dir + "/numa.tnt").c_str());
        std::remove((o.dir + "/numa.tnt.journal").c_str());
        all.push_back(one);
      }
      std::sort(all.begin(), all.end(),
                [](const Outcome& a, const Outcome& b) { return a.mops < b.mops; });
      const Outcome& m = all[all.size() / 2];
      const double operations = 2 * static_cast<double>(m.frees);
      json.push_back(json_line(o, work, simulated, two_phase, all));
      std::string kinds;
      for (std::size_t a = 0; a < tenuto::kNumaAccesses; ++a) {
        kinds += fmt::format(" {} {:.3f}", numa_access_name(static_cast<tenuto::NumaAccess>(a)),
                             static_cast<double>(m.counted.remote[a]) / operations);
      }
      fmt::print(out, "{:<40} {:>9} {:>8.2f} {:>9.3f} {:>9.3f} {}\n", work.name,
                 two_phase ? "on" : "off", m.mops,
                 static_cast<double>(m.counted.local_all()) / operations,
                 static_cast<double>(m.counted.remote_all()) / operations, kinds);
    }
  }
  return {};
}

}  // namespace bench
