// System calls that fail: each call of a pool's life fails once, in each possible way, until the
// whole life passes without a failure. Each time the error tells what failed and where. When the
// pool is opened again, everything acknowledged is there.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "support/failing_calls.h"
#include "support/pool_image.h"

namespace tenuto::test {
namespace {

constexpr int kRecords = 120;  // of 100 KB: the pool grows
constexpr int kCallsMax = 200;

struct Life {
  std::string path;
  StoreOptions options;
  Records acknowledged;
  std::string log;
  // The step that failed.
  std::string step;
  Status status = Status::ok;
  Report report;

  explicit Life(std::string p) : path(std::move(p)) {
    options.pool.size = 8u << 20;
    options.pool.size_max = 64u << 20;
    options.pool.medium = Medium::cache;
    options.pool.recovery_threads = 1;
    options.pool.log = [this](std::string_view text) { (log += text) += "\n"; };
  }

  bool went(const char* what, Status s) {
    if (s == Status::ok) return true;
    step = what;
    status = s;
    return false;
  }
  bool put(Store& s, const std::string& key, const std::string& value) {
    if (!went("put", s.put(key, value))) return false;
    acknowledged[key] = value;
    return true;
  }

  void live() {
    {
      Result<Store> s = Store::open(path, options, &report);
      if (!s) return static_cast<void>(went("create", s.error()));
      for (int i = 0; i < kRecords; ++i) {
        if (!put(*s, "key" + std::to_string(i),
                 std::string(100000, static_cast<char>('a' + i % 26)))) {
          return;  // the destructor closes what can be closed
        }
      }
      if (!went("sync", s->sync()) || !went("close", s->close())) return;
    }
    {
      Result<Store> s = Store::open(path, options, &report);
      if (!s) return static_cast<void>(went("open", s.error()));
      if (!put(*s, "again", "x") || !went("close", s->close())) return;
    }
    StoreOptions reading = options;
    reading.pool.read_only = true;
    Result<Store> s = Store::open(path, reading, &report);
    if (!s) return static_cast<void>(went("open to read", s.error()));
    std::string value;
    if (went("get", s->get("again", value))) went("close", s->close());
  }
};

void each_call_fails_once(int error, bool lasting) {
  std::set<std::string> names;
  int n = 1;
  for (; n < kCallsMax; ++n) {
    TempPath path("fault");
    Life life(path.str());
    fail_call(n, error, lasting);
    life.live();
    std::string name;
    const bool any = failed_call(&name);
    SCOPED_TRACE("call " + std::to_string(n) + ", " + name + ", errno " + std::to_string(error) +
                 ": " + life.step + ", " + life.report.text());
    if (!any) {
      EXPECT_EQ(life.step, "");
      break;
    }
    names.insert(name);
    if (!life.step.empty()) {
      const bool to_open = life.step == "create" || life.step.starts_with("open");
      const std::string text = to_open ? life.report.text() : life.log;
      EXPECT_NE(text.find(path.str().substr(0, path.str().rfind('/'))), std::string::npos) << text;
      EXPECT_NE(text.find(::strerrordesc_np(error)), std::string::npos) << text;
      EXPECT_TRUE(life.status == Status::io || life.status == Status::full)
          << static_cast<int>(life.status);
    }
    // Without failures: everything acknowledged is there, and the pool is sound.
    if (::access(path.str().c_str(), F_OK) != 0) {
      EXPECT_TRUE(life.acknowledged.empty());
      continue;
    }
    Report report;
    Result<Store> s = Store::open(path.str(), life.options, &report);
    ASSERT_TRUE(s) << report.text();
    for (const auto& [key, value] : life.acknowledged) {
      EXPECT_EQ(s->get(key).value_or(""), value) << key;
    }
    EXPECT_EQ(s->validate(&report), Status::ok) << report.text();
    EXPECT_EQ(s->close(), Status::ok);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_LT(n, kCallsMax);
  std::printf("%d calls\n", n - 1);
  for (const char* name : {"open", "fallocate", "mmap", "pread", "fstat", "fcntl", "linkat",
                           "msync", "fdatasync", "fsync"}) {
    EXPECT_TRUE(names.contains(name)) << name << " was never made to fail";
  }
}

TEST(Fault, every_call_may_fail_once_with_an_input_output_error) {
  each_call_fails_once(EIO, false);
}
TEST(Fault, every_call_may_fail_for_good) { each_call_fails_once(EIO, true); }
TEST(Fault, every_call_may_find_no_space) { each_call_fails_once(ENOSPC, true); }

TEST(Fault, a_pool_that_cannot_grow_stays_usable) {
  TempPath path("fault-full");
  Life life(path.str());
  Result<Store> s = Store::open(path.str(), life.options);
  ASSERT_TRUE(s);
  fail_call(1, ENOSPC, true);
  int n = 0;
  while (life.put(*s, "key" + std::to_string(n), std::string(100000, 'x'))) ++n;
  EXPECT_EQ(life.status, Status::full);
  EXPECT_NE(life.log.find("cannot grow"), std::string::npos) << life.log;
  EXPECT_GT(n, 20);
  EXPECT_EQ(s->erase("key0"), Status::ok);
  EXPECT_EQ(s->put("key1", std::string(100, 'y')), Status::ok);  // it needs no more memory
  std::string name;
  EXPECT_TRUE(failed_call(&name));
  EXPECT_EQ(name, "fallocate");
  EXPECT_EQ(s->put("more", std::string(100000, 'z')), Status::ok);  // there is space again
  EXPECT_EQ(s->get("key2").value_or(""), std::string(100000, 'x'));
  EXPECT_EQ(s->validate(), Status::ok);
  EXPECT_EQ(s->close(), Status::ok);
}

TEST(Fault, a_close_that_cannot_write_says_so_and_the_pool_recovers) {
  TempPath path("fault-close");
  Life life(path.str());
  {
    Result<Store> s = Store::open(path.str(), life.options);
    ASSERT_TRUE(s);
    ASSERT_EQ(s->put("a", "1"), Status::ok);
    fail_call(1, EIO, true);
    EXPECT_EQ(s->close(), Status::io);
    EXPECT_TRUE(failed_call(nullptr));
    EXPECT_NE(life.log.find("fdatasync"), std::string::npos) << life.log;
  }
  Result<Store> s = Store::open(path.str(), life.options);
  ASSERT_TRUE(s);
  EXPECT_FALSE(s->pool().info().was_clean);
  EXPECT_EQ(s->get("a").value_or(""), "1");
}

}  // namespace
}  // namespace tenuto::test
