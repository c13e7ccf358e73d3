// See record_reader.h.
#include "record_reader.h"

#include <algorithm>

#include "field_record.h"
#include "numbers.h"

namespace tenuto::tool {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

Status RecordReader::next(std::string_view& text) {
  text = {};
  if (format_ == RecordFormat::csv) return next_csv(text);
  if (format_ == RecordFormat::json) return next_json(text);
  const Status s = next_line();
  begin_record();
  if (s == Status::too_large) return too_large();
  text = line_;
  return s;
}

// A byte order mark before the first line is no part of it.
Status RecordReader::next_line() {
  line_ = {};
  at_ = 0;
  const Status s = lines_.next(line_);
  const bool first = lines_.line_number() == 1;
  if (s == Status::ok && first && has_key_field(format_) && line_.starts_with("\xef\xbb\xbf")) {
    line_.remove_prefix(3);
  }
  return s;
}

void RecordReader::begin_record() {
  first_line_ = lines_.line_number();
  first_column_ = at_ + 1;
}

Status RecordReader::too_large() {
  error_ = {first_column_,
            "the record is longer than " + format_size(bytes_max_) + " (--max-line)"};
  return Status::too_large;
}

Status RecordReader::refused(std::string what) {
  error_ = {first_column_, std::move(what)};
  return Status::invalid_argument;
}

// A line that is too long leaves unknown whether a quote or an object is open behind it.
Status RecordReader::line_failed(Status s) {
  return s == Status::too_large && too_large() != Status::ok ? Status::invalid_argument : s;
}

// Inside quotes the number of quotes is odd.
Status RecordReader::next_csv(std::string_view& text) {
  const auto read = [this] {
    const Status s = next_line();
    if (s == Status::ok && std::count(line_.begin(), line_.end(), '"') % 2 != 0) open_ = !open_;
    return s;
  };
  while (open_) {  // what is left of a record that was too large
    if (const Status s = read(); s != Status::ok) return line_failed(s);
  }
  const Status s = read();
  begin_record();
  if (s != Status::ok) return line_failed(s);
  text = line_;
  if (!open_) return s;
  text_.assign(line_);
  while (open_) {
    const Status more = read();
    if (more == Status::not_found) break;  // whoever parses the record finds the open quote
    if (more != Status::ok) return line_failed(more);
    if (text_.size() + 1 + line_.size() > bytes_max_) return too_large();
    (text_ += '\n') += line_;
  }
  open_ = false;
  text = text_;
  return Status::ok;
}

Status RecordReader::next_json(std::string_view& text) {
  while (open_ && !close_object()) {  // what is left of a record that was too large
    if (const Status s = next_line_of_object(); s != Status::ok) return s;
  }
  for (;;) {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
    if (at_ == line_.size()) {
      const Status s = next_line();
      begin_record();
      if (s == Status::not_found && around_ == Around::array) {
        return refused("the array has no closing ]");
      }
      if (s != Status::ok) return line_failed(s);
      continue;
    }
    begin_record();
    const char c = line_[at_];
    if (around_ == Around::behind_array) return refused("text behind the array");
    if (around_ == Around::unknown) {
      around_ = c == '[' ? Around::array : Around::nothing;
      comma_ = true;  // the first element needs none
      if (around_ == Around::array) {
        ++at_;
        continue;
      }
    }
    if (around_ == Around::array && c == ']') {
      around_ = Around::behind_array;
      ++at_;
    } else if (around_ == Around::array && c == ',' && !comma_) {
      comma_ = true;
      ++at_;
    } else if (c != '{') {
      return refused("an object expected");
    } else if (around_ == Around::array && !comma_) {
      return refused("',' or ']' expected");
    } else {
      comma_ = false;
      return object(text);
    }
  }
}

// From an opening brace to the one that closes it. What is between is not judged.
Status RecordReader::object(std::string_view& text) {
  std::size_t begin = at_;
  open_ = true;
  text_.clear();
  for (;;) {
    const bool whole = close_object();
    const std::string_view piece = line_.substr(begin, at_ - begin);
    if (text_.size() + piece.size() > bytes_max_) return too_large();
    if (whole) {
      text = text_.empty() ? piece : std::string_view(text_ += piece);
      return Status::ok;
    }
    (text_ += piece) += '\n';
    begin = 0;
    if (const Status s = next_line_of_object(); s != Status::ok) return s;
  }
}

// Goes on behind the closing brace, or to the end of the line.
bool RecordReader::close_object() {
  for (; at_ < line_.size(); ++at_) {
    const char c = line_[at_];
    if (in_string_) {
      if (c == '\\') ++at_;
      if (c == '"') in_string_ = false;
      continue;
    }
    in_string_ = c == '"';
    depth_ += c == '{' || c == '[' ? 1 : 0;
    depth_ -= c == '}' || c == ']' ? 1 : 0;
    if (depth_ > 0) continue;
    ++at_;
    open_ = false;
    return true;
  }
  return false;
}

Status RecordReader::next_line_of_object() {
  const Status s = next_line();
  if (s == Status::not_found) return refused("the object has no closing }");
  return line_failed(s);
}

}  // namespace tenuto::tool
