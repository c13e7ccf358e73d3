// NUMA on the nodes of the machine that tests/machine/run boots: nodes 0 and 1 with processors,
// node 2 of memory alone, nearer to node 1. What the kernel says of the pages is compared with what
// the pool says. numa_test and numa_free_test run there, too, and ask where blocks are.
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "pm/plant.h"
#include "pm/topology.h"
#include "support/numa_parts.h"

namespace tenuto::test {
namespace {

constexpr unsigned kMemoryNode = 2;
// Of a header that the C library does not have.
constexpr int kPreferred = 1;  // MPOL_PREFERRED
constexpr int kBind = 2;       // MPOL_BIND

// The system's node of the page at `at`, which is there.
unsigned system_node_of(const void* at) {
  void* pages[] = {
      reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) & ~std::uintptr_t{4095})};
  static_cast<void>(*static_cast<const volatile char*>(at));
  int node = -1;
  EXPECT_EQ(::syscall(SYS_move_pages, 0, 1, pages, nullptr, &node, 0), 0);
  EXPECT_GE(node, 0) << std::strerror(-node);
  return static_cast<unsigned>(node);
}

// What the calling thread takes from the system comes from these nodes alone.
void bind_memory(unsigned long nodes) {
  ASSERT_EQ(::syscall(SYS_set_mempolicy, nodes == 0 ? 0 : kBind, nodes == 0 ? nullptr : &nodes, 64),
            0);
}
int policy_of_this_thread() {
  int mode = -1;
  unsigned long nodes[16] = {};
  EXPECT_EQ(::syscall(SYS_get_mempolicy, &mode, nodes, 1024, nullptr, 0), 0);
  return mode;
}

class Machine : public Numa {
 protected:
  void SetUp() override {
    ASSERT_NE(real_nodes(), nullptr) << "TENUTO_REAL_NODES is not set";
    ASSERT_EQ(real_nodes()->nodes(), 2u) << "tests/machine/run boots the machine for this";
  }
  void TearDown() override {
    bind_memory(0);
    unplant_all();
  }
  PoolOptions options(bool two_phase = true) {
    PoolOptions o = numa_options(2, two_phase);
    o.medium = Medium::cache;
    return o;
  }
  // How many pages of the words' blocks are on the system's node.
  std::size_t pages_on(std::span<const PtrWord> words, unsigned system_node) const {
    std::size_t n = 0;
    for (const PtrWord& w : words) {
      n += system_node_of(p_.file->at<char>(block_of(w))) == system_node;
    }
    return n;
  }
  // How large a pool is after a thread on the node has taken 64 MB that lie on node 0.
  std::uint64_t take_all(unsigned node, bool bound) {
    make(options());
    const std::span<PtrWord> words = make_words(p_, 8000);
    NodeThread w(node);
    w.run([&] {
      if (bound) bind_memory(1);
      take(words, 8000);
      EXPECT_EQ(policy_of_this_thread(), bound ? kBind : 0);
    });
    EXPECT_EQ(pages_on(words, 0), 8000u);
    EXPECT_EQ(stats().zones[1], 0u);
    const std::uint64_t bytes = p_.file->bytes();
    w.run([&] { free(words); });
    expect_sound();
    EXPECT_EQ(p_.close(), Status::ok);
    return bytes;
  }
  std::span<PtrWord> words_again(std::size_t count) {
    return {p_.file->at<PtrWord>(block_of(p_.root(0))), count};
  }
};

using pm::Topology;

TEST_F(Machine, has_two_nodes_and_memory_that_belongs_to_the_nearer_one) {
  const Topology t = Topology::read();
  EXPECT_EQ(t.node_of_cpu(1), 0u);
  EXPECT_EQ(t.node_of_cpu(2), 1u);
  EXPECT_EQ(t.node_of_memory(0), 0u);
  EXPECT_EQ(t.node_of_memory(1), 1u);
  EXPECT_EQ(t.node_of_memory(kMemoryNode), 1u);
  for (unsigned n = 0; n < 2; ++n) {
    NodeThread w(n);
    w.run([&] { EXPECT_EQ(t.here(), n); });
  }
}

