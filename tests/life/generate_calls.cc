// Single calls, with arguments that other calls often use, too.
#include "maker.h"

namespace tenuto::life {

void Maker::write() {
  const N s = store(), c = slot(), k = key();
  switch (below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
      return add(Verb::put, {s, c, k, length(), ttl(), buffered()});
    case 4:
      return add(Verb::put_if_absent, {s, c, k, length(), ttl(), buffered()});
    case 5:
      return add(Verb::touch, {s, c, k, ttl(), buffered()});
    case 6:
      return add(Verb::erase, {s, c, k, buffered()});
    case 7:
      return add(Verb::erase_pair, {s, c, k, below(8), buffered()});
    case 8:
      return add(Verb::cas, {s, c, k, one_in(4) ? -1 : length(), below(3), buffered()});
    case 9:
      return add(Verb::merge, {s, c, k, one_in(4) ? -1 : length(), buffered()});
    case 10:
      return add(Verb::batch,
                 {s, below(1u << 30), 1 + below(one_in(4) ? 150 : 12), length(), buffered()});
    default:
      return one_in(3) ? add(Verb::erase_range, {s, c, one_in(4) ? -1 : k,
                                                 one_in(4) ? -1 : k + below(200), buffered()})
                       : add(Verb::run, {s, c, k, key(), length(), one_in(5)});
  }
}

void Maker::many() {
  one_in(3) ? add(Verb::drain, {store(), slot(), key(), 5 + below(150), buffered()})
            : add(Verb::fill, {store(), slot(), key(), 5 + below(150), length(), buffered()});
}

void Maker::large() {
  const N most = static_cast<N>(story_.pool_bytes_max / 16);
  add(Verb::put,
      {store(), slot(), static_cast<N>(near_) + below(2),
       one_in(3) ? 20'000 + below(80'000) : most / 4 + below(most * 3 / 4), 0, buffered()});
}

void Maker::read() {
  const N s = store(), c = slot(), k = key();
  switch (below(14)) {
    case 0:
      return add(Verb::view, {s, c, k});
    case 1:
      return add(Verb::contains, {s, c, k});
    case 2:
      return add(Verb::multi_get, {s, c, k, 1 + below(60), below(2)});
    case 3:
      return add(Verb::lower, {s, c, k});
    case 4:
      return add(Verb::upper, {s, c, k});
    case 5:
      return add(Verb::count, {s, c, k});
    case 6:
      return add(Verb::contains_pair, {s, c, k, below(8)});
    case 7:
      return add(Verb::ttl, {s, c, k});
    case 8:
      return add(Verb::approximate, {s, c, k, k + below(300)});
    case 9:
      return add(Verb::list, {s});
    case 10:
      return one_in(2) ? add(Verb::time, {s}) : add(Verb::stats, {s, c});
    default:
      return add(Verb::get, {s, c, k});
  }
}

void Maker::making() {
  const N s = store();
  switch (below(8)) {
    case 0:
    case 1:
    case 2:
      return add(Verb::create, {s, made_slot(), name(), encoding(), one_in(6)});
    case 3:
      return add(Verb::reopen, {s, made_slot(), name()});
    case 4:
    case 5:
      return add(Verb::drop, {s, name()});
    case 6:
      return add(Verb::rename, {s, name(), name(), below(2)});
    default:
      return one_in(2) ? add(Verb::list, {s}) : add(Verb::forget, {s, 1 + below(5)});
  }
}

void Maker::moment() {
  const N n = snapshot_slot();
  if (!snapshot_stands(n) && !one_in(6)) {
    snapshot_stands(n) = true;
    return add(Verb::snapshot, {store(), n});
  }
  switch (below(8)) {
    case 0:
      return add(Verb::snapshot, {store(), n});
    case 1:
    case 2:
    case 3:
      return add(Verb::snap_get, {n, slot(), key()});
    case 4:
      return add(Verb::snap_contains, {n, slot(), key()});
    case 5:
      snapshot_stands(n) = false;
      return add(Verb::snap_release, {n});
    default:
      return add(Verb::snap_scan, {n, slot(), below(2)});
  }
}

void Maker::transaction() {
  const N x = transaction_slot();
  bool& stands = standing().transaction[x];
  if (!stands && !one_in(8)) {
    stands = true;
    return add(Verb::begin, {store(), x, one_in(10)});
  }
  switch (below(15)) {
    case 0:
    case 1:
    case 2:
      return add(Verb::tx_get, {x, slot(), key()});
    case 3:
      return add(Verb::tx_contains, {x, slot(), key()});
    case 4:
      return add(Verb::tx_for_update, {x, slot(), key()});
    case 5:
    case 6:
      return add(Verb::tx_put, {x, slot(), key(), length(), ttl()});
    case 7:
      return add(Verb::tx_touch, {x, slot(), key(), ttl()});
    case 8:
      return add(Verb::tx_erase, {x, slot(), key()});
    case 9:
      return add(Verb::tx_erase_pair, {x, slot(), key(), below(8)});
    case 10:
      add(Verb::savepoint, {x});
      for (N n = below(3); n > 0; --n) add(Verb::tx_put, {x, slot(), key(), length(), ttl()});
      return one_in(2) ? add(one_in(2) ? Verb::tx_erase : Verb::tx_contains, {x, slot(), key()})
                       : add(Verb::rollback_to, {x});
    case 11:
      return add(Verb::tx_fill, {x, slot(), key(), 1 + below(100), length()});
    default:
      stands = false;
      return add(one_in(6) ? Verb::rollback : Verb::commit, {x, buffered()});
  }
}

