// Vector without its type. The head is one field, so its new value waits for the entry's fence. The
// elements are stored in place: at once where there was no value, otherwise after ready().
//
// Each operation first does what can fail, then what cannot. The order makes sure that an error
// before the head is assigned leaves the array as it was.
#include <cstring>

#include "pm/plant.h"
#include "tenuto/vector.h"
#include "tx/containers.h"

namespace TENUTO_NS::tx {

namespace {

// From a block to another one, or down in the same one.
void move_down(const ElementType& type, std::byte* to, std::byte* from, std::uint64_t n) {
  if (n == 0) return;
  if (type.relocate == nullptr) {
    std::memmove(to, from, n * type.bytes);
    return;
  }
  for (; n > 0; --n, to += type.bytes, from += type.bytes) type.relocate(to, from);
}

void move_up(const ElementType& type, std::byte* to, std::byte* from, std::uint64_t n) {
  if (type.relocate == nullptr) {
    std::memmove(to, from, n * type.bytes);
    return;
  }
  while (n-- > 0) type.relocate(to + n * type.bytes, from + n * type.bytes);
}

bool too_many(const ElementType& type, std::uint64_t size, std::uint64_t more) {
  const std::uint64_t most = kContainerBytesMax / type.bytes;
  return size > most || more > most - size;
}

}  // namespace

// REQUIRES: the head is added, so this fails only without memory, and then throws.
Status Array::put(Transaction& tx, const View& v) {
  head_ = encode(v);
  return tx.status();
}

// Moves to a new block of `room` elements, with n new ones before element `at`.
Result<void*> Array::rebuild(Transaction& tx, const ElementType& type, std::uint64_t room,
                             std::uint64_t at, std::uint64_t n) {
  const View old = view();
  LooseBlock block(tx, room * type.bytes, type.align);
  TENUTO_TRY(block.status());
  const View fresh{block.get(), old.size + n, room};
  std::byte* const gap = fresh.data + at * type.bytes;
  move_down(type, fresh.data, old.data, at);
  move_down(type, gap + n * type.bytes, old.data + at * type.bytes, old.size - at);
  const bool leak = TENUTO_PLANT("tx_array_old_block_leaks");
  if (old.data != nullptr && !leak) TENUTO_TRY(tx.free(old.data));
  block.attached();
  AllOrAbort all_of_it(tx);
  TENUTO_TRY(put(tx, fresh));
  TENUTO_TRY(all_of_it.done());
  return gap;
}

Result<void*> Array::open(Transaction& tx, const ElementType& type, std::uint64_t at,
                          std::uint64_t n) {
  View v = view();
  if (at > v.size) return Status::invalid_argument;
  TENUTO_TRY(tx.add_later(head_));
  if (too_many(type, v.size, n)) return Status::too_large;
  if (v.size + n > v.room) {
    const std::uint64_t bytes = grown_block(v.room * type.bytes, (v.size + n) * type.bytes);
    return rebuild(tx, type, bytes / type.bytes, at, n);
  }
  std::byte* const gap = v.data + at * type.bytes;
  if (n == 0) return gap;
  TENUTO_TRY(tx.overwrite(v.data + v.size * type.bytes, n * type.bytes));
  const std::uint64_t behind = v.size - at;
  if (behind > 0 && !TENUTO_PLANT("tx_array_insert_not_logged")) {
    TENUTO_TRY(tx.add_later(gap, behind * type.bytes));
  }
  v.size += n;
  TENUTO_TRY(put(tx, v));
  if (behind == 0) return gap;
  if (!TENUTO_PLANT("tx_array_insert_not_fenced")) TENUTO_TRY(tx.ready());
  move_up(type, gap + n * type.bytes, gap, behind);
  return gap;
}

Status Array::close(Transaction& tx, const ElementType& type, std::uint64_t at, std::uint64_t n) {
  View v = view();
  TENUTO_TRY(tx.add_later(head_));
  if (n == 0) return Status::ok;
  std::byte* const gap = v.data + at * type.bytes;
  const std::uint64_t behind = v.size - at - n;
  // The removed ones, too: what comes after in this transaction may overwrite them.
  const std::uint64_t logged = TENUTO_PLANT("tx_array_removed_not_logged") ? behind : behind + n;
  if (logged > 0) TENUTO_TRY(tx.add_later(gap, logged * type.bytes));
  v.size -= n;
  TENUTO_TRY(put(tx, v));
  if (behind == 0) return Status::ok;
  TENUTO_TRY(tx.ready());
  move_down(type, gap, gap + n * type.bytes, behind);
  return Status::ok;
}

Result<void*> Array::replace(Transaction& tx, const ElementType& type, std::uint64_t n) {
  TENUTO_TRY(tx.add_later(head_));
  if (too_many(type, 0, n)) return Status::too_large;
  if (n == 0) {
    TENUTO_TRY(drop(tx));
    return static_cast<void*>(nullptr);
  }
  const View old = view();
  const std::uint64_t room = whole_block(n * type.bytes) / type.bytes;
  LooseBlock block(tx, room * type.bytes, type.align);
  TENUTO_TRY(block.status());
  if (old.data != nullptr) TENUTO_TRY(tx.free(old.data));
  block.attached();
  AllOrAbort all_of_it(tx);
  TENUTO_TRY(put(tx, {block.get(), n, room}));
  TENUTO_TRY(all_of_it.done());
  return static_cast<void*>(block.get());
}

Status Array::reserve(Transaction& tx, const ElementType& type, std::uint64_t room) {
  const View v = view();
  TENUTO_TRY(tx.add_later(head_));
  if (room <= v.room) return Status::ok;
  if (too_many(type, 0, room)) return Status::too_large;
  return rebuild(tx, type, whole_block(room * type.bytes) / type.bytes, v.size, 0).error();
}

Status Array::shrink(Transaction& tx, const ElementType& type) {
  const View v = view();
  if (v.size == 0) return drop(tx);
  TENUTO_TRY(tx.add_later(head_));
  const std::uint64_t room = whole_block(v.size * type.bytes) / type.bytes;
  return room >= v.room ? Status::ok : rebuild(tx, type, room, v.size, 0).error();
}

Status Array::drop(Transaction& tx) {
  const View v = view();
  TENUTO_TRY(tx.add_later(head_));
  if (v.data == nullptr) return Status::ok;
  TENUTO_TRY(tx.free(v.data));
  AllOrAbort all_of_it(tx);
  TENUTO_TRY(put(tx, {}));
  return all_of_it.done();
}

Status Array::swap(Transaction& tx, Array& o) {
  const View mine = view(), other = o.view();
  TENUTO_TRY(tx.add_later(head_));
  TENUTO_TRY(tx.add_later(o.head_));
  AllOrAbort all_of_it(tx);
  TENUTO_TRY(put(tx, other));
  TENUTO_TRY(o.put(tx, mine));
  return all_of_it.done();
}

Result<void*> Array::start(Transaction& tx, const ElementType& type, std::uint64_t n) {
  settle({});
  if (n == 0) return static_cast<void*>(nullptr);
  if (too_many(type, 0, n)) return Status::too_large;
  const std::uint64_t room = whole_block(n * type.bytes) / type.bytes;
  const Result<void*> block =
      tx.alloc(room * type.bytes, {.align = std::max(type.align, AllocOptions{}.align)});
  if (block) settle({static_cast<std::byte*>(*block), n, room});
  return block ? Result<void*>(*block) : Result<void*>(block.error());
}

}  // namespace TENUTO_NS::tx
