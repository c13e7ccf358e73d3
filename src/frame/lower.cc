#include "frame/lower.h"

#include <algorithm>
#include <string>

#include "frame/bitfield.h"
#include "pm/assert.h"
#include "pm/crc32c.h"
#include "pm/plant.h"
#include "tenuto/persist.h"

namespace TENUTO_NS::frame {

namespace {

std::uint32_t header_crc(const ZoneHeader& h) { return pm::crc32c(&h, offsetof(ZoneHeader, crc)); }

// How often the tree is searched for a single frame. The caller's claim on the tree's counter
// promises one, but the search can miss it. A round fails only if other threads took and gave
// frames meanwhile.
constexpr unsigned kTreeRoundsMax = 64;

// Of the 64 frames from `first` on, those before `end`.
std::uint64_t bits_below(std::uint32_t end, std::uint32_t first) {
  if (end <= first) return 0;
  return end - first < 64 ? (1ull << (end - first)) - 1 : ~0ull;
}

std::optional<ChildPair> take_pair(ChildPair pair) { return pair.take_whole(); }
std::optional<ChildPair> give_pair(ChildPair pair) { return pair.give_whole(); }
std::optional<Child> take_whole(Child child) { return child.take_whole(); }
std::optional<Child> give_whole(Child child) { return child.give_whole(); }

}  // namespace

Lower::Lower(std::byte* pool, const ZoneGeometry& g)
    : g_(g),
      header_(reinterpret_cast<const ZoneHeader*>(pool + g.state_offset)),
      pairs_(reinterpret_cast<ChildPair*>(pool + g.children_offset()),
             std::size_t{g.trees} * kTreeChildren / 2),
      bitfields_(reinterpret_cast<Bitfield*>(pool + g.bitfields_offset()), g.children) {}

template <class Next>
bool Lower::update_child(std::uint32_t c, Next&& next) {
  return update(pairs_[c / 2],
                [&](ChildPair pair) -> std::optional<ChildPair> {
                  const std::optional<Child> to = next(pair.get(c % 2));
                  if (!to) return std::nullopt;
                  return pair.with(c % 2, *to);
                })
      .has_value();
}

// Changes a child's counter for base frames. Not flushed: recovery counts the bits.
template <class Next>
bool Lower::count_child(std::uint32_t c, Next&& next) {
  const bool done = update_child(c, next);
  transient(&pairs_[c / 2], sizeof(ChildPair));
  return done;
}

void Lower::set_child(std::uint32_t c, Child child) {
  (void)update_child(c, [=](Child) { return std::optional(child); });
}

void Lower::flush_children(std::uint32_t first, std::uint32_t count) const {
  const std::uint32_t last = first + count - 1;
  flush_bytes(&pairs_[first / 2], (last / 2 - first / 2 + 1) * sizeof(ChildPair));
}

void Lower::format(std::byte* pool, const ZoneGeometry& g, std::uint32_t index, ZoneUse use) {
  Lower lower(pool, g);
  for (std::uint32_t c = 0; c < g.trees * kTreeChildren; ++c) {
    unsigned free = 0;
    if (c < g.children) {
      std::uint64_t bits[Bitfield::kWords];
      lower.fixed_bits(c, bits);
      for (unsigned w = 0; w < Bitfield::kWords; ++w) {
        store(lower.bitfields_[c].words[w], Bits{bits[w]}, std::memory_order_relaxed);
      }
      free = lower.zeros(c);
    }
    lower.set_child(c, Child::make(free));
  }
  auto& header = *reinterpret_cast<ZoneHeader*>(pool + g.state_offset);
  header = {kZoneMagic, g.first_frame, g.frames, g.own, use, {}, index, 0};
  header.crc = header_crc(header);
  flush(header);
  lower.flush_all();
}

void Lower::flush_all() const {
  flush_bytes(pairs_.data(), pairs_.size_bytes());
  if (TENUTO_PLANT("frame_bitfields_not_flushed")) return;
  flush_bytes(bitfields_.data(), bitfields_.size_bytes());
}

void Lower::recount() {
  for (std::uint32_t c = 0; c < g_.children; ++c) {
    if (!child(c).whole()) set_child(c, Child::make(zeros(c)));
  }
}

// --- get and put ---------------------------------------------------------------------------------

Found Lower::get(std::uint32_t start, unsigned order) {
  return order <= kOrderBaseMax ? get_base(start, order) : get_whole(start, order);
}

Found Lower::get_base(std::uint32_t start, unsigned order) {
  const std::uint32_t tree = start / kTreeFrames * kTreeChildren;
  const std::uint32_t first = start / kHugeFrames % kTreeChildren;
  const unsigned frames = 1u << order;
  const unsigned rounds = order == 0 ? kTreeRoundsMax : 1;
  for (std::uint32_t i = 0; i < rounds * kTreeChildren; ++i) {
    const std::uint32_t c = tree + (first + i) % kTreeChildren;
    if (!count_child(c, [=](Child w) { return w.take(frames); })) continue;
    Bitfield& field = bitfields_[c];
    if (TENUTO_PLANT("frame_bits_flushed_before_set")) flush(field);
    if (const Found at = take_bits(field, i == 0 ? start % kHugeFrames : 0, order)) {
      if (!TENUTO_PLANT("frame_bits_flushed_before_set")) flush(field);
      return {c * kHugeFrames + *at};
    }
    TENUTO_ASSERT(count_child(c, [=](Child w) { return w.give(frames); }));
  }
  return {};
}

Found Lower::get_whole(std::uint32_t start, unsigned order) {
  const std::uint32_t step = 1u << (order - kOrderHuge);
  const std::uint32_t tree = start / kTreeFrames * kTreeChildren;
  const std::uint32_t first = start / kHugeFrames % kTreeChildren / step * step;
  for (std::uint32_t i = 0; i < kTreeChildren; i += step) {
    const std::uint32_t c = tree + (first + i) % kTreeChildren;
    if (step == 1 ? !update_child(c, take_whole) : !update(pairs_[c / 2], take_pair)) continue;
    if (TENUTO_PLANT("frame_huge_get_flushes_bitfield")) {
      flush(bitfields_[c]);
    } else {
      flush_children(c, step);
    }
    return {c * kHugeFrames};
  }
  return {};
}

bool Lower::get_at(std::uint32_t frame, unsigned order) {
  const std::uint32_t c = frame / kHugeFrames;
  const unsigned frames = 1u << order;
  if (!count_child(c, [=](Child w) { return w.take(frames); })) return false;
  if (take_bits_at(bitfields_[c], frame % kHugeFrames, order)) {
    flush(bitfields_[c]);
    return true;
  }
  TENUTO_ASSERT(count_child(c, [=](Child w) { return w.give(frames); }));
  return false;
}

bool Lower::put(std::uint32_t frame, unsigned order) {
  return order <= kOrderBaseMax ? put_base(frame, order) : put_whole(frame, order);
}

bool Lower::put_base(std::uint32_t frame, unsigned order) {
  const std::uint32_t c = frame / kHugeFrames;
  const unsigned frames = 1u << order;
  if (!child(c).give(frames)) return false;
  if (!give_bits(bitfields_[c], frame % kHugeFrames, order)) return false;
  flush(bitfields_[c]);
  TENUTO_ASSERT(count_child(c, [=](Child w) { return w.give(frames); }));
  return true;
}

bool Lower::put_whole(std::uint32_t frame, unsigned order) {
  const std::uint32_t c = frame / kHugeFrames;
  const std::uint32_t step = 1u << (order - kOrderHuge);
  if (step == 1 ? !update_child(c, give_whole) : !update(pairs_[c / 2], give_pair)) return false;
  flush_children(c, step);
  return true;
}

bool Lower::taken(std::uint32_t frame, unsigned order) const {
  const std::uint32_t c = frame / kHugeFrames;
  if (order <= kOrderBaseMax) return all_taken(bitfields_[c], frame % kHugeFrames, order);
  return run_taken(c, 1u << (order - kOrderHuge));
}

bool Lower::untaken(std::uint32_t frame, unsigned order) const {
  const std::uint32_t c = frame / kHugeFrames;
  return !child(c).whole() && none_taken(bitfields_[c], frame % kHugeFrames, order);
}

// --- runs of huge frames -------------------------------------------------------------------------

bool Lower::get_run(std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (update_child(first + i, take_whole)) continue;
    // Only [first, first + i) is ours to give back.
    while (i-- > 0) TENUTO_ASSERT(update_child(first + i, give_whole));
    return false;
  }
  flush_children(first, count);
  return true;
}

