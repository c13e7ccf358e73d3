// See json_object.h.
#include "json_object.h"

#include "json_text.h"

namespace tenuto::tool {
namespace {

MaybeError read_value(JsonText& in, JsonMember& member) {
  using Kind = JsonMember::Kind;
  in.blanks();
  const char c = in.next();
  if (c == '"') {
    member.kind = Kind::string;
    return in.string(member.text);
  }
  const std::size_t from = in.at();
  if (MaybeError e = in.value(1)) return e;
  member.text = in.since(from);
  member.kind = c == '{' || c == '['                 ? Kind::nested
                : c == '-' || (c >= '0' && c <= '9') ? Kind::number
                                                     : Kind::word;
  return std::nullopt;
}

}  // namespace

MaybeError read_json_object(std::string_view text,
                            const std::function<MaybeError(const JsonMember&)>& each) {
  JsonText in(text);
  if (MaybeError e = in.expect('{')) return e;
  in.blanks();
  bool more = !in.take('}');
  JsonMember member;
  while (more) {
    in.blanks();
    member.column = in.column();
    if (MaybeError e = in.string(member.name)) return e;
    if (MaybeError e = in.expect(':')) return e;
    if (MaybeError e = read_value(in, member)) return e;
    if (MaybeError e = each(member)) return e;
    in.blanks();
    more = in.take(',');
    if (!more && !in.take('}')) return in.error("',' or '}' expected");
  }
  in.blanks();
  if (!in.at_end()) return in.error("text behind the object");
  return std::nullopt;
}

}  // namespace tenuto::tool
