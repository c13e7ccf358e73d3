// A protection key of the processor over the metadata of pools (PoolOptions::protect_metadata). The
// key is one for all pools of the process. Pages with it are written only while the calling thread
// has the right, which is in a register of the thread (PKRU).
//
// Rule: what reads or writes such pages has a MetadataOpen around it, and what calls a function of
// the program from there has a MetadataClosed around that. The public calls of Heap, Txn, Engine,
// Frames, PoolFile and the few functions above that use the head page have the first. Both nest,
// and cost one load while no pool of the process has the option.
//
// Who has which right outside:
//   a thread that was in MetadataOpen once, and what it starts     reads
//   other threads that are older than the key, signal handlers     none (the kernel's default)
// So no call may rely on being able to read outside. In builds with debug checks the plant
// "pm_metadata_unreadable_outside" takes the reads away, too, and any access that was forgotten
// ends the process.
#pragma once

#include <atomic>
#include <cstdint>

#include "tenuto/abi.h"
#include "tenuto/persist.h"
#include "tenuto/status.h"

namespace TENUTO_NS::pm {

// The two bits of PKRU that belong to the key. 0: there is none. Set once. The traced build has
// none: the explorer would take each load for a step.
inline std::atomic<std::uint32_t> metadata_bits = 0;
inline bool has_metadata_key() {
  return !kTraced && metadata_bits.load(std::memory_order_relaxed) != 0;
}

// Takes the key, if this is the first call in the process. invalid_argument: the processor or the
// kernel has no such keys. full: the process has used all of its 15.
Status take_metadata_key(Report* report);
// Puts the pages under the key, or takes them out. They may be read and written. 0 or errno:
// nothing was changed. REQUIRES: take_metadata_key was ok; whole pages. Cost: a system call.
int put_under_key(void* at, std::uint64_t bytes);
int take_from_under_key(void* at, std::uint64_t bytes);
// Whether this machine has keys.
bool has_keys();

// How often the calling thread got the rights, for tests. Counts in builds with debug checks.
std::uint64_t metadata_openings();
// Returns whether it changed anything. REQUIRES: there is a key.
bool open_metadata();
bool close_metadata();

// While it lives, the calling thread may read and write the metadata.
class MetadataOpen {
 public:
  MetadataOpen() {
    if (has_metadata_key()) [[unlikely]]
      opened_ = open_metadata();
  }
  ~MetadataOpen() {
    if (opened_) [[unlikely]]
      close_metadata();
  }
  MetadataOpen(const MetadataOpen&) = delete;
  MetadataOpen& operator=(const MetadataOpen&) = delete;

 private:
  bool opened_ = false;
};

// While it lives, it may not: around calls of the program's functions, and where threads are
// started, which get the rights of the thread that starts them.
class MetadataClosed {
 public:
  MetadataClosed() {
    if (has_metadata_key()) [[unlikely]]
      closed_ = close_metadata();
  }
  ~MetadataClosed() {
    if (closed_) [[unlikely]]
      open_metadata();
  }
  MetadataClosed(const MetadataClosed&) = delete;
  MetadataClosed& operator=(const MetadataClosed&) = delete;

 private:
  bool closed_ = false;
};

}  // namespace TENUTO_NS::pm
