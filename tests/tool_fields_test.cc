// load and dump of CSV and JSON, where one field of each record is the key; and errors as JSON.
#include <random>

#include "csv.h"
#include "json_object.h"
#include "tool_run.h"

namespace tenuto {
namespace {

using nlohmann::json;
using test::Outcome;
using test::read_file;
using test::write_file;
using namespace std::string_literals;

class ToolFields : public test::ToolTest {
 protected:
  void SetUp() override {
    ToolTest::SetUp();
    pool_ = new_pool("a.tnt");
    numbers_ = new_pool("n.tnt", {"--order", "u64"});
  }
  Outcome load(const std::string& pool, const std::string& format, std::string_view input,
               std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"load", pool, "--format", format, "--key-field", "id", "-q"});
    return run(more, input);
  }
  Outcome dump(const std::string& pool, const std::string& format) {
    return run({"dump", pool, "--format", format, "--key-field", "id", "-q"});
  }
  std::string value(const std::string& pool, const std::string& key) {
    const Outcome o = run({"get", pool, key});
    return o.code == 0 ? o.out : "none";
  }
  // The load fails at this place, with these words.
  void expect_bad(const std::string& format, std::string_view input, const std::string& place,
                  const std::string& words, const std::string& pool = {}) {
    const Outcome o = load(pool.empty() ? pool_ : pool, format, input);
    expect_error(o, Status::invalid_argument, words);
    EXPECT_NE(o.err.find("[standard input, " + place + "]"), std::string::npos) << o.err;
  }

  void put(std::vector<std::string> rest) {
    rest.insert(rest.begin(), {"put", pool_});
    EXPECT_EQ(run(rest).code, 0);
  }

  std::string pool_, numbers_;
};

TEST_F(ToolFields, json_lines_and_arrays_keep_each_records_text) {
  ASSERT_EQ(
      load(pool_, "json", "{\"id\":\"b\", \"n\": 1.50}\n {\"id\":\"a\"}{\"x\":[{}],\"id\":\"c\"}\n")
          .code,
      0);
  EXPECT_EQ(value(pool_, "b"), "{\"id\":\"b\", \"n\": 1.50}");
  EXPECT_EQ(value(pool_, "a"), "{\"id\":\"a\"}");
  EXPECT_EQ(value(pool_, "c"), "{\"x\":[{}],\"id\":\"c\"}");
  const std::string array =
      "\xef\xbb\xbf [\r\n {\n  \"id\": \"d\\u00e9\",\n  \"t\": \"}]\\\"{\\\\\"\n }\n "
      ",\n{\"id\":\"e\"} ]\n";
  ASSERT_EQ(load(pool_, "json", array).code, 0);
  EXPECT_EQ(value(pool_, "d\xc3\xa9"), "{\n  \"id\": \"d\\u00e9\",\n  \"t\": \"}]\\\"{\\\\\"\n }");
  EXPECT_EQ(value(pool_, "e"), "{\"id\":\"e\"}");
  ASSERT_EQ(load(pool_, "json", "[]").code, 0);
  ASSERT_EQ(load(pool_, "json", "").code, 0);
  EXPECT_EQ(run_json({"info", pool_})["records"], 5);
}

TEST_F(ToolFields, numbers_are_the_keys_of_pools_with_numbers) {
  ASSERT_EQ(
      load(numbers_, "json", "[{\"id\":10},{\"id\":9},{\"id\":\"18446744073709551615\"}]").code, 0);
  ASSERT_EQ(load(numbers_, "csv", "name,id\nann,7\n").code, 0);
  EXPECT_EQ(run({"scan", numbers_, "--keys-only"}).out, "7\n9\n10\n18446744073709551615\n");
  EXPECT_EQ(value(numbers_, "7"), "{\"name\":\"ann\",\"id\":\"7\"}");
  expect_bad("json", "{\"id\":1}\n{\"id\":-1}\n", "line 2, column 2", "numbers (u64)", numbers_);
  expect_bad("json", "{\"id\":1.0}", "line 1, column 2", "numbers (u64)", numbers_);
  expect_bad("csv", "id\n1\n01\n", "line 3, column 1", "numbers (u64)", numbers_);
  expect_bad("json", "{\"id\":1}", "line 1, column 2", "--order u64");
}

