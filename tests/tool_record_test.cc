// Records as lines of TSV and JSON (tools/record_format.h), and the reader of lines: canonical
// forms, other accepted forms, and a column for everything that is refused.
#include <gtest/gtest.h>

#include <unistd.h>

#include <string>
#include <thread>

#include "line_reader.h"
#include "record_format.h"

using namespace std::string_literals;

namespace tenuto::tool {
namespace {

constexpr RecordFormat kTsv = RecordFormat::tsv;
constexpr RecordFormat kJson = RecordFormat::jsonl;

std::string line_of(RecordFormat format, std::string_view key, std::string_view value,
                    KeyOrder order = KeyOrder::bytes) {
  std::string line;
  append_record(format, order, key, value, line);
  return line;
}

void expect_record(RecordFormat format, const std::string& line, const std::string& key,
                   const std::string& value, KeyOrder order = KeyOrder::bytes) {
  Record record;
  const MaybeError error = parse_record(format, order, line, record);
  ASSERT_FALSE(error) << line << ": column " << error->column << ", " << error->what;
  EXPECT_EQ(record.key, key) << line;
  EXPECT_EQ(record.value, value) << line;
}

struct BadLine {
  std::string line;
  std::size_t column;
  const char* words;  // words that the message must contain
};

void expect_refused(RecordFormat format, KeyOrder order, const BadLine& bad) {
  Record record;
  const MaybeError error = parse_record(format, order, bad.line, record);
  ASSERT_TRUE(error) << "accepted: " << bad.line;
  EXPECT_EQ(error->column, bad.column) << bad.line << ": " << error->what;
  EXPECT_NE(error->what.find(bad.words), std::string::npos) << bad.line << ": " << error->what;
}

TEST(Tsv, canonical_lines) {
  EXPECT_EQ(line_of(kTsv, "", ""), "\t");
  EXPECT_EQ(line_of(kTsv, "key", "value"), "key\tvalue");
  EXPECT_EQ(line_of(kTsv, "a\tb", "c\nd\\\0"s), "a\\tb\tc\\nd\\\\\\0");
  EXPECT_EQ(line_of(kTsv, u64_key(0), "x", KeyOrder::u64), "0\tx");
  EXPECT_EQ(line_of(kTsv, u64_key(UINT64_MAX), "", KeyOrder::u64), "18446744073709551615\t");
}

TEST(Tsv, lines_of_other_programs_are_read) {
  expect_record(kTsv, "\t", "", "");
  expect_record(kTsv, "k\tv", "k", "v");
  expect_record(kTsv, "\\x6b\t\\x76", "k", "v");
  expect_record(kTsv, "caf\xe9\t\x01", "caf\xe9", "\x01");
  expect_record(kTsv, "300\tx", std::string(std::string_view(u64_key(300))), "x", KeyOrder::u64);
}

TEST(Tsv, malformed_lines_are_refused_with_their_column) {
  const BadLine kBytes[] = {
      {"", 1, "no TAB"},
      {"key", 4, "no TAB"},
      {"a\tb\tc", 4, "TAB"},
      {"a\tb\r", 4, "carriage return"},
      {"a\r\tb", 2, "carriage return"},
      {"a\\\tb", 2, "backslash"},
      {"a\tb\\", 4, "backslash"},
      {"a\t\\x1", 3, "hexadecimal"},
      {"\\z\tb", 1, "unknown escape"},
      {std::string(65537, 'k') + "\tv", 1, "65536"},
  };
  for (const BadLine& bad : kBytes) expect_refused(kTsv, KeyOrder::bytes, bad);
  const BadLine kNumbers[] = {
      {"\tv", 1, "nothing"},    {"x\tv", 1, "u64"},    {"01\tv", 1, "leading zero"},
      {"1 \tv", 2, "digit"},    {"-1\tv", 1, "digit"}, {"18446744073709551616\tv", 1, "above"},
      {"\\x31\tv", 1, "digit"},
  };
  for (const BadLine& bad : kNumbers) expect_refused(kTsv, KeyOrder::u64, bad);
}

TEST(Tsv, a_key_of_64_kib_fits) {
  const std::string key(65536, '\t');
  expect_record(kTsv, line_of(kTsv, key, "v"), key, "v");
  expect_record(kJson, line_of(kJson, key, "v"), key, "v");
}

TEST(Jsonl, canonical_lines) {
  EXPECT_EQ(line_of(kJson, "", ""), R"({"key":"","value":""})");
  EXPECT_EQ(line_of(kJson, "k", "a\"b"), R"({"key":"k","value":"a\"b"})");
  EXPECT_EQ(line_of(kJson, "\xff", "v"), R"({"key_base64":"/w==","value":"v"})");
  EXPECT_EQ(line_of(kJson, "k", "\xff\0"s), R"({"key":"k","value_base64":"/wA="})");
  EXPECT_EQ(line_of(kJson, "\0"s, "\x1f"), R"({"key":"\u0000","value":"\u001f"})");
  EXPECT_EQ(line_of(kJson, u64_key(42), "v", KeyOrder::u64), R"({"key":42,"value":"v"})");
}

TEST(Jsonl, other_spellings_of_the_same_record_are_read) {
  expect_record(kJson, R"( { "value" : "v" , "key" : "k" } )", "k", "v");
  expect_record(kJson, "\t{\"key\":\"k\",\"value\":\"v\"}\r", "k", "v");
  expect_record(kJson, R"({"key_base64":"aw==","value_base64":"dg=="})", "k", "v");
  expect_record(kJson, R"({"key":"\u006b","value":"\"\\\/\b\f\n\r\t"})", "k", "\"\\/\b\f\n\r\t");
  expect_record(kJson, R"({"key":"\u20AC","value":"\ud83d\ude00"})", "\xe2\x82\xac",
                "\xf0\x9f\x98\x80");
  expect_record(kJson, R"({"k\u0065y":"k","value":""})", "k", "");
  expect_record(kJson, R"({"key": 7 ,"value":"v"})", std::string(std::string_view(u64_key(7))), "v",
                KeyOrder::u64);
}

