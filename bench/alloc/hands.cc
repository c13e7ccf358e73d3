// Groups, samples and failures; see hands.h.
#include "bench/alloc/hands.h"

namespace bench {

Hands::Hands(Allocator& allocator, Slots slots, Ledger& ledger, unsigned thread, unsigned batch,
             bool timed)
    : allocator_(allocator),
      slots_(slots),
      ledger_(ledger),
      thread_(thread),
      batch_(batch),
      timed_(timed),
      sequence_(std::uint64_t{thread + 1} << 48) {
  takes_.reserve(batch);
  sizes_.reserve(batch);
  drops_.reserve(batch);
}

void Hands::settle() {
  const std::vector<std::uint32_t>& waiting = takes_.empty() ? drops_ : takes_;
  if (waiting.empty()) return;
  const bool taking = !takes_.empty();
  dests_.clear();
  for (const std::uint32_t slot : waiting) dests_.push_back(slots_.at(slot));
  if (!taking) {
    for (const std::uint32_t slot : drops_) note_dropped(slot, allocator_.follow(slots_.at(slot)));
  }
  const std::uint64_t start = timed_ ? ticks() : 0;
  const bool done =
      taking ? allocator_.malloc_group(dests_, sizes_) : allocator_.free_group(dests_);
  if (timed_) latency_.record(ticks() - start);
  if (!done) fail(waiting.front(), taking ? "a group of mallocs was refused" : "of frees");
  for (std::size_t i = 0; taking && i < takes_.size(); ++i) {
    note_taken(takes_[i], allocator_.follow(dests_[i]), sizes_[i]);
  }
  const std::uint64_t n = waiting.size();
  takes_.clear();
  sizes_.clear();
  drops_.clear();
  count(n);
}

void Hands::sample_each(std::uint64_t interval, std::function<void()> sample) {
  sample_interval_ = interval;
  sample_at_ = ops_ + interval;
  sample_ = std::move(sample);
}

void Hands::take_sample() {
  sample_at_ = ops_ + sample_interval_;
  sample_();
}

void Hands::reset_counts() {
  ops_ = 0;
  latency_ = {};
  if (sample_at_ != kNeverSample) sample_at_ = sample_interval_;
}

void Hands::fail(std::uint32_t slot, const char* what) {
  if (failures_++ > 0) return;
  first_failure_ = std::string(what) + ", slot " + std::to_string(slot) + ", thread " +
                   std::to_string(thread_) + ", operation " + std::to_string(ops_);
}

}  // namespace bench
