// The protocols of malloc_to and free_from (src/heap/README.md) on a simulated persistent memory.
// The model has plain and versioned words, batches of two, swaps, and limbo. Each lane has a ring
// of intents whose lines also carry what is retired, and retired words. A block waits in quarantine
// while another lane's pending intent names a word in it. Other lanes are settled before a version
// wraps. This file has the lines, what the model knows of them, recovery and the check.
// alloc_protocol.h has the steps, and alloc_model.cc the cases that are run.
//
// A block has one word. In a pointer block that word is a destination as the roots are (plain or
// versioned), so that containers are freed and reused. In a data block it is a number, which may
// look just like a pointer that was there.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "explorer.h"

namespace tenuto_model {

struct AllocConfig {
  std::size_t threads = 2, roots = 2, blocks = 2;
  std::size_t tagged_roots = 0;  // so many of the first roots are versioned
  unsigned version_bits = 7;     // few, so that versions wrap
  std::size_t ring = 4;          // intents of a lane
  bool roots_share_line = false;
  bool moves = true, hand_overs = false, batches = false;
  bool batch_shares_line = true;
  const char* plant = nullptr;
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

enum class AllocType : std::uint8_t { none, pointer, tagged, data, raw };
struct AllocChange {
  std::size_t dest = 0;
  Word after = 0;
  std::size_t block = 0;
  AllocType type = AllocType::none;  // of a block that is new
  Word fill = 0;                     // its word
};
struct AllocRunning {
  bool on = false;
  AllocOp op{};
  std::vector<AllocChange> changes;
};

class AllocState : public Protocol<class AllocProtocol, AllocConfig, AllocRunning> {
 public:
  using Protocol::Protocol;

  // One thread holds a lane and then another, whose fences do not cover the first one's flushes. So
  // a lane has two flushers.
  static std::size_t flushers(const AllocConfig& c) { return 2 * c.threads; }
  std::size_t words() const { return dest_at(dests()); }

  void boot(bool adopt) {
    if (!adopt) {
      value_.assign(dests(), 0);
      type_.assign(c_.blocks + 1, AllocType::none);
    } else {
      for (const AllocRunning& r : running_) {
        if (!r.on) continue;
        const std::size_t d = r.op.dest;
        for (const AllocChange& c : r.changes) {
          if (c.type != AllocType::none && m_.load(dest_at(c.dest)) == c.after)
            type_[c.block] = c.type;
        }
        if (r.op.kind == AllocOp::move && m_.load(dest_at(d)) != 0 &&
            m_.load(dest_at(r.op.other)) != 0) {
          // The application finishes its own move.
          m_.store_and_flush(0, dest_at(d), 0);
          m_.fence(0);
        }
      }
      for (std::size_t d = 0; d < dests(); ++d) value_[d] = m_.load(dest_at(d));
    }
    free_.clear();
    for (std::size_t b = 1; b <= c_.blocks; ++b) {
      if (is_allocated(m_.now(), b)) continue;
      free_.insert(b);
      type_[b] = AllocType::none;
    }
    running_.assign(c_.threads, {});
    dest_owner_.assign(dests(), kNobody);
    sealed_by_.assign(c_.blocks + 1, kNobody);
    lanes_.assign(c_.threads, {});
    for (std::size_t t = 0; t < c_.threads; ++t) {
      Lane& lane = lanes_[t];
      lane.flusher = t;
      if (planted<"sequence_starts_anew">()) continue;
      for (std::size_t i = 0; i < kRetiredWords; ++i) {
        lane.sequence = std::max(lane.sequence, m_.load(retired_at(t, i)));
      }
      for (std::size_t i = 0; i < c_.ring; ++i) {
        lane.sequence = std::max(lane.sequence, m_.load(line_at(t, i)) >> 4);
      }
      lane.cleared = lane.durable = lane.retiring = lane.retired = lane.sequence;
    }
  }

  std::uint64_t state_hash() const {
    Hash h;
    for (const Word v : value_) h.add(v);
    for (const AllocType t : type_) h.add(static_cast<std::uint64_t>(t));
    for (const AllocRunning& r : running_) {
      if (!r.on) continue;
      h.add(static_cast<std::uint64_t>(r.op.kind) + 1);
      for (const AllocChange& c : r.changes) {
        h.add(c.after << 20 | c.dest << 12 | c.block << 4 | static_cast<std::uint64_t>(c.type));
        h.add(c.fill);
      }
    }
    return h.value();
  }

