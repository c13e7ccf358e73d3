// The protocols of malloc_to and free_from (src/heap/README.md) on a simulated persistent memory.
// The model has plain and versioned words, batches of two, swaps, and limbo. Each lane has a ring
// of intents whose lines also carry what is retired, and retired words. A block waits in quarantine
// while another lane's pending intent names a word in it. Other lanes are settled before a version
// wraps. alloc_model.cc decides what is run and planted.
//
// A block has one word. In a pointer block that word is a destination as the roots are (plain or
// versioned), so that containers are freed and reused. In a data block it is a number, which may
// look just like a pointer that was there. The check after a crash is exact. Acknowledged
// operations are there, others are there whole or not at all (each element of a batch by itself). A
// block is allocated exactly if a word points to it.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "memory.h"

namespace tenuto_model {

// Mistakes, each of which the exploration must find.
enum class AllocPlant {
  none,
  no_limbo,
  no_quarantine,
  no_seal,
  retired_with_destination_and_bit,
  released_with_retired_word,
  drain_without_first_fence,
  drain_without_second_fence,
  ring_slot_used_again_too_early,
  malloc_intent_unfenced,
  malloc_returns_unfenced,
  malloc_intent_stays,
  malloc_retired_before_fence,
  free_intent_unfenced,
  intent_sealed_first,
  sequence_starts_anew,
  lane_handed_on_without_fence,
  recovery_trusts_the_bit,
  recovery_ignores_the_retired_word,
  recovery_ignores_what_intents_carry,
  recovery_forgets_what_was_carried,
  recovery_keeps_the_destination,
  recovery_erases_before_fence,
  close_leaves_limbo,
  batch_line_unflushed,
  publish_contents_unfenced,
  tag_version_not_raised,
  tag_quarantine_for_frees_only,
  tag_bits_while_replaying,
  tag_bit_of_any_version,
  tag_free_by_version,
  swap_leaves_bits,
  swap_half_at_a_time,
  wrap_ignored,
  wrap_retires_own_lane_only,
  retire_others_without_fence,
};
inline constexpr int kAllocPlants = static_cast<int>(AllocPlant::retire_others_without_fence);

struct AllocConfig {
  std::size_t threads = 2, roots = 2, blocks = 2;
  std::size_t tagged_roots = 0;  // so many of the first roots are versioned
  unsigned version_bits = 7;     // few, so that versions wrap
  std::size_t ring = 4;          // intents of a lane
  bool roots_share_line = false;
  bool moves = true, hand_overs = false, batches = false;
  bool batch_shares_line = true;
  AllocPlant plant = AllocPlant::none;
};

struct AllocOp {
  // malloc_*: the contents of the block's own word; raw: any. batch_*: uses dest and other.
  enum Kind {
    malloc_pointer,
    malloc_tagged,
    malloc_data,
    malloc_raw,
    batch_malloc,
    free,
    batch_free,
    move,
    swap,
    hand_over,
    drain_idle
  } kind;
  std::size_t dest = 0, other = 0;  // destinations; malloc_data: other is the number's block
};

class AllocProtocol {
 public:
  using Op = AllocOp;
  using Step = std::function<void()>;

  AllocProtocol(const AllocConfig& config, Memory& memory) : c_(config), m_(memory) {}

  // One thread holds a lane and then another, whose fences do not cover the first one's flushes. So
  // a lane has two flushers.
  static std::size_t flushers(const AllocConfig& c) { return 2 * c.threads; }
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
  static constexpr std::size_t kNobody = ~std::size_t{0};
  static constexpr std::size_t kRetiredWords = 3;  // two by turns, and one for other lanes
  enum Intent : Word { kMalloc = 1, kFree, kTagMalloc, kTagFree, kSwap };
  enum class Type : std::uint8_t { none, pointer, tagged, data, raw };

