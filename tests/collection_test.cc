// The promises of tenuto/collection.h and of the catalog, one by one.
#include "tenuto/collection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "store/tree/format.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;
using test::Keys;

class CollectionTest : public test::KvFixture {
 protected:
  Collection made(Store& s, std::string_view name, const CollectionOptions& o = {}) {
    Result<Collection> c = s.collection(name, o, &report_);
    EXPECT_TRUE(c) << report_.text();
    return *c;
  }
  static void fill(Collection& c, int from, int to, const std::string& value = "v") {
    for (int i = from; i < to; ++i) ASSERT_EQ(c.put(key_of(i), value), Status::ok);
  }
  static Keys names(const Store& s) {
    Keys out;
    const auto all = s.collections();
    EXPECT_TRUE(all);
    for (const CollectionInfo& i : *all) out.push_back(i.name);
    return out;
  }
  static Keys all_keys(const Collection& c) {
    Iterator it = c.iterator();
    it.seek_first();
    return keys(it);
  }
  // Works in a process that is killed: nothing is closed.
  template <class Work>
  void in_a_process_that_ends(const Work& work) {
    test::run_and_kill([&] {
      work(*new Store(opened()));
      return !HasFailure();
    });
  }
  inline static const CollectionOptions kMustExist{.create_if_missing = false};
};

TEST_F(CollectionTest, collections_have_their_own_keys) {
  Store s = opened();
  Collection a = made(s, "a");
  Collection b = made(s, "b");
  ASSERT_EQ(s.put("k", "main"), Status::ok);
  ASSERT_EQ(a.put("k", "in a"), Status::ok);
  EXPECT_EQ(b.get("k").error(), Status::not_found);
  EXPECT_EQ(*a.get("k"), "in a");
  EXPECT_EQ(*s.get("k"), "main");
  EXPECT_EQ(a.erase("k"), Status::ok);
  EXPECT_EQ(a.contains("k"), Status::not_found);
  EXPECT_EQ(s.contains("k"), Status::ok);
  expect_valid(s);
}

TEST_F(CollectionTest, they_are_listed_by_name_with_ids_of_their_own) {
  Store s = opened();
  EXPECT_TRUE(names(s).empty());
  const std::uint64_t b = made(s, "b").id();
  const std::uint64_t a = made(s, "a").id();
  EXPECT_EQ(names(s), (Keys{"a", "b"}));
  EXPECT_NE(a, b);
  EXPECT_NE(a, s.id());
  EXPECT_EQ(made(s, "a").id(), a);
}

TEST_F(CollectionTest, an_id_is_not_given_again) {
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < 3; ++i) {
    Store s = opened();
    ids.push_back(made(s, "a").id());
    ASSERT_EQ(s.drop("a"), Status::ok);
    ASSERT_EQ(s.close(), Status::ok);
  }
  in_a_process_that_ends([this](Store& s) {
    made(s, "a");
    ASSERT_EQ(s.drop("a"), Status::ok);
  });
  Store s = opened();
  EXPECT_EQ(ids[1], ids[0] + 1);
  EXPECT_EQ(ids[2], ids[1] + 1);
  EXPECT_EQ(made(s, "a").id(), ids[2] + 2);
}

TEST_F(CollectionTest, options_say_whether_it_must_be_there) {
  Store s = opened();
  EXPECT_EQ(s.collection("a", kMustExist, &report_).error(), Status::not_found);
  EXPECT_NE(report_.text().find("a"), std::string::npos);
  made(s, "a", {.error_if_exists = true});
  EXPECT_EQ(s.collection("a", {.error_if_exists = true}).error(), Status::exists);
  EXPECT_TRUE(s.collection("a", kMustExist));
  EXPECT_EQ(s.collection("").error(), Status::invalid_argument);
  EXPECT_EQ(s.collection(std::string(256, 'x')).error(), Status::invalid_argument);
  EXPECT_TRUE(s.collection(std::string(255, '\0')));
  const CollectionOptions u64{.order = KeyOrder::u64, .check_order = true};
  EXPECT_EQ(s.collection("a", u64).error(), Status::invalid_argument);
  Collection n = made(s, "n", u64);
  EXPECT_EQ(n.order(), KeyOrder::u64);
  EXPECT_EQ(n.put("three", "3"), Status::invalid_argument);
  EXPECT_EQ(n.put(u64_key(3), "3"), Status::ok);
}

