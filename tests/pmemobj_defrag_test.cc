// pmemobj_defrag of the drop-in: objects leave sparse slabs, all OIDs follow them, and the memory
// is free for objects of other sizes. tests/pmemobj_crash.cc crashes it.
#include <gtest/gtest.h>
#include <libpmemobj.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/each_allocation.h"
#include "support/pmemobj_parts.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kType = 7;

class PmemobjDefrag : public PmemobjTest {
 protected:
  // Objects until the pool is full.
  std::vector<PMEMoid> fill(std::size_t bytes) {
    std::vector<PMEMoid> all;
    for (PMEMoid oid; pmemobj_alloc(pop_, &oid, bytes, kType, nullptr, nullptr) == 0;) {
      std::memset(pmemobj_direct(oid), static_cast<int>(all.size() % 251), bytes);
      all.push_back(oid);
    }
    EXPECT_EQ(errno, ENOMEM);
    return all;
  }
  // Frees all but one in `share`.
  static std::vector<PMEMoid> thin_out(std::vector<PMEMoid> all, std::size_t share) {
    std::vector<PMEMoid> kept;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % share == 0)
        kept.push_back(all[i]);
      else
        pmemobj_free(&all[i]);
    }
    return kept;
  }
  pobj_defrag_result defragment(std::vector<PMEMoid>& kept) {
    std::vector<PMEMoid*> words;
    for (PMEMoid& oid : kept) words.push_back(&oid);
    pobj_defrag_result result = {};
    EXPECT_EQ(pmemobj_defrag(pop_, words.data(), words.size(), &result), 0) << pmemobj_errormsg();
    return result;
  }
  void expect_whole(const std::vector<PMEMoid>& kept, std::size_t bytes, std::size_t share) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto* const object = static_cast<const unsigned char*>(pmemobj_direct(kept[i]));
      ASSERT_NE(object, nullptr);
      ASSERT_EQ(pmemobj_type_num(kept[i]), kType);
      for (std::size_t k = 0; k < bytes; ++k) ASSERT_EQ(object[k], i * share % 251) << i;
    }
  }
};

TEST_F(PmemobjDefrag, a_pool_of_sparse_slabs_takes_other_sizes_afterwards) {
  std::vector<PMEMoid> kept = thin_out(fill(100), 50);
  const std::size_t before = fill(1000).size();
  const pobj_defrag_result result = defragment(kept);
  EXPECT_EQ(result.total, kept.size());
  EXPECT_GT(result.relocated, kept.size() / 2);
  EXPECT_GT(fill(1000).size(), before + 3000);
  expect_whole(kept, 100, 50);
  std::size_t objects = 0;
  for (PMEMoid oid = pmemobj_first(pop_); !OID_IS_NULL(oid); oid = pmemobj_next(oid)) ++objects;
  EXPECT_GT(objects, kept.size() + 3000);
}

TEST_F(PmemobjDefrag, what_is_dense_stays) {
  std::vector<PMEMoid> kept = fill(500);
  const std::vector<PMEMoid> were = kept;
  EXPECT_EQ(defragment(kept).relocated, 0u);
  for (std::size_t i = 0; i < kept.size(); ++i) ASSERT_TRUE(OID_EQUALS(kept[i], were[i]));
}

TEST_F(PmemobjDefrag, oids_inside_of_moved_objects_follow) {
  std::vector<PMEMoid> kept = thin_out(fill(256), 40);
  // A list: each object has the OID of the next one at byte 32.
  const auto next = [](PMEMoid oid) {
    return reinterpret_cast<PMEMoid*>(static_cast<char*>(pmemobj_direct(oid)) + 32);
  };
  std::vector<PMEMoid*> words;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    *next(kept[i]) = i + 1 < kept.size() ? kept[i + 1] : OID_NULL;
    words.push_back(next(kept[i]));
  }
  const std::size_t count = kept.size();
  PMEMoid first = kept[0];
  words.push_back(&first);
  kept.clear();  // nothing else leads to them
  pobj_defrag_result result = {};
  ASSERT_EQ(pmemobj_defrag(pop_, words.data(), words.size(), &result), 0) << pmemobj_errormsg();
  EXPECT_EQ(result.total, count);
  EXPECT_GT(result.relocated, count / 2);
  std::size_t found = 0;
  for (PMEMoid oid = first; !OID_IS_NULL(oid); oid = *next(oid), ++found) {
    ASSERT_LE(found, count);
    ASSERT_EQ(static_cast<unsigned char*>(pmemobj_direct(oid))[0], found * 40 % 251);
  }
  EXPECT_EQ(found, count);
}

TEST_F(PmemobjDefrag, it_is_there_after_an_open) {
  std::vector<PMEMoid> kept = thin_out(fill(100), 50);
  EXPECT_GT(defragment(kept).relocated, 0u);
  pmemobj_close(pop_);
  pop_ = pmemobj_open(path(), nullptr);
  ASSERT_NE(pop_, nullptr) << pmemobj_errormsg();
  expect_whole(kept, 100, 50);
  EXPECT_GT(fill(1000).size(), 3000u);
}

TEST_F(PmemobjDefrag, in_a_transaction_and_beside_other_threads) {
  std::vector<PMEMoid> kept = thin_out(fill(100), 50);
  std::thread other([&] {
    for (int i = 0; i < 3000; ++i) {
      PMEMoid oid = OID_NULL;
      if (pmemobj_alloc(pop_, &oid, 100, kType + 1, nullptr, nullptr) == 0) pmemobj_free(&oid);
    }
  });
  ASSERT_EQ(pmemobj_tx_begin(pop_, nullptr, TX_PARAM_NONE), 0);
  EXPECT_GT(defragment(kept).relocated, 0u);
  pmemobj_tx_commit();
  ASSERT_EQ(pmemobj_tx_end(), 0);
  other.join();
  expect_whole(kept, 100, 50);
}

TEST_F(PmemobjDefrag, without_memory_it_stops_and_harms_nothing) {
  std::vector<PMEMoid> kept;
  fail_each_allocation([&] { kept = thin_out(fill(1000), 20); },
                       [&] {
                         std::vector<PMEMoid*> words;
                         for (PMEMoid& oid : kept) words.push_back(&oid);
                         const int done = pmemobj_defrag(pop_, words.data(), words.size(), nullptr);
                         EXPECT_TRUE(done == 0 || errno == ENOMEM) << pmemobj_errormsg();
                       },
                       [&] {
                         expect_whole(kept, 1000, 20);
                         EXPECT_EQ(walk().size(), kept.size());
                         for (PMEMoid& oid : kept) pmemobj_free(&oid);
                       },
                       true);
}

TEST_F(PmemobjDefrag, wrong_oids_are_refused_and_nothing_moves) {
  std::vector<PMEMoid> kept = thin_out(fill(100), 50);
  PMEMoid inside = kept[1];
  inside.off += 16;
  PMEMoid null = OID_NULL;
  PMEMoid* words[] = {&kept[0], &null, &inside};
  const PMEMoid was = kept[0];
  pobj_defrag_result result = {};
  EXPECT_EQ(pmemobj_defrag(pop_, words, 3, &result), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_TRUE(OID_EQUALS(kept[0], was));
  EXPECT_EQ(pmemobj_defrag(pop_, words, 2, &result), 0);
  EXPECT_EQ(result.total, 1u);
  EXPECT_EQ(pmemobj_defrag(pop_, nullptr, 0, nullptr), 0);
}

}  // namespace
}  // namespace tenuto::test
