// The steps of the transaction protocol: what a thread does, and every fence has its name in tx/;
// recovery; and the check after it.
//
// The check after a crash is exact. Values of ended transactions are there. A transaction that
// reached its commit record is there whole or not at all, and of the others there is nothing. A
// block is allocated exactly if a destination points to it.
#pragma once

#include "tx_state.h"

namespace tenuto_model {

class TxProtocol : public TxState {
 public:
  using TxState::TxState;

  std::vector<TxOp> possible(std::size_t t) const {
    std::vector<TxOp> ops;
    const auto value_free = [&](std::size_t i) {
      return i < c_.values && value_owner_[i] == kNobody;
    };
    const Word area = log_area(m_.load(lane_at(t)) + 1);
    const auto add = [&](TxKind kind, std::size_t d) {
      const bool overflow = entries_needed(kind) > c_.area_lines;
      if (overflow && m_.load(lane_at(t) + 2 + area) == 0 && frames_.empty()) return;
      ops.push_back({kind, TxOutcome::commit, d});
      if (!c_.aborts) return;
      ops.push_back({kind, TxOutcome::abort_late, d});
      ops.push_back({kind, TxOutcome::abort_early, d});
    };
    if (value_free(0)) add(TxKind::one_value, kNobody);
    if (value_free(0) && value_free(1)) {
      add(TxKind::two_at_once, kNobody);
      add(TxKind::two_in_turn, kNobody);
    }
    if (value_free(0) && !free_.empty()) add(TxKind::cancel, kNobody);
    if (held_.size() < c_.held && !free_.empty()) add(TxKind::hold, kNobody);
    if (block_to_free() != 0) add(TxKind::free_held, kNobody);
    for (std::size_t d = 0; d < c_.dests; ++d) {
      if (dest_owner_[d] != kNobody) continue;
      if (dest_[d] == 0 && !free_.empty()) {
        add(TxKind::alloc_link, d);
        add(TxKind::late_alloc, d);
      }
      if (dest_[d] != 0) add(TxKind::free_unlink, d);
      if (dest_[d] != 0 && !free_.empty() && value_free(0)) add(TxKind::replace, d);
    }
    if (!c_.drains) return ops;
    const auto drainable = [&](std::size_t lane) {
      return !running_[lane].on &&
             (!limbo_[lane].empty() || !older_limbo_[lane].empty() ||
              m_.load(lane_at(lane) + 2) != 0 || m_.load(lane_at(lane) + 3) != 0);
    };
    if (drainable(t)) ops.push_back({TxKind::drain, TxOutcome::commit, kNobody});
    if (drainable((t + 1) % c_.threads))
      ops.push_back({TxKind::drain_idle, TxOutcome::commit, kNobody});
    return ops;
  }

  // Takes locks and blocks at once.
  Plan plan(std::size_t t, const TxOp& op) {
    Plan p(m_, t);
    TxRunning& r = running_[t];
    r = {};
    r.on = true;
    if (op.kind == TxKind::drain) {
      put_drain(p, t);
      p.then([this, t] { end(t, false); });
      return p;
    }
    if (op.kind == TxKind::drain_idle) {
      const std::size_t other = (t + 1) % c_.threads;
      running_[other].on = true;  // the lane is held during this
      if (!planted<"lane_handed_on_without_fence">()) p.then([this, other] { m_.fence(other); });
      put_drain(p, other);
      p.then([this, t, other] {
        end(other, false);
        end(t, false);
      });
      return p;
    }
    r.sequence = m_.load(lane_at(t)) + 1;
    if (op.kind == TxKind::two_at_once) r.values = {0, 1};
    if (op.kind == TxKind::two_in_turn) r.values = {1, 0};
    if (op.kind == TxKind::one_value || op.kind == TxKind::replace || op.kind == TxKind::cancel) {
      r.values = {0};
    }
    r.dest = op.dest;
    r.cancelled = op.kind == TxKind::cancel;
    r.free_alone = op.kind == TxKind::free_held;
    if (r.free_alone) r.old_block = block_to_free();
    if (op.kind == TxKind::free_unlink || op.kind == TxKind::replace) r.old_block = dest_[op.dest];
    if (op.kind == TxKind::alloc_link || op.kind == TxKind::late_alloc ||
        op.kind == TxKind::replace || op.kind == TxKind::cancel || op.kind == TxKind::hold) {
      r.new_block = *free_.begin();
      free_.erase(free_.begin());
    }
    if (op.dest != kNobody) {
      dest_owner_[op.dest] = t;
      r.writes.push_back({dest_at(op.dest), dest_[op.dest], r.new_block});
    }
    for (const std::size_t v : r.values) {
      value_owner_[v] = t;
      r.writes.push_back({value_at(v), value_[v], next_value_++});
    }
    put_body(p, t, op);
    op.outcome == TxOutcome::commit ? put_commit(p, t) : put_abort(p, t);
    return p;
  }

