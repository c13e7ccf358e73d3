// Nodes for tests. They are simulated, and a thread says which one it is on. With TENUTO_REAL_NODES
// in the environment they are those of the machine: a thread goes to the node's processors, and the
// kernel is asked where each block is that a test asks for (tests/machine).
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "pm/topology.h"
#include "support/heap_worker.h"
#include "support/pool_parts.h"
#include "tenuto/ptr.h"

namespace tenuto::test {

inline thread_local unsigned node_of_this_thread = 0;

// The machine's nodes, if the tests use them.
inline const pm::Topology* real_nodes() {
  static const pm::Topology machine = pm::Topology::read();
  static const bool real = std::getenv("TENUTO_REAL_NODES") != nullptr;
  return real ? &machine : nullptr;
}

// From now on the calling thread is on the node.
inline void be_on_node(unsigned node) {
  node_of_this_thread = node;
  const pm::Topology* const machine = real_nodes();
  if (machine == nullptr) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const long configured = ::sysconf(_SC_NPROCESSORS_CONF);
  for (unsigned cpu = 0; cpu < configured; ++cpu) {
    if (machine->node_of_cpu(cpu) == node) CPU_SET(cpu, &cpus);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof cpus, &cpus), 0) << "node " << node;
}

inline PoolOptions numa_options(unsigned nodes, bool two_phase = true) {
  PoolOptions o = PoolParts::small_options();
  o.medium = Medium::model;
  o.heap.numa.two_phase = two_phase;
  if (nodes > 1 && real_nodes() != nullptr) {
    // They are all of the machine's.
    EXPECT_EQ(real_nodes()->nodes(), nodes);
    be_on_node(0);
    return o;
  }
  o.heap.numa.nodes = nodes;
  o.heap.numa.node_of_thread = [] { return node_of_this_thread; };
  return o;
}

// A thread on a node.
struct NodeThread : Worker {
  explicit NodeThread(unsigned node) {
    run([node] { be_on_node(node); });
  }
};

// Destinations: plain words in one large block, which the first root word leads to.
inline std::span<PtrWord> make_words(PoolParts& p, std::size_t count) {
  EXPECT_EQ(p.heap->malloc_to(count * sizeof(PtrWord), p.root(0)), Status::ok);
  auto* words = static_cast<PtrWord*>(
      const_cast<void*>(static_cast<const void*>(PtrWord::decode(&p.root(0), p.root(0).raw))));
  for (std::size_t i = 0; i < count; ++i) words[i].raw = 0;
  return {words, count};
}

// A pool on simulated nodes.
class Numa : public testing::Test {
 protected:
  void make(const PoolOptions& o) {
    options_ = o;
    ::unlink(path_.str().c_str());
    ASSERT_EQ(p_.create(path_.str(), o), Status::ok) << p_.report.text();
  }
  void reopen() { ASSERT_EQ(p_.open(path_.str(), options_), Status::ok) << p_.report.text(); }
  void expect_sound() {
    Report report;
    EXPECT_EQ(p_.heap->validate(&report), Status::ok) << report.text();
  }
  PoolOffset block_of(const PtrWord& w) const {
    const void* at = PtrWord::decode(&w, w.raw);
    return at == nullptr ? PoolOffset{} : p_.file->offset_of(at);
  }
  unsigned node_of(const PtrWord& w) const {
    const PoolOffset at = block_of(w);
    const unsigned node = p_.frames->node_of(frame_of_offset(at));
    if (real_nodes() != nullptr) {
      EXPECT_EQ(real_nodes()->node_of(p_.file->at<char>(at), ~0u), node) << "block " << at.value;
    }
    return node;
  }
  void take(std::span<PtrWord> words, std::uint64_t bytes = 64) {
    for (PtrWord& w : words) ASSERT_EQ(p_.heap->malloc_to(bytes, w), Status::ok);
  }
  void free(std::span<PtrWord> words) {
    for (PtrWord& w : words) ASSERT_EQ(p_.heap->free_from(w), Status::ok);
  }
  NumaStats stats() const { return p_.heap->numa_stats(); }

  TempPath path_{"numa"};
  PoolOptions options_;
  PoolParts p_;
};

}  // namespace tenuto::test
