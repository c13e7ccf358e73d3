// An inner node of the index, in DRAM: separators and children. A node is built once. After that
// only its child pointers change. A change of shape makes a new node and swaps one pointer in the
// parent (index.cc). So readers see whole nodes. They need an epoch guard, but no locks and no
// versions.
//
// **Search.** The separators share a prefix. It is compared once, as one word if it has at most
// eight bytes. The head of a separator is its next eight bytes as a big-endian number. Eight hints
// choose a group of eight heads. Both are compared by vector instructions, two numbers at a time.
// The separators' own bytes are read only if heads are equal. A search reads three lines of a node
// as a rule, some fifty instructions; the child pointer is in a fourth, which is prefetched.
//
// **Kept leaves.** A node that comes from an image also has what that keeps of its leaves
// (KeptLeaf). It counts while a leaf is unmade, because nobody changes such a leaf (unmade.h). A
// node that is made of another one has it, too, unless all its leaves are made.
#pragma once

#include <nmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "store/tree/shadow_leaf.h"
#include "tenuto/units.h"

namespace TENUTO_NS::store {

inline constexpr unsigned kFanout = 64;

// A node taken apart. seps[i] is between children i and i + 1.
struct NodeShape {
  std::vector<std::string> seps;
  std::vector<void*> children;
  std::vector<KeptLeaf> kept = {};  // of each child; or empty

  void insert(std::size_t at, void* child);  // nothing is kept of it
  void erase(std::size_t at);                // a child
};

// The first eight bytes as a big-endian number; zeros after the end. short: REQUIRES fewer.
std::uint64_t short_key_head(std::string_view rest);
inline std::uint64_t key_head(std::string_view rest) {
  std::uint64_t word = 0;
  if (rest.size() < sizeof word) [[unlikely]]
    return short_key_head(rest);
  std::memcpy(&word, rest.data(), sizeof word);
  return __builtin_bswap64(word);
}

class alignas(kLineBytes) Node {
 public:
  // Takes children [from, to) of the shape. Level 1 has leaves as children. REQUIRES: 1 <= children
  // <= kFanout; separators ascend and are one fewer than children.
  static Node* make(unsigned level, const NodeShape& shape, std::size_t from, std::size_t to);
  static void destroy(Node* node);
  // A node of level 1 as bytes, for the image of a clean close (image.h). It has no addresses in it
  // but its children, in whose place leave(i, kept) gives words that mean the same in every
  // process, and fills in what is kept of the leaf. Writes image_bytes(with_kept) bytes, and no
  // others.
  template <class Leave>
  void write(std::byte* to, bool with_kept, const Leave& leave) const {
    std::memcpy(to, static_cast<const void*>(this), bytes_without_kept());
    auto& copy = *reinterpret_cast<Node*>(to);
    copy.state_.store(kLive, std::memory_order_relaxed);
    copy.bytes_ = static_cast<std::uint32_t>(image_bytes(with_kept));
    copy.has_kept_ = with_kept;
    for (unsigned i = 0; i < count_; ++i) {
      KeptLeaf kept;
      copy.children()[i].store(leave(i, kept), std::memory_order_relaxed);
      if (with_kept) copy.kept()[i] = kept;
    }
  }
  std::size_t image_bytes(bool with_kept) const {
    return bytes_without_kept() + (with_kept ? count_ * sizeof(KeptLeaf) : 0);
  }
  // The node that was written there; null: these bytes are no such node. Checks what a search
  // relies on to stay inside the node, not the separators.
  static Node* read(const std::byte* from, std::size_t room);
  // A copy with one more child after child i. Null: the node is full, or the common prefix gets
  // shorter, and the copy has to be made from the shape.
  Node* with_child(unsigned i, std::string_view separator, void* right) const;

  unsigned level() const { return level_; }
  unsigned count() const { return count_; }
  std::size_t bytes() const { return bytes_; }

  // The child whose range holds the key.
  unsigned find(std::string_view key) const { return rank(key, true); }
  // The child whose range holds the greatest keys below the key.
  unsigned find_before(std::string_view key) const { return rank(key, false); }

  // Acquire: meets set_child(), and the store that publishes the parent.
  Node* node(unsigned i) const {
    return static_cast<Node*>(children()[i].load(std::memory_order_acquire));
  }
  // A shadow leaf, or an UnmadeLeaf.
  void* child(unsigned i) const { return children()[i].load(std::memory_order_acquire); }
  // REQUIRES: locked.
  void set_child(unsigned i, void* child) { children()[i].store(child, std::memory_order_release); }
  void append_separator(unsigned i, std::string& out) const;
  // Of an unmade child. Null: nothing is.
  const KeptLeaf* kept(unsigned i) const { return has_kept_ ? kept() + i : nullptr; }
  NodeShape shape() const;

  // To be called before the node is replaced. False: it was replaced already.
  bool lock();
  void unlock() { state_.store(kLive, std::memory_order_release); }
  // To be called before the successor can be found. Release: a reader that loads the version of a
  // leaf that was changed through the successor sees it, too (obsolete()).
  void set_obsolete() { state_.store(kObsolete, std::memory_order_release); }
  bool obsolete() const { return state_.load(std::memory_order_acquire) == kObsolete; }

 private:
  static constexpr std::uint32_t kLive = 0, kLocked = 1, kObsolete = 2;
  static constexpr unsigned kHints = 8;
  static constexpr unsigned kGroup = 8;  // heads under one hint
  static_assert(kHints * kGroup >= kFanout);
  static constexpr std::size_t kPrefixInline = 36;
  static constexpr std::size_t kPrefixWord = 8;

