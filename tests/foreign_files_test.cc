// Files of other programs. If one is in the place of a file that the library wants to make, the
// library does not truncate it, write to it, rename over it or remove it. Files that it makes have
// the permissions that were asked for. Their descriptors are never 0, 1 or 2.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "pm/plant.h"
#include "support/journal_parts.h"
#include "support/obstacles.h"
#include "support/pool_image.h"
#include "tenuto/pool.h"
#include "tenuto/rescue.h"

namespace tenuto::test {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kSecondsMax = 60;

class ForeignFiles : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    unplant_all();
    fs::remove_all(folder_);
  }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

  static StoreOptions options(Medium medium = Medium::journal) {
    StoreOptions o;
    o.pool = PoolParts::small_options();
    o.pool.size = kPoolBytesMin;
    o.pool.medium = medium;
    o.pool.journal.bytes = 256u << 10;
    return o;
  }
  // Makes a closed pool without a journal.
  void make_pool(const std::string& path) const {
    Result<Store> s = Store::open(path, options(Medium::cache));
    ASSERT_TRUE(s);
    ASSERT_EQ(s->put("a", "1"), Status::ok);
    ASSERT_EQ(s->close(), Status::ok);
  }

  void make_pool_of_3001() const {
    make_pool(at("p.tnt"));
    run_and_kill([&] {
      Result<Store> s = Store::open(at("p.tnt"), options(Medium::cache));
      for (int i = 0; s && i < 3000; ++i) {
        if (s->put("key" + std::to_string(i), std::string(1000, 'x')) != Status::ok) return false;
      }
      return s && s->close() == Status::ok;
    });
  }

  const std::string folder_ = TempPath("foreign").str() + ".d";
};

// An operation that makes a file at a path, and can do without it.
struct Maker {
  const char* name;
  const char* file;  // the file that it makes
  std::function<Status(const std::string& folder)> run;
};

class ForeignFilesAt : public ForeignFiles, public testing::WithParamInterface<int> {
 protected:
  std::vector<Maker> makers() const {
    return {
        {"create", "new.tnt",
         [](const std::string& d) {
           StoreOptions o = options();
           o.error_if_exists = true;
           return Store::open(d + "/new.tnt", o).error();
         }},
        {"journal of a new pool", "new.tnt.journal",
         [](const std::string& d) { return Store::open(d + "/new.tnt", options()).error(); }},
        {"journal", "p.tnt.journal",
         [](const std::string& d) { return Store::open(d + "/p.tnt", options()).error(); }},
        {"journal that goes again", "p.tnt.journal",
         [](const std::string& d) {
           StoreOptions o = options();
           o.pool.journal.keep = false;
           return Store::open(d + "/p.tnt", o).error();
         }},
        {"backup", "b.tnt",
         [](const std::string& d) {
           Result<Store> s = Store::open(d + "/p.tnt", options(Medium::cache));
           return s ? s->backup(d + "/b.tnt") : s.error();
         }},
        {"rescue", "r.tnt",
         [](const std::string& d) {
           RescueOptions o;
           RescueResult result;
           return rescue(d + "/p.tnt", d + "/r.tnt", o, result);
         }},
    };
  }
};

TEST_P(ForeignFilesAt, what_stands_in_the_way_stays) {
  const Maker maker = makers()[static_cast<std::size_t>(GetParam())];
  SCOPED_TRACE(maker.name);
  for (const Obstacle& obstacle : kObstacles) {
    SCOPED_TRACE(obstacle.name);
    SetUp();
    make_pool(at("p.tnt"));
    const std::string file = at(maker.file);
    write_text(at("victim"), kText);
    obstacle.put(file, at("victim"));
    const Standing before(file);
    ::alarm(kSecondsMax);
    const Status s = maker.run(folder_);
    ::alarm(0);
    EXPECT_NE(s, Status::ok);
    before.expect_still();
    EXPECT_EQ(text_of(at("victim")), kText);
    EXPECT_FALSE(fs::exists(file + ".nowhere"));
    // No other file is left, either.
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == "p.tnt" || name == "victim" || name == maker.file) << name;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Makers, ForeignFilesAt, testing::Range(0, 6));

