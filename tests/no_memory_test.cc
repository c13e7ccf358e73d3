// Each allocation of a call fails once, one after the other. The call may throw std::bad_alloc or
// answer with a Status; afterwards nothing is locked, the store works on and validate() is sound.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/kv_fixture.h"
#include "tenuto/collection.h"
#include "tenuto/crash.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // inlined, malloc and free are seen
#endif

namespace {
// Of the thread that is tested: allocations until one fails; 0: none does.
thread_local long countdown = 0;

bool fails() { return countdown > 0 && --countdown == 0; }

void* take(std::size_t bytes, std::size_t align) {
  if (fails()) return nullptr;
  bytes = (bytes + align - 1) / align * align;
  return align <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                            : std::aligned_alloc(align, bytes);
}
void* take_or_throw(std::size_t bytes, std::size_t align) {
  if (void* p = take(bytes, align)) return p;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t n) { return take_or_throw(n, 1); }
void* operator new[](std::size_t n) { return take_or_throw(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) {
  return take_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return take_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return take(n, 1); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return take(n, 1); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return take(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace tenuto {
namespace {

using test::key_of;

class NoMemoryTest : public test::KvFixture {
 protected:
  using Call = std::function<void()>;

  void SetUp() override {
    options_.pool.size = 64u << 20;
    s_.emplace(opened());
  }
  void TearDown() override { unplant_all(); }

  // Runs the call with its first allocation failing, its second, ... until all succeed.
  void every_allocation_fails_once(
      const Call& call, const Call& after = [] {}) {
    int failed = 0;
    for (long n = 1; !testing::Test::HasFailure(); ++n) {
      SCOPED_TRACE("allocation " + std::to_string(n));
      ::alarm(60);  // what is locked for ever ends the test
      countdown = n;
      bool thrown = false;
      try {
        call();
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      const bool met = countdown == 0;
      countdown = 0;
      after();
      works();
      ::alarm(0);
      if (!met) break;
      failed += 1;
      static_cast<void>(thrown);
    }
    EXPECT_GT(failed, 0);
  }

  // Every leaf can be read and written, and all of the store is as it should be.
  void works() {
    {
      Iterator it = s_->iterator();
      for (it.seek_first(); it.valid(); it.next()) continue;
      EXPECT_EQ(it.status(), Status::ok);
    }
    for (int i = 0; i < next_; i += 7) EXPECT_EQ(s_->put(key_of(i), "again"), Status::ok);
    expect_valid(*s_);
  }
  // Keys that split leaves, one batch after the other.
  void fill(int count) {
    for (int i = 0; i < count; ++i) (void)s_->put(key_of(next_++), std::string(40, 'v'));
  }

  std::optional<Store> s_;
  int next_ = 0;
};

TEST_F(NoMemoryTest, puts_that_split) {
  every_allocation_fails_once([&] { fill(120); });
}

TEST_F(NoMemoryTest, puts_that_split_in_the_middle) {
  for (int i = 0; i < 4000; i += 2) ASSERT_EQ(s_->put(key_of(i), "v"), Status::ok);
  next_ = 4000;
  int at = 1;
  every_allocation_fails_once([&] {
    for (int i = 0; i < 60; ++i, at += 2) (void)s_->put(key_of(at), "v");
  });
}

TEST_F(NoMemoryTest, erases_that_empty_leaves) {
  fill(4000);
  int at = 0;
  every_allocation_fails_once([&] {
    for (int i = 0; i < 60; ++i) (void)s_->erase(key_of(at++));
  });
}

// Whatever memory there is, the records that go are in a list.
TEST_F(NoMemoryTest, puts_in_place_of_others) {
  fill(300);
  every_allocation_fails_once([&] {
    for (int i = 0; i < 300; ++i) (void)s_->put(key_of(i), std::string(300, 'n'));
  });
}

TEST_F(NoMemoryTest, a_collection_is_made) {
  fill(10);
  int n = 0;
  every_allocation_fails_once([&] {
    for (int i = 0; i < 3; ++i) (void)s_->collection("c" + std::to_string(n++));
  });
}

// Its release, which takes old versions out of their leaves, has its memory here.
TEST_F(NoMemoryTest, puts_and_erases_under_a_snapshot) {
  fill(500);
  int at = 0;
  std::optional<Snapshot> snapshot = std::move(*s_->snapshot());
  every_allocation_fails_once(
      [&] {
        for (int i = 0; i < 30; ++i) (void)s_->put(key_of(at++), "new");
        for (int i = 0; i < 30; ++i) (void)s_->erase(key_of(at++));
        fill(60);
      },
      [&] { snapshot = std::move(*s_->snapshot()); });
}

// What there is no memory for is not kept, and the snapshot says so.
TEST_F(NoMemoryTest, a_snapshot_sees_its_moment_or_has_expired) {
  fill(200);
  for (long n = 1; n < 40; ++n) {
    for (int i = 0; i < 200; ++i) ASSERT_EQ(s_->put(key_of(i), "old"), Status::ok);
    const Snapshot snapshot = std::move(*s_->snapshot());
    countdown = n;
    try {
      for (int i = 0; i < 100; ++i) (void)s_->put(key_of(i * 2), "new");
    } catch (const std::bad_alloc&) {
    }
    countdown = 0;
    std::string value;
    for (int i = 0; i < 200; ++i) {
      const Status s = snapshot.get(key_of(i), value);
      if (s == Status::expired) break;
      ASSERT_EQ(s, Status::ok);
      ASSERT_EQ(value, "old") << "allocation " << n << ", key " << i;
    }
    works();
  }
}

TEST_F(NoMemoryTest, a_batch) {
  fill(500);
  int at = 0;
  every_allocation_fails_once([&] {
    WriteBatch batch;
    for (int i = 0; i < 80; ++i) batch.put(key_of(next_ + i), "batch");
    for (int i = 0; i < 80; ++i) batch.erase(key_of(at++));
    const bool done = s_->write(batch) == Status::ok;
    if (done) next_ += 80;
  });
}

// All of it or nothing.
TEST_F(NoMemoryTest, a_transaction) {
  fill(500);
  every_allocation_fails_once(
      [&] {
        (void)s_->run([&](StoreTransaction& tx) -> Status {
          std::string value;
          (void)tx.get(key_of(3), value);
          {
            Iterator it = tx.iterator();
            it.seek(key_of(10));
            for (int i = 0; i < 60 && it.valid(); ++i) it.next();
          }
          for (int i = 0; i < 60; ++i) TENUTO_TRY(tx.put("t" + key_of(i), value + "."));
          return Status::ok;
        });
      },
      [&] {
        int there = 0;
        for (int i = 0; i < 60; ++i) there += s_->contains("t" + key_of(i)) == Status::ok ? 1 : 0;
        EXPECT_TRUE(there == 0 || there == 60) << there;
      });
}

TEST_F(NoMemoryTest, reads_and_writes_that_look_first) {
  fill(300);
  int at = 0;
  every_allocation_fails_once([&] {
    std::string value;
    (void)s_->get(key_of(1), value);
    (void)s_->view(key_of(2));
    (void)s_->lower_bound(key_of(3));
    (void)s_->multi_get(std::vector<std::string_view>{"a", "b"});
    {
      Iterator it = s_->iterator();
      for (it.seek_last(); it.valid(); it.prev()) continue;
    }
    (void)s_->put_if_absent(key_of(next_ + at++), "v");
    (void)s_->compare_and_swap(key_of(4), std::nullopt, "v");
    (void)s_->merge(key_of(5), [](auto) { return std::string(60, 'm'); });
    (void)s_->erase_range(key_of(20), key_of(40));
    (void)s_->stats();
  });
}

}  // namespace
}  // namespace tenuto
