// Benchmarks that need many objects, many threads or much time: growth, threads, soak.
#include <cmath>
#include <thread>

#include "bench/alloc/case.h"

namespace bench {
namespace {

// The cost of an operation, and of an open, with a given number of live objects.
class Growth final : public Case {
 public:
  static constexpr std::uint64_t kBytes = 64;

  explicit Growth(const CaseOptions& o) : Case(o), replaced_(scaled(500'000)) {}

  std::uint64_t slots() const override { return o_.objects; }
  std::uint64_t live_bytes() const override { return o_.objects * kBytes; }
  std::uint64_t ops() const override { return 2 * replaced_; }
  std::uint64_t value_bytes() const override { return kBytes; }
  void prepare(Hands& hands) override {
    for (std::uint32_t slot = 0; slot < o_.objects; ++slot) hands.take(slot, kBytes);
    hands.settle();
  }
  void run(Hands& hands) override {
    Rng rng(o_.seed);
    const unsigned batch = static_cast<unsigned>(std::min<std::uint64_t>(o_.objects, o_.batch));
    for (std::uint64_t done = 0; done < replaced_; done += batch) {
      const std::uint64_t start = rng.below(o_.objects - batch + 1);
      const auto slot = [&](unsigned i) { return static_cast<std::uint32_t>(start + i); };
      for (unsigned i = 0; i < batch; ++i) hands.drop(slot(i));
      for (unsigned i = 0; i < batch; ++i) hands.take(slot(i), kBytes);
    }
    hands.settle();
  }
  const char* inspect(Allocator& allocator, Slots slots) override {
    for (std::uint32_t slot = 0; slot < o_.objects; ++slot) {
      if (allocator.follow(slots.at(slot)) == nullptr) return "an object is gone";
    }
    return nullptr;
  }

 private:
  const std::uint64_t replaced_;
};

// Short-lived threads: each allocates some objects and frees them all.
class Threads final : public Case {
 public:
  static constexpr std::uint64_t kObjects = 500;
  static constexpr SizeRange kBytes = {16, 4096};

  explicit Threads(const CaseOptions& o) : Case(o), lives_(scaled(200)) {}

  std::uint64_t slots() const override { return kObjects * o_.threads; }
  std::uint64_t live_bytes() const override { return slots() * kBytes.most; }
  std::uint64_t ops() const override { return 2 * kObjects * lives_ / o_.threads; }
  void run(Hands& hands) override {
    Rng rng(o_.seed + hands.thread());
    for (std::uint64_t i = hands.thread(); i < lives_; i += o_.threads) {
      std::thread life([&] {
        const std::uint32_t first = first_slot(hands);
        for (std::uint32_t k = 0; k < kObjects; ++k) hands.take(first + k, kBytes.draw(rng));
        for (std::uint32_t k = 0; k < kObjects; ++k) hands.drop(first + k);
        hands.settle();
      });
      life.join();
    }
  }

 private:
  const std::uint64_t lives_;
};

// --- soak ----------------------------------------------------------------------------------------

// Any thread replaces objects of any size, for a given time. A replaced object takes a size from
// the thread's pocket and leaves its own there. So the live size stays the same to the byte, and a
// heap that grows fragments or leaks.
class Soak final : public Case {
 public:
  static constexpr double kBytesLeast = 16;
  static constexpr double kBytesMost = 65'536;
  static constexpr std::uint64_t kPocket = 64;  // sizes in a thread's pocket
  static constexpr std::size_t kMoments = 120;  // samples of the heap's size
  // The maximum of the last third may exceed that of the first third by this share. On small heaps
  // it may exceed it by a chunk instead, the unit in which extents take memory.
  static constexpr double kGrowthShareMax = 0.05;
  static constexpr double kGrowthBytesMax = 4 << 20;
  static constexpr std::uint64_t kOpsBetweenLooks = 64;
  static constexpr std::uint64_t kOpsBetweenSamples = 20'000;

  explicit Soak(const CaseOptions& o)
      : Case(o), objects_(population(8192) / o.threads * o.threads), busy_(objects_) {}

  std::uint64_t slots() const override { return objects_; }
  std::uint64_t live_bytes() const override { return 2 * objects_ * 8192; }
  std::uint64_t ops() const override { return samples() * kOpsBetweenSamples; }
  void prepare(Hands& hands) override {
    Rng rng(o_.seed + hands.thread());
    const std::uint32_t first = first_slot(hands);
    for (std::uint32_t i = 0; i < objects_ / o_.threads; ++i) hands.take(first + i, draw(rng));
    hands.settle();
  }
  void run(Hands& hands) override {
    Rng rng(o_.seed + 100 + hands.thread());
    std::vector<std::uint64_t> pocket(kPocket);
    for (std::uint64_t& bytes : pocket) bytes = draw(rng);
    const std::uint64_t start = ticks();
    for (std::uint64_t i = 0;; ++i) {
      if (i % kOpsBetweenLooks == 0) {
        const double share = seconds_of(ticks() - start) / o_.seconds;
        if (hands.thread() == 0) look(hands, share);
        if (share >= 1) return;
      }
      const auto slot = static_cast<std::uint32_t>(rng.below(objects_));
      // Both sides use locked instructions: malloc_to (its seal) requires one before another thread
      // may touch the block.
      if (busy_[slot].exchange(true, std::memory_order_acq_rel)) continue;
      const std::uint64_t gone = hands.ledger().bytes(slot);
      hands.drop(slot);
      std::uint64_t& bytes = pocket[rng.below(kPocket)];
      hands.take(slot, bytes);
      hands.settle();
      bytes = gone;
      busy_[slot].exchange(false, std::memory_order_acq_rel);
    }
  }
  void conclude(CaseFindings& findings) override {
    double thirds[3] = {};
    for (std::size_t i = 0; i < kMoments; ++i) {
      double& tenth = findings.heap_by_tenth[i * kTenths / kMoments];
      double& third = thirds[i * 3 / kMoments];
      tenth = std::max(tenth, heap_at_[i]);
      third = std::max(third, heap_at_[i]);
    }
    findings.grows = thirds[2] > thirds[0] + std::max(kGrowthShareMax * thirds[0], kGrowthBytesMax);
    std::snprintf(findings.verdict, sizeof findings.verdict,
                  "the heap took at most %.1f MB in the first third, %.1f MB in the last%s",
                  thirds[0] / 1e6, thirds[2] / 1e6, findings.grows ? ": it grows" : "");
  }

 private:
  // Uniform over the orders of magnitude.
  static std::uint64_t draw(Rng& rng) {
    return static_cast<std::uint64_t>(kBytesLeast * std::pow(kBytesMost / kBytesLeast, rng.unit()));
  }
  // Each sample is taken when its interval has begun. An interval that the thread slept through
  // gets the next sample taken.
  void look(Hands& hands, double share) {
    const auto now = std::min(static_cast<std::size_t>(share * kMoments), kMoments - 1);
    if (now < next_moment_) return;
    const auto heap = static_cast<double>(hands.heap_bytes());
    while (next_moment_ <= now) heap_at_[next_moment_++] = heap;
  }

  const std::uint64_t objects_;
  std::vector<std::atomic<bool>> busy_;
  double heap_at_[kMoments] = {};
  std::size_t next_moment_ = 0;
};

}  // namespace

std::unique_ptr<Case> make_growth(const CaseOptions& o) { return std::make_unique<Growth>(o); }
std::unique_ptr<Case> make_threads(const CaseOptions& o) { return std::make_unique<Threads>(o); }
std::unique_ptr<Case> make_soak(const CaseOptions& o) { return std::make_unique<Soak>(o); }

}  // namespace bench
