// The crash explorer on several pool files at once: what is lost in one file while another keeps
// it, crashes inside recoveries that open them in any order, growth, modes, and how findings name
// the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "crash/trace_recorder.h"
#include "support/explorer_parts.h"
#include "support/pool_parts.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace tenuto::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Word = std::uint64_t;

CrashRunner::Setup make_files(std::size_t files) {
  return [=](const std::string& path) {
    for (std::size_t f = 0; f < files; ++f) make_pool(crash_path(path, f));
  };
}

CrashResult explore(std::size_t files, CrashOptions o, const CrashRunner::Workload& workload,
                    const CrashRunner::Check& check) {
  o.files = files;
  return CrashRunner(o).run(make_files(files), workload, check);
}

enum class Mistake {
  none,
  decides_early,       // the decision in file 0 may be durable before the record in file 1
  clears_early,        // recovery takes the decision back before the values are durable
  forgets_one_record,  // the record in file 1 is not flushed
};

// A word in each of two files, set together. Each file has a redo record. The decision in file 0
// says that both records are whole.
class Pair {
 public:
  static constexpr Word kDecision = 0, kValue = 64, kRecord = 128;

  // Opens file 1 first.
  Pair(const std::string& one, const std::string& zero, Mistake mistake)
      : one_(one), zero_(zero), mistake_(mistake) {
    recover(mistake == Mistake::clears_early);
  }
  Word& value(std::size_t file) const { return of(file).at<Word>(kValue); }
  Word& decision() const { return zero_.at<Word>(kDecision); }

  void set(Word v) {
    publish(zero_.at<Word>(kRecord), v);
    if (mistake_ == Mistake::decides_early) fence("one record", "decision");
    if (mistake_ == Mistake::forgets_one_record) {
      store_ordered(one_.at<Word>(kRecord), v);
    } else {
      publish(one_.at<Word>(kRecord), v);
    }
    if (mistake_ != Mistake::decides_early) fence("records", "decision");
    publish(decision(), 1u);
    fence("decision", "values");
    recover(false);
  }

 private:
  const RawPool& of(std::size_t file) const { return file == 0 ? zero_ : one_; }

  void recover(bool clears_early) {
    if (decision() == 0) return;
    if (clears_early) publish(decision(), 0u);
    for (const std::size_t file : {0, 1}) publish(value(file), of(file).at<Word>(kRecord));
    fence("values", "decision cleared");
    if (!clears_early) publish(decision(), 0u);
    fence("decision cleared", "next records");
  }

  RawPool one_, zero_;
  Mistake mistake_;
};

constexpr Word kSets = 3;

CrashRunner::Workload set_pair(Mistake mistake) {
  return [=](CrashContext& c) {
    Pair pair(c.path(1), c.path(), mistake);
    for (Word v = 1; v <= kSets; ++v) {
      c.invoke();
      pair.set(v);
      c.ack();
    }
  };
}

std::string judge(Word zero, Word one, const CrashImage& image) {
  if (zero != one) return "one value without the other";
  return zero < image.acknowledged() || zero > image.invoked() ? "too old or too new" : "";
}

CrashRunner::Check check_pair(Mistake mistake) {
  return [=](const CrashImage& image) {
    const Pair pair(image.path(1), image.path(0), mistake);
    return judge(pair.value(0), pair.value(1), image);
  };
}

CrashResult explore_pair(Mistake mistake, const CrashOptions& options = {}) {
  return explore(2, options, set_pair(mistake), check_pair(mistake));
}

TEST(explorer_files, a_sound_protocol_over_two_files_survives_every_crash) {
  const CrashResult r = explore_pair(Mistake::none);
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GT(r.recovery_states, 0u);
  EXPECT_THAT(r.unexplored(), IsEmpty());
}

