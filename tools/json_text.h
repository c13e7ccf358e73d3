// Reads the parts of JSON texts: strings, numbers, any value (RFC 8259; strings are UTF-8, with \u
// escapes and surrogate pairs). Strict, and every error has its column. json_record reads the
// records of JSON lines with it, json_object any object.
#pragma once

#include <string>
#include <string_view>

#include "text_format.h"

namespace tenuto::tool {

class JsonText {
 public:
  explicit JsonText(std::string_view text) : text_(text) {}

  void blanks();
  bool take(char c);
  MaybeError expect(char c);  // skips blanks before it
  MaybeError string(std::string& out);
  // Skips any value. `depth`: of objects and arrays around it.
  MaybeError value(unsigned depth);

  bool at_end() const { return at_ == text_.size(); }
  std::size_t at() const { return at_; }
  std::size_t column() const { return at_ + 1; }
  char next() const { return at_end() ? '\0' : text_[at_]; }
  std::string_view since(std::size_t from) const { return text_.substr(from, at_ - from); }
  MaybeError error(std::string what) const { return FormatError{column(), std::move(what)}; }

 protected:
  std::string_view text_;
  std::size_t at_ = 0;

 private:
  MaybeError escape(std::string& out);
  MaybeError unicode_escape(std::string& out);
  bool hex4(std::size_t from, std::uint32_t& code) const;
  MaybeError number();
  MaybeError nested(char end, unsigned depth);
  std::string skipped_;
};

}  // namespace tenuto::tool
