// The store's leaf protocol of one fence (store/leaf.h, K1) on a simulated persistent memory: a
// slot word commits by itself, whole only if the record it names fits it; updates put the new word
// beside the old one, whose zero is made durable later, before its record is used again. Used by
// kv_model.cc, which says what is run and planted; kv_protocol.h is the protocol with two fences.
//
// A slot word carries one bit of the checksum of its record, so that stale content of a block fits
// it as often as not where nothing prevents that.
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
enum class OneFencePlant {
  none,
  record_unflushed,
  slot_unflushed,
  insert_returns_unfenced,
  update_returns_unfenced,
  erase_returns_unfenced,
  erased_record_released_early,
  update_in_another_line,
  update_zeroes_before_fence,
  update_keeps_the_version,
  replaced_record_released_early,
  settled_without_flush,
  settled_without_fence,
  closed_without_settling,
  stale_content_may_fit,
  given_up_record_unfenced,
  split_leaf_and_link_in_one_group,
  split_separator_unflushed,
  split_zeroes_with_the_link,
  split_returns_unfenced,
  split_moved_slots_unflushed,
  unlink_returns_unfenced,
  batch_fresh_slot_not_saved,
  batch_entries_unfenced,
  batch_data_and_commit_in_one_group,
  batch_returns_unfenced,
  recovery_keeps_moved_entries,
  recovery_takes_the_older,
  recovery_drops_the_newer_first,
  recovery_ignores_the_tag,
  recovery_ignores_the_checksum,
  recovery_leaves_what_it_drops,
  recovery_zeroes_unfenced,
  recovery_ignores_the_undo_log,
};
inline constexpr int kOneFencePlants =
    static_cast<int>(OneFencePlant::recovery_ignores_the_undo_log);

struct OneFenceConfig {
  std::size_t threads = 2, keys = 4, blocks = 6, leaves = 3;
  std::size_t slots = 2;  // a slot line, at most kLineWords; one of them stays free for updates
  bool batches = false;
  OneFencePlant plant = OneFencePlant::none;
};

struct OneFenceOp {
  enum Kind { put, erase, give_up, settle, split, append, unlink, batch } kind;
  std::size_t key = 0;    // put, erase, give_up, batch; split, append, unlink: the leaf
  std::size_t other = 0;  // batch: the second key
  unsigned erases = 0;    // batch: bit 0 the first is an erase, bit 1 the second
};

class OneFence {
 public:
  using Op = OneFenceOp;
  using Step = std::function<void()>;

  OneFence(const OneFenceConfig& config, Memory& memory) : c_(config), m_(memory) {}

  static std::size_t flushers(const OneFenceConfig& c) { return c.threads; }
  Image empty_image() const { return Image(words(), 0); }

  void boot(bool adopt);
  std::vector<Op> possible(std::size_t t) const;
  std::vector<Step> plan(std::size_t t, const Op& op);
  std::string name_of(const Op& op) const;
  bool busy(std::size_t t) const { return running_[t].on; }
  void recover(Memory& m, const std::vector<std::size_t>& lanes) const;
  void close();
  std::string check(const Image& image) const;
  std::uint64_t state_hash() const;

 private:
  static constexpr std::size_t kUndoLines = 4;
  static constexpr std::size_t kSlotLines = 2;
  static constexpr std::size_t kLeafLines = 2 + kSlotLines;
  static constexpr std::size_t kNone = ~std::size_t{0};

  struct Change {
    std::size_t key;
    Word value;  // 0: erased
  };
  struct Running {
    bool on = false;
    OneFenceOp op{};
    std::vector<Change> changes;      // together or not at all
    std::vector<std::size_t> locked;  // leaves
  };
  struct Found {
    std::size_t leaf = 0, slot = kNone;
    Word word = 0;
  };
  struct Unsettled {
    std::size_t block, slot_at;
  };

