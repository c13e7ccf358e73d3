// The pools that this process has open. A PMEMobjpool* is the address of the mapping, because
// pmemobj_direct_inline adds an object's offset to it.
//
// Thread safety: any thread may look pools up while others open and close other pools. A look-up
// reads a table that never changes; opening and closing make a new one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "store/pool/pool_impl.h"
#include "tools/pmemobj/abi.h"
#include "tools/pmemobj/format.h"

namespace TENUTO_NS::pmemobj {

// The numbers of ctl.cc that are only kept, each as its distance from the value that it has at
// first. Atomic, and so usable in a child of a fork.
inline constexpr std::size_t kNotedCount = 15;
using NotedNumbers = std::array<std::atomic<std::int64_t>, kNotedCount>;

struct OpenPool {
  // Constant after open.
  std::unique_ptr<PoolImpl> impl;
  std::byte* base = nullptr;
  Directory* directory = nullptr;
  std::uint64_t uuid_lo = 0;
  // Another one at each open, and even: what has an older one is not initialised (locks.cc).
  std::uint64_t run_id = 0;

  std::mutex root_mu;                           // makes and replaces the root object
  std::atomic<std::uint64_t> leaving_root = 0;  // while it is replaced: the offset of the old one
  std::atomic<void*> user_data = nullptr;
  std::mutex classes_mu;
  std::map<unsigned, pobj_alloc_class_desc> classes;  // guarded by classes_mu
  NotedNumbers noted{};
  std::mutex defrag_mu;  // one at a time

  PMEMobjpool* handle() const { return reinterpret_cast<PMEMobjpool*>(base); }
  pm::PoolFile& file() const { return *impl->file; }
  heap::Heap& heap() const { return *impl->heap; }
  void* at(std::uint64_t offset) const { return base + offset; }
  PMEMoid oid_of(const void* p) const { return {uuid_lo, file().offset_of(p).value}; }
  // The address of an object of this pool; null for any other OID.
  void* address(PMEMoid oid) const {
    const bool ours = oid.pool_uuid_lo == uuid_lo && oid.off >= pm::kHeadBytes;
    return ours && oid.off < file().bytes() ? base + oid.off : nullptr;
  }
};

// Null, with errno and a message: it is no open pool, or the pool of the parent process.
OpenPool* pool_of(PMEMobjpool* handle);
// Null without a message.
OpenPool* find_by_uuid(std::uint64_t uuid_lo);
OpenPool* find_by_address(const void* p);

// False: a pool with this uuid is open.
bool add_open_pool(std::unique_ptr<OpenPool> pool);
// REQUIRES: no other call on the pool is under way. The caller then owns it.
std::unique_ptr<OpenPool> remove_open_pool(OpenPool* pool);
// Before a clean close: what the program stored and did not flush gets into the file, too. False,
// with errno: the file cannot be read. REQUIRES: no other call on the pool is under way.
bool flush_unflushed(OpenPool& pool);

}  // namespace TENUTO_NS::pmemobj
