// The protocols of malloc_to and free_from (src/heap/README.md) on a simulated persistent memory:
// R2F with two intent lines a lane, F1 with a ring of free intents, limbo, the retired word, and
// the quarantine of blocks in which another lane's pending free still names a word. Used by
// alloc_model.cc, which says what is run and planted.
//
// A block has one word. As a pointer block that word is a destination like the roots are, so that
// containers are freed and used again; as a data block it holds a number, which may look just like
// a pointer that stood there. What must hold after a crash is exact: acknowledged operations are
// there, others all or nothing, and a block is allocated exactly if something points to it.
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
  free_intent_unfenced,
  intent_sealed_first,
  sequence_starts_anew,
  lane_handed_on_without_fence,
  recovery_trusts_the_bit,
  recovery_ignores_the_retired_word,
  recovery_keeps_the_destination,
  recovery_erases_before_fence,
  close_leaves_limbo,
};
inline constexpr int kAllocPlants = static_cast<int>(AllocPlant::close_leaves_limbo);

struct AllocConfig {
  std::size_t threads = 2, roots = 2, blocks = 2;
  std::size_t ring = 3;  // free intents a lane
  bool roots_share_line = false;
  bool moves = true, hand_overs = false;
  AllocPlant plant = AllocPlant::none;
};

struct AllocOp {
  enum Kind { malloc_pointer, malloc_data, free, move, hand_over, drain_idle } kind;
  std::size_t dest = 0, other = 0;  // destinations; malloc_data: other is the number's block
};

class AllocProtocol {
 public:
  using Op = AllocOp;
  using Step = std::function<void()>;

  AllocProtocol(const AllocConfig& config, Memory& memory) : c_(config), m_(memory) {}

  // A lane is held by one thread and then by another, whose fences do not cover the first one's
  // flushes.
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
  static constexpr std::size_t kMallocLines = 2;  // any number does
  enum Intent : Word { kMalloc = 1, kFree = 2 };
  enum class Type : std::uint8_t { none, pointer, data };
  enum class Stage : std::uint8_t { cleared, durable, retiring };

  struct Limbo {
    std::size_t block, dest;
    Word sequence;
    Stage stage;
  };
  struct Lane {
    std::size_t flusher = 0;
    bool idle = false;  // its thread has ended
    Word sequence = 0;
    std::size_t mallocs = 0, frees = 0;
    std::vector<Limbo> limbo;
    std::vector<std::size_t> quarantine;
  };
  struct Running {
    bool on = false;
    Op op{};
    std::size_t block = 0;
    Type type = Type::none;
  };

  // Layout: lanes (malloc lines, ring, retired line), bitmap, roots, blocks.
  std::size_t lane_lines() const { return kMallocLines + c_.ring + 1; }
  std::size_t line_at(std::size_t t, std::size_t i) const {
    return (t * lane_lines() + i) * kLineWords;
  }
  std::size_t retired_at(std::size_t t) const { return line_at(t, kMallocLines + c_.ring); }
  std::size_t bitmap_at() const { return line_at(c_.threads, 0); }
  std::size_t dest_at(std::size_t d) const {
    const std::size_t first = bitmap_at() + kLineWords;
    if (d < c_.roots && c_.roots_share_line) return first + d;
    return first + d * kLineWords;
  }
  std::size_t dests() const { return c_.roots + c_.blocks; }
  std::size_t inner(std::size_t block) const { return c_.roots + block - 1; }
  std::size_t words() const { return dest_at(dests()); }
  static Word pointer_to(std::size_t block) { return block << 1 | 1; }
  static std::size_t block_of(Word raw) { return raw >> 1; }

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
  void release(std::size_t t, std::size_t block);
  void empty_quarantine(Lane& lane);
  void before_fence(std::size_t t);
  void after_fence(std::size_t t);
  void retire_done(std::size_t t, Stage stage);

  void put_fence(std::vector<Step>& s, std::size_t t, bool of_protocol = true);
  void put_store(std::vector<Step>& s, std::size_t t, std::size_t word, Word value, bool flush);
  void put_intent(std::vector<Step>& s, std::size_t t, std::size_t line, Intent op,
                  std::size_t block, std::size_t dest, Word sequence);
  void put_drain(std::vector<Step>& s, std::size_t t, std::size_t lane);
  void put_malloc(std::vector<Step>& s, std::size_t t);
  void put_free(std::vector<Step>& s, std::size_t t);
  void put_move(std::vector<Step>& s, std::size_t t);

  // What image may show at destination d, and which block that is (0: none, or a number).
  std::string check_dest(const Image& image, std::size_t d, std::size_t* block) const;

  AllocConfig c_;
  Memory& m_;
  // The application's state: what destinations and data blocks hold, and who may not touch them.
  std::vector<Word> value_;              // by destination
  std::vector<Type> type_;               // by block
  std::vector<std::size_t> dest_owner_;  // the thread at work on it
  std::vector<std::size_t> sealed_by_;   // by block; until that thread's next fence
  std::vector<Running> running_;
  std::vector<Lane> lanes_;
  std::set<std::size_t> free_;
};

