// See crash_kill_judge.h.
#include "crash_kill_judge.h"

#include <algorithm>

#include <fmt/format.h>

#include "crash_kill_child.h"

namespace tenuto::tool {
namespace {

bool is_slot(std::uint32_t cell) { return cell >= kSlotCells; }

std::string name_of(std::uint32_t cell) {
  if (is_slot(cell)) return fmt::format("slot {}", cell - kSlotCells);
  if (cell >= kChainCells) return fmt::format("chain {}", cell - kChainCells);
  return fmt::format("balance {}", cell);
}

// A block whose bytes are still undefined may hold anything, but it must exist.
bool fits(std::uint32_t cell, std::uint64_t seen, std::uint64_t expected) {
  if (is_slot(cell) && expected == kSlotRaw) return seen != kSlotEmpty;
  return seen == expected;
}

std::string mismatch(std::uint32_t cell, std::uint64_t seen, const std::string& expected) {
  return fmt::format("{} is {}{}, must be {}", name_of(cell), seen,
                     is_slot(cell) && seen == kSlotTorn ? " (torn)" : "", expected);
}

}  // namespace

// A prefix that identifies the key; some keys are long.
std::string KillJudge::short_key(std::uint32_t key) const {
  const std::string text = state_.records->key(key);
  return text.size() <= 24 ? text : text.substr(0, 24) + "...";
}

void KillJudge::forget_all() {
  std::fill(std::begin(state_.key), std::end(state_.key), kAbsent);
  const KillChain empty{};
  for (std::uint32_t c = 0; c < kCells; ++c) {
    state_.cell[c] = is_slot(c) ? kSlotEmpty : kFirstBalance;
    if (c >= kChainCells && !is_slot(c)) state_.cell[c] = kill_chain_state(empty);
  }
  for (KillThreadLog& log : state_.thread) {
    log.logged = 0;
    log.step.state = KillStep::none;
  }
}

std::string KillJudge::judge() {
  crash_ = state_.ticket.fetch_add(1);
  std::string wrong = judge_cells();
  if (wrong.empty()) wrong = judge_objects();
  if (wrong.empty()) wrong = judge_keys();
  if (!wrong.empty()) return wrong;
  totals_.sights += 1;
  std::copy(state_.sight.key.begin(), state_.sight.key.end(), state_.key.begin());
  for (KillThreadLog& log : state_.thread) log.logged = 0;
  return {};
}

std::string KillJudge::judge_cells() {
  std::vector<bool> open(kCells);
  for (KillThreadLog& log : state_.thread) {
    if (log.step.state == KillStep::none) continue;
    if (std::string wrong = judge_step(log.step, open); !wrong.empty()) return wrong;
  }
  for (std::uint32_t c = 0; c < kCells; ++c) {
    const std::uint64_t seen = state_.sight.cell[c];
    if (open[c] || fits(c, seen, state_.cell[c])) continue;
    return "acknowledged: " + mismatch(c, seen, std::to_string(state_.cell[c]));
  }
  std::uint64_t sum = 0;
  for (std::uint32_t b = 0; b < kBalances; ++b) sum += state_.sight.cell[kBalanceCells + b];
  if (sum != kBalances * kFirstBalance) return fmt::format("the balances' sum is {}", sum);
  for (KillThreadLog& log : state_.thread) log.step.state = KillStep::none;
  return {};
}

// All changes of a step must be there, or none.
std::string KillJudge::judge_step(const KillStep& step, std::vector<bool>& open) {
  const std::uint64_t* seen = state_.sight.cell;
  bool after = true;
  bool before = step.state != KillStep::done;
  std::string text;
  for (std::uint32_t i = 0; i < step.changes; ++i) {
    const KillStep::Change& c = step.change[i];
    after = after && fits(c.cell, seen[c.cell], c.after);
    before = before && fits(c.cell, seen[c.cell], c.before);
    text += "\n  " + mismatch(c.cell, seen[c.cell],
                              step.state == KillStep::done
                                  ? std::to_string(c.after)
                                  : fmt::format("{} or {}", c.before, c.after));
  }
  if (!after && !before) {
    return (step.state == KillStep::done ? "acknowledged and not there:" : "half there:") + text;
  }
  for (std::uint32_t i = 0; i < step.changes; ++i) {
    const KillStep::Change& c = step.change[i];
    open[c.cell] = true;
    state_.cell[c.cell] = after ? c.after : c.before;
  }
  return {};
}

std::string KillJudge::judge_objects() const {
  const KillSight& sight = state_.sight;
  std::vector<KillExtent> extents(sight.extent, sight.extent + sight.extents);
  std::sort(extents.begin(), extents.end(),
            [](const KillExtent& a, const KillExtent& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    const KillExtent& a = extents[i - 1];
    if (a.offset + a.bytes <= extents[i].offset) continue;
    return fmt::format("objects overlap: {} bytes at {} and {} bytes at {}", a.bytes, a.offset,
                       extents[i].bytes, extents[i].offset);
  }
  if (sight.objects == extents.size()) return {};
  return fmt::format("{} objects allocated, {} reachable", sight.objects, extents.size());
}

void KillJudge::collect(std::uint32_t thread) {
  KillThreadLog& log = state_.thread[thread];
  const std::uint32_t logged = log.logged;
  // If the end of one entry of a batch is known, it applies to all its entries.
  std::vector<KillEnd> end(logged + 1, KillEnd::unknown);
  for (std::uint32_t i = 0; i < logged; ++i) {
    const KillEnd known = log.op[i].end;
    if (known != KillEnd::unknown) end[log.op[i].batch != 0 ? log.op[i].batch : i + 1] = known;
  }
  std::uint32_t last_batch = 0;
  for (std::uint32_t i = 0; i < logged; ++i) {
    const KillOp& from = log.op[i];
    const KillEnd known = end[from.batch != 0 ? from.batch : i + 1];
    const bool first = from.batch == i + 1;
    totals_.key_operations += 1;
    totals_.batches += first ? 1 : 0;
    totals_.full += known == KillEnd::failed ? 1 : 0;
    totals_.pending_operations += known == KillEnd::unknown ? 1 : 0;
    totals_.writes += known == KillEnd::done && from.verb != KillVerb::get ? 1 : 0;
    const bool there = from.verb == KillVerb::put && state_.sight.key[from.key] == from.value;
    totals_.kept_writes += known == KillEnd::unknown && there ? 1 : 0;
    if (known == KillEnd::failed) continue;
    KeyOp op;
    op.invoked = from.invoked;
    op.ended = from.end == KillEnd::unknown ? crash_ : from.ended;
    op.value = from.value;
    op.verb = from.verb == KillVerb::put     ? KeyVerb::put
              : from.verb == KillVerb::erase ? KeyVerb::erase
                                             : KeyVerb::get;
    op.saw = static_cast<EraseSaw>(from.saw);
    op.pending = known == KillEnd::unknown;
    op.thread = thread;
    int batch = -1;
    if (op.pending && from.batch != 0) {
      if (from.batch != last_batch) batches_.emplace_back();
      last_batch = from.batch;
      batch = static_cast<int>(batches_.size()) - 1;
      batches_.back().keys.push_back(from.key);
      batches_.back().some_there = batches_.back().some_there || there;
    }
    ops_[from.key].push_back({op, batch});
  }
}

std::string KillJudge::judge_keys() {
  batches_.clear();
  allowed_.clear();
  for (auto& ops : ops_) ops.clear();
  for (std::uint32_t t = 0; t < kKillThreadsMax; ++t) collect(t);
  for (std::uint32_t k = 0; k < ops_.size(); ++k) {
    if (ops_[k].empty()) {
      if (state_.sight.key[k] == state_.key[k]) continue;
      return fmt::format("key {} is {} and nobody touched it; it must be {}", short_key(k),
                         state_.sight.key[k], state_.key[k]);
    }
    if (std::string wrong = judge_key(k); !wrong.empty()) return wrong;
  }
  return judge_batches();
}

// The operations on a key, followed by a read of its value after the crash. `batches_in` has one
// bit for each interrupted batch: set if the batch happened. With `free` they stay undecided.
std::vector<KeyOp> KillJudge::history(std::uint32_t key, std::uint32_t batches_in,
                                      bool free) const {
  std::vector<KeyOp> ops;
  ops.reserve(ops_[key].size() + 1);
  for (const LoggedOp& logged : ops_[key]) {
    const bool decided = logged.batch >= 0 && !free;
    const bool in = decided && (batches_in >> logged.batch & 1) != 0;
    if (decided && !in) continue;
    ops.push_back(logged.op);
    if (in) ops.back().pending = false;
  }
  ops.push_back({.invoked = crash_ + 1,
                 .ended = crash_ + 2,
                 .value = state_.sight.key[key],
                 .verb = KeyVerb::get,
                 .thread = kKillThreadsMax});
  return ops;
}

std::string KillJudge::judge_key(std::uint32_t key) {
  const KeyJudgement j = check_key_history(history(key, 0, true), {&state_.key[key], 1});
  if (j.verdict == Verdict::linearizable) return {};
  if (j.verdict == Verdict::undecided) return "too many operations at the same time to judge";
  return fmt::format("key {}: {}  (killed at {}; thread {} is the reader after recovery)",
                     short_key(key), j.what, crash_, kKillThreadsMax);
}

bool KillJudge::key_allows(std::uint32_t key, std::uint32_t batches_in) {
  std::uint32_t mine = 0;
  for (const LoggedOp& op : ops_[key]) {
    if (op.batch >= 0) mine |= 1u << op.batch;
  }
  const std::uint64_t index = std::uint64_t{key} << 32 | (batches_in & mine);
  if (const auto known = allowed_.find(index); known != allowed_.end()) return known->second;
  const Verdict v =
      check_key_history(history(key, batches_in, false), {&state_.key[key], 1}).verdict;
  return allowed_[index] = v == Verdict::linearizable;
}

// Each interrupted batch happened as a whole or not at all. Some choice for all of them must be
// consistent with every key they touch.
std::string KillJudge::judge_batches() {
  std::uint32_t guess = 0;
  for (std::size_t b = 0; b < batches_.size(); ++b) guess |= batches_[b].some_there ? 1u << b : 0;
  for (std::uint32_t choice = 0; choice < 1u << batches_.size(); ++choice) {
    bool suits = true;
    for (const Batch& batch : batches_) {
      for (const std::uint32_t key : batch.keys) suits = suits && key_allows(key, guess ^ choice);
    }
    if (suits) return {};
  }
  std::string text = "a batch is half there; those that the kill cut off, and what is there now:";
  for (std::size_t b = 0; b < batches_.size(); ++b) {
    text += fmt::format("\n  batch {}:", b);
    for (const std::uint32_t key : batches_[b].keys) {
      for (const LoggedOp& op : ops_[key]) {
        if (op.batch != static_cast<int>(b)) continue;
        const bool puts = op.op.verb == KeyVerb::put;
        text += fmt::format("\n    key {}: {}, held {} before, holds {} now", short_key(key),
                            puts ? fmt::format("put {}", op.op.value) : "erase", state_.key[key],
                            state_.sight.key[key]);
      }
    }
  }
  return text;
}

}  // namespace tenuto::tool
