// Line images on medium journal: rows, cuts, and counters. Threads store to lines that they share
// while epochs are cut, and the line images are compared with the lines' contents.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "journal/capture.h"
#include "journal/line_map.h"
#include "journal/lines.h"
#include "pm/plant.h"

namespace tenuto::pm {
namespace {

constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

struct Lines {
  explicit Lines(std::size_t n) : line(n), capture(std::make_shared<Capture>(base())) {}
  const std::byte* base() const { return reinterpret_cast<const std::byte*>(line.data()); }
  const std::byte* flush(std::size_t i, std::size_t n = 1, std::uint64_t limit = kNoLimit) {
    return capture->capture(&line[i], n * kLineBytes, limit);
  }
  std::vector<LineBytes> line;
  std::shared_ptr<Capture> capture;
};

LineBytes bytes_of(const LineImage& p) {
  LineBytes l;
  std::memcpy(&l, p.bytes, sizeof l);
  return l;
}

// Flushes random lines, some of them often. A cut takes each line once, as it was at its last
// flush.
TEST(JournalCapture, a_cut_has_the_last_image_of_each_line) {
  std::mt19937_64 rng(1);
  Lines lines(5000);
  CutRows cut;
  NewestImages newest;
  for (const std::size_t flushes : {0u, 1u, 10u, 300u, 700u, 20'000u}) {
    std::map<std::uint64_t, std::uint64_t> expected;
    for (std::size_t i = 0; i < flushes; ++i) {
      const std::size_t at = rng() % (rng() % 2 == 0 ? 20 : lines.line.size());
      lines.line[at].word[3] = expected[at] = rng();
      EXPECT_EQ(lines.flush(at), nullptr);
    }
    cut.clear();
    lines.capture->cut(cut);
    const auto images = newest.of(cut.rows());
    ASSERT_EQ(images.size(), expected.size());
    auto p = images.begin();
    for (const auto& [line, value] : expected) {
      EXPECT_EQ(p->line, line);
      EXPECT_EQ(bytes_of(*p++).word[3], value);
    }
    EXPECT_EQ(lines.capture->pending_lines(), 0u);
  }
}

// One thread counts in the first word of a line and then in the last word. Another thread takes
// line images of it.
bool images_are_of_one_moment() {
  Lines lines(1);
  std::atomic<bool> end = false;
  std::thread counts([&] {
    for (std::uint64_t n = 1; !end.load(std::memory_order_relaxed); ++n) {
      std::atomic_ref(lines.line[0].word[0]).store(n, std::memory_order_relaxed);
      std::atomic_ref(lines.line[0].word[7]).store(n, std::memory_order_release);
    }
  });
  while (std::atomic_ref(lines.line[0].word[0]).load() == 0) std::this_thread::yield();
  CutRows cut;
  NewestImages newest;
  bool whole = true;
  for (int i = 0; i < 2000 && whole; ++i) {
    lines.flush(0);
    cut.clear();
    lines.capture->cut(cut);
    for (const LineImage& p : newest.of(cut.rows())) {
      const LineBytes l = bytes_of(p);
      whole = whole && l.word[7] <= l.word[0] && l.word[0] - l.word[7] <= 1;
    }
  }
  end = true;
  counts.join();
  return whole;
}

TEST(JournalCapture, a_image_is_of_one_moment) {
  EXPECT_TRUE(images_are_of_one_moment());
#ifdef TENUTO_DEBUG_CHECKS
  plant("journal_images_in_two_halves");
  // The threads must meet: on a busy machine one try may be over before the other thread runs.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool whole = true;
  while (whole && std::chrono::steady_clock::now() < end) whole = images_are_of_one_moment();
  EXPECT_FALSE(whole);
  unplant_all();
#endif
}

TEST(JournalCapture, hot_lines_are_overwritten_in_place) {
  Lines lines(64);
  for (std::size_t i = 0; i < 10'000; ++i) lines.flush(i % 8);
  EXPECT_LE(lines.capture->pending_lines(), 64u);
}

TEST(JournalCapture, no_more_images_than_the_limit_wait) {
  Lines lines(1000);
  const std::byte* const stopped = lines.flush(0, 1000, 100);
  ASSERT_EQ(stopped, reinterpret_cast<const std::byte*>(&lines.line[100]));
  EXPECT_EQ(lines.flush(100, 1, 100), stopped);
  CutRows cut;
  lines.capture->cut(cut);
  EXPECT_EQ(cut.images(), 100u);
  EXPECT_EQ(lines.flush(100, 100, 100), nullptr);
}

// One thread sets the first word of a line and then the last, and flushes it. Then it clears them
// in reverse order and flushes again. Another thread takes line images. The last word is never set
// without the first.
bool images_beside_flushes_are_of_one_moment() {
  Lines lines(1);
  std::atomic<bool> end = false;
  std::thread toggles([&] {
    std::atomic_ref first(lines.line[0].word[0]), last(lines.line[0].word[7]);
    while (!end.load(std::memory_order_relaxed)) {
      first.store(1, std::memory_order_release);
      last.store(1, std::memory_order_release);
      lines.flush(0);
      last.store(0, std::memory_order_release);
      first.store(0, std::memory_order_release);
      lines.flush(0);
    }
  });
  while (lines.capture->pending_lines() == 0) std::this_thread::yield();  // its first flush
  CutRows cut;
  bool whole = true;
  for (int i = 0; i < 2000 && whole; ++i) {
    lines.flush(0);
    cut.clear();
    lines.capture->cut(cut);
    for (const ImageRow& row : cut.rows()) {
      for (std::size_t p = 0; p < row.size(); ++p) {
        whole = whole && row.image(p).word[7] <= row.image(p).word[0];
      }
    }
  }
  end = true;
  toggles.join();
  return whole;
}

TEST(JournalCapture, a_image_beside_flushes_is_of_one_moment) {
  EXPECT_TRUE(images_beside_flushes_are_of_one_moment());
#ifdef TENUTO_DEBUG_CHECKS
  plant("journal_processor_without_whole_loads");
  EXPECT_TRUE(images_are_of_one_moment());
  EXPECT_TRUE(images_beside_flushes_are_of_one_moment());
  unplant_all();
#endif
}

// Each thread counts in its own words of lines that all threads share, in pairs of lines. It raises
// the word of the second line only after the first line was flushed and fenced. In all cuts no word
// falls back, and no second word is ahead of its first.
bool threads_and_cuts_agree() {
  constexpr std::size_t kThreads = 4, kPairs = 40, kRounds = 3000;
  Lines lines(2 * kPairs);
  std::atomic<std::size_t> running = kThreads;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 rng(t);
      const auto raise = [&](std::size_t i) {
        lines.flush((i + 2) % lines.line.size());  // another line under the same fence
        std::atomic_ref word(lines.line[i].word[t]);
        word.store(word.load() + 1);
        lines.flush(i);
        Capture::fence_all();
      };
      for (std::size_t r = 0; r < kRounds; ++r) {
        const std::size_t pair = rng() % kPairs;
        raise(2 * pair);
        raise(2 * pair + 1);
      }
      running -= 1;
    });
  }
  std::vector<LineBytes> durable(lines.line.size());
  CutRows cut;
  NewestImages newest;
  bool agree = true;
  for (bool last = false; !last;) {
    last = running == 0;
    cut.clear();
    lines.capture->cut(cut);
    for (const LineImage& p : newest.of(cut.rows())) {
      const LineBytes now = bytes_of(p);
      for (std::size_t t = 0; t < kThreads; ++t) {
        agree &= now.word[t] >= durable[p.line].word[t];
      }
      durable[p.line] = now;
    }
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
      for (std::size_t t = 0; t < kThreads; ++t) {
        const std::uint64_t first = durable[2 * pair].word[t];
        const std::uint64_t second = durable[2 * pair + 1].word[t];
        agree &= second <= first && first <= second + 1;
      }
    }
  }
  for (std::thread& t : threads) t.join();
  for (std::size_t i = 0; i < durable.size(); ++i) agree &= durable[i].word == lines.line[i].word;
  return agree;
}

