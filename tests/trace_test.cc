// The recorder of the traced build: it sees every kind of store that compilers make, and reports a
// store that it did not see.
#include <emmintrin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "crash/trace_recorder.h"
#include "support/raw_pool.h"
#include "tenuto/crash.h"
#include "tenuto/persist.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kPoolBytes = 64 << 10;
constexpr std::uint64_t kAt = 192;  // offset of the stores

void make_pool(const std::string& path) { RawPool::create(path, kPoolBytes); }

// Runs the stores on a pool of zeros, with a crash point after them.
CrashResult record(const std::function<void(std::byte*)>& stores) {
  return CrashRunner({.recover_twice = false})
      .run(
          make_pool,
          [&](CrashContext& c) {
            RawPool pool(c.path());
            stores(&pool.at<std::byte>(kAt));
            c.crash_point("the stores");
          },
          [](const CrashImage&) -> std::string { return {}; });
}

struct Fields {
  std::uint64_t low : 13, high : 51;
};
struct Words {
  std::uint64_t w[5];
};
struct Line {
  std::uint64_t w[8];
};
struct [[gnu::packed]] Unaligned {
  std::uint16_t a;
  std::uint64_t b;
};

const Words kWords = {{1, 2, 3, 4, 5}};

struct Kind {
  const char* name;
  std::function<void(std::byte*)> store;
};
std::ostream& operator<<(std::ostream& o, const Kind& k) { return o << k.name; }

template <class T>
T& as(std::byte* p) {
  return *reinterpret_cast<T*>(p);
}
template <class T>
std::atomic_ref<T> atom(std::byte* p) {
  return std::atomic_ref<T>(as<T>(p));
}
constexpr auto kOrder = std::memory_order_acq_rel;

const Kind kKinds[] = {
    {"byte", [](std::byte* p) { as<std::uint8_t>(p + 3) = 1; }},
    {"half", [](std::byte* p) { as<std::uint16_t>(p + 2) = 1; }},
    {"int", [](std::byte* p) { as<std::uint32_t>(p + 4) = 1; }},
    {"word", [](std::byte* p) { as<std::uint64_t>(p) = 1; }},
    {"increment", [](std::byte* p) { ++as<std::uint64_t>(p); }},
    {"bit_field", [](std::byte* p) { as<Fields>(p).high = 5; }},
    {"unaligned", [](std::byte* p) { as<Unaligned>(p + 5).b = ~0ull; }},
    {"volatile", [](std::byte* p) { as<volatile std::uint64_t>(p) = 1; }},
    {"struct", [](std::byte* p) { as<Words>(p) = kWords; }},
    {"struct_of_a_line",
     [](std::byte* p) {
       as<Line>(p) = Line{{1, 2, 3, 4, 5, 6, 7, 8}};
     }},
    {"vector", [](std::byte* p) { _mm_storeu_si128(&as<__m128i>(p), _mm_set1_epi8(1)); }},
    {"loop",
     [](std::byte* p) {
       for (std::uint64_t i = 0; i < 40; ++i) as<Line>(p).w[i] = i;
     }},
    {"memcpy", [](std::byte* p) { std::memcpy(p, &kWords, sizeof kWords); }},
    {"memcpy_over_lines", [](std::byte* p) { std::memcpy(p + 40, &kWords, sizeof kWords); }},
    {"memmove", [](std::byte* p) { std::memmove(p, &kWords, sizeof kWords); }},
    {"memset", [](std::byte* p) { std::memset(p, 1, 100); }},
    {"std_copy", [](std::byte* p) { std::copy(kWords.w, kWords.w + 5, &as<std::uint64_t>(p)); }},
    {"std_fill", [](std::byte* p) { std::fill_n(&as<std::uint64_t>(p), 20, 1); }},
    {"store_ordered", [](std::byte* p) { store_ordered(as<std::uint32_t>(p), 1u); }},
    {"publish", [](std::byte* p) { publish(as<std::uint64_t>(p), 1u); }},
    {"copy_flush", [](std::byte* p) { copy_flush(p, &kWords, sizeof kWords); }},
    {"atomic_store", [](std::byte* p) { atom<std::uint16_t>(p).store(1); }},
    {"atomic_relaxed",
     [](std::byte* p) { atom<std::uint64_t>(p).store(1, std::memory_order_relaxed); }},
    {"exchange", [](std::byte* p) { atom<std::uint64_t>(p).exchange(1, kOrder); }},
    {"fetch_or", [](std::byte* p) { atom<std::uint64_t>(p).fetch_or(1, kOrder); }},
    {"fetch_and",
     [](std::byte* p) {
       as<std::uint64_t>(p) = 3;
       atom<std::uint64_t>(p).fetch_and(1, kOrder);
     }},
    {"fetch_add", [](std::byte* p) { atom<std::uint32_t>(p).fetch_add(1, kOrder); }},
    {"compare_exchange",
     [](std::byte* p) {
       std::uint64_t zero = 0;
       atom<std::uint64_t>(p).compare_exchange_strong(zero, 1, kOrder);
     }},
};

