// Cursors of collections, snapshots and transactions that stay open over other steps.
#include <algorithm>

#include "actor.h"

namespace tenuto::life {

bool Actor::cursors(const Step& s) {
  if (s.verb < Verb::cursor || s.verb > Verb::cursor_close) return false;
  if (s.verb == Verb::cursor) {
    open_cursor(s);
    return true;
  }
  CursorSlot& slot = world_.cursor[owner_][static_cast<std::size_t>(s.a[0]) % kCursorsMax];
  if (!slot.cursor) return true;
  store_ = slot.store;
  if (s.verb == Verb::cursor_close) {
    begin({slot.uid});
    end(call([&] {
      slot.cursor.reset();
      return Status::ok;
    }));
    return true;
  }
  const bool many = s.verb == Verb::next || s.verb == Verb::prev;
  const std::int64_t count = many ? std::clamp<std::int64_t>(s.a[1], 1, 300) : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool needs_place = s.verb >= Verb::next && s.verb <= Verb::cursor_look;
    if (needs_place && !slot.cursor->valid()) return true;
    move_cursor(s, slot);
  }
  return true;
}

void Actor::open_cursor(const Step& s) {
  CursorSlot& slot = world_.cursor[owner_][static_cast<std::size_t>(s.a[0]) % kCursorsMax];
  if (slot.cursor) {
    verb_ = Verb::cursor_close;
    cursors({s.thread, Verb::cursor_close, {s.a[0]}});
    verb_ = s.verb;
  }
  slot = {};
  std::optional<Iterator> made;
  std::uint64_t of = 0;
  Collection c;
  const auto limits = [&] {
    IteratorOptions o;
    if (s.a[4] > 0) o.lower = text(c, s.a[4]);
    if (s.a[5] > 0) o.upper = text(c, s.a[5]);
    return o;
  };
  const auto arguments = [&]() -> Words {
    return {slot.uid, static_cast<std::uint64_t>(s.a[1]) % 3, of,
            c.id(),   s.a[4] > 0 ? clip(s.a[4]) : kNone,      s.a[5] > 0 ? clip(s.a[5]) : kNone};
  };
  slot.uid = world_.fresh();
  std::uint64_t status = 0;
  if (s.a[1] % 3 == 0) {
    if (store_of(s.a[2]) == nullptr || !collection_of(store_, s.a[3], c)) return;
    begin(arguments());
    status = call([&] {
      return made.emplace(through(c, [&](const auto& in) { return in.iterator(limits()); }))
          .status();
    });
  } else if (s.a[1] % 3 == 1) {
    SnapshotSlot from;
    {
      const std::lock_guard lock(world_.mu);
      from = world_.snapshot[static_cast<std::size_t>(s.a[2]) % kSnapshotsMax];
    }
    store_ = from.store;
    if (from.snapshot == nullptr || !collection_of(store_, s.a[3], c)) return;
    of = from.uid;
    begin(arguments());
    status = call([&] { return made.emplace(from.snapshot->iterator(c, limits())).status(); });
  } else {
    TransactionSlot& x =
        world_.transaction[owner_][static_cast<std::size_t>(s.a[2]) % kTransactionsMax];
    store_ = x.store;
    if (!x.transaction || !collection_in(x, s.a[3], c)) return;
    of = x.uid;
    begin(arguments());
    status = call([&] { return made.emplace(x.transaction->iterator(c, limits())).status(); });
  }
  end(status);
  slot.store = store_;
  slot.numbers = numbers(c);
  if (made) slot.cursor = std::move(made);  // the destructor of a moved-from cursor runs here
}

void Actor::move_cursor(const Step& s, CursorSlot& slot) {
  Iterator& it = *slot.cursor;
  const bool pair = s.verb == Verb::seek_pair;
  const bool seeks = pair || s.verb == Verb::seek || s.verb == Verb::seek_for_prev;
  const std::string key = seeks ? key_text(slot.numbers, clip(s.a[1])) : "";
  const std::string value = pair ? value_text(pair_tag(s.a[2])) : "";
  begin({slot.uid, seeks ? clip(s.a[1]) : 0, pair ? pair_tag(s.a[2]) : 0});
  const std::uint64_t status = call([&] {
    switch (s.verb) {
      case Verb::seek_first:
        it.seek_first();
        break;
      case Verb::seek_last:
        it.seek_last();
        break;
      case Verb::seek:
        it.seek(key);
        break;
      case Verb::seek_for_prev:
        it.seek_for_prev(key);
        break;
      case Verb::seek_pair:
        it.seek_pair(key, value);
        break;
      case Verb::next:
        it.next();
        break;
      case Verb::prev:
        it.prev();
        break;
      case Verb::next_key:
        it.next_key();
        break;
      case Verb::prev_key:
        it.prev_key();
        break;
      default:
        break;  // cursor_look
    }
    return it.status();
  });
  if (status == kThrew || !it.valid()) {
    end(status, {0});
  } else {
    const std::uint64_t at = seen_key(slot.numbers, it.key());
    end(status, {1, at, seen_tag(it.value())});
  }
}

}  // namespace tenuto::life
