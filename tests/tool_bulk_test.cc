// load and dump of the real tool: a dump loads to the same records, a loaded text dumps to the same
// bytes, bad lines are named, and a stopped load has loaded what it reported.
#include "tool_run.h"

#include <sys/ioctl.h>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "tenuto/collection.h"
#include "tenuto/kv.h"

using namespace std::string_literals;
using nlohmann::json;

namespace tenuto::test {
namespace {

using Records = std::map<std::string, std::string>;

class ToolBulk : public ToolTest {
 protected:
  json load(const std::string& pool, std::vector<std::string> args, std::string_view input = {}) {
    args.insert(args.begin(), {"load", pool, "--json"});
    const Outcome o = run(args, input);
    EXPECT_EQ(o.code, 0) << o.err;
    return json::parse(o.out, nullptr, false);
  }
  std::string dump(const std::string& pool, const std::string& format,
                   std::vector<std::string> args = {}) {
    args.insert(args.begin(), {"dump", pool, "--format", format});
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err, "");
    return o.out;
  }
  void store_records(const std::string& pool, const Records& records) {
    StoreOptions options;
    options.create_if_missing = false;
    Result<Store> store = Store::open(pool, options);
    ASSERT_TRUE(store);
    for (const auto& [key, value] : records) ASSERT_EQ(store->put(key, value), Status::ok);
    ASSERT_EQ(store->close(), Status::ok);
  }
  Records records_of(const std::string& pool) {
    StoreOptions options;
    options.create_if_missing = false;
    Result<Store> store = Store::open(pool, options);
    EXPECT_TRUE(store);
    Records records;
    Iterator it = store->iterator();
    for (it.seek_first(); it.valid(); it.next()) records[std::string(it.key())] = it.value();
    EXPECT_EQ(it.status(), Status::ok);
    return records;
  }
};

std::string random_bytes(std::mt19937_64& random, std::size_t bytes) {
  // Half of them are text, so that both notations of a member occur.
  const bool text = random() % 2 == 0;
  std::string out;
  for (std::size_t i = 0; i < bytes; ++i) {
    out += static_cast<char>(text ? ' ' + random() % 95 : random() % 256);
  }
  return out;
}

Records random_records(std::mt19937_64& random, KeyOrder order) {
  Records records = {{"", ""}, {"\0"s, "\n"}, {std::string(65536, '\t'), "k"}, {"\xff", "\xfe"}};
  if (order == KeyOrder::u64) records.clear();
  for (int i = 0; i < 300; ++i) {
    std::string key = random_bytes(random, random() % 40);
    if (order == KeyOrder::u64) key = std::string_view(u64_key(random() >> random() % 64));
    records[key] = random_bytes(random, random() % 300);
  }
  records.begin()->second = random_bytes(random, 3u << 20);
  return records;
}

TEST_F(ToolBulk, what_is_dumped_loads_to_the_same_records) {
  std::mt19937_64 random(test_seed());
  for (const KeyOrder order : {KeyOrder::bytes, KeyOrder::u64}) {
    const std::string order_name = order == KeyOrder::u64 ? "u64" : "bytes";
    const std::string pool = new_pool(order_name + ".tnt", {"--order", order_name});
    const Records records = random_records(random, order);
    store_records(pool, records);
    for (const char* format : {"tsv", "jsonl"}) {
      const std::string text = dump(pool, format);
      const std::string copy =
          new_pool("copy-" + order_name + "-" + format, {"--order", order_name});
      const json loaded = load(copy, {"--format", format, "--batch", "7"}, text);
      EXPECT_EQ(loaded["records"], records.size());
      EXPECT_EQ(loaded["bad_lines"], 0);
      EXPECT_TRUE(records_of(copy) == records) << format;
      EXPECT_TRUE(dump(copy, format) == text) << format;
    }
  }
}

// --- forms and lifetimes -------------------------------------------------------------------------

struct Lasting {
  std::string key;
  std::string value;
  std::uint64_t ttl_ms;
};

std::uint64_t system_ms() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

void make_lasting(const std::string& pool, const std::string& name,
                  const CollectionOptions& options, const std::vector<Lasting>& records) {
  Result<Store> store = Store::open(pool);
  ASSERT_TRUE(store);
  Result<Collection> c = store->collection(name, options);
  ASSERT_TRUE(c);
  for (const Lasting& r : records) {
    WriteOptions write;
    write.ttl_ms = r.ttl_ms;
    ASSERT_EQ(c->put(r.key, r.value, write), Status::ok);
  }
  ASSERT_EQ(store->close(), Status::ok);
}

TEST_F(ToolBulk, a_dump_carries_lifetimes_and_a_load_gives_them_back) {
  constexpr std::uint64_t kYear = 365ull * 24 * 3600 * 1000;
  const std::string pool = new_pool("a.tnt");
  const std::uint64_t before = system_ms();
  make_lasting(pool, "sessions", {.expires = true},
               {{"a", "1", 0}, {"b", "2\t", kYear}, {"c\xff", "3", 2 * kYear + 1}});
  const std::uint64_t after = system_ms();
  for (const char* format : {"tsv", "jsonl"}) {
    const std::string text = dump(pool, format, {"--collection", "sessions"});
    const std::string copy = path("copy-"s + format);
    const json loaded = load(
        copy, {"--format", format, "--create", "--size", "8M", "--collection", "sessions"}, text);
    EXPECT_EQ(loaded["records"], 3);
    EXPECT_EQ(dump(copy, format, {"--collection", "sessions"}), text) << "to the millisecond";
    Result<Store> store = Store::open(copy);
    ASSERT_TRUE(store);
    const auto c = store->collection("sessions", {.create_if_missing = false});
    ASSERT_TRUE(c);
    EXPECT_TRUE(c->expires());
    EXPECT_EQ(c->ttl_ms("a").value_or(1), 0u);
    const std::uint64_t left = c->ttl_ms("b").value_or(0);
    EXPECT_LE(left, after + kYear - before);
    EXPECT_GE(left + system_ms(), before + kYear);
    EXPECT_GT(c->ttl_ms("c\xff").value_or(0), 2 * kYear - kYear / 2);
  }
}

// The store's time does not go back with the clock, and dumps show lifetimes by the store's time.
TEST_F(ToolBulk, a_clock_that_was_set_back_moves_no_lifetime) {
  const std::string pool = new_pool("a.tnt");
  const std::uint64_t ahead = system_ms() + 3'600'000;
  {
    StoreOptions options;
    options.clock_ms = [&] { return ahead; };
    Result<Store> store = Store::open(pool, options);
    ASSERT_TRUE(store);
    const auto c = store->collection("c", {.expires = true});
    ASSERT_TRUE(c);
    WriteOptions write;
    write.ttl_ms = 1000;
    Collection handle = *c;
    ASSERT_EQ(handle.put("k", "v", write), Status::ok);
    ASSERT_EQ(store->time_ms(), ahead);
    ASSERT_EQ(store->close(), Status::ok);
    EXPECT_EQ(store->time_ms(), 0u);
  }
  const std::string line = "k\tv\t" + std::to_string(ahead + 1000) + "\n";
  EXPECT_EQ(dump(pool, "tsv", {"--collection", "c"}), "#form bytes, expires\n" + line);
  // So do records that are loaded into a store whose time is ahead.
  load(pool, {"--collection", "c", "--format", "tsv"}, line);
  EXPECT_EQ(dump(pool, "tsv", {"--collection", "c"}), "#form bytes, expires\n" + line);
}

TEST_F(ToolBulk, a_dump_carries_the_form_and_a_load_makes_it_or_refuses_another) {
  const std::string pool = new_pool("a.tnt");
  const std::vector<Lasting> pairs = {{"k", "1", 0}, {"k", "2", 1u << 30}, {"l", "", 0}};
  make_lasting(pool, "tags", {.order = KeyOrder::reverse, .duplicates = true, .expires = true},
               pairs);
  make_lasting(pool, "log", {.order = KeyOrder::reverse_u64},
               {{std::string(std::string_view(u64_key(7))), "x", 0}});
  for (const char* format : {"tsv", "jsonl"}) {
    const std::string copy = path("copy-"s + format);
    const std::vector<std::string> how = {"--format", format, "--create", "--size", "8M"};
    for (const char* name : {"tags", "log"}) {
      const std::string text = dump(pool, format, {"--collection", name});
      std::vector<std::string> args = how;
      args.insert(args.end(), {"--collection", name});
      load(copy, args, text);
      EXPECT_EQ(dump(copy, format, {"--collection", name}), text);
      // Another encoding would lose data: the default collection's, or that of an existing
      // collection.
      for (const std::vector<std::string>& other :
           {std::vector<std::string>{"load", copy, "--format", format},
            {"load", copy, "--format", format, "--create"},
            {"load", copy, "--format", format, "--collection", "plain", "-q"}}) {
        ASSERT_EQ(run({"load", copy, "--format", format, "--collection", "plain", "--create"}).code,
                  0);
        const Outcome o = run(other, text);
        EXPECT_EQ(o.code, 2) << o.err;
        EXPECT_NE(o.err.find("form"), std::string::npos) << o.err;
        EXPECT_EQ(dump(copy, format, {"--collection", "plain"}), "");
      }
    }
    EXPECT_EQ(run({"collections", copy}).out,
              "log\t1 records\treverse_u64\nplain\t0 records\tbytes\n"
              "tags\t3 records\treverse, duplicates, expires\n");
  }
  // A record that only looks like such a line.
  const Outcome o = run({"load", pool, "--format", "tsv"}, "#form reverse\tis a key\n");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(run({"get", pool, "#form reverse"}).out, "is a key");
  EXPECT_EQ(run({"load", pool, "--format", "tsv"}, "#form upside down\n").code, 2);
  EXPECT_EQ(run({"load", pool, "--format", "tsv"}, "k\tv\n#form bytes\n").code, 2) << "not first";
}

TEST_F(ToolBulk, what_has_expired_is_not_loaded_and_hides_what_it_replaced) {
  const std::string pool = new_pool("a.tnt");
  make_lasting(pool, "sessions", {.expires = true}, {{"old", "there", 0}});
  const std::string input = "a\t1\nb\t2\t1000\nold\tgone\t1000\nlast\t3\t99999999999999\na\t4\t0\n";
  const json loaded = load(pool, {"--format", "tsv", "--collection", "sessions"}, input);
  EXPECT_EQ(loaded["records"], 3);
  EXPECT_EQ(loaded["expired"], 2);
  EXPECT_EQ(dump(pool, "jsonl", {"--collection", "sessions"}),
            "{\"form\":\"bytes, expires\"}\n{\"key\":\"a\",\"value\":\"4\"}\n"
            "{\"key\":\"last\",\"value\":\"3\",\"expires_ms\":99999999999999}\n");
  // No lifetime is dropped silently when the collection has none.
  for (const auto& [format, line] :
       {std::pair{"tsv", "k\tv\t99999999999999\n"},
        {"jsonl", "{\"key\":\"k\",\"value\":\"v\",\"expires_ms\":99999999999999}\n"}}) {
    EXPECT_EQ(run({"load", pool, "--format", format}, line).code, 2);
    EXPECT_EQ(run({"get", pool, "k"}).code, 1);
  }
}

// --------------------------------------------------------------------------------------------------

TEST_F(ToolBulk, a_sorted_canonical_file_comes_back_byte_for_byte) {
  const std::string tsv = "\tempty key\na\\tb\ttab\nk\t\nz\\0\\x1b\\\\\tgr\xc3\xbc\xc3\x9f\\n\n";
  const std::string jsonl =
      "{\"key\":\"\",\"value\":\"a\\tb\\u0000\"}\n{\"key\":\"k\",\"value_base64\":\"/w==\"}\n"
      "{\"key_base64\":\"/w==\",\"value\":\"gr\xc3\xbc\xc3\x9f\"}\n";
  const std::string numbers = "7\tseven\n10\tten\n18446744073709551615\tmax\n";
  load(path("t.tnt"), {"--format", "tsv", "--create", "--size", "8M"}, tsv);
  EXPECT_EQ(dump(path("t.tnt"), "tsv"), tsv);
  load(path("j.tnt"), {"--format", "jsonl", "--create", "--size", "8M"}, jsonl);
  EXPECT_EQ(dump(path("j.tnt"), "jsonl"), jsonl);
  load(path("n.tnt"), {"--format", "tsv", "--create", "--size", "8M", "--order", "u64"}, numbers);
  EXPECT_EQ(dump(path("n.tnt"), "tsv"), numbers);
}

TEST_F(ToolBulk, the_last_of_equal_keys_wins_within_and_across_batches) {
  const std::string pool = new_pool("a.tnt");
  const std::string lines = "a\t1\nb\t1\na\t2\nb\t2\na\t3\n";
  for (const char* batch : {"1", "2", "3", "100"}) {
    const json loaded = load(pool, {"--format", "tsv", "--batch", batch}, lines);
    EXPECT_EQ(loaded["records"], 5);
    EXPECT_EQ(dump(pool, "tsv"), "a\t3\nb\t2\n") << batch;
  }
}

TEST_F(ToolBulk, an_empty_input_loads_nothing) {
  const std::string pool = new_pool("a.tnt");
  EXPECT_EQ(load(pool, {"--format", "jsonl"}, "")["records"], 0);
  EXPECT_EQ(dump(pool, "jsonl"), "");
}

TEST_F(ToolBulk, files_tell_their_format_by_name_and_replace_in_one_step) {
  const std::string pool = new_pool("a.tnt");
  write_file(path("in.tsv"), "k\tv\n");
  EXPECT_EQ(load(pool, {path("in.tsv")})["records"], 1);
  write_file(path("out.jsonl"), "old");
  const Outcome o = run({"dump", pool, path("out.jsonl")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("records  1"), std::string::npos) << o.out;
  EXPECT_EQ(read_file(path("out.jsonl")), "{\"key\":\"k\",\"value\":\"v\"}\n");
  const Outcome again = run({"dump", pool, path("out.tsv"), "--json"});
  EXPECT_EQ(json::parse(again.out)["records"], 1);
  EXPECT_EQ(read_file(path("out.tsv")), "k\tv\n");
  EXPECT_EQ(run({"dump", pool, path("out.tsv"), "-q"}).out, "");
}

TEST_F(ToolBulk, a_killed_dump_leaves_the_old_file_and_nothing_else) {
  const std::string pool = new_pool("a.tnt");
  Records records;
  for (int i = 0; i < 40; ++i) records[std::to_string(i)] = std::string(500'000, '\x01');
  store_records(pool, records);
  std::filesystem::create_directory(path("out"));
  const std::string file = path("out/d.tsv");
  int cut_off = 0;
  for (const int ms : {5, 10, 20, 30, 40, 50, 60, 80, 100, 150}) {
    write_file(file, "old");
    const pid_t child = start({"dump", pool, file}, STDIN_FILENO);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    kill(child, SIGKILL);
    wait(child);
    cut_off += read_file(file) == "old" ? 1 : 0;
    for (const auto& entry : std::filesystem::directory_iterator(path("out"))) {
      EXPECT_EQ(entry.path().string(), file) << "left behind after " << ms << " ms";
      std::filesystem::remove(entry.path());
    }
  }
  EXPECT_GT(cut_off, 0);
}

TEST_F(ToolBulk, a_dump_through_a_link_changes_the_file_it_points_to) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "v");
  write_file(path("real.tsv"), "old");
  std::filesystem::create_symlink(path("real.tsv"), path("link.tsv"));
  EXPECT_EQ(run({"dump", pool, path("link.tsv")}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.tsv")));
  EXPECT_EQ(read_file(path("real.tsv")), "k\tv\n");
}

TEST_F(ToolBulk, a_name_may_be_as_long_as_the_file_system_allows) {
  const std::string pool = new_pool(std::string(255, 'p'), {"--medium", "cache"});
  const std::string file = path(std::string(251, 'd') + ".tsv");
  for (const char* value : {"v", "w"}) {
    EXPECT_EQ(run({"put", pool, "k", value, "--medium", "cache"}).code, 0);
    const Outcome o = run({"dump", pool, file, "-q"});
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(read_file(file), "k\t"s + value + "\n");
  }
  const Outcome o = run({"create", pool, "--force", "--size", "8M", "--medium", "cache"});
  EXPECT_EQ(o.code, 0) << o.err;
}

TEST_F(ToolBulk, a_dump_takes_a_part) {
  const std::string pool = new_pool("a.tnt");
  for (const char* key : {"a", "ba", "bb", "c"}) put(pool, key, key);
  EXPECT_EQ(dump(pool, "tsv", {"--prefix", "b"}), "ba\tba\nbb\tbb\n");
  EXPECT_EQ(dump(pool, "tsv", {"--from", "bb"}), "bb\tbb\nc\tc\n");
  EXPECT_EQ(dump(pool, "tsv", {"--to", "ba"}), "a\ta\n");
  EXPECT_EQ(dump(pool, "tsv", {"--hex", "--prefix", "62"}), "ba\tba\nbb\tbb\n");
}

TEST_F(ToolBulk, a_dump_to_standard_output_keeps_its_summary_apart) {
  const std::string pool = new_pool("a.tnt");
  put(pool, "k", "v");
  const Outcome o = run({"dump", pool, "--format", "tsv", "--json"});
  EXPECT_EQ(o.out, "k\tv\n");
  EXPECT_EQ(json::parse(o.err)["records"], 1);
}

TEST_F(ToolBulk, a_bad_line_is_named_and_what_stands_before_it_is_loaded) {
  const std::string pool = new_pool("a.tnt");
  write_file(path("in.tsv"), "a\t1\nb\t2\nbad line\nc\t3\n");
  const Outcome o = run({"load", pool, path("in.tsv")});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_NE(o.err.find("[" + path("in.tsv") + ", line 3, column 9]"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("--skip-bad"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("records: 2"), std::string::npos) << o.err;
  EXPECT_EQ(dump(pool, "tsv"), "a\t1\nb\t2\n");

  const Outcome piped = run({"load", pool, "--format", "jsonl"}, "{\"key\":\"x\"}\n");
  EXPECT_EQ(piped.code, 2);
  EXPECT_NE(piped.err.find("[standard input, line 1, column 12]"), std::string::npos) << piped.err;
}

TEST_F(ToolBulk, skip_bad_leaves_bad_lines_out_and_counts_them) {
  const std::string pool = new_pool("a.tnt");
  std::string lines = "a\t1\nx\n\nb\t2\r\n" + std::string(70000, 'k') + "\tlong\nc\t3\n";
  for (int i = 0; i < 20; ++i) lines += "no tab\n";
  const Outcome o = run({"load", pool, "--format", "tsv", "--skip-bad"}, lines);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("bad lines skipped  24"), std::string::npos) << o.out;
  EXPECT_NE(o.err.find("line 2, column 2"), std::string::npos) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 10) << o.err;
  EXPECT_EQ(dump(pool, "tsv"), "a\t1\nc\t3\n");
  EXPECT_EQ(load(pool, {"--format", "tsv", "--skip-bad", "-q"}, lines)["bad_lines"], 24);
}

TEST_F(ToolBulk, a_line_above_the_limit_is_a_bad_line) {
  const std::string pool = new_pool("a.tnt");
  const std::string lines = "a\t1\nb\t" + std::string(5000, 'x') + "\nc\t3\n";
  const Outcome o = run({"load", pool, "--format", "tsv", "--max-line", "4K"}, lines);
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("--max-line"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("line 2"), std::string::npos) << o.err;
  EXPECT_EQ(load(pool, {"--format", "tsv", "--max-line", "4K", "--skip-bad"}, lines)["records"], 2);
}

TEST_F(ToolBulk, a_pair_that_is_too_long_is_a_bad_line_as_a_key_is) {
  const std::string pool = new_pool("a.tnt");
  ASSERT_EQ(run({"collections", pool, "--make", "d", "--duplicates"}).code, 0);
  const auto load_to = [&](const std::string& collection, std::size_t key, std::size_t value) {
    const std::string line = std::string(key, 'k') + "\t" + std::string(value, 'v') + "\n";
    return run({"load", pool, "--collection", collection, "--format", "tsv", "-q"},
               "a\tb\n" + line);
  };
  for (const char* name : {"", "d"}) {
    expect_error(load_to(name, 65537, 1), Status::invalid_argument, "line 2, column 1");
  }
  EXPECT_EQ(load_to("", 40000, 40000).code, 0);
  EXPECT_EQ(load_to("d", 40000, 25534).code, 0);
  expect_error(load_to("d", 40000, 25535), Status::invalid_argument, "line 2, column 1");
  const std::string zero = "\\0" + std::string(39999, 'k') + "\t" + std::string(25534, 'v') + "\n";
  const Outcome skipped =
      run({"load", pool, "--collection", "d", "--format", "tsv", "--skip-bad"}, zero + "k\tv\n");
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("a zero byte of the key counts twice"), std::string::npos);
  EXPECT_EQ(run({"get", pool, "--collection", "d", "k"}).out, "v");
}

TEST_F(ToolBulk, loading_the_wrong_format_fails_on_the_first_line) {
  const std::string pool = new_pool("a.tnt");
  EXPECT_EQ(run({"load", pool, "--format", "jsonl"}, "k\tv\n").code, 2);
  EXPECT_EQ(run({"load", pool, "--format", "tsv"}, "{\"key\":\"k\"}\n").code, 2);
  const std::string numbers = new_pool("n.tnt", {"--order", "u64"});
  const Outcome o = run({"load", numbers, "--format", "tsv"}, "7\tv\nseven\tv\n");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("line 2, column 1"), std::string::npos) << o.err;
  EXPECT_EQ(dump(numbers, "tsv"), "7\tv\n");
}

TEST_F(ToolBulk, nothing_but_the_summary_is_printed_when_no_terminal_is_there) {
  const std::string pool = new_pool("a.tnt");
  std::string lines;
  for (int i = 0; i < 50000; ++i) lines += std::to_string(i) + "\tvalue\n";
  const Outcome o = run({"load", pool, "--format", "tsv"}, lines);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err.find('\r'), std::string::npos);
  const Outcome quiet = run({"load", pool, "--format", "tsv", "--quiet"}, lines);
  EXPECT_EQ(quiet.out + quiet.err, "");
}

