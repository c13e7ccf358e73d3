// Any JSON object, member by member.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "text_format.h"

namespace tenuto::tool {

struct JsonMember {
  enum class Kind : std::uint8_t { string, number, word, nested } kind = Kind::word;
  std::string name;
  std::string text;  // the decoded string, or the text of another value
  std::size_t column = 1;
};

// Calls `each` for every member, and checks that `text` is one sound object and nothing else. Ends
// with the first error, also of `each`.
MaybeError read_json_object(std::string_view text,
                            const std::function<MaybeError(const JsonMember&)>& each);

}  // namespace tenuto::tool
