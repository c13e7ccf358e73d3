// Runs a protocol of this folder on a simulated memory. An operation is a list of steps, and a
// scheduler switches between whole operations or between any two steps. Every image that a crash
// could leave is recovered in every order of lanes, recovered twice, and crashed inside recovery.
//
// A protocol derives from Protocol and has: words(), boot(adopt), possible(t), plan(t, op),
// name_of(op), recover(memory, order), check(image), state_hash(). With close(), sessions may also
// end in a clean close.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <unordered_set>
#include <vector>

#include "memory.h"
#include "mistakes.h"

namespace tenuto_model {

// The steps of a thread's operation. Another thread may run between any two of them.
class Plan {
 public:
  Plan() = default;
  Plan(Memory& memory, std::size_t flusher) : memory_(&memory), flusher_(flusher) {}

  void store(std::size_t word, Word value) { steps_.push_back({Step::kStore, word, value, {}}); }
  void flush(std::size_t word) { steps_.push_back({Step::kFlush, word, 0, {}}); }
  void fence() { steps_.push_back({Step::kFence, 0, 0, {}}); }
  void store_and_flush(std::size_t word, Word value) {
    store(word, value);
    flush(word);
  }
  void then(std::function<void()> f) { steps_.push_back({Step::kOther, 0, 0, std::move(f)}); }
  // Adds to the last step: nothing may come between.
  void also(std::function<void()> f) {
    std::function<void()>& last = steps_.back().also;
    last = !last ? std::move(f) : [first = std::move(last), second = std::move(f)] {
      first();
      second();
    };
  }
  void append(const Plan& other) {
    steps_.insert(steps_.end(), other.steps_.begin(), other.steps_.end());
  }

  bool done() const { return at_ == steps_.size(); }
  void step() {
    const Step& s = steps_[at_++];
    if (s.kind == Step::kStore) memory_->store(s.word, s.value);
    if (s.kind == Step::kFlush) memory_->flush(flusher_, s.word);
    if (s.kind == Step::kFence) memory_->fence(flusher_);
    if (s.also) s.also();
  }

 private:
  struct Step {
    enum Kind { kStore, kFlush, kFence, kOther } kind;
    std::size_t word;
    Word value;
    std::function<void()> also;
  };
  Memory* memory_ = nullptr;
  std::size_t flusher_ = 0;
  std::vector<Step> steps_;
  std::size_t at_ = 0;
};

// Config has at least threads and plant. Running is a thread's operation: `on` while it has steps.
template <class Self, class ConfigType, class Running>
class Protocol : public Mistakes<Self> {
 public:
  using Config = ConfigType;

  Protocol(const Config& config, Memory& memory)
      : Mistakes<Self>(config.plant), c_(config), m_(memory) {}
  static std::size_t flushers(const Config& c) { return c.threads; }
  bool busy(std::size_t t) const { return running_[t].on; }

 protected:
  const Config c_;
  Memory& m_;
  std::vector<Running> running_;
};

class Hash {
 public:
  void add(std::uint64_t x) { value_ = mix(value_ * 31 + x); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 5;
};

struct ExploreMode {
  bool exhaustive = false;
  bool steps = false;           // switch threads between steps, otherwise between operations
  std::size_t operations = 3;   // of all threads, in each session
  std::size_t preemptions = 2;  // exhaustive steps only
  std::size_t sessions = 1;     // with a crash or a clean reopening between them
  std::size_t runs_max = 1'000'000;
  std::size_t images_max = 20'000;  // crash images at each fence
};

template <class Protocol>
class Explorer {
 public:
  explicit Explorer(const typename Protocol::Config& config)
      : threads_max_(config.threads),
        flushers_(Protocol::flushers(config)),
        memory_({}, flushers_),
        protocol_(config, memory_) {
    std::vector<std::size_t> lanes(config.threads);
    std::iota(lanes.begin(), lanes.end(), 0u);
    do orders_.push_back(lanes);
    while (std::next_permutation(lanes.begin(), lanes.end()));
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
  static constexpr bool kCloses = requires(Protocol & p) { p.close(); };

  void one_run() {
    history_.clear();
    memory_.before_fence = nullptr;
    memory_.reset(Image(protocol_.words(), 0), flushers_);
    protocol_.boot(false);
    for (std::size_t session = 0; session < mode_.sessions; ++session) {
      const bool last = session + 1 == mode_.sessions;
      const bool clean = kCloses && !last && rng_() % 4 == 0;
      run_session(last || clean ? ~std::size_t{0} : 1 + rng_() % 80);
      if (last) return;
      if (clean) {
        close();
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

  void close() {
    history_ += " CLOSE";
    memory_.before_fence = [this] { look(); };
    if constexpr (kCloses) protocol_.close();
    memory_.before_fence = nullptr;
    const Image closed = memory_.random_crash(rng_);
    if (const std::string e = protocol_.check(closed); !e.empty()) fail(e, "clean close");
    memory_.reset(closed, flushers_);
  }

  void run_session(std::size_t steps_left) {
    memory_.before_fence = [this] { look(); };
    threads_.assign(threads_max_, {});
    std::size_t started = 0, last = 0, preemptions = mode_.preemptions;
    while (steps_left-- > 0) {
      std::vector<std::size_t> ready;
      for (std::size_t t = 0; t < threads_max_; ++t) {
        const bool may_start = started < mode_.operations && !protocol_.busy(t);
        if (!threads_[t].done() || may_start) ready.push_back(t);
      }
      if (ready.empty()) break;
      std::size_t t = last;
      const bool stay = !mode_.steps || (mode_.exhaustive && preemptions == 0);
      if (threads_[last].done() || !stay) {
        t = ready[started == 0 ? 0 : choices_.pick(ready.size(), rng_)];
        if (!threads_[last].done() && t != last) preemptions -= 1;
      }
      last = t;
      if (threads_[t].done()) {
        started += 1;
        start(t);
        continue;
      }
      threads_[t].step();
      if (threads_[t].done()) look();
    }
    look();
    memory_.before_fence = nullptr;
  }

  void start(std::size_t t) {
    const auto ops = protocol_.possible(t);
    if (ops.empty()) return;
    const auto op = ops[choices_.pick(ops.size(), rng_)];
    history_ += " T" + std::to_string(t) + "." + protocol_.name_of(op);
    threads_[t] = protocol_.plan(t, op);
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

  const std::size_t threads_max_, flushers_;
  Memory memory_;
  Protocol protocol_;
  ExploreMode mode_;
  Choices choices_;
  Rng rng_;
  std::vector<Plan> threads_;
  std::vector<std::vector<std::size_t>> orders_;
  std::unordered_set<std::uint64_t> seen_, inside_;
  std::string history_;
  Memory first_{{}, 1}, second_{{}, 1};
};

}  // namespace tenuto_model
