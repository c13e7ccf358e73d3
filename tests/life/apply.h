// Applies a recorded call to the model: whether its result is possible, and what it changed.
#pragma once

#include <string>

#include "model.h"
#include "record.h"

namespace tenuto::life {

struct Rules {
  bool at_once = false;  // other threads were in calls: results may be open
  bool faulted = false;  // a system call was made to fail: calls may return that
  bool read_only = false;
  bool bounded_snapshots = false;  // snapshots may expire
  std::uint64_t room = 0;          // the largest size of the pool
};

enum class Outcome : std::uint8_t { as_said, done, not_done };

// Returns an empty string if the result is possible. `state` is then the state after the call.
// Outcomes other than as_said are for calls that did not return, threw, or failed with io.
std::string apply(State& state, const Op& op, Outcome outcome, const Rules& rules);

// Whether it is unknown if the call was done.
bool uncertain(const Op& op);

// Parts of apply; see apply_snapshots.cc and apply_cursors.cc.
struct Applying {
  State& state;
  const Op& op;
  const Outcome outcome;
  const Rules& rules;

  bool said() const { return outcome == Outcome::as_said; }
  bool done() const { return outcome == Outcome::done || (said() && op.ok()); }
  // Returns an empty string if the status is one of `allowed`, otherwise the complaint.
  std::string expect(std::initializer_list<Status> allowed) const;
  std::string wrong(const std::string& why) const;
  std::string expect_tag(const Held* held, std::size_t at = 0) const;
  // Handles errors that mean that nothing was done.
  bool refused(std::string& why) const;

  std::string data();
  std::string batch();
  std::string bulk();
  std::string compact();
  std::string reads();
  std::string multi_get();
  std::string scan(const Records& c, std::uint64_t time, bool backward) const;
  std::string collections();
  std::string list();
  std::string moments();
  std::string transactions();
  std::string transaction_read(TransactionModel& x);
  std::string transaction_write(TransactionModel& x);
  std::string transaction_touch(TransactionModel& x, const Encoding& encoding, bool made);
  std::string commit(TransactionModel& x);
  std::string commit_refused(const TransactionModel& x) const;
  std::string run();
  std::string rest();
  std::string objects();
  std::string object_walk() const;
  std::string cursors();
  std::string seek_or_move(CursorModel& cursor);
};

// The direction of a cursor's move, and where it begins (exclusive).
struct Way {
  bool forward = true;
  Place from = kFront;
};
Way way_of(const Op& op, const Records& c, Place at, std::uint64_t key);
Place place_before(Place p);

// The objects are the last part of a look. compare_objects returns whether it shows the objects of
// the state. Slots that may have several values then get the one that the look shows.
Objects objects_shown(const Op& look, std::size_t at);
std::string compare_objects(State& state, const Op& look, std::size_t at);

// What a transaction sees of a collection: the records of its snapshot, and its own writes. Returns
// false if it does not see the collection.
bool merged(const State& state, const TransactionModel& x, std::uint64_t id, Records& out);

}  // namespace tenuto::life