TEST_F(CollectionTest, they_survive_a_clean_close_with_their_counts) {
  {
    Store s = opened();
    Collection a = made(s, "a");
    fill(a, 0, 500);
    Collection n = made(s, "n", {.order = KeyOrder::u64});
    ASSERT_EQ(n.put(u64_key(7), "seven"), Status::ok);
    made(s, "empty");
    ASSERT_EQ(s.close(), Status::ok);
  }
  for (int i = 0; i < 3; ++i) {  // the second time no collection is opened, the third time all are
    Store s = opened();
    ASSERT_TRUE(s.pool().info().was_clean);
    if (i == 1) continue;
    EXPECT_EQ(made(s, "a", kMustExist).stats().records, 500u);
    EXPECT_EQ(made(s, "a", kMustExist).stats().record_bytes, 500u * 10);
    EXPECT_EQ(*made(s, "n", kMustExist).get(u64_key(7)), "seven");
    EXPECT_EQ(made(s, "n", kMustExist).order(), KeyOrder::u64);
    EXPECT_EQ(made(s, "empty", kMustExist).stats().records, 0u);
    expect_valid(s);
  }
}

TEST_F(CollectionTest, they_survive_a_process_that_ends) {
  in_a_process_that_ends([this](Store& s) {
    Collection a = made(s, "a");
    fill(a, 0, 500);
    Collection b = made(s, "b");
    fill(b, 0, 100, std::string(300, 'b'));
    ASSERT_EQ(s.drop("b"), Status::ok);
    Collection c = made(s, "c");
    fill(c, 100, 200);
    ASSERT_EQ(s.rename("c", "d"), Status::ok);
  });
  Store s = opened();
  ASSERT_FALSE(s.pool().info().was_clean);
  expect_valid(s);
  EXPECT_EQ(names(s), (Keys{"a", "d"}));
  EXPECT_EQ(made(s, "a", kMustExist).stats().records, 500u);
  EXPECT_EQ(made(s, "a", kMustExist).stats().record_bytes, 500u * 10);
  EXPECT_EQ(all_keys(made(s, "d", kMustExist)).front(), key_of(100));
}

TEST_F(CollectionTest, a_drop_gives_the_memory_back) {
  Store s = opened();
  made(s, "first");  // this makes the catalog, too
  const std::uint64_t before = s.pool().stats().allocated_bytes;
  for (int i = 0; i < 5; ++i) {
    Collection a = made(s, "a");
    fill(a, 0, 2000, std::string(200, 'x'));
    EXPECT_GT(s.pool().stats().allocated_bytes, before + 2000 * 200);
    ASSERT_EQ(s.drop("a"), Status::ok);
    expect_valid(s);
  }
  EXPECT_LT(s.pool().stats().allocated_bytes, before + 4096);
}

