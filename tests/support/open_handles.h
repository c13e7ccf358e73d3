// Every kind of handle of a store, open over a fork, and what each call on them returns in a child.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include "support/child.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {

inline StoreOptions options(Medium medium) {
  StoreOptions o;
  o.pool.size = 8u << 20;
  o.pool.size_max = 64u << 20;
  o.pool.recovery_threads = 1;
  o.pool.medium = medium;
  o.pool.journal.bytes = 1u << 20;
  return o;
}

inline std::string key(int i) { return "key" + std::to_string(i); }
inline void put_all(Store& s, int from, int to) {
  for (int i = from; i < to; ++i) MUST(s.put(key(i), "value") == Status::ok);
}
// Every kind of handle, open over a fork.
struct Handles {
  std::optional<Store> store;
  std::optional<Collection> named;
  std::optional<Snapshot> snapshot;
  std::optional<StoreTransaction> transaction;
  std::optional<Iterator> iterator;
  std::optional<Iterator> of_transaction;
  std::optional<View> view;
  std::optional<Transaction> objects;
  std::mutex mutex;
  std::uint64_t* word = nullptr;
  Ptr<char>* pointer = nullptr;

  void open(const std::string& path, Medium medium) {
    Report report;
    Result<Store> s = Store::open(path, options(medium), &report);
    if (!s) std::fprintf(stderr, "%s\n", report.text().c_str());
    MUST(s);
    store.emplace(std::move(*s));
    put_all(*store, 0, 100);
    named.emplace(*store->collection("named"));
    MUST(named->put("a", "b") == Status::ok);
    struct Root {
      std::uint64_t word;
      Ptr<char> pointer;
    };
    Root* const root = *store->pool().root<Root>("root");
    word = &root->word;
    pointer = &root->pointer;
    snapshot.emplace(*store->snapshot());
    put_all(*store, 50, 100);  // makes versions that the snapshot keeps
    transaction.emplace(store->begin());
    std::string value;
    MUST(transaction->get(key(1), value) == Status::ok);
    MUST(transaction->put("of the transaction", "x") == Status::ok);
    MUST(transaction->create("made in it", {}));
    iterator.emplace(store->iterator());
    iterator->seek_first();
    of_transaction.emplace(transaction->iterator());
    of_transaction->seek_first();
    view.emplace(*store->view(key(3)));
    objects.emplace(store->pool());
    MUST(objects->lock(mutex) == Status::ok);
    MUST(objects->add(*word) == Status::ok);
    *word = 7;
  }
  void close() {
    MUST(objects->commit() == Status::ok);
    view.reset();
    of_transaction.reset();
    iterator.reset();
    const Status s = transaction->commit();
    MUST(s == Status::ok || s == Status::conflict);
    transaction.reset();
    snapshot.reset();
    named.reset();
    MUST(store->close() == Status::ok);
  }
};

inline void every_call_refuses(Handles& h) {
  Store& s = *h.store;
  Pool& p = s.pool();
  Report report;
  std::string value;
  const Status f = Status::forked;
  MUST(s.get(key(1), value) == f);
  MUST(s.view(key(1)).error() == f);
  MUST(s.contains(key(1)) == f);
  MUST(s.put("x", "y") == f);
  MUST(s.erase(key(1)) == f);
  MUST(s.put_if_absent("x", "y") == f);
  MUST(s.erase_range(key(1), key(5)).error() == f);
  WriteBatch batch;
  batch.put("x", "y");
  MUST(s.write(batch) == f);
  MUST(s.collection("another").error() == f);
  MUST(s.collections().error() == f);
  MUST(s.drop("named") == f);
  MUST(s.rename("named", "other") == f);
  MUST(s.snapshot().error() == f);
  MUST(s.sync() == f);
  MUST(s.validate() == f);
  MUST(s.compact({}).error() == f);
  MUST(s.backup("/dev/shm/never-made") == f);
  MUST(s.reclaim(1).error() == f);
  MUST(s.run([](StoreTransaction& tx) { return tx.put("x", "y"); }) == f);
  MUST(h.named->get("a", value) == f);
  MUST(h.named->put("a", "c") == f);
  MUST(h.snapshot->get(key(1), value) == f);
  MUST(h.transaction->get(key(1), value) == f);
  MUST(h.transaction->put("x", "y") == f);
  MUST(h.transaction->commit() == f);
  while (h.iterator->valid()) h.iterator->next();
  MUST(h.iterator->status() == f);
  h.of_transaction->seek_first();
  MUST(!h.of_transaction->valid() && h.of_transaction->status() != Status::ok);
  Iterator fresh = s.iterator();
  fresh.seek_last();
  MUST(!fresh.valid() && fresh.status() == f);
  MUST(p.health(&report) == f && report.text().find("forked") != std::string::npos);
  MUST(p.malloc_to(100, *h.pointer) == f);
  MUST(p.free_from(*h.pointer) == f);
  MUST(p.reserve(100).error() == f);
  MUST(p.trim() == f);
  MUST(p.sync() == f);
  MUST(p.validate() == f);
  MUST(p.root<std::uint64_t>("root").error() == f);
  MUST(p.first(1).error() == f);
  MUST(p.run([](Transaction&) { return Status::ok; }) == f);
  MUST(h.objects->add(*h.word) == f);
  MUST(h.objects->commit() == f);
  MUST(h.mutex.try_lock());  // the parent's transaction holds it in the parent, not here
  static_cast<void>(p.stats());
  static_cast<void>(s.stats());
  static_cast<void>(p.info());
  MUST(s.close() == f);
}

}  // namespace tenuto::test
