// A pool that was left with its journal, and then damaged: a rescue reads the journal too, and
// tells a torn end from damage. So does an open that finds half of its superblock damaged.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "journal/format.h"
#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "tenuto/rescue.h"

namespace {

std::atomic<int> threads_started = 0;

}  // namespace

// Replaces libc's, and so also counts the threads of the standard library and of oneTBB.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*),
                              void* argument) noexcept {
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  threads_started += 1;
  return create(thread, how, run, argument);
}

namespace tenuto::test {
namespace {

std::string key_of(int i) { return "key" + std::to_string(100 + i); }

class JournalRescue : public testing::Test {
 protected:
#ifdef TENUTO_DEBUG_CHECKS
  void TearDown() override { unplant_all(); }
#endif

  // Puts records into the file, and then more that only the journal has, synced one by one.
  void make(const JournalPaths& paths, std::uint64_t journal_bytes = 4u << 20) {
    StoreOptions options = journalled(paths);
    options.pool.journal.bytes = journal_bytes;
    run_and_kill([&] {
      Result<Store> s = Store::open(paths.pool.str(), options);
      for (int i = 0; s && i < 20; ++i) {
        if (s->put(key_of(i), "old") != Status::ok) return false;
      }
      return s && s->close() == Status::ok;
    });
    run_and_kill([&] {
      Store& s = *new Store(*Store::open(paths.pool.str(), options));
      for (int i = 10; i < 40; ++i) {
        if (s.put(key_of(i), "new") != Status::ok) return false;
      }
      return true;
    });
  }

  Status rescue_it(const std::string& journal = {}) {
    ::unlink(fresh_.str().c_str());
    RescueOptions options;
    options.pool.medium = Medium::cache;
    options.pool.recovery_threads = recovery_threads_;
    options.journal = journal;
    const Bytes pool = read_image(paths_.pool.str());
    const Status s = rescue(paths_.pool.str(), fresh_.str(), options, result_, &report_);
    EXPECT_EQ(read_image(paths_.pool.str()), pool) << "the damaged file was changed";
    records_.clear();
    if (::access(fresh_.str().c_str(), F_OK) != 0) return s;
    Result<Store> made = Store::open(fresh_.str(), {.pool = options.pool});
    EXPECT_TRUE(made);
    if (made) records_ = records_of(*made);
    return s;
  }

  // The records of the file, with the journal's puts of the keys 10 to n - 1.
  Records expected(int n) const {
    Records r;
    for (int i = 0; i < 20; ++i) r[key_of(i)] = "old";
    for (int i = 10; i < n; ++i) r[key_of(i)] = "new";
    return r;
  }

  std::vector<std::size_t> blocks() const {
    const Bytes journal = read_image(paths_.journal.str());
    std::vector<std::size_t> found;
    pm::JournalHeader best{};
    for (const std::size_t at : {std::size_t{0}, std::size_t{pm::kJournalUnitBytes}}) {
      pm::JournalHeader h{};
      std::memcpy(&h, &journal[at], sizeof h);
      if (h.sequence > best.sequence) best = h;
    }
    for (std::size_t at = pm::kJournalRingOffset; at < journal.size();
         at += pm::kJournalUnitBytes) {
      pm::JournalBlock b{};
      std::memcpy(&b, &journal[at], sizeof b);
      const bool ours = b.magic == pm::kJournalBlockMagic && b.life == best.life;
      const auto salt = pm::salt_of(best.pool_id, best.journal_id, best.life);
      if (ours && b.crc == pm::crc_of(b, salt)) found.push_back(at);
    }
    return found;
  }

  static void flip(const std::string& path, std::size_t at) {
    Bytes b = read_image(path);
    b[at] ^= 1;
    write_image(path, b);
  }

  void lose_superblocks(int first, int last) {
    Bytes b = read_image(paths_.pool.str());
    for (int i = first; i <= last; ++i) {
      b[static_cast<std::size_t>(i) * kFrameBytes + offsetof(pm::Superblock, created_unix_s)] ^= 1;
    }
    write_image(paths_.pool.str(), b);
  }

