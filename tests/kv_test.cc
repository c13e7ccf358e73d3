// What the store's calls promise, and every status that they document. Others: kv_iterator_test
// (cursors), kv_full_test (full pools), kv_random_test (random operations), kv_stress (threads).
#include <gtest/gtest.h>

#include <unistd.h>

#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/kv.h"

namespace tenuto {
namespace {

using test::key_of;
using test::TempPath;

class KvTest : public test::KvFixture {};

// --- opening -------------------------------------------------------------------------------------

TEST_F(KvTest, open_obeys_create_if_missing_and_error_if_exists) {
  options_.create_if_missing = false;
  EXPECT_EQ(open().error(), Status::not_found);
  options_.create_if_missing = true;
  options_.error_if_exists = true;
  {
    Store s = opened();
    EXPECT_EQ(s.put("a", "1"), Status::ok);
  }
  EXPECT_EQ(open().error(), Status::exists);
  options_.error_if_exists = false;
  options_.create_if_missing = false;
  EXPECT_EQ(*opened().get("a"), "1");
}

// With -Wextra, which warns of members that neither the caller nor the header initialises.
TEST_F(KvTest, options_are_given_by_name_and_the_rest_has_defaults) {
  const std::string path = path_.str();
  EXPECT_EQ(Store::open(path, {.create_if_missing = false}).error(), Status::not_found);
  EXPECT_EQ(Pool::open(path, {.read_only = true}).error(), Status::not_found);
  Store s = Store::open(path, {.error_if_exists = true}).value();
  ASSERT_EQ(s.put("ab", "1", {.durability = Durability::buffered}), Status::ok);
  Iterator it = s.iterator({.prefix = "a"});
  it.seek_first();
  EXPECT_TRUE(it.valid());
  EXPECT_TRUE(s.compact({.moves_max = 1}));
  EXPECT_TRUE(BulkRecord{.key = "a"}.value.empty());
}

TEST_F(KvTest, a_pool_without_a_store_gets_one_only_when_asked) {
  { ASSERT_TRUE(Pool::create(path_.str(), options_.pool)); }
  options_.create_if_missing = false;
  EXPECT_EQ(open().error(), Status::not_found);
  options_.pool.read_only = true;
  EXPECT_NE(open().error(), Status::ok);
  options_.pool.read_only = false;
  options_.create_if_missing = true;
  Store s = opened();
  EXPECT_EQ(s.put("a", "1"), Status::ok);
  expect_valid(s);
}

TEST_F(KvTest, a_store_is_opened_in_a_pool_that_is_open) {
  {
    Result<Pool> pool = Pool::create(path_.str(), options_.pool);
    ASSERT_TRUE(pool);
    StoreOptions only = options_;
    only.create_if_missing = false;
    EXPECT_EQ(Store::open(std::move(*pool), only).error(), Status::not_found);
    EXPECT_FALSE(pool->info().has_store) << "it is the caller's still";
    Result<Store> s = Store::open(std::move(*pool), options_);
    ASSERT_TRUE(s);
    EXPECT_EQ(pool->close(), Status::closed) << "it is the store's now";
    EXPECT_EQ(s->put("key", "value"), Status::ok);
    EXPECT_EQ(Store::open(std::move(*pool), options_).error(), Status::closed);
  }
  EXPECT_EQ(opened().contains("key"), Status::ok);
}

TEST_F(KvTest, open_says_why_not) {
  EXPECT_EQ(Store::open("/nowhere/at/all", options_).error(), Status::not_found);
  EXPECT_EQ(Store::open("", options_).error(), Status::invalid_argument);
  options_.pool.size = kPoolBytesMin - 1;
  EXPECT_EQ(open().error(), Status::invalid_argument);
  options_.pool.size = kPoolBytesMin;
  Store first = opened();
  EXPECT_EQ(open().error(), Status::busy);
  EXPECT_NE(report_.text().find(path_.str()), std::string::npos) << report_.text();
}

TEST_F(KvTest, an_order_that_no_store_has_is_refused_before_anything_is_made) {
  for (const KeyOrder order : {KeyOrder::reverse, KeyOrder::registered, static_cast<KeyOrder>(7)}) {
    options_.order = order;
    EXPECT_EQ(open().error(), Status::invalid_argument);
    EXPECT_EQ(::access(path_.str().c_str(), F_OK), -1);
  }
  Pool pool = *Pool::create(path_.str(), options_.pool);
  EXPECT_EQ(Store::open(std::move(pool), options_).error(), Status::invalid_argument);
  EXPECT_FALSE(pool.info().has_store);
}

TEST_F(KvTest, an_existing_store_keeps_its_key_order) {
  { Store s = opened(); }
  options_.order = KeyOrder::u64;
  EXPECT_EQ(opened().order(), KeyOrder::bytes);
  options_.check_order = true;
  EXPECT_EQ(open().error(), Status::invalid_argument);
  options_.order = KeyOrder::bytes;
  EXPECT_EQ(opened().order(), KeyOrder::bytes);  // the refused open left no lock behind
}

TEST_F(KvTest, a_read_only_store_reads_and_refuses_writes) {
  {
    Store s = opened();
    for (int i = 0; i < 500; ++i) ASSERT_EQ(s.put(key_of(i), "value"), Status::ok);
  }
  options_.pool.read_only = true;
  {
    Store s = opened();
    EXPECT_EQ(*s.get(key_of(77)), "value");
    EXPECT_EQ(s.put(key_of(77), "other"), Status::read_only);
    EXPECT_EQ(s.put("new", "other"), Status::read_only);
    EXPECT_EQ(s.erase(key_of(77)), Status::read_only);
    WriteBatch b;
    b.put("x", "y");
    EXPECT_EQ(s.write(b), Status::read_only);
    Iterator it = s.iterator();
    it.seek_first();
    EXPECT_EQ(keys(it).size(), 500u);
    EXPECT_EQ(s.stats().records, 500u);
    EXPECT_EQ(s.close(), Status::ok);
  }
  options_.pool.read_only = false;
  expect_valid(opened());
}

TEST_F(KvTest, closed_and_moved_from_stores_answer_closed) {
  Store a = opened();
  ASSERT_EQ(a.put("k", "v"), Status::ok);
  Store b = std::move(a);
  const auto expect_closed = [](Store& s) {
    std::string value;
    WriteBatch batch;
    batch.put("a", "b");
    EXPECT_EQ(s.get("k", value), Status::closed);
    EXPECT_EQ(s.get("k").error(), Status::closed);
    EXPECT_EQ(s.view("k").error(), Status::closed);
    EXPECT_EQ(s.contains("k"), Status::closed);
    EXPECT_EQ(s.put("k", "w"), Status::closed);
    EXPECT_EQ(s.erase("k"), Status::closed);
    EXPECT_EQ(s.write(batch), Status::closed);
    EXPECT_EQ(s.write(WriteBatch()), Status::closed);
    EXPECT_EQ(s.sync(), Status::closed);
    EXPECT_EQ(s.validate(), Status::closed);
    EXPECT_EQ(s.close(), Status::closed);
    EXPECT_EQ(s.stats().records, 0u);
    Iterator it = s.iterator();
    it.seek_first();
    EXPECT_FALSE(it.valid());
    it.seek_last();
    EXPECT_FALSE(it.valid());
    EXPECT_EQ(it.status(), Status::closed);
  };
  expect_closed(a);
  EXPECT_EQ(*b.get("k"), "v");
  EXPECT_EQ(b.close(), Status::ok);
  expect_closed(b);
  // An assignment closes the store that was there.
  TempPath other("kv-other");
  b = opened();
  b = *Store::open(other.str(), options_);
  EXPECT_EQ(*opened().get("k"), "v");
}

TEST_F(KvTest, pool_closed_behind_the_stores_back_is_closed) {
  Store s = opened();
  ASSERT_EQ(s.put("k", "v"), Status::ok);
  ASSERT_EQ(s.pool().close(), Status::ok);
  EXPECT_EQ(s.put("k", "w"), Status::closed);
  EXPECT_EQ(s.get("k").error(), Status::closed);
  EXPECT_EQ(s.validate(), Status::closed);
}

// --- keys and values -----------------------------------------------------------------------------

TEST_F(KvTest, keys_from_none_to_64_kib) {
  {
    Store s = opened();
    const std::string longest(kKeyBytesMax, 'l');
    const std::string longer(kKeyBytesMax + 1, 'l');
    EXPECT_EQ(s.get("").error(), Status::not_found);
    ASSERT_EQ(s.put("", "empty key"), Status::ok);
    ASSERT_EQ(s.put("empty value", ""), Status::ok);
    ASSERT_EQ(s.put(longest, "longest"), Status::ok);
    ASSERT_EQ(s.put(std::string(3, '\0'), std::string(2, '\0')), Status::ok);
    EXPECT_EQ(s.put(longer, "x"), Status::too_large);
    EXPECT_EQ(s.get(longer).error(), Status::too_large);
    EXPECT_EQ(s.view(longer).error(), Status::too_large);
    EXPECT_EQ(s.contains(longer), Status::too_large);
    EXPECT_EQ(s.erase(longer), Status::too_large);
    WriteBatch b;
    b.put("in a batch", "x");
    b.put(longer, "x");
    EXPECT_EQ(s.write(b), Status::too_large);
    EXPECT_EQ(s.contains("in a batch"), Status::not_found);
    Iterator it = s.iterator();
    it.seek(longer);
    EXPECT_FALSE(it.valid());
    it.seek_for_prev(longer);
    ASSERT_TRUE(it.valid());
    EXPECT_EQ(it.key(), longest);
  }
  Store s = opened();
  EXPECT_EQ(*s.get(""), "empty key");
  EXPECT_EQ(*s.get("empty value"), "");
  EXPECT_EQ(*s.get(std::string(kKeyBytesMax, 'l')), "longest");
  EXPECT_EQ(*s.get(std::string(3, '\0')), std::string(2, '\0'));
  EXPECT_EQ(s.contains(std::string(2, '\0')), Status::not_found);
  EXPECT_EQ(s.erase(""), Status::ok);
  EXPECT_EQ(s.erase(""), Status::not_found);
  EXPECT_EQ(s.stats().records, 3u);
  expect_valid(s);
}

TEST_F(KvTest, many_64_kib_keys_that_differ_at_the_end) {
  options_.pool.size = 64u << 20;
  Store s = opened();
  const auto key = [](int i) { return std::string(kKeyBytesMax - 9, 'p') + key_of(i); };
  for (int i = 0; i < 150; ++i) ASSERT_EQ(s.put(key(i * 37 % 150), key_of(i)), Status::ok);
  EXPECT_GT(s.stats().leaves, 3u);
  for (int i = 0; i < 150; ++i) ASSERT_EQ(*s.get(key(i * 37 % 150)), key_of(i));
  expect_valid(s);
  for (int i = 0; i < 150; ++i) ASSERT_EQ(s.erase(key(i)), Status::ok);
  expect_valid(s);
  EXPECT_LE(s.stats().leaves, 2u);
}

TEST_F(KvTest, values_from_none_to_20_mb) {
  options_.pool.size = 64u << 20;
  const std::vector<std::size_t> sizes = {0,     1,       7,       8,       55,        56,
                                          57,    120,     121,     1000,    4087,      16 << 10,
                                          65536, 1 << 20, 5000001, 8388608, 20'000'000};
  const auto value = [](std::size_t n) {
    std::string v(n, '\0');
    for (std::size_t i = 0; i < n; i += 97) v[i] = static_cast<char>(i * 31 + n);
    return v;
  };
  {
    Store s = opened();
    for (const std::size_t n : sizes) {
      ASSERT_EQ(s.put("size " + std::to_string(n), value(n)), Status::ok) << n;
    }
    // The key's value gets other sizes.
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      ASSERT_EQ(s.put("changes", value(sizes[i])), Status::ok);
      ASSERT_EQ(*s.get("changes"), value(sizes[i]));
    }
    expect_valid(s);
  }
  Store s = opened();
  std::uint64_t bytes = 0;
  for (const std::size_t n : sizes) {
    const std::string key = "size " + std::to_string(n);
    ASSERT_TRUE(*s.get(key) == value(n)) << n;
    bytes += key.size() + n;
  }
  EXPECT_EQ(s.stats().record_bytes, bytes + 7 + sizes[sizes.size() - 2]);
  expect_valid(s);
}

TEST_F(KvTest, stats_count_records_and_bytes) {
  Store s = opened();
  ASSERT_EQ(s.put("ab", "cde"), Status::ok);
  ASSERT_EQ(s.put("f", ""), Status::ok);
  EXPECT_EQ(s.stats().records, 2u);
  EXPECT_EQ(s.stats().record_bytes, 6u);
  ASSERT_EQ(s.put("ab", "c"), Status::ok);
  EXPECT_EQ(s.stats().record_bytes, 4u);
  WriteBatch b;
  b.erase("f");
  b.erase("nobody");
  b.put("ab", "cdefg");
  b.put("new", "1");
  ASSERT_EQ(s.write(b), Status::ok);
  EXPECT_EQ(s.stats().records, 2u);
  EXPECT_EQ(s.stats().record_bytes, 7u + 4u);
  ASSERT_EQ(s.close(), Status::ok);
  Store again = opened();
  EXPECT_EQ(again.stats().records, 2u);
  EXPECT_EQ(again.stats().record_bytes, 11u);
}

TEST_F(KvTest, u64_keys_are_ordered_by_number_and_have_eight_bytes) {
  options_.order = KeyOrder::u64;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  std::map<std::uint64_t, std::string> model;
  {
    Store s = opened();
    EXPECT_EQ(s.put("1234567", "x"), Status::invalid_argument);
    EXPECT_EQ(s.put("123456789", "x"), Status::invalid_argument);
    EXPECT_EQ(s.put("", "x"), Status::invalid_argument);
    EXPECT_EQ(s.erase("123"), Status::invalid_argument);
    EXPECT_EQ(s.get("123").error(), Status::not_found);
    WriteBatch b;
    b.put(u64_key(1), "x");
    b.erase("short");
    EXPECT_EQ(s.write(b), Status::invalid_argument);
    EXPECT_EQ(s.stats().records, 0u);
    std::mt19937_64 rng(5);
    for (int i = 0; i < 2000; ++i) {
      const std::uint64_t n = i % 3 == 0 ? rng() : i % 3 == 1 ? rng() % 1000 : ~(rng() % 1000);
      model[n] = std::to_string(i);
      ASSERT_EQ(s.put(u64_key(n), model[n]), Status::ok);
    }
    for (const std::uint64_t n : {std::uint64_t{0}, kMax, kMax - 1, kMax >> 1, (kMax >> 1) + 1}) {
      model[n] = "edge";
      ASSERT_EQ(s.put(u64_key(n), "edge"), Status::ok);
    }
    expect_valid(s);
  }
  Store s = opened();
  EXPECT_EQ(s.order(), KeyOrder::u64);
  Iterator it = s.iterator();
  it.seek_first();
  for (const auto& [n, value] : model) {
    ASSERT_TRUE(it.valid());
    ASSERT_EQ(it.key(), std::string_view(u64_key(n)));
    ASSERT_EQ(u64_of_key(it.key()), n);
    ASSERT_EQ(it.value(), value);
    it.next();
  }
  EXPECT_FALSE(it.valid());
  it.seek(u64_key(kMax));
  ASSERT_TRUE(it.valid());
  EXPECT_EQ(it.key(), std::string_view(u64_key(kMax)));
  expect_valid(s);
}

TEST_F(KvTest, view_stays_as_it_was_while_its_key_is_overwritten_and_erased) {
  Store s = opened();
  const std::string first(300, 'f');
  ASSERT_EQ(s.put("key", first), Status::ok);
  Result<View> view = s.view("key");
  ASSERT_TRUE(view);
  for (int i = 0; i < 500; ++i) {  // more than are kept back before blocks are reused
    ASSERT_EQ(s.put("key", std::string(300, static_cast<char>('a' + i % 26))), Status::ok);
  }
  EXPECT_EQ(view->value(), first);
  View moved = std::move(*view);
  ASSERT_EQ(s.erase("key"), Status::ok);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(s.put(key_of(i), std::string(300, 'z')), Status::ok);
  EXPECT_EQ(moved.value(), first);
  EXPECT_EQ(s.view("key").error(), Status::not_found);
  Result<View> second = s.view(key_of(3));
  ASSERT_TRUE(second);
  moved = std::move(*second);
  EXPECT_EQ(moved.value(), std::string(300, 'z'));
  expect_valid(s);
}

// --- batches -------------------------------------------------------------------------------------

TEST_F(KvTest, batch_takes_the_last_entry_of_each_key) {
  Store s = opened();
  ASSERT_EQ(s.put("there", "old"), Status::ok);
  ASSERT_EQ(s.put("goes", "old"), Status::ok);
  WriteBatch b;
  b.put("a", "1");
  b.put("a", "2");
  b.put("b", "1");
  b.erase("b");
  b.erase("there");
  b.put("there", "new");
  b.put("goes", "new");
  b.erase("goes");
  b.erase("missing");
  EXPECT_EQ(b.count(), 9u);
  ASSERT_EQ(s.write(b), Status::ok);
  EXPECT_EQ(*s.get("a"), "2");
  EXPECT_EQ(s.contains("b"), Status::not_found);
  EXPECT_EQ(*s.get("there"), "new");
  EXPECT_EQ(s.contains("goes"), Status::not_found);
  EXPECT_EQ(s.contains("missing"), Status::not_found);
  EXPECT_EQ(s.stats().records, 2u);
  expect_valid(s);
  ASSERT_EQ(s.write(b), Status::ok);  // a batch may be written again
  b.clear();
  EXPECT_TRUE(b.empty());
  ASSERT_EQ(s.write(b), Status::ok);
  EXPECT_EQ(s.stats().records, 2u);
  expect_valid(s);
}

TEST_F(KvTest, batch_inside_a_pool_transaction_is_refused) {
  Store s = opened();
  WriteBatch b;
  b.put("a", "1");
  const Status seen = s.pool().run([&](Transaction&) {
    EXPECT_EQ(s.write(b), Status::invalid_argument);
    return Status::ok;
  });
  EXPECT_EQ(seen, Status::ok);
  EXPECT_EQ(s.contains("a"), Status::not_found);
  EXPECT_EQ(s.write(b), Status::ok);
  expect_valid(s);
}

TEST_F(KvTest, batch_of_20000_keys_into_one_leaf_and_out_again) {
  options_.pool.size = 64u << 20;
  Store s = opened();
  for (int i = 0; i < 30; ++i) ASSERT_EQ(s.put(key_of(i * 700), "old"), Status::ok);
  ASSERT_EQ(s.stats().leaves, 1u);
  WriteBatch b;
  for (int i = 0; i < 20'000; ++i) b.put(key_of(i * 7919 % 20'011), std::to_string(i));
  ASSERT_EQ(s.write(b), Status::ok);
  std::string value;
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_EQ(s.get(key_of(i * 7919 % 20'011), value), Status::ok);
    ASSERT_EQ(value, std::to_string(i));
  }
  expect_valid(s);
  ASSERT_EQ(s.close(), Status::ok);
  s = opened();
  expect_valid(s);
  b.clear();
  for (int i = 0; i < 20'011; ++i) b.erase(key_of(i));
  ASSERT_EQ(s.write(b), Status::ok);
  EXPECT_LE(s.stats().records, 30u);
  EXPECT_LE(s.stats().leaves, 2u);
  expect_valid(s);
}

// The places of 16 keys are found before the first of them splits their leaf.
TEST_F(KvTest, batch_that_splits_the_leaf_of_its_next_keys) {
  Store s = opened();
  for (int i = 0; i < 48; ++i) ASSERT_EQ(s.put(key_of(3 * i), "old"), Status::ok);
  ASSERT_EQ(s.stats().leaves, 1u);
  WriteBatch b;
  for (int i = 0; i < 16; ++i) b.put(key_of(9 * i + 1), "new");
  ASSERT_EQ(s.write(b), Status::ok);
  std::string value;
  for (int i = 0; i < 48; ++i) ASSERT_EQ(s.get(key_of(3 * i), value), Status::ok);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(s.get(key_of(9 * i + 1), value), Status::ok);
  EXPECT_EQ(s.stats().leaves, 2u);
  expect_valid(s);
}

TEST_F(KvTest, batch_of_many_ordinary_sizes_beside_a_map) {
  Store s = opened();
  std::map<std::string, std::string> model;
  std::mt19937 rng(11);
  for (int round = 0; round < 120; ++round) {
    WriteBatch b;
    for (unsigned i = 0; i < 1 + rng() % 300; ++i) {
      const std::string key = key_of(static_cast<int>(rng() % 3000));
      if (rng() % 3 == 0) {
        b.erase(key);
        model.erase(key);
      } else {
        model[key] = std::to_string(rng());
        b.put(key, model[key]);
      }
    }
    ASSERT_EQ(s.write(b), Status::ok);
    if (round % 20 == 0) expect_valid(s);
  }
  Iterator it = s.iterator();
  auto at = model.begin();
  for (it.seek_first(); it.valid(); it.next(), ++at) {
    ASSERT_NE(at, model.end());
    ASSERT_EQ(it.key(), at->first);
    ASSERT_EQ(it.value(), at->second);
  }
  EXPECT_EQ(at, model.end());
  expect_valid(s);
}

}  // namespace
}  // namespace tenuto
