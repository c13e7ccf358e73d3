// The steps of tx_protocol.h: what a thread does. Every fence has its name in tx/.
#pragma once

#include "tx_protocol.h"

namespace tenuto_model {

inline std::size_t TxProtocol::entries_needed(Kind kind) const {
  switch (kind) {
    case Kind::one_value:
      return 1;
    case Kind::replace:
      return 4;
    default:
      return 2;
  }
}

inline std::vector<Op> TxProtocol::possible(std::size_t t) const {
  std::vector<Op> ops;
  const auto value_free = [&](std::size_t i) { return value_owner_[i] == kNobody; };
  const Word area = log_area(m_.load(lane_at(t)) + 1);
  const auto add = [&](Kind kind, std::size_t d) {
    const bool overflow = entries_needed(kind) > c_.area_lines;
    if (overflow && m_.load(lane_at(t) + 2 + area) == 0 && frames_.empty()) return;
    ops.push_back({kind, Outcome::commit, d});
    if (!c_.aborts) return;
    ops.push_back({kind, Outcome::abort_late, d});
    ops.push_back({kind, Outcome::abort_early, d});
  };
  if (value_free(0)) add(Kind::one_value, kNobody);
  if (value_free(0) && value_free(1)) {
    add(Kind::two_at_once, kNobody);
    add(Kind::two_in_turn, kNobody);
  }
  if (value_free(0) && !free_.empty()) add(Kind::cancel, kNobody);
  for (std::size_t d = 0; d < c_.dests; ++d) {
    if (dest_owner_[d] != kNobody) continue;
    if (dest_[d] == 0 && !free_.empty()) {
      add(Kind::alloc_link, d);
      add(Kind::late_alloc, d);
    }
    if (dest_[d] != 0) add(Kind::free_unlink, d);
    if (dest_[d] != 0 && !free_.empty() && value_free(0)) add(Kind::replace, d);
  }
  if (!c_.drains) return ops;
  const auto drainable = [&](std::size_t lane) {
    return !running_[lane].on && (!limbo_[lane].empty() || m_.load(lane_at(lane) + 2) != 0 ||
                                  m_.load(lane_at(lane) + 3) != 0);
  };
  if (drainable(t)) ops.push_back({Kind::drain, Outcome::commit, kNobody});
  if (drainable((t + 1) % c_.threads)) ops.push_back({Kind::drain_idle, Outcome::commit, kNobody});
  return ops;
}

inline void TxProtocol::put_store(std::vector<Step>& s, std::size_t word,
                                  std::function<Word()> value) {
  s.push_back([this, word, value = std::move(value)] { m_.store(word, value()); });
}
inline void TxProtocol::put_fence(std::vector<Step>& s, std::size_t t) {
  s.push_back([this, t] { m_.fence(t); });
}
inline void TxProtocol::put_flush(std::vector<Step>& s, std::size_t t, std::size_t word) {
  s.push_back([this, t, word] { m_.flush(t, word); });
}

inline void TxProtocol::put_entry(std::vector<Step>& s, std::size_t t, EntryKind kind,
                                  std::size_t target, Word old) {
  Running& r = running_[t];
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
      for (std::size_t i = 0; i < c_.area_lines; ++i) {
        put_store(s, frame_at(f, i), [] { return Word{0}; });
        put_flush(s, t, frame_at(f, i));
      }
      if (!planted(Plant::frame_linked_before_zeroed)) put_fence(s, t);  // log frame | its link
      put_store(s, link, [f] { return Word{f}; });
      put_flush(s, t, link);
    }
    at = frame_at(r.frame, r.entries - c_.area_lines);
  }
  r.entries += 1;
  const Word body = kind | static_cast<Word>(target) << 4 | old << 20;
  const Word seal = r.sequence;
  const bool sealed_first = planted(Plant::entry_sealed_first);
  put_store(s, at, [=] { return sealed_first ? seal : 0; });
  put_store(s, at + 1, [=] { return body; });
  if (!sealed_first) put_store(s, at, [=] { return seal; });
  put_flush(s, t, at);
}