  // Recovery visits the lanes in the given order.
  void recover(Memory& m, const std::vector<std::size_t>& lanes) const {
    struct Retire {
      std::size_t lane;
      Word committed;
    };
    std::vector<Retire> retire;
    const auto clear_bit = [&](std::size_t block) {
      const Word bits = m.load(bitmap_at());
      if ((bits >> block & 1) == 0) return;
      m.store_and_flush(0, bitmap_at(), bits & ~(Word{1} << block));
    };
    for (const std::size_t lane : lanes) {
      const Word committed = m.load(lane_at(lane)), frees_done = m.load(lane_at(lane) + 1);
      const std::vector<Entry> entries = entries_of(m, lane);
      bool any = false;
      for (const Entry& e : entries) {
        const bool drained = e.sequence <= frees_done && !planted<"recovery_redoes_all_frees">();
        if (e.kind == kFree && e.sequence <= committed && !drained) clear_bit(e.target);
      }
      for (auto e = entries.rbegin(); e != entries.rend(); ++e) {
        if (e->sequence != committed + 1) continue;
        any = true;
        if (e->kind == kAlloc) clear_bit(e->target);
        if (e->kind == kUndo && m.load(e->target) != e->old) {
          m.store_and_flush(0, e->target, e->old);
        }
      }
      if (planted<"recovery_does_not_retire">()) any = false;
      retire.push_back({lane, any ? committed + 1 : committed});
    }
    if (!planted<"recovery_retires_before_fence">()) m.fence(0);
    for (const Retire& r : retire) {
      const std::size_t at = lane_at(r.lane);
      if (m.load(at) == r.committed && m.load(at + 1) == r.committed) continue;
      m.store(at + 1, r.committed);
      m.store_and_flush(0, at, r.committed);
    }
    m.fence(0);
  }

  // A clean close drains every lane.
  void close() {
    for (std::size_t t = 0; t < c_.threads; ++t) {
      m_.fence(t);  // each thread's work happened before
      Plan p(m_, t);
      if (!planted<"close_leaves_limbo">()) put_drain(p, t);
      while (!p.done()) p.step();
    }
  }

