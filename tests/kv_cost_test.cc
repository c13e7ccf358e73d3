// What the store's operations cost in fences and flushed lines, counted exactly on medium `model`.
// TENUTO_PRINT_COSTS=1 prints the table of store/README.md.
//
// Operations are left out if the heap takes or gives back a slab or an extent in them, or if a leaf
// is unlinked. Those are rare, and their fences are the heap's. Splits are counted separately.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "pm/media.h"
#include "support/pool_parts.h"
#include "tenuto/kv.h"

namespace tenuto {
namespace {

using test::TempPath;

struct Cost {
  std::uint64_t fences = 0;
  std::uint64_t lines = 0;
  bool operator==(const Cost&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Cost& c) {
  return out << c.fences << " fences, " << c.lines << " lines";
}

std::string key_of(int n) {
  char text[32];
  std::snprintf(text, sizeof text, "key-%012d", n);
  return text;
}

class CostStore {
 public:
  explicit CostStore(KeyOrder order = KeyOrder::bytes) : store_(make(order)) {}

  Store& operator*() { return store_; }
  Store* operator->() { return &store_; }

  struct Seen {
    Cost cost;
    bool plain = false;  // no slab, extent or leaf was added or removed
    bool split = false;  // one leaf was added, and nothing else
  };
  Seen run(const std::function<Status()>& op) {
    const StoreStats before = store_.stats();
    const pm::ModelCounts start = pm::thread_model_counts();
    EXPECT_EQ(op(), Status::ok);
    const pm::ModelCounts used = pm::thread_model_counts() - start;
    const StoreStats after = store_.stats();
    const bool heap_still = before.pool.slabs == after.pool.slabs &&
                            before.pool.extents == after.pool.extents &&
                            before.pool.file_bytes == after.pool.file_bytes;
    return {{used.fences, used.lines},
            heap_still && before.leaves == after.leaves,
            heap_still && before.leaves + 1 == after.leaves};
  }

  // Expects this cost of each of many operations, except those that are left out.
  void expect_all(const char* name, int operations, Cost expected,
                  const std::function<Status(int)>& op) {
    int counted = 0;
    for (int i = 0; i < operations; ++i) {
      const Seen seen = run([&] { return op(i); });
      if (!seen.plain) continue;
      counted += 1;
      ASSERT_EQ(seen.cost, expected) << name << ", operation " << i;
    }
    ASSERT_GE(counted, operations * 3 / 4) << name << ": too few were plain";
    print(name, expected);
  }

  static void print(const char* name, Cost c) {
    if (std::getenv("TENUTO_PRINT_COSTS") == nullptr) return;
    std::printf("| %-40s | %llu | %3llu |\n", name, static_cast<unsigned long long>(c.fences),
                static_cast<unsigned long long>(c.lines));
  }

 private:
  Store make(KeyOrder order) {
    StoreOptions o;
    o.pool.medium = Medium::model;
    o.order = order;
    Report report;
    Result<Store> s = Store::open(path_.str(), o, &report);
    EXPECT_TRUE(s) << report.text();
    return std::move(*s);
  }

