// Medium `journal`, first half: flushes take line images, and a cut collects the line images of
// one epoch. No I/O here.
//
// The protocol, checked by enumeration in tests/journal_model.cc. Each thread has a slot.
//
//   capture   cnt = odd | seq = stripe[line]++ (a full barrier) | tag = epoch | line image
//             | row[tag & 1] += {line, seq, line image} | cnt = even           never waits
//             a line that the thread's table of recent lines finds in the row: over its line image,
//             with the new seq; no room for one more: cnt = even, taken after a cut
//   fence     waits until the epoch before the last tag is closed
//   cut of e  epoch = e + 1 | wait for every slot whose cnt is odd | closed = e   <- the cut
//             take row[e & 1] of all slots; of each line the line image with the highest seq counts
//             (newest_images in journal/lines.h, after the cut)
//
// What makes the line images of the epochs up to a cut a state that a crash could have left:
//   - a capture tagged e is seen, and waited for: it entered before it read the epoch;
//   - a line image tagged after e contains every store flushed in e: its stores were visible (the
//     locked add) before it read an epoch that was published after them;
//   - within an epoch the highest seq is taken after the stores of all flushes of the line;
//   - a fence over a capture tagged e + 1 returns after the cut of e, so that what its caller does
//     next cannot be captured below what it depends on.
// A line image is of one moment, so that it is a prefix of the line's stores whoever writes it: one
// 64-byte load where the processor has AVX-512. Elsewhere it is two readings of all words that
// agree, with no flush of the line (its stripe) begun from before the first to after the second.
// Why that is enough: a word that had one value at both readings had it all the time between them,
// unless it left it and returned to it; and what returns is flushed in between. (A program that
// stores a former value over another without a flush between the two has no order within that line
// there, other than by its fences: Medium::journal says so.)
//
// A flush appends to memory that was touched in order; the table, some lines of the first cache,
// only keeps hot lines from filling it. That the older line images of a line stand in the row too
// changes nothing: whether one is overwritten or loses to a higher seq later is the same.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "pm/process.h"
#include "tenuto/abi.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

struct alignas(kLineBytes) LineBytes {
  std::array<std::uint64_t, kLineBytes / 8> word;
};

// Line images in the order they were taken. Grows, and keeps what it grew to.
class ImageRow {
 public:
  // The place of a new line image at the end, to be written at once; nullptr: no memory for it.
  LineBytes* add(std::uint64_t line, std::uint64_t sequence) {
    if (size_ == capacity_) [[unlikely]] {
      if (!grow()) return nullptr;
    }
    keys_[size_] = {line, sequence};
    return &images_[size_++];
  }
  // The place of the line's next line image over the one at i; nullptr when that is not the line's.
  LineBytes* replace(std::size_t i, std::uint64_t line, std::uint64_t sequence) {
    if (i >= size_ || keys_[i].line != line) return nullptr;
    keys_[i].sequence = sequence;
    return &images_[i];
  }
  void clear() { size_ = 0; }
  std::size_t size() const { return size_; }
  std::uint64_t line(std::size_t i) const { return keys_[i].line; }
  std::uint64_t sequence(std::size_t i) const { return keys_[i].sequence; }
  const LineBytes& image(std::size_t i) const { return images_[i]; }

 private:
  struct Key {
    std::uint64_t line;
    std::uint64_t sequence;
  };
  bool grow();

  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::unique_ptr<Key[]> keys_;
  std::unique_ptr<LineBytes[]> images_;
};

// What a cut took: a row of each thread that flushed in the epoch. Rows are used again.
class CutRows {
 public:
  // Takes what is in the row, and leaves an empty one there.
  void take(ImageRow& row);
  void clear();
  std::span<const ImageRow> rows() const { return {rows_.data(), used_}; }
  std::size_t images() const;

 private:
  std::vector<ImageRow> rows_;  // behind the used ones: empty
  std::size_t used_ = 0;
};

// Made by make_shared: threads that flushed keep it alive.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  explicit Capture(const std::byte* base) : base_(base) {}
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Takes line images of the lines of [p, p + bytes), which lie in the pool. Never waits; where
  // `limit` line images wait for a cut, or there is no memory for one (which is told), it stops and
  // returns the first line it did not take. Else nullptr. Throws nothing: an exception would leave
  // the slot announced, and every later cut waiting for it. Not to be called by a signal handler.
  const std::byte* capture(const void* p, std::size_t bytes, std::uint64_t limit,
                           bool* no_memory = nullptr);

  // Line images that wait for a cut, and room that threads hold for more.
  std::uint64_t pending_lines() const { return pending_lines_.load(std::memory_order_relaxed); }
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_seq_cst); }

  // Ends the current epoch e, adds its line images to `out` and returns e. One caller at a time.
  std::uint64_t cut(CutRows& out);

  // The fence of the calling thread, over all captures of all pools.
  static void fence_all();

 private:
  friend struct ThreadCaptures;
  // Linked by itself, so that a flush allocates nothing but slots and rows, and finds out when
  // there is no memory for these.
  struct alignas(kLineBytes) Slot {
    std::atomic<std::uint64_t> count = 0;  // odd while its thread takes line images
    std::uint64_t last_tag = 0;            // of its thread since its last fence; 0: none
    // By parity of the epoch: its thread's while it takes line images, then the cut's.
    alignas(kLineBytes) std::array<ImageRow, 2> rows;
    std::array<std::uint64_t, 2> room = {};  // for so many more line images, counted as pending
    // By hash of the line: where in a row its line image may stand. Its thread's; the row decides.
    struct Recent {
      std::uint32_t line = 0;  // low half
      std::uint32_t at = 0;
    };
    static constexpr unsigned kRecentBits = 9;
    std::array<Recent, 1u << kRecentBits> recent;
    // Its thread's: keeps the Capture while a thread holds the slot, and the thread's next one.
    std::shared_ptr<Capture> capture;
    Slot* held = nullptr;
    // Guarded by mu_.
    Slot* idle = nullptr;
    Slot* older = nullptr;  // constant
  };
  struct alignas(kLineBytes) Stripe {
    std::atomic<std::uint64_t> sequence = 0;
  };
  static constexpr std::size_t kStripes = 256;

  Slot* mine();
  Slot* find_mine();
  LineBytes* place(Slot& slot, std::uint64_t line, std::uint64_t sequence, std::uint64_t tag,
                   std::uint64_t limit);
  bool take_room(std::uint64_t& room, std::uint64_t limit);
  void fence(Slot& slot) const;

  const std::byte* const base_;
  const std::uint64_t process_ = this_process();
  std::array<Stripe, kStripes> stripes_;
  alignas(kLineBytes) std::atomic<std::uint64_t> epoch_ = 1;
  alignas(kLineBytes) std::atomic<std::uint64_t> closed_ = 0;  // all epochs up to it are cut
  alignas(kLineBytes) std::atomic<std::uint64_t> pending_lines_ = 0;
  // Guarded by mu_: the lists. A slot lives as long as this; its thread and cut() use it unlocked.
  std::mutex mu_;
  Slot* slots_ = nullptr;
  Slot* idle_ = nullptr;
};

}  // namespace TENUTO_NS::pm
