// Medium `journal`, in memory: flushes take line images, and a cut collects the line images of one
// epoch. No I/O here.
//
// The protocol, checked by enumeration in tests/journal_model.cc. Each thread has a slot.
//
//   capture   cnt = odd | seq = stripe[line]++ (a full barrier) | tag = epoch | line image
//             | row[tag & 1] += {line, seq, line image} | cnt = even           never waits
//             If the thread's table of recent lines finds the line in the row, the new line image
//             and seq overwrite the old ones. If there is no room: cnt = even, retried after a cut.
//   fence     waits until the epoch before the last tag is closed
//   cut of e  epoch = e + 1 | wait for every slot whose cnt is odd | closed = e   <- the cut
//             take row[e & 1] of all slots; of each line the line image with the highest seq counts
//             (NewestImages in journal/lines.h, after the cut)
//
// Why the line images of the epochs up to a cut are a state that a crash could have left:
//   - The cut sees a capture tagged e and waits for it: the capture set cnt before it read the
//     epoch.
//   - A line image tagged after e contains every store flushed in e. Those stores were visible (the
//     locked add) before the capture read an epoch that was published after them.
//   - Within an epoch the line image with the highest seq is taken after the stores of all flushes
//     of the line.
//   - A fence over a capture tagged e + 1 returns after the cut of e. So what its caller does next
//     cannot be captured in an earlier epoch than what it depends on.
// A line image is the line at one point in time, so it is a prefix of the line's stores, whichever
// threads store. With AVX-512 it is one 64-byte load. Elsewhere it is two equal readings of all
// words, with no flush of the line (its stripe) begun from before the first to after the second.
// Why that is enough: a word with the same value in both readings had it all the time between,
// unless it changed and changed back. A thread that stores an earlier value again flushes the line
// in between. (A program that stores an earlier value over another without a flush between has no
// order within that line there, other than by its fences. See Medium::journal.)
//
// A flush appends to memory that is written in order. The table, some lines in the first cache,
// only keeps hot lines from filling the row. Older line images of a line may be in the row too.
// They change nothing: an image that is overwritten and one that loses to a higher seq are both
// dropped.
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

// Line images in the order in which they were taken. It grows and never shrinks.
class ImageRow {
 public:
  // Adds a line image at the end, which the caller writes at once; nullptr: no memory for it.
  LineBytes* add(std::uint64_t line, std::uint64_t sequence) {
    if (size_ == capacity_) [[unlikely]] {
      if (!grow()) return nullptr;
    }
    keys_[size_] = {line, sequence};
    return &images_[size_++];
  }
  // The image at i, which the caller overwrites at once; nullptr: it is not this line's.
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

// What a cut took: a row of each thread that flushed in the epoch. Rows are reused.
class CutRows {
 public:
  // Takes the contents of the row, and leaves an empty row there.
  void take(ImageRow& row);
  void clear();
  std::span<const ImageRow> rows() const { return {rows_.data(), used_}; }
  std::size_t images() const;

 private:
  std::vector<ImageRow> rows_;  // those behind the used ones are empty
  std::size_t used_ = 0;
};

// Made by make_shared, because threads that flushed keep it alive.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  explicit Capture(const std::byte* base) : base_(base) {}
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Takes line images of the lines of [p, p + bytes), which are in the pool, and returns nullptr.
  // Never waits. It stops where `limit` line images wait for a cut, or where there is no memory for
  // one (*no_memory). Then it returns the first line it did not take. It throws nothing: an
  // exception would leave cnt odd, and every later cut would wait for it. Not for signal handlers.
  const std::byte* capture(const void* p, std::size_t bytes, std::uint64_t limit,
                           bool* no_memory = nullptr);

  // Line images that wait for a cut, plus the room that threads hold for more.
  std::uint64_t pending_lines() const { return pending_lines_.load(std::memory_order_relaxed); }
  std::uint64_t epoch() const { return epoch_.load(std::memory_order_seq_cst); }

  // Ends the current epoch e, adds its line images to `out` and returns e. One caller at a time.
  std::uint64_t cut(CutRows& out);

  // The fence of the calling thread, over all captures of all pools.
  static void fence_all();

 private:
  friend struct ThreadCaptures;
  // Slots are linked to each other, so that a flush allocates only slots and rows, and handles the
  // lack of memory for them itself.
  struct alignas(kLineBytes) Slot {
    std::atomic<std::uint64_t> count = 0;  // odd while its thread takes line images
    std::uint64_t last_tag = 0;            // of the thread since its last fence; 0: none
    // By parity of the epoch. The thread's while it takes line images, then the cut's.
    alignas(kLineBytes) std::array<ImageRow, 2> rows;
    std::array<std::uint64_t, 2> room = {};  // for this many more line images; counted as pending
    // By hash of the line: a hint where its line image is in a row. The thread's own.
    struct Recent {
      std::uint32_t line = 0;  // low half
      std::uint32_t at = 0;
    };
    static constexpr unsigned kRecentBits = 9;
    std::array<Recent, 1u << kRecentBits> recent;
    // The thread's own: keeps the Capture alive while a thread holds the slot; the thread's next
    // slot.
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
  alignas(kLineBytes) std::atomic<std::uint64_t> closed_ = 0;  // all epochs <= this are cut
  alignas(kLineBytes) std::atomic<std::uint64_t> pending_lines_ = 0;
  // Guarded by mu_: the lists. A slot exists as long as the Capture. Its thread and cut() use it
  // unlocked.
  std::mutex mu_;
  Slot* slots_ = nullptr;
  Slot* idle_ = nullptr;
};

}  // namespace TENUTO_NS::pm