TEST(explorer_files, lines_of_two_files_at_one_offset_are_independent) {
  std::string name;
  const CrashResult r = explore(
      3, counting(),
      [&](CrashContext& c) {
        name = c.path(1).substr(c.path(1).rfind('/'));
        const RawPool one(c.path(1)), two(c.path(2)), zero(c.path(0));
        store_ordered(zero.at<Word>(64), 1u);
        for (Word v = 1; v <= 2; ++v) store_ordered(one.at<Word>(64), v);
        for (Word v = 1; v <= 3; ++v) store_ordered(two.at<Word>(64), v);
      },
      [&](const CrashImage& image) -> std::string {
        if (!image.path(1).ends_with(name)) return "an image with another name";
        const RawPool zero(image.path(0)), two(image.path(2)), one(image.path(1));
        const bool fine = zero.at<Word>(64) <= 1 && one.at<Word>(64) <= 2;
        return fine && two.at<Word>(64) <= 3 ? "" : "a line in the wrong file";
      });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_EQ(r.unique, 2u * 3u * 4u);
}

TEST(explorer_files, a_flag_that_outlives_the_other_files_data_is_found_and_both_are_named) {
  const CrashResult r = explore_pair(Mistake::decides_early);
  ASSERT_FALSE(r.ok());
  const CrashFinding& f = r.findings[0];
  EXPECT_EQ(f.what, "one value without the other") << r.text();
  ASSERT_THAT(f.lost, SizeIs(1)) << r.text();
  ASSERT_THAT(f.kept, SizeIs(1)) << r.text();
  EXPECT_EQ(f.lost[0].offset, Pair::kRecord);
  EXPECT_EQ(f.lost[0].file, 1u);
  EXPECT_EQ(f.kept[0].offset, Pair::kDecision);
  EXPECT_EQ(f.kept[0].file, 0u);
  EXPECT_THAT(f.text(), HasSubstr("stores to the line at 0x80 of file 1, flushed but not fenced"));
  EXPECT_THAT(f.text(), HasSubstr("needs the line at 0x0 of file 0 to have survived"));
}

TEST(explorer_files, a_line_forgotten_in_one_file_is_named_with_the_file) {
  const CrashResult r = explore_pair(Mistake::forgets_one_record);
  ASSERT_THAT(r.forgotten, Not(IsEmpty())) << r.text();
  EXPECT_EQ(r.forgotten[0].file, 1u);
  EXPECT_EQ(r.forgotten[0].line, Pair::kRecord);
  EXPECT_THAT(r.text(), HasSubstr("first at 128 of file 1"));
  ASSERT_FALSE(r.findings.empty());
  ASSERT_THAT(r.findings[0].lost, SizeIs(1)) << r.text();
  EXPECT_EQ(r.findings[0].lost[0].file, 1u);
  EXPECT_FALSE(r.findings[0].lost[0].flushed);
}

TEST(explorer_files, a_crash_inside_a_recovery_of_both_files_is_found) {
  CrashOptions o;
  const CrashResult r = explore_pair(Mistake::clears_early, o);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].recovery,
              HasSubstr("recovery after recovery crashed before fence(\"values\""));
  o.recovery_depth = 0;
  EXPECT_TRUE(explore_pair(Mistake::clears_early, o).ok()) << "only such a crash shows it";
}

TEST(explorer_files, every_flush_and_fence_over_two_files_is_needed) {
  const auto report =
      CrashRunner({.files = 2})
          .mutants(make_files(2), set_pair(Mistake::none), check_pair(Mistake::none));
  EXPECT_THAT(report.mutants, SizeIs(4 + 2 + 1 + 2 + 1));  // fences, and flushes before each
  EXPECT_THAT(report.survivors(), IsEmpty()) << report.text();
}

