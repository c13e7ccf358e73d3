// Each command of tools/tenuto as a user runs it: its output as text and as JSON, and that a
// command finds what an earlier one wrote.
#include "tool_run.h"

#include <chrono>
#include <thread>

using namespace std::string_literals;
using nlohmann::json;

namespace tenuto::test {
namespace {

class ToolCli : public ToolTest {
 protected:
  void expect(const std::vector<std::string>& args, const std::string& out,
              std::string_view input = {}) {
    const Outcome o = run(args, input);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out, out);
    EXPECT_EQ(o.err, "");
  }
};

TEST_F(ToolCli, create_makes_a_pool_that_info_describes) {
  const std::string pool = path("a.tnt");
  const Outcome o = run({"create", pool, "--size", "8M"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("8 MiB"), std::string::npos) << o.out;

  const json info = run_json({"info", pool});
  EXPECT_EQ(info["path"], pool);
  EXPECT_EQ(info["layout_version"], 5);
  EXPECT_EQ(info["pool_id"].get<std::string>().size(), 16u);
  EXPECT_EQ(info["file_bytes"], 8u << 20);
  EXPECT_EQ(info["was_clean"], true);
  EXPECT_EQ(info["has_store"], true);
  EXPECT_EQ(info["key_order"], "bytes");
  EXPECT_EQ(info["records"], 0);
  EXPECT_TRUE(info["recovery_ms"].is_number());

  const Outcome text = run({"info", pool});
  EXPECT_EQ(text.code, 0);
  for (const char* row : {"medium", "power cut", "last close", "file size", "0 records"}) {
    EXPECT_NE(text.out.find(row), std::string::npos) << row << " in " << text.out;
  }
}

TEST_F(ToolCli, info_says_in_plain_words_whether_a_power_cut_is_survived) {
  const std::string pool = new_pool("a.tnt");
  const json cache = run_json({"info", pool, "--medium", "cache"});
  EXPECT_EQ(cache["medium"], "cache");
  EXPECT_EQ(cache["power_cut_safe"], false);
  const Outcome text = run({"info", pool, "--medium", "cache"});
  EXPECT_NE(text.out.find("NOT safe"), std::string::npos) << text.out;
}

TEST_F(ToolCli, create_json_and_force) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "old", "1");
  const json made = run_json({"create", pool, "--size", "16M", "--force", "--order", "u64"});
  EXPECT_EQ(made["size"], 16u << 20);
  EXPECT_EQ(made["key_order"], "u64");
  EXPECT_EQ(run_json({"info", pool})["records"], 0);
  // The folder has only the pool and the runner's own files.
  for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
    EXPECT_EQ(entry.path().string().find(".new"), std::string::npos) << entry.path();
  }
}

TEST_F(ToolCli, put_get_del) {
  const std::string pool = new_pool("a.tnt");
  expect({"put", pool, "dune", "Frank Herbert"}, "");
  expect({"get", pool, "dune"}, "Frank Herbert");
  expect({"get", pool, "dune", "-n"}, "Frank Herbert\n");
  expect({"get", pool, "dune", "--json"}, "{\"key\":\"dune\",\"value\":\"Frank Herbert\"}\n");
  expect({"put", pool, "dune", "F. H."}, "");
  expect({"get", pool, "dune"}, "F. H.");
  expect({"del", pool, "dune"}, "");
  const Outcome gone = run({"get", pool, "dune"});
  EXPECT_EQ(gone.code, 1);
  EXPECT_EQ(gone.out, "");
  EXPECT_EQ(gone.err, "tenuto: no such key [" + pool + ", key \"dune\"]\n");
}

