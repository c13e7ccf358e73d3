// The crash explorer judged by structures whose crash states can be counted by hand and whose bugs
// are known: what it must find, what it must not find, and what it says about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "pm/explore.h"
#include "pm/plant.h"
#include "support/raw_pool.h"
#include "tenuto/persist.h"

namespace tenuto::test {
namespace {

using pm::CrashContext;
using pm::CrashImage;
using pm::CrashOptions;
using pm::CrashResult;
using pm::CrashRunner;
using pm::Mutation;
using testing::HasSubstr;

constexpr std::uint64_t kPoolBytes = 64 << 10;

void make_pool(const std::string& path) { RawPool::create(path, kPoolBytes); }
std::string all_is_well(const CrashImage&) { return {}; }

// ---- Counting -----------------------------------------------------------------------------------

CrashOptions counting() {
  CrashOptions o;
  o.recover_twice = false;
  o.crash_in_recovery = false;
  return o;
}

// Explores only the end of the workload.
CrashResult count(const CrashOptions& options, const std::function<void(RawPool&)>& stores) {
  return CrashRunner(options).run(
      make_pool,
      [&](CrashContext& c) {
        RawPool pool(c.path());
        stores(pool);
      },
      all_is_well);
}

TEST(explorer_counts, release_stores_of_a_line_survive_as_a_prefix) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    for (std::uint64_t i = 0; i < 5; ++i) store_ordered(p.at<std::uint64_t>(8 * i), i + 1);
  });
  EXPECT_EQ(r.points, 1u);
  EXPECT_EQ(r.unique, 6u);
}

TEST(explorer_counts, plain_stores_of_a_line_survive_in_any_order) {
  const auto stores = [](RawPool& p) {
    for (std::uint64_t i = 0; i < 3; ++i) p.at<volatile std::uint64_t>(8 * i) = i + 1;
  };
  EXPECT_EQ(count(counting(), stores).unique, 8u);
  CrashOptions in_order = counting();
  in_order.reorder_stores = false;
  EXPECT_EQ(count(in_order, stores).unique, 4u);
}

TEST(explorer_counts, halves_of_a_word_are_stored_apart) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    p.at<volatile std::uint32_t>(0) = 1;
    p.at<volatile std::uint32_t>(4) = 1;
  });
  EXPECT_EQ(r.unique, 4u);
}

TEST(explorer_counts, a_release_store_orders_the_plain_stores_before_it) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    p.at<volatile std::uint64_t>(8) = 1;
    p.at<volatile std::uint64_t>(16) = 2;
    store_ordered(p.at<std::uint64_t>(0), 3u);
  });
  EXPECT_EQ(r.unique, 5u);  // 4 subsets, then everything
}

TEST(explorer_counts, lines_are_independent) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    p.at<volatile std::uint64_t>(0) = 1;
    store_ordered(p.at<std::uint64_t>(64), 1u);
    store_ordered(p.at<std::uint64_t>(72), 1u);
    store_ordered(p.at<std::uint64_t>(640), 1u);
    store_ordered(p.at<std::uint64_t>(640), 2u);
    store_ordered(p.at<std::uint64_t>(640), 3u);
  });
  EXPECT_EQ(r.unique, 2u * 3u * 4u);
}

TEST(explorer_counts, a_fenced_flush_is_durable_and_an_unfenced_one_is_not) {
  const auto stores = [](bool with_fence) {
    return [with_fence](RawPool& p) {
      publish(p.at<std::uint64_t>(0), 1u);
      publish(p.at<std::uint64_t>(64), 1u);
      if (with_fence) fence("two words", "the end");
    };
  };
  const CrashResult unfenced = count(counting(), stores(false));
  EXPECT_EQ(unfenced.points, 1u);
  EXPECT_EQ(unfenced.unique, 4u);
  const CrashResult fenced = count(counting(), stores(true));
  EXPECT_EQ(fenced.points, 2u);
  EXPECT_EQ(fenced.states, 4u + 1u);
}

TEST(explorer_counts, a_store_after_the_flush_is_not_covered_by_it) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    publish(p.at<std::uint64_t>(0), 1u);
    store_ordered(p.at<std::uint64_t>(0), 2u);
    fence("first value", "the end");
  });
  EXPECT_EQ(r.states, 3u + 2u);  // before the fence 0, 1, 2; at the end 1, 2
}

