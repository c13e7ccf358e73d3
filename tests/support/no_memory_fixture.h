// Stores in which every allocation of a call fails once, one after the other.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pm/plant.h"
#include "support/each_allocation.h"
#include "support/kv_fixture.h"
#include "tenuto/collection.h"

namespace tenuto::test {

class NoMemoryFixture : public KvFixture {
 protected:
  using Call = std::function<void()>;

  NoMemoryFixture() { options_.pool.size = 64u << 20; }
  void SetUp() override { s_.emplace(opened()); }
  void TearDown() override { unplant_all(); }

  // As fail_each_allocation. Checks each time that the store works.
  void every_allocation_fails_once(
      const Call& call, const Call& after = [] {}, const Call& before = [] {}) {
    fail_each_allocation(before, call, [&] {
      after();
      works();
    });
  }

  // Every leaf can be read and written, and the store validates.
  void works() {
    {
      Iterator it = s_->iterator();
      for (it.seek_first(); it.valid(); it.next()) continue;
      EXPECT_EQ(it.status(), Status::ok);
    }
    for (int i = 0; i < next_; i += 7) EXPECT_EQ(s_->put(key_of(i), "again"), Status::ok);
    expect_valid(*s_);
  }
  // Puts new keys, which split leaves.
  void fill(int count) {
    for (int i = 0; i < count; ++i) (void)s_->put(key_of(next_++), std::string(40, 'v'));
  }

  std::optional<Store> s_;
  int next_ = 0;
};

// A store whose collections the test knows. At the test's end it is closed and opened again.
class NoMemoryCallsFixture : public NoMemoryFixture {
 protected:
  using Contents = std::map<std::string, std::string>;

  NoMemoryCallsFixture() {
    options_.pool.size = 16u << 20;
    options_.pool.recovery_threads = 1;  // so that this thread loads, and can fail
    options_.clock_ms = [this] { return now_; };
    options_.reclaim_every_ms = 0;
  }
  void TearDown() override {
    if (s_) {
      EXPECT_EQ(s_->close(), Status::ok);
    }
    s_.reset();
    if (HasFailure()) return;
    s_.emplace(opened());  // finds what a clean close lost
    expect_valid(*s_);
    NoMemoryFixture::TearDown();
  }

  Collection made(const std::string& name, int records, const CollectionOptions& options = {}) {
    Result<Collection> c = s_->collection(name, options, &report_);
    EXPECT_TRUE(c) << report_.text();
    for (int i = 0; i < records; ++i) EXPECT_EQ(c->put(key_of(i), name), Status::ok);
    return *c;
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const CollectionInfo& info : s_->collections().value_or({})) out.push_back(info.name);
    return out;
  }
  static Contents contents(const Collection& c) {
    Contents out;
    Iterator it = c.iterator();
    for (it.seek_first(); it.valid(); it.next()) out.emplace(it.key(), it.value());
    EXPECT_EQ(it.status(), Status::ok);
    return out;
  }
  Contents contents() { return contents(*s_); }
  static CollectionOptions there() { return {.create_if_missing = false}; }

  std::uint64_t now_ = 1'000'000'000'000;
};

}  // namespace tenuto::test
