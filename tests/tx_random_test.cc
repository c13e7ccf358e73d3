// Random transactions beside a shadow copy: overlapping ranges of all sizes, new and freed blocks,
// nesting, savepoints, aborts at any depth, kills in the middle. After each transaction the pool
// must equal the shadow, and exactly the blocks it names are allocated. Also the range set beside a
// bitmap.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "support/tx_parts.h"
#include "tx/ranges.h"

namespace tenuto {
namespace {

using test::TempPath;
using test::TxParts;
using Rng = std::mt19937_64;

constexpr std::size_t kBytes = 8192;
constexpr std::size_t kDests = 48;

struct Shadow {
  std::vector<unsigned char> bytes = std::vector<unsigned char>(kBytes);
  std::vector<std::uint64_t> tag = std::vector<std::uint64_t>(kDests);  // null, if 0
};

class RandomTransactions {
 public:
  explicit RandomTransactions(std::uint64_t seed)
      : path_("txrandom" + std::to_string(seed)), rng_(seed) {
    EXPECT_EQ(parts_.create(path_.str()), Status::ok) << parts_.report.text();
    bytes_ = &parts_.make_root<unsigned char>(0, kBytes);
    dest_ = &parts_.make_root<Ptr<std::uint64_t>>(1, kDests);
    scratch_.bytes = shadow_.bytes;
  }