TEST_F(ToolCli, keys_and_values_are_taken_as_they_are_typed) {
  const std::string pool = new_pool("a.tnt");
  const std::vector<std::string> kTexts = {
      "",    "[a,b]", "[]",    "{}", "%%", "++", "--x", "-",      "get",  "a=b",
      "-5",  "'q'",   "\"q\"", "\\", "@f", "/x", "--",  "--help", "true", "gr\xc3\xbc\xc3\x9f",
      "\xff"};
  for (const std::string& text : kTexts) {
    put(pool, text, text);
    expect({"get", pool, "--", text}, text);
  }
  EXPECT_EQ(run_json({"info", pool})["records"], kTexts.size());
  std::vector<std::string> del = {"del", pool, "--"};
  del.insert(del.end(), kTexts.begin(), kTexts.end());
  expect(del, "");
  EXPECT_EQ(run_json({"info", pool})["records"], 0);
}

TEST_F(ToolCli, hexadecimal_reaches_every_byte) {
  const std::string pool = new_pool("a.tnt");
  expect({"put", pool, "--hex", "00ff", "0a00"}, "");
  expect({"get", pool, "--hex", "00FF"}, "0a00");
  expect({"get", pool, "--hex", "00ff", "-n"}, "0a00\n");
  expect({"get", pool, "--hex", "00ff", "--json"},
         "{\"key_base64\":\"AP8=\",\"value\":\"\\n\\u0000\"}\n");
  expect({"scan", pool, "--hex"}, "00ff\t0a00\n");
  expect({"scan", pool, "--hex", "--prefix", "00", "--keys-only"}, "00ff\n");
  expect({"scan", pool, "--hex", "--from", "01"}, "");
  expect({"del", pool, "--hex", "00ff"}, "");
}

TEST_F(ToolCli, a_value_comes_from_a_file_or_standard_input) {
  const std::string pool = new_pool("a.tnt");
  std::string bytes = "\0\n\xff value"s;
  while (bytes.size() < (1u << 20)) bytes += bytes;
  write_file(path("v"), bytes);
  expect({"put", pool, "file", "--value-file", path("v")}, "");
  expect({"put", pool, "pipe", "--value-file", "-"}, "", bytes);
  expect({"put", pool, "none", "--value-file", "-"}, "", "");
  expect({"get", pool, "file"}, bytes);
  expect({"get", pool, "pipe"}, bytes);
  expect({"get", pool, "none"}, "");
}

TEST_F(ToolCli, put_and_del_speak_json) {
  const std::string pool = new_pool("a.tnt");
  EXPECT_EQ(run_json({"put", pool, "k", "four"}), json::parse(R"({"key":"k","value_bytes":4})"));
  EXPECT_EQ(run_json({"del", pool, "k", "x", "y"}, 1),
            json::parse(R"({"deleted":1,"missing":[{"key":"x"},{"key":"y"}]})"));
}

TEST_F(ToolCli, del_deletes_what_is_there_and_names_what_is_not) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "a", "1");
  put(pool, "c", "3");
  const Outcome o = run({"del", pool, "a", "b", "c", "d"});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "tenuto: no such key [" + pool + ", key \"b\", key \"d\"]\n");
  expect({"scan", pool}, "");
}

TEST_F(ToolCli, scan_walks_in_order_within_its_limits) {
  const std::string pool = new_pool("a.tnt");
  for (const char* key : {"b", "a", "ca", "cb", "d"}) put(pool, key, "v"s + key);
  expect({"scan", pool}, "a\tva\nb\tvb\nca\tvca\ncb\tvcb\nd\tvd\n");
  expect({"scan", pool, "--keys-only", "--reverse"}, "d\ncb\nca\nb\na\n");
  expect({"scan", pool, "--prefix", "c"}, "ca\tvca\ncb\tvcb\n");
  expect({"scan", pool, "--prefix", "c", "--reverse", "--limit", "1"}, "cb\tvcb\n");
  expect({"scan", pool, "--from", "b", "--to", "cb", "--keys-only"}, "b\nca\n");
  expect({"scan", pool, "--from", "b", "--to", "cb", "--keys-only", "--reverse"}, "ca\nb\n");
  expect({"scan", pool, "--from", "x"}, "");
  expect({"scan", pool, "--limit", "0"}, "");
  expect({"scan", pool, "--limit", "2", "--keys-only"}, "a\nb\n");
  expect({"scan", pool, "--json", "--limit", "1"}, "{\"key\":\"a\",\"value\":\"va\"}\n");
  expect({"scan", pool, "--json", "--limit", "1", "--keys-only"}, "{\"key\":\"a\"}\n");
}