TEST_F(Machine, zones_lie_on_the_node_that_they_grew_for) {
  make(options());
  const std::span<PtrWord> words = make_words(p_, 2000);
  for (unsigned n = 0; n < 2; ++n) {
    NodeThread(n).run([&] { take(words.subspan(1000 * n, 1000), 9000); });
    EXPECT_EQ(pages_on(words.subspan(1000 * n, 1000), n), 1000u);
  }
  for (std::size_t i = 0; i < p_.file->zone_count(); ++i) {
    const pm::ZoneEntry& z = p_.file->zone(i);
    const unsigned node = p_.frames->node_of(FrameId{z.offset / kFrameBytes + 1000});
    for (const std::uint64_t at : {std::uint64_t{1} << 20, z.bytes / 2, z.bytes - 1}) {
      EXPECT_EQ(system_node_of(p_.file->at<char>(PoolOffset{z.offset + at})), node) << i;
    }
  }
  const NumaStats s = stats();
  EXPECT_FALSE(s.simulated);
  EXPECT_EQ(s.remote_all(), 0u);
  EXPECT_GT(s.local_all(), 4000u);
  EXPECT_EQ(s.frames_remote, 0u);
}

// Zones are not dealt out in turn: three of them are of node 1.
TEST_F(Machine, an_open_finds_the_nodes_of_the_zones_again) {
  make(options());
  const std::span<PtrWord> words = make_words(p_, 2000);
  NodeThread(1).run([&] { take(words, 30'000); });
  const std::array<std::uint64_t, kNodesMax> zones = stats().zones;
  ASSERT_GE(zones[1], 3u);
  for (const bool clean : {true, false}) {
    if (clean) {
      ASSERT_EQ(p_.close(), Status::ok);
    } else {
      p_.crash();
    }
    reopen();
    EXPECT_EQ(stats().zones, zones);
    expect_sound();
  }
  const std::span<PtrWord> again = words_again(2000);
  EXPECT_EQ(pages_on(again, 1), 2000u);
  NodeThread(1).run([&] { free(again); });
  EXPECT_EQ(stats().frees_recorded, 0u);
  EXPECT_EQ(stats().remote_all(), 0u);
}

TEST_F(Machine, frees_of_the_other_node_wait_for_it) {
  double direct = 0;
  for (const bool two_phase : {false, true}) {
    make(options(two_phase));
    const std::span<PtrWord> words = make_words(p_, 100);
    NodeThread producer(0);
    NodeThread consumer(1);
    for (unsigned i = 0; i < 50; ++i) {
      producer.run([&] { take(words); });
      consumer.run([&] { free(words); });
    }
    const NumaStats s = stats();
    const double remote = static_cast<double>(s.remote_all()) / 5000;
    if (two_phase) {
      EXPECT_LT(remote, direct / 5);
      EXPECT_EQ(s.frees_recorded, 5000u);
      EXPECT_GT(s.batches_taken, 50u);
    } else {
      direct = remote;
      EXPECT_GT(direct, 4);
    }
    std::printf("remote accesses a free: %.3f %s\n", remote,
                two_phase ? "in two phases" : "direct");
    expect_sound();
    ASSERT_EQ(p_.close(), Status::ok);
  }
}

// As a file in CXL memory: the pool uses it from the nearest node.
TEST_F(Machine, memory_without_processors_is_used_from_the_nearest_node) {
  PoolOptions o = options();
  o.size_max = o.size;
  bind_memory(1ul << kMemoryNode);
  make(o);
  bind_memory(0);
  EXPECT_EQ(stats().zones[0], 0u);
  EXPECT_EQ(stats().zones[1], 1u);
  const std::span<PtrWord> words = make_words(p_, 200);
  NodeThread(1).run([&] { take(words); });
  EXPECT_EQ(pages_on(words, kMemoryNode), 200u);
  ASSERT_EQ(p_.close(), Status::ok);
  reopen();
  EXPECT_EQ(stats().zones[1], 1u);
  NodeThread(1).run([&] { free(words_again(200)); });
  EXPECT_EQ(stats().frees_recorded, 0u);
  expect_sound();
}

// numactl --membind=0: zones for node 1 are on node 0, and the pool grows for nothing once.
TEST_F(Machine, memory_bound_by_the_user_stays_there) {
  const std::uint64_t free = take_all(0, false);
  EXPECT_EQ(take_all(1, true), free);
}

TEST_F(Machine, planted_growth_for_a_node_without_memory) {
  const std::uint64_t free = take_all(0, false);
  plant("heap_numa_grows_for_nothing");
  EXPECT_GT(take_all(1, true), free);
}

TEST_F(Machine, a_policy_of_the_user_is_there_again_after_a_call) {
  make(options());
  const std::span<PtrWord> words = make_words(p_, 1000);
  NodeThread w(1);
  w.run([&] {
    unsigned long nodes = 1;
    ASSERT_EQ(::syscall(SYS_set_mempolicy, kPreferred, &nodes, 64), 0);
    take(words, 9000);
    EXPECT_EQ(policy_of_this_thread(), kPreferred);
  });
  EXPECT_EQ(pages_on(words, 1), 1000u);
}

TEST_F(Machine, pinned_threads_stay_on_their_node) {
  PoolOptions o = options();
  o.heap.numa.pin_threads = true;
  make(o);
  const std::span<PtrWord> words = make_words(p_, 10);
  Worker w;
  w.run([&] {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (const unsigned cpu : {1u, 2u, 3u}) CPU_SET(cpu, &cpus);
    ASSERT_EQ(::sched_setaffinity(0, sizeof cpus, &cpus), 0);
    const unsigned node = real_nodes()->here();
    take(words);
    ASSERT_EQ(::sched_getaffinity(0, sizeof cpus, &cpus), 0);
    EXPECT_EQ(CPU_COUNT(&cpus), node == 0 ? 1 : 2);
    EXPECT_EQ(real_nodes()->here(), node);
  });
}

// A container that may use node 1 alone: a control group says so.
TEST_F(Machine, a_restricted_cpuset_is_kept) {
  const std::string root = "/tmp/cgroup";
  const std::string group = root + "/one";
  const auto write = [](const std::string& file, const std::string& text) {
    std::ofstream f(file);
    f << text << std::flush;
    ASSERT_TRUE(f.good()) << file << " " << text;
  };
  ::mkdir(root.c_str(), 0755);
  ASSERT_EQ(::mount("cgroup", root.c_str(), "cgroup2", 0, nullptr), 0) << std::strerror(errno);
  write(root + "/cgroup.subtree_control", "+cpuset");
  ASSERT_EQ(::mkdir(group.c_str(), 0755), 0) << std::strerror(errno);
  write(group + "/cpuset.mems", "1");
  write(group + "/cpuset.cpus", "0,2-3");
  const pid_t child = ::fork();
  if (child == 0) {
    write(group + "/cgroup.procs", "0");
    options_ = options();
    make(options_);
    const std::span<PtrWord> words = make_words(p_, 2000);
    NodeThread(0).run([&] { take(words.subspan(0, 1000), 9000); });  // processor 0 is left to it
    NodeThread(1).run([&] { take(words.subspan(1000), 9000); });
    EXPECT_EQ(pages_on(words, 1), 2000u);
    EXPECT_EQ(stats().zones[0], 0u);
    NodeThread(1).run([&] { free(words); });
    expect_sound();
    EXPECT_EQ(p_.close(), Status::ok);
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ::rmdir(group.c_str());
  ::umount(root.c_str());
}

}  // namespace
}  // namespace tenuto::test
