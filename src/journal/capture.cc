#include "journal/capture.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "pm/plant.h"
#include "pm/thread_end.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::pm {

// --- line images ---------------------------------------------------------------------------------

namespace {

constexpr std::uint64_t kRoomLines = 16;  // that a thread takes at once

// Whether an aligned 64-byte load is one access. It is on all processors that have AVX-512.
bool loads_lines_whole() {
  static const bool has = [] {
    __builtin_cpu_init();  // a static object of the program may use this first
    return __builtin_cpu_supports("avx512f") != 0;
  }();
  return has && !TENUTO_PLANT("journal_processor_without_whole_loads");
}

void read_words(LineBytes& to, const std::uint64_t* words) {
  for (std::size_t i = 0; i < to.word.size(); ++i) {
    if (TENUTO_PLANT("journal_images_in_two_halves") && i == to.word.size() / 2) ::sched_yield();
    to.word[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
  }
}

// Repeats until two readings agree and no flush of the line began meanwhile. Only stores and
// flushes of other threads can make it repeat. The loads are in program order, so the last load of
// `flushes` sees each flush that came before a store that the second reading saw.
void read_until_agreed(LineBytes& to, const std::uint64_t* words,
                       const std::atomic<std::uint64_t>& flushes) {
  for (;;) {
    const std::uint64_t before = flushes.load(std::memory_order_acquire);
    read_words(to, words);
    if (TENUTO_PLANT("journal_images_in_two_halves")) return;
    LineBytes again;
    read_words(again, words);
    const bool flushed = flushes.load(std::memory_order_acquire) != before;
    if (again.word == to.word && !flushed) return;
    _mm_pause();
  }
}

// The line as it is at one point in time after this call began.
void take_image(LineBytes& to, const void* line, const std::atomic<std::uint64_t>& flushes) {
  if (!loads_lines_whole() || TENUTO_PLANT("journal_images_in_two_halves")) {
    read_until_agreed(to, static_cast<const std::uint64_t*>(line), flushes);
    return;
  }
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
}

}  // namespace

bool ImageRow::grow() {
  const std::size_t capacity = std::max<std::size_t>(64, capacity_ * 2);
  if (TENUTO_PLANT("journal_no_memory_for_images") && capacity_ >= 64) return false;
  std::unique_ptr<Key[]> keys(new (std::nothrow) Key[capacity]);
  std::unique_ptr<LineBytes[]> images(new (std::nothrow) LineBytes[capacity]);
  if (keys == nullptr || images == nullptr) return false;
  std::copy_n(keys_.get(), size_, keys.get());
  std::copy_n(images_.get(), size_, images.get());
  keys_ = std::move(keys);
  images_ = std::move(images);
  capacity_ = capacity;
  return true;
}

void CutRows::take(ImageRow& row) {
  if (row.size() == 0) return;
  if (used_ == rows_.size()) rows_.emplace_back();
  std::swap(rows_[used_++], row);
}

void CutRows::clear() {
  for (std::size_t i = 0; i < used_; ++i) rows_[i].clear();
  used_ = 0;
}

std::size_t CutRows::images() const {
  std::size_t n = 0;
  for (const ImageRow& row : rows()) n += row.size();
  return n;
}

// --- threads -------------------------------------------------------------------------------------

// The slots that a thread holds, one for each pool, latest used first. They keep their Capture
// alive: a pool may be closed while a thread still has flushes to fence.
struct ThreadCaptures {
  Capture::Slot* first = nullptr;

