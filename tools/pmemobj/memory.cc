// Stores that programs make durable themselves.
#include <cerrno>
#include <cstring>

#include "tenuto/persist.h"
#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"

namespace TENUTO_NS::pmemobj {

namespace {

constexpr unsigned kMemoryFlags = PMEMOBJ_F_MEM_NODRAIN | PMEMOBJ_F_MEM_NONTEMPORAL |
                                  PMEMOBJ_F_MEM_TEMPORAL | PMEMOBJ_F_MEM_WC | PMEMOBJ_F_MEM_WB |
                                  PMEMOBJ_F_MEM_NOFLUSH | PMEMOBJ_F_RELAXED;

void drain(PMEMobjpool* pop) {
  fence("what the program flushed", "what it does next");
  OpenPool* const pool = pool_of(pop);
  if (pool == nullptr) return;
  if (const Status s = acknowledge(*pool); s != Status::ok) refuse(s, "cannot persist");
}

void* stored(PMEMobjpool* pop, void* dest, std::size_t bytes, unsigned flags) {
  if ((flags & ~kMemoryFlags) != 0) stop("pmemobj_memcpy: unknown flags 0x%x", flags);
  if ((flags & PMEMOBJ_F_MEM_NOFLUSH) == 0) flush_bytes(dest, bytes);
  if ((flags & (PMEMOBJ_F_MEM_NODRAIN | PMEMOBJ_F_MEM_NOFLUSH)) == 0) drain(pop);
  return dest;
}

int unknown(unsigned flags) {
  if ((flags & ~PMEMOBJ_F_RELAXED) == 0) return 0;
  refuse(EINVAL, "invalid flags 0x%x", flags);
  return -1;
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

void* pmemobj_memcpy(PMEMobjpool* pop, void* dest, const void* src, size_t len, unsigned flags) {
  return stored(pop, std::memcpy(dest, src, len), len, flags);
}

void* pmemobj_memmove(PMEMobjpool* pop, void* dest, const void* src, size_t len, unsigned flags) {
  return stored(pop, std::memmove(dest, src, len), len, flags);
}

void* pmemobj_memset(PMEMobjpool* pop, void* dest, int c, size_t len, unsigned flags) {
  return stored(pop, std::memset(dest, c, len), len, flags);
}

void* pmemobj_memcpy_persist(PMEMobjpool* pop, void* dest, const void* src, size_t len) {
  return pmemobj_memcpy(pop, dest, src, len, 0);
}

void* pmemobj_memset_persist(PMEMobjpool* pop, void* dest, int c, size_t len) {
  return pmemobj_memset(pop, dest, c, len, 0);
}

void pmemobj_flush(PMEMobjpool*, const void* addr, size_t len) { tenuto::flush_bytes(addr, len); }

void pmemobj_drain(PMEMobjpool* pop) { drain(pop); }

void pmemobj_persist(PMEMobjpool* pop, const void* addr, size_t len) {
  tenuto::flush_bytes(addr, len);
  drain(pop);
}

int pmemobj_xpersist(PMEMobjpool* pop, const void* addr, size_t len, unsigned flags) {
  if (unknown(flags) != 0) return -1;
  pmemobj_persist(pop, addr, len);
  return 0;
}

int pmemobj_xflush(PMEMobjpool* pop, const void* addr, size_t len, unsigned flags) {
  if (unknown(flags) != 0) return -1;
  pmemobj_flush(pop, addr, len);
  return 0;
}