  // What an intent says about a word: afterwards `dest` holds `block` (a free: nothing).
  struct Element {
    std::size_t dest = 0, block = 0;
    Word version = 0;
  };
  struct Line {
    Word op = 0, sequence = 0, carried = 0;
    std::vector<Element> elements;
  };
  struct Limbo {
    Word sequence = 0;
    std::size_t first_line = 0;
    std::vector<std::size_t> blocks, dests;
    bool frees = true;
  };
  // retired <= durable <= cleared <= sequence, and retired <= retiring
  struct Lane {
    std::size_t flusher = 0;
    bool idle = false;  // its thread has ended
    Word sequence = 0, cleared = 0, durable = 0, retiring = 0, retired = 0;
    std::size_t lines = 0, turn = 0;
    std::vector<Limbo> limbo;
    std::vector<std::size_t> quarantine;
  };
  struct Change {
    std::size_t dest = 0;
    Word after = 0;
    std::size_t block = 0;
    Type type = Type::none;  // of a block that is new
    Word fill = 0;           // its word
  };
  struct Running {
    bool on = false;
    Op op{};
    std::vector<Change> changes;
  };

  // Layout: lanes (ring, retired words), bitmap, roots, blocks.
  std::size_t lane_lines() const { return c_.ring + kRetiredWords; }
  std::size_t line_at(std::size_t t, std::size_t i) const {
    return (t * lane_lines() + i) * kLineWords;
  }
  std::size_t retired_at(std::size_t t, std::size_t i) const { return line_at(t, c_.ring + i); }
  std::size_t bitmap_at() const { return line_at(c_.threads, 0); }
  std::size_t dest_at(std::size_t d) const {
    const std::size_t first = bitmap_at() + kLineWords;
    if (d < c_.roots && c_.roots_share_line) return first + d;
    return first + d * kLineWords;
  }
  std::size_t dests() const { return c_.roots + c_.blocks; }
  std::size_t inner(std::size_t block) const { return c_.roots + block - 1; }
  std::size_t words() const { return dest_at(dests()); }

  // A word has its version in the high bits (0 if plain), and its block in bits 1 to 7.
  static Word pointer_to(std::size_t block) { return block == 0 ? 0 : block << 1 | 1; }
  static std::size_t block_of(Word raw) { return raw >> 1 & 127; }
  static Word version_of(Word raw) { return raw >> 8; }
  static Word tagged(Word version, std::size_t block) { return version << 8 | pointer_to(block); }
  bool older(Word version, Word than) const {
    const Word range = Word{1} << c_.version_bits;
    const Word ahead = (than - version) & (range - 1);
    return ahead != 0 && ahead < range / 2;
  }
  Word next_version(Word version) const {
    return (version + 1) & ((Word{1} << c_.version_bits) - 1);
  }
  bool is_tagged(std::size_t d) const {
    return d < c_.roots ? d < c_.tagged_roots : type_[d - c_.roots + 1] == Type::tagged;
  }
  bool is_pointer(std::size_t d) const {
    if (d < c_.roots) return true;
    const Type type = type_[d - c_.roots + 1];
    return type == Type::pointer || type == Type::tagged;
  }

  bool planted(AllocPlant p) const { return c_.plant == p; }
  bool is_allocated(const Image& image, std::size_t block) const {
    return (image[bitmap_at()] >> block & 1) != 0;
  }
  void set_bit(Memory& m, std::size_t flusher, std::size_t block, bool on) const {
    const Word bits = m.load(bitmap_at()), bit = Word{1} << block;
    m.store(bitmap_at(), on ? bits | bit : bits & ~bit);
    m.flush(flusher, bitmap_at());
  }
  bool usable(std::size_t t, std::size_t d) const;
  bool leaf(std::size_t d) const;
  void possible_pairs(std::size_t t, std::size_t d, std::vector<Op>& all) const;
  void release(std::size_t t, std::size_t block);
  void empty_quarantine(Lane& lane);
  void after_fence(std::size_t t);
  void release_retired(std::size_t t);

