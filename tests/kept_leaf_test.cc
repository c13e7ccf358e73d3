// What the image of a clean close keeps of each leaf (store/tree/image.h): the leaf is compared
// with it when a thread first comes there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <latch>
#include <string>
#include <thread>

#include "pm/metadata_key.h"
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
  // The leaf that is another since. The first one has also the name of the image.
  static std::size_t changed_leaf(const Bytes& before, const Bytes& after) {
    const std::vector<std::size_t> leaves = leaves_of(after);
    EXPECT_EQ(leaves, leaves_of(before));
    for (std::size_t i = 1; i < leaves.size(); ++i) {
      const auto from = static_cast<std::ptrdiff_t>(leaves[i]);
      if (!std::equal(after.begin() + from, after.begin() + from + sizeof(store::Leaf),
                      before.begin() + from)) {
        return leaves[i];
      }
    }
    ADD_FAILURE() << "no leaf has changed";
    return leaves[0];
  }
};

// The medium has lost the last write of a leaf, or of a line of it. Its older state is whole. The
// first call after the open makes the node anew: what is kept of its leaves moves along.
TEST_F(KeptLeafTest, an_older_leaf_is_not_taken_for_the_one_of_the_close) {
  using Change = std::function<void(Store&)>;
  const Change changes[] = {[](Store& s) { EXPECT_EQ(s.put(key_of(150), "updated"), Status::ok); },
                            [](Store& s) { EXPECT_EQ(s.erase(key_of(150)), Status::ok); },
                            [](Store& s) {
                              EXPECT_EQ(s.erase(key_of(150)), Status::ok);
                              EXPECT_EQ(s.put(key_of(150) + "x", "perhaps in the same slot"),
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
        const std::size_t leaf = changed_leaf(before, b);
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
        EXPECT_EQ(s.get(key_of(150), value), Status::corrupt);
        Iterator it = s.iterator();
        for (it.seek_first(); it.valid();) it.next();
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
  EXPECT_GE(lost, 10);
}

// The older first leaf names the older image, which vouches for it. Both are as they were.
TEST_F(KeptLeafTest, an_older_image_does_not_vouch_for_the_older_first_leaf) {
  const Bytes before = image();
  {
    Store s = opened();
    EXPECT_EQ(s.put(key_of(10), "updated"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Bytes b = read_image(path_.str());
  const auto is_older = [&](std::size_t from, std::size_t bytes) {
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                b.begin() + static_cast<std::ptrdiff_t>(from));
  };
  const std::size_t first = leaves_of(b)[0];
  const store::HeaderWord name{
      word_at(before, first + offsetof(store::Leaf, low.data) + sizeof(store::TreeCounts))};
  ASSERT_NE(name.value(), 0u) << "there is no image";
  is_older(first, sizeof(store::Leaf));
  is_older(name.value(), 4096);
  write_image(path_.str(), b);
  for (int open = 0; open < 2; ++open) {
    EXPECT_EQ(Store::open(path_.str(), options_, &report_).error(), Status::corrupt);
    EXPECT_NE(report_.text().find("tenuto check --repair"), std::string::npos);
  }
  // Its records are in blocks that are in use, and that no leaf names: also if no open marked it.
  for (const bool opened_before : {true, false}) {
    if (!opened_before) write_image(path_.str(), b);
    const TempPath saved{"saved"};
    RescueResult result;
    EXPECT_EQ(rescue(path_.str(), saved.str(), {}, result, &report_), Status::ok) << report_.text();
    EXPECT_GT(result.notes.size(), 0u);
    Result<Store> s = Store::open(saved.str());
    ASSERT_TRUE(s);
    std::string value;
    EXPECT_EQ(s->get(key_of(10), value), Status::ok);
    EXPECT_EQ(value, "updated");
    EXPECT_EQ(records_of(*s).size(), 300u);
  }
}

// A damaged word in the head page names no life: the leaves are read instead.
TEST_F(KeptLeafTest, a_flipped_bit_in_the_name_of_the_life_is_harmless) {
  const Bytes sound = image();
  const std::size_t word =
      pm::kHeadPageOffset + offsetof(pm::HeadPage, store) + 8 * store::kHeadImageLife;
  for (std::size_t bit = 0; bit < 64; bit += 7) {
    Bytes b = sound;
    b[word + bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    write_image(path_.str(), b);
    for (int round = 0; round < 3; ++round) {
      Store s = opened();
      EXPECT_EQ(records_of(s).size(), 300u);
      if (round == 2) expect_valid(s);  // the image that nobody read is free after a recovery
      EXPECT_EQ(s.close(), Status::ok);
    }
  }
}

// What the newest state of the leaf named is in blocks that are in use, and that no leaf names.
// What the older one names alone is in blocks that are free.
TEST_F(KeptLeafTest, a_rescue_of_an_older_leaf_has_the_newest_records) {
  const Bytes before = image();
  {
    Store s = opened();
    EXPECT_EQ(s.put(key_of(150), "updated"), Status::ok);
    EXPECT_EQ(s.erase(key_of(151)), Status::ok);
    EXPECT_EQ(s.put(key_of(152) + "x", "new"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  Bytes b = read_image(path_.str());
  const std::size_t leaf = changed_leaf(before, b);
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
  EXPECT_EQ(s->get(key_of(150), value), Status::ok);
  EXPECT_EQ(value, "updated");
  EXPECT_EQ(s->get(key_of(151), value), Status::not_found);
  EXPECT_EQ(s->get(key_of(152) + "x", value), Status::ok);
}

// The mark is one store into metadata, by whichever thread comes to the leaf, on every medium.
struct Place {
  const char* name;
  Medium medium;
  bool protected_metadata = false;
};
struct KeptLeafOn : KeptLeafTest, testing::WithParamInterface<Place> {};

TEST_P(KeptLeafOn, threads_that_meet_at_an_older_leaf_mark_the_pool) {
  const Place& place = GetParam();
  if (place.protected_metadata && !pm::has_keys()) {
    ASSERT_EQ(std::getenv("TENUTO_NEED_KEYS"), nullptr) << "the machine must have keys";
    GTEST_SKIP() << "this processor has no protection keys; tests/machine/run has some";
  }
  options_.pool.medium = place.medium;
  options_.pool.protect_metadata = place.protected_metadata;
  for (int round = 0; round < 5; ++round) {
    ::unlink((path_.str() + ".journal").c_str());
    const Bytes before = image();
    {
      Store s = opened();
      ASSERT_EQ(s.put(key_of(150), "updated"), Status::ok);
      ASSERT_EQ(s.close(), Status::ok);
    }
    Bytes b = read_image(path_.str());
    const std::size_t leaf = changed_leaf(before, b);
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(leaf), sizeof(store::Leaf),
                b.begin() + static_cast<std::ptrdiff_t>(leaf));
    write_image(path_.str(), b);
    {
      Store s = opened();
      std::latch together(2);
      const auto look = [&](int key) {
        std::string value;
        together.arrive_and_wait();
        EXPECT_EQ(s.get(key_of(key), value), Status::corrupt);
      };
      std::thread other(look, 151);
      look(150);
      other.join();
      EXPECT_EQ(s.close(), Status::corrupt);
    }
    EXPECT_EQ(Store::open(path_.str(), options_, &report_).error(), Status::corrupt);
    EXPECT_NE(report_.what.find("not the one of its last close"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Media, KeptLeafOn,
                         testing::Values(Place{"line", Medium::line}, Place{"cache", Medium::cache},
                                         Place{"journal", Medium::journal},
                                         Place{"under_a_key", Medium::line, true}),
                         [](const auto& place) { return std::string(place.param.name); });

// The zeros in the place of a page that is gone are no older leaf: the next open may read it.
TEST_F(KeptLeafTest, a_leaf_that_could_not_be_read_is_not_marked_as_lost) {
  const Bytes sound = image();
  const std::size_t page = leaves_of(sound)[0] / kFrameBytes * kFrameBytes;
  const pid_t child = ::fork();  // the pool fails
  if (child == 0) {
    Result<Store> s = open();
    std::string value;
    if (!s || ::truncate(path_.str().c_str(), static_cast<off_t>(page)) != 0) ::_exit(1);
    if (s->get(key_of(150), value) != Status::io) ::_exit(2);
    ::_exit(s->close() == Status::io ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  Bytes b = read_image(path_.str());
  ASSERT_EQ(b.size(), page);
  b.insert(b.end(), sound.begin() + static_cast<std::ptrdiff_t>(page), sound.end());
  write_image(path_.str(), b);
  Store s = opened();
  EXPECT_EQ(records_of(s).size(), 300u);
  expect_valid(s);
  EXPECT_EQ(s.close(), Status::ok);
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