Found Lower::find_run(std::uint32_t below, std::uint32_t count) const {
  std::uint32_t length = 0;
  for (std::uint32_t c = below; c-- > 0;) {
    length = child(c).raw == kHugeFrames ? length + 1 : 0;
    if (length == count) return {c};
  }
  return {};
}

bool Lower::put_run(std::uint32_t first, std::uint32_t count) {
  if (!run_taken(first, count)) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (update_child(first + i, give_whole)) continue;
    // A second put of the same run fails at its first child. A failure further on is our own bug.
    TENUTO_ASSERT(i == 0);
    return false;
  }
  flush_children(first, count);
  return true;
}

bool Lower::run_taken(std::uint32_t first, std::uint32_t count) const {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!child(first + i).whole()) return false;
  }
  return true;
}

// --- recovery and checks -------------------------------------------------------------------------

unsigned Lower::zeros(std::uint32_t c) const { return count_zeros(bitfields_[c]); }

unsigned Lower::held(std::uint32_t c) const {
  return child(c).whole() ? kHugeFrames : kHugeFrames - zeros(c);
}

unsigned Lower::recover_whole(std::uint32_t c) {
  const unsigned before = held(c);
  for (Bits& word : bitfields_[c].words) {
    if (!TENUTO_PLANT("frame_whole_over_stale_bits")) store(word, Bits{0});
  }
  set_child(c, Child::make_whole());
  return before;
}