TEST(explorer_counts, a_fence_orders_only_its_own_threads_flushes) {
  const CrashResult r = count(counting(), [](RawPool& p) {
    publish(p.at<std::uint64_t>(0), 1u);
    std::thread([] { fence("nothing of mine", "the end"); }).join();
  });
  EXPECT_EQ(r.states, 2u + 2u);
}

TEST(explorer_counts, a_locked_instruction_completes_flushes_when_the_contract_says_so) {
  const auto stores = [](RawPool& p) {
    publish(p.at<std::uint64_t>(0), 1u);
    std::mutex m;
    const std::lock_guard lock(m);
  };
  EXPECT_EQ(count(counting(), stores).states, 2u);
  CrashOptions o = counting();
  o.locked_instructions_fence = true;
  EXPECT_EQ(count(o, stores).states, 2u + 1u);
}

TEST(explorer_counts, a_large_product_is_sampled_with_every_line_alone) {
  CrashOptions o = counting();
  o.product_max = 100;
  o.samples_max = 50;
  const CrashResult r = count(o, [](RawPool& p) {
    for (std::uint64_t i = 0; i < 20; ++i) store_ordered(p.at<std::uint64_t>(64 * i), 1u);
  });
  // None, all, 20 moments, 20 alone new, 20 alone old, and some of the samples.
  EXPECT_GE(r.unique, 2u + 18u + 20u + 20u);
  EXPECT_LE(r.states, 2u + 20u + 40u + 50u);
}

TEST(explorer_counts, equal_images_with_equal_models_are_judged_once) {
  const auto work = [](bool tell) {
    return [tell](CrashContext& c) {
      RawPool pool(c.path());
      if (tell) c.invoke();
      publish(pool.at<std::uint64_t>(0), 1u);
      fence("a word", "nothing");
      fence("nothing", "nothing");
    };
  };
  EXPECT_EQ(CrashRunner(counting()).run(make_pool, work(true), all_is_well).unique, 2u);
  EXPECT_EQ(CrashRunner(counting()).run(make_pool, work(false), all_is_well).unique, 4u);
}

TEST(explorer_counts, growth_of_the_file_is_followed) {
  const CrashResult r =
      CrashRunner(counting())
          .run(
              make_pool,
              [](CrashContext& c) {
                RawPool pool(c.path());
                pool.grow(kPoolBytes * 2);
                publish(pool.at<std::uint64_t>(kPoolBytes + 64), 7u);
                fence("new part", "the end");
              },
              [](const CrashImage& image) -> std::string {
                RawPool pool(image.path());
                if (pool.bytes() != kPoolBytes * 2) return "the image did not grow";
                pool.grow(kPoolBytes * 4);  // what recovery adds is taken back
                pool.at<std::uint64_t>(kPoolBytes * 3) = 1;
                return pool.at<std::uint64_t>(kPoolBytes + 64) % 7 == 0 ? "" : "torn";
              });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_EQ(r.states, 3u);
}

// ---- An append log ------------------------------------------------------------------------------

// Entries of two words that must be equal, and a count that promises them.
struct Entry {
  std::uint64_t value, copy;
  std::uint64_t unused[6];
};

enum class Bug { none, no_flush, no_fence, count_first, no_last_fence, torn_entry };

class AppendLog {
 public:
  explicit AppendLog(const std::string& path, Bug bug = Bug::none) : pool_(path), bug_(bug) {}

  std::uint64_t count() const { return pool_.at<std::uint64_t>(0); }
  Entry& entry(std::uint64_t i) const { return pool_.at<Entry>(64 + 64 * i); }

  void append(std::uint64_t value) {
    const std::uint64_t n = count();
    if (bug_ == Bug::count_first) publish(pool_.at<std::uint64_t>(0), n + 1);
    entry(n).value = value;
    if (bug_ == Bug::torn_entry) {
      // The count stands in for the entry's end: correct only if `copy` always came second.
      publish(entry(n).copy, value);
      fence("torn entry", "append returns");
      return;
    }
    entry(n).copy = value;
    if (bug_ != Bug::no_flush && !TENUTO_PLANT("append without flush")) flush(entry(n));
    if (bug_ != Bug::no_fence) fence("log entry", "log count");
    if (bug_ != Bug::count_first) publish(pool_.at<std::uint64_t>(0), n + 1);
    if (bug_ != Bug::no_last_fence) fence("log count", "append returns");
  }

 private:
  RawPool pool_;
  Bug bug_;
};