TEST_F(ToolCli, keys_of_a_u64_pool_are_numbers) {
  const std::string pool = new_pool("a.tnt", {"--order", "u64"});
  for (const char* key : {"10", "9", "18446744073709551615", "0"}) put(pool, key, "v"s + key);
  expect({"scan", pool, "--keys-only"}, "0\n9\n10\n18446744073709551615\n");
  expect({"scan", pool, "--from", "9", "--to", "11"}, "9\tv9\n10\tv10\n");
  expect({"get", pool, "10", "--json"}, "{\"key\":10,\"value\":\"v10\"}\n");
  expect({"get", pool, "--hex", "000000000000000a"}, "763130");
  expect({"del", pool, "9"}, "");
  for (const char* key : {"x", "-1", "01", "18446744073709551616"}) {
    const Outcome o = run({"put", pool, "--", key, "v"});
    EXPECT_EQ(o.code, 2) << key;
    EXPECT_NE(o.err.find("u64"), std::string::npos) << o.err;
  }
  EXPECT_EQ(run({"scan", pool, "--prefix", "1"}).code, 2);
}

TEST_F(ToolCli, check_and_stats) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "value");
  const json check = run_json({"check", pool});
  EXPECT_EQ(check["sound"], true);
  EXPECT_EQ(check["status"], "ok");
  EXPECT_EQ(check["records"], 1);
  const Outcome text = run({"check", pool});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.rfind(pool + ": sound\n", 0), 0u) << text.out;
  const Outcome quiet = run({"check", pool, "-q"});
  EXPECT_EQ(quiet.code, 0);
  EXPECT_EQ(quiet.out, "");

  const json stats = run_json({"stats", pool});
  EXPECT_EQ(stats["records"], 1);
  EXPECT_EQ(stats["record_bytes"], 6);
  EXPECT_EQ(stats["file_bytes"], 8u << 20);
  EXPECT_FALSE(stats.contains("fences"));
  EXPECT_TRUE(run_json({"stats", pool, "--medium", "model"}).contains("fences"));
  EXPECT_NE(run({"stats", pool}).out.find("keys and values"), std::string::npos);
}

TEST_F(ToolCli, a_pool_that_was_not_closed_is_recovered_unless_read_only) {
  const std::string pool = new_pool("a.tnt");
  write_and_die(pool, "k", "survives");
  for (const char* command : {"info", "check", "stats", "scan"}) {
    const Outcome refused = run({command, pool, "--read-only"});
    EXPECT_EQ(refused.code, 12) << command << ": " << refused.err;
    EXPECT_NE(refused.err.find("without --read-only"), std::string::npos) << refused.err;
  }
  const json check = run_json({"check", pool});
  EXPECT_EQ(check["was_clean"], false);
  EXPECT_EQ(check["sound"], true);
  expect({"get", pool, "k"}, "survives");
  expect({"get", pool, "k", "--read-only"}, "survives");
  write_and_die(pool, "l", "survives");
  const json info = run_json({"info", pool});
  EXPECT_EQ(info["was_clean"], false);
  EXPECT_EQ(info["records"], 2);
  EXPECT_EQ(run_json({"info", pool})["was_clean"], true);
}