class trace_kinds : public testing::TestWithParam<Kind> {};

TEST_P(trace_kinds, are_recorded) {
  const CrashResult r = record(GetParam().store);
  EXPECT_TRUE(r.ok()) << r.text();  // the crash point compares the memory with the record of stores
  EXPECT_GE(r.unique, 2u) << "with and without the store";
}
INSTANTIATE_TEST_SUITE_P(all, trace_kinds, testing::ValuesIn(kKinds),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(trace, a_store_of_the_value_that_is_there_makes_no_state) {
  EXPECT_EQ(record([](std::byte* p) { as<std::uint64_t>(p) = 0; }).states,
            2u);  // one at each point
}

TEST(trace, an_unseen_store_is_a_finding) {
  const CrashResult r = record([](std::byte* p) {
    asm volatile("movq $7, %0" : "=m"(as<std::uint64_t>(p + 256)));
  });
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr("without a recorded store (offset 448)"));
}

TEST(trace, an_unseen_store_is_found_by_its_flush) {
  const CrashResult r = record([](std::byte* p) {
    asm volatile("movq $7, %0" : "=m"(as<std::uint64_t>(p)));
    flush(as<std::uint64_t>(p));
    fence("unseen", "the end");
  });
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr("without a recorded store (offset 192)"));
}

TEST(trace, a_store_reported_by_its_wrapper_is_seen) {
  const CrashResult r = record([](std::byte* p) {
    _mm_stream_si64(&as<long long>(p), 7);
    pm::trace_store(p, 8);
  });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_EQ(r.unique, 2u * 2u) << "two points, each its own model";
}

TEST(trace, an_unseen_store_of_recovery_is_a_finding) {
  const CrashResult r = CrashRunner().run(
      make_pool,
      [](CrashContext& c) {
        RawPool pool(c.path());
        publish(pool.at<std::uint64_t>(0), 1u);
        fence("word", "the end");
      },
      [](const CrashImage& image) -> std::string {
        RawPool pool(image.path());
        asm volatile("movq $7, %0" : "=m"(pool.at<std::uint64_t>(640)));
        return {};
      });
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr("(offset 640)"));
}

TEST(trace, stores_elsewhere_and_other_files_are_nothing) {
  const CrashResult r = CrashRunner({.recover_twice = false})
                            .run(
                                make_pool,
                                [](CrashContext& c) {
                                  const std::string other = c.path() + ".other";
                                  RawPool::create(other, kPoolBytes);
                                  {
                                    RawPool pool(other);
                                    publish(pool.at<std::uint64_t>(0), 1u);
                                    fence("another file", "the end");
                                  }
                                  ::unlink(other.c_str());
                                },
                                [](const CrashImage&) -> std::string { return {}; });
  EXPECT_EQ(r.states, 2u);
}

TEST(trace, flushes_and_fences_are_counted_for_each_thread) {
  std::uint64_t words[24] = {};
  const TraceCounts before = trace_counts();
  flush(words);
  fence("words", "count");
  std::thread([] { fence("other", "thread"); }).join();
  const TraceCounts after = trace_counts();
  EXPECT_EQ(after.fences - before.fences, 1u);
  EXPECT_EQ(after.flushes - before.flushes, 1u);
  EXPECT_GE(after.lines - before.lines, 3u);
  EXPECT_LE(after.lines - before.lines, 4u);
}

}  // namespace
}  // namespace tenuto::test
