// Random operations on collections of every encoding beside a model: a map in the collection's
// order. They are walks both ways, lookups, batches, transactions, snapshots, lifetimes under a
// clock of the test, clean reopens, and processes that end without a close. TENUTO_SEED repeats a
// run.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "support/seed.h"
#include "tenuto/collection.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

using Pair = std::pair<std::string, std::string>;  // key, and value where there are duplicates

struct Shape {
  KeyOrder order;
  bool duplicates, expires;
};

std::string masked(std::string_view bytes) {
  std::string out(bytes);
  for (char& c : out) c = static_cast<char>(c ^ 0x5a);
  return out;
}

struct Before {
  KeyOrder order;
  bool operator()(const Pair& a, const Pair& b) const {
    if (order == KeyOrder::reverse || order == KeyOrder::reverse_u64) return b < a;
    if (order == KeyOrder::registered) {
      return std::pair(masked(a.first), a.second) < std::pair(masked(b.first), b.second);
    }
    return a < b;
  }
};

struct Held {
  std::string value;
  std::uint64_t gone_at;  // never, if 0
};
using Model = std::map<Pair, Held, Before>;

class CollectionEncodingRandomTest : public KvFixture, public testing::WithParamInterface<Shape> {
 protected:
  void SetUp() override {
    rng_.seed(test::test_seed());
    options_.codecs.push_back({"masked",
                               [](std::string_view key, std::string& out) {
                                 out = masked(key);
                                 return true;
                               },
                               [](std::string_view bytes, std::string& out) {
                                 out = masked(bytes);
                                 return true;
                               }});
    options_.clock_ms = [this] { return now_; };
    options_.reclaim_every_ms = 0;
  }

  std::uint64_t below(std::uint64_t n) { return rng_() % n; }
  bool numbers() const {
    return GetParam().order == KeyOrder::u64 || GetParam().order == KeyOrder::reverse_u64;
  }
  std::string any_key() {
    if (numbers()) return std::string(u64_key(below(2) == 0 ? below(40) : below(40) << 56));
    static constexpr char kLetters[] = {'\0', '\1', '\2', 'a', '\xfe', '\xff'};
    std::string key(below(4), ' ');
    for (char& c : key) c = kLetters[below(sizeof kLetters)];
    return key;
  }
  std::string any_value() {
    std::string v(below(GetParam().duplicates ? 3 : 60), '\0');
    for (char& c : v) c = static_cast<char>(below(3));
    return v;
  }
  std::uint64_t any_ttl() { return GetParam().expires && below(3) == 0 ? 1 + below(50) : 0; }
  std::uint64_t gone_at(std::uint64_t ttl) const { return ttl == 0 ? 0 : now_ + ttl; }
  bool live(const Held& h) const { return h.gone_at == 0 || h.gone_at > now_; }

  // --- the model
  Pair name_of(const std::string& key, const std::string& value) const {
    return {key, GetParam().duplicates ? value : std::string()};
  }
  void model_put(const std::string& key, const std::string& value, std::uint64_t ttl) {
    model_.insert_or_assign(name_of(key, value),
                            Held{GetParam().duplicates ? std::string() : value, gone_at(ttl)});
  }
  bool model_erase(const std::string& key) {
    bool seen = false;
    for (auto at = model_.begin(); at != model_.end();) {
      if (at->first.first != key) {
        ++at;
        continue;
      }
      seen = seen || live(at->second);
      at = model_.erase(at);
    }
    return seen;
  }
  // What users see, in the order of the collection.
  std::vector<Pair> seen() const {
    std::vector<Pair> out;
    for (const auto& [name, held] : model_) {
      if (live(held)) out.push_back({name.first, GetParam().duplicates ? name.second : held.value});
    }
    return out;
  }
  std::optional<std::string> first_of(const std::string& key) const {
    for (const Pair& p : seen()) {
      if (p.first == key) return p.second;
    }
    return std::nullopt;
  }

  // --- the collection
  Collection opened_in(Store& s) {
    const Shape& shape = GetParam();
    CollectionOptions o;
    o.order = shape.order;
    if (shape.order == KeyOrder::registered) o.codec = "masked";
    o.duplicates = shape.duplicates;
    o.expires = shape.expires;
    o.check_order = true;
    Result<Collection> c = s.collection("c", o, &report_);
    EXPECT_TRUE(c) << report_.text();
    return *c;
  }