TEST(explorer_files, a_shared_worker_and_checks_in_memory_judge_the_same_states) {
  const auto run = [](Mistake mistake, bool counted, bool in_memory) {
    CrashOptions o = counting();
    o.counted_model = counted;
    return explore(2, o, set_pair(mistake), [=](const CrashImage& image) -> std::string {
      if (!in_memory) return check_pair(mistake)(image);
      Word* const one = reinterpret_cast<Word*>(image.data(1).data());
      Word* const zero = reinterpret_cast<Word*>(image.data().data());
      const bool redo = zero[Pair::kDecision / 8] != 0;
      const Word at = (redo ? Pair::kRecord : Pair::kValue) / 8;
      const std::string wrong = judge(zero[at], one[at], image);
      const Word dirt = one[kPoolBytes / 8 - 1];
      one[kPoolBytes / 8 - 1] = 1;  // the runner must put this back
      return dirt == 0 ? wrong : "dirt of the check before";
    });
  };
  const CrashResult forked = run(Mistake::none, false, false);
  const CrashResult bad = run(Mistake::decides_early, false, false);
  ASSERT_FALSE(bad.ok());
  for (const bool in_memory : {false, true}) {
    const CrashResult r = run(Mistake::none, true, in_memory);
    EXPECT_TRUE(r.ok()) << r.text();
    EXPECT_EQ(r.unique, forked.unique);
    EXPECT_EQ(r.checks, forked.checks);
    const CrashResult found = run(Mistake::decides_early, true, in_memory);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.findings[0].state, bad.findings[0].state);
    ASSERT_THAT(found.findings[0].lost, SizeIs(1)) << found.text();
    EXPECT_EQ(found.findings[0].lost[0].file, 1u);
  }
}

// --- modes ---------------------------------------------------------------------------------------

// A word of file `first` is stored, and then one of the other file. The check knows one order.
CrashResult in_order(CrashMode mode, std::size_t first) {
  CrashOptions o = counting();
  o.mode = mode;
  o.lint = false;
  return explore(
      2, o,
      [=](CrashContext& c) {
        const RawPool early(c.path(first)), late(c.path(1 - first));
        for (Word v = 1; v <= kSets; ++v) {
          c.invoke();
          store_ordered(early.at<Word>(64), v);
          store_ordered(late.at<Word>(64), v);
          flush(early.at<Word>(64));
          flush(late.at<Word>(64));
          fence("both words", "next words");
          c.ack();
        }
      },
      [](const CrashImage& image) -> std::string {
        const RawPool zero(image.path()), one(image.path(1));
        const Word n = one.at<Word>(64);
        if (n < image.acknowledged() || n > image.invoked()) return "wrong number";
        return zero.at<Word>(64) < n ? "file 1 is ahead" : "";
      });
}

TEST(explorer_files, the_order_of_stores_holds_across_files_where_a_crash_keeps_it) {
  for (const CrashMode mode : {CrashMode::eadr, CrashMode::kill}) {
    EXPECT_TRUE(in_order(mode, 0).ok()) << in_order(mode, 0).text();
    EXPECT_FALSE(in_order(mode, 1).ok()) << crash_mode_name(mode);
  }
  EXPECT_FALSE(in_order(CrashMode::adr, 0).ok());
  EXPECT_FALSE(in_order(CrashMode::page, 0).ok()) << "no page is in two files";
}

TEST(explorer_files, a_sound_protocol_survives_in_every_mode) {
  for (const CrashMode mode : {CrashMode::page, CrashMode::eadr, CrashMode::kill}) {
    CrashOptions o;
    o.mode = mode;
    const CrashResult r = explore_pair(Mistake::none, o);
    EXPECT_TRUE(r.ok()) << crash_mode_name(mode) << ": " << r.text();
  }
}

// --- recoveries that open one file at a time, and growth -----------------------------------------

// Recovery copies the word of file 0 to file 1 and counts itself there, with one file open at a
// time. No crash inside it changes what it began with.
TEST(explorer_files, a_crash_while_one_file_is_closed_keeps_what_the_other_one_had) {
  const auto run = [](Word tries_max) {
    CrashOptions o = counting();
    o.recovery_depth = 2;
    return explore(
        2, o,
        [](CrashContext& c) {
          const RawPool zero(c.path());
          publish(zero.at<Word>(0), 7u);
          fence("word", "the end");
        },
        [=](const CrashImage& image) -> std::string {
          Word found = 0;
          {
            const RawPool zero(image.path());
            found = zero.at<Word>(0);
          }
          const RawPool one(image.path(1));
          if (one.at<Word>(128) == tries_max) return "too many attempts";
          if (one.at<Word>(128) != 0 && one.at<Word>(64) != found) return "file 0 went back";
          publish(one.at<Word>(64), found);
          fence("copy", "attempt");
          publish(one.at<Word>(128), one.at<Word>(128) + 1);
          fence("attempt", "end");
          publish(one.at<Word>(192), 1u);
          fence("end", "use");
          return {};
        });
  };
  EXPECT_TRUE(run(3).ok()) << run(3).text();
  const CrashResult r = run(2);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.findings[0].what, "too many attempts");
  EXPECT_THAT(r.findings[0].recovery, HasSubstr(", then before fence("));
}

