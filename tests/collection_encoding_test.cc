// Collections with other encodings than bytes in byte order: reverse and registered orders,
// duplicates, records that expire. Each test checks one promise. collection_encoding_random_test
// runs random operations.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/collection_fixture.h"
#include "support/decimal_codec.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::Keys;
using namespace std::string_literals;
using namespace std::string_view_literals;

using Pairs = std::vector<std::pair<std::string, std::string>>;

class CollectionEncodingTest : public test::CollectionFixture {
 protected:
  CollectionEncodingTest() {
    options_.codecs = {test::decimal()};
    options_.clock_ms = [this] { return now_.load(); };
    options_.reclaim_every_ms = 0;
  }
  static Keys forwards(const Collection& c, IteratorOptions o = {}) {
    Iterator it = c.iterator(std::move(o));
    it.seek_first();
    Keys k = keys(it);
    EXPECT_EQ(it.status(), Status::ok);
    return k;
  }
  static Keys backwards(const Collection& c, IteratorOptions o = {}) {
    Iterator it = c.iterator(std::move(o));
    Keys out;
    for (it.seek_last(); it.valid(); it.prev()) out.emplace_back(it.key());
    EXPECT_EQ(it.status(), Status::ok);
    return out;
  }
  static Pairs pairs(const Collection& c) {
    Pairs out;
    Iterator it = c.iterator();
    for (it.seek_first(); it.valid(); it.next()) out.emplace_back(it.key(), it.value());
    EXPECT_EQ(it.status(), Status::ok);
    return out;
  }

  std::atomic<std::uint64_t> now_{1'000'000};
};

// --- orders --------------------------------------------------------------------------------------

TEST_F(CollectionEncodingTest, reverse_order_turns_every_walk_round) {
  Collection c = made({.order = KeyOrder::reverse});
  for (const char* k : {"a", "ab", "abc", "b", "c"}) ASSERT_EQ(c.put(k, k), Status::ok);
  EXPECT_EQ(forwards(c), (Keys{"c", "b", "abc", "ab", "a"}));
  EXPECT_EQ(backwards(c), (Keys{"a", "ab", "abc", "b", "c"}));
  Iterator it = c.iterator();
  it.seek("bb");
  EXPECT_EQ(keys(it), (Keys{"b", "abc", "ab", "a"}));
  it.seek("b");
  EXPECT_EQ(it.key(), "b");
  it.seek_for_prev("bb");  // the last key that is not behind "bb"
  EXPECT_EQ(it.key(), "c");
  it.seek_for_prev("b");
  EXPECT_EQ(it.key(), "b");
  EXPECT_EQ(*c.get("ab"), "ab");
}

TEST_F(CollectionEncodingTest, reverse_bounds_include_the_first_and_not_the_last) {
  Collection c = made({.order = KeyOrder::reverse});
  for (const char* k : {"a", "ab", "b", "c", "d"}) ASSERT_EQ(c.put(k, ""), Status::ok);
  EXPECT_EQ(forwards(c, {.prefix = {}, .lower = "c", .upper = "ab"}), (Keys{"c", "b"}));
  EXPECT_EQ(backwards(c, {.prefix = {}, .lower = "c", .upper = "ab"}), (Keys{"b", "c"}));
  EXPECT_EQ(forwards(c, {.prefix = "a", .lower = {}, .upper = {}}), (Keys{"ab", "a"}));
  EXPECT_EQ(c.lower_bound("bz")->key, "b");
  EXPECT_EQ(c.upper_bound("b")->key, "ab");
  EXPECT_EQ(*c.erase_range("c", "ab"), 2u);
  EXPECT_EQ(forwards(c), (Keys{"d", "ab", "a"}));
  EXPECT_EQ(c.approximate_count(std::nullopt, std::nullopt), 3u);
  EXPECT_EQ(*c.erase_range(std::nullopt, "d"), 0u);
  EXPECT_EQ(*c.erase_range(std::nullopt, "ab"), 1u);
  EXPECT_EQ(forwards(c), (Keys{"ab", "a"}));
}