constexpr std::uint64_t kAppends = 4;

void append_all(CrashContext& c, Bug bug) {
  AppendLog log(c.path(), bug);
  for (std::uint64_t i = 0; i < kAppends; ++i) {
    c.invoke();
    log.append(100 + i);
    c.ack();
  }
}

std::string check_log(const CrashImage& image) {
  const AppendLog log(image.path());
  const std::uint64_t n = log.count();
  if (n < image.acknowledged()) return "an acknowledged entry is lost";
  if (n > image.invoked()) return "an entry that nobody appended";
  for (std::uint64_t i = 0; i < n; ++i) {
    if (log.entry(i).value != 100 + i || log.entry(i).copy != 100 + i) return "a broken entry";
  }
  return {};
}

CrashResult explore_log(Bug bug, const CrashOptions& options = {}) {
  return CrashRunner(options).run(
      make_pool, [bug](CrashContext& c) { append_all(c, bug); }, check_log);
}

TEST(explorer_log, correct_append_log_survives_every_crash) {
  const CrashResult r = explore_log(Bug::none);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_EQ(r.points, kAppends * 3 + 1);
  EXPECT_THAT(r.unexplored(), testing::IsEmpty());
  EXPECT_TRUE(r.explored("log entry", "log count"));
  EXPECT_TRUE(r.explored("log count", "append returns"));
}

struct BugCase {
  Bug bug;
  const char* what;
};

class explorer_bugs : public testing::TestWithParam<BugCase> {};

TEST_P(explorer_bugs, are_found) {
  const CrashResult r = explore_log(GetParam().bug);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr(GetParam().what)) << r.text();
  EXPECT_EQ(r.findings[0].lost.size(), 1u) << "one line is the culprit\n" << r.text();
}

INSTANTIATE_TEST_SUITE_P(all, explorer_bugs,
                         testing::Values(BugCase{Bug::no_flush, "a broken entry"},
                                         BugCase{Bug::no_fence, "a broken entry"},
                                         BugCase{Bug::count_first, "a broken entry"},
                                         BugCase{Bug::no_last_fence,
                                                 "an acknowledged entry is lost"}));

TEST(explorer_log, a_two_word_value_tears) {
  const CrashResult r = CrashRunner().run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::torn_entry); },
      [](const CrashImage& image) -> std::string {
        const AppendLog log(image.path());
        for (std::uint64_t i = 0; i < kAppends; ++i) {
          if (log.entry(i).value != log.entry(i).copy) return "torn";
        }
        return {};
      });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.findings[0].what, "torn");
}

TEST(explorer_log, a_finding_names_the_fence_and_the_place_of_the_lost_store) {
  const CrashResult r = explore_log(Bug::no_flush);
  ASSERT_FALSE(r.ok());
  const std::string text = r.text();
  EXPECT_THAT(text, HasSubstr("crash before fence(\"log count\", \"append returns\")"));
  EXPECT_THAT(text, HasSubstr("line at 0x40 lost "));
  EXPECT_THAT(text, HasSubstr("explorer_test.cc:")) << "the place of the store";
  EXPECT_THAT(text, HasSubstr("TENUTO_CRASH_REPLAY="));
}

TEST(explorer_log, a_finding_is_replayed_alone) {
  const CrashResult r = explore_log(Bug::no_flush);
  ASSERT_FALSE(r.ok());
  const pm::CrashFinding& f = r.findings[0];
  const std::string place = std::to_string(f.point) + ":" + std::to_string(f.state);
  ::setenv("TENUTO_CRASH_REPLAY", place.c_str(), 1);
  const CrashResult again = explore_log(Bug::no_flush);
  ::unsetenv("TENUTO_CRASH_REPLAY");
  ASSERT_EQ(again.findings.size(), 1u);
  EXPECT_EQ(again.findings[0].what, f.what);
  EXPECT_EQ(again.unique, 1u);
}

TEST(explorer_log, dropped_flushes_and_fences_are_all_found_by_name) {
  const auto report = CrashRunner().mutants(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); }, check_log);
  EXPECT_EQ(report.mutants.size(), 4u);  // two fences, one flush each
  EXPECT_THAT(report.survivors(), testing::IsEmpty()) << report.text();
}