TEST_F(ForeignFiles, another_pools_journal_stays) {
  for (const bool closed : {true, false}) {
    SetUp();
    make_pool(at("p.tnt"));
    run_and_kill([&] {
      Store& s = *new Store(*Store::open(at("q.tnt"), options()));
      return s.put("q", "1") == Status::ok && (!closed || s.close() == Status::ok);
    });
    fs::rename(at("q.tnt.journal"), at("p.tnt.journal"));
    const Bytes journal = read_image(at("p.tnt.journal"));
    Report report;
    EXPECT_EQ(Store::open(at("p.tnt"), options(), &report).error(), Status::invalid_argument);
    EXPECT_NE(report.text().find(at("q.tnt")), std::string::npos) << report.text();
    EXPECT_TRUE(read_image(at("p.tnt.journal")) == journal);
  }
}

// Another program takes the name while a backup is made: its file stays, and nothing else is left.
TEST_F(ForeignFiles, a_name_that_is_taken_meanwhile_is_not_replaced) {
  make_pool(at("p.tnt"));
  Result<Store> s = Store::open(at("p.tnt"), options(Medium::cache));
  ASSERT_TRUE(s);
  PoolOptions o = options(Medium::cache).pool;
  Status first = Status::ok, second = Status::ok;
  std::thread other([&] { second = s->backup(at("b.tnt"), o); });
  first = s->backup(at("b.tnt"), o);
  other.join();
  EXPECT_TRUE((first == Status::ok) != (second == Status::ok) || first == Status::exists);
  EXPECT_TRUE(first == Status::ok || first == Status::exists) << status_name(first);
  EXPECT_TRUE(second == Status::ok || second == Status::exists) << status_name(second);
  Result<Store> b = Store::open(at("b.tnt"), options(Medium::cache));
  ASSERT_TRUE(b);
  EXPECT_EQ(b->contains("a"), Status::ok);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);
}

// Who comes second, at whatever point of the first one's making, finds a pool: it is opened, or in
// use.
TEST_F(ForeignFiles, a_pool_that_several_make_at_once_is_made_by_one) {
  const auto race = [&](Medium medium, int rounds) {
    StoreOptions o = options(medium);
    o.pool.journal.bytes = 4u << 20;  // takes a while
    int wrong = 0;
    for (int round = 0; round < rounds && wrong == 0; ++round) {
      SetUp();
      std::vector<Status> statuses(4);
      std::vector<std::thread> makers;
      for (Status& s : statuses) {
        makers.emplace_back([&] { s = Store::open(at("new.tnt"), o).error(); });
      }
      for (std::thread& t : makers) t.join();
      for (const Status s : statuses) wrong += s != Status::ok && s != Status::busy ? 1 : 0;
      wrong += Store::open(at("new.tnt"), o).error() != Status::ok ? 1 : 0;
    }
    return wrong;
  };
  EXPECT_EQ(race(Medium::cache, 4), 0);
  EXPECT_EQ(race(Medium::journal, 4), 0);
  plant("journal_of_another_maker_not_looked_at");
  EXPECT_NE(race(Medium::journal, 200), 0);
}

