// What tools/tenuto prints and returns when something is wrong. The exit code is the Status, the
// message is one line that names what and where, standard output stays empty, and the pool stays
// sound.
#include "tool_run.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <thread>

#include "support/pool_image.h"
#include "tenuto/kv.h"

using namespace std::string_literals;

namespace tenuto::test {
namespace {

class ToolErrors : public ToolTest {
 protected:
  std::vector<std::vector<std::string>> commands_on(const std::string& pool) {
    write_file(path("in.tsv"), "k\tv\n");
    return {{"info", pool},
            {"check", pool},
            {"stats", pool},
            {"put", pool, "k", "v"},
            {"get", pool, "k"},
            {"del", pool, "k"},
            {"scan", pool},
            {"load", pool, path("in.tsv")},
            {"dump", pool, path("out.tsv")}};
  }
};

TEST_F(ToolErrors, wrong_usage_is_2_and_points_to_the_help) {
  const std::string pool = new_pool("a.tnt");
  const std::vector<std::vector<std::string>> kCases = {
      {},
      {"frobnicate"},
      {"create"},
      {"get", pool},
      {"get", pool, "a", "b"},
      {"get", pool, "a", "--frobnicate"},
      {"del", pool},
      {"del", pool, "k", "--frobnicate"},
      {"scan", pool, "--limit", "many"},
      {"scan", pool, "--limit", "-1"},
      {"create", path("b.tnt"), "--size", "64X"},
      {"create", path("b.tnt"), "--order", "text"},
      {"info", pool, "--medium", "paper"},
      {"dump", pool, "--format", "xml"},
      {"load", pool, "--format"},
      {"create", path("b.tnt"), "--read-only"},
  };
  for (const auto& args : kCases) expect_error(run(args), Status::invalid_argument, "--help'");
  EXPECT_FALSE(std::filesystem::exists(path("b.tnt")));
}

TEST_F(ToolErrors, arguments_that_contradict_are_2) {
  const std::string pool = new_pool("a.tnt");
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"put", pool, "k"},
           {"put", pool, "k", "v", "--value-file", "f"},
           {"put", pool, "--hex", "0g", "00"},
           {"put", pool, "--hex", "00", "000"},
           {"load", pool, "records"},
           {"load", pool, path("in.tsv"), "--batch", "0"},
           {"dump", pool, pool, "--format", "tsv"},
           {"create", path("b.tnt"), "--size", "1K"},
       }) {
    expect_error(run(args), Status::invalid_argument, "");
  }
  EXPECT_EQ(run({"check", pool}).code, 0);
}

TEST_F(ToolErrors, a_missing_pool_is_not_found_by_every_command) {
  for (const auto& args : commands_on(path("none.tnt"))) {
    expect_error(run(args), Status::not_found, "none.tnt");
  }
  expect_error(run({"create", path("no/folder/a.tnt")}), Status::not_found, "a.tnt");
  EXPECT_FALSE(std::filesystem::exists(path("none.tnt")));
}

TEST_F(ToolErrors, another_file_is_not_a_pool_and_stays_as_it_was) {
  const std::pair<const char*, std::string> kFiles[] = {
      {"text", "just some text\n"}, {"empty", ""}, {"zeros", std::string(1u << 20, '\0')}};
  for (const auto& [name, bytes] : kFiles) {
    write_file(path(name), bytes);
    for (const auto& args : commands_on(path(name))) {
      expect_error(run(args), Status::not_a_pool, name);
    }
    expect_error(run({"load", path(name), path("in.tsv"), "--create"}), Status::not_a_pool, name);
    EXPECT_TRUE(read_file(path(name)) == bytes) << name;
  }
  expect_error(run({"create", path("text")}), Status::exists, "--force");
  expect_error(run({"create", path("text"), "--force"}), Status::not_a_pool,
               "pools and empty files only");
  EXPECT_EQ(read_file(path("text")), kFiles[0].second);
}

TEST_F(ToolErrors, an_existing_pool_is_not_created_again) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "v");
  expect_error(run({"create", pool}), Status::exists, "--force");
  expect_error(run({"create", pool, "--force", "--size", "1K"}), Status::invalid_argument, "a.tnt");
  EXPECT_EQ(run({"get", pool, "k"}).out, "v");
}

