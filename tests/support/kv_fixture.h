// A small store in shared memory, for the tests of the public Store.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto::test {

using Keys = std::vector<std::string>;

inline std::string key_of(int n) {
  char text[16];
  std::snprintf(text, sizeof text, "k%08d", n);
  return text;
}

class KvFixture : public testing::Test {
 protected:
  KvFixture() {
    options_.pool.size = 16u << 20;
    options_.pool.medium = Medium::cache;
  }

  Result<Store> open() { return Store::open(path_.str(), options_, &report_); }
  Store opened() {
    Result<Store> s = open();
    EXPECT_TRUE(s) << report_.text();
    return std::move(*s);
  }
  std::uint64_t disk_bytes() const { return blocks_on_disk(path_.str()); }
  static void expect_valid(const Store& s) {
    Report r;
    EXPECT_EQ(s.validate(&r), Status::ok) << r.text();
  }
  static void expect_refused_in_a_child(Store& s) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      const bool refused =
          s.put(key_of(7), "child") == Status::forked && s.close() == Status::forked;
      ::_exit(refused ? 0 : 1);
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  // The keys from the iterator's place to its end.
  static Keys keys(Iterator& it) {
    Keys out;
    for (; it.valid(); it.next()) out.emplace_back(it.key());
    return out;
  }

  TempPath path_{"kv"};
  StoreOptions options_;
  Report report_;
};

}  // namespace tenuto::test
