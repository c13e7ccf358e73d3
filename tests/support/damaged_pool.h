// A small pool with collections of every encoding, as bytes, and a judge of what its damaged copies
// return. damage_fuzz.cc uses it.
//
// The promise: damage is harmless (every call returns the right contents, and validate() returns
// ok), or it is reported. Then these calls report it: each read that would use it, validate(), a
// walk over the collection (which dump uses), backup and compact. A later write must not hide it.
// Objects of the program have no checksum, so they are not judged.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/named_forms.h"
#include "support/pool_image.h"

namespace tenuto::test {

// A collection as its iterator shows it. The default one has no name.
struct Shown {
  std::string name;
  CollectionOptions options;
  std::vector<std::pair<std::string, std::string>> pairs;

  bool operator==(const Shown& o) const { return name == o.name && pairs == o.pairs; }
};

struct DamageBase {
  std::string name;
  Bytes image;
  std::vector<Shown> world;
  std::vector<std::size_t> lines;  // lines in use, and their neighbours
  std::vector<std::size_t> pages;  // the pages of these lines: all others are zero, and stay zero
};

Result<Collection> collection_of(Store& store, const Shown& c, Report* report);
// What a store with these collections shows.
std::vector<Shown> world_of(Store& store);

// The pool after a clean close, and after a kill with an open transaction.
std::vector<DamageBase> damage_bases();

// What is at a byte of the base: "fingerprint", "record", ...
std::string place_name(const DamageBase& base, std::size_t byte);

struct JudgeOptions {
  bool writes = true;
  bool rescue = true;
  bool apart = true;  // validate and compact get their own sessions, also where reads find nothing
  std::string path;   // of the copy; other files get longer names beside it
};

// Writes the image to the path and uses it, in sessions that each begin with the damage. Returns
// what was wrong, or an empty string.
std::string judge_damage(const DamageBase& base, const Bytes& damaged, const JudgeOptions& how);

}  // namespace tenuto::test
