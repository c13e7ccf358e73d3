// Snapshots and transactions.
#include <algorithm>

#include "actor.h"

namespace tenuto::life {

bool Actor::moments(const Step& s) {
  switch (s.verb) {
    case Verb::snapshot:
      take_snapshot(s);
      return true;
    case Verb::snap_get:
    case Verb::snap_contains:
    case Verb::snap_scan:
      snapshot_read(s);
      return true;
    case Verb::snap_release: {
      verb_ = Verb::snap_release;
      SnapshotSlot slot;
      {
        const std::lock_guard lock(world_.mu);
        slot = std::exchange(world_.snapshot[static_cast<std::size_t>(s.a[0]) % kSnapshotsMax], {});
      }
      if (slot.snapshot == nullptr) return true;
      store_ = slot.store;
      begin({slot.uid});
      end(call([&] {
        // Other threads may still read through it if threads run at once.
        if (world_.story.at_once) {
          slot.snapshot.reset();
        } else {
          slot.snapshot->release();
        }
        return Status::ok;
      }));
      return true;
    }
    default:
      return false;
  }
}

void Actor::take_snapshot(const Step& s) {
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  if (store == nullptr) return;
  if (!world_.story.at_once) moments({s.thread, Verb::snap_release, {s.a[1]}});
  verb_ = s.verb;
  static_cast<void>(store_of(s.a[0]));
  SnapshotSlot made{nullptr, world_.fresh(), store_};
  begin({made.uid});
  const std::uint64_t status = call([&] {
    auto snapshot = store->snapshot();
    if (!snapshot) return snapshot.error();
    made.snapshot = std::make_shared<Snapshot>(std::move(*snapshot));
    return Status::ok;
  });
  end(status);
  if (status != 0) return;
  const std::lock_guard lock(world_.mu);
  std::swap(world_.snapshot[static_cast<std::size_t>(s.a[1]) % kSnapshotsMax], made);
}

void Actor::snapshot_read(const Step& s) {
  SnapshotSlot slot;
  {
    const std::lock_guard lock(world_.mu);
    slot = world_.snapshot[static_cast<std::size_t>(s.a[0]) % kSnapshotsMax];
  }
  Collection c;
  store_ = slot.store;
  if (slot.snapshot == nullptr || !collection_of(store_, s.a[1], c)) return;
  Words words = {slot.uid, c.id(), s.verb == Verb::snap_scan ? s.a[2] != 0 : clip(s.a[2])};
  const std::string key = text(c, s.a[2]);
  std::string got;
  Words results;
  begin(words);
  const std::uint64_t status = call([&] {
    const Snapshot& in = *slot.snapshot;
    const bool plainly = by_itself(c);
    if (s.verb == Verb::snap_contains) return plainly ? in.contains(key) : in.contains({c, key});
    if (s.verb == Verb::snap_get) return plainly ? in.get(key, got) : in.get({c, key}, got);
    Status walked = Status::ok;
    results = {0};
    scan(plainly ? in.iterator() : in.iterator(c), numbers(c), s.a[2] != 0, walked, results);
    return walked;
  });
  if (s.verb == Verb::snap_get && status == 0) results = {seen_tag(got)};
  end(status, results);
}

bool Actor::transactions(const Step& s) {
  if (s.verb < Verb::begin || s.verb > Verb::run) return false;
  if (s.verb == Verb::begin || s.verb == Verb::run) {
    s.verb == Verb::begin ? begin_transaction(s) : run(s);
    return true;
  }
  TransactionSlot& x =
      world_.transaction[owner_][static_cast<std::size_t>(s.a[0]) % kTransactionsMax];
  if (!x.transaction) return true;
  store_ = x.store;
  switch (s.verb) {
    case Verb::tx_get:
    case Verb::tx_contains:
    case Verb::tx_for_update:
      transaction_read(s, x);
      break;
    case Verb::tx_put:
    case Verb::tx_fill:
    case Verb::tx_touch:
    case Verb::tx_erase:
    case Verb::tx_erase_pair:
      transaction_write(s, x);
      break;
    case Verb::tx_create:
    case Verb::tx_drop:
      transaction_create(s, x);
      break;
    default:
      transaction_end(s, x);
  }
  return true;
}

void Actor::begin_transaction(const Step& s) {
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  if (store == nullptr) return;
  TransactionSlot& x =
      world_.transaction[owner_][static_cast<std::size_t>(s.a[1]) % kTransactionsMax];
  if (x.transaction) {
    verb_ = Verb::rollback;
    store_ = x.store;
    transaction_end({s.thread, Verb::rollback}, x);
    verb_ = s.verb;
    static_cast<void>(store_of(s.a[0]));
  }
  x = {};
  x.uid = world_.fresh();
  x.store = store_;
  begin({x.uid, s.a[2] != 0});
  TransactionOptions options;
  options.read_only = s.a[2] != 0;
  const std::uint64_t status = call([&] {
    x.transaction.emplace(store->begin(options));
    return Status::ok;
  });
  end(status);
}

void Actor::transaction_read(const Step& s, TransactionSlot& x) {
  Collection c;
  if (!collection_in(x, s.a[1], c)) return;
  const std::string key = text(c, s.a[2]);
  std::string got;
  StoreTransaction& tx = *x.transaction;
  const bool plainly = by_itself(c);
  begin({x.uid, c.id(), clip(s.a[2])});
  const std::uint64_t status = call([&] {
    switch (s.verb) {
      case Verb::tx_get:
        return plainly ? tx.get(key, got) : tx.get({c, key}, got);
      case Verb::tx_contains:
        return plainly ? tx.contains(key) : tx.contains({c, key});
      default:
        return plainly ? tx.get_for_update(key, got) : tx.get_for_update({c, key}, got);
    }
  });
  const bool value = s.verb != Verb::tx_contains && status == 0;
  end(status, value ? Words{seen_tag(got)} : Words{});
}

void Actor::transaction_write(const Step& s, TransactionSlot& x) {
  Collection c;
  if (!collection_in(x, s.a[1], c)) return;
  StoreTransaction& tx = *x.transaction;
  const bool plainly = by_itself(c), fill = s.verb == Verb::tx_fill;
  const std::int64_t count = fill ? std::min<std::int64_t>(s.a[3], 1000) : 1;
  if (fill) verb_ = Verb::tx_put;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t k = s.a[2] + i * 3;
    const std::string key = text(c, k);
    if (s.verb == Verb::tx_touch) {
      const auto ttl = static_cast<std::uint64_t>(std::max<std::int64_t>(s.a[3], 0));
      begin({x.uid, c.id(), clip(k), ttl});
      end(call([&] { return tx.touch({c, key}, ttl); }));
    } else if (s.verb == Verb::tx_erase) {
      begin({x.uid, c.id(), clip(k)});
      end(call([&] { return plainly ? tx.erase(key) : tx.erase({c, key}); }));
    } else if (s.verb == Verb::tx_erase_pair) {
      begin({x.uid, c.id(), clip(k), pair_tag(s.a[3])});
      end(call([&] { return x.transaction->erase_pair({c, key}, value_text(pair_tag(s.a[3]))); }));
    } else {
      const std::uint64_t tag = new_tag(c, fill ? s.a[4] : s.a[3]);
      const std::uint64_t ttl =
          c.expires() && !fill ? static_cast<std::uint64_t>(std::max<std::int64_t>(s.a[4], 0)) : 0;
      const std::string value = value_text(tag);
      begin({x.uid, c.id(), clip(k), tag, ttl});
      end(call([&] {
        return plainly && ttl == 0 ? tx.put(key, value) : tx.put({c, key}, value, ttl);
      }));
    }
  }
  verb_ = s.verb;
}