TEST_F(ToolErrors, a_second_opener_is_busy) {
  const std::string pool = new_pool("a.tnt");
  StoreOptions options;
  options.create_if_missing = false;
  Result<Store> store = Store::open(pool, options);
  ASSERT_TRUE(store) << status_name(store.error());
  for (const auto& args : commands_on(pool)) {
    expect_error(run(args), Status::busy, "process " + std::to_string(getpid()));
  }
  expect_error(run({"put", pool, "k", "v", "--wait", "1"}), Status::busy, "--wait");
  expect_error(run({"create", pool, "--force"}), Status::busy, "a.tnt");
  const std::string waits = "process " + std::to_string(getpid());
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"put", pool, "k", "v", "--wait", "60"},
           {"settle", pool, "--wait", "60"},
           {"check", pool, "--repair", path("new.tnt"), "--wait", "60"},
           {"create", pool, "--force", "--size", "8M", "--wait", "60"}}) {
    ASSERT_TRUE(store) << status_name(store.error());
    std::vector<std::string> at_once(args.begin(), args.end() - 2);
    EXPECT_NE(run(at_once).err.find(waits), std::string::npos) << args[0];
    std::thread closer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      EXPECT_EQ(store->close(), Status::ok);
    });
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 0) << args[0] << ": " << o.err;
    closer.join();
    store = Store::open(pool, options);
  }
  EXPECT_EQ(store->close(), Status::ok);
  EXPECT_EQ(run({"check", pool}).code, 0);
}

TEST_F(ToolErrors, a_load_that_failed_at_its_first_line_leaves_no_pool) {
  const std::string pool = path("new.tnt");
  write_file(path("bad.tsv"), "no value\n");
  expect_error(run({"load", pool, path("bad.tsv"), "--create"}), Status::invalid_argument,
               "line 1");
  EXPECT_NE(access(pool.c_str(), F_OK), 0);
  EXPECT_NE(access((pool + ".journal").c_str(), F_OK), 0);
  write_file(path("half.tsv"), "k\tv\nno value\n");
  expect_error(run({"load", pool, path("half.tsv"), "--create"}), Status::invalid_argument,
               "line 2");
  EXPECT_EQ(run({"get", pool, "k"}).out, "v");
  expect_error(run({"load", pool, path("bad.tsv"), "--create"}), Status::invalid_argument,
               "line 1");
  EXPECT_EQ(run({"get", pool, "k"}).out, "v");
}

TEST_F(ToolErrors, words_in_another_order_are_named) {
  const std::string pool = new_pool("a.tnt");
  expect_error(run({pool, "get", "k"}), Status::invalid_argument, "tenuto get ...");
  expect_error(run({"get", "k", pool}), Status::not_found, "the pool comes before");
  write_file(path("in.tsv"), "k\tv\n");
  expect_error(run({"load", path("in.tsv"), pool}), Status::invalid_argument,
               "the pool comes before");
  put(pool, "k", "v");
  expect_error(run({"--medium", "cache", pool}), Status::invalid_argument, "--help");
  EXPECT_EQ(run({"get", "--medium", "cache", pool, "other"}).err.find("comes before"),
            std::string::npos);
}

TEST_F(ToolErrors, no_permission) {
  const std::string pool = new_pool("a.tnt");
  chmod(path("").c_str(), 0755);
  // The superuser may read and write everything, so the tool runs as another user.
  const auto as_user = [] {
    constexpr unsigned kNobody = 65534;
    if (getuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) _exit(126);
  };
  const int code = run({"--version"}, {}, as_user).code;
  if (code != 0) GTEST_SKIP() << "another user cannot run " << TENUTO_TOOL << ": " << code;

  chmod(pool.c_str(), 0);
  for (const auto& args : commands_on(pool)) {
    expect_error(run(args, {}, as_user), Status::permission, "a.tnt");
  }
  chmod(pool.c_str(), 0444);
  EXPECT_EQ(run({"scan", pool}, {}, as_user).code, 0);
  expect_error(run({"put", pool, "k", "v"}, {}, as_user), Status::permission, "a.tnt");
  std::filesystem::create_directory(path("closed"));
  chmod(path("closed").c_str(), 0555);
  expect_error(run({"create", path("closed/b.tnt")}, {}, as_user), Status::permission, "b.tnt");
  expect_error(run({"dump", pool, path("closed/d.tsv")}, {}, as_user), Status::permission, "d.tsv");
}

