// Tests the isolation checker on histories made by hand: at least one of each anomaly, and a sound
// one much like it.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/isolation.h"

namespace tenuto::test {
namespace {

using Verb = TxnOp::Verb;
using End = Txn::End;

constexpr std::uint32_t x = 1, y = 2;

TxnOp append(std::uint32_t key, std::uint64_t v) { return {Verb::append, key, v, {}}; }
TxnOp list(std::uint32_t key, std::vector<std::uint64_t> v) {
  return {Verb::read_list, key, 0, std::move(v)};
}
TxnOp write(std::uint32_t key, std::uint64_t v) { return {Verb::write, key, v, {}}; }
TxnOp read(std::uint32_t key, std::uint64_t v) { return {Verb::read, key, v, {}}; }

class IsolationTest : public testing::Test {
 protected:
  // Adds a transaction that overlaps all others, so that real time orders nothing.
  void together(std::vector<TxnOp> ops, End how = End::committed) {
    const auto n = static_cast<std::uint32_t>(history_.size());
    history_.add({n, n, 1000 + n, how, std::move(ops)});
  }
  // Adds a transaction after all that were added so far.
  void then(std::vector<TxnOp> ops, End how = End::committed) {
    const auto n = static_cast<std::uint32_t>(history_.size());
    history_.add({n, 2000 + 2 * n, 2001 + 2 * n, how, std::move(ops)});
  }
  std::string verdict() const { return history_.check().name(); }