  void change(Store& s, const Collection& given) {
    Collection c = given;
    const std::string key = any_key(), value = any_value();
    const std::uint64_t ttl = any_ttl();
    switch (below(6)) {
      case 0:
      case 1:
        model_put(key, value, ttl);
        ASSERT_EQ(c.put(key, value, {.ttl_ms = ttl}), Status::ok);
        return;
      case 2: {
        const Status expected = model_erase(key) ? Status::ok : Status::not_found;
        ASSERT_EQ(c.erase(key), expected);
        return;
      }
      case 3: {
        const auto at = model_.find(name_of(key, value));
        const bool there = at != model_.end() && live(at->second);
        if (!there) model_put(key, value, ttl);
        ASSERT_EQ(c.put_if_absent(key, value, {.ttl_ms = ttl}),
                  there ? Status::exists : Status::ok);
        return;
      }
      case 4: {
        WriteBatch batch;
        for (int i = 0; i < 5; ++i) several(batch, c);
        ASSERT_EQ(s.write(batch), Status::ok);
        return;
      }
      default:
        ASSERT_EQ(s.run([&](StoreTransaction& tx) {
          const Model before = model_;
          const bool kept = below(4) != 0;
          for (int i = 0; i < 5; ++i) {
            several(tx, c);
            expect_walk(tx.iterator(c));
          }
          if (kept) return Status::ok;
          model_ = before;
          return Status::aborted;
        }) == Status::conflict,
                  false);
    }
  }
  // One change in a batch or a transaction.
  template <class Into>
  void several(Into& into, const Collection& c) {
    const std::string key = any_key(), value = any_value();
    switch (below(3)) {
      case 0:
        model_erase(key);
        (void)into.erase({c, key});
        return;
      case 1:
        if (GetParam().duplicates) {
          model_.erase(name_of(key, value));
          (void)into.erase_pair({c, key}, value);
          return;
        }
        [[fallthrough]];
      default: {
        const std::uint64_t ttl = any_ttl();
        model_put(key, value, ttl);
        (void)into.put({c, key}, value, ttl);
      }
    }
  }

  void expect_walk(Iterator it) {
    const std::vector<Pair> expected = seen();
    std::size_t i = 0;
    for (it.seek_first(); it.valid(); it.next(), ++i) {
      ASSERT_LT(i, expected.size());
      ASSERT_EQ(Pair(it.key(), it.value()), expected[i]);
    }
    ASSERT_EQ(it.status(), Status::ok);
    ASSERT_EQ(i, expected.size());
    for (it.seek_last(); it.valid(); it.prev()) {
      ASSERT_GT(i, 0u);
      ASSERT_EQ(Pair(it.key(), it.value()), expected[--i]);
    }
    ASSERT_EQ(i, 0u);
  }
  // Seeks a random key, and walks on from there.
  void expect_seek(const Collection& c) {
    const std::vector<Pair> all = seen();
    const std::string key = any_key();
    const Before before{GetParam().order};
    const auto key_before = [&](const std::string& a, const std::string& b) {
      return a != b && before({a, {}}, {b, {}});
    };
    std::size_t first = 0;
    while (first < all.size() && key_before(all[first].first, key)) ++first;
    std::size_t behind = first;
    while (behind < all.size() && all[behind].first == key) ++behind;
    const auto stands = [&](const Iterator& it, std::size_t at) {
      ASSERT_EQ(it.status(), Status::ok);
      ASSERT_EQ(it.valid(), at < all.size());
      if (it.valid()) {
        ASSERT_EQ(Pair(it.key(), it.value()), all[at]);
      }
    };
    Iterator it = c.iterator();
    it.seek(key);
    stands(it, first);
    if (it.valid()) {
      it.next_key();
      std::size_t next = first;
      while (next < all.size() && all[next].first == all[first].first) ++next;
      stands(it, next);
    }
    it.seek_for_prev(key);
    stands(it, behind == 0 ? all.size() : behind - 1);
    if (it.valid()) {
      std::size_t last = behind - 1;
      while (last > 0 && all[last - 1].first == all[behind - 1].first) --last;
      it.prev_key();
      stands(it, last == 0 ? all.size() : last - 1);
    }
    expect_range(c, all, key_before);
  }
  template <class KeyBefore>
  void expect_range(const Collection& c, const std::vector<Pair>& all,
                    const KeyBefore& key_before) {
    IteratorOptions o;
    if (below(2) == 0) o.lower = any_key();
    if (below(2) == 0) o.upper = any_key();
    if (below(3) == 0 && GetParam().order != KeyOrder::registered && !numbers()) {
      o.prefix = any_key();
    }
    Iterator it = c.iterator(o);
    it.seek_first();
    for (const Pair& p : all) {
      if (o.lower && key_before(p.first, *o.lower)) continue;
      if (o.upper && !key_before(p.first, *o.upper)) continue;
      if (!p.first.starts_with(o.prefix)) continue;
      ASSERT_TRUE(it.valid());
      ASSERT_EQ(Pair(it.key(), it.value()), p);
      it.next();
    }
    ASSERT_FALSE(it.valid());
    ASSERT_EQ(it.status(), Status::ok);
  }
  void expect_found(const Collection& c) {
    const std::string key = any_key();
    const std::optional<std::string> expected = first_of(key);
    const Result<std::string> got = c.get(key);
    ASSERT_EQ(got.error(), expected ? Status::ok : Status::not_found);
    if (expected) {
      ASSERT_EQ(*got, *expected);
      ASSERT_EQ(c.view(key)->value(), *expected);
    }
    ASSERT_EQ(c.contains(key), expected ? Status::ok : Status::not_found);
    const std::string_view keys[] = {key};
    ASSERT_EQ(c.multi_get(keys)[0].error(), got.error());
  }