TEST_F(ToolErrors, a_key_above_64_kib_is_too_large) {
  const std::string pool = new_pool("a.tnt");
  const std::string key(65537, 'k');
  expect_error(run({"put", pool, key, "v"}), Status::too_large, "65537 bytes");
  expect_error(run({"get", pool, key}), Status::too_large, "65536");
  const std::string fits(65536, 'k');
  EXPECT_EQ(run({"put", pool, fits, "v"}).code, 0);
  EXPECT_EQ(run({"get", pool, fits}).out, "v");
}

TEST_F(ToolErrors, a_full_pool_refuses_keeps_what_it_has_and_stays_usable) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "v");
  const std::string big(20u << 20, 'x');
  expect_error(run({"put", pool, "big", "--value-file", "-", "--size-max", "8M"}, big),
               Status::too_large, "key \"big\"");
  expect_error(
      run({"put", pool, "big", "--value-file", "-", "--size-max", "8M"}, big.substr(0, 7u << 20)),
      Status::full, "key \"big\"");
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += std::to_string(i) + "\t" + std::string(8000, 'x') + "\n";
  const Outcome o =
      run({"load", pool, "--format", "tsv", "--batch", "10", "--size-max", "8M"}, lines);
  expect_error(o, Status::full, "lines ");
  EXPECT_NE(o.err.find("loaded"), std::string::npos) << o.err;
  EXPECT_EQ(run({"check", pool}).code, 0);
  EXPECT_EQ(run({"get", pool, "k"}).out, "v");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(run({"del", pool, std::to_string(i)}).code, 0) << i;
  EXPECT_EQ(run({"put", pool, "again", std::string(8000, 'y'), "--size-max", "8M"}).code, 0);
  EXPECT_EQ(run({"check", pool}).code, 0);
  EXPECT_EQ(std::filesystem::file_size(pool), 8u << 20);
  // Without the limit the pool grows.
  EXPECT_EQ(run({"put", pool, "big", "--value-file", "-"}, big).code, 0);
  EXPECT_TRUE(run({"get", pool, "big"}).out == big);
  EXPECT_EQ(run({"check", pool}).code, 0);
}

TEST_F(ToolErrors, a_closed_standard_output_is_an_error_and_harms_no_pool) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "v");
  for (const auto& args : {std::vector<std::string>{"scan", pool},
                           {"get", pool, "k"},
                           {"info", pool},
                           {"stats", pool},
                           {"dump", pool, "--format", "tsv"}}) {
    expect_error(run(args, {}, [] { close(STDOUT_FILENO); }), Status::io, "standard output");
  }
  // With all three closed, the pool's descriptor would be 0, 1 or 2.
  const auto close_all = [] {
    for (int fd = 0; fd < 3; ++fd) close(fd);
  };
  EXPECT_EQ(run({"put", pool, "l", "w"}, {}, close_all).code, 0);
  EXPECT_EQ(run({"get", pool, "none"}, {}, close_all).code, 1);
  EXPECT_EQ(run({"check", pool}).code, 0);
  EXPECT_EQ(run({"scan", pool}).out, "k\tv\nl\tw\n");
}

TEST_F(ToolErrors, a_broken_pipe_and_a_full_device_are_errors) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "v");
  const auto broken_pipe = [] {
    int fds[2];
    if (pipe(fds) != 0) _exit(126);
    close(fds[0]);
    dup2(fds[1], STDOUT_FILENO);
  };
  const auto full_device = [] {
    const int fd = open("/dev/full", O_WRONLY);
    if (fd < 0) _exit(126);
    dup2(fd, STDOUT_FILENO);
  };
  for (const auto& args : {std::vector<std::string>{"scan", pool},
                           {"get", pool, "k"},
                           {"dump", pool, "--format", "jsonl"},
                           {"--help"}}) {
    expect_error(run(args, {}, broken_pipe), Status::io, "standard output");
    expect_error(run(args, {}, full_device), Status::full, "standard output");
  }
}

