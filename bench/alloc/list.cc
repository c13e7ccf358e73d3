// Recovery of a linked list, as in NVAlloc's evaluation (ASPLOS'22). The nodes have 64..128 B, and
// each is allocated to the pointer in the node before it. The process then kills itself. The next
// process opens the pool against the clock. It then walks the list, untimed, to check that it is
// whole.
#include <cstring>

#include "bench/alloc/case.h"

namespace bench {
namespace {

constexpr SizeRange kNodeBytes = {64, 128};

// A node's number. It is stored after the node's pointer to the next one, which is as wide as the
// allocator's words, and again at the node's end.
struct Numbered {
  std::byte* node;
  std::size_t word_bytes;
  std::uint64_t bytes;

  void write(std::uint64_t number) const {
    std::memset(node, 0, word_bytes);
    std::memcpy(node + word_bytes, &number, sizeof number);
    std::memcpy(node + bytes - sizeof number, &number, sizeof number);
  }
  bool holds(std::uint64_t number) const {
    return std::memcmp(node + word_bytes, &number, sizeof number) == 0 &&
           std::memcmp(node + bytes - sizeof number, &number, sizeof number) == 0;
  }
};

class RecoveryList final : public Case {
 public:
  explicit RecoveryList(const CaseOptions& o) : Case(o) {}

  std::uint64_t slots() const override { return 1; }
  std::uint64_t live_bytes() const override { return o_.objects * kNodeBytes.most; }
  std::uint64_t ops() const override { return o_.objects; }

  void run(Hands& hands) override {
    Rng sizes(o_.seed);
    void* dest = hands.slots().at(0);
    for (std::uint64_t i = 1; i <= o_.objects; ++i) {
      const std::uint64_t bytes = kNodeBytes.draw(sizes);
      auto* node = static_cast<std::byte*>(hands.take_to(dest, bytes));
      if (node == nullptr) return;
      Numbered{node, hands.word_bytes(), bytes}.write(i);
      dest = node;
    }
  }

  void flush_contents(Allocator& allocator, Slots slots) override {
    Rng sizes(o_.seed);
    const void* dest = slots.at(0);
    for (std::uint64_t i = 1; i <= o_.objects; ++i) {
      const void* node = allocator.follow(dest);
      if (node == nullptr) return;
      allocator.flush(node, kNodeBytes.draw(sizes));
      dest = node;
    }
  }

  const char* inspect(Allocator& allocator, Slots slots) override {
    Rng sizes(o_.seed);
    const void* dest = slots.at(0);
    for (std::uint64_t i = 1; i <= o_.objects; ++i) {
      auto* node = static_cast<std::byte*>(allocator.follow(dest));
      if (node == nullptr) return "the list ends early";
      if (!Numbered{node, allocator.word_bytes(), kNodeBytes.draw(sizes)}.holds(i)) {
        return "a node of the list is not what it was";
      }
      dest = node;
    }
    return allocator.follow(dest) == nullptr ? nullptr : "the list does not end";
  }
};

}  // namespace

std::unique_ptr<Case> make_recovery_list(const CaseOptions& o) {
  return std::make_unique<RecoveryList>(o);
}

}  // namespace bench
