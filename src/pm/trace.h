// How the library tells the crash explorer what it does to a pool. pool_file.cc announces its
// mappings here; the verbs of tenuto/persist.h report flushes and fences; the compiler reports
// every store (trace_tsan.cc). In the plain build all of this is nothing.
#pragma once

#include <cstdint>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

enum class TraceTx : std::uint8_t { begun, committed, aborted };

#ifdef TENUTO_TRACED

// The first `bytes` of the open file `fd` are mapped (shared) at `base`. Called after mapping and
// before the first store; again with the same base and more bytes when the file has grown.
void trace_map(void* base, std::uint64_t bytes, int fd);
// Called before the mapping goes away.
void trace_unmap(void* base);
// A transaction of the calling thread: from its begin on, its stores need not be flushed before it
// commits, and never if it aborts.
void trace_tx(TraceTx what);

// While it lives, no other of the explorer's threads runs instead of this one: for locks of the
// whole process, which a recovery in a crashed image's process would find taken for ever.
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