TEST(explorer_files, growth_of_the_second_file_is_followed) {
  CrashOptions o = counting();
  o.recovery_depth = 3;
  const CrashResult r = explore(
      2, o,
      [](CrashContext& c) {
        const RawPool zero(c.path());
        RawPool one(c.path(1));
        one.grow(kPoolBytes * 2);
        publish(one.at<Word>(kPoolBytes + 64), 7u);
        fence("new part", "its flag");
        publish(zero.at<Word>(64), 1u);
        fence("its flag", "the end");
      },
      [](const CrashImage& image) -> std::string {
        {
          RawPool one(image.path(1));
          const RawPool zero(image.path());
          if (one.bytes() < kPoolBytes * 2) return "file 1 did not grow";
          if (zero.bytes() != kPoolBytes) return "file 0 grew";
          if (zero.at<Word>(64) != 0 && one.at<Word>(kPoolBytes + 64) != 7) return "lost";
          if (zero.at<Word>(128) != 0 && one.bytes() != kPoolBytes * 4) {
            return "what recovery added to file 1 is gone";
          }
          one.grow(kPoolBytes * 4);
          publish(one.at<Word>(kPoolBytes * 3), 1u);
          fence("recovery's part", "its flag");
        }
        // Crashes from here on find file 1 closed.
        const RawPool zero(image.path());
        publish(zero.at<Word>(128), zero.at<Word>(128) + 1);
        fence("recovery's flag", "more");
        publish(zero.at<Word>(192), 1u);
        fence("more", "use");
        return {};
      });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GT(r.recovery_states, 10u);
  EXPECT_TRUE(r.explored("more", "use"));
}

// Two pools with a number each, in their roots. The one of pool 1 follows.
TEST(explorer_files, pools_are_opened_in_any_order) {
  struct Root {
    Word n;
  };
  CrashOptions o;
  o.files = 2;
  o.recovery_states_max = 4;
  const CrashResult r = CrashRunner(o).run(
      [](const std::string& path) {
        for (const std::size_t f : {1, 0}) {
          Pool pool = Pool::create(crash_path(path, f), {.size = kPoolBytesMin}).value();
          (void)pool.root<Root>("files").value();
        }
      },
      [](CrashContext& c) {
        Pool zero = Pool::open(c.path()).value();
        Pool one = Pool::open(c.path(1)).value();
        for (Word v = 1; v <= 2; ++v) {
          c.invoke();
          for (Pool* const pool : {&zero, &one}) {
            Transaction tx(*pool);
            Root& root = *pool->root<Root>("files").value();
            (void)tx.add(root.n);
            root.n = v;
            if (tx.commit() != Status::ok) std::abort();
          }
          c.ack();
        }
      },
      [](const CrashImage& image) -> std::string {
        auto one = Pool::open(image.path(1));
        auto zero = Pool::open(image.path(0));
        if (!one || !zero) return "a pool does not open";
        const Word late = one->root<Root>("files").value()->n;
        const Word early = zero->root<Root>("files").value()->n;
        if (late < image.acknowledged() || early > image.invoked()) return "wrong number";
        return late == early || late + 1 == early ? "" : "pool 1 does not follow";
      });
  EXPECT_TRUE(r.ok()) << r.text();
  EXPECT_GT(r.recovery_states, 0u);
}

// --- findings on disk ----------------------------------------------------------------------------

