#include "tx/watch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "heap/place.h"
#include "pm/metadata_key.h"
#include "tenuto/mistakes.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

namespace {
constexpr std::array<std::byte, kFrameBytes> kZeros{};
}

Watch::Watch(pm::PoolFile& file, heap::Heap& heap, Handler handler)
    : file_(file), heap_(heap), handler_(std::move(handler)) {
  for (std::uint64_t at = 0; at < file_.bytes(); at += kFrameBytes) {
    const std::uint64_t end = std::min(at + kFrameBytes, file_.bytes());
    if (std::memcmp(file_.at<std::byte>({at}), kZeros.data(), end - at) != 0) copy({at, end});
  }
  pm::watch_flushes(file_.base(), this);
}

Watch::~Watch() { pm::watch_flushes(file_.base(), nullptr); }

// Null: zeros.
const std::byte* Watch::copy_of(std::uint64_t offset) const {
  const auto chunk = chunks_.find(offset / kChunkBytes);
  return chunk == chunks_.end() ? nullptr : chunk->second.get() + offset % kChunkBytes;
}

void Watch::copy(Range r) {
  for (std::uint64_t at = r.begin; at < r.end;) {
    const std::uint64_t end = std::min(r.end, round_down(at, kChunkBytes) + kChunkBytes);
    std::unique_ptr<std::byte[]>& chunk = chunks_[at / kChunkBytes];
    if (chunk == nullptr) chunk = std::make_unique<std::byte[]>(kChunkBytes);
    std::memcpy(chunk.get() + at % kChunkBytes, file_.at<std::byte>({at}), end - at);
    at = end;
  }
}

void Watch::flushed(const void* p, std::size_t bytes) noexcept {
  unless_ended([&] {
    const std::uint64_t at = file_.offset_of(p).value;
    const std::uint64_t end = std::min(round_up(at + bytes, kLineBytes), file_.bytes());
    const std::lock_guard lock(mu_);
    const Range lines{round_down(at, kLineBytes), end};
    find_flushed_pointers(lines);
    copy(lines);
  });
}

void Watch::settle(Range r) noexcept {
  unless_ended([&] {
    const std::lock_guard lock(mu_);
    copy(r);
  });
}

void Watch::taken(PoolOffset block) noexcept {
  unless_ended([&] {
    const heap::Place place = heap_.look(block);
    const std::lock_guard lock(mu_);
    copy({place.begin.value, place.begin.value + place.bytes});
    freed_.erase(place.begin.value);
  });
}

void Watch::freed(PoolOffset block) noexcept {
  unless_ended([&] {
    const heap::Place place = heap_.look(block);
    const std::lock_guard lock(mu_);
    if (place.slab != 0 && place.begin == block) freed_[block.value] = place.slab;
  });
}

bool Watch::was_freed(const heap::Place& place) {
  if (place.derived || place.use != heap::Place::Use::free) return false;
  const std::lock_guard lock(mu_);
  const auto at = freed_.find(place.begin.value);
  return at != freed_.end() && at->second == place.slab;
}

void Watch::cover(const Txn& txn, Range r, bool added) noexcept {
  unless_ended([&] {
    const heap::Place place = heap_.look({r.begin});
    {
      const std::lock_guard lock(mu_);
      ranges_[&txn].push_back(r);
      // What was in a new block does not matter; its pages may have been given back meanwhile.
      if (!added) {
        copy({place.begin.value, place.begin.value + place.bytes});
        freed_.erase(place.begin.value);
      }
    }
    using What = heap::Place::What;
    // The store's transactions are over its own blocks, the head and what the heap keeps.
    if (!added || place.derived || place.what == What::head || place.what == What::inner) return;
    const char* why = nullptr;
    if (place.what != What::block) {
      why = "no object is there: is the pointer one of this pool, and not copied as bytes?";
    } else if (place.use == heap::Place::Use::free) {
      why = "the object there was freed: a pointer to it is still in use";
    } else if (r.end > place.begin.value + place.bytes) {
      why = "the range goes on behind the end of its object";
    }
    if (why == nullptr) return;
    say(std::string("a range was added to a transaction, and ") + why,
        std::to_string(r.end - r.begin) + " bytes; " + place.text({r.begin}));
  });
}

void Watch::forget(const Txn& txn) noexcept {
  unless_ended([&] {
    const std::lock_guard lock(mu_);
    const auto mine = ranges_.find(&txn);
    if (mine == ranges_.end()) return;
    for (const Range r : mine->second) copy(r);
    ranges_.erase(mine);
  });
}

void Watch::left_open(const Txn& txn) noexcept {
  unless_ended([&] {
    say("a thread ended with an open transaction, which is rolled back: commit or abort it in the "
        "thread that began it",
        txn.place());
  });
}

