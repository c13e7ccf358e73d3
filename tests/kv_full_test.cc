// A full pool: a refused call changes nothing, nothing leaks, and erasing makes room.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstddef>
#include <map>
#include <string>

#include "support/kv_fixture.h"
#include "tenuto/kv.h"

namespace tenuto {
namespace {

using test::key_of;
using test::Keys;

class KvFullTest : public test::KvFixture {
 protected:
  KvFullTest() { options_.pool.size = options_.pool.size_max = kPoolBytesMin; }

  using Model = std::map<std::string, std::string>;

  // Puts new keys until the pool is full.
  static void fill(Store& s, Model& model, std::size_t value_bytes, int& next) {
    for (;;) {
      const std::string key = key_of(next++ * 7919 % 1'000'003);
      const std::string value(value_bytes, static_cast<char>('a' + next % 26));
      const Status put = s.put(key, value);
      if (put == Status::full) return;
      ASSERT_EQ(put, Status::ok);
      model[key] = value;
    }
  }

  void expect_equal(const Store& s, const Model& model) {
    Iterator it = s.iterator();
    auto at = model.begin();
    for (it.seek_first(); it.valid(); it.next(), ++at) {
      ASSERT_NE(at, model.end());
      ASSERT_EQ(it.key(), at->first);
      ASSERT_EQ(it.value(), at->second);
    }
    EXPECT_EQ(at, model.end());
    EXPECT_EQ(it.status(), Status::ok);
    EXPECT_EQ(s.stats().records, model.size());
    expect_valid(s);
  }
};

TEST_F(KvFullTest, full_pool_refuses_changes_nothing_and_has_room_again_after_erasing) {
  for (const std::size_t value_bytes : {100u, 3000u, 100'000u}) {
    SCOPED_TRACE(value_bytes);
    ::unlink(path_.str().c_str());
    Model model;
    int next = 0;
    Store s = opened();
    fill(s, model, value_bytes, next);
    ASSERT_GT(model.size(), 8u);
    const std::size_t first_fill = model.size();
    for (int i = 0; i < 200; ++i) {  // many refusals leak nothing
      ASSERT_EQ(s.put("new" + key_of(i), std::string(value_bytes, 'x')), Status::full);
    }
    const auto some = std::next(model.begin(), static_cast<std::ptrdiff_t>(model.size() / 2));
    ASSERT_EQ(s.put(some->first, std::string(value_bytes * 4, 'x')), Status::full);
    WriteBatch b;
    b.put(some->first, "x");
    b.erase(model.begin()->first);
    for (std::size_t i = 0; i < first_fill; ++i) {
      b.put("batch" + std::to_string(i), std::string(value_bytes, 'x'));
    }
    ASSERT_EQ(s.write(b), Status::full);
    expect_equal(s, model);
    // Every second key is erased, and must find room again. (Other records need not, because the
    // blocks of a slab have one size.)
    Keys gone;
    for (auto at = model.begin(); at != model.end(); ++at) {
      ASSERT_EQ(s.erase(at->first), Status::ok);
      gone.push_back(at->first);
      at = model.erase(at);
      if (at == model.end()) break;
    }
    expect_equal(s, model);
    for (const std::string& key : gone) {
      model[key] = std::string(value_bytes, 'r');
      ASSERT_EQ(s.put(key, model[key]), Status::ok);
    }
    expect_equal(s, model);
    ASSERT_EQ(s.close(), Status::ok);
    s = opened();
    expect_equal(s, model);
    for (auto at = model.begin(); at != model.end(); at = model.erase(at)) {
      ASSERT_EQ(s.erase(at->first), Status::ok);
    }
    // The reopen empties the threads' caches, which may hold the last blocks of otherwise empty
    // slabs.
    ASSERT_EQ(s.close(), Status::ok);
    s = opened();
    fill(s, model, value_bytes, next);
    EXPECT_GE(model.size(), first_fill * 9 / 10);
    expect_equal(s, model);
  }
}

TEST_F(KvFullTest, a_value_larger_than_the_pool_is_refused) {
  Store s = opened();
  ASSERT_EQ(s.put("a", "1"), Status::ok);
  const std::string value(2 * kPoolBytesMin, 'v');
  EXPECT_EQ(s.put("a", value), Status::too_large);
  EXPECT_EQ(s.put("b", value), Status::too_large);
  WriteBatch b;
  b.put("c", "1");
  b.put("d", value);
  EXPECT_EQ(s.write(b), Status::too_large);
  expect_equal(s, {{"a", "1"}});
}

TEST_F(KvFullTest, full_while_a_view_and_an_iterator_hold_back_what_was_replaced) {
  Model model;
  int next = 0;
  Store s = opened();
  fill(s, model, 3000, next);
  const std::string kept = model.rbegin()->first;
  const std::string first = model.begin()->first;
  {
    Iterator it = s.iterator();
    it.seek_last();
    const Result<View> view = s.view(kept);
    ASSERT_TRUE(view);
    for (auto at = model.begin(); at->first != kept; at = model.erase(at)) {
      ASSERT_EQ(s.erase(at->first), Status::ok);
    }
    ASSERT_EQ(s.put(first, std::string(2 << 20, 'x')), Status::full);
    EXPECT_EQ(view->value(), model[kept]);
    EXPECT_EQ(it.value(), model[kept]);
    expect_equal(s, model);
  }
  model[first] = std::string(2 << 20, 'x');
  ASSERT_EQ(s.put(first, model[first]), Status::ok);
  expect_equal(s, model);
}

TEST_F(KvFullTest, the_report_of_a_refused_call_says_why) {
  {
    Model model;
    int next = 0;
    Store s = opened();
    ASSERT_TRUE(s.collection("c"));
    for (const std::size_t value_bytes : {100'000u, 3000u, 100u, 0u})
      fill(s, model, value_bytes, next);
    const auto expect_full = [&](Status got) {
      EXPECT_EQ(got, Status::full);
      EXPECT_NE(report_.text().find("no room in the pool"), std::string::npos) << report_.text();
    };
    expect_full(s.rename("c", std::string(kCollectionNameMax, 'n'), &report_));
    expect_full(s.pool().root("root", 100'000, &report_).error());
    expect_full(s.pool().grow_root("root", 100'000, {}, &report_).error());
    ASSERT_EQ(s.close(), Status::ok);
  }
  options_.pool.read_only = true;
  Store s = opened();
  EXPECT_EQ(s.pool().root("root", 8, &report_).error(), Status::read_only);
  EXPECT_NE(report_.text().find("open read-only"), std::string::npos) << report_.text();
}

}  // namespace
}  // namespace tenuto
