#include "frame/owned.h"

#include <atomic>

#include "frame/bitfield.h"
#include "pm/plant.h"

namespace TENUTO_NS::frame {

namespace {

bool set_bits(Bits& word, std::uint64_t mask) {
  return (std::atomic_ref(word.raw).fetch_or(mask, std::memory_order_acq_rel) & mask) == 0;
}

}  // namespace

OwnedFrames::OwnedFrames(const ZoneGeometry& g) : bits_(g.children), whole_(g.children) {}

bool OwnedFrames::name(std::uint32_t frame, unsigned order) {
  if (order >= kOrderHuge) return name_run(frame / kHugeFrames, 1u << (order - kOrderHuge));
  Bitfield& field = bits_[frame / kHugeFrames];
  const unsigned at = frame % kHugeFrames;
  if (order <= kOrderWord) return set_bits(field.words[at / 64], run_mask(at % 64, order));
  bool fresh = true;
  for (unsigned i = 0; i < 1u << (order - kOrderWord); ++i) {
    if (TENUTO_PLANT("frame_large_order_kept_by_its_first_word") && i > 0) break;
    fresh = set_bits(field.words[at / 64 + i], ~0ull) && fresh;
  }
  return fresh;
}

bool OwnedFrames::name_child(std::uint32_t c) {
  bool fresh = true;
  for (Bits& word : bits_[c].words) fresh = set_bits(word, ~0ull) && fresh;
  if (fresh) whole_[c] = 1;
  return fresh;
}

bool OwnedFrames::name_run(std::uint32_t first_child, std::uint32_t count) {
  bool fresh = true;
  if (TENUTO_PLANT("frame_run_named_by_its_first_frame")) count = 1;
  for (std::uint32_t i = 0; i < count; ++i) fresh = name_child(first_child + i) && fresh;
  return fresh;
}

std::uint64_t OwnedFrames::apply(Lower& lower) const {
  std::uint64_t given_back = 0;
  for (std::uint32_t c = 0; c < bits_.size(); ++c) {
    if (whole_[c] != 0) {
      (void)lower.recover_whole(c);
      continue;
    }
    if (lower.child(c).whole() && TENUTO_PLANT("frame_whole_without_owner_stays")) continue;
    std::uint64_t kept[Bitfield::kWords] = {};
    if (!TENUTO_PLANT("frame_own_state_given_back")) lower.fixed_bits(c, kept);
    for (unsigned w = 0; w < Bitfield::kWords; ++w) kept[w] |= bits_[c].words[w].raw;
    const unsigned before = lower.recover_bits(c, kept);
    given_back += before - lower.held(c);
  }
  return given_back;
}

}  // namespace TENUTO_NS::frame