TEST(explorer_log, no_mutant_is_tried_where_the_sound_code_fails) {
  const auto report = CrashRunner().mutants(
      make_pool, [](CrashContext& c) { append_all(c, Bug::no_fence); }, check_log);
  EXPECT_EQ(report.mutants.size(), 0u);
  EXPECT_THAT(report.survivors(), testing::ElementsAre(HasSubstr("the sound code: crash")));
}

TEST(explorer_log, a_needless_fence_is_a_mutant_that_survives) {
  const auto report = CrashRunner().mutants(
      make_pool,
      [](CrashContext& c) {
        append_all(c, Bug::none);
        fence("nothing", "nothing");
      },
      check_log);
  EXPECT_THAT(report.survivors(), testing::ElementsAre("without fence(\"nothing\", \"nothing\")"));
}

TEST(explorer_log, a_planted_bug_is_found_and_counted) {
  CrashOptions o;
  o.plants = {"append without flush"};
  const CrashResult r = explore_log(Bug::none, o);
  EXPECT_FALSE(r.ok());
  EXPECT_TRUE(explore_log(Bug::none).ok()) << "the plant is off again";
}

TEST(explorer_log, the_same_seed_gives_the_same_run) {
  const auto run = [](std::uint64_t seed) {
    CrashOptions o;
    o.seed = seed;
    o.product_max = 10;
    o.samples_max = 20;
    CrashResult r = explore_log(Bug::no_fence, o);
    r.seconds = 0;
    return r.text();
  };
  EXPECT_EQ(run(7), run(7));
}

// ---- Recovery -----------------------------------------------------------------------------------

// A word pair with a redo record: a, b, then {valid, a', b'} in lines of their own.
struct Pair {
  RawPool pool;
  bool clears_early, adds;

  explicit Pair(const std::string& path, bool clears = false, bool adding = false)
      : pool(path), clears_early(clears), adds(adding) {
    recover();
  }
  std::uint64_t& word(std::uint64_t line) const { return pool.at<std::uint64_t>(64 * line); }

  void set(std::uint64_t v) {
    pool.at<std::uint64_t>(64 * 2 + 8) = v;
    publish(word(2), 1u);
    fence("redo record", "words in place");
    recover();
  }
  void recover() {
    if (word(2) == 0) return;
    const std::uint64_t v = pool.at<std::uint64_t>(64 * 2 + 8);
    if (clears_early) publish(word(2), 0u);
    publish(word(0), adds ? word(0) + 1 : v);
    publish(word(1), adds ? word(1) + 1 : v);
    fence("words in place", "redo record cleared");
    if (!clears_early) publish(word(2), 0u);
    fence("redo record cleared", "next record");
  }
};

CrashResult explore_pair(bool clears_early_in_recovery, bool adds_in_recovery,
                         const CrashOptions& options) {
  return CrashRunner(options).run(
      make_pool,
      [](CrashContext& c) {
        Pair pair(c.path());
        for (std::uint64_t v = 1; v <= 3; ++v) {
          c.invoke();
          pair.set(v);
          c.ack();
        }
      },
      [=](const CrashImage& image) -> std::string {
        const Pair pair(image.path(), clears_early_in_recovery, adds_in_recovery);
        if (pair.word(0) != pair.word(1)) return "the words differ";
        if (pair.word(0) < image.acknowledged() || pair.word(0) > image.invoked()) {
          return "a value that is too old or too new";
        }
        return {};
      });
}

TEST(explorer_recovery, sound_recovery_survives_crashes_inside_it) {
  const CrashResult r = explore_pair(false, false, {});
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GT(r.recovery_states, 0u);
}

TEST(explorer_recovery, a_record_cleared_before_its_words_is_found_inside_recovery) {
  CrashOptions o;
  const CrashResult r = explore_pair(true, false, o);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].recovery, HasSubstr("recovery after a crash before fence(\"words in"));
  o.crash_in_recovery = false;
  EXPECT_TRUE(explore_pair(true, false, o).ok()) << "only a crash inside recovery shows it";
}

TEST(explorer_recovery, recovery_that_adds_instead_of_setting_is_found) {
  EXPECT_FALSE(explore_pair(false, true, {}).ok());
}

