// Pool files as bytes, for tests that damage them: images of a store after a clean close or a kill,
// what the store held then, and the offsets of its leaves.
#pragma once

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "store/tree/format.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto::test {

using Bytes = std::vector<unsigned char>;
using Records = std::map<std::string, std::string>;

inline Bytes read_image(const std::string& path) {
  Bytes b;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0) << path;
  b.resize(static_cast<std::size_t>(::lseek(fd, 0, SEEK_END)));
  EXPECT_EQ(::pread(fd, b.data(), b.size(), 0), static_cast<ssize_t>(b.size()));
  ::close(fd);
  return b;
}

inline void write_image(const std::string& path, const Bytes& b) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::pwrite(fd, b.data(), b.size(), 0) != static_cast<ssize_t>(b.size())) std::abort();
  ::close(fd);
}

inline std::uint64_t word_at(const Bytes& b, std::size_t at) {
  std::uint64_t w = 0;
  std::memcpy(&w, b.data() + at, sizeof w);
  return w;
}

// The offsets of the store's leaves, in the order of the chain.
inline std::vector<std::size_t> leaves_of(const Bytes& b) {
  std::vector<std::size_t> leaves;
  std::size_t at = word_at(b, pm::kHeadPageOffset + offsetof(pm::HeadPage, store));
  while (at != 0 && at + sizeof(store::Leaf) <= b.size()) {
    leaves.push_back(at);
    at = store::HeaderWord{word_at(b, at + offsetof(store::LeafHeader, next))}.value();
  }
  return leaves;
}

// All records, read by an iterator.
inline Records records_of(Store& store) {
  Records all;
  Iterator it = store.iterator();
  for (it.seek_first(); it.valid(); it.next()) all.emplace(it.key(), it.value());
  EXPECT_EQ(it.status(), Status::ok);
  return all;
}

// Runs `use` in a child that then ends without a close.
inline void run_and_kill(const std::function<bool()>& use) {
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) std::_Exit(use() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_EQ(status, 0);
}

}  // namespace tenuto::test
