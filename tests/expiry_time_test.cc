// The time by which records expire: a snapshot fixes it, it does not go back, and a leap is not
// believed at once.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "pm/format.h"
#include "pm/plant.h"
#include "support/collection_fixture.h"
#include "support/pool_image.h"
#include "tenuto/rescue.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;
using test::Keys;

constexpr std::uint64_t kHour = 3600 * 1000;

class ExpiryTimeTest : public test::CollectionFixture {
 protected:
  ExpiryTimeTest() {
    options_.clock_ms = [this] { return now_.load(); };
    options_.reclaim_every_ms = 0;
    options_.pool.log = [this](std::string_view line) {
      const std::lock_guard lock(mu_);
      log_ += line;
      log_ += '\n';
    };
  }
  void TearDown() override {
    unplant_all();
    test::CollectionFixture::TearDown();
  }
  Collection sessions() { return made({.expires = true}, "sessions"); }
  void put(Collection& c, const std::string& key, std::uint64_t ttl) {
    ASSERT_EQ(c.put(key, "v", {.ttl_ms = ttl}), Status::ok);
  }
  std::string log() {
    const std::lock_guard lock(mu_);
    return log_;
  }

  // Whether a snapshot, a transaction and their cursors still see a record that expires meanwhile.
  bool moment_stays(Collection& c) {
    put(c, "a", 10);
    put(c, "b", 10);
    const Snapshot snapshot = *s_->snapshot();
    StoreTransaction tx = s_->begin();
    EXPECT_EQ(tx.contains({c, "a"}), Status::ok);
    now_ += 10;
    EXPECT_EQ(c.contains("a"), Status::not_found);
    Iterator from_snapshot = snapshot.iterator(c);
    Iterator from_tx = tx.iterator(c);
    from_snapshot.seek_first();
    from_tx.seek_first();
    return snapshot.get({c, "a"}) && snapshot.contains({c, "b"}) == Status::ok &&
           tx.get({c, "a"}) && tx.contains({c, "b"}) == Status::ok &&
           keys(from_snapshot) == (Keys{"a", "b"}) && keys(from_tx) == (Keys{"a", "b"});
  }
  // Whether a commit conflicts when a record it read has expired.
  bool commit_notices(Collection& c, bool by_cursor) {
    put(c, "k", 10);
    StoreTransaction tx = s_->begin();
    if (by_cursor) {
      Iterator it = tx.iterator(c);
      it.seek("k");
      EXPECT_TRUE(it.valid());
    } else {
      EXPECT_EQ(tx.contains({c, "k"}), Status::ok);
    }
    EXPECT_EQ(tx.put("seen", "k"), Status::ok);
    now_ += 10;
    return tx.commit() == Status::conflict;
  }

  std::atomic<std::uint64_t> now_{1'800'000'000'000};
  std::mutex mu_;
  std::string log_;
};

TEST_F(ExpiryTimeTest, a_moment_includes_its_time) {
  Collection c = sessions();
  EXPECT_TRUE(moment_stays(c));
  plant("store_snapshot_without_time");
#ifdef TENUTO_DEBUG_CHECKS
  EXPECT_FALSE(moment_stays(c));
#endif
}

TEST_F(ExpiryTimeTest, a_reclaim_takes_nothing_from_a_snapshot) {
  Collection c = sessions();
  put(c, "a", 10);
  const Snapshot snapshot = *s_->snapshot();
  now_ += 20;
  EXPECT_EQ(*s_->reclaim(), 1u);
  EXPECT_EQ(c.stats().records, 0u);
  EXPECT_EQ(*snapshot.get({c, "a"}), "v");
}

TEST_F(ExpiryTimeTest, what_expires_under_a_transaction_is_a_conflict) {
  Collection c = sessions();
  EXPECT_TRUE(commit_notices(c, false));
  EXPECT_TRUE(commit_notices(c, true));
  // A transaction that only reads keeps its time. A record that lives longer causes no conflict.
  put(c, "k", 10);
  put(c, "long", 1000);
  StoreTransaction reads = s_->begin();
  EXPECT_EQ(reads.contains({c, "k"}), Status::ok);
  StoreTransaction writes = s_->begin();
  EXPECT_EQ(writes.contains({c, "long"}), Status::ok);
  EXPECT_EQ(writes.put("seen", "long"), Status::ok);
  now_ += 10;
  EXPECT_EQ(reads.commit(), Status::ok);
  EXPECT_EQ(writes.commit(), Status::ok);
#ifdef TENUTO_DEBUG_CHECKS
  plant("store_commit_time_not_validated");
  EXPECT_FALSE(commit_notices(c, false));
#endif
}

