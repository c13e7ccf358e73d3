// The parts of an open pool: its layers, from the file up to the store.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "file/lane.h"
#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/heap.h"
#include "store/pool/pool_store.h"
#include "tenuto/pool.h"
#include "tx/engine.h"

namespace TENUTO_NS {

struct PoolImpl {
  // Constant after open. Built in this order, destroyed in the reverse one.
  std::unique_ptr<pm::PoolFile> file;
  std::unique_ptr<pm::Lanes> lanes;
  std::unique_ptr<frame::Frames> frames;
  std::unique_ptr<heap::Heap> heap;
  std::unique_ptr<tx::Engine> engine;
  // Null: there is no store, or it was closed cleanly and not opened yet.
  std::unique_ptr<PoolStore> store;
  const PoolStoreKind& store_kind;
  unsigned recovery_threads = 0;
  InDoubt in_doubt = InDoubt::ask;
  Durability durability = Durability::sync;  // of calls that have no option for it
  std::vector<std::uint64_t> waited_for;     // pools that may ask what this one decided
  bool was_clean = true;
  bool in_call = false;  // a close found a thread in a call, which did not return
  double recovery_ms = 0;
  double collect_ms = 0;  // of it
  PointerFilter root_filter;
  std::map<std::uint64_t, PointerFilter> filters;
  std::uint64_t rolled_back = 0;
  std::mutex root_mu;  // makes the root object once, and replaces it
  // The thread that runs a hook of grow_root, under root_mu.
  std::atomic<std::thread::id> root_grower = {};

  explicit PoolImpl(const PoolStoreKind& kind) : store_kind(kind) {}

  // `fill` makes what the pool holds from the first: it is in the pool when that gets its name.
  using Fill = std::function<Status(PoolImpl& pool)>;
  static Result<std::unique_ptr<PoolImpl>> create(std::string_view path, const PoolOptions& options,
                                                  const PoolStoreKind& kind, Report* report,
                                                  const Fill& fill = {});
  // A pool that has no name until it is whole: a crash, or its destructor, leaves nothing of it. No
  // record in it is durable before finish_copy, which closes it durably and then gives it its name.
  // exists: another file has that name by then.
  static Result<std::unique_ptr<PoolImpl>> create_copy(std::string_view path,
                                                       const PoolOptions& options,
                                                       const PoolStoreKind& kind, Report* report);
  Status finish_copy(Report* report);
  static Result<std::unique_ptr<PoolImpl>> open(std::string_view path, const PoolOptions& options,
                                                const PoolStoreKind& kind, Report* report);
  // ok | forked. A child process does nothing with a pool and does not destroy it (pm::abandon).
  Status usable() const { return file->forked() ? Status::forked : Status::ok; }
  // A clean close: writes out everything volatile, then stores the state `clean`. busy: nothing was
  // done, since a call of another thread does not return, or a transaction is open. One that is
  // open in a damaged pool is `busy` only if asked for.
  Status close(bool if_no_transaction = false);

  // Opens the pool's store, if there is one and recovery has not opened it.
  Status open_store(Report* report);

  // The last step of an operation that wrote and fenced (pm::PoolFile::acknowledge).
  Status acknowledge(Durability d) { return file->acknowledge(d); }

  // root.cc
  Result<void*> root(std::string_view layout, std::uint64_t bytes, Report* report);
  Result<void*> grow_root(std::string_view layout, std::uint64_t bytes, const MigrateRoot& migrate,
                          Report* report);
  // explain.cc. Fill the report for a call that was refused with `s`, which they return.
  template <class Dest>
  Status explain_free(Status s, const Dest& dest, Report* report) const;
  Status explain_reserved(Status s, PoolOffset block, Report* report) const;
  std::string describe(const void* p) const;
  // garbage.cc. `lost` gets the blocks that Garbage::lost counts.
  Result<Garbage> find_garbage(const GarbageOptions& options, std::vector<PoolOffset>& lost,
                               Report* report);
  // Where the root object is. No offset: there is none. corrupt: the root word leads to no object.
  Result<PoolOffset> root_object(Report* report);
  Status no_memory_for_marks(Report* report) const;  // full
  // compact_objects.cc. `tx_pool`: this pool, for transactions. `told` gets what has moved, also if
  // it fails or throws.
  struct MovedObject {
    const void* from;
    void* to;
  };
  Status compact_objects(Pool& tx_pool, const CompactObjectsOptions& options,
                         CompactObjectsStats& done, std::vector<MovedObject>& told, Report* report);
  // Checks every layer below the store. REQUIRES: no other call is under way.
  Status validate(Report* report);

 private:
  Status move_objects(Pool& tx_pool, const CompactObjectsOptions& options,
                      CompactObjectsStats& done, std::vector<MovedObject>& told, Report* report);
  Status close_damaged();
  Status attach(bool clean, const PoolOptions& options, Report* report);
  Status recover(Report* report);
  Status collect(Report* report);
  struct StoredRoot;
  Result<StoredRoot> stored_root(std::string_view layout, Report* report) const;
  Result<void*> make_root(std::string_view layout, std::uint64_t bytes, Report* report);
  Result<void*> replace_root(const StoredRoot& old, std::string_view layout, std::uint64_t bytes,
                             const MigrateRoot& migrate, Report* report);
};

}  // namespace TENUTO_NS