  Node() = default;
  static std::size_t bytes_of(std::size_t children, std::size_t text_bytes);
  static Node* allocate(unsigned level, std::size_t children, std::size_t text_bytes,
                        bool with_kept = false);
  bool unmade_left() const;
  unsigned rank(std::string_view key, bool inclusive) const;
  unsigned rank_of_head(std::string_view rest, bool inclusive) const;
  unsigned rank_beside_prefix(std::string_view key, bool inclusive) const;
  void set_prefix(std::string_view prefix);
  void set_hints();
  unsigned rank_among_equals(std::string_view rest, unsigned from, unsigned to,
                             bool inclusive) const;

  unsigned separators() const { return count_ - 1u; }
  unsigned groups() const { return (separators() + kGroup - 1) / kGroup; }
  // Heads are kept with the top bit flipped, because vector instructions compare signed numbers.
  static std::int64_t ranked(std::uint64_t head) {
    return static_cast<std::int64_t>(head ^ 1ull << 63);
  }
  static constexpr std::int64_t kNoHead = INT64_MAX;  // also the head of eight bytes ff
  static unsigned count_up_to(const std::int64_t* eight, std::int64_t head);
  std::int64_t* heads() { return reinterpret_cast<std::int64_t*>(this + 1); }
  const std::int64_t* heads() const { return reinterpret_cast<const std::int64_t*>(this + 1); }
  std::atomic<void*>* children() const {
    return reinterpret_cast<std::atomic<void*>*>(
        const_cast<std::int64_t*>(heads() + groups() * kGroup));
  }
  std::uint32_t* ends() const { return reinterpret_cast<std::uint32_t*>(children() + count_); }
  char* text() const { return reinterpret_cast<char*>(ends() + separators()); }
  KeptLeaf* kept() const {
    auto* const self = reinterpret_cast<char*>(const_cast<Node*>(this));
    return reinterpret_cast<KeptLeaf*>(self + bytes_without_kept());
  }
  std::size_t bytes_without_kept() const {
    return has_kept_ ? bytes_ - count_ * sizeof(KeptLeaf) : bytes_;
  }
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
  bool has_kept_ = false;
  std::uint32_t prefix_bytes_ = 0;
  // Atomic.
  std::atomic<std::uint32_t> state_{kLive};
  // Constant after make.
  std::uint32_t suffix_start_ = 0;
  char prefix_[kPrefixInline] = {};
  std::uint64_t prefix_word_ = 0;   // the prefix as a number, if it has 1 to kPrefixWord bytes
  std::int64_t hint_[kHints] = {};  // the first head of each group; kNoHead past the last
  // Then: heads (whole groups), children, ends of suffixes, [long prefix] suffixes, [kept leaves].
};
static_assert(sizeof(Node) == 2 * kLineBytes);

// How many of eight ranked heads are at most this one. Cost: some fifteen instructions.
inline unsigned Node::count_up_to(const std::int64_t* eight, std::int64_t head) {
  const auto* at = reinterpret_cast<const __m128i*>(eight);
  const __m128i wanted = _mm_set1_epi64x(head);
  const __m128i a = _mm_cmpgt_epi64(_mm_load_si128(at), wanted);
  const __m128i b = _mm_cmpgt_epi64(_mm_load_si128(at + 1), wanted);
  const __m128i c = _mm_cmpgt_epi64(_mm_load_si128(at + 2), wanted);
  const __m128i d = _mm_cmpgt_epi64(_mm_load_si128(at + 3), wanted);
  const __m128i sum = _mm_add_epi64(_mm_add_epi64(a, b), _mm_add_epi64(c, d));  // -1 for each above
  const auto above = _mm_cvtsi128_si64(_mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum)));
  return static_cast<unsigned>(static_cast<std::int64_t>(kGroup) + above);
}

// The number of separators below the key (or equal to it, when inclusive).
inline unsigned Node::rank(std::string_view key, bool inclusive) const {
  const std::size_t prefix = prefix_bytes_;
  if (prefix == 0) return rank_of_head(key, inclusive);
  if (prefix > kPrefixWord || key.size() < kPrefixWord) [[unlikely]]
    return rank_beside_prefix(key, inclusive);
  const std::uint64_t word = key_head(key) >> (64 - 8 * prefix);
  if (word != prefix_word_) return word < prefix_word_ ? 0 : separators();
  return rank_of_head(key.substr(prefix), inclusive);
}

inline unsigned Node::rank_of_head(std::string_view rest, bool inclusive) const {
  const std::int64_t head = ranked(key_head(rest));
  // A key of eight bytes ff also counts the hints and heads past the end.
  const unsigned group = std::min(count_up_to(hint_, head), groups());
  if (group == 0) return 0;
  unsigned n = (group - 1) * kGroup;
  __builtin_prefetch(children() + n);
  n = std::min(n + count_up_to(heads() + n, head), separators());
  if (n == 0 || heads()[n - 1] != head) [[likely]]
    return n;
  unsigned first = n - 1;
  while (first > 0 && heads()[first - 1] == head) --first;
  return rank_among_equals(rest, first, n, inclusive);
}

std::size_t common_prefix(std::string_view a, std::string_view b);

// The shortest string s with left < s <= right. REQUIRES: left < right.
std::string_view shortest_separator(std::string_view left, std::string_view right);

}  // namespace TENUTO_NS::store