// Writes to the standard input of a load, and waits until the load has read it.
void feed(int fd, const std::string& bytes) {
  ASSERT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  for (int left = 1; left > 0; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    ASSERT_EQ(ioctl(fd, FIONREAD, &left), 0);
  }
}

TEST_F(ToolBulk, a_stopped_load_closes_the_pool_and_has_loaded_what_it_says) {
  const std::string pool = new_pool("a.tnt");
  int input[2];
  ASSERT_EQ(pipe2(input, O_CLOEXEC), 0);
  const pid_t child = start({"load", pool, "--format", "tsv", "--batch", "1000"}, input[0]);
  feed(input[1], "a\t1\nb\t2\nc\tunfinished");
  kill(child, SIGINT);
  EXPECT_EQ(wait(child), static_cast<int>(Status::aborted));
  close(input[0]);
  close(input[1]);
  const std::string err = read_file(path(".err"));
  EXPECT_NE(err.find("records: 2"), std::string::npos) << err;
  EXPECT_EQ(json::parse(run({"info", pool, "--json"}).out)["was_clean"], true);
  EXPECT_EQ(dump(pool, "tsv"), "a\t1\nb\t2\n");
}

TEST_F(ToolBulk, a_killed_load_keeps_its_whole_batches) {
  const std::string pool = new_pool("a.tnt");
  int input[2];
  ASSERT_EQ(pipe2(input, O_CLOEXEC), 0);
  const pid_t child = start({"load", pool, "--format", "tsv", "--batch", "10"}, input[0]);
  std::string lines;
  for (int i = 1000; i < 1995; ++i) lines += std::to_string(i) + "\tv\n";
  feed(input[1], lines);
  // Once the load has read this, all earlier lines are done: 99 batches are acknowledged.
  feed(input[1], "unfinished");
  kill(child, SIGKILL);
  EXPECT_EQ(wait(child), 1000 + SIGKILL);
  close(input[0]);
  close(input[1]);
  const Records records = records_of(pool);
  EXPECT_EQ(records.size(), 990u);
  int expected = 1000;
  for (const auto& [key, value] : records) EXPECT_EQ(key, std::to_string(expected++));
  EXPECT_EQ(run({"check", pool}).code, 0);
}

}  // namespace
}  // namespace tenuto::test