// A command that only reads may use up a journal, but it must say so.
TEST_F(ToolCli, reading_what_was_not_closed_says_that_it_writes) {
  const std::string pool = path("a.tnt");
  write_and_die(pool, "k", "v", journalled());
  const std::string left = read_file(pool);
  const std::string journal = read_file(pool + ".journal");
  for (const char* command : {"get", "scan", "info", "dump", "stats", "collections", "check"}) {
    SCOPED_TRACE(command);
    write_file(pool, left);
    write_file(pool + ".journal", journal);
    std::vector<std::string> words = {command, pool};
    if (command == "get"s) words.push_back("k");
    if (command == "dump"s) words.insert(words.end(), {"--format", "tsv"});
    std::vector<std::string> untouched = words;
    untouched.push_back("--read-only");
    EXPECT_EQ(run(untouched).code, 12);
    EXPECT_TRUE(read_file(pool) == left && read_file(pool + ".journal") == journal);
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err.rfind("tenuto: note: ", 0), 0u) << o.err;
    EXPECT_NE(o.err.find("a.tnt was not closed cleanly"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("a.tnt.journal"), std::string::npos) << o.err;
    EXPECT_EQ(run(words).err, "") << "it is closed now";
  }
}

TEST_F(ToolCli, reading_does_not_write_a_clean_pool) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "v");
  const std::string before = read_file(pool);
  for (const char* command : {"info", "stats", "scan"}) EXPECT_EQ(run({command, pool}).code, 0);
  EXPECT_EQ(run({"get", pool, "k"}).code, 0);
  EXPECT_EQ(run({"dump", pool, path("d.tsv")}).code, 0);
  EXPECT_EQ(run({"check", pool, "--read-only"}).code, 0);
  EXPECT_TRUE(read_file(pool) == before);
}

TEST_F(ToolCli, help_shows_examples_and_version_is_one_line) {
  const Outcome all = run({"--help"});
  EXPECT_EQ(all.code, 0);
  for (const char* command :
       {"create", "info", "check", "stats", "put", "get", "del", "scan", "load", "dump"}) {
    EXPECT_NE(all.out.find("\n  "s + command + " "), std::string::npos) << command;
    const Outcome one = run({command, "--help"});
    EXPECT_EQ(one.code, 0);
    EXPECT_NE(one.out.find("Examples:\n  "), std::string::npos) << command;
    EXPECT_NE(one.out.find("--json"), std::string::npos) << command;
    EXPECT_EQ(one.err, "");
  }
  EXPECT_EQ(run({"--version"}).out.rfind("tenuto ", 0), 0u);
}

