// The judge of a life: compares the record with the model. A store's calls are cut into spells,
// from one successful open to the next. The calls of a spell must have an order that agrees with
// real time and explains each result. Some beginning of that order, with all that was acknowledged
// as durable, must be what the next open shows.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apply.h"

namespace tenuto::life {

class Judge {
 public:
  explicit Judge(const Story& story);

  // Judges the calls of one process, of all threads. Returns what is wrong, or an empty string.
  std::string judge(std::vector<Op> ops);
  // Whether the store must open now by this path. If not, it may also be refused.
  bool must_open(unsigned store, unsigned path) const;
  // Number of searches that were given up.
  std::uint64_t undecided() const { return undecided_; }
  // Whether the store was made, and is in a state that no look has confirmed yet.
  bool unseen(unsigned store) const { return spell_[store].made && spell_[store].looks_due; }
  bool made(unsigned store) const { return spell_[store].made; }
  // The path that certainly opens it, and the copy that a restore of doubtful result put back.
  unsigned path(unsigned store) const { return spell_[store].path; }
  std::optional<std::uint64_t> doubtful_copy(unsigned store) const;

 private:
  struct Spell {
    State base;           // the state that the last look found
    std::vector<Op> ops;  // calls since then
    bool made = false;    // the store was created
    bool looks_due = false;
    bool closed = false;   // by a clean close
    bool may_run = false;  // a failed open may have marked it as running
    bool faulted = false, no_memory = false;
    // Records that had expired at the look may be there or not: a call that wrote some may have
    // happened or not. They show when an open begins at an earlier time, after a crash.
    bool ghosts = false;
    bool read_only = false, was_read_only = false;  // now; for `ops`
    unsigned path = 0;                              // of its last open
    std::set<std::uint64_t> ids;                    // ever given
    // Set after a restore that left another journal, or none, beside the pool: the copy's number.
    std::optional<std::uint64_t> doubtful;
    std::set<unsigned> doubtful_at;  // places of journals that no open has used since
    // The state before the restore, which it may still have if both copies are of one life.
    std::shared_ptr<const Spell> before;
  };

  std::string judge_store(unsigned s, std::vector<Op> ops);
  std::string opened(unsigned s, const Op& op);
  bool leaves_open(const Spell& spell) const;
  std::string decide(unsigned s, const Op& look);
  std::string rescued(unsigned s, const Op& op);
  std::string explain_spell(const Spell& spell, const Op& look, State& found);
  static void restored(Spell& spell, const Spell& copy, const Op& op);
  std::string decide_before_restore(const Spell& spell);
  Rules rules(const Spell& spell) const;
  std::string new_ids(Spell& spell, const Op& op) const;

  const Story& story_;
  std::array<Spell, kStores> spell_;
  std::map<std::pair<unsigned, std::uint64_t>, Spell> copies_;
  bool faults_ = false, no_memory_ = false;  // in the process that is judged
  std::uint64_t undecided_ = 0;
};

// What a look must show: all calls, after a clean close; all that returned; or what was synced,
// with any beginning of the rest.
enum class Durable : std::uint8_t { all, returned, synced };

// What is looked at: the life of the calls, the next life, or a rescued pool, which has its own ids
// and no objects.
enum class Of : std::uint8_t { same_life, next_life, rescue };

// Searches for an order of the calls, from `base` on, that explains each result and what the look
// shows (explain.cc). Returns an empty string and the state that it found, or the calls that no
// order explains.
std::string explain(const State& base, const std::vector<Op>& ops, const Op& look,
                    const Rules& rules, Durable durable, Of of, State& found,
                    std::uint64_t* undecided);

// The state that a look shows. What had expired is not in it.
State state_shown(const Op& look);

// Whether the call asks for no durability: it may be lost until a later call makes it durable.
bool buffered(const Op& op);

// Compares a look with a state. Returns what differs, or an empty string. `named` gets the state
// with the ids of collections whose makers never saw them.
std::string compare(const State& state, const Op& look, Of kind, State* named);

}  // namespace tenuto::life