std::string content(const std::filesystem::path& path) {
  std::stringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

Word word_in(const std::string& image, Word offset) {
  Word w = 0;
  std::memcpy(&w, content(image).substr(offset, sizeof w).c_str(), sizeof w);
  return w;
}

TEST(explorer_files, a_case_file_runs_again_and_an_image_of_each_file_is_saved) {
  const TempPath folder("explorer-files");
  CrashOptions o;
  o.save_to = folder.str();
  o.findings_max = 1;
  const CrashResult r = explore_pair(Mistake::decides_early, o);
  ASSERT_THAT(r.findings, SizeIs(1));
  const CrashFinding& f = r.findings[0];
  const std::string name = f.saved.substr(0, f.saved.rfind(".case"));
  const Word records[] = {word_in(name + ".image", Pair::kRecord),
                          word_in(name + ".1.image", Pair::kRecord)};
  EXPECT_EQ(word_in(name + ".image", Pair::kDecision), 1u);
  EXPECT_EQ(records[0], records[1] + 1) << "the record in file 1 is lost";
  std::string text = content(f.saved);
  EXPECT_THAT(text, HasSubstr("\nline 128 0 1\n")) << "the floor of that line of file 1";
  text.replace(text.find("\nrun "), text.find("\npoint") - text.find("\nrun "), "\nrun 0");
  std::ofstream(f.saved) << text;  // its run has another number in this process
  ::setenv("TENUTO_CRASH_REPLAY", f.saved.c_str(), 1);
  const CrashResult again = explore_pair(Mistake::decides_early);
  ::unsetenv("TENUTO_CRASH_REPLAY");
  std::filesystem::remove_all(folder.str());
  ASSERT_THAT(again.findings, SizeIs(1)) << again.text();
  EXPECT_EQ(again.unique, 1u);
  EXPECT_EQ(again.findings[0].what, f.what);
  ASSERT_THAT(again.findings[0].lost, SizeIs(1));
  EXPECT_EQ(again.findings[0].lost[0].file, 1u);
  EXPECT_EQ(again.findings[0].lost[0].offset, Pair::kRecord);
}

// --- the recorder --------------------------------------------------------------------------------

TEST(explorer_files, an_unseen_store_is_named_with_its_file) {
  const CrashResult r = explore(
      2, {},
      [](CrashContext& c) {
        const CrashMapping zero(c.path()), one(c.path(1));
        asm volatile("movq $7, %0" : "=m"(*reinterpret_cast<Word*>(one.data() + 448)));
        c.crash_point("the store");
      },
      all_is_well);
  ASSERT_FALSE(r.ok());
  EXPECT_THAT(r.findings[0].what, HasSubstr("without a recorded store (offset 448 of file 1)"));
}

TEST(explorer_files, no_store_is_missed_while_another_file_is_opened_and_closed) {
  CrashOptions o = counting();
  o.points_percent = 0;
  const CrashResult r = explore(
      2, o,
      [](CrashContext& c) {
        const RawPool zero(c.path());
        std::atomic<bool> stop = false;
        std::thread opener([&] {
          for (Word v = 1; !stop.load() || v < 100; ++v) {
            const RawPool one(c.path(1));
            publish(one.at<Word>(64), v);
          }
        });
        for (Word at = 0; at < kPoolBytes; at += 8) zero.at<volatile Word>(at) = at + 1;
        stop = true;
        opener.join();
        flush(zero.at<Word[kPoolBytes / 8]>(0));  // compares the memory with the record
        fence("all words", "the end");
      },
      all_is_well);
  EXPECT_TRUE(r.ok()) << r.text();
}

TEST(explorer_files, a_store_under_way_in_one_file_is_recorded_though_another_one_is_closed) {
  const CrashResult r = explore(
      2, counting(),
      [](CrashContext& c) {
        const RawPool zero(c.path());
        Word& word = zero.at<Word>(64);
        // What the compiler does for a store, with a pause in the middle.
        pm::Recorder::instance().before_store(&word, sizeof word, {});
        std::thread([&] { const RawPool one(c.path(1)); }).join();
        asm volatile("movq $7, %0" : "=m"(word));
        c.crash_point("the store");
      },
      all_is_well);
  EXPECT_TRUE(r.ok()) << r.text();
}

}  // namespace
}  // namespace tenuto::test
