// The benchmarks of small objects: Threadtest, Prod-con, Shbench. Names and parameters are
// NVAlloc's (ASPLOS'22), with fewer repetitions. `fill` is PMMS's.
#include <atomic>
#include <deque>
#include <thread>

#include "bench/alloc/case.h"

namespace bench {
namespace {

constexpr std::uint64_t kSmallBytes = 64;

// Each thread allocates its objects and frees them in that order, again and again.
class Threadtest final : public Case {
 public:
  Threadtest(const CaseOptions& o, double objects, SizeRange sizes)
      : Case(o), objects_(population(objects)), sizes_(sizes), turns_(scaled(20)) {}

  std::uint64_t slots() const override { return objects_ * o_.threads; }
  std::uint64_t live_bytes() const override { return slots() * sizes_.most; }
  std::uint64_t ops() const override { return 2 * objects_ * turns_; }
  std::uint64_t value_bytes() const override { return one_size() ? sizes_.least : 0; }
  void prepare(Hands& hands) override { turn(hands, 0); }
  void run(Hands& hands) override {
    for (std::uint64_t i = 1; i <= turns_; ++i) turn(hands, i);
  }

 private:
  bool one_size() const { return sizes_.least == sizes_.most; }
  void turn(Hands& hands, std::uint64_t number) {
    const std::uint32_t first = first_slot(hands);
    const auto end = static_cast<std::uint32_t>(first + objects_);
    if (one_size()) {
      for (std::uint32_t slot = first; slot < end; ++slot) hands.take(slot, sizes_.least);
    } else {
      Rng rng(o_.seed + number * o_.threads + hands.thread());
      for (std::uint32_t slot = first; slot < end; ++slot) hands.take(slot, sizes_.draw(rng));
    }
    for (std::uint32_t slot = first; slot < end; ++slot) hands.drop(slot);
    hands.settle();
  }

  const std::uint64_t objects_;  // of a thread
  const SizeRange sizes_;
  const std::uint64_t turns_;
};

// --- prodcon -------------------------------------------------------------------------------------

// The objects go through a lock-free ring of slots. Locked instructions advance both counters:
// malloc_to (its seal) requires one before another thread may touch a block and its destination.
class Prodcon final : public Case {
 public:
  static constexpr std::uint64_t kRing = 1024;
  static_assert(kRing >= 2 * kBatchMax);

  explicit Prodcon(const CaseOptions& o)
      : Case(o), rings_((o.threads + 1) / 2), objects_(scaled(1e6) / rings_.size() + 1) {}

  std::uint64_t slots() const override { return rings_.size() * kRing; }
  std::uint64_t live_bytes() const override { return slots() * kSmallBytes; }
  std::uint64_t ops() const override { return alone(0) ? 2 * objects_ : objects_; }
  std::uint64_t value_bytes() const override { return kSmallBytes; }
  void prepare(Hands& hands) override {
    if (hands.thread() % 2 == 0) fill_and_drain(hands, kRing);
  }
  void run(Hands& hands) override {
    if (alone(hands.thread())) return fill_and_drain(hands, objects_);
    hands.thread() % 2 == 0 ? produce(hands) : consume(hands);
  }

 private:
  struct alignas(128) Ring {
    alignas(64) std::atomic<std::uint64_t> produced{0};
    alignas(64) std::atomic<std::uint64_t> consumed{0};
  };

  bool alone(unsigned thread) const { return thread % 2 == 0 && thread + 1 == o_.threads; }
  Ring& ring(const Hands& hands) { return rings_[hands.thread() / 2]; }
  static std::uint32_t slot(const Hands& hands, std::uint64_t i) {
    return static_cast<std::uint32_t>(hands.thread() / 2 * kRing + i % kRing);
  }

  void produce(Hands& hands) {
    Ring& r = ring(hands);
    for (std::uint64_t i = 0; i < objects_;) {
      const std::uint64_t end = std::min(objects_, i + hands.batch());
      wait([&] { return end - r.consumed.load(std::memory_order_acquire) <= kRing; });
      for (; i < end; ++i) hands.take(slot(hands, i), kSmallBytes);
      hands.settle();
      r.produced.exchange(i, std::memory_order_acq_rel);
    }
  }
  void consume(Hands& hands) {
    Ring& r = ring(hands);
    for (std::uint64_t i = 0; i < objects_;) {
      const std::uint64_t end = std::min(objects_, i + hands.batch());
      wait([&] { return r.produced.load(std::memory_order_acquire) >= end; });
      for (; i < end; ++i) hands.drop(slot(hands, i));
      hands.settle();
      r.consumed.exchange(i, std::memory_order_acq_rel);
    }
  }
  void fill_and_drain(Hands& hands, std::uint64_t objects) {
    for (std::uint64_t done = 0; done < objects; done += kRing) {
      const std::uint64_t n = std::min(kRing, objects - done);
      for (std::uint64_t i = 0; i < n; ++i) hands.take(slot(hands, i), kSmallBytes);
      for (std::uint64_t i = 0; i < n; ++i) hands.drop(slot(hands, i));
    }
    hands.settle();
  }
  template <class Condition>
  static void wait(Condition&& condition) {
    constexpr unsigned kPausesMax = 1000;  // then yield: the other thread may need this processor
    for (unsigned i = 0; !condition(); ++i) {
      i % kPausesMax == kPausesMax - 1 ? std::this_thread::yield() : _mm_pause();
    }
  }

