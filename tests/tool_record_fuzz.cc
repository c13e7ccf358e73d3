// Random records and random damage for the record formats of the tool. It checks three promises. A
// record comes back from its line. An accepted line is read as another JSON parser reads it. A
// refused line gets a column inside it. Seeds are printed. TENUTO_SEED repeats a run.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "numbers.h"
#include "record_format.h"
#include "support/seed.h"

namespace tenuto::tool {
namespace {

constexpr int kRecords = 20000;
constexpr int kMutants = 60000;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(engine_);
  }

  // Pieces that record formats easily get wrong.
  std::string bytes() {
    static const std::string_view kPieces[] = {
        "key",  "\\",   "\t",   "\n",       "\r",           std::string_view("\0", 1),
        "\"",   "/",    "\\x4", "\xc3\xbc", "\xe2\x82",     "\xf0\x9f\x98\x80",
        "\xff", "\x7f", "\x1b", "\xc2\x9b", "\xed\xa0\x80", "=",
        "{",    "}",    ",",    ":",        "\xef\xbb\xbf"};
    std::string text;
    const std::size_t pieces = below(8);
    for (std::size_t i = 0; i < pieces; ++i) {
      if (below(3) == 0) {
        text += static_cast<char>(below(256));
      } else {
        text += kPieces[below(std::size(kPieces))];
      }
    }
    return text;
  }

  Record record(KeyOrder order) {
    Record record;
    record.key = bytes();
    if (order == KeyOrder::u64) record.key = std::string_view(u64_key(engine_() >> below(64)));
    record.value = bytes();
    return record;
  }

  void damage(std::string& line) {
    const std::size_t times = 1 + below(3);
    for (std::size_t i = 0; i < times; ++i) {
      const std::size_t at = below(line.size() + 1);
      switch (below(4)) {
        case 0:
          line.insert(at, 1, static_cast<char>(below(256)));
          break;
        case 1:
          line.erase(at, 1 + below(3));
          break;
        case 2:
          line.insert(at, bytes());
          break;
        default:
          if (at < line.size()) line[at] = static_cast<char>(below(256));
      }
    }
  }

 private:
  std::mt19937_64 engine_;
};

KeyOrder order_of(int i) { return i % 4 == 0 ? KeyOrder::u64 : KeyOrder::bytes; }
RecordFormat format_of(int i) { return i % 2 == 0 ? RecordFormat::tsv : RecordFormat::jsonl; }

std::string line_of(RecordFormat format, KeyOrder order, const Record& record) {
  std::string line;
  append_record(format, order, record.key, record.value, line);
  return line;
}

// Reads both members of the object with an independent parser. Returns false if the parser refuses
// the line, or if the object does not have exactly these two members, each once.
bool other_parser_reads(const std::string& line, nlohmann::json& object) {
  int members = 0;
  const auto count = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json&) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1) ++members;
    return true;
  };
  // That parser skips a byte order mark and stops at a NUL. JSON allows neither.
  if (line.starts_with("\xef\xbb\xbf") || line.find('\0') != std::string::npos) return false;
  object = nlohmann::json::parse(line, count, false);
  return object.is_object() && members == 2 && object.size() == 2;
}

void expect_column_inside(const std::string& line, const MaybeError& error) {
  if (!error) return;
  EXPECT_GE(error->column, 1u) << line << ": " << error->what;
  EXPECT_LE(error->column, line.size() + 1) << line << ": " << error->what;
  EXPECT_FALSE(error->what.empty());
}

TEST(RecordFuzz, every_record_comes_back_from_its_line) {
  Random random(test::test_seed());
  for (int i = 0; i < kRecords; ++i) {
    const KeyOrder order = order_of(i / 2);
    const Record record = random.record(order);
    const std::string line = line_of(format_of(i), order, record);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_TRUE(is_utf8(line)) << line;
    Record back;
    const MaybeError error = parse_record(format_of(i), order, line, back);
    ASSERT_FALSE(error) << line << ": " << error->what;
    ASSERT_EQ(back.key, record.key) << line;
    ASSERT_EQ(back.value, record.value) << line;
  }
}

TEST(RecordFuzz, damaged_lines_are_refused_in_place_or_read_as_what_they_say) {
  Random random(test::test_seed());
  int refused = 0;
  int accepted = 0;
  for (int i = 0; i < kMutants; ++i) {
    const RecordFormat format = format_of(i);
    const KeyOrder order = order_of(i / 2);
    std::string line = line_of(format, order, random.record(order));
    random.damage(line);
    Record record;
    const MaybeError error = parse_record(format, order, line, record);
    if (error) {
      ++refused;
      expect_column_inside(line, error);
      continue;
    }
    ++accepted;
    Record again;
    ASSERT_FALSE(parse_record(format, order, line_of(format, order, record), again));
    ASSERT_EQ(again.key, record.key);
    ASSERT_EQ(again.value, record.value);
  }
  // The test shows something only if some damage is refused and some is accepted.
  EXPECT_GT(refused, kMutants / 20);
  EXPECT_GT(accepted, kMutants / 20);
}

TEST(RecordFuzz, json_lines_mean_what_another_parser_reads) {
  Random random(test::test_seed());
  int agreed = 0;
  for (int i = 0; i < kMutants; ++i) {
    std::string line =
        line_of(RecordFormat::jsonl, KeyOrder::bytes, random.record(KeyOrder::bytes));
    if (i % 8 != 0) random.damage(line);
    Record record;
    const MaybeError error = parse_record(RecordFormat::jsonl, KeyOrder::bytes, line, record);
    nlohmann::json object;
    const bool other = other_parser_reads(line, object);
    if (!error) {
      ASSERT_TRUE(other) << "accepted, but it is not such an object: " << line;
      if (object.contains("key")) {
        ASSERT_EQ(object["key"].get<std::string>(), record.key) << line;
      }
      if (object.contains("value")) {
        ASSERT_EQ(object["value"].get<std::string>(), record.value) << line;
      }
      ++agreed;
    } else if (other && object.contains("key") && object["key"].is_string() &&
               object.contains("value") && object["value"].is_string()) {
      FAIL() << "refused, but it is such an object: " << line << ": " << error->what;
    }
  }
  EXPECT_GT(agreed, kMutants / 20);
}

TEST(RecordFuzz, random_bytes_never_crash_a_parser) {
  Random random(test::test_seed());
  for (int i = 0; i < kMutants; ++i) {
    std::string line;
    const std::size_t bytes = random.below(40);
    for (std::size_t k = 0; k < bytes; ++k) line += static_cast<char>(random.below(256));
    Record record;
    std::uint64_t size = 0;
    std::string out;
    expect_column_inside(line, parse_record(format_of(i), order_of(i / 2), line, record));
    expect_column_inside(line, parse_size(line, size));
    expect_column_inside(line, parse_base64(line, 1, out));
    expect_column_inside(line, parse_hex(line, 1, out));
  }
}

}  // namespace
}  // namespace tenuto::tool
