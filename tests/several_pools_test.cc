// Transactions over several pools, without lost lines: what a commit and an abort do in each pool,
// and what a pool in doubt does at its open.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "support/tx_parts.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

struct alignas(64) Cell {
  std::uint64_t word[8];
};

std::string read_all(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}
void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// One pool with a cell and a place for a block.
struct Side {
  explicit Side(const char* name) : path(name) {}
  void make(const PoolOptions& options = TxParts::small_options()) {
    ASSERT_EQ(parts.create(path.str(), options), Status::ok) << parts.report.text();
    cell = &parts.make_root<Cell>(0, 8);
    dest = &parts.make_root<Ptr<Cell>>(1);
  }
  Status open(const PoolOptions& options = TxParts::small_options()) {
    parts.report = {};
    const Status s = parts.open(path.str(), options);
    if (s == Status::ok) {
      cell = &parts.get_root<Cell>(0);
      dest = &parts.get_root<Ptr<Cell>>(1);
    }
    return s;
  }
  std::uint64_t id() const { return parts.file->superblock().pool_id; }
  tx::Txn& txn() { return parts.engine->mine(); }
  tx::TxLine& line() { return tx::tx_line(parts.lanes->mine()); }

  TempPath path;
  TxParts parts;
  Cell* cell = nullptr;
  Ptr<Cell>* dest = nullptr;
};

class SeveralPools : public ::testing::Test {
 protected:
  void SetUp() override {
    a_.make();
    b_.make();
    if (a_.id() > b_.id()) std::swap(low_, high_);
  }
  Status set(tx::Txn& txn, Side& side, std::uint64_t value) {
    TENUTO_TRY(txn.add(side.cell, 8));
    side.cell->word[0] = value;
    return Status::ok;
  }
  // Puts value in both, from `first`'s transaction.
  Status set_both(std::uint64_t value, Side& first, Side& second) {
    TENUTO_TRY(first.txn().begin());
    TENUTO_TRY(second.txn().begin_with(first.txn()));
    TENUTO_TRY(set(first.txn(), first, value));
    TENUTO_TRY(set(second.txn(), second, value));
    TENUTO_TRY(second.txn().commit());
    return first.txn().commit();
  }
  void expect_both(std::uint64_t value) {
    EXPECT_EQ(a_.cell->word[0], value);
    EXPECT_EQ(b_.cell->word[0], value);
  }
  void crash() {
    a_.parts.crash();
    b_.parts.crash();
  }

  // Crashes both pools while the high one is prepared, and the low one has decided so or has not
  // begun to. Both had 1, and the high pool also freed a block and allocated another.
  void crash_in_doubt(bool committed) {
    ASSERT_EQ(set_both(1, *low_, *high_), Status::ok);
    ASSERT_EQ(high_->parts.run([&](Transaction& tx) {
      const Result<Cell*> cell = tx.make<Cell>(Cell{{5}});
      if (!cell) return cell.error();
      TENUTO_TRY(tx.add(*high_->dest));
      *high_->dest = *cell;
      return Status::ok;
    }),
              Status::ok);
    blocks_before_ = high_->parts.allocated_blocks().size();
    low_before_ = read_all(low_->path.str());
    tx::Txn& first = low_->txn();
    tx::Txn& part = high_->txn();
    ASSERT_EQ(first.begin(), Status::ok);
    ASSERT_EQ(part.begin_with(first), Status::ok);
    ASSERT_EQ(set(first, *low_, 2), Status::ok);
    ASSERT_EQ(part.free(high_->dest->get()), Status::ok);
    ASSERT_EQ(part.add(high_->dest, 8), Status::ok);
    *high_->dest = nullptr;
    ASSERT_EQ(set(part, *high_, 2), Status::ok);
    // What the protocol writes next, by hand: no test can stop a commit in its middle.
    const pm::Lane& lane = high_->parts.lanes->mine();
    const std::uint64_t s = high_->line().committed.number() + 1;
    pm::LogLine* entry = &lane.lines[pm::kLaneUndoLine + (s & 1) * pm::kLaneUndoLines];
    while (pm::log_line_state(*entry) == pm::LogLineState::sealed && pm::log_sequence(*entry) == s)
      ++entry;
    const auto head = tx::EntryHead::make(tx::EntryKind::prepared, {0}, sizeof(tx::TxnName));
    const pm::LogLine kept = *entry;
    pm::write_log_line(*entry,
                       {head.raw, low_->id(), low_->parts.lanes->mine().id.value,
                        low_->line().committed.number() + 1, 0, 0, 0},
                       s);
    high_prepared_ = read_all(high_->path.str());
    *entry = kept;
    ASSERT_EQ(part.commit(), Status::ok);
    if (committed) {
      ASSERT_EQ(first.commit(), Status::ok);
    } else {
      first.abort();
    }
    crash();
    write_all(high_->path.str(), high_prepared_);
  }

