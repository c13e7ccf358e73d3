// Explores the transaction protocol (model/tx_protocol.h): every order of whole transactions of two
// lanes, orders of single steps with few switches, and random runs with real crashes between
// sessions. Before each fence and after each transaction it takes every image that a crash could
// leave. Each image is recovered with the lanes in every order, recovered twice, and crashed inside
// recovery. Then it plants mistakes, each of which must be found.
//
// TENUTO_MODEL_SCALE multiplies the number of random runs (default 1).
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <unordered_set>

#include "model/tx_protocol_run.h"

namespace tenuto_model {
namespace {

struct Mode {
  bool exhaustive = false;
  bool steps = false;           // switch threads between steps, otherwise between transactions
  std::size_t operations = 3;   // of all threads, in each session
  std::size_t preemptions = 2;  // exhaustive steps only
  std::size_t sessions = 1;     // with a crash and a recovery between them
  std::size_t runs_max = 1'000'000;
  std::size_t images_max = 20'000;  // crash images at each fence
};

class Explorer {
 public:
  explicit Explorer(const Config& config)
      : config_(config), memory_({}, config.threads), protocol_(config_, memory_) {
    std::vector<std::size_t> lanes(config.threads);
    std::iota(lanes.begin(), lanes.end(), 0u);
    do orders_.push_back(lanes);
    while (std::next_permutation(lanes.begin(), lanes.end()));
  }

  void explore(const Mode& mode, bool until_first) {
    mode_ = mode;
    for (std::size_t run = 0; run < mode.runs_max; ++run) {
      rng_.seed(run * 97 + 3);
      choices_.start(mode.exhaustive);
      one_run();
      runs += 1;
      if (until_first && failures != 0) return;
      if (mode.exhaustive && !choices_.next()) return;
    }
  }

  std::uint64_t runs = 0, images = 0, unique = 0, recoveries = 0, failures = 0;
  std::string first_failure;

 private:
  struct Thread {
    std::vector<TxProtocol::Step> plan;
    std::size_t at = 0;
    bool active() const { return at < plan.size(); }
  };

  void one_run() {
    history_.clear();
    memory_.before_fence = nullptr;
    memory_.reset(protocol_.empty_image(), config_.threads);
    protocol_.boot(false);
    for (std::size_t session = 0; session < mode_.sessions; ++session) {
      const bool last = session + 1 == mode_.sessions;
      run_session(last ? ~std::size_t{0} : 1 + rng_() % 80);
      if (last) return;
      const Image crashed = memory_.random_crash(rng_);
      verify(crashed);
      Memory recovered(crashed, 1);
      protocol_.recover(recovered, orders_[rng_() % orders_.size()]);
      memory_.reset(recovered.now(), config_.threads);
      protocol_.boot(true);
      history_ += " CRASH";
    }
  }

  void run_session(std::size_t steps_left) {
    memory_.before_fence = [this] { look(); };
    threads_.assign(config_.threads, {});
    std::size_t started = 0, last = 0, preemptions = mode_.preemptions;
    while (steps_left-- > 0) {
      std::vector<std::size_t> ready;
      for (std::size_t t = 0; t < config_.threads; ++t) {
        const bool may_start = started < mode_.operations && !protocol_.busy(t);
        if (threads_[t].active() || may_start) ready.push_back(t);
      }
      if (ready.empty()) break;
      std::size_t t = 0;
      if (threads_[last].active() && (!mode_.steps || (mode_.exhaustive && preemptions == 0))) {
        t = last;
      } else {
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
    const std::vector<Op> ops = protocol_.possible(t);
    if (ops.empty()) return;
    const Op op = ops[choices_.pick(ops.size(), rng_)];
    history_ += " T" + std::to_string(t) + ".k" + std::to_string(static_cast<int>(op.kind)) + "o" +
                std::to_string(static_cast<int>(op.outcome));
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

  Config config_;
  Memory memory_;
  TxProtocol protocol_;
  Mode mode_;
  Choices choices_;
  Rng rng_;
  std::vector<Thread> threads_;
  std::vector<std::vector<std::size_t>> orders_;
  std::unordered_set<std::uint64_t> seen_, inside_;
  std::string history_;
  Memory first_{{}, 1}, second_{{}, 1};
};

std::size_t scaled(std::size_t n) {
  const char* scale = std::getenv("TENUTO_MODEL_SCALE");
  return scale == nullptr ? n : static_cast<std::size_t>(static_cast<double>(n) * std::atof(scale));
}

struct Case {
  const char* name;
  Config config;
  Mode mode;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const Config two{};
  Config commits = two;
  commits.aborts = commits.drains = false;
  Config packed = two;
  packed.values_share_line = true;
  Config overflow = two;
  overflow.area_lines = 1;
  overflow.frames = 1;
  overflow.blocks = 1;
  overflow.dests = 1;
  Config three = two;
  three.threads = three.values = three.blocks = 3;
  Config three_overflow = three;
  three_overflow.area_lines = 2;
  three_overflow.frames = 2;
  all.push_back({"whole transactions, all outcomes", two, {.exhaustive = true, .operations = 3}});
  all.push_back({"whole transactions, commits", commits, {.exhaustive = true, .operations = 4}});
  all.push_back({"overflow into frames", overflow, {.exhaustive = true, .operations = 3}});
  all.push_back(
      {"two values in a line", packed, {.exhaustive = true, .operations = 2, .images_max = 5'000}});
  all.push_back({"steps, two switches",
                 two,
                 {.exhaustive = true, .steps = true, .operations = 2, .runs_max = scaled(6'000)}});
  all.push_back({"random steps, sessions",
                 two,
                 {.steps = true,
                  .operations = 6,
                  .sessions = 3,
                  .runs_max = scaled(600),
                  .images_max = 500}});
  all.push_back({"random steps, three threads",
                 three,
                 {.steps = true,
                  .operations = 8,
                  .sessions = 3,
                  .runs_max = scaled(300),
                  .images_max = 300}});
  all.push_back({"random steps, frames",
                 three_overflow,
                 {.steps = true,
                  .operations = 8,
                  .sessions = 3,
                  .runs_max = scaled(300),
                  .images_max = 300}});
  return all;
}

TEST(TxModel, every_crash_leaves_whole_transactions) {
  for (const Case& c : cases()) {
    Explorer e(c.config);
    e.explore(c.mode, true);
    std::printf("%-34s runs %8llu  images %10llu  unique %9llu  recoveries %10llu\n", c.name,
                static_cast<unsigned long long>(e.runs), static_cast<unsigned long long>(e.images),
                static_cast<unsigned long long>(e.unique),
                static_cast<unsigned long long>(e.recoveries));
    EXPECT_EQ(e.failures, 0u) << c.name << ": " << e.first_failure;
    EXPECT_GT(e.unique, 1'000u);
  }
}

TEST(TxModel, every_planted_mistake_is_found) {
  for (int p = 1; p <= static_cast<int>(Plant::recovery_redoes_all_frees); ++p) {
    bool found = false;
    for (Case c : cases()) {
      c.config.plant = static_cast<Plant>(p);
      Explorer e(c.config);
      e.explore(c.mode, true);
      if (e.failures == 0) continue;
      found = true;
      std::printf("plant %2d: %s\n    %s\n", p, c.name, e.first_failure.c_str());
      break;
    }
    EXPECT_TRUE(found) << "plant " << p;
  }
}

}  // namespace
}  // namespace tenuto_model
