// Blocks for objects: what the atomic calls, actions and transactions share.
#pragma once

#include <cstdint>

#include "tools/pmemobj/pools.h"
#include "tx/txn.h"

namespace TENUTO_NS::pmemobj {

// What an allocation asks for. valid_flags is what the call takes.
struct Wanted {
  std::uint64_t bytes = 0;
  std::uint64_t type_num = 0;
  std::uint64_t flags = 0;
};

// The options of the library for it. 0, or errno with a message: a size, type or allocation class
// that cannot be.
int options_for(OpenPool& pool, Wanted& wanted, std::uint64_t valid_flags, AllocOptions& options);

// Reserves a block, filled with zeros and flushed if options.zero.
Result<heap::Block> reserve_block(OpenPool& pool, std::uint64_t bytes, const AllocOptions& options);

// A block that is given back unless done() was called.
class ReservedBlock {
 public:
  ReservedBlock(OpenPool& pool, PoolOffset offset) : pool_(pool), offset_(offset) {}
  ~ReservedBlock() {
    if (offset_) static_cast<void>(pool_.heap().cancel(offset_));
  }
  ReservedBlock(const ReservedBlock&) = delete;
  ReservedBlock& operator=(const ReservedBlock&) = delete;
  void done() { offset_ = {}; }

 private:
  OpenPool& pool_;
  PoolOffset offset_;
};

// Stores an OID so that a thread that reads it without a lock sees the uuid first.
inline void store_oid(PMEMoid& dest, PMEMoid value) {
  __atomic_store_n(&dest.pool_uuid_lo, value.pool_uuid_lo, __ATOMIC_RELEASE);
  __atomic_store_n(&dest.off, value.off, __ATOMIC_RELEASE);
}

// Bytes of the object that starts there; 0: there is none.
inline std::uint64_t usable_bytes(const OpenPool& pool, PMEMoid oid) {
  return pool.heap().usable_size({oid.off});
}

}  // namespace TENUTO_NS::pmemobj
