// A turn of kv_bench: what an engine is asked for, in which order. It decides what scans find warm.
#include "bench/support/turn.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>

#include "bench/support/process.h"

namespace bench {
namespace {

// A letter for each call in the child, repeated ones once: o open, c close, r read, w write or
// erase, s scan, W a walk through all records, R and U groups of reads and of updates.
struct CallLog {
  char calls[4000] = {};
  unsigned count = 0;

  void add(char call) {
    if ((count > 0 && calls[count - 1] == call) || count + 1 == sizeof calls) return;
    calls[count++] = call;
  }
};
Shared<CallLog>* log_of_turn = nullptr;
std::map<std::string, std::string, std::less<>> stored;  // of the child that plays the turn
std::uint64_t writes = 0;
std::uint64_t lost_write = 0;  // counted from 1; the store forgets this one
bool skips_in_groups = false;  // the last key of a group of reads

class LoggedSession final : public Session {
 public:
  bool read(std::string_view key, std::string_view& value) override {
    (*log_of_turn)->add('r');
    const auto at = stored.find(key);
    if (at != stored.end()) value = at->second;
    return at != stored.end();
  }
  void release() override {}
  bool write(std::string_view key, std::string_view value) override {
    (*log_of_turn)->add('w');
    if (++writes != lost_write) stored[std::string(key)] = value;
    return true;
  }
  bool erase(std::string_view key) override {
    (*log_of_turn)->add('w');
    return stored.erase(std::string(key)) > 0;
  }
  bool write_group(std::span<const KeyAndValue> records) override {
    (*log_of_turn)->add('U');
    for (const KeyAndValue& r : records) {
      if (++writes != lost_write) stored[std::string(r.key)] = r.value;
    }
    return true;
  }
  void read_group(std::span<const std::string_view> keys, const EachFound& each) override {
    (*log_of_turn)->add('R');
    for (std::size_t i = 0; i + skips_in_groups < keys.size(); ++i) {
      if (const auto at = stored.find(keys[i]); at != stored.end()) each(i, at->second);
    }
  }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    (*log_of_turn)->add(start.empty() ? 'W' : 's');
    std::uint64_t taken = 0;
    for (auto at = stored.lower_bound(start); at != stored.end() && taken < count; ++at, ++taken) {
      sink.take(at->first, at->second);
    }
    return taken;
  }
};

class LoggedEngine final : public Engine {
 public:
  bool open(const EngineOptions&) override {
    (*log_of_turn)->add('o');
    return true;
  }
  std::unique_ptr<Session> session() override { return std::make_unique<LoggedSession>(); }
  bool close() override {
    (*log_of_turn)->add('c');
    return true;
  }
};

const EngineKind kLogged{
    "logged", []() -> std::unique_ptr<Engine> { return std::make_unique<LoggedEngine>(); },
    [](const EngineOptions&) { return std::string(); }, false};

EngineKind volatile_kind() {
  EngineKind kind = kLogged;
  kind.is_volatile = true;
  return kind;
}

class Turn : public testing::Test {
 protected:
  Turn() {
    log_of_turn = &log_;
    lost_write = 0;
    skips_in_groups = false;
    EXPECT_TRUE(scratch_.create(testing::TempDir(), "kv-turn-test"));
  }
  // Plays these workloads on one store, and returns the calls.
  std::string play(const std::vector<Workload>& workloads, const EngineKind& kind = kLogged) {
    Course course;
    course.records = &records_;
    Planner planner(records_, 1, 42);
    for (const Workload w : workloads) {
      course.phases.push_back(planner.next(w, 200, Distribution::zipfian));
    }
    EngineOptions options;
    options.dir = scratch_.path();
    take_turn(kind, options, course, 60, turn_);
    EXPECT_TRUE(turn_->result.finished) << turn_->result.error;
    return log_->calls;
  }
  std::uint64_t failures() {
    std::uint64_t sum = 0;
    for (const PhaseResult& p : turn_->result.phases) sum += p.failures;
    return sum;
  }

  const YcsbRecords records_{16, 100, false};
  Scratch scratch_;
  Shared<CallLog> log_;
  SharedTurn turn_;
};

TEST_F(Turn, nobody_walks_the_store_before_its_scans) {
  const std::string calls = play({Workload::load, Workload::a, Workload::e});
  EXPECT_TRUE(std::regex_match(calls, std::regex("ow[rw]+[sw]+Wcorwc"))) << calls;
  EXPECT_EQ(failures(), 0u);
}

TEST_F(Turn, cold_scans_follow_an_open_and_warm_ones_a_walk) {
  const std::string calls = play({Workload::load, Workload::e_cold, Workload::e_warm});
  EXPECT_TRUE(std::regex_match(calls, std::regex("owco[sw]+W[sw]+Wcorwc"))) << calls;
  EXPECT_EQ(failures(), 0u);
}

TEST_F(Turn, what_keeps_nothing_is_opened_once) {
  const std::string calls =
      play({Workload::load, Workload::e_cold, Workload::e_warm}, volatile_kind());
  EXPECT_TRUE(std::regex_match(calls, std::regex("ow[sw]+W[sw]+Wc"))) << calls;
  EXPECT_EQ(failures(), 0u);
}

TEST_F(Turn, groups_have_all_operations_and_their_answers_are_checked) {
  const std::string calls =
      play({Workload::load, Workload::update, Workload::update_x100, Workload::get_x16});
  EXPECT_TRUE(std::regex_match(calls, std::regex("owURWcorwc"))) << calls;
  EXPECT_EQ(failures(), 0u);
  EXPECT_EQ(turn_->result.phases[2].ops, 200u);
  EXPECT_EQ(turn_->result.phases[3].ops, 200u);
}

TEST_F(Turn, a_key_that_a_group_of_reads_leaves_out_is_a_failure) {
  skips_in_groups = true;
  play({Workload::load, Workload::get_x16});
  EXPECT_EQ(failures(), 13u);  // 200 reads are 13 groups
}

TEST_F(Turn, an_update_that_a_batch_forgets_is_found) {
  lost_write = 400;
  play({Workload::load, Workload::update_x100});
  EXPECT_GT(failures(), 0u);
}

TEST_F(Turn, a_lost_record_is_found_although_no_workload_asks_for_it) {
  lost_write = 200;  // the load's last, and nothing reads
  play({Workload::load});
  EXPECT_GT(failures(), 0u);
}

}  // namespace
}  // namespace bench