inline void TxProtocol::put_data(std::vector<Step>& s, std::size_t t, const Written& w,
                                 bool flush) {
  put_store(s, w.word, [now = w.now] { return now; });
  if (flush) put_flush(s, t, w.word);
}

inline void TxProtocol::put_bit(std::vector<Step>& s, std::size_t t, std::size_t block, bool set) {
  const Word bit = Word{1} << block;
  put_store(s, bitmap_at(), [this, bit, set] {
    const Word bits = m_.load(bitmap_at());
    return set ? bits | bit : bits & ~bit;
  });
  put_flush(s, t, bitmap_at());
}

inline void TxProtocol::release_limbo(std::size_t lane) {
  for (const std::size_t b : limbo_[lane]) free_.insert(b);
  limbo_[lane].clear();
}

inline void TxProtocol::end(std::size_t t, bool committed) {
  Running& r = running_[t];
  for (const std::size_t v : r.values) value_owner_[v] = kNobody;
  if (r.dest != kNobody) dest_owner_[r.dest] = kNobody;
  if (committed) {
    for (const Written& w : r.writes) {
      for (const std::size_t v : r.values) {
        if (w.word == value_at(v)) value_[v] = w.now;
      }
      if (r.dest != kNobody && w.word == dest_at(r.dest)) dest_[r.dest] = w.now;
    }
  }
  r = {};
}

// All steps from the first entry to the last store, as far as the outcome needs them.
inline void TxProtocol::put_body(std::vector<Step>& s, std::size_t t, const Op& op) {
  Running& r = running_[t];
  const bool stores = op.outcome != Outcome::abort_early;
  const bool commits = op.outcome == Outcome::commit;
  const auto ready = [&] {  // undo entries | in-place stores
    if (stores && !planted(Plant::add_without_fence)) put_fence(s, t);
  };
  if (r.new_block != 0 && op.kind != Kind::late_alloc) put_entry(s, t, kAlloc, r.new_block, 0);
  if (r.cancelled && planted(Plant::cancelled_block_released_at_once)) {
    s.push_back([this, b = r.new_block] { free_.insert(b); });
  }
  if (r.old_block != 0) put_entry(s, t, kFree, r.old_block, 0);
  if (op.kind == Kind::two_in_turn) {
    for (const Written& w : r.writes) {
      put_entry(s, t, kUndo, w.word, w.old);
      ready();
      if (stores) put_data(s, t, w, commits);
    }
    return;
  }
  for (const Written& w : r.writes) put_entry(s, t, kUndo, w.word, w.old);
  ready();
  if (op.kind == Kind::late_alloc) {
    put_entry(s, t, kAlloc, r.new_block, 0);
    if (commits && !planted(Plant::late_alloc_unfenced)) put_fence(s, t);  // alloc entry | its bit
  }
  if (!stores) return;
  for (const Written& w : r.writes) put_data(s, t, w, commits);
}

inline void TxProtocol::put_commit(std::vector<Step>& s, std::size_t t) {
  const Running& r = running_[t];
  const std::size_t at = lane_at(t);
  if (r.new_block != 0 && !r.cancelled) put_bit(s, t, r.new_block, true);
  if (!planted(Plant::data_with_commit_record)) put_fence(s, t);  // data and bits | commit record
  const bool frees = r.old_block != 0 && !planted(Plant::frees_done_too_early);
  const Word done = frees ? r.sequence - 1 : r.sequence;
  put_store(s, at + 1, [=] { return done; });
  s.push_back([this, t] { running_[t].may_commit = true; });
  put_store(s, at, [sequence = r.sequence] { return sequence; });
  put_flush(s, t, at);
  if (!planted(Plant::commit_record_unfenced)) put_fence(s, t);  // commit record | freed bits
  s.push_back([this, t] {
    release_limbo(t);
    const Running& now = running_[t];
    if (now.cancelled && !planted(Plant::cancelled_block_released_at_once)) {
      free_.insert(now.new_block);
    }
  });
  if (r.old_block != 0) {
    put_bit(s, t, r.old_block, false);
    s.push_back([this, t, b = r.old_block] {
      if (planted(Plant::no_limbo)) {
        free_.insert(b);
      } else {
        limbo_[t].push_back(b);
      }
    });
  }
  s.push_back([this, t] { end(t, true); });
}

