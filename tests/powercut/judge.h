// What a life finds when it has opened the pool, compared with the story of the lives before it.
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

// Empty, or what is wrong. The pool must show for each thread a prefix of its operations, with
// everything that was said to be durable; and of all threads together a state that was: what had
// returned before an operation began must be there if the operation is.
std::string judge(const Store& store, const Objects& objects, const Story& story, Models& models);

}  // namespace tenuto::powercut