TEST_F(ForeignFiles, a_path_that_leads_nowhere_says_so) {
  Report report;
  fs::create_symlink("nowhere", at("link.tnt"));
  for (const Medium medium : {Medium::cache, Medium::journal}) {
    EXPECT_EQ(Store::open(at("link.tnt"), options(medium), &report).error(),
              Status::invalid_argument);
    EXPECT_NE(report.what.find("symbolic link"), std::string::npos) << report.text();
    // Not the pool of the path before the zero byte.
    const std::string_view zero("p.tnt\0x", 7);
    EXPECT_EQ(Store::open(at("") + std::string(zero), options(medium), &report).error(),
              Status::invalid_argument);
    EXPECT_NE(report.what.find("zero byte"), std::string::npos) << report.text();
    StoreOptions o = options(medium);
    o.pool.journal.path = at("") + std::string(zero);
    EXPECT_EQ(Store::open(at("p.tnt"), o, &report).error(), Status::invalid_argument);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(ForeignFiles, a_backup_or_rescue_that_is_killed_leaves_nothing) {
  make_pool_of_3001();
  for (const bool of_rescue : {true, false}) {
    for (int ms = 1; ms < 60; ms += 9) {
      const pid_t child = ::fork();
      if (child == 0) {
        RescueResult result;
        if (of_rescue) {
          static_cast<void>(rescue(at("p.tnt"), at("copy"), {}, result));
          ::_exit(0);
        }
        Result<Store> s = Store::open(at("p.tnt"), options(Medium::cache));
        if (s) static_cast<void>(s->backup(at("copy")));
        ::_exit(0);
      }
      ::usleep(static_cast<useconds_t>(ms) * 1000);
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      for (const auto& entry : fs::directory_iterator(folder_)) {
        const std::string name = entry.path().filename();
        EXPECT_TRUE(name == "p.tnt" || name == "copy") << name;
      }
      if (fs::exists(at("copy"))) {
        Result<Store> whole = Store::open(at("copy"), options(Medium::cache));
        ASSERT_TRUE(whole);
        EXPECT_EQ(whole->stats().records, 3001u);
      }
      fs::remove(at("copy"));
    }
  }
}

#ifdef TENUTO_DEBUG_CHECKS
// A file system without nameless files: the next maker removes a temporary file whose maker
// provably died.
class WithoutNamelessFiles : public ForeignFiles {
 protected:
  void SetUp() override {
    ForeignFiles::SetUp();
    make_pool_of_3001();
    plant("pm_no_nameless_files");
  }
  std::vector<std::string> unfinished() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("copy.creating-")) names.push_back(name);
    }
    return names;
  }
  // A backup that SIGKILL or SIGSTOP interrupts.
  pid_t interrupted(int signal) const {
    const pid_t child = ::fork();
    if (child == 0) {
      Result<Store> s = Store::open(at("p.tnt"), options(Medium::cache));
      if (s) static_cast<void>(s->backup(at("copy")));
      ::_exit(0);
    }
    for (int n = 0; n < 60'000 && unfinished().empty(); ++n) ::usleep(1000);
    ::usleep(200);
    ::kill(child, signal);
    if (signal == SIGKILL) ::waitpid(child, nullptr, 0);
    return child;
  }
  bool backup() const {
    Result<Store> s = Store::open(at("q.tnt"), options(Medium::cache));
    return s && s->backup(at("copy")) == Status::ok;
  }
  // Whether the next backup to that path removes what a killed one left.
  bool next_one_removes_it() {
    fs::copy_file(at("p.tnt"), at("q.tnt"), fs::copy_options::overwrite_existing);
    for (int tries = 0; tries < 20; ++tries) {
      interrupted(SIGKILL);
      if (!unfinished().empty()) break;
      fs::remove(at("copy"));
    }
    EXPECT_FALSE(unfinished().empty()) << "it was never killed in the middle";
    EXPECT_TRUE(backup());
    const bool gone = unfinished().empty();
    fs::remove(at("copy"));
    return gone;
  }
};

TEST_F(WithoutNamelessFiles, what_a_killed_maker_left_goes_and_nothing_else) {
  EXPECT_TRUE(next_one_removes_it());
  const std::string others[] = {"copy.creating-12345678", "copy.creating-12345678-12345678",
                                "copy.creating-", "copy2.creating-12345678"};
  for (const std::string& name : others) write_text(at(name), kText);
  EXPECT_TRUE(backup());
  for (const std::string& name : others) {
    EXPECT_EQ(text_of(at(name)), kText);
    fs::remove(at(name));
  }
  fs::remove(at("copy"));
  plant("pm_unfinished_files_stay");
  EXPECT_FALSE(next_one_removes_it());
}

