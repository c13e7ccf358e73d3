// A clean close that finds no room for the image of the index lets a large pool grow, once and by a
// little (FrameSource::grow_little): with everything else that places blocks, and killed at each
// call of the system on its way.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>

#include "support/failing_calls.h"
#include "support/kv_fixture.h"
#include "support/pool_image.h"

namespace tenuto::test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kLargeMiB = 160;
constexpr std::uint64_t kGrowthMiB = 6;  // a zone as small as the frame allocator has them

struct With {
  const char* name;
  std::function<void(PoolOptions&)> set;
};

class CloseGrowth : public KvFixture, public testing::WithParamInterface<With> {
 protected:
  void SetUp() override { GetParam().set(options_.pool); }

  // A closed pool without room. Returns the number of its records.
  std::uint64_t fill(std::uint64_t mib) {
    options_.pool.size = options_.pool.size_max = mib * kMiB;
    Store s = opened();
    int n = 0;
    for (const std::size_t bytes : {50'000u, 4'000u, 300u, 10u}) {
      while (s.put(key_of(n), std::string(bytes, 'v')) == Status::ok) n += 1;
    }
    EXPECT_EQ(s.close(), Status::ok);
    EXPECT_EQ(mib_now(), mib);
    options_.pool.size_max = 1u << 30;
    return static_cast<std::uint64_t>(n);
  }
  std::uint64_t mib_now() const { return std::filesystem::file_size(path_.str()) / kMiB; }
  void expect_all(Store& s, std::uint64_t records) {
    std::uint64_t there = 0;
    Iterator it = s.iterator();
    for (it.seek_first(); it.valid(); it.next()) there += 1;
    EXPECT_EQ(it.status(), Status::ok);
    EXPECT_EQ(there, records);
    expect_valid(s);
  }
  // Each node has zones of its own, so each may need one.
  std::uint64_t grown_mib_max() const {
    return kLargeMiB + kGrowthMiB * std::max(1u, options_.pool.heap.numa.nodes);
  }
};

TEST_P(CloseGrowth, is_one_for_the_image_of_a_large_pool_and_none_for_a_small_one) {
  for (const std::uint64_t mib : {std::uint64_t{16}, kLargeMiB}) {
    const std::uint64_t records = fill(mib);
    for (int i = 0; i < 3; ++i) {
      Store s = opened();
      if (mib == kLargeMiB && i > 0) {
        EXPECT_EQ(s.stats().shadow_leaves, 0u) << "there is no image";
      }
      expect_all(s, records);
      ASSERT_EQ(s.close(), Status::ok);
      if (mib == kLargeMiB) {
        EXPECT_GT(mib_now(), kLargeMiB);
        EXPECT_LE(mib_now(), grown_mib_max());
      } else {
        EXPECT_EQ(mib_now(), mib);
      }
    }
    ::unlink(path_.str().c_str());
  }
}

class KilledCloseGrowth : public CloseGrowth {};

// At each of the calls that give the file its space and its pages.
TEST_P(KilledCloseGrowth, leaves_a_pool_that_recovers) {
  const std::uint64_t records = fill(kLargeMiB);
  const Bytes full = read_image(path_.str());
  int kills = 0;
  for (const char* const call : {"fallocate", "mmap"}) {
    bool killed = true;
    for (int n = 1; killed; ++n) {
      write_image(path_.str(), full);
      const pid_t child = ::fork();
      if (child == 0) {
        Result<Store> s = open();
        if (!s) ::_exit(1);
        fail_call_anywhere(n, kKillProcess, false, call);
        ::_exit(s->close() == Status::ok ? 0 : 2);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      kills += killed ? 1 : 0;
      if (!killed) {
        ASSERT_TRUE(WIFEXITED(status));
        ASSERT_EQ(WEXITSTATUS(status), 0);
      }
      for (int i = 0; i < 2; ++i) {
        Store s = opened();
        const std::uint64_t leaves =
            s.stats().shadow_leaves;  // the first counts what recovery found
        if (i == 1) {
          EXPECT_EQ(leaves, 0u) << "there is no image";
        }
        expect_all(s, records);
        ASSERT_EQ(s.close(), Status::ok);
      }
      EXPECT_LE(mib_now(), grown_mib_max() + (killed ? kGrowthMiB : 0)) << call << ' ' << n;
    }
  }
  EXPECT_GE(kills, 1);
  std::printf("%d kills\n", kills);
}

const With kPlain{"cache", [](PoolOptions& o) { o.medium = Medium::cache; }};
const With kTwoNodes{"two_nodes", [](PoolOptions& o) { o.heap.numa.nodes = 2; }};
std::string name_of(const testing::TestParamInfo<With>& with) { return with.param.name; }

INSTANTIATE_TEST_SUITE_P(
    With, CloseGrowth,
    testing::Values(kPlain, kTwoNodes,
                    With{"line", [](PoolOptions& o) { o.medium = Medium::line; }},
                    With{"wear", [](PoolOptions& o) { o.heap.wear_levelling = true; }},
                    With{"canaries", [](PoolOptions& o) { o.canaries = true; }}),
    name_of);
INSTANTIATE_TEST_SUITE_P(With, KilledCloseGrowth, testing::Values(kPlain, kTwoNodes), name_of);

}  // namespace
}  // namespace tenuto::test
