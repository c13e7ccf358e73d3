// The steps of alloc_protocol.h: what a thread stores, flushes and fences, in this order.
#pragma once

#include "alloc_protocol.h"

namespace tenuto_model {

// --- what the application may do -----------------------------------------------------------------

// Whether thread t may use word d: it is a pointer word, its block is allocated, and no other
// thread uses either of them.
inline bool AllocProtocol::usable(std::size_t t, std::size_t d) const {
  if (dest_owner_[d] != kNobody) return false;
  const auto open = [&](std::size_t b) {
    return planted(AllocPlant::no_seal) || sealed_by_[b] == kNobody || sealed_by_[b] == t;
  };
  if (!is_pointer(d)) return false;
  if (block_of(value_[d]) != 0 && !open(block_of(value_[d]))) return false;
  if (d < c_.roots) return true;
  const std::size_t b = d - c_.roots + 1;
  if (!open(b)) return false;
  // Another thread may be freeing or moving the block itself.
  for (std::size_t e = 0; e < dests(); ++e) {
    if (is_pointer(e) && block_of(value_[e]) == b && dest_owner_[e] == kNobody) return true;
  }
  return false;
}

// Whether d's block may be freed: it names nothing, and no thread works in it.
inline bool AllocProtocol::leaf(std::size_t d) const {
  const std::size_t b = block_of(value_[d]);
  if (b == 0 || dest_owner_[inner(b)] != kNobody) return false;
  return !is_pointer(inner(b)) || block_of(value_[inner(b)]) == 0;
}

inline void AllocProtocol::possible_pairs(std::size_t t, std::size_t d,
                                          std::vector<Op>& all) const {
  const std::size_t b = block_of(value_[d]);
  for (std::size_t e = 0; e < dests(); ++e) {
    if (e == d || !usable(t, e) || is_tagged(d) != is_tagged(e)) continue;
    const std::size_t other = block_of(value_[e]);
    if (c_.batches && d < e && b == 0 && other == 0 && free_.size() >= 2) {
      all.push_back({AllocOp::batch_malloc, d, e});
    }
    // Neither block is inside the other.
    const bool apart = d < c_.roots && e < c_.roots;
    if (c_.batches && d < e && apart && leaf(d) && leaf(e)) {
      all.push_back({AllocOp::batch_free, d, e});
    }
    if (!c_.moves || b == 0 || e == inner(b) || dest_owner_[inner(b)] != kNobody) continue;
    if (is_tagged(d)) {
      const bool quiet = other == 0 || (d < e && dest_owner_[inner(other)] == kNobody);
      if (e < c_.roots && quiet && (other == 0 || apart)) all.push_back({AllocOp::swap, d, e});
    } else if (other == 0 && e < c_.roots) {
      all.push_back({AllocOp::move, d, e});  // only to roots: a block must not name itself
    }
  }
}

inline std::vector<AllocProtocol::Op> AllocProtocol::possible(std::size_t t) const {
  std::vector<Op> all;
  for (std::size_t d = 0; d < dests(); ++d) {
    if (!usable(t, d)) continue;
    if (block_of(value_[d]) == 0 && !free_.empty()) {
      all.push_back({AllocOp::malloc_pointer, d, 0});
      if (c_.tagged_roots > 0) all.push_back({AllocOp::malloc_tagged, d, 0});
      if (c_.tagged_roots > 0) all.push_back({AllocOp::malloc_raw, d, 0});
      for (std::size_t b = 1; b <= c_.blocks; ++b) all.push_back({AllocOp::malloc_data, d, b});
    }
    if (leaf(d)) all.push_back({AllocOp::free, d, 0});
    possible_pairs(t, d, all);
  }
  if (!c_.hand_overs) return all;
  if (lanes_[t].flusher < c_.threads && !lanes_[t].idle) all.push_back({AllocOp::hand_over});
  const std::size_t other = (t + 1) % c_.threads;
  if (lanes_[other].idle && !running_[other].on) all.push_back({AllocOp::drain_idle});
  return all;
}

// The word of `dest` once it points to `block`.
inline Word AllocProtocol::raised(std::size_t dest, std::size_t block) const {
  if (!is_tagged(dest)) return pointer_to(block);
  const Word version = version_of(value_[dest]);
  if (planted(AllocPlant::tag_version_not_raised) && block == 0) return tagged(version, 0);
  return tagged(next_version(version), block);
}

inline std::vector<AllocProtocol::Step> AllocProtocol::plan(std::size_t t, const Op& op) {
  std::vector<Step> s;
  Running& r = running_[t];
  r = {true, op, {}};
  lanes_[t].idle = false;
  const auto take = [&](std::size_t d, Type type) {
    const std::size_t b = *free_.begin();
    free_.erase(free_.begin());
    const Word fill = type == Type::data ? pointer_to(op.other) : 0;
    r.changes.push_back({d, raised(d, b), b, type, fill});
    dest_owner_[d] = t;
  };
  const auto give = [&](std::size_t d) {
    const std::size_t b = block_of(value_[d]);
    r.changes.push_back({d, raised(d, 0), b, Type::none, 0});
    dest_owner_[d] = dest_owner_[inner(b)] = t;
  };
  switch (op.kind) {
    case AllocOp::malloc_pointer:
    case AllocOp::malloc_tagged:
    case AllocOp::malloc_data:
    case AllocOp::malloc_raw:
      take(op.dest, op.kind == AllocOp::malloc_data     ? Type::data
                    : op.kind == AllocOp::malloc_raw    ? Type::raw
                    : op.kind == AllocOp::malloc_tagged ? Type::tagged
                                                        : Type::pointer);
      put_malloc(s, t);
      break;
    case AllocOp::batch_malloc:
      take(op.dest, is_tagged(op.dest) ? Type::raw : Type::pointer);
      take(op.other, is_tagged(op.other) ? Type::raw : Type::pointer);
      put_malloc(s, t);
      break;
    case AllocOp::free:
      give(op.dest);
      put_free(s, t);
      break;
    case AllocOp::batch_free:
      give(op.dest);
      give(op.other);
      put_free(s, t);
      break;
    case AllocOp::move:
    case AllocOp::swap: {
      const std::size_t b = block_of(value_[op.dest]), other = block_of(value_[op.other]);
      dest_owner_[op.dest] = dest_owner_[op.other] = t;
      r.changes.push_back({op.dest, raised(op.dest, other), b, Type::none, 0});
      r.changes.push_back({op.other, raised(op.other, b), other, Type::none, 0});
      op.kind == AllocOp::move ? put_move(s, t) : put_swap(s, t);
      break;
    }
    case AllocOp::hand_over:
      if (!planted(AllocPlant::lane_handed_on_without_fence)) put_fence(s, t, false);
      s.push_back([this, t] {
        lanes_[t].flusher += c_.threads;
        lanes_[t].idle = true;
        for (std::size_t& by : sealed_by_) by = by == t ? kNobody : by;
      });
      break;
    case AllocOp::drain_idle: {
      const std::size_t other = (t + 1) % c_.threads;
      running_[other].on = true;  // the lane is held during this
      running_[other].op = {AllocOp::drain_idle};
      running_[other].changes.clear();
      put_drain(s, t, other);
      s.push_back([this, other] { running_[other].on = false; });
      break;
    }
  }
  // The last step also ends the operation: nothing may come between.
  s.back() = [this, t, last = s.back()] {
    last();
    running_[t].on = false;
  };
  return s;
}

// --- the lane ------------------------------------------------------------------------------------

inline void AllocProtocol::release(std::size_t t, std::size_t block) {
  if (planted(AllocPlant::no_quarantine)) {
    free_.insert(block);
    return;
  }
  lanes_[t].quarantine.push_back(block);
  for (Lane& lane : lanes_) empty_quarantine(lane);
}

inline void AllocProtocol::empty_quarantine(Lane& lane) {
  std::erase_if(lane.quarantine, [this](std::size_t block) {
    for (const Lane& other : lanes_) {
      for (const Limbo& l : other.limbo) {
        if (!l.frees && planted(AllocPlant::tag_quarantine_for_frees_only)) continue;
        if (std::find(l.dests.begin(), l.dests.end(), inner(block)) != l.dests.end()) return false;
      }
    }
    free_.insert(block);
    return true;
  });
}

inline void AllocProtocol::release_retired(std::size_t t) {
  Lane& lane = lanes_[t];
  while (!lane.limbo.empty() && lane.limbo.front().sequence <= lane.retired) {
    const Limbo gone = lane.limbo.front();
    lane.limbo.erase(lane.limbo.begin());
    if (planted(AllocPlant::no_limbo)) continue;
    for (const std::size_t block : gone.blocks) release(t, block);
  }
}

inline void AllocProtocol::after_fence(std::size_t t) {
  Lane& lane = lanes_[t];
  lane.retired = lane.retiring;
  lane.durable = lane.cleared;
  release_retired(t);
}

// A fence of the heap, or one of the application, which the lane does not notice.
inline void AllocProtocol::put_fence(std::vector<Step>& s, std::size_t t, bool of_protocol) {
  s.push_back([this, t, of_protocol] {
    m_.fence(lanes_[t].flusher);
    for (std::size_t& by : sealed_by_) by = by == t ? kNobody : by;
    if (of_protocol) after_fence(t);
  });
}

inline void AllocProtocol::put_store(std::vector<Step>& s, std::size_t t, std::size_t word,
                                     Word value, bool flush) {
  s.push_back([this, word, value] { m_.store(word, value); });
  if (flush) s.push_back([this, t, word] { m_.flush(lanes_[t].flusher, word); });
}

inline void AllocProtocol::put_intent(std::vector<Step>& s, std::size_t t, Intent op,
                                      const std::vector<Element>& elements) {
  Lane& lane = lanes_[t];
  const std::size_t at = line_at(t, lane.lines++ % c_.ring);
  const Word seal = ++lane.sequence << 4 | op;
  put_store(s, t, at, planted(AllocPlant::intent_sealed_first) ? seal : 0, false);
  for (std::size_t i = 0; i < 2; ++i) {
    const Element e = i < elements.size() ? elements[i] : Element{};
    const Word packed = (e.dest + 1) << 16 | e.block << 8 | e.version;
    put_store(s, t, at + 1 + i, i < elements.size() ? packed : 0, false);
  }
  s.push_back([this, t, at] {
    Lane& mine = lanes_[t];
    const bool early = planted(AllocPlant::retired_with_destination_and_bit);
    const Word carried = early ? mine.cleared : mine.durable;
    m_.store(at + 3, std::max(carried, mine.retiring));
    mine.retiring = std::max(carried, mine.retiring);
    if (!planted(AllocPlant::released_with_retired_word)) return;
    mine.retired = mine.retiring;
    release_retired(t);
  });
  put_store(s, t, at, seal, true);
}

// Stores one line or two. Returns the last sequence.
inline Word AllocProtocol::put_intents(std::vector<Step>& s, std::size_t t, Intent op) {
  std::vector<Element> elements;
  for (const Change& c : running_[t].changes) {
    elements.push_back({c.dest, op == kSwap ? block_of(c.after) : c.block, version_of(c.after)});
  }
  const std::size_t lines = op == kSwap || c_.batch_shares_line ? 1 : elements.size();
  Lane& lane = lanes_[t];
  for (const Change& c : running_[t].changes) {
    const Word every = Word{1} << c_.version_bits >> 2;
    const bool crossing = is_tagged(c.dest) && version_of(c.after) % every == 0;
    if (crossing && !planted(AllocPlant::wrap_ignored)) put_retire_naming(s, t, c.dest);
  }
  const std::size_t first = lane.limbo.empty() ? lane.lines : lane.limbo.front().first_line;
  if (lane.lines + lines - first > c_.ring && !planted(AllocPlant::ring_slot_used_again_too_early))
    put_drain(s, t, t);
  if (lines == 1) {
    put_intent(s, t, op, elements);
  } else {
    for (std::size_t i = 0; i < lines; ++i) {
      put_intent(s, t, op, {elements[i]});
      if (i > 0 && planted(AllocPlant::batch_line_unflushed)) s.pop_back();  // removes its flush
    }
  }
  return lane.sequence;
}

inline void AllocProtocol::put_drain(std::vector<Step>& s, std::size_t t, std::size_t lane) {
  if (lanes_[lane].limbo.empty()) return;
  const auto fence = [this, t] {
    m_.fence(lanes_[t].flusher);
    for (std::size_t& by : sealed_by_) by = by == t ? kNobody : by;
  };
  if (!planted(AllocPlant::drain_without_first_fence)) s.push_back(fence);
  s.push_back([this, t, lane] {
    Lane& l = lanes_[lane];
    l.durable = l.retiring = l.cleared;
    const std::size_t at = retired_at(lane, l.turn++ % 2);
    m_.store(at, l.cleared);
    m_.flush(lanes_[t].flusher, at);
  });
  if (!planted(AllocPlant::drain_without_second_fence)) s.push_back(fence);
  s.push_back([this, lane] { after_fence(lane); });
}

// Ends every intent, of any lane, that names the word. The word's version is about to pass another
// quarter, and an intent older than half of the range would look newer. The last store becomes
// durable with the fence of the next intent.
inline void AllocProtocol::put_retire_naming(std::vector<Step>& s, std::size_t t,
                                             std::size_t dest) {
  put_drain(s, t, t);
  if (planted(AllocPlant::wrap_retires_own_lane_only)) return;
  for (std::size_t other = 0; other < c_.threads; ++other) {
    if (other == t) continue;
    const Lane& lane = lanes_[other];
    bool named = false;
    std::vector<std::size_t> dests;
    for (const Limbo& l : lane.limbo) {
      named = named || std::find(l.dests.begin(), l.dests.end(), dest) != l.dests.end();
      dests.insert(dests.end(), l.dests.begin(), l.dests.end());
    }
    if (!named) continue;
    const Word cleared = lane.cleared;
    for (const std::size_t d : dests) {
      s.push_back([this, t, d] { m_.flush(lanes_[t].flusher, dest_at(d)); });
    }
    s.push_back([this, t] { m_.flush(lanes_[t].flusher, bitmap_at()); });
    if (!planted(AllocPlant::retire_others_without_fence)) put_fence(s, t);
    s.push_back([this, t, other, cleared] {
      const std::size_t at = retired_at(other, 2);
      m_.store(at, std::max(cleared, m_.load(at)));
      m_.flush(lanes_[t].flusher, at);
    });
  }
}

// --- the operations ------------------------------------------------------------------------------

// Stores and flushes destinations and bits. bit: 1 sets, 0 clears, -1 only flushes.
inline void AllocProtocol::put_effects(std::vector<Step>& s, std::size_t t, int bit) {
  for (const Change& c : running_[t].changes) {
    put_store(s, t, dest_at(c.dest), c.after, true);
    s.push_back([this, t, bit, b = c.block] {
      if (bit >= 0) {
        set_bit(m_, lanes_[t].flusher, b, bit == 1);
      } else if (!planted(AllocPlant::swap_leaves_bits)) {
        m_.flush(lanes_[t].flusher, bitmap_at());
      }
    });
  }
}

inline void AllocProtocol::put_pending(std::vector<Step>& s, std::size_t t, Word sequence,
                                       bool frees) {
  Limbo l;
  l.sequence = sequence;
  l.frees = frees;
  l.first_line = lanes_[t].lines - (lanes_[t].sequence - sequence) - 1;
  for (const Change& c : running_[t].changes) {
    l.dests.push_back(c.dest);
    if (frees) l.blocks.push_back(c.block);
  }
  s.push_back([this, t, l] {
    lanes_[t].limbo.push_back(l);
    lanes_[t].cleared = l.sequence;
    if (!planted(AllocPlant::no_limbo)) return;
    for (const std::size_t b : l.blocks) free_.insert(b);
  });
}

// Acknowledges the operation.
inline void AllocProtocol::put_done(std::vector<Step>& s, std::size_t t, bool seal) {
  s.push_back([this, t, seal] {
    for (const Change& c : running_[t].changes) {
      value_[c.dest] = c.after;
      dest_owner_[c.dest] = kNobody;
      if (c.block == 0 || running_[t].op.kind == AllocOp::swap) continue;
      type_[c.block] = c.type;
      dest_owner_[inner(c.block)] = kNobody;
      if (c.type != Type::none) value_[inner(c.block)] = c.fill;
      if (seal) sealed_by_[c.block] = t;
    }
  });
}

inline void AllocProtocol::put_malloc(std::vector<Step>& s, std::size_t t) {
  const bool tag = is_tagged(running_[t].op.dest);
  for (const Change& c : running_[t].changes) {
    if (c.type == Type::raw) continue;
    put_store(s, t, dest_at(inner(c.block)), c.fill, true);
    // The contents must be durable before an intent that recovery redoes.
    if (tag && !planted(AllocPlant::publish_contents_unfenced)) put_fence(s, t);
  }
  const Word sequence = put_intents(s, t, tag ? kTagMalloc : kMalloc);
  if (!planted(AllocPlant::malloc_intent_unfenced)) put_fence(s, t);  // intent | D and B
  put_effects(s, t, 1);
  if (tag) {
    put_pending(s, t, sequence, false);
    return put_done(s, t, false);
  }
  const auto retire = [this, t, sequence] {
    Lane& lane = lanes_[t];
    const std::size_t at = retired_at(t, lane.turn++ % 2);
    m_.store(at, sequence);
    m_.flush(lane.flusher, at);
    lane.retiring = sequence;
  };
  s.push_back([this, t, sequence] { lanes_[t].cleared = sequence; });
  if (planted(AllocPlant::malloc_retired_before_fence)) s.push_back(retire);
  if (!planted(AllocPlant::malloc_returns_unfenced)) put_fence(s, t);  // D and B | return
  if (!planted(AllocPlant::malloc_intent_stays)) s.push_back(retire);
  put_done(s, t, true);
}

inline void AllocProtocol::put_free(std::vector<Step>& s, std::size_t t) {
  const bool tag = is_tagged(running_[t].op.dest);
  const Word sequence = put_intents(s, t, tag ? kTagFree : kFree);
  if (!planted(AllocPlant::free_intent_unfenced)) put_fence(s, t);  // intent | D and B
  put_effects(s, t, 0);
  put_pending(s, t, sequence, true);
  put_done(s, t, false);
}

// The application's own move of a plain pointer.
inline void AllocProtocol::put_move(std::vector<Step>& s, std::size_t t) {
  const std::vector<Change>& c = running_[t].changes;
  put_store(s, t, dest_at(c[1].dest), c[1].after, true);
  put_fence(s, t, false);
  put_store(s, t, dest_at(c[0].dest), c[0].after, true);
  put_fence(s, t, false);
  s.push_back([this, t] {
    for (const Change& change : running_[t].changes) {
      value_[change.dest] = change.after;
      dest_owner_[change.dest] = kNobody;
    }
  });
}

// Swaps versioned pointers, one of which may be null.
inline void AllocProtocol::put_swap(std::vector<Step>& s, std::size_t t) {
  const Word sequence = put_intents(s, t, kSwap);
  put_fence(s, t);  // intent | destinations
  put_effects(s, t, -1);
  put_pending(s, t, sequence, false);
  put_done(s, t, false);
}

}  // namespace tenuto_model
