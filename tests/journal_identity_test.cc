// A pool and its journal recognise each other by random ids. Whatever path, copy, link or other
// journal is used, everything acknowledged is there, or the open is refused with an error that says
// what to do. A file that is not provably the pool's own is never touched.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "journal/match.h"
#include "pm/format.h"
#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/pool_image.h"
#include "tenuto/pool.h"

namespace tenuto::test {
namespace {

namespace fs = std::filesystem;

// A folder with a pool "p.tnt" and the files that a test puts beside it.
class JournalIdentity : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/other");
  }
  void TearDown() override {
    unplant_all();
    fs::remove_all(folder_);
  }

  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  static StoreOptions journalled(const std::string& journal = {}) {
    StoreOptions o;
    o.pool = PoolParts::small_options();
    o.pool.size = kPoolBytesMin;
    o.pool.medium = Medium::journal;
    o.pool.journal.path = journal;
    o.pool.journal.bytes = 256u << 10;
    o.pool.journal.sync_every_ms = 0;
    return o;
  }

  // A life that puts a key, syncs, and is killed or closed.
  void live(const std::string& path, const std::string& key, bool kill, const StoreOptions& o) {
    run_and_kill([&] {
      Report report;
      auto opened = Store::open(path, o, &report);
      if (!opened) std::fprintf(stderr, "%s\n", report.text().c_str());
      if (!opened) return false;
      Store& s = *new Store(std::move(*opened));
      if (s.put(key, "1") != Status::ok || s.sync() != Status::ok) return false;
      return kill || s.close() == Status::ok;
    });
  }
  void live(const std::string& path, const std::string& key, bool kill = true) {
    live(path, key, kill, journalled());
  }

  Status open(const std::string& path, const StoreOptions& o = journalled()) {
    report_ = {};
    Result<Store> s = Store::open(path, o, &report_);
    keys_.clear();
    if (!s) return s.error();
    for (const auto& [key, value] : records_of(*s)) keys_ += key + " ";
    EXPECT_EQ(s->validate(), Status::ok);
    return s->close();
  }
  bool says(const std::string& words) const {
    return report_.text().find(words) != std::string::npos;
  }

  const std::string folder_ = TempPath("identity").str() + ".d";
  Report report_;
  std::string keys_;
};

void copy(const std::string& from, const std::string& to) {
  fs::copy_file(from, to, fs::copy_options::overwrite_existing);
}

TEST_F(JournalIdentity, a_symbolic_link_finds_the_same_journal) {
  live(at("p.tnt"), "a", false);
  fs::create_symlink("../p.tnt", at("other/link.tnt"));
  live(at("other/link.tnt"), "b");
  EXPECT_FALSE(fs::exists(at("other/link.tnt.journal")));
  EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a b ");
}

// A life through the hard link that is killed, then an open by the first name.
TEST_F(JournalIdentity, a_hard_link_with_a_journal_of_its_own_is_refused_with_its_place) {
  live(at("p.tnt"), "a", false);
  fs::create_hard_link(at("p.tnt"), at("other/hard.tnt"));
  live(at("other/hard.tnt"), "b");
  EXPECT_EQ(open(at("p.tnt")), Status::corrupt) << keys_;
  EXPECT_TRUE(says(at("other/hard.tnt.journal"))) << report_.text();
  EXPECT_TRUE(says("journal.path")) << report_.text();
  EXPECT_EQ(open(at("p.tnt"), journalled(at("other/hard.tnt.journal"))), Status::ok)
      << report_.text();
  EXPECT_EQ(keys_, "a b ");
  // From then on any closed journal of this pool will do.
  EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
  EXPECT_EQ(open(at("other/hard.tnt")), Status::ok) << report_.text();
}