  Side a_{"severala"}, b_{"severalb"};
  Side* low_ = &a_;  // the smaller id: it decides
  Side* high_ = &b_;
  std::size_t blocks_before_ = 0;
  std::string low_before_, high_prepared_;
};

TEST_F(SeveralPools, a_commit_is_in_both) {
  ASSERT_EQ(set_both(3, a_, b_), Status::ok);
  ASSERT_EQ(set_both(4, b_, a_), Status::ok);
  expect_both(4);
  crash();
  ASSERT_EQ(a_.open(), Status::ok) << a_.parts.report.text();
  ASSERT_EQ(b_.open(), Status::ok) << b_.parts.report.text();
  expect_both(4);
  EXPECT_EQ(a_.parts.rolled_back + b_.parts.rolled_back, 0u);
}

// An older version takes a copy that it does not read for a damaged one, and believes the other.
TEST_F(SeveralPools, both_superblock_copies_say_so) {
  ASSERT_EQ(set_both(3, a_, b_), Status::ok);
  for (const Side* side : {&a_, &b_}) {
    const std::string file = read_all(side->path.str());
    for (std::size_t copy = 0; copy < 2; ++copy) {
      pm::Superblock s;
      std::memcpy(&s, &file[copy * kFrameBytes], sizeof s);
      EXPECT_NE(s.variant & pm::kVariantJoint, 0u) << "copy " << copy;
    }
  }
}

TEST_F(SeveralPools, an_abort_of_either_undoes_both) {
  ASSERT_EQ(set_both(3, a_, b_), Status::ok);
  for (const bool of_the_part : {false, true}) {
    tx::Txn& first = a_.txn();
    tx::Txn& part = b_.txn();
    ASSERT_EQ(first.begin(), Status::ok);
    ASSERT_EQ(part.begin_with(first), Status::ok);
    ASSERT_EQ(set(first, a_, 9), Status::ok);
    ASSERT_EQ(set(part, b_, 9), Status::ok);
    if (of_the_part) {
      part.abort();
      expect_both(3);
      EXPECT_EQ(first.status(), Status::aborted);
      EXPECT_EQ(first.commit(), Status::aborted);
    } else {
      ASSERT_EQ(part.commit(), Status::ok);
      first.abort();
    }
    expect_both(3);
    EXPECT_FALSE(first.active() || part.active());
  }
  ASSERT_EQ(set_both(5, a_, b_), Status::ok);
  expect_both(5);
}

TEST_F(SeveralPools, a_part_that_was_not_committed_undoes_both) {
  ASSERT_EQ(set_both(3, a_, b_), Status::ok);
  {
    Transaction first(a_.txn());
    tx::Txn& part = b_.txn();
    ASSERT_EQ(part.begin_with(a_.txn()), Status::ok);
    ASSERT_EQ(set(a_.txn(), a_, 9), Status::ok);
    ASSERT_EQ(set(part, b_, 9), Status::ok);
    EXPECT_EQ(first.commit(), Status::aborted);
  }
  expect_both(3);
  EXPECT_FALSE(b_.txn().active());
}

TEST_F(SeveralPools, where_only_one_changed_it_commits_alone) {
  for (Side* changed : {&a_, &b_}) {
    ASSERT_EQ(a_.txn().begin(), Status::ok);
    ASSERT_EQ(b_.txn().begin_with(a_.txn()), Status::ok);
    ASSERT_EQ(set(changed->txn(), *changed, 7), Status::ok);
    ASSERT_EQ(b_.txn().commit(), Status::ok);
    ASSERT_EQ(a_.txn().commit(), Status::ok);
  }
  expect_both(7);
  EXPECT_EQ(a_.line().decisions.raw | b_.line().decisions.raw, 0u);
}