TEST_F(ToolFields, numbers_are_the_keys_of_collections_with_numbers_backwards) {
  ASSERT_EQ(run({"collections", pool_, "--make", "r", "--order", "reverse_u64"}).code, 0);
  const std::vector<std::string> r = {"--collection", "r"};
  ASSERT_EQ(load(pool_, "json", "[{\"id\":10},{\"id\":11}]", r).code, 0);
  EXPECT_EQ(run({"scan", pool_, "--collection", "r", "--keys-only"}).out, "11\n10\n");
  // Eight characters are no number.
  expect_error(load(pool_, "json", "{\"id\":\"abcdefgh\"}", r), Status::invalid_argument,
               "line 1, column 2");
  EXPECT_EQ(run({"dump", pool_, "--collection", "r", "--format", "json", "--key-field", "id"}).out,
            "[\n{\"id\":11},\n{\"id\":10}\n]\n");
}

TEST_F(ToolFields, csv_rows_are_objects_with_the_names_of_the_header) {
  const std::string text =
      "id,name,\"a \"\"note\"\"\"\r\n"
      "1,Ann,\r\n"
      "2,\"Bob, the \"\"b\"\"\",\"two\r\nlines\"\r\n"
      "\"3 \",\xc3\xa9,\"\"";  // no line end
  ASSERT_EQ(load(pool_, "csv", text).code, 0);
  EXPECT_EQ(value(pool_, "1"), "{\"id\":\"1\",\"name\":\"Ann\",\"a \\\"note\\\"\":\"\"}");
  EXPECT_EQ(json::parse(value(pool_, "2"))["a \"note\""], "two\r\nlines");
  EXPECT_EQ(json::parse(value(pool_, "2"))["name"], "Bob, the \"b\"");
  EXPECT_EQ(json::parse(value(pool_, "3 "))["name"], "\xc3\xa9");
  EXPECT_EQ(dump(pool_, "csv").out, text.substr(0, text.size() - 2) + "\r\n");
  ASSERT_EQ(load(pool_, "csv", "\xef\xbb\xbfother,id\nx,4\n").code, 0);  // LF; a byte order mark
  EXPECT_EQ(value(pool_, "4"), "{\"other\":\"x\",\"id\":\"4\"}");
  const Outcome mixed = dump(pool_, "csv");
  expect_error({mixed.code, "", mixed.err}, Status::invalid_argument, "other members");
}

TEST_F(ToolFields, a_dump_loads_as_the_same_records) {
  std::mt19937 rng(11);
  const std::string parts[] = {"a",        ",",  "\"", "\n", "\r\n", " ",
                               "\xc3\xa9", "\\", "}",  "[",  "7",    "\t"};
  std::string csv = "name,id,note\n";
  for (int i = 0; i < 300; ++i) {
    std::string fields[2];
    for (std::string& f : fields) {
      for (auto n = rng() % 6; n > 0; --n) f += parts[rng() % std::size(parts)];
    }
    tool::append_csv_field(fields[0], csv);
    csv += "," + std::to_string(i) + ",";
    tool::append_csv_field(fields[1], csv);
    csv += i % 2 == 0 ? "\n" : "\r\n";
  }
  for (const std::string& pool : {pool_, numbers_}) {
    ASSERT_EQ(load(pool, "csv", csv).code, 0);
    for (const std::string format : {"csv", "json"}) {
      const std::string file = path("all." + format),
                        copy = path(format + pool.substr(pool.size() - 5));
      ASSERT_EQ(run({"dump", pool, file, "--key-field", "id"}).code, 0);
      std::vector<std::string> args = {"load", copy, file, "--key-field", "id", "--create"};
      if (pool == numbers_) args.insert(args.end(), {"--order", "u64"});
      ASSERT_EQ(run(args).code, 0);
      EXPECT_EQ(run({"dump", copy, "--format", "tsv"}).out,
                run({"dump", pool, "--format", "tsv"}).out);
      EXPECT_EQ(dump(copy, format).out, read_file(file));
    }
    EXPECT_EQ(json::parse(read_file(path("all.json"))).size(), 300u);
  }
}