  TempPath path_{"kvcost"};
  Store store_;
};

std::string spread_key(int i) { return key_of(i * 7919 % 100'003); }

TEST(KvCostTest, insert_is_two_fences_and_record_lines_plus_two) {
  CostStore s;
  s.expect_all("insert 16 + 100 B", 2000, {2, 2 + 2},
               [&](int i) { return s->put(spread_key(i), std::string(100, 'v')); });
  EXPECT_EQ(s->validate(), Status::ok);
}

TEST(KvCostTest, insert_of_other_sizes_adds_only_their_lines) {
  CostStore s;
  s.expect_all("insert 16 + 1000 B", 300, {2, 16 + 2},
               [&](int i) { return s->put(spread_key(i), std::string(1000, 'v')); });
  CostStore n(KeyOrder::u64);
  n.expect_all("insert u64 + 48 B", 300, {2, 1 + 2}, [&](int i) {
    return n->put(u64_key(static_cast<std::uint64_t>(i) * 7919), std::string(48, 'v'));
  });
}

TEST(KvCostTest, update_is_two_fences_and_record_lines_plus_one) {
  CostStore s;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(s->put(spread_key(i), "old"), Status::ok);
  s.expect_all("update 16 + 100 B", 3000, {2, 2 + 1},
               [&](int i) { return s->put(spread_key(i % 1000), std::string(100, 'w')); });
  s.expect_all("update 16 + 1000 B", 1000, {2, 16 + 1},
               [&](int i) { return s->put(spread_key(i), std::string(1000, 'x')); });
}

TEST(KvCostTest, erase_is_one_fence_and_one_line) {
  CostStore s;
  for (int i = 0; i < 3000; ++i) {
    ASSERT_EQ(s->put(spread_key(i), std::string(100, 'v')), Status::ok);
  }
  s.expect_all("erase", 3000, {1, 1}, [&](int i) { return s->erase(spread_key(i)); });
  EXPECT_EQ(s->stats().records, 0u);
  EXPECT_EQ(s->validate(), Status::ok);
}

TEST(KvCostTest, erase_of_a_missing_key_costs_nothing) {
  CostStore s;
  ASSERT_EQ(s->put("a", "1"), Status::ok);
  const CostStore::Seen seen =
      s.run([&] { return s->erase("b") == Status::not_found ? Status::ok : Status::corrupt; });
  EXPECT_EQ(seen.cost, (Cost{0, 0}));
}

TEST(KvCostTest, reads_flush_and_fence_nothing) {
  CostStore s;
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(s->put(key_of(i), "value"), Status::ok);
  s.expect_all("get, contains, view", 500, {0, 0}, [&](int i) {
    std::string value;
    TENUTO_TRY(s->get(key_of(i), value));
    TENUTO_TRY(s->contains(key_of(i)));
    const Result<View> view = s->view(key_of(i));
    if (!view) return view.error();
    return s->contains("nobody") == Status::not_found ? Status::ok : Status::corrupt;
  });
  s.expect_all("iterate 2000 keys there and back", 4, {0, 0}, [&](int) {
    Iterator it = s->iterator();
    int n = 0;
    for (it.seek_first(); it.valid(); it.next()) ++n;
    for (it.seek_last(); it.valid(); it.prev()) --n;
    return n == 0 ? it.status() : Status::corrupt;
  });
}

TEST(KvCostTest, split_is_two_fences_more_than_an_insert) {
  CostStore s;
  int splits = 0;
  for (int i = 0; i < 4000; ++i) {
    const CostStore::Seen seen =
        s.run([&] { return s->put(spread_key(i), std::string(100, 'v')); });
    if (!seen.split) continue;
    ++splits;
    // The new leaf's eight lines and the header of the old leaf.
    ASSERT_EQ(seen.cost, (Cost{2 + 2, 2 + 2 + 8 + 1})) << "put " << i;
  }
  EXPECT_GE(splits, 60);
  CostStore::print("insert 16 + 100 B with a split", {4, 13});
}

TEST(KvCostTest, split_with_a_long_separator_adds_the_lines_of_its_block) {
  CostStore s;
  int splits = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string key = std::string(200, 'p') + spread_key(i);  // separators of 205..216 bytes
    const CostStore::Seen seen = s.run([&] { return s->put(key, {}); });
    if (!seen.split) continue;
    ++splits;
    ASSERT_EQ(seen.cost.fences, 4u) << "put " << i;
    ASSERT_GE(seen.cost.lines, 4u + 2 + 9 + 4) << "put " << i;
    ASSERT_LE(seen.cost.lines, 5u + 2 + 9 + 5) << "put " << i;
  }
  EXPECT_GE(splits, 20);
}

TEST(KvCostTest, batch_is_three_fences_however_many_entries) {
  CostStore s;
  // Keys in order fill the leaves completely. Erasing every second key makes room in all of them.
  for (int i = 0; i < 1800; ++i) ASSERT_EQ(s->put(key_of(i), std::string(100, 'v')), Status::ok);
  for (int i = 1; i < 1800; i += 2) ASSERT_EQ(s->erase(key_of(i)), Status::ok);
  const auto batch_of = [&](int first, int entries, int step, const char* kind) {
    WriteBatch b;
    for (int i = 0; i < entries; ++i) {
      const std::string key = key_of(first + i * step);
      if (*kind == 'e') {
        b.erase(key);
      } else {
        b.put(key, std::string(100, 'w'));
      }
    }
    return s.run([&] { return s->write(b); });
  };
  // The two log areas of the lane take their first frames, which happens once.
  for (int i = 0; i < 2; ++i) static_cast<void>(batch_of(0, 300, 2, "update"));

  // One update: 2 lines of the record, its undo entry, slot, transaction.
  const CostStore::Seen update = batch_of(0, 1, 2, "update");
  ASSERT_TRUE(update.plain);
  EXPECT_EQ(update.cost, (Cost{3, 2 + 1 + 1 + 1}));
  CostStore::print("batch of 1 update", update.cost);
  // One insert: 2 lines of the record, two undo entries of the header, slot, header, transaction.
  const CostStore::Seen insert = batch_of(1, 1, 2, "insert");
  ASSERT_TRUE(insert.plain);
  EXPECT_EQ(insert.cost, (Cost{3, 2 + 2 + 1 + 1 + 1}));
  CostStore::print("batch of 1 insert", insert.cost);
  const CostStore::Seen erase = batch_of(1, 1, 2, "erase");
  ASSERT_TRUE(erase.plain);
  EXPECT_EQ(erase.cost, (Cost{3, 2 + 1 + 1}));
  CostStore::print("batch of 1 erase", erase.cost);

  int plain = 0;
  for (const int n : {2, 3, 10, 40, 100, 200}) {
    for (const char* kind : {"update", "insert", "erase"}) {
      const int first = *kind == 'u' ? 0 : 1;
      const CostStore::Seen seen = batch_of(first, n, 2, kind);
      if (!seen.plain) continue;
      ++plain;
      EXPECT_EQ(seen.cost.fences, 3u) << n << " x " << kind;
      // At least twenty old keys a leaf. A leaf adds two undo entries and its header, a batch its
      // transaction.
      EXPECT_LE(seen.cost.lines, static_cast<unsigned>(n) * 4u + 1 + 3u * (n / 20u + 2)) << kind;
      if (n == 100) CostStore::print(("batch of 100 x " + std::string(kind)).c_str(), seen.cost);
    }
  }
  EXPECT_GE(plain, 14);
  EXPECT_EQ(s->validate(), Status::ok);
}

TEST(KvCostTest, empty_batch_costs_nothing) {
  CostStore s;
  const WriteBatch empty;
  EXPECT_EQ(s.run([&] { return s->write(empty); }).cost, (Cost{0, 0}));
}

}  // namespace
}  // namespace tenuto
