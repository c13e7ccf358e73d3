// The drop-in for libpmemobj (tools/pmemobj): pools, objects outside of transactions, actions.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <cwchar>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/pmemobj_parts.h"
#include "tenuto/pool.h"

namespace tenuto::test {
namespace {

struct Root {
  PMEMoid oid[8];
  std::uint64_t word[8];
};

int fill_with(PMEMobjpool* pop, void* object, void* arg) {
  const std::size_t bytes = pmemobj_alloc_usable_size(pmemobj_oid(object));
  pmemobj_memset_persist(pop, object, *static_cast<int*>(arg), bytes);
  return 0;
}
int refuse_object(PMEMobjpool*, void*, void*) { return -1; }

class Pmemobj : public PmemobjTest {};

TEST_F(Pmemobj, a_pool_is_its_mapping) {
  EXPECT_EQ(pmemobj_pool_by_ptr(pop_), pop_);
  const PMEMoid oid = pmemobj_root(pop_, 100);
  EXPECT_NE(oid.pool_uuid_lo, 0u);
  auto* const object = static_cast<char*>(pmemobj_direct(oid));
  EXPECT_EQ(object, reinterpret_cast<char*>(pop_) + oid.off);
  EXPECT_EQ(object, pmemobj_direct_inline(oid));
  EXPECT_EQ(pmemobj_pool_by_ptr(object), pop_);
  EXPECT_EQ(pmemobj_pool_by_oid(oid), pop_);
  EXPECT_TRUE(OID_EQUALS(pmemobj_oid(object), oid));
  int in_dram = 0;
  EXPECT_EQ(pmemobj_pool_by_ptr(&in_dram), nullptr);
  EXPECT_TRUE(OID_IS_NULL(pmemobj_oid(&in_dram)));
  EXPECT_EQ(pmemobj_direct(OID_NULL), nullptr);
  EXPECT_EQ(pmemobj_direct({oid.pool_uuid_lo + 1, oid.off}), nullptr);
  pmemobj_close(pop_);
  EXPECT_EQ(pmemobj_direct_inline(oid), nullptr);  // the cache of the header forgets it
  EXPECT_EQ(pmemobj_pool_by_oid(oid), nullptr);
  pop_ = pmemobj_open(path(), nullptr);  // any layout
  ASSERT_NE(pop_, nullptr);
  EXPECT_TRUE(OID_EQUALS(pmemobj_root(pop_, 100), oid));
}

TEST_F(Pmemobj, what_cannot_be_opened_is_named) {
  EXPECT_EQ(pmemobj_open(path(), kLayout), nullptr);  // twice
  EXPECT_EQ(errno, EWOULDBLOCK);
  EXPECT_EQ(pmemobj_create(path(), kLayout, PMEMOBJ_MIN_POOL, 0600), nullptr);
  EXPECT_EQ(errno, EEXIST);
  pmemobj_close(pop_);
  pop_ = nullptr;
  EXPECT_EQ(pmemobj_open(path(), "another"), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_NE(std::strstr(pmemobj_errormsg(), "layout"), nullptr) << pmemobj_errormsg();
  EXPECT_EQ(pmemobj_check(path(), "another"), -1);
  const TempPath other("pmemobj-other");
  EXPECT_EQ(pmemobj_open(other.str().c_str(), kLayout), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(pmemobj_create(other.str().c_str(), kLayout, PMEMOBJ_MIN_POOL - 1, 0600), nullptr);
  EXPECT_EQ(errno, EINVAL);
  const std::string wide(PMEMOBJ_MAX_LAYOUT, 'x');
  EXPECT_EQ(pmemobj_create(other.str().c_str(), wide.c_str(), PMEMOBJ_MIN_POOL, 0600), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(pmemobj_create("/nowhere/pool", kLayout, PMEMOBJ_MIN_POOL, 0600), nullptr);
  EXPECT_EQ(errno, ENOENT);
  ASSERT_EQ(::setenv("TENUTO_PMEMOBJ_MEDIUM", "paper", 1), 0);
  EXPECT_EQ(pmemobj_open(path(), kLayout), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ::unsetenv("TENUTO_PMEMOBJ_MEDIUM");
}

void write_file(const char* path, const std::string& head, off_t bytes) {
  const int fd = ::open(path, O_CREAT | O_TRUNC | O_WRONLY, 0640);
  ASSERT_EQ(::write(fd, head.data(), head.size()), static_cast<ssize_t>(head.size()));
  ASSERT_EQ(::ftruncate(fd, bytes), 0);
  ::close(fd);
}

// A program that forgets to flush keeps its stores as long as nothing crashes.
TEST_F(Pmemobj, what_was_not_flushed_is_there_after_a_clean_close) {
  for (const char* medium : {"line", "cache", "journal"}) {
    ASSERT_EQ(::setenv("TENUTO_PMEMOBJ_MEDIUM", medium, 1), 0);
    const TempPath other(std::string("pmemobj-unflushed-") + medium);
    PMEMobjpool* pop = pmemobj_create(other.str().c_str(), kLayout, PMEMOBJ_MIN_POOL, 0600);
    ASSERT_NE(pop, nullptr) << pmemobj_errormsg();
    constexpr std::size_t kBytes = 100'000;
    const PMEMoid oid = pmemobj_root(pop, kBytes);
    std::memset(pmemobj_direct(oid), 'a', kBytes);
    pmemobj_persist(pop, pmemobj_direct(oid), kBytes / 2);
    for (int life = 0; life < 2; ++life) {
      auto* const bytes = static_cast<char*>(pmemobj_direct(oid));
      bytes[100] = static_cast<char>('b' + life);
      bytes[kBytes - 1] = static_cast<char>('c' + life);
      pmemobj_close(pop);
      pop = pmemobj_open(other.str().c_str(), kLayout);
      ASSERT_NE(pop, nullptr) << pmemobj_errormsg();
      std::string expected(kBytes, 'a');
      expected[100] = static_cast<char>('b' + life);
      expected[kBytes - 1] = static_cast<char>('c' + life);
      EXPECT_TRUE(std::string(static_cast<char*>(pmemobj_direct(oid)), kBytes) == expected)
          << medium << ", life " << life;
    }
    pmemobj_close(pop);
    EXPECT_EQ(pmemobj_check(other.str().c_str(), kLayout), 1);
  }
  ::unsetenv("TENUTO_PMEMOBJ_MEDIUM");
}

TEST_F(Pmemobj, files_of_others_are_left_alone) {
  const TempPath other("pmemobj-other");
  write_file(other.str().c_str(), "PMEMOBJ", PMEMOBJ_MIN_POOL);
  EXPECT_EQ(pmemobj_open(other.str().c_str(), nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_NE(std::strstr(pmemobj_errormsg(), "import-pmemobj"), nullptr) << pmemobj_errormsg();
  EXPECT_EQ(pmemobj_create(other.str().c_str(), nullptr, 0, 0600), nullptr);
  EXPECT_EQ(errno, EEXIST);
  write_file(other.str().c_str(), "PMEMPOOLSET\n", 12);
  EXPECT_EQ(pmemobj_create(other.str().c_str(), nullptr, 0, 0600), nullptr);
  EXPECT_EQ(errno, ENOTSUP);
  write_file(other.str().c_str(), "", 4096);
  EXPECT_EQ(pmemobj_create(other.str().c_str(), nullptr, 0, 0600), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ::unlink(other.str().c_str());
  {
    const Result<Pool> pool = Pool::create(other.str(), PoolParts::small_options());
    ASSERT_TRUE(pool);
  }
  EXPECT_EQ(pmemobj_open(other.str().c_str(), nullptr), nullptr);  // a pool, but not of the drop-in
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Pmemobj, a_file_of_zeros_becomes_a_pool_of_its_size) {
  const TempPath other("pmemobj-zeros");
  write_file(other.str().c_str(), "", 12 << 20);
  PMEMobjpool* const pop = pmemobj_create(other.str().c_str(), nullptr, 0, 0);
  ASSERT_NE(pop, nullptr) << pmemobj_errormsg();
  pmemobj_close(pop);
  struct stat st;
  ASSERT_EQ(::stat(other.str().c_str(), &st), 0);
  EXPECT_EQ(st.st_size, 12 << 20);
  EXPECT_EQ(st.st_mode & 0777, 0640u);
}

TEST_F(Pmemobj, the_root_grows_and_its_new_part_is_zero) {
  EXPECT_EQ(pmemobj_root_size(pop_), 0u);
  EXPECT_TRUE(OID_IS_NULL(pmemobj_root(pop_, 0)));
  EXPECT_EQ(errno, EINVAL);
  auto* bytes = static_cast<char*>(pmemobj_direct(pmemobj_root(pop_, 10)));
  std::memset(bytes, 'a', 10);
  pmemobj_persist(pop_, bytes, 10);
  EXPECT_EQ(pmemobj_root_size(pop_), 10u);
  EXPECT_EQ(pmemobj_direct(pmemobj_root(pop_, 0)), bytes);
  for (std::size_t size : {20u, 5'000u, 100'000u, 1'500'000u}) {
    const PMEMoid oid = pmemobj_root(pop_, size);
    ASSERT_FALSE(OID_IS_NULL(oid)) << pmemobj_errormsg();
    bytes = static_cast<char*>(pmemobj_direct(oid));
    EXPECT_TRUE(std::all_of(bytes, bytes + 10, [](char c) { return c == 'a'; }));
    EXPECT_TRUE(std::all_of(bytes + 10, bytes + size, [](char c) { return c == 0; }));
    EXPECT_EQ(pmemobj_root_size(pop_), size);
    EXPECT_EQ(pmemobj_type_num(oid), std::uint64_t{POBJ_ROOT_TYPE_NUM});
  }
  EXPECT_TRUE(walk().empty());  // a walk does not show it
  EXPECT_TRUE(OID_IS_NULL(pmemobj_root_construct(pop_, 1'600'000, refuse_object, nullptr)));
  EXPECT_EQ(errno, ECANCELED);
  EXPECT_EQ(pmemobj_root_size(pop_), 1'500'000u);
  EXPECT_TRUE(OID_IS_NULL(pmemobj_root(pop_, std::size_t{1} << 30)));
  EXPECT_EQ(errno, ENOMEM);
  reopen();
  EXPECT_EQ(pmemobj_root_size(pop_), 1'500'000u);
}

TEST_F(Pmemobj, objects_have_types_sizes_and_constructors) {
  Root& r = root<Root>();
  int a = 'a';
  EXPECT_EQ(pmemobj_alloc(pop_, &r.oid[0], 100, 0, fill_with, &a), 0);
  EXPECT_EQ(pmemobj_alloc(pop_, &r.oid[1], 1, ~0ull - 1, nullptr, nullptr), 0);
  EXPECT_EQ(pmemobj_zalloc(pop_, &r.oid[2], 70'000, 7), 0);
  EXPECT_EQ(pmemobj_strdup(pop_, &r.oid[3], "four", 8), 0);
  EXPECT_EQ(pmemobj_wcsdup(pop_, &r.oid[4], L"five", 9), 0);
  EXPECT_EQ(pmemobj_xalloc(pop_, &r.oid[5], 64, 10, POBJ_XALLOC_ZERO, nullptr, nullptr), 0);
  EXPECT_EQ(pmemobj_alloc(pop_, nullptr, 100, 11, nullptr, nullptr), 0);  // found by a walk alone
  reopen();
  Root& again = root<Root>();
  EXPECT_EQ(pmemobj_type_num(again.oid[0]), 0u);
  EXPECT_EQ(pmemobj_type_num(again.oid[1]), ~0ull - 1);
  EXPECT_EQ(pmemobj_type_num(again.oid[2]), 7u);
  EXPECT_GE(pmemobj_alloc_usable_size(again.oid[0]), 100u);
  EXPECT_GE(pmemobj_alloc_usable_size(again.oid[2]), 70'000u);
  EXPECT_EQ(pmemobj_alloc_usable_size(OID_NULL), 0u);
  const auto* const first = static_cast<const char*>(pmemobj_direct(again.oid[0]));
  EXPECT_TRUE(std::all_of(first, first + 100, [](char c) { return c == 'a'; }));
  EXPECT_STREQ(static_cast<char*>(pmemobj_direct(again.oid[3])), "four");
  EXPECT_EQ(std::wcscmp(static_cast<wchar_t*>(pmemobj_direct(again.oid[4])), L"five"), 0);
  EXPECT_EQ(walk().size(), 7u);
  for (PMEMoid& oid : again.oid) pmemobj_free(&oid);
  for (const PMEMoid& oid : again.oid) EXPECT_TRUE(OID_IS_NULL(oid));
  EXPECT_EQ(walk().size(), 1u);
}

TEST_F(Pmemobj, a_call_that_fails_changes_nothing) {
  Root& r = root<Root>();
  ASSERT_EQ(pmemobj_alloc(pop_, &r.oid[0], 100, 1, nullptr, nullptr), 0);
  const PMEMoid was = r.oid[0];
  const auto fails = [&](int error, int result) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, error) << pmemobj_errormsg();
    EXPECT_NE(*pmemobj_errormsg(), 0);
    EXPECT_TRUE(OID_EQUALS(r.oid[0], was));
    EXPECT_EQ(walk().size(), 1u);
  };
  PMEMoid* const o = &r.oid[0];
  fails(EINVAL, pmemobj_alloc(pop_, o, 0, 1, nullptr, nullptr));
  fails(ENOMEM, pmemobj_alloc(pop_, o, PMEMOBJ_MAX_ALLOC_SIZE + 1, 1, nullptr, nullptr));
  fails(ENOMEM, pmemobj_alloc(pop_, o, 100 << 20, 1, nullptr, nullptr));
  fails(ECANCELED, pmemobj_alloc(pop_, o, 100, 1, refuse_object, nullptr));
  fails(EINVAL, pmemobj_xalloc(pop_, o, 100, 1, 1ull << 20, nullptr, nullptr));
  fails(EINVAL, pmemobj_xalloc(pop_, o, 100, 1, POBJ_CLASS_ID(200), nullptr, nullptr));
  fails(EINVAL, pmemobj_alloc(pop_, o, 100, ~0ull, nullptr, nullptr));
  fails(EINVAL, pmemobj_strdup(pop_, o, nullptr, 1));
  fails(ENOMEM, pmemobj_realloc(pop_, o, 100 << 20, 1));
  fails(EINVAL, pmemobj_alloc(nullptr, o, 100, 1, nullptr, nullptr));
  PMEMoid wrong{was.pool_uuid_lo, was.off + 16};
  pmemobj_free(&wrong);
  EXPECT_EQ(errno, EINVAL);
  wrong = {was.pool_uuid_lo + 1, was.off};
  pmemobj_free(&wrong);
  EXPECT_EQ(walk().size(), 1u);
}

TEST_F(Pmemobj, objects_are_resized) {
  Root& r = root<Root>();
  PMEMoid& o = r.oid[0];
  EXPECT_EQ(pmemobj_zrealloc(pop_, &o, 10, 1), 0);  // of none
  std::memset(pmemobj_direct(o), 'x', 10);
  std::mt19937_64 random(7);
  std::size_t had = 10;
  for (int i = 0; i < 60; ++i) {
    const std::size_t bytes = 1 + random() % (i % 7 == 0 ? 300'000 : 3'000);
    ASSERT_EQ(pmemobj_zrealloc(pop_, &o, bytes, 1 + random() % 2), 0) << pmemobj_errormsg();
    auto* const p = static_cast<char*>(pmemobj_direct(o));
    ASSERT_GE(pmemobj_alloc_usable_size(o), bytes);
    const std::size_t kept = std::min(had, bytes);
    ASSERT_TRUE(std::all_of(p, p + kept, [](char c) { return c == 'x'; })) << i;
    if (bytes > had) {
      ASSERT_TRUE(std::all_of(p + had, p + bytes, [](char c) { return c == 0; })) << i;
    }
    std::memset(p, 0, pmemobj_alloc_usable_size(o));
    std::memset(p, 'x', bytes);
    had = bytes;
    ASSERT_EQ(walk().size(), 1u);
  }
  EXPECT_EQ(pmemobj_realloc(pop_, &o, 0, 1), 0);
  EXPECT_TRUE(OID_IS_NULL(o));
  EXPECT_TRUE(walk().empty());
}

TEST_F(Pmemobj, a_walk_shows_each_object_once_while_the_current_one_is_freed) {
  std::set<std::uint64_t> made;
  for (std::size_t bytes : {8u, 64u, 500u, 20'000u}) {
    for (std::uint64_t i = 0; i < 40; ++i) {
      PMEMoid oid;
      ASSERT_EQ(pmemobj_alloc(pop_, &oid, bytes, i % 3, nullptr, nullptr), 0);
      made.insert(oid.off);
    }
  }
  std::size_t of_type_1 = 0;
  PMEMoid oid, next;
  POBJ_FOREACH_SAFE(pop_, oid, next) {
    EXPECT_EQ(made.erase(oid.off), 1u);
    if (pmemobj_type_num(oid) == 1) of_type_1 += 1;
    pmemobj_free(&oid);
  }
  EXPECT_TRUE(made.empty());
  EXPECT_EQ(of_type_1, 4u * 13);
  EXPECT_TRUE(walk().empty());
}

TEST_F(Pmemobj, a_full_pool_says_so_and_can_be_emptied) {
  std::vector<PMEMoid> all;
  for (std::size_t bytes : {300'000u, 1'000u, 64u}) {
    PMEMoid oid;
    while (pmemobj_alloc(pop_, &oid, bytes, 1, nullptr, nullptr) == 0) all.push_back(oid);
    EXPECT_EQ(errno, ENOMEM);
  }
  EXPECT_EQ(in_tx(pop_, [] { return !OID_IS_NULL(pmemobj_tx_alloc(300'000, 1)); }), ENOMEM);
  for (PMEMoid& oid : all) pmemobj_free(&oid);
  EXPECT_TRUE(walk().empty());
  std::size_t again = 0;
  for (PMEMoid oid; pmemobj_alloc(pop_, &oid, 300'000, 1, nullptr, nullptr) == 0;) again += 1;
  EXPECT_GE(again, 8u);
}

TEST_F(Pmemobj, actions_take_effect_together) {
  Root& r = root<Root>();
  ASSERT_EQ(pmemobj_alloc(pop_, &r.oid[0], 100, 1, nullptr, nullptr), 0);
  struct pobj_action act[4];
  const PMEMoid made = pmemobj_reserve(pop_, &act[0], 200, 2);
  ASSERT_FALSE(OID_IS_NULL(made));
  EXPECT_GE(act[0].heap.usable_size, 200u);
  EXPECT_EQ(pmemobj_type_num(made), 2u);
  EXPECT_GE(pmemobj_alloc_usable_size(made), 200u);
  pmemobj_defer_free(pop_, r.oid[0], &act[1]);
  pmemobj_set_value(pop_, &act[2], &r.oid[0].off, made.off);
  pmemobj_set_value(pop_, &act[3], &r.word[0], 77);
  EXPECT_EQ(walk().size(), 1u);
  EXPECT_EQ(r.word[0], 0u);
  EXPECT_EQ(pmemobj_publish(pop_, act, 4), 0) << pmemobj_errormsg();
  EXPECT_TRUE(OID_EQUALS(r.oid[0], made));
  EXPECT_EQ(r.word[0], 77u);
  EXPECT_EQ(walk().size(), 1u);
  EXPECT_EQ(pmemobj_publish(pop_, act, 1), -1);  // it is published
  pmemobj_cancel(pop_, act, 1);
  EXPECT_EQ(walk().size(), 1u);
  // A publish that fails does nothing, and gives back what it has taken.
  EXPECT_FALSE(OID_IS_NULL(pmemobj_reserve(pop_, &act[0], 200, 2)));
  pmemobj_defer_free(pop_, {made.pool_uuid_lo, made.off + 16}, &act[1]);
  EXPECT_EQ(pmemobj_publish(pop_, act, 2), -1);
  EXPECT_EQ(errno, EINVAL);
  pmemobj_cancel(pop_, act, 2);
  EXPECT_EQ(walk().size(), 1u);
  EXPECT_FALSE(OID_IS_NULL(pmemobj_xreserve(pop_, &act[0], 200, 2, POBJ_XALLOC_ZERO)));
  pmemobj_set_value(pop_, &act[1], &r.word[0], 78);
  pmemobj_cancel(pop_, act, 2);
  EXPECT_EQ(r.word[0], 77u);
  EXPECT_EQ(walk().size(), 1u);
  EXPECT_TRUE(OID_IS_NULL(pmemobj_reserve(pop_, &act[0], 0, 2)));
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Pmemobj, memory_functions_store_and_flush) {
  Root& r = root<Root>();
  EXPECT_EQ(pmemobj_memcpy_persist(pop_, r.word, "12345678", 8), r.word);
  EXPECT_EQ(std::memcmp(r.word, "12345678", 8), 0);
  EXPECT_EQ(pmemobj_memmove(pop_, reinterpret_cast<char*>(r.word) + 1, r.word, 7, 0),
            reinterpret_cast<char*>(r.word) + 1);
  EXPECT_EQ(std::memcmp(r.word, "11234567", 8), 0);
  pmemobj_memset(pop_, r.word, 0, sizeof r.word, PMEMOBJ_F_MEM_NODRAIN);
  pmemobj_drain(pop_);
  EXPECT_EQ(r.word[0], 0u);
  EXPECT_EQ(pmemobj_xpersist(pop_, r.word, 8, PMEMOBJ_F_RELAXED), 0);
  EXPECT_EQ(pmemobj_xflush(pop_, r.word, 8, 1), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Pmemobj, controls_that_matter_are_there) {
  std::uint64_t before = 0, after = 0;
  EXPECT_EQ(pmemobj_ctl_get(pop_, "stats.heap.curr_allocated", &before), 0);
  PMEMoid oid;
  ASSERT_EQ(pmemobj_alloc(pop_, &oid, 1000, 1, nullptr, nullptr), 0);
  EXPECT_EQ(pmemobj_ctl_get(pop_, "stats.heap.curr_allocated", &after), 0);
  EXPECT_GE(after, before + 1000);
  pobj_alloc_class_desc desc{128, 64, 1000, POBJ_HEADER_NONE, 0};
  EXPECT_EQ(pmemobj_ctl_set(pop_, "heap.alloc_class.new.desc", &desc), 0);
  EXPECT_GE(desc.class_id, 128u);
  const std::uint64_t flags = POBJ_CLASS_ID(desc.class_id);
  ASSERT_EQ(pmemobj_xalloc(pop_, &oid, 100, 5, flags, nullptr, nullptr), 0);
  EXPECT_EQ(oid.off % 64, 0u);
  EXPECT_EQ(pmemobj_type_num(oid), 0u);  // as the class has no header
  EXPECT_EQ(pmemobj_ctl_set(pop_, "heap.alloc_class.5.desc", &desc), -1);
  EXPECT_EQ(pmemobj_ctl_get(pop_, "heap.alloc_class.254.desc", &desc), -1);
  EXPECT_EQ(errno, ENOENT);
  long long bytes = 1 << 20;
  EXPECT_EQ(pmemobj_ctl_set(pop_, "tx.cache.size", &bytes), 0);
  bytes = 0;
  EXPECT_EQ(pmemobj_ctl_get(pop_, "tx.cache.size", &bytes), 0);
  EXPECT_EQ(bytes, 1 << 20);
  int on = 1;
  EXPECT_EQ(pmemobj_ctl_set(nullptr, "prefault.at_open", &on), 0);
  EXPECT_EQ(pmemobj_ctl_set(nullptr, "copy_on_write.at_open", &on), -1);
  EXPECT_EQ(errno, ENOTSUP);
  EXPECT_EQ(pmemobj_ctl_exec(pop_, "heap.size.extend", &bytes), -1);
  EXPECT_EQ(errno, ENOTSUP);
  EXPECT_EQ(pmemobj_ctl_get(pop_, "no.such.name", &on), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Pmemobj, a_control_of_a_pool_is_that_pools_and_has_its_bounds) {
  const TempPath path("other");
  PMEMobjpool* const other = pmemobj_create(path.str().c_str(), "l", PMEMOBJ_MIN_POOL, 0600);
  ASSERT_NE(other, nullptr) << pmemobj_errormsg();
  long long bytes = 1 << 20;
  EXPECT_EQ(pmemobj_ctl_set(pop_, "tx.cache.size", &bytes), 0);
  EXPECT_EQ(pmemobj_ctl_get(other, "tx.cache.size", &bytes), 0);
  EXPECT_EQ(bytes, 32768);
  bytes = -5;
  EXPECT_EQ(pmemobj_ctl_set(other, "tx.cache.size", &bytes), -1);
  EXPECT_EQ(errno, EINVAL);
  int number = 9999;
  EXPECT_EQ(pmemobj_ctl_set(other, "heap.thread.arena_id", &number), -1);
  EXPECT_EQ(errno, EINVAL);
  number = 3;
  EXPECT_EQ(pmemobj_ctl_set(nullptr, "prefault.at_open", &number), 0);
  number = 0;
  EXPECT_EQ(pmemobj_ctl_get(other, "prefault.at_open", &number), 0);
  EXPECT_EQ(number, 3) << "one of the process";
  pmemobj_close(other);
}

TEST_F(Pmemobj, the_version_is_libpmemobjs) {
  EXPECT_EQ(pmemobj_check_version(PMEMOBJ_MAJOR_VERSION, PMEMOBJ_MINOR_VERSION), nullptr);
  EXPECT_NE(pmemobj_check_version(PMEMOBJ_MAJOR_VERSION + 1, 0), nullptr);
  EXPECT_NE(pmemobj_check_version(PMEMOBJ_MAJOR_VERSION, 99), nullptr);
  int data = 0;
  pmemobj_set_user_data(pop_, &data);
  EXPECT_EQ(pmemobj_get_user_data(pop_), &data);
  PMEMoid oid = pmemobj_root(pop_, 8), *oids[] = {&oid};
  struct pobj_defrag_result moved = {};
  EXPECT_EQ(pmemobj_defrag(pop_, oids, 1, &moved), 0);
  EXPECT_EQ(moved.relocated, 0u);
}

}  // namespace
}  // namespace tenuto::test
