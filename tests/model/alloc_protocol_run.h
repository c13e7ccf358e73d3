// The steps of alloc_protocol.h: what a thread does, in the order in which it stores, flushes and
// fences.
#pragma once

#include "alloc_protocol.h"

namespace tenuto_model {

// --- what the application may do
// -------------------------------------------------------------------

// The word is an existing pointer word that thread t may touch: its block is allocated, of
// pointers, and neither is in other hands.
inline bool AllocProtocol::usable(std::size_t t, std::size_t d) const {
  if (dest_owner_[d] != kNobody) return false;
  const auto open = [&](std::size_t b) {
    return planted(AllocPlant::no_seal) || sealed_by_[b] == kNobody || sealed_by_[b] == t;
  };
  if (value_[d] != 0 && (d < c_.roots || type_[d - c_.roots + 1] == Type::pointer) &&
      !open(block_of(value_[d]))) {
    return false;
  }
  if (d < c_.roots) return true;
  const std::size_t b = d - c_.roots + 1;
  if (type_[b] != Type::pointer || !open(b)) return false;
  // Somebody may be freeing or moving the block itself.
  for (std::size_t e = 0; e < dests(); ++e) {
    const bool pointer = e < c_.roots || type_[e - c_.roots + 1] == Type::pointer;
    if (pointer && value_[e] == pointer_to(b) && dest_owner_[e] == kNobody) return true;
  }
  return false;
}

inline std::vector<AllocProtocol::Op> AllocProtocol::possible(std::size_t t) const {
  std::vector<Op> all;
  for (std::size_t d = 0; d < dests(); ++d) {
    if (!usable(t, d)) continue;
    if (value_[d] == 0) {
      if (free_.empty()) continue;
      all.push_back({AllocOp::malloc_pointer, d, 0});
      for (std::size_t b = 1; b <= c_.blocks; ++b) all.push_back({AllocOp::malloc_data, d, b});
      continue;
    }
    const std::size_t b = block_of(value_[d]);
    const bool leaf = type_[b] == Type::data || value_[inner(b)] == 0;
    if (leaf && dest_owner_[inner(b)] == kNobody) all.push_back({AllocOp::free, d, 0});
    if (!c_.moves || dest_owner_[inner(b)] != kNobody) continue;
    for (std::size_t e = 0; e < dests(); ++e) {
      if (e == d || e == inner(b) || !usable(t, e) || value_[e] != 0) continue;
      // Only to roots: a block must not be moved under itself.
      if (e < c_.roots) all.push_back({AllocOp::move, d, e});
    }
  }
  if (!c_.hand_overs) return all;
  if (lanes_[t].flusher < c_.threads && !lanes_[t].idle) all.push_back({AllocOp::hand_over});
  const std::size_t other = (t + 1) % c_.threads;
  if (lanes_[other].idle && !running_[other].on) all.push_back({AllocOp::drain_idle});
  return all;
}

inline std::vector<AllocProtocol::Step> AllocProtocol::plan(std::size_t t, const Op& op) {
  std::vector<Step> s;
  Running& r = running_[t];
  r = {true, op, 0, Type::none};
  lanes_[t].idle = false;
  switch (op.kind) {
    case AllocOp::malloc_pointer:
    case AllocOp::malloc_data:
      r.block = *free_.begin();
      free_.erase(free_.begin());
      r.type = op.kind == AllocOp::malloc_data ? Type::data : Type::pointer;
      dest_owner_[op.dest] = t;
      put_malloc(s, t);
      break;
    case AllocOp::free:
      r.block = block_of(value_[op.dest]);
      dest_owner_[op.dest] = dest_owner_[inner(r.block)] = t;
      put_free(s, t);
      break;
    case AllocOp::move:
      r.block = block_of(value_[op.dest]);
      dest_owner_[op.dest] = dest_owner_[op.other] = t;
      put_move(s, t);
      break;
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
      running_[other].on = true;  // the lane is held meanwhile
      running_[other].op = {AllocOp::drain_idle};
      put_drain(s, t, other);
      s.push_back([this, other] { running_[other].on = false; });
      break;
    }
  }
  // Its last step and the end of the operation are one: nothing may come between.
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
        if (l.dest == inner(block)) return false;
      }
    }
    free_.insert(block);
    return true;
  });
}

inline void AllocProtocol::before_fence(std::size_t t) {
  Lane& lane = lanes_[t];
  if (lane.limbo.size() < (c_.ring + 1) / 2) return;
  Word retired = 0;
  for (Limbo& l : lane.limbo) {
    const bool early = planted(AllocPlant::retired_with_destination_and_bit);
    if (l.stage != Stage::durable && !(early && l.stage == Stage::cleared)) continue;
    l.stage = Stage::retiring;
    retired = l.sequence;
  }
  if (retired == 0) return;
  m_.store(retired_at(t), retired);
  m_.flush(lane.flusher, retired_at(t));
  if (planted(AllocPlant::released_with_retired_word)) retire_done(t, Stage::retiring);
}

inline void AllocProtocol::retire_done(std::size_t t, Stage stage) {
  Lane& lane = lanes_[t];
  while (!lane.limbo.empty() && lane.limbo.front().stage == stage) {
    const std::size_t block = lane.limbo.front().block;
    lane.limbo.erase(lane.limbo.begin());
    if (!planted(AllocPlant::no_limbo)) release(t, block);
  }
}

