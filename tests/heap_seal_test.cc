// A clean close seals the bookkeeping log: an entry is one word without a checksum, and each
// flipped bit of the list is found by the next open.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "heap/format.h"
#include "pm/format.h"
#include "pm/plant.h"
#include "support/pool_parts.h"
#include "tenuto/pool.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kExtent = 40'000;
constexpr std::uint64_t kType = 7;

class HeapSeal : public testing::Test {
 protected:
  std::string path() const { return temp_.str(); }
  PoolOptions options() const {
    PoolOptions o = PoolParts::small_options();
    o.medium = Medium::cache;
    return o;
  }
  // Live extents, and some that were freed: entries and tombstones.
  void make() {
    Result<Pool> pool = Pool::create(path(), options());
    ASSERT_TRUE(pool);
    std::vector<void*> made;
    for (int i = 0; i < 24; ++i) {
      ASSERT_EQ(pool->run([&](Transaction& tx) {
        const Result<void*> object = tx.alloc(kExtent, {.type = kType});
        if (!object) return object.error();
        made.push_back(*object);
        return Status::ok;
      }),
                Status::ok);
    }
    for (std::size_t i = 0; i < made.size(); i += 2) {
      ASSERT_EQ(pool->run([&](Transaction& tx) { return tx.free(made[i]); }), Status::ok);
    }
    ASSERT_EQ(pool->close(), Status::ok);
  }
  Status open(std::size_t* objects = nullptr) {
    Result<Pool> pool = Pool::open(path(), options());
    if (!pool) return pool.error();
    std::size_t shown = 0;
    for ([[maybe_unused]] const std::byte& o : pool->objects<std::byte>(kType)) shown += 1;
    if (objects != nullptr) *objects = shown;
    return pool->close();
  }
  template <class T>
  T read(std::uint64_t at) {
    T value;
    std::ifstream file(path(), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    file.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  void flip(std::uint64_t at, unsigned bit) {
    const auto flipped = static_cast<char>(read<char>(at) ^ 1 << bit);
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(flipped);
  }
  std::uint64_t seal() { return read<heap::BookHead>(kHead).seal.raw; }
  static constexpr std::uint64_t kHead = pm::kHeadPageOffset + offsetof(pm::HeadPage, heap);
  static constexpr std::uint64_t kSealAt = kHead + offsetof(heap::BookHead, seal);

  const TempPath temp_{"seal"};
};

TEST_F(HeapSeal, every_flipped_bit_of_the_list_is_found) {
  make();
  const auto head = read<heap::BookHead>(kHead);
  const std::uint64_t chunk = head.list[head.alt];
  ASSERT_NE(chunk, 0u);
  for (std::uint64_t at = chunk; at < chunk + heap::kBookChunkBytes; ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      SCOPED_TRACE("byte " + std::to_string(at - chunk) + ", bit " + std::to_string(bit));
      flip(at, bit);
      ASSERT_EQ(open(), Status::corrupt);
      flip(at, bit);
    }
  }
  std::size_t objects = 0;
  EXPECT_EQ(open(&objects), Status::ok);
  EXPECT_EQ(objects, 12u);
}

TEST_F(HeapSeal, a_life_that_changes_nothing_seals_again) {
  make();
  const std::uint64_t before = seal();
  {
    Result<Pool> pool = Pool::open(path(), options());
    ASSERT_TRUE(pool);
    ASSERT_EQ(pool->close(), Status::ok);
  }
  EXPECT_NE(seal(), before);
  const auto head = read<heap::BookHead>(kHead);
  flip(head.list[head.alt] + 100, 3);
  EXPECT_EQ(open(), Status::corrupt);
}

// As pools are that a build closed which knows no seal: it leaves 0, or that of an older close.
TEST_F(HeapSeal, a_pool_without_its_own_seal_opens_and_gets_one) {
  make();
  constexpr unsigned kSequence = 32;  // its lowest bit in a seal
  for (const std::uint64_t left :
       {std::uint64_t{0}, seal() ^ std::uint64_t{1} << (kSequence + 2) ^ 1}) {
    const std::uint64_t differs = seal() ^ left;
    for (unsigned bit = 0; bit < 64; ++bit) {
      if ((differs >> bit & 1) != 0) flip(kSealAt + bit / 8, bit % 8);
    }
    ASSERT_EQ(seal(), left);
    std::size_t objects = 0;
    EXPECT_EQ(open(&objects), Status::ok);
    EXPECT_EQ(objects, 12u);
    EXPECT_NE(seal(), left);
  }
  {
    Result<Pool> pool = Pool::open(path(), options());
    ASSERT_TRUE(pool);
    ASSERT_EQ(pool->run([&](Transaction& tx) { return tx.alloc(kExtent).error(); }), Status::ok);
    ASSERT_EQ(pool->close(), Status::ok);
  }
  EXPECT_EQ(open(), Status::ok);
}

// An open on medium `journal` writes a superblock that still says clean, before it may write
// anything else. A kill right after it changes nothing.
TEST_F(HeapSeal, a_kill_while_a_life_begins_leaves_it_whole) {
  make();
  const pid_t child = ::fork();
  if (child == 0) {
    plant("store_pool_not_marked_running");
    PoolOptions o = options();
    o.medium = Medium::journal;
    std::_Exit(Pool::open(path(), o) ? ::raise(SIGKILL) : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  // An entry that says whether its extent has a type: without the seal it is sound either way.
  const auto head = read<heap::BookHead>(kHead);
  const std::uint64_t typed = head.list[head.alt] + kLineBytes + 7;
  flip(typed, 7);
  EXPECT_EQ(open(), Status::corrupt);
  flip(typed, 7);
  std::size_t objects = 0;
  EXPECT_EQ(open(&objects), Status::ok);
  EXPECT_EQ(objects, 12u);
}

}  // namespace
}  // namespace tenuto::test