bool Watch::covered(std::uint64_t at) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [at](const auto& of_txn) {
    return std::any_of(of_txn.second.begin(), of_txn.second.end(),
                       [at](Range r) { return at >= r.begin && at < r.end; });
  });
}

void Watch::check(const Txn& txn, const char* when) noexcept {
  unless_ended([&] {
    std::vector<Line> lines;
    std::vector<Word> words;
    {
      const std::lock_guard lock(mu_);
      words.swap(flushed_words_);
      for (const Range r : ranges_[&txn]) find_pointers(r, words);
      const std::uint64_t chunks = round_up(file_.bytes(), kChunkBytes) / kChunkBytes;
      std::set<std::uint64_t> wanted;
      for (const Range r : ranges_[&txn]) wanted.insert(r.begin / kChunkBytes);
      for (std::uint64_t i = 0; i < std::min(chunks, kChunksAtOnce); ++i) {
        wanted.insert(next_++ % chunks);
      }
      for (const std::uint64_t chunk : wanted) compare_chunk(chunk, lines);
    }
    const std::string found_at = std::string("found at the ") + when + " " + txn.place();
    for (const Word word : words) judge_pointer(word, found_at);
    FoundByBlock found;
    for (const Line& line : lines) judge(line, found);
    for (const auto& [block, f] : found) {
      say(f.freed ? "an object was changed after it was freed: a pointer to it is still in use"
                  : "an object was changed, and the change was neither added to a transaction nor "
                    "flushed: call Transaction::add before the store, or make the member a field "
                    "(tenuto/p.h)",
          std::to_string(f.bytes) + " bytes from " + std::to_string(f.first - block) +
              " on in the " + f.block + "; " + found_at);
    }
  });
}

// REQUIRES: mu_ is held.
void Watch::compare_chunk(std::uint64_t chunk, std::vector<Line>& lines) const {
  const std::uint64_t end = std::min((chunk + 1) * kChunkBytes, file_.bytes());
  for (std::uint64_t at = chunk * kChunkBytes; at < end; at += kFrameBytes) {
    const std::byte* const copy = copy_of(at) == nullptr ? kZeros.data() : copy_of(at);
    const std::byte* const now = file_.at<std::byte>({at});
    if (std::memcmp(now, copy, kFrameBytes) == 0) continue;
    for (std::uint64_t line = 0; line < kFrameBytes; line += kLineBytes) {
      if (std::memcmp(now + line, copy + line, kLineBytes) == 0) continue;
      Line l{at + line, 0};
      for (std::uint64_t i = 0; i < kLineBytes; ++i) {
        const bool differs = now[line + i] != copy[line + i] && !covered(l.at + i);
        l.differs |= std::uint64_t{differs} << i;
      }
      if (l.differs != 0) lines.push_back(l);
    }
  }
}

// Notes what differs in objects that are allocated, or were freed. Other free memory, and what is
// not the program's, may differ.
// One look for each block in the line: a look passes over all extents near it.
void Watch::judge(const Line& line, FoundByBlock& found) {
  using heap::Place;
  for (std::uint64_t left = line.differs; left != 0;) {
    const std::uint64_t at = line.at + static_cast<unsigned>(std::countr_zero(left));
    const Place place = heap_.look({at});
    const bool block = place.what == Place::What::block;
    const std::uint64_t line_end = line.at + kLineBytes;
    const std::uint64_t behind = block ? place.begin.value + place.bytes : line_end;
    const Range rest{at, std::clamp(behind, at + 1, line_end)};
    const std::uint64_t after = rest.end - line.at;
    const std::uint64_t here =
        after == kLineBytes ? left : left & ((std::uint64_t{1} << after) - 1);
    left &= ~here;
    if (block && !place.derived && place.use == Place::Use::reserved) continue;  // not ready
    const bool freed = block && was_freed(place);
    if (freed || (block && !place.derived && place.use == Place::Use::allocated)) {
      Found& f = found[place.begin.value];
      if (f.bytes == 0) f = {rest.begin, 0, place.text(place.begin), freed};
      f.bytes += static_cast<unsigned>(std::popcount(here));
    }
    settle(rest);
  }
}

void Watch::say(const std::string& what, const std::string& where) const {
  Report report;
  static_cast<void>(fail(Status::invalid_argument, &report, what, file_.path() + ", " + where));
  const pm::MetadataClosed closed;
  handler_(report);
}

}  // namespace TENUTO_NS::tx

namespace TENUTO_NS {

void stop_at_mistake(const Report& mistake) {
  static_cast<void>(std::fprintf(stderr, "tenuto: %s\n", mistake.text().c_str()));
  std::abort();
}

}  // namespace TENUTO_NS