TEST_F(CollectionEncodingTest, numbers_descend_and_are_numbers) {
  Collection c = made({.order = KeyOrder::reverse_u64});
  for (std::uint64_t n : {5ull, 1ull, ~0ull, 256ull}) ASSERT_EQ(c.put(u64_key(n), ""), Status::ok);
  EXPECT_EQ(c.put("seven", ""), Status::invalid_argument);
  const Keys descending{std::string(u64_key(~0ull)), std::string(u64_key(256)),
                        std::string(u64_key(5)), std::string(u64_key(1))};
  EXPECT_EQ(forwards(c), descending);
  reopen();
  EXPECT_EQ(forwards(made({.order = KeyOrder::reverse_u64, .check_order = true})), descending);
}

TEST_F(CollectionEncodingTest, reverse_bulk_load_takes_what_its_walks_give) {
  Collection c = made({.order = KeyOrder::reverse});
  Keys descending;
  for (int i = 999; i >= 0; --i) descending.push_back(test::key_of(i));
  std::vector<BulkRecord> records;
  for (const std::string& k : descending) records.push_back({k, k});
  ASSERT_EQ(c.bulk_load(records), Status::ok);
  EXPECT_EQ(forwards(c), descending);
}

TEST_F(CollectionEncodingTest, registered_order_is_the_codecs) {
  const CollectionOptions options{.order = KeyOrder::registered, .codec = "decimal"};
  Collection c = made(options);
  for (const char* k : {"10", "9", "-3", "100", "0"}) ASSERT_EQ(c.put(k, k), Status::ok);
  EXPECT_EQ(forwards(c), (Keys{"-3", "0", "9", "10", "100"}));
  EXPECT_EQ(backwards(c, {.prefix = {}, .lower = "0", .upper = "100"}), (Keys{"10", "9", "0"}));
  EXPECT_EQ(*c.get("-3"), "-3");
  EXPECT_EQ(c.put("ten", ""), Status::invalid_argument);
  Iterator it = c.iterator({.prefix = "1", .lower = {}, .upper = {}});
  it.seek_first();
  EXPECT_EQ(it.status(), Status::invalid_argument);
  WriteBatch batch;
  batch.put({c, "11"}, "b");
  batch.erase({c, "9"});
  ASSERT_EQ(s_->write(batch), Status::ok);
  const std::string_view wanted[] = {"11", "9", "x"};
  const auto got = c.multi_get(wanted);
  EXPECT_EQ(*got[0], "b");
  EXPECT_EQ(got[1].error(), Status::not_found);
  EXPECT_EQ(got[2].error(), Status::invalid_argument);
  EXPECT_EQ(c.codec(), "decimal");
}

TEST_F(CollectionEncodingTest, a_missing_codec_refuses_the_collection_and_nothing_else) {
  const CollectionOptions options{.order = KeyOrder::registered, .codec = "decimal"};
  ASSERT_EQ(made(options).put("5", "five"), Status::ok);
  ASSERT_EQ(s_->put("other", "x"), Status::ok);
  s_.reset();
  options_.codecs.clear();
  s_.emplace(opened());
  EXPECT_EQ(s_->collection("c", options, &report_).error(), Status::invalid_argument);
  EXPECT_NE(report_.text().find("decimal"), std::string::npos) << report_.text();
  EXPECT_EQ(*s_->get("other"), "x");
  test::TempPath copy{"copy"};
  ASSERT_EQ(s_->backup(copy.str(), &report_), Status::ok) << report_.text();
  EXPECT_EQ(s_->collection("new", options, &report_).error(), Status::invalid_argument);
  StoreOptions with = options_;
  with.codecs = {test::decimal()};
  Result<Store> other = Store::open(copy.str(), with, &report_);
  ASSERT_TRUE(other) << report_.text();
  EXPECT_EQ(*other->collection("c")->get("5"), "five");
  EXPECT_EQ(other->collection("c")->order(), KeyOrder::registered);
}