  void put_fence(std::vector<Step>& s, std::size_t t, bool of_protocol = true);
  void put_store(std::vector<Step>& s, std::size_t t, std::size_t word, Word value, bool flush);
  void put_intent(std::vector<Step>& s, std::size_t t, Intent op,
                  const std::vector<Element>& elements);
  Word put_intents(std::vector<Step>& s, std::size_t t, Intent op);
  void put_drain(std::vector<Step>& s, std::size_t t, std::size_t lane);
  void put_retire_naming(std::vector<Step>& s, std::size_t t, std::size_t dest);
  void put_effects(std::vector<Step>& s, std::size_t t, int bit);
  void put_pending(std::vector<Step>& s, std::size_t t, Word sequence, bool frees);
  void put_done(std::vector<Step>& s, std::size_t t, bool seal);
  void put_malloc(std::vector<Step>& s, std::size_t t);
  void put_free(std::vector<Step>& s, std::size_t t);
  void put_move(std::vector<Step>& s, std::size_t t);
  void put_swap(std::vector<Step>& s, std::size_t t);
  Word raised(std::size_t dest, std::size_t block) const;

  Line read_line(const Memory& m, std::size_t at) const;
  void replay_words(Memory& m, const Line& line) const;
  void replay_bits(Memory& m, const Line& line) const;
  // Checks what the image shows at destination d. `block` gets the block it names (0: none, or a
  // number).
  std::string check_dest(const Image& image, std::size_t d, std::size_t* block) const;