  std::deque<Ring> rings_;
  const std::uint64_t objects_;  // of a pair
};

// --- shbench -------------------------------------------------------------------------------------

// Modelled on MicroQuill's benchmark. A pass allocates a series of sizes. Each size is halved down
// to the smallest, and small ones are more frequent. The blocks fill a buffer of slots. When it is
// full, all blocks but a fifth are freed, and the kept fifth changes each time. The blocks before
// the kept ones are freed in allocation order, those behind them in reverse order.
class Shbench final : public Case {
 public:
  Shbench(const CaseOptions& o, std::uint64_t bytes_max)
      : Case(o), bytes_max_(bytes_max), buffer_(population(10'000)), passes_(scaled(400)) {
    for (std::uint64_t base = kSmallBytes; base < bytes_max_; base = base * 3 / 2 + 1) {
      for (std::uint64_t bytes = base; bytes >= kSmallBytes; bytes /= 2) {
        sizes_.insert(sizes_.end(), bytes < 100 ? 250 : 50, bytes);
      }
    }
  }

  std::uint64_t slots() const override { return buffer_ * o_.threads; }
  std::uint64_t live_bytes() const override { return slots() * bytes_max_; }
  std::uint64_t ops() const override { return 2 * passes_ * sizes_.size(); }
  void prepare(Hands& hands) override { play(hands, 1); }
  void run(Hands& hands) override { play(hands, passes_); }

 private:
  void play(Hands& hands, std::uint64_t passes) {
    const std::uint32_t first = first_slot(hands);
    const auto n = static_cast<std::uint32_t>(buffer_);
    const std::uint32_t kept_slots = std::max(n / 5, 1u);
    std::uint32_t kept = 0;  // first kept slot
    std::uint32_t kept_end = 0;
    std::uint32_t at = 0;
    const auto turn_over = [&] {
      kept = kept_end >= n ? 0 : kept_end;
      kept_end = std::min(n, kept + kept_slots);
      for (std::uint32_t i = 0; i < kept; ++i) hands.drop(first + i);
      for (std::uint32_t i = n; i > kept_end; --i) hands.drop(first + i - 1);
      at = 0;
    };
    for (std::uint64_t pass = 0; pass < passes; ++pass) {
      for (const std::uint64_t bytes : sizes_) {
        if (at == kept && kept_end > kept) at = kept_end;
        if (at >= n) {
          turn_over();
          if (at == kept) at = kept_end;
        }
        hands.take(first + at++, bytes);
      }
    }
    hands.settle();
    for (std::uint32_t i = 0; i < n; ++i) {
      if (hands.ledger().live(first + i)) hands.drop(first + i);
    }
    hands.settle();
  }

  const std::uint64_t bytes_max_;
  const std::uint64_t buffer_;  // slots of a thread
  const std::uint64_t passes_;
  std::vector<std::uint64_t> sizes_;  // of a pass
};

}  // namespace

std::unique_ptr<Case> make_threadtest(const CaseOptions& o) {
  return std::make_unique<Threadtest>(o, 100'000.0 / o.threads,
                                      SizeRange{kSmallBytes, kSmallBytes});
}
template <std::uint64_t kLeast, std::uint64_t kMost>
std::unique_ptr<Case> make_fill(const CaseOptions& o) {
  return std::make_unique<Threadtest>(o, 20'000, SizeRange{kLeast, kMost});
}
template std::unique_ptr<Case> make_fill<64, 64>(const CaseOptions&);
template std::unique_ptr<Case> make_fill<128, 128>(const CaseOptions&);
template std::unique_ptr<Case> make_fill<256, 256>(const CaseOptions&);
template std::unique_ptr<Case> make_fill<512, 512>(const CaseOptions&);
template std::unique_ptr<Case> make_fill<1024, 1024>(const CaseOptions&);
template std::unique_ptr<Case> make_fill<64, 512>(const CaseOptions&);
std::unique_ptr<Case> make_prodcon(const CaseOptions& o) { return std::make_unique<Prodcon>(o); }
std::unique_ptr<Case> make_shbench(const CaseOptions& o) {
  return std::make_unique<Shbench>(o, 1000);
}
std::unique_ptr<Case> make_shbench_400(const CaseOptions& o) {
  return std::make_unique<Shbench>(o, 400);
}

}  // namespace bench
