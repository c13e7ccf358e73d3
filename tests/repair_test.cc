// The rescue of damaged pools (tenuto/rescue.h). What is intact comes back. What was erased or
// replaced does not. The damaged file stays as it is, and losses are named. TENUTO_RESCUES sets how
// many random damages are tried, TENUTO_SEED the seed.
#include "tenuto/rescue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/pool_image.h"
#include "support/seed.h"
#include "tenuto/collection.h"

namespace tenuto::test {
namespace {

constexpr int kKeys = 1500;

std::string key_of(int n) {
  char text[24];
  std::snprintf(text, sizeof text, "key%08d", n);
  return text;
}
std::string value_of(int n, int version) {
  return "value " + std::to_string(n) + " version " + std::to_string(version) + " " +
         std::string(static_cast<std::size_t>(n % 90), static_cast<char>('a' + version % 26));
}

class Repair : public testing::Test {
 protected:
  Repair() {
    options_.pool.size = 8u << 20;
    options_.pool.size_max = 64u << 20;
    options_.pool.medium = Medium::cache;
    options_.pool.recovery_threads = 1;
    rescue_.pool = options_.pool;
  }

  // Inserts in mixed order, then updates and erases, so that freed blocks hold old records.
  void fill(Store& s, Records& now) {
    std::mt19937 random(7);
    for (int i = 0; i < kKeys; ++i) write(s, now, (i * 7919) % kKeys, 0);
    for (int i = 0; i < kKeys; ++i) {
      const int n = static_cast<int>(random() % kKeys);
      if (i % 3 == 0) {
        ASSERT_EQ(s.erase(key_of(n)), now.erase(key_of(n)) == 1 ? Status::ok : Status::not_found);
      } else {
        write(s, now, n, i);
      }
    }
  }
  static void write(Store& s, Records& now, int n, int version) {
    ASSERT_EQ(s.put(key_of(n), value_of(n, version)), Status::ok);
    now[key_of(n)] = value_of(n, version);
  }

  // The filled pool's file, after a close or a kill.
  Bytes image(bool clean) {
    Records& now = records_;
    const auto use = [&] {
      Result<Store> s = Store::open(path_.str(), options_);
      if (!s) return false;
      fill(*s, now);
      if (!clean) std::_Exit(0);  // without its destructor, which would close it
      return s->close() == Status::ok;
    };
    ::unlink(path_.str().c_str());
    now.clear();
    if (clean) {
      EXPECT_TRUE(use());
    } else {
      run_and_kill(use);
      // The child's records come from the same operations on another pool.
      TempPath other("twin");
      Result<Store> s = Store::open(other.str(), options_);
      EXPECT_TRUE(s);
      fill(*s, now);
    }
    return read_image(path_.str());
  }

  Status rescue_image(const Bytes& b) {
    write_image(path_.str(), b);
    ::unlink(fresh_.str().c_str());
    const Status s = rescue(path_.str(), fresh_.str(), rescue_, result_, &report_);
    EXPECT_EQ(read_image(path_.str()), b) << "the damaged file was changed";
    rescued_.clear();
    found_.clear();
    if (::access(fresh_.str().c_str(), F_OK) != 0) return s;
    Result<Store> made = Store::open(fresh_.str(), options_, &report_);
    EXPECT_TRUE(made) << report_.text();
    if (!made) return s;
    EXPECT_EQ(made->validate(&report_), Status::ok) << report_.text();
    rescued_ = records_of(*made);
    take_found(*made);
    EXPECT_EQ(rescued_.size() + found_.size(), result_.records);
    return s;
  }

  // Records without a collection, which damage of the catalog may leave.
  void take_found(Store& made) {
    const auto all = made.collections();
    ASSERT_TRUE(all);
    for (const CollectionInfo& info : *all) {
      ASSERT_EQ(info.name, kLostAndFound);
      const Result<Collection> c = made.collection(info.name);
      ASSERT_TRUE(c);
      Iterator it = c->iterator();
      for (it.seek_first(); it.valid(); it.next()) found_.emplace(it.key(), it.value());
      ASSERT_EQ(it.status(), Status::ok);
    }
  }

