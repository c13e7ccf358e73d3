// tools/tenuto and the journals of pools: given by name, shown, kept, and removed with their pool.
// Also what a killed command leaves.
#include "tool_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <set>

#include "tenuto/pool.h"

using namespace std::string_literals;
using nlohmann::json;

namespace tenuto::test {
namespace {

class ToolJournal : public ToolTest {
 protected:
  // A closed pool with one record. Its journal is kept at that path.
  std::string closed_pool(const std::string& name, const std::string& journal = {}) {
    StoreOptions options = journalled();
    options.pool.journal.path = journal;
    Result<Store> store = Store::open(path(name), options);
    EXPECT_TRUE(store);
    EXPECT_EQ(store->put("k", "old"), Status::ok);
    EXPECT_EQ(store->close(), Status::ok);
    return path(name);
  }
};

TEST_F(ToolJournal, every_command_finds_a_journal_that_is_elsewhere) {
  const std::string pool = path("a.tnt");
  const std::string elsewhere = path("elsewhere");
  StoreOptions options = journalled();
  options.pool.journal.path = elsewhere;
  write_and_die(pool, "k", "v", options);
  const std::string left = read_file(pool);
  const std::string journal = read_file(elsewhere);
  write_file(path("in.tsv"), "l\tw\n");
  const std::vector<std::vector<std::string>> kCommands = {
      {"info", pool},
      {"check", pool},
      {"stats", pool},
      {"get", pool, "k"},
      {"put", pool, "l", "w"},
      {"del", pool, "k"},
      {"scan", pool},
      {"load", pool, path("in.tsv")},
      {"dump", pool, "--format", "tsv"},
      {"collections", pool},
      {"compact", pool},
      {"backup", pool, path("copy.tnt")},
  };
  for (std::vector<std::string> words : kCommands) {
    SCOPED_TRACE(words[0]);
    write_file(pool, left);
    write_file(elsewhere, journal);
    const Outcome without = run(words);
    EXPECT_EQ(without.code, 1) << without.err;
    EXPECT_NE(without.err.find("--journal"), std::string::npos) << without.err;
    EXPECT_NE(without.err.find(elsewhere), std::string::npos) << without.err;
    EXPECT_EQ(without.err.find("PoolOptions"), std::string::npos) << without.err;
    EXPECT_EQ(without.err.find("comes before"), std::string::npos) << without.err;
    EXPECT_TRUE(read_file(pool) == left && read_file(elsewhere) == journal);
    words.insert(words.end(), {"--journal", elsewhere});
    const Outcome with = run(words);
    EXPECT_EQ(with.code, 0) << with.err;
    EXPECT_EQ(run({"get", pool, "k"}).code, words[0] == "del" ? 1 : 0) << "it is closed";
    EXPECT_TRUE(std::filesystem::exists(elsewhere)) << "the application's";
  }
}

TEST_F(ToolJournal, info_says_which_journal_where_and_whether_that_is_it) {
  const std::string plain = new_pool("plain.tnt", {"--medium", "cache"});
  EXPECT_EQ(run_json({"info", plain})["journal"], "none");
  EXPECT_NE(run({"info", plain}).out.find("never had one"), std::string::npos);

  const std::string pool = closed_pool("a.tnt");
  const std::string beside = pool + ".journal";
  const json fits = run_json({"info", pool});
  EXPECT_EQ(fits["journal"], "fits");
  EXPECT_EQ(fits["journal_id"].get<std::string>().size(), 16u);
  EXPECT_EQ(fits["journal_path"], beside);
  EXPECT_EQ(fits["journal_last_place"], beside);
  EXPECT_NE(run({"info", pool}).out.find(beside + ": the pool's own"), std::string::npos);

  std::filesystem::rename(beside, path("moved"));
  EXPECT_EQ(run_json({"info", pool})["journal"], "gone");
  const json moved = run_json({"info", pool, "--journal", path("moved")});
  EXPECT_EQ(moved["journal"], "fits");
  EXPECT_EQ(moved["journal_path"], path("moved"));
  EXPECT_EQ(moved["journal_last_place"], beside);
  EXPECT_EQ(moved["journal_id"], fits["journal_id"]);

  write_file(beside, "somebody's text\n");
  EXPECT_EQ(run_json({"info", pool})["journal"], "foreign");
  EXPECT_NE(run({"info", pool}).out.find("NOT the pool's own"), std::string::npos);
  closed_pool("b.tnt");
  EXPECT_EQ(run_json({"info", pool, "--journal", path("b.tnt.journal")})["journal"], "foreign");
  EXPECT_EQ(read_file(beside), "somebody's text\n");
}

TEST_F(ToolJournal, info_of_a_pool_that_is_only_read_says_what_a_writer_would_have) {
  const json info = run_json({"info", closed_pool("a.tnt"), "--medium", "journal"});
  EXPECT_EQ(info["medium"], "journal");
  EXPECT_EQ(info["power_cut_safe"], true);
  // The same as without the option.
  EXPECT_EQ(run_json({"info", path("a.tnt")})["medium"], "journal");
  EXPECT_EQ(run_json({"info", path("a.tnt"), "--medium", "cache"})["power_cut_safe"], false);
#ifdef TENUTO_DEBUG_CHECKS
  const auto less = [] { setenv("TENUTO_PLANT", "pm_automatic_takes_less_in_silence", 1); };
  EXPECT_NE(run({"info", path("a.tnt")}, {}, less).out.find("NOT safe"), std::string::npos);
  // Without AVX-512 the automatic medium is the journal, too.
  const auto slow = [] { setenv("TENUTO_PLANT", "journal_processor_without_whole_loads", 1); };
  EXPECT_EQ(run({"put", path("a.tnt"), "k", "slow"}, {}, slow).code, 0);
  const Outcome o = run({"info", path("a.tnt")}, {}, slow);
  EXPECT_NE(o.out.find("power cut        safe"), std::string::npos) << o.out;
#endif
}

TEST_F(ToolJournal, the_pool_is_no_place_for_its_journal_and_the_journal_none_for_a_dump) {
  const std::string pool = closed_pool("a.tnt");
  const std::string journal = read_file(pool + ".journal");
  std::filesystem::create_symlink("a.tnt", path("link"));
  for (const std::string& place : {pool, path("./a.tnt"), path("link")}) {
    expect_error(run({"put", pool, "k", "v", "--medium", "journal", "--journal", place}),
                 Status::invalid_argument, "the journal's place is that of the pool");
  }
  expect_error(run({"create", path("b.tnt"), "--medium", "journal", "--journal", path("b.tnt")}),
               Status::invalid_argument, "the journal's place is that of the pool");
  expect_error(run({"dump", pool, pool + ".journal", "--format", "tsv"}), Status::invalid_argument,
               "would replace the pool's journal");
  expect_error(run({"dump", path("link"), pool + ".journal", "--format", "tsv"}),
               Status::invalid_argument, "would replace the pool's journal");
  EXPECT_TRUE(read_file(pool + ".journal") == journal);
  EXPECT_EQ(files(), (std::set<std::string>{"a.tnt", "a.tnt.journal", "link"}));
}

TEST_F(ToolJournal, force_takes_the_old_pools_journal_with_it) {
  for (const bool killed : {false, true}) {
    SCOPED_TRACE(killed ? "killed" : "closed");
    const std::string pool = closed_pool("a.tnt");
    const std::string journal = read_file(pool + ".journal");
    if (killed) write_and_die(pool, "lost", "with the old one", journalled());
    const Outcome o = run({"create", pool, "--size", "8M", "--force"});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(files(), std::set<std::string>{"a.tnt"});
    // As if the command had ended before it removed the journal.
    write_file(pool + ".journal", journal);
    EXPECT_EQ(run({"put", pool, "k", "new", "--medium", "journal"}).code, 0);
    EXPECT_EQ(run({"scan", pool}).out, "k\tnew\n");
    std::filesystem::remove(pool);
    std::filesystem::remove(pool + ".journal");
  }
}

// `create --force` is stopped at each of its steps, and another process opens the pool then.
TEST_F(ToolJournal, force_takes_no_pool_and_no_journal_that_came_into_use_meanwhile) {
  const std::string pool = path("a.tnt");
  const std::pair<std::uint32_t, std::string> kSteps[] = {
      {IN_CREATE, ".new"}, {IN_DELETE, ".journal"}, {IN_MOVED_TO, "a.tnt"}};
  for (const auto& [step, name] : kSteps) {
    SCOPED_TRACE(name);
    closed_pool("a.tnt");
    const int watch = inotify_init1(IN_CLOEXEC);
    ASSERT_GE(inotify_add_watch(watch, path("").c_str(), step), 0);
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const pid_t command = start({"create", pool, "--size", "8M", "--force", "-q"}, in);
    close(in);
    for (bool come = false; !come;) {
      alignas(inotify_event) char bytes[4096];
      pollfd ready = {watch, POLLIN, 0};
      ASSERT_EQ(poll(&ready, 1, 10'000), 1);
      const ssize_t n = read(watch, bytes, sizeof bytes);
      for (ssize_t at = 0; at < n;) {
        const auto& event = *reinterpret_cast<const inotify_event*>(bytes + at);
        come = come || std::string_view(event.name).ends_with(name);
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
    kill(command, SIGSTOP);
    close(watch);
    const pid_t other = fork();
    if (other == 0) {
      Result<Store> store = Store::open(pool, journalled());
      _exit(store ? static_cast<int>(store->put("new", "v")) : static_cast<int>(store.error()));
    }
    const int put = wait(other);
    kill(command, SIGCONT);
    EXPECT_EQ(wait(command), 0) << read_file(path(".err"));
    Result<Store> store = Store::open(pool, journalled());
    ASSERT_TRUE(store) << status_name(store.error());
    EXPECT_TRUE(put == 0 || put == static_cast<int>(Status::busy)) << put;
    EXPECT_EQ(store->contains("new"), put == 0 ? Status::ok : Status::not_found);
    EXPECT_EQ(store->close(), Status::ok);
    std::filesystem::remove(pool);
    std::filesystem::remove(pool + ".journal");
  }
}

TEST_F(ToolJournal, force_through_a_link_keeps_the_link_and_the_mode) {
  const std::string pool = closed_pool("a.tnt");
  std::filesystem::create_symlink("a.tnt", path("link"));
  chmod(pool.c_str(), 0640);
  EXPECT_EQ(run({"create", path("link"), "--size", "8M", "--force"}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(run({"get", pool, "k"}).code, 1) << "the old one";
  EXPECT_EQ(std::filesystem::status(pool).permissions(), std::filesystem::perms{0640});
  EXPECT_EQ(files(), (std::set<std::string>{"a.tnt", "link"}));
}

TEST_F(ToolJournal, force_leaves_a_journal_that_is_not_the_old_pools) {
  const std::string pool = closed_pool("a.tnt");
  closed_pool("b.tnt");
  for (const std::string& wrong : {"somebody's text\n"s, read_file(path("b.tnt.journal"))}) {
    write_file(pool + ".journal", wrong);
    expect_error(run({"create", pool, "--size", "8M", "--force"}), Status::exists, "a.tnt.journal");
    EXPECT_EQ(read_file(pool + ".journal"), wrong);
    EXPECT_EQ(run({"get", pool, "k"}).out, "old");
  }
  // The old pool needs a journal, but the file in its place is not a journal: it may belong to
  // anybody.
  std::filesystem::remove(pool + ".journal");
  write_and_die(pool, "more", "1", journalled());
  write_file(pool + ".journal", "somebody's text\n");
  expect_error(run({"create", pool, "--size", "8M", "--force"}), Status::exists, "a.tnt.journal");
}

TEST_F(ToolJournal, what_a_killed_create_left_goes_with_the_next_one) {
  const std::string pool = new_pool("a.tnt");
  write_file(path(".a.tnt.12345678.new"), "somebody's text\n");
  for (int ms = 0; ms < 40; ms += 2) {
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const pid_t child = start({"create", pool, "--size", "8M", "--force"}, in);
    close(in);
    usleep(static_cast<useconds_t>(ms) * 1000);
    kill(child, SIGKILL);
    static_cast<void>(wait(child));
    EXPECT_EQ(run({"check", pool, "-q"}).code, 0) << "the old one or the new one";
  }
  EXPECT_EQ(run({"create", pool, "--size", "8M", "--force"}).code, 0);
  EXPECT_EQ(files(), (std::set<std::string>{"a.tnt", ".a.tnt.12345678.new"}));
}

TEST_F(ToolJournal, a_killed_create_leaves_no_pool_without_a_store) {
  const std::string pool = path("a.tnt");
  for (int round = 0; round < 20; ++round) {
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const pid_t child = start({"create", pool, "--size", "8M", "--medium", "journal"}, in);
    close(in);
    for (int i = 0; i < 100'000 && !std::filesystem::exists(pool); ++i) usleep(50);
    kill(child, SIGKILL);
    static_cast<void>(wait(child));
    EXPECT_EQ(run_json({"info", pool, "-q"})["has_store"], true);
    EXPECT_EQ(run({"put", pool, "k", "v", "--medium", "journal"}).code, 0);
    std::filesystem::remove(pool);  // not its journal: as if the kill had come before
  }
  new_pool("a.tnt");
}

TEST_F(ToolJournal, a_killed_pool_of_objects_was_not_closed_cleanly) {
  const std::string pool = path("objects.tnt");
  const pid_t child = fork();
  if (child == 0) {
    struct Root {
      Ptr<char> block;
    };
    PoolOptions options;
    options.size = kPoolBytesMin;
    options.medium = Medium::cache;
    Result<Pool> made = Pool::create(pool, options);
    auto root = made ? made->root<Root>("root") : Result<Root*>(made.error());
    _exit(root && made->malloc_to(100, (*root)->block) == Status::ok ? 0 : 1);
  }
  ASSERT_EQ(wait(child), 0);
  const json info = run_json({"info", pool, "--medium", "cache"});
  EXPECT_EQ(info["was_clean"], false);
  EXPECT_EQ(info["has_store"], false);
  EXPECT_EQ(run_json({"info", pool})["was_clean"], true);
}

// The planted mistake lets a walk skip a damaged key. The count of records still finds it.
TEST_F(ToolJournal, a_dump_with_fewer_records_than_the_pool_counts_is_refused) {
#ifndef TENUTO_DEBUG_CHECKS
  GTEST_SKIP() << "mistakes are planted in builds with debug checks";
#endif
  const std::string pool = new_pool("a.tnt");
  std::string lines;
  for (int i = 100; i < 300; ++i) lines += "key" + std::to_string(i) + "\tv\n";
  ASSERT_EQ(run({"load", pool, "--format", "tsv", "-q"}, lines).code, 0);
  std::string bytes = read_file(pool);
  const std::size_t at = bytes.find("key250");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'a';  // sorts before the rest of its leaf
  // The image keeps the order. Without one the leaf is sorted.
  for (std::size_t image = 0; (image = bytes.find("TTITIME", image)) != std::string::npos;) {
    bytes[image] ^= 1;
  }
  write_file(pool, bytes);
  expect_error(run({"dump", pool, path("sound.tsv")}), Status::corrupt, "damage");
  const auto careless = [] {
    setenv("TENUTO_PLANT", "store_key_not_compared_with_its_slot,store_range_of_keys_not_checked",
           1);
  };
  expect_error(run({"dump", pool, path("d.tsv")}, {}, careless), Status::corrupt,
               "the dump has 199 records, and the pool counts 200");
  EXPECT_FALSE(std::filesystem::exists(path("d.tsv")));
}

TEST_F(ToolJournal, what_is_lost_is_escaped_once) {
  const std::string pool = new_pool("a.tnt");
  const std::string name = "log\t1";
  ASSERT_EQ(run({"collections", pool, "--make", name}).code, 0);
  const std::string value = "a value that stands in the file as it is";
  ASSERT_EQ(run({"put", pool, "--collection", name, "k", value}).code, 0);
  ASSERT_EQ(run({"put", pool, "--collection", name, "l", "sound"}).code, 0);
  std::string bytes = read_file(pool);
  bytes[bytes.find(value) + 3] ^= 1;
  write_file(pool, bytes);
  const Outcome o = run({"check", pool, "--repair", path("new.tnt")});
  EXPECT_EQ(o.code, 9) << o.err;
  EXPECT_NE(o.out.find("in collection \"log\\t1\""), std::string::npos) << o.out;
  EXPECT_EQ(o.out.find("\\\\"), std::string::npos) << o.out;
}

}  // namespace
}  // namespace tenuto::test
