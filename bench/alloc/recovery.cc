// Recovery of a linked list, as in NVAlloc's evaluation (ASPLOS'22), and of the same nodes in a
// binary tree. The nodes have 64..128 B, and each is allocated to a pointer in its parent: the node
// before it in a list, node i / 2 in a tree. The process then kills itself. The next process opens
// the pool against the clock. It then follows all pointers, untimed, to check that the structure is
// whole.
#include <cstring>
#include <vector>

#include "bench/alloc/case.h"

namespace bench {
namespace {

constexpr SizeRange kNodeBytes = {64, 128};

// A node's number. It is stored after the node's pointers, which are as wide as the allocator's
// words, and again at the node's end.
struct Numbered {
  std::byte* node;
  std::size_t pointer_bytes;  // of all its pointers
  std::uint64_t bytes;

  void write(std::uint64_t number) const {
    std::memset(node, 0, pointer_bytes);
    std::memcpy(node + pointer_bytes, &number, sizeof number);
    std::memcpy(node + bytes - sizeof number, &number, sizeof number);
  }
  bool holds(std::uint64_t number) const {
    return std::memcmp(node + pointer_bytes, &number, sizeof number) == 0 &&
           std::memcmp(node + bytes - sizeof number, &number, sizeof number) == 0;
  }
};

// `kFanOut` pointers a node: 1 in a list, 2 in a tree.
template <unsigned kFanOut>
class Recovery final : public Case {
 public:
  explicit Recovery(const CaseOptions& o) : Case(o) {}

  std::uint64_t slots() const override { return 1; }
  std::uint64_t live_bytes() const override { return o_.objects * kNodeBytes.most; }
  std::uint64_t ops() const override { return o_.objects; }
  bool linked() const override { return true; }
  void prepare(Hands&) override { nodes_.assign(parents(), nullptr); }

  void run(Hands& hands) override {
    Rng sizes(o_.seed);
    for (std::uint64_t i = 1; i <= o_.objects; ++i) {
      const std::uint64_t bytes = kNodeBytes.draw(sizes);
      auto* node = static_cast<std::byte*>(
          hands.take_to(pointer_to(i, hands.slots(), hands.word_bytes()), bytes));
      if (node == nullptr) return;
      Numbered{node, kFanOut * hands.word_bytes(), bytes}.write(i);
      noted(i) = node;
    }
  }

  void flush_contents(Allocator& allocator, Slots slots) override {
    for_each(allocator, slots, [&](std::uint64_t, std::byte* node, std::uint64_t bytes) {
      if (node != nullptr) allocator.flush(node, bytes);
      return node != nullptr;
    });
  }

  const char* inspect(Allocator& allocator, Slots slots) override {
    const char* wrong = nullptr;
    for_each(allocator, slots, [&](std::uint64_t i, std::byte* node, std::uint64_t bytes) {
      if (node == nullptr)
        wrong = "the structure ends early";
      else if (!Numbered{node, kFanOut * allocator.word_bytes(), bytes}.holds(i))
        wrong = "a node is not what it was";
      return wrong == nullptr;
    });
    for (std::uint64_t i = o_.objects + 1; wrong == nullptr && parent(i) <= o_.objects; ++i) {
      if (allocator.follow(pointer_to(i, slots, allocator.word_bytes())) != nullptr)
        wrong = "the structure does not end";
    }
    return wrong;
  }

 private:
  // In a list only the last node is a parent to come.
  std::uint64_t parents() const { return kFanOut == 1 ? 1 : o_.objects + 1; }
  std::byte*& noted(std::uint64_t i) { return nodes_[kFanOut == 1 ? 0 : i]; }
  static std::uint64_t parent(std::uint64_t i) { return kFanOut == 1 ? i - 1 : i / kFanOut; }
  void* pointer_to(std::uint64_t i, Slots slots, std::size_t word_bytes) {
    return i == 1 ? slots.at(0) : noted(parent(i)) + i % kFanOut * word_bytes;
  }
  // Until `visit` returns false. A node that is not there is null.
  template <class Visit>
  void for_each(Allocator& allocator, Slots slots, const Visit& visit) {
    nodes_.assign(parents(), nullptr);
    Rng sizes(o_.seed);
    for (std::uint64_t i = 1; i <= o_.objects; ++i) {
      auto* node =
          static_cast<std::byte*>(allocator.follow(pointer_to(i, slots, allocator.word_bytes())));
      if (!visit(i, node, kNodeBytes.draw(sizes))) return;
      noted(i) = node;
    }
  }

  std::vector<std::byte*> nodes_;
};

}  // namespace

std::unique_ptr<Case> make_recovery_list(const CaseOptions& o) {
  return std::make_unique<Recovery<1>>(o);
}
std::unique_ptr<Case> make_recovery_tree(const CaseOptions& o) {
  return std::make_unique<Recovery<2>>(o);
}

}  // namespace bench
