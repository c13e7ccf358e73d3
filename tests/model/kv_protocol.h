// The store's leaf protocol (store/tree/leaf.h) on a simulated persistent memory: inserts, updates,
// erases, splits whose link and bitmap share a line, unlinking of empty leaves, and batches under
// an undo log. kv_model.cc decides what is run and planted.
//
// Blocks and leaves have no allocator log: exactly what the chain of leaves reaches is in use. So
// the check is exact. Every acknowledged write is there, others are there whole or not at all.
// Every key is there once and in the leaf of its range, and no record is reachable twice. A
// released block goes to the next writer at once, which shows a release that comes too early.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "memory.h"

namespace tenuto_model {

// Mistakes, each of which the exploration must find.
enum class KvPlant {
  none,
  record_unflushed,
  slot_unflushed,
  record_and_header_in_one_group,
  bitmap_before_fingerprint,
  insert_returns_unfenced,
  update_in_one_group,
  update_returns_unfenced,
  erase_returns_unfenced,
  replaced_record_released_early,
  erased_record_released_early,
  split_leaf_and_link_in_one_group,
  split_separator_unflushed,
  split_drops_before_link,
  split_keeps_both,
  split_returns_unfenced,
  unlink_returns_unfenced,
  batch_entries_unfenced,
  batch_slot_unflushed,
  batch_data_and_commit_in_one_group,
  batch_returns_unfenced,
  recovery_trusts_both_halves,
  recovery_ignores_the_undo_log,
  recovery_retires_before_fence,
};
inline constexpr int kKvPlants = static_cast<int>(KvPlant::recovery_retires_before_fence);

struct KvConfig {
  std::size_t threads = 2, keys = 4, blocks = 5, leaves = 3;
  std::size_t slots = 2;  // at most kLineWords, because the slot words of a leaf are one line
  bool batches = false;
  KvPlant plant = KvPlant::none;
};

struct KvOp {
  enum Kind { put, erase, split, append, unlink, batch } kind;
  std::size_t key = 0;    // put, erase, batch: the key; split, append, unlink: the leaf
  std::size_t other = 0;  // batch: the second key
  unsigned erases = 0;    // batch: bit 0: the first key is erased, bit 1: the second
};

class KvProtocol {
 public:
  using Op = KvOp;
  using Step = std::function<void()>;

  KvProtocol(const KvConfig& config, Memory& memory) : c_(config), m_(memory) {}

  static std::size_t flushers(const KvConfig& c) { return c.threads; }
  Image empty_image() const { return Image(words(), 0); }

  void boot(bool adopt);
  std::vector<Op> possible(std::size_t t) const;
  std::vector<Step> plan(std::size_t t, const Op& op);
  std::string name_of(const Op& op) const;
  bool busy(std::size_t t) const { return running_[t].on; }
  void recover(Memory& m, const std::vector<std::size_t>& lanes) const;
  void close() {}
  std::string check(const Image& image) const;
  std::uint64_t state_hash() const;

 private:
  static constexpr std::size_t kUndoLines = 4;
  static constexpr std::size_t kLeafLines = 3;
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct Change {
    std::size_t key;
    Word value;  // 0: erased
  };
  struct Running {
    bool on = false;
    KvOp op{};
    std::vector<Change> changes;      // together or not at all
    std::vector<std::size_t> locked;  // leaves
  };
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
  std::size_t words() const { return record_at(c_.blocks + 1); }

  static Word fingerprint_of(std::size_t key) { return key * 5 + 1; }
  static Word with_fingerprint(Word fingerprints, std::size_t slot, Word fingerprint) {
    return (fingerprints & ~(Word{0xff} << 8 * slot)) | fingerprint << 8 * slot;
  }
  bool planted(KvPlant p) const { return c_.plant == p; }

