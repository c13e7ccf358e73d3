// Draws a story (generate.cc) and its single calls (generate_calls.cc).
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>

#include "generate.h"

namespace tenuto::life {

// Groups of calls; a life is fond of some.
struct Group {
  enum : unsigned {
    kWrites,
    kMany,
    kLarge,
    kReads,
    kScans,
    kMaking,
    kBulk,
    kMoments,
    kTransactions,
    kMakingInTransactions,
    kCursors,
    kViews,
    kUpkeep,
    kObjectCalls,
    kTime,
    kThreads,
    kEnds,
    kForks,
    kFiles,
    kFaults,
    kGroups
  };
};

class Maker {
 public:
  Maker(std::uint64_t seed, const Wanted& wanted) : random_{seed} { draw_life(seed, wanted); }

  Story make();

 private:
  using N = std::int64_t;
  N below(std::uint64_t n) { return static_cast<N>(random_.below(n)); }
  bool one_in(std::uint64_t n) { return random_.one_in(n); }
  void add(Verb v, std::initializer_list<N> arguments) {
    Step step;
    step.thread = static_cast<unsigned>(below(story_.threads));
    if (story_.threads > 1 && one_in(2)) step.thread = last_thread_;
    last_thread_ = step.thread;
    step.verb = v;
    std::copy(arguments.begin(), arguments.end(), step.a.begin());
    story_.steps.push_back(step);
  }

  void draw_life(std::uint64_t seed, const Wanted& wanted);

  N store() { return two_stores_ && one_in(4) ? 1 : 0; }
  N slot() { return one_in(3) ? 0 : below(kCollections); }
  N name() { return below(one_in(2) ? 2u : kNames); }
  N key() {
    if (!one_in(4)) return static_cast<N>(near_) + below(hot_);
    return one_in(8) ? below(kKeys) : below(300u);
  }
  N length() {
    switch (below(8)) {
      case 0:
        return 0;
      case 1:
        return below(4000);
      default:
        return 16 + below(100);
    }
  }
  N ttl() { return one_in(2) ? 1 + below(300) : 0; }
  N buffered() { return one_in(2); }
  N form() {
    N f = one_in(2) ? 1 : 1 + below(5);
    if (one_in(4)) f += 8;
    if (one_in(fond_[Group::kTime] != 0 ? 2 : 5)) f += 16;
    return f;
  }
  N path() { return paths_ && one_in(3) ? below(5) : 0; }

  void begin();

  void one();

  void write();
  void many();
  void large();
  void read();
  void making();
  void moment();
  void transaction();
  void making_in_transaction();
  void cursor();
  void upkeep();
  void objects();

  void open_again();
  void end();
  void files();
  void fault();

  Random random_;
  Story story_;
  std::array<std::uint64_t, Group::kGroups> fond_{};
  std::uint64_t all_ = 0, hot_ = 1, near_ = 0;
  bool two_stores_ = false, system_faults_ = false, paths_ = false;
  unsigned last_thread_ = 0;
};

}  // namespace tenuto::life
