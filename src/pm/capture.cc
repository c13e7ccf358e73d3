#include "pm/capture.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "pm/plant.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::pm {

// --- pictures ------------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t kRoomLines = 16;  // a thread takes at once

bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") != 0;
  return has;
}

// A picture of the line as it was at one moment. With AVX-512 it is one aligned 64-byte load, which
// the processors that have it do not tear. Without, the line is read until two readings in a row
// agree: a line that changes and changes back between the two could be mistaken, which takes two
// stores of another thread to one line within some nanoseconds.
void take_picture(LineBytes& to, const void* line) {
  if (has_avx512()) [[likely]] {
    // The register is one that code compiled without AVX-512 does not use.
    asm volatile("vmovdqa64 (%1), %%zmm16\n\tvmovdqa64 %%zmm16, (%0)"
                 :
                 : "r"(&to), "r"(line)
                 : "memory"
#ifdef __AVX512F__
                   ,
                   "xmm16"
#endif
    );
    return;
  }
  const auto* words = static_cast<const std::uint64_t*>(line);
  const auto read = [words](LineBytes& into) {
    for (std::size_t i = 0; i < into.word.size(); ++i) {
      into.word[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
    }
  };
  LineBytes again;
  read(to);
  for (read(again); again.word != to.word; read(again)) to = again;
}

}  // namespace

void PictureRow::grow() {
  const std::size_t capacity = std::max<std::size_t>(64, capacity_ * 2);
  auto keys = std::make_unique_for_overwrite<Key[]>(capacity);
  auto pictures = std::make_unique_for_overwrite<LineBytes[]>(capacity);
  std::copy_n(keys_.get(), size_, keys.get());
  std::copy_n(pictures_.get(), size_, pictures.get());
  keys_ = std::move(keys);
  pictures_ = std::move(pictures);
  capacity_ = capacity;
}

void CutRows::take(PictureRow& row) {
  if (row.size() == 0) return;
  if (used_ == rows_.size()) rows_.emplace_back();
  std::swap(rows_[used_++], row);
}

void CutRows::clear() {
  for (std::size_t i = 0; i < used_; ++i) rows_[i].clear();
  used_ = 0;
}

std::size_t CutRows::pictures() const {
  std::size_t n = 0;
  for (const PictureRow& row : rows()) n += row.size();
  return n;
}

// --- threads -------------------------------------------------------------------------------------

// The slots a thread has, one a pool, latest used first. They keep their Capture alive: a pool may
// be closed while a thread still has flushes to fence.
struct ThreadCaptures {
  struct Held {
    std::shared_ptr<Capture> capture;
    Capture::Slot* slot;
  };
  std::vector<Held> held;

  // What stands in the buffers of a thread that ends belongs to its epoch's cut all the same.
  ~ThreadCaptures() {
    for (const Held& h : held) {
      const std::lock_guard lock(h.capture->mu_);
      h.capture->idle_.push_back(h.slot);
    }
  }
};

namespace {
thread_local ThreadCaptures thread_captures;
}

Capture::Slot& Capture::mine() {
  std::vector<ThreadCaptures::Held>& held = thread_captures.held;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i].capture.get() != this) continue;
    if (i != 0) std::swap(held[i], held[0]);
    return *held[0].slot;
  }
  std::erase_if(held, [](const auto& h) { return h.capture.use_count() == 1; });  // of closed pools
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mu_);
    if (idle_.empty()) {
      slot = &slots_.emplace_back();
    } else {
      slot = idle_.back();
      idle_.pop_back();
    }
  }
  slot->last_tag = 0;
  held.insert(held.begin(), {shared_from_this(), slot});
  return *slot;
}

// --- the protocol --------------------------------------------------------------------------------

// Some at a time, so that threads seldom meet here. What an epoch leaves is counted off by its cut.
bool Capture::take_room(std::uint64_t& room, std::uint64_t limit) {
  for (const std::uint64_t lines : {kRoomLines, std::uint64_t{1}}) {
    if (pending_lines_.fetch_add(lines, std::memory_order_relaxed) + lines <= limit) {
      room = lines;
      return true;
    }
    pending_lines_.fetch_sub(lines, std::memory_order_relaxed);
  }
  return false;
}