  std::string name_of(const AllocOp& op) const {
    static const char* const kNames[] = {"malloc", "vmalloc", "data", "raw",  "malloc2", "free",
                                         "free2",  "move",    "swap", "exit", "drain"};
    return std::string(kNames[op.kind]) + "(" + std::to_string(op.dest) + "," +
           std::to_string(op.other) + ")";
  }

  void recover(Memory& m, const std::vector<std::size_t>& lanes) const {
    std::vector<std::size_t> sealed;
    std::vector<Line> live;
    for (const std::size_t t : lanes) {
      Word retired = 0;
      for (std::size_t i = 0; i < kRetiredWords; ++i) {
        retired = std::max(retired, m.load(retired_at(t, i)));
      }
      const Word said = retired;
      if (planted<"recovery_ignores_the_retired_word">()) retired = 0;
      const std::size_t before = sealed.size();
      for (std::size_t i = 0; i < c_.ring; ++i) {
        const std::size_t at = line_at(t, i);
        if (m.load(at) == 0) continue;
        sealed.push_back(at);
        if (planted<"recovery_ignores_what_intents_carry">()) continue;
        retired = std::max(retired, m.load(at + 3));
      }
      for (std::size_t i = before; i < sealed.size(); ++i) {
        const Line line = read_line(m, sealed[i]);
        if (line.sequence > retired) live.push_back(line);
      }
      if (retired <= said || planted<"recovery_forgets_what_was_carried">()) continue;
      m.store_and_flush(0, retired_at(t, 0), retired);
    }
    if (sealed.empty()) return;
    for (const Line& line : live) {
      replay_words(m, line);
      if (planted<"tag_bits_while_replaying">()) replay_bits(m, line);
    }
    for (const Line& line : live) {
      if (!planted<"tag_bits_while_replaying">()) replay_bits(m, line);
    }
    if (!planted<"recovery_erases_before_fence">()) m.fence(0);
    for (const std::size_t at : sealed) m.store_and_flush(0, at, 0);
    m.fence(0);
  }

