// Fragbench, from "Log-structured Memory for DRAM-based Storage" (Rumble et al., FAST'14), with the
// four workloads and the proportions of NVAlloc (ASPLOS'22). It has three steps. First it allocates
// five times the live limit from one size distribution, and deletes random objects to stay within
// the limit. Then it deletes a share of the live objects. Then it allocates as much again from
// another distribution. The result is the heap's peak size in bytes.
#include "bench/alloc/case.h"

namespace bench {
namespace {

constexpr double kLiveBytes = 64 << 20;
constexpr std::uint64_t kAllocatedShare = 5;  // of the live limit, in either phase

struct Mix {
  SizeRange before;
  unsigned deleted_percent;
  SizeRange after;
};

constexpr Mix kW1 = {{100, 100}, 90, {130, 130}};
constexpr Mix kW2 = {{100, 150}, 0, {200, 250}};
constexpr Mix kW3 = {{100, 150}, 90, {200, 250}};
constexpr Mix kW4 = {{100, 200}, 50, {1000, 2000}};

class Fragbench final : public Case {
 public:
  Fragbench(const CaseOptions& o, const Mix& mix) : Case(o), w_(mix), limit_(scaled(kLiveBytes)) {
    // Touches this memory before the heap is measured.
    live_.resize(slots());
    live_.clear();
    for (std::uint64_t i = slots(); i > 0; --i) free_.push_back(static_cast<std::uint32_t>(i - 1));
  }

  std::uint64_t slots() const override {
    return limit_ / std::min(w_.before.least, w_.after.least) + o_.batch + 1;
  }
  std::uint64_t live_bytes() const override { return limit_; }
  std::uint64_t ops() const override {
    return 2 * kAllocatedShare * limit_ * 2 / (w_.before.least + w_.before.most) +
           2 * kAllocatedShare * limit_ * 2 / (w_.after.least + w_.after.most);
  }
  unsigned samples() const override { return 256; }

  void run(Hands& hands) override {
    Rng rng(o_.seed);
    allocate(hands, rng, w_.before);
    for (std::uint64_t n = live_.size() * w_.deleted_percent / 100; n > 0; --n) drop(hands, rng);
    hands.settle();
    allocate(hands, rng, w_.after);
  }

 private:
  void allocate(Hands& hands, Rng& rng, const SizeRange& range) {
    std::vector<std::uint64_t> sizes(hands.batch());
    for (std::uint64_t allocated = 0; allocated < kAllocatedShare * limit_;) {
      std::uint64_t sum = 0;
      for (std::uint64_t& bytes : sizes) {
        bytes = range.draw(rng);
        sum += bytes;
      }
      while (live_now_ + sum > limit_ && !live_.empty()) drop(hands, rng);
      for (const std::uint64_t bytes : sizes) take(hands, bytes);
      allocated += sum;
    }
    hands.settle();
  }
  void take(Hands& hands, std::uint64_t bytes) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    live_.push_back({slot, static_cast<std::uint32_t>(bytes)});
    live_now_ += bytes;
    hands.take(slot, bytes);
  }
  void drop(Hands& hands, Rng& rng) {
    std::swap(live_[rng.below(live_.size())], live_.back());
    const Object gone = live_.back();
    live_.pop_back();
    free_.push_back(gone.slot);
    live_now_ -= gone.bytes;
    hands.drop(gone.slot);
  }

  struct Object {
    std::uint32_t slot;
    std::uint32_t bytes;
  };

  const Mix& w_;
  const std::uint64_t limit_;
  std::uint64_t live_now_ = 0;
  std::vector<Object> live_;
  std::vector<std::uint32_t> free_;
};

}  // namespace

std::unique_ptr<Case> make_fragbench_w1(const CaseOptions& o) {
  return std::make_unique<Fragbench>(o, kW1);
}
std::unique_ptr<Case> make_fragbench_w2(const CaseOptions& o) {
  return std::make_unique<Fragbench>(o, kW2);
}
std::unique_ptr<Case> make_fragbench_w3(const CaseOptions& o) {
  return std::make_unique<Fragbench>(o, kW3);
}
std::unique_ptr<Case> make_fragbench_w4(const CaseOptions& o) {
  return std::make_unique<Fragbench>(o, kW4);
}

}  // namespace bench