  // The cut of the epoch still takes the line images in the rows of a thread that ended.
  ~ThreadCaptures() {
    while (first != nullptr) give_back(&first);
  }
  static void give_back(Capture::Slot** at) {
    Capture::Slot* const slot = *at;
    *at = slot->held;
    const std::shared_ptr<Capture> capture = std::move(slot->capture);
    const std::lock_guard lock(capture->mu_);
    slot->idle = capture->idle_;
    capture->idle_ = slot;
  }
};

Capture::~Capture() {
  while (slots_ != nullptr) delete std::exchange(slots_, slots_->older);
}

Capture::Slot* Capture::find_mine() {
  auto* mine = find_thread_part<ThreadCaptures>(ThreadPart::captures);
  if (mine == nullptr) {
    mine = new (std::nothrow) ThreadCaptures;
    if (mine == nullptr) return nullptr;
    keep_thread_part(ThreadPart::captures, mine,
                     [](void* p) { delete static_cast<ThreadCaptures*>(p); });
  }
  for (Slot** at = &mine->first; *at != nullptr;) {
    if ((*at)->capture.get() == this) {
      Slot* const slot = std::exchange(*at, (*at)->held);
      slot->held = std::exchange(mine->first, slot);
      return slot;
    }
    if ((*at)->capture.use_count() == 1) {  // its pool is closed
      ThreadCaptures::give_back(at);
    } else {
      at = &(*at)->held;
    }
  }
  Slot* slot = nullptr;
  {
    const std::lock_guard lock(mu_);
    slot = idle_;
    if (slot != nullptr) {
      idle_ = slot->idle;
    } else {
      slot = new (std::nothrow) Slot;
      if (slot == nullptr) return nullptr;
      slot->older = std::exchange(slots_, slot);
    }
  }
  slot->last_tag = 0;
  slot->capture = shared_from_this();
  slot->held = std::exchange(mine->first, slot);
  return slot;
}

Capture::Slot* Capture::mine() {
  const auto* const mine = find_thread_part<ThreadCaptures>(ThreadPart::captures);
  if (mine != nullptr && mine->first != nullptr && mine->first->capture.get() == this) [[likely]]
    return mine->first;
  return find_mine();
}

// --- the protocol --------------------------------------------------------------------------------

// Several at a time, so that threads seldom contend here. The cut subtracts what an epoch leaves.
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
  ImageRow& row = slot.rows[tag & 1];
  Slot::Recent& recent = slot.recent[line * 0x9e3779b97f4a7c15ull >> (64 - Slot::kRecentBits)];
  if (recent.line == static_cast<std::uint32_t>(line)) {
    LineBytes* const again = row.replace(recent.at, line, sequence);
    if (again != nullptr) return again;
  }
  std::uint64_t& room = slot.room[tag & 1];
  while (room == 0 && !take_room(room, limit)) {
    if (!TENUTO_PLANT("journal_capture_waits_for_room")) return nullptr;
  }
  LineBytes* const fresh = row.add(line, sequence);
  if (fresh == nullptr) return nullptr;  // the room stays
  room -= 1;
  recent = {static_cast<std::uint32_t>(line), static_cast<std::uint32_t>(row.size() - 1)};
  return fresh;
}

const std::byte* Capture::capture(const void* p, std::size_t bytes, std::uint64_t limit,
                                  bool* no_memory) {
  Slot* const own = mine();
  if (own == nullptr) {
    if (no_memory != nullptr) *no_memory = true;
    return reinterpret_cast<const std::byte*>(line_of(p));
  }
  Slot& slot = *own;
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
    LineBytes* const image = place(slot, line, sequence, tag, limit);
    if (image == nullptr) {
      if (no_memory != nullptr) *no_memory = slot.room[tag & 1] != 0;
      if (TENUTO_PLANT("journal_slot_stays_announced_without_memory") && slot.room[tag & 1] != 0)
        return base_ + line * kLineBytes;
      break;
    }
    take_image(*image, base_ + line * kLineBytes, stripe);
    slot.last_tag = tag;
  }
  slot.count.store(entered + 1, std::memory_order_release);
  return line < end ? base_ + line * kLineBytes : nullptr;
}

void Capture::fence(Slot& slot) const {
  for (unsigned spins = 0; closed_.load(std::memory_order_acquire) + 1 < slot.last_tag; ++spins) {
    if (spins < 1000) {
      _mm_pause();
    } else if (!is_this_process(process_)) {
      break;  // a child inherited this, and no thread cuts there
    } else {
      ::sched_yield();
    }
  }
  slot.last_tag = 0;
}

void Capture::fence_all() {
  const auto* const mine = find_thread_part<ThreadCaptures>(ThreadPart::captures);
  if (mine == nullptr) return;
  for (Slot* slot = mine->first; slot != nullptr; slot = slot->held) {
    if (slot->last_tag != 0) slot->capture->fence(*slot);
  }
}

std::uint64_t Capture::cut(CutRows& out) {
  const std::uint64_t e = epoch_.load(std::memory_order_relaxed);
  epoch_.exchange(e + 1, std::memory_order_seq_cst);  // a full barrier before the slots are read
  Slot* slots = nullptr;
  {
    // The thread of a slot that is made later enters it after the epoch was published.
    const std::lock_guard lock(mu_);
    slots = slots_;
  }
  for (const Slot* s = slots; s != nullptr; s = s->older) {
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
  for (Slot* s = slots; s != nullptr; s = s->older) {
    ImageRow& row = s->rows[e & 1];
    const std::uint64_t room = std::exchange(s->room[e & 1], 0);
    pending_lines_.fetch_sub(row.size() + room, std::memory_order_relaxed);
    out.take(row);
  }
  return e;
}

}  // namespace TENUTO_NS::pm
