// One thread's access to the allocator. It takes blocks for slots and drops them, sets and checks
// their tags, and counts operations. Consecutive takes, or drops, go to the allocator in groups of
// `batch`, in the order of the calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/alloc/allocator.h"
#include "bench/alloc/ledger.h"
#include "bench/support/clock.h"
#include "bench/support/histogram.h"

namespace bench {

inline constexpr std::uint64_t kNeverSample = ~std::uint64_t{0};

// The destinations. The word of slot i is at first + i * stride_bytes.
struct Slots {
  std::byte* first = nullptr;
  std::size_t stride_bytes = 0;
  void* at(std::uint32_t slot) const { return first + slot * stride_bytes; }
};

class Hands {
 public:
  Hands(Allocator& allocator, Slots slots, Ledger& ledger, unsigned thread, unsigned batch,
        bool timed);

  void take(std::uint32_t slot, std::uint64_t bytes) {
    if (!drops_.empty()) settle();
    if (batch_ == 1) return take_one(slot, bytes);
    takes_.push_back(slot);
    sizes_.push_back(bytes);
    if (takes_.size() == batch_) settle();
  }
  void drop(std::uint32_t slot) {
    if (!takes_.empty()) settle();
    if (batch_ == 1) return drop_one(slot);
    drops_.push_back(slot);
    if (drops_.size() == batch_) settle();
  }
  // For structures that keep their own destinations. It uses no slot, no tag and no group.
  void* take_to(void* dest, std::uint64_t bytes) {
    void* block = timed_malloc(dest, bytes);
    block == nullptr ? fail(0, "malloc was refused") : add_live(static_cast<std::int64_t>(bytes));
    count(1);
    return block;
  }
  // Writes a word in each page of the slot's block. REQUIRED before: settle().
  void write_pages(std::uint32_t slot) {
    ledger_.write_pages(slot, allocator_.follow(slots_.at(slot)));
  }
  // Runs the operations of an incomplete group. REQUIRED before another thread gets a slot.
  void settle();

  // Calls `sample` after every `interval` operations.
  void sample_each(std::uint64_t interval, std::function<void()> sample);
  void reset_counts();  // between preparation and measurement

  unsigned thread() const { return thread_; }
  unsigned batch() const { return batch_; }
  const Ledger& ledger() const { return ledger_; }
  Slots slots() const { return slots_; }
  std::uint64_t heap_bytes() { return allocator_.heap_bytes(); }
  std::size_t word_bytes() const { return allocator_.word_bytes(); }
  std::uint64_t ops() const { return ops_; }
  const Histogram& ticks_per_group() const { return latency_; }
  // Requested bytes taken minus those dropped. The sum over all hands is the live size.
  std::int64_t live_bytes() const { return live_bytes_.load(std::memory_order_relaxed); }
  std::uint64_t failures() const { return failures_; }
  const std::string& first_failure() const { return first_failure_; }
  void fail(std::uint32_t slot, const char* what);

 private:
  void take_one(std::uint32_t slot, std::uint64_t bytes) {
    note_taken(slot, timed_malloc(slots_.at(slot), bytes), bytes);
    count(1);
  }
  void* timed_malloc(void* dest, std::uint64_t bytes) {
    const std::uint64_t start = timed_ ? ticks() : 0;
    void* block = allocator_.malloc_to(bytes, dest);
    if (timed_) latency_.record(ticks() - start);
    return block;
  }
  void drop_one(std::uint32_t slot) {
    void* dest = slots_.at(slot);
    note_dropped(slot, allocator_.follow(dest));
    const std::uint64_t start = timed_ ? ticks() : 0;
    const bool freed = allocator_.free_from(dest);
    if (timed_) latency_.record(ticks() - start);
    if (!freed) fail(slot, "free was refused");
    count(1);
  }
  void note_taken(std::uint32_t slot, void* block, std::uint64_t bytes) {
    if (const char* wrong = ledger_.born(slot, block, bytes, ++sequence_)) return fail(slot, wrong);
    add_live(static_cast<std::int64_t>(bytes));
  }
  void note_dropped(std::uint32_t slot, const void* block) {
    add_live(-static_cast<std::int64_t>(ledger_.bytes(slot)));
    if (const char* wrong = ledger_.dies(slot, block)) fail(slot, wrong);
  }
  // Only this thread writes, so no locked instruction is needed.
  void add_live(std::int64_t bytes) {
    live_bytes_.store(live_bytes() + bytes, std::memory_order_relaxed);
  }
  void count(std::uint64_t n) {
    ops_ += n;
    if (ops_ >= sample_at_) take_sample();
  }
  void take_sample();

  Allocator& allocator_;
  const Slots slots_;
  Ledger& ledger_;
  const unsigned thread_;
  const unsigned batch_;
  const bool timed_;
  std::vector<std::uint32_t> takes_;
  std::vector<std::uint64_t> sizes_;  // of takes_
  std::vector<std::uint32_t> drops_;
  std::vector<void*> dests_;
  std::uint64_t sequence_;
  std::uint64_t ops_ = 0;
  std::uint64_t sample_at_ = kNeverSample;
  std::uint64_t sample_interval_ = 0;
  std::function<void()> sample_;
  std::atomic<std::int64_t> live_bytes_{0};
  Histogram latency_;
  std::uint64_t failures_ = 0;
  std::string first_failure_;
};

}  // namespace bench