TEST_F(ExpiryTimeTest, a_clock_set_back_brings_nothing_back) {
  Collection c = sessions();
  put(c, "k", 10);
  now_ += 10;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  now_ -= kHour;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  EXPECT_EQ(c.put_if_absent("k", "new", {.ttl_ms = 5}), Status::ok);
  now_ += kHour - 1;
  EXPECT_EQ(*c.get("k"), "new");
  now_ += 6;
  EXPECT_EQ(c.contains("k"), Status::not_found);
#ifdef TENUTO_DEBUG_CHECKS
  plant("store_clock_goes_back");
  now_ -= kHour;
  EXPECT_EQ(c.contains("k"), Status::ok);
#endif
}

TEST_F(ExpiryTimeTest, a_clock_that_is_set_back_is_logged_once) {
  Collection c = sessions();
  put(c, "k", kHour);
  now_ -= 1000;
  EXPECT_EQ(c.contains("k"), Status::ok);
  EXPECT_EQ(log().find("clock"), std::string::npos) << log();
  now_ -= 400 * 24 * kHour;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c.contains("k"), Status::ok);
  const std::string said = log();
  const std::size_t at = said.find("the clock is behind");
  ASSERT_NE(at, std::string::npos) << said;
  EXPECT_NE(said.find("by 400 days", at), std::string::npos) << said;
  EXPECT_EQ(said.find("the clock is behind", at + 1), std::string::npos) << said;
  // It has caught up, and is set back once more.
  now_ += 400 * 24 * kHour + 2 * kHour;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  now_ -= 5 * 60 * 1000;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  EXPECT_NE(log().find("by 5 minutes"), std::string::npos) << log();
}

TEST_F(ExpiryTimeTest, time_does_not_go_back_across_lives) {
  Collection c = sessions();
  put(c, "k", 10);
  now_ += 10;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  now_ -= kHour;
  reopen();
  c = sessions();
  EXPECT_EQ(c.contains("k"), Status::not_found);
  EXPECT_NE(log().find("the clock is behind"), std::string::npos) << log();
  now_ += kHour - 10;
  EXPECT_EQ(c.contains("k"), Status::not_found);
}

TEST_F(ExpiryTimeTest, a_backup_and_a_rescue_know_the_time_of_their_source) {
  Collection c = sessions();
  put(c, "k", 10);
  now_ += 10;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  const std::uint64_t known = s_->time_ms();
  // The copy is opened on a machine whose clock is behind. It must still know that "k" expired.
  const auto copied = [&](bool by_rescue) {
    const test::TempPath to(by_rescue ? "expiry-rescue" : "expiry-backup");
    if (by_rescue) {
      s_.reset();
      RescueResult result;
      RescueOptions how;
      how.pool = options_.pool;
      EXPECT_EQ(rescue(path_.str(), to.str(), how, result, &report_), Status::ok) << report_.text();
      EXPECT_TRUE(result.notes.empty()) << result.notes[0].text();
    } else {
      EXPECT_EQ(s_->backup(to.str(), options_.pool, &report_), Status::ok) << report_.text();
    }
    const std::uint64_t right = now_;
    now_ -= kHour;
    auto copy = Store::open(to.str(), options_, &report_);
    EXPECT_TRUE(copy) << report_.text();
    const Status s = copy->collection("sessions", {.create_if_missing = false})->contains("k");
    EXPECT_EQ(copy->time_ms() >= known, s == Status::not_found);
    now_ = right;
    return s;
  };
  EXPECT_EQ(copied(false), Status::not_found);
  EXPECT_EQ(copied(true), Status::not_found);
#ifdef TENUTO_DEBUG_CHECKS
  plant("store_copy_forgets_the_time");
  EXPECT_EQ(copied(true), Status::ok);
#endif
}

TEST_F(ExpiryTimeTest, a_rescue_says_that_the_time_is_lost) {
  Collection c = sessions();
  put(c, "k", kHour);
  s_.reset();
  test::Bytes image = test::read_image(path_.str());
  const std::size_t times = pm::kHeadPageOffset + offsetof(pm::HeadPage, times);
  for (std::size_t word = 0; word < pm::kTimeWords; ++word) image[times + word * 8] ^= 1;
  test::write_image(path_.str(), image);
  const test::TempPath to("expiry-lost");
  RescueResult result;
  RescueOptions how;
  how.pool = options_.pool;
  EXPECT_EQ(rescue(path_.str(), to.str(), how, result, &report_), Status::ok) << report_.text();
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_NE(result.notes[0].what.find("the last time"), std::string::npos);
}

TEST_F(ExpiryTimeTest, a_backup_doubts_what_its_source_doubts) {
  Collection c = sessions();
  put(c, "k", kHour);
  const std::uint64_t right = now_;
  now_ += 10'000 * kHour;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  const test::TempPath to("expiry-doubt");
  ASSERT_EQ(s_->backup(to.str(), options_.pool, &report_), Status::ok) << report_.text();
  now_ = right;
  auto copy = Store::open(to.str(), options_, &report_);
  ASSERT_TRUE(copy) << report_.text();
  EXPECT_EQ(copy->collection("sessions", {.create_if_missing = false})->contains("k"), Status::ok);
}

