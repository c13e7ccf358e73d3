// A benchmark of the allocator: the operations of each thread, issued through its Hands. stage.h
// runs it in a child process against one allocator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "bench/alloc/hands.h"
#include "bench/support/rng.h"

namespace bench {

inline constexpr std::size_t kTenths = 10;
inline constexpr unsigned kBatchMax = 256;

struct CaseOptions {
  unsigned threads = 1;
  unsigned batch = 1;
  double scale = 1;           // multiplies the work; below 1 also the number of objects
  std::uint64_t objects = 0;  // for cases whose parameter is the number of objects
  double seconds = 0;         // for cases whose parameter is the time
  std::uint64_t seed = 0;
};

// Results that only some cases produce, beside what every run measures. Plain memory: it is shared
// between processes.
struct CaseFindings {
  double heap_by_tenth[kTenths] = {};  // bytes, maximum in each tenth of the time; 0: not measured
  bool grows = false;
  char verdict[200] = {};
};

struct SizeRange {
  std::uint64_t least;
  std::uint64_t most;
  std::uint64_t draw(Rng& rng) const { return least + rng.below(most - least + 1); }
};

class Case {
 public:
  explicit Case(const CaseOptions& options) : o_(options) {}
  virtual ~Case() = default;

  virtual std::uint64_t slots() const = 0;
  virtual std::uint64_t live_bytes() const = 0;  // requested bytes, an upper bound at any time
  virtual std::uint64_t ops() const = 0;         // of thread 0, roughly; spaces the samples
  virtual unsigned samples() const { return 64; }
  virtual std::uint64_t value_bytes() const { return 0; }  // size of each object; 0: they differ
  virtual bool linked() const { return false; }            // objects hold destinations of others

  // Each thread calls both. Only run() is timed. The stage then checks and frees the live blocks.
  virtual void prepare(Hands&) {}
  virtual void run(Hands& hands) = 0;
  virtual void conclude(CaseFindings&) {}
  // Flushes the contents that the blocks must keep. Called before a crash and not timed, for media
  // where a plain store does not survive the process.
  virtual void flush_contents(Allocator&, Slots) {}
  // Checks the pool that was opened again after run(). Returns null, or the error found. Only
  // called for `reopened` cases.
  virtual const char* inspect(Allocator&, Slots) { return nullptr; }

 protected:
  // Each thread has an equal share of the slots.
  std::uint32_t first_slot(const Hands& hands) const {
    return static_cast<std::uint32_t>(hands.thread() * (slots() / o_.threads));
  }
  // `base` times the scale, at least 1.
  std::uint64_t scaled(double base) const {
    const double n = base * o_.scale;
    return n < 1 ? 1 : static_cast<std::uint64_t>(n + 0.5);
  }
  // A scale below 1 shrinks a population; a larger one must not enlarge the heap.
  std::uint64_t population(double base) const {
    return o_.scale < 1 ? std::max<std::uint64_t>(scaled(base), 2)
                        : static_cast<std::uint64_t>(base);
  }

  const CaseOptions o_;
};

struct CaseKind {
  const char* name;
  const char* what;
  std::unique_ptr<Case> (*make)(const CaseOptions&);
  bool usual = true;         // runs when no benchmark is named
  unsigned threads_max = 0;  // 0: any
  bool by_objects = false;   // runs once for each value of --objects
  bool reopened = false;     // on persistent allocators: killed at the end and opened again
  bool persistent_only = false;
};

std::span<const CaseKind> case_kinds();
const CaseKind* find_case(std::string_view name);

// Factories; defined in cases_small.cc, cases_large.cc, fragbench.cc, recovery.cc, cases_long.cc.
std::unique_ptr<Case> make_threadtest(const CaseOptions&);
template <std::uint64_t kLeast, std::uint64_t kMost>
std::unique_ptr<Case> make_fill(const CaseOptions&);
std::unique_ptr<Case> make_prodcon(const CaseOptions&);
std::unique_ptr<Case> make_shbench(const CaseOptions&);
std::unique_ptr<Case> make_shbench_400(const CaseOptions&);
std::unique_ptr<Case> make_larson_small(const CaseOptions&);
std::unique_ptr<Case> make_larson_large(const CaseOptions&);
std::unique_ptr<Case> make_dbmstest(const CaseOptions&);
std::unique_ptr<Case> make_dbmstest_cold(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w1(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w2(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w3(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w4(const CaseOptions&);
std::unique_ptr<Case> make_recovery_list(const CaseOptions&);
std::unique_ptr<Case> make_recovery_tree(const CaseOptions&);
std::unique_ptr<Case> make_growth(const CaseOptions&);
std::unique_ptr<Case> make_threads(const CaseOptions&);
std::unique_ptr<Case> make_soak(const CaseOptions&);

}  // namespace bench
