// The watch's part about other pools: pointers that lead out of their own.
//
// A word is suspected if it was stored since the last comparison, and read as a Ptr leads out of
// the pool. It is told if it leads to an object of another open pool, or into a closed one. A
// number may look the same: watched pools keep 1 TiB free around them (src/file/addresses.cc), so
// only a number above 2^41 that hits the other pool by chance is mistaken for a pointer.
//
// Which other pools there are is asked without mu_: their heaps have locks of their own.
#include <algorithm>
#include <cstring>

#include "heap/place.h"
#include "pm/closed_pools.h"
#include "tenuto/ptr.h"
#include "tx/open_engines.h"
#include "tx/txn.h"
#include "tx/watch.h"

namespace TENUTO_NS::tx {

namespace {

constexpr std::uint64_t kWordBytes = sizeof(std::uint64_t);
constexpr std::size_t kFlushedWordsMost = 4096;
constexpr std::uintptr_t kAddressesEnd = std::uintptr_t{1} << 47;  // of programs, on x86-64

// Empty: not into another pool.
std::string pool_at(const void* p) {
  const std::string open = OpenEngines::describe(p);
  return open.empty() ? pm::closed_pool_at(p) : open;
}

}  // namespace

// Cost: a few instructions for most words. Those of other pools are looked up later.
bool Watch::leads_out(Word word) const {
  if ((word.raw & 1) == 0) return false;
  const auto to = reinterpret_cast<std::uintptr_t>(
      PtrWord::decode(file_.at<std::byte>({0}) + word.at, word.raw));
  const auto begin = reinterpret_cast<std::uintptr_t>(file_.base());
  const bool inside = to >= begin && to - begin < file_.bytes_max();
  return !inside && to >= kFrameBytes && to < kAddressesEnd;
}

// REQUIRES: mu_ is held.
void Watch::find_pointers(Range r, std::vector<Word>& words) const {
  const std::uint64_t end = round_down(r.end, kWordBytes);
  for (std::uint64_t at = round_up(r.begin, kWordBytes); at < end; at += kWordBytes) {
    Word word{at, 0};
    std::uint64_t before = 0;
    std::memcpy(&word.raw, file_.at<std::byte>({at}), kWordBytes);
    if (!leads_out(word)) continue;
    if (const std::byte* const copy = copy_of(at)) std::memcpy(&before, copy, kWordBytes);
    if (before != word.raw) words.push_back(word);
  }
}

// What a transaction stored is looked at when it ends. REQUIRES: mu_ is held.
void Watch::find_flushed_pointers(Range lines) {
  std::vector<Word> words;
  find_pointers(lines, words);
  for (const Word word : words) {
    if (flushed_words_.size() == kFlushedWordsMost) return;
    if (!covered(word.at)) flushed_words_.push_back(word);
  }
}

void Watch::judge_pointer(Word word, const std::string& found_at) const {
  std::byte* const at = file_.at<std::byte>({word.at});
  std::uint64_t now = 0;
  std::memcpy(&now, at, kWordBytes);
  if (now != word.raw) return;
  const heap::Place place = heap_.look({word.at});
  if (place.what != heap::Place::What::block || place.derived ||
      place.use == heap::Place::Use::free) {
    return;
  }
  const std::string pool = pool_at(PtrWord::decode(at, word.raw));
  if (pool.empty()) return;
  say("a pointer that leads out of its pool was stored: the next open maps the other pool "
      "elsewhere; keep both objects in one pool, or store the other pool's id and the offset there "
      "(Pool::offset_of, Pool::at)",
      std::to_string(word.at - place.begin.value) + " bytes from the begin of the " +
          place.text(place.begin) + "; it leads into " + pool + "; " + found_at);
}

void Watch::foreign(const Txn& txn, Foreign what, const void* p) noexcept {
  unless_ended([&] {
    const std::string pool = pool_at(p);
    say(what == Foreign::target
            ? "a field gets a pointer out of its pool, so the transaction will not commit: keep "
              "both objects in one pool"
            : "a transaction was given a range that is not in its pool: use a transaction on the "
              "pool that it is in, or a part there (Transaction part(pool, first))",
        "the pointer leads into " + (pool.empty() ? "no object of a pool" : pool) + "; " +
            txn.place());
  });
}

}  // namespace TENUTO_NS::tx