inline void TxProtocol::put_abort(std::vector<Step>& s, std::size_t t) {
  const Running& r = running_[t];
  const std::size_t at = lane_at(t);
  const auto release_new = [this, t] {
    const Running& now = running_[t];
    const bool out = now.cancelled && planted(Plant::cancelled_block_released_at_once);
    if (now.new_block != 0 && !out) free_.insert(now.new_block);
  };
  if (planted(Plant::abort_releases_blocks_first)) s.push_back(release_new);
  for (auto w = r.writes.rbegin(); w != r.writes.rend(); ++w) {
    put_store(s, w->word, [old = w->old] { return old; });
    put_flush(s, t, w->word);
  }
  if (!planted(Plant::abort_record_with_bytes)) put_fence(s, t);  // restored bytes | retirement
  if (!planted(Plant::abort_reuses_sequence)) {
    if (!planted(Plant::abort_keeps_frees_done)) {
      put_store(s, at + 1, [sequence = r.sequence] { return sequence; });
    }
    put_store(s, at, [sequence = r.sequence] { return sequence; });
    put_flush(s, t, at);
    if (!planted(Plant::abort_record_unfenced)) put_fence(s, t);  // retirement | locks, blocks
    s.push_back([this, t] { release_limbo(t); });
  }
  if (!planted(Plant::abort_releases_blocks_first)) s.push_back(release_new);
  s.push_back([this, t] { end(t, false); });
}

inline void TxProtocol::put_drain(std::vector<Step>& s, std::size_t t, std::size_t lane) {
  const std::size_t at = lane_at(lane);
  if (!planted(Plant::drain_without_fence)) put_fence(s, t);  // freed bits | drained mark
  put_store(s, at + 1, [this, at] { return m_.load(at); });
  for (std::size_t a = 0; a < 2; ++a) {
    const std::size_t f = m_.load(at + 2 + a);
    if (f == 0) continue;
    put_store(s, at + 2 + a, [] { return Word{0}; });
  }
  put_flush(s, t, at);
  put_fence(s, t);  // drained mark | blocks and frames reused
  s.push_back([this, lane, f0 = m_.load(at + 2), f1 = m_.load(at + 3)] {
    release_limbo(lane);
    for (const Word f : {f0, f1}) {
      if (f != 0) frames_.insert(f);
    }
  });
}

inline std::vector<TxProtocol::Step> TxProtocol::plan(std::size_t t, const Op& op) {
  std::vector<Step> s;
  Running& r = running_[t];
  r = {};
  r.on = true;
  if (op.kind == Kind::drain) {
    put_drain(s, t, t);
    s.push_back([this, t] { end(t, false); });
    return s;
  }
  if (op.kind == Kind::drain_idle) {
    const std::size_t other = (t + 1) % c_.threads;
    running_[other].on = true;  // the lane is held during this
    if (!planted(Plant::lane_handed_on_without_fence)) put_fence(s, other);
    put_drain(s, t, other);
    s.push_back([this, t, other] {
      end(other, false);
      end(t, false);
    });
    return s;
  }
  r.sequence = m_.load(lane_at(t)) + 1;
  if (op.kind == Kind::two_at_once) r.values = {0, 1};
  if (op.kind == Kind::two_in_turn) r.values = {1, 0};
  if (op.kind == Kind::one_value || op.kind == Kind::replace || op.kind == Kind::cancel) {
    r.values = {0};
  }
  r.dest = op.dest;
  r.cancelled = op.kind == Kind::cancel;
  if (op.kind == Kind::free_unlink || op.kind == Kind::replace) r.old_block = dest_[op.dest];
  if (op.kind == Kind::alloc_link || op.kind == Kind::late_alloc || op.kind == Kind::replace ||
      op.kind == Kind::cancel) {
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
  put_body(s, t, op);
  if (op.outcome == Outcome::commit) {
    put_commit(s, t);
  } else {
    put_abort(s, t);
  }
  return s;
}

}  // namespace tenuto_model