  std::mt19937_64 rng_;
  std::uint64_t now_ = 1000;
  Model model_{Before{GetParam().order}};
};

TEST_P(CollectionEncodingRandomTest, agrees_with_a_map_in_its_order) {
  for (int life = 0; life < 4; ++life) {
    Store s = opened();
    const Collection c = opened_in(s);
    expect_walk(c.iterator());
    for (int step = 0; step < 300; ++step) {
      change(s, c);
      if (HasFatalFailure()) return;
      expect_found(c);
      expect_seek(c);
      if (step % 20 == 0) expect_walk(c.iterator());
      if (step % 50 == 0) {
        const Snapshot snapshot = *s.snapshot();
        const Model then = model_;
        for (int i = 0; i < 10; ++i) change(s, c);
        const Model now = std::exchange(model_, then);
        expect_walk(snapshot.iterator(c));
        const std::string key = any_key();
        EXPECT_EQ(snapshot.contains({c, key}), first_of(key) ? Status::ok : Status::not_found);
        model_ = now;
      }
      now_ += below(3);
      if (below(40) == 0) {
        ASSERT_TRUE(s.reclaim(below(2) * 20));
      }
      if (HasFatalFailure()) return;
    }
    expect_valid(s);
    // Every other time the file is as a kill leaves it.
    const Bytes killed = read_image(path_.str());
    ASSERT_EQ(s.close(), Status::ok);
    if (life % 2 == 1) write_image(path_.str(), killed);
  }
}

std::string shape_name(const testing::TestParamInfo<Shape>& shape) {
  static constexpr const char* kNames[] = {"",        "bytes",       "u64",
                                           "reverse", "reverse_u64", "registered"};
  return std::string(kNames[static_cast<int>(shape.param.order)]) +
         (shape.param.duplicates ? "_duplicates" : "") + (shape.param.expires ? "_expires" : "");
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CollectionEncodingRandomTest,
    testing::Values(Shape{KeyOrder::bytes, false, true}, Shape{KeyOrder::bytes, true, false},
                    Shape{KeyOrder::bytes, true, true}, Shape{KeyOrder::reverse, false, false},
                    Shape{KeyOrder::reverse, true, true}, Shape{KeyOrder::u64, true, false},
                    Shape{KeyOrder::reverse_u64, false, true},
                    Shape{KeyOrder::reverse_u64, true, false},
                    Shape{KeyOrder::registered, false, true},
                    Shape{KeyOrder::registered, true, true}),
    shape_name);

}  // namespace
}  // namespace tenuto::test
