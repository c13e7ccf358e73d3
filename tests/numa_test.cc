// NUMA (heap/numa.h) on simulated nodes, and in tests/machine on real ones: where blocks, logs and
// zones come from.
#include <filesystem>
#include <fstream>

#include "pm/plant.h"
#include "pm/topology.h"
#include "support/numa_parts.h"

namespace tenuto::test {
namespace {

using pm::Topology;

// --- topology ------------------------------------------------------------------------------------

TEST(NumaTopology, is_read_from_the_system_s_files) {
  const std::string root = "/dev/shm/tenuto-test-" + std::to_string(::getpid()) + "-sys";
  const std::string nodes = root + "/sys/devices/system/node/";
  const auto write = [&](const std::string& name, const char* text) {
    std::filesystem::create_directories(std::filesystem::path(nodes + name).parent_path());
    std::ofstream(nodes + name) << text << '\n';
  };
  write("online", "0-1,3");
  write("node0/cpulist", "0-1,4");
  write("node0/distance", "10 21 40");
  write("node1/cpulist", "2-3");
  write("node1/distance", "21 10 17");
  write("node3/cpulist", "");  // memory alone, nearer to node 1
  write("node3/distance", "40 17 10");
  const Topology t = Topology::read(root);
  std::filesystem::remove_all(root);
  EXPECT_EQ(t.nodes(), 2u);
  EXPECT_EQ(t.node_of_cpu(1), 0u);
  EXPECT_EQ(t.node_of_cpu(4), 0u);
  EXPECT_EQ(t.node_of_cpu(3), 1u);
  EXPECT_EQ(t.node_of_cpu(99), 0u);
  EXPECT_EQ(t.node_of_memory(1), 1u);
  EXPECT_EQ(t.node_of_memory(3), 1u);
}

TEST(NumaTopology, without_files_there_is_one_node) {
  EXPECT_EQ(Topology::read("/nowhere").nodes(), 1u);
}

TEST(NumaTopology, of_this_machine_has_this_thread_and_its_memory) {
  const Topology t = Topology::read();
  ASSERT_GE(t.nodes(), 1u);
  EXPECT_LT(t.here(), t.nodes());
  std::vector<char> memory(1u << 20, 'x');
  EXPECT_LT(t.node_of(memory.data(), 0), t.nodes());
  t.prefer(memory.data(), memory.size(), 0);
  const Topology::Policy before = t.prefer_here(0);
  Topology::restore(before);
  t.pin(t.here());
  EXPECT_LT(t.here(), t.nodes());
}

// --- where blocks come from ----------------------------------------------------------------------

TEST_F(Numa, one_node_counts_nothing) {
  make(numa_options(1));
  const std::span<PtrWord> words = make_words(p_, 100);
  take(words);
  free(words);
  const NumaStats s = stats();
  EXPECT_EQ(s.nodes, 1u);
  EXPECT_EQ(s.local_all() + s.remote_all() + s.frees_recorded, 0u);
}

class NumaNodes : public Numa, public testing::WithParamInterface<unsigned> {
 protected:
  void SetUp() override {
    if (real_nodes() != nullptr && GetParam() != 2) GTEST_SKIP() << "the machine has two";
  }
};
INSTANTIATE_TEST_SUITE_P(Nodes, NumaNodes, testing::Values(2u, 3u, 4u));

TEST_P(NumaNodes, a_thread_gets_blocks_of_its_node) {
  const unsigned nodes = GetParam();
  make(numa_options(nodes));
  const std::span<PtrWord> words = make_words(p_, 2000 * nodes);
  for (unsigned n = 0; n < nodes; ++n) {
    NodeThread w(n);
    const std::span<PtrWord> mine = words.subspan(2000 * n, 2000);
    w.run([&] { take(mine); });
    for (const PtrWord& word : mine) EXPECT_EQ(node_of(word), n);
  }
  const NumaStats s = stats();
  EXPECT_EQ(s.nodes, nodes);
  EXPECT_EQ(s.simulated, real_nodes() == nullptr);
  EXPECT_EQ(s.frames_remote, 0u);
  EXPECT_EQ(s.remote_all(), 0u);
  for (unsigned n = 0; n < nodes; ++n) EXPECT_GE(s.zones[n], 1u) << n;
  expect_sound();
}

TEST_P(NumaNodes, extents_and_huge_objects_are_of_the_node_too) {
  const unsigned nodes = GetParam();
  make(numa_options(nodes));
  const std::span<PtrWord> words = make_words(p_, 3 * nodes);
  for (unsigned n = 0; n < nodes; ++n) {
    NodeThread w(n);
    w.run([&] {
      take(words.subspan(3 * n, 2), 100'000);
      take(words.subspan(3 * n + 2, 1), 3u << 20);
    });
    for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(node_of(words[3 * n + i]), n);
  }
  expect_sound();
}

TEST_F(Numa, blocks_of_another_node_when_none_is_left) {
  PoolOptions o = numa_options(2);
  o.size_max = o.size;
  make(o);
  const std::span<PtrWord> words = make_words(p_, 2000);
  NodeThread w(1);
  w.run([&] { take(words); });
  for (const PtrWord& word : words) EXPECT_EQ(node_of(word), 0u);
  EXPECT_GT(stats().frames_remote, 0u);
  EXPECT_GT(stats().remote[static_cast<std::size_t>(NumaAccess::bits)], 0u);
  w.run([&] { free(words); });
  expect_sound();
}

// The pool is full on node 1, not on node 0.
TEST_F(Numa, a_full_node_takes_from_the_others_and_then_is_full) {
  PoolOptions o = numa_options(2);
  o.size_max = 40u << 20;
  make(o);
  const std::span<PtrWord> words = make_words(p_, 30'000);
  NodeThread w(1);
  std::size_t taken = 0;
  w.run([&] {
    while (taken < words.size() && p_.heap->malloc_to(2048, words[taken]) == Status::ok) ++taken;
  });
  ASSERT_LT(taken, words.size());
  EXPECT_GT(taken * 2048, std::uint64_t{30} << 20);
  EXPECT_EQ(node_of(words[0]), 1u);
  EXPECT_EQ(node_of(words[taken - 1]), 0u);
  expect_sound();
}

TEST_F(Numa, threads_are_dealt_out_in_turn) {
  if (real_nodes() != nullptr) GTEST_SKIP() << "of simulated nodes alone";
  PoolOptions o = numa_options(2);
  o.heap.numa.node_of_thread = {};
  make(o);
  const std::span<PtrWord> words = make_words(p_, 200);  // this thread is on node 0
  for (unsigned i = 1; i <= 4; ++i) {
    NodeThread w(0);
    const std::span<PtrWord> mine = words.subspan(40 * i, 40);
    w.run([&] { take(mine); });
    for (const PtrWord& word : mine) EXPECT_EQ(node_of(word), i % 2);
  }
}

TEST_F(Numa, a_thread_has_a_log_of_its_node) {
  const unsigned nodes = real_nodes() == nullptr ? 3 : 2;
  make(numa_options(nodes));
  for (unsigned n = 0; n < nodes; ++n) {
    NodeThread w(n);
    w.run([&] { EXPECT_EQ(p_.lanes->mine().node, n); });
  }
}

// Else each new thread would take half a MiB.
TEST_F(Numa, a_node_without_room_gets_no_lanes) {
  PoolOptions o = numa_options(2);
  o.size = o.size_max = kPoolBytesMin;  // one zone, on node 0
  make(o);
  for (int i = 0; i < 8; ++i) {
    NodeThread w(1);
    w.run([&] { EXPECT_EQ(p_.lanes->mine().node, 0u); });
  }
  EXPECT_EQ(p_.lanes->extra_segments().size(), 0u);
  expect_sound();
}

TEST_F(Numa, a_thread_that_moves_takes_from_its_new_node) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 60'000);
  NodeThread w(0);
  w.run([&] {
    take(words.subspan(0, 1000));
    be_on_node(1);
    take(words.subspan(1000));
  });
  EXPECT_EQ(node_of(words.front()), 0u);
  EXPECT_EQ(node_of(words.back()), 1u);
  w.run([&] { free(words); });
  expect_sound();
}

TEST_F(Numa, the_next_open_deals_the_zones_out_again) {
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 4000);
  NodeThread(1).run([&] { take(words); });
  ASSERT_EQ(p_.close(), Status::ok);
  reopen();
  expect_sound();
  auto* const again =
      static_cast<PtrWord*>(const_cast<void*>(PtrWord::decode(&p_.root(0), p_.root(0).raw)));
  NodeThread(1).run([&] { free({again, 4000}); });
  EXPECT_EQ(stats().frees_recorded, 0u);  // the blocks are of node 1 again
  expect_sound();
}

// --- planted mistakes ----------------------------------------------------------------------------

class NumaPlanted : public Numa {
 protected:
  void TearDown() override { unplant_all(); }
};

TEST_F(NumaPlanted, frames_of_any_node) {
  plant("heap_numa_frames_of_any_node");
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 100);
  NodeThread(1).run([&] { take(words); });
  EXPECT_EQ(node_of(words[0]), 0u);
}

TEST_F(NumaPlanted, a_lane_that_keeps_its_node) {
  plant("heap_numa_lane_keeps_its_node");
  make(numa_options(2));
  const std::span<PtrWord> words = make_words(p_, 60'000);
  NodeThread(0).run([&] {
    take(words.subspan(0, 1));
    be_on_node(1);
    take(words.subspan(1));
  });
  EXPECT_EQ(node_of(words.back()), 0u);
}

}  // namespace
}  // namespace tenuto::test