LineBytes* Capture::place(Slot& slot, std::uint64_t line, std::uint64_t sequence, std::uint64_t tag,
                          std::uint64_t limit) {
  PictureRow& row = slot.rows[tag & 1];
  Slot::Recent& recent = slot.recent[line * 0x9e3779b97f4a7c15ull >> (64 - Slot::kRecentBits)];
  if (recent.line == static_cast<std::uint32_t>(line)) {
    LineBytes* const again = row.replace(recent.at, line, sequence);
    if (again != nullptr) return again;
  }
  std::uint64_t& room = slot.room[tag & 1];
  while (room == 0 && !take_room(room, limit)) {
    if (!TENUTO_PLANT("journal_capture_waits_for_room")) return nullptr;
  }
  room -= 1;
  recent = {static_cast<std::uint32_t>(line), static_cast<std::uint32_t>(row.size())};
  return row.add(line, sequence);
}

const std::byte* Capture::capture(const void* p, std::size_t bytes, std::uint64_t limit) {
  Slot& slot = mine();
  const std::uint64_t first = static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - base_);
  const std::uint64_t end = (first + bytes + kLineBytes - 1) / kLineBytes;
  const std::uint64_t entered = slot.count.load(std::memory_order_relaxed) + 1;
  slot.count.store(entered, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::uint64_t line = first / kLineBytes;
  for (; line < end; ++line) {
    std::atomic<std::uint64_t>& stripe = stripes_[line % kStripes].sequence;
    const std::uint64_t sequence = stripe.fetch_add(1, std::memory_order_seq_cst) + 1;
    std::uint64_t tag = epoch_.load(std::memory_order_seq_cst);
    const bool tagged_once = TENUTO_PLANT("journal_tag_once_a_fence");
    if (tagged_once && slot.last_tag != 0) tag = slot.last_tag;
    LineBytes* const picture = place(slot, line, sequence, tag, limit);
    if (picture == nullptr) break;
    take_picture(*picture, base_ + line * kLineBytes);
    slot.last_tag = tag;
  }
  slot.count.store(entered + 1, std::memory_order_release);
  return line < end ? base_ + line * kLineBytes : nullptr;
}

void Capture::fence(Slot& slot) const {
  for (unsigned spins = 0; closed_.load(std::memory_order_acquire) + 1 < slot.last_tag; ++spins) {
    if (spins < 1000) {
      _mm_pause();
    } else {
      ::sched_yield();
    }
  }
  slot.last_tag = 0;
}

void Capture::fence_all() {
  for (const ThreadCaptures::Held& h : thread_captures.held) {
    if (h.slot->last_tag != 0) h.capture->fence(*h.slot);
  }
}

std::uint64_t Capture::cut(CutRows& out) {
  const std::uint64_t e = epoch_.load(std::memory_order_relaxed);
  epoch_.exchange(e + 1, std::memory_order_seq_cst);  // a full barrier, before the slots are read
  std::vector<Slot*> slots;
  {
    // A slot that is made after this was entered after the epoch was published.
    const std::lock_guard lock(mu_);
    slots.reserve(slots_.size());
    for (Slot& s : slots_) slots.push_back(&s);
  }
  for (const Slot* s : slots) {
    const std::uint64_t c = s->count.load(std::memory_order_acquire);
    if ((c & 1) == 0) continue;
    for (unsigned spins = 0; s->count.load(std::memory_order_acquire) == c; ++spins) {
      if (spins < 1000) {
        _mm_pause();
      } else {
        ::sched_yield();
      }
    }
  }
  closed_.store(e, std::memory_order_release);
  for (Slot* s : slots) {
    PictureRow& row = s->rows[e & 1];
    const std::uint64_t room = std::exchange(s->room[e & 1], 0);
    pending_lines_.fetch_sub(row.size() + room, std::memory_order_relaxed);
    out.take(row);
  }
  return e;
}

}  // namespace tenuto::inline TENUTO_ABI::pm