void Actor::transaction_create(const Step& s, TransactionSlot& x) {
  Collection c;
  if (s.verb == Verb::tx_drop) {
    if (!collection_in(x, s.a[1], c)) return;
    begin({x.uid, c.id()});
    end(call([&] { return x.transaction->drop(c); }));
    return;
  }
  const Encoding encoding = Encoding::of(static_cast<std::uint64_t>(s.a[3]));
  CollectionOptions options;
  options.order = encoding.order;
  options.duplicates = encoding.duplicates;
  options.expires = encoding.expires;
  if (encoding.order == KeyOrder::registered) options.codec = kCodec;
  const std::uint64_t name = static_cast<std::uint64_t>(s.a[2]) % kNames;
  begin({x.uid, name, encoding.word()});
  const std::uint64_t status = call([&] {
    auto made = x.transaction->create(name_text(name), options);
    if (!made) return made.error();
    c = *made;
    return Status::ok;
  });
  // Other threads get the handle, too. It must be of no use to them before the commit.
  if (status == 0) x.made[static_cast<std::size_t>(s.a[1]) % kCollections] = c;
  if (status == 0) keep_collection(store_, s.a[1], c);
  end(status, status == 0 ? Words{c.id()} : Words{});
}

void Actor::transaction_end(const Step& s, TransactionSlot& x) {
  StoreTransaction& tx = *x.transaction;
  switch (s.verb) {
    case Verb::savepoint:
      begin({x.uid});
      x.points.push_back(tx.savepoint());
      end(0, {x.points.size() - 1});
      break;
    case Verb::rollback_to:
      if (x.points.empty()) return;
      begin({x.uid, x.points.size() - 1});
      end(call([&] { return tx.rollback_to(x.points.back()); }));
      break;
    case Verb::commit: {
      begin({x.uid, s.a[1] != 0});
      const std::uint64_t status = call([&] { return tx.commit(how(s.a[1])); });
      end(status);
      for (unsigned c = 1; c < kCollections && status == 0; ++c) {
        if (x.made[c].status() != Status::closed) keep_collection(store_, c, x.made[c]);
      }
      x.made = {};
      break;
    }
    default:
      begin({x.uid});
      end(call([&] {
        tx.rollback();
        return Status::ok;
      }));
  }
}

// Reads a key, and writes another with a value that follows from it. Or gives up after both.
void Actor::run(const Step& s) {
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  Collection c;
  if (store == nullptr || !collection_of(store_, s.a[1], c) || c.duplicates()) return;
  const std::string from = text(c, s.a[2]), to = text(c, s.a[3]);
  const std::uint64_t tag = new_tag(c, s.a[4]);
  const std::string value = value_text(tag);
  std::uint64_t seen = kNone;
  begin({c.id(), clip(s.a[2]), clip(s.a[3]), tag, s.a[5] != 0});
  const std::uint64_t status = call([&] {
    return store->run([&](StoreTransaction& tx) -> Status {
      std::string got;
      const Status read = tx.get({c, from}, got);
      if (read != Status::ok && read != Status::not_found) return read;
      if (read == Status::not_found && c.status() != Status::ok) return read;
      seen = read == Status::ok ? seen_tag(got) : kNone;
      TENUTO_TRY(tx.put({c, to}, value));
      return s.a[5] != 0 ? Status::aborted : Status::ok;
    });
  });
  end(status, {seen});
}

}  // namespace tenuto::life
