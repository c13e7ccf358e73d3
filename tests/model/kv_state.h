// The store's leaf protocol (store/tree/leaf.h) on a simulated persistent memory: inserts, updates,
// erases, splits whose link and bitmap share a line, unlinking of empty leaves, and batches under
// an undo log. This file has what a leaf is, and what the model knows of it. kv_protocol.h has the
// steps, and kv_model.cc the cases that are run.
#pragma once

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "explorer.h"

namespace tenuto_model {

struct KvConfig {
  std::size_t threads = 2, keys = 4, blocks = 5, leaves = 3;
  std::size_t slots = 2;  // at most kLineWords, because the slot words of a leaf are one line
  bool batches = false;
  const char* plant = nullptr;
};

struct KvOp {
  enum Kind { put, erase, split, append, unlink, batch } kind;
  std::size_t key = 0;    // put, erase, batch: the key; split, append, unlink: the leaf
  std::size_t other = 0;  // batch: the second key
  unsigned erases = 0;    // batch: bit 0: the first key is erased, bit 1: the second
};

struct KvChange {
  std::size_t key;
  Word value;  // 0: erased
};
struct KvRunning {
  bool on = false;
  KvOp op{};
  std::vector<KvChange> changes;    // together or not at all
  std::vector<std::size_t> locked;  // leaves
};

class KvState : public Protocol<class KvProtocol, KvConfig, KvRunning> {
 public:
  using Protocol::Protocol;

  std::size_t words() const { return record_at(c_.blocks + 1); }
  void close() {}  // every write is durable when it returns

  void boot(bool adopt) {
    running_.assign(c_.threads, {});
    locked_.assign(c_.leaves, false);
    value_.assign(c_.keys + 1, 0);
    index_ = {{0, 0}};
    free_.clear();
    free_leaves_.clear();
    for (std::size_t b = 1; b <= c_.blocks; ++b) free_.insert(b);
    for (std::size_t l = 1; l < c_.leaves; ++l) free_leaves_.insert(l);
    if (!adopt) {
      next_value_ = 0;
      return;
    }
    for (std::size_t l = 0;; l = m_.load(next_at(l)) - 1) {
      index_[m_.load(low_at(l))] = l;
      free_leaves_.erase(l);
      for (const std::size_t i : sorted_slots(l)) {
        const std::size_t block = m_.load(slot_at(l, i));
        free_.erase(block);
        value_[m_.load(record_at(block))] = m_.load(record_at(block) + 1);
      }
      if (m_.load(next_at(l)) == 0) break;
    }
  }

  std::uint64_t state_hash() const {
    Hash h;
    for (const Word v : value_) h.add(v);
    for (const KvRunning& r : running_) {
      if (!r.on) continue;
      h.add(r.op.kind + 1);
      for (const KvChange& c : r.changes) h.add(c.key << 32 | c.value);
    }
    return h.value();
  }

  std::string name_of(const KvOp& op) const {
    static const char* const kNames[] = {"put", "erase", "split", "append", "unlink", "batch"};
    std::string s = kNames[op.kind] + std::string("(") + std::to_string(op.key);
    if (op.kind == KvOp::batch) {
      s += (op.erases & 1 ? "-," : "+,") + std::to_string(op.other) + (op.erases & 2 ? "-" : "+");
    }
    return s + ")";
  }

 protected:
  static constexpr std::size_t kUndoLines = 4;
  static constexpr std::size_t kLeafLines = 3;
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct Found {
    std::size_t leaf = 0, slot = kNone, block = 0;
  };

  // Layout: for each thread a lane (commit line, undo lines), leaves (header, slots, separator),
  // records.
  std::size_t committed_at(std::size_t t) const { return t * (1 + kUndoLines) * kLineWords; }
  std::size_t undo_at(std::size_t t, std::size_t i) const {
    return committed_at(t) + (1 + i) * kLineWords;
  }
  std::size_t leaf_at(std::size_t l) const {
    return (c_.threads * (1 + kUndoLines) + l * kLeafLines) * kLineWords;
  }
  std::size_t bitmap_at(std::size_t l) const { return leaf_at(l); }
  std::size_t next_at(std::size_t l) const { return leaf_at(l) + 1; }  // leaf + 1; 0: the last
  std::size_t fingerprints_at(std::size_t l) const { return leaf_at(l) + 2; }
  std::size_t slot_at(std::size_t l, std::size_t i) const { return leaf_at(l) + kLineWords + i; }
  std::size_t low_at(std::size_t l) const { return leaf_at(l) + 2 * kLineWords; }
  std::size_t record_at(std::size_t b) const {
    return leaf_at(c_.leaves) + (b - 1) * 2 * kLineWords;
  }

  static Word fingerprint_of(std::size_t key) { return key * 5 + 1; }
  static Word with_fingerprint(Word fingerprints, std::size_t slot, Word fingerprint) {
    return (fingerprints & ~(Word{0xff} << 8 * slot)) | fingerprint << 8 * slot;
  }

  std::size_t route(std::size_t key) const { return std::prev(index_.upper_bound(key))->second; }
  Word used(std::size_t leaf) const { return m_.load(bitmap_at(leaf)); }
  std::size_t free_slot(std::size_t leaf, Word taken) const {
    return static_cast<std::size_t>(std::countr_one(used(leaf) | taken));
  }
  bool room(std::size_t leaf, std::size_t inserts) const {
    return static_cast<std::size_t>(std::popcount(used(leaf))) + inserts <= c_.slots;
  }
  std::size_t take_block() {
    const std::size_t b = *free_.begin();
    free_.erase(free_.begin());
    return b;
  }
  Found find(std::size_t key) const {
    Found f{route(key)};
    for (std::size_t i = 0; i < c_.slots; ++i) {
      if ((used(f.leaf) >> i & 1) == 0) continue;
      const std::size_t block = m_.load(slot_at(f.leaf, i));
      if (m_.load(record_at(block)) == key) f = {f.leaf, i, block};
    }
    return f;
  }

  std::vector<std::size_t> sorted_slots(std::size_t leaf) const {
    std::vector<std::size_t> slots;
    for (std::size_t i = 0; i < c_.slots; ++i) {
      if ((used(leaf) >> i & 1) != 0) slots.push_back(i);
    }
    std::sort(slots.begin(), slots.end(), [&](std::size_t a, std::size_t b) {
      return m_.load(record_at(m_.load(slot_at(leaf, a)))) <
             m_.load(record_at(m_.load(slot_at(leaf, b))));
    });
    return slots;
  }

  std::size_t left_of(std::size_t leaf) const {
    std::size_t left = kNone;
    for (const auto& [low, l] : index_) {
      if (l == leaf) break;
      left = l;
    }
    return left;
  }

  std::map<std::size_t, std::size_t> index_;  // low separator to leaf
  std::vector<Word> value_;                   // by key; 0: no record
  std::vector<bool> locked_;                  // by leaf
  std::set<std::size_t> free_, free_leaves_;
  Word next_value_ = 0;
};

}  // namespace tenuto_model