TEST_F(CollectionTest, a_full_pool_takes_what_a_dropped_collection_had) {
  options_.pool.size_max = options_.pool.size;
  Store s = opened();
  Collection keep = made(s, "keep");
  for (int round = 0; round < 4; ++round) {
    Collection a = made(s, "a");
    Status full = Status::ok;
    for (int i = 0; full == Status::ok; ++i) full = a.put(key_of(i), std::string(500, 'x'));
    ASSERT_EQ(full, Status::full);
    EXPECT_GT(a.stats().records, 10'000u) << round;
    const std::optional<View> pin(*a.view(key_of(3)));
    ASSERT_EQ(s.drop("a"), Status::ok);
    EXPECT_EQ(pin->value(), std::string(500, 'x'));
    expect_valid(s);
  }
  ASSERT_EQ(keep.put("k", std::string(500, 'x')), Status::ok);
}

TEST_F(CollectionTest, handles_of_a_dropped_collection_say_so) {
  Store s = opened();
  Collection a = made(s, "a");
  fill(a, 0, 100);
  const View seen = *a.view(key_of(7));
  Iterator it = a.iterator();
  it.seek(key_of(5));
  ASSERT_EQ(s.drop("a"), Status::ok);
  EXPECT_EQ(a.status(), Status::not_found);
  EXPECT_EQ(a.put("k", "v"), Status::not_found);
  EXPECT_EQ(a.erase(key_of(1)), Status::not_found);
  EXPECT_EQ(a.get(key_of(1)).error(), Status::not_found);
  EXPECT_EQ(a.view(key_of(1)).error(), Status::not_found);
  EXPECT_EQ(a.stats().records, 0u);
  WriteBatch b;
  b.put("in main", "v");
  b.put({a, "k"}, "v");
  EXPECT_EQ(s.write(b), Status::not_found);
  EXPECT_EQ(s.contains("in main"), Status::not_found);
  // What is held stays: a view's record, and an iterator's leaf. The walk ends with that leaf.
  EXPECT_EQ(seen.value(), "v");
  const std::size_t of_the_leaf = keys(it).size();
  EXPECT_GT(of_the_leaf, 0u);
  EXPECT_LE(of_the_leaf, 48u);
  EXPECT_EQ(it.status(), Status::not_found);
  it.seek_first();
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::not_found);
  // A new collection of that name is another collection.
  Collection again = made(s, "a");
  EXPECT_EQ(again.get(key_of(1)).error(), Status::not_found);
  EXPECT_EQ(a.status(), Status::not_found);
  expect_valid(s);
}

static_assert(!std::is_copy_constructible_v<Store> && !std::is_assignable_v<Store&, Collection&>);
static_assert(std::is_nothrow_move_constructible_v<Store> &&
              std::is_nothrow_move_assignable_v<Store>);

TEST_F(CollectionTest, a_store_is_its_default_collection) {
  Store s = opened();
  fill(s, 0, 10);
  EXPECT_EQ(s.name(), "");
  EXPECT_EQ(s.id(), 0u);
  EXPECT_EQ(s.status(), Status::ok);
  const Collection handle = s;
  EXPECT_EQ(all_keys(handle), all_keys(s));

  WriteBatch batch;
  batch.put({s, "of a batch"}, "1");
  ASSERT_EQ(s.write(batch), Status::ok);
  StoreTransaction tx = s.begin();
  EXPECT_EQ(*tx.get({s, "of a batch"}), "1");
  ASSERT_EQ(tx.put({s, "of a transaction"}, "2"), Status::ok);
  ASSERT_EQ(tx.commit(), Status::ok);
  const Snapshot snapshot = *s.snapshot();
  EXPECT_EQ(*snapshot.get({s, "of a transaction"}), "2");
  EXPECT_EQ(handle.stats().records, 12u);
  EXPECT_EQ(s.stats().records, 12u);
}

TEST_F(CollectionTest, a_handle_of_a_store_leaves_it_whole_and_is_safe_without_it) {
  Store s = opened();
  Collection handle = std::move(s);  // a copy
  ASSERT_EQ(s.put("k", "v"), Status::ok);
  Store moved = std::move(s);
  EXPECT_EQ(s.get("k").error(), Status::closed);
  EXPECT_EQ(*moved.get("k"), "v");
  EXPECT_EQ(*handle.get("k"), "v");
  s = std::move(moved);
  EXPECT_EQ(moved.put("k", "w"), Status::closed);
  EXPECT_EQ(*s.get("k"), "v");
  ASSERT_EQ(s.close(), Status::ok);
  for (const Collection& c : {Collection(s), handle}) {
    EXPECT_EQ(c.status(), Status::closed);
    EXPECT_EQ(c.get("k").error(), Status::closed);
  }
  EXPECT_EQ(s.put("k", "w"), Status::closed);
  s = opened();
  EXPECT_EQ(*s.get("k"), "v");
  EXPECT_EQ(handle.get("k").error(), Status::closed)
      << "the handle is of the store that was closed";
}

