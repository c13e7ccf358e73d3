// The judge of a life: what was recorded, against the model. A store's history is cut into spells,
// from one successful open to the next; a spell's calls must have an order, agreeing with real
// time, in which each came to what it said, and of which some beginning, with all that was
// acknowledged as durable, is what the next open shows.
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

  // The calls of one process, all threads'. `orderly`: the process came to its end by itself.
  // Empty: nothing is wrong so far.
  std::string judge(std::vector<Op> ops);
  // Whether the store should open now by this path; else a refusal is an answer.
  bool must_open(unsigned store, unsigned path) const;
  // Whether it was ever made, and is in a state that no look has confirmed yet.
  std::uint64_t undecided() const { return undecided_; }
  bool unseen(unsigned store) const { return spell_[store].made && spell_[store].looks_due; }
  bool made(unsigned store) const { return spell_[store].made; }
  // The path that is sure to open it, and the copy that a refused restore came from.
  unsigned path(unsigned store) const { return spell_[store].path; }
  std::optional<std::uint64_t> doubtful_copy(unsigned store) const;

 private:
  struct Spell {
    State base;           // as the last look found it
    std::vector<Op> ops;  // since then
    bool made = false;    // the store was created
    bool looks_due = false;
    bool closed = false;  // cleanly
    bool faulted = false, no_memory = false;
    bool read_only = false, was_read_only = false;  // now; when `ops` were done
    unsigned path = 0;                              // that it was opened by last
    std::set<std::uint64_t> ids;                    // ever given
    // After a restore that left another journal, or none, at the pool's side.
    std::optional<std::uint64_t> doubtful;
    std::set<unsigned> doubtful_at;  // places of journals that nobody has met since
    // It may be, then, what it was before the restore: copies of one life.
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

// What must be in what a look shows: all that returned, and after a clean close all there is; or
// what was synced, and a beginning of the rest.
enum class Durable : std::uint8_t { all, returned, synced };

// What a look is of: the same life as the calls, the next one, or a pool that was rescued, which
// has ids of its own and no objects.
enum class Of : std::uint8_t { same_life, next_life, rescue };

// Looks for an order of the calls from `base` on that explains what each said and what the look
// shows (explain.cc). Empty, and the state that was found; or the calls that no order explains.
std::string explain(const State& base, const std::vector<Op>& ops, const Op& look,
                    const Rules& rules, Durable durable, Of of, State& found,
                    std::uint64_t* undecided);

// Whether it asks for no durability of its own: it may be lost until a later call has some.
bool buffered(const Op& op);

// Whether a look shows this state; `named`: with the ids of collections whose makers never heard
// of them.
std::string compare(const State& state, const Op& look, Of kind, State* named);

}  // namespace tenuto::life