TEST_F(SeveralPools, what_cannot_take_part_is_refused) {
  ASSERT_EQ(b_.txn().begin(), Status::ok);
  ASSERT_EQ(a_.txn().begin(), Status::ok);
  EXPECT_EQ(b_.txn().begin_with(a_.txn()), Status::invalid_argument) << "it has its own";
  b_.txn().abort();
  ASSERT_EQ(b_.txn().begin_with(a_.txn()), Status::ok);
  ASSERT_EQ(b_.txn().begin_with(a_.txn()), Status::ok) << "nested";
  ASSERT_EQ(a_.txn().begin_with(b_.txn()), Status::ok) << "it leads";
  ASSERT_EQ(a_.txn().commit(), Status::ok);
  ASSERT_EQ(b_.txn().commit(), Status::ok);
  ASSERT_EQ(b_.txn().commit(), Status::ok);
  EXPECT_EQ(b_.parts.engine->drain(), Status::busy);
  ASSERT_EQ(a_.txn().commit(), Status::ok);
  EXPECT_EQ(b_.parts.engine->drain(), Status::ok);
  Side copy("severalcopy");
  write_all(copy.path.str(), read_all(a_.path.str()));
  ASSERT_EQ(copy.open(), Status::ok);
  ASSERT_EQ(a_.txn().begin(), Status::ok);
  EXPECT_EQ(copy.txn().begin_with(a_.txn()), Status::invalid_argument) << "a copy of the pool";
  a_.txn().abort();
  EXPECT_EQ(copy.txn().begin_with(a_.txn()), Status::closed);
  copy.parts.crash();
}

TEST_F(SeveralPools, callbacks_and_locks_are_of_all) {
  std::mutex ma, mb;
  std::string said;
  for (const bool commit : {true, false}) {
    ASSERT_EQ(a_.txn().begin(), Status::ok);
    ASSERT_EQ(b_.txn().begin_with(a_.txn()), Status::ok);
    ASSERT_EQ(a_.txn().lock(ma), Status::ok);
    ASSERT_EQ(b_.txn().lock(mb), Status::ok);
    ASSERT_EQ(a_.txn().on_end([&](bool c) { said += c ? "A" : "a"; }), Status::ok);
    ASSERT_EQ(b_.txn().on_end([&](bool c) { said += c ? "B" : "b"; }), Status::ok);
    ASSERT_EQ(b_.txn().on_end([&](bool) { EXPECT_EQ(a_.txn().begin(), Status::invalid_argument); }),
              Status::ok)
        << "no transaction in a callback";
    ASSERT_EQ(b_.txn().commit(), Status::ok);
    if (commit) {
      ASSERT_EQ(a_.txn().commit(), Status::ok);
    } else {
      a_.txn().abort();
    }
    EXPECT_TRUE(ma.try_lock() && mb.try_lock());
    ma.unlock(), mb.unlock();
  }
  EXPECT_EQ(said, "ABab");
}

TEST_F(SeveralPools, a_pool_that_goes_away_undoes_the_others) {
  ASSERT_EQ(set_both(3, a_, b_), Status::ok);
  for (Side* gone : {&b_, &a_}) {
    ASSERT_EQ(a_.txn().begin(), Status::ok);
    ASSERT_EQ(b_.txn().begin_with(a_.txn()), Status::ok);
    ASSERT_EQ(set(a_.txn(), a_, 9), Status::ok);
    ASSERT_EQ(set(b_.txn(), b_, 9), Status::ok);
    ASSERT_EQ(b_.txn().commit(), Status::ok);
    gone->parts.crash();
    Side& other = gone == &a_ ? b_ : a_;
    EXPECT_EQ(other.cell->word[0], 3u);
    if (gone == &b_) {
      EXPECT_EQ(a_.txn().commit(), Status::aborted);
    }
    EXPECT_FALSE(other.txn().active());
    ASSERT_EQ(gone->open(), Status::ok);
    expect_both(3);
  }
}

TEST_F(SeveralPools, a_decided_part_commits_at_its_open) {
  ASSERT_NO_FATAL_FAILURE(crash_in_doubt(true));
  ASSERT_EQ(low_->open(), Status::ok) << low_->parts.report.text();
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(high_->open(), Status::ok) << high_->parts.report.text();
    expect_both(2);
    EXPECT_EQ(high_->parts.rolled_back, 0u);
    EXPECT_EQ(high_->dest->get(), nullptr);
    EXPECT_EQ(high_->parts.allocated_blocks().size(), blocks_before_ - 1);
    high_->parts.crash();
  }
}

TEST_F(SeveralPools, an_undecided_part_is_undone_at_its_open) {
  ASSERT_NO_FATAL_FAILURE(crash_in_doubt(false));
  ASSERT_EQ(low_->open(), Status::ok) << low_->parts.report.text();
  ASSERT_EQ(high_->open(), Status::ok) << high_->parts.report.text();
  expect_both(1);
  EXPECT_EQ(high_->parts.rolled_back, 1u);
  EXPECT_EQ((*high_->dest)->word[0], 5u);
  EXPECT_EQ(high_->parts.allocated_blocks().size(), blocks_before_);
}

