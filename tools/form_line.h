// The lines of a dump that are no records: which collection the records below are of, and its form,
// so that a load makes the same collection or refuses a different one.
#pragma once

#include <string>
#include <string_view>

#include "record_format.h"
#include "tenuto/collection.h"

namespace tenuto::tool {

// "reverse_u64, duplicates, expires": the order, then the other properties.
std::string form_words(KeyOrder order, const std::string& codec, bool duplicates, bool expires);
// Keys in byte or number order and no other property. A dump of such a collection has no form line.
bool is_plain_form(std::string_view words);

// Appends the form line without its LF. No line of a record looks like it.
void append_form_line(RecordFormat format, std::string_view words, std::string& out);
// Returns whether the line is a form line; if so, `words` is its form.
bool parse_form_line(RecordFormat format, std::string_view line, std::string& words);

// The line before the records of a collection that has a name.
struct CollectionLine {
  std::string name;
  std::string form;  // form_words
};
void append_collection_line(RecordFormat format, const CollectionLine& line, std::string& out);
// False: it is another kind of line.
bool parse_collection_line(RecordFormat format, std::string_view line, CollectionLine& out);
// Whether a line that is neither a record nor a collection's was meant to be the latter.
bool begins_collection_line(RecordFormat format, std::string_view line);

// The options for a collection of this form. Returns false if load cannot make it.
bool options_of_form(std::string_view words, CollectionOptions& options);

}  // namespace tenuto::tool
