// One recorded call on the model: whether it may have come to what it said, and what it did.
#pragma once

#include <string>

#include "model.h"
#include "record.h"

namespace tenuto::life {

struct Rules {
  bool at_once = false;  // other threads were in calls: what is no single moment is not judged
  bool faulted = false;  // a system call was made to fail: calls may say so
  bool read_only = false;
  bool bounded_snapshots = false;  // they may expire
  std::uint64_t room = 0;          // of the pool at its largest
};

enum class Outcome : std::uint8_t { as_said, done, not_done };

// Empty: it may be so, and `state` is what it is then. Outcomes other than as_said are for calls
// that never returned, or threw, or failed with io.
std::string apply(State& state, const Op& op, Outcome outcome, const Rules& rules);

// Whether nobody knows what the call did.
bool uncertain(const Op& op);

// Parts of apply; see apply_moments.cc and apply_cursors.cc.
struct Applying {
  State& state;
  const Op& op;
  const Outcome outcome;
  const Rules& rules;

  bool said() const { return outcome == Outcome::as_said; }
  bool done() const { return outcome == Outcome::done || (said() && op.ok()); }
  // What it said, when it should have said one of these.
  std::string expect(std::initializer_list<Status> allowed) const;
  std::string wrong(const std::string& why) const;
  std::string expect_tag(const Held* held, std::size_t at = 0) const;
  // For failures that say that nothing was done.
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
  std::string commit(TransactionModel& x);
  std::string commit_refused(const TransactionModel& x) const;
  std::string run();
  std::string rest();
  std::string objects();
  std::string object_walk() const;
  std::string cursors();
  std::string seek_or_move(CursorModel& cursor);
};

// Which way a cursor that stands at a record goes, and from where, exclusive.
struct Way {
  bool forward = true;
  Place from = kFront;
};
Way way_of(const Op& op, const Records& c, Place at, std::uint64_t key);
Place place_before(Place p);

// The last part of a look; whether it shows what a state has. Where that is not known it is then.
Objects objects_shown(const Op& look, std::size_t at);
std::string compare_objects(State& state, const Op& look, std::size_t at);

// What a transaction sees of a collection: its moment's records and its own writes. False: it is
// not there.
bool merged(const State& state, const TransactionModel& x, std::uint64_t id, Records& out);

}  // namespace tenuto::life