TEST_F(WithoutNamelessFiles, what_a_living_maker_works_on_stays) {
  fs::copy_file(at("p.tnt"), at("q.tnt"));
  pid_t child = -1;
  for (int tries = 0; tries < 20 && unfinished().empty(); ++tries) {
    if (child > 0) ::kill(child, SIGKILL);
    if (child > 0) ::waitpid(child, nullptr, 0);
    fs::remove(at("copy"));
    child = interrupted(SIGSTOP);
  }
  ASSERT_FALSE(unfinished().empty());
  EXPECT_TRUE(backup());
  EXPECT_EQ(unfinished().size(), 1u);
  ::kill(child, SIGCONT);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(unfinished().empty());
  EXPECT_EQ(Store::open(at("copy"), options(Medium::cache))->stats().records, 3001u);
}
#endif

TEST_F(ForeignFiles, permissions_are_those_that_were_asked_for) {
  const mode_t mask = ::umask(0);
  const auto mode_of = [&](const std::string& name) {
    struct stat st {};
    EXPECT_EQ(::stat(at(name).c_str(), &st), 0) << name;
    return st.st_mode & 0777;
  };
  for (const unsigned asked : {0u, 0640u, 0666u}) {
    for (const mode_t masked : {0, 077}) {
      SetUp();
      ::umask(masked);
      StoreOptions o = options();
      o.pool.mode = asked;
      Result<Store> s = Store::open(at("p.tnt"), o);
      ASSERT_TRUE(s);
      ASSERT_EQ(s->put("a", "1"), Status::ok);
      ASSERT_EQ(s->backup(at("b.tnt")), Status::ok);
      ASSERT_EQ(s->close(), Status::ok);
      RescueResult result;
      ASSERT_EQ(rescue(at("p.tnt"), at("r.tnt"), {}, result), Status::ok);
      const unsigned expected = asked == 0 ? 0600 : asked;
      for (const char* name : {"p.tnt", "p.tnt.journal", "b.tnt", "r.tnt"}) {
        EXPECT_EQ(mode_of(name), expected) << name << " of " << std::oct << asked;
      }
      fs::remove(at("p.tnt.journal"));
      ASSERT_EQ(::chmod(at("p.tnt").c_str(), 0660), 0);
      { ASSERT_TRUE(Store::open(at("p.tnt"), options())); }
      EXPECT_EQ(mode_of("p.tnt.journal"), 0660u) << "of a journal made later";
    }
  }
  ::umask(mask);
}

// A daemon closes these three. Then the next file that it opens gets one of them, and printf writes
// to that file.
bool standard_descriptors_stay_closed(const std::string& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    StoreOptions o;
    o.pool = PoolParts::small_options();
    o.pool.size = kPoolBytesMin;
    o.pool.medium = Medium::journal;
    o.pool.journal.bytes = 256u << 10;
    int low = 0;
    const auto look = [&] {
      for (int fd = 0; fd < 3; ++fd) low += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    };
    {
      Result<Store> s = Store::open(folder + "/p.tnt", o);
      if (!s) ::_exit(2);
      look();
      std::printf("what a daemon says\n");
      std::fflush(stdout);
      if (s->put("a", "1") != Status::ok || s->backup(folder + "/b.tnt") != Status::ok) ::_exit(3);
      look();
    }
    RescueResult result;
    if (rescue(folder + "/p.tnt", folder + "/r.tnt", {}, result) != Status::ok) ::_exit(4);
    look();
    Result<Store> again = Store::open(folder + "/p.tnt", o);
    ::_exit(again && again->contains("a") == Status::ok ? (low == 0 ? 0 : 1) : 5);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST_F(ForeignFiles, descriptors_of_ours_are_three_or_higher) {
  EXPECT_TRUE(standard_descriptors_stay_closed(folder_));
}

#ifdef TENUTO_DEBUG_CHECKS
TEST_F(ForeignFiles, a_place_that_is_overwritten_shows) {
  plant("journal_place_overwritten");
  make_pool(at("p.tnt"));
  write_text(at("p.tnt.journal"), kText);
  static_cast<void>(Store::open(at("p.tnt"), options()));
  EXPECT_NE(text_of(at("p.tnt.journal")), kText);
}

TEST_F(ForeignFiles, a_low_descriptor_that_is_kept_shows) {
  plant("pm_low_descriptor_kept");
  EXPECT_FALSE(standard_descriptors_stay_closed(folder_));
}
#endif

}  // namespace
}  // namespace tenuto::test
