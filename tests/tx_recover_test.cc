// What an open finds after a kill, and after damage. A kill here is TxParts::crash(): all volatile
// state is lost, and the file keeps all stores. tx_crash.cc tests lost lines.
#include <gtest/gtest.h>

#include "support/tx_parts.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;

struct alignas(64) Node {
  std::uint64_t word[8];
};

class TxRecoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(parts_.create(path_.str()), Status::ok) << parts_.report.text();
    node_ = &parts_.make_root<Node>(0, 4096);
    dest_ = &parts_.make_root<Ptr<Node>>(1, 64);
  }
  // The open maps the pool anew, so the pointers into it change.
  Status kill_and_open() {
    parts_.crash();
    const Status s = parts_.open(path_.str());
    if (s != Status::ok) return s;
    node_ = &parts_.get_root<Node>(0);
    dest_ = &parts_.get_root<Ptr<Node>>(1);
    return s;
  }
  // Without a Transaction object, so that a kill may come before the end.
  tx::Txn& begin() {
    tx::Txn& txn = parts_.engine->mine();
    EXPECT_EQ(txn.begin(), Status::ok);
    return txn;
  }
  tx::TxLine& header() { return tx::tx_line(parts_.lanes->mine()); }
  pm::LogLine& entry(std::size_t area, std::size_t i) {
    return parts_.lanes->mine().lines[pm::kLaneUndoLine + area * pm::kLaneUndoLines + i];
  }
  void expect_corrupt(const char* words) {
    parts_.crash();
    parts_.report = {};
    EXPECT_EQ(parts_.open(path_.str()), Status::corrupt);
    EXPECT_NE(parts_.report.text().find(words), std::string::npos) << parts_.report.text();
    EXPECT_NE(parts_.report.where.find("lane"), std::string::npos) << parts_.report.text();
  }
  // Opens only the file and its lanes, to repair or damage more.
  void reopen_raw() {
    parts_.crash();
    auto file = pm::PoolFile::open(path_.str(), TxParts::small_options(), &parts_.report);
    ASSERT_TRUE(file) << parts_.report.text();
    parts_.file = std::move(*file);
    parts_.lanes = *pm::Lanes::open(*parts_.file, &parts_.report);
  }
  std::size_t allocated() { return parts_.allocated_blocks().size(); }

  TempPath path_{"txrecover"};
  TxParts parts_;
  Node* node_ = nullptr;
  Ptr<Node>* dest_ = nullptr;
};

TEST_F(TxRecoverTest, an_open_transaction_is_rolled_back_and_leaks_nothing) {
  const std::size_t before = allocated();
  tx::Txn& txn = begin();
  ASSERT_EQ(txn.add(node_, sizeof(Node)), Status::ok);
  node_->word[3] = 3;
  const Result<void*> block = txn.alloc(64);
  ASSERT_TRUE(block);
  ASSERT_EQ(txn.add(dest_, 8), Status::ok);
  dest_[0] = static_cast<Node*>(*block);
  ASSERT_TRUE(txn.alloc(30'000));
  ASSERT_EQ(kill_and_open(), Status::ok) << parts_.report.text();
  EXPECT_EQ(parts_.rolled_back, 1u);
  EXPECT_EQ(node_->word[3], 0u);
  EXPECT_EQ(dest_[0].get(), nullptr);
  EXPECT_EQ(allocated(), before);
  EXPECT_EQ(parts_.heap->validate(&parts_.report), Status::ok) << parts_.report.text();
  ASSERT_EQ(kill_and_open(), Status::ok);
  EXPECT_EQ(parts_.rolled_back, 0u) << "it was retired";
}

TEST_F(TxRecoverTest, a_committed_transaction_stays_and_its_frees_are_finished) {
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    const Result<Node*> node = tx.make<Node>(Node{{5}});
    if (!node) return node.error();
    TENUTO_TRY(tx.add(dest_[0]));
    dest_[0] = *node;
    return Status::ok;
  }),
            Status::ok);
  const std::size_t before = allocated();
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    TENUTO_TRY(tx.destroy(dest_[0].get()));
    TENUTO_TRY(tx.add(dest_[0]));
    dest_[0] = nullptr;
    return Status::ok;
  }),
            Status::ok);
  EXPECT_LT(header().frees_done.number(), header().committed.number()) << "still in limbo";
  ASSERT_EQ(kill_and_open(), Status::ok) << parts_.report.text();
  EXPECT_EQ(parts_.rolled_back, 0u);
  EXPECT_EQ(header().frees_done.number(), header().committed.number());
  EXPECT_EQ(allocated(), before - 1);
  EXPECT_EQ(dest_[0].get(), nullptr);
}

TEST_F(TxRecoverTest, an_aborted_free_is_not_redone) {
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    const Result<Node*> node = tx.make<Node>(Node{{5}});
    if (!node) return node.error();
    TENUTO_TRY(tx.add(dest_[0]));
    dest_[0] = *node;
    return Status::ok;
  }),
            Status::ok);
  tx::Txn& txn = begin();
  ASSERT_EQ(txn.free(dest_[0].get()), Status::ok);
  txn.abort();
  ASSERT_EQ(kill_and_open(), Status::ok);
  EXPECT_NE(parts_.heap->usable_size(parts_.file->offset_of(dest_[0].get())), 0u);
  EXPECT_EQ(dest_[0]->word[0], 5u);
}

