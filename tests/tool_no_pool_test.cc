// tools/tenuto with other things than a pool at PATH: every command says what is there, where, and
// what to do, and leaves it as it is. `create --force` replaces a pool or an empty file.
#include "tool_run.h"

#include <sys/stat.h>

namespace tenuto::test {
namespace {

class ToolNoPool : public ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    write_file(path("in.tsv"), "k\tv\n");
  }
  std::vector<std::vector<std::string>> commands(const std::string& pool) const {
    return {{"info", pool},
            {"check", pool},
            {"check", pool, "--repair", path("new.tnt")},
            {"stats", pool},
            {"get", pool, "k"},
            {"scan", pool},
            {"put", pool, "k", "v"},
            {"del", pool, "k"},
            {"touch", pool, "k", "--ttl", "1"},
            {"dump", pool, path("out.tsv")},
            {"load", pool, path("in.tsv")},
            {"collections", pool},
            {"collections", pool, "--make", "c"},
            {"backup", pool, path("new.tnt")},
            {"compact", pool},
            {"gc", pool},
            {"gc", pool, "--free"},
            {"settle", pool}};
  }
  void expect_all(const std::string& pool, Status status, const std::string& what,
                  const std::string& todo) {
    for (const auto& command : commands(pool)) {
      SCOPED_TRACE(command[0] + " " + command.back());
      const Outcome o = run(command);
      expect_error(o, status, what);
      EXPECT_NE(o.err.find("[" + pool), std::string::npos) << o.err;
      EXPECT_NE(o.err.find("; " + todo), std::string::npos) << o.err;
    }
    EXPECT_FALSE(std::filesystem::exists(path("new.tnt")));
    EXPECT_FALSE(std::filesystem::exists(path("out.tsv")));
  }
};

TEST_F(ToolNoPool, other_things_than_a_pool_are_named_alike_by_all_commands) {
  const std::string check = "check the path";
  std::filesystem::create_directory(path("folder"));
  expect_all(path("folder"), Status::not_a_pool, "this is a directory, not a pool", check);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  expect_all(path("pipe"), Status::not_a_pool, "this is a pipe, not a pool", check);
  expect_all("/dev/null", Status::not_a_pool, "this is a device, not a pool", check);
  expect_all(path("none"), Status::not_found, "cannot open the pool file: No such file", check);
  write_file(path("empty"), "");
  expect_all(path("empty"), Status::not_a_pool, "the file is too short to be a pool", check);
  write_file(path("text"), std::string(100000, 't'));
  expect_all(path("text"), Status::not_a_pool, "pool", check);
  const std::string shut = new_pool("shut.tnt");
  std::filesystem::permissions(shut, std::filesystem::perms::none);
  if (geteuid() != 0) {
    expect_all(shut, Status::permission, "Permission denied", "check the owner and mode");
  }
}

TEST_F(ToolNoPool, create_force_replaces_a_pool_or_an_empty_file_and_nothing_else) {
  const auto create = [&](const std::string& name) {
    return run({"create", path(name), "--size", "8M", "--force", "-q"});
  };
  write_file(path("empty"), "");
  std::filesystem::permissions(path("empty"), std::filesystem::perms(0600));
  expect_error(run({"create", path("empty")}), Status::exists,
               "--force replaces a pool or an empty");
  EXPECT_EQ(create("empty").code, 0);
  EXPECT_EQ(run({"check", path("empty")}).code, 0);
  EXPECT_EQ(std::filesystem::status(path("empty")).permissions(), std::filesystem::perms(0600));
  // By a link: what it leads to.
  write_file(path("target"), "");
  std::filesystem::create_symlink(path("target"), path("link"));
  EXPECT_EQ(create("link").code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(run({"check", path("target")}).code, 0);

  const std::string words = "--force replaces pools and empty files only";
  std::filesystem::create_directory(path("folder"));
  expect_error(create("folder"), Status::not_a_pool, words);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  expect_error(create("pipe"), Status::not_a_pool, words);
  for (const std::string& text : {std::string("text"), "SQLite format 3" + std::string(9000, '\0'),
                                  std::string(100000, '\0')}) {
    write_file(path("other"), text);
    std::filesystem::remove(path("to-other"));
    std::filesystem::create_symlink(path("other"), path("to-other"));
    expect_error(create("other"), Status::not_a_pool, words);
    expect_error(create("to-other"), Status::not_a_pool, words);
    EXPECT_EQ(read_file(path("other")), text);
  }
  EXPECT_TRUE(std::filesystem::is_directory(path("folder")));
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  // Nothing temporary is left.
  for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
    EXPECT_NE(entry.path().extension(), ".new") << entry.path();
  }
}

}  // namespace
}  // namespace tenuto::test
