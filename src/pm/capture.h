// Medium `journal`, first half: flushes take pictures of lines, and a cut collects the pictures of
// one epoch. Called by media.cc (capture, fence) and journal.cc (cut). No I/O here.
//
// The protocol, checked by enumeration in tests/journal_model.cc. Each thread has a slot.
//
//   capture   cnt = odd | seq = stripe[line]++ (a full barrier) | tag = epoch | picture of the line
//             | buf[tag & 1][line] = {seq, picture} | cnt = even            never waits
//             no room for one more: cnt = even without a picture; it is taken after a cut
//   fence     waits until the epoch before the last tag is closed
//   cut of e  epoch = e + 1 | wait for every slot whose cnt is odd | closed = e   <- the cut
//             merge buf[e & 1] of all slots: of each line the picture with the highest seq
//
// What makes the pictures of the epochs up to a cut a state that a crash could have left:
//   - a capture tagged e is seen, and waited for: it entered before it read the epoch;
//   - a picture tagged after e contains every store flushed in e: its stores were visible (the
//     locked add) before it read an epoch that was published after them;
//   - within an epoch the highest seq is taken after the stores of all flushes of the line;
//   - a fence over a capture tagged e + 1 returns after the cut of e, so that what its caller does
//     next cannot be captured below what it depends on.
// A picture is one 64-byte load, so that it is a prefix of the line's stores whoever writes it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::pm {

struct alignas(kLineBytes) LineBytes {
  std::array<std::uint64_t, kLineBytes / 8> word;
};

// Pictures by line number; one a line. Grows, and keeps what it grew to.
class LineMap {
 public:
  // Replaces the picture of a line that is there.
  void put(std::uint64_t line, std::uint64_t sequence, const LineBytes& picture);
  // As put, but an older picture (lower sequence) never replaces a newer one.
  void merge(std::uint64_t line, std::uint64_t sequence, const LineBytes& picture);
  // The place of a line's next picture, to be written at once. find: nullptr when the line is not
  // there; add: REQUIRES that it is not there.
  LineBytes* find(std::uint64_t line, std::uint64_t sequence);
  LineBytes* add(std::uint64_t line, std::uint64_t sequence);
  // Asks for the memory that find will look at.
  void prefetch(std::uint64_t line) const {
    if (!index_.empty()) __builtin_prefetch(&index_[slot_of(line)]);
  }
  void clear();
  std::size_t size() const { return keys_.size(); }
  std::uint64_t line(std::size_t i) const { return keys_[i].line; }
  std::uint64_t sequence(std::size_t i) const { return keys_[i].sequence; }
  const LineBytes& picture(std::size_t i) const { return pictures_[i]; }

 private:
  struct Key {
    std::uint64_t line;
    std::uint64_t sequence;
  };
  struct Entry {
    std::uint64_t line;
    std::uint32_t generation;
    std::uint32_t at;
  };
  // Where in the index the line is, or could be put.
  std::size_t probe(std::uint64_t line) const {
    std::size_t i = slot_of(line);
    while (is_taken(i) && index_[i].line != line) i = (i + 1) & (index_.size() - 1);
    return i;
  }
  bool is_taken(std::size_t i) const { return index_[i].generation == generation_; }
  std::size_t slot_of(std::uint64_t line) const {
    return (line * 0x9e3779b97f4a7c15ull >> 20) & (index_.size() - 1);
  }
  void rehash(std::size_t slots);

  std::vector<Key> keys_;
  std::vector<LineBytes> pictures_;
  std::vector<Entry> index_;      // by hash, linear probing
  std::uint32_t generation_ = 1;  // entries of another one are empty
};

// Made by make_shared: threads that flushed keep it alive.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  explicit Capture(const std::byte* base) : base_(base) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Takes pictures of the lines of [p, p + bytes), which lie in the pool. Never waits; where
  // `limit` pictures wait for a cut, it stops and returns the first line it did not take. Else
  // nullptr. Not to be called by a signal handler.
  const std::byte* capture(const void* p, std::size_t bytes, std::uint64_t limit);

  // Pictures that wait for a cut, and room that threads hold for more.
  std::uint64_t pending_lines() const { return pending_lines_.load(std::memory_order_relaxed); }
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_seq_cst); }

  // Ends the current epoch e, merges its pictures into `out` (whatever is there is kept: it must be
  // empty) and returns e. One caller at a time.
  std::uint64_t cut(LineMap& out);

  // The fence of the calling thread, over all captures of all pools.
  static void fence_all();

 private:
  friend struct ThreadCaptures;
  struct alignas(kLineBytes) Slot {
    std::atomic<std::uint64_t> count = 0;  // odd while its thread takes pictures
    std::uint64_t last_tag = 0;            // of its thread since its last fence; 0: none
    // By parity of the epoch: its thread's while it takes pictures, then the cut's.
    alignas(kLineBytes) std::array<LineMap, 2> buffers;
    std::array<std::uint64_t, 2> room = {};  // for so many more pictures, counted as pending
  };
  struct alignas(kLineBytes) Stripe {
    std::atomic<std::uint64_t> sequence = 0;
  };
  static constexpr std::size_t kStripes = 256;

  Slot& mine();
  bool take_room(std::uint64_t& room, std::uint64_t limit);
  void fence(Slot& slot) const;

  const std::byte* const base_;
  std::array<Stripe, kStripes> stripes_;
  alignas(kLineBytes) std::atomic<std::uint64_t> epoch_ = 1;
  alignas(kLineBytes) std::atomic<std::uint64_t> closed_ = 0;  // all epochs up to it are cut
  alignas(kLineBytes) std::atomic<std::uint64_t> pending_lines_ = 0;
  // Guarded by mu_: the lists. A slot lives as long as this; its thread and cut() use it unlocked.
  std::mutex mu_;
  std::deque<Slot> slots_;
  std::vector<Slot*> idle_;
};

}  // namespace tenuto::inline TENUTO_ABI::pm
