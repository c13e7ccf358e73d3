#include "support/tx_world.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "support/explored_medium.h"
#include "support/tx_steps.h"

namespace tenuto::test {

namespace {

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  o.heap.morph_occupancy = 0.3;  // of the world's slab, with two more blocks
  return on_explored_medium(o);
}

}  // namespace

// A thread with its own lane that runs one function at a time for the main thread.
class TxCrash::Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker() {
    run({});
    thread_.join();
  }
  void run(std::function<void()> f) {
    std::unique_lock lock(mu_);
    task_ = std::move(f);
    given_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !given_; });
  }

 private:
  void loop() {
    for (bool more = true; more;) {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return given_; });
      more = static_cast<bool>(task_);
      if (more) task_();
      given_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool given_ = false;
  std::thread thread_;
};

void TxCrash::setup(const std::string& path) {
  TxParts p;
  ASSERT_EQ(p.create(path, tiny()), Status::ok) << p.report.text();
  p.make_root<World>(0);
  ASSERT_EQ(p.close(), Status::ok);
}

void TxCrash::workload(CrashContext& c) const {
  c.update([&] { states_.assign(1, WorldState{}); });
  TxParts p;
  ASSERT_EQ(p.open(c.path(), tiny()), Status::ok) << p.report.text();
  World& w = p.get_root<World>(0);
  std::mt19937_64 rng(seed_);
  p.engine->mine();  // gives the main thread the first lane
  {
    Worker worker;
    const auto step = [&](const Step& s) {
      const std::uint64_t choice = rng();
      WorldState after = states_.back();
      after.apply(s.op, choice);
      c.update([&] { states_.push_back(after); });
      c.invoke();
      const auto work = [&] { EXPECT_EQ(perform(p, w, s.op, choice, after), Status::ok); };
      if (s.lane == 0) {
        work();
      } else {
        worker.run(work);
      }
      c.ack();
    };
    for (std::size_t i = 0; i < script_.size(); ++i) {
      if (script_[i].op != Op::cancel_many) {
        step(script_[i]);
        continue;
      }
      Transaction tx(p.engine->mine());
      ASSERT_EQ(cancel_many(tx), Status::ok);
      step(script_.at(++i));  // REQUIRES: the step is on the other lane
      ASSERT_EQ(tx.commit(), Status::ok);
    }
  }
  ASSERT_EQ(p.close(), Status::ok);
}

namespace {
// A walk by type shows exactly the blocks of the state.
bool types_are_right(TxParts& p, const World& w, const WorldState& state) {
  for (std::uint64_t type = 1; type <= kTypes; ++type) {
    std::vector<PoolOffset> want;
    for (std::size_t d = 0; d < World::kDests; ++d) {
      if (state.type[d] == type) want.push_back(p.file->offset_of(w.dest[d].get()));
    }
    std::sort(want.begin(), want.end());
    if (blocks_of_type(p, type) != want) return false;
  }
  return true;
}
}  // namespace

std::string TxCrash::check_blocks(TxParts& p, const World& w, const WorldState& state) const {
  std::size_t named = 1;
  const auto missing = [&](const Ptr<std::uint64_t>& dest) {
    if (!dest) return false;
    named += 1;
    return !p.heap->find_allocated(p.file->offset_of(dest.get()));
  };
  for (const auto& dest : w.dest) {
    if (missing(dest)) return "a reachable block is free";
  }
  for (const auto& dest : w.many) {
    if (missing(dest)) return "a reachable block is free";
  }
  if (p.allocated_blocks().size() != named + state.held) return "a block leaked";
  if (!types_are_right(p, w, state)) return "other blocks of a type than there are";
  if (p.heap->validate(&p.report) != Status::ok) return "heap: " + p.report.text();
  if (p.engine->validate(&p.report) != Status::ok) return "tx: " + p.report.text();
  return {};
}

// The recovered pool works, and the next open does not undo that.
std::string TxCrash::use_again(TxParts& p, const CrashImage& image, const WorldState& found) const {
  const std::uint64_t choice = seed_ * 0x9e3779b97f4a7c15u;
  WorldState after = found;
  for (const Op op : {Op::transfer, Op::replace}) {
    after.apply(op, choice);
    if (perform(p, p.get_root<World>(0), op, choice, after) != Status::ok) {
      return "a transaction after recovery failed";
    }
  }
  p.crash();
  if (p.open(image.path(), tiny()) != Status::ok) return "open again: " + p.report.text();
  const World& w = p.get_root<World>(0);
  if (!after.shown_by(w)) return "a later open changed the world";
  if (std::string e = check_blocks(p, w, after); !e.empty()) return "later open: " + e;
  return p.close() == Status::ok ? "" : "close failed";
}

std::string TxCrash::check(const CrashImage& image) const {
  TxParts p;
  if (p.open(image.path(), tiny()) != Status::ok) return "open: " + p.report.text();
  const World& w = p.get_root<World>(0);
  const WorldState* found = nullptr;
  const std::size_t held = blocks_of_type(p, kHeldType).size();
  for (std::size_t n = image.acknowledged(); n <= image.invoked(); ++n) {
    if (states_.at(n).shown_by(w) && states_[n].held == held) found = &states_[n];
  }
  if (found == nullptr) return "the world after no number of steps";
  if (std::string e = check_blocks(p, w, *found); !e.empty()) return e;
  image.recovered();
  return use_again(p, image, *found);
}

CrashResult TxCrash::run(CrashOptions options) const {
  options.seed = seed_;
  return CrashRunner(options).run(
      setup, [this](CrashContext& c) { workload(c); },
      [this](const CrashImage& i) { return check(i); });
}

}  // namespace tenuto::test
