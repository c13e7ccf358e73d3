// What the image of a clean close keeps of each leaf (store/tree/image.h): the leaf is compared
// with it when a thread first comes there.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "store/tree/format.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/rescue.h"

namespace tenuto::test {
namespace {

struct KeptLeafTest : KvFixture {
  KeptLeafTest() { options_.pool.size = 8u << 20; }

  Bytes image() {
    ::unlink(path_.str().c_str());
    Store s = opened();
    for (int i = 0; i < 300; ++i) EXPECT_EQ(s.put(key_of(i), "value"), Status::ok);
    EXPECT_EQ(s.close(), Status::ok);
    return read_image(path_.str());
  }
};

// The medium has lost the last write of a leaf, or of a line of it. Its older state is whole. The
// first call after the open makes the node anew: what is kept of its leaves moves along.
TEST_F(KeptLeafTest, an_older_leaf_is_not_taken_for_the_one_of_the_close) {
  using Change = std::function<void(Store&)>;
  const Change changes[] = {[](Store& s) { EXPECT_EQ(s.put(key_of(10), "updated"), Status::ok); },
                            [](Store& s) { EXPECT_EQ(s.erase(key_of(10)), Status::ok); },
                            [](Store& s) {
                              EXPECT_EQ(s.erase(key_of(10)), Status::ok);
                              EXPECT_EQ(s.put(key_of(10) + "x", "perhaps in the same slot"),
                                        Status::ok);
                            }};
  struct Part {
    std::size_t from, to;
  };
  constexpr std::size_t kAll = sizeof(store::Leaf);
  int lost = 0;
  for (const Change& change : changes) {
    for (const Part part : {Part{0, kLineBytes}, Part{2 * kLineBytes, kAll}, Part{0, kAll}}) {
      for (const bool node_is_replaced : {false, true}) {
        const Bytes before = image();
        {
          Store s = opened();
          change(s);
          ASSERT_EQ(s.close(), Status::ok);
        }
        Bytes b = read_image(path_.str());
        const std::size_t leaf = leaves_of(b)[0];
        ASSERT_EQ(leaf, leaves_of(before)[0]);
        const auto newer = b.begin() + static_cast<std::ptrdiff_t>(leaf + part.from);
        const auto older = before.begin() + static_cast<std::ptrdiff_t>(leaf + part.from);
        const auto bytes = static_cast<std::ptrdiff_t>(part.to - part.from);
        if (std::equal(older, older + bytes, newer)) continue;
        std::copy_n(older, bytes, newer);
        lost += 1;
        write_image(path_.str(), b);
        Store s = opened();
        // More keys than a leaf has, behind all others. They share no prefix with those.
        for (int i = 0; node_is_replaced && i < 60; ++i) {
          ASSERT_EQ(s.put("~" + key_of(i), "value"), Status::ok);
        }
        std::string value;
        EXPECT_EQ(s.get(key_of(10), value), Status::corrupt);
        Iterator it = s.iterator();
        it.seek_first();
        EXPECT_EQ(it.status(), Status::corrupt);
        EXPECT_EQ(s.validate(&report_), Status::corrupt);
        EXPECT_EQ(s.close(), Status::corrupt);
        // The next open would have to believe it.
        EXPECT_EQ(Store::open(path_.str(), options_, &report_).error(), Status::corrupt);
        EXPECT_NE(report_.what.find("not the one of its last close"), std::string::npos);
        const TempPath saved{"saved"};
        RescueResult result;
        EXPECT_EQ(rescue(path_.str(), saved.str(), {}, result), Status::corrupt);
      }
    }
  }
  EXPECT_GE(lost, 12);
}

// What the newest state of the leaf named is in blocks that are in use, and that no leaf names.
// What the older one names alone is in blocks that are free.
TEST_F(KeptLeafTest, a_rescue_of_an_older_leaf_has_the_newest_records) {
  const Bytes before = image();
  {
    Store s = opened();
    EXPECT_EQ(s.put(key_of(10), "updated"), Status::ok);
    EXPECT_EQ(s.erase(key_of(11)), Status::ok);
    EXPECT_EQ(s.put(key_of(12) + "x", "new"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Bytes b = read_image(path_.str());
  const std::size_t leaf = leaves_of(b)[0];
  std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(leaf), sizeof(store::Leaf),
              b.begin() + static_cast<std::ptrdiff_t>(leaf));
  write_image(path_.str(), b);
  const TempPath saved{"saved"};
  RescueResult result;
  EXPECT_EQ(rescue(path_.str(), saved.str(), {}, result, &report_), Status::ok) << report_.text();
  EXPECT_GT(result.losses_count + result.notes.size(), 0u);
  Result<Store> s = Store::open(saved.str());
  ASSERT_TRUE(s);
  EXPECT_EQ(s->stats().records, 300u);
  std::string value;
  EXPECT_EQ(s->get(key_of(10), value), Status::ok);
  EXPECT_EQ(value, "updated");
  EXPECT_EQ(s->get(key_of(11), value), Status::not_found);
  EXPECT_EQ(s->get(key_of(12) + "x", value), Status::ok);
}

#ifdef TENUTO_DEBUG_CHECKS
TEST_F(KeptLeafTest, an_image_without_them_counts_as_well) {
  plant("store_image_without_room_for_the_kept");
  image();
  unplant_all();
  for (int round = 0; round < 3; ++round) {
    Store s = opened();
    EXPECT_EQ(s.stats().shadow_leaves, 0u);  // the image was read
    EXPECT_EQ(s.put(key_of(7), "value"), Status::ok);
    Iterator it = s.iterator();
    int n = 0;
    for (it.seek_first(); it.valid(); it.next(), ++n) ASSERT_EQ(it.key(), key_of(n));
    EXPECT_EQ(n, 300);
    expect_valid(s);
    EXPECT_EQ(s.close(), Status::ok);
  }
}
#endif

}  // namespace
}  // namespace tenuto::test