TEST_F(ExpiryTimeTest, one_wrong_leap_of_the_clock_destroys_nothing) {
  for (const bool at_open : {false, true}) {
    SCOPED_TRACE(at_open ? "at open" : "while it is open");
    Collection c = sessions();
    put(c, "short", 10);
    put(c, "k", kHour);
    now_ += 10;
    EXPECT_EQ(c.contains("short"), Status::not_found);
    const std::uint64_t right = now_;
    now_ += 10'000 * kHour;
    if (at_open) reopen();
    c = sessions();
    EXPECT_EQ(c.contains("k"), Status::not_found) << "the clock is what users see";
    EXPECT_EQ(*s_->reclaim(), 1u) << "what had expired before may go";
    EXPECT_NE(log().find("the clock is ahead"), std::string::npos) << log();
    // A minute later. Meanwhile the confirmed time went on with the steady clock.
    now_ = right + 60'000;
    reopen();
    c = sessions();
    EXPECT_EQ(c.contains("short"), Status::not_found);
    EXPECT_EQ(c.contains("k"), Status::ok);
    ASSERT_EQ(c.erase("k"), Status::ok);
  }
#ifdef TENUTO_DEBUG_CHECKS
  Collection c = sessions();
  put(c, "k", kHour);
  now_ += 10'000 * kHour;
  plant("store_clock_leap_believed");
  EXPECT_EQ(*s_->reclaim(), 1u);
#endif
}

// What is hidden is not there for an erase, so it says so, and erases nothing.
TEST_F(ExpiryTimeTest, an_erase_under_a_wrong_clock_destroys_nothing) {
  Collection c = sessions();
  Collection pairs = made({.duplicates = true, .expires = true}, "pairs");
  put(c, "k", kHour);
  put(c, "stays", 0);
  put(pairs, "k", kHour);
  const std::uint64_t right = now_;
  now_ += 10'000 * kHour;
  EXPECT_EQ(c.erase("k"), Status::not_found);
  EXPECT_EQ(*c.erase_range(std::nullopt, std::nullopt), 1u);
  EXPECT_EQ(pairs.erase("k"), Status::not_found);
  EXPECT_EQ(*pairs.erase_range("a", "z"), 0u);
  now_ = right;
  reopen();
  EXPECT_EQ(sessions().contains("k"), Status::ok);
  EXPECT_EQ(sessions().contains("stays"), Status::not_found);
  EXPECT_EQ(made({.duplicates = true, .expires = true}, "pairs").contains("k"), Status::ok);
}

TEST_F(ExpiryTimeTest, a_leap_that_stands_is_believed) {
  options_.clock_confirm_ms = 50;
  Collection c = sessions();
  put(c, "k", kHour);
  now_ += 10'000 * kHour;
  EXPECT_EQ(c.contains("k"), Status::not_found);
  std::uint64_t erased = 0;
  while (erased == 0) {  // ctest's time limit bounds this loop
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    erased = *s_->reclaim();
  }
  EXPECT_EQ(erased, 1u);
  EXPECT_NE(log().find("the clock has stood"), std::string::npos) << log();
}

// A store that is opened once a week, for a short time.
TEST_F(ExpiryTimeTest, two_lives_that_see_a_leap_confirm_it) {
  Collection c = sessions();
  put(c, "k", kHour);
  for (int week = 0; week < 2; ++week) {
    now_ += 7 * 24 * kHour;
    reopen();
    c = sessions();
    EXPECT_EQ(c.contains("k"), Status::not_found);
    EXPECT_EQ(*s_->reclaim(), week == 0 ? 0u : 1u);
  }
}

TEST_F(ExpiryTimeTest, a_day_is_no_leap_and_leaps_may_be_believed) {
  Collection c = sessions();
  put(c, "k", kHour);
  now_ += 23 * kHour;
  EXPECT_EQ(*s_->reclaim(), 1u);
  options_.clock_jump_ms_max = 0;
  reopen();
  c = sessions();
  put(c, "k", kHour);
  now_ += 10'000 * kHour;
  EXPECT_EQ(*s_->reclaim(), 1u);
}

// A record that is renewed before it expires is always there.
TEST_F(ExpiryTimeTest, who_keeps_a_record_alive_is_not_told_that_it_expired) {
  Collection c = sessions();
  put(c, "k", 10);
  std::atomic<bool> stop{false};
  std::thread keeper([&] {
    for (int i = 0; i < 20'000 && !stop.load(); ++i) {
      now_ += 9;
      EXPECT_EQ(c.put("k", "v", {.ttl_ms = 10}), Status::ok);
    }
    stop = true;
  });
  while (!stop.load()) {
    if (c.contains("k") != Status::ok || !c.get("k")) {
      ADD_FAILURE() << "it was there all the time";
      stop = true;
    }
  }
  keeper.join();
}

}  // namespace
}  // namespace tenuto