TEST_F(SeveralPools, a_part_in_doubt_waits_for_the_pool_that_decides) {
  ASSERT_NO_FATAL_FAILURE(crash_in_doubt(true));
  EXPECT_EQ(high_->open(), Status::in_doubt);
  const std::string text = high_->parts.report.text();
  char id[17];
  std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>([&] {
                  EXPECT_EQ(low_->open(), Status::ok);
                  return low_->id();
                }()));
  EXPECT_NE(text.find(id), std::string::npos) << text;
  EXPECT_NE(text.find("open that pool first"), std::string::npos) << text;
  high_->parts.crash();
  const std::string now = read_all(high_->path.str());
  for (std::size_t i = pm::kLanesOffset; i < now.size(); i += 64) {
    const bool of_a_lane = i < pm::kHeadBytes;
    if (of_a_lane && i / 64 % pm::kLaneLines < pm::kLaneUndoLine) continue;  // the heap's intents
    EXPECT_EQ(now.compare(i, 64, high_prepared_, i, 64), 0) << "line at " << i << " was changed";
  }
  ASSERT_EQ(high_->open(), Status::ok) << high_->parts.report.text();
  expect_both(2);
}

TEST_F(SeveralPools, an_older_copy_or_two_copies_decide_nothing) {
  ASSERT_NO_FATAL_FAILURE(crash_in_doubt(true));
  const std::string right = read_all(low_->path.str());
  write_all(low_->path.str(), low_before_);
  ASSERT_EQ(low_->open(), Status::ok);
  EXPECT_EQ(high_->open(), Status::in_doubt);
  EXPECT_NE(high_->parts.report.text().find("older copy"), std::string::npos);
  high_->parts.crash();
  Side copy("severalcopy");
  write_all(copy.path.str(), right);
  ASSERT_EQ(copy.open(), Status::ok);
  EXPECT_EQ(high_->open(), Status::in_doubt);
  EXPECT_NE(high_->parts.report.text().find("two pools"), std::string::npos);
  high_->parts.crash();
  low_->parts.crash();
  ASSERT_EQ(high_->open(), Status::ok) << high_->parts.report.text();
  EXPECT_EQ(high_->cell->word[0], 2u);
  copy.parts.crash();
}

TEST_F(SeveralPools, a_part_in_doubt_can_be_ended_without_the_other_pool) {
  ASSERT_NO_FATAL_FAILURE(crash_in_doubt(true));
  PoolOptions options = TxParts::small_options();
  for (const auto& [how, value] : {std::pair{InDoubt::commit, 2u}, {InDoubt::abort, 1u}}) {
    write_all(high_->path.str(), high_prepared_);
    options.in_doubt = how;
    ASSERT_EQ(high_->open(options), Status::ok) << high_->parts.report.text();
    EXPECT_EQ(high_->cell->word[0], value);
    high_->parts.crash();
    ASSERT_EQ(high_->open(), Status::ok) << "it ended durably";
    EXPECT_EQ(high_->cell->word[0], value);
    high_->parts.crash();
  }
}

TEST_F(SeveralPools, a_decision_waits_for_its_part_and_its_frame_goes_back) {
  ASSERT_NO_FATAL_FAILURE(crash_in_doubt(true));
  ASSERT_EQ(low_->open(), Status::ok);
  EXPECT_GE(low_->parts.engine->stats().decisions, 1u);
  ASSERT_EQ(low_->parts.close(), Status::ok) << "it closes with decisions that wait";
  ASSERT_EQ(low_->open(), Status::ok);
  ASSERT_EQ(high_->open(), Status::ok) << high_->parts.report.text();
  expect_both(2);
  ASSERT_EQ(low_->parts.close(), Status::ok);
  ASSERT_EQ(low_->open(), Status::ok);
  EXPECT_EQ(low_->parts.engine->stats().decisions, 0u);
  EXPECT_EQ(low_->line().decisions.raw, 0u);
}

TEST_F(SeveralPools, more_decisions_than_a_frame_holds_reuse_its_lines) {
  for (std::uint64_t i = 1; i <= 2 * tx::kLogFrameLines + 10; ++i) {
    ASSERT_EQ(set_both(i, a_, b_), Status::ok) << i;
  }
  expect_both(2 * tx::kLogFrameLines + 10);
  EXPECT_EQ(low_->parts.engine->stats().decisions, 0u);
}

TEST_F(SeveralPools, a_damaged_decision_is_reported) {
  ASSERT_NO_FATAL_FAILURE(crash_in_doubt(true));
  ASSERT_EQ(low_->open(), Status::ok);
  const PoolOffset frame{low_->line().decisions.number()};
  low_->parts.file->at<pm::LogLine>(frame)[1].word[2] ^= 4;
  low_->parts.crash();
  EXPECT_EQ(low_->open(), Status::corrupt);
  EXPECT_NE(low_->parts.report.text().find("decision"), std::string::npos);
}

}  // namespace
}  // namespace tenuto
