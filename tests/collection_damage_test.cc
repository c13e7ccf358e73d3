// Pools with collections whose catalog or leaves are damaged: nothing crashes, nothing is lost
// without a report, and a rescue brings back what is intact under its own name.
// TENUTO_SEED sets the seed, TENUTO_MUTANTS how many random damages are tried.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "pm/plant.h"
#include "store/kv/catalog.h"
#include "store/tree/format.h"
#include "store/tree/record.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"
#include "support/seed.h"
#include "tenuto/collection.h"
#include "tenuto/rescue.h"

namespace tenuto::test {
namespace {

using World = std::map<std::string, Records>;

class CollectionDamage : public KvFixture {
 protected:
  CollectionDamage() {
    options_.pool.size = 8u << 20;
    options_.pool.recovery_threads = 1;
    rescue_.pool = options_.pool;
  }

  void fill(Store& s, World& now) {
    put(s, now[""], 0, 300, "main");
    for (const char* name : {"a", "b", "dropped", "old name"}) {
      Result<Collection> c = s.collection(name);
      ASSERT_TRUE(c);
      put(*c, now[name], 0, 200, name);
    }
    Result<Collection> u64 = s.collection("u64", {.order = KeyOrder::u64});
    ASSERT_TRUE(u64);
    for (std::uint64_t i = 0; i < 100; ++i) {
      ASSERT_EQ(u64->put(u64_key(i), "number"), Status::ok);
      now["u64"].emplace(std::string_view(u64_key(i)), "number");
    }
    ASSERT_EQ(s.drop("dropped"), Status::ok);
    now.erase("dropped");
    ASSERT_EQ(s.rename("old name", "new name"), Status::ok);
    now["new name"] = now["old name"];
    now.erase("old name");
    ASSERT_TRUE(s.collection("empty"));
    now["empty"];
  }
  static void put(Collection c, Records& now, int from, int to, const std::string& value) {
    for (int i = from; i < to; ++i) {
      const std::string v = value + std::string(static_cast<std::size_t>(i % 90), 'x');
      ASSERT_EQ(c.put(key_of(i * 7919 % 100'003), v), Status::ok);
      now[key_of(i * 7919 % 100'003)] = v;
    }
  }

  Bytes image(bool clean) {
    ::unlink(path_.str().c_str());
    world_.clear();
    const auto use = [&] {
      Result<Store> s = open();
      if (!s) return false;
      fill(*s, world_);
      if (!clean) std::_Exit(HasFailure() ? 1 : 0);
      return s->close() == Status::ok && !HasFailure();
    };
    if (clean) {
      EXPECT_TRUE(use());
    } else {
      run_and_kill(use);
      TempPath other("twin");
      Result<Store> s = Store::open(other.str(), options_);
      fill(*s, world_);
    }
    return read_image(path_.str());
  }

  static World world_of(Store& s) {
    World all;
    all[""] = records_of(s);
    const auto names = s.collections();
    if (!names) return all;
    for (const CollectionInfo& info : *names) {
      Result<Collection> c = s.collection(info.name, CollectionOptions{.create_if_missing = false});
      if (!c) continue;
      Iterator it = c->iterator();
      Records& records = all[info.name];
      for (it.seek_first(); it.valid(); it.next()) records.emplace(it.key(), it.value());
    }
    return all;
  }

  Status rescue_image(const Bytes& b) {
    write_image(path_.str(), b);
    ::unlink(fresh_.str().c_str());
    const Status s = rescue(path_.str(), fresh_.str(), rescue_, result_, &report_);
    EXPECT_EQ(read_image(path_.str()), b) << "the damaged file was changed";
    rescued_.clear();
    if (::access(fresh_.str().c_str(), F_OK) != 0) return s;
    Result<Store> made = Store::open(fresh_.str(), options_, &report_);
    EXPECT_TRUE(made) << report_.text();
    if (!made) return s;
    EXPECT_EQ(made->validate(&report_), Status::ok) << report_.text();
    rescued_ = world_of(*made);
    return s;
  }

  static std::size_t line() { return pm::kHeadPageOffset + offsetof(pm::HeadPage, store); }
  std::size_t catalog_of(const Bytes& b) {
    return store::HeaderWord{word_at(b, line() + 8 * store::kHeadCatalog)}.value();
  }
  static void set_word(Bytes& b, std::size_t at, std::uint64_t w) { std::memcpy(&b[at], &w, 8); }

  TempPath fresh_{"rescued"};
  RescueOptions rescue_;
  RescueResult result_;
  World world_, rescued_;
};

TEST_F(CollectionDamage, an_intact_pool_comes_back_whole) {
  for (const bool clean : {true, false}) {
    const Bytes b = image(clean);
    EXPECT_EQ(rescue_image(b), Status::ok) << report_.text();
    EXPECT_EQ(rescued_, world_) << clean;
    EXPECT_EQ(result_.collections, 5u);
    std::uint64_t records = 0;
    for (const auto& [name, all] : world_) records += all.size();
    EXPECT_EQ(result_.records, records);
    if (clean) {
      EXPECT_EQ(result_.expected, records);
    }
  }
}

TEST_F(CollectionDamage, a_damaged_name_of_the_catalog_is_an_error_and_costs_nothing) {
  for (const bool clean : {true, false}) {
    for (const std::size_t at :
         {line() + 8 * store::kHeadCatalog, line() + 8 * store::kHeadNextId,
          line() + 8 * store::kHeadWord, pm::kHeadPageOffset + 8 * pm::kRootCatalog}) {
      Bytes b = image(clean);
      // A crash may leave a catalog without its second name, so that one is set to a wrong offset.
      const bool root = at == pm::kHeadPageOffset + 8 * pm::kRootCatalog;
      set_word(b, at, root ? 4096 : 0);
      write_image(path_.str(), b);
      EXPECT_EQ(open().error(), Status::corrupt) << at;
      EXPECT_NE(report_.what, "");
      static_cast<void>(rescue_image(b));
      EXPECT_EQ(rescued_, world_) << at << " " << clean;
    }
  }
}

TEST_F(CollectionDamage, a_damaged_catalog_is_told_and_the_default_collection_is_there) {
  for (const bool clean : {true, false}) {
    Bytes b = image(clean);
    const std::size_t at = catalog_of(b);
    ASSERT_NE(at, 0u);
    std::fill_n(b.begin() + static_cast<std::ptrdiff_t>(at), sizeof(store::Leaf), 0);
    write_image(path_.str(), b);
    EXPECT_EQ(open().error(), Status::corrupt);
    EXPECT_EQ(rescue_image(b), Status::corrupt);
    EXPECT_EQ(rescued_[""], world_[""]);
    const bool told =
        std::any_of(result_.losses.begin(), result_.losses.end(), [](const RescueLoss& l) {
          return l.report.what.find("collections may be missing") != std::string::npos;
        });
    EXPECT_TRUE(told);
    if (clean) {
      EXPECT_GE(rescued_[kLostAndFound].size(), 100u);
    }
  }
}

TEST_F(CollectionDamage, an_entry_of_the_catalog_that_is_damaged_while_the_store_is_open_is_told) {
  const Bytes b = image(true);
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  Bytes entry(sizeof(store::CatalogRecord));
  const std::string name = "new name";
  const auto at = std::search(b.begin(), b.end(), name.begin(), name.end());
  ASSERT_NE(at, b.end());
  // Writes the file under the store's mapping, which shows the page cache.
  const int fd = ::open(path_.str().c_str(), O_RDWR);
  const auto value_at = static_cast<off_t>(at - b.begin()) + static_cast<off_t>(name.size());
  ASSERT_EQ(::pwrite(fd, entry.data(), entry.size(), value_at), static_cast<ssize_t>(entry.size()));
  ::close(fd);
  Report report;
  EXPECT_EQ(s->collection(name, &report).error(), Status::corrupt);
  EXPECT_NE(report.what, "");
  Report of_list;
  EXPECT_EQ(s->collections(&of_list).error(), Status::corrupt);
  EXPECT_NE(of_list.what, "");
}

// Sets the words that version 0.1.0 wrote for stores and collections that commit with one fence.
void say_store_has_one_fence(Bytes& b, std::size_t store_line) {
  std::uint64_t* words = reinterpret_cast<std::uint64_t*>(&b[store_line]);
  const store::StoreWord word{words[store::kHeadWord]};
  words[store::kHeadWord] =
      store::StoreWord::make(word.order(), word.has_catalog(), {words[store::kHeadFirstLeaf]},
                             store::StoreWord::kOneFence)
          .raw;
}
void say_collection_has_one_fence(Bytes& b, const std::string& name) {
  store::RecordHead head;
  store::CatalogRecord entry;
  const std::size_t fixed = sizeof head + name.size();
  for (auto at = b.begin();; ++at) {
    at = std::search(at, b.end(), name.begin(), name.end());
    ASSERT_NE(at, b.end());
    std::memcpy(&head, &*at - sizeof head, sizeof head);
    std::memcpy(&entry, &*at + name.size(), sizeof entry);
    if (head.key_bytes() != name.size() || head.value_field() != sizeof entry) continue;
    entry.version = store::CatalogRecord::kVersionWithOneFence;
    entry.flags |= store::CatalogRecord::kOneFence;
    const std::uint32_t crc = pm::crc32c(name.data(), name.size(), ~0u);
    const auto* bytes = reinterpret_cast<const char*>(&entry);
    entry.check = pm::crc32c(bytes, offsetof(store::CatalogRecord, check), crc);
    head = store::RecordHead::make(name.size(), sizeof entry,
                                   store::record_check({}, name, {bytes, sizeof entry}));
    std::memcpy(&*at - sizeof head, &head, sizeof head);
    std::memcpy(&*at + name.size(), bytes, sizeof entry);
    ASSERT_LE(fixed + sizeof entry, kLineBytes);
    return;
  }
}

TEST_F(CollectionDamage, what_version_0_1_0_made_with_one_fence_is_refused_and_left_as_it_is) {
  for (const bool clean : {true, false}) {
    for (const bool of_store : {true, false}) {
      Bytes b = image(clean);
      if (of_store) {
        say_store_has_one_fence(b, line());
      } else {
        say_collection_has_one_fence(b, "new name");
      }
      write_image(path_.str(), b);
      EXPECT_EQ(open().error(), Status::wrong_version) << clean << of_store;
      for (const char* words : {of_store ? "the store" : "collection new name", "one fence",
                                "dump it with version 0.1.0"}) {
        EXPECT_NE(report_.what.find(words), std::string::npos) << report_.text();
      }
      EXPECT_EQ(Store::open(path_.str(), options_).error(), Status::wrong_version);
      if (of_store) {
        EXPECT_EQ(Pool::open(path_.str(), options_.pool).error(), Status::wrong_version);
      }
      EXPECT_EQ(rescue_image(b), Status::wrong_version);
      EXPECT_NE(report_.what.find("version 0.1.0"), std::string::npos) << report_.text();
    }
  }
}

// A page may have been written to the wrong place.
TEST_F(CollectionDamage, a_whole_record_in_the_place_of_another_is_not_handed_out) {
  Bytes b = image(true);
  const auto place = [&](const std::string& key) {
    const std::string start = key + "main";  // of a record in the default collection
    return std::search(b.begin(), b.end(), start.begin(), start.end()) - b.begin() - 8;
  };
  // Two records whose values have the same length.
  const auto one = place(key_of(100 * 7919 % 100'003));
  const auto other = place(key_of(190 * 7919 % 100'003));
  const std::ptrdiff_t bytes = 8 + 9 + 4 + 100 % 90;
  ASSERT_LT(std::max(one, other) + bytes, static_cast<std::ptrdiff_t>(b.size()));
  std::swap_ranges(b.begin() + one, b.begin() + one + bytes, b.begin() + other);
  write_image(path_.str(), b);
  Result<Store> s = open();
  ASSERT_TRUE(s) << report_.text();
  std::size_t seen = 0;
  std::string last;
  Iterator it = s->iterator();
  for (it.seek_first(); it.valid(); it.next(), ++seen) {
    EXPECT_LT(last, it.key());
    last = it.key();
  }
  EXPECT_EQ(it.status(), Status::corrupt);
  EXPECT_LT(seen, world_[""].size());
}

TEST_F(CollectionDamage, a_damaged_collection_leaves_the_others_whole) {
  Bytes b = image(true);
  // The first leaf that names the first collection as its owner.
  for (std::size_t at = 0; at + sizeof(store::Leaf) <= b.size(); at += 64) {
    store::Leaf leaf;
    std::memcpy(&leaf, &b[at], sizeof leaf);
    const store::HeaderWord next = leaf.head.next;
    if (!leaf.low.may_be_of(store::kFirstCollection) || leaf.low.bytes() != 0 ||
        next.value() == 0 ||
        next.raw != store::HeaderWord::make(next.value(), at % pm::kMapAlignBytes + 8).raw) {
      continue;
    }
    set_word(b, at, ~0ull);
    break;
  }
  write_image(path_.str(), b);
  {
    Store s = opened();  // no call has asked for it yet
    EXPECT_EQ(records_of(s), world_[""]);
    const Result<Collection> a = s.collection("a", CollectionOptions{}, &report_);
    ASSERT_TRUE(a);  // no call has come to its first leaf yet
    std::string value;
    EXPECT_EQ(a->get("", value), Status::corrupt);
    EXPECT_TRUE(s.collection("b"));
    EXPECT_EQ(s.validate(&report_), Status::corrupt);
  }
  static_cast<void>(rescue_image(b));
  EXPECT_EQ(rescued_, world_);  // after a clean close the bits say which blocks are allocated
}

TEST_F(CollectionDamage, random_damage_never_crashes_and_never_brings_old_records) {
  std::mt19937_64 rng(test::from_env("TENUTO_SEED", 1));
  const auto count = static_cast<int>(test::from_env("TENUTO_MUTANTS", 60));
  const Bytes clean = image(true);
  const World world = world_;
  std::vector<std::size_t> used;
  for (std::size_t at = 0; at + 64 <= clean.size(); at += 64) {
    const auto line_at = clean.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::any_of(line_at, line_at + 64, [](unsigned char c) { return c != 0; })) {
      used.push_back(at);
    }
  }
  for (int i = 0; i < count; ++i) {
    Bytes b = clean;
    for (std::uint64_t n = rng() % 3 + 1; n > 0; --n) {
      // Half of them are in the catalog's leaf or the head page.
      const std::size_t near = rng() % 2 == 0 ? catalog_of(clean) : pm::kHeadPageOffset;
      const std::size_t at = rng() % 2 == 0 ? used[rng() % used.size()] : near + rng() % 8 * 64;
      if (rng() % 2 == 0) {
        b[at + rng() % 64] ^= static_cast<unsigned char>(1u << rng() % 8);
      } else {
        std::fill_n(b.begin() + static_cast<std::ptrdiff_t>(at), 64, static_cast<unsigned char>(0));
      }
    }
    write_image(path_.str(), b);
    if (Result<Store> s = open()) {
      // A store that validates holds everything that was there.
      if (s->validate(&report_) == Status::ok) {
        EXPECT_EQ(world_of(*s), world) << "damage " << i;
      }
    }
    static_cast<void>(rescue_image(b));
    for (const auto& [name, records] : rescued_) {
      if (name == kLostAndFound) continue;
      const auto there = world.find(name);
      ASSERT_NE(there, world.end()) << name;
      for (const auto& [key, value] : records) {
        const auto at = there->second.find(key);
        ASSERT_TRUE(at != there->second.end() && at->second == value) << name << ": " << key;
      }
    }
    if (::testing::Test::HasFailure()) return;
  }
}

// A flipped bit makes a slot of `a` name a record of `b`. The drop of `a` leaves that record alone.
TEST_F(CollectionDamage, a_drop_does_not_give_back_what_is_anothers) {
  const auto lose_through_a_drop = [&] {
    Bytes b = image(true);
    const auto place_of = [&](const auto& record) {
      const std::string text = record.first + record.second;
      return static_cast<std::uint64_t>(std::search(b.begin(), b.end(), text.begin(), text.end()) -
                                        b.begin()) -
             8;
    };
    const std::uint64_t mine = place_of(*world_["a"].begin());
    const std::uint64_t others = place_of(*world_["b"].rbegin());
    EXPECT_LT(std::max(mine, others), b.size() - 8);
    for (std::size_t at = 0; at + 8 <= b.size(); at += 8) {
      const std::uint64_t word = word_at(b, at);
      const store::SlotWord slot{word};
      if (slot.record().value != mine || slot.hash() == 0) continue;
      const store::SlotWord changed = store::SlotWord::make({others}, slot.hash());
      std::memcpy(b.data() + at, &changed, sizeof changed);
    }
    write_image(path_.str(), b);
    Store s = opened();
    EXPECT_EQ(s.drop("a"), Status::ok);
    Status put = Status::ok;  // puts that reuse free memory
    for (int i = 0; i < 20'000 && put == Status::ok; ++i) {
      put = s.put("x" + key_of(i), std::string(static_cast<std::size_t>(i % 90), 'y'));
    }
    const bool lost = world_of(s)["b"] != world_["b"];
    EXPECT_TRUE(lost || put == Status::read_only || put == Status::corrupt);
    return lost;
  };
  EXPECT_FALSE(lose_through_a_drop());
#ifdef TENUTO_DEBUG_CHECKS
  plant("store_leaf_not_compared_with_the_kept");  // as after a crash, or while the store is open
  EXPECT_FALSE(lose_through_a_drop());
  plant("store_drop_frees_what_is_not_its_own");
  EXPECT_TRUE(lose_through_a_drop());
  unplant_all();
#endif
}

}  // namespace
}  // namespace tenuto::test
