// A small pool with one of every form, as bytes, and the judgement of what a copy of it that was
// damaged says of itself. For damage_fuzz.cc.
//
// The promise that is judged: damage is harmless (every call gives what was there, validate() says
// ok), or it is reported: by each read that would have met it, by validate(), by a walk over the
// collection (which is what dump does), by backup and by compact. Nothing is ever passed over, and
// nothing written later turns a report into a silence. What a program keeps in objects of its own
// has no checksum and is not judged.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/named_forms.h"
#include "support/pool_image.h"

namespace tenuto::test {

// A collection as its iterator shows it; the default one has no name.
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
  std::vector<std::size_t> lines;  // in use, or beside such
  std::vector<std::size_t> pages;  // of these lines: the others are zero, and stay so
};

Result<Collection> collection_of(Store& store, const Shown& c, Report* report);
// What a store of these collections shows.
std::vector<Shown> world_of(Store& store);

// The pool after a clean close, and as a kill leaves it with a transaction under way.
std::vector<DamageBase> damage_bases();

// What of a base a place is: "fingerprint", "record", ...
std::string place_name(const DamageBase& base, std::size_t byte);

struct JudgeOptions {
  bool writes = true;
  bool rescue = true;
  bool apart = true;  // validate and compact in sessions of their own also where reads find nothing
  std::string path;   // of the copy; other files beside it get longer names
};

// Lays the image out and uses it, in sessions that each begin with the damage. What was wrong,
// empty when nothing.
std::string judge_damage(const DamageBase& base, const Bytes& damaged, const JudgeOptions& how);

}  // namespace tenuto::test
