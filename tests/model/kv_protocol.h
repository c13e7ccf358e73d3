// The steps of the leaf protocol: what a writer stores, flushes and fences, in this order;
// recovery; and the check after it.
//
// Blocks and leaves have no allocator log: exactly what the chain of leaves reaches is in use. So
// the check is exact. Every acknowledged write is there, others are there whole or not at all.
// Every key is there once and in the leaf of its range, and no record is reachable twice. A
// released block goes to the next writer at once, which shows a release that comes too early.
#pragma once

#include "kv_state.h"

namespace tenuto_model {

class KvProtocol : public KvState {
 public:
  using KvState::KvState;

  std::vector<KvOp> possible(std::size_t) const {
    std::vector<KvOp> all;
    for (std::size_t k = 1; k <= c_.keys; ++k) {
      const std::size_t leaf = route(k);
      if (locked_[leaf]) continue;
      const Found f = find(k);
      if (f.slot != kNone) all.push_back({KvOp::erase, k});
      if (!free_.empty() && (f.slot != kNone || room(leaf, 1))) all.push_back({KvOp::put, k});
    }
    for (const auto& [low, leaf] : index_) {
      if (locked_[leaf]) continue;
      const bool last = index_.rbegin()->second == leaf;
      const std::vector<std::size_t> slots = sorted_slots(leaf);
      if (slots.size() == c_.slots && !free_leaves_.empty()) {
        all.push_back({KvOp::split, leaf});
        const std::size_t top = m_.load(record_at(m_.load(slot_at(leaf, slots.back()))));
        if (last && top < c_.keys) all.push_back({KvOp::append, leaf});
      }
      if (slots.empty() && leaf != 0 && !locked_[left_of(leaf)])
        all.push_back({KvOp::unlink, leaf});
    }
    if (!c_.batches) return all;
    for (std::size_t a = 1; a <= c_.keys; ++a) {
      for (std::size_t b = a + 1; b <= c_.keys; ++b) {
        for (const unsigned erases : {0u, 1u, 2u, 3u}) {
          const KvOp op{KvOp::batch, a, b, erases};
          if (batch_possible(op)) all.push_back(op);
        }
      }
    }
    return all;
  }

  Plan plan(std::size_t t, const KvOp& op) {
    Plan p(m_, t);
    KvRunning& r = running_[t];
    r = {true, op, {}, {}};
    const auto lock = [&](std::size_t leaf) {
      locked_[leaf] = true;
      r.locked.push_back(leaf);
    };
    const Found f = op.kind <= KvOp::erase ? find(op.key) : Found{};
    switch (op.kind) {
      case KvOp::put:
        lock(f.leaf);
        r.changes = {{op.key, ++next_value_}};
        if (f.slot == kNone) {
          put_insert(p, {f.leaf, free_slot(f.leaf, 0)}, take_block(), r.changes[0]);
        } else {
          put_update(p, f, take_block(), r.changes[0]);
        }
        break;
      case KvOp::erase:
        lock(f.leaf);
        r.changes = {{op.key, 0}};
        put_erase(p, f);
        break;
      case KvOp::split:
      case KvOp::append:
        lock(op.key);
        put_split(p, op.key, op.kind == KvOp::append);
        break;
      case KvOp::unlink:
        lock(op.key);
        lock(left_of(op.key));
        put_unlink(p, op.key);
        break;
      case KvOp::batch:
        for (const unsigned i : {0u, 1u}) {
          const std::size_t key = i == 0 ? op.key : op.other;
          if (!locked_[route(key)]) lock(route(key));
          r.changes.push_back({key, (op.erases >> i & 1) != 0 ? 0 : ++next_value_});
        }
        put_batch(p, t);
        break;
    }
    p.also([this, t] {
      KvRunning& done = running_[t];
      for (const KvChange& c : done.changes) value_[c.key] = c.value;
      for (const std::size_t l : done.locked) locked_[l] = false;
      done.on = false;
    });
    return p;
  }

  void recover(Memory& m, const std::vector<std::size_t>& lanes) const {
    std::vector<std::size_t> retire;
    for (const std::size_t t : lanes) undo(m, t, retire);
    if (!retire.empty() && !planted<"recovery_retires_before_fence">()) m.fence(0);
    for (const std::size_t t : retire) {
      m.store_and_flush(0, committed_at(t), m.load(committed_at(t)) + 1);
    }
    if (!retire.empty()) m.fence(0);
    finish_splits(m);
  }

