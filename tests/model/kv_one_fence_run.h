// The steps of kv_one_fence.h: what a writer does, in the order in which it stores, flushes and
// fences; what recovery does; and what must hold after it.
#pragma once

#include "kv_one_fence.h"

namespace tenuto_model {

// --- what a thread may begin
// -----------------------------------------------------------------------

inline bool OneFence::batch_possible(const Op& op) const {
  std::map<std::size_t, std::size_t> inserts;
  std::size_t records = 0;
  for (const unsigned i : {0u, 1u}) {
    const bool erase = (op.erases >> i & 1) != 0;
    const Found f = find(i == 0 ? op.key : op.other);
    if (locked_[f.leaf] || (erase && f.slot == kNone)) return false;
    if (!erase) records += 1;
    if (!erase && f.slot == kNone) inserts[f.leaf] += 1;
  }
  for (const auto& [leaf, n] : inserts) {
    if (count(leaf) + n > capacity()) return false;
  }
  return records <= free_.size();
}

inline std::vector<OneFence::Op> OneFence::possible(std::size_t t) const {
  std::vector<Op> all;
  if (!unsettled_[t].empty()) all.push_back({Op::settle});
  for (std::size_t k = 1; k <= c_.keys; ++k) {
    const std::size_t leaf = route(k);
    if (locked_[leaf]) continue;
    const Found f = find(k);
    if (f.slot != kNone) all.push_back({Op::erase, k});
    if (free_.empty()) continue;
    if (f.slot != kNone || count(leaf) < capacity()) all.push_back({Op::put, k});
    if (k == 1) all.push_back({Op::give_up, k});
  }
  for (const auto& [low, leaf] : index_) {
    if (locked_[leaf]) continue;
    const bool last = index_.rbegin()->second == leaf;
    const std::vector<std::size_t> slots = sorted_slots(leaf);
    if (slots.size() == capacity() && !free_leaves_.empty()) {
      all.push_back({Op::split, leaf});
      const std::size_t top = m_.load(record_at(block_of(m_.load(slot_at(leaf, slots.back())))));
      if (last && top < c_.keys) all.push_back({Op::append, leaf});
    }
    if (slots.empty() && leaf != 0 && !locked_[left_of(leaf)]) all.push_back({Op::unlink, leaf});
  }
  if (!c_.batches) return all;
  for (std::size_t a = 1; a <= c_.keys; ++a) {
    for (std::size_t b = a + 1; b <= c_.keys; ++b) {
      for (const unsigned erases : {0u, 1u, 2u, 3u}) {
        const Op op{Op::batch, a, b, erases};
        if (batch_possible(op)) all.push_back(op);
      }
    }
  }
  return all;
}

inline std::vector<OneFence::Step> OneFence::plan(std::size_t t, const Op& op) {
  std::vector<Step> s;
  Running& r = running_[t];
  r = {true, op, {}, {}};
  const auto lock = [&](std::size_t leaf) {
    locked_[leaf] = true;
    r.locked.push_back(leaf);
  };
  const Found f = op.kind <= Op::erase ? find(op.key) : Found{};
  switch (op.kind) {
    case Op::put:
      lock(f.leaf);
      r.changes = {{op.key, ++next_value_}};
      if (f.slot == kNone) {
        put_insert(s, t, f, r.changes[0]);
      } else {
        put_update(s, t, f, r.changes[0]);
      }
      break;
    case Op::erase:
      lock(f.leaf);
      r.changes = {{op.key, 0}};
      put_erase(s, t, f);
      break;
    case Op::give_up:
      put_give_up(s, t, {op.key, ++next_value_});
      break;
    case Op::settle:
      put_settle(s, t);
      break;
    case Op::split:
    case Op::append:
      lock(op.key);
      put_split(s, t, op.key, op.kind == Op::append);
      break;
    case Op::unlink:
      lock(op.key);
      lock(left_of(op.key));
      put_unlink(s, t, op.key);
      break;
    case Op::batch:
      for (const unsigned i : {0u, 1u}) {
        const std::size_t key = i == 0 ? op.key : op.other;
        if (!locked_[route(key)]) lock(route(key));
        r.changes.push_back({key, (op.erases >> i & 1) != 0 ? 0 : ++next_value_});
      }
      put_batch(s, t);
      break;
  }
  // Its last step and the end of the operation are one: nothing may come between.
  s.back() = [this, t, last = s.back()] {
    last();
    Running& done = running_[t];
    for (const Change& c : done.changes) value_[c.key] = c.value;
    for (const std::size_t l : done.locked) locked_[l] = false;
    done.on = false;
  };
  return s;
}

// --- the operations
// --------------------------------------------------------------------------------

// Two lines, the head last in its own. It does not fit a word that the record now in the block
// fits.
inline Word OneFence::put_record(std::vector<Step>& s, std::size_t t, std::size_t block,
                                 const Change& c) {
  const std::size_t at = record_at(block);
  Word head = make_head(c.key, c.value, 0);
  const bool fits = (head & 1) == (m_.load(at + 2) & 1);
  if (fits && !planted(OneFencePlant::stale_content_may_fit)) head ^= 1;
  put_store(s, at + kLineWords, c.value);
  if (!planted(OneFencePlant::record_unflushed)) put_flush(s, t, at + kLineWords);
  put_store(s, at, c.key);
  put_store(s, at + 1, c.value);
  put_store(s, at + 2, head);
  put_flush(s, t, at);
  return head;
}

// record, slot |
inline void OneFence::put_insert(std::vector<Step>& s, std::size_t t, const Found& at,
                                 const Change& c) {
  const std::size_t block = take_block();
  const std::size_t to = slot_at(at.leaf, free_slot(at.leaf, {}));
  const Word head = put_record(s, t, block, c);
  put_store(s, to, make_word(block, head, 0));
  if (!planted(OneFencePlant::slot_unflushed)) put_flush(s, t, to);
  if (!planted(OneFencePlant::insert_returns_unfenced)) put_fence(s, t);
}

// record, a slot of the same line | the old slot is zero, to be settled
inline void OneFence::put_update(std::vector<Step>& s, std::size_t t, const Found& at,
                                 const Change& c) {
  const std::size_t block = take_block();
  const std::size_t to = slot_at(at.leaf, free_beside(at.leaf, at.slot));
  const std::size_t from = slot_at(at.leaf, at.slot);
  const Word head = put_record(s, t, block, c);
  const Word version =
      version_of(at.word) + (planted(OneFencePlant::update_keeps_the_version) ? 0 : 1);
  put_store(s, to, make_word(block, head, version));
  if (planted(OneFencePlant::update_zeroes_before_fence)) put_store(s, from, 0);
  put_flush(s, t, to);
  if (!planted(OneFencePlant::update_returns_unfenced)) put_fence(s, t);
  put_store(s, from, 0);
  s.push_back([this, t, old = block_of(at.word), from] {
    if (planted(OneFencePlant::replaced_record_released_early)) {
      free_.insert(old);
    } else {
      unsettled_[t].push_back({old, from});
    }
  });
}

// the slots that updates left, zero | their records are free
inline void OneFence::put_settle(std::vector<Step>& s, std::size_t t) {
  const std::vector<Unsettled> all = unsettled_[t];
  unsettled_[t].clear();
  for (const Unsettled& u : all) {
    if (!planted(OneFencePlant::settled_without_flush)) put_flush(s, t, u.slot_at);
  }
  if (!planted(OneFencePlant::settled_without_fence)) put_fence(s, t);
  s.push_back([this, all] {
    for (const Unsettled& u : all) free_.insert(u.block);
  });
}

inline void OneFence::close() {
  if (planted(OneFencePlant::closed_without_settling)) return;
  for (std::size_t t = 0; t < c_.threads; ++t) {
    for (const Unsettled& u : unsettled_[t]) m_.flush(0, u.slot_at);
  }
  m_.fence(0);
}

// slot |
inline void OneFence::put_erase(std::vector<Step>& s, std::size_t t, const Found& at) {
  const auto release = [this, b = block_of(at.word)] { free_.insert(b); };
  put_store(s, slot_at(at.leaf, at.slot), 0);
  put_flush(s, t, slot_at(at.leaf, at.slot));
  if (planted(OneFencePlant::erased_record_released_early)) s.push_back(release);
  if (!planted(OneFencePlant::erase_returns_unfenced)) put_fence(s, t);
  if (!planted(OneFencePlant::erased_record_released_early)) s.push_back(release);
}

// A record that no slot ever names; what stands in the block is durable before another takes it.
inline void OneFence::put_give_up(std::vector<Step>& s, std::size_t t, const Change& c) {
  const std::size_t block = take_block();
  put_record(s, t, block, c);
  if (!planted(OneFencePlant::given_up_record_unfenced)) put_fence(s, t);
  s.push_back([this, block] { free_.insert(block); });
}

// new leaf | L.next | moved slots of L |
inline void OneFence::put_split(std::vector<Step>& s, std::size_t t, std::size_t leaf,
                                bool append) {
  const std::size_t right = *free_leaves_.begin();
  free_leaves_.erase(right);
  const std::vector<std::size_t> slots = sorted_slots(leaf);
  const auto word_in = [&](std::size_t i) { return m_.load(slot_at(leaf, slots[i])); };
  const auto key_in = [&](std::size_t i) { return m_.load(record_at(block_of(word_in(i)))); };
  const std::size_t keep = append ? slots.size() : slots.size() / 2;
  const Word low = append ? key_in(keep - 1) + 1 : key_in(keep);
  for (std::size_t i = 0; i < this->slots(); ++i) put_store(s, slot_at(right, i), 0);
  for (std::size_t i = keep; i < slots.size(); ++i) {
    const std::size_t n = i - keep;
    const std::size_t to = n / (c_.slots - 1) * c_.slots + n % (c_.slots - 1);
    put_store(s, slot_at(right, to), word_in(i));
  }
  for (std::size_t line = 0; line < kSlotLines; ++line) {
    put_flush(s, t, slot_at(right, line * c_.slots));
  }
  put_store(s, low_at(right), low);
  if (!planted(OneFencePlant::split_separator_unflushed)) put_flush(s, t, low_at(right));
  put_store(s, next_at(right), m_.load(next_at(leaf)));
  put_flush(s, t, next_at(right));
  if (!planted(OneFencePlant::split_leaf_and_link_in_one_group)) put_fence(s, t);
  put_store(s, next_at(leaf), right + 1);
  put_flush(s, t, next_at(leaf));
  if (!planted(OneFencePlant::split_zeroes_with_the_link)) put_fence(s, t);
  for (std::size_t i = keep; i < slots.size(); ++i) {
    put_store(s, slot_at(leaf, slots[i]), 0);
    if (planted(OneFencePlant::split_moved_slots_unflushed)) continue;
    put_flush(s, t, slot_at(leaf, slots[i]));
  }
  if (!planted(OneFencePlant::split_returns_unfenced)) put_fence(s, t);
  s.push_back([this, low, right] { index_[low] = right; });
}

// left.next |
inline void OneFence::put_unlink(std::vector<Step>& s, std::size_t t, std::size_t leaf) {
  const std::size_t left = left_of(leaf);
  put_store(s, next_at(left), m_.load(next_at(leaf)));
  put_flush(s, t, next_at(left));
  if (!planted(OneFencePlant::unlink_returns_unfenced)) put_fence(s, t);
  s.push_back([this, leaf, low = m_.load(low_at(leaf))] {
    index_.erase(low);
    free_leaves_.insert(leaf);
  });
}

// records, undo entries of all slots | slots, in place | commit line |
inline void OneFence::put_batch(std::vector<Step>& s, std::size_t t) {
  const Word sequence = m_.load(committed_at(t)) + 1;
  std::map<std::size_t, std::set<std::size_t>> fresh;  // by leaf
  std::vector<Step> stores;
  std::vector<std::size_t> replaced, saved;
  for (const Change& c : running_[t].changes) {
    Found f = find(c.key);
    const bool insert = f.slot == kNone;
    if (insert) {
      f.slot = free_slot(f.leaf, fresh[f.leaf]);
      fresh[f.leaf].insert(f.slot);
    } else {
      replaced.push_back(block_of(f.word));
    }
    const std::size_t at = slot_at(f.leaf, f.slot);
    if (!insert || !planted(OneFencePlant::batch_fresh_slot_not_saved)) saved.push_back(at);
    Word word = 0;
    if (c.value != 0) {
      const std::size_t block = take_block();
      const Word head = put_record(s, t, block, c);
      word = make_word(block, head, insert ? 0 : version_of(f.word) + 1);
    }
    put_store(stores, at, word);
    put_flush(stores, t, at);
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    const std::size_t at = undo_at(t, i);
    put_store(s, at, 0);
    put_store(s, at + 1, saved[i]);
    put_store(s, at + 2, m_.load(saved[i]));
    put_store(s, at, sequence);
    put_flush(s, t, at);
  }
  if (!planted(OneFencePlant::batch_entries_unfenced)) put_fence(s, t);
  s.insert(s.end(), stores.begin(), stores.end());
  if (!planted(OneFencePlant::batch_data_and_commit_in_one_group)) put_fence(s, t);
  put_store(s, committed_at(t), sequence);
  put_flush(s, t, committed_at(t));
  if (!planted(OneFencePlant::batch_returns_unfenced)) put_fence(s, t);
  s.push_back([this, replaced] { free_.insert(replaced.begin(), replaced.end()); });
}

// --- recovery
// --------------------------------------------------------------------------------------

inline void OneFence::undo(Memory& m, std::size_t t, std::vector<std::size_t>& retire) const {
  const Word open = m.load(committed_at(t)) + 1;
  for (std::size_t i = kUndoLines; i > 0; --i) {
    const std::size_t at = undo_at(t, i - 1);
    if (m.load(at) != open) continue;
    if (retire.empty() || retire.back() != t) retire.push_back(t);
    if (planted(OneFencePlant::recovery_ignores_the_undo_log)) continue;
    m.store(m.load(at + 1), m.load(at + 2));
    m.flush(0, m.load(at + 1));
  }
}

// Reads every record. What it drops: one torn record at most, the older of two versions in one
// line, and then what a split has moved, which stands in the right neighbour word by word.
inline void OneFence::recover_leaf(Memory& m, std::size_t leaf, std::size_t right) const {
  std::vector<std::size_t> drop;  // older versions first: a moved newer one tells what they are
  std::vector<std::size_t> rest;
  std::size_t torn = 0;
  bool damage = false;
  std::map<Word, std::size_t> seen;  // key: slot
  const Word end = right == kNone ? ~Word{0} : m.load(low_at(right));
  for (std::size_t i = 0; i < slots(); ++i) {
    const Word word = m.load(slot_at(leaf, i));
    if (word == 0) continue;
    if (!whole(m.now(), word)) {
      rest.push_back(i);
      torn += 1;
      continue;
    }
    const Word key = m.load(record_at(block_of(word)));
    const auto [at, first] = seen.emplace(key, i);
    if (first) continue;
    const std::size_t other = at->second;
    const Word before = version_of(m.load(slot_at(leaf, other)));
    const bool newer = version_of(word) == ((before + 1) & 3);
    const bool older = before == ((version_of(word) + 1) & 3);
    damage |= i / c_.slots != other / c_.slots || newer == older;
    drop.push_back(newer != planted(OneFencePlant::recovery_takes_the_older) ? other : i);
    if (newer) at->second = i;
  }
  for (const auto& [key, i] : seen) {
    if (key < end) continue;
    bool moved = false;
    for (std::size_t k = 0; k < slots(); ++k) {
      moved |= m.load(slot_at(right, k)) == m.load(slot_at(leaf, i));
    }
    damage |= !moved;
    if (!planted(OneFencePlant::recovery_keeps_moved_entries)) rest.push_back(i);
  }
  const bool older_first = !planted(OneFencePlant::recovery_drops_the_newer_first);
  drop.insert(older_first ? drop.end() : drop.begin(), rest.begin(), rest.end());
  if (damage || torn > 1) {
    m.store(damage_at(), 1);
    m.flush(0, damage_at());
  }
  for (const std::size_t i : drop) {
    if (planted(OneFencePlant::recovery_leaves_what_it_drops)) continue;
    m.store(slot_at(leaf, i), 0);
    if (!planted(OneFencePlant::recovery_zeroes_unfenced)) m.flush(0, slot_at(leaf, i));
  }
}

inline void OneFence::recover(Memory& m, const std::vector<std::size_t>& lanes) const {
  std::vector<std::size_t> retire;
  for (const std::size_t t : lanes) undo(m, t, retire);
  if (!retire.empty()) m.fence(0);
  for (const std::size_t t : retire) {
    m.store(committed_at(t), m.load(committed_at(t)) + 1);
    m.flush(0, committed_at(t));
  }
  if (!retire.empty()) m.fence(0);
  std::vector<std::size_t> leaves;
  if (!walk(m.now(), leaves).empty()) return;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    recover_leaf(m, leaves[i], i + 1 < leaves.size() ? leaves[i + 1] : kNone);
  }
  m.fence(0);
}