  // Every record that came back is current.
  void expect_nothing_old() {
    for (const Records* back : {&rescued_, &found_}) {
      for (const auto& [key, value] : *back) {
        const auto it = records_.find(key);
        ASSERT_TRUE(it != records_.end()) << key << " was erased";
        ASSERT_EQ(value, it->second) << key;
      }
    }
  }
  std::size_t lost() const { return records_.size() - rescued_.size(); }
  // Every missing key is in a range that was reported as lost.
  void expect_losses_named() {
    for (const auto& [key, value] : records_) {
      if (rescued_.contains(key)) continue;
      const bool named = std::any_of(result_.losses.begin(), result_.losses.end(),
                                     [&k = key](const RescueLoss& l) {
                                       return l.about_keys && l.from <= k && (!l.to || k < *l.to);
                                     });
      EXPECT_TRUE(named) << key;
    }
  }

  TempPath path_{"damaged"};
  TempPath fresh_{"rescued"};
  StoreOptions options_;
  RescueOptions rescue_;
  Records records_;  // at the time of the image
  Records rescued_;
  Records found_;  // found in lost+found
  RescueResult result_;
  Report report_;
};

TEST_F(Repair, a_sound_pool_is_copied_whole) {
  for (const bool clean : {true, false}) {
    const Bytes b = image(clean);
    EXPECT_EQ(rescue_image(b), Status::ok) << report_.text();
    EXPECT_EQ(rescued_, records_);
    EXPECT_EQ(result_.was_clean, clean);
    EXPECT_EQ(result_.losses_count + result_.damaged + result_.unproven, 0u);
  }
}

TEST_F(Repair, after_a_clean_close_lost_leaves_lose_no_record) {
  const Bytes sound = image(true);
  const std::vector<std::size_t> leaves = leaves_of(sound);
  ASSERT_GT(leaves.size(), 20u);
  for (const std::size_t at : {leaves[0], leaves[1], leaves[leaves.size() / 2], leaves.back()}) {
    Bytes header = sound;
    std::memset(&header[at], 0, kLineBytes);
    EXPECT_EQ(rescue_image(header), Status::ok) << at << " " << report_.text();
    EXPECT_EQ(rescued_, records_);
    EXPECT_FALSE(result_.notes.empty());
    Bytes page = sound;
    std::memset(&page[round_down(at, kFrameBytes)], 0xff, kFrameBytes);
    const Status s = rescue_image(page);
    expect_nothing_old();
    // The first page of a slab also holds the slab's header, and a rescue then needs its bits.
    EXPECT_EQ(s == Status::ok, lost() == 0);
    if (at % (64u << 10) >= kFrameBytes) {
      EXPECT_EQ(lost(), 0u) << at;
    }
    expect_losses_named();
  }
}

TEST_F(Repair, after_a_kill_a_broken_link_loses_two_leaves_at_most_and_names_the_keys) {
  const Bytes sound = image(false);
  const std::vector<std::size_t> leaves = leaves_of(sound);
  for (const std::size_t i : {std::size_t{1}, leaves.size() / 2, leaves.size() - 2}) {
    Bytes b = sound;
    std::memset(&b[leaves[i]], 0, kLineBytes);
    rescue_.scavenge = false;
    EXPECT_EQ(rescue_image(b), Status::corrupt);
    expect_nothing_old();
    EXPECT_LE(lost(), 2u * store::kSlots);
    EXPECT_GT(result_.unproven, 0u);
    expect_losses_named();
    const std::size_t lost_before = lost();
    rescue_.scavenge = true;
    EXPECT_EQ(rescue_image(b), Status::corrupt);
    EXPECT_GE(result_.scavenged, lost_before);
    for (const auto& [key, value] : records_) EXPECT_TRUE(rescued_.contains(key)) << key;
  }
}

TEST_F(Repair, a_record_that_changed_is_left_out_and_its_place_named) {
  for (const bool clean : {true, false}) {
    Bytes b = image(clean);
    const auto& [key, value] = *std::next(records_.begin(), 100);
    const auto at = std::search(b.begin(), b.end(), value.begin(), value.end());
    ASSERT_TRUE(at != b.end());
    *at ^= 4;
    EXPECT_EQ(rescue_image(b), Status::corrupt);
    EXPECT_EQ(lost(), 1u);
    EXPECT_FALSE(rescued_.contains(key));
    EXPECT_EQ(result_.damaged, 1u);
    expect_nothing_old();
    expect_losses_named();
    EXPECT_NE(result_.losses[0].report.where.find("offset"), std::string::npos);
  }
}

TEST_F(Repair, heads_and_logs_can_be_missing) {
  const Bytes sound = image(true);
  Bytes b = sound;
  std::memset(b.data(), 0, 2 * kFrameBytes);  // both superblocks: its state is unknown
  EXPECT_EQ(rescue_image(b), Status::ok) << report_.text();
  EXPECT_EQ(rescued_, records_);
  EXPECT_FALSE(result_.was_clean);
  b = sound;
  std::memset(&b[pm::kHeadPageOffset], 0, kFrameBytes);
  EXPECT_EQ(rescue_image(b), Status::ok) << report_.text();
  EXPECT_EQ(rescued_, records_);
  b = sound;
  std::memset(&b[pm::kLanesOffset], 0x5a, pm::kLaneBytes);
  EXPECT_EQ(rescue_image(b), Status::ok);  // no transaction was open: it was closed
  EXPECT_EQ(rescued_, records_);
  b = image(false);
  std::memset(&b[pm::kLanesOffset], 0x5a, pm::kLaneBytes);
  EXPECT_EQ(rescue_image(b), Status::corrupt);
  EXPECT_EQ(rescued_, records_);
  EXPECT_NE(result_.losses[0].report.text().find("transaction log"), std::string::npos);
}

TEST_F(Repair, a_batch_under_way_is_rolled_back) {
  // The log of a batch is that of a transaction. This one changes a leaf's bitmap by hand, and
  // stops.
  ::unlink(path_.str().c_str());
  run_and_kill([&] {
    Result<Store> s = Store::open(path_.str(), options_);
    if (!s || s->put("a", "1") != Status::ok || s->put("b", "2") != Status::ok) return false;
    const std::size_t first = leaves_of(read_image(path_.str())).at(0);
    auto* leaf = static_cast<store::Leaf*>(s->pool().at({first}));
    Transaction tx(s->pool());
    if (tx.add(&leaf->head, sizeof leaf->head) != Status::ok) return false;
    std::memset(static_cast<void*>(&leaf->head), 0, sizeof leaf->head);
    std::_Exit(0);
  });
  records_ = {{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(rescue_image(read_image(path_.str())), Status::ok) << report_.text();
  EXPECT_EQ(rescued_, records_);
  EXPECT_EQ(result_.rolled_back, 1u);
}

TEST_F(Repair, large_records_long_keys_and_numbers_come_through) {
  {
    Result<Store> s = Store::open(path_.str(), options_);
    ASSERT_TRUE(s);
    for (int i = 0; i < 120; ++i) {
      records_[std::string(2000, static_cast<char>('a' + i % 3)) + key_of(i)] = value_of(i, 1);
      records_[key_of(i)] = std::string(static_cast<std::size_t>(i) * 300, 'x');
    }
    for (const auto& [key, value] : records_) ASSERT_EQ(s->put(key, value), Status::ok);
    ASSERT_EQ(s->close(), Status::ok);
  }
  const Bytes b = read_image(path_.str());
  EXPECT_EQ(rescue_image(b), Status::ok);
  EXPECT_EQ(rescued_, records_);
  records_.clear();
  ::unlink(path_.str().c_str());
  options_.order = KeyOrder::u64;
  {
    Result<Store> s = Store::open(path_.str(), options_);
    ASSERT_TRUE(s);
    for (std::uint64_t i = 0; i < 300; ++i) {
      records_[std::string(std::string_view(u64_key(i << 40)))] = value_of(static_cast<int>(i), 2);
    }
    for (const auto& [key, value] : records_) ASSERT_EQ(s->put(key, value), Status::ok);
    ASSERT_EQ(s->close(), Status::ok);
  }
  EXPECT_EQ(rescue_image(read_image(path_.str())), Status::ok);
  EXPECT_EQ(rescued_, records_);
  EXPECT_EQ(result_.order, KeyOrder::u64);
}

TEST_F(Repair, what_is_no_pool_in_use_or_in_the_way_is_refused) {
  const Bytes sound = image(true);
  EXPECT_EQ(rescue_image(Bytes(1u << 20, 0)), Status::not_found) << report_.text();
  EXPECT_NE(::access(fresh_.str().c_str(), F_OK), 0);
  EXPECT_EQ(rescue_image(Bytes(1000, 'x')), Status::not_a_pool);
  EXPECT_EQ(rescue("/dev/shm/tenuto-none", fresh_.str(), rescue_, result_, &report_),
            Status::not_found);
  Bytes other = sound;
  for (const std::size_t at : {std::size_t{0}, std::size_t{kFrameBytes}}) {
    other[at + offsetof(pm::Superblock, version)] = 77;
  }
  EXPECT_EQ(rescue_image(other), Status::wrong_version);
  write_image(path_.str(), sound);
  {
    Result<Store> s = Store::open(path_.str(), options_);
    ASSERT_TRUE(s);
    EXPECT_EQ(rescue(path_.str(), fresh_.str(), rescue_, result_, &report_), Status::busy);
    ASSERT_EQ(s->close(), Status::ok);
  }
  write_image(fresh_.str(), Bytes(10, 'y'));
  EXPECT_EQ(rescue(path_.str(), fresh_.str(), rescue_, result_, &report_), Status::exists);
  EXPECT_EQ(read_image(fresh_.str()), Bytes(10, 'y'));
  rescue_.order_otherwise = KeyOrder::reverse;
  EXPECT_EQ(rescue_image(sound), Status::invalid_argument)
      << "no default collection has this order";
}

TEST_F(Repair, a_file_cut_short_gives_what_is_left) {
  const Bytes sound = image(true);
  const std::vector<std::size_t> leaves = leaves_of(sound);
  const std::size_t end = *std::max_element(leaves.begin(), leaves.end());
  for (const std::size_t bytes : {sound.size() / 2, end + 100, end / 2, pm::kHeadBytes + 1}) {
    const Status s = rescue_image(Bytes(sound.begin(), sound.begin() + static_cast<long>(bytes)));
    EXPECT_EQ(s == Status::ok, lost() == 0) << bytes;
    expect_nothing_old();
  }
}

TEST_F(Repair, random_damage_brings_nothing_old_back) {
  const char* text = std::getenv("TENUTO_RESCUES");
  const int count = text == nullptr ? 60 : std::atoi(text);
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  for (const bool clean : {true, false}) {
    const Bytes sound = image(clean);
    std::vector<std::size_t> used;
    for (std::size_t at = 0; at < sound.size(); at += kLineBytes) {
      if (word_at(sound, at) != 0 || word_at(sound, at + 32) != 0) used.push_back(at);
    }
    for (int i = 0; i < count; ++i) {
      Bytes b = sound;
      const int kind = static_cast<int>(random() % 7);
      for (std::uint64_t k = 1 + random() % 4; k > 0; --k) {
        const std::size_t at = used[random() % used.size()];
        const std::size_t page = round_down(at, kFrameBytes);
        if (kind == 0)
          b[at + random() % kLineBytes] ^= static_cast<unsigned char>(1u << random() % 8);
        if (kind == 1) std::memset(&b[at], 0, kLineBytes);
        if (kind == 2) std::memset(&b[page], random() % 2 == 0 ? 0 : 0xff, kFrameBytes);
        if (kind == 3) std::memset(&b[round_down(at, 512)], 0, 512);
        // One page or two pages were written to the wrong place.
        const std::size_t other = round_down(used[random() % used.size()], kFrameBytes);
        if (kind == 5) std::copy_n(&sound[other], kFrameBytes, &b[page]);
        if (kind == 6 && page != other) {
          std::swap_ranges(&b[page], &b[page] + kFrameBytes, &b[other]);
        }
        if (kind == 4) {
          std::generate_n(&b[at], kLineBytes, [&] { return static_cast<unsigned char>(random()); });
        }
      }
      rescue_.scavenge = i % 4 == 3;
      const Status s = rescue_image(b);
      SCOPED_TRACE("TENUTO_SEED=" + std::to_string(seed) + " damage " + std::to_string(i) +
                   " kind " + std::to_string(kind) + (clean ? " clean" : " unclean"));
      if (!rescue_.scavenge) expect_nothing_old();
      if (s == Status::ok) {
        EXPECT_EQ(rescued_, records_);
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tenuto::test