  IsolationHistory history_;
};

TEST_F(IsolationTest, nothing_and_what_is_sound_is_none) {
  EXPECT_EQ(verdict(), "none");
  together({append(x, 1), append(y, 1)});
  together({list(x, {1}), append(x, 2), list(x, {1, 2})});
  together({list(y, {1}), append(y, 2), append(y, 3)});
  together({list(x, {1, 2}), list(y, {1})});
  then({list(x, {1, 2}), list(y, {1, 2, 3})});
  EXPECT_EQ(verdict(), "none");
}

TEST_F(IsolationTest, sound_registers_are_none) {
  history_.set_order(y, {10, 11});
  together({read(x, 0), write(x, 1)});
  together({read(x, 1), write(x, 2), write(y, 10)});
  together({write(y, 11)});
  together({read(x, 1), read(y, 0)});
  then({read(x, 2), read(y, 11)});
  EXPECT_EQ(verdict(), "none");
}

TEST_F(IsolationTest, garbage) {
  together({list(x, {7})});
  EXPECT_EQ(verdict(), "garbage");
}

TEST_F(IsolationTest, garbage_in_a_register) {
  together({read(x, 7)});
  EXPECT_EQ(verdict(), "garbage");
}

TEST_F(IsolationTest, lists_without_one_order) {
  together({append(x, 1)});
  together({append(x, 2)});
  together({list(x, {1, 2})});
  together({list(x, {2})});
  EXPECT_EQ(verdict(), "order");
}

TEST_F(IsolationTest, a_transaction_that_misses_its_own_write) {
  together({append(x, 1), list(x, {})});
  EXPECT_EQ(verdict(), "internal");
}

TEST_F(IsolationTest, a_transaction_that_reads_another_value_than_it_wrote) {
  together({write(x, 1)});
  together({write(x, 2), read(x, 1)});
  EXPECT_EQ(verdict(), "internal");
}

TEST_F(IsolationTest, g0_writes_in_two_orders) {
  together({append(x, 1), append(y, 1)});
  together({append(x, 2), append(y, 2)});
  together({list(x, {1, 2})});
  together({list(y, {2, 1})});
  const IsolationFinding f = history_.check();
  EXPECT_EQ(f.name(), "G0");
  EXPECT_NE(f.text.find("T0 (thread 0, 0..1000) -ww-> T1"), std::string::npos) << f.text;
  EXPECT_NE(f.text.find("-ww-> T0"), std::string::npos) << f.text;
}

TEST_F(IsolationTest, g0_of_registers_whose_order_is_known) {
  history_.set_order(x, {1, 2});
  history_.set_order(y, {2, 1});
  together({write(x, 1), write(y, 1)});
  together({write(x, 2), write(y, 2)});
  EXPECT_EQ(verdict(), "G0");
}

TEST_F(IsolationTest, g1a_what_was_aborted_is_seen) {
  together({append(x, 1)}, End::aborted);
  together({list(x, {1})});
  EXPECT_EQ(verdict(), "G1a");
}

TEST_F(IsolationTest, g1b_what_was_written_over_by_its_own_is_seen) {
  together({append(x, 1), append(x, 2)});
  together({list(x, {1})});
  EXPECT_EQ(verdict(), "G1b");
}

TEST_F(IsolationTest, g1b_in_a_register) {
  together({write(x, 1), write(x, 2)});
  together({read(x, 1)});
  EXPECT_EQ(verdict(), "G1b");
}

TEST_F(IsolationTest, g1c_each_sees_the_other) {
  together({append(x, 1), list(y, {1})});
  together({append(y, 1), list(x, {1})});
  EXPECT_EQ(verdict(), "G1c");
}

TEST_F(IsolationTest, g1c_of_a_write_and_a_read) {
  together({append(x, 1), list(y, {1})});
  together({append(x, 2), append(y, 1)});
  together({list(x, {1, 2})});
  EXPECT_EQ(verdict(), "G1c");
}

TEST_F(IsolationTest, g_single_read_skew) {
  together({append(x, 1), append(y, 1)});
  together({list(x, {1}), list(y, {})});
  together({list(x, {1}), list(y, {1})});
  EXPECT_EQ(verdict(), "G-single");
}

TEST_F(IsolationTest, g2_lost_update_of_a_register) {
  together({read(x, 0), write(x, 1)});
  together({read(x, 0), write(x, 2)});
  EXPECT_EQ(verdict(), "G2") << "each read what the other wrote over: two rw";
}

TEST_F(IsolationTest, g_single_lost_update_of_a_list) {
  together({append(x, 1)});
  together({list(x, {1}), append(x, 2)});
  together({list(x, {1}), append(x, 3)});
  together({list(x, {1, 2, 3})});
  EXPECT_EQ(verdict(), "G-single");
}

TEST_F(IsolationTest, g2_write_skew) {
  together({list(x, {}), append(y, 1)});
  together({list(y, {}), append(x, 1)});
  together({list(x, {1}), list(y, {1})});
  EXPECT_EQ(verdict(), "G2");
}

// Fekete, O'Neil, O'Neil 2004: two transactions in order, and a reader that sees only the later
// one.
TEST_F(IsolationTest, g2_of_a_read_only_transaction) {
  together({list(x, {}), append(y, 1)});
  together({append(x, 1)});
  together({list(x, {1}), list(y, {})});
  together({list(x, {1}), list(y, {1})});
  EXPECT_EQ(verdict(), "G2");
}

TEST_F(IsolationTest, a_stale_read_is_an_anomaly_of_real_time_only) {
  together({append(x, 1)});
  then({append(x, 2)});
  then({list(x, {1})});
  then({list(x, {1, 2})});
  EXPECT_EQ(verdict(), "G-single-realtime");
}

TEST_F(IsolationTest, writes_against_real_time) {
  together({append(x, 1)});
  then({append(x, 2)});
  then({list(x, {2, 1})});
  EXPECT_EQ(verdict(), "G0-realtime");
}

TEST_F(IsolationTest, a_committed_append_that_was_lost_shows) {
  together({append(x, 1)});
  then({list(x, {})});
  EXPECT_EQ(verdict(), "G-single-realtime");
}

TEST_F(IsolationTest, what_a_crash_cut_off_may_be_there_or_not) {
  together({append(x, 1), append(y, 1)}, End::unknown);
  together({append(x, 2), append(y, 2)}, End::unknown);
  then({list(x, {1}), list(y, {1})});
  EXPECT_EQ(verdict(), "none");
}

TEST_F(IsolationTest, what_a_crash_cut_off_is_not_there_by_half) {
  together({append(x, 1), append(y, 1)}, End::unknown);
  then({list(x, {1}), list(y, {})});
  EXPECT_EQ(verdict(), "G-single");
}

TEST_F(IsolationTest, what_a_crash_cut_off_does_not_come_later) {
  history_.set_order(x, {1});
  together({write(x, 1)}, End::unknown);
  then({read(x, 0)});
  then({read(x, 1)});
  EXPECT_EQ(verdict(), "G-single-realtime");
}

TEST_F(IsolationTest, values_that_never_happened_leave_no_gap_in_an_order) {
  history_.set_order(x, {1, 2, 3});
  together({write(x, 1)});
  together({write(x, 2)}, End::unknown);
  together({write(x, 3), write(y, 3)});
  together({read(x, 1), read(y, 3)});
  EXPECT_EQ(verdict(), "G-single");
}

TEST_F(IsolationTest, long_histories_are_checked_in_time) {
  constexpr std::uint64_t kTxns = 20'000;
  for (std::uint64_t i = 1; i <= kTxns; ++i) {
    then({read(static_cast<std::uint32_t>(i % 50), i > 50 ? i - 50 : 0),
          write(static_cast<std::uint32_t>(i % 50), i)});
  }
  EXPECT_EQ(verdict(), "none");
  then({read(7, 7)});
  EXPECT_EQ(verdict(), "G-single-realtime");
}

}  // namespace
}  // namespace tenuto::test