  // A slot word: block, one bit of the record's checksum, a version modulo 4.
  static Word make_word(std::size_t block, Word head, Word version) {
    return block | (head & 1) << 8 | (version & 3) << 9;
  }
  static std::size_t block_of(Word word) { return word & 0xff; }
  static Word tag_of(Word word) { return word >> 8 & 1; }
  static Word version_of(Word word) { return word >> 9 & 3; }
  // A record's head: its checksum; the salt changes the bit that slot words carry.
  static Word make_head(Word key, Word value, Word salt) {
    return (mix(key * 1'000'003 + value) | 2) ^ salt;
  }

  // Layout: a lane a thread (commit line, undo lines), leaves (link, slots, separator), records,
  // and a word in which recovery says that what it found is damage.
  std::size_t committed_at(std::size_t t) const { return t * (1 + kUndoLines) * kLineWords; }
  std::size_t undo_at(std::size_t t, std::size_t i) const {
    return committed_at(t) + (1 + i) * kLineWords;
  }
  std::size_t leaf_at(std::size_t l) const {
    return (c_.threads * (1 + kUndoLines) + l * kLeafLines) * kLineWords;
  }
  std::size_t next_at(std::size_t l) const { return leaf_at(l); }  // leaf + 1; 0: the last
  std::size_t slot_at(std::size_t l, std::size_t i) const {
    return leaf_at(l) + (1 + i / c_.slots) * kLineWords + i % c_.slots;
  }
  std::size_t low_at(std::size_t l) const { return leaf_at(l) + (1 + kSlotLines) * kLineWords; }
  std::size_t record_at(std::size_t b) const {
    return leaf_at(c_.leaves) + (b - 1) * 2 * kLineWords;
  }
  std::size_t damage_at() const { return record_at(c_.blocks + 1); }
  std::size_t words() const { return damage_at() + kLineWords; }

  std::size_t slots() const { return kSlotLines * c_.slots; }
  std::size_t capacity() const { return kSlotLines * (c_.slots - 1); }
  bool planted(OneFencePlant p) const { return c_.plant == p; }

  std::size_t route(std::size_t key) const { return std::prev(index_.upper_bound(key))->second; }
  std::size_t count(std::size_t leaf) const { return sorted_slots(leaf).size(); }
  Found find(std::size_t key) const;
  std::vector<std::size_t> sorted_slots(std::size_t leaf) const;
  std::size_t left_of(std::size_t leaf) const;
  std::size_t free_slot(std::size_t leaf, const std::set<std::size_t>& taken) const;
  std::size_t free_beside(std::size_t leaf, std::size_t slot) const;
  bool whole(const Image& image, Word word) const;
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
  // Returns the head.
  Word put_record(std::vector<Step>& s, std::size_t t, std::size_t block, const Change& c);
  void put_insert(std::vector<Step>& s, std::size_t t, const Found& at, const Change& c);
  void put_update(std::vector<Step>& s, std::size_t t, const Found& at, const Change& c);
  void put_erase(std::vector<Step>& s, std::size_t t, const Found& at);
  void put_give_up(std::vector<Step>& s, std::size_t t, const Change& c);
  void put_settle(std::vector<Step>& s, std::size_t t);
  void put_split(std::vector<Step>& s, std::size_t t, std::size_t leaf, bool append);
  void put_unlink(std::vector<Step>& s, std::size_t t, std::size_t leaf);
  void put_batch(std::vector<Step>& s, std::size_t t);

  void undo(Memory& m, std::size_t t, std::vector<std::size_t>& retire) const;
  void recover_leaf(Memory& m, std::size_t leaf, std::size_t right) const;
  // The chain's leaves, or an error.
  std::string walk(const Image& image, std::vector<std::size_t>& leaves) const;
  std::string check_leaf(const Image& image, std::size_t leaf, Word low, Word end,
                         std::vector<Word>& values, std::set<std::size_t>& blocks) const;

