// The benchmarks of mixed and large objects: Larson (small and large) and DBMStest. Names and
// parameters are NVAlloc's (ASPLOS'22), with fewer repetitions.
#include <cmath>
#include <numeric>
#include <thread>

#include "bench/alloc/case.h"

namespace bench {
namespace {

constexpr std::uint64_t kKiB = 1024;

// Each thread replaces random objects of its own. After each generation a new thread continues with
// them, so most objects are freed by a thread other than their allocator.
class Larson final : public Case {
 public:
  static constexpr std::uint64_t kReplacedEach = 10'000;

  Larson(const CaseOptions& o, SizeRange sizes)
      : Case(o),
        sizes_(sizes),
        objects_(std::max<std::uint64_t>(population(1000), o.batch)),
        generations_(scaled(50)),
        replaced_(population(kReplacedEach)) {}

  std::uint64_t slots() const override { return objects_ * o_.threads; }
  std::uint64_t live_bytes() const override { return slots() * sizes_.most; }
  std::uint64_t ops() const override { return 2 * generations_ * replaced_; }
  void prepare(Hands& hands) override {
    Rng rng(o_.seed + hands.thread());
    const std::uint32_t first = first_slot(hands);
    for (std::uint32_t i = 0; i < objects_; ++i) hands.take(first + i, sizes_.draw(rng));
    hands.settle();
  }
  void run(Hands& hands) override {
    Rng rng(o_.seed + 1000 + hands.thread());
    for (std::uint64_t g = 0; g < generations_; ++g) {
      std::thread generation([&] { live(hands, rng); });
      generation.join();
    }
  }

 private:
  void live(Hands& hands, Rng& rng) {
    const std::uint32_t first = first_slot(hands);
    const unsigned batch = hands.batch();
    for (std::uint64_t done = 0; done < replaced_; done += batch) {
      const std::uint64_t start = rng.below(objects_);
      const auto slot = [&](unsigned i) {
        return first + static_cast<std::uint32_t>((start + i) % objects_);
      };
      for (unsigned i = 0; i < batch; ++i) hands.drop(slot(i));
      for (unsigned i = 0; i < batch; ++i) hands.take(slot(i), sizes_.draw(rng));
    }
    hands.settle();
  }

  const SizeRange sizes_;
  const std::uint64_t objects_;  // of a thread
  const std::uint64_t generations_;
  const std::uint64_t replaced_;  // by a generation
};

// Cold: the first turn is what is timed. So the heap grows, and each page of an object is written:
// growth may have backed pages that another allocator leaves to their first touch.
class Dbmstest final : public Case {
 public:
  Dbmstest(const CaseOptions& o, bool cold)
      : Case(o),
        objects_(std::max<std::uint64_t>(population(2000) / o.threads, 2)),
        turns_(cold ? 1 : scaled(100)),
        cold_(cold) {}

  std::uint64_t slots() const override { return objects_ * o_.threads; }
  std::uint64_t live_bytes() const override { return slots() * kUnits * kUnitBytes; }
  std::uint64_t ops() const override { return 2 * turns_ * (objects_ * 9 / 10); }
  void prepare(Hands& hands) override {
    if (!cold_) play(hands, std::min<std::uint64_t>(turns_, 5), 0);
  }
  void run(Hands& hands) override { play(hands, turns_, 1); }

 private:
  static constexpr std::uint64_t kUnitBytes = 32 * kKiB;
  static constexpr std::uint64_t kUnits = 16;
  static constexpr double kUnitsMean = 8;

  void play(Hands& hands, std::uint64_t turns, std::uint64_t part) {
    Rng rng(o_.seed + 2 * hands.thread() + part);
    const std::uint32_t first = first_slot(hands);
    std::vector<std::uint32_t> order(objects_);
    std::iota(order.begin(), order.end(), first);
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      for (const std::uint32_t slot : order) {
        if (!hands.ledger().live(slot)) hands.take(slot, kUnitBytes * poisson_units(rng));
      }
      hands.settle();
      if (cold_) {
        for (const std::uint32_t slot : order) hands.write_pages(slot);
      }
      for (std::uint64_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
      for (std::uint64_t i = 0; i < objects_ * 9 / 10; ++i) hands.drop(order[i]);
      hands.settle();
    }
  }
  // Knuth's product method, clamped to 32..512 KiB.
  static std::uint64_t poisson_units(Rng& rng) {
    const double limit = std::exp(-kUnitsMean);
    std::uint64_t k = 0;
    for (double product = rng.unit(); product > limit; product *= rng.unit()) ++k;
    return std::clamp<std::uint64_t>(k, 1, kUnits);
  }

  const std::uint64_t objects_;  // of a thread
  const std::uint64_t turns_;
  const bool cold_;
};

}  // namespace

std::unique_ptr<Case> make_larson_small(const CaseOptions& o) {
  return std::make_unique<Larson>(o, SizeRange{64, 256});
}
std::unique_ptr<Case> make_larson_large(const CaseOptions& o) {
  return std::make_unique<Larson>(o, SizeRange{32 * kKiB, 512 * kKiB});
}
std::unique_ptr<Case> make_dbmstest(const CaseOptions& o) {
  return std::make_unique<Dbmstest>(o, false);
}
std::unique_ptr<Case> make_dbmstest_cold(const CaseOptions& o) {
  return std::make_unique<Dbmstest>(o, true);
}

}  // namespace bench