inline std::string AllocProtocol::name_of(const Op& op) const {
  static const char* const kNames[] = {"malloc", "data", "free", "move", "exit", "drain"};
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
      const Word found = r.op.kind <= AllocOp::move ? m_.load(dest_at(d)) : 0;
      if (r.op.kind <= AllocOp::malloc_data && found != 0) type_[r.block] = r.type;
      if (r.op.kind == AllocOp::move && found != 0 && m_.load(dest_at(r.op.other)) != 0) {
        // The application ends its own move.
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
    lanes_[t].flusher = t;
    if (planted(AllocPlant::sequence_starts_anew)) continue;
    lanes_[t].sequence = m_.load(retired_at(t));
    for (std::size_t i = 0; i < kMallocLines + c_.ring; ++i) {
      lanes_[t].sequence = std::max(lanes_[t].sequence, m_.load(line_at(t, i)) >> 2);
    }
  }
}

inline void AllocProtocol::recover(Memory& m, const std::vector<std::size_t>& lanes) const {
  std::vector<std::size_t> sealed;
  for (const std::size_t t : lanes) {
    const Word retired =
        planted(AllocPlant::recovery_ignores_the_retired_word) ? 0 : m.load(retired_at(t));
    for (std::size_t i = 0; i < kMallocLines + c_.ring; ++i) {
      const std::size_t at = line_at(t, i);
      const Word seal = m.load(at);
      if (seal == 0) continue;
      sealed.push_back(at);
      const std::size_t block = m.load(at + 1), dest = m.load(at + 2);
      if ((seal & 3) == kFree && seal >> 2 <= retired) continue;
      const bool attached = m.load(dest_at(dest)) == pointer_to(block);
      const bool allocated = (seal & 3) == kMalloc && attached;
      if ((seal & 3) == kFree && attached && !planted(AllocPlant::recovery_keeps_the_destination)) {
        m.store(dest_at(dest), 0);
        m.flush(0, dest_at(dest));
      }
      if ((seal & 3) == kMalloc && planted(AllocPlant::recovery_trusts_the_bit)) continue;
      if (is_allocated(m.now(), block) != allocated) set_bit(m, 0, block, allocated);
    }
  }
  if (sealed.empty()) return;
  if (!planted(AllocPlant::recovery_erases_before_fence)) m.fence(0);
  for (const std::size_t at : sealed) {
    m.store(at, 0);
    m.flush(0, at);
  }
  m.fence(0);
}

// A clean close: every lane is drained, after which its lines say nothing.
inline void AllocProtocol::close() {
  for (std::size_t t = 0; t < c_.threads; ++t) {
    m_.fence(lanes_[t].flusher);  // each thread's work happened before
    if (planted(AllocPlant::close_leaves_limbo)) continue;
    std::vector<Step> steps;
    put_drain(steps, t, t);
    for (const Step& s : steps) s();
  }
}

inline std::string AllocProtocol::check_dest(const Image& image, std::size_t d,
                                             std::size_t* block) const {
  const Word raw = image[dest_at(d)];
  Word may[3] = {value_[d], value_[d], value_[d]};
  for (const Running& r : running_) {
    if (!r.on || r.op.kind > AllocOp::move) continue;
    if (r.op.dest == d) may[1] = r.op.kind <= AllocOp::malloc_data ? pointer_to(r.block) : 0;
    if (r.op.kind == AllocOp::move && r.op.other == d) may[1] = pointer_to(r.block);
    // A block under way to its first owner: its word was filled before.
    if (r.op.kind <= AllocOp::malloc_data && inner(r.block) == d) {
      may[0] = may[1] = may[2] = r.op.kind == AllocOp::malloc_data ? pointer_to(r.op.other) : 0;
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
    if (r.on && r.op.kind <= AllocOp::malloc_data) type[r.block] = r.type;
  }
  std::vector<std::size_t> count(c_.blocks + 1, 0), from(c_.blocks + 1, 0);
  std::vector<std::size_t> todo;
  for (std::size_t d = 0; d < c_.roots; ++d) todo.push_back(d);
  while (!todo.empty()) {
    const std::size_t d = todo.back();
    todo.pop_back();
    std::size_t block = 0;
    if (std::string e = check_dest(image, d, &block); !e.empty()) return e;
    if (block == 0 || (d >= c_.roots && type[d - c_.roots + 1] == Type::data)) continue;
    // A move may be seen at both ends.
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
    if (r.on && r.op.kind == AllocOp::move && count[r.block] == 0) return "moved block lost";
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
    const std::uint64_t op = static_cast<std::uint64_t>(r.op.kind) + 1;
    h = mix(h * 31 + (op << 24 | r.op.dest << 16 | r.op.other << 8 | r.block));
  }
  return h;
}

}  // namespace tenuto_model
