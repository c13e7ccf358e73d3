// Transactions over keys. They are strictly serialisable: transactions, single puts, batches and
// snapshots have one serial order, and it agrees with real time. They are optimistic. Reads see one
// snapshot and take no lock. Writes are collected in a write set. A commit validates the read set:
// if something that was read has changed since, it returns `conflict` and changes nothing.
//
//   store.run([&](StoreTransaction& tx) -> Status {
//     std::string balance;
//     TENUTO_TRY(tx.get("alice", balance));
//     return tx.put("alice", plus_one(balance));
//   });
//
// One transaction may read and write any collections of its store: tx.put({orders, "7"}, "open").
// not_found, also from commit: a collection that the transaction uses was dropped. A drop is a
// change like any other. Suppose that a transaction takes its snapshot, that then a collection is
// dropped, and that the transaction uses this collection only after that. Its reads then belong to
// no single point in time, so its commit returns `conflict`, even if it wrote nothing.
// (Transactions over objects in a pool are another class: tenuto/tx.h.)
//
// Thread safety: a transaction belongs to one thread at a time. Any number of transactions may run
// at once.
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
struct WriteSet;
}  // namespace store

struct TransactionOptions {
  bool read_only = false;  // put, erase, create and drop return read_only
  // For Store::run: how many attempts it makes at most, the first one included, and how its commit
  // is durable.
  unsigned attempts_max = 1000;
  WriteOptions write = {};
};

class TENUTO_API StoreTransaction {
 public:
  StoreTransaction(StoreTransaction&&) noexcept;
  StoreTransaction& operator=(StoreTransaction&&) noexcept;
  ~StoreTransaction();  // rolls back what was not committed

  // Reads find the transaction's own writes first, then the store at the time of the transaction's
  // first read. Statuses as of Snapshot; also busy (Store::snapshot), and closed after the end of
  // the transaction.
  Status get(const RecordKey& key, std::string& value);
  Result<std::string> get(const RecordKey& key);
  Status contains(const RecordKey& key);
  // As get, and reserves the key until this transaction ends. Other transactions that reserve or
  // write the key then get conflict at once, from get_for_update, put, erase or commit. Nothing
  // waits. Writes outside transactions are not refused; they make this commit a conflict. conflict:
  // another transaction has the key, or it changed since this one's first read; roll back and begin
  // again. invalid_argument also: the collection has duplicates.
  Status get_for_update(const RecordKey& key, std::string& value);

  // Nothing is stored before the commit. ok | too_large | invalid_argument (the key, or a lifetime
  // in a collection where nothing expires) | conflict (another transaction has the key for update)
  // | not_found (the collection was dropped) | read_only | closed. ttl_ms: as in WriteOptions, from
  // this call on, not from the commit. In a collection with duplicates put adds a pair, and erase
  // removes all pairs of the key.
  Status put(const RecordKey& key, std::string_view value, std::uint64_t ttl_ms = 0);
  Status erase(const RecordKey& key);  // ok also without the key
  // As Collection::touch: a read and a put, in this transaction. not_found: there is no such
  // record. Other statuses as get and put. WriteBatch has no such call, because it reads nothing.
  Status touch(const RecordKey& key, std::uint64_t ttl_ms);
  // Erases one pair. invalid_argument: the collection has no duplicates.
  Status erase_pair(const RecordKey& key, std::string_view value);

  // A cursor over the collection (without one: the default one) with the transaction's own writes
  // merged in. Writes made after it was positioned may or may not appear. The range that it walks
  // over is in the read set: a key that another thread adds there before the commit is a conflict.
  // closed after the end of the transaction.
  Iterator iterator(IteratorOptions options = {});
  Iterator iterator(const Collection& collection, IteratorOptions options = {});

  // Makes a collection with the commit. Without a commit it does not exist. Until then only this
  // transaction can use the handle; elsewhere it returns not_found. exists: a collection has the
  // name, or this transaction has made one with it. The commit returns exists if another thread has
  // taken the name meanwhile. Other statuses as of Store::collection for a new collection.
  Result<Collection> create(std::string_view name, const CollectionOptions& options,
                            Report* report = nullptr);
  // Drops the collection with the commit. The commit returns not_found if the collection was
  // dropped meanwhile, and busy while a backup reads it. The transaction's writes to it are not
  // done. invalid_argument: it is the default collection, or this transaction makes it.
  Status drop(const Collection& collection);

  // A point in the transaction. rollback_to discards the writes made since, but not the collections
  // that were created or dropped. rollback_to: ok | closed.
  struct Savepoint {
    std::size_t writes = 0;
  };
  Savepoint savepoint() const;
  Status rollback_to(Savepoint point);

  // Ends the transaction, whatever it returns. ok: all writes are done, durable as the options say.
  // conflict (something that was read has changed) | expired (the snapshot; begin again) | full |
  // exists, not_found, busy (see above) | invalid_argument (inside an object transaction of this
  // thread, or options with a lifetime) | read_only | corrupt | closed: nothing was done. io: see
  // WriteOptions. A transaction without writes needs no validation, because its reads are those of
  // one snapshot. Its commit syncs nothing, also not the writes of others that it has read.
  // Cost: as Store::write of the write set.
  Status commit(WriteOptions options = {});
  void rollback();

 private:
  friend class Store;
  struct Impl;
  explicit StoreTransaction(std::shared_ptr<Impl> impl);
  // collection null: the default one. closed also: the transaction was moved from.
  Status write_set_of(const Collection* collection, store::WriteSet*& out);
  Iterator pairs_of(const RecordKey& key);
  template <class Where>
  Iterator iterator_in(const Collection* collection, const Where& where);
  // Calls `write` with each value of a key that has duplicates. Does all of these writes or none.
  Status each_pair(const RecordKey& key, std::size_t& count,
                   const std::function<Status(const std::string&)>& write);
  std::shared_ptr<Impl> impl_;
};

}  // namespace TENUTO_NS
