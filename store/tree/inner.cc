#include "store/tree/inner.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "pm/assert.h"
#include "pm/plant.h"
#include "store/tree/unmade.h"

namespace TENUTO_NS::store {

std::uint64_t short_key_head(std::string_view rest) {
  const std::size_t n = rest.size();
  if (n >= 4) {  // the first four and the last four bytes, which may overlap
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::memcpy(&first, rest.data(), sizeof first);
    std::memcpy(&last, rest.data() + n - sizeof last, sizeof last);
    return std::uint64_t{__builtin_bswap32(first)} << 32 | std::uint64_t{__builtin_bswap32(last)}
                                                               << (64 - 8 * n);
  }
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < n; ++i) {
    word |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(rest[i])) << (56 - 8 * i);
  }
  return word;
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  const std::size_t n = std::min(a.size(), b.size());
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= n; i += sizeof(std::uint64_t)) {
    const std::uint64_t differ = key_head(a.substr(i)) ^ key_head(b.substr(i));
    if (differ != 0) return i + static_cast<std::size_t>(std::countl_zero(differ)) / 8;
  }
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

std::string_view shortest_separator(std::string_view left, std::string_view right) {
  TENUTO_DCHECK(left < right);
  return right.substr(0, common_prefix(left, right) + 1);
}

