// The nodes of a machine: which processors and which memory are close to each other. Read from
// /sys, asked for and bound by system calls: libnuma and hwloc would each be one more library for
// every program that links this one, for a list in two files and three calls.
//
// Nodes are numbered from 0 in the order of the system's numbers, those without processors left
// out. Memory without processors (CXL, persistent memory as a node) belongs to the nearest node
// that has some.
#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

class Topology {
 public:
  // `root` is where /sys is, for tests. One node if nothing can be read. Throws bad_alloc.
  static Topology read(const std::string& root = "");

  Topology() : nodes_(1) {}  // one node
  unsigned nodes() const { return static_cast<unsigned>(nodes_.size()); }
  // Of the processor that the calling thread runs on. Cost: a call that the kernel answers in user
  // space.
  unsigned here() const;
  unsigned node_of_cpu(unsigned cpu) const { return cpu < of_cpu_.size() ? of_cpu_[cpu] : 0; }
  // The node of the system's node.
  unsigned node_of_memory(unsigned system_node) const {
    return system_node < of_memory_.size() ? of_memory_[system_node] : 0;
  }

  // Pages of the range that are not there yet come from this node, as long as it has some
  // (mbind(2), MPOL_PREFERRED). A refusal changes nothing: a hint. A calling thread whose memory is
  // bound to other nodes (numactl --membind) changes nothing either.
  void prefer(void* at, std::size_t bytes, unsigned node) const;
  // The same for what the calling thread asks for, wherever it maps it, until restore of what this
  // returns.
  struct Policy {
    static constexpr unsigned kSystemNodesMax = 1024;  // of the kernel
    static constexpr unsigned kBits = 8 * sizeof(unsigned long);
    int mode = 0;  // 0: that of the process
    unsigned long nodes[kSystemNodesMax / kBits] = {};
  };
  Policy prefer_here(unsigned node) const;
  static void restore(const Policy& policy);
  // The node of the page at `at`, which is read first. `otherwise` if the kernel does not tell.
  unsigned node_of(const void* at, unsigned otherwise) const;
  // Keeps the calling thread on the node's processors, as far as it may use them now.
  void pin(unsigned node) const;

 private:
  struct Node {
    unsigned system_node = 0;
    std::vector<unsigned> cpus;
  };
  std::vector<Node> nodes_;  // at least one
  std::vector<unsigned> of_cpu_;
  std::vector<unsigned> of_memory_;
};

}  // namespace TENUTO_NS::pm
