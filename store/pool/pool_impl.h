// What an open pool is made of. Built by open.cc from the bottom to the top, used by pool.cc,
// root.cc and the store.
#pragma once

#include <memory>
#include <mutex>

#include "file/lane.h"
#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/heap.h"
#include "store/pool/pool_store.h"
#include "tenuto/pool.h"
#include "tx/engine.h"

namespace TENUTO_NS {

struct PoolImpl {
  // Constant after open; destroyed from the top to the bottom.
  std::unique_ptr<pm::PoolFile> file;
  std::unique_ptr<pm::Lanes> lanes;
  std::unique_ptr<frame::Frames> frames;
  std::unique_ptr<heap::Heap> heap;
  std::unique_ptr<tx::Engine> engine;
  // Null: no store, or a clean one nobody asked for.
  std::unique_ptr<PoolStore> store;
  const PoolStoreKind& store_kind;
  unsigned recovery_threads = 0;
  Durability durability = Durability::sync;  // of calls without an option for it
  bool was_clean = true;
  double recovery_ms = 0;
  std::uint64_t leaked_frames = 0;
  std::uint64_t rolled_back = 0;
  std::mutex root_mu;  // one thread makes the root object

  explicit PoolImpl(const PoolStoreKind& kind) : store_kind(kind) {}

  static Result<std::unique_ptr<PoolImpl>> create(std::string_view path, const PoolOptions& options,
                                                  const PoolStoreKind& kind, Report* report);
  // A pool that has no name until it is whole: a crash, or a destructor, leaves nothing of it. No
  // record in it is durable before finish_copy, which closes it, durably, and then gives it the
  // name. exists: somebody else has taken that meanwhile.
  static Result<std::unique_ptr<PoolImpl>> create_copy(std::string_view path,
                                                       const PoolOptions& options,
                                                       const PoolStoreKind& kind, Report* report);
  Status finish_copy(Report* report);
  static Result<std::unique_ptr<PoolImpl>> open(std::string_view path, const PoolOptions& options,
                                                const PoolStoreKind& kind, Report* report);
  // ok, or forked: a child does nothing with it, does not destroy it either (pm::abandon).
  Status usable() const { return file->forked() ? Status::forked : Status::ok; }
  // A clean close: everything volatile is written out and the state says so.
  Status close();

  // Opens the pool's store if there is one and recovery did not.
  Status open_store(Report* report);

  // What an operation that wrote and fenced returns in the end (pm::PoolFile::acknowledge).
  Status acknowledge(Durability d) { return file->acknowledge(d); }

  Result<void*> root(std::string_view layout, std::uint64_t bytes, Report* report);
  // Checks every layer below the store. Quiescent.
  Status validate(Report* report);

 private:
  Status attach(bool clean, const PoolOptions& options, Report* report);
  Status recover(Report* report);
};

}  // namespace TENUTO_NS