TEST_F(CollectionEncodingTest, each_codec_has_a_name_of_its_own) {
  const auto refused = [&](std::vector<KeyCodec> codecs, const std::string& name) {
    StoreOptions with = options_;
    with.codecs = std::move(codecs);
    Report report;
    EXPECT_EQ(Store::open(path_.str(), with, &report).error(), Status::invalid_argument);
    EXPECT_NE(report.text().find("codec '" + name + "'"), std::string::npos) << report.text();
  };
  KeyCodec codec = test::decimal();
  refused({codec, codec}, codec.name);
  codec.name = "";
  refused({codec}, "");
  codec.name = std::string(64, 'x');
  refused({test::decimal(), codec}, codec.name);
  s_.emplace(opened());
}

TEST_F(CollectionEncodingTest, an_existing_collection_keeps_its_form) {
  made({.duplicates = true});
  EXPECT_TRUE(made({}).duplicates());
  EXPECT_EQ(s_->collection("c", {.check_order = true}, &report_).error(), Status::invalid_argument);
  EXPECT_EQ(s_->collection("d", {.codec = "decimal"}, &report_).error(), Status::invalid_argument);
  EXPECT_EQ(s_->collection("d", {.order = static_cast<KeyOrder>(77)}, &report_).error(),
            Status::invalid_argument);
}

// --- duplicates ----------------------------------------------------------------------------------

TEST_F(CollectionEncodingTest, a_key_has_many_values_in_order) {
  Collection c = made({.duplicates = true});
  const Pairs all{{"", "v"},     {"a", ""},       {"a", "1"},    {"a", "2"},     {"a\0"s, "\0"s},
                  {"a\0"s, "0"}, {"a\0\1"s, "x"}, {"a\1"s, "y"}, {"a\xff", "z"}, {"b", "\xff\xff"}};
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    ASSERT_EQ(c.put(at->first, at->second), Status::ok);
  }
  EXPECT_EQ(c.put("a", "1"), Status::ok);  // it is there already
  EXPECT_EQ(pairs(c), all);
  EXPECT_EQ(*c.count("a"), 3u);
  EXPECT_EQ(*c.count("none"), 0u);
  EXPECT_EQ(*c.get("a"), "");
  EXPECT_EQ(c.view("b")->value(), "\xff\xff");
  EXPECT_EQ(c.contains("a\0"sv), Status::ok);
  EXPECT_EQ(c.contains("a\0\0"sv), Status::not_found);
  EXPECT_EQ(c.contains_pair("a", "2"), Status::ok);
  EXPECT_EQ(c.contains_pair("a", "3"), Status::not_found);
  EXPECT_EQ(c.put_if_absent("a", "2"), Status::exists);
  EXPECT_EQ(c.put_if_absent("a", "3"), Status::ok);
  EXPECT_EQ(c.erase_pair("a", "1"), Status::ok);
  EXPECT_EQ(c.erase_pair("a", "1"), Status::not_found);
  EXPECT_EQ(*c.count("a"), 3u);
  EXPECT_EQ(c.erase("a"), Status::ok);
  EXPECT_EQ(c.erase("a"), Status::not_found);
  EXPECT_EQ(c.contains("a"), Status::not_found);
  EXPECT_EQ(*c.get("a\0"sv), "\0"s);
  EXPECT_EQ(c.merge("b", [](auto) { return "w"; }), Status::invalid_argument);
  EXPECT_EQ(c.compare_and_swap("b", std::nullopt, "w"), Status::invalid_argument);
  EXPECT_EQ(c.put(std::string(40'000, 'k'), std::string(40'000, 'v')), Status::too_large);
}