TEST_F(ToolFields, every_bad_record_has_its_line_and_column) {
  expect_bad("json", "{\"id\":\"a\"}\n{\n \"key\":\"b\"}\n", "line 2, column 1", "no field \"id\"");
  expect_bad("json", "{\"id\":\"a\",\n\"id\":\"b\"}", "line 2, column 1", "a second field \"id\"");
  expect_bad("json", "{\"id\":{\"a\":1}}", "line 1, column 2", "a string or a number");
  expect_bad("json", "{\"id\":null}", "line 1, column 2", "a string or a number");
  expect_bad("json", "{\"id\":\"\xff\"}", "line 1, column 8", "not UTF-8");
  expect_bad("json", "{\"id\":\"a\",\n \"x\":01}", "line 2, column 7", "leading zero");
  expect_bad("json", "{\"id\":\"a\"}\n7\n", "line 2, column 1", "an object expected");
  expect_bad("json", "[{\"id\":\"a\"}\n {\"id\":\"b\"}]", "line 2, column 2", "',' or ']'");
  expect_bad("json", "[{\"id\":\"a\"},\n", "line 1, column 1", "no closing ]");
  expect_bad("json", "{\"id\":\"a\"\n", "line 1, column 1", "no closing }");
  expect_bad("json", "[]\n x", "line 2, column 2", "behind the array");
  expect_bad("csv", "id,n\n1,2\n\n", "line 3, column 1", "fields: 1, and the header has 2");
  expect_bad("csv", "id,n\n1,2,3\n", "line 2, column 1", "fields: 3");
  expect_bad("csv", "id,n\n1,a\"b\n", "line 2, column 4", "a quote inside a field");
  expect_bad("csv", "id,n\n1,\"a\nb\"c\n", "line 3, column 3", "',' expected");
  expect_bad("csv", "id,n\n1,\"a\n", "line 2, column 3", "no closing quote");
  expect_bad("csv", "id,n\n1,\"x\ny\xff\"\n", "line 3, column 2", "not UTF-8");
  expect_bad("csv", "key,n\n1,2\n", "line 1, column 1", "no field \"id\"");
  expect_bad("csv", "id,n,id\n1,2,3\n", "line 1, column 6", "a second field \"id\"");
  expect_bad("csv", "id,,n\n1,2,3\n", "line 1, column 4", "without a name");
  expect_error(load(pool_, "csv", ""), Status::invalid_argument, "no header");
  const Outcome nested =
      run({"load", pool_, "--format", "json", "--key-field", "a.b"}, "{\"a\":{\"b\":1}}");
  expect_error(nested, Status::invalid_argument, "not of an object inside it");
  EXPECT_EQ(value(pool_, "a"), "{\"id\":\"a\"}") << "what is before a bad record is loaded";
  // A whole file with one bad record in it.
  const Outcome skipped = load(pool_, "csv", "id,n\nx,1\ny\nz,3\n", {"--skip-bad"});
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_EQ(value(pool_, "z"), "{\"id\":\"z\",\"n\":\"3\"}");
  EXPECT_EQ(load(pool_, "json", "[{\"id\":\"p\"},{},{\"id\":\"q\"}]", {"--skip-bad"}).code, 0);
  EXPECT_EQ(value(pool_, "q"), "{\"id\":\"q\"}");
  const std::string large =
      "{\"id\":\"large\",\n\"x\":\"" + std::string(5000, 'x') + "\"}\n{\"id\":\"r\"}";
  EXPECT_EQ(load(pool_, "json", large, {"--max-line", "4K"}).code, 2);
  // No pool is made for a file that has nothing to load.
  EXPECT_EQ(load(path("new.tnt"), "json", "[{}]", {"--create"}).code, 2);
  EXPECT_FALSE(std::filesystem::exists(path("new.tnt")));
}

TEST_F(ToolFields, what_a_load_could_not_read_is_not_dumped) {
  const auto refused = [&](const std::string& format, const std::string& words) {
    const Outcome o = dump(pool_, format);
    expect_error({o.code, "", o.err}, Status::invalid_argument, words);
    const std::string file = path("refused." + format);
    EXPECT_EQ(run({"dump", pool_, file, "--key-field", "id"}).code, 2);
    EXPECT_FALSE(std::filesystem::exists(file));
  };
  EXPECT_EQ(dump(pool_, "json").out, "[]\n");
  EXPECT_EQ(dump(pool_, "csv").out, "");
  put({"k", "plain text"});
  refused("json", "no JSON object");
  put({"k", "{\"id\":\"other\"}"});
  refused("csv", "has not this key");
  put({"k", "{\"id\":\"k\",\"id\":\"k\"}"});
  refused("json", "has not this key as its only field");
  put({"k", "{\"id\":\"k\",\"x\":[1]}"});
  refused("csv", "no text");
  EXPECT_EQ(dump(pool_, "json").out, "[\n{\"id\":\"k\",\"x\":[1]}\n]\n");
  EXPECT_EQ(run({"collections", pool_, "--make", "s", "--expires"}).code, 0);
  put({"--collection", "s", "k", "{\"id\":\"k\"}", "--ttl", "1000"});
  const Outcome lifetime =
      run({"dump", pool_, "--collection", "s", "--format", "json", "--key-field", "id"});
  EXPECT_EQ(lifetime.code, 2);
  EXPECT_NE(lifetime.err.find("lifetime"), std::string::npos) << lifetime.err;
  const Outcome noted = run({"dump", pool_, "--format", "json", "--key-field", "id"});
  EXPECT_NE(noted.err.find("one collection"), std::string::npos) << noted.err;
  expect_error(run({"dump", pool_, "--format", "csv"}), Status::invalid_argument, "--key-field");
  expect_error(run({"dump", pool_, "--format", "tsv", "--key-field", "id"}),
               Status::invalid_argument, "only CSV and JSON");
}