TEST(JournalCapture, threads_on_shared_lines_leave_states_of_real_memory) {
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(threads_and_cuts_agree());
#ifdef TENUTO_DEBUG_CHECKS
  plant("journal_processor_without_whole_loads");
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(threads_and_cuts_agree());
  unplant_all();
#endif
}

#ifdef TENUTO_DEBUG_CHECKS

class JournalCapturePlanted : public testing::TestWithParam<const char*> {};

// Runs in a child, because the mistake may take a buffer from a thread that writes to it. A crash
// counts as found.
TEST_P(JournalCapturePlanted, is_found) {
  const pid_t child = ::fork();
  if (child == 0) {
    bool agree = true;
    plant(GetParam());
    for (int i = 0; i < 50 && agree; ++i) agree = threads_and_cuts_agree();
    ::_exit(agree ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_NE(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Plants, JournalCapturePlanted,
                         testing::Values("journal_cut_keeps_older_images",
                                         "journal_tag_once_a_fence"),
                         [](const auto& plant) { return std::string(plant.param); });

// A capture waits for room while it captures, and a cut waits for that capture: a deadlock.
TEST(JournalCapture, a_capture_that_waits_for_room_never_ends) {
  const auto full_while_cut = [](const char* mistake) {
    if (mistake != nullptr) plant(mistake);
    ::alarm(mistake == nullptr ? 30 : 1);
    Lines lines(100);
    std::thread flushes([&] { lines.flush(0, 100, 50); });
    CutRows cut;
    while (lines.capture->pending_lines() < 50) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    lines.capture->cut(cut);
    flushes.join();
    std::exit(0);
  };
  EXPECT_EXIT(full_while_cut(nullptr), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(full_while_cut("journal_capture_waits_for_room"), testing::KilledBySignal(SIGALRM),
              "");
}

#endif

TEST(JournalCapture, a_map_has_the_newest_of_all_blocks_in_order) {
  std::mt19937_64 rng(2);
  LineMap map;
  for (int life = 0; life < 3; ++life) {
    std::map<std::uint64_t, std::uint64_t> expected;
    for (int block = 0; block < 20; ++block) {
      std::map<std::uint64_t, LineBytes> lines;
      const std::uint64_t spread = 1ull << (8 + rng() % 30);
      for (int i = 0; i < 800; ++i) lines[rng() % spread].word[0] = rng();
      std::vector<LineImage> images;
      for (const auto& [line, bytes] : lines) {
        images.push_back({line, reinterpret_cast<const std::byte*>(&bytes)});
        expected[line] = bytes.word[0];
      }
      map.make_room(images.size());
      map.put_all(images);
    }
    const std::vector<LineImage> order = map.in_order();
    ASSERT_EQ(order.size(), expected.size());
    auto p = order.begin();
    for (const auto& [line, value] : expected) {
      EXPECT_TRUE(map.has(line));
      EXPECT_EQ(p->line, line);
      EXPECT_EQ(bytes_of(*p++).word[0], value);
    }
    map.clear();
    EXPECT_EQ(map.size(), 0u);
  }
}

}  // namespace
}  // namespace tenuto::pm
