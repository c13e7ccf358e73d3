// See crash_kill.h. One round forks a child with random orders. The child recovers, looks and is
// judged. Then it works for a while and is killed. Some children are killed earlier.
#include "crash_kill.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "crash_kill_child.h"
#include "crash_kill_judge.h"
#include "crash_kill_pool.h"

namespace tenuto::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kParentPoll = std::chrono::microseconds(200);
constexpr auto kPatience = std::chrono::seconds(180);  // for a child to start working
constexpr std::uint64_t kRecoveryKillEvery = 4;
constexpr std::uint64_t kRecoveryKillsInARow = 4;
constexpr double kFirstCheckUs = 10'000;
constexpr std::uint64_t kStalledUs = 5'000;  // after this long some work should be done
constexpr std::uint32_t kStalledRoundsMax = 100;
constexpr std::uint32_t kFillKills = 20;  // kills of mix fill in one direction

struct EngineName {
  const char* name;
  std::uint32_t bit;
};
constexpr EngineName kEngineNames[] = {
    {"kv", kEngineKv}, {"batch", kEngineBatch}, {"objects", kEngineObjects}, {"heap", kEngineHeap}};

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class KillLoop {
 public:
  KillLoop(const KillOptions& options, const KillProgress& progress, const KillLooked& looked)
      : o_(options), progress_(progress), looked_(looked), rng_{kill_hash(options.seed, 1)} {}
  KillLoop(const KillLoop&) = delete;
  KillLoop& operator=(const KillLoop&) = delete;

  KillReport run() {
    report_.error = prepare();
    if (report_.error) return std::move(report_);
    while (!over()) {
      round();
      add_figures();
      if (progress_ && !progress_(report_.totals, report_.findings.size())) {
        report_.stopped = true;
        break;
      }
    }
    if (!report_.error && report_.findings.size() < o_.findings_max) visit();
    add_figures();
    return std::move(report_);
  }

 private:
  enum class Plan : std::uint8_t { work, kill_early, look_only };

  Error prepare() {
    TENUTO_TOOL_TRY(folder_.make(o_.directory));
    state_ =
        memory_.make(o_.records != nullptr ? *o_.records : numbered_records(), o_.log_operations);
    if (state_ == nullptr) return os_failed(errno, "no memory to share", "");
    judge_ = std::make_unique<KillJudge>(*state_, report_.totals);
    new_pool();
    return no_error();
  }

  bool over() const {
    if (report_.error || report_.findings.size() >= o_.findings_max) return true;
    if (o_.kills != 0 && report_.totals.kills >= o_.kills) return true;
    return o_.seconds > 0 && us_since(start_) >= o_.seconds * 1e6;
  }

  void new_pool() {
    folder_.clear();
    judge_->forget_all();
    kills_of_pool_ = 0;
    // Small pools fill up. Their writes are then refused, which must leave no trace.
    pool_bytes_max_ = std::max(o_.pool_bytes_max >> rng_.below(3), 2 * o_.pool_bytes);
    report_.totals.pools += 1;
  }

  void round() {
    if (kills_of_pool_ >= o_.kills_a_pool) {
      visit();
      if (over()) return;
      new_pool();
    }
    const bool early = rng_.one_in(in_a_row_ > 0 ? 2 : kRecoveryKillEvery);
    in_a_row_ = early && in_a_row_ < kRecoveryKillsInARow ? in_a_row_ + 1 : 0;
    child(in_a_row_ > 0 ? Plan::kill_early : Plan::work);
  }

  // Also judges the state after the last kill of a pool.
  void visit() { child(Plan::look_only); }

  KillOrder draw_order(Plan plan) {
    KillOrder order;
    order.path = folder_.pool();
    order.seed = rng_();
    order.medium = o_.medium;
    order.pool_bytes = o_.pool_bytes;
    order.pool_bytes_max = pool_bytes_max_;
    order.threads = plan == Plan::look_only ? 0 : o_.threads[rng_.below(o_.threads.size())];
    order.engines = o_.engines;
    // Half of the time all engines, otherwise some of them.
    if (rng_.one_in(2)) order.engines &= static_cast<std::uint32_t>(1 + rng_.below(kEngineAll));
    if (order.engines == 0) order.engines = o_.engines;
    order.mix = o_.mixes[rng_.below(o_.mixes.size())];
    order.emptying = kills_of_pool_ / kFillKills % 2 == 1;
    order.reopen = rng_.one_in(4);
    order.bug = o_.bug;
    return order;
  }

  void child(Plan plan) {
    order_ = draw_order(plan);
    state_->phase = KillPhase::opening;
    state_->sights = 0;
    state_->judged = 0;
    const std::uint64_t delay = draw_delay(plan);
    pid_ = ::fork();
    if (pid_ < 0) {
      report_.error = os_failed(errno, "cannot fork", "");
      return;
    }
    if (pid_ == 0) std::make_unique<KillChild>(*state_, order_)->run();
    dead_ = false;
    wrong_.clear();
    if (plan == Plan::kill_early) {
      let_live(delay);
    } else if (reach_work() && plan == Plan::work) {
      const std::uint64_t done = work_done();
      const Clock::time_point start = Clock::now();
      let_live(delay);
      worked_us_ += us_since(start);
      stalled_ = delay < kStalledUs || work_done() != done ? 0 : stalled_ + 1;
      if (stalled_ > kStalledRoundsMax) wrong_ = "the threads stand still";
    }
    end_child(plan);
  }

  std::uint64_t draw_delay(Plan plan) {
    if (plan == Plan::kill_early) {
      // Mostly within recovery. The sleep is usually longer than requested.
      const double most = rng_.one_in(4) ? check_us_ : rng_.one_in(2) ? open_us_ : open_us_ / 2;
      return rng_.below(static_cast<std::uint64_t>(most) + 1);
    }
    if (kills_of_pool_ < 2) return rng_.below(KillOptions{}.work_us_max);
    return rng_.below(rng_.one_in(10) ? o_.long_work_us_max : o_.work_us_max);
  }

  // Judges the child's sights until it works. Returns false if it never does.
  bool reach_work() {
    const Clock::time_point start = Clock::now();
    bool opened = false;
    while (state_->phase != KillPhase::working) {
      if (!opened && state_->phase != KillPhase::opening) {
        opened = true;
        open_us_ = 0.9 * open_us_ + 0.1 * us_since(start);
      }
      if (state_->sights > state_->judged && !judge()) return false;
      if (ended()) return false;
      if (Clock::now() - start > kPatience) {
        wrong_ = fmt::format("the child did not get to work within {} s", kPatience.count());
        return false;
      }
      std::this_thread::sleep_for(kParentPoll);
    }
    check_us_ = 0.9 * check_us_ + 0.1 * us_since(start);
    return true;
  }

  bool judge() {
    wrong_ = judge_->judge();
    if (!wrong_.empty()) return false;
    state_->judged += 1;
    if (looked_ && report_.totals.kills > looked_at_.kills) tell();
    return true;
  }

  void tell() {
    const KillFigures& f = state_->figures;
    KillLook look;
    look.totals = report_.totals;
    look.kills = look.totals.kills - looked_at_.kills;
    look.writes = look.totals.writes - looked_at_.writes;
    look.kept_writes = look.totals.kept_writes - looked_at_.kept_writes;
    look.worked_seconds = std::exchange(worked_us_, 0) / 1e6;
    for (const std::uint64_t version : state_->key) look.records += version != kAbsent ? 1 : 0;
    look.open_ms = f.open_ms;
    look.recovery_ms = f.recovery_ms;
    look.rebuild_ms = f.rebuild_ms;
    look.look_ms = f.look_ms;
    looked_at_ = look.totals;
    looked_(look);
  }

  void let_live(std::uint64_t us) {
    const Clock::time_point start = Clock::now();
    for (double left = static_cast<double>(us); left > 0 && !ended();
         left = static_cast<double>(us) - us_since(start)) {
      std::this_thread::sleep_for(
          std::chrono::microseconds(static_cast<std::uint64_t>(std::min(left, 2000.0))));
    }
  }

  bool ended() {
    dead_ = dead_ || ::waitpid(pid_, &wait_status_, WNOHANG) == pid_;
    return dead_;
  }

  void end_child(Plan plan) {
    const bool by_itself = ended();
    if (!by_itself) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &wait_status_, 0);
    }
    const KillPhase phase = state_->phase;
    if (state_->failure[0] != '\0') {
      wrong_ = state_->failure;
    } else if (by_itself && wrong_.empty()) {
      wrong_ = WIFSIGNALED(wait_status_)
                   ? fmt::format("the child died of signal {}", WTERMSIG(wait_status_))
                   : fmt::format("the child ended by itself, code {}", WEXITSTATUS(wait_status_));
    }
    if (wrong_.empty() && state_->sights > state_->judged) judge();
    KillTotals& t = report_.totals;
    if (plan != Plan::look_only) {
      t.kills += 1;
      kills_of_pool_ += 1;
      t.in_recovery += phase == KillPhase::opening ? 1 : 0;
      t.in_check += phase == KillPhase::checking || phase == KillPhase::observed ? 1 : 0;
    }
    if (!wrong_.empty()) return found();
    if (o_.keep_images && !folder_.keep_image()) {
      report_.error = os_failed(errno, "cannot copy the pool", folder_.image());
    }
  }

  void found() {
    KillFinding finding;
    finding.kill = report_.totals.kills;
    finding.text = wrong_;
    std::string threads;
    for (const std::uint32_t n : o_.threads) {
      threads += (threads.empty() ? "" : ",") + std::to_string(n);
    }
    std::string mixes;
    for (const KillMix mix : o_.mixes) {
      mixes += (mixes.empty() ? "" : ",") + std::string(kill_mix_name(mix));
    }
    const std::string again = fmt::format(
        "again (another run meets other moments):\n"
        "  tenuto crash kill --seed {} --threads {} --engine {} --mix {}\n",
        o_.seed, threads, kill_engine_names(o_.engines), mixes);
    const std::string text = fmt::format(
        "{}\n\n"
        "kill {} (the {}. of its pool), reached phase {} (0 opening, 1 checking, 2 judged, 3 "
        "work)\n"
        "order: {} threads, engines {}, mix {}{}\n{}\n"
        "pool-at-kill.tnt  as the last kill before left it, not recovered\n"
        "pool.tnt          after the recovery, as it was looked at\n",
        wrong_, finding.kill, kills_of_pool_, static_cast<int>(state_->phase.load()),
        order_.threads, kill_engine_names(order_.engines), kill_mix_name(order_.mix),
        order_.reopen ? ", reopened" : "", o_.records == nullptr ? again : "");
    if (!o_.findings.empty()) finding.folder = folder_.save(o_.findings, finding, o_.seed, text);
    report_.findings.push_back(std::move(finding));
    state_->failure[0] = '\0';
    state_->failing = 0;
    stalled_ = 0;
    new_pool();
  }

  std::uint64_t work_done() const {
    std::uint64_t sum = 0;
    for (const KillThreadLog& log : state_->thread) sum += log.logged + log.steps;
    return sum;
  }

  void add_figures() {
    KillTotals& t = report_.totals;
    t.steps = t.key_transactions = t.compactions = 0;
    if (state_ == nullptr) return;
    for (const KillThreadLog& log : state_->thread) {
      t.steps += log.steps;
      t.key_transactions += log.transactions;
      t.compactions += log.compactions;
    }
    const KillFigures& f = state_->figures;
    t.opens = f.opens;
    t.unclean_opens = f.unclean;
    t.rolled_back = f.rolled_back;
    t.leaked_frames = f.leaked_frames;
    t.morphed_slabs = f.morphed_slabs;
    t.recovery_ms_mean = f.unclean == 0 ? 0 : f.recovery_ms_sum / static_cast<double>(f.unclean);
    t.recovery_ms_max = f.recovery_ms_max;
    t.seconds = us_since(start_) / 1e6;
  }

  const KillOptions& o_;
  const KillProgress& progress_;
  const KillLooked& looked_;
  const Clock::time_point start_ = Clock::now();
  KillRng rng_;
  KillFolder folder_;
  KillMemory memory_;
  KillState* state_ = nullptr;
  std::unique_ptr<KillJudge> judge_;
  KillReport report_;
  KillTotals looked_at_;  // as they were at the last look
  double worked_us_ = 0;  // since then
  KillOrder order_;
  pid_t pid_ = -1;
  int wait_status_ = 0;
  bool dead_ = false;
  std::string wrong_;
  double check_us_ = kFirstCheckUs;  // from fork to work, moving average
  double open_us_ = kFirstCheckUs;   // from fork to the end of recovery, moving average
  std::uint64_t in_a_row_ = 0;
  std::uint32_t kills_of_pool_ = 0;
  std::uint64_t pool_bytes_max_ = 0;
  std::uint32_t stalled_ = 0;
};

}  // namespace

KillReport kill_loop(const KillOptions& options, const KillProgress& progress,
                     const KillLooked& looked) {
  return KillLoop(options, progress, looked).run();
}

std::uint32_t parse_kill_engines(std::string_view names) {
  std::uint32_t bits = 0;
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(','), names.size());
    std::uint32_t bit = 0;
    for (const EngineName& e : kEngineNames) bit |= names.substr(0, end) == e.name ? e.bit : 0;
    if (bit == 0) return 0;
    bits |= bit;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return bits;
}

std::string kill_engine_names(std::uint32_t engines) {
  std::string names;
  for (const EngineName& e : kEngineNames) {
    if ((engines & e.bit) != 0) names += (names.empty() ? "" : ",") + std::string(e.name);
  }
  return names;
}

const char* kill_mix_name(KillMix mix) {
  switch (mix) {
    case KillMix::uniform:
      return "uniform";
    case KillMix::hot:
      return "hot";
    case KillMix::fill:
      return "fill";
    case KillMix::ycsb_a:
      return "ycsb-a";
    case KillMix::long_values:
      break;
  }
  return "long";
}

}  // namespace tenuto::tool
