// Spells: which calls belong together, and what an open may show.
#include "judge.h"

#include <algorithm>
#include <utility>

#include "beside.h"

namespace tenuto::life {

namespace {}

Judge::Judge(const Story& story) : story_(story) {
  for (Spell& s : spell_) s.base = State::empty(story.numbers);
}

std::optional<std::uint64_t> Judge::doubtful_copy(unsigned store) const {
  return spell_[store].doubtful;
}

namespace {
// The default place of the journal is beside the file that the path leads to. A hard link has its
// own.
unsigned journal_place(unsigned path) { return path < 3 ? 0 : path; }
constexpr unsigned kPaths = 5;
}  // namespace

bool Judge::must_open(unsigned store, unsigned path) const {
  const Spell& s = spell_[store];
  if (s.doubtful && s.doubtful_at.contains(journal_place(path))) return false;
  // An unclean pool needs its journal. With another place for it the open may be refused, and
  // nothing is lost.
  return !s.made || s.closed || story_.medium != Medium::journal ||
         journal_place(path) == journal_place(s.path);
}

std::string Judge::judge(std::vector<Op> ops) {
  std::ranges::sort(ops, {}, &Op::invoke);
  faults_ = std::ranges::any_of(ops, [](const Op& op) { return op.verb == Verb::fail_call; });
  no_memory_ = std::ranges::any_of(ops, [](const Op& op) { return op.verb == Verb::fail_alloc; });
  for (Spell& s : spell_) {
    s.faulted = s.faulted || faults_;
    s.no_memory = s.no_memory || no_memory_;
  }
  for (unsigned s = 0; s < kStores; ++s) {
    std::vector<Op> own;
    for (const Op& op : ops) {
      if (op.store == s && op.verb != Verb::fail_call && op.verb != Verb::fail_alloc)
        own.push_back(op);
    }
    std::string why = judge_store(s, std::move(own));
    if (!why.empty()) return why;
  }
  return {};
}

std::string Judge::judge_store(unsigned s, std::vector<Op> ops) {
  Spell& spell = spell_[s];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    std::string why;
    switch (op.verb) {
      case Verb::open:
        why = opened(s, op);
        break;
      case Verb::look:
        if (op.pending()) break;
        if (!spell.looks_due && leaves_open(spell)) {
          spell.ops.push_back(op);
        } else {
          why = decide(s, op);
        }
        break;
      case Verb::close:
        spell.ops.push_back(op);
        spell.closed = op.ok();
        break;
      case Verb::copy:
        copies_[{s, op.a.at(0)}] = spell;
        break;
      case Verb::restore: {
        const auto from = copies_.find({s, op.a.at(0)});
        if (from == copies_.end()) break;
        why = decide_before_restore(spell);
        restored(spell, from->second, op);
        break;
      }
      case Verb::rescue:
        why = rescued(s, op);
        break;
      case Verb::validate:
      case Verb::check_backup:
        break;
      default:
        why = new_ids(spell, op);
        spell.ops.push_back(op);
    }
    if (!why.empty()) return "store " + std::to_string(s) + ": " + why;
  }
  return {};
}

void Judge::restored(Spell& spell, const Spell& copy, const Op& op) {
  const std::uint64_t journal = op.a.at(1);
  const Spell was = std::exchange(spell, copy);
  if (journal == 0) return;
  // Another journal than its own, or none, is beside the pool.
  spell.path = was.path;
  spell.doubtful = op.a.at(0);
  for (unsigned path = 0; path < kPaths; ++path) spell.doubtful_at.insert(journal_place(path));
  spell.before = std::make_shared<const Spell>(was);
}

std::string Judge::new_ids(Spell& spell, const Op& op) const {
  const bool makes = op.verb == Verb::create || op.verb == Verb::tx_create;
  if (!makes || op.pending() || op.r.empty()) return {};
  const std::uint64_t id = op.r[0];
  // The id of a collection that a transaction makes is final only after the commit.
  if (op.verb == Verb::create) {
    spell.ids.insert(id);
  } else if (spell.ids.contains(id)) {
    return text_of(op) + ": an id that was given before";
  }
  return {};
}

// Judges an open. If it succeeded, the look that follows is judged. If not, there must be a reason.
std::string Judge::opened(unsigned s, const Op& op) {
  Spell& spell = spell_[s];
  const auto path = static_cast<unsigned>(op.a.at(0));
  const bool read_only = op.a.at(1) != 0;
  if (op.pending()) {
    spell.made = true;
    spell.looks_due = true;
    spell.closed = false;
    return {};
  }
  if (op.ok()) {
    // The path of this open is the one for what follows.
    spell.made = true;
    spell.looks_due = true;
    spell.may_run = spell.may_run && read_only;
    spell.read_only = read_only;
    spell.path = path;
    return {};
  }
  if (faults_ || op.status == kThrew) {
    // It may have failed when it wrote that the pool is running, and have stored that.
    spell.may_run = spell.may_run || !read_only;
    return {};
  }
  if (read_only && op.is(Status::read_only) && (!spell.closed || spell.may_run)) return {};
  if (!must_open(s, path) && !op.is(Status::busy)) return {};
  if (!spell.made && op.is(Status::full)) return {};
  return "an open by path " + std::to_string(path) + " says " +
         std::string(status_name(static_cast<Status>(op.status)));
}