// --- what must hold
// --------------------------------------------------------------------------------

inline std::string OneFence::walk(const Image& image, std::vector<std::size_t>& leaves) const {
  for (std::size_t l = 0;;) {
    leaves.push_back(l);
    if (leaves.size() > c_.leaves) return "the chain of leaves is a loop";
    const Word next = image[next_at(l)];
    if (next == 0) return "";
    if (next > c_.leaves) return "the chain leads nowhere";
    if (image[low_at(next - 1)] <= image[low_at(l)]) return "separators do not ascend";
    l = next - 1;
  }
}

inline std::string OneFence::check_leaf(const Image& image, std::size_t leaf, Word low, Word end,
                                        std::vector<Word>& values,
                                        std::set<std::size_t>& blocks) const {
  for (std::size_t line = 0; line < kSlotLines; ++line) {
    std::size_t used = 0;
    for (std::size_t i = line * c_.slots; i < (line + 1) * c_.slots; ++i) {
      const Word word = image[slot_at(leaf, i)];
      if (word == 0) continue;
      used += 1;
      const std::size_t block = block_of(word);
      if (block == 0 || block > c_.blocks) return "a slot leads to no record";
      if (!blocks.insert(block).second) return "a record is reachable twice";
      const Word key = image[record_at(block)], value = image[record_at(block) + 1];
      if (key == 0 || key > c_.keys) return "a record is garbage";
      if (image[record_at(block) + kLineWords] != value) return "a record is torn";
      if ((image[record_at(block) + 2] & 1) != tag_of(word))
        return "a record does not fit its slot";
      if (key < low || key >= end) return "a key stands in the wrong leaf";
      if (values[key] != 0) return "a key stands twice";
      values[key] = value;
    }
    if (used == c_.slots) return "a line has no free slot";
  }
  return "";
}