TEST_F(CollectionTest, handles_outlive_the_store) {
  std::optional<Store> s(opened());
  Collection a = made(*s, "a");
  Collection main = *s;
  Iterator it = a.iterator();
  ASSERT_EQ(s->close(), Status::ok);
  s.reset();
  EXPECT_EQ(a.put("k", "v"), Status::closed);
  EXPECT_EQ(main.get("k").error(), Status::closed);
  it.seek_first();
  EXPECT_EQ(it.status(), Status::closed);
  EXPECT_EQ(Collection().status(), Status::closed);
  EXPECT_EQ(Collection().put("k", "v"), Status::closed);
}

TEST_F(CollectionTest, rename_keeps_handles_and_may_replace) {
  Store s = opened();
  Collection a = made(s, "a");
  Collection b = made(s, "b");
  fill(a, 0, 10);
  fill(b, 10, 30);
  EXPECT_EQ(s.rename("a", "b"), Status::exists);
  EXPECT_EQ(s.rename("none", "c"), Status::not_found);
  EXPECT_EQ(s.rename("a", ""), Status::invalid_argument);
  EXPECT_EQ(s.rename("a", "a"), Status::ok);
  ASSERT_EQ(s.rename("a", "c"), Status::ok);
  EXPECT_EQ(names(s), (Keys{"b", "c"}));
  EXPECT_EQ(a.name(), "c");
  ASSERT_EQ(a.put("more", "v"), Status::ok);
  ASSERT_EQ(s.rename("c", "b", {.replace = true}), Status::ok);
  EXPECT_EQ(names(s), (Keys{"b"}));
  EXPECT_EQ(b.status(), Status::not_found);
  EXPECT_EQ(made(s, "b").stats().records, 11u);
  expect_valid(s);
  ASSERT_EQ(s.close(), Status::ok);
  Store again = opened();
  EXPECT_EQ(made(again, "b", kMustExist).stats().records, 11u);
  expect_valid(again);
}

TEST_F(CollectionTest, a_batch_goes_over_collections) {
  in_a_process_that_ends([this](Store& s) {
    Collection a = made(s, "a");
    Collection b = made(s, "b");
    fill(a, 0, 100);
    WriteBatch batch;
    batch.put("main", "1");
    for (int i = 0; i < 300; ++i) batch.put({i % 2 == 0 ? a : b, key_of(i)}, "batch");
    for (int i = 1; i < 100; i += 2) batch.erase({a, key_of(i)});
    ASSERT_EQ(batch.count(), 351u);
    ASSERT_EQ(s.write(batch), Status::ok);
    EXPECT_EQ(a.stats().records, 150u);
    EXPECT_EQ(b.stats().records, 150u);
    expect_valid(s);
  });
  Store s = opened();
  EXPECT_EQ(made(s, "a").stats().records, 150u);
  EXPECT_EQ(*made(s, "b").get(key_of(1)), "batch");
  EXPECT_EQ(*s.get("main"), "1");
  expect_valid(s);
  const test::TempPath other_path("kv_other");
  Store other = *Store::open(other_path.str(), options_);
  WriteBatch wrong;
  wrong.put({made(s, "a"), "k"}, "v");
  EXPECT_EQ(other.write(wrong), Status::invalid_argument);
}

