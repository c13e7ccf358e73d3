// How the library reports to the crash explorer what it does to a pool. pool_file.cc announces its
// mappings here. The verbs of tenuto/persist.h report flushes and fences. The compiler reports
// every store (trace_tsan.cc). In the plain build all of this does nothing.
#pragma once

#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

enum class TraceTx : std::uint8_t { begun, committed, aborted };

#ifdef TENUTO_TRACED

// The first `bytes` of the open file `fd` are mapped (shared) at `base`. Called after mapping and
// before the first store. Called again, with the same base and more bytes, when the file has grown.
void trace_map(void* base, std::uint64_t bytes, int fd);
// Called before the mapping goes away.
void trace_unmap(void* base);
// A transaction of the calling thread. After it begins, its stores need no flush before it commits,
// and none at all if it aborts.
void trace_tx(TraceTx what);

// While an object of this type lives, the explorer runs no other thread instead of this one. For
// locks of the whole process: in the process of a crashed image a recovery would find such a lock
// taken, and wait for ever.
class TraceUninterrupted {
 public:
  TraceUninterrupted();
  ~TraceUninterrupted();
  TraceUninterrupted(const TraceUninterrupted&) = delete;
  TraceUninterrupted& operator=(const TraceUninterrupted&) = delete;

 private:
  const bool before_;
};

#else

inline void trace_map(void* /*base*/, std::uint64_t /*bytes*/, int /*fd*/) {}
inline void trace_unmap(void* /*base*/) {}
inline void trace_tx(TraceTx /*what*/) {}
struct TraceUninterrupted {
  TraceUninterrupted() {}
};

#endif

}  // namespace TENUTO_NS::pm
