// The transaction protocol of tx/ (tx/README.md) on a simulated persistent memory: lanes with a
// header line and two undo areas, overflow frames, blocks with one bit each, values, and
// destinations that point to blocks. tx_model.cc decides what is run and planted.
//
// Threads are lists of steps, so a scheduler may switch between any two of them. The check after a
// crash is exact. Values of ended transactions are there. A transaction that reached its commit
// record is there whole or not at all, and of the others there is nothing. A block is allocated
// exactly if a destination points to it.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "memory.h"

namespace tenuto_model {

// Mistakes, each of which the exploration must find.
enum class Plant {
  none,
  entry_sealed_first,
  add_without_fence,
  data_with_commit_record,
  commit_record_unfenced,
  one_log_area,
  no_limbo,
  late_alloc_unfenced,
  frees_done_too_early,
  abort_record_with_bytes,
  abort_record_unfenced,
  abort_keeps_frees_done,
  abort_reuses_sequence,
  abort_releases_blocks_first,
  cancelled_block_released_at_once,
  drain_without_fence,
  lane_handed_on_without_fence,
  frame_linked_before_zeroed,
  recovery_retires_before_fence,
  recovery_does_not_retire,
  recovery_redoes_all_frees,
};

struct Config {
  std::size_t threads = 2, values = 2, dests = 2, blocks = 2;
  std::size_t area_lines = 4;  // of each undo area
  std::size_t frames = 0;      // overflow frames, of area_lines each
  bool values_share_line = false;
  bool aborts = true, drains = true;
  Plant plant = Plant::none;
};

enum class Outcome { commit, abort_late, abort_early };
enum class Kind {
  one_value,    // add x0
  two_at_once,  // add x0, x1 under one fence
  two_in_turn,  // add x1, store, add x0, store
  alloc_link,   // alloc, add dest, link
  late_alloc,   // add dest, alloc, link
  free_unlink,  // free, add dest, unlink
  replace,      // free the dest's block, alloc another, link, add x0
  cancel,       // alloc, free it again, add x0
  drain,        // the lane's own limbo and frames
  drain_idle,   // those of the next thread's lane, while that thread does not use it
};
struct Op {
  Kind kind;
  Outcome outcome;
  std::size_t dest;
};

class TxProtocol {
 public:
  using Step = std::function<void()>;
  static constexpr std::size_t kNobody = ~std::size_t{0};

  TxProtocol(const Config& config, Memory& memory) : c_(config), m_(memory) {}

  Image empty_image() const { return Image(words(), 0); }

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

  std::vector<Op> possible(std::size_t t) const;
  std::vector<Step> plan(std::size_t t, const Op& op);  // takes locks and blocks at once
  bool busy(std::size_t t) const { return running_[t].on; }

  // Recovery visits the lanes in the given order.
  void recover(Memory& m, const std::vector<std::size_t>& lanes) const;
  // Returns an empty string if the image is legal after recovery.
  std::string check(const Image& image) const;
  std::uint64_t state_hash() const;

 private:
  enum EntryKind : Word { kUndo = 1, kAlloc = 2, kFree = 3 };
  struct Written {
    std::size_t word;
    Word old, now;
  };
  struct Running {
    bool on = false;
    bool may_commit = false;
    Word sequence = 0;
    std::size_t entries = 0;
    std::size_t frame = 0;
    std::vector<Written> writes;
    std::vector<std::size_t> values;
    std::size_t dest = kNobody;
    std::size_t new_block = 0, old_block = 0;
    bool cancelled = false;
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
  std::size_t words() const { return dest_at(c_.dests); }

  // Defined in tx_protocol_run.h.
  bool planted(Plant p) const { return c_.plant == p; }
  std::size_t entries_needed(Kind kind) const;
  std::size_t log_area(Word sequence) const {
    return planted(Plant::one_log_area) ? 0 : sequence & 1;
  }
  void put_store(std::vector<Step>& s, std::size_t word, std::function<Word()> value);
  void put_fence(std::vector<Step>& s, std::size_t t);
  void put_flush(std::vector<Step>& s, std::size_t t, std::size_t word);
  void put_entry(std::vector<Step>& s, std::size_t t, EntryKind kind, std::size_t target, Word old);
  void put_data(std::vector<Step>& s, std::size_t t, const Written& w, bool flush);
  void put_bit(std::vector<Step>& s, std::size_t t, std::size_t block, bool set);
  void put_body(std::vector<Step>& s, std::size_t t, const Op& op);
  void put_commit(std::vector<Step>& s, std::size_t t);
  void put_abort(std::vector<Step>& s, std::size_t t);
  void put_drain(std::vector<Step>& s, std::size_t t, std::size_t lane);
  void release_limbo(std::size_t lane);
  void end(std::size_t t, bool committed);

  struct Entry {
    EntryKind kind;
    std::size_t target;
    Word old, sequence;
  };
  std::vector<Entry> entries_of(const Memory& m, std::size_t lane) const;