inline void AllocProtocol::after_fence(std::size_t t) {
  retire_done(t, Stage::retiring);
  for (Limbo& l : lanes_[t].limbo) {
    if (l.stage == Stage::cleared) l.stage = Stage::durable;
  }
}

// A fence of the heap's own, or one of the application, which the lane does not see.
inline void AllocProtocol::put_fence(std::vector<Step>& s, std::size_t t, bool of_protocol) {
  if (of_protocol) s.push_back([this, t] { before_fence(t); });
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

inline void AllocProtocol::put_intent(std::vector<Step>& s, std::size_t t, std::size_t line,
                                      Intent op, std::size_t block, std::size_t dest,
                                      Word sequence) {
  const std::size_t at = line_at(t, line);
  const Word seal = sequence << 2 | op;
  const bool first = planted(AllocPlant::intent_sealed_first);
  put_store(s, t, at, first ? seal : 0, false);
  put_store(s, t, at + 1, block, false);
  put_store(s, t, at + 2, dest, false);
  put_store(s, t, at, seal, true);
}

inline void AllocProtocol::put_drain(std::vector<Step>& s, std::size_t t, std::size_t lane) {
  if (lanes_[lane].limbo.empty()) return;
  const auto fence = [this, t] {
    m_.fence(lanes_[t].flusher);
    for (std::size_t& by : sealed_by_) by = by == t ? kNobody : by;
  };
  if (!planted(AllocPlant::drain_without_first_fence)) s.push_back(fence);
  s.push_back([this, t, lane] {
    for (Limbo& l : lanes_[lane].limbo) l.stage = Stage::retiring;
    m_.store(retired_at(lane), lanes_[lane].limbo.back().sequence);
    m_.flush(lanes_[t].flusher, retired_at(lane));
  });
  if (!planted(AllocPlant::drain_without_second_fence)) s.push_back(fence);
  s.push_back([this, lane] { after_fence(lane); });
}

// --- the operations
// --------------------------------------------------------------------------------

inline void AllocProtocol::put_malloc(std::vector<Step>& s, std::size_t t) {
  const Running& r = running_[t];
  const std::size_t b = r.block, d = r.op.dest;
  Lane& lane = lanes_[t];
  const std::size_t line = lane.mallocs++ % kMallocLines;
  const Word fill = r.type == Type::data ? pointer_to(r.op.other) : 0;
  put_store(s, t, dest_at(inner(b)), fill, true);
  put_intent(s, t, line, kMalloc, b, d, ++lane.sequence);
  if (!planted(AllocPlant::malloc_intent_unfenced)) put_fence(s, t);  // intent | D and B
  put_store(s, t, dest_at(d), pointer_to(b), true);
  s.push_back([this, t, b] { set_bit(m_, lanes_[t].flusher, b, true); });
  if (!planted(AllocPlant::malloc_returns_unfenced)) put_fence(s, t);  // D and B | return
  if (!planted(AllocPlant::malloc_intent_stays)) put_store(s, t, line_at(t, line), 0, true);
  s.push_back([this, t, b, d, fill] {
    value_[d] = pointer_to(b);
    value_[inner(b)] = fill;
    type_[b] = running_[t].type;
    sealed_by_[b] = t;
    dest_owner_[d] = kNobody;
  });
}

inline void AllocProtocol::put_free(std::vector<Step>& s, std::size_t t) {
  const Running& r = running_[t];
  const std::size_t b = r.block, d = r.op.dest;
  Lane& lane = lanes_[t];
  const std::size_t ring =
      planted(AllocPlant::ring_slot_used_again_too_early) ? c_.ring + 1 : c_.ring;
  if (lane.limbo.size() >= ring) put_drain(s, t, t);
  const std::size_t line = kMallocLines + lane.frees++ % c_.ring;
  const Word sequence = ++lane.sequence;
  put_intent(s, t, line, kFree, b, d, sequence);
  if (!planted(AllocPlant::free_intent_unfenced)) put_fence(s, t);  // intent | D and B
  put_store(s, t, dest_at(d), 0, true);
  s.push_back([this, t, b] { set_bit(m_, lanes_[t].flusher, b, false); });
  s.push_back([this, t, b, d, sequence] {
    lanes_[t].limbo.push_back({b, d, sequence, Stage::cleared});
    if (planted(AllocPlant::no_limbo)) free_.insert(b);
    value_[d] = 0;
    type_[b] = Type::none;
    dest_owner_[d] = dest_owner_[inner(b)] = kNobody;
  });
}

inline void AllocProtocol::put_move(std::vector<Step>& s, std::size_t t) {
  const Running& r = running_[t];
  const std::size_t b = r.block, d = r.op.dest, e = r.op.other;
  put_store(s, t, dest_at(e), pointer_to(b), true);
  put_fence(s, t, false);
  put_store(s, t, dest_at(d), 0, true);
  put_fence(s, t, false);
  s.push_back([this, b, d, e] {
    value_[e] = pointer_to(b);
    value_[d] = 0;
    dest_owner_[d] = dest_owner_[e] = kNobody;
  });
}

}  // namespace tenuto_model