  std::size_t route(std::size_t key) const { return std::prev(index_.upper_bound(key))->second; }
  Word used(std::size_t leaf) const { return m_.load(bitmap_at(leaf)); }
  Found find(std::size_t key) const;
  std::vector<std::size_t> sorted_slots(std::size_t leaf) const;
  std::size_t left_of(std::size_t leaf) const;
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
  bool batch_possible(const Op& op) const;

  void put_store(std::vector<Step>& s, std::size_t word, Word value) {
    s.push_back([this, word, value] { m_.store(word, value); });
  }
  void put_flush(std::vector<Step>& s, std::size_t t, std::size_t word) {
    s.push_back([this, t, word] { m_.flush(t, word); });
  }
  void put_fence(std::vector<Step>& s, std::size_t t) {
    s.push_back([this, t] { m_.fence(t); });
  }
  void put_record(std::vector<Step>& s, std::size_t t, std::size_t block, const Change& c);
  void put_insert(std::vector<Step>& s, std::size_t t, const Found& at, std::size_t block,
                  const Change& c);
  void put_update(std::vector<Step>& s, std::size_t t, const Found& at, std::size_t block,
                  const Change& c);
  void put_erase(std::vector<Step>& s, std::size_t t, const Found& at);
  void put_split(std::vector<Step>& s, std::size_t t, std::size_t leaf, bool append);
  void put_unlink(std::vector<Step>& s, std::size_t t, std::size_t leaf);
  void put_batch(std::vector<Step>& s, std::size_t t);

  void undo(Memory& m, std::size_t t, std::vector<std::size_t>& retire) const;
  void finish_splits(Memory& m) const;
  // Collects the chain's leaves, or returns an error.
  std::string walk(const Image& image, std::vector<std::size_t>& leaves) const;
  std::string check_leaf(const Image& image, std::size_t leaf, Word low, Word end,
                         std::vector<Word>& values, std::set<Word>& blocks) const;

  KvConfig c_;
  Memory& m_;
  std::map<std::size_t, std::size_t> index_;  // low separator to leaf
  std::vector<Word> value_;                   // by key; 0: no record
  std::vector<bool> locked_;                  // by leaf
  std::vector<Running> running_;
  std::set<std::size_t> free_, free_leaves_;
  Word next_value_ = 0;
};

inline std::string KvProtocol::name_of(const Op& op) const {
  static const char* const kNames[] = {"put", "erase", "split", "append", "unlink", "batch"};
  std::string s = kNames[op.kind] + std::string("(") + std::to_string(op.key);
  if (op.kind == KvOp::batch) {
    s += (op.erases & 1 ? "-," : "+,") + std::to_string(op.other) + (op.erases & 2 ? "-" : "+");
  }
  return s + ")";
}

inline KvProtocol::Found KvProtocol::find(std::size_t key) const {
  Found f{route(key)};
  for (std::size_t i = 0; i < c_.slots; ++i) {
    if ((used(f.leaf) >> i & 1) == 0) continue;
    const std::size_t block = m_.load(slot_at(f.leaf, i));
    if (m_.load(record_at(block)) == key) f = {f.leaf, i, block};
  }
  return f;
}

inline std::vector<std::size_t> KvProtocol::sorted_slots(std::size_t leaf) const {
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

inline std::size_t KvProtocol::left_of(std::size_t leaf) const {
  std::size_t left = kNone;
  for (const auto& [low, l] : index_) {
    if (l == leaf) break;
    left = l;
  }
  return left;
}

inline void KvProtocol::boot(bool adopt) {
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

inline std::uint64_t KvProtocol::state_hash() const {
  std::uint64_t h = 5;
  for (const Word v : value_) h = mix(h * 31 + v);
  for (const Running& r : running_) {
    if (!r.on) continue;
    h = mix(h * 31 + r.op.kind + 1);
    for (const Change& c : r.changes) h = mix(h * 31 + (c.key << 32 | c.value));
  }
  return h;
}

}  // namespace tenuto_model
