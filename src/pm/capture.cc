#include "pm/capture.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

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

LineBytes* LineMap::find(std::uint64_t line, std::uint64_t sequence) {
  if (index_.empty()) return nullptr;
  const std::size_t i = probe(line);
  if (!is_taken(i)) return nullptr;
  keys_[index_[i].at].sequence = sequence;
  return &pictures_[index_[i].at];
}

LineBytes* LineMap::add(std::uint64_t line, std::uint64_t sequence) {
  if ((keys_.size() + 1) * 2 > index_.size()) rehash(std::max<std::size_t>(64, index_.size() * 2));
  index_[probe(line)] = {line, generation_, static_cast<std::uint32_t>(keys_.size())};
  keys_.push_back({line, sequence});
  return &pictures_.emplace_back();
}

void LineMap::rehash(std::size_t slots) {
  index_.assign(slots, {});
  generation_ = 1;
  for (std::size_t k = 0; k < keys_.size(); ++k) {
    index_[probe(keys_[k].line)] = {keys_[k].line, generation_, static_cast<std::uint32_t>(k)};
  }
}

void LineMap::put(std::uint64_t line, std::uint64_t sequence, const LineBytes& picture) {
  LineBytes* at = find(line, sequence);
  *(at != nullptr ? at : add(line, sequence)) = picture;
}

void LineMap::merge(std::uint64_t line, std::uint64_t sequence, const LineBytes& picture) {
  if (!index_.empty()) {
    const std::size_t i = probe(line);
    if (is_taken(i) && keys_[index_[i].at].sequence > sequence) return;
  }
  put(line, sequence, picture);
}

void LineMap::clear() {
  keys_.clear();
  pictures_.clear();
  if (++generation_ == 0) rehash(index_.size());
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

const std::byte* Capture::capture(const void* p, std::size_t bytes, std::uint64_t limit) {
  Slot& slot = mine();
  const std::uint64_t first = static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - base_);
  const std::uint64_t end = (first + bytes + kLineBytes - 1) / kLineBytes;
  const std::uint64_t entered = slot.count.load(std::memory_order_relaxed) + 1;
  slot.count.store(entered, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  // The locked add waits for the caller's stores: what comes behind it is fetched meanwhile.
  const LineMap& likely = slot.buffers[epoch_.load(std::memory_order_relaxed) & 1];
  std::uint64_t line = first / kLineBytes;
  for (; line < end; ++line) {
    likely.prefetch(line);
    std::atomic<std::uint64_t>& stripe = stripes_[line % kStripes].sequence;
    const std::uint64_t sequence = stripe.fetch_add(1, std::memory_order_seq_cst) + 1;
    const std::uint64_t tag = epoch_.load(std::memory_order_seq_cst);
    LineMap& buffer = slot.buffers[tag & 1];
    LineBytes* picture = buffer.find(line, sequence);
    if (picture == nullptr) {
      std::uint64_t& room = slot.room[tag & 1];
      if (room == 0 && !take_room(room, limit)) break;
      room -= 1;
      picture = buffer.add(line, sequence);
    }
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

std::uint64_t Capture::cut(LineMap& out) {
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
    LineMap& from = s->buffers[e & 1];
    const std::uint64_t room = std::exchange(s->room[e & 1], 0);
    pending_lines_.fetch_sub(from.size() + room, std::memory_order_relaxed);
    if (out.size() == 0) std::swap(out, from);
    for (std::size_t i = 0; i < from.size(); ++i) {
      out.merge(from.line(i), from.sequence(i), from.picture(i));
    }
    from.clear();
  }
  return e;
}

}  // namespace tenuto::inline TENUTO_ABI::pm
