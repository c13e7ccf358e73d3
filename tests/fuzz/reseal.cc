// Gives changed contents right checksums. The offset of a line tells what its checksum covers.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "frame/format.h"
#include "fuzz/bases.h"
#include "heap/format.h"
#include "pm/format.h"
#include "pm/log.h"
#include "store/tree/format.h"
#include "store/tree/hash.h"
#include "store/tree/leaf.h"
#include "store/tree/record.h"
#include "tx/format.h"

namespace tenuto::fuzz {

namespace {

void reseal_log_line(pm::LogLine& line) {
  if (line.seal != 0) line.seal = pm::log_seal(line.word, pm::log_sequence(line));
}

void reseal_word(tx::SealedWord& word, std::uint64_t salt) {
  word.raw = tx::SealedWord::make(word.number(), salt);
}

void reseal_tx_line(tx::TxLine& line, LaneId lane) {
  using tx::WordPlace;
  reseal_word(line.committed, tx::salt_of(lane, WordPlace::committed));
  reseal_word(line.frees_done, tx::salt_of(lane, WordPlace::frees_done));
  for (std::size_t area = 0; area < tx::kAreas; ++area) {
    reseal_word(line.log_frame[area], tx::salt_of(lane, WordPlace::log_frame, area));
  }
  reseal_word(line.decisions, tx::salt_of(lane, WordPlace::decisions));
}

void reseal_head_page(pm::HeadPage& head) {
  std::uint64_t& word = head.store[store::kHeadWord];
  const store::StoreWord fields{word};
  store::StoreWord made = store::StoreWord::make(fields.order(), fields.has_catalog(),
                                                 {head.store[store::kHeadFirstLeaf]});
  if (fields.version() == store::StoreWord::kVersion) word = made.raw;
}

// Reseals the low separator. A long one is in its own block, which stays as it is.
void reseal_low(const WorkFile& file, std::uint64_t leaf_at, std::uint64_t tree) {
  auto& low = file.at<store::Leaf>(leaf_at).low;
  const char* data = low.data;
  if (low.bytes() > store::kLowInlineMax) {
    std::uint64_t block = 0;
    std::memcpy(&block, low.data, sizeof block);
    if (block > file.bytes() || low.bytes() > file.bytes() - block) return;
    data = &file.at<char>(block);
  }
  std::uint32_t crc = pm::crc32c_u64(~0u, leaf_at);
  if (tree != store::kDefaultTree.value) crc = pm::crc32c_u64(crc, tree);
  low.check = pm::crc32c(data, low.bytes(), crc);
}

void reseal_header(const WorkFile& file, std::uint64_t leaf_at) {
  auto& leaf = file.at<store::Leaf>(leaf_at);
  auto& head = leaf.head;
  const std::uint64_t salt = leaf_at % pm::kMapAlignBytes;
  head.bitmap =
      store::HeaderWord::make(head.bitmap.value(), salt + offsetof(store::LeafHeader, bitmap),
                              store::fingerprints_of(leaf, head.bitmap.value()));
  head.next = store::HeaderWord::make(head.next.value(), salt + offsetof(store::LeafHeader, next));
}

// Reseals the record, and the hash of its key in its slot.
void reseal_record(const WorkFile& file, const Base& base, std::uint64_t at,
                   std::uint64_t slot_at) {
  const store::RecordHead head = file.at<store::RecordHead>(at);
  const std::uint64_t bytes = head.key_bytes() + head.value_field();
  if (head.value_field() == store::RecordHead::kLongValue || bytes > file.bytes() - at - 8) return;
  const char* p = &file.at<char>(at + sizeof head);
  const std::string_view key(p, head.key_bytes());
  const std::string_view value(p + key.size(), head.value_field());
  file.at<store::RecordHead>(at) =
      store::RecordHead::make(key.size(), value.size(), store::record_check({at}, key, value));
  auto& slot = file.at<store::SlotWord>(slot_at);
  if (slot.record().value != at) return;
  const store::KeyHash hash = store::hash_key(key);
  slot = store::SlotWord::make({at}, hash.slot);
  for (const std::uint64_t leaf_at : base.leaves) {
    auto& leaf = file.at<store::Leaf>(leaf_at);
    if (&slot >= leaf.slot && &slot < leaf.slot + store::kSlots) {
      leaf.head.fingerprint[&slot - leaf.slot] = hash.fingerprint;
    }
  }
}

bool reseal_in_64k(const WorkFile& file, std::uint64_t offset) {
  const std::uint64_t frame = round_down(offset, heap::kSlabBytes);
  if (frame + heap::kSlabBytes > file.bytes()) return false;
  auto& slab = file.at<heap::SlabHeader>(frame);
  if (slab.magic == heap::kSlabMagic) {
    if (offset != frame) return false;
    slab.crc = heap::slab_crc(slab);
    slab.shape = heap::ShapeWord::sealed(slab.shape.value(), frame);
    return true;
  }
  auto& log = file.at<tx::LogFrameHeader>(frame);
  if (log.magic != tx::kLogFrameMagic) return false;
  if (offset != frame) {
    reseal_log_line(file.at<pm::LogLine>(offset));
    return true;
  }
  log.crc = tx::header_crc(log);
  const LaneId lane{log.lane};
  const std::size_t next = (log.index + 1) * tx::kAreas + log.area;
  reseal_word(log.next, tx::salt_of(lane, tx::WordPlace::next, next));
  return true;
}

}  // namespace

void reseal(const WorkFile& file, const Base& base, std::uint64_t offset) {
  offset = round_down(offset, kLineBytes);
  if (offset % kFrameBytes < sizeof(pm::Superblock) && offset < 2 * kFrameBytes) {
    auto& super = file.at<pm::Superblock>(round_down(offset, kFrameBytes));
    super.crc = pm::crc32c(&super, offsetof(pm::Superblock, crc));
  } else if (offset >= pm::kHeadPageOffset && offset < pm::kZoneTableOffset) {
    reseal_head_page(file.at<pm::HeadPage>(pm::kHeadPageOffset));
  } else if (offset >= pm::kLanesOffset && offset < pm::kHeadBytes) {
    const std::uint64_t in_lanes = offset - pm::kLanesOffset;
    const std::size_t line = in_lanes % pm::kLaneBytes / kLineBytes;
    const LaneId lane{static_cast<std::uint32_t>(in_lanes / pm::kLaneBytes)};
    if (line == pm::kLaneTxLine) {
      reseal_tx_line(file.at<tx::TxLine>(offset), lane);
    } else if (line >= pm::kLaneIntentLine) {
      reseal_log_line(file.at<pm::LogLine>(offset));
    }
  } else if (offset == pm::kHeadBytes) {
    auto& zone = file.at<frame::ZoneHeader>(offset);
    zone.crc = pm::crc32c(&zone, offsetof(frame::ZoneHeader, crc));
  } else if (!reseal_in_64k(file, offset)) {
    if (std::find(base.leaves.begin(), base.leaves.end(), offset) != base.leaves.end()) {
      reseal_header(file, offset);
      return;
    }
    const std::uint64_t leaf_at = offset - offsetof(store::Leaf, low);
    if (std::find(base.leaves.begin(), base.leaves.end(), leaf_at) != base.leaves.end()) {
      reseal_low(file, leaf_at, base.tree.at(leaf_at));
      return;
    }
    // The records that overlap the line.
    auto record = base.slot.upper_bound(offset + kLineBytes - 1);
    while (record != base.slot.begin()) {
      --record;
      reseal_record(file, base, record->first, record->second);
      if (record->first <= offset) break;
    }
  }
}

}  // namespace tenuto::fuzz
