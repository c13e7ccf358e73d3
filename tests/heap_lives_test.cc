// Lives of a pool that use the heap or do not, and end in a close or a kill: none reports damage
// where there is none. What a life changed in the slabs must never stand beside a seal that still
// names the last clean close (heap/book.h). Builds that do not know this may come in between.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "pm/crc32c.h"
#include "pm/format.h"
#include "pm/plant.h"
#include "support/pool_parts.h"
#include "support/seed.h"
#include "tenuto/pool.h"

namespace tenuto::test {
namespace {

struct Objects {
  Ptr<char> each[3000];
};

struct Life {
  bool earlier = false;  // of a build that neither breaks the seal nor keeps Superblock::closed up
  bool uses = false;
  bool killed = false;
  bool grows = false;  // uses: extents, and a new zone
  bool trims = false;
  bool reads = false;  // before: an open to read, if the pool was closed
  Medium medium = Medium::cache;

  std::string text() const {
    return std::string(earlier ? "earlier " : "") + (reads ? "read " : "") + (uses ? "uses " : "") +
           (grows ? "grows " : "") + (trims ? "trims " : "") + (killed ? "killed " : "closed ") +
           medium_name(medium);
  }
};

class HeapLives : public testing::TestWithParam<const char*> {
 protected:
  HeapLives() {
    options_ = PoolParts::small_options();
    options_.size = 8u << 20;
    options_.medium = Medium::cache;
    const std::string with = GetParam();
    if (with == "wear") options_.heap.wear_levelling = true;
    if (with == "nodes") options_.heap.numa.nodes = 2;
    if (with == "canaries") options_.canaries = true;
    if (with == "gc") options_.consistency = Consistency::gc;
    if (with == "internal") options_.consistency = Consistency::internal;
  }

  void make() {
    Result<Pool> pool = Pool::create(path_.str(), options_);
    ASSERT_TRUE(pool);
    auto* const all = *pool->root<Objects>("objects");
    for (Ptr<char>& one : all->each) ASSERT_EQ(pool->malloc_to(48, one), Status::ok);
    ASSERT_EQ(pool->close(), Status::ok);
  }

  // In a child. Returns what its exit status tells; 0: it was closed.
  int live(const Life& life, std::mt19937_64& random) const {
    if (life.earlier) plant("heap_seal_not_broken_by_use");
    PoolOptions options = options_;
    if (life.reads) {
      options.read_only = true;
      Report r;
      Result<Pool> pool = Pool::open(path_.str(), options, &r);
      if (pool && (pool->validate(&r) != Status::ok || pool->close() != Status::ok)) return 1;
      if (!pool && pool.error() != Status::read_only) return 2;
      options.read_only = false;
    }
    options.medium = life.medium;
    Report r;
    Result<Pool> pool = Pool::open(path_.str(), options, &r);
    if (!pool || pool->health(&r) != Status::ok) {
      std::fprintf(stderr, "%s\n", r.text().c_str());
      return 3;
    }
    if (life.uses) {
      auto* const all = *pool->root<Objects>("objects");
      for (int i = 0; i < 5; ++i) {
        Ptr<char>& one = all->each[random() % std::size(all->each)];
        if (pool->free_from(one) != Status::ok) return 4;
        if (pool->malloc_to(random() % 2 == 0 ? 48 : 700, one) != Status::ok) return 5;
      }
      Ptr<char>& large = all->each[0];
      if (life.grows && (pool->free_from(large) != Status::ok ||
                         pool->malloc_to(6u << 20, large) != Status::ok)) {
        return 6;
      }
      if (pool->health(&r) != Status::ok) return 7;
    }
    if (life.trims && pool->trim() != Status::ok) return 8;
    if (life.killed) ::raise(SIGKILL);
    return pool->close() == Status::ok ? 0 : 9;
  }

  pm::Superblock copy(std::uint64_t i) const {
    pm::Superblock s{};
    std::ifstream file(path_.str(), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(i * kFrameBytes));
    file.read(reinterpret_cast<char*>(&s), sizeof s);
    return s;
  }
  pm::Superblock newest() const { return copy(copy(0).sequence > copy(1).sequence ? 0 : 1); }
  // An earlier build keeps these words of the superblock that it found.
  void leave_closed(const pm::Superblock& found) const {
    for (std::uint64_t i = 0; i < 2; ++i) {
      pm::Superblock s = copy(i);
      if (s.sequence <= found.sequence) continue;
      s.closed = found.closed;
      s.closed_at = found.closed_at;
      s.crc = pm::crc32c(&s, offsetof(pm::Superblock, crc));
      std::fstream file(path_.str(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(i * kFrameBytes));
      file.write(reinterpret_cast<const char*>(&s), sizeof s);
    }
  }

  void run(const Life& life, std::uint64_t seed) {
    told_ = told_.substr(told_.size() > 400 ? told_.size() - 400 : 0) + "\n" + life.text();
    const pm::Superblock found = newest();
    const pid_t child = ::fork();
    if (child == 0) {
      std::mt19937_64 own(seed);
      std::_Exit(live(life, own));
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const bool done =
        life.killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
    ASSERT_TRUE(done) << "ended with " << status << told_;
    if (life.earlier) leave_closed(found);
  }
  void expect_valid() {
    Report r;
    Result<Pool> pool = Pool::open(path_.str(), options_, &r);
    ASSERT_TRUE(pool) << r.text();
    EXPECT_EQ(pool->validate(&r), Status::ok) << r.text() << told_;
    EXPECT_EQ(pool->close(), Status::ok);
  }

  const TempPath path_{"lives"};
  PoolOptions options_;
  std::string told_;  // the latest lives
};

TEST_P(HeapLives, of_an_earlier_build_come_in_between) {
  constexpr Life kUnused{.killed = true};
  constexpr Life kUsed{.uses = true, .killed = true};
  constexpr Life kClosed{.uses = true};
  constexpr Life kEarlierUnused{.earlier = true, .killed = true};
  constexpr Life kEarlierUsed{.earlier = true, .uses = true, .killed = true};
  constexpr Life kEarlierClosed{.earlier = true, .uses = true};
  make();
  for (const Life& life : {kEarlierUsed, kUnused, kClosed, kUnused, kEarlierUsed, kUnused, kUsed,
                           kEarlierClosed, kUnused, kUsed, kUnused, kClosed, kEarlierUnused,
                           kEarlierUsed, kUnused, kEarlierClosed, kEarlierUsed, kUnused}) {
    run(life, 1);
    if (HasFatalFailure()) return;
  }
  expect_valid();
}

TEST_P(HeapLives, never_take_their_own_changes_for_damage) {
  make();
  std::mt19937_64 random(test_seed());
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  for (std::uint64_t n = fewer_if_sanitized(200, 5); n > 0; --n) {
    const Life life = {.earlier = one_in(3),
                       .uses = one_in(2),
                       .killed = !one_in(3),
                       .grows = one_in(12),
                       .trims = one_in(12),
                       .reads = one_in(6),
                       .medium = one_in(4) ? Medium::journal : Medium::cache};
    run(life, random());
    if (HasFatalFailure()) return;
  }
  expect_valid();
}

INSTANTIATE_TEST_SUITE_P(, HeapLives,
                         testing::Values("log", "internal", "gc", "wear", "nodes", "canaries"),
                         [](const auto& i) { return std::string(i.param); });

}  // namespace
}  // namespace tenuto::test
