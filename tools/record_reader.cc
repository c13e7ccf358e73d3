// See record_reader.h.
#include "record_reader.h"

#include <algorithm>

#include "field_record.h"

namespace tenuto::tool {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

Status RecordReader::next(std::string_view& text) {
  text = {};
  if (format_ == RecordFormat::csv) return next_csv(text);
  if (format_ == RecordFormat::json) return next_json(text);
  const Status s = next_line();
  first_line_ = lines_.line_number();
  text = line_;
  return s;
}

// A byte order mark before the first line is no part of it.
Status RecordReader::next_line() {
  line_ = {};
  at_ = 0;
  const Status s = lines_.next(line_);
  if (!has_key_field(format_)) return s;
  if (s == Status::too_large) return refused("the line is longer than --max-line");
  if (s == Status::ok && lines_.line_number() == 1 && line_.starts_with("\xef\xbb\xbf")) {
    line_.remove_prefix(3);
  }
  return s;
}

Status RecordReader::refused(std::string what) {
  first_line_ = lines_.line_number();
  error_ = {at_ + 1, std::move(what)};
  return Status::invalid_argument;
}

// Inside quotes the number of quotes is odd.
Status RecordReader::next_csv(std::string_view& text) {
  const Status s = next_line();
  first_line_ = lines_.line_number();
  if (s != Status::ok) return s;
  const auto quotes = [](std::string_view line) {
    return std::count(line.begin(), line.end(), '"');
  };
  auto open = quotes(line_) % 2;
  if (open == 0) {
    text = line_;
    return Status::ok;
  }
  text_.assign(line_);
  bool large = false;
  while (open != 0) {
    const Status more = next_line();
    if (more == Status::not_found) break;  // whoever parses the record finds the open quote
    if (more != Status::ok) return more;
    open = (open + quotes(line_)) % 2;
    large = large || text_.size() + line_.size() > bytes_max_;
    if (!large) (text_ += '\n') += line_;
  }
  text = text_;
  return large ? Status::too_large : Status::ok;
}

Status RecordReader::next_json(std::string_view& text) {
  for (;;) {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
    if (at_ == line_.size()) {
      const Status s = next_line();
      first_line_ = lines_.line_number();
      if (s == Status::not_found && around_ == Around::array) {
        at_ = 0;
        return refused("the array has no closing ]");
      }
      if (s != Status::ok) return s;
      continue;
    }
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
  first_line_ = lines_.line_number();
  std::size_t begin = at_;
  std::size_t depth = 0;
  bool in_string = false;
  bool large = false;
  text_.clear();
  for (;;) {
    for (; at_ < line_.size(); ++at_) {
      const char c = line_[at_];
      if (in_string) {
        if (c == '\\') ++at_;
        if (c == '"') in_string = false;
        continue;
      }
      in_string = c == '"';
      depth += c == '{' || c == '[' ? 1 : 0;
      depth -= c == '}' || c == ']' ? 1 : 0;
      if (depth > 0) continue;
      ++at_;
      const std::string_view end = line_.substr(begin, at_ - begin);
      if (large || text_.size() + end.size() > bytes_max_) return Status::too_large;
      text = text_.empty() ? end : std::string_view(text_ += end);
      return Status::ok;
    }
    if (text_.size() + line_.size() - begin > bytes_max_) {
      large = true;
      text_.clear();
    }
    if (!large) text_.append(line_, begin) += '\n';
    begin = 0;
    const Status s = next_line();
    if (s == Status::not_found) {
      at_ = 0;
      return refused("the object that began before has no closing }");
    }
    if (s != Status::ok) return s;
  }
}

}  // namespace tenuto::tool
