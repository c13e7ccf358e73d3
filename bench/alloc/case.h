// A benchmark of the allocator: what each thread does with its hands. stage.h plays it, in a child
// process, against one allocator.
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
  std::uint64_t objects = 0;  // where the number of objects is the parameter
  double seconds = 0;         // where time is
  std::uint64_t seed = 0;
};

// What a case found out by itself beyond what every run measures. Plain memory: it crosses between
// processes.
struct CaseFindings {
  double heap_by_tenth[kTenths] = {};  // bytes, the most in each tenth of the time; 0: not measured
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
  virtual std::uint64_t live_bytes() const = 0;  // requested and in use at once, at most
  virtual std::uint64_t ops() const = 0;         // thread 0's, about: for choosing sample points
  virtual unsigned samples() const { return 64; }
  virtual std::uint64_t value_bytes() const { return 0; }  // 0: of various sizes

  // Each thread calls both; the clock runs during run() alone. What is live afterwards is checked
  // and dropped by the stage.
  virtual void prepare(Hands&) {}
  virtual void run(Hands& hands) = 0;
  virtual void conclude(CaseFindings&) {}
  // Before a crash, not timed: flushes contents that the blocks must keep, for media where a plain
  // store does not outlive the process.
  virtual void flush_contents(Allocator&, Slots) {}
  // The pool was opened again after what run() left: null, or what is wrong with it. Only for cases
  // that are reopened.
  virtual const char* inspect(Allocator&, Slots) { return nullptr; }

 protected:
  // A share of all slots for each thread.
  std::uint32_t first_slot(const Hands& hands) const {
    return static_cast<std::uint32_t>(hands.thread() * (slots() / o_.threads));
  }
  // At least one; `base` times the scale.
  std::uint64_t scaled(double base) const {
    const double n = base * o_.scale;
    return n < 1 ? 1 : static_cast<std::uint64_t>(n + 0.5);
  }
  // Populations only shrink with the scale: a longer run is not one on a larger heap.
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
  bool usual = true;         // runs unless others are asked for
  unsigned threads_max = 0;  // 0: any
  bool by_objects = false;   // run for each of --objects
  bool reopened = false;     // killed at the end and opened again, where persistent
  bool persistent_only = false;
};

std::span<const CaseKind> case_kinds();
const CaseKind* find_case(std::string_view name);

// Factories; defined in cases_small.cc, cases_large.cc, fragbench.cc, list.cc, cases_long.cc.
std::unique_ptr<Case> make_threadtest(const CaseOptions&);
std::unique_ptr<Case> make_prodcon(const CaseOptions&);
std::unique_ptr<Case> make_shbench(const CaseOptions&);
std::unique_ptr<Case> make_shbench_400(const CaseOptions&);
std::unique_ptr<Case> make_larson_small(const CaseOptions&);
std::unique_ptr<Case> make_larson_large(const CaseOptions&);
std::unique_ptr<Case> make_dbmstest(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w1(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w2(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w3(const CaseOptions&);
std::unique_ptr<Case> make_fragbench_w4(const CaseOptions&);
std::unique_ptr<Case> make_recovery_list(const CaseOptions&);
std::unique_ptr<Case> make_growth(const CaseOptions&);
std::unique_ptr<Case> make_threads(const CaseOptions&);
std::unique_ptr<Case> make_soak(const CaseOptions&);

}  // namespace bench
