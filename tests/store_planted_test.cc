// Mistakes planted in the store that show without a crash. Each has a story that goes wrong with
// the mistake, and right without it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "pm/plant.h"
#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;

struct Mistake {
  const char* name;
  // Whether the story goes wrong. Where threads race, false may be luck.
  std::function<bool(Store&)> goes_wrong;
  int tries = 1;
};

void PrintTo(const Mistake& m, std::ostream* out) { *out << m.name; }

bool a_turning_cursor_forgets(Store& s) {
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(s.put(key_of(i), "old"), Status::ok);
  StoreTransaction tx = s.begin();
  {
    Iterator it = tx.iterator();
    it.seek(key_of(1));
    it.next();
    it.next();
    it.prev();
  }
  EXPECT_EQ(tx.put("sum", "mine"), Status::ok);
  EXPECT_EQ(s.put(key_of(1), "new"), Status::ok);
  return tx.commit() == Status::ok;
}

bool two_trees_get_one_name(Store& s) {
  StoreTransaction tx = s.begin();
  Result<Collection> first = tx.create("twice", {});
  EXPECT_TRUE(first);
  return static_cast<bool>(tx.create("twice", {}));
}

bool an_unborn_collection_takes_puts(Store& s) {
  StoreTransaction tx = s.begin();
  Result<Collection> fresh = tx.create("fresh", {});
  EXPECT_TRUE(fresh);
  return fresh->put("lost", "v") == Status::ok;
}

bool a_drop_passes_a_reader(Store& s) {
  Result<Collection> y = s.collection("y", CollectionOptions{});
  EXPECT_TRUE(y);
  EXPECT_EQ(y->put("k", "v"), Status::ok);
  std::atomic<int> ready{0};
  const auto meet = [&] {
    ready.fetch_add(1);
    while (ready.load() < 2) std::this_thread::yield();
  };
  Status read = Status::conflict;
  std::thread reader([&] {
    StoreTransaction tx = s.begin();
    EXPECT_EQ(tx.contains({*y, "k"}), Status::ok);
    EXPECT_EQ(tx.put("m", "read"), Status::ok);
    meet();
    read = tx.commit();
  });
  StoreTransaction tx = s.begin();
  std::string value;
  (void)tx.get("m", value);
  EXPECT_EQ(tx.drop(*y), Status::ok);
  meet();
  const Status drop = tx.commit();
  reader.join();
  return read == Status::ok && drop == Status::ok;
}

// A writer that puts a pair and then still sees the first pair put it before the erase of all
// pairs. So the erase must take that pair, too.
bool an_erase_leaves_a_pair(Store& s, bool by_batch) {
  Result<Collection> c = s.collection("pairs", CollectionOptions{.duplicates = true});
  EXPECT_TRUE(c);
  constexpr int kBefore = 300;
  for (int i = 0; i < kBefore; ++i) EXPECT_EQ(c->put("k", key_of(i)), Status::ok);
  std::atomic<bool> started{false};
  std::atomic<bool> stop{false};
  int last = 0;
  std::thread writer([&] {
    for (int i = kBefore; i < kBefore + 300 && !stop.load(); ++i) {
      EXPECT_EQ(c->put("k", key_of(i)), Status::ok);
      started = true;
      if (c->contains_pair("k", key_of(0)) == Status::ok) last = i;
      std::this_thread::yield();
    }
  });
  while (!started.load()) std::this_thread::yield();
  Status erased = Status::ok;
  if (by_batch) {
    WriteBatch batch;
    batch.erase({*c, "k"});
    erased = s.write(batch);
  } else {
    erased = c->erase("k");
  }
  stop = true;
  writer.join();
  EXPECT_EQ(erased, Status::ok);
  const bool wrong = last != 0 && c->contains_pair("k", key_of(last)) == Status::ok;
  EXPECT_EQ(s.drop("pairs"), Status::ok);
  return wrong;
}
bool an_erase_of_pairs_leaves_one(Store& s) {
  for (int i = 0; i < 50; ++i) {
    if (an_erase_leaves_a_pair(s, i % 2 == 0)) return true;
  }
  return false;
}

class StorePlanted : public test::KvFixture, public testing::WithParamInterface<Mistake> {
 protected:
  bool goes_wrong(int tries) {
    const test::TempPath path{"planted"};
    Result<Store> s = Store::open(path.str(), options_, &report_);
    EXPECT_TRUE(s) << report_.text();
    bool wrong = false;
    for (int i = 0; i < tries && !wrong; ++i) wrong = GetParam().goes_wrong(*s);
    return wrong;
  }
};

TEST_P(StorePlanted, is_found_by_its_story_and_nothing_else_is) {
  EXPECT_FALSE(goes_wrong(GetParam().tries == 1 ? 1 : 3));
#ifndef TENUTO_DEBUG_CHECKS
  GTEST_SKIP() << "mistakes are planted in builds with debug checks";
#endif
  plant(GetParam().name);
  const bool found = goes_wrong(GetParam().tries);
  unplant_all();
  EXPECT_TRUE(found);
}

INSTANTIATE_TEST_SUITE_P(
    every, StorePlanted,
    testing::Values(Mistake{"store_range_read_shrinks", a_turning_cursor_forgets},
                    Mistake{"store_pairs_erased_unread", an_erase_of_pairs_leaves_one, 500},
                    Mistake{"store_name_created_twice", two_trees_get_one_name},
                    Mistake{"store_unborn_is_there", an_unborn_collection_takes_puts},
                    Mistake{"store_drop_unannounced", a_drop_passes_a_reader, 200'000},
                    Mistake{"store_commit_lives_not_validated", a_drop_passes_a_reader, 200'000}),
    [](const auto& m) { return std::string(m.param.name); });

}  // namespace
}  // namespace tenuto
