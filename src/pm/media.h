// The media table: the medium of each address range, and the counters of medium `model`. PoolFile
// registers its mapping here. The cold path of persist.h looks ranges up.
//
// A medium decides only how flush and fence leave the process. The code above is the same for all
// media. While all open pools are on `line` (with CLWB), or all on `cache`, and none is watched,
// flushes take the inline path and never come here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenuto/pool_options.h"

namespace TENUTO_NS::pm {

// The instructions that write a line back, best first.
enum class FlushInstruction : std::uint8_t { clwb, clflushopt, clflush };
FlushInstruction flush_instruction();

// Receives the flushes of medium journal.
class FlushSink {
 public:
  virtual void capture(const void* p, std::size_t bytes) = 0;
  // The fence of the calling thread. It covers what the thread captured in all sinks, and is a
  // plain function because this sink may be gone by then.
  using Fence = void (*)();
  virtual Fence fence() const = 0;

 protected:
  ~FlushSink() = default;
};

// Is told of each flush in a region, after it. May be called by any thread.
class FlushWatch {
 public:
  virtual void flushed(const void* p, std::size_t bytes) noexcept = 0;

 protected:
  ~FlushWatch() = default;
};

inline constexpr std::size_t kRegionsMax = 256;  // pools open in one process

// `sink` receives the flushes of medium journal; null on other media. All sinks of a process have
// the same fence. False: kRegionsMax regions are registered.
[[nodiscard]] bool register_region(const void* base, std::uint64_t bytes, Medium medium,
                                   bool delays, FlushSink* sink = nullptr);
void unregister_region(const void* base);
// Null: nobody watches the region any more. REQUIRES: no other thread flushes in it meanwhile.
void watch_flushes(const void* base, FlushWatch* watch);

// What medium `model` counted. A reflush is a line that is flushed again with fewer than four other
// lines flushed between (NVAlloc, ASPLOS'22). Device writes are counted in blocks of 256 bytes.
// Flushes of one thread in the same block count as one write. A write is sequential if its block
// follows the one before.
struct ModelCounts {
  std::uint64_t lines = 0;
  std::uint64_t fences = 0;
  std::uint64_t reflushes = 0;
  std::uint64_t writes_sequential = 0;
  std::uint64_t writes_random = 0;

  ModelCounts& operator+=(const ModelCounts& o);
  friend ModelCounts operator-(ModelCounts a, const ModelCounts& b);
};

ModelCounts model_counts();         // of all threads, also of those that ended
ModelCounts thread_model_counts();  // of the calling thread

}  // namespace TENUTO_NS::pm
