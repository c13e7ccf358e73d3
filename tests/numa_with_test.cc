// NUMA on simulated nodes with the heap's other options: canaries, gc, internal, a pool without a
// size_max, trim, other media. The lives of tests/life have nodes with a journal.
#include <cstring>
#include <string>

#include "pm/plant.h"
#include "support/numa_parts.h"

namespace tenuto::test {
namespace {

struct With {
  const char* name;
  void (*set)(PoolOptions&);
};

class NumaWith : public Numa, public testing::WithParamInterface<With> {
 protected:
  PoolOptions options() const {
    PoolOptions o = numa_options(2);
    GetParam().set(o);
    return o;
  }
  // Blocks that node 0 takes and node 1 frees; every third stays. Returns how many.
  std::size_t pass_through(std::span<PtrWord> words) {
    NodeThread(0).run([&] { take(words, 100); });
    NodeThread consumer(1);
    std::size_t left = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i % 3 == 0) {
        ++left;
      } else {
        consumer.run([&] { EXPECT_EQ(p_.heap->free_from(words[i]), Status::ok); });
      }
    }
    return left;
  }
  void expect_left(std::span<const PtrWord> words, std::size_t left) const {
    std::size_t found = 0;
    for (const PtrWord& w : words) found += block_of(w).value != 0;
    EXPECT_EQ(found, left);
    EXPECT_EQ(p_.heap->stats().objects, left + 1);  // and the words
  }
  std::span<PtrWord> words_again(std::size_t count) {
    return {p_.file->at<PtrWord>(block_of(p_.root(0))), count};
  }
};

constexpr std::size_t kWords = 600;

TEST_P(NumaWith, frees_of_another_node_and_a_close) {
  make(options());
  const std::span<PtrWord> words = make_words(p_, kWords);
  const std::size_t left = pass_through(words);
  expect_sound();
  expect_left(words, left);
  ASSERT_EQ(p_.close(), Status::ok);
  reopen();
  expect_sound();
  expect_left(words_again(kWords), left);
}

TEST_P(NumaWith, frees_of_another_node_and_a_kill) {
  make(options());
  const std::size_t left = pass_through(make_words(p_, kWords));
  p_.crash();
  reopen();
  expect_sound();
  expect_left(words_again(kWords), left);
}

TEST_P(NumaWith, a_trim_leaves_what_is_in_use) {
  make(options());
  const std::span<PtrWord> words = make_words(p_, kWords);
  const std::size_t left = pass_through(words);
  p_.heap->trim();
  expect_sound();
  expect_left(words, left);
  EXPECT_EQ(stats().frees_waiting, 0u);
  NodeThread(1).run([&] {
    for (PtrWord& w : words) {
      if (block_of(w).value == 0) continue;
      EXPECT_EQ(p_.heap->free_from(w), Status::ok);
    }
  });
  expect_sound();
  EXPECT_EQ(p_.heap->stats().objects, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    Options, NumaWith,
    testing::Values(With{"canaries", [](PoolOptions& o) { o.canaries = true; }},
                    With{"gc", [](PoolOptions& o) { o.consistency = Consistency::gc; }},
                    With{"internal", [](PoolOptions& o) { o.consistency = Consistency::internal; }},
                    With{"gc_canaries",
                         [](PoolOptions& o) {
                           o.consistency = Consistency::gc;
                           o.canaries = true;
                         }},
                    With{"line", [](PoolOptions& o) { o.medium = Medium::line; }},
                    With{"cache", [](PoolOptions& o) { o.medium = Medium::cache; }},
                    With{"automatic_size_max", [](PoolOptions& o) { o.size_max = 0; }},
                    With{"direct_canaries",
                         [](PoolOptions& o) {
                           o.canaries = true;
                           o.heap.numa.two_phase = false;
                         }}),
    [](const auto& i) { return std::string(i.param.name); });

class NumaCanary : public Numa {
 protected:
  void TearDown() override { unplant_all(); }
  // Node 1 frees a block of node 0 that the program wrote past.
  Status free_overwritten() {
    PoolOptions o = numa_options(2);
    o.canaries = true;
    make(o);
    words_ = make_words(p_, 40);
    NodeThread(0).run([&] { take(words_, 100); });
    const PoolOffset block = block_of(words_[7]);
    char* const at = p_.file->at<char>(block);
    std::memset(at, 'x', p_.heap->usable_size(block) + 1);
    Status freed = Status::ok;
    NodeThread(1).run([&] { freed = p_.heap->free_from(words_[7]); });
    return freed;
  }
  std::span<PtrWord> words_;
};

TEST_F(NumaCanary, a_free_of_another_node_sees_what_was_overwritten) {
  EXPECT_EQ(free_overwritten(), Status::corrupt);
  EXPECT_EQ(stats().frees_recorded, 0u);
  EXPECT_NE(block_of(words_[7]).value, 0u);  // it stays
}

TEST_F(NumaCanary, planted_a_free_that_does_not_look) {
  plant("heap_numa_canary_not_looked_at");
  EXPECT_EQ(free_overwritten(), Status::ok);
  EXPECT_EQ(stats().frees_recorded, 1u);
}

}  // namespace
}  // namespace tenuto::test
