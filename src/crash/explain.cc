// Makes a short text of a contradiction, in three steps:
//   1. cut off the history after the return that no order explains
//   2. leave out as much of the beginning as possible; the key may then hold anything
//   3. drop every demand that the contradiction does not need: gets go, writes become optional
// Each step only makes the history easier to explain. So a contradiction of the rest is a
// contradiction of the whole.
#include <algorithm>
#include <set>

#include "crash/search.h"

namespace TENUTO_NS::pm {
namespace {

constexpr std::size_t kTriesMax = 4000;
constexpr std::size_t kTailMin = 4;         // operations of the shortest end that is tried
constexpr std::size_t kShrinkOpsMax = 400;  // of a longer one, only the last operations are shown
constexpr std::size_t kShownMax = 40;

struct Demand {
  KeyOp op;
  bool dropped = false;  // a get is ignored, a write may have happened or not
  bool culprit = false;
};

std::string name_of(std::uint64_t value) {
  return value == kAbsent ? "nothing" : std::to_string(value);
}

class Explainer {
 public:
  Explainer(std::span<const KeyOp> ops, std::span<const std::uint64_t> before, std::size_t culprit)
      : before_(before.begin(), before.end()), end_(ops[culprit].ended) {
    if (before_.empty()) before_.push_back(kAbsent);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].invoked > end_ || (ops[i].pending && ops[i].verb == KeyVerb::get)) continue;
      Demand d{ops[i], ops[i].pending, i == culprit};
      if (d.op.ended > end_ && !d.culprit) {
        d.op.pending = true;  // it was open at the culprit's return
        d.dropped = true;
      }
      demands_.push_back(d);
    }
    std::sort(demands_.begin(), demands_.end(), [](const Demand& a, const Demand& b) {
      return a.op.invoked != b.op.invoked ? a.op.invoked < b.op.invoked : a.op.ended < b.op.ended;
    });
  }

  std::string text() {
    const std::string first = headline();
    leave_out_the_beginning();
    if (demands_.size() <= kShrinkOpsMax) shrink();
    return first + lines();
  }

 private:
  bool contradicts() {
    std::vector<KeyOp> ops;
    for (const Demand& d : demands_) {
      if (d.dropped && d.op.verb == KeyVerb::get) continue;
      ops.push_back(d.op);
      ops.back().pending = d.dropped;
      if (d.dropped) ops.back().saw = EraseSaw::unknown;
    }
    return search_key_history(ops, before_).verdict == Verdict::contradiction;
  }

  // Keeps only the last operations, if they are a contradiction whatever the key held before them.
  void leave_out_the_beginning() {
    const std::vector<Demand> all = demands_;
    const std::vector<std::uint64_t> before = before_;
    for (std::size_t tail = kTailMin; tail < all.size(); tail *= 2) {
      demands_.assign(all.end() - static_cast<std::ptrdiff_t>(tail), all.end());
      const std::uint64_t from = demands_.front().op.invoked;
      if (std::none_of(demands_.begin(), demands_.end(), [](auto& d) { return d.culprit; }))
        continue;
      take_over(std::span(all).first(all.size() - tail), from, before);
      if (contradicts()) {
        left_out_ = all.size() - tail;
        return;
      }
    }
    demands_ = all;
    before_ = before;
  }

  // Makes the cut harmless. Operations open at the cut may take effect after it or before it. The
  // key may hold any earlier value. One value represents all those that no later get sees.
  void take_over(std::span<const Demand> earlier, std::uint64_t from,
                 std::span<const std::uint64_t> before) {
    std::set<std::uint64_t> seen;
    for (const Demand& d : demands_) {
      if (d.op.verb == KeyVerb::get) seen.insert(d.op.value);
    }
    std::set<std::uint64_t> held(before.begin(), before.end());
    held.insert(kAbsent);
    bool unseen = false;
    for (const Demand& d : earlier) {
      if (d.op.verb == KeyVerb::put && (seen.contains(d.op.value) || !unseen)) {
        unseen = unseen || !seen.contains(d.op.value);
        held.insert(d.op.value);
      }
      if (d.op.ended < from || d.op.verb == KeyVerb::get) continue;
      demands_.push_back(d);
      demands_.back().dropped = true;
    }
    before_.assign(held.begin(), held.end());
  }

  void shrink() {
    std::size_t tries = 0;
    for (std::size_t chunk = demands_.size(); chunk > 0; chunk /= 2) {
      for (std::size_t at = 0; at < demands_.size() && tries < kTriesMax; at += chunk) {
        const std::vector<Demand> was = demands_;
        bool changed = false;
        for (std::size_t i = at; i < std::min(at + chunk, demands_.size()); ++i) {
          changed = changed || (!demands_[i].dropped && !demands_[i].culprit);
          if (!demands_[i].culprit) demands_[i].dropped = true;
        }
        if (!changed) continue;
        ++tries;
        if (!contradicts()) demands_ = was;
      }
    }
  }

  std::string headline() const {
    for (const Demand& d : demands_) {
      if (!d.culprit) continue;
      if (d.op.verb == KeyVerb::get) {
        std::string text = "a get saw " + name_of(d.op.value) + ", which ";
        if (d.op.value == kAbsent) return text + "the key cannot have held then\n";
        return text + (was_written(d.op.value) ? "the key cannot have held then\n"
                                               : "nobody had begun to write\n");
      }
      if (d.op.verb == KeyVerb::erase && d.op.saw != EraseSaw::unknown) {
        return d.op.saw == EraseSaw::existed ? "an erase found a key that cannot have been there\n"
                                             : "an erase missed a key that must have been there\n";
      }
    }
    return "no order explains it up to this return\n";
  }

  bool was_written(std::uint64_t value) const {
    return std::find(before_.begin(), before_.end(), value) != before_.end() ||
           std::any_of(demands_.begin(), demands_.end(), [&](const Demand& d) {
             return d.op.verb == KeyVerb::put && d.op.value == value;
           });
  }

  // The demands that are left, and the puts that could have written what a get saw.
  std::string lines() const {
    std::set<std::uint64_t> seen;
    for (const Demand& d : demands_) {
      if (!d.dropped && d.op.verb == KeyVerb::get) seen.insert(d.op.value);
    }
    std::string text = "  before: ";
    if (left_out_ > 0) {
      text += "anything (" + std::to_string(left_out_) + " earlier operations do not matter)";
    } else {
      for (std::size_t i = 0; i < before_.size(); ++i) {
        text += (i == 0 ? "" : " or ") + name_of(before_[i]);
      }
    }
    text += '\n';
    std::vector<std::string> shown;
    for (const Demand& d : demands_) {
      const bool writer = d.op.verb == KeyVerb::put && seen.contains(d.op.value);
      if (!d.dropped || writer) shown.push_back(line(d));
    }
    const std::size_t from = shown.size() > kShownMax ? shown.size() - kShownMax : 0;
    if (from > 0) text += "  ... " + std::to_string(from) + " more\n";
    for (std::size_t i = from; i < shown.size(); ++i) text += shown[i];
    return text;
  }

  static std::string line(const Demand& d) {
    const KeyOp& op = d.op;
    std::string text = "  " + std::to_string(op.invoked) + " .. ";
    text += op.pending ? "no return before " + std::to_string(op.ended) : std::to_string(op.ended);
    text += "  thread " + std::to_string(op.thread) + "  ";
    switch (op.verb) {
      case KeyVerb::put:
        text += "put " + name_of(op.value);
        break;
      case KeyVerb::erase:
        text += op.saw == EraseSaw::unknown   ? "erase"
                : op.saw == EraseSaw::existed ? "erase: was there"
                                              : "erase: was not there";
        break;
      case KeyVerb::get:
        text += "get: " + name_of(op.value);
        break;
    }
    return text + (d.culprit ? "   <--\n" : "\n");
  }

  std::vector<std::uint64_t> before_;
  std::size_t left_out_ = 0;
  std::uint64_t end_;
  std::vector<Demand> demands_;
};

}  // namespace

std::string explain_contradiction(std::span<const KeyOp> ops, std::span<const std::uint64_t> before,
                                  std::size_t culprit) {
  return Explainer(ops, before, culprit).text();
}

}  // namespace TENUTO_NS::pm