TEST_F(CollectionEncodingTest, cursors_jump_over_the_values_of_a_key) {
  Collection c = made({.duplicates = true});
  for (const char* k : {"a", "b", "d"}) {
    for (const char* v : {"", "1", "2"}) ASSERT_EQ(c.put(k, v), Status::ok);
  }
  Iterator it = c.iterator();
  it.seek("b");
  EXPECT_EQ(it.value(), "");
  it.next_key();
  EXPECT_EQ(it.key(), "d");
  EXPECT_EQ(it.value(), "");
  it.prev_key();
  EXPECT_EQ(it.key(), "b");
  EXPECT_EQ(it.value(), "2");
  it.seek_for_prev("c");
  EXPECT_EQ(std::pair(it.key(), it.value()), std::pair("b"sv, "2"sv));
  it.seek_for_prev("a");
  EXPECT_EQ(it.value(), "2");
  it.prev_key();
  EXPECT_FALSE(it.valid());
  it.seek_pair("b", "15");
  EXPECT_EQ(it.value(), "2");
  it.next();
  EXPECT_EQ(it.key(), "d");
  it.next_key();
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::ok);
  EXPECT_EQ(forwards(c, {.prefix = {}, .lower = "b", .upper = "d"}), (Keys{"b", "b", "b"}));
  EXPECT_EQ(c.upper_bound("a")->key, "b");
  EXPECT_EQ(*c.erase_range("a", "c"), 6u);
  EXPECT_EQ(forwards(c), (Keys{"d", "d", "d"}));
}

// A seek to a key that the codec refuses is no damage: later seeks of the iterator work.
TEST_F(CollectionEncodingTest, a_refused_seek_is_forgotten_by_the_next) {
  Collection numbers = made({.order = KeyOrder::registered, .codec = "decimal"}, "numbers");
  ASSERT_EQ(numbers.put("7", "v"), Status::ok);
  const Snapshot snapshot = *s_->snapshot();
  StoreTransaction tx = s_->begin();
  for (int of = 0; of < 3; ++of) {
    Iterator it = of == 0   ? numbers.iterator()
                  : of == 1 ? snapshot.iterator(numbers)
                            : tx.iterator(numbers);
    it.seek("seven");
    EXPECT_FALSE(it.valid());
    EXPECT_EQ(it.status(), Status::invalid_argument);
    it.seek("3");
    EXPECT_TRUE(it.valid()) << of;
    EXPECT_EQ(it.status(), Status::ok);
    it.seek_pair("7", "v");
    EXPECT_EQ(it.status(), Status::invalid_argument) << "there are no pairs";
    it.seek_last();
    EXPECT_TRUE(it.valid()) << of;
    EXPECT_EQ(it.status(), Status::ok);
  }
  // Without its refused bound the iterator would show records outside it.
  Iterator it = numbers.iterator({.prefix = {}, .lower = "seven", .upper = {}});
  it.seek_first();
  EXPECT_FALSE(it.valid());
  EXPECT_EQ(it.status(), Status::invalid_argument);
}

TEST_F(CollectionEncodingTest, duplicates_in_reverse_and_of_numbers) {
  Collection r = made({.order = KeyOrder::reverse, .duplicates = true}, "r");
  for (const char* k : {"a", "ab"}) {
    for (const char* v : {"", "1"}) ASSERT_EQ(r.put(k, v), Status::ok);
  }
  EXPECT_EQ(pairs(r), (Pairs{{"ab", "1"}, {"ab", ""}, {"a", "1"}, {"a", ""}}));
  EXPECT_EQ(*r.get("ab"), "1");
  Iterator it = r.iterator();
  it.seek("ab");
  it.next_key();
  EXPECT_EQ(std::pair(it.key(), it.value()), std::pair("a"sv, "1"sv));
  it.prev_key();
  EXPECT_EQ(std::pair(it.key(), it.value()), std::pair("ab"sv, ""sv));
  Collection n = made({.order = KeyOrder::u64, .duplicates = true}, "n");
  EXPECT_EQ(n.put("x", "1"), Status::invalid_argument);
  for (std::uint64_t i : {256ull, 0ull, 255ull}) {
    for (const char* v : {"b", "a"}) ASSERT_EQ(n.put(u64_key(i), v), Status::ok);
  }
  EXPECT_EQ(n.lower_bound(u64_key(1))->key, std::string(u64_key(255)));
  EXPECT_EQ(*n.count(u64_key(256)), 2u);
}