  // Exact. Acknowledged operations are there, others are there whole or not at all (each element of
  // a batch by itself). A block is allocated exactly if a word points to it.
  std::string check(const Image& image) const {
    std::vector<AllocType> type = type_;
    for (const AllocRunning& r : running_) {
      if (!r.on) continue;
      for (const AllocChange& c : r.changes) {
        if (c.type != AllocType::none) type[c.block] = c.type;
      }
    }
    std::vector<std::size_t> count(c_.blocks + 1, 0), from(c_.blocks + 1, 0);
    std::vector<std::size_t> todo;
    for (std::size_t d = 0; d < c_.roots; ++d) todo.push_back(d);
    while (!todo.empty()) {
      const std::size_t d = todo.back();
      todo.pop_back();
      std::size_t block = 0;
      if (d >= c_.roots && type[d - c_.roots + 1] == AllocType::raw) continue;
      if (std::string e = check_dest(image, d, &block); !e.empty()) return e;
      if (block == 0 || (d >= c_.roots && type[d - c_.roots + 1] == AllocType::data)) continue;
      // A move may be seen at both of its ends. A swap may not.
      const auto one_move = [&](const AllocRunning& r) {
        const bool ends = (r.op.dest == d && r.op.other == from[block]) ||
                          (r.op.other == d && r.op.dest == from[block]);
        return r.on && r.op.kind == AllocOp::move && ends;
      };
      if (count[block] > 0 && std::any_of(running_.begin(), running_.end(), one_move)) continue;
      from[block] = d;
      if (++count[block] > 1) return "block " + std::to_string(block) + " is reachable twice";
      todo.push_back(inner(block));
    }
    for (const AllocRunning& r : running_) {
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

 protected:
  static constexpr std::size_t kNobody = ~std::size_t{0};
  static constexpr std::size_t kRetiredWords = 3;  // two by turns, and one for other lanes
  enum Intent : Word { kMalloc = 1, kFree, kTagMalloc, kTagFree, kSwap };

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
    return d < c_.roots ? d < c_.tagged_roots : type_[d - c_.roots + 1] == AllocType::tagged;
  }
  bool is_pointer(std::size_t d) const {
    if (d < c_.roots) return true;
    const AllocType type = type_[d - c_.roots + 1];
    return type == AllocType::pointer || type == AllocType::tagged;
  }

  bool is_allocated(const Image& image, std::size_t block) const {
    return (image[bitmap_at()] >> block & 1) != 0;
  }
  void set_bit(Memory& m, std::size_t flusher, std::size_t block, bool on) const {
    const Word bits = m.load(bitmap_at()), bit = Word{1} << block;
    m.store_and_flush(flusher, bitmap_at(), on ? bits | bit : bits & ~bit);
  }

  // Whether thread t may use word d: it is a pointer word, its block is allocated, and no other
  // thread uses either of them.
  bool usable(std::size_t t, std::size_t d) const {
    if (dest_owner_[d] != kNobody) return false;
    const auto open = [&](std::size_t b) {
      return planted<"no_seal">() || sealed_by_[b] == kNobody || sealed_by_[b] == t;
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
  bool leaf(std::size_t d) const {
    const std::size_t b = block_of(value_[d]);
    if (b == 0 || dest_owner_[inner(b)] != kNobody) return false;
    return !is_pointer(inner(b)) || block_of(value_[inner(b)]) == 0;
  }

  // The word of `dest` once it points to `block`.
  Word raised(std::size_t dest, std::size_t block) const {
    if (!is_tagged(dest)) return pointer_to(block);
    const Word version = version_of(value_[dest]);
    if (planted<"tag_version_not_raised">() && block == 0) return tagged(version, 0);
    return tagged(next_version(version), block);
  }

  Line read_line(const Memory& m, std::size_t at) const {
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
  void replay_words(Memory& m, const Line& line) const {
    const auto set = [&](std::size_t d, Word value) { m.store_and_flush(0, dest_at(d), value); };
    for (const Element& e : line.elements) {
      const Word raw = m.load(dest_at(e.dest));
      if (line.op == kFree && raw == pointer_to(e.block) &&
          !planted<"recovery_keeps_the_destination">()) {
        set(e.dest, 0);
      }
      if (line.op >= kTagMalloc && older(version_of(raw), e.version)) {
        set(e.dest, tagged(e.version, line.op == kTagFree ? 0 : e.block));
      }
      if (line.op == kSwap && planted<"swap_half_at_a_time">()) break;
    }
  }

  void replay_bits(Memory& m, const Line& line) const {
    for (const Element& e : line.elements) {
      if (e.block == 0) continue;
      const Word raw = m.load(dest_at(e.dest));
      bool allocated = false;
      if (line.op == kMalloc) {
        if (planted<"recovery_trusts_the_bit">()) continue;
        allocated = raw == pointer_to(e.block);
      } else if (line.op == kTagMalloc || line.op == kSwap) {
        // Otherwise a later operation on the word has taken care of the block.
        const bool current = raw == tagged(e.version, e.block);
        if (!current && !planted<"tag_bit_of_any_version">()) continue;
        allocated = true;
      } else if (line.op == kTagFree && planted<"tag_free_by_version">()) {
        if (version_of(raw) != e.version) continue;
      }
      if (is_allocated(m.now(), e.block) != allocated) set_bit(m, 0, e.block, allocated);
    }
  }

  // Checks what the image shows at destination d. `block` gets the block it names (0: none, or a
  // number).
  std::string check_dest(const Image& image, std::size_t d, std::size_t* block) const {
    const Word raw = image[dest_at(d)];
    Word may[2] = {value_[d], value_[d]};
    for (const AllocRunning& r : running_) {
      if (!r.on) continue;
      for (const AllocChange& c : r.changes) {
        if (c.dest == d) may[1] = c.after;
        // A block that its first owner is about to get: its word was filled before.
        if (c.type != AllocType::none && inner(c.block) == d) may[0] = may[1] = c.fill;
      }
    }
    if (raw != may[0] && raw != may[1]) {
      return "word " + std::to_string(d) + " is " + std::to_string(raw) + ", not " +
             std::to_string(may[0]) + " or " + std::to_string(may[1]);
    }
    *block = block_of(raw);
    return "";
  }

  // The application's state: contents of destinations and data blocks, and which thread uses them.
  std::vector<Word> value_;              // by destination
  std::vector<AllocType> type_;          // by block
  std::vector<std::size_t> dest_owner_;  // the thread that works on it
  std::vector<std::size_t> sealed_by_;   // by block, until that thread's next fence
  std::vector<Lane> lanes_;
  std::set<std::size_t> free_;
};

}  // namespace tenuto_model