TEST_F(ToolCli, crash_kill_kills_and_finds_nothing) {
  // The process has milliseconds to live. On a busy machine that is too short for most of them.
  bool worked = false;
  for (int kills = 6; !worked && kills <= 400; kills *= 4) {
    const Outcome o =
        run({"crash", "kill", "--kills", std::to_string(kills), "--threads", "2", "--seed", "3",
             "--mix", "hot,fill", "--findings", path(""), "--json", "-", "-q"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    const json r = json::parse(o.out, nullptr, false);
    EXPECT_EQ(r["kills"], kills);
    EXPECT_EQ(r["engines"], "kv,batch,objects,heap");
    EXPECT_TRUE(r["findings"].empty());
    worked = r["key_operations"] > 0 && r["steps"] > 0;
  }
  EXPECT_TRUE(worked);
}

TEST_F(ToolCli, crash_wants_a_command_and_its_lists_must_be_known) {
  EXPECT_EQ(run({"crash"}).code, 2);
  EXPECT_EQ(run({"crash", "frob"}).code, 2);
  EXPECT_NE(run({"crash", "--help"}).out.find("crash kill"), std::string::npos);
  EXPECT_NE(run({"crash", "kill", "--help"}).out.find("--hours"), std::string::npos);
  for (const auto& [option, value] : {std::pair{"--engine", "kv,disk"},
                                      {"--mix", "cold"},
                                      {"--threads", "0"},
                                      {"--threads", "9"},
                                      {"--hours", "-1"}}) {
    EXPECT_EQ(run({"crash", "kill", option, value}).code, 2) << option;
  }
  EXPECT_EQ(run({"crash", "kill", "--pool", path("missing")}).code, 1);
}

TEST_F(ToolCli, compact_gives_space_back) {
  const std::string pool = new_pool("a.tnt");
  std::string tsv;
  std::vector<std::string> gone = {"del", pool};
  for (int i = 0; i < 600; ++i) {
    const std::string key = "key" + std::to_string(1000 + i);
    tsv += key + "\t" + std::string(2000, 'v') + "\n";
    if (i % 10 != 0) gone.push_back(key);
  }
  ASSERT_EQ(run({"load", pool, "--format", "tsv", "-q"}, tsv).code, 0);
  ASSERT_EQ(run(gone).code, 0);
  const json bounded = run_json({"compact", pool, "--medium", "cache", "--moves", "5"});
  EXPECT_EQ(bounded["complete"], false);
  const json done = run_json({"compact", pool, "--medium", "cache"});
  EXPECT_EQ(done["complete"], true);
  EXPECT_GT(done["records_moved"], 20);
  EXPECT_GT(done["slabs_emptied"], 5);
  EXPECT_LT(done["bytes_after"], bounded["bytes_before"]);
  const Outcome text = run({"compact", pool});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("records moved"), std::string::npos) << text.out;
  expect({"compact", pool, "-q"}, "");
  EXPECT_EQ(run({"compact", pool, "--occupancy", "101"}).code, 2);
  EXPECT_TRUE(run_json({"compact", pool, "--in-key-order"})["complete"]);
  const Outcome part = run({"compact", pool, "--in-key-order", "--moves", "5"});
  EXPECT_EQ(part.code, 2);
  EXPECT_NE(part.err.find("moves"), std::string::npos) << part.err;
  EXPECT_EQ(run_json({"info", pool})["records"], 60);
  EXPECT_EQ(run({"check", pool}).code, 0);
}

TEST_F(ToolCli, gc_lists_lost_objects_and_frees_them_if_asked_to) {
  const std::string pool = new_pool("a.tnt");
  ASSERT_EQ(run({"put", pool, "key", "value", "-q"}).code, 0);
  EXPECT_EQ(run_json({"gc", pool})["lost_blocks"], 0);
  {
    Result<Pool> p = Pool::open(pool);
    ASSERT_TRUE(p);
    Ptr<char>* const root = *p->root<Ptr<char>>("r");
    for (const std::uint64_t type : {0, 0, 7}) {
      ASSERT_EQ(p->malloc_to(100, root->word(), {.type = type}), Status::ok);
      *root = nullptr;
      persist(root->word(), "the only pointer", "the object is lost");
    }
  }
  const json seen = run_json({"gc", pool});
  EXPECT_EQ(seen["reached_blocks"], 1);
  EXPECT_EQ(seen["lost_blocks"], 2);
  EXPECT_EQ(seen["lost"][0]["block_bytes"], 112);
  EXPECT_EQ(seen["walked"][0]["type"], 7);
  EXPECT_EQ(seen["freed_blocks"], 0);
  const Outcome text = run({"gc", pool, "--free"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("2 blocks of 112 bytes"), std::string::npos) << text.out;
  EXPECT_EQ(run_json({"gc", pool})["lost_blocks"], 0);
  EXPECT_EQ(run({"check", pool}).code, 0);
  expect({"gc", pool, "-q"}, "");
}

TEST_F(ToolCli, collections_are_renamed_and_records_have_lifetimes) {
  const std::string pool = new_pool("a.tnt");
  expect({"collections", pool, "--make", "sessions", "--expires"}, "");
  expect({"collections", pool, "--rename", "sessions", "--to", "logins"}, "");
  expect({"collections", pool}, "logins\t0 records\tbytes, expires\n");
  EXPECT_EQ(run({"collections", pool, "--rename", "none", "--to", "more"}).code, 1);
  EXPECT_EQ(run({"collections", pool, "--rename", "logins"}).code, 2);
  EXPECT_EQ(run({"collections", pool, "--make", ""}).code, 2);
  EXPECT_NE(run({"collections", pool, "--drop", ""}).code, 0);
  EXPECT_EQ(run({"collections", pool, "--rename", "logins", "--to", ""}).code, 2);
  expect({"put", pool, "--collection", "logins", "ann", "1", "--ttl", "3600"}, "");
  expect({"put", pool, "--collection", "logins", "bob", "1", "--ttl", "1"}, "");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  expect({"get", pool, "--collection", "logins", "ann"}, "1");
  EXPECT_EQ(run({"get", pool, "--collection", "logins", "bob"}).code, 1);
  EXPECT_EQ(run({"put", pool, "k", "v", "--ttl", "60"}).code, 2) << "nothing expires there";
  const std::string ages = std::to_string(~std::uint64_t{0} / 1000);
  EXPECT_EQ(run({"put", pool, "--collection", "logins", "k", "v", "--ttl", ages}).code, 2);
}

TEST_F(ToolCli, touch_gives_a_new_lifetime) {
  const std::string pool = new_pool("a.tnt");
  expect({"collections", pool, "--make", "logins", "--expires"}, "");
  const auto touch = [&](std::vector<std::string> rest) {
    rest.insert(rest.begin(), {"touch", pool, "--collection", "logins"});
    return run(rest);
  };
  const auto expires_in = [&](const std::string& key) {
    const auto line = run_json({"scan", pool, "--collection", "logins", "--prefix", key});
    if (!line.contains("expires_ms")) return 0.0;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return line["expires_ms"].get<double>() -
           static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  };
  for (const char* key : {"ann", "bob", "cy"}) {
    expect({"put", pool, "--collection", "logins", key, "1", "--ttl", "100"}, "");
  }
  EXPECT_EQ(touch({"ann", "cy", "--ttl", "5000"}).code, 0);
  EXPECT_GT(expires_in("ann"), 4'000'000.0);
  EXPECT_GT(expires_in("cy"), 4'000'000.0);
  EXPECT_LT(expires_in("bob"), 101'000.0);
  EXPECT_EQ(touch({"bob", "--ttl", "0"}).code, 0);
  EXPECT_EQ(expires_in("bob"), 0.0);
  const Outcome some = touch({"nobody", "ann", "--ttl", "9000", "--json"});
  EXPECT_EQ(some.code, 1);
  EXPECT_EQ(some.out, "{\"touched\":1,\"missing\":[{\"key\":\"nobody\"}]}\n");
  EXPECT_NE(some.err.find("nobody"), std::string::npos) << some.err;
  EXPECT_GT(expires_in("ann"), 8'000'000.0);
  EXPECT_EQ(touch({"ann"}).code, 2) << "no --ttl";
  EXPECT_EQ(touch({"ann", "--ttl", std::to_string(~std::uint64_t{0} / 1000)}).code, 2);
  expect({"put", pool, "k", "v"}, "");
  EXPECT_EQ(run({"touch", pool, "k", "--ttl", "60"}).code, 2) << "nothing expires there";
}

TEST_F(ToolCli, a_dump_has_all_collections_and_a_load_makes_them) {
  const std::string pool = new_pool("a.tnt");
  const std::string odd = "a \"name\"\twith: #odd \\ bytes";
  expect({"put", pool, "dune", "Frank"}, "");
  expect({"collections", pool, "--make", odd}, "");
  expect({"collections", pool, "--make", "log", "--order", "reverse_u64", "--duplicates"}, "");
  expect({"collections", pool, "--make", "empty"}, "");
  expect({"collections", pool, "--make", "sessions", "--expires"}, "");
  expect({"put", pool, "--collection", odd, "#collection bytes: x", "v"}, "");
  expect({"put", pool, "--collection", "log", "7", "a"}, "");
  expect({"put", pool, "--collection", "log", "7", "b"}, "");
  expect({"put", pool, "--collection", "sessions", "ann", "1", "--ttl", "100000"}, "");
  for (const std::string format : {"tsv", "jsonl"}) {
    const std::string file = path("all." + format), again = path("again." + format);
    const std::string copy = path("copy-" + format + ".tnt");
    ASSERT_EQ(run({"dump", pool, file}).code, 0);
    ASSERT_EQ(run({"load", copy, file, "--create"}).code, 0);
    EXPECT_EQ(run({"collections", copy}).out, run({"collections", pool}).out);
    ASSERT_EQ(run({"dump", copy, again}).code, 0);
    EXPECT_EQ(read_file(again), read_file(file));
    // Into one collection, or over one of another form: refused, with the line.
    const Outcome one = run({"load", copy, file, "--collection", "empty"});
    EXPECT_EQ(one.code, 2);
    EXPECT_NE(one.err.find("line 2"), std::string::npos) << one.err;
    expect({"collections", copy, "--drop", "log"}, "");
    expect({"collections", copy, "--make", "log"}, "");
    EXPECT_EQ(run({"load", copy, file}).code, 2);
  }
}

TEST_F(ToolCli, collections_are_made_filled_listed_backed_up_and_dropped) {
  const std::string pool = new_pool("a.tnt");
  const std::string copy = path("copy.tnt");
  expect({"collections", pool}, "");
  expect({"collections", pool, "--make", "authors"}, "");
  expect({"collections", pool, "--make", "numbers", "--order", "u64"}, "");
  expect({"collections", pool, "--make", "log", "--order", "reverse_u64", "--duplicates"}, "");
  expect({"put", pool, "--collection", "log", "1", "a"}, "");
  expect({"put", pool, "--collection", "log", "2", "b"}, "");
  expect({"put", pool, "--collection", "log", "1", "c"}, "");
  expect({"scan", pool, "--collection", "log"}, "2\tb\n1\tc\n1\ta\n");
  expect({"collections", pool},
         "authors\t0 records\tbytes\nlog\t3 records\treverse_u64, duplicates\n"
         "numbers\t0 records\tu64\n");
  expect({"collections", pool, "--drop", "log"}, "");
  expect({"put", pool, "--collection", "authors", "herbert", "Frank"}, "");
  expect({"put", pool, "--collection", "numbers", "42", "answer"}, "");
  expect({"put", pool, "herbert", "in the default one"}, "");
  expect({"get", pool, "--collection", "authors", "herbert"}, "Frank");
  expect({"scan", pool, "--collection", "numbers"}, "42\tanswer\n");
  EXPECT_EQ(run({"get", pool, "--collection", "none", "x"}).code, 1);
  EXPECT_EQ(run({"collections", pool, "--make", "authors"}).code, 3);

  const Outcome dumped = run({"dump", pool, "--collection", "authors", "--format", "tsv"});
  EXPECT_EQ(dumped.out, "herbert\tFrank\n");
  const Outcome loaded =
      run({"load", pool, "--collection", "again", "--create", "--format", "tsv", "-q"}, dumped.out);
  EXPECT_EQ(loaded.code, 0) << loaded.err;
  expect({"get", pool, "--collection", "again", "herbert"}, "Frank");

  expect({"backup", pool, copy}, "");
  expect({"collections", pool, "--drop", "authors"}, "");
  const json left = run_json({"collections", pool});
  ASSERT_EQ(left["collections"].size(), 2u);
  EXPECT_EQ(left["collections"][1]["name"], "numbers");
  EXPECT_EQ(left["collections"][1]["key_order"], "u64");
  EXPECT_EQ(left["collections"][1]["records"], 1);
  EXPECT_EQ(run_json({"collections", copy})["collections"].size(), 3u);
  expect({"get", copy, "--collection", "authors", "herbert"}, "Frank");
  EXPECT_EQ(run({"check", pool}).code, 0);
}

}  // namespace
}  // namespace tenuto::test
