// A control group that limits the memory of this process and its children, page cache included, so
// that a store larger than memory can be measured on a machine with more.
#pragma once

#include <cstdint>
#include <string>

namespace bench {

class MemoryGroup {
 public:
  MemoryGroup() = default;
  // Leaves the group and removes it.
  ~MemoryGroup();
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  // Makes a group below the one that this process is in, with control groups of version 1 or 2, and
  // enters it. What is in memory already counts for the old group. false: `why` says which file
  // could not be written; as a rule this needs the rights of root.
  bool enter(std::uint64_t bytes, std::string& why);

 private:
  std::string parent_, group_;  // directories; empty: none was made
  int owner_ = 0;               // process id
};

}  // namespace bench
