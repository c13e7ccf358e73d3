// Compares a pool that a life has opened with the story of the lives before it.
#pragma once

#include <string>

#include "powercut/keys.h"
#include "powercut/objects.h"
#include "powercut/story.h"
#include "tenuto/kv.h"

namespace tenuto::powercut {

// The models of all threads, each at the operation that the pool shows.
struct Models {
  explicit Models(std::uint64_t seed);
  Progress done() const;

  std::vector<KeyModel> keys;
  std::vector<ObjectModel> objects;
};

// Returns what is wrong, or an empty string. For each thread the pool must show a prefix of its
// operations, with everything that was reported as durable. All threads together must show a state
// that existed: if an operation is there, all that had returned before it began must be there.
std::string judge(const Store& store, const Objects& objects, const Story& story, Models& models);

}  // namespace tenuto::powercut
