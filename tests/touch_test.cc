// touch: a new lifetime for a record that keeps its value.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "support/collection_fixture.h"
#include "support/decimal_codec.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto {
namespace {

using test::key_of;

class TouchTest : public test::CollectionFixture {
 protected:
  TouchTest() {
    options_.codecs = {test::decimal()};
    options_.clock_ms = [this] { return now_.load(); };
    options_.reclaim_every_ms = 0;
  }
  Collection sessions() { return made({.expires = true}, "sessions"); }
  Collection logins() { return made({.duplicates = true, .expires = true}, "logins"); }

  std::atomic<std::uint64_t> now_{1'000'000};
};

TEST_F(TouchTest, a_record_gets_a_new_lifetime_and_keeps_its_value) {
  Collection c = sessions();
  ASSERT_EQ(c.put("k", "v", {.ttl_ms = 10}), Status::ok);
  now_ += 9;
  EXPECT_EQ(c.touch("k", {.ttl_ms = 100}), Status::ok);
  EXPECT_EQ(*c.ttl_ms("k"), 100u);
  now_ += 99;
  EXPECT_EQ(*c.get("k"), "v");
  EXPECT_EQ(c.touch("k", {.ttl_ms = 1}), Status::ok);  // also a shorter one
  now_ += 1;
  EXPECT_EQ(c.get("k").error(), Status::not_found);
  EXPECT_EQ(c.touch("k", {.ttl_ms = 100}), Status::not_found) << "it has expired";
  EXPECT_EQ(c.get("k").error(), Status::not_found);
  ASSERT_EQ(c.put("k", "", {.ttl_ms = 10}), Status::ok);
  EXPECT_EQ(c.touch("k", {.ttl_ms = 0}), Status::ok);
  now_ += 1000;
  EXPECT_EQ(*c.get("k"), "");
  EXPECT_EQ(*c.ttl_ms("k"), 0u) << "it does not expire";
  EXPECT_EQ(c.touch("k", {.ttl_ms = ~0ull}), Status::ok);
  now_ += 1'000'000;
  EXPECT_EQ(c.contains("k"), Status::ok) << "the sum does not overflow";
}

TEST_F(TouchTest, what_cannot_be_touched) {
  Collection c = sessions();
  EXPECT_EQ(c.touch("absent", {.ttl_ms = 1}), Status::not_found);
  EXPECT_EQ(c.contains("absent"), Status::not_found);
  EXPECT_EQ(c.touch(std::string(kKeyBytesMax + 1, 'k'), {.ttl_ms = 1}), Status::too_large);
  Collection plain = made({}, "plain");
  ASSERT_EQ(plain.put("k", "v"), Status::ok);
  EXPECT_EQ(plain.touch("k", {.ttl_ms = 1}), Status::invalid_argument);
  EXPECT_EQ(plain.touch("k", {}), Status::invalid_argument);
  EXPECT_EQ(s_->touch("k", {.ttl_ms = 1}), Status::invalid_argument);
  Collection numbers = made({.order = KeyOrder::u64, .expires = true}, "numbers");
  EXPECT_EQ(numbers.touch("short", {.ttl_ms = 1}), Status::invalid_argument);
  EXPECT_EQ(Collection().touch("k", {.ttl_ms = 1}), Status::closed);
  ASSERT_EQ(c.put("k", "v"), Status::ok);
  ASSERT_EQ(s_->drop("sessions"), Status::ok);
  EXPECT_EQ(c.touch("k", {.ttl_ms = 1}), Status::not_found);
  ASSERT_EQ(s_->close(), Status::ok);
  EXPECT_EQ(numbers.touch(u64_key(1), {.ttl_ms = 1}), Status::closed);
  options_.pool.read_only = true;
  s_.emplace(opened());
  EXPECT_EQ(made({}, "numbers").touch(u64_key(1), {.ttl_ms = 1}), Status::read_only);
  options_.pool.read_only = false;
}

TEST_F(TouchTest, every_order_of_keys) {
  const CollectionOptions all[] = {{.order = KeyOrder::bytes},
                                   {.order = KeyOrder::u64},
                                   {.order = KeyOrder::reverse},
                                   {.order = KeyOrder::reverse_u64},
                                   {.order = KeyOrder::registered, .codec = "decimal"}};
  for (CollectionOptions form : all) {
    for (const bool duplicates : {false, true}) {
      const bool numbers = form.order == KeyOrder::u64 || form.order == KeyOrder::reverse_u64;
      form.expires = true;
      form.duplicates = duplicates;
      Collection c =
          made(form, std::to_string(static_cast<int>(form.order)) + (duplicates ? "d" : ""));
      const auto key = [&](std::uint64_t n) {
        return numbers ? std::string(std::string_view(u64_key(n))) : std::to_string(n);
      };
      for (std::uint64_t n = 1; n < 60; ++n) {
        ASSERT_EQ(c.put(key(n), "v", {.ttl_ms = 10}), Status::ok);
      }
      for (std::uint64_t n = 1; n < 60; n += 2) {
        ASSERT_EQ(c.touch(key(n), {.ttl_ms = 50}), Status::ok);
      }
      now_ += 10;
      for (std::uint64_t n = 1; n < 60; ++n) {
        EXPECT_EQ(c.contains(key(n)), n % 2 == 1 ? Status::ok : Status::not_found) << n;
      }
    }
  }
}

TEST_F(TouchTest, all_values_of_a_key_are_touched_together) {
  Collection c = logins();
  ASSERT_EQ(c.put("a", "gone", {.ttl_ms = 5}), Status::ok);
  ASSERT_EQ(c.put("a", "1", {.ttl_ms = 10}), Status::ok);
  ASSERT_EQ(c.put("a", std::string("2\0", 2), {.ttl_ms = 20}), Status::ok);
  ASSERT_EQ(c.put("a", "3"), Status::ok);
  ASSERT_EQ(c.put(std::string("a\0", 2), "other", {.ttl_ms = 10}), Status::ok);
  now_ += 5;
  EXPECT_EQ(c.touch("a", {.ttl_ms = 100}), Status::ok);
  EXPECT_EQ(*c.count("a"), 3u) << "what had expired stays so";
  Iterator it = c.iterator({.upper = "a\1"});
  std::size_t seen = 0;
  for (it.seek_first(); it.valid(); it.next()) {
    EXPECT_EQ(it.ttl_ms(), it.value() == "other" ? 5u : 100u) << it.value();
    ++seen;
  }
  EXPECT_EQ(seen, 4u);
  EXPECT_EQ(c.touch("b", {.ttl_ms = 100}), Status::not_found);
  now_ += 100;
  EXPECT_EQ(c.touch("a", {.ttl_ms = 100}), Status::not_found);
}

TEST_F(TouchTest, it_is_as_durable_as_a_put_and_costs_its_fences) {
  options_.pool.medium = Medium::model;
  Collection c = sessions();
  ASSERT_EQ(c.put("k", "v", {.ttl_ms = 10}), Status::ok);
  const std::uint64_t fences = s_->stats().pool.fences;
  ASSERT_EQ(c.put("k", "v", {.ttl_ms = 20}), Status::ok);
  const std::uint64_t of_a_put = s_->stats().pool.fences - fences;
  ASSERT_EQ(c.touch("k", {.ttl_ms = 50}), Status::ok);
  EXPECT_EQ(s_->stats().pool.fences - fences, 2 * of_a_put);
  reopen();
  c = sessions();
  now_ += 49;
  EXPECT_EQ(*c.ttl_ms("k"), 1u);
  now_ += 1;
  EXPECT_EQ(c.contains("k"), Status::not_found);
}

TEST_F(TouchTest, a_snapshot_sees_the_old_lifetime) {
  Collection c = sessions();
  Collection d = logins();
  for (Collection* in : {&c, &d}) {
    ASSERT_EQ(in->put("k", "v", {.ttl_ms = 10}), Status::ok);
    const Snapshot before = *s_->snapshot();
    ASSERT_EQ(in->touch("k", {.ttl_ms = 100}), Status::ok);
    Iterator it = before.iterator(*in);
    it.seek_first();
    ASSERT_TRUE(it.valid());
    EXPECT_EQ(it.ttl_ms(), 10u);
    EXPECT_EQ(*before.get({*in, "k"}), "v");
    EXPECT_EQ(*in->ttl_ms("k"), 100u);
  }
}

TEST_F(TouchTest, a_transaction_touches_what_it_sees) {
  Collection c = sessions();
  Collection d = logins();
  for (Collection* in : {&c, &d}) {
    ASSERT_EQ(in->put("k", "v", {.ttl_ms = 10}), Status::ok);
    StoreTransaction tx = s_->begin();
    EXPECT_EQ(tx.touch({*in, "absent"}, 5), Status::not_found);
    ASSERT_EQ(tx.put({*in, "own"}, "1"), Status::ok);
    EXPECT_EQ(tx.touch({*in, "own"}, 7), Status::ok);
    EXPECT_EQ(tx.touch({*in, "k"}, 100), Status::ok);
    const StoreTransaction::Savepoint point = tx.savepoint();
    EXPECT_EQ(tx.touch({*in, "k"}, 1000), Status::ok);
    EXPECT_EQ(tx.rollback_to(point), Status::ok);
    EXPECT_EQ(*in->ttl_ms("k"), 10u);
    ASSERT_EQ(tx.commit(), Status::ok);
    EXPECT_EQ(tx.touch({*in, "k"}, 1), Status::closed);
    EXPECT_EQ(*in->ttl_ms("k"), 100u);
    EXPECT_EQ(*in->ttl_ms("own"), 7u);
    EXPECT_EQ(*in->get("k"), "v");
    StoreTransaction reader = s_->begin({.read_only = true});
    EXPECT_EQ(reader.touch({*in, "k"}, 1), Status::read_only);
  }
  StoreTransaction tx = s_->begin();
  EXPECT_EQ(tx.touch({made({}, "plain"), "k"}, 1), Status::invalid_argument);
}

TEST_F(TouchTest, a_touch_is_a_change_to_other_transactions) {
  Collection c = sessions();
  Collection d = logins();
  for (Collection* in : {&c, &d}) {
    ASSERT_EQ(in->put("k", "v", {.ttl_ms = 100}), Status::ok);
    StoreTransaction reader = s_->begin();
    ASSERT_EQ(reader.contains({*in, "k"}), Status::ok);
    ASSERT_EQ(reader.put({*in, "seen"}, "k"), Status::ok);
    ASSERT_EQ(in->touch("k", {.ttl_ms = 200}), Status::ok);
    EXPECT_EQ(reader.commit(), Status::conflict);

    StoreTransaction toucher = s_->begin();
    ASSERT_EQ(toucher.touch({*in, "k"}, 300), Status::ok);
    ASSERT_EQ(in->put("k", "new"), Status::ok);
    EXPECT_EQ(toucher.commit(), Status::conflict);

    StoreTransaction late = s_->begin();
    ASSERT_EQ(in->put("soon", "v", {.ttl_ms = 10}), Status::ok);
    ASSERT_EQ(late.touch({*in, "soon"}, 300), Status::ok);
    now_ += 10;
    EXPECT_EQ(late.commit(), Status::conflict) << "it had expired before the commit";
    EXPECT_EQ(in->contains("soon"), Status::not_found);
  }
  ASSERT_EQ(c.put("k", "v"), Status::ok);
  StoreTransaction holder = s_->begin();
  std::string value;
  ASSERT_EQ(holder.get_for_update({c, "k"}, value), Status::ok);
  StoreTransaction other = s_->begin();
  EXPECT_EQ(other.touch({c, "k"}, 1), Status::conflict);
}

// A touch that read the value and then put it would lose a merge in between.
TEST_F(TouchTest, no_write_is_lost_beside_touches) {
  Collection c = sessions();
  Collection d = logins();
  constexpr int kEach = 3000;
  ASSERT_EQ(c.put("n", "0"), Status::ok);
  ASSERT_EQ(d.put("n", key_of(kEach)), Status::ok);
  std::atomic<bool> stop{false};
  std::vector<std::thread> touchers;
  for (int t = 0; t < 2; ++t) {
    touchers.emplace_back([&] {
      for (std::uint64_t i = 1; !stop.load(); ++i) {
        ASSERT_EQ(c.touch("n", {.ttl_ms = 1000 + i}), Status::ok);
        const Status s = d.touch("n", {.ttl_ms = 1000 + i});
        ASSERT_TRUE(s == Status::ok || s == Status::conflict || s == Status::expired);
      }
    });
  }
  const MergeFunction next = [](std::optional<std::string_view> old) {
    return std::to_string(std::atoi(std::string(old.value_or("0")).c_str()) + 1);
  };
  for (int i = 0; i < kEach; ++i) {
    ASSERT_EQ(c.merge("n", next), Status::ok);
    ASSERT_EQ(d.put("n", key_of(i)), Status::ok);
    const Status erased = i % 2 == 0 ? d.erase_pair("n", key_of(i)) : Status::ok;
    ASSERT_EQ(erased, Status::ok);
  }
  stop = true;
  for (std::thread& t : touchers) t.join();
  EXPECT_EQ(*c.get("n"), std::to_string(kEach));
  EXPECT_EQ(*d.count("n"), static_cast<std::uint64_t>(kEach / 2 + 1));
}

TEST_F(TouchTest, what_was_touched_is_not_reclaimed) {
  Collection c = sessions();
  Collection d = logins();
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(c.put(key_of(i), "v", {.ttl_ms = 10}), Status::ok);
    ASSERT_EQ(d.put("k", key_of(i), {.ttl_ms = 10}), Status::ok);
    const Status touched = i % 2 == 0 ? c.touch(key_of(i), {.ttl_ms = 100}) : Status::ok;
    ASSERT_EQ(touched, Status::ok);
  }
  ASSERT_EQ(d.touch("k", {.ttl_ms = 100}), Status::ok);
  now_ += 10;
  EXPECT_EQ(*s_->reclaim(), 250u);
  EXPECT_EQ(c.stats().records, 250u);
  EXPECT_EQ(*d.count("k"), 500u);
  ASSERT_TRUE(s_->compact({}, &report_)) << report_.text();
  EXPECT_EQ(*c.ttl_ms(key_of(0)), 90u);
}

// Reads do not verify here. A copy of what the medium has changed must not look sound.
TEST_F(TouchTest, a_damaged_record_gets_no_new_checksum) {
  options_.verify_reads = false;
  Collection c = sessions();
  ASSERT_EQ(c.put("k", std::string(200, 'v'), {.ttl_ms = 10}), Status::ok);
  {
    const View view = *c.view("k");
    const_cast<char&>(view.value()[100]) ^= 1;
  }
  EXPECT_EQ(c.touch("k", {.ttl_ms = 100}), Status::corrupt);
  EXPECT_EQ(*c.ttl_ms("k"), 10u);
  EXPECT_EQ(s_->validate(&report_), Status::corrupt);
  s_.reset();
}

}  // namespace
}  // namespace tenuto
