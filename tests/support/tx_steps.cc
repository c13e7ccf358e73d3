#include "support/tx_steps.h"

#include <array>
#include <vector>

#include "tenuto/p.h"

namespace tenuto::test {

namespace {

// What a step's choice number selects.
struct Picks {
  explicit Picks(std::uint64_t choice)
      : a(choice % World::kWords),
        b((choice >> 8) % World::kWords),
        d((choice >> 16) % World::kDests),
        tag(choice >> 20 | 1) {}
  std::size_t a, b, d;
  std::uint64_t tag;
  std::size_t three() const { return a / 4 * 4; }  // the first of three words
  std::size_t spaced(std::size_t i) const { return (a + 7 * i) % World::kWords; }
};

}  // namespace

void WorldState::apply(Op op, std::uint64_t choice) {
  const Picks p(choice);
  switch (op) {
    case Op::transfer:
      word[p.a] += 5;
      word[p.b] -= 5;
      break;
    case Op::one_by_one:
      for (std::size_t i = 0; i < 3; ++i) word[p.spaced(i)] += i + 1;
      break;
    case Op::replace:
      word[p.a] += 1;
      tag[p.d] = p.tag;
      type[p.d] = 0;
      break;
    case Op::link:
    case Op::late_link:
    case Op::link_page:
    case Op::link_adopted:
    case Op::link_large:
      tag[p.d] = p.tag;
      type[p.d] = 0;
      break;
    case Op::link_typed:
    case Op::link_typed_large:
      tag[p.d] = p.tag;
      type[p.d] = 1 + p.tag / 2 % kTypes;
      break;
    case Op::unlink:
      tag[p.d] = 0;
      type[p.d] = 0;
      break;
    case Op::cancel:
      word[p.a] += 1;
      break;
    case Op::batch:
      for (std::size_t i = 0; i < World::kWords; i += 2) word[i] += 1;
      break;
    case Op::overflow:
      spread += 1;
      break;
    case Op::field_stores:
    case Op::field_mixed:
      for (std::size_t i = 0; i < 3; ++i) word[p.spaced(i)] += i + 3;
      break;
    case Op::set_parts:
      for (std::size_t i = 0; i < 3; ++i) word[p.three() + i] += i + 7;
      break;
    case Op::field_link:
      word[p.a] += 2;
      tag[p.d] = p.tag;
      type[p.d] = 0;
      break;
    case Op::field_many:
      spread += 1;
      break;
    case Op::link_many:
      many = p.tag;
      break;
    case Op::unlink_many:
      many = 0;
      break;
    case Op::hold_many:
      held += World::kMany;
      break;
    case Op::free_held:
      held -= 1;
      break;
    case Op::part_undone:
      word[p.a] += 1;
      word[p.b] += 2;
      tag[(p.d + 1) % World::kDests] = 0;
      type[(p.d + 1) % World::kDests] = 0;
      break;
    case Op::append:
      used += 1;
      break;
    case Op::abort_stores:
    case Op::abort_early:
    case Op::abort_overflow:
    case Op::abort_fields:
    case Op::abort_append:
    case Op::fill_unused:
    case Op::cancel_many:
    case Op::drain:
    case Op::sparse:
      break;
  }
}

bool WorldState::shown_by(const World& w) const {
  const auto shows = [](const Ptr<std::uint64_t>& p, std::uint64_t t) {
    return p ? *p == t : t == 0;
  };
  for (std::size_t i = 0; i < World::kWords; ++i) {
    if (w.word[i] != word[i]) return false;
  }
  for (std::size_t d = 0; d < World::kDests; ++d) {
    if (!shows(w.dest[d], tag[d])) return false;
  }
  for (const auto& p : w.many) {
    if (!shows(p, many)) return false;
  }
  for (const auto& s : w.spread) {
    if (s.word != spread) return false;
  }
  for (std::size_t i = 0; i < used; ++i) {
    if (w.slot[i] != i * 7 + 1) return false;
  }
  return w.used == used;
}

namespace {

Status put(Transaction& tx, std::uint64_t& word, std::uint64_t value) {
  TENUTO_TRY(tx.add(word));
  word = value;
  return Status::ok;
}

// Frees the block of dest, and makes one with this tag, unless the tag is 0.
Status set_dest(Transaction& tx, Ptr<std::uint64_t>& dest, std::uint64_t bytes, std::uint64_t tag,
                bool add_first, std::uint64_t type = 0) {
  if (add_first) TENUTO_TRY(tx.add(dest));
  if (dest) TENUTO_TRY(tx.destroy(dest.get()));
  std::uint64_t* block = nullptr;
  if (tag != 0) {
    const Result<void*> fresh = tx.alloc(bytes, {.type = type});
    if (!fresh) return fresh.error();
    block = static_cast<std::uint64_t*>(*fresh);
    *block = tag;
  }
  TENUTO_TRY(tx.add(dest));
  dest = block;
  return Status::ok;
}

Status cancel(Transaction& tx, std::size_t count, std::uint64_t bytes) {
  std::vector<void*> made;
  for (std::size_t i = 0; i < count; ++i) {
    const Result<void*> block = tx.alloc(bytes);
    if (!block) return block.error();
    made.push_back(*block);
  }
  for (void* block : made) TENUTO_TRY(tx.free(block));
  return Status::ok;
}

Status add_spread(Transaction& tx, World& w, std::uint64_t more) {
  for (auto& s : w.spread) TENUTO_TRY(tx.add_later(s.word));
  TENUTO_TRY(tx.ready());
  for (auto& s : w.spread) s.word += more;
  return Status::ok;
}

constexpr std::uint64_t kLargeBytes = 20'000;

// A part, all three, and the part again: the last assignment counts.
Status set_parts(Transaction& tx, std::uint64_t* word, const std::uint64_t* after) {
  using Three = std::array<std::uint64_t, 3>;
  Three& three = *reinterpret_cast<Three*>(word);
  TENUTO_TRY(tx.set(word[1], 99));
  if (tx.get(three) != Three{word[0], 99, word[2]}) return Status::corrupt;
  TENUTO_TRY(tx.set(three, Three{after[0], 98, after[2]}));
  return tx.set(word[1], after[1]);
}

// The same bytes as fields.
using Field = p<std::uint64_t>;
Field& field(std::uint64_t& word) { return reinterpret_cast<Field&>(word); }
p<std::uint64_t*>& field(Ptr<std::uint64_t>& dest) {
  return reinterpret_cast<p<std::uint64_t*>&>(dest);
}

Status field_link(Transaction& tx, World& w, const Picks& at, const WorldState& after) {
  const Result<void*> fresh = tx.alloc(64);
  if (!fresh) return fresh.error();
  p<std::uint64_t*>& dest = field(w.dest[at.d]);
  if (dest.get() != nullptr) TENUTO_TRY(tx.free(dest.get()));
  auto* const block = static_cast<std::uint64_t*>(*fresh);
  field(*block) = after.tag[at.d];
  dest = block;
  if (dest.get() != block || *dest.get() != after.tag[at.d]) return Status::corrupt;
  field(w.word[at.a]) = after.word[at.a];
  return Status::ok;
}

Status part_undone(Transaction& tx, World& w, const Picks& at, std::uint64_t choice,
                   const WorldState& after) {
  TENUTO_TRY(put(tx, w.word[at.a], after.word[at.a]));
  field(w.word[at.b]) = after.word[at.b];
  const auto before = tx.savepoint();
  if (!before) return before.error();
  for (std::uint64_t n = 0; n < 1 + choice % 2; ++n) {
    field(w.word[at.spaced(1)]) = 99;
    TENUTO_TRY(put(tx, w.word[at.a], 98));
    TENUTO_TRY(set_dest(tx, w.dest[at.d], 64, 97, false, choice % 2));
    field(w.word[at.b]) = 96;
    TENUTO_TRY(tx.rollback_to(*before));
    if (field(w.word[at.a]) != after.word[at.a]) return Status::corrupt;
    if (field(w.word[at.b]) != after.word[at.b]) return Status::corrupt;
  }
  return set_dest(tx, w.dest[(at.d + 1) % World::kDests], 0, 0, false);
}

// The slot is stored at once, before the fence of any entry.
Status append(Transaction& tx, World& w) {
  TENUTO_TRY(tx.overwrite(&w.slot[w.used], sizeof w.slot[0]));
  w.slot[w.used] = w.used * 7 + 1;
  field(w.used) += 1;
  return Status::ok;
}

Status body(Transaction& tx, World& w, Op op, std::uint64_t choice, const WorldState& after) {
  const Picks p(choice);
  switch (op) {
    case Op::transfer:
      TENUTO_TRY(tx.add_later(w.word[p.a]));
      TENUTO_TRY(tx.add_later(w.word[p.b]));
      TENUTO_TRY(tx.ready());
      w.word[p.a] = after.word[p.a];
      w.word[p.b] = after.word[p.b];
      return Status::ok;
    case Op::one_by_one:
      for (std::size_t i = 0; i < 3; ++i) {
        TENUTO_TRY(put(tx, w.word[p.spaced(i)], after.word[p.spaced(i)]));
      }
      return Status::ok;
    case Op::replace:
      TENUTO_TRY(set_dest(tx, w.dest[p.d], 100, after.tag[p.d], false));
      return put(tx, w.word[p.a], after.word[p.a]);
    case Op::link:
    case Op::unlink:
      return set_dest(tx, w.dest[p.d], 64, after.tag[p.d], false);
    case Op::late_link:
      return set_dest(tx, w.dest[p.d], 64, after.tag[p.d], true);
    case Op::link_page:
      return set_dest(tx, w.dest[p.d], 4096, after.tag[p.d], false);
    case Op::link_large:
      return set_dest(tx, w.dest[p.d], kLargeBytes, after.tag[p.d], false);
    case Op::link_typed:
    case Op::link_typed_large: {
      const std::uint64_t bytes = op == Op::link_typed ? 64 : kLargeBytes;
      return set_dest(tx, w.dest[p.d], bytes, after.tag[p.d], false, after.type[p.d]);
    }
    case Op::link_many:
    case Op::unlink_many:
      for (auto& dest : w.many) TENUTO_TRY(set_dest(tx, dest, kLargeBytes, after.many, false));
      return Status::ok;
    case Op::hold_many:
      for (std::size_t i = 0; i < World::kMany; ++i) {
        const Result<void*> block = tx.alloc(kLargeBytes, {.type = kHeldType});
        if (!block) return block.error();
      }
      return Status::ok;
    case Op::cancel:
      TENUTO_TRY(put(tx, w.word[p.a], after.word[p.a]));
      return cancel(tx, 1, 64);
    case Op::batch:
      for (std::size_t i = 0; i < World::kWords; i += 2) TENUTO_TRY(tx.add_later(w.word[i]));
      TENUTO_TRY(tx.ready());
      for (std::size_t i = 0; i < World::kWords; i += 2) w.word[i] = after.word[i];
      return Status::ok;
    case Op::overflow:
      return add_spread(tx, w, 1);
    case Op::abort_stores:
      TENUTO_TRY(put(tx, w.word[p.a], 1234567));
      TENUTO_TRY(set_dest(tx, w.dest[p.d], 64, 7654321, false, choice % 2));
      TENUTO_TRY(put(tx, w.word[p.b], 2345678));
      return Status::aborted;
    case Op::abort_early: {
      TENUTO_TRY(tx.add_later(w.word[p.a]));
      const Result<void*> block = tx.alloc(64);
      return block ? Status::aborted : block.error();
    }
    case Op::abort_overflow:
      TENUTO_TRY(add_spread(tx, w, 1000));
      return Status::aborted;
    case Op::field_stores:
      field(w.word[p.spaced(0)]) = 99;
      for (std::size_t i = 0; i < 3; ++i) field(w.word[p.spaced(i)]) = after.word[p.spaced(i)];
      return field(w.word[p.spaced(0)]) == after.word[p.spaced(0)] ? Status::ok : Status::corrupt;
    case Op::set_parts:
      return set_parts(tx, &w.word[p.three()], &after.word[p.three()]);
    case Op::field_link:
      return field_link(tx, w, p, after);
    case Op::field_mixed:
      field(w.word[p.spaced(0)]) = after.word[p.spaced(0)];
      TENUTO_TRY(put(tx, w.word[p.spaced(1)], after.word[p.spaced(1)]));
      if (w.word[p.spaced(0)] != after.word[p.spaced(0)]) return Status::corrupt;
      field(w.word[p.spaced(2)]) = after.word[p.spaced(2)];
      return Status::ok;
    case Op::field_many:
      for (auto& s : w.spread) field(s.word) += 1;
      return Status::ok;
    case Op::abort_fields:
      field(w.word[p.a]) = 1234567;
      TENUTO_TRY(field_link(tx, w, p, after));
      field(w.word[p.b]) = 2345678;
      if (choice % 2 == 0) TENUTO_TRY(tx.ready());
      return Status::aborted;
    case Op::part_undone:
      return part_undone(tx, w, p, choice, after);
    case Op::fill_unused:
      TENUTO_TRY(tx.overwrite(&w.slot[w.used], sizeof w.slot[0]));
      w.slot[w.used] = choice;
      return Status::ok;
    case Op::append:
      return append(tx, w);
    case Op::abort_append:
      TENUTO_TRY(append(tx, w));
      w.slot[w.used] = 99;
      if (w.used == 0) return Status::aborted;
      TENUTO_TRY(tx.add_later(w.slot[w.used - 1]));
      TENUTO_TRY(tx.overwrite(&w.slot[w.used - 1], sizeof w.slot[0]));
      w.slot[w.used - 1] = 99;
      return Status::aborted;
    case Op::link_adopted:
    case Op::free_held:
    case Op::cancel_many:
    case Op::drain:
    case Op::sparse:
      return Status::ok;
  }
  return Status::ok;
}

// The block is filled, and not flushed, before the transaction begins.
Status link_adopted(TxParts& p, World& w, std::uint64_t choice, const WorldState& after) {
  const Picks at(choice);
  const auto block = p.heap->reserve(64, heap::Kind::logged);
  if (!block) return block.error();
  auto* const fresh = p.file->at<std::uint64_t>(block->offset);
  *fresh = after.tag[at.d];
  return p.run([&](Transaction& tx) -> Status {
    TENUTO_TRY(p.engine->mine().adopt(block->offset, 64));
    Ptr<std::uint64_t>& dest = w.dest[at.d];
    if (dest) TENUTO_TRY(tx.destroy(dest.get()));
    TENUTO_TRY(tx.add(dest));
    dest = fresh;
    return Status::ok;
  });
}

}  // namespace

Status cancel_many(Transaction& tx) { return cancel(tx, World::kMany, kLargeBytes); }

std::vector<PoolOffset> blocks_of_type(TxParts& p, std::uint64_t type) {
  std::vector<PoolOffset> all;
  for (PoolOffset o = p.heap->find_typed({0}, type); o; o = p.heap->find_typed(o + 1, type)) {
    all.push_back(o);
  }
  return all;
}

Status perform(TxParts& p, World& w, Op op, std::uint64_t choice, const WorldState& after) {
  if (op == Op::drain) {
    p.engine->mine().drain();
    p.engine->mine().trim(0);
    return Status::ok;
  }
  if (op == Op::sparse) {
    const auto none = p.heap->reserve(p.file->bytes() - (1u << 20), heap::Kind::logged);
    return !none && none.error() == Status::full ? Status::ok : Status::invalid_argument;
  }
  if (op == Op::free_held) {
    void* const held = p.file->at<void>(blocks_of_type(p, kHeldType).at(0));
    return p.run([&](Transaction& tx) { return tx.free(held); });
  }
  if (op == Op::link_adopted) return link_adopted(p, w, choice, after);
  const Status s = p.run([&](Transaction& tx) { return body(tx, w, op, choice, after); });
  return s == Status::aborted && after.shown_by(w) ? Status::ok : s;
}

}  // namespace tenuto::test
