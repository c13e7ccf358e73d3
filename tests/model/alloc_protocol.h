// The steps of the allocation protocols: what a thread stores, flushes and fences, in this order.
#pragma once

#include "alloc_state.h"

namespace tenuto_model {

class AllocProtocol : public AllocState {
 public:
  using AllocState::AllocState;

  std::vector<AllocOp> possible(std::size_t t) const {
    std::vector<AllocOp> all;
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

  Plan plan(std::size_t t, const AllocOp& op) {
    Plan p(m_, lanes_[t].flusher);
    AllocRunning& r = running_[t];
    r = {true, op, {}};
    lanes_[t].idle = false;
    const auto take = [&](std::size_t d, AllocType type) {
      const std::size_t b = *free_.begin();
      free_.erase(free_.begin());
      const Word fill = type == AllocType::data ? pointer_to(op.other) : 0;
      r.changes.push_back({d, raised(d, b), b, type, fill});
      dest_owner_[d] = t;
    };
    const auto give = [&](std::size_t d) {
      const std::size_t b = block_of(value_[d]);
      r.changes.push_back({d, raised(d, 0), b, AllocType::none, 0});
      dest_owner_[d] = dest_owner_[inner(b)] = t;
    };
    switch (op.kind) {
      case AllocOp::malloc_pointer:
      case AllocOp::malloc_tagged:
      case AllocOp::malloc_data:
      case AllocOp::malloc_raw:
        take(op.dest, op.kind == AllocOp::malloc_data     ? AllocType::data
                      : op.kind == AllocOp::malloc_raw    ? AllocType::raw
                      : op.kind == AllocOp::malloc_tagged ? AllocType::tagged
                                                          : AllocType::pointer);
        put_malloc(p, t);
        break;
      case AllocOp::batch_malloc:
        take(op.dest, is_tagged(op.dest) ? AllocType::raw : AllocType::pointer);
        take(op.other, is_tagged(op.other) ? AllocType::raw : AllocType::pointer);
        put_malloc(p, t);
        break;
      case AllocOp::free:
        give(op.dest);
        put_free(p, t);
        break;
      case AllocOp::batch_free:
        give(op.dest);
        give(op.other);
        put_free(p, t);
        break;
      case AllocOp::move:
      case AllocOp::swap: {
        const std::size_t b = block_of(value_[op.dest]), other = block_of(value_[op.other]);
        dest_owner_[op.dest] = dest_owner_[op.other] = t;
        r.changes.push_back({op.dest, raised(op.dest, other), b, AllocType::none, 0});
        r.changes.push_back({op.other, raised(op.other, b), other, AllocType::none, 0});
        op.kind == AllocOp::move ? put_move(p, t) : put_swap(p, t);
        break;
      }
      case AllocOp::hand_over:
        if (!planted<"lane_handed_on_without_fence">()) put_fence(p, t, false);
        p.then([this, t] {
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
        put_drain(p, t, other);
        p.then([this, other] { running_[other].on = false; });
        break;
      }
    }
    p.also([this, t] { running_[t].on = false; });
    return p;
  }

  // A clean close drains every lane. Afterwards its lines mean nothing.
  void close() {
    for (std::size_t t = 0; t < c_.threads; ++t) {
      m_.fence(lanes_[t].flusher);  // each thread's work happened before
      if (planted<"close_leaves_limbo">()) continue;
      Plan p(m_, lanes_[t].flusher);
      put_drain(p, t, t);
      while (!p.done()) p.step();
    }
  }

 private:
  void possible_pairs(std::size_t t, std::size_t d, std::vector<AllocOp>& all) const {
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

  void release(std::size_t t, std::size_t block) {
    if (planted<"no_quarantine">()) {
      free_.insert(block);
      return;
    }
    lanes_[t].quarantine.push_back(block);
    for (Lane& lane : lanes_) empty_quarantine(lane);
  }

  void empty_quarantine(Lane& lane) {
    std::erase_if(lane.quarantine, [this](std::size_t block) {
      for (const Lane& other : lanes_) {
        for (const Limbo& l : other.limbo) {
          if (!l.frees && planted<"tag_quarantine_for_frees_only">()) continue;
          if (std::find(l.dests.begin(), l.dests.end(), inner(block)) != l.dests.end())
            return false;
        }
      }
      free_.insert(block);
      return true;
    });
  }

  void release_retired(std::size_t t) {
    Lane& lane = lanes_[t];
    while (!lane.limbo.empty() && lane.limbo.front().sequence <= lane.retired) {
      const Limbo gone = lane.limbo.front();
      lane.limbo.erase(lane.limbo.begin());
      if (planted<"no_limbo">()) continue;
      for (const std::size_t block : gone.blocks) release(t, block);
    }
  }

  void after_fence(std::size_t t) {
    Lane& lane = lanes_[t];
    lane.retired = lane.retiring;
    lane.durable = lane.cleared;
    release_retired(t);
  }

  // A fence of the heap, or one of the application, which the lane does not notice.
  void put_fence(Plan& p, std::size_t t, bool of_protocol = true) {
    p.fence();
    p.also([this, t, of_protocol] {
      for (std::size_t& by : sealed_by_) by = by == t ? kNobody : by;
      if (of_protocol) after_fence(t);
    });
  }

  void put_intent(Plan& p, std::size_t t, Intent op, const std::vector<Element>& elements,
                  bool flushed) {
    Lane& lane = lanes_[t];
    const std::size_t at = line_at(t, lane.lines++ % c_.ring);
    const Word seal = ++lane.sequence << 4 | op;
    p.store(at, planted<"intent_sealed_first">() ? seal : 0);
    for (std::size_t i = 0; i < 2; ++i) {
      const Element e = i < elements.size() ? elements[i] : Element{};
      const Word packed = (e.dest + 1) << 16 | e.block << 8 | e.version;
      p.store(at + 1 + i, i < elements.size() ? packed : 0);
    }
    p.then([this, t, at] {
      Lane& mine = lanes_[t];
      const bool early = planted<"retired_with_destination_and_bit">();
      const Word carried = early ? mine.cleared : mine.durable;
      m_.store(at + 3, std::max(carried, mine.retiring));
      mine.retiring = std::max(carried, mine.retiring);
      if (!planted<"released_with_retired_word">()) return;
      mine.retired = mine.retiring;
      release_retired(t);
    });
    p.store(at, seal);
    if (flushed) p.flush(at);
  }

  // Stores one line or two. Returns the last sequence.
  Word put_intents(Plan& p, std::size_t t, Intent op) {
    std::vector<Element> elements;
    for (const AllocChange& c : running_[t].changes) {
      elements.push_back({c.dest, op == kSwap ? block_of(c.after) : c.block, version_of(c.after)});
    }
    const std::size_t lines = op == kSwap || c_.batch_shares_line ? 1 : elements.size();
    Lane& lane = lanes_[t];
    for (const AllocChange& c : running_[t].changes) {
      const Word every = Word{1} << c_.version_bits >> 2;
      const bool crossing = is_tagged(c.dest) && version_of(c.after) % every == 0;
      if (crossing && !planted<"wrap_ignored">()) put_retire_naming(p, t, c.dest);
    }
    const std::size_t first = lane.limbo.empty() ? lane.lines : lane.limbo.front().first_line;
    if (lane.lines + lines - first > c_.ring && !planted<"ring_slot_used_again_too_early">())
      put_drain(p, t, t);
    if (lines == 1) {
      put_intent(p, t, op, elements, true);
    } else {
      for (std::size_t i = 0; i < lines; ++i) {
        put_intent(p, t, op, {elements[i]}, i == 0 || !planted<"batch_line_unflushed">());
      }
    }
    return lane.sequence;
  }

  void put_drain(Plan& p, std::size_t t, std::size_t lane) {
    if (lanes_[lane].limbo.empty()) return;
    if (!planted<"drain_without_first_fence">()) put_fence(p, t, false);
    p.then([this, t, lane] {
      Lane& l = lanes_[lane];
      l.durable = l.retiring = l.cleared;
      const std::size_t at = retired_at(lane, l.turn++ % 2);
      m_.store_and_flush(lanes_[t].flusher, at, l.cleared);
    });
    if (!planted<"drain_without_second_fence">()) put_fence(p, t, false);
    p.then([this, lane] { after_fence(lane); });
  }

  // Ends every intent, of any lane, that names the word. The word's version is about to pass
  // another quarter, and an intent older than half of the range would look newer. The last store
  // becomes durable with the fence of the next intent.
  void put_retire_naming(Plan& p, std::size_t t, std::size_t dest) {
    put_drain(p, t, t);
    if (planted<"wrap_retires_own_lane_only">()) return;
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
      for (const std::size_t d : dests) p.flush(dest_at(d));
      p.flush(bitmap_at());
      if (!planted<"retire_others_without_fence">()) put_fence(p, t);
      p.then([this, t, other, cleared] {
        const std::size_t at = retired_at(other, 2);
        m_.store_and_flush(lanes_[t].flusher, at, std::max(cleared, m_.load(at)));
      });
    }
  }

  // Stores and flushes destinations and bits. bit: 1 sets, 0 clears, -1 only flushes.
  void put_effects(Plan& p, std::size_t t, int bit) {
    for (const AllocChange& c : running_[t].changes) {
      p.store_and_flush(dest_at(c.dest), c.after);
      p.then([this, t, bit, b = c.block] {
        if (bit >= 0) {
          set_bit(m_, lanes_[t].flusher, b, bit == 1);
        } else if (!planted<"swap_leaves_bits">()) {
          m_.flush(lanes_[t].flusher, bitmap_at());
        }
      });
    }
  }

  void put_pending(Plan& p, std::size_t t, Word sequence, bool frees) {
    Limbo l;
    l.sequence = sequence;
    l.frees = frees;
    l.first_line = lanes_[t].lines - (lanes_[t].sequence - sequence) - 1;
    for (const AllocChange& c : running_[t].changes) {
      l.dests.push_back(c.dest);
      if (frees) l.blocks.push_back(c.block);
    }
    p.then([this, t, l] {
      lanes_[t].limbo.push_back(l);
      lanes_[t].cleared = l.sequence;
      if (!planted<"no_limbo">()) return;
      for (const std::size_t b : l.blocks) free_.insert(b);
    });
  }

  // Acknowledges the operation.
  void put_done(Plan& p, std::size_t t, bool seal) {
    p.then([this, t, seal] {
      for (const AllocChange& c : running_[t].changes) {
        value_[c.dest] = c.after;
        dest_owner_[c.dest] = kNobody;
        if (c.block == 0 || running_[t].op.kind == AllocOp::swap) continue;
        type_[c.block] = c.type;
        dest_owner_[inner(c.block)] = kNobody;
        if (c.type != AllocType::none) value_[inner(c.block)] = c.fill;
        if (seal) sealed_by_[c.block] = t;
      }
    });
  }

  void put_malloc(Plan& p, std::size_t t) {
    const bool tag = is_tagged(running_[t].op.dest);
    for (const AllocChange& c : running_[t].changes) {
      if (c.type == AllocType::raw) continue;
      p.store_and_flush(dest_at(inner(c.block)), c.fill);
      // The contents must be durable before an intent that recovery redoes.
      if (tag && !planted<"publish_contents_unfenced">()) put_fence(p, t);
    }
    const Word sequence = put_intents(p, t, tag ? kTagMalloc : kMalloc);
    if (!planted<"malloc_intent_unfenced">()) put_fence(p, t);  // intent | D and B
    put_effects(p, t, 1);
    if (tag) {
      put_pending(p, t, sequence, false);
      return put_done(p, t, false);
    }
    const auto retire = [this, t, sequence] {
      Lane& lane = lanes_[t];
      const std::size_t at = retired_at(t, lane.turn++ % 2);
      m_.store_and_flush(lane.flusher, at, sequence);
      lane.retiring = sequence;
    };
    p.then([this, t, sequence] { lanes_[t].cleared = sequence; });
    if (planted<"malloc_retired_before_fence">()) p.then(retire);
    if (!planted<"malloc_returns_unfenced">()) put_fence(p, t);  // D and B | return
    if (!planted<"malloc_intent_stays">()) p.then(retire);
    put_done(p, t, true);
  }

  void put_free(Plan& p, std::size_t t) {
    const bool tag = is_tagged(running_[t].op.dest);
    const Word sequence = put_intents(p, t, tag ? kTagFree : kFree);
    if (!planted<"free_intent_unfenced">()) put_fence(p, t);  // intent | D and B
    put_effects(p, t, 0);
    put_pending(p, t, sequence, true);
    put_done(p, t, false);
  }

  // The application's own move of a plain pointer.
  void put_move(Plan& p, std::size_t t) {
    const std::vector<AllocChange>& c = running_[t].changes;
    p.store_and_flush(dest_at(c[1].dest), c[1].after);
    put_fence(p, t, false);
    p.store_and_flush(dest_at(c[0].dest), c[0].after);
    put_fence(p, t, false);
    p.then([this, t] {
      for (const AllocChange& change : running_[t].changes) {
        value_[change.dest] = change.after;
        dest_owner_[change.dest] = kNobody;
      }
    });
  }

  // Swaps versioned pointers, one of which may be null.
  void put_swap(Plan& p, std::size_t t) {
    const Word sequence = put_intents(p, t, kSwap);
    put_fence(p, t);  // intent | destinations
    put_effects(p, t, -1);
    put_pending(p, t, sequence, false);
    put_done(p, t, false);
  }
};

}  // namespace tenuto_model