TEST_F(ToolErrors, a_dump_that_fails_leaves_the_old_file_and_nothing_else) {
  const std::string pool = new_pool("a.tnt");
  for (int i = 0; i < 4; ++i) put(pool, std::to_string(i), std::string(100000, 'x'));
  write_file(path("old.tsv"), "old\tdump\n");
  const auto small_files = [] {
    const rlimit limit = {200000, 200000};
    setrlimit(RLIMIT_FSIZE, &limit);
  };
  expect_error(run({"dump", pool, path("old.tsv")}, {}, small_files), Status::io, "old.tsv");
  EXPECT_EQ(read_file(path("old.tsv")), "old\tdump\n");
  expect_error(run({"dump", pool, path("new.tsv")}, {}, small_files), Status::io, "new.tsv");
  EXPECT_FALSE(std::filesystem::exists(path("new.tsv")));
  for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
    EXPECT_EQ(entry.path().string().find(".new"), std::string::npos) << entry.path();
  }
  expect_error(run({"dump", pool, path("no/folder.tsv")}), Status::not_found, "folder.tsv");
  std::filesystem::create_directory(path("folder"));
  expect_error(run({"dump", pool, path("folder"), "--format", "tsv"}), Status::io, "folder");
}

TEST_F(ToolErrors, a_missing_input_is_not_found_and_makes_no_pool) {
  expect_error(run({"load", path("a.tnt"), path("none.tsv"), "--create"}), Status::not_found,
               "none.tsv");
  EXPECT_FALSE(std::filesystem::exists(path("a.tnt")));
  const std::string pool = new_pool("a.tnt");
  expect_error(run({"put", pool, "k", "--value-file", path("none")}), Status::not_found, "none");
  expect_error(run({"load", pool, path("."), "--format", "tsv"}), Status::io, "directory");
}

TEST_F(ToolErrors, check_of_what_is_no_pool_prints_one_object_and_the_error) {
  write_file(path("text"), "just some text\n");
  const Outcome o = run({"check", path("text"), "--json"});
  EXPECT_EQ(o.code, static_cast<int>(Status::not_a_pool));
  EXPECT_NE(o.out.find("\"sound\":false,\"status\":\"not_a_pool\""), std::string::npos) << o.out;
  EXPECT_EQ(o.err.rfind("{\"error\":\"not_a_pool\",\"exit_code\":10", 0), 0u) << o.err;
}

TEST_F(ToolErrors, check_finds_one_changed_byte_of_a_value_and_says_where) {
  const std::string pool = new_pool("a.tnt");
  const std::string value = "a value that stands in the file as it is";
  put(pool, "dune", value);
  put(pool, "emma", "another");
  std::string bytes = read_file(pool);
  const std::size_t at = bytes.find(value);
  ASSERT_NE(at, std::string::npos);
  bytes[at + 3] ^= 1;
  write_file(pool, bytes);
  expect_error(run({"check", pool}), Status::corrupt, "a.tnt");
  const Outcome o = run({"check", pool, "--json"});
  EXPECT_EQ(o.code, static_cast<int>(Status::corrupt));
  EXPECT_NE(o.out.find("\"sound\":false,\"status\":\"corrupt\""), std::string::npos) << o.out;
  EXPECT_EQ(run({"get", pool, "emma"}).out, "another");
}