  AllocConfig c_;
  Memory& m_;
  // The application's state: contents of destinations and data blocks, and which thread uses them.
  std::vector<Word> value_;              // by destination
  std::vector<Type> type_;               // by block
  std::vector<std::size_t> dest_owner_;  // the thread that works on it
  std::vector<std::size_t> sealed_by_;   // by block, until that thread's next fence
  std::vector<Running> running_;
  std::vector<Lane> lanes_;
  std::set<std::size_t> free_;
};

inline std::string AllocProtocol::name_of(const Op& op) const {
  static const char* const kNames[] = {"malloc", "vmalloc", "data", "raw",  "malloc2", "free",
                                       "free2",  "move",    "swap", "exit", "drain"};
  return std::string(kNames[op.kind]) + "(" + std::to_string(op.dest) + "," +
         std::to_string(op.other) + ")";
}

inline void AllocProtocol::boot(bool adopt) {
  if (!adopt) {
    value_.assign(dests(), 0);
    type_.assign(c_.blocks + 1, Type::none);
  } else {
    for (const Running& r : running_) {
      if (!r.on) continue;
      const std::size_t d = r.op.dest;
      for (const Change& c : r.changes) {
        if (c.type != Type::none && m_.load(dest_at(c.dest)) == c.after) type_[c.block] = c.type;
      }
      if (r.op.kind == AllocOp::move && m_.load(dest_at(d)) != 0 &&
          m_.load(dest_at(r.op.other)) != 0) {
        // The application finishes its own move.
        m_.store(dest_at(d), 0);
        m_.flush(0, dest_at(d));
        m_.fence(0);
      }
    }
    for (std::size_t d = 0; d < dests(); ++d) value_[d] = m_.load(dest_at(d));
  }
  free_.clear();
  for (std::size_t b = 1; b <= c_.blocks; ++b) {
    if (is_allocated(m_.now(), b)) continue;
    free_.insert(b);
    type_[b] = Type::none;
  }
  running_.assign(c_.threads, {});
  dest_owner_.assign(dests(), kNobody);
  sealed_by_.assign(c_.blocks + 1, kNobody);
  lanes_.assign(c_.threads, {});
  for (std::size_t t = 0; t < c_.threads; ++t) {
    Lane& lane = lanes_[t];
    lane.flusher = t;
    if (planted(AllocPlant::sequence_starts_anew)) continue;
    for (std::size_t i = 0; i < kRetiredWords; ++i) {
      lane.sequence = std::max(lane.sequence, m_.load(retired_at(t, i)));
    }
    for (std::size_t i = 0; i < c_.ring; ++i) {
      lane.sequence = std::max(lane.sequence, m_.load(line_at(t, i)) >> 4);
    }
    lane.cleared = lane.durable = lane.retiring = lane.retired = lane.sequence;
  }
}

// --- recovery ------------------------------------------------------------------------------------

inline AllocProtocol::Line AllocProtocol::read_line(const Memory& m, std::size_t at) const {
  Line line;
  const Word seal = m.load(at);
  line.op = seal & 15;
  line.sequence = seal >> 4;
  line.carried = m.load(at + 3);
  for (std::size_t i = 1; i <= 2; ++i) {
    const Word w = m.load(at + i);
    if (w != 0) line.elements.push_back({(w >> 16) - 1, w >> 8 & 255, w & 255});
  }
  return line;
}

// Replays words first: whether a bit follows from a word is certain only once no other intent can
// change that word.
inline void AllocProtocol::replay_words(Memory& m, const Line& line) const {
  const auto set = [&](std::size_t d, Word value) {
    m.store(dest_at(d), value);
    m.flush(0, dest_at(d));
  };
  for (const Element& e : line.elements) {
    const Word raw = m.load(dest_at(e.dest));
    if (line.op == kFree && raw == pointer_to(e.block) &&
        !planted(AllocPlant::recovery_keeps_the_destination)) {
      set(e.dest, 0);
    }
    if (line.op >= kTagMalloc && older(version_of(raw), e.version)) {
      set(e.dest, tagged(e.version, line.op == kTagFree ? 0 : e.block));
    }
    if (line.op == kSwap && planted(AllocPlant::swap_half_at_a_time)) break;
  }
}

inline void AllocProtocol::replay_bits(Memory& m, const Line& line) const {
  for (const Element& e : line.elements) {
    if (e.block == 0) continue;
    const Word raw = m.load(dest_at(e.dest));
    bool allocated = false;
    if (line.op == kMalloc) {
      if (planted(AllocPlant::recovery_trusts_the_bit)) continue;
      allocated = raw == pointer_to(e.block);
    } else if (line.op == kTagMalloc || line.op == kSwap) {
      // Otherwise a later operation on the word has taken care of the block.
      const bool current = raw == tagged(e.version, e.block);
      if (!current && !planted(AllocPlant::tag_bit_of_any_version)) continue;
      allocated = true;
    } else if (line.op == kTagFree && planted(AllocPlant::tag_free_by_version)) {
      if (version_of(raw) != e.version) continue;
    }
    if (is_allocated(m.now(), e.block) != allocated) set_bit(m, 0, e.block, allocated);
  }
}

inline void AllocProtocol::recover(Memory& m, const std::vector<std::size_t>& lanes) const {
  std::vector<std::size_t> sealed;
  std::vector<Line> live;
  for (const std::size_t t : lanes) {
    Word retired = 0;
    for (std::size_t i = 0; i < kRetiredWords; ++i) {
      retired = std::max(retired, m.load(retired_at(t, i)));
    }
    const Word said = retired;
    if (planted(AllocPlant::recovery_ignores_the_retired_word)) retired = 0;
    const std::size_t before = sealed.size();
    for (std::size_t i = 0; i < c_.ring; ++i) {
      const std::size_t at = line_at(t, i);
      if (m.load(at) == 0) continue;
      sealed.push_back(at);
      if (planted(AllocPlant::recovery_ignores_what_intents_carry)) continue;
      retired = std::max(retired, m.load(at + 3));
    }
    for (std::size_t i = before; i < sealed.size(); ++i) {
      const Line line = read_line(m, sealed[i]);
      if (line.sequence > retired) live.push_back(line);
    }
    if (retired <= said || planted(AllocPlant::recovery_forgets_what_was_carried)) continue;
    m.store(retired_at(t, 0), retired);
    m.flush(0, retired_at(t, 0));
  }
  if (sealed.empty()) return;
  for (const Line& line : live) {
    replay_words(m, line);
    if (planted(AllocPlant::tag_bits_while_replaying)) replay_bits(m, line);
  }
  for (const Line& line : live) {
    if (!planted(AllocPlant::tag_bits_while_replaying)) replay_bits(m, line);
  }
  if (!planted(AllocPlant::recovery_erases_before_fence)) m.fence(0);
  for (const std::size_t at : sealed) {
    m.store(at, 0);
    m.flush(0, at);
  }
  m.fence(0);
}

// A clean close drains every lane. Afterwards its lines mean nothing.
inline void AllocProtocol::close() {
  for (std::size_t t = 0; t < c_.threads; ++t) {
    m_.fence(lanes_[t].flusher);  // each thread's work happened before
    if (planted(AllocPlant::close_leaves_limbo)) continue;
    std::vector<Step> steps;
    put_drain(steps, t, t);
    for (const Step& s : steps) s();
  }
}

// --- the judge -----------------------------------------------------------------------------------

inline std::string AllocProtocol::check_dest(const Image& image, std::size_t d,
                                             std::size_t* block) const {
  const Word raw = image[dest_at(d)];
  Word may[2] = {value_[d], value_[d]};
  for (const Running& r : running_) {
    if (!r.on) continue;
    for (const Change& c : r.changes) {
      if (c.dest == d) may[1] = c.after;
      // A block that its first owner is about to get: its word was filled before.
      if (c.type != Type::none && inner(c.block) == d) may[0] = may[1] = c.fill;
    }
  }
  if (raw != may[0] && raw != may[1]) {
    return "word " + std::to_string(d) + " is " + std::to_string(raw) + ", not " +
           std::to_string(may[0]) + " or " + std::to_string(may[1]);
  }
  *block = block_of(raw);
  return "";
}

inline std::string AllocProtocol::check(const Image& image) const {
  std::vector<Type> type = type_;
  for (const Running& r : running_) {
    if (!r.on) continue;
    for (const Change& c : r.changes) {
      if (c.type != Type::none) type[c.block] = c.type;
    }
  }
  std::vector<std::size_t> count(c_.blocks + 1, 0), from(c_.blocks + 1, 0);
  std::vector<std::size_t> todo;
  for (std::size_t d = 0; d < c_.roots; ++d) todo.push_back(d);
  while (!todo.empty()) {
    const std::size_t d = todo.back();
    todo.pop_back();
    std::size_t block = 0;
    if (d >= c_.roots && type[d - c_.roots + 1] == Type::raw) continue;
    if (std::string e = check_dest(image, d, &block); !e.empty()) return e;
    if (block == 0 || (d >= c_.roots && type[d - c_.roots + 1] == Type::data)) continue;
    // A move may be seen at both of its ends. A swap may not.
    const auto one_move = [&](const Running& r) {
      const bool ends = (r.op.dest == d && r.op.other == from[block]) ||
                        (r.op.other == d && r.op.dest == from[block]);
      return r.on && r.op.kind == AllocOp::move && ends;
    };
    if (count[block] > 0 && std::any_of(running_.begin(), running_.end(), one_move)) continue;
    from[block] = d;
    if (++count[block] > 1) return "block " + std::to_string(block) + " is reachable twice";
    todo.push_back(inner(block));
  }
  for (const Running& r : running_) {
    if (r.on && r.op.kind == AllocOp::move && count[r.changes[0].block] == 0)
      return "moved block lost";
  }
  for (std::size_t b = 1; b <= c_.blocks; ++b) {
    const bool allocated = is_allocated(image, b);
    if (count[b] != 0 && !allocated) return "block " + std::to_string(b) + " in use is free";
    if (count[b] == 0 && allocated) return "block " + std::to_string(b) + " leaks";
  }
  return "";
}

inline std::uint64_t AllocProtocol::state_hash() const {
  std::uint64_t h = 5;
  for (const Word v : value_) h = mix(h * 31 + v);
  for (const Type t : type_) h = mix(h * 31 + static_cast<std::uint64_t>(t));
  for (const Running& r : running_) {
    if (!r.on) continue;
    h = mix(h * 31 + static_cast<std::uint64_t>(r.op.kind) + 1);
    for (const Change& c : r.changes) {
      h = mix(h * 31 +
              (c.after << 20 | c.dest << 12 | c.block << 4 | static_cast<std::uint64_t>(c.type)));
      h = mix(h * 31 + c.fill);
    }
  }
  return h;
}

}  // namespace tenuto_model
