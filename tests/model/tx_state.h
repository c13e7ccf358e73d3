// The transaction protocol of tx/ (tx/README.md) on a simulated persistent memory: lanes with a
// header line and two undo areas, overflow frames, blocks with one bit each, values, and
// destinations that point to blocks. This file has what the lines are, and what the model knows of
// them. tx_protocol.h has the steps, and tx_model.cc the cases that are run.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "explorer.h"

namespace tenuto_model {

inline constexpr std::size_t kNobody = ~std::size_t{0};

struct TxConfig {
  std::size_t threads = 2, values = 2, dests = 2, blocks = 2;
  std::size_t area_lines = 4;  // of each undo area
  std::size_t frames = 0;      // overflow frames, of area_lines each
  std::size_t held = 0;        // so many blocks may be allocated without a destination
  bool values_share_line = false;
  bool aborts = true, drains = true;
  const char* plant = nullptr;
};

enum class TxOutcome { commit, abort_late, abort_early };
enum class TxKind {
  one_value,    // add x0
  two_at_once,  // add x0, x1 under one fence
  two_in_turn,  // add x1, store, add x0, store
  alloc_link,   // alloc, add dest, link
  late_alloc,   // add dest, alloc, link
  free_unlink,  // free, add dest, unlink
  replace,      // free the dest's block, alloc another, link, add x0
  cancel,       // alloc, free it again, add x0
  hold,         // alloc, and nothing else
  free_held,    // free, and nothing else
  drain,        // the lane's own limbo and frames
  drain_idle,   // those of the next thread's lane, while that thread does not use it
};
struct TxOp {
  TxKind kind;
  TxOutcome outcome;
  std::size_t dest;
};

struct TxWritten {
  std::size_t word;
  Word old, now;
};
struct TxRunning {
  bool on = false;
  bool may_commit = false;
  Word sequence = 0;
  std::size_t entries = 0;
  std::size_t frame = 0;
  std::vector<TxWritten> writes;
  std::vector<std::size_t> values;
  std::size_t dest = kNobody;
  std::size_t new_block = 0, old_block = 0;
  bool cancelled = false;
  bool free_alone = false;
};

class TxState : public Protocol<class TxProtocol, TxConfig, TxRunning> {
 public:
  using Protocol::Protocol;

  std::size_t words() const { return dest_at(c_.dests); }

  // Sets up the volatile state after an open, and takes the model's state from the recovered image.
  void boot(bool adopt) {
    if (adopt) {
      for (std::size_t i = 0; i < c_.values; ++i) value_[i] = m_.load(value_at(i));
      for (std::size_t d = 0; d < c_.dests; ++d) dest_[d] = m_.load(dest_at(d));
    } else {
      value_.assign(c_.values, 0);
      dest_.assign(c_.dests, 0);
      next_value_ = 100;
    }
    running_.assign(c_.threads, {});
    limbo_.assign(c_.threads, {});
    older_limbo_.assign(c_.threads, {});
    held_.clear();
    for (std::size_t b = 1; b <= c_.blocks && adopt; ++b) {
      const bool named = std::find(dest_.begin(), dest_.end(), b) != dest_.end();
      if ((m_.load(bitmap_at()) >> b & 1) != 0 && !named) held_.insert(b);
    }
    value_owner_.assign(c_.values, kNobody);
    dest_owner_.assign(c_.dests, kNobody);
    free_.clear();
    for (std::size_t b = 1; b <= c_.blocks; ++b) {
      if ((m_.load(bitmap_at()) >> b & 1) == 0) free_.insert(b);
    }
    frames_.clear();
    for (std::size_t f = 1; f <= c_.frames; ++f) frames_.insert(f);
    for (std::size_t t = 0; t < c_.threads; ++t) {
      for (std::size_t a = 0; a < 2; ++a) frames_.erase(m_.load(lane_at(t) + 2 + a));
    }
  }

