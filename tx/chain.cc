// Queue without its type. A slot of a segment is used once: before the push it has no value, and
// after the pop nothing is stored there. So neither has to be logged, in whatever order pushes and
// pops are in one transaction. All changes are fields: the head, and `next` of the last segment.
#include "pm/plant.h"
#include "tenuto/queue.h"
#include "tx/containers.h"

namespace TENUTO_NS::tx {

namespace {

constexpr std::uint64_t kSegmentBytes = 1024;
constexpr std::uint64_t kSlots = 8;  // at least so many, if that is no large block; or one

std::uint64_t segment_bytes(const Chain::SlotType& type) {
  const std::uint64_t one = type.first() + type.bytes;
  const std::uint64_t some = type.first() + kSlots * type.bytes;
  const std::uint64_t wanted = std::max(one, std::min(some, heap::kSmallBytesMax));
  return whole_block(std::max(wanted, kSegmentBytes));
}

}  // namespace

// REQUIRES: the head is added, so this fails only without memory, and then throws.
Status Chain::put(Transaction& tx, const View& v) {
  head_ = encode(v);
  return tx.status();
}

Result<void*> Chain::push(Transaction& tx, const SlotType& type) {
  View v = view();
  TENUTO_TRY(tx.add_later(head_));
  if (v.last == nullptr || v.end == v.last->slots) return push_segment(tx, type, v);
  void* const slot = type.at(v.last, v.end);
  if (!TENUTO_PLANT("tx_chain_slot_not_flushed")) TENUTO_TRY(tx.overwrite(slot, type.bytes));
  v.end += 1;
  v.size += 1;
  TENUTO_TRY(put(tx, v));
  return slot;
}

Result<void*> Chain::push_segment(Transaction& tx, const SlotType& type, View v) {
  if (type.bytes > kContainerBytesMax) return Status::too_large;
  const std::uint64_t bytes = segment_bytes(type);
  LooseBlock block(tx, bytes, type.align);
  TENUTO_TRY(block.status());
  auto* const fresh = new (block.get()) Segment{{}, (bytes - type.first()) / type.bytes};
  Segment* const before = v.last;
  const bool unlogged = TENUTO_PLANT("tx_chain_link_not_logged");
  if (before != nullptr && !unlogged) TENUTO_TRY(tx.add_later(before->next));
  v.last = fresh;
  if (before == nullptr) v.first = fresh;
  v.end = 1;
  v.size += 1;
  block.attached();
  AllOrAbort all_of_it(tx);
  TENUTO_TRY(put(tx, v));
  if (before != nullptr && unlogged) {
    new (&before->next) p<Segment*>(fresh);
  } else if (before != nullptr) {
    before->next = fresh;
  }
  TENUTO_TRY(tx.status());
  TENUTO_TRY(all_of_it.done());
  return type.at(fresh, 0);
}

Status Chain::pop(Transaction& tx) {
  View v = view();
  TENUTO_TRY(tx.add_later(head_));
  if (v.size == 0) return Status::not_found;
  v.begin += 1;
  v.size -= 1;
  if (v.begin < v.first->slots) return put(tx, v);
  Segment* const used = v.first;
  v.first = used->next;
  v.begin = 0;
  if (v.first == nullptr) v = {};
  if (!TENUTO_PLANT("tx_chain_segment_leaks")) TENUTO_TRY(tx.free(used));
  AllOrAbort all_of_it(tx);
  TENUTO_TRY(put(tx, v));
  return all_of_it.done();
}

Status Chain::free_segments(Transaction& tx) {
  for (Segment* s = view().first; s != nullptr; s = s->next) TENUTO_TRY(tx.free(s));
  return Status::ok;
}

Status Chain::drop(Transaction& tx) {
  TENUTO_TRY(tx.add_later(head_));
  TENUTO_TRY(free_segments(tx));
  return put(tx, {});
}

Status Chain::swap(Transaction& tx, Chain& o) {
  const View mine = view(), other = o.view();
  TENUTO_TRY(tx.add_later(head_));
  TENUTO_TRY(tx.add_later(o.head_));
  AllOrAbort all_of_it(tx);
  TENUTO_TRY(put(tx, other));
  TENUTO_TRY(o.put(tx, mine));
  return all_of_it.done();
}

}  // namespace TENUTO_NS::tx