TEST_F(CollectionTest, many_collections) {
  constexpr int kMany = 400;
  options_.pool.size = 64u << 20;
  {
    Store s = opened();
    for (int i = 0; i < kMany; ++i) {
      Collection c = made(s, key_of(i));
      ASSERT_EQ(c.put("k", std::to_string(i)), Status::ok);
    }
    for (int i = 0; i < kMany; i += 3) ASSERT_EQ(s.drop(key_of(i)), Status::ok);
    expect_valid(s);
    ASSERT_EQ(s.close(), Status::ok);
  }
  in_a_process_that_ends([](Store& s) { ASSERT_EQ(s.put("k", "main"), Status::ok); });
  Store s = opened();
  EXPECT_EQ(names(s).size(), kMany - (kMany + 2) / 3u);
  for (int i = 1; i < kMany; i += 3) EXPECT_EQ(*made(s, key_of(i)).get("k"), std::to_string(i));
  expect_valid(s);
}

TEST_F(CollectionTest, a_read_only_store_reads_them) {
  {
    Store s = opened();
    Collection a = made(s, "a");
    fill(a, 0, 60);
  }
  options_.pool.read_only = true;
  Store s = opened();
  EXPECT_EQ(made(s, "a", kMustExist).stats().records, 60u);
  EXPECT_EQ(s.collection("b").error(), Status::read_only);
  EXPECT_EQ(s.drop("a"), Status::read_only);
  EXPECT_EQ(s.rename("a", "b"), Status::read_only);
}

TEST_F(CollectionTest, threads_use_make_and_drop_them_at_once) {
  options_.pool.size = 64u << 20;
  Store s = opened();
  std::atomic<bool> stop{false};
  std::atomic<int> writes{0};
  std::vector<std::thread> users;
  for (int t = 0; t < 3; ++t) {
    users.emplace_back([&, t] {
      for (int i = 0; !stop.load(); ++i) {
        Result<Collection> c = s.collection("shared");
        if (!c) continue;
        for (int k = 0; k < 60; ++k) {
          const Status put = c->put(key_of(k * 3 + t), std::to_string(i));
          ASSERT_TRUE(put == Status::ok || put == Status::not_found) << status_name(put);
          if (put != Status::ok) break;
          writes.fetch_add(1);
          std::string value;
          const Status got = c->get(key_of(k), value);
          ASSERT_TRUE(got == Status::ok || got == Status::not_found) << status_name(got);
        }
        Iterator it = c->iterator();
        for (it.seek_first(); it.valid(); it.next()) ASSERT_EQ(it.key().size(), 9u);
        ASSERT_TRUE(it.status() == Status::ok || it.status() == Status::not_found);
      }
    });
  }
  int drops = 0;
  while (drops < 50 || writes.load() < 5000) {
    const Status dropped = s.drop("shared");
    ASSERT_TRUE(dropped == Status::ok || dropped == Status::not_found);
    drops += dropped == Status::ok ? 1 : 0;
    std::this_thread::yield();
  }
  stop.store(true);
  for (std::thread& u : users) u.join();
  expect_valid(s);
}

TEST_F(CollectionTest, a_pool_without_collections_is_what_it_was) {
  {
    Store s = opened();
    ASSERT_EQ(s.put("k", "v"), Status::ok);
    EXPECT_EQ(s.drop("a"), Status::not_found);
    EXPECT_EQ(s.rename("a", "b"), Status::not_found);
  }
  const test::Bytes image = test::read_image(path_.str());
  const auto word = [&](std::size_t at) { return test::word_at(image, pm::kHeadPageOffset + at); };
  const std::size_t line = offsetof(pm::HeadPage, store);
  EXPECT_EQ(word(8 * pm::kRootCatalog), 0u);
  EXPECT_EQ(word(line + 8 * store::kHeadCatalog), 0u);
  EXPECT_EQ(word(line + 8 * store::kHeadWord) & 0xffffffff, 0x101u);
}

}  // namespace
}  // namespace tenuto
