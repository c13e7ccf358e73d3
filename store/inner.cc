#include "store/inner.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "pm/assert.h"

namespace tenuto::inline TENUTO_ABI::store {

std::uint64_t key_head(std::string_view rest) {
  std::uint64_t word = 0;
  if (rest.size() >= sizeof word) [[likely]] {
    std::memcpy(&word, rest.data(), sizeof word);
    return __builtin_bswap64(word);
  }
  for (std::size_t i = 0; i < rest.size(); ++i) {
    word |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(rest[i])) << (56 - 8 * i);
  }
  return word;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t n = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

std::string_view shortest_separator(std::string_view left, std::string_view right) {
  TENUTO_DCHECK(left < right);
  return right.substr(0, common_prefix(left, right) + 1);
}

unsigned Node::find(std::string_view key) const { return rank(key, true); }
unsigned Node::find_before(std::string_view key) const { return rank(key, false); }

// The number of separators below the key (or equal to it, when inclusive).
unsigned Node::rank(std::string_view key, bool inclusive) const {
  if (prefix_bytes_ > 0) {
    const std::size_t n = std::min<std::size_t>(prefix_bytes_, key.size());
    const int order = n == 0 ? 0 : std::memcmp(key.data(), prefix(), n);
    if (order < 0 || (order == 0 && n < prefix_bytes_)) return 0;
    if (order > 0) return separators();
    key.remove_prefix(n);
  }
  const std::uint64_t head = key_head(key);
  unsigned group = 0;
  for (unsigned i = 0; i < kHints; ++i) group += hint_[i] <= head ? 1u : 0u;
  group = std::min(group, groups());  // all-ones keys also count hints that are not there
  if (group == 0) return 0;
  const std::uint64_t* in_group = heads() + (group - 1) * kGroup;
  unsigned n = 0;
  for (unsigned i = 0; i < kGroup; ++i) n += in_group[i] <= head ? 1u : 0u;
  n = std::min((group - 1) * kGroup + n, separators());
  if (n == 0 || heads()[n - 1] != head) return n;
  unsigned first = n - 1;
  while (first > 0 && heads()[first - 1] == head) --first;
  return rank_among_equals(key, first, n, inclusive);
}

unsigned Node::rank_among_equals(std::string_view rest, unsigned from, unsigned to,
                                 bool inclusive) const {
  while (from < to) {
    const unsigned mid = from + (to - from) / 2;
    const int order = suffix(mid).compare(rest);
    if (order < 0 || (order == 0 && inclusive)) {
      from = mid + 1;
    } else {
      to = mid;
    }
  }
  return from;
}

void Node::append_separator(unsigned i, std::string& out) const {
  out.append(prefix(), prefix_bytes_);
  out.append(suffix(i));
}

NodeShape Node::shape() const {
  NodeShape s;
  s.seps.resize(separators());
  for (unsigned i = 0; i < separators(); ++i) append_separator(i, s.seps[i]);
  s.children.reserve(count_ + 1u);
  for (unsigned i = 0; i < count_; ++i) {
    s.children.push_back(children()[i].load(std::memory_order_acquire));
  }
  return s;
}

Node* Node::make(unsigned level, const NodeShape& shape, std::size_t from, std::size_t to) {
  TENUTO_ASSERT(from < to && to - from <= kFanout && to <= shape.children.size());
  const std::size_t count = to - from;
  const std::string* sep = shape.seps.data() + from;
  const std::size_t seps = count - 1;
  const std::size_t prefix = seps == 0 ? 0 : common_prefix(sep[0], sep[seps - 1]);
  const std::size_t groups = (seps + kGroup - 1) / kGroup;
  std::size_t text_bytes = prefix > kPrefixInline ? prefix : 0;
  for (std::size_t i = 0; i < seps; ++i) text_bytes += sep[i].size() - prefix;
  const std::size_t bytes = sizeof(Node) + groups * kGroup * 8 + count * 8 + seps * 4 + text_bytes;

  void* memory = ::operator new (bytes, std::align_val_t{alignof(Node)});
  Node* n = new (memory) Node;
  n->bytes_ = static_cast<std::uint32_t>(bytes);
  n->level_ = static_cast<std::uint8_t>(level);
  n->count_ = static_cast<std::uint8_t>(count);
  n->prefix_bytes_ = static_cast<std::uint32_t>(prefix);
  char* text = n->text();
  std::size_t at = 0;
  if (prefix > kPrefixInline) {
    std::memcpy(text, sep[0].data(), prefix);
    at = prefix;
  } else if (prefix > 0) {
    std::memcpy(n->prefix_, sep[0].data(), prefix);
  }
  n->suffix_start_ = static_cast<std::uint32_t>(at);
  for (std::size_t i = 0; i < seps; ++i) {
    const std::string_view rest = std::string_view(sep[i]).substr(prefix);
    n->heads()[i] = key_head(rest);
    if (!rest.empty()) std::memcpy(text + at, rest.data(), rest.size());
    at += rest.size();
    n->ends()[i] = static_cast<std::uint32_t>(at);
  }
  for (std::size_t i = seps; i < groups * kGroup; ++i) n->heads()[i] = ~0ull;
  for (std::size_t g = 0; g < kHints; ++g) {
    n->hint_[g] = g < groups ? n->heads()[g * kGroup] : ~0ull;
  }
  for (std::size_t i = 0; i < count; ++i) {
    new (&n->children()[i]) std::atomic<void*>(shape.children[from + i]);
  }
  return n;
}

void Node::destroy(Node* node) { ::operator delete (node, std::align_val_t{alignof(Node)}); }

bool Node::lock() {
  Backoff wait;
  for (;;) {
    std::uint32_t expected = kLive;
    if (state_.compare_exchange_weak(expected, kLocked, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
      return true;
    }
    if (expected == kObsolete) return false;
    if (expected == kLocked) wait.pause();
  }
}

}  // namespace tenuto::inline TENUTO_ABI::store