TEST_F(ToolFields, with_json_an_error_is_json) {
  const auto error_of = [&](std::vector<std::string> args, std::string_view input = {}) {
    args.emplace_back("--json");
    const Outcome o = run(args, input);
    const json e = json::parse(o.err, nullptr, false);
    EXPECT_TRUE(e.is_object()) << o.err;
    EXPECT_EQ(e.value("exit_code", -1), o.code);
    return e;
  };
  const json missing = error_of({"get", pool_, "k"});
  EXPECT_EQ(missing["error"], "not_found");
  EXPECT_NE(missing["where"].get<std::string>().find("\"k\""), std::string::npos);
  EXPECT_EQ(error_of({"get", path("none"), "k"})["error"], "not_found");
  EXPECT_EQ(error_of({"get"})["error"], "invalid_argument");
  const json bad =
      error_of({"load", pool_, "--format", "json", "--key-field", "id"}, "{\"a\":\"\\ud800\"}");
  EXPECT_EQ(bad["where"], "standard input, line 1, column 7");
  EXPECT_TRUE(bad.contains("hint"));
  const Outcome plain = run({"get", pool_, "--", "--json"});
  EXPECT_EQ(plain.err.rfind("tenuto: ", 0), 0u) << "it is the key: " << plain.err;
}

// Another reader of JSON agrees on what is an object.
TEST(JsonObject, accepts_what_another_reader_accepts) {
  std::mt19937 rng(3);
  const std::string sound[] = {
      "{\"a\":1,\"b\":[true,false,null,-0.5e+3],\"c\":{\"d\":\"\\u00e9\\n\"}}", "{}",
      " { \"x\" : [ ] } ", "{\"\":{},\"n\":0,\"m\":[[[]]],\"e\":1E9}"};
  std::size_t accepted = 0;
  for (int i = 0; i < 40'000; ++i) {
    std::string text = sound[rng() % std::size(sound)];
    for (auto n = rng() % 3; n > 0 && !text.empty(); --n) {
      const std::size_t at = rng() % text.size();
      const char c = "{}[],:\"\\0123.eE+-tfn \x01u"[rng() % 23];
      if (rng() % 2 == 0) {
        text[at] = c;
      } else {
        text.erase(at, 1);
      }
    }
    const json other = json::parse(text, nullptr, false);
    const bool object = !other.is_discarded() && other.is_object();
    std::size_t members = 0;
    const auto count = [&](const tool::JsonMember&) -> tool::MaybeError {
      ++members;
      return std::nullopt;
    };
    const bool ours = !tool::read_json_object(text, count);
    ASSERT_EQ(ours, object) << text;
    accepted += ours ? 1 : 0;
    EXPECT_TRUE(!ours || members >= other.size()) << text;
  }
  EXPECT_GT(accepted, 5000u);
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_TRUE(tool::read_json_object(deep, [](const auto&) { return tool::MaybeError(); }));
}

TEST(Csv, what_was_written_is_read) {
  std::mt19937 rng(5);
  const std::string parts[] = {"a", ",", "\"", "\n", "\r", " ", "\xc3\xa9", ""};
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::string> fields(1 + rng() % 4);
    std::string text;
    for (std::size_t f = 0; f < fields.size(); ++f) {
      for (auto n = rng() % 5; n > 0; --n) fields[f] += parts[rng() % std::size(parts)];
      if (f > 0) text += ',';
      tool::append_csv_field(fields[f], text);
    }
    std::vector<std::string> again;
    std::vector<std::size_t> columns;
    const tool::MaybeError error = tool::parse_csv(text, again, columns);
    ASSERT_FALSE(error) << text << ": " << error->what;
    ASSERT_EQ(again, fields) << text;
  }
}

}  // namespace
}  // namespace tenuto
