// The media table: which address ranges belong to which medium, and the counters of medium
// `model`. PoolFile registers its mapping here; persist.h's cold path looks ranges up.
//
// A medium decides only how flush and fence leave the process; the code above is the same for
// all. While all open pools agree on `line` (with CLWB) or on `cache`, flushes take the inline
// path and never come here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenuto/pool_options.h"

namespace TENUTO_NS::pm {

// The instruction that writes a line back, best first.
enum class FlushInstruction : std::uint8_t { clwb, clflushopt, clflush };
FlushInstruction flush_instruction();

// Where the flushes of medium journal go.
class FlushSink {
 public:
  virtual void capture(const void* p, std::size_t bytes) = 0;
  // The fence of the calling thread, over what it captured in all sinks: this one may be gone.
  using Fence = void (*)();
  virtual Fence fence() const = 0;

 protected:
  ~FlushSink() = default;
};

inline constexpr std::size_t kRegionsMax = 256;  // pools open in one process

// `sink` takes the flushes of medium journal, else null. All sinks of a process have one fence.
// False: there are kRegionsMax.
[[nodiscard]] bool register_region(const void* base, std::uint64_t bytes, Medium medium,
                                   bool delays, FlushSink* sink = nullptr);
void unregister_region(const void* base);

// What medium `model` saw. A reflush is a line flushed again with fewer than four other lines
// flushed between (NVAlloc, ASPLOS'22). Device writes are counted in 256-byte blocks, combined
// while a thread stays in one block; sequential means the block after the last.
struct ModelCounts {
  std::uint64_t lines = 0;
  std::uint64_t fences = 0;
  std::uint64_t reflushes = 0;
  std::uint64_t writes_sequential = 0;
  std::uint64_t writes_random = 0;

  ModelCounts& operator+=(const ModelCounts& o);
  friend ModelCounts operator-(ModelCounts a, const ModelCounts& b);
};

ModelCounts model_counts();         // of all threads, ended ones included
ModelCounts thread_model_counts();  // of the calling thread

}  // namespace TENUTO_NS::pm
