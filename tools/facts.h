// The output of a command, as rows for people or as one JSON object for programs. Each fact is
// added once for both. tools/tenuto.md documents the JSON names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenuto::tool {

class Facts {
 public:
  // `name` is the JSON member and `label` the row's name; an empty string omits it. A text that is
  // not UTF-8 becomes the member `name_base64`.
  void text(std::string_view name, std::string_view label, std::string_view value);
  void count(std::string_view name, std::string_view label, std::uint64_t n);
  void bytes(std::string_view name, std::string_view label, std::uint64_t n);
  void ms(std::string_view name, std::string_view label, double n);
  void seconds(std::string_view name, std::string_view label, double n);
  // A boolean in JSON, with its text for people.
  void flag(std::string_view name, std::string_view label, bool truth, std::string_view words);
  // A row only. `words` are already escaped.
  void row(std::string_view label, std::string_view words) { add({}, {}, label, words); }
  // A member that is already JSON, `"name":value`.
  void member(const std::string& json_member);

  // "title\n  label   value\n..."
  std::string rows(std::string_view title) const;
  // One object, without LF.
  std::string json() const;

 private:
  void add(std::string_view name, std::string_view json, std::string_view label,
           std::string_view words);

  struct Row {
    std::string label, words;
  };
  std::vector<Row> rows_;
  std::string members_;
};

}  // namespace tenuto::tool
