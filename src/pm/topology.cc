#include "pm/topology.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "pm/not_cancelled.h"
#include "tenuto/numa.h"

namespace TENUTO_NS::pm {

namespace {

constexpr unsigned kSystemNodesMax = Topology::Policy::kSystemNodesMax;
constexpr unsigned kCpusMax = 1u << 16;
// Of a header that the C library does not have.
constexpr int kPolicyPreferred = 1;   // MPOL_PREFERRED
constexpr int kPolicyBind = 2;        // MPOL_BIND
constexpr int kPolicyFlags = 0xe000;  // MPOL_MODE_FLAGS

// The numbers of a list as "0-3,8".
std::vector<unsigned> read_list(const std::string& path, unsigned end) {
  std::vector<unsigned> all;
  std::ifstream file(path);
  unsigned first = 0;
  while (file >> first) {
    unsigned last = first;
    if (file.peek() == '-') {
      file.ignore();
      if (!(file >> last)) break;
    }
    for (unsigned i = first; i <= last && i < end; ++i) all.push_back(i);
    if (file.peek() == ',') file.ignore();
  }
  return all;
}

// From one node to each that is online, in their order.
std::vector<unsigned> read_distances(const std::string& path) {
  std::vector<unsigned> all;
  std::ifstream file(path);
  for (unsigned d = 0; file >> d;) all.push_back(d);
  return all;
}

Topology::Policy preferring(unsigned system_node) {
  Topology::Policy p;
  p.mode = kPolicyPreferred;
  p.nodes[system_node / p.kBits] |= 1ul << system_node % p.kBits;
  return p;
}

// What the calling thread asked for, or got from numactl(8).
Topology::Policy policy_of_this_thread() {
  Topology::Policy p;
  if (::syscall(SYS_get_mempolicy, &p.mode, p.nodes, kSystemNodesMax, nullptr, 0) != 0) p = {};
  return p;
}

// Whether the policy restricts memory to other nodes. Preferences it may have for other reasons; a
// restriction is the user's.
bool forbids(const Topology::Policy& p, unsigned system_node) {
  return (p.mode & ~kPolicyFlags) == kPolicyBind &&
         (p.nodes[system_node / p.kBits] & 1ul << system_node % p.kBits) == 0;
}

}  // namespace

Topology Topology::read(const std::string& root) {
  const NotCancelled whole;
  Topology t;
  t.nodes_.clear();
  const std::string folder = root + "/sys/devices/system/node";
  const std::vector<unsigned> online = read_list(folder + "/online", kSystemNodesMax);
  const auto of = [&](unsigned node) { return folder + "/node" + std::to_string(node); };
  for (const unsigned n : online) {
    std::vector<unsigned> cpus = read_list(of(n) + "/cpulist", kCpusMax);
    if (!cpus.empty() && t.nodes_.size() < kNodesMax) t.nodes_.push_back({n, std::move(cpus)});
  }
  if (t.nodes_.empty()) t.nodes_.resize(1);
  for (unsigned i = 0; i < t.nodes(); ++i) {
    for (const unsigned cpu : t.nodes_[i].cpus) {
      if (cpu >= t.of_cpu_.size()) t.of_cpu_.resize(cpu + 1);
      t.of_cpu_[cpu] = i;
    }
  }
  for (const unsigned n : online) {
    if (n >= t.of_memory_.size()) t.of_memory_.resize(n + 1);
    const std::vector<unsigned> distance = read_distances(of(n) + "/distance");
    std::optional<unsigned> nearest;
    for (unsigned i = 0; i < t.nodes(); ++i) {
      const auto at = static_cast<std::size_t>(
          std::find(online.begin(), online.end(), t.nodes_[i].system_node) - online.begin());
      const unsigned far = t.nodes_[i].system_node == n ? 0
                           : at < distance.size()       ? distance[at]
                                                        : ~0u;
      if (nearest && far >= *nearest) continue;
      nearest = far;
      t.of_memory_[n] = i;
    }
  }
  return t;
}

unsigned Topology::here() const {
  const int cpu = ::sched_getcpu();
  return cpu < 0 ? 0 : node_of_cpu(static_cast<unsigned>(cpu));
}

void Topology::prefer(void* at, std::size_t bytes, unsigned node) const {
  const Policy p = preferring(nodes_[node].system_node);
  if (forbids(policy_of_this_thread(), nodes_[node].system_node)) return;
  ::syscall(SYS_mbind, at, bytes, p.mode, p.nodes, kSystemNodesMax + 1, 0);
}

Topology::Policy Topology::prefer_here(unsigned node) const {
  const Policy before = policy_of_this_thread();
  if (!forbids(before, nodes_[node].system_node)) restore(preferring(nodes_[node].system_node));
  return before;
}

void Topology::restore(const Policy& policy) {
  ::syscall(SYS_set_mempolicy, policy.mode, policy.nodes, kSystemNodesMax + 1);
}

unsigned Topology::node_of(const void* at, unsigned otherwise) const {
  static_cast<void>(*static_cast<const volatile char*>(at));  // else it may have no page
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* pages[] = {reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(at) & ~(page - 1))};
  int found = -1;
  if (::syscall(SYS_move_pages, 0, 1, pages, nullptr, &found, 0) != 0 || found < 0) {
    return otherwise;
  }
  return node_of_memory(static_cast<unsigned>(found));
}

void Topology::pin(unsigned node) const {
  cpu_set_t may;
  cpu_set_t to;
  CPU_ZERO(&to);
  if (::sched_getaffinity(0, sizeof may, &may) != 0) return;
  for (const unsigned cpu : nodes_[node].cpus) {
    if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &may)) CPU_SET(cpu, &to);
  }
  if (CPU_COUNT(&to) != 0) static_cast<void>(::sched_setaffinity(0, sizeof to, &to));
}

}  // namespace TENUTO_NS::pm
