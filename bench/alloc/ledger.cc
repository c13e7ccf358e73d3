// Tags, fills and the interval map; see ledger.h.
#include "bench/alloc/ledger.h"

#include <cstring>

#include "bench/support/rng.h"

namespace bench {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);

std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, kWord);
  return word;
}

void set_word(std::byte* at, std::uint64_t word) { std::memcpy(at, &word, kWord); }

// Calls f(place, word) for the whole words between the two tags.
template <class Place, class F>
void each_inner_word(Place* block, std::uint64_t bytes, std::uint64_t tag, F&& f) {
  std::uint64_t i = kWord;
  for (; i + 2 * kWord <= bytes; i += kWord) f(block + i, mix64(tag + i));
}

}  // namespace

const char* Ledger::born(std::uint32_t slot, void* block, std::uint64_t bytes,
                         std::uint64_t sequence) {
  Entry& e = entries_[slot];
  if (block == nullptr) return "malloc was refused";
  if (e.tag != 0) return "a block for a slot that has one";
  e = {mix64(sequence), bytes};
  auto* start = static_cast<std::byte*>(block);
  if (verify_) {
    if (const char* wrong = enter(block, bytes)) return wrong;
    std::memset(start, 0xa5, bytes);
    each_inner_word(start, bytes, e.tag, [](std::byte* at, std::uint64_t w) { set_word(at, w); });
  }
  set_word(start, e.tag);
  if (bytes >= 2 * kWord) set_word(start + bytes - kWord, ~e.tag);
  return nullptr;
}

const char* Ledger::check(std::uint32_t slot, const void* block) const {
  const Entry& e = entries_[slot];
  if (e.tag == 0) return "no block in this slot";
  if (block == nullptr) return "the destination is null";
  const auto* start = static_cast<const std::byte*>(block);
  if (word_at(start) != e.tag) return "another's tag at the start of a block";
  if (e.bytes >= 2 * kWord && word_at(start + e.bytes - kWord) != ~e.tag) {
    return "another's tag at the end of a block";
  }
  bool same = true;
  if (verify_) {
    each_inner_word(start, e.bytes, e.tag,
                    [&](const std::byte* at, std::uint64_t w) { same = same && word_at(at) == w; });
  }
  return same ? nullptr : "foreign bytes within a block";
}

void Ledger::write_pages(std::uint32_t slot, void* block) const {
  constexpr std::uint64_t kPageBytes = 4096;
  const std::uint64_t bytes = entries_[slot].bytes;
  if (verify_ || block == nullptr) return;  // `born` has written all of it
  auto* const start = static_cast<std::byte*>(block);
  for (std::uint64_t i = kWord; i + 2 * kWord <= bytes; i += kPageBytes) set_word(start + i, i);
}

const char* Ledger::dies(std::uint32_t slot, const void* block) {
  const char* wrong = check(slot, block);
  if (wrong == nullptr && verify_) wrong = leave(block, entries_[slot].bytes);
  entries_[slot] = {};
  return wrong;
}

const char* Ledger::enter(const void* block, std::uint64_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(block);
  const std::lock_guard lock(mu_);
  const auto after = intervals_.lower_bound(start);
  if (after != intervals_.end() && after->first < start + bytes) return "overlaps a live block";
  if (after != intervals_.begin() && std::prev(after)->second > start) {
    return "overlaps a live block";
  }
  intervals_.emplace_hint(after, start, start + bytes);
  return nullptr;
}

const char* Ledger::leave(const void* block, std::uint64_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(block);
  const std::lock_guard lock(mu_);
  const auto at = intervals_.find(start);
  if (at == intervals_.end() || at->second != start + bytes) return "not in the map of live blocks";
  intervals_.erase(at);
  return nullptr;
}

}  // namespace bench
