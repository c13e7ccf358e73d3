// An older copy of a journal is put back beside a pool file, after a kill in a checkpoint or a
// replay that wrote to that file. The open is refused, or the file has nothing that is newer than
// the copy.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "pm/plant.h"
#include "support/failing_calls.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 150;

class JournalOlder : public testing::Test {
 protected:
  JournalOlder() {
    options_ = journalled(paths_);
    options_.pool.size = kPoolBytesMin;
    options_.pool.journal.bytes = 256u << 10;
    options_.pool.recovery_threads = 1;
  }
  void TearDown() override {
    unplant_all();
    std::filesystem::remove(older_);
  }

  Store& opened() { return *new Store(*Store::open(paths_.pool.str(), options_)); }
  // Puts each key with a value of another length, so that records move. Round 1, before the copy,
  // puts one key only, so that an older journal does not repair all leaves.
  bool write_all(Store& s, unsigned round) {
    std::mt19937_64 rng(round);
    for (int i = 0; i < (round == 1 ? 1 : kKeys); ++i) {
      std::string value(100 + rng() % 900, ' ');
      for (char& c : value) c = static_cast<char>(rng());
      if (s.put("key" + std::to_string(i), value, {Durability::buffered}) != Status::ok)
        return false;
    }
    return s.sync() == Status::ok;
  }
  void copy_journal() {
    std::filesystem::copy_file(paths_.journal.str(), older_,
                               std::filesystem::copy_options::overwrite_existing);
  }

  // Whether f returned, in a child.
  template <class F>
  bool survived(const F& f) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      f();
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) || WTERMSIG(status) == SIGKILL) << status;
    return WIFEXITED(status);
  }

  // Makes the pool anew with the records of round 0, and closes it.
  void fill_and_copy() {
    ::unlink(paths_.pool.str().c_str());
    ::unlink(paths_.journal.str().c_str());
    run_and_kill([this] {
      Store& s = opened();
      return write_all(s, 0) && s.close() == Status::ok;
    });
  }

  Records records_after(unsigned rounds) {
    const JournalPaths paths("journal-older-twin");
    StoreOptions options = options_;
    options.pool.journal.path = paths.journal.str();
    Result<Store> s = Store::open(paths.pool.str(), options);
    if (!s) return {};
    for (unsigned round = 0; round < rounds; ++round) EXPECT_TRUE(write_all(*s, round));
    return records_of(*s);
  }

  // The open must be refused with this advice, show the state of the copy, or show all rounds (then
  // all is in the pool file, and the journal is not needed).
  void judge(unsigned rounds) {
    std::filesystem::rename(older_, paths_.journal.str());
    Report report;
    Result<Store> s = Store::open(paths_.pool.str(), options_, &report);
    if (!s) {
      const bool told = report.what.find("put the right one back") != std::string::npos;
      (told ? refused_ : wrong_) += 1;
      return;
    }
    if (s->validate() != Status::ok) {
      wrong_ += 1;
      return;
    }
    const Records records = records_of(*s);
    if (records == records_after(2)) {
      as_copied_ += 1;
    } else if (records != records_after(rounds)) {
      wrong_ += 1;
    }
  }

  // Kills at every step-th write to a file after the copy, until there are no more writes.
  void kill_in_checkpoints(int step) {
    constexpr unsigned kRounds = 8;
    for (int n = 1;; n += step) {
      fill_and_copy();
      const bool all = survived([&] {
        Store& s = opened();
        if (!write_all(s, 1)) ::_exit(1);
        copy_journal();
        fail_call_anywhere(n, kKillProcess, false, "pwrite");
        for (unsigned round = 2; round < kRounds; ++round) static_cast<void>(write_all(s, round));
      });
      judge(kRounds);
      if (all) return;
    }
  }
  void kill_in_replays() {
    constexpr unsigned kRounds = 4;
    for (int n = 1;; ++n) {
      fill_and_copy();
      EXPECT_TRUE(survived([&] {
        Store& s = opened();
        if (!write_all(s, 1)) ::_exit(1);
        copy_journal();
        for (unsigned round = 2; round < kRounds; ++round) static_cast<void>(write_all(s, round));
      }));
      const bool all = survived([&] {
        fail_call_anywhere(n, kKillProcess, false, "pwrite");
        static_cast<void>(opened());
      });
      judge(kRounds);
      if (all) return;
    }
  }

  JournalPaths paths_{"journal-older"};
  const std::string older_ = paths_.journal.str() + ".older";
  StoreOptions options_;
  int refused_ = 0, as_copied_ = 0, wrong_ = 0;
};

TEST_F(JournalOlder, is_refused_after_a_checkpoint_that_was_killed) {
  kill_in_checkpoints(2);
  EXPECT_EQ(wrong_, 0);
  EXPECT_GT(refused_, 10);
  EXPECT_GT(as_copied_, 0);
}

TEST_F(JournalOlder, is_refused_after_a_replay_that_was_killed) {
  kill_in_replays();
  EXPECT_EQ(wrong_, 0);
  EXPECT_GT(refused_, 2);
}

#ifdef TENUTO_DEBUG_CHECKS
TEST_F(JournalOlder, planted_writes_that_nothing_announced_are_found) {
  // Which write a kill meets depends on the journal's thread, so one pass may miss it.
  constexpr int kPasses = 20;
  plant("journal_pool_written_unannounced");
  for (int i = 0; i < kPasses && wrong_ == 0; ++i) kill_in_checkpoints(3);
  EXPECT_GT(wrong_, 0);
  wrong_ = 0;
  for (int i = 0; i < kPasses && wrong_ == 0; ++i) kill_in_replays();
  EXPECT_GT(wrong_, 0);
}
#endif

}  // namespace
}  // namespace tenuto::test