TEST_F(JournalIdentity, a_bind_mount_is_refused_with_the_journals_place) {
  live(at("p.tnt"), "a", false);
  fs::create_directories(at("mounted"));
  if (::mount(folder_.c_str(), at("mounted").c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "may not mount";
  }
  fs::create_directories(at("elsewhere"));
  StoreOptions o = journalled(at("elsewhere/j"));
  live(at("mounted/p.tnt"), "b", true, o);
  const Status s = open(at("p.tnt"));
  ::umount(at("mounted").c_str());
  EXPECT_EQ(s, Status::corrupt);
  EXPECT_TRUE(says(at("elsewhere/j"))) << report_.text();
  EXPECT_EQ(open(at("p.tnt"), o), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a b ");
}

TEST_F(JournalIdentity, another_journal_path_is_never_taken_for_the_last_one) {
  const StoreOptions there = journalled(at("other/j"));
  for (const bool kept_beside : {true, false}) {
    SetUp();
    live(at("p.tnt"), "a", false);
    if (!kept_beside) fs::remove(at("p.tnt.journal"));
    live(at("p.tnt"), "b", true, there);
    EXPECT_EQ(open(at("p.tnt")), kept_beside ? Status::corrupt : Status::not_found);
    EXPECT_TRUE(says(at("other/j"))) << report_.text();
    EXPECT_EQ(open(at("p.tnt"), there), Status::ok) << report_.text();
    EXPECT_EQ(keys_, "a b ");
  }
}

// Copies after a kill or a close, of each of the two files, before a kill or a close.
TEST_F(JournalIdentity, an_older_copy_of_either_is_refused) {
  for (const bool pool_is_old : {true, false}) {
    for (const bool was_killed : {true, false}) {
      for (const bool then_killed : {true, false}) {
        SCOPED_TRACE(std::string(pool_is_old ? "pool" : "journal") + " of a life " +
                     (was_killed ? "killed" : "closed") + ", then " +
                     (then_killed ? "killed" : "closed"));
        SetUp();
        const std::string file = at(pool_is_old ? "p.tnt" : "p.tnt.journal");
        live(at("p.tnt"), "a", was_killed);
        copy(file, at("old"));
        live(at("p.tnt"), "b", then_killed);
        copy(at("old"), file);
        const Status s = open(at("p.tnt"));
        // A pool and a journal that were both closed do not need each other.
        const bool harmless = !was_killed && !then_killed;
        if (harmless && s == Status::ok) {
          EXPECT_EQ(keys_, pool_is_old ? "a " : "a b ");
        } else {
          EXPECT_EQ(s, Status::corrupt) << keys_;
          EXPECT_TRUE(says("put the right")) << report_.text();
        }
        EXPECT_TRUE(!harmless || s == Status::ok) << report_.text();
      }
    }
  }
}

// Copies within one life: a checkpoint in between tells them apart.
TEST_F(JournalIdentity, an_older_copy_of_the_same_life_is_refused) {
  for (const bool pool_is_old : {true, false}) {
    SetUp();
    run_and_kill([&] {
      Store& s = *new Store(*Store::open(at("p.tnt"), journalled()));
      const auto put = [&](int from, int to) {
        for (int i = from; i < to; ++i) {
          std::string noise(700, ' ');
          for (char& c : noise) c = static_cast<char>(::random());
          if (s.put("key" + std::to_string(i), noise) != Status::ok) return false;
        }
        return s.sync() == Status::ok;
      };
      if (!put(0, 20)) return false;
      copy(at("p.tnt"), at("old"));
      copy(at("p.tnt.journal"), at("old.journal"));
      if (!put(20, 400)) return false;
      return s.stats().pool.journal_checkpoints > 1;
    });
    if (pool_is_old) copy(at("old"), at("p.tnt"));
    if (!pool_is_old) copy(at("old.journal"), at("p.tnt.journal"));
    const Bytes pool = read_image(at("p.tnt"));
    EXPECT_EQ(open(at("p.tnt")), Status::corrupt) << keys_;
    EXPECT_TRUE(says("older copy")) << report_.text();
    EXPECT_TRUE(read_image(at("p.tnt")) == pool) << "something was replayed";
    // The older pair together is a valid state.
    copy(at("old"), at("p.tnt"));
    copy(at("old.journal"), at("p.tnt.journal"));
    EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
  }
}

TEST_F(JournalIdentity, a_pool_and_its_journal_copied_together_go_on_each_by_itself) {
  live(at("p.tnt"), "a");
  copy(at("p.tnt"), at("other/p.tnt"));
  copy(at("p.tnt.journal"), at("other/p.tnt.journal"));
  live(at("p.tnt"), "b");
  live(at("other/p.tnt"), "c");
  // Now there are two pools: neither accepts the other's journal.
  EXPECT_EQ(open(at("p.tnt"), journalled(at("other/p.tnt.journal"))), Status::corrupt);
  EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a b ");
  EXPECT_EQ(open(at("other/p.tnt")), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a c ");
}

TEST_F(JournalIdentity, a_pool_moved_with_its_journal_opens) {
  live(at("p.tnt"), "a");
  fs::rename(at("p.tnt"), at("other/q.tnt"));
  EXPECT_EQ(open(at("other/q.tnt")), Status::not_found);
  EXPECT_TRUE(says(at("p.tnt.journal"))) << report_.text();
  fs::rename(at("p.tnt.journal"), at("other/q.tnt.journal"));
  EXPECT_EQ(open(at("other/q.tnt")), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a ");
}

// A command that makes a journal only for itself leaves the application's journal in its place.
// The error says what to do, and doing that loses nothing: a pool in use asks for its journal.
TEST_F(JournalIdentity, a_journal_cut_short_may_be_moved_away_if_the_pool_was_closed) {
  for (const bool kill : {false, true}) {
    live(at("p.tnt"), kill ? "b" : "a", kill);
    fs::resize_file(at("p.tnt.journal"), 100'000);
    EXPECT_EQ(open(at("p.tnt")), Status::corrupt);
    EXPECT_TRUE(says("move this one away")) << report_.text();
    fs::rename(at("p.tnt.journal"), at(kill ? "killed" : "closed"));
    EXPECT_EQ(open(at("p.tnt")), kill ? Status::not_found : Status::ok) << report_.text();
    EXPECT_EQ(keys_, kill ? "" : "a ");
  }
}

TEST_F(JournalIdentity, a_journal_that_was_there_is_kept_by_who_would_remove_his_own) {
  StoreOptions command = journalled();
  command.pool.journal.keep = false;
  live(at("p.tnt"), "a");
  live(at("p.tnt"), "b", false, command);
  EXPECT_TRUE(fs::exists(at("p.tnt.journal")));
  EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a b ");
  fs::remove(at("p.tnt.journal"));
  live(at("p.tnt"), "c", false, command);
  EXPECT_FALSE(fs::exists(at("p.tnt.journal")));
  live(at("p.tnt"), "d", true, command);  // the command's own journal, after a kill
  EXPECT_TRUE(fs::exists(at("p.tnt.journal")));
  live(at("p.tnt"), "e", false, command);
  EXPECT_FALSE(fs::exists(at("p.tnt.journal")));
  EXPECT_EQ(open(at("p.tnt")), Status::ok);
  EXPECT_EQ(keys_, "a b c d e ");
}

TEST_F(JournalIdentity, a_life_on_another_medium_ends_what_a_journal_counts_for) {
  StoreOptions cache = journalled();
  cache.pool.medium = Medium::cache;
  live(at("p.tnt"), "a");
  copy(at("p.tnt.journal"), at("old"));
  live(at("p.tnt"), "b", true, cache);
  EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a b ");
  live(at("p.tnt"), "c", true, cache);
  copy(at("old"), at("p.tnt.journal"));
  // The journal is older and in use: this looks like a newer journal beside an older copy of the
  // pool.
  EXPECT_EQ(open(at("p.tnt")), Status::corrupt);
  EXPECT_EQ(open(at("p.tnt"), cache), Status::corrupt);
  EXPECT_TRUE(says("move the journal away")) << report_.text();
  fs::remove(at("p.tnt.journal"));
  EXPECT_EQ(open(at("p.tnt"), cache), Status::ok) << report_.text();
  EXPECT_EQ(keys_, "a b c ");
}

// The copy was closed and needs no journal, but without the journal an open would miss its
// contents.
TEST_F(JournalIdentity, an_older_copy_is_refused_on_any_medium_and_to_read) {
  StoreOptions cache = journalled();
  cache.pool.medium = Medium::cache;
  StoreOptions to_read = journalled();
  to_read.pool.read_only = true;
  live(at("p.tnt"), "a", false);
  copy(at("p.tnt"), at("old"));
  live(at("p.tnt"), "b");
  copy(at("old"), at("p.tnt"));
  for (const StoreOptions& o : {cache, to_read}) {
    EXPECT_EQ(open(at("p.tnt"), o), Status::corrupt) << keys_;
    EXPECT_TRUE(says("older copy")) << report_.text();
  }
  // With the journal of another pool, or with none, nothing of this pool is missing.
  live(at("other/p.tnt"), "x");
  for (const bool gone : {false, true}) {
    fs::remove(at("p.tnt.journal"));
    if (!gone) copy(at("other/p.tnt.journal"), at("p.tnt.journal"));
    for (const StoreOptions& o : {to_read, cache}) {
      EXPECT_EQ(open(at("p.tnt"), o), Status::ok) << report_.text();
      EXPECT_EQ(keys_, "a ");
    }
  }
}

// Another medium took over the pool, which closed its journal: the journal does not hinder an open.
TEST_F(JournalIdentity, half_a_superblock_after_a_life_on_another_medium_opens) {
  StoreOptions cache = journalled();
  cache.pool.medium = Medium::cache;
  for (const std::size_t damaged : {std::size_t{0}, std::size_t{kFrameBytes}}) {
    SetUp();
    live(at("p.tnt"), "a");
    live(at("p.tnt"), "b", false, cache);
    Bytes pool = read_image(at("p.tnt"));
    pool[damaged + offsetof(pm::Superblock, created_unix_s)] ^= 1;
    write_image(at("p.tnt"), pool);
    EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
    EXPECT_EQ(keys_, "a b ");
  }
}

// The damaged half of the superblock may have said that a journal is in use.
TEST_F(JournalIdentity, half_a_superblock_is_not_read_without_what_its_journal_holds) {
  StoreOptions to_read = journalled();
  to_read.pool.read_only = true;
  for (const std::size_t damaged : {std::size_t{0}, std::size_t{kFrameBytes}}) {
    SetUp();
    live(at("p.tnt"), "a", false);
    live(at("p.tnt"), "b");
    Bytes pool = read_image(at("p.tnt"));
    pool[damaged + offsetof(pm::Superblock, created_unix_s)] ^= 1;
    write_image(at("p.tnt"), pool);
    EXPECT_NE(open(at("p.tnt"), to_read), Status::ok) << keys_;
    EXPECT_FALSE(report_.text().empty());
    EXPECT_EQ(open(at("p.tnt")), Status::ok) << report_.text();
    EXPECT_EQ(keys_, "a b ");
  }
}

// --- planted -------------------------------------------------------------------------------------

#ifdef TENUTO_DEBUG_CHECKS

TEST_F(JournalIdentity, a_planted_belief_in_older_copies_replays_them) {
  plant("journal_older_copy_believed");
  run_and_kill([&] {
    Store& s = *new Store(*Store::open(at("p.tnt"), journalled()));
    const auto put = [&](int from, int to) {
      for (int i = from; i < to; ++i) {
        std::string noise(700, ' ');
        for (char& c : noise) c = static_cast<char>(::random());
        if (s.put("key" + std::to_string(i), noise) != Status::ok) return false;
      }
      return true;
    };
    if (!put(0, 20)) return false;
    copy(at("p.tnt.journal"), at("old.journal"));
    return put(20, 400) && s.stats().pool.journal_checkpoints > 1;
  });
  copy(at("old.journal"), at("p.tnt.journal"));
  const Bytes pool = read_image(at("p.tnt"));
  static_cast<void>(Store::open(at("p.tnt"), journalled()));
  EXPECT_FALSE(read_image(at("p.tnt")) == pool) << "the planted mistake does not show";
}

TEST_F(JournalIdentity, a_planted_look_elsewhere_reads_an_older_copy) {
  plant("journal_unneeded_not_looked_at");
  live(at("p.tnt"), "a", false);
  copy(at("p.tnt"), at("old"));
  live(at("p.tnt"), "b");
  copy(at("old"), at("p.tnt"));
  StoreOptions to_read = journalled();
  to_read.pool.read_only = true;
  EXPECT_EQ(open(at("p.tnt"), to_read), Status::ok);
  EXPECT_EQ(keys_, "a ") << "the planted mistake does not show";
}

TEST_F(JournalIdentity, planted_mistakes_lose_what_was_synced) {
  plant("journal_ids_not_compared");
  plant("journal_path_not_resolved");
  live(at("p.tnt"), "a", false);
  fs::create_symlink("p.tnt", at("link.tnt"));
  live(at("link.tnt"), "b");
  EXPECT_EQ(open(at("p.tnt")), Status::ok);
  EXPECT_EQ(keys_, "a ") << "the planted mistake does not show";
}

#endif

}  // namespace
}  // namespace tenuto::test