void Maker::making_in_transaction() {
  const N x = transaction_slot();
  bool& stands = standing().transaction[x];
  if (!stands && !one_in(8)) {
    stands = true;
    return add(Verb::begin, {store(), x, 0});
  }
  const N c = one_in(2) ? slot() : made_slot();
  switch (below(7)) {
    case 0:
    case 1:
      return add(Verb::tx_create, {x, c, name(), encoding()});
    case 2:
      return add(Verb::tx_drop, {x, c});
    case 3:
      return add(Verb::tx_put, {x, c, key(), length(), ttl()});
    case 4:
      return add(Verb::tx_get, {x, c, key()});
    default:
      stands = false;
      return add(Verb::commit, {x, buffered()});
  }
}

void Maker::cursor() {
  const N i = cursor_slot();
  bool& stands = standing().cursor[i];
  if (!stands && !one_in(8)) {
    stands = true;
    const N x = transaction_slot(), n = snapshot_slot();
    const N of = standing().transaction[x] && one_in(2) ? 2
                 : snapshot_stands(n) && one_in(2)      ? 1
                                                        : 0;
    add(Verb::cursor, {i, of,
                       of == 0   ? store()
                       : of == 1 ? n
                                 : x,
                       slot(), one_in(5) ? key() : 0, one_in(5) ? key() + 3 : 0});
    switch (below(5)) {
      case 0:
        return add(Verb::seek_first, {i});
      case 1:
        return add(Verb::seek_last, {i});
      case 2:
        return one_in(2) ? add(Verb::seek_pair, {i, key(), below(8)})
                         : add(Verb::seek_for_prev, {i, key()});
      default:
        return add(Verb::seek, {i, key()});
    }
  }
  switch (below(15)) {
    case 0:
      return add(one_in(2) ? Verb::seek_first : Verb::seek_last, {i});
    case 1:
      return add(Verb::seek, {i, key()});
    case 2:
      return one_in(2) ? add(Verb::seek_pair, {i, key(), below(8)})
                       : add(Verb::seek_for_prev, {i, key()});
    case 3:
    case 4:
    case 5:
    case 6:
      return add(Verb::next, {i, one_in(4) ? 1 + below(120) : 1 + below(3)});
    case 7:
    case 8:
    case 9:
    case 10:
      return add(Verb::prev, {i, one_in(4) ? 1 + below(120) : 1 + below(3)});
    case 11:
    case 12:
      return add(one_in(2) ? Verb::next_key : Verb::prev_key, {i});
    case 13:
      return add(Verb::cursor_look, {i});
    default:
      stands = false;
      return add(Verb::cursor_close, {i});
  }
}

void Maker::upkeep() {
  const N s = store();
  switch (below(12)) {
    case 11:
      return one_in(3) ? resting() : add(Verb::rest, {s, one_in(2)});
    case 0:
    case 1:
      return one_in(3) ? add(Verb::compact, {s, 1 + below(100)})
                       : add(Verb::compact, {s, 0, one_in(3) ? 1 : 0});
    case 2:
      return add(Verb::backup, {s, below(kBackups)});
    case 3:
      return add(Verb::check_backup, {below(kBackups)});
    case 4:
      return add(Verb::reclaim, {s, one_in(2) ? 0 : 1 + below(100)});
    case 5:
      return add(Verb::sync, {s});
    case 6:
      return add(Verb::trim, {s});
    case 7:
      return add(Verb::health, {s});
    case 8:
      return add(Verb::look, {s});
    default:
      return add(Verb::validate, {s});
  }
}

// A cursor or a view stays while what it saw, and all around it, is replaced often.
void Maker::resting() {
  const N s = store(), c = slot(), k = key(), i = cursor_slot();
  add(Verb::fill, {s, c, k, 150, 2000, 1});
  if (one_in(3)) {
    add(Verb::hold_view, {below(kViewsMax), s, c, k});
  } else {
    add(Verb::cursor, {i, 0, s, c});
    add(Verb::seek, {i, k});
    standing().cursor[i] = true;
  }
  for (N n = 2 + below(6); n > 0; --n) {
    thread_ = static_cast<unsigned>(below(story_.threads));
    add(Verb::fill, {s, c, k, 150, 2000 + below(2000), 1});
  }
  add(Verb::rest, {s, 1});
}

void Maker::objects() {
  const N s = store(), at = below(kObjects), type = below(4);
  const N count = one_in(3) ? 1 + below(120) : 1;
  const N bytes = below(one_in(8) ? 300'000 : 2000);
  switch (story_.side != 0 && one_in(2) ? 11 : below(12)) {
    case 0:
    case 1:
      return add(Verb::object_new, {s, at, bytes, count, type, one_in(3) ? 1 + below(3) : 0});
    case 2:
    case 3:
      return add(Verb::object_publish, {s, at, bytes, type, one_in(6)});
    case 4:
      return add(Verb::object_fill, {s, at, bytes, one_in(4)});
    case 5:
    case 6:
      return add(Verb::object_free, {s, at, count});
    case 7:
      return add(Verb::object_resize, {s, at, one_in(8) ? 0 : 1 + below(5000)});
    case 8:
      return add(Verb::object_swap, {s, at, below(kObjects)});
    case 9:
      return add(Verb::object_walk, {s, below(3), below(2)});
    default:
      return add(Verb::object_tx, {s, below(kObjects / 2), 1 + below(one_in(3) ? 128 : 10),
                                   below(2), type, one_in(5)});
  }
}

}  // namespace tenuto::life
