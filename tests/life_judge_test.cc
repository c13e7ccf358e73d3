// What the judge of lives (life/judge.h) accepts and rejects: histories written by hand, as threads
// that run at once may leave them.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "judge.h"
#include "objects.h"

namespace tenuto::life {
namespace {

using Words = std::vector<std::uint64_t>;
using Pairs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // pairs of key and value

constexpr std::uint64_t kClock = 1'700'000'000'000;
constexpr std::uint64_t kSnapshot = 7;  // number of the snapshot

Story at_once() {
  Story s;
  s.threads = 2;
  s.at_once = true;
  return s;
}

std::uint64_t tag(std::uint64_t number) { return make_tag(number, 20); }

// A call that lasted from ticket `from` to ticket `to`.
Op call(Verb verb, unsigned thread, std::uint64_t from, std::uint64_t to, Words a = {},
        Words r = {}) {
  Op op;
  op.verb = verb;
  op.thread = thread;
  op.invoke = from;
  op.returned = to;
  op.a = std::move(a);
  op.r = std::move(r);
  return op;
}
Op open(std::uint64_t at) { return call(Verb::open, 0, at, at + 1, {0, 0, 0}, {1}); }
Op snapshot(unsigned thread, std::uint64_t from, std::uint64_t to) {
  return call(Verb::snapshot, thread, from, to, {kSnapshot});
}
Op batch(unsigned thread, std::uint64_t from, std::uint64_t to, const Pairs& puts) {
  Words a = {0, puts.size()};
  for (const auto& [key, value] : puts) a.insert(a.end(), {0, key, 0, value, 0});
  return call(Verb::batch, thread, from, to, std::move(a));
}
// A look that shows these records in the default collection, and nothing else.
Op look(std::uint64_t at, const Pairs& records) {
  Words r = {kClock, 1, kClock, kNone, 0, Encoding{}.word(), records.size()};
  for (const auto& [key, value] : records) r.insert(r.end(), {key, value, 0});
  r.resize(r.size() + 2 + kTypes);  // no objects
  return call(Verb::look, 0, at, at + 1, {}, std::move(r));
}
Op scan_of_snapshot(std::uint64_t at, const Pairs& records) {
  Words r = {0};
  for (const auto& [key, value] : records) r.insert(r.end(), {key, value});
  return call(Verb::snap_scan, 0, at, at + 1, {kSnapshot, 0, 0}, std::move(r));
}

// Judges the calls. It adds another open, which shows the same as the last look.
std::string judged(std::vector<Op> ops, const Story& story = at_once()) {
  Op last = ops.back();
  last.invoke = 52;
  last.returned = 53;
  ops.push_back(open(50));
  ops.push_back(std::move(last));
  Judge judge(story);
  return judge.judge(std::move(ops));
}

const Pairs kBatch = {{1, tag(1)}, {2, tag(2)}};

// Thread 0 writes a batch while thread 1 takes a snapshot. Then comes a look at everything, and
// then a scan of the snapshot.
std::string judge_snapshot_beside_batch(const Pairs& shown, bool looks_between) {
  std::vector<Op> ops = {open(1), look(3, {}), batch(0, 10, 13, kBatch), snapshot(1, 11, 14)};
  if (looks_between) ops.push_back(look(20, kBatch));
  ops.push_back(scan_of_snapshot(30, shown));
  ops.push_back(look(40, kBatch));
  return judged(std::move(ops));
}

// A put that says `full`, and then a look.
TEST(life_judge_test, a_pool_that_is_not_full_says_so_only_for_want_of_memory) {
  for (const bool refused : {false, true}) {
    for (const Pairs& shown : {Pairs{}, Pairs{{1, tag(1)}}}) {
      Op put = call(Verb::put, 0, 10, 11, {0, 1, tag(1), 0, 0});
      put.status = static_cast<std::uint64_t>(Status::full);
      put.refused = refused;
      const bool right = judged({open(1), look(3, {}), put, look(20, shown)}, Story()).empty();
      EXPECT_EQ(right, refused && shown.empty());
    }
  }
}

// An erase_range that begins at the first key has no key.
TEST(life_judge_test, what_is_no_key_stands_behind_all_keys) {
  for (const KeyOrder order : {KeyOrder::bytes, KeyOrder::reverse_u64, KeyOrder::registered}) {
    for (const std::uint64_t key : {std::uint64_t{kKeys}, kNone}) {
      EXPECT_EQ(rank_of(order, key), kKeys);
    }
    EXPECT_LT(rank_of(order, kKeys - 1), kKeys);
  }
}

TEST(life_judge_test, a_snapshot_beside_a_batch_has_it_or_has_it_not) {
  EXPECT_EQ(judge_snapshot_beside_batch(kBatch, false), "");
  EXPECT_EQ(judge_snapshot_beside_batch({}, false), "");
}

// The look shows the batch, whether the batch or the snapshot came first.
TEST(life_judge_test, a_look_does_not_settle_what_a_snapshot_beside_a_batch_has_seen) {
  EXPECT_EQ(judge_snapshot_beside_batch(kBatch, true), "");
  EXPECT_EQ(judge_snapshot_beside_batch({}, true), "");
}

TEST(life_judge_test, a_snapshot_that_has_half_a_batch_is_found_also_behind_a_look) {
  for (const bool looks : {false, true}) {
    const std::string why = judge_snapshot_beside_batch({kBatch[0]}, looks);
    EXPECT_NE(why.find("snap_scan"), std::string::npos) << why;
  }
}

TEST(life_judge_test, a_snapshot_taken_after_a_batch_has_it_also_behind_a_look) {
  const std::vector<Op> ops = {open(1),
                               look(3, {}),
                               batch(0, 10, 13, kBatch),
                               snapshot(1, 14, 15),
                               look(20, kBatch),
                               scan_of_snapshot(30, {}),
                               look(40, kBatch)};
  const std::string why = judged(ops);
  EXPECT_NE(why.find("snap_scan"), std::string::npos) << why;
}

enum class Writes {
  nothing,
  an_erase,
  a_put
};  // what the transaction writes; the erase is of a
    // key that is not there

// A buffered put, a transaction and a kill, on medium journal.
std::string judge_put_before_commit(Writes what, bool put_is_there) {
  constexpr std::uint64_t kNumber = 9;
  std::vector<Op> ops = {open(1), look(3, {}), call(Verb::begin, 0, 10, 11, {kNumber, 0}),
                         call(Verb::put, 0, 12, 13, {0, 1, tag(1), 0, 1})};
  if (what == Writes::a_put) {
    ops.push_back(call(Verb::tx_put, 0, 14, 15, {kNumber, 0, 2, tag(2), 0}));
  } else if (what == Writes::an_erase) {
    ops.push_back(call(Verb::tx_erase, 0, 14, 15, {kNumber, 0, 2}));
  }
  ops.push_back(call(Verb::commit, 0, 16, 17, {kNumber, 0}));
  ops.push_back(open(20));
  Pairs shown;
  if (put_is_there) shown.emplace_back(1, tag(1));
  if (what == Writes::a_put) shown.emplace_back(2, tag(2));
  ops.push_back(look(22, shown));
  Story story;
  story.medium = Medium::journal;
  Judge judge(story);
  return judge.judge(ops);
}

TEST(life_judge_test, a_commit_makes_durable_what_came_before_if_it_writes) {
  EXPECT_EQ(judge_put_before_commit(Writes::a_put, true), "");
  EXPECT_NE(judge_put_before_commit(Writes::a_put, false), "");
  for (const Writes what : {Writes::nothing, Writes::an_erase}) {
    EXPECT_EQ(judge_put_before_commit(what, true), "");
    EXPECT_EQ(judge_put_before_commit(what, false), "");
  }
}

TEST(life_judge_test, a_look_that_shows_half_a_batch_is_found_while_a_snapshot_is_kept) {
  const std::vector<Op> ops = {open(1),
                               look(3, {}),
                               batch(0, 10, 13, kBatch),
                               snapshot(1, 11, 14),
                               look(20, {kBatch[0]}),
                               look(40, kBatch)};
  const std::string why = judged(ops);
  EXPECT_NE(why.find("look"), std::string::npos) << why;
}

// A copy of the pool is put back beside the journal of a later life. It is then opened with a
// journal elsewhere, and closed. An open by its own name may be refused then.
TEST(life_judge_test, a_journal_at_the_side_that_was_not_met_may_be_refused_later) {
  constexpr std::uint64_t kElsewhere = 4, kJournalStays = 1;
  for (const bool elsewhere : {false, true}) {
    Op by_path = open(20);
    by_path.a[0] = elsewhere ? kElsewhere : 0;
    Op refused = open(30);
    refused.status = static_cast<std::uint64_t>(Status::corrupt);
    const std::vector<Op> ops = {open(1),
                                 look(3, {}),
                                 call(Verb::close, 0, 5, 6),
                                 call(Verb::copy, 0, 7, 8, {1}),
                                 open(9),
                                 look(11, {}),
                                 call(Verb::restore, 0, 13, 14, {1, kJournalStays}),
                                 by_path,
                                 look(22, {}),
                                 call(Verb::close, 0, 24, 25),
                                 refused};
    Story story;
    story.medium = Medium::journal;
    Judge judge(story);
    EXPECT_EQ(judge.judge(ops).empty(), elsewhere);
  }
}

}  // namespace
}  // namespace tenuto::life