TEST_F(TxRecoverTest, an_overflown_log_is_rolled_back_and_its_frames_are_kept) {
  tx::Txn& txn = begin();
  for (int i = 0; i < 4096; ++i) {
    ASSERT_EQ(txn.add_later(&node_[i].word[i % 8], 8), Status::ok);
  }
  ASSERT_EQ(txn.ready(), Status::ok);
  for (std::uint64_t i = 0; i < 4096; ++i) node_[i].word[i % 8] = i + 1;
  ASSERT_EQ(kill_and_open(), Status::ok) << parts_.report.text();
  EXPECT_EQ(parts_.rolled_back, 1u);
  for (std::uint64_t i = 0; i < 4096; ++i) ASSERT_EQ(node_[i].word[i % 8], 0u);
  EXPECT_EQ(parts_.engine->stats().log_frames, 4u);
  EXPECT_EQ(parts_.heap->validate(&parts_.report), Status::ok) << parts_.report.text();
  for (int round = 0; round < 4; ++round) {
    ASSERT_EQ(parts_.run([&](Transaction& tx) {
      for (int i = 0; i < 4096; ++i) TENUTO_TRY(tx.add_later(node_[i].word[i % 8]));
      TENUTO_TRY(tx.ready());
      for (std::uint64_t i = 0; i < 4096; ++i) node_[i].word[i % 8] += 1;
      return Status::ok;
    }),
              Status::ok);
  }
  EXPECT_EQ(parts_.engine->stats().log_frames, 8u) << "both areas have theirs";
  ASSERT_EQ(kill_and_open(), Status::ok) << parts_.report.text();
  EXPECT_EQ(node_[7].word[7], 4u);
  EXPECT_EQ(parts_.engine->stats().log_frames, 8u);
}

TEST_F(TxRecoverTest, a_clean_close_leaves_no_log_and_no_limbo) {
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    for (int i = 0; i < 4096; ++i) TENUTO_TRY(tx.add_later(node_[i].word[0]));
    return tx.ready();
  }),
            Status::ok);
  EXPECT_EQ(parts_.engine->stats().log_frames, 4u);
  tx::Txn& open = begin();
  EXPECT_EQ(parts_.engine->drain(), Status::busy);
  open.abort();
  ASSERT_EQ(parts_.close(), Status::ok);
  ASSERT_EQ(parts_.open(path_.str()), Status::ok) << parts_.report.text();
  EXPECT_EQ(header().log_frame[0].raw | header().log_frame[1].raw, 0u);
  EXPECT_EQ(parts_.leaked, 0u);
}

TEST_F(TxRecoverTest, sequences_go_on_after_a_crash) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(parts_.run([&](Transaction& tx) { return tx.add(node_[0]); }), Status::ok);
  }
  EXPECT_EQ(header().committed.number(), 5u);
  ASSERT_EQ(begin().add(node_, 8), Status::ok);
  ASSERT_EQ(kill_and_open(), Status::ok);
  EXPECT_EQ(header().committed.number(), 6u) << "the one rolled back is used up";
}

TEST_F(TxRecoverTest, a_damaged_entry_is_reported) {
  ASSERT_EQ(begin().add(node_, 64), Status::ok);
  entry(1, 0).word[2] ^= 1u << 20;
  expect_corrupt("a line of a transaction log is damaged");
}

TEST_F(TxRecoverTest, a_damaged_header_is_reported) {
  ASSERT_EQ(parts_.run([&](Transaction& tx) { return tx.add(node_[0]); }), Status::ok);
  header().committed.raw ^= 1u << 30;
  expect_corrupt("the header of a transaction log is damaged");
}

TEST_F(TxRecoverTest, an_entry_from_the_future_is_reported) {
  const std::uint64_t words[7] = {
      tx::EntryHead::make(tx::EntryKind::undo, parts_.file->offset_of(node_), 8).raw};
  pm::write_log_line(entry(1, 3), words, 7);
  expect_corrupt("an entry of a transaction that can not have begun");
}

TEST_F(TxRecoverTest, entries_about_impossible_places_are_reported) {
  const PoolOffset outside[] = {{parts_.file->bytes() - 4},
                                {0},
                                {pm::kLanesOffset},
                                {pm::kHeadPageOffset + offsetof(pm::HeadPage, zone_count)},
                                {pm::kHeadBytes},  // the first zone's state
                                {1ull << 47}};
  for (const PoolOffset at : outside) {
    const std::uint64_t words[7] = {tx::EntryHead::make(tx::EntryKind::undo, at, 8).raw};
    pm::write_log_line(entry(1, 0), words, 1);
    expect_corrupt("about a place that is no data");
    reopen_raw();
  }
  const std::uint64_t words[7] = {9};
  pm::write_log_line(entry(1, 0), words, 1);
  expect_corrupt("of no known kind");
}

TEST_F(TxRecoverTest, a_damaged_log_frame_is_reported) {
  ASSERT_EQ(parts_.run([&](Transaction& tx) {
    for (int i = 0; i < 4096; ++i) TENUTO_TRY(tx.add_later(node_[i].word[0]));
    return tx.ready();
  }),
            Status::ok);
  const PoolOffset first{header().log_frame[1].number()};
  auto& frame = *parts_.file->at<tx::LogFrameHeader>(first);
  const tx::LogFrameHeader sound = frame;
  frame.index = 5;
  expect_corrupt("the header of a transaction's log frame is damaged");
  reopen_raw();
  auto& again = *parts_.file->at<tx::LogFrameHeader>(first);
  again = sound;
  again.next.raw += 1u << 20;
  expect_corrupt("the link to a transaction's log frame is damaged");
  reopen_raw();
  *parts_.file->at<tx::LogFrameHeader>(first) = sound;
  const std::uint64_t salt = tx::salt_of(parts_.lanes->mine().id, tx::WordPlace::log_frame, 1);
  header().log_frame[1].raw = tx::SealedWord::make(parts_.file->bytes() + 65536, salt);
  expect_corrupt("lies where none can be");
}

}  // namespace
}  // namespace tenuto