TEST(explorer_recovery, a_check_that_changes_the_pool_says_when_recovery_is_over) {
  const auto run = [](bool says) {
    return CrashRunner().run(
        make_pool,
        [](CrashContext& c) {
          RawPool pool(c.path());
          c.invoke();
          publish(pool.at<std::uint64_t>(0), 1u);
          fence("word", "the end");
          c.ack();
        },
        [says](const CrashImage& image) -> std::string {
          RawPool pool(image.path());
          const std::uint64_t v = pool.at<std::uint64_t>(0);
          if (v > 1) return "an image of the check's own changes";
          if (says) image.recovered();
          publish(pool.at<std::uint64_t>(0), 2u);
          fence("change", "checked");
          publish(pool.at<std::uint64_t>(0), v);
          fence("changed back", "checked");
          return {};
        });
  };
  EXPECT_TRUE(run(true).ok());
  EXPECT_FALSE(run(false).ok());
}

TEST(explorer_recovery, a_crash_of_recovery_is_a_finding_of_its_state) {
  const CrashResult r = CrashRunner().run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); },
      [](const CrashImage& image) -> std::string {
        const AppendLog log(image.path());
        if (log.count() == 2) {
          std::fprintf(stderr, "two entries are too many\n");
          std::raise(SIGSEGV);
        }
        return {};
      });
  ASSERT_EQ(r.findings.size(), 1u) << r.text();
  EXPECT_THAT(r.findings[0].what, HasSubstr("died: Segmentation fault"));
  EXPECT_THAT(r.findings[0].what, HasSubstr("two entries are too many"));
}

TEST(explorer_recovery, a_check_that_ends_the_process_is_a_finding) {
  const CrashResult r = CrashRunner().run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); },
      [](const CrashImage&) -> std::string { ::_exit(0); });
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.findings[0].what, "the check ended the process");
}

TEST(explorer_recovery, a_hang_of_recovery_is_a_finding) {
  CrashOptions o;
  o.timeout = std::chrono::milliseconds(100);
  o.findings_max = 1;
  o.minimise = false;
  const CrashResult r = CrashRunner(o).run(
      make_pool, [](CrashContext& c) { append_all(c, Bug::none); },
      [](const CrashImage& image) -> std::string {
        const AppendLog log(image.path());
        volatile bool stuck = log.count() == 3;
        while (stuck) continue;
        return {};
      });
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr("hung: no answer in 100 ms"));
}

TEST(explorer_recovery, the_check_sees_the_model_as_it_was_at_the_crash) {
  std::vector<std::uint64_t> model;
  const CrashResult r = CrashRunner().run(
      make_pool,
      [&](CrashContext& c) {
        AppendLog log(c.path());
        model.clear();
        for (std::uint64_t i = 0; i < kAppends; ++i) {
          log.append(i);
          c.update([&] { model.push_back(i); });
        }
      },
      [&](const CrashImage& image) -> std::string {
        const std::uint64_t n = AppendLog(image.path()).count();
        return n == model.size() || n == model.size() + 1 ? "" : "model and log differ";
      });
  EXPECT_TRUE(r.ok()) << r.text();
}

// ---- Threads ------------------------------------------------------------------------------------

TEST(explorer_threads, lines_of_several_threads_are_explored_together) {
  std::uint64_t done[2] = {};
  const CrashResult r = CrashRunner().run(
      make_pool,
      [&](CrashContext& c) {
        RawPool pool(c.path());
        done[0] = done[1] = 0;
        const auto work = [&](std::uint64_t t) {
          for (std::uint64_t i = 1; i <= 50; ++i) {
            publish(pool.at<std::uint64_t>(64 * (t + 1)), i);
            fence("counter", "acknowledged");
            c.update([&] { done[t] = i; });
          }
        };
        std::thread other(work, 1);
        work(0);
        other.join();
      },
      [&](const CrashImage& image) -> std::string {
        const RawPool pool(image.path());
        for (std::uint64_t t = 0; t < 2; ++t) {
          const auto v = pool.at<std::uint64_t>(64 * (t + 1));
          if (v < done[t] || v > done[t] + 1) return "a counter is wrong";
        }
        return {};
      });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GE(r.points, 100u);
}

TEST(explorer_threads, stores_in_flight_on_other_threads_are_not_taken_for_unseen_ones) {
  const CrashResult r = CrashRunner().run(
      make_pool,
      [](CrashContext& c) {
        RawPool pool(c.path());
        std::atomic<bool> stop = false;
        std::thread other([&] {
          for (std::uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
            pool.at<volatile std::uint64_t>(8) = i;
            if (i % 16 == 0) persist(pool.at<std::uint64_t>(8), "their word", "their next");
          }
        });
        for (std::uint64_t i = 0; i < 200; ++i) {
          pool.at<volatile std::uint64_t>(0) = i;
          persist(pool.at<std::uint64_t>(0), "my word", "my next");
        }
        stop.store(true, std::memory_order_relaxed);
        other.join();
      },
      all_is_well);
  EXPECT_TRUE(r.ok()) << r.text();
}