TEST_F(CollectionEncodingTest, batches_and_transactions_know_pairs) {
  Collection c = made({.duplicates = true});
  for (const char* v : {"1", "2", "3"}) ASSERT_EQ(c.put("a", v), Status::ok);
  WriteBatch batch;
  batch.put({c, "a"}, "4");
  batch.erase({c, "a"});  // also the pair that the batch itself put
  batch.put({c, "a"}, "5");
  batch.put({c, "b"}, "1");
  batch.erase_pair({c, "b"}, "1");
  ASSERT_EQ(s_->write(batch), Status::ok);
  EXPECT_EQ(pairs(c), (Pairs{{"a", "5"}}));
  StoreTransaction tx = s_->begin();
  ASSERT_EQ(tx.put({c, "a"}, "6"), Status::ok);
  ASSERT_EQ(tx.erase({c, "a"}), Status::ok);
  EXPECT_EQ(tx.contains({c, "a"}), Status::not_found);
  ASSERT_EQ(tx.put({c, "a"}, "7"), Status::ok);
  EXPECT_EQ(*tx.get({c, "a"}), "7");
  EXPECT_EQ(*c.get("a"), "5");
  ASSERT_EQ(tx.commit(), Status::ok);
  EXPECT_EQ(pairs(c), (Pairs{{"a", "7"}}));
  StoreTransaction late = s_->begin();
  EXPECT_EQ(*late.get({c, "a"}), "7");
  ASSERT_EQ(c.put("a", "3"), Status::ok);  // now it is the first one
  ASSERT_EQ(late.put({c, "z"}, "1"), Status::ok);
  EXPECT_EQ(late.commit(), Status::conflict);
}

// Each key is replaced twice in one batch. With a look at all puts for each erase, or at all
// inserts of a leaf after each of its splits, this would take minutes.
TEST_F(CollectionEncodingTest, a_batch_replaces_many_keys_with_duplicates) {
  Collection c = made({.duplicates = true});
  Collection other = made({.duplicates = true}, "other");
  constexpr int kKeys = 50'000;
  WriteBatch batch;
  for (const char* value : {"1", "2"}) {
    for (int i = 0; i < kKeys; ++i) {
      const std::string key = std::to_string(i);
      batch.erase({c, key});
      batch.put({c, key}, value);
      batch.put({other, key}, value);
    }
  }
  ASSERT_EQ(s_->write(batch), Status::ok);
  EXPECT_EQ(c.stats().records, static_cast<std::uint64_t>(kKeys));
  EXPECT_EQ(other.stats().records, 2ull * kKeys);
  for (int i = 0; i < kKeys; ++i) ASSERT_EQ(*c.get(std::to_string(i)), "2");
}

// --- records that expire -------------------------------------------------------------------------

TEST_F(CollectionEncodingTest, what_has_expired_is_not_there) {
  Collection c = made({.expires = true});
  ASSERT_EQ(c.put("soon", "1", {.ttl_ms = 10}), Status::ok);
  ASSERT_EQ(c.put("later", "2", {.ttl_ms = 100}), Status::ok);
  ASSERT_EQ(c.put("never", "3"), Status::ok);
  EXPECT_EQ(*c.ttl_ms("soon"), 10u);
  EXPECT_EQ(*c.ttl_ms("never"), 0u);
  now_ += 9;
  EXPECT_EQ(*c.get("soon"), "1");
  const Snapshot before = *s_->snapshot();
  now_ += 1;
  EXPECT_EQ(c.get("soon").error(), Status::not_found);
  EXPECT_EQ(c.contains("soon"), Status::not_found);
  EXPECT_EQ(c.view("soon").error(), Status::not_found);
  EXPECT_EQ(c.ttl_ms("soon").error(), Status::not_found);
  EXPECT_EQ(c.erase("soon"), Status::not_found);
  EXPECT_EQ(*before.get({c, "soon"}), "1") << "its moment includes its time";
  EXPECT_EQ(forwards(c), (Keys{"later", "never"}));
  EXPECT_EQ(backwards(c), (Keys{"never", "later"}));
  EXPECT_EQ(c.compare_and_swap("soon", "1", "x"), Status::conflict);
  EXPECT_EQ(c.put_if_absent("soon", "4", {.ttl_ms = 50}), Status::ok);
  EXPECT_EQ(*c.get("soon"), "4");
  EXPECT_EQ(c.merge("later", [](auto old) { return std::string(*old) + "!"; }, {.ttl_ms = 5}),
            Status::ok);
  EXPECT_EQ(*c.ttl_ms("later"), 5u);
  EXPECT_EQ(c.view("later")->value(), "2!");
  Iterator it = c.iterator();
  it.seek("never");
  EXPECT_EQ(it.ttl_ms(), 0u);
}