  std::uint64_t state_hash() const {
    Hash h;
    for (const Word v : value_) h.add(v);
    for (const Word d : dest_) h.add(d);
    for (const std::size_t b : held_) h.add(b);
    for (const TxRunning& r : running_) {
      h.add(r.on ? (r.may_commit ? 2 : 1) : 0);
      if (!r.on) continue;
      if (r.writes.empty()) h.add(r.new_block << 8 | r.old_block);
      for (const TxWritten& w : r.writes) {
        h.add(w.word);
        h.add(w.now);
      }
    }
    return h.value();
  }

  std::string name_of(const TxOp& op) const {
    static const char* const kKinds[] = {"one",        "two",       "in turn", "alloc",
                                         "late alloc", "free",      "replace", "cancel",
                                         "hold",       "free held", "drain",   "drain idle"};
    static const char* const kOutcomes[] = {"", ", aborts late", ", aborts"};
    const std::string dest = op.dest == kNobody ? "" : " " + std::to_string(op.dest);
    return kKinds[static_cast<int>(op.kind)] + dest + kOutcomes[static_cast<int>(op.outcome)];
  }

 protected:
  enum EntryKind : Word { kUndo = 1, kAlloc = 2, kFree = 3 };
  struct Entry {
    EntryKind kind;
    std::size_t target;
    Word old, sequence;
  };

  std::size_t lane_at(std::size_t t) const { return t * (1 + 2 * c_.area_lines) * kLineWords; }
  std::size_t entry_at(std::size_t t, std::size_t area, std::size_t i) const {
    return lane_at(t) + (1 + area * c_.area_lines + i) * kLineWords;
  }
  std::size_t frame_at(std::size_t f, std::size_t i) const {
    return lane_at(c_.threads) + ((f - 1) * c_.area_lines + i) * kLineWords;
  }
  std::size_t bitmap_at() const { return frame_at(c_.frames + 1, 0); }
  std::size_t value_at(std::size_t i) const {
    return bitmap_at() + kLineWords + (c_.values_share_line ? i : i * kLineWords);
  }
  std::size_t dest_at(std::size_t d) const {
    return bitmap_at() + (1 + c_.values + d) * kLineWords;
  }

  std::vector<Entry> entries_of(const Memory& m, std::size_t lane) const {
    std::vector<Entry> all;
    const auto read = [&](std::size_t at) {
      const Word body = m.load(at + 1);
      all.push_back(
          {static_cast<EntryKind>(body & 0xf), body >> 4 & 0xffff, body >> 20, m.load(at)});
    };
    for (std::size_t a = 0; a < 2; ++a) {
      for (std::size_t i = 0; i < c_.area_lines; ++i) read(entry_at(lane, a, i));
      const std::size_t frame = m.load(lane_at(lane) + 2 + a);
      for (std::size_t i = 0; frame != 0 && i < c_.area_lines; ++i) read(frame_at(frame, i));
    }
    return all;
  }

  void release_limbo(std::size_t lane) {
    release_older_limbo(lane);
    for (const std::size_t b : limbo_[lane]) free_.insert(b);
    limbo_[lane].clear();
  }
  void release_older_limbo(std::size_t lane) {
    for (const std::size_t b : older_limbo_[lane]) free_.insert(b);
    older_limbo_[lane].clear();
  }

  void end(std::size_t t, bool committed) {
    TxRunning& r = running_[t];
    for (const std::size_t v : r.values) value_owner_[v] = kNobody;
    if (r.dest != kNobody) dest_owner_[r.dest] = kNobody;
    if (committed) {
      if (r.writes.empty() && r.new_block != 0) held_.insert(r.new_block);
      if (r.free_alone) held_.erase(r.old_block);
      for (const TxWritten& w : r.writes) {
        for (const std::size_t v : r.values) {
          if (w.word == value_at(v)) value_[v] = w.now;
        }
        if (r.dest != kNobody && w.word == dest_at(r.dest)) dest_[r.dest] = w.now;
      }
    }
    r = {};
  }

  std::vector<Word> value_, dest_;  // what must be durable
  Word next_value_ = 100;
  std::vector<std::vector<std::size_t>> limbo_, older_limbo_;
  std::vector<std::size_t> value_owner_, dest_owner_;
  std::set<std::size_t> free_, frames_, held_;
};

}  // namespace tenuto_model