// What two threads did, in order, under one schedule.
std::string history(std::uint64_t seed,
                    const std::function<void(RawPool&, std::string&, char)>& f) {
  std::string log;
  CrashOptions o = counting();
  o.seed = seed;
  o.switch_every = 3;
  CrashRunner(o).run(
      make_pool,
      [&](CrashContext& c) {
        RawPool pool(c.path());
        log.clear();
        c.interleave({[&] { f(pool, log, 'a'); }, [&] { f(pool, log, 'b'); }});
        log += std::to_string(pool.at<std::uint64_t>(0));
      },
      all_is_well);
  return log;
}

TEST(explorer_threads, a_seed_is_a_schedule) {
  const auto work = [](RawPool& pool, std::string& log, char name) {
    for (int i = 0; i < 10; ++i) {
      pool.at<volatile std::uint64_t>(64) = 1;
      log += name;
    }
  };
  std::set<std::string> schedules;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const std::string once = history(seed, work);
    EXPECT_EQ(once, history(seed, work)) << "seed " << seed;
    schedules.insert(once);
  }
  EXPECT_GE(schedules.size(), 5u);
}

TEST(explorer_threads, schedules_find_the_lost_update) {
  const auto unsafe = [](RawPool& pool, std::string&, char) {
    std::atomic_ref<std::uint64_t> n(pool.at<std::uint64_t>(0));
    n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  };
  std::set<std::string> ends;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) ends.insert(history(seed, unsafe));
  EXPECT_THAT(ends, testing::ElementsAre("1", "2"));
}

TEST(explorer_threads, interleaved_threads_wait_for_mutexes_and_atomics) {
  std::mutex m;
  std::atomic<int> turns = 0;
  const auto work = [&](RawPool& pool, std::string& log, char name) {
    for (int i = 0; i < 5; ++i) {
      while (turns.load(std::memory_order_acquire) % 2 != name - 'a') continue;
      {
        const std::lock_guard lock(m);
        ++pool.at<std::uint64_t>(0);
      }
      log += name;
      turns.fetch_add(1, std::memory_order_acq_rel);
    }
  };
  EXPECT_EQ(history(3, work), "ababababab10");
}

TEST(explorer_threads, a_thread_that_blocks_elsewhere_is_passed_over) {
  std::binary_semaphore ready(0);
  const auto work = [&](RawPool& pool, std::string& log, char name) {
    if (name == 'a') ready.acquire();
    ++pool.at<std::uint64_t>(0);
    log += name;
    if (name == 'b') ready.release();
  };
  for (std::uint64_t seed = 1; seed <= 3; ++seed) EXPECT_EQ(history(seed, work), "ba2");
}

// Two words that must not both be lost once both threads are done: each thread flushes its own
// word and hands over to the other without a fence.
TEST(explorer_threads, a_hand_over_without_a_fence_is_found_under_some_schedule) {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CrashOptions o;
    o.seed = seed;
    o.switch_every = 2;
    o.findings_max = 1;
    o.minimise = false;
    const CrashResult r = CrashRunner(o).run(
        make_pool,
        [](CrashContext& c) {
          RawPool pool(c.path());
          std::atomic<bool> attached = false;
          c.interleave({[&] {
                          publish(pool.at<std::uint64_t>(64), 1u);  // the object, not fenced
                          attached.store(true, std::memory_order_release);
                          fence("object", "too late");
                        },
                        [&] {
                          while (!attached.load(std::memory_order_acquire)) continue;
                          publish(pool.at<std::uint64_t>(0), 1u);  // makes it reachable
                          fence("pointer", "use");
                        }});
        },
        [](const CrashImage& image) -> std::string {
          const RawPool pool(image.path());
          const bool dangling = pool.at<std::uint64_t>(0) == 1 && pool.at<std::uint64_t>(64) == 0;
          return dangling ? "a pointer to nothing" : "";
        });
    found += r.ok() ? 0 : 1;
  }
  EXPECT_GE(found, 1u);
  EXPECT_LT(found, 10u) << "in some schedules the fence comes in time";
}

}  // namespace
}  // namespace tenuto::test
