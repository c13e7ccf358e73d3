// Transactions over keys, strictly serialisable: as if they, single puts, batches and snapshots
// happened one after the other, in an order that agrees with real time. Optimistic: reads see one
// moment and take no lock, writes are collected, and commit answers `conflict`, having changed
// nothing, when something that was read has changed since.
//
//   store.run([&](StoreTransaction& tx) -> Status {
//     std::string balance;
//     TENUTO_TRY(tx.get("alice", balance));
//     return tx.put("alice", plus_one(balance));
//   });
//
// One transaction may read and write any collections of its store; calls that name none are about
// the default one. not_found, also of the commit: a collection it uses was dropped. A drop is a
// change as any other: a commit says `conflict`, even if nothing was written, when the transaction
// first came to a collection that was dropped since its moment, for what it saw was no moment's.
// (Transactions over objects in a pool are others: tenuto/tx.h.)
//
// Thread safety: a transaction belongs to one thread at a time; any number of them run at once.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tenuto/collection.h"
#include "tenuto/kv.h"
#include "tenuto/status.h"

namespace TENUTO_NS {

namespace store {
struct Where;
}  // namespace store

struct TransactionOptions {
  bool read_only = false;  // put and erase answer read_only
  // Of Store::run: how often it begins anew after a conflict, and how its commit is durable.
  unsigned attempts_max = 1000;
  WriteOptions write = {};
};

class StoreTransaction {
 public:
  StoreTransaction(StoreTransaction&&) noexcept;
  StoreTransaction& operator=(StoreTransaction&&) noexcept;
  ~StoreTransaction();  // rolls back what was not committed

  // Own writes first, then the store at the moment of this transaction's first read. Statuses as
  // those of Snapshot; closed once the transaction has ended; invalid_argument: the collection is
  // of another store.
  Status get(const Collection& collection, std::string_view key, std::string& value);
  Result<std::string> get(const Collection& collection, std::string_view key);
  Status contains(const Collection& collection, std::string_view key);
  // As get, and keeps other transactions off the key until this one ends: their get_for_update,
  // put, erase and commit of it answer conflict at once. Nobody waits. conflict: another
  // transaction has it, or it changed since this one began to read; roll back and begin anew.
  // invalid_argument, too: a collection with duplicates.
  Status get_for_update(const Collection& collection, std::string_view key, std::string& value);

  // Nothing is written before the commit. ok | too_large | invalid_argument (the key; a lifetime
  // where nothing expires) | conflict (another transaction has the key for update) | read_only |
  // closed. ttl_ms: as WriteOptions. Of what duplicates there are, put adds one and erase takes
  // all.
  Status put(const Collection& collection, std::string_view key, std::string_view value,
             std::uint64_t ttl_ms = 0);
  Status erase(const Collection& collection, std::string_view key);  // also of one not there
  // One of duplicates. invalid_argument: there are none in this collection.
  Status erase_pair(const Collection& collection, std::string_view key, std::string_view value);

  // Own writes merged in, those made while it stands perhaps. What it walks over is read: a key
  // that appears there before the commit is a conflict. closed once the transaction has ended.
  Iterator iterator(const Collection& collection, IteratorOptions options = {});

  // Of the default collection.
  Status get(std::string_view key, std::string& value);
  Result<std::string> get(std::string_view key);
  Status contains(std::string_view key);
  Status get_for_update(std::string_view key, std::string& value);
  Status put(std::string_view key, std::string_view value);
  Status erase(std::string_view key);
  Iterator iterator(IteratorOptions options = {});

  // A collection that is there, for all others, from the commit on, and is gone without it; this
  // transaction writes to it by the handle, which is not_found outside it meanwhile. exists: there
  // is one, or this transaction has made one; its commit says so, too, when somebody else has taken
  // the name. Otherwise as Store::collection, of one that is to be made.
  Result<Collection> create(std::string_view name, const CollectionOptions& options,
                            Report* report = nullptr);
  // The collection is dropped with the commit, which says not_found when it is not there any more,
  // and busy while a backup reads it. Writes to it are not done. invalid_argument: the default one,
  // or one that this transaction makes.
  Status drop(const Collection& collection);

  // A point in the transaction to return to: rollback_to forgets the writes made since, but not
  // what was created and dropped.
  struct Savepoint {
    std::size_t writes = 0;
  };
  Savepoint savepoint() const;
  Status rollback_to(Savepoint point);

  // Ends the transaction. ok: everything is done, durable as the options say. conflict | expired |
  // full | ...: nothing was done (io: see WriteOptions); invalid_argument inside an object
  // transaction of this thread. A transaction without writes needs no validation: what it read was
  // so at one moment; and its commit makes nothing durable, of others neither.
  Status commit(WriteOptions options = {});
  void rollback();

 private:
  friend class Store;
  struct Impl;
  explicit StoreTransaction(std::shared_ptr<Impl> impl);
  Collection main() const;
  Iterator pairs_of(const Collection& collection, std::string_view key);
  Iterator iterator_in(const Collection& collection, store::Where where);
  std::shared_ptr<Impl> impl_;
};

}  // namespace TENUTO_NS
