// How the tool writes and reads bytes, numbers and sizes as text (tools/text_format.h, numbers.h),
// and the line of its progress bar. Every malformed text is refused with its column.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "numbers.h"
#include "progress.h"
#include "text_format.h"

using namespace std::string_literals;

namespace tenuto::tool {
namespace {

std::string escaped(std::string_view bytes) {
  std::string text;
  append_escaped(text, bytes);
  return text;
}
std::string base64(std::string_view bytes) {
  std::string text;
  append_base64(text, bytes);
  return text;
}
std::string json(std::string_view bytes) {
  std::string text;
  append_json_string(text, bytes);
  return text;
}

TEST(Escapes, text_stands_for_itself_and_the_rest_is_escaped) {
  EXPECT_EQ(escaped(""), "");
  EXPECT_EQ(escaped("plain text ~ !\"'"), "plain text ~ !\"'");
  EXPECT_EQ(escaped("a\tb\nc\rd\\e\0f"s), "a\\tb\\nc\\rd\\\\e\\0f");
  EXPECT_EQ(escaped("\x01\x1b\x7f"), "\\x01\\x1b\\x7f");
  EXPECT_EQ(escaped("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(Escapes, bytes_that_are_no_utf8_and_terminal_controls_are_escaped) {
  EXPECT_EQ(escaped("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(escaped("\xc3"), "\\xc3");                    // cut short
  EXPECT_EQ(escaped("\xc0\xaf"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\xc2\\x9b");  // CSI of some terminals
  EXPECT_EQ(escaped("\xc2\xa0"), "\xc2\xa0");
}

TEST(Escapes, every_escape_is_read_back) {
  std::string bytes;
  EXPECT_FALSE(parse_escaped("a\\tb\\nc\\rd\\\\e\\0f\\x41\\xfF", 1, bytes));
  EXPECT_EQ(bytes, "a\tb\nc\rd\\e\0fA\xff"s);
  EXPECT_FALSE(parse_escaped("\xff\x01 raw"s + '\0', 1, bytes));
  EXPECT_EQ(bytes, "\xff\x01 raw"s + '\0');
}

TEST(Escapes, a_malformed_field_names_its_column) {
  const struct {
    std::string text;
    std::size_t column;
    const char* words;
  } kCases[] = {
      {"a\tb", 2, "TAB"},
      {"ab\n", 3, "line feed"},
      {"value\r", 6, "carriage return"},
      {"abc\\", 4, "backslash at the end"},
      {"ab\\q", 3, "unknown escape"},
      {"\\", 1, "backslash at the end"},
      {"\\x", 1, "two hexadecimal digits"},
      {"\\x4", 1, "two hexadecimal digits"},
      {"12\\x4g", 3, "two hexadecimal digits"},
      {"\\X41", 1, "unknown escape"},
      {"\\\x01", 1, "unknown escape"},
  };
  for (const auto& c : kCases) {
    std::string bytes;
    const MaybeError error = parse_escaped(c.text, 10, bytes);
    ASSERT_TRUE(error) << escaped(c.text);
    EXPECT_EQ(error->column, c.column + 9) << escaped(c.text);
    EXPECT_NE(error->what.find(c.words), std::string::npos) << error->what;
  }
}

TEST(Hex, round_trip_and_malformed) {
  std::string text;
  append_hex(text, "\x00\x7f\xff"s);
  EXPECT_EQ(text, "007fff");
  std::string bytes;
  EXPECT_FALSE(parse_hex("007FfF", 1, bytes));
  EXPECT_EQ(bytes, "\x00\x7f\xff"s);
  EXPECT_FALSE(parse_hex("", 1, bytes));
  EXPECT_EQ(bytes, "");
  EXPECT_EQ(parse_hex("00 1", 1, bytes)->column, 3u);
  EXPECT_EQ(parse_hex("0x00", 1, bytes)->column, 2u);
  EXPECT_EQ(parse_hex("000", 1, bytes)->column, 4u);
}

TEST(Base64, the_vectors_of_rfc_4648) {
  const std::pair<const char*, const char*> kCases[] = {{"", ""},
                                                        {"f", "Zg=="},
                                                        {"fo", "Zm8="},
                                                        {"foo", "Zm9v"},
                                                        {"foob", "Zm9vYg=="},
                                                        {"fooba", "Zm9vYmE="},
                                                        {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : kCases) {
    EXPECT_EQ(base64(bytes), text);
    std::string back;
    EXPECT_FALSE(parse_base64(text, 1, back)) << text;
    EXPECT_EQ(back, bytes);
  }
  EXPECT_EQ(base64("\xfb\xff\xfe"), "+//+");
}

TEST(Base64, only_the_one_form_is_accepted) {
  const std::pair<const char*, std::size_t> kCases[] = {
      {"Z", 1},    {"Zg", 1},   {"Zg=", 1},    {"Zg==Zg==", 3}, {"Zh==", 2},
      {"Zm9=", 3}, {"Zm 9", 3}, {"====", 1},   {"Z===", 2},     {"=Zg=", 1},
      {"Zm9-", 4}, {"Zm9_", 4}, {"Zm9v\n", 1}, {"\xffm9v", 1},  {"Zg==\n", 1}};
  for (const auto& [text, column] : kCases) {
    std::string bytes;
    const MaybeError error = parse_base64(text, 1, bytes);
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->column, column) << text << ": " << error->what;
  }
}

TEST(JsonStrings, escapes_are_the_short_ones) {
  EXPECT_EQ(json("a\"b\\c/\b\f\n\r\t"), "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\"");
  EXPECT_EQ(json("\x00\x1f\x7f"s), "\"\\u0000\\u001f\x7f\"");
  EXPECT_EQ(json("\xe2\x82\xac"), "\"\xe2\x82\xac\"");
  EXPECT_EQ(json("\xff"), "\"\xef\xbf\xbd\"");
}

TEST(Numbers, every_number_has_one_text) {
  std::uint64_t n = 0;
  EXPECT_FALSE(parse_u64("0", 1, n));
  EXPECT_EQ(n, 0u);
  EXPECT_FALSE(parse_u64("18446744073709551615", 1, n));
  EXPECT_EQ(n, UINT64_MAX);
  const std::pair<const char*, std::size_t> kBad[] = {{"", 1},
                                                      {"-1", 1},
                                                      {"+1", 1},
                                                      {" 1", 1},
                                                      {"1 ", 2},
                                                      {"01", 1},
                                                      {"1x", 2},
                                                      {"0x1", 2},
                                                      {"1.", 2},
                                                      {"18446744073709551616", 1},
                                                      {"99999999999999999999999", 1}};
  for (const auto& [text, column] : kBad) {
    const MaybeError error = parse_u64(text, 1, n);
    ASSERT_TRUE(error) << text;
    EXPECT_EQ(error->column, column) << text;
  }
}

TEST(Sizes, suffixes_are_powers_of_1024) {
  const std::pair<const char*, std::uint64_t> kCases[] = {{"0", 0},
                                                          {"4096", 4096},
                                                          {"64M", 64u << 20},
                                                          {"64m", 64u << 20},
                                                          {"64MiB", 64u << 20},
                                                          {"64MB", 64u << 20},
                                                          {"1.5G", 3ull << 29},
                                                          {"8K", 8192},
                                                          {"2T", 2ull << 40},
                                                          {"17B", 17},
                                                          {"0.5K", 512},
                                                          {".5K", 512},
                                                          {"18446744073709551615", UINT64_MAX},
                                                          {"16777215T", 16777215ull << 40}};
  for (const auto& [text, expected] : kCases) {
    std::uint64_t bytes = 1;
    const MaybeError error = parse_size(text, bytes);
    EXPECT_FALSE(error) << text << ": " << error->what;
    EXPECT_EQ(bytes, expected) << text;
  }
}

TEST(Sizes, a_malformed_size_names_its_column) {
  const std::pair<const char*, std::size_t> kCases[] = {
      {"", 1},           {"M", 1},    {"-1", 1},        {"+1", 1},
      {" 1", 1},         {"64X", 3},  {"64 M", 3},      {"1e3", 2},
      {"64Mx", 4},       {"64iB", 3}, {"inf", 1},       {"nan", 1},
      {"1..5M", 3},      {"0x10", 2}, {"16777216T", 1}, {"18446744073709551616", 1},
      {"99999999.5T", 1}};
  for (const auto& [text, column] : kCases) {
    std::uint64_t bytes = 0;
    const MaybeError error = parse_size(text, bytes);
    ASSERT_TRUE(error) << text << " was taken as " << bytes;
    EXPECT_EQ(error->column, column) << text << ": " << error->what;
  }
}

TEST(Sizes, are_written_for_people) {
  EXPECT_EQ(format_size(0), "0 bytes");
  EXPECT_EQ(format_size(1), "1 byte");
  EXPECT_EQ(format_size(1023), "1023 bytes");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size((1u << 20) - 1), "1 MiB");
  EXPECT_EQ(format_size(64u << 20), "64 MiB");
  EXPECT_EQ(format_size(UINT64_MAX), "16 EiB");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
}

TEST(Quotes, a_long_key_is_cut_and_nothing_reaches_the_terminal_raw) {
  EXPECT_EQ(in_quotes("a\x1b[2J"), "\"a\\x1b[2J\"");
  const std::string shown = in_quotes(std::string(65536, 'x'));
  EXPECT_LT(shown.size(), 100u);
  EXPECT_NE(shown.find("(65536 bytes)"), std::string::npos);
}

TEST(ProgressLine, shows_share_rate_and_time_left) {
  EXPECT_EQ(progress_line(1000000, 25u << 20, 100u << 20, 5.0),
            "[#####---------------]  25 %  1,000,000 records  200,000/s  5 MiB/s  0:15 left");
  EXPECT_EQ(progress_line(10, 1024, 0, 2.0), "10 records  5/s  512 bytes/s");
  EXPECT_EQ(progress_line(0, 0, 100, 0.0),
            "[--------------------]   0 %  0 records  0/s  0 bytes/s");
  // More than announced: the file grew, or escapes make a dump longer than its records.
  EXPECT_EQ(progress_line(1, 200, 100, 1.0),
            "[####################] 100 %  1 records  1/s  200 bytes/s  0:00 left");
}

TEST(ProgressLine, clocks) {
  EXPECT_EQ(format_clock(0), "0:00");
  EXPECT_EQ(format_clock(65.9), "1:05");
  EXPECT_EQ(format_clock(3725), "1:02:05");
  EXPECT_EQ(format_clock(1e30), "99:59:59");
}

}  // namespace
}  // namespace tenuto::tool
