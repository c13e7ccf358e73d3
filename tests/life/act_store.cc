// Making, dropping and renaming collections, and upkeep of a store.
#include <algorithm>

#include <unistd.h>

#include "actor.h"
#include "tenuto/pool.h"

namespace tenuto::life {

bool Actor::collections(const Step& s) {
  if (s.verb < Verb::create || s.verb > Verb::forget) return false;
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  if (store == nullptr) return true;
  const std::uint64_t name = static_cast<std::uint64_t>(s.a[1]) % kNames;
  const std::uint64_t to = static_cast<std::uint64_t>(s.a[2]) % kNames;
  switch (s.verb) {
    case Verb::create:
    case Verb::reopen:
      create(s);
      break;
    case Verb::drop:
      begin({name});
      end(call([&] { return store->drop(name_text(name)); }));
      break;
    case Verb::rename:
      begin({name, to, s.a[3] != 0});
      end(call([&] {
        return store->rename(name_text(name), name_text(to), RenameOptions{.replace = s.a[3] != 0});
      }));
      break;
    default:  // forget
      keep_collection(store_, s.a[1], Collection());
  }
  return true;
}

void Actor::create(const Step& s) {
  const std::shared_ptr<Store> store = world_.store[store_].store;
  const Encoding encoding = Encoding::of(static_cast<std::uint64_t>(s.a[3]));
  CollectionOptions options;
  options.create_if_missing = s.verb == Verb::create;
  options.error_if_exists = s.verb == Verb::create && s.a[4] != 0;
  options.order = encoding.order;
  options.duplicates = encoding.duplicates;
  options.expires = encoding.expires;
  if (encoding.order == KeyOrder::registered) options.codec = kCodec;
  const std::uint64_t name = static_cast<std::uint64_t>(s.a[2]) % kNames;
  Collection c;
  begin({name, encoding.word(), options.error_if_exists});
  const std::uint64_t status = call([&] {
    auto made = store->collection(name_text(name), options);
    if (!made) return made.error();
    c = *made;
    return Status::ok;
  });
  if (status == 0) keep_collection(store_, s.a[1], c);
  end(status, status == 0 ? Words{c.id(), encoding_of(c).word()} : Words{});
}

void Actor::list(const Step&) {
  const std::shared_ptr<Store> store = world_.store[store_].store;
  Words results;
  begin({});
  const std::uint64_t status = call([&] {
    const auto all = store->collections();
    if (!all) return all.error();
    for (const CollectionInfo& info : *all) {
      const auto name = name_of(info.name);
      if (!name) world_.broken("a collection that nobody made: " + info.name);
      const Encoding encoding{info.order, info.duplicates, info.expires};
      results.insert(results.end(), {*name, info.id, encoding.word()});
    }
    return Status::ok;
  });
  end(status, results);
}

bool Actor::upkeep(const Step& s) {
  if (s.verb < Verb::compact || s.verb > Verb::health || s.verb == Verb::check_backup) return false;
  const std::shared_ptr<Store> store = store_of(s.a[0]);
  if (store == nullptr) return true;
  std::uint64_t n = 0, waits = 0;
  if (s.verb == Verb::backup) {
    n = static_cast<std::uint64_t>(s.a[1]) % kBackups;
    begin({n});
  } else {
    begin({});
  }
  const std::uint64_t status = call([&] {
    switch (s.verb) {
      case Verb::compact: {
        const auto r = store->compact(
            {.moves_max = static_cast<std::uint64_t>(s.a[1]), .in_key_order = s.a[2] != 0});
        if (r) n = r->records_moved;
        waits = store->stats().retired_items;
        return r.error();
      }
      case Verb::backup: {
        // Each backup has its own name, because threads may make backups at once.
        PoolOptions options;
        options.size_max = world_.story.pool_bytes_max * 2;
        options.size = world_.story.pool_bytes;
        options.medium = Medium::cache;
        return store->backup(world_.backup_of(static_cast<unsigned>(n)), options);
      }
      case Verb::reclaim: {
        const auto r = store->reclaim(static_cast<std::uint64_t>(s.a[1]));
        n = r.value_or(0);
        return r.error();
      }
      case Verb::sync:
        return number_ % 2 == 0 ? store->sync() : store->pool().sync();
      case Verb::trim:
        return store->pool().trim();
      default:
        return store->pool().health();
    }
  });
  if (s.verb == Verb::backup && status == static_cast<std::uint64_t>(Status::ok)) {
    end(status, seen_in_backup(static_cast<unsigned>(n)));
  } else {
    end(status, {n, waits});
  }
  return true;
}

// The contents of a backup must be the store's at some point during the call.
Actor::Words Actor::seen_in_backup(unsigned n) {
  StoreOptions options = world_.options_of(static_cast<unsigned>(store_), 0);
  options.pool.medium = Medium::cache;
  options.pool.read_only = true;
  options.pool.size_max = world_.story.pool_bytes_max * 2;
  world_.let_calls_be();
  Report report;
  auto opened = Store::open(world_.backup_of(n), options, &report);
  if (!opened) world_.broken("a finished backup does not open: " + report.text());
  return seen_in(static_cast<unsigned>(store_), *opened, false, false);
}

}  // namespace tenuto::life
