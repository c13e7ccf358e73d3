#include "bench/support/memory_group.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

namespace bench {
namespace {

const std::string kMounted = "/sys/fs/cgroup";

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// The directory of this process's group. `v1`: which version has the memory.
std::string own_group(bool& v1) {
  std::ifstream groups("/proc/self/cgroup");
  std::string unified;
  for (std::string line; std::getline(groups, line);) {
    const std::size_t at = line.find(":memory:");
    v1 = at != line.npos;
    if (v1) {
      const std::string whole = kMounted + "/memory" + line.substr(at + 8);
      return exists(whole) ? whole : kMounted + "/memory";
    }
    if (line.starts_with("0::")) unified = kMounted + line.substr(3);
  }
  return exists(unified) ? unified : kMounted;
}

bool put(const std::string& file, std::string_view text, std::string& why) {
  std::ofstream out(file);
  out << text << std::flush;
  if (out) return true;
  why = fmt::format("cannot write {}: {}", file, std::strerror(errno));
  return false;
}

}  // namespace

bool MemoryGroup::enter(std::uint64_t bytes, std::string& why) {
  bool v1 = false;
  const std::string parent = own_group(v1);
  const std::string group = fmt::format("{}/tenuto-bench-{}", parent, ::getpid());
  if (::mkdir(group.c_str(), 0755) != 0) {
    why = fmt::format("cannot make {}: {}", group, std::strerror(errno));
    return false;
  }
  parent_ = parent;
  group_ = group;
  owner_ = ::getpid();
  std::string ignored;
  if (!v1) put(group + "/memory.swap.max", "0", ignored);  // a kernel may have no swap
  const std::string limit = group + (v1 ? "/memory.limit_in_bytes" : "/memory.max");
  return put(limit, std::to_string(bytes), why) &&
         put(group + "/cgroup.procs", std::to_string(owner_), why);
}

MemoryGroup::~MemoryGroup() {
  if (group_.empty() || owner_ != ::getpid()) return;
  std::string ignored;
  put(parent_ + "/cgroup.procs", std::to_string(owner_), ignored);
  ::rmdir(group_.c_str());
}

}  // namespace bench
