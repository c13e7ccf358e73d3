// What `tenuto load` reads: lines, and then one record a line, TSV or JSON.
//
// Promises: lines come out unchanged, whatever the limit. A line is accepted, or refused at a
// column inside it. An accepted record is written (as `dump` does) and read back unchanged, in both
// formats. An independent parser reads the same from an accepted JSON line.
//
//   byte 0: format (bit 0), key order (bit 1), how the limit of a line is chosen (bit 2),
//           whether records may have lifetimes (bit 3)
//   byte 1: the limit, if it is a small one
//   byte 2: bytes that one read returns, 0: as many as there are;   the rest: the input file
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "fuzz/input.h"
#include "line_reader.h"
#include "numbers.h"
#include "record_format.h"

namespace tenuto::tool {
namespace {

using fuzz::Input;

constexpr std::uint64_t kLineBytesMax = 1u << 20;
constexpr std::size_t kTextBytesMax = 64u << 10;

// A descriptor from which each read returns the next piece, however much room the reader has.
class Pieces {
 public:
  Pieces(std::string_view text, std::size_t piece_bytes) {
    FUZZ_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds_) == 0, "socketpair");
    while (!text.empty()) {
      const std::string_view piece = text.substr(0, piece_bytes);
      const ssize_t sent = ::send(fds_[1], piece.data(), piece.size(), MSG_DONTWAIT);
      if (sent < 0) break;  // the socket is full: a long text in tiny pieces
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    unsent_ = text.size();
    ::shutdown(fds_[1], SHUT_WR);
  }
  ~Pieces() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;
  int fd() const { return fds_[0]; }
  std::size_t unsent() const { return unsent_; }

 private:
  int fds_[2] = {-1, -1};
  std::size_t unsent_ = 0;
};

std::string line_of(RecordFormat format, RecordShape shape, const Record& record) {
  std::string line;
  append_record(format, shape.order, record.key, record.value, line, record.expires_ms);
  return line;
}

void expect_inside(std::string_view text, const MaybeError& error) {
  if (!error) return;
  FUZZ_REQUIRE(error->column >= 1 && error->column <= text.size() + 1, "a column outside the line");
  FUZZ_REQUIRE(!error->what.empty(), "an error without words");
}

void expect_back(RecordFormat format, RecordShape shape, const Record& record) {
  const std::string line = line_of(format, shape, record);
  FUZZ_REQUIRE(line.find('\n') == std::string::npos && is_utf8(line), "a written line: " + line);
  Record back;
  const MaybeError error = parse_record(format, shape, line, back);
  FUZZ_REQUIRE(!error, "refused what was written: " + line);
  FUZZ_REQUIRE(
      back.key == record.key && back.value == record.value && back.expires_ms == record.expires_ms,
      "another record: " + line);
  FUZZ_REQUIRE(line_of(format, shape, back) == line, "no canonical line: " + line);
}

// REQUIRES: the line was accepted, as JSON in a store of byte keys.
void expect_same_json(std::string_view line, const Record& record) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  FUZZ_REQUIRE(object.is_object() && object.size() == 2u + object.count("expires_ms"),
               "taken, but no JSON: " + std::string(line));
  const auto same = [&](const char* name, const std::string& bytes) {
    if (!object.contains(name)) return;
    FUZZ_REQUIRE(object[name].is_string() && object[name].get<std::string>() == bytes,
                 "another parser reads another record: " + std::string(line));
  };
  same("key", record.key);
  same("value", record.value);
}

void check_line(RecordFormat format, RecordShape shape, std::string_view line) {
  static Record record;  // reused, as load does
  const MaybeError error = parse_record(format, shape, line, record);
  expect_inside(line, error);
  if (error) return;
  expect_back(RecordFormat::tsv, shape, record);
  expect_back(RecordFormat::jsonl, shape, record);
  if (format == RecordFormat::jsonl && shape.order == KeyOrder::bytes)
    expect_same_json(line, record);
}

// Finds the next line as a reader without buffers does.
bool next_line(std::string_view& text, std::string_view& line) {
  if (text.empty()) return false;
  const std::size_t end = text.find('\n');
  line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return true;
}

void check_texts(std::string_view text) {
  std::uint64_t n = 0;
  std::string bytes;
  if (const MaybeError error = parse_u64(text, 1, n)) {
    expect_inside(text, error);
  } else {
    FUZZ_REQUIRE(std::to_string(n) == text, "a number with two texts");
  }
  expect_inside(text, parse_size(text, n));
  bytes.clear();
  if (const MaybeError error = parse_base64(text, 1, bytes)) {
    expect_inside(text, error);
  } else {
    std::string again;
    append_base64(again, bytes);
    FUZZ_REQUIRE(again == text, "base64 with two texts");
  }
  bytes.clear();
  if (const MaybeError error = parse_hex(text, 1, bytes)) {
    expect_inside(text, error);
  } else {
    FUZZ_REQUIRE(bytes.size() * 2 == text.size(), "hexadecimal of another length");
  }
}

}  // namespace
}  // namespace tenuto::tool

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace tenuto;
  using namespace tenuto::tool;
  fuzz::Input input(data, bytes);
  const unsigned flags = input.u8();
  const RecordFormat format = (flags & 1) != 0 ? RecordFormat::jsonl : RecordFormat::tsv;
  const KeyOrder order = (flags & 2) != 0 ? KeyOrder::u64 : KeyOrder::bytes;
  const RecordShape shape(order, (flags & 8) != 0);
  const std::uint64_t small = 1 + input.u8();
  const std::uint64_t limit = (flags & 4) != 0 ? small : kLineBytesMax;
  const std::size_t piece = input.u8();
  std::string_view text = input.bytes(kTextBytesMax);
  const Pieces pieces(text, piece == 0 ? kTextBytesMax : piece);
  text.remove_suffix(pieces.unsent());
  LineReader reader(pieces.fd(), limit);
  std::string_view expected;
  std::string_view line;
  while (next_line(text, expected)) {
    const Status status = reader.next(line);
    if (status == Status::too_large) {
      FUZZ_REQUIRE(expected.size() > limit, "a line within the limit was skipped");
      continue;
    }
    FUZZ_REQUIRE(status == Status::ok, status_name(status));
    FUZZ_REQUIRE(line == expected, "the reader changed a line");
    FUZZ_REQUIRE(line.size() <= limit, "a line above the limit was handed out");
    check_line(format, shape, line);
    check_texts(line);
  }
  FUZZ_REQUIRE(reader.next(line) == Status::not_found, "the reader goes on past the end");
  return 0;
}