TEST(Jsonl, malformed_lines_are_refused_with_their_column) {
  const BadLine kBytes[] = {
      {"", 1, "'{' expected"},
      {"null", 1, "'{' expected"},
      {"[]", 1, "'{' expected"},
      {"{}", 2, "string"},
      {"{", 2, "string"},
      {R"({"key")", 7, "':' expected"},
      {R"({"key":)", 8, "string"},
      {R"({"key":"k)", 10, "closing"},
      {R"({"key":"k")", 11, "'}' expected"},
      {R"({"key":"k"})", 12, "value"},
      {R"({"value":"v"})", 14, "key"},
      {R"({"key":"k",})", 12, "string"},
      {R"({"key":"k" "value":"v"})", 12, "',' or '}'"},
      {R"({"key":"k","value":"v"} x)", 25, "one object"},
      {R"({"key":"k","value":"v"}{)", 24, "one object"},
      {R"({"key":"k","key":"l","value":"v"})", 12, "second key"},
      {R"({"key":"k","key_base64":"","value":"v"})", 12, "second key"},
      {R"({"key":"k","value":"v","value":"w"})", 24, "second value"},
      {R"({"key":"k","value":"v","extra":1})", 24, "unknown member"},
      {R"({"key":1,"value":"v"})", 8, "string"},
      {R"({"key":"k","value":null})", 20, "string"},
      {R"({"key":"k","value":["v"]})", 20, "string"},
      {R"({key:"k","value":"v"})", 2, "string"},
      {R"({'key':"k","value":"v"})", 2, "string"},
      {R"({"key":"\q","value":"v"})", 9, "unknown escape"},
      {R"({"key":"\)", 9, "closing"},
      {R"({"key":"\u12","value":"v"})", 9, "four hexadecimal"},
      {R"({"key":"\u12)", 9, "four hexadecimal"},
      {R"({"key":"\udc00","value":"v"})", 9, "low surrogate"},
      {R"({"key":"\ud800","value":"v"})", 9, "high surrogate"},
      {R"({"key":"\ud800\u0041","value":"v"})", 9, "high surrogate"},
      {R"({"key":"\ud800)", 9, "high surrogate"},
      {"{\"key\":\"a\tb\",\"value\":\"v\"}", 10, "control byte"},
      {"{\"key\":\"a\0b\",\"value\":\"v\"}"s, 10, "control byte"},
      {"{\"key\":\"a\xff\",\"value\":\"v\"}", 10, "not UTF-8"},
      {"{\"key\":\"a\xc3\",\"value\":\"v\"}", 10, "not UTF-8"},
      {R"({"key_base64":"aw=","value":"v"})", 16, "multiple of 4"},
      {R"({"key_base64":"a*==","value":"v"})", 17, "base64 character"},
      {R"({"key_base64":"ax==","value":"v"})", 17, "not zero"},
      {"{\"key\":\"" + std::string(65537, 'k') + "\",\"value\":\"v\"}", 1, "65536"},
  };
  for (const BadLine& bad : kBytes) expect_refused(kJson, KeyOrder::bytes, bad);
  const BadLine kNumbers[] = {
      {R"({"key":"1","value":"v"})", 8, "u64"},
      {R"({"key_base64":"AA==","value":"v"})", 15, "u64"},
      {R"({"key":-1,"value":"v"})", 8, "u64"},
      {R"({"key":01,"value":"v"})", 8, "leading zero"},
      {R"({"key":1.5,"value":"v"})", 9, "'}' expected"},
      {R"({"key":1e3,"value":"v"})", 9, "'}' expected"},
      {R"({"key":18446744073709551616,"value":"v"})", 8, "above"},
  };
  for (const BadLine& bad : kNumbers) expect_refused(kJson, KeyOrder::u64, bad);
}