  JournalPaths paths_{"journal-rescue"};
  TempPath fresh_{"journal-rescued"};
  unsigned recovery_threads_ = 0;
  RescueResult result_;
  Report report_;
  Records records_;
};

TEST_F(JournalRescue, what_stands_in_the_journal_alone_is_rescued) {
  make(paths_);
  EXPECT_EQ(rescue_it(), Status::ok) << report_.text();
  EXPECT_EQ(records_, expected(40));
  TempPath elsewhere("journal-elsewhere");
  ASSERT_EQ(::rename(paths_.journal.str().c_str(), elsewhere.str().c_str()), 0);
  EXPECT_EQ(rescue_it(elsewhere.str()), Status::ok) << report_.text();
  EXPECT_EQ(records_, expected(40));
  EXPECT_EQ(rescue_it(paths_.journal.str()), Status::not_found);
}

// A process that must not have more threads can rescue.
TEST_F(JournalRescue, one_thread_is_wanted_and_the_journal_is_read_by_no_other) {
  make(paths_, 16u << 20);  // large enough to be read in pieces
  recovery_threads_ = 1;
  int before = threads_started;
  EXPECT_EQ(rescue_it(), Status::ok) << report_.text();
  EXPECT_EQ(threads_started, before);
  recovery_threads_ = 0;
  before = threads_started;
  EXPECT_EQ(rescue_it(), Status::ok) << report_.text();
  EXPECT_GT(threads_started, before) << "they are not counted";
  EXPECT_EQ(records_, expected(40));
}

TEST_F(JournalRescue, a_journal_that_is_gone_is_a_loss) {
  make(paths_);
  ::unlink(paths_.journal.str().c_str());
  EXPECT_EQ(rescue_it(), Status::corrupt);
  EXPECT_EQ(records_, expected(0));
  ASSERT_FALSE(result_.losses.empty());
  EXPECT_NE(result_.losses[0].report.text().find(paths_.journal.str()), std::string::npos);
}

TEST_F(JournalRescue, a_torn_end_is_no_loss_and_damage_is) {
  make(paths_);
  const std::vector<std::size_t> at = blocks();
  ASSERT_GE(at.size(), 30u);
  flip(paths_.journal.str(), at.back() + 70);
  EXPECT_EQ(rescue_it(), Status::ok) << report_.text();
  EXPECT_EQ(records_, expected(39));
  flip(paths_.journal.str(), at[at.size() - 5] + 70);
  EXPECT_EQ(rescue_it(), Status::corrupt);
  EXPECT_EQ(records_, expected(35));
  ASSERT_FALSE(result_.losses.empty());
  EXPECT_NE(result_.losses[0].report.text().find("block"), std::string::npos);
}

// The records of the pool file are rescued all the same, and nothing of a foreign journal.
TEST_F(JournalRescue,
       a_journal_that_is_not_this_one_is_a_loss_beside_the_pool_and_refused_by_name) {
  make(paths_);
  JournalPaths other("journal-rescue-other");
  make(other);
  const Bytes ours = read_image(paths_.journal.str());
  const Bytes theirs = read_image(other.journal.str());
  const Bytes kWrong[] = {
      theirs,
      Bytes(),
      Bytes(std::size_t{64}),
      Bytes(ours.begin(), ours.begin() + 5000),
      Bytes(ours.begin(), ours.begin() + static_cast<std::ptrdiff_t>(ours.size() / 2)),
      Bytes(ours.size())};
  for (const Bytes& wrong : kWrong) {
    SCOPED_TRACE(std::to_string(wrong.size()) + " bytes");
    write_image(paths_.journal.str(), wrong);
    EXPECT_EQ(rescue_it(), Status::corrupt) << report_.text();
    EXPECT_EQ(records_, expected(0));
    ASSERT_FALSE(result_.losses.empty());
    EXPECT_NE(result_.losses[0].report.text().find(paths_.journal.str()), std::string::npos);
    EXPECT_EQ(rescue_it(paths_.journal.str()), Status::invalid_argument) << report_.text();
    EXPECT_TRUE(records_.empty());
    EXPECT_EQ(read_image(paths_.journal.str()), wrong) << "it was changed";
  }
  EXPECT_EQ(rescue_it(other.journal.str()), Status::invalid_argument);
  EXPECT_NE(report_.text().find("another pool"), std::string::npos) << report_.text();
  write_image(paths_.journal.str(), ours);
  EXPECT_EQ(rescue_it(), Status::ok);
  EXPECT_EQ(records_, expected(40));
}

TEST_F(JournalRescue, a_journal_of_another_life_is_a_loss) {
  make(paths_);
  const Bytes ours = read_image(paths_.journal.str());
  { ASSERT_TRUE(Store::open(paths_.pool.str(), journalled(paths_))); }
  run_and_kill([&] {
    Store& s = *new Store(*Store::open(paths_.pool.str(), journalled(paths_)));
    return s.put("later", "1") == Status::ok;
  });
  write_image(paths_.journal.str(), ours);
  EXPECT_EQ(rescue_it(), Status::corrupt);
  EXPECT_EQ(records_, expected(40)) << "what the second life had closed; not what it replays";
  ASSERT_FALSE(result_.losses.empty());
  EXPECT_NE(result_.losses[0].report.text().find("missing"), std::string::npos);
  EXPECT_EQ(rescue_it(paths_.journal.str()), Status::invalid_argument);
}

TEST_F(JournalRescue, a_damaged_superblock_does_not_hide_the_journal) {
  make(paths_);
  const Bytes sound = read_image(paths_.pool.str());
  for (const auto& [first, last] : {std::pair{0, 0}, std::pair{1, 1}, std::pair{0, 1}}) {
    write_image(paths_.pool.str(), sound);
    lose_superblocks(first, last);
    EXPECT_EQ(rescue_it(), Status::ok) << report_.text();
    EXPECT_EQ(records_, expected(40)) << first << last;
  }
}

TEST_F(JournalRescue, an_open_with_half_a_superblock_replays_all) {
  make(paths_);
  const Bytes pool = read_image(paths_.pool.str());
  const Bytes journal = read_image(paths_.journal.str());
  for (const Medium medium : {Medium::journal, Medium::cache}) {
    for (const int copy : {0, 1}) {
      write_image(paths_.pool.str(), pool);
      write_image(paths_.journal.str(), journal);
      lose_superblocks(copy, copy);
      StoreOptions o = journalled(paths_);
      o.pool.medium = medium;
      Result<Store> s = Store::open(paths_.pool.str(), o, &report_);
      ASSERT_TRUE(s) << report_.text();
      EXPECT_EQ(records_of(*s), expected(40)) << copy;
      EXPECT_EQ(s->validate(), Status::ok);
    }
  }
}

#ifdef TENUTO_DEBUG_CHECKS

TEST_F(JournalRescue, planted_mistakes_are_found) {
  make(paths_);
  plant("journal_not_read_by_a_rescue");
  static_cast<void>(rescue_it());
  EXPECT_NE(records_, expected(40));
  unplant_all();
  const Bytes own = read_image(paths_.journal.str());
  write_image(paths_.journal.str(), {});
  plant("journal_unreadable_ends_a_rescue");
  EXPECT_EQ(rescue_it(), Status::corrupt);
  EXPECT_TRUE(records_.empty());
  unplant_all();
  write_image(paths_.journal.str(), own);
  plant("journal_of_a_lost_superblock_ignored");
  const Bytes pool = read_image(paths_.pool.str());
  const Bytes journal = read_image(paths_.journal.str());
  int wrong = 0;
  for (const int copy : {0, 1}) {
    write_image(paths_.pool.str(), pool);
    write_image(paths_.journal.str(), journal);
    lose_superblocks(copy, copy);
    Result<Store> s = Store::open(paths_.pool.str(), journalled(paths_));
    wrong += !s || records_of(*s) != expected(40) ? 1 : 0;
  }
  EXPECT_GT(wrong, 0);
  write_image(paths_.pool.str(), pool);
  write_image(paths_.journal.str(), journal);
  flip(paths_.journal.str(), blocks()[20] + 70);
  unplant_all();
  plant("journal_damage_taken_for_its_end");
  EXPECT_EQ(rescue_it(), Status::ok);
  unplant_all();
  EXPECT_EQ(rescue_it(), Status::corrupt);
}

TEST_F(JournalRescue, a_planted_rescue_with_all_cores_is_found) {
  make(paths_, 16u << 20);
  plant("journal_threads_of_a_rescue_forgotten");
  recovery_threads_ = 1;
  const int before = threads_started;
  EXPECT_EQ(rescue_it(), Status::ok) << report_.text();
  EXPECT_GT(threads_started, before);
}

#endif

}  // namespace
}  // namespace tenuto::test
