// Wear levelling with the heap's other options and calls: NUMA, canaries, gc, internal, a pool
// without a size_max, trim; close, kill, an open without it. wear_store_test has those above the
// heap.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "heap/place.h"
#include "pm/plant.h"
#include "support/numa_parts.h"

namespace tenuto::test {
namespace {

struct With {
  const char* name;
  void (*set)(PoolOptions&);
};

constexpr std::int64_t kRestMs = 100;

// Objects whose words are in one large block. Some live on; others are replaced all the time, also
// by a thread of another node.
class WearWith : public Numa, public testing::WithParamInterface<With> {
 protected:
  void TearDown() override { unplant_all(); }
  PoolOptions options() {
    PoolOptions o = PoolParts::small_options();
    o.heap.wear_levelling = true;
    o.heap.wear_rest_ms = kRestMs;
    o.heap.clock_ms = [this] { return now_; };
    o.heap.numa.node_of_thread = [] { return node_of_this_thread; };
    GetParam().set(o);
    return o;
  }
  static std::uint64_t bytes_of(std::size_t i) {
    return i % 50 == 0 ? 20'000 + i * 10 : 64 + i * 37 % 900;
  }
  void put(PtrWord& w, std::size_t i) {
    ASSERT_EQ(p_.heap->malloc_to(bytes_of(i), w), Status::ok);
    // The whole block: an end of other bytes could look like a pointer to a collection.
    std::memset(p_.file->at<char>(block_of(w)), static_cast<int>(i % 251),
                p_.heap->usable_size(block_of(w)));
  }
  void fill(std::span<PtrWord> words) {
    for (std::size_t i = 0; i < words.size(); ++i) put(words[i], i);
  }
  // One thread of each node frees what the other one allocated.
  void churn(std::span<PtrWord> words, int rounds) {
    NodeThread a(0);
    NodeThread b(1);
    for (int r = 0; r < rounds; ++r) {
      NodeThread& freeing = r % 2 == 0 ? a : b;
      NodeThread& taking = r % 2 == 0 ? b : a;
      for (std::size_t i = 0; i < words.size(); i += 3) {
        freeing.run([&] { ASSERT_EQ(p_.heap->free_from(words[i]), Status::ok); });
        taking.run([&] { put(words[i], i); });
      }
      now_ += 10;
    }
  }
  void expect_whole(std::span<const PtrWord> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      ASSERT_NE(block_of(words[i]).value, 0u) << i;
      const auto* at = p_.file->at<unsigned char>(block_of(words[i]));
      EXPECT_EQ(at[0], i % 251) << i;
      EXPECT_EQ(at[bytes_of(i) - 1], i % 251) << i;
    }
    // A conservative collection may keep a block that a word only seems to name.
    const bool collects = p_.file->consistency() == Consistency::gc;
    EXPECT_GE(p_.heap->stats().objects, words.size() + 1);
    EXPECT_LE(p_.heap->stats().objects, words.size() + 1 + (collects ? 2 : 0));
    expect_sound();
  }
  std::span<PtrWord> words_again() { return {p_.file->at<PtrWord>(block_of(p_.root(0))), kWords}; }
  // The first opens are with this option, then without it, then again with it.
  void reopen_with(bool wear) {
    options_.heap.wear_levelling = wear;
    reopen();
  }