inline std::string OneFence::check(const Image& image) const {
  if (image[damage_at()] != 0) return "recovery takes what it finds for damage";
  std::vector<std::size_t> leaves;
  if (std::string e = walk(image, leaves); !e.empty()) return e;
  std::vector<Word> values(c_.keys + 1, 0);
  std::set<std::size_t> blocks;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Word end = i + 1 < leaves.size() ? image[low_at(leaves[i + 1])] : ~Word{0};
    const std::string e =
        check_leaf(image, leaves[i], image[low_at(leaves[i])], end, values, blocks);
    if (!e.empty()) return e;
  }
  std::vector<bool> open(c_.keys + 1, false);
  for (const Running& r : running_) {
    if (!r.on) continue;
    bool all_old = true, all_new = true;
    for (const Change& c : r.changes) {
      open[c.key] = true;
      all_old = all_old && values[c.key] == value_[c.key];
      all_new = all_new && values[c.key] == c.value;
    }
    if (!all_old && !all_new) return "an operation is half there: " + name_of(r.op);
  }
  for (std::size_t k = 1; k <= c_.keys; ++k) {
    if (open[k] || values[k] == value_[k]) continue;
    return "key " + std::to_string(k) + " is " + std::to_string(values[k]) + ", not " +
           std::to_string(value_[k]);
  }
  return "";
}

}  // namespace tenuto_model