  std::string check(const Image& image) const {
    std::vector<Word> values = value_, dests = dest_;
    for (const TxRunning& r : running_) {
      if (!r.on) continue;
      std::size_t fresh = 0, old = 0;
      for (const TxWritten& w : r.writes) {
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
    for (const std::size_t b : held_) named[b] += 1;
    // Alone it is done or not done once its commit record is stored.
    for (const TxRunning& r : running_) {
      if (!r.on || !r.may_commit || !r.writes.empty()) continue;
      const std::size_t b = r.new_block + r.old_block;
      named[b] = image[bitmap_at()] >> b & 1;
    }
    for (std::size_t d = 0; d < c_.dests; ++d) {
      if (image[dest_at(d)] != dests[d])
        return "dest " + std::to_string(d) + " lost or rolled back";
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

 private:
  std::size_t log_area(Word sequence) const { return planted<"one_log_area">() ? 0 : sequence & 1; }
  static std::size_t entries_needed(TxKind kind) {
    const bool one = kind == TxKind::one_value || kind == TxKind::hold || kind == TxKind::free_held;
    return one ? 1 : kind == TxKind::replace ? 4 : 2;
  }
  // A held block that no other thread is freeing; 0: there is none.
  std::size_t block_to_free() const {
    for (const std::size_t b : held_) {
      const auto frees = [b](const TxRunning& r) { return r.free_alone && r.old_block == b; };
      if (std::none_of(running_.begin(), running_.end(), frees)) return b;
    }
    return 0;
  }

  void put_entry(Plan& p, std::size_t t, EntryKind kind, std::size_t target, Word old) {
    TxRunning& r = running_[t];
    const std::size_t area = log_area(r.sequence);
    std::size_t at = 0;
    if (r.entries < c_.area_lines) {
      at = entry_at(t, area, r.entries);
    } else {
      const std::size_t link = lane_at(t) + 2 + area;
      if (r.frame == 0) r.frame = m_.load(link);
      if (r.frame == 0) {
        const std::size_t f = r.frame = *frames_.begin();
        frames_.erase(f);
        for (std::size_t i = 0; i < c_.area_lines; ++i) p.store_and_flush(frame_at(f, i), 0);
        if (!planted<"frame_linked_before_zeroed">()) p.fence();  // log frame | its link
        p.store_and_flush(link, f);
      }
      at = frame_at(r.frame, r.entries - c_.area_lines);
    }
    r.entries += 1;
    const Word body = kind | static_cast<Word>(target) << 4 | old << 20;
    const Word seal = r.sequence;
    const bool sealed_first = planted<"entry_sealed_first">();
    p.store(at, sealed_first ? seal : 0);
    p.store(at + 1, body);
    if (!sealed_first) p.store(at, seal);
    p.flush(at);
  }

  void put_data(Plan& p, const TxWritten& w, bool flush) {
    p.store(w.word, w.now);
    if (flush) p.flush(w.word);
  }

  void put_bit(Plan& p, std::size_t block, bool set) {
    const Word bit = Word{1} << block;
    p.then([this, bit, set] {
      const Word bits = m_.load(bitmap_at());
      m_.store(bitmap_at(), set ? bits | bit : bits & ~bit);
    });
    p.flush(bitmap_at());
  }

  // All steps from the first entry to the last store, as far as the outcome needs them.
  void put_body(Plan& p, std::size_t t, const TxOp& op) {
    TxRunning& r = running_[t];
    const bool stores = op.outcome != TxOutcome::abort_early;
    const bool commits = op.outcome == TxOutcome::commit;
    const auto ready = [&] {  // undo entries | in-place stores
      if (stores && !planted<"add_without_fence">()) p.fence();
    };
    if (r.new_block != 0 && op.kind != TxKind::late_alloc) put_entry(p, t, kAlloc, r.new_block, 0);
    if (r.cancelled && planted<"cancelled_block_released_at_once">()) {
      p.then([this, b = r.new_block] { free_.insert(b); });
    }
    if (r.old_block != 0) put_entry(p, t, kFree, r.old_block, 0);
    if (op.kind == TxKind::two_in_turn) {
      for (const TxWritten& w : r.writes) {
        put_entry(p, t, kUndo, w.word, w.old);
        ready();
        if (stores) put_data(p, w, commits);
      }
      return;
    }
    for (const TxWritten& w : r.writes) put_entry(p, t, kUndo, w.word, w.old);
    if (r.free_alone && commits) return;
    ready();
    if (op.kind == TxKind::late_alloc) {
      put_entry(p, t, kAlloc, r.new_block, 0);
      if (commits && !planted<"late_alloc_unfenced">()) p.fence();  // alloc entry | its bit
    }
    if (!stores) return;
    for (const TxWritten& w : r.writes) put_data(p, w, commits);
  }

  // One fence for the entry, the bits of the transaction before, and the commit record.
  void put_commit_one_free(Plan& p, std::size_t t) {
    const TxRunning& r = running_[t];
    const std::size_t at = lane_at(t);
    const bool early = planted<"one_free_promises_bits_of_its_fence">();
    const Word done = limbo_[t].empty() || early ? r.sequence - 1 : r.sequence - 2;
    p.store(at + 1, done);
    p.then([this, t] { running_[t].may_commit = true; });
    p.store_and_flush(at, r.sequence);
    if (!planted<"one_free_unfenced">()) p.fence();  // one free and its record | freed bits
    p.then([this, t] {
      if (planted<"one_free_releases_the_one_before">()) release_limbo(t);
      release_older_limbo(t);
      older_limbo_[t].swap(limbo_[t]);
    });
    put_freed_bit(p, t);
    p.then([this, t] { end(t, true); });
  }

  void put_freed_bit(Plan& p, std::size_t t) {
    put_bit(p, running_[t].old_block, false);
    p.then([this, t, b = running_[t].old_block] {
      if (planted<"no_limbo">()) {
        free_.insert(b);
      } else {
        limbo_[t].push_back(b);
      }
    });
  }

  void put_commit(Plan& p, std::size_t t) {
    const TxRunning& r = running_[t];
    if (r.free_alone) return put_commit_one_free(p, t);
    const std::size_t at = lane_at(t);
    if (r.new_block != 0 && !r.cancelled) put_bit(p, r.new_block, true);
    if (!planted<"data_with_commit_record">()) p.fence();  // data and bits | commit record
    const bool frees = r.old_block != 0 && !planted<"frees_done_too_early">();
    const Word done = frees ? r.sequence - 1 : r.sequence;
    p.store(at + 1, done);
    p.then([this, t] { running_[t].may_commit = true; });
    p.store_and_flush(at, r.sequence);
    if (!planted<"commit_record_unfenced">()) p.fence();  // commit record | freed bits
    p.then([this, t] {
      release_limbo(t);
      const TxRunning& now = running_[t];
      if (now.cancelled && !planted<"cancelled_block_released_at_once">()) {
        free_.insert(now.new_block);
      }
    });
    if (r.old_block != 0) put_freed_bit(p, t);
    p.then([this, t] { end(t, true); });
  }

  void put_abort(Plan& p, std::size_t t) {
    const TxRunning& r = running_[t];
    const std::size_t at = lane_at(t);
    const auto release_new = [this, t] {
      const TxRunning& now = running_[t];
      const bool out = now.cancelled && planted<"cancelled_block_released_at_once">();
      if (now.new_block != 0 && !out) free_.insert(now.new_block);
    };
    if (planted<"abort_releases_blocks_first">()) p.then(release_new);
    for (auto w = r.writes.rbegin(); w != r.writes.rend(); ++w) p.store_and_flush(w->word, w->old);
    if (!planted<"abort_record_with_bytes">()) p.fence();  // restored bytes | retirement
    if (!planted<"abort_reuses_sequence">()) {
      if (!planted<"abort_keeps_frees_done">()) p.store(at + 1, r.sequence);
      p.store_and_flush(at, r.sequence);
      if (!planted<"abort_record_unfenced">()) p.fence();  // retirement | locks, blocks
      p.then([this, t] { release_limbo(t); });
    }
    if (!planted<"abort_releases_blocks_first">()) p.then(release_new);
    p.then([this, t] { end(t, false); });
  }

  void put_drain(Plan& p, std::size_t lane) {
    const std::size_t at = lane_at(lane);
    if (!planted<"drain_without_fence">()) p.fence();  // freed bits | drained mark
    p.store(at + 1, m_.load(at));
    for (std::size_t a = 0; a < 2; ++a) {
      if (m_.load(at + 2 + a) != 0) p.store(at + 2 + a, 0);
    }
    p.flush(at);
    p.fence();  // drained mark | blocks and frames reused
    p.then([this, lane, f0 = m_.load(at + 2), f1 = m_.load(at + 3)] {
      release_limbo(lane);
      for (const Word f : {f0, f1}) {
        if (f != 0) frames_.insert(f);
      }
    });
  }
};

}  // namespace tenuto_model