  void run(int transactions) {
    for (int i = 0; i < transactions; ++i) {
      scratch_ = shadow_;
      points_.clear();
      const bool killed = level(0) == End::killed;
      if (killed) {
        parts_.crash();
        ASSERT_EQ(parts_.open(path_.str()), Status::ok) << parts_.report.text();
        bytes_ = &parts_.get_root<unsigned char>(0);
        dest_ = &parts_.get_root<Ptr<std::uint64_t>>(1);
        kills += 1;
      }
      compare(killed || i % 16 == 0);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  int commits = 0, aborts = 0, kills = 0, went_back = 0;

 private:
  enum class End { committed, aborted, killed };

  std::uint64_t below(std::uint64_t n) { return rng_() % n; }

  // A transaction and those nested in it. Stores go to the pool and to scratch_.
  End level(int depth) {
    tx::Txn& txn = parts_.engine->mine();
    EXPECT_EQ(txn.begin(), Status::ok);
    const std::uint64_t operations = below(8);
    for (std::uint64_t i = 0; i < operations; ++i) {
      const std::uint64_t what = below(100);
      if (what < 55) {
        modify(txn);
      } else if (what < 85) {
        replace(txn);
      } else if (what < 90 && depth < 3) {
        const End inner = level(depth + 1);
        if (inner == End::killed) return inner;
        if (inner == End::aborted) {
          EXPECT_EQ(txn.add(bytes_, 1), Status::aborted);
          return leave(txn, depth, below(2) == 0);
        }
      } else if (what < 92) {
        return End::killed;
      } else if (what < 96) {
        points_.emplace_back(*txn.savepoint(), scratch_);
      } else if (!points_.empty()) {
        const std::size_t point = below(points_.size());
        EXPECT_EQ(txn.rollback_to(points_[point].first), Status::ok);
        scratch_ = points_[point].second;
        points_.resize(point + 1);
        went_back += 1;
      }
    }
    return leave(txn, depth, below(100) < 85);
  }

  End leave(tx::Txn& txn, int depth, bool commit) {
    if (commit) {
      const Status s = txn.commit();
      if (s == Status::ok) {
        if (depth == 0) {
          shadow_ = scratch_;
          commits += 1;
        }
        return End::committed;
      }
      EXPECT_EQ(s, Status::aborted);
      return End::aborted;
    }
    txn.abort();
    aborts += depth == 0;
    return End::aborted;
  }

  void modify(tx::Txn& txn) {
    const std::size_t ranges = 1 + below(4);
    std::vector<std::pair<std::size_t, std::size_t>> all;
    for (std::size_t i = 0; i < ranges; ++i) {
      const std::size_t begin = below(kBytes - 1);
      const std::size_t most = below(10) == 0 ? kBytes - begin : 100;
      const std::size_t length = 1 + below(std::min(most, kBytes - begin));
      all.emplace_back(begin, length);
      ASSERT_EQ(txn.add_later(bytes_ + begin, length), Status::ok);
    }
    ASSERT_EQ(txn.ready(), Status::ok);
    for (const auto& [begin, length] : all) {
      for (std::size_t i = begin; i < begin + length; i += 1 + below(9)) {
        bytes_[i] = scratch_.bytes[i] = static_cast<unsigned char>(rng_());
      }
    }
  }

  // Frees the block of a destination, or makes one for it, or both.
  void replace(tx::Txn& txn) {
    const std::size_t d = below(kDests);
    if (scratch_.tag[d] != 0) {
      ASSERT_EQ(txn.free(dest_[d].get()), Status::ok);
      EXPECT_EQ(txn.free(dest_[d].get()), Status::invalid_argument);
    }
    ASSERT_EQ(txn.add(&dest_[d], 8), Status::ok);
    dest_[d] = nullptr;
    scratch_.tag[d] = 0;
    if (below(3) == 0) return;
    const std::uint64_t bytes = below(50) == 0 ? 20'000 + below(100'000) : 8 + below(700);
    const Result<void*> block = txn.alloc(bytes);
    ASSERT_TRUE(block);
    auto* word = static_cast<std::uint64_t*>(*block);
    *word = scratch_.tag[d] = rng_() | 1;
    dest_[d] = word;
  }

  void compare(bool blocks) {
    for (std::size_t i = 0; i < kBytes; ++i) ASSERT_EQ(bytes_[i], shadow_.bytes[i]) << i;
    std::map<std::uint64_t, std::size_t> named;
    for (std::size_t d = 0; d < kDests; ++d) {
      ASSERT_EQ(dest_[d].get() != nullptr, shadow_.tag[d] != 0) << d;
      if (shadow_.tag[d] == 0) continue;
      ASSERT_EQ(*dest_[d], shadow_.tag[d]) << d;
      named[parts_.file->offset_of(dest_[d].get()).value] = d;
    }
    if (!blocks) return;
    const std::vector<PoolOffset> allocated = parts_.allocated_blocks();
    for (const PoolOffset block : allocated) {
      const bool root =
          block == parts_.file->offset_of(bytes_) || block == parts_.file->offset_of(dest_);
      EXPECT_TRUE(root || named.contains(block.value)) << "leaked block at " << block.value;
    }
    ASSERT_EQ(allocated.size(), named.size() + 2);
    ASSERT_EQ(parts_.heap->validate(&parts_.report), Status::ok) << parts_.report.text();
    ASSERT_EQ(parts_.engine->validate(&parts_.report), Status::ok) << parts_.report.text();
  }

  TempPath path_;
  TxParts parts_;
  Rng rng_;
  unsigned char* bytes_ = nullptr;
  Ptr<std::uint64_t>* dest_ = nullptr;
  Shadow shadow_, scratch_;
  std::vector<std::pair<std::uint64_t, Shadow>> points_;  // savepoints
};

TEST(TxRandomTest, random_transactions_leave_exactly_the_shadow) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomTransactions r(seed);
    r.run(600);
    EXPECT_GT(r.commits, 100);
    EXPECT_GT(r.aborts, 20);
    EXPECT_GT(r.kills, 10);
    EXPECT_GT(r.went_back, 2);
  }
}

TEST(TxRandomTest, range_set_answers_like_a_bitmap) {
  constexpr std::uint64_t kSpace = 40'000;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    tx::RangeSet set;
    for (int round = 0; round < 2; ++round) {
      std::vector<bool> in(kSpace + 1, false);
      const std::uint64_t most = seed % 2 == 0 ? 3 : 40;
      for (int i = 0; i < 12'000; ++i) {
        const std::uint64_t begin = rng() % kSpace;
        if (in[begin]) {
          const tx::RangeSet::Answer a = set.at(begin);
          ASSERT_TRUE(a.inside);
          ASSERT_FALSE(in[a.until]);
          ASSERT_TRUE(in[a.until - 1]);
          continue;
        }
        const tx::RangeSet::Answer a = set.at(begin);
        ASSERT_FALSE(a.inside);
        const std::uint64_t end = std::min({begin + 1 + rng() % most, a.until, kSpace});
        for (std::uint64_t b = begin; b < end; ++b) {
          ASSERT_FALSE(in[b]);
          in[b] = true;
        }
        ASSERT_TRUE(a.until >= kSpace || in[a.until]);
        set.make_room();
        set.insert({begin, end});
      }
      std::uint64_t at = 0;
      std::size_t ranges = 0;
      for (tx::RangeSet::Cursor c(set); c.get() != nullptr; c.next(), ++ranges) {
        for (; at < c.get()->begin; ++at) ASSERT_FALSE(in[at]);
        for (; at < c.get()->end; ++at) ASSERT_TRUE(in[at]);
        ASSERT_FALSE(in[at]) << "touching ranges are one";
      }
      for (; at < kSpace; ++at) ASSERT_FALSE(in[at]);
      ASSERT_EQ(ranges, set.size());
      set.clear();
      ASSERT_TRUE(set.empty());
    }
  }
}

}  // namespace
}  // namespace tenuto