TEST_F(ToolErrors, check_repairs_a_damaged_pool_into_a_new_one) {
  const std::string pool = new_pool("a.tnt");
  const std::string value = "a value that stands in the file as it is";
  put(pool, "dune", value);
  put(pool, "emma", "another");
  EXPECT_EQ(run({"check", pool, "--repair", path("same.tnt")}).code, 0);
  EXPECT_EQ(run({"get", path("same.tnt"), "dune"}).out, value);
  std::string bytes = read_file(pool);
  bytes[bytes.find(value) + 3] ^= 1;
  write_file(pool, bytes);
  const Outcome o = run({"check", pool, "--repair", path("new.tnt"), "--json"});
  EXPECT_EQ(o.code, static_cast<int>(Status::corrupt)) << o.err;
  EXPECT_NE(o.out.find("\"complete\":false"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("\"records\":1,"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("\"losses\":[{\"what\":\"1 of a leaf's 2 entries"), std::string::npos)
      << o.out;
  EXPECT_EQ(read_file(pool), bytes);
  EXPECT_EQ(run({"get", path("new.tnt"), "emma"}).out, "another");
  expect_error(run({"get", path("new.tnt"), "dune"}), Status::not_found, "dune");
  // A damaged value is never printed.
  expect_error(run({"get", pool, "dune"}), Status::corrupt, "a.tnt");
  expect_error(run({"check", pool, "--repair", path("new.tnt")}), Status::exists, "new.tnt");
  expect_error(run({"check", pool, "--scavenge"}), Status::invalid_argument, "--repair");
  write_file(path("zeros"), std::string(1u << 20, '\0'));
  expect_error(run({"check", path("zeros"), "--repair", path("none.tnt")}), Status::not_found,
               "zeros");
  EXPECT_NE(access(path("none.tnt").c_str(), F_OK), 0);
}

TEST_F(ToolErrors, a_loss_names_its_collection) {
  const std::string pool = new_pool("a.tnt");
  const std::string value = "a value that stands in the file as it is";
  EXPECT_EQ(run({"collections", pool, "--make", "log\xff"}).code, 0);
  EXPECT_EQ(run({"put", pool, "--collection", "log\xff", "k", value}).code, 0);
  EXPECT_EQ(run({"put", pool, "--collection", "log\xff", "l", "sound"}).code, 0);
  std::string bytes = read_file(pool);
  bytes[bytes.find(value) + 3] ^= 1;
  write_file(pool, bytes);
  const Outcome text = run({"check", pool, "--repair", path("new1")});
  EXPECT_EQ(text.code, 9) << text.err;
  EXPECT_NE(text.out.find("in collection \"log"), std::string::npos) << text.out;
  const Outcome o = run({"check", pool, "--repair", path("new2"), "--json"});
  EXPECT_NE(o.out.find("\"collection_base64\":\"bG9n/w==\""), std::string::npos) << o.out;
}

TEST_F(ToolErrors, check_repairs_without_a_journal_that_is_not_the_pools) {
  const std::string pool = path("a.tnt");
  {
    Result<Store> store = Store::open(pool, journalled());
    ASSERT_TRUE(store);
    ASSERT_EQ(store->put("old", "1"), Status::ok);
  }
  write_and_die(pool, "new", "2", journalled());
  const std::string journal = read_file(pool + ".journal");
  write_file(path("text"), "no journal at all\n");
  int n = 0;
  for (const std::string& wrong : {""s, journal.substr(0, 9000), "no journal at all\n"s}) {
    const std::string fresh = path("new" + std::to_string(++n));
    write_file(pool + ".journal", wrong);
    const Outcome o = run({"check", pool, "--repair", fresh});
    EXPECT_EQ(o.code, 9) << o.err;
    EXPECT_NE(o.out.find("a.tnt.journal"), std::string::npos) << o.out;
    EXPECT_EQ(o.err.find("--repair"), std::string::npos) << "advises itself: " << o.err;
    EXPECT_EQ(run({"get", fresh, "old"}).out, "1");
    EXPECT_EQ(read_file(pool + ".journal"), wrong);
    expect_error(run({"check", pool, "--repair", path("none"), "--journal", path("text")}),
                 Status::invalid_argument, "text");
    EXPECT_FALSE(std::filesystem::exists(path("none")));
  }
  write_file(pool + ".journal", journal);
  EXPECT_EQ(run({"check", pool, "--repair", path("whole"), "-q"}).code, 0);
  EXPECT_EQ(run({"get", path("whole"), "new"}).out, "2");
}

// The open of a killed pool reads no slots, so a later call finds this.
TEST_F(ToolErrors, damage_that_only_a_close_or_a_write_meets_is_named) {
  const std::string pool = path("a.tnt");
  StoreOptions options;
  options.pool.medium = Medium::cache;
  write_and_die(pool, "dune", "value", options);
  std::string bytes = read_file(pool);
  const std::size_t leaf = leaves_of({bytes.begin(), bytes.end()})[0];
  bytes[leaf + kLineBytes + 2] ^= 1;
  write_file(path("in.tsv"), "k\tv\n");
  for (std::vector<std::string> args :
       std::vector<std::vector<std::string>>{{"info", pool, "-q"},
                                             {"put", pool, "k", "v"},
                                             {"compact", pool},
                                             {"load", pool, path("in.tsv")},
                                             {"collections", pool, "--make", "new"}}) {
    write_file(pool, bytes);
    args.insert(args.end(), {"--medium", "cache"});
    const Outcome o = run(args);
    expect_error(o, Status::corrupt, "a.tnt, offset ");
    EXPECT_NE(o.err.find("(slot of a leaf)"), std::string::npos) << o.err;
  }
}

TEST_F(ToolErrors, a_change_beside_damage_says_whether_it_was_done) {
  const std::string pool = path("a.tnt");
  StoreOptions options;
  options.pool.medium = Medium::cache;
  new_pool("a.tnt", {"--medium", "cache"});
  for (const char* name : {"b", "c"}) {
    ASSERT_EQ(run({"collections", pool, "--make", name, "--medium", "cache"}).code, 0);
    ASSERT_EQ(run({"put", pool, "--collection", name, "k", "v", "--medium", "cache"}).code, 0);
  }
  write_and_die(pool, "dune", "value", options);
  std::string bytes = read_file(pool);
  const std::size_t leaf = leaves_of({bytes.begin(), bytes.end()})[0];
  bytes[leaf + kLineBytes + 2] ^= 1;
  struct Case {
    std::vector<std::string> words;
    std::string says;
    bool c_is_left;
  };
  for (const Case& c :
       {Case{{"--drop", "c"}, "\"c\" was dropped, but the pool cannot be closed", false},
        Case{{"--drop", "c", "--make", "d"}, "the collection \"d\" is not there", true},
        Case{{"--make", "d"}, "the collection \"d\" is not there", true},
        Case{{"--rename", "c", "--to", "d"}, "the collection \"c\" is there", true}}) {
    write_file(pool, bytes);
    std::vector<std::string> words = {"collections", pool, "--medium", "cache"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    expect_error(run(words), Status::corrupt, c.says);
    const Outcome left = run({"check", pool, "--repair", path("new.tnt"), "--medium", "cache"});
    EXPECT_EQ(left.code, static_cast<int>(Status::corrupt)) << left.err;
    const Outcome names = run({"collections", path("new.tnt")});
    EXPECT_EQ(names.out.find("\nc\t") != std::string::npos, c.c_is_left) << names.out << names.err;
    std::filesystem::remove(path("new.tnt"));
  }
}

TEST_F(ToolErrors, a_damaged_pool_is_reported_and_never_a_crash) {
  const std::string pool = new_pool("a.tnt");
  for (int i = 0; i < 50; ++i) put(pool, "key" + std::to_string(i), std::string(500, 'v'));
  const std::string sound = read_file(pool);
  std::mt19937_64 random(test_seed());
  // Whole pages become noise. Where such a page held nothing, the pool is still sound.
  for (int round = 0; round < 30; ++round) {
    std::string bytes = sound;
    const std::size_t page = random() % (round % 2 == 0 ? 64 : bytes.size() / 4096);
    for (std::size_t i = 0; i < 4096; i += 8) {
      const std::uint64_t word = random();
      bytes.replace(page * 4096 + i, 8, reinterpret_cast<const char*>(&word), 8);
    }
    write_file(pool, bytes);
    const Outcome o = run({"check", pool, "-q"});
    EXPECT_LT(o.code, 16) << "page " << page << ": " << o.err;
    EXPECT_EQ(o.err.rfind("tenuto: ", 0) == 0, o.code != 0) << o.err;
  }
}

}  // namespace
}  // namespace tenuto::test