unsigned Lower::recover_bits(std::uint32_t c, const std::uint64_t (&kept)[Bitfield::kWords]) {
  const unsigned before = held(c);
  unsigned ones = 0;
  for (unsigned w = 0; w < Bitfield::kWords; ++w) {
    ones += static_cast<unsigned>(std::popcount(kept[w]));
    if (TENUTO_PLANT("frame_bits_without_owner_stay")) continue;
    store(bitfields_[c].words[w], Bits{kept[w]});
  }
  set_child(c, Child::make(kHugeFrames - ones));
  return before;
}

void Lower::fixed_bits(std::uint32_t c, std::uint64_t (&bits)[Bitfield::kWords]) const {
  std::fill(std::begin(bits), std::end(bits), 0);
  const std::uint32_t begin = c * kHugeFrames;
  const std::uint32_t end = begin + kHugeFrames;
  if (begin >= g_.usable_begin() && end <= g_.end()) return;
  for (unsigned w = 0; w < Bitfield::kWords; ++w) {
    const std::uint32_t first = begin + 64 * w;
    bits[w] = bits_below(g_.usable_begin(), first) | ~bits_below(g_.end(), first);
  }
}

Status Lower::check_header(std::uint32_t index, Report* report) const {
  const ZoneHeader& h = *header_;
  const auto bad = [&](const char* field, std::uint64_t expected, std::uint64_t found) {
    return fail(Status::corrupt, report, "the header of a zone is damaged",
                "zone " + std::to_string(index) + ", offset " + std::to_string(g_.state_offset) +
                    " (" + field + ")",
                std::to_string(expected), std::to_string(found));
  };
  if (h.magic != kZoneMagic) return bad("magic", kZoneMagic, h.magic);
  if (h.crc != header_crc(h)) return bad("checksum", header_crc(h), h.crc);
  if (h.index != index) return bad("index", index, h.index);
  if (h.first_frame != g_.first_frame) return bad("first frame", g_.first_frame, h.first_frame);
  if (h.frames != g_.frames) return bad("frames", g_.frames, h.frames);
  if (h.own_frames != g_.own) return bad("own frames", g_.own, h.own_frames);
  if (h.use != ZoneUse::any && h.use != ZoneUse::records) {
    return bad("use", static_cast<std::uint64_t>(ZoneUse::records),
               static_cast<std::uint64_t>(h.use));
  }
  return Status::ok;
}

Status Lower::check_child(std::uint32_t c, bool clean, Report* report) const {
  const Child word = child(c);
  const auto bad = [&](const char* what, std::string expected) {
    std::string found = word.whole() ? "whole" : std::to_string(word.free());
    if (word.whole() && word.free() != 0) found += " + " + std::to_string(word.free());
    if (c < g_.children) found += ", zeros in the bitfield " + std::to_string(zeros(c));
    return fail(Status::corrupt, report, what,
                "huge frame " + std::to_string(c) + " of the zone at frame " +
                    std::to_string(g_.first_frame) + ", offset " +
                    std::to_string(g_.children_offset() + c * sizeof(Child)) + " (child)",
                std::move(expected), std::move(found));
  };
  if (c >= g_.children) {
    return word.raw == 0 ? Status::ok : bad("padding behind the last huge frame", "0");
  }
  if (!word.valid()) return bad("a free counter out of range", "0..512, or whole");
  std::uint64_t fixed[Bitfield::kWords];
  fixed_bits(c, fixed);
  bool any_fixed = false;
  for (unsigned w = 0; w < Bitfield::kWords; ++w) {
    if ((load(bitfields_[c].words[w]).raw & fixed[w]) != fixed[w]) {
      return bad("frames of the zone's own state are free", "taken");
    }
    any_fixed = any_fixed || fixed[w] != 0;
  }
  if (word.whole() && any_fixed) return bad("the zone's own state lies in a huge object", "bits");
  if (!clean) return Status::ok;
  if (word.whole() && zeros(c) != kHugeFrames) return bad("bits under a whole huge frame", "none");
  if (!word.whole() && zeros(c) != word.free()) {
    return bad("a free counter differs from its bitfield", std::to_string(zeros(c)));
  }
  return Status::ok;
}

Status Lower::check(std::uint32_t index, bool clean, Report* report) const {
  TENUTO_TRY(check_header(index, report));
  for (std::uint32_t c = 0; c < g_.trees * kTreeChildren; ++c) {
    TENUTO_TRY(check_child(c, clean, report));
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::frame
