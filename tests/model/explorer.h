// Runs a protocol of this folder on a simulated memory. Threads are lists of steps, and a scheduler
// switches between whole operations or between any two steps. Every image that a crash could leave
// is recovered in every order of lanes, recovered twice, and crashed inside recovery.
//
// A Protocol has: Op, Step, empty_image, boot(adopt), possible(t), plan(t, op), name_of(op),
// busy(t), recover(memory, order), close(), check(image), state_hash().
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_set>
#include <vector>

#include "memory.h"

namespace tenuto_model {

struct ExploreMode {
  bool exhaustive = false;
  bool steps = false;           // switch threads between steps, otherwise between operations
  std::size_t operations = 3;   // of all threads, in each session
  std::size_t preemptions = 2;  // exhaustive steps only
  std::size_t sessions = 1;     // with a crash or a clean reopening between them
  std::size_t runs_max = 1'000'000;
  std::size_t images_max = 20'000;  // crash images at each fence
};

template <class Protocol, class Config>
class ProtocolExplorer {
 public:
  explicit ProtocolExplorer(const Config& config)
      : threads_max_(config.threads),
        memory_({}, Protocol::flushers(config)),
        protocol_(config, memory_) {
    std::vector<std::size_t> lanes(config.threads);
    std::iota(lanes.begin(), lanes.end(), 0u);
    do orders_.push_back(lanes);
    while (std::next_permutation(lanes.begin(), lanes.end()));
    flushers_ = Protocol::flushers(config);
  }

  void explore(const ExploreMode& mode) {
    mode_ = mode;
    for (std::size_t run = 0; run < mode.runs_max && failures == 0; ++run) {
      rng_.seed(run * 97 + 3);
      choices_.start(mode.exhaustive);
      one_run();
      runs += 1;
      if (mode.exhaustive && !choices_.next()) return;
    }
  }

  std::uint64_t runs = 0, images = 0, unique = 0, recoveries = 0, failures = 0;
  std::string first_failure;

 private:
  struct Thread {
    std::vector<typename Protocol::Step> plan;
    std::size_t at = 0;
    bool active() const { return at < plan.size(); }
  };

  void one_run() {
    history_.clear();
    memory_.before_fence = nullptr;
    memory_.reset(protocol_.empty_image(), flushers_);
    protocol_.boot(false);
    for (std::size_t session = 0; session < mode_.sessions; ++session) {
      const bool last = session + 1 == mode_.sessions;
      const bool clean = !last && rng_() % 4 == 0;
      run_session(last || clean ? ~std::size_t{0} : 1 + rng_() % 80);
      if (last) return;
      if (clean) {
        history_ += " CLOSE";
        memory_.before_fence = [this] { look(); };
        protocol_.close();
        memory_.before_fence = nullptr;
        const Image closed = memory_.random_crash(rng_);
        if (!protocol_.check(closed).empty()) fail(protocol_.check(closed), "clean close");
        memory_.reset(closed, flushers_);
      } else {
        history_ += " CRASH";
        const Image crashed = memory_.random_crash(rng_);
        verify(crashed);
        Memory recovered(crashed, 1);
        protocol_.recover(recovered, orders_[rng_() % orders_.size()]);
        memory_.reset(recovered.now(), flushers_);
      }
      protocol_.boot(true);
    }
  }

  void run_session(std::size_t steps_left) {
    memory_.before_fence = [this] { look(); };
    threads_.assign(threads_max_, {});
    std::size_t started = 0, last = 0, preemptions = mode_.preemptions;
    while (steps_left-- > 0) {
      std::vector<std::size_t> ready;
      for (std::size_t t = 0; t < threads_max_; ++t) {
        const bool may_start = started < mode_.operations && !protocol_.busy(t);
        if (threads_[t].active() || may_start) ready.push_back(t);
      }
      if (ready.empty()) break;
      std::size_t t = last;
      const bool stay = !mode_.steps || (mode_.exhaustive && preemptions == 0);
      if (!threads_[last].active() || !stay) {
        t = ready[started == 0 ? 0 : choices_.pick(ready.size(), rng_)];
        if (threads_[last].active() && t != last) preemptions -= 1;
      }
      last = t;
      if (!threads_[t].active()) {
        started += 1;
        start(t);
        continue;
      }
      Thread& thread = threads_[t];
      thread.plan[thread.at++]();
      if (!thread.active()) look();
    }
    look();
    memory_.before_fence = nullptr;
  }

  void start(std::size_t t) {
    const auto ops = protocol_.possible(t);
    if (ops.empty()) return;
    const auto op = ops[choices_.pick(ops.size(), rng_)];
    history_ += " T" + std::to_string(t) + "." + protocol_.name_of(op);
    threads_[t] = {protocol_.plan(t, op), 0};
  }

  void look() {
    const std::uint64_t state = protocol_.state_hash();
    memory_.each_crash(mode_.images_max, rng_, [&](const Image& image, std::uint64_t hash) {
      images += 1;
      if (!seen_.insert(mix(hash) ^ state).second) return;
      verify(image);
    });
    if (seen_.size() > 8'000'000) seen_.clear();
  }

  void fail(const std::string& what, const char* where) {
    failures += 1;
    if (first_failure.empty()) first_failure = what + " (" + where + "):" + history_;
  }

  void judge(Memory& m, const char* where) {
    recoveries += 1;
    if (const std::string e = protocol_.check(m.now()); !e.empty()) fail(e, where);
  }

  void verify(const Image& image) {
    unique += 1;
    for (const auto& order : orders_) {
      first_.reset(image, 1);
      protocol_.recover(first_, order);
      judge(first_, "recovery");
      if (!first_.all_durable()) fail("recovery left unfenced stores", "recovery");
    }
    const auto& order = orders_[unique % orders_.size()];
    const auto& other = orders_[(unique + 1) % orders_.size()];
    inside_.clear();
    first_.reset(image, 1);
    first_.before_fence = [&] {
      first_.each_crash(mode_.images_max, rng_, [&](const Image& crashed, std::uint64_t hash) {
        if (!inside_.insert(hash).second) return;
        second_.reset(crashed, 1);
        protocol_.recover(second_, other);
        judge(second_, "crash inside recovery");
      });
    };
    protocol_.recover(first_, order);
    first_.before_fence = nullptr;
    second_.reset(first_.now(), 1);
    protocol_.recover(second_, other);
    judge(second_, "second recovery");
  }

  std::size_t threads_max_, flushers_ = 0;
  Memory memory_;
  Protocol protocol_;
  ExploreMode mode_;
  Choices choices_;
  Rng rng_;
  std::vector<Thread> threads_;
  std::vector<std::vector<std::size_t>> orders_;
  std::unordered_set<std::uint64_t> seen_, inside_;
  std::string history_;
  Memory first_{{}, 1}, second_{{}, 1};
};

}  // namespace tenuto_model