  std::string check(const Image& image) const {
    std::vector<std::size_t> leaves;
    if (std::string e = walk(image, leaves); !e.empty()) return e;
    std::vector<Word> values(c_.keys + 1, 0);
    std::set<Word> blocks;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const Word end = i + 1 < leaves.size() ? image[low_at(leaves[i + 1])] : ~Word{0};
      const std::string e =
          check_leaf(image, leaves[i], image[low_at(leaves[i])], end, values, blocks);
      if (!e.empty()) return e;
    }
    std::vector<bool> open(c_.keys + 1, false);
    for (const KvRunning& r : running_) {
      if (!r.on) continue;
      bool all_old = true, all_new = true;
      for (const KvChange& c : r.changes) {
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

 private:
  bool batch_possible(const KvOp& op) const {
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
      if (!room(leaf, n)) return false;
    }
    return records <= free_.size();
  }

  // --- the operations ----------------------------------------------------------------------------

  // A record has two lines, so that a torn one is recognised.
  void put_record(Plan& p, std::size_t block, const KvChange& c) {
    const std::size_t at = record_at(block);
    p.store(at, c.key);
    p.store(at + 1, c.value);
    p.flush(at);
    p.store(at + kLineWords, c.value);
    if (!planted<"record_unflushed">()) p.flush(at + kLineWords);
  }

  // record, slot | fingerprint, bitmap |
  void put_insert(Plan& p, const Found& at, std::size_t block, const KvChange& c) {
    const Word fingerprints =
        with_fingerprint(m_.load(fingerprints_at(at.leaf)), at.slot, fingerprint_of(c.key));
    const Word bitmap = used(at.leaf) | Word{1} << at.slot;
    put_record(p, block, c);
    p.store(slot_at(at.leaf, at.slot), block);
    if (!planted<"slot_unflushed">()) p.flush(slot_at(at.leaf, at.slot));
    if (!planted<"record_and_header_in_one_group">()) p.fence();
    if (planted<"bitmap_before_fingerprint">()) p.store(bitmap_at(at.leaf), bitmap);
    p.store(fingerprints_at(at.leaf), fingerprints);
    p.store_and_flush(bitmap_at(at.leaf), bitmap);
    if (!planted<"insert_returns_unfenced">()) p.fence();
  }

  // record | slot |
  void put_update(Plan& p, const Found& at, std::size_t block, const KvChange& c) {
    const auto release = [this, b = at.block] { free_.insert(b); };
    put_record(p, block, c);
    if (!planted<"update_in_one_group">()) p.fence();
    p.store_and_flush(slot_at(at.leaf, at.slot), block);
    if (planted<"replaced_record_released_early">()) p.then(release);
    if (!planted<"update_returns_unfenced">()) p.fence();
    if (!planted<"replaced_record_released_early">()) p.then(release);
  }

  // bitmap |
  void put_erase(Plan& p, const Found& at) {
    const auto release = [this, b = at.block] { free_.insert(b); };
    p.store_and_flush(bitmap_at(at.leaf), used(at.leaf) & ~(Word{1} << at.slot));
    if (planted<"erased_record_released_early">()) p.then(release);
    if (!planted<"erase_returns_unfenced">()) p.fence();
    if (!planted<"erased_record_released_early">()) p.then(release);
  }

  // new leaf | L.next, then L.bitmap in the same line |
  void put_split(Plan& p, std::size_t leaf, bool append) {
    const std::size_t right = *free_leaves_.begin();
    free_leaves_.erase(right);
    const std::vector<std::size_t> slots = sorted_slots(leaf);
    const auto key_in = [&](std::size_t i) {
      return m_.load(record_at(m_.load(slot_at(leaf, slots[i]))));
    };
    const std::size_t keep = append ? slots.size() : slots.size() / 2;
    const Word low = append ? key_in(keep - 1) + 1 : key_in(keep);
    Word kept = used(leaf), moved = 0, fingerprints = 0;
    for (std::size_t i = keep; i < slots.size(); ++i) {
      const std::size_t to = i - keep;
      p.store(slot_at(right, to), m_.load(slot_at(leaf, slots[i])));
      fingerprints = with_fingerprint(fingerprints, to, fingerprint_of(key_in(i)));
      moved |= Word{1} << to;
      kept &= ~(Word{1} << slots[i]);
    }
    p.flush(slot_at(right, 0));
    p.store(low_at(right), low);
    if (!planted<"split_separator_unflushed">()) p.flush(low_at(right));
    p.store(fingerprints_at(right), fingerprints);
    p.store(bitmap_at(right), moved);
    p.store(next_at(right), m_.load(next_at(leaf)));
    p.flush(bitmap_at(right));
    if (!planted<"split_leaf_and_link_in_one_group">()) p.fence();
    if (planted<"split_drops_before_link">()) p.store(bitmap_at(leaf), kept);
    p.store(next_at(leaf), right + 1);
    if (!planted<"split_keeps_both">()) p.store(bitmap_at(leaf), kept);
    p.flush(bitmap_at(leaf));
    if (!planted<"split_returns_unfenced">()) p.fence();
    p.then([this, low, right] { index_[low] = right; });
  }

  // left.next |
  void put_unlink(Plan& p, std::size_t leaf) {
    const std::size_t left = left_of(leaf);
    p.store_and_flush(next_at(left), m_.load(next_at(leaf)));
    if (!planted<"unlink_returns_unfenced">()) p.fence();
    p.then([this, leaf, low = m_.load(low_at(leaf))] {
      index_.erase(low);
      free_leaves_.insert(leaf);
    });
  }

  // records, undo entries | slots, headers | commit line |
  void put_batch(Plan& p, std::size_t t) {
    const Word sequence = m_.load(committed_at(t)) + 1;
    std::map<std::size_t, Word> headers, fingerprints;  // by leaf
    Plan stores(m_, t);
    std::vector<std::size_t> replaced, saved;
    for (const KvChange& c : running_[t].changes) {
      Found f = find(c.key);
      headers.try_emplace(f.leaf, used(f.leaf));
      fingerprints.try_emplace(f.leaf, m_.load(fingerprints_at(f.leaf)));
      if (f.block != 0) replaced.push_back(f.block);
      if (c.value == 0) {
        headers[f.leaf] &= ~(Word{1} << f.slot);
        continue;
      }
      const std::size_t block = take_block();
      put_record(p, block, c);
      const bool fresh = f.slot == kNone;
      if (fresh) {
        f.slot = free_slot(f.leaf, headers[f.leaf]);
        headers[f.leaf] |= Word{1} << f.slot;
        fingerprints[f.leaf] =
            with_fingerprint(fingerprints[f.leaf], f.slot, fingerprint_of(c.key));
      } else {
        saved.push_back(slot_at(f.leaf, f.slot));
      }
      stores.store(slot_at(f.leaf, f.slot), block);
      if (!planted<"batch_slot_unflushed">()) stores.flush(slot_at(f.leaf, f.slot));
    }
    for (const auto& [leaf, bitmap] : headers) {
      if (bitmap == used(leaf)) continue;
      saved.push_back(bitmap_at(leaf));
      stores.store(fingerprints_at(leaf), fingerprints[leaf]);
      stores.store_and_flush(bitmap_at(leaf), bitmap);
    }
    for (std::size_t i = 0; i < saved.size(); ++i) {
      const std::size_t at = undo_at(t, i);
      p.store(at, 0);
      p.store(at + 1, saved[i]);
      p.store(at + 2, m_.load(saved[i]));
      p.store_and_flush(at, sequence);
    }
    if (!planted<"batch_entries_unfenced">()) p.fence();
    p.append(stores);
    if (!planted<"batch_data_and_commit_in_one_group">()) p.fence();
    p.store_and_flush(committed_at(t), sequence);
    if (!planted<"batch_returns_unfenced">()) p.fence();
    p.then([this, replaced] { free_.insert(replaced.begin(), replaced.end()); });
  }

  // --- recovery ----------------------------------------------------------------------------------

  void undo(Memory& m, std::size_t t, std::vector<std::size_t>& retire) const {
    const Word open = m.load(committed_at(t)) + 1;
    for (std::size_t i = kUndoLines; i > 0; --i) {
      const std::size_t at = undo_at(t, i - 1);
      if (m.load(at) != open) continue;
      if (retire.empty() || retire.back() != t) retire.push_back(t);
      if (planted<"recovery_ignores_the_undo_log">()) continue;
      m.store_and_flush(0, m.load(at + 1), m.load(at + 2));
    }
  }

  // Recovery of half splits: the left leaf drops the entries that its right half also has.
  void finish_splits(Memory& m) const {
    if (planted<"recovery_trusts_both_halves">()) return;
    std::size_t seen = 0;
    for (std::size_t l = 0; m.load(next_at(l)) != 0 && seen++ < c_.leaves;) {
      const std::size_t right = m.load(next_at(l)) - 1;
      if (right >= c_.leaves) return;
      Word bitmap = m.load(bitmap_at(l));
      for (std::size_t i = 0; i < c_.slots; ++i) {
        for (std::size_t j = 0; j < c_.slots; ++j) {
          const bool both = (m.load(bitmap_at(right)) >> j & 1) != 0 &&
                            m.load(slot_at(l, i)) == m.load(slot_at(right, j));
          if (both) bitmap &= ~(Word{1} << i);
        }
      }
      if (bitmap != m.load(bitmap_at(l))) {
        m.store_and_flush(0, bitmap_at(l), bitmap);
      }
      l = right;
    }
    m.fence(0);
  }

  // --- what must hold ----------------------------------------------------------------------------

  std::string walk(const Image& image, std::vector<std::size_t>& leaves) const {
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

  std::string check_leaf(const Image& image, std::size_t leaf, Word low, Word end,
                         std::vector<Word>& values, std::set<Word>& blocks) const {
    for (std::size_t i = 0; i < c_.slots; ++i) {
      if ((image[bitmap_at(leaf)] >> i & 1) == 0) continue;
      const Word block = image[slot_at(leaf, i)];
      if (block == 0 || block > c_.blocks) return "a slot leads to no record";
      if (!blocks.insert(block).second) return "a record is reachable twice";
      const Word key = image[record_at(block)], value = image[record_at(block) + 1];
      if (key == 0 || key > c_.keys) return "a record is garbage";
      if (image[record_at(block) + kLineWords] != value) return "a record is torn";
      if (key < low || key >= end) return "a key stands in the wrong leaf";
      if ((image[fingerprints_at(leaf)] >> 8 * i & 0xff) != fingerprint_of(key))
        return "a fingerprint is wrong";
      if (values[key] != 0) return "a key stands twice";
      values[key] = value;
    }
    return "";
  }
};

}  // namespace tenuto_model