  Config c_;
  Memory& m_;
  std::vector<Word> value_, dest_;  // what must be durable
  Word next_value_ = 100;
  std::vector<Running> running_;
  std::vector<std::vector<std::size_t>> limbo_;
  std::vector<std::size_t> value_owner_, dest_owner_;
  std::set<std::size_t> free_, frames_;
};

inline std::vector<TxProtocol::Entry> TxProtocol::entries_of(const Memory& m,
                                                             std::size_t lane) const {
  std::vector<Entry> all;
  const auto read = [&](std::size_t at) {
    const Word body = m.load(at + 1);
    all.push_back({static_cast<EntryKind>(body & 0xf), body >> 4 & 0xffff, body >> 20, m.load(at)});
  };
  for (std::size_t a = 0; a < 2; ++a) {
    for (std::size_t i = 0; i < c_.area_lines; ++i) read(entry_at(lane, a, i));
    const std::size_t frame = m.load(lane_at(lane) + 2 + a);
    for (std::size_t i = 0; frame != 0 && i < c_.area_lines; ++i) read(frame_at(frame, i));
  }
  return all;
}

inline void TxProtocol::recover(Memory& m, const std::vector<std::size_t>& lanes) const {
  struct Retire {
    std::size_t lane;
    Word committed;
  };
  std::vector<Retire> retire;
  const auto clear_bit = [&](std::size_t block) {
    const Word bits = m.load(bitmap_at());
    if ((bits >> block & 1) == 0) return;
    m.store(bitmap_at(), bits & ~(Word{1} << block));
    m.flush(0, bitmap_at());
  };
  for (const std::size_t lane : lanes) {
    const Word committed = m.load(lane_at(lane)), frees_done = m.load(lane_at(lane) + 1);
    const std::vector<Entry> entries = entries_of(m, lane);
    bool any = false;
    for (const Entry& e : entries) {
      const bool drained = e.sequence <= frees_done && !planted(Plant::recovery_redoes_all_frees);
      if (e.kind == kFree && e.sequence <= committed && !drained) clear_bit(e.target);
    }
    for (auto e = entries.rbegin(); e != entries.rend(); ++e) {
      if (e->sequence != committed + 1) continue;
      any = true;
      if (e->kind == kAlloc) clear_bit(e->target);
      if (e->kind == kUndo && m.load(e->target) != e->old) {
        m.store(e->target, e->old);
        m.flush(0, e->target);
      }
    }
    if (planted(Plant::recovery_does_not_retire)) any = false;
    retire.push_back({lane, any ? committed + 1 : committed});
  }
  if (!planted(Plant::recovery_retires_before_fence)) m.fence(0);
  for (const Retire& r : retire) {
    const std::size_t at = lane_at(r.lane);
    if (m.load(at) == r.committed && m.load(at + 1) == r.committed) continue;
    m.store(at + 1, r.committed);
    m.store(at, r.committed);
    m.flush(0, at);
  }
  m.fence(0);
}

inline std::string TxProtocol::check(const Image& image) const {
  std::vector<Word> values = value_, dests = dest_;
  for (const Running& r : running_) {
    if (!r.on) continue;
    std::size_t fresh = 0, old = 0;
    for (const Written& w : r.writes) {
      if (w.old == w.now) continue;
      fresh += image[w.word] == w.now;
      old += image[w.word] == w.old;
    }
    if (fresh != 0 && old != 0) return "transaction torn";
    if (fresh == 0) continue;
    if (!r.may_commit) return "effect of a transaction that has not committed";
    for (const std::size_t v : r.values) values[v] = image[value_at(v)];
    if (r.dest != kNobody) dests[r.dest] = r.new_block;
  }
  for (std::size_t i = 0; i < c_.values; ++i) {
    if (image[value_at(i)] != values[i])
      return "value " + std::to_string(i) + " lost or rolled back";
  }
  std::vector<int> named(c_.blocks + 1, 0);
  for (std::size_t d = 0; d < c_.dests; ++d) {
    if (image[dest_at(d)] != dests[d]) return "dest " + std::to_string(d) + " lost or rolled back";
    if (dests[d] != 0) named[dests[d]] += 1;
  }
  for (std::size_t b = 1; b <= c_.blocks; ++b) {
    const bool set = image[bitmap_at()] >> b & 1;
    if (named[b] > 1) return "block reachable twice";
    if (set && named[b] == 0) return "block leaked";
    if (!set && named[b] != 0) return "block reachable but free";
  }
  std::vector<int> linked(c_.frames + 1, 0);
  for (std::size_t t = 0; t < c_.threads; ++t) {
    for (std::size_t a = 0; a < 2; ++a) {
      const Word f = image[lane_at(t) + 2 + a];
      if (f != 0 && ++linked[f] > 1) return "log frame linked twice";
    }
  }
  return "";
}

inline std::uint64_t TxProtocol::state_hash() const {
  std::uint64_t h = 1;
  const auto add = [&](std::uint64_t x) { h = mix(h ^ mix(x)); };
  for (const Word v : value_) add(v);
  for (const Word d : dest_) add(d);
  for (const Running& r : running_) {
    add(r.on ? (r.may_commit ? 2 : 1) : 0);
    if (!r.on) continue;
    for (const Written& w : r.writes) {
      add(w.word);
      add(w.now);
    }
  }
  return h;
}

}  // namespace tenuto_model