  static constexpr std::size_t kWords = 400;
  std::int64_t now_ = 1000;
};

TEST_P(WearWith, a_close_and_an_open_keep_objects_and_counts) {
  make(options());
  std::span<PtrWord> words = make_words(p_, kWords);
  fill(words);
  churn(words, 20);
  expect_whole(words);
  const std::uint64_t lines = p_.heap->stats().wear_lines;
  EXPECT_GT(lines, 0u);
  EXPECT_GT(p_.heap->stats().wear_rested, 0u);
  ASSERT_EQ(p_.close(), Status::ok);
  reopen();
  EXPECT_EQ(p_.heap->stats().wear_lines, lines);
  expect_whole(words_again());
  churn(words_again(), 3);
  expect_whole(words_again());
}

TEST_P(WearWith, a_kill_leaves_every_object_and_frees_what_rested) {
  make(options());
  fill(make_words(p_, kWords));
  for (int life = 0; life < 3; ++life) {
    churn(words_again(), 5);
    p_.crash();
    reopen();
    expect_whole(words_again());
    EXPECT_EQ(p_.heap->stats().wear_rested, 0u);
  }
}

TEST_P(WearWith, it_may_be_turned_off_and_on) {
  make(options());
  fill(make_words(p_, kWords));
  churn(words_again(), 10);
  std::uint64_t lines = 0;
  for (const bool killed : {false, true}) {
    if (!killed) {
      ASSERT_EQ(p_.close(), Status::ok);
    }
    p_.crash();
    reopen_with(false);
    lines = p_.heap->stats().wear_lines;
    EXPECT_GT(lines, 0u);
    churn(words_again(), 10);
    expect_whole(words_again());
    EXPECT_EQ(p_.heap->stats().wear_lines, lines);
    if (killed) {
      p_.crash();
    } else {
      ASSERT_EQ(p_.close(), Status::ok);
    }
    reopen_with(true);
    EXPECT_EQ(p_.heap->stats().wear_lines, lines);
    churn(words_again(), 10);
    expect_whole(words_again());
    EXPECT_GT(p_.heap->stats().wear_lines, lines);
  }
}

// Trim ends the rests that are over, and no others.
TEST_P(WearWith, a_trim_gives_back_what_has_rested) {
  make(options());
  const std::span<PtrWord> words = make_words(p_, kWords);
  fill(words);
  churn(words, 4);
  std::vector<PoolOffset> freed;
  for (std::size_t i = 0; i < kWords; ++i) {
    freed.push_back(block_of(words[i]));
    ASSERT_EQ(p_.heap->free_from(words[i]), Status::ok);
  }
  p_.heap->trim();
  for (std::size_t i = 0; i < kWords; ++i) {
    put(words[i], i);
    EXPECT_EQ(std::count(freed.begin(), freed.end(), block_of(words[i])), 0) << i;
  }
  expect_whole(words);
  for (PtrWord& w : words) ASSERT_EQ(p_.heap->free_from(w), Status::ok);
  const std::uint64_t slabs = p_.heap->stats().slabs;
  p_.heap->trim();
  now_ += kRestMs;
  p_.heap->trim();
  EXPECT_LT(p_.heap->stats().slabs, slabs / 4);
  expect_sound();
  fill(words);
  expect_whole(words);
}

TEST_P(WearWith, a_full_pool_ends_rests) {
  PoolOptions o = options();
  o.size_max = o.size;
  make(o);
  const std::span<PtrWord> words = make_words(p_, kWords);
  fill(words);
  // Much more than the pool has, in no time.
  std::uint64_t written = 0;
  for (std::size_t n = 0; written < 3 * o.size; n = (n + 1) % kWords) {
    ASSERT_EQ(p_.heap->free_from(words[n]), Status::ok);
    put(words[n], n);
    if (HasFatalFailure()) return;
    written += bytes_of(n);
  }
  EXPECT_GT(p_.heap->stats().wear_forced, 0u);
  expect_whole(words);
  p_.crash();
  reopen();
  expect_whole(words_again());
}

INSTANTIATE_TEST_SUITE_P(
    Options, WearWith,
    testing::Values(With{"alone", [](PoolOptions&) {}},
                    With{"line", [](PoolOptions& o) { o.medium = Medium::line; }},
                    With{"nodes", [](PoolOptions& o) { o.heap.numa.nodes = 2; }},
                    With{"nodes_direct",
                         [](PoolOptions& o) {
                           o.heap.numa.nodes = 2;
                           o.heap.numa.two_phase = false;
                         }},
                    With{"four_nodes_line_canaries",
                         [](PoolOptions& o) {
                           o.heap.numa.nodes = 4;
                           o.medium = Medium::line;
                           o.canaries = true;
                         }},
                    With{"canaries", [](PoolOptions& o) { o.canaries = true; }},
                    With{"gc", [](PoolOptions& o) { o.consistency = Consistency::gc; }},
                    With{"gc_canaries_nodes",
                         [](PoolOptions& o) {
                           o.consistency = Consistency::gc;
                           o.canaries = true;
                           o.heap.numa.nodes = 2;
                         }},
                    With{"internal", [](PoolOptions& o) { o.consistency = Consistency::internal; }},
                    With{"internal_canaries",
                         [](PoolOptions& o) {
                           o.consistency = Consistency::internal;
                           o.canaries = true;
                         }},
                    With{"automatic_size_max", [](PoolOptions& o) { o.size_max = 0; }},
                    With{"decay_at_once", [](PoolOptions& o) { o.heap.decay_ms = 0; }}),
    [](const auto& i) { return std::string(i.param.name); });

// --- NUMA ----------------------------------------------------------------------------------------

// Blocks of node 0 that node 1 frees rest on node 0, and the accesses stay those of two phases.
TEST_F(Numa, wear_levelling_keeps_two_phases) {
  std::int64_t now = 0;
  PoolOptions o = numa_options(2);
  o.heap.wear_levelling = true;
  o.heap.wear_rest_ms = 10;
  o.heap.clock_ms = [&now] { return now; };
  make(o);
  const std::span<PtrWord> words = make_words(p_, 280);
  NodeThread producer(0);
  NodeThread consumer(1);
  for (int round = 0; round < 50; ++round) {
    producer.run([&] { take(words, 100); });
    for (const PtrWord& w : words) EXPECT_EQ(node_of(w), 0u);
    consumer.run([&] { free(words); });
    now += 1;
  }
  const NumaStats s = stats();
  const double frees = 50.0 * 280;
  EXPECT_EQ(s.frees_recorded, 50u * 280u);
  EXPECT_GT(p_.heap->stats().wear_rested, 10'000u);
  EXPECT_LT(static_cast<double>(s.remote_all()) / frees, .5);  // directly 5
  expect_sound();
}

// Frames of a node are chosen among those of the node.
TEST_F(Numa, wear_levelling_takes_frames_of_the_node) {
  PoolOptions o = numa_options(2);
  o.size = 8u << 20;
  o.heap.wear_levelling = true;
  o.heap.wear_rest_ms = 0;
  make(o);
  const std::span<PtrWord> words = make_words(p_, 2000);
  for (const unsigned node : {0u, 1u}) {
    NodeThread thread(node);
    const auto mine = words.subspan(node * 1000, 1000);
    for (const std::uint64_t bytes : {200ull, 20'000ull}) {
      thread.run([&] {
        take(mine, bytes);
        for (const PtrWord& w : mine) EXPECT_EQ(node_of(w), node) << bytes;
        free(mine);
      });
    }
  }
  EXPECT_EQ(stats().frames_remote, 0u);
  expect_sound();
}

// --- size_max ------------------------------------------------------------------------------------

// The counts are sized by the file, not by what it may grow to.
TEST_F(Numa, wear_levelling_needs_memory_for_the_file_alone) {
  PoolOptions o = PoolParts::small_options();
  o.size_max = 0;
  o.heap.wear_levelling = true;
  make(o);
  ASSERT_GT(p_.file->bytes_max(), std::uint64_t{1} << 38);
  take(make_words(p_, 1000));
  ASSERT_EQ(p_.close(), Status::ok);
  reopen();
  const PoolOffset table = p_.heap->wear_table();
  ASSERT_TRUE(table);
  EXPECT_LE(p_.heap->look(table).bytes, p_.file->bytes() / 512);
  EXPECT_EQ(p_.heap->stats().wear_frames, (p_.file->bytes() - pm::kHeadBytes) / kFrameBytes);
}

}  // namespace
}  // namespace tenuto::test