TEST(Lifetimes, stand_behind_the_value_where_records_may_have_them) {
  const RecordShape lasting(KeyOrder::bytes, true);
  for (const RecordFormat format : {kTsv, kJson}) {
    std::string line;
    append_record(format, KeyOrder::bytes, "k", "v\t", line, 1'760'000'000'000);
    EXPECT_EQ(line, format == kTsv ? "k\tv\\t\t1760000000000"
                                   : R"({"key":"k","value":"v\t","expires_ms":1760000000000})");
    Record record;
    ASSERT_FALSE(parse_record(format, lasting, line, record));
    EXPECT_EQ(record.value, "v\t");
    EXPECT_EQ(record.expires_ms, 1'760'000'000'000u);
    EXPECT_TRUE(parse_record(format, KeyOrder::bytes, line, record)) << "where there are none";
    ASSERT_FALSE(parse_record(format, lasting, line_of(format, "k", "v"), record));
    EXPECT_EQ(record.expires_ms, 0u) << "what an earlier line said is forgotten";
  }
  const auto refused = [&](RecordFormat format, const char* line, std::size_t column) {
    Record record;
    const MaybeError error = parse_record(format, lasting, line, record);
    ASSERT_TRUE(error) << line;
    EXPECT_EQ(error->column, column) << error->what;
  };
  refused(kTsv, "a\tb\tc", 5);
  refused(kTsv, "a\tb\t", 5);
  refused(kTsv, "a\tb\t01", 5);
  refused(kTsv, "a\tb\t1\t2", 6);
  refused(kJson, R"({"key":"k","value":"v","expires_ms":"1"})", 37);
  refused(kJson, R"({"key":"k","value":"v","expires_ms":-1})", 37);
  refused(kJson, R"({"key":"k","expires_ms":1,"expires_ms":1,"value":"v"})", 27);
  refused(kJson, R"({"key":"k","expires_ms":1})", 27);
}

// Feeds bytes through a pipe in pieces, as a slow writer would.
class Piped {
 public:
  Piped(std::string bytes, std::size_t piece) {
    EXPECT_EQ(pipe(fds_), 0);
    writer_ = std::thread([this, bytes = std::move(bytes), piece] {
      for (std::size_t i = 0; i < bytes.size(); i += piece) {
        const std::size_t n = std::min(piece, bytes.size() - i);
        EXPECT_EQ(write(fds_[1], bytes.data() + i, n), static_cast<ssize_t>(n));
      }
      close(fds_[1]);
    });
  }
  ~Piped() {
    writer_.join();
    close(fds_[0]);
  }
  int fd() const { return fds_[0]; }

 private:
  int fds_[2] = {-1, -1};
  std::thread writer_;
};

TEST(Lines, pieces_of_any_size_make_the_same_lines) {
  const std::string text = "one\n\nthree\n" + std::string(1000, 'x') + "\nlast without end";
  for (const std::size_t piece : {1u, 2u, 3u, 5u, 4096u}) {
    Piped input(text, piece);
    LineReader reader(input.fd(), 4096);
    std::vector<std::string> lines;
    std::string_view line;
    while (reader.next(line) == Status::ok) lines.emplace_back(line);
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "three", std::string(1000, 'x'),
                                               "last without end"}));
    EXPECT_EQ(reader.line_number(), 5u);
    EXPECT_EQ(reader.bytes_read(), text.size());
    EXPECT_EQ(reader.next(line), Status::not_found);
  }
}

TEST(Lines, an_end_of_line_at_the_end_starts_no_line) {
  Piped input("a\n", 1);
  LineReader reader(input.fd(), 10);
  std::string_view line;
  EXPECT_EQ(reader.next(line), Status::ok);
  EXPECT_EQ(reader.next(line), Status::not_found);
}

TEST(Lines, a_line_above_the_limit_is_skipped_whole) {
  const std::string longest(10, 'l');
  const std::string text = longest + "\n" + longest + "x\n" + std::string(1u << 20, 'y') +
                           "\nok\n" + std::string(600000, 'z');
  for (const std::size_t piece : {7u, 4096u}) {
    Piped input(text, piece);
    LineReader reader(input.fd(), 10);
    std::string_view line;
    EXPECT_EQ(reader.next(line), Status::ok);
    EXPECT_EQ(line, longest);
    EXPECT_EQ(reader.next(line), Status::too_large);
    EXPECT_EQ(reader.next(line), Status::too_large);
    EXPECT_EQ(reader.next(line), Status::ok);
    EXPECT_EQ(line, "ok");
    EXPECT_EQ(reader.line_number(), 4u);
    EXPECT_EQ(reader.next(line), Status::too_large);
    EXPECT_EQ(reader.next(line), Status::not_found);
  }
}

TEST(Lines, a_failed_read_is_io) {
  LineReader reader(-1, 10);
  std::string_view line;
  EXPECT_EQ(reader.next(line), Status::io);
  EXPECT_EQ(reader.error_number(), EBADF);
}

}  // namespace
}  // namespace tenuto::tool
