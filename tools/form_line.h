// The first line of a dump whose collection is no plain one: its form, so that a load makes the
// same collection, or refuses another one.
#pragma once

#include <string>
#include <string_view>

#include "record_format.h"
#include "tenuto/collection.h"

namespace tenuto::tool {

// "reverse_u64, duplicates, expires": the order, then what else there is.
std::string form_words(KeyOrder order, const std::string& codec, bool duplicates, bool expires);
// Keys in the order of bytes or numbers, and nothing else: a dump has no such line.
bool is_plain_form(std::string_view words);

// Without its LF. No line of a record looks like it.
void append_form_line(RecordFormat format, std::string_view words, std::string& out);
// Whether it is such a line; its words.
bool parse_form_line(RecordFormat format, std::string_view line, std::string& words);
// The options that make such a collection; false: the words say no form that load could make.
bool options_of_form(std::string_view words, CollectionOptions& options);

}  // namespace tenuto::tool