  OneFenceConfig c_;
  Memory& m_;
  std::map<std::size_t, std::size_t> index_;  // low separator: leaf
  std::vector<Word> value_;                   // by key; 0: not there
  std::vector<bool> locked_;                  // by leaf
  std::vector<Running> running_;
  std::vector<std::vector<Unsettled>> unsettled_;  // by thread
  std::set<std::size_t> free_, free_leaves_;
  Word next_value_ = 0;
};

inline std::string OneFence::name_of(const Op& op) const {
  static const char* const kNames[] = {"put",   "erase",  "give_up", "settle",
                                       "split", "append", "unlink",  "batch"};
  std::string s = kNames[op.kind] + std::string("(") + std::to_string(op.key);
  if (op.kind == Op::batch) {
    s += (op.erases & 1 ? "-," : "+,") + std::to_string(op.other) + (op.erases & 2 ? "-" : "+");
  }
  return s + ")";
}

inline OneFence::Found OneFence::find(std::size_t key) const {
  Found f{route(key)};
  for (std::size_t i = 0; i < slots(); ++i) {
    const Word word = m_.load(slot_at(f.leaf, i));
    if (word != 0 && m_.load(record_at(block_of(word))) == key) f = {f.leaf, i, word};
  }
  return f;
}

inline std::vector<std::size_t> OneFence::sorted_slots(std::size_t leaf) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < slots(); ++i) {
    if (m_.load(slot_at(leaf, i)) != 0) found.push_back(i);
  }
  const auto key_in = [&](std::size_t i) {
    return m_.load(record_at(block_of(m_.load(slot_at(leaf, i)))));
  };
  std::sort(found.begin(), found.end(),
            [&](std::size_t a, std::size_t b) { return key_in(a) < key_in(b); });
  return found;
}

inline std::size_t OneFence::left_of(std::size_t leaf) const {
  std::size_t left = kNone;
  for (const auto& [low, l] : index_) {
    if (l == leaf) break;
    left = l;
  }
  return left;
}

// In a line that keeps one slot free. `taken`: by the same batch.
inline std::size_t OneFence::free_slot(std::size_t leaf, const std::set<std::size_t>& taken) const {
  for (std::size_t line = 0; line < kSlotLines; ++line) {
    std::size_t used = 0, empty = kNone;
    for (std::size_t i = line * c_.slots; i < (line + 1) * c_.slots; ++i) {
      const bool in_use = m_.load(slot_at(leaf, i)) != 0 || taken.contains(i);
      used += in_use ? 1 : 0;
      if (!in_use && empty == kNone) empty = i;
    }
    if (used + 1 < c_.slots) return empty;
  }
  return kNone;
}

inline std::size_t OneFence::free_beside(std::size_t leaf, std::size_t slot) const {
  const std::size_t line = slot / c_.slots;
  const std::size_t wanted = planted(OneFencePlant::update_in_another_line) ? 1 - line : line;
  for (std::size_t i = wanted * c_.slots; i < (wanted + 1) * c_.slots; ++i) {
    if (m_.load(slot_at(leaf, i)) == 0) return i;
  }
  return kNone;
}

// Whether the record fits the word that names it, and is not torn.
inline bool OneFence::whole(const Image& image, Word word) const {
  const std::size_t at = record_at(block_of(word));
  const Word head = image[at + 2];
  const bool fits = (head & 1) == tag_of(word) || planted(OneFencePlant::recovery_ignores_the_tag);
  const bool sound = (head | 1) == (make_head(image[at], image[at + 1], 0) | 1) &&
                     image[at + kLineWords] == image[at + 1];
  return fits && (sound || planted(OneFencePlant::recovery_ignores_the_checksum));
}

inline void OneFence::boot(bool adopt) {
  running_.assign(c_.threads, {});
  unsettled_.assign(c_.threads, {});
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
      const std::size_t block = block_of(m_.load(slot_at(l, i)));
      free_.erase(block);
      value_[m_.load(record_at(block))] = m_.load(record_at(block) + 1);
    }
    if (m_.load(next_at(l)) == 0) break;
  }
}

inline std::uint64_t OneFence::state_hash() const {
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