unsigned Node::rank_beside_prefix(std::string_view key, bool inclusive) const {
  const std::size_t n = std::min<std::size_t>(prefix_bytes_, key.size());
  const int order = n == 0 ? 0 : std::memcmp(key.data(), prefix(), n);
  if (order < 0 || (order == 0 && n < prefix_bytes_)) return 0;
  if (order > 0) return separators();
  return rank_of_head(key.substr(n), inclusive);
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

void NodeShape::insert(std::size_t at, void* child) {
  const auto i = static_cast<std::ptrdiff_t>(at);
  children.insert(children.begin() + i, child);
  if (!kept.empty()) kept.insert(kept.begin() + i, KeptLeaf::nothing());
}

void NodeShape::erase(std::size_t at) {
  const auto i = static_cast<std::ptrdiff_t>(at);
  children.erase(children.begin() + i);
  if (!kept.empty()) kept.erase(kept.begin() + i);
}

NodeShape Node::shape() const {
  NodeShape s;
  s.seps.resize(separators());
  for (unsigned i = 0; i < separators(); ++i) append_separator(i, s.seps[i]);
  s.children.reserve(count_ + 1u);
  for (unsigned i = 0; i < count_; ++i) {
    s.children.push_back(children()[i].load(std::memory_order_acquire));
  }
  if (has_kept_) s.kept.assign(kept(), kept() + count_);
  return s;
}

std::size_t Node::bytes_of(std::size_t children, std::size_t text_bytes) {
  const std::size_t seps = children - 1;
  const std::size_t groups = (seps + kGroup - 1) / kGroup;
  const std::size_t bytes = groups * kGroup * 8 + children * 8 + seps * 4 + text_bytes;
  return sizeof(Node) + round_up(bytes, alignof(KeptLeaf));
}

Node* Node::allocate(unsigned level, std::size_t children, std::size_t text_bytes, bool with_kept) {
  const std::size_t bytes =
      bytes_of(children, text_bytes) + (with_kept ? children * sizeof(KeptLeaf) : 0);
  void* memory = ::operator new (bytes, std::align_val_t{alignof(Node)});
  Node* n = new (memory) Node;
  n->bytes_ = static_cast<std::uint32_t>(bytes);
  n->level_ = static_cast<std::uint8_t>(level);
  n->count_ = static_cast<std::uint8_t>(children);
  n->has_kept_ = with_kept;
  return n;
}

// REQUIRES: the text has room for a long prefix.
void Node::set_prefix(std::string_view prefix) {
  prefix_bytes_ = static_cast<std::uint32_t>(prefix.size());
  if (prefix.size() > kPrefixInline) {
    std::memcpy(text(), prefix.data(), prefix.size());
    suffix_start_ = prefix_bytes_;
    return;
  }
  if (!prefix.empty()) std::memcpy(prefix_, prefix.data(), prefix.size());
  if (!prefix.empty() && prefix.size() <= kPrefixWord) {
    prefix_word_ = key_head(prefix) >> (64 - 8 * prefix.size());
  }
}

// REQUIRES: the heads of all separators are set.
void Node::set_hints() {
  for (std::size_t i = separators(); i < groups() * kGroup; ++i) heads()[i] = kNoHead;
  for (std::size_t g = 0; g < kHints; ++g) {
    hint_[g] = g < groups() ? heads()[g * kGroup] : kNoHead;
  }
}

Node* Node::make(unsigned level, const NodeShape& shape, std::size_t from, std::size_t to) {
  TENUTO_ASSERT(from < to && to - from <= kFanout && to <= shape.children.size());
  const std::size_t count = to - from;
  const std::string* sep = shape.seps.data() + from;
  const std::size_t seps = count - 1;
  const std::size_t prefix = seps == 0 ? 0 : common_prefix(sep[0], sep[seps - 1]);
  std::size_t text_bytes = prefix > kPrefixInline ? prefix : 0;
  for (std::size_t i = 0; i < seps; ++i) text_bytes += sep[i].size() - prefix;

  const bool keeps =
      !shape.kept.empty() && !TENUTO_PLANT("store_kept_leaves_end_with_their_node") &&
      std::any_of(shape.children.begin() + static_cast<std::ptrdiff_t>(from),
                  shape.children.begin() + static_cast<std::ptrdiff_t>(to), UnmadeLeaf::is);
  Node* n = allocate(level, count, text_bytes, keeps);
  if (prefix > 0) n->set_prefix(std::string_view(sep[0]).substr(0, prefix));
  char* text = n->text();
  std::size_t at = n->suffix_start_;
  for (std::size_t i = 0; i < seps; ++i) {
    const std::string_view rest = std::string_view(sep[i]).substr(prefix);
    n->heads()[i] = ranked(key_head(rest));
    if (!rest.empty()) std::memcpy(text + at, rest.data(), rest.size());
    at += rest.size();
    n->ends()[i] = static_cast<std::uint32_t>(at);
  }
  n->set_hints();
  for (std::size_t i = 0; i < count; ++i) {
    new (&n->children()[i]) std::atomic<void*>(shape.children[from + i]);
    if (keeps) n->kept()[i] = shape.kept[from + i];
  }
  return n;
}

Node* Node::read(const std::byte* from, std::size_t room) {
  if (room < sizeof(Node)) return nullptr;
  const auto& n = *reinterpret_cast<const Node*>(from);
  if (n.level_ != 1 || n.count_ == 0 || n.count_ > kFanout || n.bytes_ > room) return nullptr;
  const std::size_t kept = n.has_kept_ ? n.count_ * sizeof(KeptLeaf) : 0;
  if (n.bytes_ < bytes_of(n.count_, 0) + kept) return nullptr;
  const bool outside = n.prefix_bytes_ > kPrefixInline;
  std::uint32_t end = n.suffix_start_;
  if (end != (outside ? n.prefix_bytes_ : 0)) return nullptr;
  for (unsigned i = 0; i < n.separators(); ++i) {
    if (n.ends()[i] < end) return nullptr;
    end = n.ends()[i];
  }
  if (bytes_of(n.count_, end) + kept != n.bytes_) return nullptr;
  void* const memory = ::operator new (n.bytes_, std::align_val_t{alignof(Node)});
  std::memcpy(memory, from, n.bytes_);
  return static_cast<Node*>(memory);
}

bool Node::unmade_left() const {
  for (unsigned i = 0; i < count_; ++i) {
    if (UnmadeLeaf::is(child(i))) return true;
  }
  return false;
}

Node* Node::with_child(unsigned i, std::string_view separator, void* right) const {
  const unsigned old = separators();
  if (count_ >= kFanout || old == 0) return nullptr;
  const std::string_view shared(prefix(), prefix_bytes_);
  if (separator.substr(0, shared.size()) != shared) return nullptr;
  const std::string_view rest = separator.substr(shared.size());
  const std::uint32_t text_end = ends()[old - 1];
  const std::uint32_t at = i == 0 ? suffix_start_ : ends()[i - 1];  // where the new suffix goes
  const auto grown = static_cast<std::uint32_t>(rest.size());

  const bool keeps = has_kept_ && unmade_left();
  Node* n = allocate(level_, count_ + 1u, text_end + grown, keeps);
  n->prefix_bytes_ = prefix_bytes_;
  n->suffix_start_ = suffix_start_;
  n->prefix_word_ = prefix_word_;
  std::memcpy(n->prefix_, prefix_, sizeof prefix_);
  std::memcpy(n->heads(), heads(), i * sizeof *heads());
  n->heads()[i] = ranked(key_head(rest));
  std::memcpy(n->heads() + i + 1, heads() + i, (old - i) * sizeof *heads());
  n->set_hints();
  for (unsigned c = 0, from = 0; c < n->count_; ++c) {
    void* child = c == i + 1 ? right : children()[from++].load(std::memory_order_acquire);
    new (&n->children()[c]) std::atomic<void*>(child);
  }
  std::memcpy(n->ends(), ends(), i * sizeof *ends());
  n->ends()[i] = at + grown;
  for (unsigned s = i; s < old; ++s) n->ends()[s + 1] = ends()[s] + grown;
  std::memcpy(n->text(), text(), at);
  if (grown > 0) std::memcpy(n->text() + at, rest.data(), grown);
  std::memcpy(n->text() + at + grown, text() + at, text_end - at);
  if (keeps) {
    const unsigned moved = TENUTO_PLANT("store_kept_leaves_do_not_move") ? 0 : 1;
    std::copy_n(kept(), i + 1, n->kept());
    n->kept()[i + 1] = KeptLeaf::nothing();  // of `right`, which is made
    std::copy(kept() + i + 1, kept() + count_, n->kept() + i + 1 + moved);
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

}  // namespace TENUTO_NS::store
