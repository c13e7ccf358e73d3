// A strict reader of the one JSON object that is a record. It exists because a load reads nothing
// else and errors must name the column. Also, building a general parser's tree takes most of a
// load's time. The tests compare it with a general parser.
#include "json_record.h"

#include <fmt/format.h>

#include "json_text.h"
#include "numbers.h"

namespace tenuto::tool {
namespace {

class Reader : JsonText {
 public:
  Reader(RecordShape shape, std::string_view line) : JsonText(line), shape_(shape) {}

  MaybeError read(Record& record) {
    if (MaybeError e = expect('{')) return e;
    Seen seen;
    record.expires_ms = 0;
    do {
      if (MaybeError e = member(record, seen)) return e;
      blanks();
    } while (take(','));
    if (!take('}')) return error("',' or '}' expected");
    blanks();
    if (!at_end()) return error("text after the object; one object a line");
    if (!seen.key) return error("no member \"key\" or \"key_base64\"");
    if (!seen.value) return error("no member \"value\" or \"value_base64\"");
    return std::nullopt;
  }

  bool read_collection(std::string& name, std::string& form) {
    const bool all =
        !expect('{') && named("collection", name) && take(',') && named("form", form) && take('}');
    blanks();
    return all && at_end();
  }

 private:
  // The next member, if it is called `wanted`, or `wanted`_base64: as append_json_member writes it.
  bool named(std::string_view wanted, std::string& text) {
    blanks();
    if (string(name_) || !name_.starts_with(wanted) || expect(':')) return false;
    const std::string_view rest = std::string_view(name_).substr(wanted.size());
    blanks();
    const bool plain = rest.empty();
    if (!plain && rest != "_base64") return false;
    if (plain ? string(text) : base64(text)) return false;
    blanks();
    return true;
  }

  struct Seen {
    bool key = false;
    bool value = false;
    bool expires = false;
  };

  MaybeError member(Record& record, Seen& all) {
    blanks();
    const std::size_t name_column = column();
    if (MaybeError e = string(name_)) return e;
    const bool is_key = name_ == "key" || name_ == "key_base64";
    const bool is_value = name_ == "value" || name_ == "value_base64";
    const bool is_time = name_ == "expires_ms";
    if (is_time && !shape_.expires) {
      return FormatError{name_column, "a lifetime, and records of this collection have none"};
    }
    if (!is_key && !is_value && !is_time) {
      return FormatError{name_column, fmt::format("unknown member {}; a record has key or "
                                                  "key_base64, and value or value_base64",
                                                  in_quotes(name_))};
    }
    bool& seen = is_key ? all.key : is_value ? all.value : all.expires;
    if (seen) {
      return FormatError{name_column, fmt::format("a second {}", is_key     ? "key"
                                                                 : is_value ? "value"
                                                                            : "expires_ms")};
    }
    seen = true;
    if (MaybeError e = expect(':')) return e;
    blanks();
    if (is_time) return number("write \"expires_ms\":1234, in ms since 1970", record.expires_ms);
    if (is_key && is_of_integers(shape_.order)) return number_key(name_ == "key", record.key);
    std::string& bytes = is_key ? record.key : record.value;
    return name_.ends_with("_base64") ? base64(bytes) : string(bytes);
  }

  MaybeError number_key(bool plain_name, std::string& key) {
    constexpr const char* kWanted = "the keys of this pool are numbers (u64); write \"key\":1234";
    if (!plain_name) return error(kWanted);
    std::uint64_t n = 0;
    if (MaybeError e = number(kWanted, n)) return e;
    key = std::string_view(u64_key(n));
    return std::nullopt;
  }

  MaybeError number(const char* wanted, std::uint64_t& n) {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    if (end == at_) return error(wanted);
    if (MaybeError e = parse_u64(text_.substr(at_, end - at_), column(), n)) return e;
    at_ = end;
    return std::nullopt;
  }

  MaybeError base64(std::string& bytes) {
    const std::size_t first = column() + 1;
    const std::size_t start = at_;
    if (MaybeError e = string(encoded_)) return e;
    // If the string has an escape, its characters do not match the columns.
    const bool escaped = at_ - start != encoded_.size() + 2;
    MaybeError e = parse_base64(encoded_, escaped ? 1 : first, bytes);
    if (e && escaped) e->column = first;
    return e;
  }

  RecordShape shape_;
  std::string name_;
  std::string encoded_;
};

}  // namespace

MaybeError parse_json_record(RecordShape shape, std::string_view line, Record& record) {
  return Reader(shape, line).read(record);
}

bool parse_json_collection(std::string_view line, std::string& name, std::string& form) {
  return Reader(KeyOrder::bytes, line).read_collection(name, form);
}

}  // namespace tenuto::tool