// Whether a look does not settle everything, and therefore counts as one more call. Either
// something is not durable yet, which a kill may still undo. Or there are snapshots and
// transactions whose place in the order only a later read tells.
bool Judge::leaves_open(const Spell& spell) const {
  if (story_.medium == Medium::journal && std::ranges::any_of(spell.ops, buffered)) return true;
  const auto takes = [](const Op& op) {
    return op.verb == Verb::snapshot || op.verb == Verb::begin;
  };
  return (story_.at_once || std::ranges::any_of(spell.ops, uncertain)) &&
         std::ranges::any_of(spell.ops, takes);
}

std::string Judge::explain_spell(const Spell& spell, const Op& look, State& found) {
  const bool cut = spell.looks_due;
  const Durable durable = !cut || spell.closed               ? Durable::all
                          : story_.medium == Medium::journal ? Durable::synced
                                                             : Durable::returned;
  return explain(spell.base, spell.ops, look, rules(spell), durable,
                 cut ? Of::next_life : Of::same_life, found, &undecided_);
}

// Takes the state that the look shows as the known state.
std::string Judge::decide(unsigned s, const Op& look) {
  Spell& spell = spell_[s];
  const bool cut = spell.looks_due;
  State found;
  std::string why = story_.at_once ? judge_beside(spell.base, spell.ops) : "";
  if (!why.empty()) return why;
  why = explain_spell(spell, look, found);
  for (auto older = spell.before; !why.empty() && cut && older != nullptr; older = older->before) {
    Spell other = *older;
    other.looks_due = true;
    if (explain_spell(other, look, found).empty()) why.clear();
  }
  if (!why.empty() && spell.ghosts && look.r[0] < spell.base.time) {
    found = state_shown(look);
    ++undecided_;
    why.clear();
  }
  if (!why.empty()) return why;
  const auto expires = [](const auto& c) { return c.second->encoding.expires; };
  spell.ghosts = spell.ghosts || (std::ranges::any_of(spell.ops, uncertain) &&
                                  std::ranges::any_of(found.collections, expires));
  if (cut) found.forget_handles();
  spell.looks_due = false;
  // An open with a journal elsewhere, or by a hard link, has not used the journal beside the pool,
  // and the other way round.
  spell.doubtful_at.erase(journal_place(spell.path));
  if (spell.doubtful_at.empty()) {
    spell.doubtful.reset();
    spell.before.reset();
  }
  spell.closed = false;
  spell.faulted = faults_;
  spell.no_memory = no_memory_;
  spell.was_read_only = spell.read_only;
  for (const auto& [id, c] : found.collections) spell.ids.insert(id);
  spell.base = std::move(found);
  spell.ops.clear();
  return {};
}

// A rescue must bring back what the next open would show. The pool stays as it is.
std::string Judge::rescued(unsigned s, const Op& op) {
  const Spell& spell = spell_[s];
  // If it is undecided whether there is a store, or which journal is its own, any result is
  // possible.
  if (!spell.made || spell.looks_due || spell.doubtful || spell.faulted || faults_) return {};
  if (op.pending() || op.status == kThrew || (!spell.closed && spell.path > 2)) return {};
  if (!op.ok()) {
    return "rescue says " + std::string(status_name(static_cast<Status>(op.status)));
  }
  const Durable durable = spell.closed                       ? Durable::all
                          : story_.medium == Medium::journal ? Durable::synced
                                                             : Durable::returned;
  State found;
  const std::string why =
      explain(spell.base, spell.ops, op, rules(spell), durable, Of::rescue, found, &undecided_);
  return why.empty() ? why : "rescue (" + why + ")";
}

// Judges looks that counted as calls, before their files are replaced by a copy.
std::string Judge::decide_before_restore(const Spell& spell) {
  const auto is_look = [](const Op& op) { return op.verb == Verb::look; };
  const auto last = std::find_if(spell.ops.rbegin(), spell.ops.rend(), is_look);
  if (last == spell.ops.rend()) return {};
  const std::vector<Op> before(spell.ops.begin(), last.base() - 1);
  State found;
  return explain(spell.base, before, *last, rules(spell), Durable::all, Of::same_life, found,
                 &undecided_);
}

Rules Judge::rules(const Spell& spell) const {
  Rules r;
  r.at_once = story_.at_once;
  r.faulted = spell.faulted;
  r.read_only = spell.was_read_only;
  // Snapshots also expire if there is no memory for what they need.
  r.bounded_snapshots = story_.snapshot_bytes_max != 0 || spell.no_memory;
  r.room = story_.pool_bytes_max;
  return r;
}

}  // namespace tenuto::life
