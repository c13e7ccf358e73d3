// Draws a story (generate.cc) and its single calls (generate_calls.cc).
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>

#include "generate.h"

namespace tenuto::life {

// Groups of calls. A life prefers some of them.
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
    step.thread = thread_;
    step.verb = v;
    std::copy(arguments.begin(), arguments.end(), step.a.begin());
    story_.steps.push_back(step);
  }

  void draw_life(std::uint64_t seed, const Wanted& wanted);

  N store() { return two_stores_ && one_in(4) ? 1 : 0; }
  N slot() {
    if (attends()) return focus_.c;
    return one_in(3) ? 0 : below(slots_);
  }
  N made_slot() { return 1 + below(slots_ - 1); }
  N name() { return below(one_in(2) ? 2u : names_); }
  N key() {
    if (attends()) return focus_.key + below(focus_.width);
    if (narrow_) return static_cast<N>(near_) + below(hot_);
    if (!one_in(4)) return static_cast<N>(near_) + below(hot_);
    return one_in(8) ? below(kKeys) : below(300u);
  }
  N length() {
    switch (below(8)) {
      case 0:
        return 0;
      case 1:
        return below(4000);
      case 2:
      case 3:
        return 16 + below(weight_);
      default:
        return 16 + below(100);
    }
  }
  N ttl() { return one_in(2) ? 1 + below(300) : 0; }
  N buffered() { return one_in(2); }
  N encoding() {
    N f = one_in(2) ? 1 : 1 + below(5);
    if (one_in(4)) f += 8;
    if (one_in(fond_[Group::kTime] != 0 ? 2 : 5)) f += 16;
    return f;
  }
  N transaction_slot() { return attends() ? focus_.x : below(handles_); }
  N snapshot_slot() { return attends() ? focus_.n : below(handles_); }
  N cursor_slot() { return attends() ? focus_.i : below(handles_); }
  N path() { return paths_ && one_in(3) ? below(5) : 0; }

  void begin();

  void one();
  void draw_kind(Kind kind);
  void draw_few();
  void draw_places();
  void draw_pools();
  void draw_held();
  void draw_meetings();
  void visit(bool ends);
  void era();
  void meeting();
  unsigned group();
  void call(unsigned group);

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
  void resting();
  void objects();

  void open_again();
  void end();
  void end_of_life();
  void files();
  void fault();
  void first_fails();

  // For some steps, most calls use the same things, as the calls of a program do, so that they
  // meet. The maker remembers which handles are open, so that few steps find an empty slot.
  struct Focus {
    unsigned left = 0, thread = 0;
    N c = 0, key = 0, x = 0, n = 0, i = 0;
    std::uint64_t width = 1;
  };
  struct Standing {
    bool transaction[kTransactionsMax], cursor[kCursorsMax], snapshot[kSnapshotsMax];
  };
  bool attends() { return focus_.left != 0 && !one_in(5); }
  void look_elsewhere();
  Standing& standing() { return standing_[story_.at_once ? thread_ : 0]; }
  // Threads share snapshots.
  bool& snapshot_stands(N n) { return standing_[0].snapshot[n]; }

  Random random_;
  Story story_;
  Focus focus_;
  std::array<Standing, kThreadsMax> standing_{};
  std::array<std::uint64_t, Group::kGroups> fond_{};
  std::uint64_t all_ = 0, hot_ = 1, near_ = 0;
  // Bounds, which are small in lives of kind few.
  std::uint64_t slots_ = kCollections, names_ = kNames, handles_ = 4, weight_ = 100;
  bool narrow_ = false, meets_ = false;
  std::uint64_t length_ = 0;  // any, if 0
  bool two_stores_ = false, system_faults_ = false, refuses_ = false, paths_ = false;
  unsigned thread_ = 0;
};

}  // namespace tenuto::life
