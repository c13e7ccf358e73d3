// An inner node of the index, in DRAM: separators and children, built once and then immutable but
// for the child pointers. A change of shape makes a new node and swaps one pointer in the parent
// (index.cc); readers need neither locks nor versions here, only an epoch guard, and see whole
// nodes. Called by index.cc and, through it, by everybody who looks for a leaf.
//
// Search: the bytes that all separators share are compared once; then eight hints choose eight
// heads (the next eight bytes of each separator as a big-endian number), and only equal heads
// need the separators' own bytes. Two lines a node as a rule.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "store/vleaf.h"
#include "tenuto/units.h"

namespace tenuto::inline TENUTO_ABI::store {

inline constexpr unsigned kFanout = 64;

// A node taken apart. seps[i] stands between children i and i + 1.
struct NodeShape {
  std::vector<std::string> seps;
  std::vector<void*> children;
};

class alignas(kLineBytes) Node {
 public:
  // Level 1 has leaves as children. REQUIRES: 1 <= children <= kFanout, separators ascending, one
  // fewer than children. [from, to) are children of the shape.
  static Node* make(unsigned level, const NodeShape& shape, std::size_t from, std::size_t to);
  static void destroy(Node* node);

  unsigned level() const { return level_; }
  unsigned count() const { return count_; }
  std::size_t bytes() const { return bytes_; }

  // The child whose range holds the key.
  unsigned find(std::string_view key) const;
  // The child whose range holds the greatest keys below the key.
  unsigned find_before(std::string_view key) const;

  // Acquire: meets set_child(), and the publishing of the parent.
  Node* node(unsigned i) const {
    return static_cast<Node*>(children()[i].load(std::memory_order_acquire));
  }
  VLeaf* leaf(unsigned i) const {
    return static_cast<VLeaf*>(children()[i].load(std::memory_order_acquire));
  }
  // REQUIRES: locked.
  void set_child(unsigned i, void* child) { children()[i].store(child, std::memory_order_release); }
  void append_separator(unsigned i, std::string& out) const;
  NodeShape shape() const;

  // A locked node may be replaced. False when it was replaced already.
  bool lock();
  void unlock() { state_.store(kLive, std::memory_order_release); }
  // The replaced node's end. Release: after the leaf's unlock, readers see it (obsolete()).
  void set_obsolete() { state_.store(kObsolete, std::memory_order_release); }
  bool obsolete() const { return state_.load(std::memory_order_acquire) == kObsolete; }

 private:
  static constexpr std::uint32_t kLive = 0, kLocked = 1, kObsolete = 2;
  static constexpr unsigned kHints = 8;
  static constexpr unsigned kGroup = 8;  // heads under one hint
  static_assert(kHints * kGroup >= kFanout);
  static constexpr std::size_t kPrefixInline = 44;

  Node() = default;
  unsigned rank(std::string_view key, bool inclusive) const;
  unsigned rank_among_equals(std::string_view rest, unsigned from, unsigned to,
                             bool inclusive) const;

  unsigned separators() const { return count_ - 1u; }
  unsigned groups() const { return (separators() + kGroup - 1) / kGroup; }
  std::uint64_t* heads() { return reinterpret_cast<std::uint64_t*>(this + 1); }
  const std::uint64_t* heads() const { return reinterpret_cast<const std::uint64_t*>(this + 1); }
  std::atomic<void*>* children() const {
    return reinterpret_cast<std::atomic<void*>*>(
        const_cast<std::uint64_t*>(heads() + groups() * kGroup));
  }
  std::uint32_t* ends() const { return reinterpret_cast<std::uint32_t*>(children() + count_); }
  char* text() const { return reinterpret_cast<char*>(ends() + separators()); }
  const char* prefix() const { return prefix_bytes_ <= kPrefixInline ? prefix_ : text(); }
  // The separator without the common prefix.
  std::string_view suffix(unsigned i) const {
    const std::uint32_t from = i == 0 ? suffix_start_ : ends()[i - 1];
    return {text() + from, ends()[i] - from};
  }

  // Constant after make.
  std::uint32_t bytes_ = 0;
  std::uint8_t level_ = 0;
  std::uint8_t count_ = 0;
  std::uint32_t prefix_bytes_ = 0;
  // Atomic.
  std::atomic<std::uint32_t> state_{kLive};
  // Constant after make.
  std::uint32_t suffix_start_ = 0;
  char prefix_[kPrefixInline] = {};
  std::uint64_t hint_[kHints] = {};  // head of each group; all ones where there is none
  // Then: heads (whole groups), children, ends of suffixes, [long prefix] suffixes.
};
static_assert(sizeof(Node) == 2 * kLineBytes);

// The first eight bytes as a big-endian number, zeros behind the end.
std::uint64_t key_head(std::string_view rest);

std::size_t common_prefix(std::string_view a, std::string_view b);

// The shortest string s with left < s <= right. REQUIRES: left < right.
std::string_view shortest_separator(std::string_view left, std::string_view right);

}  // namespace tenuto::inline TENUTO_ABI::store