TEST_F(CollectionEncodingTest,
       lifetimes_outlive_the_process_and_batches_and_transactions_give_them) {
  Collection c = made({.expires = true});
  WriteBatch batch;
  batch.put({c, "batch"}, "1", 20);
  EXPECT_EQ(s_->write(batch, {.ttl_ms = 20}), Status::invalid_argument);
  StoreTransaction refused = s_->begin();
  ASSERT_EQ(refused.put({c, "refused"}, "1"), Status::ok);
  EXPECT_EQ(refused.commit({.ttl_ms = 20}), Status::invalid_argument);
  EXPECT_EQ(c.contains("refused"), Status::not_found);
  ASSERT_EQ(s_->write(batch), Status::ok);
  ASSERT_EQ(s_->run([&](StoreTransaction& tx) { return tx.put({c, "tx"}, "2", 30); }), Status::ok);
  test::TempPath copy{"copy"};
  ASSERT_EQ(s_->backup(copy.str(), &report_), Status::ok) << report_.text();
  reopen();
  c = made({});
  now_ += 25;
  EXPECT_EQ(forwards(c), (Keys{"tx"}));
  Result<Store> other = Store::open(copy.str(), options_, &report_);
  ASSERT_TRUE(other) << report_.text();
  EXPECT_EQ(other->collection("c")->get("batch").error(), Status::not_found);
  EXPECT_EQ(*other->collection("c")->get("tx"), "2");
  now_ += 5;
  StoreTransaction tx = s_->begin();
  EXPECT_EQ(tx.contains({c, "tx"}), Status::not_found);
  EXPECT_EQ(s_->put("x", "", {.ttl_ms = 1}), Status::invalid_argument);
  EXPECT_EQ(made({}, "plain").put("x", "", {.ttl_ms = 1}), Status::invalid_argument);
}

TEST_F(CollectionEncodingTest, reclaim_erases_what_has_expired_in_steps) {
  Collection a = made({.expires = true}, "a");
  Collection b = made({.duplicates = true, .expires = true}, "b");
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(a.put(test::key_of(i), "v", {.ttl_ms = i % 3 == 0 ? 10u : 0u}), Status::ok);
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(b.put("k", test::key_of(i), {.ttl_ms = 10}), Status::ok);
  }
  EXPECT_EQ(*s_->reclaim(), 0u);
  now_ += 10;
  EXPECT_EQ(*b.count("k"), 0u);
  EXPECT_EQ(b.stats().records, 100u);
  std::uint64_t erased = 0;
  for (int step = 0; step < 4; ++step) erased += *s_->reclaim(1000);
  EXPECT_EQ(erased, 1100u);
  EXPECT_EQ(a.stats().records, 2000u);
  EXPECT_EQ(b.stats().records, 0u);
  EXPECT_EQ(*s_->reclaim(), 0u);
}

TEST_F(CollectionEncodingTest, a_thread_reclaims_also_after_a_reopen) {
  options_.reclaim_every_ms = 1;
  ASSERT_EQ(made({.expires = true}).put("k", "v", {.ttl_ms = 10}), Status::ok);
  reopen();
  now_ += 10;
  // No call opened the collection: the reclaim thread finds it by itself.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto left = [&] { return s_->collection("c")->stats().records; };
  while (left() != 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(left(), 0u);
}

}  // namespace
}  // namespace tenuto
